"""The partitions that a consumer has, where it goes on in them, and whose turn it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_commitlog.consumer.consumer_config import Reset
from pyspark_commitlog.errors import OffsetOutOfRangeError
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.model import TopicPartition


@dataclass(slots=True)
class PartitionState:
    """Where a consumer stands in a partition (Kafka: ``SubscriptionState.TopicPartitionState``).

    ``position`` is the offset of the next record to hand out, of the incarnation ``topic_id`` of the topic; None
    before the first look. ``late``: the partition was added, or its topic made, after the consumer had begun, so that
    all of its records are new to it. ``lineage`` is of the history of the topic in which the position means something;
    None where that is not known. ``lost``: it means nothing in the one that is there, and the application has to seek;
    ``remade``: because the topic there is another one.
    """

    topic_id: str | None = None
    position: int | None = None
    late: bool = False
    paused: bool = False
    lineage: Lineage | None = None
    lost: bool = False
    remade: bool = False


def first_position(reset: Reset, committed: int | None, low: int, high: int, *, late: bool) -> int | None:
    """Return where to begin: at what is committed, else where ``reset`` leads; None for ``none``.

    Of a partition that is ``late`` nothing is skipped, whatever ``reset`` says.
    """
    if committed is not None:
        return committed
    if late and reset is not Reset.NONE:
        return low
    return reset_position(reset, low, high)


def reset_position(reset: Reset, low: int, high: int) -> int | None:
    """Return where ``auto_offset_reset`` leads; None for ``none``."""
    return {Reset.EARLIEST: low, Reset.LATEST: high, Reset.NONE: None}[reset]


def in_turn(places: Sequence[TopicPartition], last: TopicPartition | None) -> list[TopicPartition]:
    """Return partitions in the order to serve them: sorted, beginning after the one that was served last."""
    ordered = sorted(places)
    if last is None:
        return ordered
    at = next((i for i, place in enumerate(ordered) if place > last), 0)
    return ordered[at:] + ordered[:at]


def no_offset(place: TopicPartition, low: int, high: int, group: str | None) -> OffsetOutOfRangeError:
    """Return the error for a partition without any offset to begin at (Kafka: ``NoOffsetForPartitionException``)."""
    why = "the consumer has no group" if group is None else f"group {group!r} has committed nothing"
    return OffsetOutOfRangeError(
        f"topic {place.topic!r} partition {place.partition}: {why}, and auto_offset_reset is 'none'. Seek to an offset "
        f"from {low} (log start offset) to {high} (high watermark)"
    )


def out_of_range(place: TopicPartition, position: int, low: int, high: int) -> str:
    """Describe a position that is out of range."""
    what = (
        f"offsets {position} to {low - 1} were deleted (retention or delete_records)"
        if position < low
        else f"position {position} is beyond the log"
    )
    return (
        f"topic {place.topic!r} partition {place.partition}: {what}; the log start offset is {low}, "
        f"the high watermark {high}"
    )


def is_moved(state: PartitionState, partition: int, topic: TopicState) -> bool:
    """Return whether a position has to be found, or means nothing in what the topic is now."""
    if state.topic_id != topic.topic_id or state.position is None or partition >= topic.partitions:
        return True
    return not topic.log_start[partition] <= state.position <= topic.log_end[partition]
