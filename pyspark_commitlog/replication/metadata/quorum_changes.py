"""Successive metadata sets, when one of several roots is replaced.

A set decides its successor in a journal of its own (`paths.after_set`), then decides nothing first. It ends each
unit's register, and the next set goes on with the last entry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged, no_sides
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.metadata.quorum import Quorum
from pyspark_commitlog.replication.metadata.quorum_members import Seat
from pyspark_commitlog.replication.protocol.ballots import majority
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.roots import Listed, Roots, check_list
from pyspark_commitlog.replication.protocol.unit import NoAppends, Unit

logger = logging.getLogger("pyspark_commitlog.replication")

Check = Callable[[Json, str], object]


def quorum_of(roots: Roots, listed: Listed, unit: Unit, check: Check, at: Callable[[str], Replica]) -> Quorum:
    """Return a unit's quorum of listed metadata roots."""

    def former_quorum() -> Quorum:
        seats = _seated(unit, [each.id for each in listed.former], listed.generation - 1, at)
        return Quorum(seats, len(listed.former), unit, check)

    ids = listed.deciding()
    seats = _seated(unit, ids, listed.generation, at)
    return Quorum(
        seats, len(ids), unit, check, former_quorum if listed.former else None, lambda: next_of(roots, listed) is None
    )


def _seated(unit: Unit, ids: Sequence[str], generation: int, at: Callable[[str], Replica]) -> list[Seat]:
    seats, failures = list[Seat](), list[str]()
    for root in ids:
        try:
            replica = at(root)
            seats.append(Seat(Acceptor(root, replica.storage, paths.acceptor_of(unit.directory, generation)), replica))
        except (CommitLogError, OSError) as error:
            failures.append(str(error))
    if len(seats) < majority(len(ids)):
        raise ReplicaNotAvailableError(
            f"{unit.directory}: {len(seats)} of {len(ids)} metadata roots answer, no majority: nothing "
            f"can be decided: {'; '.join(failures)}"
        )
    return seats


# --- Which set follows -----------------------------------------------------------------------------------------------


def _after(roots: Roots, listed: Listed) -> Quorum:
    unit = Unit(paths.after_set(listed.generation), "replicas", no_sides, NoAppends(), whole=True)

    def at(root: str) -> Replica:
        return Replica.at(root, roots.open(root), unit, check_list)

    seats = _seated(unit, listed.deciding(), listed.generation, at)
    return Quorum(seats, len(listed.metadata), unit, check_list)


def next_of(roots: Roots, listed: Listed) -> Listed | None:
    """Ask a set for its successor's list, if any."""
    stored = _after(roots, listed).newest()
    return None if stored is None else Listed.from_json(stored.entry.body)


def decide_next(roots: Roots, listed: Listed, after: Listed) -> Listed:
    """Decide the next set's list; return the decided one."""

    def plan(base: Stored | None, slot: Slot) -> Draft[Listed] | Unchanged[Listed]:
        if base is not None:
            return Unchanged(Listed.from_json(base.entry.body))
        return Draft("metadata", "", after.to_json(), result=after)

    return _after(roots, listed).append(plan).result


def follow(roots: Roots) -> None:
    """Take the next set, if any, and tell all roots."""
    after = next_of(roots, roots.listed())
    if after is not None:
        tell(roots, after)


def tell(roots: Roots, after: Listed) -> None:
    """Have the roots that answer list these metadata roots."""
    roots.know(after)
    lists, failures = set[str](), list[str]()
    for address in sorted(roots.listed().every(), key=lambda each: each not in after.metadata):
        try:
            (roots if address.id == roots.own_id() else Roots.of(roots.open(address.id))).go_by(after)
            lists.add(address.id)
        except (CommitLogError, OSError) as error:
            failures.append(f"{address}: {error}")
            logger.info("%s does not list the metadata roots of now yet: %s", address, error)
    if len(lists.intersection(after.deciding())) < majority(len(after.metadata)):
        raise ReplicaNotAvailableError(f"no majority of the metadata roots lists those of now: {'; '.join(failures)}")
