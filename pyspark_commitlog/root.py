"""What every client starts from: a root, opened, and the handles of its topics and groups.

``CommitLog`` is the whole of it; the Spark source and sink take no more than this, for it is quickly imported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from pyspark_commitlog.access import Access, Operation
from pyspark_commitlog.errors import RootNotFoundError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.marker import MARKER_BYTES, UNSAFE_SINGLE_WRITER, decode_marker
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.replicas.metadata_roots import Deciders
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.replicas.settings import spread
from pyspark_commitlog.storage import Storage, first_that_answers, open_storage

if TYPE_CHECKING:
    from pyspark_commitlog.groups.state.group_log import GroupLog


class Root:
    """A root of topics, opened.

    Opening touches nothing.

    Args:
        root: a directory, or a URL: ``s3://``, ``gs://``, ``az://``, ``abfs://``, ``file://``; several of them, with
            commas, where they belong together: the first that answers is taken.
        storage_options: for a URL, under the names of fsspec's filesystems (docs/how-to/object-stores.md).
        principal: the one that asks, where the root has access rules; None for what ``COMMITLOG_PRINCIPAL`` says.
    """

    def __init__(
        self, root: str, storage_options: Mapping[str, object] | None = None, principal: str | None = None
    ) -> None:
        self._begin(open_storage(root, storage_options), principal)

    def _begin(self, storage: Storage, principal: str | None) -> None:
        self._storage, self._principal = storage, principal

    #: Whether the marker says that one process alone may write, whatever the store does with two puts (None: not read).
    _unsafe: bool | None = None
    #: Whether the marker says that the root is one of several.
    _is_one_of_several = False

    @classmethod
    def on(cls, storage: Storage, principal: str | None = None) -> Self:
        """Return the log on an open storage (tests inject clocks and faults this way)."""
        log = cls.__new__(cls)
        log._begin(storage, principal)
        return log

    @property
    def storage(self) -> Storage:
        """The door to its files, for the layers below the API."""
        return self._storage

    def acting_as(self, principal: str | None) -> Self:
        """Return the same log, asked by another principal."""
        return self.on(self._storage, principal)

    @property
    def url(self) -> str:
        """What the user called the root."""
        return self._storage.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._storage.url!r})"

    def _check_root(self) -> None:
        """Refuse a missing root or another format version.

        Raises:
            RootNotFoundError: there is no root here.
            UnsupportedError: made by another format version.
            CorruptionError: its marker is damaged.
        """
        data = self._marker()
        marker = decode_marker(data, f"{self._storage.url}/{paths.ROOT_MARKER}")
        if self._unsafe is None and marker.unsafe_single_writer:
            logging.getLogger("pyspark_commitlog").warning(
                "%s was made with %s=true: a second process that writes destroys what the first one committed",
                self._storage.url, UNSAFE_SINGLE_WRITER,
            )  # fmt: skip
        self._unsafe = self._storage.single_writer = marker.unsafe_single_writer
        self._is_one_of_several = marker.replicas
        if self._is_one_of_several:
            Roots.of(self._storage)  # what is put at this root is decided with others, which notice that it is away
        else:
            self._storage.expect_root()

    def _marker(self) -> bytes:
        """Return the marker; where several roots were named, of the first that answers, which is used from now on."""
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

    def _check_store(self) -> None:
        """Refuse to write to a store that takes two puts of one name; see ``storage.race``."""
        if self._storage.client and not self._unsafe:
            from pyspark_commitlog.storage.race import check_store

            check_store(self._storage)

    def topic(self, name: str, operation: Operation = Operation.READ) -> TopicLog:
        """Return the handle of a topic, existing or not; the layers below the API work on it, and ask no more.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
            AccessDeniedError: the principal may not do this with the topic.
            UnsupportedError: it is to be written to, and the store is not safe.
        """
        self._check_root()
        self._access.check(operation, name)
        if operation in (Operation.WRITE, Operation.ADMIN):
            self._check_store()
        topic = TopicLog(self._storage, name)
        return topic.route(writing=operation is Operation.WRITE) if self._is_one_of_several else topic

    @property
    def _access(self) -> Access:
        return Access(self._storage, self._principal)

    @property
    def access(self) -> Access:
        """The access rules of this root.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
        """
        self._check_root()
        if not self._is_one_of_several:
            return self._access
        roots = Roots.of(self._storage)
        spreads = partial(spread, roots, paths.ACCESS_JOURNAL)
        if self._deciders is not None:
            return Access(self._storage, self._principal, spreads, roots)
        return Access(self.deciding, self._principal, spreads)

    @property
    def deciding(self) -> Storage:
        """The root where groups and settings are put, where one decides: of several roots the metadata root.

        Raises:
            ReplicaNotAvailableError: it does not answer.
        """
        if not self._is_one_of_several:
            return self._storage
        roots = Roots.of(self._storage)
        return roots.open(roots.listed().metadata[0].id)

    def group(self, name: str) -> GroupLog:
        """Return the handle of a consumer group, existing or not; the layers below the API work on it.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
            UsageError: a name that is not allowed.
        """
        from pyspark_commitlog.groups.state.group_log import GroupLog

        self._check_root()
        deciders = self._deciders
        storage = self.deciding if deciders is None else self._storage
        return GroupLog(storage, name, replicated=self._is_one_of_several, deciders=deciders)

    @property
    def _deciders(self) -> Deciders | None:
        """The metadata roots, where several decide."""
        if not self._is_one_of_several or len(Roots.of(self._storage).listed().metadata) == 1:
            return None
        return Deciders(Roots.of(self._storage))

    def listed(self) -> list[str]:
        """Return what is named in the topics' directory, sorted: one listing; none need be a topic.

        Names that the principal may not use are left out. Of roots that belong together: a listing of this one, and
        one of the metadata root, where all topics are, or of all that answer where that does not.
        """
        return self._access.permitted_topics(Operation.DESCRIBE, self._names())

    def _names(self) -> list[str]:
        """Return what is named in the topics' directory, of all principals."""
        names = self._storage.names(paths.TOPICS)
        if not names:  # a root that was not seen yet may be away
            self._check_root()
            names = self._storage.names(paths.TOPICS)
        if not self._is_one_of_several:
            return names
        roots = Roots.of(self._storage)
        listed = roots.listed()
        decided = roots.names(listed.metadata, paths.TOPICS)
        found = decided or roots.names(listed.data, paths.TOPICS)  # without the metadata, each root knows its own
        return sorted({*names, *found})
