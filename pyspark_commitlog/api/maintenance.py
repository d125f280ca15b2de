"""`Maintenance`: rounds over a root's topics and groups, for the API, the command line and services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from pyspark_commitlog.api.repair import drop_void_records, repair_unsettled
from pyspark_commitlog.api.replica_sync import ReplicaSync
from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.groups.descriptions import MaintainedGroup
from pyspark_commitlog.model import Progress, Watched, watched
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.maintain.maintain import Maintained, maintain_topic
from pyspark_commitlog.topic.replica_fetch.mend import warn_of_void_records

_T = TypeVar("_T")


@dataclass(frozen=True)
class Failure:
    """Failed part of a round: a topic, `group g`, or the listing of `groups`."""

    what: str
    error: Exception


class Maintenance:
    """Maintains topics and groups; remembers between rounds which replicas lag (`replicas`)."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.replicas = ReplicaSync(root)

    @contextmanager
    def catching_up(self, progress: Watched) -> Iterator[None]:
        """Catch up roots that lag after what is done within, unless the caller's progress ended that."""
        try:
            yield
        finally:
            if not progress.has_raised:
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
        names = self.root.every_name()
        ended = list(self.round(names, ((name, progress) for name in names), groups=True))
        if failed := [each.error for each in ended if isinstance(each, Failure)]:
            raise ExceptionGroup(f"{len(failed)} topics or groups could not be maintained", failed)
        return tuple(each for each in ended if isinstance(each, Maintained))

    def round(
        self, names: Sequence[str], topics: Iterable[tuple[str, Progress]], *, groups: bool
    ) -> Iterator[Maintained | MaintainedGroup | Failure]:
        """Maintain topics, then groups if asked, and yield each result or failure.

        Args:
            names: topics, whose lost leaders are replaced first.
            topics: each with its progress, which may raise to end the round.
            groups: maintain all groups too.
        """
        self.replicas.replace_leaders(names)
        for name, progress in topics:
            seen = watched(progress)
            done = _attempt(name, self._maintain_unless_copying, name, seen)
            if isinstance(done, Failure) and seen.ended_by(done.error):
                raise done.error
            if done is not None:
                yield done
        listed = _attempt("groups", lambda: self.root.groups.every_name()) if groups else ()
        if isinstance(listed, Failure):
            yield listed
            return
        for group in listed:
            yield _attempt(f"group {group}", lambda name: self.root.groups.maintain(name), group)

    def _maintain_unless_copying(self, name: str, progress: Progress) -> Maintained | None:
        return None if self.replicas.sync_if_copying(name) else self.maintain(name, progress)

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


def _attempt(what: str, act: Callable[..., _T], *given: object) -> _T | Failure:
    failures = Failures()  # of any class: no topic or group stops the others
    with failures.collected():
        return act(*given)
    return Failure(what, failures[0])
