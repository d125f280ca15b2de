"""Many consumers tail one topic while one producer sends to it: is anything lost, and how late does it come?

    python benchmarks/consumers.py [--consumers 1000] [--seconds 60] [--records-as arrow|objects] [--groups 0]
        [--members] [--processes 2] [--threads 8] [--rate 10000] [--commits 10] [--partitions 4] [--root DIR]

Every consumer counts what it gets: how many records, the sum of their numbers, and the sum of the numbers' squares. The
consumers of a process are dealt out to `--threads` threads: each polls its own in turn, and waits for the first of
them when none has got anything. Without groups each gets everything; with `--groups 10 --partitions 100` the members
of a group share the partitions out, each a static share, and each group gets everything. With `--members` they
subscribe: they join their groups, are assigned their shares, tell that they live and commit every five seconds, all by
the defaults; the producer starts when all are in. A record's lag is the time from before it is sent until its consumer
has it in hand, by the clock of this machine. Exits with 1 if anything was lost or came twice.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark_commitlog import CommitLog, Consumer, Producer, Record, TopicPartition
from pyspark_commitlog.producer.records.batches import BatchMetadata

TOPIC = "load"
VALUE_BYTES = 200
_MASK = 2**64 - 1
Words = npt.NDArray[np.uint64]


@dataclass
class Load:
    """What is run."""

    root: str
    consumers: int = 1000
    seconds: float = 60.0
    rate: int = 10_000
    commits: int = 10
    partitions: int = 4
    processes: int = 2
    threads: int = 8
    groups: int = 0
    objects: bool = False
    members: bool = False


@dataclass
class Seen:
    """What somebody wrote, or got: how many, the sum of their numbers, and of the squares, modulo 2**64."""

    count: int = 0
    total: int = 0
    squares: int = 0
    lags: Counter[int] = field(default_factory=Counter)  # ms -> records

    def add(self, numbers: Words, sent_us: Words) -> None:
        """Count records."""
        now = time.time_ns() // 1000
        self.count += len(numbers)
        self.total = (self.total + int(numbers.sum())) & _MASK
        self.squares = (self.squares + int(np.dot(numbers, numbers))) & _MASK
        if sent_us[0] == sent_us[-1]:  # of one commit
            self.lags[(now - int(sent_us[0])) // 1000] += len(numbers)
        else:
            late, counts = np.unique((now - sent_us.astype(np.int64)) // 1000, return_counts=True)
            self.lags.update(dict(zip(late.tolist(), counts.tolist(), strict=True)))

    def __iadd__(self, other: Seen) -> Seen:
        self.count += other.count
        self.total = (self.total + other.total) & _MASK
        self.squares = (self.squares + other.squares) & _MASK
        self.lags.update(other.lags)
        return self

    @property
    def sums(self) -> tuple[int, int, int]:
        """Return what must be equal."""
        return self.count, self.total, self.squares

    def late(self, share: float) -> int:
        """Return how many ms late a share of the records was at most."""
        lags = sorted(self.lags.items())
        return lags[int(np.searchsorted(np.cumsum([count for _, count in lags]), share * self.lags.total()))][0]


def values_of(numbers: Words, sent_us: int) -> pa.Array:
    """Return a value per number: number, time, and something to fill it up."""
    words = np.zeros((len(numbers), VALUE_BYTES // 8), np.uint64)
    words[:, 0], words[:, 1], words[:, 2] = numbers, sent_us, numbers * np.uint64(0x9E3779B97F4A7C15)
    fixed = [None, pa.py_buffer(words.tobytes())]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(VALUE_BYTES), len(numbers), fixed).cast(pa.binary())


def words_of(values: pa.Array) -> Words:
    """Return the words of values, without a step of Python per row."""
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(values.buffers()[2], np.uint8)[ends[0] : ends[-1]].view(np.uint64).reshape(len(values), -1)


def write(load: Load, start: Barrier, reports: Queue[object]) -> None:
    """Send at the rate asked for, through one producer; tell what was written."""
    seen, period = Seen(), 1 / load.commits
    with Producer(load.root, linger_ms=0) as producer:
        start.wait()
        began, sent = time.monotonic(), list[Future[BatchMetadata]]()
        while (gone := time.monotonic() - began) < load.seconds:
            due = int(load.rate * (gone + period)) - seen.count
            if due > 0:
                numbers = np.arange(seen.count, seen.count + due, dtype=np.uint64)
                now = time.time_ns() // 1000
                spread = pa.array(np.arange(due) * load.partitions // due, pa.int32())
                batch = pa.RecordBatch.from_pydict({"value": values_of(numbers, now), "partition": spread})
                sent.append(producer.send_batch(TOPIC, batch))
                seen.add(numbers, np.full(due, now, np.uint64))
            time.sleep(max(0.0, period - (time.monotonic() - began - gone)))
        for future in sent:
            future.result()
    reports.put(seen)


def places(load: Load, number: int) -> list[TopicPartition]:
    """Return the partitions of a consumer: all, or its share within its group."""
    if not load.groups:
        return [TopicPartition(TOPIC, partition) for partition in range(load.partitions)]
    members = load.consumers // load.groups
    return [TopicPartition(TOPIC, partition) for partition in range(number % members, load.partitions, members)]


def open_one(load: Load, number: int) -> Consumer:
    """Return a consumer at the start of its partitions, or on its way into its group."""
    group = f"group-{number // (load.consumers // load.groups)}" if load.groups else None
    consumer = Consumer(load.root, group_id=group, auto_offset_reset="earliest", enable_auto_commit=load.members)
    if load.members:
        consumer.subscribe([TOPIC])
    else:
        consumer.assign(places(load, number))
    consumer.poll()
    return consumer


def read(
    load: Load, seen: dict[int, Seen], opened: list[Consumer], ready: threading.Barrier, done: threading.Event
) -> None:
    """Count all that some consumers get, until the writer is done and there is no more."""
    consumers = [(open_one(load, number), mine) for number, mine in seen.items()]
    opened += [consumer for consumer, _ in consumers]
    ready.wait()
    while True:
        ended = done.is_set()
        came = sum(take(load, consumer, mine, 0.0) for consumer, mine in consumers)
        if came == 0 and ended:
            break
        if came == 0:
            take(load, *consumers[0], 0.5)


def take(load: Load, consumer: Consumer, seen: Seen, timeout: float) -> int:
    """Poll once; return how many records came."""
    if load.objects:
        records = consumer.poll(timeout, max_records=100_000)
        if records:
            count_objects(records, seen)
        return len(records)
    table = consumer.poll_arrow(timeout, columns=["value"])
    for chunk in table["value"].chunks:
        words = words_of(chunk)
        seen.add(words[:, 0], words[:, 1])
    return int(table.num_rows)


def count_objects(records: list[Record], seen: Seen) -> None:
    """Count records that came as objects."""
    words = np.frombuffer(b"".join(record.value or b"" for record in records), np.uint64).reshape(len(records), -1)
    seen.add(words[:, 0], words[:, 1])


def read_many(load: Load, numbers: range, start: Barrier, done: Event, reports: Queue[object], end: Event) -> None:
    """Run the consumers of one process; tell what each of them got, and close them when all have."""
    seen = {number: Seen() for number in numbers}
    shares = [{number: seen[number] for number in numbers[first :: load.threads]} for first in range(load.threads)]
    shares = [share for share in shares if share]
    ready, over, opened = threading.Barrier(len(shares) + 1), threading.Event(), list[Consumer]()
    threads = [threading.Thread(target=read, args=(load, share, opened, ready, over)) for share in shares]
    for thread in threads:
        thread.start()
    ready.wait()
    start.wait()
    used = time.process_time()
    done.wait()
    over.set()
    for thread in threads:
        thread.join()
    lags = Seen()
    for mine in seen.values():
        lags += mine
    reports.put(([(number, mine.sums) for number, mine in seen.items()], lags, time.process_time() - used))
    end.wait()
    for consumer in opened:
        consumer.close()


def generations(load: Load) -> list[int]:
    """Wait until every group is whole and stable; return their generations."""
    log, found = CommitLog(load.root), list[int]()
    for number in range(load.groups):
        while True:
            time.sleep(0.1)
            name = f"group-{number}"
            group = log.groups.describe(name) if name in log.groups.list() else None
            if group is not None and (group.state, len(group.members)) == ("Stable", load.consumers // load.groups):
                found.append(group.generation_id)
                break
    return found


def run(load: Load) -> dict[str, object]:
    """Run it; return what came of it."""
    CommitLog(load.root).create_topic(TOPIC, load.partitions, {"retention.ms": -1})
    context = multiprocessing.get_context("spawn")
    start, done, end = context.Barrier(load.processes + 1), context.Event(), context.Event()
    reports, written = context.Queue(), context.Queue()
    shares = np.linspace(0, load.consumers, load.processes + 1).astype(int)
    readers = [
        context.Process(target=read_many, args=(load, range(first, last), start, done, reports, end))
        for first, last in pairwise(shares)
    ]
    writer = context.Process(target=write, args=(load, start, written))
    began = time.monotonic()
    for process in readers:
        process.start()
    before, joined = generations(load) if load.members else [], time.monotonic() - began
    writer.start()
    sent: Seen = written.get()
    done.set()
    results = [reports.get() for _ in readers]
    after = generations(load) if load.members else []
    end.set()
    for process in (*readers, writer):
        process.join()
    lags = Seen()
    for _, lag, _ in results:
        lags += lag
    return {
        "written": sent.count,
        "handed out": lags.count,
        "wrong": wrong(load, sent, {number: sums for rows, _, _ in results for number, sums in rows}),
        "p50 ms": lags.late(0.5),
        "p99 ms": lags.late(0.99),
        "cores": round(sum(cpu for _, _, cpu in results) / load.seconds, 2),
        **({"joined s": round(joined, 1), "rebalances": sum(after) - sum(before)} if load.members else {}),
    }


def wrong(load: Load, sent: Seen, got: dict[int, tuple[int, int, int]]) -> list[str]:
    """Return which consumers, or groups, did not get exactly what was written."""
    if not load.groups:
        return [f"consumer {number}" for number, sums in sorted(got.items()) if sums != sent.sums]
    members, found = load.consumers // load.groups, []
    for group in range(load.groups):
        mine = [got[number] for number in range(group * members, (group + 1) * members)]
        if tuple(sum(column) & _MASK for column in zip(*mine, strict=True)) != sent.sums:
            found.append(f"group {group}")
    return found


def main() -> None:
    """Run what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=10_000, help="records per second")
    parser.add_argument("--commits", type=int, default=10, help="batches sent per second")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8, help="of each process")
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--members", action="store_true", help="of the groups, instead of static shares")
    parser.add_argument("--records-as", choices=["arrow", "objects"], default="arrow")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "consumers")
    args = parser.parse_args()
    shutil.rmtree(args.root, ignore_errors=True)
    load = Load(
        str(args.root), args.consumers, args.seconds, args.rate, args.commits, args.partitions, args.processes,
        args.threads, args.groups, args.records_as == "objects", args.members,
    )  # fmt: skip
    found = run(load)
    print(json.dumps(found))
    shutil.rmtree(args.root)
    sys.exit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
