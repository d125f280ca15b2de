"""Producers: Arrow batches and single records, from send to the future, and many processes on one topic.

    python benchmarks/producers.py [--directory /tmp] [--processes 1,4,16,64] [--seconds 10]

The records are those of `data.py`: 218 bytes, 4 partitions, lz4. `contend` has every process send one record, wait
for its future and send the next: each commit holds as little as it can, so it shows what commits cost each other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark_commitlog import CommitLog, Producer

sys.path.insert(0, str(Path(__file__).parent))
from data import events

TOPIC = "t"
PARTITIONS = 4


@contextmanager
def root(directory: str) -> Iterator[str]:
    """Yield a root with an empty topic, and remove it."""
    path = tempfile.mkdtemp(prefix="producers-", dir=directory)
    try:
        CommitLog(path).create_topic(TOPIC, PARTITIONS, {"retention.ms": -1})
        yield path
    finally:
        shutil.rmtree(path)


def arrow(directory: str, records: int, rows: int) -> float:
    """Return records/s of Arrow batches of `rows` rows, all of them committed."""
    batches = events(records, 0).combine_chunks().to_batches(max_chunksize=rows)
    with root(directory) as path, Producer(path) as producer:
        started = time.perf_counter()
        futures = [producer.send_batch(TOPIC, batch) for batch in batches]
        for future in futures:
            future.result()
        return records / (time.perf_counter() - started)


def single(directory: str, records: int) -> tuple[float, float]:
    """Return records/s of `send` alone, and until all are committed."""
    table = events(records, 0)
    keys, values = table["key"].to_pylist(), table["value"].to_pylist()
    with root(directory) as path, Producer(path) as producer:
        producer.send(TOPIC, b"first").result()
        started = time.perf_counter()
        for key, value in zip(keys, values, strict=True):
            producer.send(TOPIC, value, key)
        sent = time.perf_counter() - started
        producer.flush()
        return records / sent, records / (time.perf_counter() - started)


def paced(directory: str, seconds: float, rate: int, linger_ms: int) -> tuple[float, float, float]:
    """Return p50 and p99 of send to future in ms, and commits/s, at a steady rate."""
    value, latencies = b"x" * 200, list[float]()
    with root(directory) as path, Producer(path, linger_ms=linger_ms) as producer:
        producer.send(TOPIC, b"first").result()
        before = newest(path)
        started = time.perf_counter()
        for number in range(int(seconds * rate)):
            due = started + number / rate
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            at = time.perf_counter()
            future = producer.send(TOPIC, value, b"%d" % number)
            future.add_done_callback(lambda _, at=at: latencies.append(time.perf_counter() - at))
        producer.flush()
        commits = (newest(path) - before) / (time.perf_counter() - started)
    return percentile(latencies, 50), percentile(latencies, 99), commits


def newest(path: str) -> int:
    """Return the number of the topic's newest entry."""
    stored, _ = CommitLog(path).root.topic(TOPIC).newest()
    return stored.sequence


def percentile(seconds: list[float], which: int) -> float:
    """Return a percentile in ms."""
    return sorted(seconds)[min(len(seconds) - 1, len(seconds) * which // 100)] * 1000


def send_until(path: str, start: float, end: float, pipe: object) -> None:
    """Send one record at a time between two times; report the latencies, and the CPU seconds that it took."""
    latencies = []
    with Producer(path, linger_ms=0) as producer:
        producer.send(TOPIC, b"warm").result()
        time.sleep(max(0.0, start - time.time()))
        cpu = time.process_time()
        while time.time() < end:
            at = time.perf_counter()
            producer.send(TOPIC, b"x" * 200).result()
            latencies.append(time.perf_counter() - at)
        pipe.send((latencies, time.process_time() - cpu))


def contend(directory: str, processes: int, seconds: float) -> str:
    """Return a line: records/s, latencies, the slowest process' share, CPU."""
    context = multiprocessing.get_context("spawn")
    with root(directory) as path:
        start = time.time() + 2 + processes * 0.5
        pipes, running = [], []
        for _ in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            running.append(context.Process(target=send_until, args=(path, start, start + seconds, theirs)))
            running[-1].start()
            pipes.append(ours)
        reports = [pipe.recv() for pipe in pipes]
        for process in running:
            process.join()
    counts = sorted(len(latencies) for latencies, _ in reports)
    every = [latency for latencies, _ in reports for latency in latencies]
    cpu = sum(used for _, used in reports)
    return (
        f"{processes:4d} processes: {len(every) / seconds:8.0f} commits/s   p50 {percentile(every, 50):8.1f} ms   "
        f"p99 {percentile(every, 99):8.1f} ms   max {max(every) * 1000:8.0f} ms   "
        f"per process {counts[0]} to {counts[-1]}   CPU {cpu / seconds:.2f} cores"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default="/tmp")
    parser.add_argument("--processes", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=("arrow", "single", "paced", "contend"))
    args = parser.parse_args()
    numbers = [int(number) for number in args.processes.split(",")]
    work: dict[str, Callable[[], None]] = {
        "arrow": lambda: tell_arrow(args.directory),
        "single": lambda: tell_single(args.directory),
        "paced": lambda: tell_paced(args.directory, args.seconds),
        "contend": lambda: tell_contend(args.directory, numbers, args.seconds),
    }
    for name, act in work.items():
        if args.only in (None, name):
            act()


def tell_arrow(directory: str) -> None:
    """Print the rate of Arrow batches."""
    for rows in (1_000, 10_000, 100_000):
        print(f"Arrow batches of {rows}: {arrow(directory, 2_000_000, rows) / 1e6:.2f} M records/s", flush=True)


def tell_single(directory: str) -> None:
    """Print the rates of single records."""
    sent, committed = single(directory, 300_000)
    print(f"single records: {sent:.0f} records/s sent, {committed:.0f} committed", flush=True)


def tell_paced(directory: str, seconds: float) -> None:
    """Print latencies at 1,000 records/s."""
    for linger_ms in (5, 0):
        half, most, commits = paced(directory, seconds, 1000, linger_ms)
        print(f"1,000 records/s, linger_ms={linger_ms}: p50 {half:.1f} ms, p99 {most:.1f} ms, {commits:.0f} commits/s")


def tell_contend(directory: str, processes: list[int], seconds: float) -> None:
    """Print what processes on one topic do to each other."""
    for number in processes:
        print(contend(directory, number, seconds), flush=True)


if __name__ == "__main__":
    main()
