"""Columns of typed frames: every type with every codec, some columns, the names of the key and the timestamp."""

from __future__ import annotations

from collections import OrderedDict
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows, messages, typed
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.format.frame import MAX_ROWS, Payload
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.types import ATOMIC
from pyspark_commitlog.topic.segments.encoding import encode_frame
from tests.support.pools import counting_pool
from tests.support.typed_rows import batch_of_columns, batch_of_kinds, column

CODECS = ("none", "lz4", "zstd")
KINDS = [
    *map(to_arrow, ATOMIC),
    pa.decimal128(1, 0),
    pa.decimal128(38, 38),
    pa.list_(pa.field("element", pa.string())),
    pa.list_(pa.field("element", pa.list_(pa.field("element", pa.struct([("a", pa.decimal128(9, 2))]))))),
    pa.map_(pa.string(), pa.list_(pa.field("element", pa.binary()))),
    pa.struct([("ünï cödé", pa.map_(pa.int64(), pa.bool_())), ("b", pa.struct([("c", pa.date32())]))]),
]


def payload_of(rows: pa.RecordBatch, codec: str = "lz4") -> Payload:
    data = encode_frame(rows, codec=codec, topic_id="id", partition=0, log_append_time=False, base_offset=0)
    return frame.open_payload(frame.parse_encoded(data.joined()))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 500])
def test_each_type_is_read_as_it_was_written(kind: pa.DataType, rows: int, codec: str) -> None:
    for nulls in (0.0, 0.4, 1.0):
        batch = batch_of_kinds(rows, [kind, pa.int8()], rows, first=3, nulls=nulls, headers=rows > 1)
        found = frame_rows.decode(payload_of(batch, codec))
        found.validate(full=True)
        assert found.select(["100", "101", "timestamp"]).equals(batch.select(["100", "101", "timestamp"]))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_keep_their_bits(kind: pa.DataType) -> None:
    words = np.array([0x7FC00000, 0x7FC12345, 0xFFC00000, 0x80000000, 1], np.uint64) << (kind.bit_width - 32)
    bits = pa.array(words.astype(f"u{kind.bit_width // 8}")).view(kind)

    found = frame_rows.decode(payload_of(batch_of_columns({"7": bits, "timestamp": pa.array([0] * 5, TIMESTAMP)})))
    assert found.column("7").view(f"uint{kind.bit_width}").to_numpy().tolist() == words.tolist()


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_has_as_many_rows_as_any(codec: str) -> None:
    batch = batch_of_kinds(5, [pa.string(), pa.int64(), pa.list_(pa.field("element", pa.int32()))], MAX_ROWS)

    assert frame_rows.decode(payload_of(batch, codec)).equals(batch)
    with pytest.raises(CorruptionError, match="65537 rows, expected 65536 at most"):
        frame_rows.decode(payload_of(batch_of_kinds(5, [pa.string()], MAX_ROWS + 1), codec))


def test_no_rows_are_none() -> None:
    batch = batch_of_kinds(5, KINDS, 0)
    encoded = typed.encode(batch, "lz4")

    assert typed.decode(encoded.value, encoded.columns).equals(batch)
    assert typed.decode(encoded.value, encoded.columns, ["101"]).num_rows == 0


def test_headers_that_nobody_gave_take_no_column() -> None:
    columns = {"7": pa.array([1, 2]), "headers": pa.nulls(2, HEADERS), "timestamp": pa.array([3, 4], TIMESTAMP)}
    without = frame_rows.decode(payload_of(batch_of_columns(columns)))
    empty = frame_rows.decode(payload_of(batch_of_columns({**columns, "headers": pa.array([[], None], HEADERS)})))

    assert without.schema.names == ["7", "timestamp"]
    assert typed.is_typed(without.schema)
    assert frame_rows.common_column(without, "headers").equals(pa.nulls(2, HEADERS))
    assert frame_rows.common_column(empty, "headers").to_pylist() == [[], None]


def keyed() -> pa.RecordBatch:
    """Return rows whose key and timestamp are columns that were declared."""
    columns = {
        "7": pa.array(["a", "ü", "a"] * 100),
        "8": pa.array(range(300), TIMESTAMP),
        "9": pa.array([1, None, 3] * 100, pa.int16()),
    }
    return batch_of_columns(columns, key=7, time=8)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, ["7", "8", "9"]),
        (["timestamp"], ["8"]),
        (["8"], ["8"]),
        (["key"], ["7"]),
        (["9", "key", "7"], ["7", "9"]),
        (["headers"], ["8"]),
        (["value"], ["8"]),
        (["77"], ["8"]),
        ([], ["8"]),
        ([""], ["8"]),
        (["9", "77", "timestamp", "headers"], ["8", "9"]),
    ],
)
def test_key_and_timestamp_are_asked_for_by_those_names(asked: list[str] | None, found: list[str]) -> None:
    read = frame_rows.decode(payload_of(keyed()), asked)

    assert read.equals(keyed().select(found), check_metadata=True)
    assert frame_rows.timestamps(frame_rows.decode(payload_of(keyed()), ["timestamp"])).equals(keyed().column("8"))


