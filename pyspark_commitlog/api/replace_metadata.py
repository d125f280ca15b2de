"""Replaces one of several metadata roots, and finishes an interrupted replacement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replication.admin.replacing import begin, finish, move, replaced_by, settings_of, teach
from pyspark_commitlog.replication.metadata.metadata_roots import names_at
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.metadata.quorum_changes import follow, tell
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_replicated_root
from pyspark_commitlog.topic.topic_log import TopicLog


def replace_metadata(root: Root, old: str, new: str) -> None:
    """See `Replicas.replace_metadata`."""
    root.check_replica_admin()
    root.check_store()
    roots, place = Roots.of(root.storage), root.storage.peer(new)
    roots.compare(again=True)
    leaving = replaced_by(roots.listed(), old, place, root.storage.peer)
    finish_replacing(root)
    if leaving is not None:
        leaving = replaced_by(roots.listed(), old, place, root.storage.peer)
    if leaving is not None:
        taking = begin(roots, leaving, place, make_replicated_root)
        teach(taking, place, _units(root, roots.listed().deciding()))
        move(roots, leaving, taking)
        finish(roots, partial(_units, root))


def finish_replacing(root: Root) -> None:
    """Finish an interrupted replacement that was decided."""
    roots = Roots.of(root.storage)
    roots.compare()
    if len(roots.listed().metadata) > 1:
        follow(roots)
        finish(roots, partial(_units, root))
        if roots.listed().generation:
            tell(roots, roots.listed())  # some may have been away, or the process was killed on the way


def _units(root: Root, ids: Sequence[str]) -> Iterator[Places]:
    """Yield all that several metadata roots decide, as a majority of these names it."""
    roots = Roots.of(root.storage)
    for name in names_at(roots, ids, paths.TOPICS):
        with suppress(UsageError):  # no topic's directory
            yield TopicLog(root.storage, name).journal.decided_log().places
    for name in names_at(roots, ids, paths.GROUPS):
        if (group := paths.parse_group(name)) is not None:
            yield root.group(group).journal.decided_log().places
    yield from settings_of(roots)
