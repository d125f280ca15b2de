"""A partition's slices in the tail, whose objects may be lost (pure).

An unreadable object has nothing of a partition whose segments around it meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.segment_object import Footer
from pyspark_commitlog.topic.state.settle_state import Shared, sealed_slice

#: Error of an unreadable footer.
Unreadable = FileNotFoundError | CorruptionError


@dataclass(frozen=True, slots=True)
class TailGap:
    """Offsets [start, end) that unreadable objects may have, and the error."""

    start: int
    end: int
    why: Unreadable


@dataclass(frozen=True, slots=True)
class Slices:
    """Known slices in order, as rows (`Sealed.to_json`), and the gaps between them."""

    rows: list[list[Any]]
    gaps: tuple[TailGap, ...] = ()

    def check(self, low: int) -> None:
        """Refuse a gap that ends above `low`, by its error."""
        gap = self.gap_above(low)
        if gap is not None:
            raise gap.why

    def check_offset(self, offset: int) -> None:
        """Refuse an offset in a gap, by its error."""
        for gap in self.gaps:
            if gap.start <= offset < gap.end:
                raise gap.why

    def gap_above(self, low: int) -> TailGap | None:
        """First gap that ends above `low`."""
        return next((gap for gap in self.gaps if gap.end > low), None)


def slices_of(partition: int, tail: Sequence[tuple[Shared, Footer | Unreadable]], start: int, end: int) -> Slices:
    """Return a partition's slices and gaps between own and active segments, from offset `start` to `end`.

    `tail` has each object's footer or error, in order.
    """
    rows, gaps, why = list[list[Any]](), list[TailGap](), None
    for shared, found in tail:
        if not isinstance(found, Footer):
            why = why or found
        elif piece := found.of(partition):
            if why and start < piece[1].base_offset:
                gaps.append(TailGap(start, piece[1].base_offset, why))
            rows.append(sealed_slice(shared.name, *piece).to_json())
            start, why = piece[1].end_offset, None
    if why and start < end:
        gaps.append(TailGap(start, end, why))
    return Slices(rows, tuple(gaps))
