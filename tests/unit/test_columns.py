"""A frame's columns: encoded with every codec, decoded whole or in part."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import messages, untyped
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, SPARSE_SCHEMA, TIMESTAMP
from tests.support.pools import counting_pool

CODECS = ("none", "lz4", "zstd")


def batch(rows: int = 4, value: bytes = b"v") -> pa.RecordBatch:
    headers = [[("h", b"1"), ("h", None)], [], None, [("", b"")]]
    arrays = [
        pa.array([b"k%d" % i if i % 2 else None for i in range(rows)], pa.binary()),
        pa.array([value if i % 3 else None for i in range(rows)], pa.binary()),
        pa.array([headers[i % 4] for i in range(rows)], HEADERS),
        pa.array(range(rows), TIMESTAMP),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def sparse(deltas: list[int]) -> pa.RecordBatch:
    arrays = [*batch(len(deltas)).columns, pa.array(deltas, pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, schema=SPARSE_SCHEMA)


@pytest.mark.parametrize("codec", CODECS)
def test_decodes_what_it_encoded(codec: str) -> None:
    assert untyped.decode(untyped.encode(batch(), codec), sparse=False).equals(batch())


@pytest.mark.parametrize("codec", CODECS)
def test_a_thinned_batch_keeps_its_offset_deltas(codec: str) -> None:
    written = sparse([1, 5, 65535])

    assert untyped.decode(untyped.encode(written, codec), sparse=True).equals(written)


@pytest.mark.parametrize(
    ("column", "names"), [("timestamp", None), ("timestamp", ["timestamp"]), ("offsetDelta", None)]
)
def test_refuses_a_row_without_what_every_row_has(column: str, names: list[str] | None) -> None:
    written = sparse([1, 5, 65535])
    at = written.schema.get_field_index(column)
    written = written.set_column(at, written.schema.field(at), pa.array([0, None, 7]).cast(written.schema.types[at]))
    message = untyped.encode(written, "none")
    with pytest.raises(CorruptionError, match=f"{column} is null in 1 of 3 rows"):
        untyped.decode(message, sparse=True, names=names)
    assert untyped.decode(message, sparse=True, names=["key"]).num_rows == 3


@pytest.mark.parametrize("codec", CODECS)
def test_decodes_a_message_at_any_position_of_a_file(codec: str) -> None:
    message = untyped.encode(batch(), codec).to_pybytes()

    for shift in range(9):
        shifted = pa.py_buffer(bytes(shift) + message).slice(shift)
        assert untyped.decode(shifted, sparse=False).equals(batch()), f"at position {shift}"


@pytest.mark.parametrize("shift", range(1, 9))
def test_what_is_decoded_is_aligned_wherever_the_message_lay(shift: int) -> None:
    message = untyped.encode(batch(), "none").to_pybytes()

    found = untyped.decode(pa.py_buffer(bytes(shift) + message).slice(shift), sparse=False)

    buffers = [buffer for column in found.columns for buffer in column.buffers()[1:2] if buffer]
    assert len(buffers) == 4
    assert all(buffer.address % 4 == 0 for buffer in buffers)


def test_decodes_the_columns_asked_for_in_the_order_of_the_schema() -> None:
    message = untyped.encode(batch(), "zstd")

    found = untyped.decode(message, sparse=False, names=["timestamp", "key"])

    assert found.equals(batch().select(["key", "timestamp"]))


def test_columns_not_asked_for_are_not_decompressed() -> None:
    message = untyped.encode(batch(rows=100, value=bytes(100_000)), "zstd")
    before, pool = pa.default_memory_pool(), counting_pool()

    def most(*names: str) -> int:
        untyped.decode(message, sparse=False, names=names)
        return pool.max_memory()

    pa.set_memory_pool(pool)
    try:
        with mock.patch.object(messages, "_idle", OrderedDict()):  # decoders keep their pool
            assert most("key", "timestamp") < 100_000
            assert most("key", "value") > 6_000_000
    finally:
        pa.set_memory_pool(before)


def test_encodes_only_the_rows_of_a_slice() -> None:
    part = batch(rows=1000).slice(500, 4)

    assert untyped.encode(part, "none").size < 2 * untyped.encode(batch(rows=4), "none").size
    assert untyped.decode(untyped.encode(part, "none"), sparse=False).equals(part)


def test_compression_makes_it_smaller() -> None:
    sizes = [untyped.encode(batch(rows=100, value=bytes(1000)), codec).size for codec in CODECS]

    assert sizes[1] < sizes[0] / 10
    assert sizes[2] < sizes[0] / 10


def test_the_message_has_no_schema_before_it() -> None:
    message = untyped.encode(batch(), "none")

    assert pa.ipc.read_message(message).type == "record batch"
    assert pa.ipc.read_record_batch(message, SCHEMA).equals(batch())


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff\xff\xff\xff\0\0\0\0", b"\xff\xff\xff\xff\x08\0\0\0garbage!", b"\xff\xff\xff\xff\x08\0"],
    ids=["nothing", "the end of a stream", "garbage", "cut off"],
)
def test_refuses_bytes_that_are_no_message_and_goes_on_with_the_next(message: bytes) -> None:
    whole = untyped.encode(batch(), "lz4")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="does not parse"):
            untyped.decode(pa.py_buffer(message), sparse=False)
        assert untyped.decode(whole, sparse=False).equals(batch())


@pytest.mark.parametrize("cut", [1, 100, 250])
def test_refuses_a_message_that_is_cut_off(cut: int) -> None:
    whole = untyped.encode(batch(), "lz4")
    with pytest.raises(CorruptionError, match="does not parse"):
        untyped.decode(whole.slice(0, whole.size - cut), sparse=False)
    assert untyped.decode(whole, sparse=False).equals(batch())


@pytest.mark.parametrize("names", [None, ("timestamp",)], ids=["all", "one"])
@pytest.mark.parametrize("codec", CODECS)
def test_an_interrupt_within_a_message_spoils_nothing_of_the_next(
    codec: str, names: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a notebook, say, whose next cell goes on reading."""
    encoded, real = [untyped.encode(batch(rows), codec) for rows in (4000, 3000)], messages._Feed.read
    for before in range(4):
        reads = iter([False] * before)

        def read(feed: messages._Feed, size: int, reads: Iterator[bool] = reads) -> pa.Buffer | bytes:
            if next(reads, True):
                raise KeyboardInterrupt
            return real(feed, size)

        untyped.decode(encoded[1], sparse=False, names=names)
        with monkeypatch.context() as patched:
            patched.setattr(messages._Feed, "read", read)
            with pytest.raises(KeyboardInterrupt):
                untyped.decode(encoded[0], sparse=False, names=names)
        found = untyped.decode(encoded[1], sparse=False, names=names)
        assert found.equals(batch(3000).select(names or SCHEMA.names)), f"interrupted behind {before} reads"


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_that_is_decoded_within_another_s_decoding_takes_nothing_of_it(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads take turns in the midst of a message, whenever Arrow asks for its next bytes."""
    encoded, real = [untyped.encode(batch(rows), codec) for rows in (4000, 3000)], messages._Feed.read
    turns, within = iter([True, False, True, True]), list[pa.RecordBatch]()
    untyped.decode(encoded[1], sparse=False)  # there is a decoder that was used before

    def read(feed: messages._Feed, size: int) -> pa.Buffer | bytes:
        if next(turns, False):
            within.append(untyped.decode(encoded[1], sparse=False))
        return real(feed, size)

    monkeypatch.setattr(messages._Feed, "read", read)
    assert untyped.decode(encoded[0], sparse=False).equals(batch(4000))
    assert len(within) == 3
    assert all(each.equals(batch(3000)) for each in within)


def test_keeps_no_more_decoders_than_threads_mostly_decode_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one in the midst of the one before, as deep as there may be threads."""
    monkeypatch.setattr(messages, "_idle", OrderedDict())
    message, real = untyped.encode(batch(), "none"), messages._Feed.read
    deeper = iter(range(messages._MOST_IDLE + 4))

    def read(feed: messages._Feed, size: int) -> pa.Buffer | bytes:
        if next(deeper, None) is not None:
            untyped.decode(message, sparse=False)
        return real(feed, size)

    monkeypatch.setattr(messages._Feed, "read", read)
    untyped.decode(message, sparse=False)
    assert [len(each) for each in messages._idle.values()] == [messages._MOST_IDLE]


@pytest.mark.parametrize("claimed", [2**31, 2**40, 2**62, -7])
def test_refuses_a_buffer_that_claims_more_than_it_holds(claimed: int) -> None:
    """The length stands before the compressed bytes; no such memory is taken."""
    written = batch(rows=100, value=bytes(1237))
    message = untyped.encode(written, "lz4").to_pybytes()
    stands = sum(len(value or b"") for value in written.column("value").to_pylist()).to_bytes(8, "little")
    assert stands in message
    with pytest.raises(CorruptionError, match="does not parse"):
        untyped.decode(pa.py_buffer(message.replace(stands, claimed.to_bytes(8, "little", signed=True))), sparse=False)


@pytest.mark.parametrize("cut", [0, 250])
def test_keeps_nothing_of_a_message(cut: int) -> None:
    """Not the bytes either, which may be a mapped file's: a bytearray that somebody looks into can't be emptied."""
    stored = bytearray(untyped.encode(batch(rows=1000), "none").to_pybytes())
    with suppress(CorruptionError):
        untyped.decode(pa.py_buffer(stored).slice(0, len(stored) - cut), sparse=False)
    stored.clear()
