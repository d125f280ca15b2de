"""Recover from metadata lost for good, by hand only (rule 10).

A `recover` entry on the longest journal left of a unit names the next metadata root, and that journal's root alone as
in sync; what no root left has learned is lost. Lists change last: until then nothing can be decided, and all can be run
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from pyspark_commitlog.errors import ReplicaNotAvailableError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.admin.settings import JOURNALS, copy_damaged, copy_newest, damage_of
from pyspark_commitlog.replication.admin.surviving import (
    REMEDY,
    DamagedUnitError,
    SurvivingRoots,
    UnitRecovery,
    look_at,
    next_replica,
    rank,
    report_damage,
    stored_appends,
    surviving_heads,
)
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.unclean import unclean_election_of
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of, with_state
from pyspark_commitlog.replication.protocol.learning import (
    CollectedError,
    NowhereError,
    Replica,
    bring,
    drop_below,
    following,
    learn,
    put_bytes,
)
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots, list_at, root_id
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replication")

_REMEDY_OF_SETTINGS = (
    "Nobody can change them until then: restore the file at one of these roots, and run this again, or `commitlog "
    "replicas sync`"
)
#: Attempts while entries are collected as they are copied.
_TRIES = 5


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


def recover(survivors: SurvivingRoots, decided_log: DecidedLog) -> UnitRecovery | None:
    """Let a unit go on at the next metadata root."""
    found, places = look_at(survivors, decided_log), decided_log.places
    if found is None or found.goes_on or (found.fault is not None and not found.damaged):
        return found
    if found.root is not None:
        with _of_this_unit(found, places.at(found.root).storage):
            _put(survivors, decided_log, found.root)
    heads, _ = surviving_heads(survivors, places)
    if heads := heads or _below_damage(survivors, places):
        source = places.at(max(heads, key=lambda root: rank(heads[root])))
        with _of_next(survivors, found), _of_this_unit(found, source.storage):
            # also a unit that can't go on yet: it would be created there as new
            _bring(survivors, places, source, heads[source.id])
    if found.fault is not None and not next_replica(survivors, places).journal.sequences():
        raise ReplicaNotAvailableError(f"{survivors.storage.url} has nothing of {places.unit.directory}: {found.fault}")
    return found


def _below_damage(survivors: SurvivingRoots, places: Places) -> dict[str, Stored]:
    found = dict[str, Stored]()
    if next_replica(survivors, places).journal.sequences():
        return found
    for replica in (places.at(address.id) for address in survivors.data):
        for number in reversed(replica.journal.sequences()):
            with suppress(DamagedUnitError), report_damage():
                found[replica.id] = replica.journal.read(number)
                break
    return found


@contextmanager
def _of_this_unit(found: UnitRecovery, at: Storage) -> Iterator[None]:
    try:
        with report_damage():
            yield
    except DamagedUnitError as error:
        found.fault = found.fault or f"{at.url}: {error}. {REMEDY}"


class _AtNextError(Exception):
    """Damage is at the next metadata root."""


@contextmanager
def _next_touched() -> Iterator[None]:
    try:
        with report_damage():
            yield
    except DamagedUnitError as error:
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
        found.fault = found.fault or why + REMEDY


def _put(survivors: SurvivingRoots, decided_log: DecidedLog, root: str) -> None:
    places, files = decided_log.places, decided_log.places.unit.files
    assert survivors.metadata is not None
    replica, metadata = places.at(root), survivors.metadata

    def plan(base: Stored | None, slot: Slot) -> Draft[bool] | Unchanged[bool]:
        assert base is not None
        state = state_of(base.entry)
        if state.set.roots == (metadata.id,):
            return Unchanged(False)
        of = MetadataSet(state.set.generation + 1, replica.storage.new_id(), (metadata.id,))
        after, voids = rules.recovered(
            state, base.sequence, slot.sequence, replica.id, stored_appends(replica, places, base), of,
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
    target = next_replica(survivors, places)
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
        with report_damage():
            _copy(source, target, donors, newest)
    except DamagedUnitError as error:
        logger.warning("%s: begun with entry %s: %s", places.unit.directory, newest.sequence, error)
        _copy_from(source, target, donors, None, newest, newest.sequence)
    with _next_touched():
        reached = target.learned()
    if reached is None or reached.entry.write_id != newest.entry.write_id:
        raise ReplicaNotAvailableError(
            f"{survivors.storage.url}/{places.unit.directory} does not end with entry {newest.sequence} of "
            f"{source.id}: it holds something else; name an empty place"
        )


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
