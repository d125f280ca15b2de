"""What a message says of itself is checked before Arrow gets it: every number of it, forged one at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import arrow_metadata, untyped
from pyspark_commitlog.format.columns.arrow_metadata import MAX_DECODED_BYTES
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, SPARSE_SCHEMA, TIMESTAMP
from pyspark_commitlog.format.frame import MAX_ROWS
from tests.support.forged import GIB, bomb, forged, numbers_of, prefix_places

CODECS = ("none", "lz4", "zstd")


def batch(rows: int = 100, *, headers: bool = True) -> pa.RecordBatch:
    """Return records with nulls and empty values in every column that may have some."""
    each = [[("a", b"1"), ("", None)], None, [], [("c", b"x" * 30)]]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None if n % 7 == 0 else b"k%d" % n for n in range(rows)], pa.binary()),
            pa.array([b"value" * (n % 50) if n % 5 else None for n in range(rows)], pa.binary()),
            pa.array([each[n % 4] if headers else None for n in range(rows)], HEADERS),
            pa.array(range(rows), pa.int64()).view(TIMESTAMP),
        ],
        schema=SCHEMA,
    )


def sparse(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as a sparse frame has them."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(range(rows.num_rows), pa.int32())], schema=SPARSE_SCHEMA)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rows", [0, 1, 100, 5000, MAX_ROWS])
@pytest.mark.parametrize("headers", [False, True])
def test_tells_what_a_message_decodes_to(codec: str, rows: int, headers: bool) -> None:
    for told in (batch(rows, headers=headers), batch(rows + 3, headers=headers).slice(3)):
        if told.num_rows > MAX_ROWS:
            continue
        for each in (told, sparse(told)):
            thin = each.num_columns > len(SCHEMA)
            message = untyped.encode(each, codec)
            decoded = untyped.decode(message, sparse=thin)
            assert decoded.equals(each)
            taken = sum(buffer.size for column in decoded.columns for buffer in column.buffers() if buffer is not None)
            size = untyped.decoded_bytes(message, sparse=thin)
            assert size == taken or not each.num_rows  # of none, nothing of the message is kept
            assert size >= each.nbytes - 64


def test_rows_without_a_byte_of_data_are_counted() -> None:
    """All null, or of no length: 65,536 rows have offsets all the same."""
    rows = MAX_ROWS
    for value in (None, b""):
        each = pa.RecordBatch.from_arrays(
            [pa.array([value] * rows, pa.binary())] * 2
            + [
                pa.array([None if value is None else []] * rows, HEADERS),
                pa.array([0] * rows, pa.int64()).view(TIMESTAMP),
            ],
            schema=SCHEMA,
        )
        for codec in CODECS:
            message = untyped.encode(each, codec)
            assert untyped.decode(message, sparse=False).equals(each)
            assert untyped.decoded_bytes(message, sparse=False) >= rows * (3 * 4 + 8)


@pytest.mark.parametrize("codec", CODECS)
def test_more_rows_than_a_frame_may_have_are_refused(codec: str) -> None:
    message = untyped.encode(batch(MAX_ROWS + 1), codec)
    with pytest.raises(CorruptionError, match=f"{MAX_ROWS + 1} rows, expected {MAX_ROWS} at most"):
        untyped.decode(message, sparse=False)


@pytest.mark.parametrize("thin", [False, True])
def test_a_message_of_another_schema_is_refused(thin: bool) -> None:
    message = untyped.encode(batch() if thin else sparse(batch()), "lz4")
    with pytest.raises(CorruptionError, match="nodes or buffers"):
        untyped.decode(message, sparse=thin)


def refused(message: bytes, *, rows: bool = False) -> None:
    """Both the check of a message that is not decoded, and decoding, refuse it; Arrow takes next to no memory."""
    buffer = pa.py_buffer(message)
    with pytest.raises(CorruptionError, match="does not parse"):
        untyped.decoded_bytes(buffer, sparse=False)
    if not rows:  # the rows are Arrow's to check
        with pytest.raises(CorruptionError, match="does not parse"):
            arrow_metadata.decoded_bytes(buffer, arrow_metadata.shape_of(SCHEMA))
    with pytest.raises(CorruptionError, match="does not parse"):
        untyped.decode(buffer, sparse=False)


NUMBERS = {
    "negative": lambda value: -1 - value,
    "least": lambda _: -(2**63),
    "largest": lambda _: 2**63 - 1,
    "2^40": lambda _: 2**40,
    "2^32 more": lambda value: value + 2**32,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("change", NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_cannot_be_is_refused(codec: str, change: Callable[[int], int]) -> None:
    """Of the rows, the body, each node (length, nulls) and each buffer (place, length)."""
    message = untyped.encode(batch(), codec).to_pybytes()
    for what, at, value in numbers_of(message):
        for warm in (False, True):  # of a layout that is known, and of one that is not
            arrow_metadata._layouts.clear()
            if warm:
                untyped.decode(pa.py_buffer(message), sparse=False)
            try:
                refused(forged(message, at, change(value)), rows=what in ("values", "nulls"))
            except pytest.fail.Exception:
                pytest.fail(f"{what} at {at}: {value} became {change(value)}")


@pytest.mark.parametrize("codec", CODECS)
def test_rows_that_the_buffers_have_no_bytes_for_are_refused(codec: str) -> None:
    """One more, of any column, header or field of a header."""
    message = untyped.encode(batch(64), codec).to_pybytes()
    for what, at, value in numbers_of(message):
        if what == "values":
            refused(forged(message, at, value + 1), rows=True)
        if what == "nulls":
            refused(forged(message, at, 10_000), rows=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("nodes", [(0, 1, 2, 6), (3, 4, 5)], ids=["records", "headers"])
def test_a_row_more_in_all_columns_is_refused(codec: str, nodes: tuple[int, ...]) -> None:
    """They are equally long, and their bitmaps have room for it; only its offset is missing."""
    rows = batch(59)
    message = untyped.encode(rows, codec).to_pybytes()
    found = numbers_of(message)
    places = [at for what, at, _ in found if what == "values"]
    changed = [places[node] for node in nodes] + [at for what, at, _ in found if what == "rows" and 0 in nodes]
    for at in changed:
        message = forged(message, at, struct.unpack_from("<q", message, at)[0] + 1)
    refused(message, rows=True)


@pytest.mark.parametrize("codec", CODECS)
def test_a_buffer_that_reaches_behind_the_body_is_refused(codec: str) -> None:
    message = untyped.encode(batch(), codec).to_pybytes()
    for what, at, value in numbers_of(message):
        if what in ("places", "lengths"):
            with pytest.raises(CorruptionError):
                untyped.decoded_bytes(pa.py_buffer(forged(message, at, value + len(message) // 8 * 8)), sparse=False)
        if what == "places":
            refused(forged(message, at, value + 4))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("claimed", [-2, -(2**63), 2**63 - 1, 8 * GIB, 2**31, 2**31 - 1, 70 * 2**20])
def test_a_compressed_buffer_that_claims_what_cannot_be_is_refused(codec: str, claimed: int) -> None:
    """Negative, more than a frame may hold, or than so few bytes can become: lz4 makes 256 of one at most."""
    message = untyped.encode(batch(), codec).to_pybytes()
    for at in prefix_places(message):
        told = forged(message, at, claimed)
        if codec == "zstd" and claimed == 70 * 2**20:  # 4 bytes can become 128 KiB
            with pytest.raises(CorruptionError):
                untyped.decode(pa.py_buffer(told), sparse=False)
        else:
            refused(told)


def test_the_sum_of_all_buffers_is_what_counts() -> None:
    """None of them is too large by itself."""
    message = untyped.encode(batch(60_000), "zstd").to_pybytes()
    for at in prefix_places(message):
        message = forged(message, at, MAX_DECODED_BYTES // 4)
    with pytest.raises(CorruptionError, match=f"a frame to {MAX_DECODED_BYTES} at most"):
        untyped.decode(pa.py_buffer(message), sparse=False)


def test_bytes_that_are_not_compressed_count_as_they_are() -> None:
    """Arrow's mark of them is −1 in the place of the length."""
    message = untyped.encode(batch(), "zstd").to_pybytes()
    sizes = [struct.unpack_from("<q", message, at)[0] for at in prefix_places(message)]
    pairs = [value for what, _, value in numbers_of(message) if what in ("places", "lengths")]
    start = 8 + struct.unpack_from("<i", message, 4)[0]
    lengths = {start + place: length for place, length in zip(pairs[::2], pairs[1::2], strict=True) if length}
    for at, size in zip(prefix_places(message), sizes, strict=True):
        told = untyped.decoded_bytes(pa.py_buffer(message), sparse=False)
        plain = arrow_metadata.decoded_bytes(pa.py_buffer(forged(message, at, -1)), arrow_metadata.shape_of(SCHEMA))[0]
        assert plain == told - size + lengths[at] - 8


