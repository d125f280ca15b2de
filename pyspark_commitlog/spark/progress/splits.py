"""Split ranges of offsets into Spark partitions (Spark: `KafkaOffsetRangeCalculator`). Pure.

Cuts prefer frame bounds: a frame that is cut is decoded twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark_commitlog.model import OffsetRange

#: Returns start and end of the frame that holds an offset; None if unknown.
FrameOf = Callable[[int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Split:
    """Minimum number of Spark partitions, and maximum records of each."""

    min_partitions: int | None = None
    max_records: int | None = None

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """Parts per range: by `max_records`, then largest first.

        `sizes` are numbers of offsets, at least 1.
        """
        parts = [1 if self.max_records is None else -(-size // self.max_records) for size in sizes]
        missing = (self.min_partitions or 0) - sum(parts)
        largest = [(-size / parts[at], at) for at, size in enumerate(sizes) if size > parts[at]]
        heapq.heapify(largest)
        while missing > 0 and largest:
            _, at = heapq.heappop(largest)
            parts[at] += 1
            missing -= 1
            if sizes[at] > parts[at]:
                heapq.heappush(largest, (-sizes[at] / parts[at], at))
        return parts


def split(ranges: Sequence[OffsetRange], how: Split, frames_of: Callable[[OffsetRange], FrameOf]) -> list[OffsetRange]:
    """Return the parts of nonempty ranges, in order.

    `frames_of`: called only for ranges that are cut.
    """
    parts: list[OffsetRange] = []
    for wanted, count in zip(ranges, how.counts([span.end - span.start for span in ranges]), strict=True):
        if count == 1:
            parts.append(wanted)
        else:
            inner = cuts(wanted.start, wanted.end, count, how.max_records, frames_of(wanted))
            bounds = [wanted.start, *inner, wanted.end]
            parts += [replace(wanted, start=a, end=b) for a, b in pairwise(bounds)]
    return parts


def longest_first(parts: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Sort topic-partitions by their longest part, descending.

    Parts of one stay adjacent, by offset: results follow Spark's partitions, so `collect()` keeps a partition's order.
    Spark starts tasks in that order, and a long one last would run alone.
    """
    longest: dict[tuple[str, int], int] = {}
    for part in parts:
        place, size = (part.topic, part.partition), part.end - part.start
        if place not in longest or longest[place] < size:
            longest[place] = size
    return sorted(parts, key=lambda part: (-longest[part.topic, part.partition], part.topic, part.partition))


def cuts(start: int, end: int, parts: int, max_records: int | None, frame_of: FrameOf) -> Iterator[int]:
    """Yield the `parts - 1` offsets at which a range is cut.

    A cut moves to its frame's nearer bound by at most half a part, leaving no part empty or above `max_records`.
    """
    most = end - start if max_records is None else max_records
    for left in range(parts - 1, 0, -1):
        even = (end - start) // (left + 1)
        cut = start + even
        for bound in sorted(frame_of(cut) or (), key=lambda offset: abs(offset - cut)):
            fits = start < bound <= start + most and left <= end - bound <= left * most
            if fits and abs(bound - cut) <= even / 2:
                cut = bound
                break
        yield cut
        start = cut
