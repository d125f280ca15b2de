"""Which offsets an unclean election, or ``recover``, lost of what was read or promised, for its readers. Pure.

Such offsets stay a gap for ever. A position remembers the entry that it was reached under (``format.lineage``): to one
that was reached before the election it has not been reported. What a clean election makes void was seen by nobody: it
is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.log.state import LostOffsets, TopicState


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets [start, end) of a partition that are lost, and what lost them."""

    partition: int
    start: int
    end: int
    by: LostOffsets

    @property
    def description(self) -> str:
        """Return the lost offsets and the reason, in words."""
        lost = f"offsets {self.start} to {self.end - 1}, {self.end - self.start} of them,"
        if not self.by.by_election:
            return f"{lost} were lost, and voided by an operator"
        at = datetime.fromtimestamp(self.by.at_ms // 1000, UTC).isoformat()
        return (
            f"{lost} were lost by the unclean election of root {self.by.root} (leader epoch {self.by.epoch}, journal "
            f"entry {self.by.entry}, at {at}), and are not used again"
        )


def gaps(state: TopicState, partition: int, start: int, end: int) -> list[LostRange]:
    """Return what is lost of a partition and has an offset in [start, end), as elections lost it."""
    return [
        LostRange(partition, void.start, void.end, lost)
        for lost in state.lost
        for void in lost.ranges
        if void.partition == partition and void.start < end and start < void.end
    ]


def elected_away(
    state: TopicState, partition: int, start: int, end: int, seen: Lineage | None = None
) -> list[LostRange]:
    """Return what elections lost of [start, end).

    Args:
        state: the topic's newest.
        partition, start, end: the offsets.
        seen: leave out what was lost by this entry or one before it; None for nothing.
    """
    after = 0 if seen is None else seen.sequence
    return [gap for gap in gaps(state, partition, start, end) if gap.by.by_election and gap.by.entry > after]


def losses_since(state: TopicState, partition: int, position: int, seen: Lineage | None) -> list[LostRange]:
    """Return the losses by election before a position since it was reached.

    It may have read these records. Nobody can tell of a position without a lineage, nor one that has read them from one
    that began after them.

    Args:
        state: the topic's newest, of the history that the position was reached in.
        partition, position: where it is.
        seen: the entry that it was reached under; None where nobody knows.
    """
    return [] if seen is None else elected_away(state, partition, 0, position, seen)
