"""Position and state of a consumer's partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_commitlog.consumer.consumer_config import Reset
from pyspark_commitlog.errors import OffsetOutOfRangeError
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topic.state.topic_state import TopicState


@dataclass(slots=True)
class PartitionState:
    """State of an assigned partition (Kafka: `SubscriptionState.TopicPartitionState`).

    `topic_id` and `lineage` are those that `position` refers to.

    Attributes:
        position: next offset to return; None before the first look.
        late: added after the consumer had begun, so all records are new.
        lost: the application has to seek.
        remade: lost because the topic was recreated.
    """

    topic_id: str | None = None
    position: int | None = None
    late: bool = False
    paused: bool = False
    lineage: Lineage | None = None
    lost: bool = False
    remade: bool = False


def first_position(reset: Reset, committed: int | None, low: int, high: int, *, late: bool) -> int | None:
    """Return the committed offset, else that of `reset`; None for `none`.

    A `late` partition starts at its first record unless `reset` is `none`.
    """
    if committed is not None:
        return committed
    if late and reset is not Reset.NONE:
        return low
    return reset_position(reset, low, high)


def reset_position(reset: Reset, low: int, high: int) -> int | None:
    """Offset of `auto_offset_reset`; None for `none`."""
    return {Reset.EARLIEST: low, Reset.LATEST: high, Reset.NONE: None}[reset]


def in_turn(places: Sequence[TopicPartition], last: TopicPartition | None) -> list[TopicPartition]:
    """Sorted partitions, from the one after the last served."""
    ordered = sorted(places)
    if last is None:
        return ordered
    at = next((i for i, place in enumerate(ordered) if place > last), 0)
    return ordered[at:] + ordered[:at]


def no_offset(place: TopicPartition, low: int, high: int, group: str | None) -> OffsetOutOfRangeError:
    """Error for a missing offset (Kafka: `NoOffsetForPartitionException`)."""
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
    """Whether a position is missing or invalid in the present topic."""
    if state.topic_id != topic.topic_id or state.position is None or partition >= topic.partitions:
        return True
    return not topic.log_start[partition] <= state.position <= topic.log_end[partition]
