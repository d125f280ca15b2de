"""Selection of merges: neighbours of a tier or size class (pure).

Each takes the oldest of one tier, so that small merges never take a long one's sources (O3). A record is written once
per tier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark_commitlog.topic.state.settle_state import Sealed, Shared

#: Neighbours per merge.
FAN_IN = 8
#: Average slice size, over partitions with records, from which a merge writes own objects.
OWN_BYTES = 8 * 2**20
#: Objects of a tier from which the tail is late, as in an unmaintained topic.
LATE = 3 * FAN_IN
_LOWEST_CLASS = -7


@dataclass(frozen=True, slots=True)
class TailMerge:
    """Tail objects to merge into the next tier; `split`: into own objects.

    `late`: too late to wait for `maintain`.
    """

    objects: tuple[Shared, ...]
    split: bool
    late: bool = False

    @property
    def size_bytes(self) -> int:
        """Approximate bytes to read and write."""
        return sum(shared.size_bytes for shared in self.objects)

    @property
    def tier(self) -> int:
        """Tier of the result."""
        return max(shared.tier for shared in self.objects) + 1


@dataclass(frozen=True, slots=True)
class OwnMerge:
    """Own pieces of a partition to merge into one."""

    partition: int
    pieces: tuple[Sealed, ...]


def own_bytes(segment_bytes: int) -> int:
    """Slice size from which a merge writes own objects (pure)."""
    return min(OWN_BYTES, segment_bytes)


def plan_tail(
    tail: Sequence[Shared],
    log_bytes: Callable[[Shared], Mapping[int, int]],
    segment_bytes: int,
    damaged: Collection[object] = (),
) -> Iterator[TailMerge]:
    """Yield the due merges of the tail, one per tier, smallest first (pure).

    Own pieces lie before the tail, so a split takes all objects from the first on: those before the due ones are few.
    Damaged objects separate merges; after one, objects become larger shared ones.

    Args:
        tail: by offset.
        log_bytes: returns a due object's log bytes per partition.
        segment_bytes: upper bound of a slice.
        damaged: names of unreadable objects.
    """
    for _, (start, count) in sorted(_due_tiers(tail, damaged).items()):
        end = start + FAN_IN
        sizes, late = [log_bytes(shared) for shared in tail[start:end]], count >= LATE
        split = makes_own(sizes, segment_bytes)
        if split and any(shared.name in damaged for shared in tail[:start]):
            split, sums = False, _sums(sizes)
            if max(sums.values()) > segment_bytes:
                continue
            late = late and sums.total() < FAN_IN * own_bytes(segment_bytes) * len(sums)  # no commit splits more either
        yield TailMerge(tuple(tail[0 if split else start : end]), split, late)


def _due_tiers(tail: Sequence[Shared], damaged: Collection[object]) -> dict[int, tuple[int, int]]:
    """Start and count of each tier's first run that has enough objects (pure)."""
    due: dict[int, tuple[int, int]] = {}
    at = 0
    for (tier, sound), run in groupby(tail, key=lambda shared: (shared.tier, shared.name not in damaged)):
        count = len(list(run))
        if sound and count >= FAN_IN:
            due.setdefault(tier, (at, count))
        at += count
    return due


def is_tier_due(tail: Sequence[Shared]) -> bool:
    """Whether a tier has enough objects to merge (pure)."""
    return max(Counter(shared.tier for shared in tail).values(), default=0) >= FAN_IN


def makes_own(sources: Sequence[Mapping[int, int]], segment_bytes: int) -> bool:
    """Whether a merge writes own objects, by its sources' log bytes (pure)."""
    sums = _sums(sources)
    if not sums:
        return False
    return sums.total() >= own_bytes(segment_bytes) * len(sums) or max(sums.values()) > segment_bytes


def _sums(sources: Sequence[Mapping[int, int]]) -> Counter[int]:
    sums = Counter[int]()
    for source in sources:
        sums.update(source)
    return sums


def size_class(size_bytes: int, segment_bytes: int) -> int:
    """Return a piece's size class: 0 from `own_bytes`, then logarithmic (pure)."""
    found, bound = _LOWEST_CLASS, own_bytes(segment_bytes) * FAN_IN ** (_LOWEST_CLASS + 1)
    while size_bytes >= bound:
        found, bound = found + 1, bound * FAN_IN
    return found


def plan_own(pieces: Sequence[Sealed], segment_bytes: int) -> tuple[Sealed, ...]:
    """Own pieces to merge; empty if none are due (pure).

    At least `FAN_IN` neighbours of at most one class, which reach the next and fit into a segment. The last is of that
    class, as smaller ones after it may still merge.
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
