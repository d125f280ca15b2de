"""Rules for an entry's state of replicas, given its base; pure.

A state is made by one change, then `after_other` or `after_append`, then perhaps `with_hw`. `learned` has the
synced newest entry of each root that answered. Reasons: docs/explanation/design/replication.md.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from pyspark_commitlog.replication.protocol.replica_state import (
    MAX_ABOVE_HW,
    MAX_ON_ROWS,
    MAX_PENDING,
    MAX_ROOTS,
    MAX_WHY,
    MetadataSet,
    ReplicaState,
    on_rows,
)

#: The number learned by a root of which nothing is known.
_NOTHING = -1


class Reason(StrEnum):
    """Reason why an entry may not follow its base."""

    NOT_ON_LEADER = "the chunks are not on the leader"
    NOT_ON_ISR = "the chunks are not on all roots in sync"
    NOT_ON_METADATA = "the chunks are not on the one metadata root, whose journal has the entry by the put"
    TOO_FEW_IN_SYNC = "fewer roots are in sync than min.insync.replicas"
    TOO_MANY_ABOVE_HW = "too many appends are above the high watermark"
    TOO_MANY_ROOTS = "too many roots"
    NO_REPLICA = "the root is no replica"
    IS_REPLICA = "the root is a replica already"
    IS_LEADER = "the root leads"
    NOT_LEADER = "the root that is gone does not lead"
    IN_SYNC = "the root is in sync already"
    NOT_IN_SYNC = "the root is not in sync"
    NOT_JOINING = "the root is not joining"
    IS_JOINING = "the root is joining already"
    LAGS = "the root has not learned the newest entry"
    NOT_NEXT_SET = "the metadata set is not of the next generation"
    NOT_LEARNED = "no majority of the metadata set has learned the newest entry"
    RESTORED = "the root ends below what entries say that it has learned: it was restored from a copy"


class RefusedError(Exception):
    """An entry may not follow its base."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}{detail and f': {detail}'}")
        self.reason = reason


class Ack(StrEnum):
    """Verdict on an append with acks=all."""

    YES = "acknowledge"
    WAIT = "wait"
    VOID = "void: append again, unless a later batch of the writer lives"
    TOO_FEW = "on fewer roots than min.insync.replicas"


# --- Entries of a topic ------------------------------------------------------------------------------------------


def created(
    of: MetadataSet, replicas: Sequence[str], leader: str, number: int, others: Iterable[str] = ()
) -> ReplicaState:
    """State that a topic is created or first replicated with.

    `replicas` are in order of assignment and in sync, `others` are not.
    """
    if len(replicas) > MAX_ROOTS:
        raise RefusedError(Reason.TOO_MANY_ROOTS, f"{len(replicas)} of at most {MAX_ROOTS}")
    if leader not in replicas:
        raise RefusedError(Reason.NO_REPLICA, leader)
    roots = tuple(replicas)
    state = ReplicaState(of, roots, roots, (), {}, leader, 0, number, {}, ())
    for other in others:
        state = added(state, other)
    return state


def made_again(base: ReplicaState, number: int) -> ReplicaState:
    """State after a deleted topic is recreated. Its replicas stay.

    The entry is visible at once, as no root can lack anything. No append of the deleted topic lives to be voided.
    """
    return with_hw(base, number, seen=False)


def made_where_it_was(of: MetadataSet, root: str, replicas: Sequence[str], number: int) -> ReplicaState:
    """State after a topic of one root is recreated.

    That root leads, alone in sync: others learn earlier entries, or begin later. It gets as many `replicas` as a new
    topic.
    """
    others = [each for each in replicas if each != root][: len(replicas) - 1]
    return created(of, (root,), root, number, others)


