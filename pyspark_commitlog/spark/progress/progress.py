"""Start, end and losses of a query's reads. Pure.

A checkpoint may refer to records lost by retention, recreation of a topic, or restore of a root from an older copy.
Each loss is reported with its offsets (Spark: `failOnDataLoss`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from pyspark_commitlog.errors import CommitLogError, LogTruncationError, OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.model import OffsetRange, TopicPartition
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.progress.topic_selection import TopicSelection
from pyspark_commitlog.topic.divergence import Divergence
from pyspark_commitlog.topic.state.topic_state import TopicState


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that a query will not see: reason, advice, continuation.

    `gap` (partition, start, end) is reported once.
    """

    what: str
    advice: str
    next: str
    topic_changed: bool = False
    truncated: bool = False
    gap: tuple[TopicPartition, int, int] | None = None


def error_of(losses: Sequence[Loss]) -> CommitLogError:
    """One error for all losses, for failOnDataLoss=true."""
    lost = "; ".join(dict.fromkeys(loss.what for loss in losses))
    advice = "; ".join(dict.fromkeys(loss.advice for loss in losses))
    kind: type[CommitLogError] = OffsetOutOfRangeError
    if any(loss.topic_changed for loss in losses):
        kind = TopicChangedError
    elif any(loss.truncated for loss in losses):
        kind = LogTruncationError
    return kind(f"{lost}. {advice}, or set the option 'failOnDataLoss' to 'false'")


#: Called with each loss.
ReportLoss = Callable[[Loss], None]
#: Returns the last state of a deleted topic by name and id; None if unknown.
Ended = Callable[[str, str], TopicState | None]
#: Topics restored from a copy since an offset was reached, by name.
Restored = Mapping[str, Divergence]


@dataclass(frozen=True, slots=True)
class AvailableOffsets:
    """Start and high watermark of each partition to read, and topic ids."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


def high_watermarks(states: Mapping[str, TopicState], selection: TopicSelection) -> dict[TopicPartition, int]:
    """High watermark of every partition that is read."""
    return {
        TopicPartition(name, partition): state.log_end[partition]
        for name, state in states.items()
        for partition in selection.partitions(name, state.partitions)
    }


def topic_ids(states: Mapping[str, TopicState]) -> dict[str, str]:
    """Id of every topic."""
    return {name: state.topic_id for name, state in states.items()}


def lineages(states: Mapping[str, TopicState]) -> dict[str, str]:
    """Lineage position of every topic's newest entry."""
    return {name: state.lineage.position for name, state in states.items()}


def find_available_offsets(
    begin: SourceOffset,
    states: Mapping[str, TopicState],
    selection: TopicSelection,
    report: ReportLoss,
    ended: Ended,
    restored: Restored = MappingProxyType({}),
) -> AvailableOffsets:
    """Return the offsets that a query can read after `begin`.

    - A partition added since starts at 0, so that its loss by retention is noticed.
    - A new or recreated topic starts at its log start offset. If a pattern found it, records deleted before are a loss.
    - A deleted topic keeps its offsets: it may be recreated.
    - A `restored` topic resumes where the histories diverge or, if unknown, where it was. A partition missing from
      the copy is left out, and starts at 0 when it is back.
    """
    states = {name: state for name, state in states.items() if selection.takes(name)}
    ends = high_watermarks(states, selection)
    over = lru_cache(maxsize=None)(ended)
    starts = {
        place: _start(begin, place, states[place.topic], report, over, restored.get(place.topic)) for place in ends
    }
    ids = topic_ids(states)
    if selection.pattern is not None:  # a topic that is named may be older than the query
        _tell_missed(begin, starts, report)
    for place, offset in sorted(begin.offsets.items()):
        if place.topic not in states and selection.takes(place.topic):
            former = begin.topic_ids[place.topic]
            report(_deleted(place, _describe_unread(place, offset, former, over)))
            starts[place] = ends[place] = offset
            ids[place.topic] = former
        elif place not in ends:
            _tell_absent(begin, place, states.get(place.topic), selection, report, over, restored.get(place.topic))
    return AvailableOffsets(starts, ends, ids)


