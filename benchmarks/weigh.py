"""What each choice is worth: `benchmarks/weigh.py [--records 250000] [--rounds 5] [--spark | --disk | --checksum]`.

Stages a batch of events and reads it back settled, in one thread, without Spark, files in memory: as it is, and with
one thing changed at a time. All variants run in turn, in one run. Figures are microseconds of a core per record (the
least of all rounds), so that it matters less what else the machine does, and bytes of segments per record. With
`--spark` instead what Spark's own batches cost all processes together, with `--disk` what the size of system calls
does to writing a file, with `--checksum` what the checksum of a commit's records costs, by the rows of a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from bench import Bench
from cores import IDLE, OTHERS, spent
from data import events
from session import session

from pyspark_commitlog import CommitLog
from pyspark_commitlog.format.columns import messages, untyped
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.checksum import checksum
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.partitioner import Partitioner
from pyspark_commitlog.topic.write.records import TopicLimits, prepare
from pyspark_commitlog.topic.write.staging import Staged, Stager

HERE = Path(__file__).resolve().parent
PARTITIONS = 4
ROWS = 10_000
#: Whether the records' checksum is made.
SUMMED = False
_POOL_RUNS = 3
ASKED = ("key", "value", "timestamp")
HEAD = "| | | stage, µs per record | read, µs per record | stored bytes per record |\n|---|---|---|---|---|"
_decode = untyped.decode


@dataclass
class Variant:
    """Something that is done in another way, and what it was found to cost."""

    what: str
    way: str
    config: dict[str, object] = field(default_factory=dict)
    rows: int = ROWS
    change: Callable[[], Any] = ExitStack
    reads: bool = True
    staged: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    stored: int = 0

    def line(self, records: int) -> str:
        """Return the line of the table."""
        each = 1e6 / records
        read = f"{min(self.read) * each:.3f} | {self.stored / records:.0f}" if self.read else "| "
        return f"| {self.what} | {self.way} | {min(self.staged) * each:.3f} | {read} |"


def _codec(name: str, level: int | None) -> Callable[[], Any]:
    made = pa.Codec(name, compression_level=level)
    return lambda: patch.dict(messages.CODECS, {name: made})


def _encoded(batch: pa.RecordBatch, compression: str, *, threads: bool = False) -> pa.Buffer:
    """Encode whatever the columns are, and with Arrow's threads if asked to."""
    options = pa.ipc.IpcWriteOptions(compression=messages.CODECS[compression], use_threads=threads)
    sink = pa.BufferOutputStream()
    with pa.ipc.RecordBatchStreamWriter(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@contextmanager
def _two_threads() -> Iterator[None]:
    pa.set_cpu_count(2)
    try:
        with patch.object(untyped, "encode", partial(_encoded, threads=True)):
            yield
    finally:
        pa.set_cpu_count(1)


def _ordered(*names: str) -> Callable[[], Any]:
    def encode(batch: pa.RecordBatch, compression: str) -> pa.Buffer:
        return _encoded(batch.select(list(names)), compression)

    return lambda: patch.object(untyped, "encode", encode)


def _copied(message: pa.Buffer, *, sparse: bool, names: Any) -> pa.RecordBatch:
    return _decode(pa.py_buffer(message.to_pybytes()), sparse=sparse, names=names)


def variants() -> list[Variant]:
    """Return all that is weighed; the first is how it is."""
    return [
        Variant("as it is", "lz4 at level -3, 1 MiB, 10,000 rows"),
        Variant("compression.type", "none", {"compression.type": "none"}),
        *(Variant("lz4 level", str(level), change=_codec("lz4", level)) for level in (-20, -1, 1, 3)),
        *(Variant("zstd level", str(level), {"compression.type": "zstd"}, change=_codec("zstd", level))
          for level in (1, 3)),
        *(Variant("batch.size", f"{kib} KiB", {"batch.size": kib << 10}) for kib in (256, 512, 2048, 4096)),
        *(Variant("rows per Arrow batch", f"{rows:,}", rows=rows) for rows in (2_000, 5_000, 50_000, 100_000)),
        Variant("decode", "from a copy of the message", change=lambda: patch.object(untyped, "decode", _copied)),
        Variant("column order", "timestamp, key, headers, value", reads=False,
                change=_ordered("timestamp", "key", "headers", "value")),
        Variant("threads", "2 in Arrow's writer", reads=False, change=_two_threads),
        Variant("checksum", "of all records, as under a writer id", reads=False,
                change=lambda: patch.object(sys.modules[__name__], "SUMMED", new=True)),
        Variant("as it is", "once more: how far to trust the others"),
    ]  # fmt: skip


def weigh(root: Path, records: int, rounds: int, found: list[Variant]) -> None:
    """Measure the variants in turn."""
    pa.set_cpu_count(1)
    table = events(records, 0).combine_chunks()
    log = CommitLog(str(root))
    for number, variant in enumerate(found):
        log.create_topic(f"t{number}", PARTITIONS, {"retention.ms": -1, **variant.config})
    for turn in range(rounds + 1):
        in_turn = list(enumerate(found))
        for number, variant in in_turn if turn % 2 else reversed(in_turn):
            with variant.change():
                _measure(log.root.topic(f"t{number}"), variant, _as_from_spark(table, variant.rows), warm=turn > 0)
            if turn == 0 and variant.reads:
                variant.stored = _segments(root / "topics" / f"t{number}")


def weigh_pools(records: int, rounds: int) -> list[Variant]:
    """Return how it is with each of Arrow's memory pools, in processes of its own: they keep memory from each other."""
    found = {name: Variant("memory pool, alone", name) for name in sorted(pa.supported_memory_backends())}
    for _ in range(_POOL_RUNS):
        for name, variant in found.items():
            command = [sys.executable, __file__, "--alone", f"--records={records}", f"--rounds={rounds}"]
            environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": name}
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            staged, read, variant.stored = json.loads(done.stdout)
            variant.staged.append(staged)
            variant.read.append(read)
    return list(found.values())


def _segments(topic: Path) -> int:
    return sum(file.stat().st_size for file in topic.rglob("*.log"))


def _as_from_spark(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """Return batches with memory of their own, as they come out of Spark's socket."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=rows)
    return list(pa.ipc.open_stream(sink.getvalue().to_pybytes()))


def _measure(topic: TopicLog, variant: Variant, batches: list[pa.RecordBatch], *, warm: bool) -> None:
    _stage(topic, batches)  # in the memory that the variant before left
    began = time.process_time()
    state, staged = _stage(topic, batches)
    if warm:
        variant.staged.append(time.process_time() - began)
    if not variant.reads:
        return
    assert staged is not None
    commit(topic, state.topic_id, [staged], None)
    settle(topic, state.topic_id)
    _, after = topic.newest()
    began = time.process_time()
    for partition, (start, end) in enumerate(zip(state.log_end, after.log_end, strict=True)):
        for _ in PartitionReader(topic, state.topic_id, partition, ASKED).read(start, end):
            pass
    if warm:
        variant.read.append(time.process_time() - began)


def _stage(topic: TopicLog, batches: list[pa.RecordBatch]) -> tuple[TopicState, Staged | None]:
    stored, state = topic.newest()
    config = topic.config(state)
    partitioner = Partitioner(state.partitions, "sticky", config.number("batch.size"))
    paths = topic.paths(state.topic_id)
    stager = Stager(topic.storage, paths, state, stored.sequence, partitioner, config, summed=SUMMED)
    for batch in batches:
        stager.add(batch)
    return state, stager.finish()


# --- the checksum of a commit -----------------------------------------------------------------------------

SUMMED_ROWS = (10, 100, 1_000, 10_000, 50_000)


def weigh_checksum(root: Path, rounds: int) -> Iterator[str]:
    """Yield the lines of a table: the least that a batch's checksum took, next to staging it without."""
    pa.set_cpu_count(1)
    log = CommitLog(str(root))
    log.create_topic("t", PARTITIONS, {})
    topic = log.root.topic("t")
    config = topic.config(topic.newest()[1])
    for rows in SUMMED_ROWS:
        (batch,) = _as_from_spark(events(rows, 0).combine_chunks(), rows)
        prepared = prepare(batch, TopicLimits.of("t", PARTITIONS, config), topic.storage.clock.now_ms())
        summed, staged = [], []
        for _ in range(rounds * max(4, min(40, 100_000 // rows))):
            began = time.process_time()
            checksum(prepared.batch, prepared.given)
            between = time.process_time()
            _stage(topic, [batch])
            staged.append(time.process_time() - between)
            summed.append(between - began)
        least, each = min(summed) * 1e6, 1e6 / rows
        yield f"| {rows:,} | {least:.0f} | {min(summed) * each:.3f} | {min(staged) * each:.3f} |"


# --- on the way to the disk ------------------------------------------------------------------------------

CALLS_KIB = (4, 16, 64, 256, 1024, 8192)
PAUSE_SECONDS = 5
FILE_BYTES = 224 * 2**20


def weigh_calls(work: Path, rounds: int) -> Iterator[str]:
    """Yield the lines of a table: writing a file, some seconds after the removal of the one before."""
    work.mkdir(parents=True, exist_ok=True)
    taken: dict[int, list[tuple[float, float]]] = {kib: [] for kib in CALLS_KIB}
    for _ in range(rounds):
        for kib, found in taken.items():
            time.sleep(PAUSE_SECONDS)
            found.append(_write(work / "calls", kib << 10))
    for kib, found in taken.items():
        write, sync = (statistics.median(seconds) * 1000 for seconds in zip(*found, strict=True))
        yield f"| {kib:,} KiB | {write:.0f} | {sync:.0f} |"


def _write(path: Path, size: int) -> tuple[float, float]:
    """Return the seconds that writing took, and syncing."""
    data = os.urandom(size)
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // size):
            file.write(data)
        written = time.perf_counter()
        os.fsync(file.fileno())
        synced = time.perf_counter()
    path.unlink()
    return written - began, synced - written


# --- in Spark --------------------------------------------------------------------------------------------

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = "2147483647"
IN_SPARK = [{RECORDS: str(rows), BYTES: "64m"} for rows in (2_000, 10_000, 50_000, 100_000)]
IN_SPARK += [{RECORDS: str(rows), BYTES: NO_LIMIT} for rows in (10_000, 20_000, 50_000, 100_000)]


def weigh_in_spark(work: Path, records: int, rounds: int) -> Iterator[str]:
    """Yield the lines of a table: what a batch write costs all of Spark's processes, under each setting."""
    (work / "scratch").mkdir(parents=True, exist_ok=True)
    spark = session(work / "spark.log")
    try:
        bench = Bench(spark, work, records, rounds, None, delta=False)
        taken: list[list[float]] = [[] for _ in IN_SPARK]
        for turn in range(rounds + 1):
            for settings, found in zip(IN_SPARK, taken, strict=True):
                for name, value in settings.items():
                    spark.conf.set(name, value)
                root, before = bench.root(), spent()
                bench.write(root)
                cores = spent()
                cores.subtract(before)
                bench.clean()
                if turn > 0:
                    found.append(cores.total() - cores[OTHERS] - cores[IDLE])
        for settings, found in zip(IN_SPARK, taken, strict=True):
            yield f"| {settings[RECORDS]} | {settings[BYTES]} | {min(found) * 1e6 / records:.2f} |"
    finally:
        spark.stop()
        shutil.rmtree(work / "scratch")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="only how it is, as JSON")
    parser.add_argument("--spark", action="store_true", help="weigh Spark's settings instead")
    parser.add_argument("--disk", action="store_true", help="weigh the size of a write's system calls instead")
    parser.add_argument("--checksum", action="store_true", help="weigh the checksum of a commit's records instead")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "bench", help="for --spark and --disk")
    args = parser.parse_args()
    if args.spark:
        print("| maxRecordsPerBatch | maxBytesPerBatch | batch write, µs of a core per record |\n|---|---|---|")
        for line in weigh_in_spark(args.work.resolve(), args.records, args.rounds):
            print(line, flush=True)
        return
    if args.disk:
        print("| bytes per system call | write, ms | fsync, ms |\n|---|---|---|")
        for line in weigh_calls(args.work.resolve(), args.rounds):
            print(line, flush=True)
        return
    if args.checksum:
        print("| rows | checksum, µs | checksum, µs per record | stage, µs per record |\n|---|---|---|---|")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
            for line in weigh_checksum(Path(root), args.rounds):
                print(line, flush=True)
        return
    found = variants()[: 1 if args.alone else None]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        weigh(Path(root), args.records, args.rounds, found)
    if args.alone:
        (variant,) = found
        print(json.dumps([min(variant.staged), min(variant.read), variant.stored]))
        return
    found[-1:-1] = weigh_pools(args.records, args.rounds)
    print("\n".join([HEAD, *(variant.line(args.records) for variant in found)]))


if __name__ == "__main__":
    main()
