"""What an entry may say of a topic's replicas, given its base; pure. docs/explanation/design/replication.md has why.

The base is the newest entry, whose state and number are given: a process that loses the number asks again.
An entry's state of replicas is made of one change, then ``after_other`` (or ``after_append``), then ``with_hw`` where
it states a high watermark as well. ``learned`` has the newest entry that a root's journal holds, for the roots that
were asked and answered; its directory was synced before it was counted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from pyspark_commitlog.replicas.replica_state import (
    MAX_ABOVE_HW,
    MAX_ON_ROWS,
    MAX_PENDING,
    MAX_ROOTS,
    MAX_WHY,
    MetadataSet,
    ReplicaState,
    on_rows,
)

#: What nobody has seen of a root: it has learned nothing.
_NOTHING = -1


class Reason(StrEnum):
    """Why an entry may not follow its base."""

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
    """An entry may not follow its base. ``reason`` is for the caller, which knows what the user did."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}{detail and f': {detail}'}")
        self.reason = reason


class Ack(StrEnum):
    """What a writer with acks=all makes of what it sees."""

    YES = "acknowledge"
    WAIT = "wait"
    VOID = "void: append again, unless a later batch of the writer lives"
    TOO_FEW = "on fewer roots than min.insync.replicas"


# --- Entries of a topic ------------------------------------------------------------------------------------------


