"""Cut ranges of offsets into several Spark partitions (minPartitions, maxRecordsPerPartition). Pure.

Spark: ``KafkaOffsetRangeCalculator``. A frame that is cut is decoded by two tasks, so cuts move to frames' bounds
where that leaves the parts about as large as asked.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark_commitlog.model import OffsetRange

#: Returns where the frame that holds an offset starts and ends; None where nobody knows.
FrameOf = Callable[[int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Split:
    """How a read is cut: at least so many Spark partitions, none with more records. None: as many as there are."""

    min_partitions: int | None = None
    max_records: int | None = None

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """Return into how many parts each range is cut: first by the most a part may hold, then the largest parts.

        Args:
            sizes: offsets in each range, at least 1.
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
    """Return the parts of all ranges, in order.

    Args:
        ranges: none of them empty.
        how: they are cut.
        frames_of: returns where the frames of a range lie; asked only where a range is cut.
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
    """Return the topic-partition with the longest part first; parts of one stay adjacent and in order.

    Spark begins tasks in the order of their partitions: a long one that is begun last runs on alone. Results follow
    that order, too, so records of a partition leave ``collect()`` or a streamed copy by offset only if its parts do.

    Args:
        parts: those of one topic-partition by offset.
    """
    longest: dict[tuple[str, int], int] = {}
    for part in parts:
        place, size = (part.topic, part.partition), part.end - part.start
        if place not in longest or longest[place] < size:
            longest[place] = size
    return sorted(parts, key=lambda part: (-longest[part.topic, part.partition], part.topic, part.partition))


def cuts(start: int, end: int, parts: int, max_records: int | None, frame_of: FrameOf) -> Iterator[int]:
    """Yield the ``parts - 1`` offsets at which a range is cut.

    A cut goes to the nearer bound of its frame if that moves it by at most half a part and leaves no part empty or
    above ``max_records``; else it stays inside the frame.
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
