"""What limits a topic, and where: `python benchmarks/scale.py` prints parts of docs/explanation/figures.md.

First the parts, measured here by running the real code: the size of entries, requests, processor time. Then arithmetic
on them for four kinds of storage, and for 10,000 partitions with 1 PB. Latencies and prices of services are assumptions
(`STORES`), not measurements.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data import events
from growth import World
from history import TOPIC, unsynced

from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.progress import ranges
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.progress.trigger_limits import prorate
from pyspark_commitlog.topic.collect.collect import SETTLE_TABLES
from pyspark_commitlog.topic.maintain import settle as settling
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.state.settle_state import Sealed, SealedSegments
from pyspark_commitlog.topic.state.topic_state import TopicState
from tests.support.records import append, stage

GIB, PB, MONTH_S = 2**30, 10**15, 30 * 86_400
RECORDS = 400_000
REPEATS = 5


@dataclass(frozen=True)
class Store:
    """A kind of storage: milliseconds per request, and what a thousand and a GB-month cost in dollars."""

    name: str
    get_ms: float
    put_ms: float
    put_price: float = 0.0
    get_price: float = 0.0
    month_price: float = 0.0


#: Assumptions, November 2026. NVMe: a drive that keeps its cache through power loss. NFS: one datacentre, a filer with
#: such a cache. S3: first bytes in 100 to 200 ms for Standard, "single-digit milliseconds" for Express One Zone (AWS,
#: "Best practices design patterns: optimizing Amazon S3 performance" and the class's own page; the middle is taken);
#: prices of us-east-1 (AWS, "Amazon S3 FAQs" and "Amazon S3 pricing").
STORES = (
    Store("local NVMe", 0.02, 0.1),
    Store("NFS", 0.5, 2.0),
    Store("S3 Standard", 100, 150, 0.005, 0.0004, 0.023),
    Store("S3 Express One Zone", 5, 8, 0.00113, 0.00003, 0.11),
)


def main() -> None:
    """Measure the parts, print the tables."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, unsynced():
        rates = processor(Path(scratch))
        sizes = [entry(Path(scratch), partitions) for partitions in (1, 100, 1_000, 10_000)]
    _print("Processor time", ["work", "MB/s on one core"], [[name, f"{rate:,.0f}"] for name, rate in rates.items()])
    _print("A commit of one record per partition", list(sizes[0]), [list(size.values()) for size in sizes])
    _print(
        "Pure parts at 10,000 partitions", ["part", "ms"], [[name, f"{ms:.1f}"] for name, ms in pure(10_000).items()]
    )
    calls, own_ms = small_commit()
    counts = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    head = ["storage", "ms per commit", "commits/s", "$ per million"]
    _print(f"A small commit ({counts}; {own_ms:.2f} ms of our own)", head, commits(calls, own_ms))
    _print("1 PB in 10,000 partitions, segments of 1 GiB", ["what", "how much"], petabyte(10_000))


# --- parts that are measured -------------------------------------------------------------------------------


def processor(scratch: Path) -> dict[str, float]:
    """Return MB of records (key and value) per second and core, without a disk to wait for."""
    world = World(scratch / "processor", 4, {"settle.bytes": 1 << 50, "inline.max.bytes": 0})
    table = events(RECORDS, 0).combine_chunks()
    batches = table.to_batches(max_chunksize=10_000)
    megabytes = (table["key"].nbytes + table["value"].nbytes) / 1e6
    topic_id = world.topic.newest()[1].topic_id

    def decode() -> None:
        for partition, end in enumerate(world.topic.newest()[1].log_end):
            for _ in PartitionReader(world.topic, topic_id, partition).read(0, end):
                pass

    staging = _seconds(lambda: stage(world.topic, *batches))
    append(world.topic, *batches)
    settle = _seconds(lambda: settling.settle(world.topic, topic_id), 1)
    return {
        "staging: partition, gather, compress, CRC": megabytes / staging,
        "settling: check, stamp, copy, CRC": megabytes / settle,
        "decoding: CRC, decompress": megabytes / _seconds(decode),
    }


def entry(scratch: Path, partitions: int) -> dict[str, str]:
    """Return what a commit of one record per partition puts, and what reading its entry takes."""
    world = World(scratch / f"entry-{partitions}", partitions, {"settle.entries": 1 << 30, "settle.ms": 1 << 50})
    append(world.topic, world.batch)
    stored, state = world.topic.newest()
    tables = _side_bytes(world, state.topic_id, settle=False)
    settling.settle(world.topic, state.topic_id)
    published, _ = world.topic.settled(state.topic_id)
    settle_bytes = len(json.dumps(published.entry.body)) + _side_bytes(world, state.topic_id, settle=True)
    reading = _seconds(lambda: TopicState.from_entry(state.topic_id, json.loads(json.dumps(stored.entry.body))))
    return {
        "partitions": f"{partitions:,}",
        "entry, KB": f"{stored.entry.line_bytes / 1e3:,.1f}",
        "its tables, KB": f"{tables / 1e3:,.1f}",
        "settle entry with its table, KB": f"{settle_bytes / 1e3:,.1f}",
        "parse an entry, ms": f"{reading * 1e3:.2f}",
    }