def up_to(
    target: Mapping[TopicPartition, int], begin: SourceOffset, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Cut ends to the offsets at the start of the query (`Trigger.AvailableNow`).

    Partitions that came later wait for the next run.
    """
    return {
        place: min(end, max(target.get(place, 0), begin.offsets.get(place, 0)))
        for place, end in ends.items()
        if place in target or place in begin.offsets
    }


def batch_start(
    begin: SourceOffset, reached: SourceOffset, starts: Mapping[TopicPartition, int], *, is_first: bool
) -> SourceOffset | None:
    """Return a batch's start if the end before does not tell it.

    `begin` is that end, or, if `is_first`, the query's start.
    """
    new = {name for name, topic_id in reached.topic_ids.items() if begin.topic_ids.get(name) != topic_id}
    if not is_first and not new:
        return None
    return SourceOffset(
        {place: starts[place] if place.topic in new else begin.offsets.get(place, 0) for place in reached.offsets},
        reached.topic_ids,
        lineages={**begin.lineages, **{name: reached.lineages[name] for name in new}},
    )


def ranges(
    begin: SourceOffset,
    until: SourceOffset,
    states: Mapping[str, TopicState],
    report: ReportLoss,
    restored: Restored = MappingProxyType({}),
    since: Restored = MappingProxyType({}),
) -> list[OffsetRange]:
    """Readable offsets of a planned micro-batch, sorted by partition.

    Topics were `restored` after `begin` was reached, or `since` the batch was planned.
    """
    readable = []
    for place, planned in sorted(until.offsets.items()):
        state, meant = states.get(place.topic), until.topic_ids[place.topic]
        reached = begin.offsets.get(place, 0) if begin.topic_ids.get(place.topic) == meant else None
        if state is None or state.topic_id != meant:
            _tell_unread(place, reached or 0, planned, meant, report)
            continue
        low, high = _bounds(state, place.partition)
        gone = since.get(place.topic)
        stop = _planned_end(place, planned, low, high, gone, report)
        start = low
        if reached is not None:
            parted = restored.get(place.topic)
            start = reached if parted is None else _reached_start(place, reached, low, high, parted, gone, report)
        if start < min(low, stop):
            report(_deleted_records(place, start, min(low, stop), low))
        if max(start, low) < stop:
            readable.append(
                OffsetRange(place.topic, meant, place.partition, max(start, low), stop, state.lineage.position)
            )
    return readable


def _reached_start(
    place: TopicPartition,
    reached: int,
    low: int,
    high: int,
    parted: Divergence,
    gone: Divergence | None,
    report: ReportLoss,
) -> int:
    """Planned batch's start in the present history; report a restore unless its end does."""
    if not parted.loses(place.partition, reached):
        return reached
    if gone is None:
        report(_truncated(place, reached, parted, low, high))
    return _resume_offset(place, reached, parted, low, high)


def _planned_end(
    place: TopicPartition, planned: int, low: int, high: int, gone: Divergence | None, report: ReportLoss
) -> int:
    if gone is not None and gone.loses(place.partition, planned):
        report(_truncated(place, planned, gone, low, high))
        return min(planned, _resume_offset(place, planned, gone, low, high))
    if planned > high:
        report(_loss_beyond_end(place, planned, high))
    return min(planned, high)


def outside(option: str, place: TopicPartition, low: int, high: int, asked: int) -> Loss:
    """Loss of a start or end outside the log."""
    start, end = (asked, low) if asked < low else (high, asked)
    return Loss(
        f"option {option!r}: {_name(place)} has offsets {low} to {high}, not {asked}: {start} to {end - 1} are "
        "not there",
        "Name an offset that is there",
        f"offset {low if asked < low else high} is taken",
    )


def _bounds(state: TopicState, partition: int) -> tuple[int, int]:
    return (state.log_start[partition], state.log_end[partition]) if partition < len(state.log_end) else (0, 0)


def _lacks(state: TopicState, selection: TopicSelection, place: TopicPartition) -> bool:
    lacks = place.partition >= state.partitions
    return lacks and place.partition in selection.partitions(place.topic, place.partition + 1)


def _start(
    begin: SourceOffset,
    place: TopicPartition,
    state: TopicState,
    report: ReportLoss,
    ended: Ended,
    restored: Divergence | None,
) -> int:
    # as `_bounds`, without a call for each partition of each poll
    there, at = place.partition < len(state.log_end), place.partition
    low, high = (state.log_start[at], state.log_end[at]) if there else (0, 0)
    former = begin.topic_ids.get(place.topic)
    if former is None:
        return low
    start = begin.offsets.get(place, 0)
    if former != state.topic_id:
        if place in begin.offsets:
            report(_made_again(place, _describe_unread(place, start, former, ended), low))
        return low
    if restored is not None and restored.loses(place.partition, start):
        report(_truncated(place, start, restored, low, high))
        return _resume_offset(place, start, restored, low, high)
    if start > high:
        report(_loss_beyond_end(place, start, high))
        return high
    if start < low:
        report(_deleted_records(place, start, low, low))
        return low
    return start


def _tell_absent(
    begin: SourceOffset,
    place: TopicPartition,
    state: TopicState | None,
    selection: TopicSelection,
    report: ReportLoss,
    ended: Ended,
    restored: Divergence | None,
) -> None:
    offset, former = begin.offsets[place], begin.topic_ids[place.topic]
    if state is not None and state.topic_id != former:
        report(_made_again(place, _describe_unread(place, offset, former, ended), None))
    elif state is not None and _lacks(state, selection, place):
        _start(begin, place, state, report, ended, restored)
    else:
        report(_dropped(place, offset, selection))


def _tell_missed(begin: SourceOffset, starts: Mapping[TopicPartition, int], report: ReportLoss) -> None:
    """Report deletions before a pattern found the topics (Spark: `KafkaOffsetReader`)."""
    for place, low in starts.items():
        if low > 0 and place.topic not in begin.topic_ids:
            report(_deleted_records(place, 0, low, low))


def _name(place: TopicPartition) -> str:
    return f"{place.topic} partition {place.partition}"


def _deleted_records(place: TopicPartition, start: int, stop: int, low: int) -> Loss:
    return Loss(
        f"{_name(place)}: offsets {start} to {stop - 1}, {stop - start} of them, were deleted (retention or "
        f"delete_records) before this query read them; log start offset is {low}",
        "Start with a new checkpoint to go on with what is there; raise retention.ms if queries need longer",
        f"it goes on at offset {low}",
    )


def _loss_beyond_end(place: TopicPartition, reached: int, high: int) -> Loss:
    return Loss(
        f"{_name(place)}: the checkpoint is at offset {reached}, the high watermark is {high}: the root was restored "
        f"from an older copy, or this is another root; offsets {high} to {reached - 1} are not there",
        "Start with a new checkpoint once you know which",
        f"it goes on at offset {high}",
    )


def _resume_offset(place: TopicPartition, reached: int, restored: Divergence, low: int, high: int) -> int:
    end = restored.end(place.partition)
    return max(low, min(reached if end is None else end, high))


def _truncated(place: TopicPartition, reached: int, restored: Divergence, low: int, high: int) -> Loss:
    end = restored.end(place.partition)
    same = (
        "which of the records before are the same, nobody can tell" if end is None else f"the same up to offset {end}"
    )
    return Loss(
        f"{_name(place)}: the checkpoint is at offset {reached}, and {restored.reason}: {same}; the high watermark is "
        f"{high}",
        "Start with a new checkpoint once you know which records the query has read twice, or not at all",
        f"it goes on at offset {_resume_offset(place, reached, restored, low, high)}",
        truncated=True,
    )


def _describe_unread(place: TopicPartition, start: int, former: str, ended: Ended) -> str:
    state = ended(place.topic, former)
    if state is None:
        return f"what the topic with id {former} held from offset {start} on was not read"
    end = state.log_end[place.partition] if place.partition < state.partitions else start
    if start >= end:
        return f"all that the topic with id {former} held was read"
    return f"offsets {start} to {end - 1} of the topic with id {former} were not read"


def _made_again(place: TopicPartition, description: str, low: int | None) -> Loss:
    return Loss(
        f"{_name(place)}: the topic was deleted and made again: {description}",
        "Start with a new checkpoint",
        "the new topic has no such partition" if low is None else f"it goes on at offset {low} of the new topic",
        topic_changed=True,
    )


def _deleted(place: TopicPartition, description: str) -> Loss:
    return Loss(
        f"{_name(place)}: the topic was deleted: {description}",
        "Start with a new checkpoint",
        "it goes on when a topic is made under the name",
        topic_changed=True,
    )


def _tell_unread(place: TopicPartition, start: int, stop: int, former: str, report: ReportLoss) -> None:
    if start < stop:
        report(_loss_of_planned_offsets(place, start, stop, former))


def _loss_of_planned_offsets(place: TopicPartition, start: int, stop: int, former: str) -> Loss:
    return Loss(
        f"{_name(place)}: offsets {start} to {stop - 1} of the topic with id {former} were planned, and the topic was "
        "deleted before they were read",
        "Start with a new checkpoint",
        "it goes on without them",
        topic_changed=True,
    )


def _dropped(place: TopicPartition, offset: int, selection: TopicSelection) -> Loss:
    return Loss(
        f"{_name(place)}: the checkpoint is at offset {offset}, and the query does not read this partition any more: "
        f"it reads {selection.in_words}",
        "Subscribe to it again, or start with a new checkpoint",
        "it goes on without it",
    )
