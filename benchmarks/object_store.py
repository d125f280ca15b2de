"""How fast an object store is read and written through the log, next to bare requests of the same client.

    make bench-object-store            or: python benchmarks/object_store.py [--mb N] [--records N]

One run, on versitygw on this machine: the floor uploads objects of the same sizes in the same parts, and gets the same
ranges, by the same library in as many threads; then a topic of as many bytes is written (by as many tasks, in batches
of some MB as Spark hands them over, in one commit) and read by this package, without Spark. The server's share of the
processor time is printed: where it takes all of it, the ratio says how the server divides its time. Last, Spark writes
and reads records through the log, and as Parquet through its own S3A (`make bench-peers` fetches that).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import object_spark
import pyarrow as pa

from pyspark_commitlog import CommitLog
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.partitioner import Partitioner
from pyspark_commitlog.topic.write.staging import Staged, Stager
from tests.object_stores.servers import Bucket, Versitygw

PARTITIONS, THREADS, PART = 4, 4, 8 * 2**20
VALUE_BYTES, ROWS = 1000, 4000
READS = 5  # in one run, in turn with the floor's
Done = TypeVar("Done")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=512, help="MiB of values (512)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, in turn (3)")
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="records of some 220 bytes for Spark (2,000,000)"
    )
    parser.add_argument("--only", choices=("bare", "spark"), help="bare: without Spark; spark: nothing else")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="commitlog-bench-"))
    server = Versitygw(home)
    server.start()
    try:
        server.create("bench")
        if args.only != "spark":
            bench = Bench(server, server.bucket("bench"), args.mb * 2**20)
            runs = [bench.run(run) for run in range(args.runs)]
            for what, ratios in zip(("write", "read", "read, settled"), zip(*runs, strict=True), strict=True):
                print(f"{what} / floor: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
        if args.only != "bare":
            (home / "work").mkdir()
            data = home / "data" / "bench"
            object_spark.measure(server.bucket("bench"), data, home / "work", args.records, args.runs)
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


class Bench:
    """One server, and what is measured on it."""

    def __init__(self, server: Versitygw, bucket: Bucket, size: int) -> None:
        self._server, self._bucket, self._size = server, bucket, size
        random = np.random.default_rng(7)
        self._data = random.integers(0, 256, PART, dtype=np.uint8).tobytes()
        values = [random.integers(0, 256, VALUE_BYTES, dtype=np.uint8).tobytes() for _ in range(ROWS)]
        partition = pa.array(np.arange(ROWS, dtype=np.int32) % PARTITIONS)
        self._batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), "partition": partition})

    def run(self, number: int) -> tuple[float, float, float]:
        """Measure everything once; return floor / write, floor / read, and floor / read of settled records."""
        import obstore
        from obstore.store import S3Store

        options = self._bucket.options
        store = S3Store(
            "bench", endpoint=options["endpoint_url"], access_key_id=options["key"],
            secret_access_key=options["secret"], region="us-east-1", client_options={"allow_http": True},
        )  # fmt: skip
        names, parts = [f"floor-{number}/{at}" for at in range(THREADS)], self._size // THREADS // PART

        def upload(name: str) -> None:
            output = obstore.open_writer(store, name, buffer_size=PART, max_concurrency=THREADS)
            for _ in range(parts):
                output.write(self._data)
            output.close()

        def get(piece: tuple[str, int]) -> None:
            name, at = piece
            assert len(store.get_range(name, start=at * PART, length=PART)) == PART

        pieces = [(name, at) for name in names for at in range(parts)]
        puts = self._timed("floor: uploads by 8 MiB", lambda: _each(upload, names))

        def gets() -> object:
            return _each(get, pieces)

        url = f"{self._bucket.url}/{uuid.uuid4()}"
        log = CommitLog(url, storage_options=options)
        log.create_topic("t", partitions=PARTITIONS, config={"compression.type": "none", "retention.ms": -1})
        wrote = self._timed("batch write", lambda: self._write(log))
        staged = self._in_turn("staged", gets, lambda: self._read(log))
        self._timed("maintain", lambda: log.topic("t").maintain())
        settled = self._in_turn("settled", gets, lambda: self._read(log))
        print(f"  write / floor {puts / wrote:.2f}, read / floor {staged:.2f}, settled {settled:.2f}\n")
        return puts / wrote, staged, settled

    def _in_turn(self, state: str, gets: Callable[[], object], read: Callable[[], object]) -> float:
        """Return the median of floor / read, in turn, as what was written before is still being stored."""
        ratios = [
            self._timed("floor: ranged GETs of 8 MiB", gets) / self._timed(f"batch read, {state}", read)
            for _ in range(READS)
        ]
        return statistics.median(ratios)

    def _write(self, log: CommitLog) -> None:
        topic = log.root.topic("t")
        stored, state = topic.newest()
        config, paths = topic.config(state), topic.paths(state.topic_id)

        def task(number: int) -> Staged:
            chosen = Partitioner(state.partitions, "sticky", config.number("batch.size"), first=number)
            stager = Stager(topic.storage, paths, state, stored.sequence, chosen, config)
            for _ in range(self._size // VALUE_BYTES // ROWS // THREADS):
                stager.add(self._batch)
            staged = stager.finish()
            assert staged is not None
            return staged

        commit(topic, state.topic_id, _each(task, range(THREADS)))

    def _read(self, log: CommitLog) -> None:
        topic = log.root.topic("t")
        _, state = topic.newest()

        def whole(partition: int) -> int:
            reader = PartitionReader(log.root.topic("t"), state.topic_id, partition)
            return sum(rows.count for rows in reader.read(0, state.log_end[partition]))

        assert sum(_each(whole, range(PARTITIONS))) == sum(state.log_end)

    def _timed(self, what: str, act: Callable[[], object]) -> float:
        """Return seconds, and print them with the rate and the server's share of the processors."""
        before, began = _cpu_seconds(self._server.pid), time.monotonic()
        own = time.process_time()
        act()
        seconds = time.monotonic() - began
        server, own = _cpu_seconds(self._server.pid) - before, time.process_time() - own
        rate = self._size / 2**20 / seconds
        print(f"  {what:<28} {seconds:6.2f} s {rate:7.0f} MiB/s   server {server:5.2f} s, this process {own:5.2f} s")
        return seconds


def _each(act: Callable[[Any], Done], items: Iterable[Any]) -> list[Done]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(act, items))


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children so far."""
    total = 0.0
    for each in (pid, *_children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _children(int(child))


if __name__ == "__main__":
    main()
