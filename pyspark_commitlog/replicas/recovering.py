"""Recover: go on without metadata that is lost for good. By hand only; docs/explanation/design/replication.md, rule 10.

Of each unit the longest journal that is left is taken. An entry ``recover`` follows it, put if absent as any other: it
names the next metadata root, and that journal's root alone as in sync. What was decided and learned by none of the
roots that are left is gone, and nobody can say what it was. The lists of the roots are changed last: until then
nothing can be decided, and all of it can be run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_commitlog.errors import ReplicaNotAvailableError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replicas import rules
from pyspark_commitlog.replicas.entries import state_of, with_state
from pyspark_commitlog.replicas.learning import (
    CollectedError,
    NowhereError,
    Replica,
    bring,
    drop_below,
    following,
    generation,
    is_whole,
    learn,
    put_same,
)
from pyspark_commitlog.replicas.order import Order
from pyspark_commitlog.replicas.places import Places
from pyspark_commitlog.replicas.roots import Address, Listed, Roots, check_identity, list_at, root_id
from pyspark_commitlog.replicas.settings import JOURNALS, copy_newest
from pyspark_commitlog.replicas.state import MetadataSet, ReplicaState
from pyspark_commitlog.replicas.unclean import said
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replicas")

#: How often entries may be collected while they are copied.
_TRIES = 5


@dataclass
class Left:
    """The roots with data that are left, and where it is decided from now on."""

    roots: Roots
    data: tuple[Address, ...]
    storage: Storage
    metadata: Address | None = None


@dataclass
class Found:
    """What is left of a unit; roots by their ids.

    ``ends`` has the number of the newest entry that each root has learned; ``root`` the one that is taken. ``in_sync``:
    it was in sync by what it has learned. ``gone`` has the offsets whose records it lacks: (partition, start, end).
    ``fault`` says why nothing can be taken. ``done``: it is recovered already.
    """

    ends: dict[str, int] = field(default_factory=dict)
    root: str | None = None
    in_sync: bool = False
    gone: tuple[tuple[int, int, int], ...] = ()
    fault: str | None = None
    done: bool = False


def left_of(roots: Roots, metadata: Storage, lost: Sequence[str]) -> Left:
    """Return which roots are left.

    Args:
        roots: as the root that was opened lists them.
        metadata: where it shall be decided.
        lost: ids or URLs of roots that are given up.

    Raises:
        UsageError: one that is given up answers, or one that is not does not; or the metadata is not lost.
    """
    listed = roots.listed()
    given_up = tuple(_named(listed, lost, begun=any(each.url == metadata.url for each in listed.metadata)))
    data = tuple(address for address in listed.data if address not in given_up)
    if not data:
        raise UsageError("no root with data is left: there is nothing to recover")
    there = next((address for address in (*data, *listed.metadata) if address.url == metadata.url), None)
    kept = [str(each) for each in listed.metadata if each not in given_up and each.url != metadata.url]
    if kept:
        raise UsageError(
            f"the metadata root {', '.join(kept)} is not given up: recover is for metadata that is lost for good"
        )
    for address in given_up:
        if roots.answers(address.id):
            raise UsageError(
                f"{address} answers: what it has would be given up. Unmount it or switch it off, then run this again; "
                "or leave it out of --lost"
            )
    for address in data:
        if not roots.answers(address.id):
            raise UsageError(f"{address} does not answer, and may have more than others: bring it back, or give it up")
    if any(address.url == metadata.url for address in given_up):
        raise UsageError(f"{metadata.url} is given up: it can't hold the metadata")
    return Left(roots, data, metadata, there)


def _named(listed: Listed, lost: Sequence[str], *, begun: bool) -> Iterator[Address]:
    """Yield the roots that are given up; where an earlier run has changed the lists already, some are out of them."""
    for named in lost:
        found = next((each for each in listed.every() if named.rstrip("/") in (each.id, each.url)), None)
        if found is not None:
            yield found
        elif not begun:
            raise UsageError(
                f"{named} is none of the roots that belong together: {', '.join(map(str, listed.every()))}"
            )


# --- What is left of a unit --------------------------------------------------------------------------------------


def look_at(left: Left, order: Order) -> Found | None:
    """Return what is left of a unit, and what would be taken; None where there is no such unit with replicas.

    Raises:
        CommitLogError, OSError: a root that is left does not answer, or an entry is damaged.
    """
    heads = _heads(left, order.places)
    if not any(head.entry.features for head in heads.values()):
        return None
    found = Found({root: head.sequence for root, head in heads.items()})
    newest = max(heads.values(), key=_rank)
    state = state_of(newest.entry)
    if left.metadata is not None and state.set.roots == (left.metadata.id,):
        found.done = True
        return found
    chosen = _longest(heads, state)
    if chosen is None:
        found.fault = "no replica of it is left: it is lost"
        return found
    replica, state = order.places.at(chosen), state_of(heads[chosen].entry)
    found.root, found.in_sync = chosen, chosen in state.isr
    has = _has(replica, order.places, heads[chosen])
    voids = [number for number in sorted(state.on) if number not in has]
    found.gone = tuple(
        extent
        for number in voids
        for extent in order.places.unit.files.offsets(replica.journal.read(number).entry, replica.journal.side)
    )
    return found


def _heads(left: Left, places: Places) -> dict[str, Stored]:
    heads = {}
    for address in left.data:
        check_identity(left.roots.open(address.id), address)
        newest = places.at(address.id).learned()
        if newest is not None:
            heads[address.id] = newest
    return heads


def _rank(head: Stored) -> tuple[int, int]:
    """Return what is greater of the journal to go on with: a late learner may put more on one that was given up."""
    return generation(head), head.sequence


def _longest(heads: dict[str, Stored], newest: ReplicaState) -> str | None:
    """Return the replica with the longest journal; of equal ones one in sync, the leader first."""
    there = [root for root in newest.replicas if root in heads]
    order = {root: (*_rank(heads[root]), root in newest.isr, root == newest.leader) for root in there}
    return max(there, key=lambda root: order[root], default=None)


def _has(replica: Replica, places: Places, base: Stored) -> set[int]:
    """Return the living appends above the high watermark whose files a root has, whatever it has learned."""
    files, side, found = places.unit.files, replica.journal.side, set[int]()
    for number in state_of(base.entry).on:
        entry = replica.journal.read(number).entry
        if all(is_whole(needed, replica.storage) for needed in files.chunks(entry, base.entry, side)):
            found.add(number)
    return found


# --- Going on ----------------------------------------------------------------------------------------------------


def begin(left: Left, make: Callable[[Storage], None]) -> None:
    """Make the root where it is decided from now on, where it is not one of those that are left.

    Raises:
        UsageError: something else is there.
    """
    if left.metadata is None:
        if left.storage.exists(paths.ROOT_MARKER):
            theirs = list_at(left.storage)
            begun = theirs is not None and any(each.url == left.storage.url for each in theirs.metadata)
            if not begun and (theirs or left.storage.names(paths.TOPICS) or left.storage.names(paths.GROUPS)):
                raise UsageError(f"there is a commit log at {left.storage.url} already: name an empty place")
        make(left.storage)
        left.metadata = Address(root_id(left.storage), left.storage.url)
        Roots(left.storage).change(_after(left))
    for settings in JOURNALS:
        copy_newest([left.roots.open(address.id) for address in left.data], settings, left.storage)


def _after(left: Left) -> Listed:
    """Return the list of the roots that are left; it follows all that they have."""
    assert left.metadata is not None
    there = [list_at(storage) for storage in (*(left.roots.open(each.id) for each in left.data), left.storage)]
    seen = [each for each in there if each is not None]
    return left.roots.listed().followed_by(left.data, (left.metadata,), seen, recovers=True)


def recover(left: Left, order: Order) -> Found | None:
    """Have a unit go on at the next metadata root; return what was taken, as ``look_at`` says it.

    Raises:
        CommitLogError, OSError: a root does not answer; running it again is safe.
    """
    found = look_at(left, order)
    if found is None or found.fault is not None:
        return found
    assert left.metadata is not None
    places = order.places
    if found.root is not None:
        found = _put(left, order, found) or found
    heads = _heads(left, places)
    source = places.at(max(heads, key=lambda root: _rank(heads[root])))
    newest = heads[source.id]
    _bring(left, places, source, newest)
    return found


def _put(left: Left, order: Order, found: Found) -> Found | None:
    """Put the entry on the longest journal, until it is there; a late learner may be first: it is judged again then."""
    places, files = order.places, order.places.unit.files
    assert found.root is not None
    assert left.metadata is not None
    replica, metadata = places.at(found.root), left.metadata

    def plan(base: Stored | None, slot: Slot) -> Draft[bool] | Unchanged[bool]:
        assert base is not None
        state = state_of(base.entry)
        if state.set.roots == (metadata.id,):
            return Unchanged(False)
        of = MetadataSet(state.set.generation + 1, replica.storage.new_id(), (metadata.id,))
        after, voids = rules.recovered(
            state, base.sequence, slot.sequence, replica.id, _has(replica, places, base), of,
            at_ms=replica.storage.now_ms(), why="recover: the metadata was lost for good",
        )  # fmt: skip
        for root in set(state.replicas).difference(address.id for address in left.data):
            after = rules.left(after, root)
        # readers may have seen more than this journal says, and acks=all may have been acknowledged
        uncleanly = said(after, slot.sequence)
        body = files.elected(base.entry, state.hw, sorted(state.on), voids, replica.journal, uncleanly)
        return with_state(Draft("recover", base.entry.topic_id, body, result=True), after)

    if not replica.journal.append(plan).result:
        return None
    logger.warning("%s: recovered: root %s leads, %s decides", places.unit.directory, replica.id, metadata)
    return found


def _bring(left: Left, places: Places, source: Replica, newest: Stored) -> None:
    """Have the next metadata root learn the unit: nothing is decided there before that."""
    assert left.metadata is not None
    if left.metadata.id == source.id:
        return
    target = places.beside(left.metadata.id, left.storage)
    state, donors = state_of(newest.entry), [places.at(address.id).storage for address in left.data]
    if target.id in state.replicas:
        learn(source, target, places.unit, donors, newest)
        return
    left.storage.make_directory(places.unit.directory)
    _copy(source, target, donors, newest)
    reached = target.learned()
    if reached is None or reached.entry.write_id != newest.entry.write_id:
        raise ReplicaNotAvailableError(
            f"{left.storage.url}/{places.unit.directory} does not end with entry {newest.sequence} of {source.id}: "
            "it holds something else; name an empty place"
        )


def _copy(source: Replica, target: Replica, donors: Sequence[Storage], newest: Stored) -> None:
    """Have a root that is no replica have all entries that another has, without a gap.

    Collectors may be at work there: where an entry is gone that comes next, it begins again with what is left.

    Raises:
        ReplicaNotAvailableError: it has another history, or they collect all the time.
        CommitLogError, OSError: what was copied by then stays.
    """
    for _ in range(_TRIES):
        last = target.journal.before_gap() or target.journal.newest()
        if last is not None and last.sequence >= newest.sequence:
            return
        with suppress(CollectedError):
            _copy_from(source, target, donors, last, newest)
            return
    raise ReplicaNotAvailableError(
        f"{source.storage.url}/{target.unit.directory}: entries are collected all the time while they are copied; run "
        "it again"
    )


def _copy_from(
    source: Replica, target: Replica, donors: Sequence[Storage], last: Stored | None, newest: Stored
) -> None:
    """Copy the entries that follow ``last``; where they are collected, those that are left, in the place of all else.

    Raises:
        CollectedError: the next one is gone by now.
    """
    oldest = source.journal.unbroken_from()
    goes_on = last is not None and oldest is not None and last.entry.following >= oldest
    for stored in following(source, last if goes_on else None, newest, oldest):
        try:
            for needed in target.unit.files.tables(stored.entry):
                bring(needed, target.storage, donors)
            put_same(source, target, target.unit, stored)
        except (FileNotFoundError, NowhereError) as error:
            if stored.sequence in source.journal.sequences():
                raise
            raise CollectedError(str(error)) from error
        if last is not None and not goes_on and stored.sequence == oldest:
            drop_below(oldest, target)
            target.journal.forget()


def finish(left: Left) -> None:
    """Have all roots that are left list one another, and the next metadata root: from now on it decides.

    Raises:
        CommitLogError, OSError: one of them does not answer; run it again.
    """
    listed = _after(left)
    for address in sorted(left.data, key=lambda each: each != left.metadata):
        Roots.of(left.roots.open(address.id)).change(listed)