def after_append(
    base: ReplicaState, number: int, on: Iterable[str], *, acks_all: bool, min_insync: int
) -> ReplicaState:
    """State after an append (rule 2).

    `on`: roots where its chunks and files were seen, on this attempt.

    Raises:
        RefusedError: nothing may be put.
    """
    there = base.ordered(on)
    if base.leader not in there:
        raise RefusedError(Reason.NOT_ON_LEADER, base.leader)
    if len(base.set.roots) == 1 and base.set.roots[0] in base.replicas and base.set.roots[0] not in there:
        raise RefusedError(Reason.NOT_ON_METADATA, base.set.roots[0])
    if acks_all and len(base.isr) < min_insync:
        raise RefusedError(Reason.TOO_FEW_IN_SYNC, f"{len(base.isr)} of {min_insync}")
    if acks_all and (lacking := [root for root in base.isr if root not in there]):
        raise RefusedError(Reason.NOT_ON_ISR, ", ".join(lacking))
    above = {**base.on, number: there}
    if len(above) > MAX_ABOVE_HW or (len(above) > MAX_ON_ROWS and len(on_rows(above, base.replicas)) > MAX_ON_ROWS):
        raise RefusedError(Reason.TOO_MANY_ABOVE_HW, f"{len(base.on)}")
    return replace(base, on=above)


def after_other(state: ReplicaState, base_number: int, number: int) -> ReplicaState:
    """State after an entry without append.

    If all is at the high watermark, so is the entry: there is nothing to copy.
    """
    return with_hw(state, number, seen=False) if state.hw == base_number else state


# --- High watermark (rule 3) -------------------------------------------------------------------------------------


def hw_may_rise_to(state: ReplicaState, base_number: int, learned: Mapping[str, int]) -> int:
    """Highest `hw` that an entry on this base may state.

    All of the ISR have learned it, and no later election voided anything up to it. If `state` takes a root out, the
    rest counts.
    """
    if lost_roots(state, learned):
        return state.hw
    may = min(base_number, *(learned.get(root, _NOTHING) for root in state.isr))
    for first, election in reversed(state.pending_voids):
        if first <= may < election:
            may = first - 1
    return max(state.hw, may)


def with_hw(state: ReplicaState, number: int, *, seen: bool = True) -> ReplicaState:
    """State with a high watermark, pruned up to it.

    `seen`: all of the ISR were seen to have learned it.
    """
    if number <= state.hw:
        return state
    learned = {root: max(number, state.learned.get(root, _NOTHING)) for root in state.isr} if seen else state.learned
    return replace(
        state,
        hw=number,
        on={append: roots for append, roots in state.on.items() if append > number},
        pending_voids=tuple(pair for pair in state.pending_voids if pair[1] > number),
        learned=learned,
    )


def visible(state: ReplicaState) -> int:
    """Last entry that readers see."""
    return state.hw


# --- Replicas and the ISR (rule 4) -------------------------------------------------------------------------------


def added(base: ReplicaState, root: str, begins: int | None = None) -> ReplicaState:
    """State with another replica, not in sync yet.

    `begins`: where its journal begins, if not at the topic's first entry.
    """
    if root in base.replicas:
        raise RefusedError(Reason.IS_REPLICA, root)
    if len(base.replicas) >= MAX_ROOTS:
        raise RefusedError(Reason.TOO_MANY_ROOTS, f"at most {MAX_ROOTS}")
    numbers = base.begins if begins is None else {**base.begins, root: begins}
    return replace(base, replicas=(*base.replicas, root), begins=numbers)


def without_replica(base: ReplicaState, root: str) -> ReplicaState:
    """State without a replica; the leader stays."""
    if root not in base.replicas:
        raise RefusedError(Reason.NO_REPLICA, root)
    state = shrunk(base, root) if root in (*base.isr, *base.joining) else base
    return replace(
        state,
        replicas=_other_roots(state.replicas, root),
        begins={other: number for other, number in state.begins.items() if other != root},
        on={number: _other_roots(roots, root) for number, roots in state.on.items()},
    )


def joining(base: ReplicaState, root: str) -> ReplicaState:
    """State with a joining replica: writers push to it."""
    if root not in base.replicas:
        raise RefusedError(Reason.NO_REPLICA, root)
    if root in base.isr:
        raise RefusedError(Reason.IN_SYNC, root)
    if root in base.joining:
        raise RefusedError(Reason.IS_JOINING, root)
    return replace(base, joining=base.ordered((*base.joining, root)))