def _side_bytes(world: World, topic_id: str, *, settle: bool) -> int:
    """Return the bytes of the newest entry's tables that stand beside it."""
    directory = world.root / world.topic.paths(topic_id).side
    found = [file for file in sorted(directory.glob("*")) if (file.suffix in SETTLE_TABLES) == settle]
    newest = found[-1].name.partition("-")[0] if found else ""
    return sum(file.stat().st_size for file in found if file.name.startswith(newest))


def pure(partitions: int) -> dict[str, float]:
    """Return how long a trigger's planning takes for so many partitions, in milliseconds."""
    places = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    start = SourceOffset(dict.fromkeys(places, 10**9), {TOPIC: "id"})
    end = SourceOffset(dict.fromkeys(places, 10**9 + 10**6), {TOPIC: "id"})
    state = TopicState("id", False, {}, (0,) * partitions, (10**9 + 10**6,) * partitions, 1)
    text = json.dumps(end.to_json())
    sealed = [Sealed(at * 10**6, (at + 1) * 10**6, 0, GIB, 0, 2**21, 2**20, at).to_json() for at in range(100_000)]
    segments = SealedSegments.of(sealed)
    parts: dict[str, Callable[[], object]] = {
        "plan a range for every partition": lambda: ranges(start, end, {TOPIC: state}, _never),
        "share out maxOffsetsPerTrigger": lambda: prorate(start.offsets, end.offsets, 10**7),
        f"write an offset for the checkpoint ({len(text) / 1e3:,.0f} KB)": lambda: json.dumps(end.to_json()),
        "read it": lambda: SourceOffset.from_json(json.loads(text)),
        "encode and decode a topic's state": lambda: TopicState.from_entry(
            "id", json.loads(json.dumps({"state": state.to_json()}))
        ),
        "find a segment among 100,000 of a partition": lambda: segments.holding(55_555_555_555),
    }
    return {name: _seconds(act) * 1e3 for name, act in parts.items()}


def small_commit() -> tuple[Counter[str], float]:
    """Return requests and milliseconds of a commit of one small task by a writer that knows the topic.

    Without settling, and without a disk to wait for.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, unsynced():
        world = World(Path(scratch) / "small", 4)
        append(world.topic, world.batch)
        before = world.calls.copy()
        append(world.topic, world.batch)
        calls = world.calls - before
        return calls, world.timed(lambda: append(world.topic, world.batch)).milliseconds


# --- arithmetic --------------------------------------------------------------------------------------------


def commits(calls: Counter[str], own_ms: float) -> list[list[str]]:
    """Return what one writer after the other gets committed: entries of a topic are put one by one."""
    # A listing takes as long as a read, and costs as much as a put.
    puts, lists = calls["put_if_absent"], calls["names"]
    reads = calls.total() - puts - lists
    rows = []
    for store in STORES:
        ms = own_ms + (reads + lists) * store.get_ms + puts * store.put_ms
        price = ((puts + lists) * store.put_price + reads * store.get_price) * 1000
        rows.append([store.name, f"{ms:,.1f}", f"{1000 / ms:,.1f}", f"{price:,.2f}" if price else "–"])
    return rows


def petabyte(partitions: int) -> list[list[str]]:
    """Return what 1 PB comes to: files, lists of segments, indexes, dollars."""
    segments = PB // GIB
    each = segments // partitions
    row = json.dumps(Sealed(10**12, 10**12 + 10**6, 0, GIB, 2**31, 2**21, 2**20, 1_700_000_000_000, 1).to_json())
    manifest = len(row) * each
    rows = [
        ["segments", f"{segments:,}, {each} per partition"],
        ["a partition's list of segments", f"{manifest / 1e3:,.1f} KB, rewritten when a segment is sealed"],
        ["all lists", f"{manifest * partitions / 1e6:,.0f} MB; a reader of a partition reads its own"],
        ["offset indexes", f"{PB // 4096 * 8 / 1e12:,.1f} TB at most, 8 bytes per 4 KiB"],
    ]
    prices = (f"{store.name} {PB / 1e9 * store.month_price:,.0f}" for store in STORES if store.month_price)
    return [*rows, ["storage, $ per month", "; ".join(prices)]]


def _never(loss: object) -> None:
    raise AssertionError(loss)


def _seconds(act: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median time."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _print(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"**{title}**\n\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


if __name__ == "__main__":
    main()
