"""`CommitLog`: a root and its topics, for Python without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.api.replicas import Replicas
from pyspark_commitlog.api.root_config import RootConfig
from pyspark_commitlog.api.topic import Topic
from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedError,
)
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.model import Progress, silent, watched
from pyspark_commitlog.replication.admin.root_creation import make_roots
from pyspark_commitlog.root.create_topic import create_topic, declaration
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_replicated_root
from pyspark_commitlog.storage import Storage, open_peer
from pyspark_commitlog.text import counted, html_lines, html_or_error, html_table
from pyspark_commitlog.topic.access import Access
from pyspark_commitlog.topic.damage.verify import RootReport, TopicReport
from pyspark_commitlog.topic.maintain.maintain import Maintained

if TYPE_CHECKING:
    from pyspark_commitlog.copying.comparison import Compared
    from pyspark_commitlog.copying.copy import Copied


class CommitLog:
    """A root of topics, and all its operations but produce and consume. Opening it touches nothing.

    Args:
        root: a directory, or a URL: `s3://`, `gs://`, `az://`, `abfs://`, `file://`; several that belong together, with
            commas: the first that answers is used.
        storage_options: for a URL, named as fsspec's (docs/how-to/object-stores.md).
        principal: the one that asks, if the root has access rules; None: `COMMITLOG_PRINCIPAL`.

    Attributes:
        root: the opened root, for the layers below this API.
    """

    def __init__(
        self, root: str, storage_options: Mapping[str, object] | None = None, principal: str | None = None
    ) -> None:
        self.root = Root(root, storage_options, principal)

    @classmethod
    def of(cls, root: Root) -> CommitLog:
        """Return an opened root's API."""
        log = cls.__new__(cls)
        log.root = root
        return log

    @classmethod
    def on(cls, storage: Storage, principal: str | None = None) -> CommitLog:
        """Log on an open storage, as tests inject."""
        return cls.of(Root.on(storage, principal))

    @classmethod
    def create(
        cls,
        replicas: Sequence[str],
        metadata: Sequence[str] = (),
        storage_options: Mapping[str, object] | None = None,
    ) -> CommitLog:
        """Make roots that belong together: their topics have replicas on several of them.

        Args:
            replicas: directories or URLs, 1 to 16, each on a disk, machine or bucket of its own.
            metadata: the roots that decide each topic's next entry, without which nothing can be written: one of
                `replicas`, or a small directory elsewhere, or three or five of these, which decide by majority.
                Default: the first of `replicas`.
            storage_options: for URLs.

        Returns:
            The log, opened at the first root.

        Raises:
            UsageError: a root exists already, or is named twice; of several metadata roots one holds data, or there are
                2 or 4. No existing root is changed.
            StorageError: one can't be made; run it again.
        """
        data, deciding = (
            [open_peer(url, storage_options, storage_options) for url in urls]
            for urls in (replicas, metadata or replicas[:1])
        )
        return cls.on(make_roots(data, deciding, make_replicated_root))

    @property
    def url(self) -> str:
        """The root's directory or URL as named."""
        return self.root.url

    def __repr__(self) -> str:
        return f"CommitLog({self.url!r})"

    def _repr_html_(self) -> str:
        return html_or_error(self, self._html)

    def _html(self) -> str:
        rows = [("topic", name) for name in self.topics()] + [("group", name) for name in self.groups.list()]
        return html_lines([f"{self!r}"]) + html_table(["KIND", "NAME"], rows)

    def acting_as(self, principal: str | None) -> CommitLog:
        """Return the same log for another principal."""
        return self.of(self.root.acting_as(principal))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        schema: object = None,
        key: str | None = None,
        timestamp: str | None = None,
        if_not_exists: bool = False,
    ) -> Topic:
        """Create a topic, and the root if it is the first.

        Args:
            name: 1 to 249 of `a-z A-Z 0-9 . _ -`.
            partitions: 1 to 10,000; it can grow later, never shrink.
            config: Kafka's topic configs, and ours (docs/reference/topic-configs.md); `unsafe.single.writer` is for the
                new root (docs/how-to/object-stores.md).
            schema: columns of a typed topic: a DDL string such as `user STRING, at TIMESTAMP`, a Spark or Arrow
                schema, or a DataFrame (docs/reference/column-types.md). None: records have a key and a value.
            key: the column that is the records' key.
            timestamp: the column that is the records' timestamp; needs `retention.ms`.
            if_not_exists: do nothing if the topic exists, whatever its partitions, configs and columns.

        Returns:
            The topic.

        Raises:
            UsageError, ConfigError: nothing was made.
            UnsupportedError: the store takes two puts of one name; nothing was made.
            TopicExistsError: the topic exists.
            ReplicaNotAvailableError: fewer roots answer than `replication.factor`, or none; nothing was made. A topic
                recreated on its roots does not ask them.
        """
        try:
            create_topic(self.root, name, partitions, config or {}, declaration(schema, key, timestamp))
        except TopicExistsError:
            if not if_not_exists:
                raise
        return Topic(self.root, name)

    def topic(self, name: str) -> Topic:
        """Return a topic, which is looked up when used."""
        return Topic(self.root, name)

    def topics(self) -> list[str]:
        """Names of all topics that this user may read and the principal use, sorted.

        Raises:
            RootNotFoundError: there is no root here.
        """
        return self.root.topics()

    @property
    def groups(self) -> Groups:
        """The consumer groups.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
        """
        return self.root.groups

    @property
    def access(self) -> Access:
        """The access rules.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
        """
        return self.root.access

    @property
    def config(self) -> RootConfig:
        """The root-wide defaults of topic configs."""
        return RootConfig(self.root)

    @property
    def replicas(self) -> Replicas:
        """The roots that belong together, and the replicas of topics on them."""
        return Replicas(self.root)

    def maintain(self, *, progress: Progress = silent) -> tuple[Maintained, ...]:
        """Maintain all topics (`Topic.maintain`) and groups (`Groups.maintain`).

        Args:
            progress: called with the step; may raise to stop, which leaves all in order.

        Raises:
            RootNotFoundError: there is no root here.
            ExceptionGroup: some topics or groups failed; the others were maintained.
        """
        maintenance, seen = Maintenance(self.root), watched(progress)
        with maintenance.catching_up(seen):
            return maintenance.maintain_all(seen)

    def verify(self, *, progress: Progress = silent) -> RootReport:
        """Check every stored byte of the root against its newest entries; reads only.

        Args:
            progress: called with the bytes of segments read; may raise to stop.

        Returns:
            Faults outside of topics, and a report of each topic (`topics`).

        Raises:
            RootNotFoundError: there is no root here.
            ExceptionGroup: some topics could not be read; the others were.
        """
        report, reports, failed = verify_root(self.root), list[TopicReport](), list[Exception]()
        try:
            names = self.root.every_name()
        except (CorruptionError, UnsupportedError):
            return report  # its faults name it
        for name in names:
            try:
                reports.append(Topic(self.root, name).verify(progress=progress))
            except UnknownTopicError:
                continue  # it was deleted
            except (CommitLogError, OSError) as error:
                failed.append(error)
        if failed:
            raise ExceptionGroup(f"{counted(len(failed), 'topic')} could not be verified", failed)
        return replace(report, topics=tuple(reports))

    def copy_to(
        self,
        destination: CommitLog | str,
        topics: Sequence[str] | None = None,
        *,
        groups: bool = False,
        progress: Progress = silent,
    ) -> Copied:
        """Copy topics to another root, or bring copies up to date.

        Ids, offsets, timestamps and histories stay the same. Safe to interrupt and repeat, or to run several times at
        once, beside readers, writers and maintenance of this root. The destination always shows this root as of some
        commit, of all partitions at once. The first entry that anybody else puts there (a commit, a changed config)
        makes the topic independent, and further copies are refused.

        Args:
            destination: the root to copy to; made if missing.
            topics: names; None for all, and all access rules. A warning names those that can't be seen.
            groups: copy consumer groups' offsets too, forward only.
            progress: gets a title, and the amount done and in all; may raise to stop.

        Raises:
            UsageError: both roots are one, or topics would begin at one of several roots.
            UnknownTopicError: there is no such topic here.
            TopicExistsError: the destination has, or had, another topic of that name.
            ConflictError: the topic there was written to, or never was a copy.
            LogTruncationError: this root was restored from something older than the copy.
            AccessDeniedError: reading here, or creating topics at the destination, is not allowed.
            CorruptionError: stored bytes are damaged here.
            OutcomeUnknownError: run it again.
            ExceptionGroup: several topics or groups failed; its note names what was copied all the same.
        """
        from pyspark_commitlog.copying.copy import copy_topics

        return copy_topics(self.root, _root_of(destination), topics, groups=groups, progress=progress)

    def compare_with(
        self, destination: CommitLog | str, topics: Sequence[str] | None = None, *, progress: Progress = silent
    ) -> tuple[Compared, ...]:
        """Compare every record of copied topics at both ends, as far as the destination has them; reads only.

        Args:
            destination: the root that was copied to.
            topics: names; None for all here. A warning names those that can't be seen.
            progress: gets a title, and the amount done and in all; may raise to stop.

        Raises:
            UnknownTopicError: a topic is missing.
            CorruptionError: stored bytes are damaged.
        """
        from pyspark_commitlog.copying.copy import compare_topics

        return compare_topics(self.root, _root_of(destination), topics, progress=progress)


def _root_of(log: CommitLog | str) -> Root:
    return log.root if isinstance(log, CommitLog) else Root(log)
