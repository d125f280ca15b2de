"""Typed frames that say what they should not, with a right CRC: damage, never another error, and no memory for it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import arrow_metadata, frame_rows, messages, typed
from pyspark_commitlog.format.columns.messages import MessageSchema
from pyspark_commitlog.format.columns.untyped import TIMESTAMP
from pyspark_commitlog.format.frame import COLUMNS, SPARSE_COLUMNS, Identity, Payload
from tests.support.pools import counting_pool
from tests.support.typed_rows import batch_of_columns

ROWS = 300
MIB = 2**20
VALUES = MessageSchema(pa.schema([pa.field("values", pa.binary())]))
METADATA = {b"key": b"", b"timestamp": b""}


def rows(**more: pa.Array) -> pa.RecordBatch:
    """Return rows whose columns are stored in all ways: 1, 2 by dictionary, 3 by reference, 4 by deltas, 5, 6 plain."""
    columns = {
        "1": pa.array(["click", None, "view"] * (ROWS // 3)),
        "2": pa.array([b"a" * 9, b"b" * 9, b""] * (ROWS // 3)),
        "3": pa.array([5, None, 70_000] * (ROWS // 3)),
        "4": pa.array(range(0, 1000 * ROWS, 1000)),
        "5": pa.array([str(n) * 5 for n in range(ROWS)]),
        "6": pa.array([[n] for n in range(ROWS)], pa.list_(pa.int8() if ROWS < 128 else pa.int32())),
        **more,
        "timestamp": pa.array(range(ROWS), TIMESTAMP),
    }
    return batch_of_columns(columns)


def payload(value: pa.Buffer | bytes, columns: str, kind: str = COLUMNS) -> Payload:
    return Payload(Identity("id", 0, "none", kind, columns=columns), pa.py_buffer(value))


def forged(how: dict[str, Any]) -> Payload:
    """Return a frame whose header says something else of some columns."""
    encoded = frame_rows.encode(rows(), "lz4")
    assert encoded.columns is not None
    return payload(encoded.value, json.dumps({**json.loads(encoded.columns), **how}))


def parts() -> tuple[bytes, list[bytes], bytes, dict[str, Any]]:
    """Return a frame's schema message, dictionaries, rows, and header."""
    encoded = frame_rows.encode(rows(), "none")
    assert encoded.columns is not None
    found, at = list[bytes](), 0
    while at < encoded.value.size:
        size = arrow_metadata.message_bytes(encoded.value, at)
        found.append(encoded.value.slice(at, size).to_pybytes())
        at += size
    head, *dictionaries, last = found
    return head, dictionaries, last, json.loads(encoded.columns)


def refused(found: Payload, names: list[str] | None = None, match: str | None = None) -> None:
    """Check that a frame is refused by who reads it, and by who only passes it on, if that needs no values."""
    with pytest.raises(CorruptionError, match=match):
        frame_rows.decode(found, names)


def refused_by_all(found: Payload, match: str | None = None) -> None:
    refused(found, match=match)
    with pytest.raises(CorruptionError, match=match):
        frame_rows.decoded_bytes(found)


def test_the_rows_are_stored_in_all_ways() -> None:
    *_, header = parts()

    assert {name: storing[:3] for name, storing in header.items()} == {
        "1": ["dictionary", 1, 0], "2": ["dictionary", 1, 1], "3": ["reference", 4, 5], "4": ["delta", 1, 0],
        "timestamp": ["delta", 1, 0],
    }  # fmt: skip
    head, dictionaries, last, header = parts()
    assert frame_rows.decode(payload(head + b"".join(dictionaries) + last, json.dumps(header))).equals(rows())


@pytest.mark.parametrize(
    "how",
    [
        {"1": ["unknown", 1, 0, 2104]},
        {"1": ["", 1, 0, 2104]},
        {"1": ["plain", 1, 0, 2104]},
        {"1": ["dictionary", 3, 0, 2104]},
        {"1": ["dictionary", 0, 0, 2104]},
        {"1": ["dictionary", -1, 0, 2104]},
        {"1": ["dictionary", 8, 0, 2104]},
        {"1": ["dictionary", 1, 2, 2104]},
        {"1": ["dictionary", 1, 1, 2104]},
        {"1": ["dictionary", 1, -1, 2104]},
        {"1": ["dictionary", 1, 2**63, 2104]},
        {"1": ["dictionary", 1, 0, -1]},
        {"1": ["dictionary", 1, 0, 2**31]},
        {"1": ["dictionary", 1, 0, -(2**64)]},
        {"1": ["dictionary", 1, 0, 1.5]},
        {"1": ["dictionary", True, 0, 2104]},
        {"1": ["dictionary", 1]},
        {"1": ["dictionary", 1, 0, 2104, 0]},
        {"1": {"how": "dictionary", "width": 1, "first": 0}},
        {"1": None},
        {"1": ["reference", 1, 0, 0]},
        {"3": ["dictionary", 4, 2, 1200]},
        {"3": ["reference", 8, 5, 0]},
        {"3": ["reference", 4, 2**64, 0]},
        {"3": ["reference", 4, -(2**63) - 1, 0]},
        {"4": ["delta", 1, 0, 2**63]},
        {"4": ["delta", 2, 0, 1000]},
        {"5": ["dictionary", 1, 2, 1200]},
        {"6": ["reference", 1, 0, 0]},
        {"9": ["reference", 1, 0, 0]},
        {"headers": ["reference", 1, 0, 0]},
    ],
    ids=json.dumps,
)
def test_a_header_that_the_columns_contradict_is_refused(how: dict[str, Any]) -> None:
    refused_by_all(forged(how))


