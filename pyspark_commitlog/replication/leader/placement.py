"""Placement: the roots of a unit's replicas."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.replica_state import MAX_ROOTS, ReplicaState
from pyspark_commitlog.replication.protocol.rules import Reason, RefusedError, added, without_replica

#: Default replication factor.
DEFAULT_FACTOR = 3


def assigned(places: Places, factor: int | None, ordinal: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return a new unit's replicas: in sync, leader first; and others.

    Roots that do not answer are not in sync, or they would hold up writers. Leaders go round robin by `ordinal`.
    """
    data, many = places.roots.listed().data, how_many(places, factor)
    away = [address for address in data if not places.roots.answers(address.id)]
    roots = [address.id for address in data if address not in away]
    if len(roots) < (1 if factor is None else factor):
        fewer = f", or begin with {len(roots)}: `topics alter --replication-factor` adds others later" if roots else ""
        raise ReplicaNotAvailableError(
            f"replication.factor={many}: {len(roots)} of {len(data)} roots for data answer, nothing was made: bring "
            f"back {', '.join(map(str, away))}{fewer}"
        )
    leading = {root: ordinal // len(roots) + (place < ordinal % len(roots)) for place, root in enumerate(roots)}
    chosen = assign(leading, roots, min(many, len(roots)))
    return chosen, [address.id for address in away[: many - len(chosen)]]


def how_many(places: Places, factor: int | None) -> int:
    """Return a new unit's replication factor, by default three or all roots."""
    roots = len(places.roots.listed().data)
    many = min(roots, DEFAULT_FACTOR) if factor is None else factor
    if not 1 <= many <= roots:
        raise UsageError(f"replication.factor={factor} is not allowed: this log has {roots} roots for data")
    return many


def held_and_free(places: Places) -> tuple[Sequence[str], list[str]]:
    """Roots with a replica, and data roots without."""
    newest, deciding = places.newest(), places.deciding()
    held = state_of(newest.entry).replicas if newest.entry.is_replicated else deciding
    taken = (*held, *deciding)  # metadata roots have the journal already, without records
    return held, [address.id for address in places.roots.listed().data if address.id not in taken]


def candidates(places: Places, many: int) -> list[str]:
    """Return `many` roots that may get a replica."""
    held, free = held_and_free(places)
    if len(free) < many:
        raise UsageError(
            f"{len(held) + many} replicas need as many roots for data, and this log has {len(held) + len(free)} that "
            "can hold one: add some with `commitlog replicas add`"
        )
    return so_many_free(places, free, many)


def so_many_free(places: Places, free: Sequence[str], many: int) -> list[str]:
    """Return `many` free roots."""
    chosen, failed = first_free(places, free, many)
    if len(chosen) < many:
        is_wrong = all(isinstance(error, UsageError) for error in failed.values())
        raise (UsageError if is_wrong else ReplicaNotAvailableError)("; ".join(map(str, failed.values())))
    return chosen


def first_free(places: Places, free: Sequence[str], many: int) -> tuple[list[str], dict[str, Exception]]:
    """Return up to `many` usable free roots; and errors of others."""
    chosen, failed = list[str](), dict[str, Exception]()
    for root in free:
        if len(chosen) >= many:
            break
        try:
            check_free(places, root)
            chosen.append(root)
        except (CommitLogError, OSError) as error:
            places.forget(root)
            failed[root] = error
    return chosen, failed


def check_free(places: Places, root: str) -> None:
    """Refuse a root that holds something else by the unit's name."""
    replica = places.at(root)
    theirs = replica.journal.newest()  # earlier gaps do not matter: it starts over
    if theirs is None:
        replica.check()
        return
    decided = places.newest()
    with_it = decided.entry if decided.sequence == theirs.sequence else None
    if with_it is None and theirs.sequence < decided.sequence:
        try:
            with_it = places.decider().journal.read(theirs.sequence).entry
        except FileNotFoundError:  # collected: the names tell
            if theirs.entry.topic_id == decided.entry.topic_id:
                return
    if with_it is None or with_it.write_id != theirs.entry.write_id:
        raise UsageError(
            f"root {root} at {places.at(root).storage.url} has another {places.unit.directory} (topic id "
            f"{theirs.entry.topic_id}): delete it there, or name another root; nothing was changed"
        )


def leaving(state: ReplicaState, answering: Container[str], many: int) -> list[str]:
    """Return the `many` replicas to drop, never the leader (pure).

    First those away, then those out of sync, then the last assigned.
    """
    others = [root for root in reversed(state.replicas) if root != state.leader]
    return sorted(others, key=lambda root: (root in answering, root in state.isr))[: max(many, 0)]


def lags_behind(
    state: ReplicaState, root: str, chosen: str | None, answers: Callable[[str], bool], leaving: Container[str] = ()
) -> str | None:
    """Root that must sync before another goes, if any.

    A root that is away or out of sync may go.

    Args:
        chosen: its replacement; None: all other replicas that answer must be in sync.
        leaving: roots that go too.
    """
    if root not in state.isr or not answers(root):
        return None
    if chosen is not None:
        return None if chosen in state.isr else chosen
    late = (each for each in state.replicas if each not in state.isr and each not in leaving)
    return next((each for each in late if answers(each)), None)


def resized(state: ReplicaState, factor: int, answering: Container[str], free: Iterable[str]) -> ReplicaState:
    """State with `factor` replicas, if possible (pure)."""
    for root in leaving(state, answering, len(state.replicas) - factor):
        state = without_replica(state, root)
    for root in free:
        if len(state.replicas) < factor and root not in state.replicas:
            state = added(state, root)
    return state


def assign(leading: Mapping[str, int], roots: Sequence[str], factor: int) -> tuple[str, ...]:
    """Return the replicas of a new topic, its leader first.

    The first root that leads fewest topics leads; followers go round robin, as by Kafka's `AdminUtils` without racks:
    the gap to the first follower grows with each round of leaders.
    """
    if not 1 <= factor <= min(len(roots), MAX_ROOTS):
        raise RefusedError(Reason.TOO_MANY_ROOTS, f"{factor} replicas on {len(roots)} roots, at most {MAX_ROOTS}")
    many = len(roots)
    first = min(range(many), key=lambda place: leading.get(roots[place], 0))
    rounds = sum(leading.get(root, 0) for root in roots) // many
    others = (first + 1 + (rounds + follower) % (many - 1) for follower in range(factor - 1))
    return (roots[first], *(roots[place % many] for place in others))
