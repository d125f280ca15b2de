"""What a topic's size does to a driver's work: `python benchmarks/growth.py [--largest 100000] [--plot docs/images]`.

Time and requests to storage of a commit, a poll, a look-up, a plan and a restart: in histories of 1 to 100,000 commits,
with 1 to 10,000 segments, 1 to 1,000 partitions, 1 to 1,000 groups. A request is one call at the storage's door: a
read, a listing, a put, a sync. Nobody waits for the disk here (fsync does nothing): what grows is our own. The clock of
the histories moves on a second per commit, so that what is no longer needed is collected as in a long life.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from history import SECOND, TOPIC, commit_and_settle, one_each, unsynced

from pyspark_commitlog import CommitLog
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from pyspark_commitlog.spark.source import DefaultSource
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import batch_of

CALLS = 50
#: Commits that are timed together: as many as settle once.
COMMITS = 64


@dataclass(frozen=True)
class Figure:
    """What one call takes."""

    milliseconds: float
    requests: float


@dataclass
class World:
    """A topic on a storage that counts requests."""

    root: Path
    partitions: int
    config: dict[str, object] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        self.storage: Storage = FaultyStorage(LocalStorage(self.root, clock=self.clock), self._count)
        self.log = CommitLog.on(self.storage)
        self.log.create_topic(TOPIC, self.partitions, {"retention.ms": -1, **self.config})
        self.topic = self.log.root.topic(TOPIC)
        self.batch = one_each(self.partitions)

    def _count(self, operation: str, path: str, moment: str) -> None:
        if moment == "before":
            self.calls[operation] += 1

    @property
    def requests(self) -> int:
        """Return how many there were so far."""
        return self.calls.total()

    def commit(self) -> None:
        """Put a record into each partition, a second later."""
        self.clock.advance(SECOND)
        commit_and_settle(self.topic, self.batch)

    def timed(self, act: Callable[[], object], calls: int = CALLS) -> Figure:
        """Return the median time of a call, and its requests."""
        act()
        taken, before = [], self.requests
        for _ in range(calls):
            began = time.perf_counter()
            act()
            taken.append(time.perf_counter() - began)
        return Figure(statistics.median(taken) * 1000, (self.requests - before) / calls)


class CountedSource(DefaultSource):
    """The source on a world's storage."""

    def __init__(self, world: World, **options: str) -> None:
        super().__init__({"path": str(world.root), "subscribe": TOPIC, **options})
        self._world = world

    def open_log(self, path: str, storage: object) -> Root:
        """Return the world's log."""
        return Root.on(self._world.storage)


def reader(world: World, **options: str) -> CommitLogStreamReader:
    """Return a new stream reader."""
    source = CountedSource(world, **options)
    return source.streamReader(source.schema())


def topic_figures(world: World) -> dict[str, Figure]:
    """Measure what a driver does with a topic."""
    figures = {"commit, settling included": _commits(world)}
    running = reader(world, startingOffsets="earliest")
    first, limit = running.initialOffset(), running.getDefaultReadLimit()
    last = running.latestOffset(first, limit)
    figures["poll of an idle topic"] = world.timed(lambda: running.latestOffset(last, limit))
    figures["plan"] = world.timed(lambda: running.partitions(first, last))

    def restart() -> None:
        again = reader(world)
        again.prepareForTriggerAvailableNow()
        again.latestOffset(last, limit)

    figures["restart of a query"] = world.timed(restart)
    _, state = world.topic.newest()
    middle = state.log_end[0] // 2
    (record,) = fetch(world.topic, 0, middle, 1)
    figures["find offset, new handle"] = world.timed(lambda: fetch(world.log.root.topic(TOPIC), 0, middle, 1))
    at = record.timestamp
    figures["find timestamp, new handle"] = world.timed(lambda: _find_time(world.log.root.topic(TOPIC), at))
    return figures


def _find_time(topic: TopicLog, at_ms: int) -> object:
    return find_time(topic, topic.newest()[1].topic_id, 0, at_ms)


def _commits(world: World) -> Figure:
    """Return what a commit takes, the mean of as many as settle once."""
    before, began = world.requests, time.perf_counter()
    for _ in range(COMMITS):
        world.commit()
    return Figure((time.perf_counter() - began) * 1000 / COMMITS, (world.requests - before) / COMMITS)