@pytest.mark.parametrize("columns", ["", "{", "[]", "null", '{"1":0}', "\ud7ff", "{}" * 2, "[" * 100_000])
def test_a_header_of_another_shape_is_refused(columns: str) -> None:
    refused_by_all(payload(frame_rows.encode(rows(), "none").value, columns))


@pytest.mark.parametrize("said", [0, 2103, 2105, 2**31 - 1 - 2**20])
def test_a_dictionary_expands_to_what_its_frame_says(said: int) -> None:
    header = parts()[3]
    assert header["1"] == ["dictionary", 1, 0, 100 * len("clickview") + 4 * (ROWS + 1)]

    refused(forged({"1": ["dictionary", 1, 0, said]}), match="expands to 2104 bytes")
    assert frame_rows.decode(forged({"1": ["dictionary", 1, 0, said]}), ["2"]).num_rows == ROWS


def test_numbers_beyond_their_type_are_taken_modulo_its_range() -> None:
    """What makes no sense is not damage: the CRC is right, and nothing is read beside its buffer."""
    found = frame_rows.decode(forged({"4": ["delta", 1, 2**63 - 1, 2**63 - 1], "3": ["reference", 4, 2**63 - 1, 0]}))

    assert found.column("4")[1].as_py() == -2
    assert found.column("3")[0].as_py() == 2**63 - 1


def encoded_values(values: list[bytes | None]) -> bytes:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=VALUES.schema)
    return messages.encode(batch, VALUES, "none").to_pybytes()


@pytest.mark.parametrize("values", [[], [b"click"], [b"click", None]])
def test_an_index_beyond_its_dictionary_or_of_a_null_is_refused(values: list[bytes | None]) -> None:
    head, (_, second), last, header = parts()

    refused(payload(head + encoded_values(values) + second + last, json.dumps(header)))


@pytest.mark.parametrize(
    "change",
    [
        lambda head, one, two, last: head + two + last,
        lambda head, one, two, last: head + one + last,
        lambda head, one, two, last: head + one + two,
        lambda head, one, two, last: head,
        lambda head, one, two, last: b"",
        lambda head, one, two, last: one + two + last,
        lambda head, one, two, last: head + one + one + two + last,
        lambda head, one, two, last: head + one + two + last + last,
        lambda head, one, two, last: head + one + two + last + bytes(8),
        lambda head, one, two, last: head + one + two[:-8] + last,
        lambda head, one, two, last: head + one + two + last[:-8],
        lambda head, one, two, last: head + head + one + two + last,
        lambda head, one, two, last: head[:-8] + one + two + last,
        lambda head, one, two, last: head + one + two + one,
        lambda head, one, two, last: last + one + two + last,
    ],
)
def test_messages_that_are_missing_cut_or_too_many_are_refused(change: Callable[..., bytes]) -> None:
    head, (one, two), last, header = parts()

    refused_by_all(payload(change(head, one, two, last), json.dumps(header)))


def test_every_cut_of_a_frame_is_refused() -> None:
    head, dictionaries, last, header = parts()
    whole = head + b"".join(dictionaries) + last
    for length in range(0, len(whole), 8):
        refused_by_all(payload(whole[:length], json.dumps(header)))


def test_a_flipped_byte_of_the_value_is_refused_or_gives_rows() -> None:
    """Whoever forges a CRC gets an error, or rows: never a crash, nor another error."""
    head, dictionaries, last, header = parts()
    whole, told = head + b"".join(dictionaries) + last, json.dumps(header)
    random = np.random.default_rng(7)
    for at in range(len(head) + 400):
        spoiled = bytearray(whole)
        spoiled[at] ^= 1 << int(random.integers(8))
        for names in (None, ["1"], ["4", "timestamp"]):
            try:
                assert frame_rows.decode(payload(bytes(spoiled), told), names).num_rows <= ROWS
            except CorruptionError:
                continue