@pytest.mark.parametrize("codec", CODECS)
def test_any_flipped_byte_of_the_metadata_is_refused_or_takes_no_memory(codec: str) -> None:
    """Whatever Arrow would make of it, the check comes first, and takes the same numbers for the same things."""
    rows = batch(200)
    message = untyped.encode(rows, codec).to_pybytes()
    for at in range(8 + struct.unpack_from("<i", message, 4)[0]):
        for flip in (1, 0x80, 0xFF):
            told = bytearray(message)
            told[at] ^= flip
            try:
                found = untyped.decode(pa.py_buffer(bytes(told)), sparse=False)
            except CorruptionError:
                continue
            size = arrow_metadata.decoded_bytes(pa.py_buffer(bytes(told)), arrow_metadata.shape_of(SCHEMA))[0]
            assert size <= 2 * rows.nbytes + 10_000
            assert found.num_rows <= MAX_ROWS


def test_metadata_of_an_older_version_is_refused() -> None:
    """V4 names its compression in another place, so the lengths before the buffers would go unseen."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    message = batch().serialize()
    old = pa.BufferOutputStream()
    with pa.ipc.new_stream(old, SCHEMA, options=options) as writer:
        writer.write_batch(batch())
    stream = old.getvalue()
    head = pa.ipc.read_message(stream)
    assert head.metadata_version == pa.ipc.MetadataVersion.V4
    with pa.BufferReader(stream) as reader:
        schema_message = pa.ipc.read_message(reader)
        start = reader.tell()
    assert schema_message.type == "schema"
    with pytest.raises(CorruptionError, match="V5"):
        untyped.decode(stream.slice(start, message.size), sparse=False)


@pytest.mark.parametrize("buffer", [1, 2, 5])
def test_a_true_claim_of_more_than_a_frame_may_hold_is_refused(buffer: int) -> None:
    """It holds what it says: 96 KiB of Zstandard that are 3 GiB of zeros."""
    message = bomb(batch(10), buffer, 3 * GIB)
    assert len(message) < 2**19
    refused(message)


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_an_offset_that_leads_beside_its_buffer_is_refused(column: str) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"key": b"k", "value": b"v", "headers": [("a", b"1")], "timestamp": 0}] * 4, SCHEMA
    )
    message = untyped.encode(rows, "none").to_pybytes()
    buffer = {"key": 1, "value": 4, "headers": 7}[column]  # behind the bitmap of each
    start = 8 + struct.unpack_from("<i", message, 4)[0]
    place = [value for what, _, value in numbers_of(message) if what == "places"][buffer]
    assert struct.unpack_from("<5i", message, start + place) == (0, 1, 2, 3, 4)  # the ends stay: Arrow looks at them
    wrong = message[: start + place + 8] + struct.pack("<i", 2**30) + message[start + place + 12 :]
    assert untyped.decode(pa.py_buffer(message), sparse=False).equals(rows)
    with pytest.raises(CorruptionError, match="does not parse"):
        untyped.decode(pa.py_buffer(wrong), sparse=False)


def test_a_message_without_rows_brings_no_offset_of_its_own() -> None:
    message = untyped.encode(pa.RecordBatch.from_pylist([], SCHEMA), "none").to_pybytes()
    start = 8 + struct.unpack_from("<i", message, 4)[0]
    place = [value for what, _, value in numbers_of(message) if what == "places"][7]
    wrong = message[: start + place] + struct.pack("<i", 2**30) + message[start + place + 4 :]
    decoded = untyped.decode(pa.py_buffer(wrong), sparse=False)
    assert decoded.schema == SCHEMA
    assert decoded.num_rows == 0
    assert decoded.column("headers").offsets.to_pylist() == [0]  # Arrow's nbytes would read there


POINT = pa.struct([("x", pa.int16()), ("label", pa.string())])
#: Columns of each kind that a schema may have, with nulls, and rows without bytes.
KINDS: dict[str, pa.Array] = {
    "boolean": pa.array([True, None, False] * 70, pa.bool_()),
    "byte": pa.array([1, None, -1] * 70, pa.int8()),
    "double": pa.array([1.5, None, float("nan")] * 70, pa.float64()),
    "decimal": pa.array([Decimal("1.25"), None, Decimal("-9.75")] * 70, pa.decimal128(38, 2)),
    "wide decimal": pa.array([Decimal("1.25"), None, Decimal("-9.75")] * 70, pa.decimal256(50, 2)),
    "date": pa.array([1, None, -1] * 70, pa.date32()),
    "timestamp": pa.array([1, None, -1] * 70, pa.timestamp("us")),
    "string": pa.array(["a", None, ""] * 70, pa.string()),
    "fixed binary": pa.array([b"abcde", None, b"12345"] * 70, pa.binary(5)),
    "null": pa.array([None] * 210, pa.null()),
    "list": pa.array([[1, None], None, []] * 70, pa.list_(pa.int32())),
    "map": pa.array([[("a", 1), ("b", None)], None, []] * 70, pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1, "label": "a"}, None, {"x": None, "label": None}] * 70, POINT),
    "nested": pa.array([[[("a", [{"x": 1, "label": ""}])]], None, [[], None]] * 70,
                       pa.list_(pa.map_(pa.string(), pa.list_(POINT)))),
    "null in a list": pa.array([[None], None, []] * 70, pa.list_(pa.null())),
}  # fmt: skip


def message_of(rows: pa.RecordBatch, codec: str) -> pa.Buffer:
    """Return rows as a message, without the schema's before it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    writer = pa.ipc.new_stream(sink, rows.schema, options=options)
    writer.write_batch(rows)
    return sink.getvalue().slice(rows.schema.serialize().size)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("alone", [False, True], ids=["with another", "alone"])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_any_kind_are_measured(kind: str, alone: bool, codec: str) -> None:
    columns_of = {kind: KINDS[kind]} if alone else {kind: KINDS[kind], "other": pa.array(range(210), pa.int64())}
    for rows in (pa.record_batch(columns_of), pa.record_batch(columns_of).slice(3, 5), pa.record_batch(columns_of)[:0]):
        message, shape = message_of(rows, codec), arrow_metadata.shape_of(rows.schema)
        taken = sum(buffer.size for column in pa.ipc.read_record_batch(message, rows.schema).columns
                    for buffer in column.buffers() if buffer is not None)  # fmt: skip
        size = arrow_metadata.checked_bytes(message, shape)
        assert arrow_metadata.decoded_bytes(message, shape)[0] == size
        assert size >= taken or not rows.num_rows
        assert size <= taken + 64 * shape.buffers, "padding"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "null"])
