"""How fast the Python client reads, and how soon it sees a commit. No Spark.

    python benchmarks/client.py [--records 4000000] [--runs 5] [--seconds 10] [--work DIR]

Reading: the records of `data.py` (values of about 200 bytes) in 4 partitions, lz4, settled, page cache warm; medians.
The floor is a bare scan of the same batches as one Arrow stream in a mapped file, lz4 too: no offsets, no CRC, no
journal. Seeing: a process commits 1,000 records per second, as many commits as it gets done; the time from the return
of the commit until `poll` returns, and the processor time of a consumer that waits while nothing comes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from data import events

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark_commitlog import CommitLog, Consumer
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from tests.support.records import append, batch_of

TOPIC = "events"
RATE = 1000
#: Records that are made at a time.
CHUNK = 500_000


def prepare(root: str, stream: str, records: int) -> None:
    """Write the topic, and its batches as one Arrow stream."""
    log = CommitLog(root)
    log.create_topic(TOPIC, 4, {"retention.ms": -1})
    for number, first in enumerate(range(0, records, CHUNK)):
        for batch in events(min(CHUNK, records - first), number).combine_chunks().to_batches(max_chunksize=100_000):
            append(log.root.topic(TOPIC), batch)
    log.topic(TOPIC).maintain()
    with Consumer(root, TOPIC, auto_offset_reset="earliest", fetch_max_bytes=2**40) as consumer:
        table = consumer.poll_arrow(columns=["key", "value", "timestamp"])
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("lz4", compression_level=-3))
    with pa.OSFile(stream, "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)


def scan(stream: str) -> int:
    """Read the Arrow stream."""
    with pa.memory_map(stream) as file:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        return sum(batch.num_rows for batch in pa.ipc.open_stream(file, options=options))


def read_arrow(root: str, columns: list[str] | None) -> int:
    """Read all as tables."""
    with Consumer(root, TOPIC, auto_offset_reset="earliest") as consumer:
        count = 0
        while rows := consumer.poll_arrow(columns=columns).num_rows:
            count += rows
        return count


def read_records(root: str) -> int:
    """Read all as records."""
    with Consumer(root, TOPIC, auto_offset_reset="earliest") as consumer:
        count = 0
        while records := consumer.poll():
            count += len(records)
        return count


def reading(work: Path, records: int, runs: int) -> None:
    """Print records per second."""
    root, stream = str(work / "root"), str(work / "stream.arrow")
    prepare(root, stream, records)
    actions: dict[str, Callable[[], int]] = {
        "floor: bare scan of an Arrow stream": lambda: scan(stream),
        "poll_arrow, all columns": lambda: read_arrow(root, None),
        "poll_arrow, value only": lambda: read_arrow(root, ["value"]),
        "poll, as records": lambda: read_records(root),
    }
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs + 1):  # the first is for the page cache
        for name, act in actions.items():
            began = time.perf_counter()
            assert act() == records
            taken[name].append(time.perf_counter() - began)
    for name, seconds in taken.items():
        print(f"{name:<40}{records / statistics.median(seconds[1:]) / 1e6:>8.2f} M records/s", flush=True)


def write(root: str, seconds: float, pipe: Connection) -> None:
    """Commit records at the rate; tell when each commit returned, by the offset after it."""
    topic = CommitLog(root).root.topic(TOPIC)
    topic_id = topic.newest()[1].topic_id
    sent, returned = 0, []
    began = time.monotonic()
    while (gone := time.monotonic() - began) < seconds:
        due = int(gone * RATE) - sent
        if due:
            append(topic, batch_of([b"x" * 200] * due))
            sent += due
            returned.append((sent, time.monotonic()))
            settle_after_commit(topic, topic_id)
        time.sleep(0.0005)
    pipe.send(returned)


def seeing(work: Path, seconds: float) -> None:
    """Print how late a poll returns, and what waiting costs."""
    root = str(work / "tail")
    CommitLog(root).create_topic(TOPIC)
    here, there = multiprocessing.Pipe()
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(root, seconds, there))
    seen: list[tuple[int, float]] = []
    with Consumer(root, TOPIC, auto_offset_reset="earliest") as consumer:
        writer.start()
        while records := consumer.poll(5.0, max_records=10_000):
            seen.append((records[-1].offset + 1, time.monotonic()))
        writer.join()
        used, began = time.process_time(), time.monotonic()
        consumer.poll(seconds)
        idle = (time.process_time() - used) / (time.monotonic() - began)
    ends, at = (np.array(column) for column in zip(*seen, strict=True))
    late = [at[np.searchsorted(ends, end)] - returned for end, returned in here.recv()]
    p50, p99 = np.percentile(late, [50, 99]) * 1000
    print(f"{len(late) / seconds:.0f} commits/s: a poll returns p50 {p50:.1f} ms, p99 {p99:.1f} ms after the commit")
    print(f"waiting: {idle:.2%} of a core")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--work", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "client")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    reading(args.work, args.records, args.runs)
    seeing(args.work, args.seconds)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
