"""Readable or promised offsets lost to unclean elections or `recover`. Pure.

They stay a gap for ever. Those of a later entry are new to a position with a lineage (`format.lineage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.topic.state.topic_state import LostOffsets, TopicState


@dataclass(frozen=True, slots=True)
class LostRange:
    """Lost offsets [start, end) of a partition, and their cause."""

    partition: int
    start: int
    end: int
    by: LostOffsets

    @property
    def description(self) -> str:
        """Lost offsets and the reason, in words."""
        lost = f"offsets {self.start} to {self.end - 1}, {self.end - self.start} of them,"
        if not self.by.by_election:
            return f"{lost} were lost, and voided by an operator"
        at = datetime.fromtimestamp(self.by.at_ms // 1000, UTC).isoformat()
        return (
            f"{lost} were lost by the unclean election of root {self.by.root} (leader epoch {self.by.epoch}, journal "
            f"entry {self.by.entry}, at {at}), and are not used again"
        )


def gaps(state: TopicState, partition: int, start: int, end: int) -> list[LostRange]:
    """Lost ranges of a partition that overlap [start, end)."""
    return [
        LostRange(partition, void.start, void.end, lost)
        for lost in state.lost
        for void in lost.ranges
        if void.partition == partition and void.start < end and start < void.end
    ]


def elected_away(
    state: TopicState, partition: int, start: int, end: int, seen: Lineage | None = None
) -> list[LostRange]:
    """Ranges of [start, end) lost by elections after `seen`."""
    after = 0 if seen is None else seen.sequence
    return [gap for gap in gaps(state, partition, start, end) if gap.by.by_election and gap.by.entry > after]


def losses_since(state: TopicState, partition: int, position: int, seen: Lineage | None) -> list[LostRange]:
    """Losses by election below a position since `seen`; none without it.

    The position may or may not have read these records.
    """
    return [] if seen is None else elected_away(state, partition, 0, position, seen)