def joined(base: ReplicaState, base_number: int, root: str, learned: int) -> ReplicaState:
    """State in which a joining root is in sync.

    It has learned the base: below, its election would void what acks=all acknowledged.
    """
    if root not in base.joining:
        raise RefusedError(Reason.NOT_JOINING, root)
    if learned < base_number:
        raise RefusedError(Reason.LAGS, f"{root} ends at {learned}, the newest is {base_number}")
    return replace(
        base,
        isr=base.ordered((*base.isr, root)),
        joining=_other_roots(base.joining, root),
        learned={**base.learned, root: base_number},
    )


def shrunk(base: ReplicaState, root: str) -> ReplicaState:
    """State with a root, not the leader, out of sync."""
    if root == base.leader:
        raise RefusedError(Reason.IS_LEADER, root)
    if root not in (*base.isr, *base.joining):
        raise RefusedError(Reason.NOT_IN_SYNC, root)
    return replace(
        base, isr=_other_roots(base.isr, root), joining=_other_roots(base.joining, root), learned=_forgotten(base, root)
    )


# --- Elections (rules 5, 8) --------------------------------------------------------------------------------------


def elected(
    base: ReplicaState,
    base_number: int,
    number: int,
    leader: str,
    learned: int,
    *,
    gone: str | None = None,
    at_ms: int = -1,
    why: str = "",
) -> tuple[ReplicaState, tuple[int, ...]]:
    """State after a clean election, and the appends voided.

    These are the living appends above `hw` that the new leader neither holds nor has learned.

    Args:
        learned: of the new leader, read AFTER the base.
        gone: the lost leader, which leaves the ISR; None if it hands over.
    """
    if leader == base.leader:
        raise RefusedError(Reason.IS_LEADER, leader)
    if leader not in base.isr:
        raise RefusedError(Reason.NOT_IN_SYNC if leader in base.replicas else Reason.NO_REPLICA, leader)
    if gone not in (None, base.leader):
        raise RefusedError(Reason.NOT_LEADER, f"{gone}, {base.leader} does")
    if is_restored(base, leader, learned):
        raise RefusedError(Reason.RESTORED, f"{leader} ends at {learned}, it had {base.learned[leader]}")
    voids = tuple(sorted(append for append, roots in base.on.items() if leader not in roots and learned < append))
    rest = base if gone is None else replace(base, isr=_other_roots(base.isr, gone), learned=_forgotten(base, gone))
    return _led(rest, base_number, number, leader, voids, at_ms, why), voids


def elected_uncleanly(
    base: ReplicaState,
    base_number: int,
    number: int,
    leader: str,
    living: Iterable[int],
    has: Container[int],
    *,
    at_ms: int = -1,
    why: str = "",
) -> tuple[ReplicaState, tuple[int, ...]]:
    """State after an unclean election, and the appends voided.

    Rule 8: all that the leader, alone in sync, lacks is void, even if it was read.

    Args:
        living: appends that may be needed; those above `hw` are known.
        has: appends that the new leader can serve, learned or not.
    """
    if leader in base.isr:
        raise RefusedError(Reason.IN_SYNC, leader)
    if leader not in base.replicas:
        raise RefusedError(Reason.NO_REPLICA, leader)
    voids = tuple(append for append in sorted({*base.on, *living}) if append not in has)
    rest = replace(base, isr=(leader,), joining=(), learned={})
    return _led(rest, base_number, number, leader, voids, at_ms, why), voids


def recovered(
    base: ReplicaState,
    base_number: int,
    number: int,
    root: str,
    has: Container[int],
    of: MetadataSet,
    *,
    at_ms: int = -1,
    why: str = "",
) -> tuple[ReplicaState, tuple[int, ...]]:
    """State after metadata is given up, and the appends voided.

    Rule 10: void is what the root, alone in sync, has no files of, even if it learned it as void by an election that is
    given up too.

    Args:
        base: newest state of the longest journal left, that of `root`.
    """
    if root not in base.replicas:
        raise RefusedError(Reason.NO_REPLICA, root)
    _check_next(base, of)
    voids = tuple(append for append in sorted(base.on) if append not in has)
    learned = {other: end for other, end in base.learned.items() if other == root}
    rest = replace(base, set=of, isr=(root,), joining=(), learned=learned)
    return _led(rest, base_number, number, root, voids, at_ms, why), voids


