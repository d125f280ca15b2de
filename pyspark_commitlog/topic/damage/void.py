"""Voiding: an operator gives up lost records, to unblock their partition.

One entry names the offsets. Readers skip unsettled ones with a warning and the settler covers them with empty frames;
damaged segments are rewritten (`salvage`). The one exception to I2 and I3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pyspark_commitlog.errors import ConflictError, UsageError
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.topic.damage.salvage import Range, damaged_fragments, salvaged
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.read.unsettled import Hole, Pending, Source, covered, read_pending, scan, sources_of
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import LostOffsets, TopicState, Void, merged, with_lost
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition

logger = logging.getLogger("pyspark_commitlog.topic")

_LOCK_TRIES = 100
_LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class VoidedRange:
    """Voided offsets [start, end), or those that would be.

    `records` bounds the visible ones: not below the log start, nor compacted away. `why` names file and fault.
    """

    partition: int
    start: int
    end: int
    records: int
    why: str


#: The voiding entry, or nothing to void.
Answer = Draft[tuple[VoidedRange, ...]] | Unchanged[tuple[VoidedRange, ...]]


def void(
    topic: TopicLog,
    topic_id: str,
    ranges: Mapping[int, tuple[int, int]] | None,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> tuple[VoidedRange, ...]:
    """Void unreadable records; see `Topic.void`.

    Each attempt rereads everything unsettled (rule R9), under the settlers' lock. Segments are rewritten before the
    entry and swapped after it: a crash between leaves damage, to void again.

    Raises:
        UsageError: see `choose`; nothing was voided.
        ConflictError: a settler keeps holding the lock.
        CorruptionError: a manifest is damaged; nothing was voided.
        TopicChangedError: the incarnation is gone.
    """
    if force and not ranges:
        raise UsageError("force gives up records that can be read: say which, by partition and offsets")
    topic.forget_defaults()
    with settling_stopped(topic, topic_id, "voided"):
        stored, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        check_ranges(topic, state, ranges or {}, partial(_lowest, topic, settled))
        fragments = damaged_fragments(topic, settled, topic_id, ranges)
        given_up = look(topic, stored, state, settled, ranges, fragments, force=force)
        in_segments = settled_ranges(given_up, settled)
        if dry_run or not given_up:
            return given_up
        if in_segments:
            base = topic.reserve(base, settled) or base
        after = salvaged(topic, state, base, settled, in_segments)

        def plan(newest: Stored | None, slot: Slot) -> Answer:
            stored, state = topic.newest_at(newest, topic_id)
            lost = look(topic, stored, state, settled, ranges, fragments, force=force)
            return voided(state, settled, lost, slot.sequence)

        given_up = topic.journal.append(plan).result
        after = after.without_damage({lost.partition for lost in given_up})
        if in_segments or after != settled:
            topic.publish(base, after)
    return given_up


def settled_ranges(given_up: Sequence[VoidedRange], settled: SettleState) -> dict[int, list[Range]]:
    """Voided ranges that begin in segments, per partition (pure)."""
    ranges: dict[int, list[Range]] = {}
    for lost in given_up:
        if lost.start < settled.partition(lost.partition).end_offset:
            ranges.setdefault(lost.partition, []).append((lost.start, lost.end))
    return ranges


def void_unsynced(topic: TopicLog, topic_id: str) -> bool:
    """Void acks=0 records lost to power failure, under the lock (R5).

    Other damage is the operator's decision. So is that of a replicated topic: another root may have the chunk, and a
    void is for all. Returns whether there was any.
    """

    def plan(base: Stored | None, slot: Slot) -> Answer:
        stored, state = topic.newest_at(base, topic_id)
        if state.unsynced_from is None or state.is_replicated:
            return Unchanged(())
        _, settled = topic.settled(topic_id)
        lost = look(topic, stored, state, settled, None, {}, force=False, since=state.unsynced_from)
        return voided(state, settled, lost, slot.sequence)

    given_up = topic.journal.append(plan).result
    for lost in given_up:
        logger.error(
            "topic %r partition %d: offsets %d to %d (%d records), written with acks=0, are lost and voided: %s",
            topic.name, lost.partition, lost.start, lost.end - 1, lost.records, lost.why,
        )  # fmt: skip
    return bool(given_up)


def voided(state: TopicState, settle: SettleState, given_up: tuple[VoidedRange, ...], number: int) -> Answer:
    """Voiding entry `number`, without outdated voids (pure)."""
    if not given_up:
        return Unchanged(())
    met = [
        0 if state.is_replicated else min(start, settle.partition(partition).end_offset)  # others settle for themselves
        for partition, start in enumerate(state.log_start)
    ]
    kept = [void for void in state.voids if void.end > met[void.partition]]
    ranges = tuple(Void(lost.partition, lost.start, lost.end) for lost in given_up)
    after = replace(state, voids=merged([*kept, *ranges]))
    if state.is_replicated:  # readers skip a clean election's voids silently
        after = replace(after, lost=with_lost(state.lost, LostOffsets(number, ranges=ranges), state.log_start))
    return Draft("void", state.topic_id, {"state": after.to_json()}, result=given_up)


@contextmanager
def settling_stopped(topic: TopicLog, topic_id: str, done: str) -> Iterator[None]:
    """Hold the settlers' lock; `done` describes the action in the error."""
    for _ in range(_LOCK_TRIES):
        with topic.settling(topic_id) as held:
            if held:
                yield
                return
        topic.storage.clock.sleep(_LOCK_SECONDS)
    raise ConflictError(
        f"topic {topic.name!r} is being settled or maintained all the time; nothing was {done}: try again. The lock "
        f"of the settlers is held by {topic.busy}"
    )