def group_figures(world: World) -> dict[str, Figure]:
    """Measure what is done with one group among many."""
    offsets = iter(range(1, world.topic.newest()[1].log_end[0] + 1))
    following = reader(world, startingOffsets="earliest", groupId="g0")
    start, limit = following.initialOffset(), following.getDefaultReadLimit()
    groups = world.log.groups
    return {
        "commit to a group": world.timed(lambda: groups.commit("g0", {TOPIC: {0: next(offsets)}})),
        "poll with a group": world.timed(lambda: following.latestOffset(start, limit)),
        "describe one group": world.timed(lambda: groups.describe("g0")),
        "list all groups": world.timed(groups.list, 5),
    }


# --- what grows ------------------------------------------------------------------------------------------

Figures = Iterator[tuple[int, dict[str, Figure]]]


def by_commits(scratch: Path, largest: int) -> Figures:
    """One topic of one partition that grows."""
    world, made = World(scratch / "commits", 1), 0
    for size in decades(largest):
        while made < size:
            world.commit()
            made += 1
        yield size, topic_figures(world)
        made += COMMITS


def by_segments(scratch: Path, largest: int) -> Figures:
    """Topics of one partition, a record per segment; settled by every 64th commit."""
    for size in decades(min(largest, 10_000)):
        world = World(scratch / f"segments-{size}", 1, {"segment.bytes": 1024, "batch.size": 1024})
        world.batch = batch_of([b"v" * 1024] * size, timestamp=[10**15 + i * 10**6 for i in range(size)])
        world.commit()
        world.log.topic(TOPIC).maintain()
        world.batch = world.batch.slice(0, 1)
        yield size, topic_figures(world)


def by_partitions(scratch: Path, largest: int) -> Figures:
    """Topics to which each commit adds a record per partition."""
    for size in decades(min(largest, 1_000)):
        world = World(scratch / f"partitions-{size}", size)
        yield size, topic_figures(world)


def by_groups(scratch: Path, largest: int) -> Figures:
    """A topic that more and more groups read."""
    world, made = World(scratch / "groups", 4), 0
    for _ in range(CALLS * 8):
        world.commit()
    for size in decades(min(largest, 1_000)):
        for number in range(made, size):
            world.log.groups.commit(f"g{number}", {TOPIC: {1: 1}})
        made = size
        yield size, group_figures(world)


AXES = {"commits": by_commits, "segments": by_segments, "partitions": by_partitions, "groups": by_groups}


def decades(largest: int) -> Iterator[int]:
    """Yield 1, 10, 100, … up to `largest`."""
    size = 1
    while size <= largest:
        yield size
        size *= 10


# --- printing and drawing -----------------------------------------------------------------------------


def table(axis: str, found: dict[int, dict[str, Figure]]) -> str:
    """Return the figures of an axis as a table in Markdown: milliseconds, and requests in brackets."""
    names = list(next(iter(found.values())))
    lines = [f"| {axis} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for size, figures in found.items():
        cells = [f"{figures[name].milliseconds:.2f} ({figures[name].requests:.0f})" for name in names]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(axis: str, found: dict[int, dict[str, Figure]], target: Path) -> None:
    """Draw times and requests next to each other, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = axis  # the same picture for the same figures
    from matplotlib import pyplot as plt

    drawn, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name in next(iter(found.values())):
        sizes = list(found)
        left.plot(sizes, [found[size][name].milliseconds for size in sizes], marker="o", label=name)
        right.plot(sizes, [found[size][name].requests for size in sizes], marker="o", label=name)
    for plane, label in ((left, "ms per call"), (right, "requests per call")):
        plane.set(xscale="log", yscale="log", xlabel=axis, ylabel=label)
        plane.grid(alpha=0.3)
    right.legend(fontsize="small")
    drawn.savefig(target, metadata={"Date": None})
    plt.close(drawn)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(AXES))
    parser.add_argument("--plot", type=Path, help="a directory for pictures, growth-*.svg")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"))
    args = parser.parse_args()
    for axis in args.only.split(","):
        with tempfile.TemporaryDirectory(dir=args.work) as scratch, unsynced():
            found = dict(AXES[axis](Path(scratch), args.largest))
        print(f"{table(axis, found)}\n", flush=True)
        if args.plot:
            args.plot.mkdir(parents=True, exist_ok=True)
            plot(axis, found, args.plot / f"growth-{axis}.svg")


if __name__ == "__main__":
    main()