def with_schema(schema: pa.Schema) -> Payload:
    """Return a frame of three empty rows of a schema, whatever it is."""
    batch = pa.RecordBatch.from_arrays([pa.nulls(3, field.type) for field in schema], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    return payload(stream.slice(0, stream.size - 8), "{}")


TIME = ("timestamp", TIMESTAMP)


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.struct([("a", pa.sparse_union([pa.field("a", pa.int8())]))]),
        pa.uuid(),
        pa.json_(),
        pa.bool8(),
        pa.opaque(pa.int8(), "a", "b"),
        pa.fixed_shape_tensor(pa.int32(), [2, 2]),
        pa.list_(pa.uuid()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.string_view(),
        pa.binary_view(),
        pa.list_view(pa.int8()),
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.large_string(),
        pa.large_binary(),
        pa.binary(3),
        pa.null(),
        pa.uint8(),
        pa.uint64(),
        pa.float16(),
        pa.date64(),
        pa.time32("s"),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.decimal32(5, 2),
        pa.decimal256(40, 2),
        pa.decimal128(5, -2),
        pa.struct([]),
        pa.struct([("a", pa.int8()), ("A", pa.int8())]),
    ],
    ids=str,
)
def test_a_type_that_no_column_has_is_refused(kind: pa.DataType) -> None:
    refused_by_all(with_schema(pa.schema([("7", kind), TIME], METADATA)))


def deep(levels: int) -> pa.DataType:
    return pa.list_(deep(levels - 1)) if levels else pa.int8()


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("7", pa.int8()), TIME]),
        pa.schema([("7", pa.int8()), TIME], {b"key": b""}),
        pa.schema([("7", pa.int8())], METADATA),
        pa.schema([("7", pa.int8()), ("timestamp", pa.int64())], METADATA),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"", b"timestamp": b"8"}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"", b"timestamp": b"7"}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"", b"timestamp": b"\xff"}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"7", b"timestamp": b""}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"8", b"timestamp": b""}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"\xff", b"timestamp": b""}),
        pa.schema([("7", pa.int8()), TIME], {b"key": b"timestamp", b"timestamp": b""}),
        pa.schema([("7", pa.int8()), ("7", pa.int8()), TIME], METADATA),
        pa.schema([TIME, TIME], METADATA),
        pa.schema([("name", pa.int8()), TIME], METADATA),
        pa.schema([("", pa.int8()), TIME], METADATA),
        pa.schema([("²", pa.int8()), TIME], METADATA),
        pa.schema([("headers", pa.int8()), TIME], METADATA),
        pa.schema([("offsetDelta", pa.int64()), TIME], METADATA),
        pa.schema([("7", deep(9)), TIME], METADATA),
        pa.schema([*((str(n), pa.int8()) for n in range(1003)), TIME], METADATA),
        pa.schema([], METADATA),
    ],
)
def test_a_schema_that_no_typed_frame_has_is_refused(schema: pa.Schema) -> None:
    refused_by_all(with_schema(schema))


@pytest.mark.parametrize("name", [b"\xff\xfe", b"7\xff"])
def test_a_field_whose_name_is_no_text_is_refused(name: bytes) -> None:
    schema = pa.schema([("9" * len(name), pa.int8()), TIME], METADATA)
    data = with_schema(schema).message.to_pybytes().replace(b"9" * len(name), name)

    refused_by_all(payload(data, "{}"))


def test_offsets_are_those_of_sparse_frames() -> None:
    dense = frame_rows.encode(rows(), "none")
    sparse = frame_rows.encode(frame_rows.with_deltas(rows(), pa.array(range(ROWS), pa.int32())), "none")
    assert dense.columns is not None
    assert sparse.columns is not None

    refused_by_all(payload(dense.value, dense.columns, SPARSE_COLUMNS), "offsetDelta")
    refused_by_all(payload(sparse.value, sparse.columns, COLUMNS), "offsetDelta")


def test_a_row_without_a_timestamp_is_refused() -> None:
    encoded = typed.encode(rows(), "none")
    time = pa.array([None, *range(ROWS - 1)], TIMESTAMP)
    without = typed.encode(rows().set_column(6, rows().schema.field(6), time), "none")

    assert encoded.columns != without.columns
    refused(payload(without.value, without.columns), match="timestamp is null in 1 of 300 rows")
    refused(payload(without.value, without.columns), ["timestamp"], match="timestamp is null")


# --- what little bytes expand to -------------------------------------------------------------------------------


