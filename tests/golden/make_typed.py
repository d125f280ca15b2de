"""Make the golden root of typed topics: `python -m tests.golden.make_typed` rewrites what lies beside this file."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.format.columns import statistics
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import schema_state
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.golden.make_golden import CONFIG, FIRST_US, HOUR_MS, FixedStorage, files
from tests.support.records import append

HERE = Path(__file__).parent
ROOT = HERE / "typed"
EXPECTED = HERE / "typed.json"
MADE_WITH = HERE / "typed_made_with.txt"
CLICKS = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("at", TIMESTAMP),
        pa.field("kind", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("i", pa.int32()),
        pa.field("small", pa.int16()),
        pa.field("tiny", pa.int8()),
        pa.field("ok", pa.bool_()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("day", pa.date32()),
        pa.field("local", pa.timestamp("us")),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("marks", pa.map_(pa.string(), pa.int64())),
        pa.field("place", pa.struct([("lat", pa.float64()), ("name", pa.string())])),
    ]
)
NOTES = pa.schema([("text", pa.string()), ("number", pa.int64())])
Row = dict[str, Any]


def click(n: int) -> Row:
    """Return a record with nulls in every column that may have some."""
    row = {
        "user": f"user {n % 7}",
        "at": FIRST_US + n * 1_000_003,
        "kind": ("click", "view", "", "ünïcödé")[n % 4],
        "n": (-(2**63), 2**63 - 1, n)[n % 3],
        "i": n * 700,
        "small": n % 300 - 150,
        "tiny": n % 256 - 128,
        "ok": n % 2 == 0,
        "f": n / 4,
        "d": -n / 3,
        "price": Decimal(n).scaleb(-2),
        "day": dt.date(1, 1, 1) + dt.timedelta(days=n * 30_000 % 3_600_000),
        "local": dt.datetime(1582, 10, 4, 23, 59, 59, n, tzinfo=dt.UTC).replace(tzinfo=None),
        "raw": bytes((n % 256, 0, 255)),
        "tags": [None, f"tag {n % 3}", ""][: n % 4],
        "marks": [("a", n), ("b", None)][: n % 3],
        "place": {"lat": n / 2, "name": None if n % 5 else "here"},
    }
    names = [name for name in row if name != "user"]
    return {**row, names[n % len(names)]: None}


def note(n: int) -> Row:
    """Return a record of a topic without a key or a timestamp among its columns."""
    headers = [None, [], [("h", b"1"), ("h", None)]][n % 3]
    return {
        "text": f"note {n}",
        "number": n * 5 * 10**9 + n % 2 * 10**9,
        "_timestamp": FIRST_US + n * 1000,
        "_headers": headers,
    }


class Maker:
    """A typed topic that is written to, and what it must hold."""

    def __init__(self, log: CommitLog, clock: ManualClock, name: str, partitions: int, **declared: Any) -> None:
        log.create_topic(name, partitions, CONFIG, **declared)
        self.topic: TopicLog = log.root.topic(name)
        self.altered, self.clock, self.made = log.topic(name), clock, 0
        self.partitions: dict[int, list[list[Any]]] = {partition: [] for partition in range(partitions)}

    def write(self, schema: pa.Schema, counts: dict[int, int], *, lost: bool = False) -> None:
        """Commit so many records to each partition; they will be read unless they are `lost`."""
        chosen = [partition for partition, count in counts.items() for _ in range(count)]
        make = click if schema is CLICKS else note
        rows = [make(self.made + at) for at in range(len(chosen))]
        self.made += len(rows)
        kinds = {**{field.name: field.type for field in schema}, "_timestamp": TIMESTAMP, "_headers": HEADERS}
        columns = {name: pa.array([row[name] for row in rows], kinds[name]) for name in rows[0]}
        append(self.topic, pa.RecordBatch.from_pydict({**columns, "_partition_id": pa.array(chosen, pa.int32())}))
        for partition, row in zip(chosen, rows, strict=True):
            self._expect(partition, schema, row, lost=lost)

    def _expect(self, partition: int, schema: pa.Schema, row: Row, *, lost: bool) -> None:
        held = self.partitions[partition]
        offset = held[-1][0] + 1 if held else 0
        time = row.get("_timestamp", row.get("at"))
        time = self.clock.now_ms() * 1000 if time is None else time
        values = {field.name: row[field.name] for field in schema}
        if schema is CLICKS:
            values["at"] = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=time)
        headers = row.get("_headers")
        held.append([offset, row.get("user"), values, time, headers and [list(pair) for pair in headers], lost])

    def expected(self) -> dict[str, list[list[Any]]]:
        """Return what a reader gets, by partition."""
        return {
            str(partition): told([row[:-1] for row in rows if not row[-1]])
            for partition, rows in self.partitions.items()
        }


def told(value: Any) -> Any:
    """Return a value as JSON tells it: bytes as the text that Latin-1 makes, times and decimals as texts."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dt.date | Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: told(each) for name, each in value.items()}
    return [told(each) for each in value] if isinstance(value, list | tuple) else value


