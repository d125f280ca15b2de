"""Typed topics on disk mean what FORMAT.md says: a stranger's reader and ours read the same from them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.golden import make_golden, make_typed, read_golden
from tests.golden.make_typed import told
from tests.support.payloads import payloads_of

EXPECTED: dict[str, dict[str, list[list[Any]]]] = json.loads(make_typed.EXPECTED.read_text())
PARTITIONS = [(topic, int(number)) for topic, partitions in EXPECTED.items() for number in partitions]


def read_all_as_a_stranger(root: Path) -> dict[str, dict[str, list[Any]]]:
    read: dict[str, dict[str, list[Any]]] = {topic: {} for topic in EXPECTED}
    for topic, partition in PARTITIONS:
        read[topic][str(partition)] = told(read_golden.read(root, topic, partition))
    return read


def test_a_stranger_reads_what_is_expected() -> None:
    assert read_all_as_a_stranger(make_typed.ROOT) == EXPECTED


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_our_reader_reads_what_is_expected(topic: str, partition: int) -> None:
    log = TopicLog(LocalStorage(make_typed.ROOT), topic)
    _, state = log.newest()
    assert state.schema is not None
    names = {column.stored_name: column.name for column in state.schema.columns}

    found = []
    for rows in PartitionReader(log, state.topic_id, partition).read(0, state.log_end[partition]):
        assert rows.batch is not None
        keys, headers = (frame_rows.common_column(rows.batch, name).to_pylist() for name in ("key", "headers"))
        times = frame_rows.timestamps(rows.batch).cast(pa.int64()).to_pylist()
        ours = rows.batch.rename_columns([names.get(name, name) for name in rows.batch.schema.names]).to_pylist()
        for at, row in enumerate(ours):
            pairs = headers[at] and [[pair["key"], pair["value"]] for pair in headers[at]]
            key = None if keys[at] is None else keys[at].decode()
            values = {name: row[name] for name in names.values()}
            found.append([rows.first_offset + at, key, values, times[at], pairs])
    assert told(found) == EXPECTED[topic][str(partition)]


def test_making_it_again_makes_the_same(tmp_path: Path) -> None:
    made = make_typed.make(tmp_path)

    assert json.loads(make_typed.to_json(made)) == EXPECTED
    assert read_all_as_a_stranger(tmp_path) == EXPECTED
    if make_typed.MADE_WITH.read_text() == f"pyarrow {pa.__version__}\n":
        assert make_golden.files(tmp_path) == make_golden.files(make_typed.ROOT)


def test_it_has_every_codec_and_storing() -> None:
    identities = [each.identity for log in make_typed.ROOT.glob("topics/*/*/[01]/*.log") for each in payloads_of(log)]

    typed = [each for each in identities if each.columns is not None]
    assert {each.codec for each in typed} == {"none", "lz4", "zstd"}
    assert {each.kind for each in identities} == {frame.COLUMNS, frame.SPARSE}
    storings = [storing for each in typed for storing in json.loads(each.columns or "").values()]
    assert {(how, width) for how, width, *_ in storings} >= {
        ("dictionary", 1), ("reference", 1), ("reference", 2), ("reference", 4), ("delta", 1), ("delta", 4),
    }  # fmt: skip


def bounded(kind: pa.DataType, value: Any) -> Any:
    """Return a value as FORMAT.md says that statistics compare it."""
    if pa.types.is_floating(kind):
        bits = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
        return bits if bits >= 0 else bits ^ (2**63 - 1)
    if pa.types.is_decimal(kind):
        return int(value.scaleb(kind.scale))
    if pa.types.is_temporal(kind):
        return pa.scalar(value, kind).cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).as_py()
    return value.encode() if isinstance(value, str) else value


def test_the_statistics_bound_the_columns() -> None:
    checked = 0
    for log in make_typed.ROOT.glob("topics/*/*/[01]/*.log"):
        for payload in payloads_of(log):
            told_of = json.loads(payload.identity.statistics or "{}")
            rows = frame_rows.decode(payload)
            for name, (low, high, nulls) in told_of.items():
                column = rows.column(name)
                assert nulls == column.null_count
                kind = column.type
                read: Any = bytes.fromhex if isinstance(bounded(kind, column.drop_null()[0].as_py()), bytes) else int
                values = [bounded(kind, value) for value in column.drop_null().to_pylist()]
                assert read(low) <= min(values)
                assert max(values) <= read(high)
                checked += 1
    assert checked >= 3 * 14


def test_it_is_small() -> None:
    assert sum(map(len, make_golden.files(make_typed.ROOT).values())) < 150_000