def created(
    of: MetadataSet, replicas: Sequence[str], leader: str, number: int, others: Iterable[str] = ()
) -> ReplicaState:
    """Return the state after the entry that makes a topic, or that brings replicas to one that has none.

    Args:
        replicas: in order of assignment; all are in sync. Of a topic that is there already its own root alone, which
            has all of it: others are added, and join.
        number: the entry's own.
        others: replicas that are not in sync yet.
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
    """Return the state after the entry that makes a topic again which was deleted; its replicas stay.

    Readers see it at once, as one that is made for the first time: there is nothing in it that a root could lack (a
    group's entries are all so). No append of the deleted one lives: an election has nothing of it to make void.
    """
    return with_hw(base, number, seen=False)


def made_where_it_was(of: MetadataSet, root: str, replicas: Sequence[str], number: int) -> ReplicaState:
    """Return the state after the entry that makes a topic again which lived on one root alone.

    That one leads, alone in sync: others have to learn what was before, or to begin later, where that is collected.

    Args:
        of, number: as of ``created``.
        root: where it was.
        replicas: those that it would have if it were new; as many it gets.
    """
    others = [each for each in replicas if each != root][: len(replicas) - 1]
    return created(of, (root,), root, number, others)


def after_append(
    base: ReplicaState, number: int, on: Iterable[str], *, acks_all: bool, min_insync: int
) -> ReplicaState:
    """Return the state after an append (rule 2).

    Args:
        number: the entry's own.
        on: the roots where its chunks and files were seen, on this attempt.
        min_insync: ``min.insync.replicas``, which counts for acks=all.

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
    """Return the state of an entry without append: where nothing is to be copied, the high watermark goes along.

    Args:
        state: the base's, with the entry's one change.
    """
    return with_hw(state, number, seen=False) if state.hw == base_number else state


# --- High watermark (rule 3) -------------------------------------------------------------------------------------


def hw_may_rise_to(state: ReplicaState, base_number: int, learned: Mapping[str, int]) -> int:
    """Return the highest number that an entry on this base may state as ``hw``; the base's own where it may not rise.

    All of the ISR have learned it, and no election after it made something at or below it void.

    Args:
        state: the base's, with the entry's one change: an entry that takes a root out counts the rest.
    """
    if lost_roots(state, learned):
        return state.hw
    may = min(base_number, *(learned.get(root, _NOTHING) for root in state.isr))
    for first, election in reversed(state.pending_voids):
        if first <= may < election:
            may = first - 1
    return max(state.hw, may)


def with_hw(state: ReplicaState, number: int, *, seen: bool = True) -> ReplicaState:
    """Return the state that states this high watermark, without what is needed above it only.

    Args:
        number: what ``hw_may_rise_to`` allows; a lower one than the state's changes nothing.
        seen: whether all of the ISR were seen to have learned it.
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
    """Return the number of the last entry whose records readers of a root see that has learned this state."""
    return state.hw


# --- Replicas and the ISR (rule 4) -------------------------------------------------------------------------------


def added(base: ReplicaState, root: str, begins: int | None = None) -> ReplicaState:
    """Return the state in which a root is a replica, in sync when it has joined.

    Args:
        begins: the number at which its journal begins, where that is not the topic's first.
    """
    if root in base.replicas:
        raise RefusedError(Reason.IS_REPLICA, root)
    if len(base.replicas) >= MAX_ROOTS:
        raise RefusedError(Reason.TOO_MANY_ROOTS, f"at most {MAX_ROOTS}")
    numbers = base.begins if begins is None else {**base.begins, root: begins}
    return replace(base, replicas=(*base.replicas, root), begins=numbers)


def without_replica(base: ReplicaState, root: str) -> ReplicaState:
    """Return the state without a root as replica; the leader stays."""
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
    """Return the state in which writers stage and push to a replica that is not in sync, if they can."""
    if root not in base.replicas:
        raise RefusedError(Reason.NO_REPLICA, root)
    if root in base.isr:
        raise RefusedError(Reason.IN_SYNC, root)
    if root in base.joining:
        raise RefusedError(Reason.IS_JOINING, root)
    return replace(base, joining=base.ordered((*base.joining, root)))


def joined(base: ReplicaState, base_number: int, root: str, learned: int) -> ReplicaState:
    """Return the state in which a root that has learned the base is in sync.

    Up to ``hw`` is not enough: what acks=all returned above that would be void if the root were elected.
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
    """Return the state in which a root is neither in sync nor joining; never the leader, so never the last."""
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
    """Return the state after another root of the ISR is elected, and the appends that become void by that.

    Void becomes exactly what stands above ``hw``, lives, and is neither on the new leader nor learned by it.

    Args:
        learned: the newest entry that the new leader has learned, read AFTER the base was.
        gone: the leader that is gone: it leaves the ISR. None where it hands over.
        at_ms: the time by the new leader's storage clock.

    Raises:
        RefusedError: this root may not lead.
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
    """Return the state after a root is elected that is not in sync, and the appends that become void by that (rule 8).

    All that it lacks is void, also what was read. It alone is in sync.

    Args:
        living: the numbers of all living appends that may be needed yet; those above ``hw`` are known.
        has: the numbers of the appends that the new leader can hand out, whether it has learned them or not.
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
    """Return the state after metadata that was lost for good is given up, by hand, and what is void by that (rule 10).

    Void becomes what the root has no files of, whatever it has learned: it may have learned an append as void, of an
    election that is given up with the metadata. It alone is in sync.

    Args:
        base: the newest state of the longest journal that is left; ``root`` has that journal.
        has: the numbers of the appends whose files the root has.
        of: the new set.
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
        last = pending[MAX_PENDING - 1 :]  # the bound is reached: one that covers both keeps hw lower than it may be
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
    """Return the state of the last entry of a metadata set, which names the next one (rule 10).

    A majority of the next set has learned the base: what was decided does not go with the old set.
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
    """Return whether acks=all may be acknowledged for the append at a number.

    All of the newest ISR have learned it. Where its chunks were not on all of its base's ISR, it is at ``hw`` as well:
    an election that is being decided on this very head may make it void.

    Args:
        head: the newest state, read AFTER ``learned`` was.
        own_on_all_isr: whether the append's ``on`` had all of the ISR of its base.
        is_void: whether the head says that the append is void.
        min_insync: ``min.insync.replicas``; too few is said when all of the ISR have it, as Kafka does.
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
    """Return in-sync roots not known to have learned all below ``hw``."""
    return tuple(root for root in state.isr if state.learned.get(root, _NOTHING) < state.hw - 1)


def collectable(base: ReplicaState, learned: Mapping[str, int]) -> int:
    """Return the highest number that a root which has settled it may delete: none where that is no entry.

    It is below ``hw``, and learned by all of the ISR, all that join, and a majority of the metadata roots.
    """
    deciding = sorted((learned.get(root, _NOTHING) for root in base.set.roots), reverse=True)
    by_majority = deciding[len(deciding) // 2]
    return min(base.hw - 1, by_majority, *(learned.get(root, _NOTHING) for root in (*base.isr, *base.joining)))


def is_restored(state: ReplicaState, root: str, learned: int) -> bool:
    """Return whether a root ends below what entries say that it has learned: it was restored from a copy."""
    return learned < state.learned.get(root, _NOTHING)


def lost_roots(state: ReplicaState, learned: Mapping[str, int]) -> tuple[str, ...]:
    """Return the replicas that were restored, of those that answered; nothing that they show counts."""
    return tuple(root for root in state.replicas if root in learned and is_restored(state, root, learned[root]))


# --- Assignment --------------------------------------------------------------------------------------------------


def assign(leading: Mapping[str, int], roots: Sequence[str], factor: int) -> tuple[str, ...]:
    """Return the replicas of a new topic, its leader first.

    The root that leads least leads, the first of those that are equal. Followers go round robin from the next one, as
    Kafka's ``AdminUtils`` does without racks: the gap from leader to first follower grows with each round of leaders.

    Args:
        leading: how many topics a root leads.
        factor: how many replicas.
    """
    if not 1 <= factor <= min(len(roots), MAX_ROOTS):
        raise RefusedError(Reason.TOO_MANY_ROOTS, f"{factor} replicas on {len(roots)} roots, at most {MAX_ROOTS}")
    many = len(roots)
    first = min(range(many), key=lambda place: leading.get(roots[place], 0))
    rounds = sum(leading.get(root, 0) for root in roots) // many
    others = (first + 1 + (rounds + follower) % (many - 1) for follower in range(factor - 1))
    return (roots[first], *(roots[place % many] for place in others))


def _other_roots(roots: Iterable[str], root: str) -> tuple[str, ...]:
    return tuple(other for other in roots if other != root)


def _forgotten(base: ReplicaState, root: str) -> dict[str, int]:
    return {other: number for other, number in base.learned.items() if other != root}
