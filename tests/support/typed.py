"""A typed topic with columns of many types, written and read as plain Python rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.format.columns.untyped import TIMESTAMP
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.records import stage
from tests.support.replicas import Replicated
from tests.support.world import DELAY_MS, World

Row = dict[str, Any]
#: The key is `user`, the timestamp `at`; the rest are one of each kind, nested ones too.
SCHEMA = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("at", TIMESTAMP),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("ok", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("ratio", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([pa.field("lat", pa.float32()), pa.field("names", pa.map_(pa.string(), pa.int32()))])),
        pa.field("raw", pa.binary()),
    ]
)  # fmt: skip
#: What `create_topic` takes besides.
DECLARED: Mapping[str, Any] = {"schema": SCHEMA, "key": "user", "timestamp": "at"}
START = datetime(2023, 6, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)


#: Keeps records whatever their age: a topic with a timestamp column has to say so.
KEPT: Mapping[str, object] = {"retention.ms": -1}


def typed_topic(world: World, partitions: int = 2) -> TopicLog:
    """Make a topic of these columns, when the first of the rows has its time."""
    world.clock.advance(START_MS - world.clock.now_ms())
    return world.create(partitions, KEPT, **DECLARED)


def row(number: int, size: int = 0, **changed: Any) -> Row:
    """Return a row; `size` bytes of it are noise. Each third has nulls, and empty lists."""
    few = number % 3 == 0
    return {
        "user": f"user {number % 2}",
        "at": START + timedelta(seconds=number),
        "n": number * 2**33,
        "price": None if few else Decimal(number) / 4,
        "ok": None if few else number % 2 == 0,
        "day": date(2024, 1, 1) + timedelta(days=number),
        "ratio": None if few else number / 3,
        "tags": [] if few else [f"tag {number}", None],
        "place": None if few else {"lat": number / 2, "names": [(f"name {number}", number), ("none", None)]},
        "raw": Random(number).randbytes(size),
        **changed,
    }


def rows(start: int, end: int, size: int = 0) -> list[Row]:
    """Return rows `start` to `end` - 1."""
    return [row(number, size) for number in range(start, end)]


def typed_batch(
    given: Sequence[Mapping[str, Any]], partition: int | None = 0, schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    """Return rows as a batch for a writer; `partition` None: by key."""
    batch = pa.RecordBatch.from_pylist(list(given), schema)
    if partition is None:
        return batch
    return batch.append_column("_partition_id", pa.array([partition] * batch.num_rows, pa.int32()))


def write(
    topic: TopicLog,
    *given: Mapping[str, Any],
    partition: int | None = 0,
    writer: Transaction | ProducerBatch | None = None,
    each: bool = False,
    acks_all: bool = True,
    everywhere: bool = False,
) -> Committed:
    """Commit rows as one write; `each` in a batch of its own."""
    parts = [[one] for one in given] if each else [given]
    staged = stage(topic, *(typed_batch(part, partition) for part in parts), everywhere=everywhere)
    return commit(topic, staged.topic_id, [staged], writer, acks_all=acks_all)


def placed_rows(topic: TopicLog) -> dict[tuple[int, int], Row]:
    """Return all visible rows by partition and offset, under today's column names."""
    _, state = topic.newest()
    assert state.schema is not None
    names = {column.stored_name: column.name for column in state.schema.columns}
    found: dict[tuple[int, int], Row] = {}
    for partition, (start, end) in enumerate(zip(state.log_start, state.log_end, strict=True)):
        for part in PartitionReader(topic, state.topic_id, partition).read(start, end) if start < end else ():
            assert part.batch is not None
            offsets = range(part.first_offset, part.first_offset + part.count) if part.offsets is None else part.offsets
            for offset, stored in zip(offsets, part.batch.to_pylist(), strict=True):
                known = {names[name]: value for name, value in stored.items() if name in names}
                found[partition, int(offset)] = {**dict.fromkeys(names.values()), **known}
    return found


def read_rows(topic: TopicLog, partition: int | None = None) -> list[Row]:
    """Return all visible rows of a partition, by default of all, in order."""
    return [found for (number, _), found in placed_rows(topic).items() if partition in (None, number)]


def offsets(topic: TopicLog, partition: int = 0) -> list[int]:
    """Return the offsets of a partition's visible rows."""
    return [offset for number, offset in placed_rows(topic) if number == partition]


def maintained(roots: Replicated) -> None:
    """Settle and collect at each root."""
    for waited_ms in (DELAY_MS, DAY_MS, DELAY_MS):
        for root in roots.names:
            roots.log(root).topic("t").maintain()
        roots.clock.advance(waited_ms)