def expanding(columns: int, value: int, count: int, said: int) -> Payload:
    """Return a frame whose columns are indices, each of the one large value of its dictionary."""
    schema = pa.schema([*((str(n), pa.binary()) for n in range(columns)), TIME], METADATA)
    stored = MessageSchema(pa.schema([*((str(n), pa.uint8()) for n in range(columns)), TIME]))
    arrays = [*[pa.array(np.zeros(count, np.uint8))] * columns, pa.array([0] * count, TIMESTAMP)]
    values = pa.RecordBatch.from_arrays([pa.array([bytes(value)])], schema=VALUES.schema)
    last = messages.encode(pa.RecordBatch.from_arrays(arrays, schema=stored.schema), stored, "zstd").to_pybytes()
    dictionary = messages.encode(values, VALUES, "zstd").to_pybytes()
    header = {str(n): ["dictionary", 1, n, said] for n in range(columns)}
    return payload(schema.serialize().to_pybytes() + dictionary * columns + last, json.dumps(header))


def peak(act: Callable[[], object]) -> int:
    """Return the most memory that Arrow had at a time."""
    before, pool = pa.default_memory_pool(), counting_pool()
    pa.set_memory_pool(pool)
    try:
        with mock.patch.object(messages, "_idle", OrderedDict()):  # decoders keep their pool
            act()
    finally:
        pa.set_memory_pool(before)
    return int(pool.max_memory())


@pytest.mark.parametrize(
    ("value", "said"), [(2048, 0), (2048, MIB), (MIB, 0), (MIB, MIB), (MIB, 2**31 - 2**22), (MIB, 2**63 - 1)]
)
def test_a_large_value_at_every_row_is_refused_before_it_takes_memory(value: int, said: int) -> None:
    """64 GiB of 1 MiB: from what it says if that is too much, else because it says less."""
    bomb = expanding(1, value, 65_536, said)

    assert bomb.message.size < 4096
    assert peak(lambda: refused(bomb, ["0"])) < 4 * MIB


def test_many_dictionaries_that_expand_a_little_are_refused_together() -> None:
    """Each to 64 MiB, which none has to say before: 64 GB in all, of less than 1 MB."""
    bomb = expanding(1000, 1000, 65_536, 65_000_000)

    assert bomb.message.size < MIB
    refused_by_all(bomb, "decodes to")
    assert peak(lambda: refused(expanding(1000, 1000, 65_536, 0))) < 200 * MIB


def test_large_dictionaries_count_with_what_they_expand_to() -> None:
    bomb = expanding(20, 120 * MIB, 1, 120 * MIB + 8)

    refused_by_all(bomb, "decodes to")
    assert frame_rows.decode(bomb, ["3"]).column("3").total_values_length == 120 * MIB


def test_narrow_numbers_count_in_their_own_width() -> None:
    schema = pa.schema([*((str(n), pa.int64()) for n in range(1000)), TIME], METADATA)
    stored = MessageSchema(pa.schema([*((str(n), pa.uint8()) for n in range(1000)), TIME]))
    arrays = [*[pa.array(np.zeros(100, np.uint8))] * 1000, pa.array([0] * 100, TIMESTAMP)]
    last = messages.encode(pa.RecordBatch.from_arrays(arrays, schema=stored.schema), stored, "zstd").to_pybytes()
    header = json.dumps({str(n): ["reference", 1, 0] for n in range(1000)})

    found = payload(schema.serialize().to_pybytes() + last, header)
    assert frame_rows.decoded_bytes(found) >= frame_rows.decode(found).nbytes == 8 * 100 * 1001


def test_what_a_frame_decodes_to_is_the_sum_of_its_parts() -> None:
    head, dictionaries, last, header = parts()
    stored = pa.schema(
        [("1", pa.uint8()), ("2", pa.uint8()), ("3", pa.uint32()), ("4", pa.uint8()), ("5", pa.binary()),
         ("6", pa.list_(pa.int32())), ("timestamp", pa.uint8())]
    )  # fmt: skip
    expected = arrow_metadata.checked_bytes(pa.py_buffer(last), arrow_metadata.shape_of(stored))
    expected += sum(arrow_metadata.checked_bytes(pa.py_buffer(each), VALUES.shape) for each in dictionaries)
    expected += header["1"][3] + header["2"][3] + (4 + 7 + 7) * ROWS

    assert frame_rows.decoded_bytes(payload(head + b"".join(dictionaries) + last, json.dumps(header))) == expected


def test_a_frame_that_says_too_much_is_refused_by_its_size() -> None:
    with pytest.raises(CorruptionError, match="decodes to"):
        frame_rows.decoded_bytes(forged({"1": ["dictionary", 1, 0, 2**31]}))