def _led(
    base: ReplicaState, base_number: int, number: int, leader: str, voids: Sequence[int], at_ms: int, why: str
) -> ReplicaState:
    pending = base.pending_voids
    if voids:
        last = pending[MAX_PENDING - 1 :]  # at the bound one pair covers both: hw stays lower than it may be
        pending = (*pending[: MAX_PENDING - 1], (min([voids[0], *(first for first, _ in last)]), number))
    state = replace(
        base,
        leader=leader,
        leader_epoch=base.leader_epoch + 1,
        on={append: roots for append, roots in base.on.items() if append not in voids},
        pending_voids=pending,
        elected_ms=at_ms,
        why=why[:MAX_WHY],
    )
    return after_other(state, base_number, number)


def moved(base: ReplicaState, base_number: int, of: MetadataSet, learned: Mapping[str, int]) -> ReplicaState:
    """State that ends a metadata set.

    Rule 10: a majority of the next one has learned the base.
    """
    _check_next(base, of)
    have = sum(learned.get(root, _NOTHING) >= base_number for root in of.roots)
    if have <= len(of.roots) // 2:
        raise RefusedError(Reason.NOT_LEARNED, f"{have} of {len(of.roots)}")
    return replace(base, set=of)


def _check_next(base: ReplicaState, of: MetadataSet) -> None:
    if of.generation != base.set.generation + 1 or of.id == base.set.id:
        raise RefusedError(Reason.NOT_NEXT_SET, f"{of.generation} after {base.set.generation}")


# --- Acknowledging (rule 2), collecting (rule 7), roots that come back (rule 11) ---------------------------------


def may_return(
    head: ReplicaState,
    number: int,
    learned: Mapping[str, int],
    *,
    own_on_all_isr: bool,
    is_void: bool,
    min_insync: int,
) -> Ack:
    """Whether an append with acks=all may be acknowledged.

    All of the newest ISR have learned it. If its chunks were not on all of its base's ISR, it is at `hw` too, as an
    election on this head may void it.

    Args:
        head: the newest state, read AFTER `learned`.
        own_on_all_isr: whether its `on` had all of its base's ISR.
        min_insync: `min.insync.replicas`; reported once all of the ISR have it, as in Kafka.
    """
    if is_void:
        return Ack.VOID
    lost = lost_roots(head, learned)
    if lost or any(learned.get(root, _NOTHING) < number for root in head.isr):
        return Ack.WAIT
    if not own_on_all_isr and head.hw < number:
        return Ack.WAIT
    return Ack.TOO_FEW if len(head.isr) < min_insync else Ack.YES


def roots_below_hw(state: ReplicaState) -> tuple[str, ...]:
    """In-sync roots not known to have reached `hw` - 1."""
    return tuple(root for root in state.isr if state.learned.get(root, _NOTHING) < state.hw - 1)


def collectable(base: ReplicaState, learned: Mapping[str, int]) -> int:
    """Highest number that a root that settled it may delete.

    It is below `hw`, and learned by ISR, joining roots and a majority of metadata roots.
    """
    deciding = sorted((learned.get(root, _NOTHING) for root in base.set.roots), reverse=True)
    by_majority = deciding[len(deciding) // 2]
    return min(base.hw - 1, by_majority, *(learned.get(root, _NOTHING) for root in (*base.isr, *base.joining)))


def is_restored(state: ReplicaState, root: str, learned: int) -> bool:
    """Whether a root is a copy.

    It ends below what it had learned.
    """
    return learned < state.learned.get(root, _NOTHING)


def lost_roots(state: ReplicaState, learned: Mapping[str, int]) -> tuple[str, ...]:
    """Restored replicas among those that answered."""
    return tuple(root for root in state.replicas if root in learned and is_restored(state, root, learned[root]))


def _other_roots(roots: Iterable[str], root: str) -> tuple[str, ...]:
    return tuple(other for other in roots if other != root)


def _forgotten(base: ReplicaState, root: str) -> dict[str, int]:
    return {other: number for other, number in base.learned.items() if other != root}
