"""What is to be merged: neighbours of one tier of the tail, or of one class of size of a partition's own pieces (pure).

Merges take what is of one tier only, and always the oldest of it, so that a small merge never takes what a long one
works on (rule O3). Each brings its bytes up by one tier: a record is written once for each, and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark_commitlog.log.settle_state import Sealed, Shared

#: How many neighbours become one.
FAN_IN = 8
#: From so many bytes a slice on, by the average of the partitions with records, a merge writes own objects.
OWN_BYTES = 8 * 2**20
#: The tail is late where so many objects of a tier wait to be merged: nobody maintains the topic.
LATE = 3 * FAN_IN
_LOWEST_CLASS = -7


@dataclass(frozen=True, slots=True)
class TailMerge:
    """Objects of the tail that become one of the next tier; ``split``: one, or more, of each partition's own.

    ``late``: they have waited so long that this can't wait for ``maintain``.
    """

    objects: tuple[Shared, ...]
    split: bool
    late: bool = False

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes are to be read, and written."""
        return sum(shared.size_bytes for shared in self.objects)

    @property
    def tier(self) -> int:
        """Return the tier of the object that is made."""
        return max(shared.tier for shared in self.objects) + 1


@dataclass(frozen=True, slots=True)
class OwnMerge:
    """Own pieces of a partition that become one."""

    partition: int
    pieces: tuple[Sealed, ...]


def own_bytes(segment_bytes: int) -> int:
    """Return from how many bytes a slice on a merge writes own objects (pure)."""
    return min(OWN_BYTES, segment_bytes)


def plan_tail(
    tail: Sequence[Shared],
    log_bytes: Callable[[Shared], Mapping[int, int]],
    segment_bytes: int,
    damaged: Collection[object] = (),
) -> Iterator[TailMerge]:
    """Yield the merges of the tail that are due, one of each tier, the smallest first (pure).

    Own pieces lie before all of the tail. So a split takes all objects from the first on: those before the ones that
    are due are of higher tiers, and few.

    Objects that are damaged stay where they are: what is before such a one and what is after it are merged apart. What
    is after it can't be split, and becomes larger objects of the tail instead, up to a segment a slice.

    Args:
        tail: in the order of offsets.
        log_bytes: returns the bytes of the log of each partition that an object holds; asked of what is due only.
        segment_bytes: of the topic's config: no slice gets larger.
        damaged: names of objects that can't be read.
    """
    due: dict[int, tuple[int, int]] = {}
    at = 0
    for (tier, sound), run in groupby(tail, key=lambda shared: (shared.tier, shared.name not in damaged)):
        count = len(list(run))
        if sound and count >= FAN_IN:
            due.setdefault(tier, (at, count))
        at += count
    for tier in sorted(due):
        start, count = due[tier]
        end = start + FAN_IN
        sizes, late = [log_bytes(shared) for shared in tail[start:end]], count >= LATE
        split = makes_own(sizes, segment_bytes)
        if split and any(shared.name in damaged for shared in tail[:start]):
            split, sums = False, _sums(sizes)
            if max(sums.values()) > segment_bytes:
                continue
            late = late and sums.total() < FAN_IN * own_bytes(segment_bytes) * len(sums)  # no commit splits more either
        yield TailMerge(tuple(tail[0 if split else start : end]), split, late)


def is_tier_due(tail: Sequence[Shared]) -> bool:
    """Return whether enough of a tier are there to be merged (pure)."""
    return max(Counter(shared.tier for shared in tail).values(), default=0) >= FAN_IN


def makes_own(sources: Sequence[Mapping[int, int]], segment_bytes: int) -> bool:
    """Return whether a merge is to write own objects, by the log bytes of each partition in its sources (pure)."""
    sums = _sums(sources)
    if not sums:
        return False
    return sums.total() >= own_bytes(segment_bytes) * len(sums) or max(sums.values()) > segment_bytes


def _sums(sources: Sequence[Mapping[int, int]]) -> Counter[int]:
    """Return the bytes of each partition in all sources."""
    sums = Counter[int]()
    for source in sources:
        sums.update(source)
    return sums


def size_class(size_bytes: int, segment_bytes: int) -> int:
    """Return the class of a piece: 0 from ``own_bytes`` on, one more for each ``FAN_IN`` times as much (pure)."""
    found, bound = _LOWEST_CLASS, own_bytes(segment_bytes) * FAN_IN ** (_LOWEST_CLASS + 1)
    while size_bytes >= bound:
        found, bound = found + 1, bound * FAN_IN
    return found


def plan_own(pieces: Sequence[Sealed], segment_bytes: int) -> tuple[Sealed, ...]:
    """Return the own pieces of a partition that are to become one; none where none are due (pure).

    ``FAN_IN`` neighbours at least, of one class or below, which come to the next class and fit into a segment. The last
    one is of that class: smaller ones after it may still be merged among themselves.
    """
    sizes = [piece.length for piece in pieces]
    classes = [size_class(size, segment_bytes) for size in sizes]
    for each in sorted(set(classes)):
        reach = own_bytes(segment_bytes) * FAN_IN ** (each + 1)
        if reach > segment_bytes:
            break
        found = _window(sizes, classes, each, reach, segment_bytes)
        if found is not None:
            return tuple(pieces[found[0] : found[1]])
    return ()


def _window(
    sizes: Sequence[int], classes: Sequence[int], highest: int, reach: float, most: int
) -> tuple[int, int] | None:
    start = 0
    while start < len(sizes):
        total, end = 0, start
        while end < len(sizes) and classes[end] <= highest and total + sizes[end] <= most:
            total, end = total + sizes[end], end + 1
            if end - start >= FAN_IN and total >= reach and classes[end - 1] == highest:
                return start, end
        if end == len(sizes):
            return None
        start = end + 1 if classes[end] > highest else start + 1
    return None