def look(
    topic: TopicLog,
    newest: Stored,
    state: TopicState,
    settled: SettleState,
    ranges: Mapping[int, Range] | None,
    of_segments: Mapping[int, Sequence[Fragment]],
    *,
    force: bool,
    since: int = 0,
) -> tuple[VoidedRange, ...]:
    """Offsets to give up now.

    `of_segments` are settled fragments; `since` selects unsynced chunks from that entry on.
    """
    pending = _all_pending(topic, settled, state, newest)
    sources = sources_of(pending, settled, state.partitions)
    if since:
        sources = {
            partition: [source for source in some if _since(source, since)] for partition, some in sources.items()
        }
    given_up: list[VoidedRange] = []
    for partition in sorted({*sources, *of_segments} if ranges is None else ranges):
        start = settled.partition(partition).end_offset
        unsettled = _fragments(topic, state.topic_id, sources.get(partition, ()), start)
        fragments = [*of_segments.get(partition, ()), *unsettled]
        voids = [replace(v, start=max(v.start, start)) for v in state.voids_of(partition) if v.end > start]
        where = f"topic {topic.name!r} partition {partition}"
        chosen = choose(fragments, ranges[partition] if ranges else None, voids, force=force, where=where)
        given_up += _given_up(partition, chosen, state.log_start[partition])
    return tuple(given_up)


def _all_pending(topic: TopicLog, settled: SettleState, state: TopicState, newest: Stored) -> list[Pending]:
    pending: list[Pending] = []
    while not pending or pending[-1].sequence < newest.sequence:
        more = read_pending(
            topic, settled, state, newest, lambda: False, first=pending[-1].sequence + 1 if pending else 0
        )
        if not more:
            break
        pending += more
    return pending


def _since(source: Source | Hole, sequence: int) -> bool:
    if isinstance(source, Hole) or source.chunk is None or source.entry.sequence < sequence:
        return False
    return "unsynced" in source.entry.body


def _lowest(topic: TopicLog, settled: SettleState, partition: int) -> int:
    sealed = topic.sealed(settled, partition)
    return sealed[0].base_offset if sealed else settled.partition(partition).active.base_offset


def check_ranges(topic: TopicLog, state: TopicState, ranges: Mapping[int, Range], lowest: Callable[[int], int]) -> None:
    """Refuse ranges outside [first segment's base offset (`lowest`), high watermark].

    Raises:
        UsageError: names the range and its bounds.
    """
    for partition, wanted in ranges.items():
        check_partition(topic.name, state, partition)
        low = lowest(partition)
        high = state.log_end[partition]
        start, end = wanted
        if not low <= start < end <= high:
            raise UsageError(
                f"topic {topic.name!r} partition {partition}: {start} to {end} (exclusive) is no range of offsets "
                f"between {low}, where its first segment begins, and the high watermark {high}"
            )


def _fragments(topic: TopicLog, topic_id: str, sources: Sequence[Source | Hole], start: int) -> Iterator[Fragment]:
    for source in sources:
        if isinstance(source, Hole):
            fragments: Iterable[Fragment] = (Fragment(source.start, source.end, None, source.why),)
        else:
            fragments = scan(topic, topic_id, source)
        for fragment in fragments:
            if fragment.end > start:
                yield replace(fragment, start=max(fragment.start, start))


def choose(
    fragments: Sequence[Fragment], wanted: Range | None, voids: Sequence[Void], *, force: bool, where: str
) -> list[Fragment]:
    """Fragments to give up: unreadable ones, with `force` all (pure).

    `fragments` ascend; `voids` were voided before.

    Raises:
        UsageError: everything in the range is readable, or it ends inside a fragment.
    """
    left = [fragment for fragment in _inside(fragments, wanted) if not covered(voids, fragment.start, fragment.end)]
    chosen = [fragment for fragment in left if fragment.located is None or force]
    if wanted is not None:
        _check_ends(chosen, wanted, where)
        if left and not chosen:
            start, end = wanted
            raise UsageError(
                f"{where}: all offsets from {start} to {end - 1} can be read; nothing was voided. force gives them up "
                "all the same"
            )
    return chosen


def _inside(fragments: Sequence[Fragment], wanted: Range | None) -> list[Fragment]:
    return [
        fragment
        for fragment in fragments
        if wanted is None or (fragment.start < wanted[1] and wanted[0] < fragment.end)
    ]


def _check_ends(fragments: Iterable[Fragment], wanted: Range, where: str) -> None:
    for fragment in fragments:
        if fragment.start < wanted[0] or fragment.end > wanted[1]:
            what = "can only be given up whole" if fragment.located is None else "are one frame"
            raise UsageError(
                f"{where}: offsets {fragment.start} to {fragment.end} (exclusive) {what}; nothing was voided"
            )


def _given_up(partition: int, fragments: Sequence[Fragment], log_start: int) -> Iterator[VoidedRange]:
    before: VoidedRange | None = None
    for fragment in fragments:
        records = max(0, fragment.end - max(fragment.start, log_start))
        why = fragment.why or "these can be read, and are given up by force"
        if before is not None and (before.end, before.why) == (fragment.start, why):
            before = replace(before, end=fragment.end, records=before.records + records)
            continue
        if before is not None:
            yield before
        before = VoidedRange(partition, fragment.start, fragment.end, records, why)
    if before is not None:
        yield before
