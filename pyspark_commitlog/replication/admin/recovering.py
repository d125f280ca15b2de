"""Recover from metadata lost for good, by hand only (rule 10).

A `recover` entry on the longest journal left of a unit names the next metadata root, and that journal's root alone as
in sync; what no root left has learned is lost. Lists change last: until then nothing can be decided, and all can be run
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.admin.settings import JOURNALS, copy_damaged, copy_newest, damage_of
from pyspark_commitlog.replication.leader.order import Order
from pyspark_commitlog.replication.leader.unclean import unclean_election_of
from pyspark_commitlog.replication.metadata.replica_journals import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of, with_state
from pyspark_commitlog.replication.protocol.learning import (
    CollectedError,
    NowhereError,
    Replica,
    RestoredError,
    bring,
    drop_below,
    following,
    generation,
    is_whole,
    learn,
    put_bytes,
)
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet, ReplicaState
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots, check_identity, list_at, root_id
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio

logger = logging.getLogger("pyspark_commitlog.replication")

_REMEDY = (
    "Restore it there (`commitlog replicas repair` fetches what others have), and run this again; or switch that root "
    "off, and give it up, too: what it alone has is gone then"
)
_REMEDY_OF_SETTINGS = (
    "Nobody can change them until then: restore the file at one of these roots, and run this again, or `commitlog "
    "replicas sync`"
)
#: Attempts while entries are collected as they are copied.
_TRIES = 5


@dataclass
class SurvivingRoots:
    """Surviving roots with data; next metadata root."""

    roots: Roots
    data: tuple[Address, ...]
    storage: Storage
    metadata: Address | None = None

    def given_up(self, state: ReplicaState) -> tuple[str, ...]:
        """Lost replicas."""
        ids = [address.id for address in self.data]
        return tuple(root for root in state.replicas if root not in ids)


@dataclass
class UnitRecovery:
    """Surviving part of a unit; roots by id.

    Attributes:
        ends: the number learned by each root.
        root: the one to go on with.
        gone: offsets whose records it lacks: (partition, start, end).
        goes_on: the next metadata root has all of it.
        damaged: roots left out, and why.
    """

    ends: dict[str, int] = field(default_factory=dict)
    root: str | None = None
    in_sync: bool = False
    gone: tuple[tuple[int, int, int], ...] = ()
    fault: str | None = None
    done: bool = False
    goes_on: bool = False
    damaged: Mapping[str, str] = field(default_factory=dict)


def surviving_roots(roots: Roots, metadata: Storage, lost: Sequence[str]) -> SurvivingRoots:
    """Roots but for `lost` ids or URLs."""
    listed = roots.listed()
    given_up = tuple(_lost_addresses(listed, lost, begun=any(each.url == metadata.url for each in listed.metadata)))
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
    return SurvivingRoots(roots, data, metadata, there)


def _lost_addresses(listed: Listed, lost: Sequence[str], *, begun: bool) -> Iterator[Address]:
    for named in lost:
        found = next((each for each in listed.every() if named.rstrip("/") in (each.id, each.url)), None)
        if found is not None:
            yield found
        elif not begun:  # else an earlier run may have changed the lists
            raise UsageError(
                f"{named} is none of the roots that belong together: {', '.join(map(str, listed.every()))}"
            )


# --- What is left of a unit --------------------------------------------------------------------------------------


class _Damage(NamedTuple):
    number: int
    why: str


def look_at(survivors: SurvivingRoots, order: Order) -> UnitRecovery | None:
    """Return the recovery of a unit; None without replicas.

    Damaged roots are left out if another has as much.
    """
    heads, damaged = _heads(survivors, order.places)
    if _goes_on(survivors, order.places, heads, damaged):
        why = {root: each.why for root, each in damaged.items()}
        return UnitRecovery({root: head.sequence for root, head in heads.items()}, done=True, goes_on=True, damaged=why)
    while True:
        found = _choose_root(survivors.metadata, heads, damaged)
        if found is None or found.root is None:
            return found
        head = heads[found.root]
        try:
            with _report_damage():
                found.gone = _lost_offsets(order.places.at(found.root), order.places, head)
        except _DamagedError as error:
            where = order.places.at(found.root).storage.url
            damaged[found.root] = _Damage(heads.pop(found.root).sequence, f"{where}: {error}")
        else:
            return found


class _DamagedError(Exception):
    """Some of a unit is lost, changed or unreadable."""


@contextmanager
def _report_damage() -> Iterator[None]:
    """Raise `_DamagedError` for damage.

    A root that is away may have more than others, and stops all.
    """
    try:
        yield
    except (CommitLogError, OSError) as error:
        if isinstance(error, CorruptionError | NowhereError | RestoredError) or is_eio(error):
            raise _DamagedError(str(error)) from error
        raise


def _heads(survivors: SurvivingRoots, places: Places) -> tuple[dict[str, Stored], dict[str, _Damage]]:
    heads, damaged = dict[str, Stored](), dict[str, _Damage]()
    for address in survivors.data:
        check_identity(survivors.roots.open(address.id), address)
        replica = places.at(address.id)
        try:
            with _report_damage():
                newest = replica.learned()
        except _DamagedError as error:
            number = max(replica.journal.sequences(), default=0)
            damaged[address.id] = _Damage(number, f"{replica.storage.url}: {error}")
            continue
        if newest is not None:
            heads[address.id] = newest
    return heads, damaged


def _goes_on(
    survivors: SurvivingRoots, places: Places, heads: Mapping[str, Stored], damaged: Mapping[str, _Damage]
) -> bool:
    if survivors.metadata is None:
        return False
    journal = _next_at(survivors, places).journal
    try:
        with _report_damage():
            newest, gap = journal.newest(), journal.before_gap()
    except _DamagedError:
        return False
    if newest is None or not newest.entry.is_replicated or gap is not None:
        return False
    is_last = all(_rank(newest) >= _rank(head) for head in heads.values())
    is_last = is_last and all(newest.sequence >= each.number for each in damaged.values())
    return is_last and state_of(newest.entry).set.roots == (survivors.metadata.id,)


def _choose_root(
    metadata: Address | None, heads: Mapping[str, Stored], damaged: Mapping[str, _Damage]
) -> UnitRecovery | None:
    """Choose the root to go on with (pure).

    Damage at the highest number hides what would be given up.
    """
    newest = max(heads.values(), key=_rank, default=None)
    if not damaged and (newest is None or not newest.entry.is_replicated):
        return None
    found = UnitRecovery({root: head.sequence for root, head in heads.items()})
    found.damaged = {root: each.why for root, each in damaged.items()}
    state = state_of(newest.entry) if newest is not None and newest.entry.is_replicated else None
    if state is not None and metadata is not None and state.set.roots == (metadata.id,):
        found.done = True
        return found
    chosen = None if state is None else _longest(heads, state)
    end = 0 if chosen is None else heads[chosen].sequence
    longer = [each.why for each in damaged.values() if each.number > end]
    if longer:
        found.fault = f"{'; '.join(longer)}. No other root has as much of it. {_REMEDY}"
    elif chosen is None:
        found.fault = "no replica of it is left: it is lost"
    else:
        found.root, found.in_sync = chosen, chosen in state_of(heads[chosen].entry).isr
    return found


def _lost_offsets(replica: Replica, places: Places, head: Stored) -> tuple[tuple[int, int, int], ...]:
    files, journal, has = places.unit.files, replica.journal, _has(replica, places, head)
    voids = [number for number in sorted(state_of(head.entry).on) if number not in has]
    return tuple(extent for number in voids for extent in files.offsets(journal.read(number).entry, journal.side))


def _rank(head: Stored) -> tuple[int, int]:
    return generation(head), head.sequence  # a late learner may lengthen an abandoned journal


def _longest(heads: Mapping[str, Stored], newest: ReplicaState) -> str | None:
    there = [root for root in newest.replicas if root in heads]
    order = {root: (*_rank(heads[root]), root in newest.isr, root == newest.leader) for root in there}
    return max(there, key=lambda root: order[root], default=None)


def _has(replica: Replica, places: Places, base: Stored) -> set[int]:
    """Living appends above HW whose files a root has.

    Settled ones need none.
    """
    files, side, found = places.unit.files, replica.journal.side, set[int]()
    settled = _settled(replica, places, base)
    for number in state_of(base.entry).on:
        if number <= settled:  # a root begun with another's segments lacks the entry
            found.add(number)
            continue
        entry = replica.journal.read(number).entry
        if all(is_whole(needed, replica.storage) for needed in files.chunks(entry, base.entry, side)):
            found.add(number)
    return found


def _settled(replica: Replica, places: Places, base: Stored) -> int:
    with suppress(_DamagedError), _report_damage():
        return places.unit.files.settled(replica.storage, base.entry.topic_id)
    return 0  # damaged: chunks are needed


# --- Going on ----------------------------------------------------------------------------------------------------


def begin(survivors: SurvivingRoots, make: Callable[[Storage], None]) -> dict[str, str]:
    """Create the next metadata root, if need be; return `damaged_settings`."""
    if survivors.metadata is None:
        if survivors.storage.exists(paths.ROOT_MARKER):
            theirs = list_at(survivors.storage)
            begun = theirs is not None and any(each.url == survivors.storage.url for each in theirs.metadata)
            if not begun and (theirs or survivors.storage.names(paths.TOPICS) or survivors.storage.names(paths.GROUPS)):
                raise UsageError(f"there is a commit log at {survivors.storage.url} already: name an empty place")
        make(survivors.storage)
        survivors.metadata = Address(root_id(survivors.storage), survivors.storage.url)
        Roots(survivors.storage).change(_after(survivors))
    sources, damaged = [survivors.roots.open(address.id) for address in survivors.data], damaged_settings(survivors)
    for settings, name in JOURNALS.items():
        if name in damaged:
            copy_damaged(sources, settings, survivors.storage)
        else:
            copy_newest(sources, settings, survivors.storage)
    return damaged


def damaged_settings(survivors: SurvivingRoots) -> dict[str, str]:
    """Return the settings that no survivor has whole, and why."""
    sources = [survivors.roots.open(address.id) for address in survivors.data]
    found = {name: damage_of(sources, settings) for settings, name in JOURNALS.items()}
    return {name: f"{why}. {_REMEDY_OF_SETTINGS}" for name, why in found.items() if why is not None}


def _after(survivors: SurvivingRoots) -> Listed:
    assert survivors.metadata is not None
    there = [
        list_at(storage) for storage in (*(survivors.roots.open(each.id) for each in survivors.data), survivors.storage)
    ]
    seen = [each for each in there if each is not None]
    return survivors.roots.listed().followed_by(survivors.data, (survivors.metadata,), seen, recovers=True)


def recover(survivors: SurvivingRoots, order: Order) -> UnitRecovery | None:
    """Let a unit go on at the next metadata root."""
    found, places = look_at(survivors, order), order.places
    if found is None or found.goes_on or (found.fault is not None and not found.damaged):
        return found
    if found.root is not None:
        with _of_this_unit(found, places.at(found.root).storage):
            _put(survivors, order, found.root)
    heads, _ = _heads(survivors, places)
    if heads := heads or _below_damage(survivors, places):
        source = places.at(max(heads, key=lambda root: _rank(heads[root])))
        with _of_next(survivors, found), _of_this_unit(found, source.storage):
            # also a unit that can't go on yet: it would be created there as new
            _bring(survivors, places, source, heads[source.id])
    if found.fault is not None and not _next_at(survivors, places).journal.sequences():
        raise ReplicaNotAvailableError(f"{survivors.storage.url} has nothing of {places.unit.directory}: {found.fault}")
    return found


def _below_damage(survivors: SurvivingRoots, places: Places) -> dict[str, Stored]:
    found = dict[str, Stored]()
    if _next_at(survivors, places).journal.sequences():
        return found
    for replica in (places.at(address.id) for address in survivors.data):
        for number in reversed(replica.journal.sequences()):
            with suppress(_DamagedError), _report_damage():
                found[replica.id] = replica.journal.read(number)
                break
    return found


@contextmanager
def _of_this_unit(found: UnitRecovery, at: Storage) -> Iterator[None]:
    try:
        with _report_damage():
            yield
    except _DamagedError as error:
        found.fault = found.fault or f"{at.url}: {error}. {_REMEDY}"


class _AtNextError(Exception):
    """Damage is at the next metadata root."""


@contextmanager
def _next_touched() -> Iterator[None]:
    try:
        with _report_damage():
            yield
    except _DamagedError as error:
        if isinstance(error.__cause__, NowhereError):
            raise error.__cause__ from None
        raise _AtNextError(str(error)) from error


@contextmanager
def _of_next(survivors: SurvivingRoots, found: UnitRecovery) -> Iterator[None]:
    """Record damage at a next metadata root as a unit's fault.

    Without data it can't decide: raise.
    """
    try:
        yield
    except _AtNextError as error:
        why = f"{survivors.storage.url}: {error}. "
        if survivors.metadata not in survivors.data:
            raise ReplicaNotAvailableError(f"{why}Mend it and run this again, or name another place") from None
        found.fault = found.fault or why + _REMEDY


def _put(survivors: SurvivingRoots, order: Order, root: str) -> None:
    places, files = order.places, order.places.unit.files
    assert survivors.metadata is not None
    replica, metadata = places.at(root), survivors.metadata

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
        for root in survivors.given_up(state):
            after = rules.without_replica(after, root)
        # readers may have seen more than this journal says, and acks=all may have acknowledged it
        election = unclean_election_of(after, slot.sequence)
        body = files.elected(base.entry, state.hw, sorted(state.on), voids, replica.journal, election)
        return with_state(Draft("recover", base.entry.topic_id, body, result=True), after)

    if replica.journal.append(plan).result:
        logger.warning("%s: recovered: root %s leads, %s decides", places.unit.directory, replica.id, metadata)


def _bring(survivors: SurvivingRoots, places: Places, source: Replica, newest: Stored) -> None:
    target = _next_at(survivors, places)
    if target.id == source.id:
        return
    state, donors = state_of(newest.entry), [places.at(address.id).storage for address in survivors.data]
    if target.id in state.replicas:
        with _next_touched():
            target.learned()
        learn(source, target, places.unit, donors, newest)
        return
    with _next_touched():
        survivors.storage.make_directory(places.unit.directory)
    try:
        with _report_damage():
            _copy(source, target, donors, newest)
    except _DamagedError as error:
        logger.warning("%s: begun with entry %s: %s", places.unit.directory, newest.sequence, error)
        _copy_from(source, target, donors, None, newest, newest.sequence)
    with _next_touched():
        reached = target.learned()
    if reached is None or reached.entry.write_id != newest.entry.write_id:
        raise ReplicaNotAvailableError(
            f"{survivors.storage.url}/{places.unit.directory} does not end with entry {newest.sequence} of "
            f"{source.id}: it holds something else; name an empty place"
        )


def _next_at(survivors: SurvivingRoots, places: Places) -> Replica:
    assert survivors.metadata is not None
    return places.unlisted_replica(survivors.metadata.id, survivors.storage)


def _copy(source: Replica, target: Replica, donors: Sequence[Storage], newest: Stored) -> None:
    for _ in range(_TRIES):
        with _next_touched():
            last = target.journal.before_gap() or target.journal.newest()
        if last is not None and last.sequence >= newest.sequence:
            return
        with suppress(CollectedError):
            oldest = source.journal.unbroken_from()
            goes_on = last is not None and oldest is not None and last.entry.following >= oldest
            _copy_from(source, target, donors, last if goes_on else None, newest, oldest)
            return
    raise ReplicaNotAvailableError(
        f"{source.storage.url}/{target.unit.directory}: entries are collected all the time while they are copied; run "
        "it again"
    )


def _copy_from(
    source: Replica,
    target: Replica,
    donors: Sequence[Storage],
    last: Stored | None,
    newest: Stored,
    oldest: int | None,
) -> None:
    """Copy the entries after `last`, or from `oldest`, dropping older ones."""
    for stored in following(source, last, newest, oldest):
        try:
            data = source.journal.bytes_of(stored.entry)
            with _next_touched():
                for needed in target.unit.files.tables(stored.entry):
                    bring(needed, target.storage, donors)
                put_bytes(target, target.unit, stored.entry, data)
        except (FileNotFoundError, NowhereError) as error:
            if stored.sequence in source.journal.sequences():
                raise
            raise CollectedError(str(error)) from error
        if last is None and stored.sequence == oldest:
            with _next_touched():
                drop_below(oldest, target)


def finish(survivors: SurvivingRoots) -> None:
    """Have the surviving roots list the next metadata root."""
    listed = _after(survivors)
    for address in sorted(survivors.data, key=lambda each: each != survivors.metadata):
        Roots.of(survivors.roots.open(address.id)).change(listed)
