"""Replace one of three or five metadata roots.

An empty root learns what is decided, is decided into the next set, and all units move to that. Each step can be run
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pyspark_commitlog.errors import ConflictError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import no_sides
from pyspark_commitlog.replication.admin.joining import begun_at, refuse_same_place
from pyspark_commitlog.replication.admin.replicating import of_each
from pyspark_commitlog.replication.admin.settings import JOURNALS
from pyspark_commitlog.replication.metadata import quorum_changes
from pyspark_commitlog.replication.metadata.births import Births
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots, root_id
from pyspark_commitlog.replication.protocol.unit import NoAppends, Unit
from pyspark_commitlog.storage import Storage

#: Returns all units of which something is named at a majority of these roots.
Units = Callable[[Sequence[str]], Iterable[Places]]


def replaced_by(listed: Listed, old: str, new: Storage, peer: Callable[[str], Storage]) -> Address | None:
    """Metadata root to replace; None if `new` has replaced it.

    Args:
        old: id, directory or URL.
        new: another place, or the same, emptied.
    """
    if len(listed.metadata) == 1:
        raise UsageError(
            f"{listed.metadata[0]} decides alone: only one of three or five metadata roots can be replaced. Where it "
            "is lost for good, `commitlog replicas recover` names another one"
        )
    found = next((each for each in listed.metadata if old in (each.id, each.url) or peer(old).url == each.url), None)
    there = next((each for each in listed.every() if each.url == new.url), None)
    if there is None and found is None:
        raise UsageError(f"{old} is none of the metadata roots: {', '.join(map(str, listed.metadata))}")
    if there is None or (there == found and not _is(new, there)):
        return found
    if there not in listed.metadata or found not in (None, there):
        raise UsageError(f"{there} is a root of these already; nothing was changed: name an empty place")
    return None


def _is(storage: Storage, address: Address) -> bool:
    return storage.exists(paths.ROOT_MARKER) and root_id(storage) == address.id


def begin(roots: Roots, old: Address, new: Storage, make: Callable[[Storage], None]) -> Address:
    """Create the replacing root, which decides nothing yet."""
    listed = roots.listed()
    others = [each for each in listed.every() if each.id != old.id and roots.answers(each.id)]
    refuse_same_place(new, [roots.open(each.id) for each in others])
    if any(_is(new, each) for each in listed.every()):
        raise UsageError(
            f"{new.url} holds root {root_id(new)}, which belongs to these: put it aside, and name an empty place"
        )
    begun_at(new, listed)
    make(new)
    Births(new).put()
    Roots.of(new).change(listed)  # so that a second run recognizes it
    return Address(root_id(new), new.url)


def teach(new: Address, at: Storage, units: Iterable[Places]) -> None:
    """Bring the new root up to date before it votes."""
    _raise_failed(of_each(lambda places: places.teach(places.unlisted_replica(new.id, at)), units))


def move(roots: Roots, old: Address, new: Address) -> None:
    """Decide the next set."""
    listed = roots.listed()
    if listed.former or old not in listed.metadata:  # the former set may still decide a unit
        raise ConflictError(f"another metadata root is being replaced ({_metadata_text(listed)} decide): run it again")
    metadata = tuple(new if each.id == old.id else each for each in listed.metadata)
    after = replace(listed, metadata=metadata, generation=listed.generation + 1, former=listed.metadata)
    decided = quorum_changes.decide_next(roots, listed, after)
    quorum_changes.tell(roots, decided)
    if decided.metadata != metadata:
        raise ConflictError(f"another replacement was decided first ({_metadata_text(decided)} decide): run it again")


def _metadata_text(listed: Listed) -> str:
    return ", ".join(map(str, listed.metadata))


def finish(roots: Roots, units: Units) -> None:
    """Move all units, teach the new root, and drop the former set.

    Each majority of that names all that it decided. What it decides first from now on counts nowhere.
    """
    listed = roots.listed()
    if not listed.former:
        return
    new = [each.id for each in listed.metadata if each not in listed.former]

    def teach_new_roots(places: Places) -> None:
        for root in new:
            places.teach(places.at(root))

    _raise_failed(of_each(teach_new_roots, units([each.id for each in listed.former])))
    quorum_changes.tell(roots, replace(listed, former=()))


def _raise_failed(found: Sequence[object]) -> None:
    failed = [each for each in found if isinstance(each, Exception)]
    if failed:
        raise ReplicaNotAvailableError(
            f"{len(failed)} of {len(found)} topics, groups and settings have not been learned by the new metadata "
            f"root: {failed[0]}. Run it again; all go on meanwhile"
        ) from failed[0]


def settings_of(roots: Roots) -> Iterator[Places]:
    """Yield the places of all settings."""
    for directory in JOURNALS:
        kind = directory.partition("/")[0]
        yield Places(roots, Unit(directory, kind, no_sides, NoAppends(), whole=True), _any_body)


def _any_body(body: Json, where: str) -> None:
    pass