def make(root: Path) -> dict[str, dict[str, list[list[Any]]]]:
    """Make the root; return what its topics must hold."""
    clock = ManualClock(FIRST_US // 1000 + HOUR_MS)
    log = CommitLog.on(FixedStorage(root, clock))
    with mock.patch.object(statistics, "MIN_ROWS", 64):
        return {"clicks": make_clicks(log, clock), "notes": make_notes(log, clock)}


def make_clicks(log: CommitLog, clock: ManualClock) -> dict[str, list[list[Any]]]:
    """Make a topic with every type, codec and storing, settled in part, with a chunk that is lost."""
    maker = Maker(log, clock, "clicks", 2, schema=CLICKS, key="user", timestamp="at")
    topic_id = maker.topic.newest()[1].topic_id
    maker.altered.alter({"batch.size": 65536})
    for codec in ("none", "lz4", "zstd"):
        maker.altered.alter({"compression.type": codec})
        maker.write(CLICKS, {0: 80, 1: 3})
        clock.advance(1000)
    staged = maker.topic.paths(topic_id).staged
    before = set(maker.topic.storage.names(staged))
    maker.write(CLICKS, {1: 4}, lost=True)
    (lost,) = set(maker.topic.storage.names(staged)) - before
    maker.topic.storage.delete(maker.topic.paths(topic_id).chunk(lost))
    log.topic("clicks").void()
    maker.write(CLICKS, {1: 1})
    settle(maker.topic, topic_id)
    maker.write(CLICKS, {0: 2, 1: 90})
    maker.altered.alter({"inline.max.bytes": 65536})
    maker.write(CLICKS, {0: 1})
    return maker.expected()


def make_notes(log: CommitLog, clock: ManualClock) -> dict[str, list[list[Any]]]:
    """Make a topic without key or timestamp column, whose columns lie in a side file."""
    with mock.patch.object(schema_state, "TABLE_BYTES", 16):
        maker = Maker(log, clock, "notes", 1, schema=NOTES)
    maker.write(NOTES, {0: 20})
    settle(maker.topic, maker.topic.newest()[1].topic_id)
    maker.write(NOTES, {0: 2})
    return maker.expected()


def to_json(expected: dict[str, dict[str, list[list[Any]]]]) -> str:
    """Return what is expected, one record a line."""
    topics = []
    for name, partitions in expected.items():
        lines = [
            f'"{p}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]" for p, rows in partitions.items()
        ]
        topics.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(topics) + "\n}\n"


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    EXPECTED.write_text(to_json(make(ROOT)))
    MADE_WITH.write_text(f"pyarrow {pa.__version__}\n")
    print(f"{len(files(ROOT))} files, {sum(map(len, files(ROOT).values()))} bytes in {ROOT}")