def test_of_columns_of_any_kind_more_values_than_their_bytes_are_refused(kind: str, codec: str) -> None:
    rows = pa.record_batch({kind: KINDS[kind]})
    message, shape = message_of(rows, codec).to_pybytes(), arrow_metadata.shape_of(rows.schema)
    nodes = [(at, value) for what, at, value in numbers_of(message) if what == "values"]
    for node, (at, value) in enumerate(nodes):
        if any(node == having for having, _ in shape.bitmaps):  # nulls take no bytes
            more = forged(message, at, value + 10_000)
            with pytest.raises(CorruptionError, match="does not parse"):
                arrow_metadata.checked_bytes(pa.py_buffer(more), shape)
    said = [at for what, at, _ in numbers_of(message) if what in ("rows", "values")]
    more = message
    for at in said:
        more = forged(more, at, 60_000)
    with pytest.raises(CorruptionError, match="values can't be in a buffer"):
        arrow_metadata.checked_bytes(pa.py_buffer(more), shape)


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.large_string(), pa.dense_union([]),
             pa.list_(pa.int8(), 3), pa.run_end_encoded(pa.int16(), pa.int8())], ids=str,
)  # fmt: skip
def test_a_type_whose_buffers_are_not_known_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="no column has the Arrow type"):
        arrow_metadata.shape_of(pa.schema([("a", kind)]))


def test_schemas_alike_do_not_evict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three columns, with metadata of one length: compression takes as much of it as a buffer."""
    alike = [(["string", "double", "byte"], "none"), (["date", "double", "byte"], "lz4")]
    messages = []
    for names, codec in alike:
        rows = pa.record_batch({name: KINDS[name] for name in names})
        messages.append((message_of(rows, codec), arrow_metadata.shape_of(rows.schema)))
    assert len({struct.unpack_from("<i", message, 4) for message, _ in messages}) == 1
    for told in messages:
        arrow_metadata.decoded_bytes(*told)

    def learn(*_: object) -> None:
        raise AssertionError("it was known")

    monkeypatch.setattr(arrow_metadata, "_learn", learn)
    for told in messages:
        arrow_metadata.decoded_bytes(*told)
