"""`Maintenance`: rounds over a root's topics and groups, for the API, the command line and services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_commitlog.api.repair import drop_void_records, repair_unsettled
from pyspark_commitlog.api.replica_sync import ReplicaSync
from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.model import Progress, Watched
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.donors.mend import warn_of_void_records
from pyspark_commitlog.topic.upkeep.run import Maintained, maintain_topic


class Maintenance:
    """Maintains topics and groups; remembers between rounds which replicas lag (`replicas`)."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.replicas = ReplicaSync(root)

    @contextmanager
    def catching_up(self, progress: Watched) -> Iterator[None]:
        """Catch up roots that lag after what is done within, unless the caller's progress ended that."""
        waits = True
        try:
            yield
        except Exception as error:
            waits = not progress.ended_by(error)
            raise
        finally:
            if waits:
                self.replicas.catch_up()

    def maintain(self, name: str, progress: Progress) -> Maintained:
        """Maintain a topic; raises as `Topic.maintain`. `replicas.catch_up` goes on with roots that lag."""
        lags = self.replicas.sync_first(name)
        self._drop_void_records(name)
        try:
            try:
                return maintain_topic(self.root.topic(name, Operation.ADMIN), progress)
            except (CorruptionError, ExceptionGroup):
                if not (self.root.is_replicated and repair_unsettled(self.root.storage, name)):
                    raise
            return maintain_topic(self.root.topic(name, Operation.ADMIN), progress)
        finally:
            self.replicas.set_lagging(name, lags)  # not before: what copies it elsewhere needs the lock, and the files

    def maintain_all(self, progress: Watched) -> tuple[Maintained, ...]:
        """Maintain all topics and groups; raises as `CommitLog.maintain`."""
        done, failed, names = [], list[Exception](), self.root.every_name()
        self.replicas.replace_leaders(names)
        for name in names:
            try:
                done.append(self.maintain(name, progress))
            except Exception as error:
                if progress.ended_by(error):
                    raise
                failed.append(error)
        failed += self._maintain_groups()
        if failed:
            raise ExceptionGroup(f"{len(failed)} topics or groups could not be maintained", failed)
        return tuple(done)

    def _maintain_groups(self) -> list[Exception]:
        try:
            names, failed = self.root.groups.every_name(), list[Exception]()
        except Exception as error:  # noqa: BLE001 raised by the caller, with what failed of the topics
            return [error]
        for group in names:
            try:
                self.root.groups.maintain(group)
            except Exception as error:  # noqa: BLE001 as above
                failed.append(error)
        return failed

    def _drop_void_records(self, name: str) -> None:
        """Drop settled records that an unclean election made void; warn of what stays."""
        if not self.root.is_replicated:
            return
        try:
            left = drop_void_records(self.root.storage, name).left
        except (CommitLogError, OSError) as error:
            left = (str(error),)
        for why in left:
            warn_of_void_records(name, self.root.url, why)
