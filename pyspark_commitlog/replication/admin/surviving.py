"""Surviving roots: the longest journal of each unit, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_commitlog.errors import CommitLogError, CorruptionError, UsageError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import (
    NowhereError,
    Replica,
    RestoredError,
    generation,
    is_whole,
)
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots, check_identity
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio

REMEDY = (
    "Restore it there (`commitlog replicas repair` fetches what others have), and run this again; or switch that root "
    "off, and give it up, too: what it alone has is gone then"
)


@dataclass
class SurvivingRoots:
    """Surviving roots with data; next metadata root."""

    roots: Roots
    data: tuple[Address, ...]
    storage: Storage
    metadata: Address | None = None

    def given_up(self, state: ReplicaState) -> tuple[str, ...]:
        """Return the lost replicas."""
        ids = [address.id for address in self.data]
        return tuple(root for root in state.replicas if root not in ids)


@dataclass
class UnitRecovery:
    """Surviving part of a unit; roots by id.

    Attributes:
        ends: the number learned by each root.
        root: the one to go on with.
        gone: offsets whose records it lacks: (partition, start, end).
        fault: why none can be taken.
        done: recovered already.
        goes_on: the next metadata root has all.
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
    """Return the roots but for `lost` ids or URLs.

    Raises:
        UsageError: a lost root answers, another does not, or the metadata is not lost.
    """
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


class _Damage(NamedTuple):
    number: int
    why: str


def look_at(survivors: SurvivingRoots, decided_log: DecidedLog) -> UnitRecovery | None:
    """Return the recovery of a unit; None without replicas.

    Damaged roots are left out if another has as much.
    """
    heads, damaged = surviving_heads(survivors, decided_log.places)
    if _goes_on(survivors, decided_log.places, heads, damaged):
        why = {root: each.why for root, each in damaged.items()}
        return UnitRecovery({root: head.sequence for root, head in heads.items()}, done=True, goes_on=True, damaged=why)
    while True:
        found = _choose_root(survivors.metadata, heads, damaged)
        if found is None or found.root is None:
            return found
        head = heads[found.root]
        try:
            with report_damage():
                found.gone = _lost_offsets(decided_log.places.at(found.root), decided_log.places, head)
        except DamagedUnitError as error:
            where = decided_log.places.at(found.root).storage.url
            damaged[found.root] = _Damage(heads.pop(found.root).sequence, f"{where}: {error}")
        else:
            return found


class DamagedUnitError(Exception):
    """Some of a unit is lost, changed or unreadable."""


@contextmanager
def report_damage() -> Iterator[None]:
    """Raise `DamagedUnitError` for damage.

    A root that is away may have more than others, and stops all.
    """
    try:
        yield
    except (CommitLogError, OSError) as error:
        if isinstance(error, CorruptionError | NowhereError | RestoredError) or is_eio(error):
            raise DamagedUnitError(str(error)) from error
        raise


def surviving_heads(survivors: SurvivingRoots, places: Places) -> tuple[dict[str, Stored], dict[str, _Damage]]:
    """Return newest entries and damage, by root."""
    heads, damaged = dict[str, Stored](), dict[str, _Damage]()
    for address in survivors.data:
        check_identity(survivors.roots.open(address.id), address)
        replica = places.at(address.id)
        try:
            with report_damage():
                newest = replica.learned()
        except DamagedUnitError as error:
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
    journal = next_replica(survivors, places).journal
    try:
        with report_damage():
            newest, gap = journal.newest(), journal.before_gap()
    except DamagedUnitError:
        return False
    if newest is None or not newest.entry.is_replicated or gap is not None:
        return False
    is_last = all(rank(newest) >= rank(head) for head in heads.values())
    is_last = is_last and all(newest.sequence >= each.number for each in damaged.values())
    return is_last and state_of(newest.entry).set.roots == (survivors.metadata.id,)


def _choose_root(
    metadata: Address | None, heads: Mapping[str, Stored], damaged: Mapping[str, _Damage]
) -> UnitRecovery | None:
    """Choose the root to go on with (pure).

    Damage at the highest number hides what would be given up.
    """
    newest = max(heads.values(), key=rank, default=None)
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
        found.fault = f"{'; '.join(longer)}. No other root has as much of it. {REMEDY}"
    elif chosen is None:
        found.fault = "no replica of it is left: it is lost"
    else:
        found.root, found.in_sync = chosen, chosen in state_of(heads[chosen].entry).isr
    return found


def _lost_offsets(replica: Replica, places: Places, head: Stored) -> tuple[tuple[int, int, int], ...]:
    files, journal, has = places.unit.files, replica.journal, stored_appends(replica, places, head)
    voids = [number for number in sorted(state_of(head.entry).on) if number not in has]
    return tuple(extent for number in voids for extent in files.offsets(journal.read(number).entry, journal.side))


def rank(head: Stored) -> tuple[int, int]:
    """Return a key that orders journals."""
    return generation(head), head.sequence  # a late learner may lengthen an abandoned journal


def _longest(heads: Mapping[str, Stored], newest: ReplicaState) -> str | None:
    there = [root for root in newest.replicas if root in heads]
    decided_log = {root: (*rank(heads[root]), root in newest.isr, root == newest.leader) for root in there}
    return max(there, key=lambda root: decided_log[root], default=None)


def stored_appends(replica: Replica, places: Places, base: Stored) -> set[int]:
    """Return the living appends above HW whose files a root has.

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
    with suppress(DamagedUnitError), report_damage():
        return places.unit.files.settled(replica.storage, base.entry.topic_id)
    return 0  # damaged: chunks are needed


def next_replica(survivors: SurvivingRoots, places: Places) -> Replica:
    """Return a unit's replica at the next metadata root."""
    assert survivors.metadata is not None
    return places.unlisted_replica(survivors.metadata.id, survivors.storage)
