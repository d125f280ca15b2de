"""What can be done with the metadata roots of a log, where several decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyspark_commitlog.access import Operation
from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.model import RootDescription
from pyspark_commitlog.replicas.metadata_roots import names_at
from pyspark_commitlog.replicas.quorum_changes import follow, tell
from pyspark_commitlog.replicas.replacing import begin, finish, move, replaced_by, settings_of, teach
from pyspark_commitlog.replicas.replica_journals import Places
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.root import Root
from pyspark_commitlog.storage import Storage


class MetadataRoots(Root):
    """A root that may belong together with others, of which some decide; see ``CommitLog``."""

    def replicas(self) -> tuple[RootDescription, ...]:
        """Return the roots that belong together; see ``ReplicatedRoot``."""
        raise NotImplementedError

    def replace_metadata(self, old: str, new: str) -> tuple[RootDescription, ...]:
        """Have an empty place take the place of a metadata root, of three or five: one that is lost, or shall move.

        Writers, readers and groups go on. The old one has no vote any more, whatever it holds when it comes back. What
        was cut off is finished when it is run again; until then a majority of those of before has to answer.

        Args:
            old: the root's id, directory or URL.
            new: a directory or URL; the same where that is empty now.

        Returns:
            The roots that belong together.

        Raises:
            UsageError: one root decides alone, ``old`` is none of those that do, or ``new`` is not empty; nothing was
                changed.
            ReplicaNotAvailableError: too few of the other metadata roots answer, or the new one could not learn all;
                run it again.
            ConflictError: another one was replaced meanwhile; run it again.
        """
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, ALL)
        self._check_store()
        roots, place = Roots.of(self._storage), self._storage.peer(new)
        roots.compare(again=True)
        leaving = replaced_by(roots.listed(), old, place, self._storage.peer)
        self._finish_replacing()
        if leaving is not None:
            leaving = replaced_by(roots.listed(), old, place, self._storage.peer)
        if leaving is not None:
            taking = begin(roots, leaving, place, self._make_one_of_several)
            teach(taking, place, self._units(roots.listed().deciding()))
            move(roots, leaving, taking)
            finish(roots, self._units)
        return self.replicas()

    def _finish_replacing(self) -> None:
        """Have a metadata root be replaced whose replacement was decided, and cut off."""
        roots = Roots.of(self._storage)
        roots.compare()
        if len(roots.listed().metadata) > 1:
            follow(roots)
            finish(roots, self._units)
            if roots.listed().generation:
                tell(roots, roots.listed())  # some may have been away, or the process was killed on the way

    def _units(self, ids: Sequence[str]) -> Iterator[Places]:
        """Yield all that several metadata roots decide, as named at a majority of some of them."""
        roots = Roots.of(self._storage)
        for name in names_at(roots, ids, paths.TOPICS):
            with suppress(UsageError):  # no topic's directory
                yield TopicLog(self._storage, name).journal.order().places
        for name in names_at(roots, ids, paths.GROUPS):
            if (group := paths.parse_group(name)) is not None:
                yield self.group(group).journal.order().places
        yield from settings_of(roots)

    def _make_one_of_several(self, storage: Storage) -> None:
        """Make a root that belongs together with others."""
        raise NotImplementedError

    def _check_several(self) -> None:
        if not self._is_one_of_several:
            raise UsageError(
                f"{self._storage.url} stands alone: its topics have no replicas. Roots that belong together are made "
                "with CommitLog.create_root(replicas=[…]), or `commitlog replicas create`; `commitlog replicas add` "
                "gives it others"
            )