def test_common_columns_have_the_types_of_untyped_ones() -> None:
    rows = frame_rows.decode(payload_of(keyed()))

    assert frame_rows.common_column(rows, "key").slice(0, 2).to_pylist() == [b"a", "ü".encode()]
    assert frame_rows.common_column(rows, "value").equals(pa.nulls(300, pa.binary()))
    assert frame_rows.common_column(rows, "timestamp").equals(rows.column("8"))
    without = frame_rows.decode(payload_of(keyed()), ["9"])
    assert frame_rows.common_column(without, "key").equals(pa.nulls(300, pa.binary()))


@pytest.mark.parametrize(("kind", "size"), [(pa.int16(), 2), (pa.int32(), 4), (pa.int64(), 8)])
def test_number_keys_are_big_endian(kind: pa.DataType, size: int) -> None:
    found = typed.key_bytes(pa.array([0, 1, None, -2, 2 ** (8 * size - 1) - 1], kind).slice(1))

    assert found.to_pylist() == [
        (1).to_bytes(size, "big"), None, (-2).to_bytes(size, "big", signed=True), b"\x7f" + b"\xff" * (size - 1),
    ]  # fmt: skip


def test_columns_not_asked_for_are_not_decompressed() -> None:
    rng = np.random.default_rng(1)
    texts = pa.array([bytes(rng.integers(0, 9, 1000).astype(np.uint8)) for _ in range(4000)], pa.binary())
    large = column(rng, pa.list_(pa.field("element", pa.int64())), 60_000).slice(0, 4000)
    payload = payload_of(
        batch_of_columns({"7": texts, "8": large, "9": texts.take(pa.array([1] * 4000)), "timestamp": pa.array(range(4000), TIMESTAMP)}),
        "zstd",
    )  # fmt: skip
    before, pool = pa.default_memory_pool(), counting_pool()

    def most(*names: str) -> int:
        frame_rows.decode(payload, names)
        return int(pool.max_memory())

    pa.set_memory_pool(pool)
    try:
        with mock.patch.object(messages, "_idle", OrderedDict()):  # decoders keep their pool
            assert most("timestamp") < 200_000
            assert most("8") < 500_000
            assert most("7") > 4_000_000
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("codec", CODECS)
def test_a_typed_frame_may_lie_at_any_position_of_a_file(codec: str) -> None:
    batch = batch_of_kinds(9, KINDS, 40, headers=True)
    encoded = typed.encode(batch, codec)

    for shift in range(1, 9):
        shifted = pa.py_buffer(bytes(shift) + encoded.value.to_pybytes()).slice(shift)
        found = typed.decode(shifted, encoded.columns)
        assert found.equals(batch)
        numbers = [each for each in found.columns if pa.types.is_primitive(each.type) and each.type.bit_width >= 8]
        assert all(each.buffers()[1].address % (each.type.bit_width // 8) == 0 for each in numbers)


def test_every_flipped_bit_is_found_whatever_is_asked() -> None:
    """The frame's one CRC is checked before any column is decoded."""
    data = encode_frame(keyed(), codec="lz4", topic_id="id", partition=0, log_append_time=False, base_offset=0).joined()
    for at in range(21, len(data)):
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << at % 8
        parsed = frame.parse(pa.py_buffer(bytes(spoiled)), 0) if at > 26 and not 57 <= at < 61 else None
        if parsed is not None:
            with pytest.raises(CorruptionError, match="CRC-32C"):
                frame.open_payload(parsed)


def test_the_identity_has_how_columns_are_stored() -> None:
    identity = payload_of(keyed()).identity
    assert identity.columns == '{"7":["dictionary",1,0,1604],"8":["delta",1,0,1],"9":["reference",1,1,0]}'
    assert (identity.kind, identity.is_typed, identity.is_sparse) == ("arrow-columns", True, False)
    assert frame_rows.schema_bytes(payload_of(keyed())) == keyed().schema.serialize().to_pybytes()


def test_a_frame_of_a_typed_kind_says_how_columns_are_stored() -> None:
    data = encode_frame(keyed(), codec="lz4", topic_id="id", partition=0, log_append_time=False, base_offset=0).joined()
    spoiled = data.replace(b"\x0ecolumns", b"\x0ecolumnz")
    spoiled = spoiled[:17] + crc32c(spoiled[21:]).to_bytes(4, "big") + spoiled[21:]

    with pytest.raises(CorruptionError, match="its record does not parse"):
        frame.open_payload(frame.parse_encoded(spoiled))
