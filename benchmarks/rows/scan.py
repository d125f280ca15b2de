"""A read without Spark, against a bare scan of Arrow IPC files that hold the same: what our format itself costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bench import TOPIC, Bench
from compare import just
from floors import ROWS
from kafka_peer import PARTITIONS

from pyspark_commitlog import CommitLog
from pyspark_commitlog.topic.read.reader import PartitionReader

COLUMNS = ("key", "value", "timestamp")


def scan(bench: Bench) -> None:
    """All columns, and the value alone; one thread, lz4, page cache warm, every CRC checked in ours."""
    directory = Path(bench.directory(keep=True))
    _write_ipc(bench, directory)
    for label, columns in (("all columns", COLUMNS), ("value only", ("value",))):
        ours, bare = (
            just(lambda asked=columns: read_topic(bench.settled, asked)),
            just(lambda asked=columns: read_ipc(directory, asked)),
        )
        bench.table.rates(f"scan without Spark, {label}", bench.records, ours, {"floor: Arrow IPC, lz4": bare})


def read_topic(root: str, columns: Sequence[str]) -> int:
    """Decode all records of a topic; return how many there are."""
    topic = CommitLog(root).root.topic(TOPIC)
    _, state = topic.newest()
    return sum(
        rows.count
        for partition in range(PARTITIONS)
        for rows in PartitionReader(topic, state.topic_id, partition, columns).read(0, state.log_end[partition])
    )


def read_ipc(directory: Path, columns: Sequence[str]) -> int:
    """Decode all records of Arrow IPC files; return how many there are."""
    options = pa.ipc.IpcReadOptions(included_fields=[COLUMNS.index(name) for name in columns], use_threads=False)
    count = 0
    for file in sorted(directory.iterdir()):
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source, options=options)
            for at in range(reader.num_record_batches):
                count += reader.get_batch(at).num_rows
    return count


def _write_ipc(bench: Bench, directory: Path) -> None:
    directory.mkdir()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    files = sorted(bench.events.glob("*.parquet"))
    for number in range(PARTITIONS):
        table = pa.concat_tables(pq.read_table(file, columns=list(COLUMNS)) for file in files[number::PARTITIONS])
        with pa.ipc.new_file(directory / f"{number}.arrow", table.schema, options=options) as out:
            for batch in table.combine_chunks().to_batches(max_chunksize=ROWS):
                out.write_batch(batch)
