"""`Root`: an opened root and the handles of its topics and groups.

`CommitLog` is the API on top of it. Clients and the Spark source and sink use `Root`, which imports faster.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    RootNotFoundError,
    StorageUnreadableError,
    UnknownTopicError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.marker import MARKER_BYTES, UNSAFE_SINGLE_WRITER, decode_marker
from pyspark_commitlog.replication.admin.settings import spread
from pyspark_commitlog.replication.metadata.metadata_roots import Deciders
from pyspark_commitlog.replication.protocol.roots import Roots, root_id
from pyspark_commitlog.storage import Storage, first_that_answers, open_storage
from pyspark_commitlog.topic.access import Access, Operation
from pyspark_commitlog.topic.topic_log import TopicLog

if TYPE_CHECKING:
    from pyspark_commitlog.groups.consumer_groups import Groups
    from pyspark_commitlog.groups.state.group_log import GroupLog


class Root:
    """A root of topics, with `CommitLog`'s arguments. Opening it touches nothing."""

    def __init__(
        self, root: str, storage_options: Mapping[str, object] | None = None, principal: str | None = None
    ) -> None:
        self._begin(open_storage(root, storage_options), principal)

    def _begin(self, storage: Storage, principal: str | None) -> None:
        self._storage, self.principal = storage, principal

    #: Whether one process alone may write, as the store may take two puts, by the marker; None before it is read.
    _unsafe: bool | None = None
    #: Whether the root is one of several that hold replicas, by its marker; False before it is read.
    is_replicated = False

    @classmethod
    def on(cls, storage: Storage, principal: str | None = None) -> Self:
        """Root on an open storage, as tests inject."""
        root = cls.__new__(cls)
        root._begin(storage, principal)
        return root

    @property
    def storage(self) -> Storage:
        """Storage of its files."""
        return self._storage

    @property
    def root_id(self) -> str:
        """Id in the root's marker."""
        return root_id(self._storage)

    @property
    def is_unsafe(self) -> bool:
        """Whether only one process may write, by the marker last read."""
        return bool(self._unsafe)

    def acting_as(self, principal: str | None) -> Self:
        """Return this root for another principal."""
        return self.on(self._storage, principal)

    @property
    def url(self) -> str:
        """Directory or URL as the user named it."""
        return self._storage.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._storage.url!r})"

    def check(self) -> None:
        """Refuse a missing root, one of another format version, or a damaged marker."""
        data = self.marker()
        marker = decode_marker(data, f"{self._storage.url}/{paths.ROOT_MARKER}")
        if self._unsafe is None and marker.unsafe_single_writer:
            logging.getLogger("pyspark_commitlog").warning(
                "%s was made with %s=true: a second process that writes destroys what the first one committed",
                self._storage.url, UNSAFE_SINGLE_WRITER,
            )  # fmt: skip
        self._unsafe = self._storage.single_writer = marker.unsafe_single_writer
        self.is_replicated, self.offsets_expire = marker.replicas, marker.offsets_expire
        if self.is_replicated:
            Roots.of(self._storage)  # what is put at this root is decided with others, which notice that it is away
        else:
            self._storage.expect_root()

    def check_replicated(self) -> None:
        """Refuse a root that stands alone."""
        if not self.is_replicated:
            raise UsageError(
                f"{self.url} stands alone: its topics have no replicas. Roots that belong together are made "
                "with CommitLog.create(replicas=[…]), or `commitlog replicas create`; `commitlog replicas add` "
                "gives it others"
            )

    def check_replica_admin(self, topic: str = ALL) -> None:
        """Refuse a root that stands alone, or a principal without admin rights."""
        self.check()
        self.check_replicated()
        self.local_access.check(Operation.ADMIN, topic)

    def marker(self) -> bytes:
        """Return the marker's bytes; of several roots the first that answers is used from now on."""
        try:
            return self._storage.read(paths.ROOT_MARKER, 0, MARKER_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            if not self._storage.others:
                raise self._no_root() from None
        except OSError:
            if not self._storage.others:
                raise
        self._storage = first_that_answers(self._storage)
        return self._storage.read(paths.ROOT_MARKER, 0, MARKER_BYTES)

    def _no_root(self) -> RootNotFoundError:
        url = self._storage.url
        check = "check the path" if "://" in url else "check the path, and that its disk is mounted"
        return RootNotFoundError(f"there is no commit log at {url}: {check}, or make it with ").advising(
            f"CommitLog({url!r}).create_topic(…)", f"commitlog topics create {url} TOPIC"
        )

    def check_store(self) -> None:
        """Refuse to write to a store that takes two puts of one name (`storage.race`)."""
        if self._storage.client and not self._unsafe:
            from pyspark_commitlog.storage.race import check_store

            check_store(self._storage)

    def topic(self, name: str, operation: Operation = Operation.READ) -> TopicLog:
        """Handle of a topic, existing or not; the layers below the API check no access.

        Refuse what the principal may not do, and to write to an unsafe store.
        """
        self.check()
        self.local_access.check(operation, name)
        if operation in (Operation.WRITE, Operation.ADMIN):
            self.check_store()
        topic = TopicLog(self._storage, name)
        return topic.route(writing=operation is Operation.WRITE) if self.is_replicated else topic

    @property
    def local_access(self) -> Access:
        """Access rules as this root has learned them."""
        return Access(self._storage, self.principal)

    @property
    def access(self) -> Access:
        """The access rules of this root."""
        self.check()
        if not self.is_replicated:
            return self.local_access
        roots = Roots.of(self._storage)
        spreads = partial(spread, roots, paths.ACCESS_JOURNAL)
        if self.deciders is not None:
            return Access(self._storage, self.principal, spreads, roots)
        return Access(self.deciding, self.principal, spreads)

    @property
    def deciding(self) -> Storage:
        """Root where groups and settings are put: of several the metadata root, if one decides.

        Raises:
            ReplicaNotAvailableError: it does not answer.
        """
        if not self.is_replicated:
            return self._storage
        roots = Roots.of(self._storage)
        return roots.open(roots.listed().metadata[0].id)

    def find_fallback(self, topic: str) -> Storage | None:
        """Return another root that answers, if this one does not."""
        if self._storage.together is None or not TopicLog(self._storage, topic).is_away():
            return None
        roots = Roots.of(self._storage)
        found = next((each.id for each in roots.listed().every() if roots.answers(each.id)), None)
        return None if found is None else roots.open(found)

    def group(self, name: str) -> GroupLog:
        """Handle of a consumer group, existing or not."""
        from pyspark_commitlog.groups.state.group_log import GroupLog

        self.check()
        deciders = self.deciders
        storage = self.deciding if deciders is None else self._storage
        return GroupLog(storage, name, replicated=self.is_replicated, deciders=deciders)

    @property
    def deciders(self) -> Deciders | None:
        """Metadata roots if several decide."""
        if not self.is_replicated or len(Roots.of(self._storage).listed().metadata) == 1:
            return None
        return Deciders(Roots.of(self._storage))

    def listed(self) -> list[str]:
        """Names in the topics' directory that the principal may use, sorted; none need be a topic.

        One listing. Of roots that belong together: of this one, and the metadata root, where all topics are, or else of
        all that answer.
        """
        return self.local_access.permitted_topics(Operation.DESCRIBE, self.names())

    def names(self) -> list[str]:
        """Names in the topics' directory, also hidden ones; none need be a topic."""
        names = self._storage.names(paths.TOPICS)
        if not names:  # a root that was not seen yet may be away
            self.check()
            names = self._storage.names(paths.TOPICS)
        if not self.is_replicated:
            return names
        roots = Roots.of(self._storage)
        listed = roots.listed()
        decided = roots.names(listed.metadata, paths.TOPICS)
        found = decided or roots.names(listed.data, paths.TOPICS)  # without the metadata, each root knows its own
        return sorted({*names, *found})

    def topics(self) -> list[str]:
        """Live topics that the principal may describe and this user read, sorted."""
        self.check()
        return [name for name in self.listed() if self._is_live(name)]

    def every_name(self) -> list[str]:
        """Names of all topics, also deleted and damaged ones, for maintenance."""
        self.check()
        return [name for name in self._storage.names(paths.TOPICS) if self._has_entries(name)]

    def unseen_topics(self, names: Collection[str]) -> list[str]:
        """Topics not among `names`, sorted: this principal, or user, may not read them."""
        self.check()
        return [name for name in self.names() if name not in names and self._may_be_live(name)]

    def _newest(self, name: str) -> None:
        topic = TopicLog(self._storage, name)
        (topic.route(writing=False) if self.is_replicated else topic).newest()

    def _may_be_live(self, name: str) -> bool:
        try:
            self._newest(name)
        except (UnknownTopicError, UsageError):
            return False
        except CommitLogError:
            pass  # unreadable: it may be live
        return True

    def _is_live(self, name: str) -> bool:
        try:
            self._newest(name)
        except (StorageUnreadableError, UnknownTopicError, UsageError):
            return False
        except (CorruptionError, UnsupportedError):
            pass  # its users get the error
        return True

    def _has_entries(self, name: str) -> bool:
        """Whether a directory is a topic's, not one being made or somebody else's."""
        try:
            return TopicLog(self._storage, name).journal.newest() is not None
        except UsageError:
            return False
        except CommitLogError:
            return True

    @property
    def groups(self) -> Groups:
        """The root's consumer groups."""
        from pyspark_commitlog.groups.consumer_groups import Groups

        self.check()
        deciders = self.deciders
        storage = self.deciding if deciders is None else self._storage
        learns = self.is_replicated and (deciders is not None or storage is not self._storage)
        return Groups(
            storage, self.local_access, replicated=self.is_replicated, deciders=deciders,
            learner=self._storage if learns else None, offsets_expire=self.offsets_expire,
        )  # fmt: skip
