"""Unclean election: a root out of sync leads (rule 8).

Only by `unclean.leader.election.enable`, or an operator. What it lacks is void, even if acknowledged and read;
offsets are never reused.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.errors import CommitLogError, NotLeaderError
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Journal, Stored
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import Replica, is_whole
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.rules import RefusedError
from pyspark_commitlog.replication.protocol.unit import UncleanElection

#: The kind of the entry.
UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class _UncleanCandidate:
    """Out-of-sync replica, living appends after `learned`, `whole` ones."""

    replica: Replica
    learned: int
    living: tuple[int, ...]
    whole: frozenset[int]


def draft_unclean_election(
    places: Places, base: Stored, number: int, wanted: str | None, why: str
) -> tuple[str, Json, ReplicaState, tuple[int, ...]]:
    """Return the next leader, the entry's body and state, voided appends."""
    state, where = state_of(base.entry), places.unit.directory
    if places.roots.answers(state.leader):
        raise NotLeaderError(
            f"{where}: root {state.leader} leads and answers: a root that is not in sync would lose what that has. "
            "`commitlog replicas sync` brings it in sync"
        )
    chosen = _candidate(places, base, wanted)
    has = chosen.whole.union(n for n in {*state.on, *chosen.living} if n <= chosen.learned)
    try:
        after, voids = rules.elected_uncleanly(
            state, base.sequence, number, chosen.replica.id, chosen.living, has,
            at_ms=chosen.replica.storage.now_ms(), why=f"unclean: {why}",
        )  # fmt: skip
    except RefusedError as error:
        raise NotLeaderError(f"{where}: root {chosen.replica.id} can't lead: {error}") from error
    source = places.decider().journal
    start = _start(source.sequences(), chosen, state)
    living = sorted({*chosen.living, *(n for n in state.on if n > start)})
    body = places.unit.files.elected(base.entry, start, living, voids, source, unclean_election_of(after, number))
    return chosen.replica.id, body, after, voids


def unclean_election_of(after: ReplicaState, number: int) -> UncleanElection:
    """Record of an unclean election."""
    return UncleanElection(number, after.leader_epoch, after.elected_ms, after.leader)


def _start(there: list[int], chosen: _UncleanCandidate, state: ReplicaState) -> int:
    return max(there[0], min(state.hw, chosen.learned))  # writers' rows are replayed from here


def _candidate(places: Places, base: Stored, wanted: str | None) -> _UncleanCandidate:
    state, found, failures = state_of(base.entry), list[_UncleanCandidate](), []
    for root in [wanted] if wanted else [each for each in state.replicas if each not in state.isr]:
        try:
            found.append(_looked_at(places, base, root))
        except (CommitLogError, OSError) as error:
            failures.append(str(error))
    if not found:
        raise NotLeaderError(
            f"{places.unit.directory}: no root in sync can lead, and no other replica: {'; '.join(failures)}"
        )
    return max(found, key=lambda each: each.learned)


def _looked_at(places: Places, base: Stored, root: str) -> _UncleanCandidate:
    replica, source, files = places.at(root), places.decider().journal, places.unit.files
    last = replica.learned()
    if last is not None and _retained_entry(source, last.sequence, root).write_id != last.entry.write_id:
        raise NotLeaderError(f"root {root} has another entry {last.sequence} than was decided")
    number = source.sequences()[0] if last is None else last.entry.following
    if last is None and not places.unit.whole and _retained_entry(source, number, root).prev:
        raise NotLeaderError(f"root {root} has learned nothing, and can't: the first entries are collected")
    living, whole = [], set[int]()
    while number <= base.sequence:
        entry = _retained_entry(source, number, root)
        if files.is_living(entry, base.entry, source.side):
            living.append(number)
            if all(is_whole(needed, replica.storage) for needed in files.chunks(entry, base.entry, source.side)):
                whole.add(number)
        number = entry.following
    return _UncleanCandidate(replica, 0 if last is None else last.sequence, tuple(living), frozenset(whole))


def _retained_entry(source: Journal, number: int, root: str) -> Entry:
    try:
        return source.read(number).entry
    except FileNotFoundError:
        raise NotLeaderError(f"root {root} lags too far, or is ahead: entry {number} is not there") from None
