"""Write and read a topic below Spark, record by record, for tests that compare with a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.partitioner import Partitioner
from pyspark_commitlog.topic.write.staging import Staged, Stager
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction


@dataclass(frozen=True)
class Record:
    """One record as a reader sees it; `timestamp` in microseconds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] | None = None


def batch_of(values: Sequence[bytes | None], **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return a batch with `value` and any of key, timestamp (µs), partition, headers, topic."""
    types = {
        "key": pa.binary(), "timestamp": TIMESTAMP, "partition": pa.int32(), "headers": HEADERS, "topic": pa.string(),
    }  # fmt: skip
    arrays = {"value": pa.array(values, pa.binary())}
    arrays |= {name: pa.array(column, types[name]) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def stage(
    topic: TopicLog,
    *batches: pa.RecordBatch,
    task: int = 0,
    partitioner: str = "sticky",
    durable: bool = True,
    everywhere: bool = False,
) -> Staged:
    """Stage batches as one write task does that has records; `everywhere`: at all replicas that are in sync."""
    stored, state = topic.newest()
    config = topic.config(state)
    choose = Partitioner(state.partitions, partitioner, config.number("batch.size"), first=task)
    create = topic.creates_chunks(state, acks_all=everywhere)
    stager = Stager(
        topic.storage, topic.paths(state.topic_id), state, stored.sequence, choose, config,
        durable=durable, create=create,
    )  # fmt: skip
    for batch in batches:
        stager.add(batch)
    staged = stager.finish()
    assert staged is not None
    return staged


def append(topic: TopicLog, *batches: pa.RecordBatch, writer: Transaction | ProducerBatch | None = None) -> Committed:
    """Stage and commit batches as one write."""
    staged = stage(topic, *batches)
    return commit(topic, staged.topic_id, [staged], writer)


def read_partition(topic: TopicLog, partition: int, start: int | None = None, end: int | None = None) -> list[Record]:
    """Return the records of a partition, by default all that are visible."""
    return list(each_record(topic, partition, start, end))


def each_record(topic: TopicLog, partition: int, start: int | None = None, end: int | None = None) -> Iterator[Record]:
    """Yield the records of a partition, as far as it can be read."""
    _, state = topic.newest()
    start = state.log_start[partition] if start is None else start
    end = state.log_end[partition] if end is None else end
    if start == end:
        return
    for rows in PartitionReader(topic, state.topic_id, partition).read(start, end):
        assert rows.batch is not None
        columns = rows.batch.set_column(3, "timestamp", rows.batch.column("timestamp").cast(pa.int64())).to_pylist()
        offsets = range(rows.first_offset, rows.first_offset + rows.count) if rows.offsets is None else rows.offsets
        for offset, row in zip(offsets, columns, strict=True):
            headers = row["headers"]
            told = None if headers is None else tuple((h["key"], h["value"]) for h in headers)
            yield Record(partition, int(offset), row["key"], row["value"], row["timestamp"], told)


def read_topic(topic: TopicLog) -> list[Record]:
    """Return all visible records, partition by partition."""
    _, state = topic.newest()
    return [record for partition in range(state.partitions) for record in read_partition(topic, partition)]
