"""What a soak's samples say: a table, and whether anything grows. Pure.

Medians and peaks of the first and of the last fifth of the window are compared: one sample that met a thread, a
file or a buffer of a moment moves neither, and what leaks moves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

#: Judged is what comes after the first of so many parts of a run, which is start-up: imports, caches that fill, retention's first.
WARM_UP = 3
#: Bounds: the resident memory of a process, as a share of what it was, and its threads and file descriptors.
RSS_SHARE = 0.02
COUNT = 2
#: What Spark's pools of threads that come and go (`sampling.POOLS`) have room for: 100 each.
POOLED = 200
_FIFTHS = 5


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at a process (or at several that belong together): memory in bytes, threads, file descriptors.

    `pooled` are threads of pools of its own that come and go; `threads` are all others.
    """

    rss: int
    threads: int
    fds: int
    pooled: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """One look at a topic: entries of both of its journals, and bytes on disk."""

    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at everything, `at` seconds from the start of the run."""

    at: float
    processes: Mapping[str, Usage]
    topics: Mapping[str, Stored]


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle of settling and retention of a topic writes at most: entries, and bytes."""

    entries: float
    size: float


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the table: its median (of topics: its peak) at both ends of the window, and the bound of the second."""

    name: str
    first: float
    last: float
    bound: float

    @property
    def held(self) -> bool:
        """Return whether it stayed within its bound."""
        return self.last <= self.bound


def window(samples: Sequence[Sample], seconds: float) -> list[Sample]:
    """Return the samples that count: those of the last two thirds of a run of so many seconds."""
    return [sample for sample in samples if sample.at >= seconds / WARM_UP]


def judged(samples: Sequence[Sample], cycles: Mapping[str, Cycle]) -> tuple[list[Row], list[Row]]:
    """Return the rows of processes and of topics, from the samples of a window."""
    processes, topics = list[Row](), list[Row]()
    for name in sorted({name for sample in samples for name in sample.processes}):
        found = [sample.processes[name] for sample in samples if name in sample.processes]
        processes.append(_row(f"{name}: RSS", [each.rss for each in found], median, lambda v: v * (1 + RSS_SHARE)))
        processes.append(_row(f"{name}: threads", [each.threads for each in found], median, lambda v: v + COUNT))
        if any(each.pooled for each in found):
            processes.append(_row(f"{name}: threads of pools", [each.pooled for each in found], max, lambda _: POOLED))
        processes.append(_row(f"{name}: fds", [each.fds for each in found], median, lambda v: v + COUNT))
    for name in sorted({name for sample in samples for name in sample.topics}):
        seen, cycle = [sample.topics[name] for sample in samples if name in sample.topics], cycles[name]
        topics.append(_row(f"{name}: entries", [s.entries for s in seen], max, lambda v, c=cycle: v + c.entries))
        topics.append(_row(f"{name}: disk", [s.size for s in seen], max, lambda v, c=cycle: v + c.size))
    return processes, topics


def _row(
    name: str, values: Sequence[float], of: Callable[[Sequence[float]], float], bound: Callable[[float], float]
) -> Row:
    fifth = max(1, len(values) // _FIFTHS)
    first, last = of(values[:fifth]), of(values[-fifth:])
    return Row(name, first, last, bound(first))


def table(rows: Sequence[Row]) -> list[str]:
    """Return rows as lines of Markdown; bytes as MiB."""
    lines = ["| figure | first fifth | last fifth | at most | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        cells = [_cell(row.name, value) for value in (row.first, row.last, row.bound)]
        lines.append(f"| {row.name} | {' | '.join(cells)} | {'held' if row.held else '**over**'} |")
    return lines


def _cell(name: str, value: float) -> str:
    return f"{value / 2**20:.1f} MiB" if name.endswith((": RSS", ": disk")) else f"{value:.0f}"


# --- correctness ------------------------------------------------------------------------------------------


def add(seen: list[list[int]], number: int) -> bool:
    """Add a number to ascending ranges [first, last]; return False if it is there already. Ranges are few."""
    at = len(seen)
    while at and seen[at - 1][0] > number:
        at -= 1
    if at and number <= seen[at - 1][1]:
        return False
    seen.insert(at, [number, number])
    if at + 1 < len(seen) and seen[at + 1][0] == number + 1:
        seen[at][1] = seen.pop(at + 1)[1]
    if at and seen[at - 1][1] + 1 == seen[at][0]:
        seen[at - 1][1] = seen.pop(at)[1]
    return True


def faults(who: str, seen: Mapping[int, Sequence[Sequence[int]]], targets: Mapping[int, int]) -> list[str]:
    """Return what is lost, or doubled, of numbers 0 to the target of each partition, each of which is to be seen once.

    `seen` may hold the ranges of several readers one after the other.
    """
    found = []
    for partition, target in sorted(targets.items()):
        following = 0
        for first, last in sorted(seen.get(partition, ())):
            if first > following:
                found.append(f"{who}: partition {partition}: {following} to {first - 1} are lost")
            if first < following:
                found.append(f"{who}: partition {partition}: {first} to {min(last, following - 1)} came twice")
            following = max(following, last + 1)
        if following < target:
            found.append(f"{who}: partition {partition}: {following} to {target - 1} are lost")
        if following > target:
            found.append(f"{who}: partition {partition}: {target} to {following - 1} were never sent")
    return found
