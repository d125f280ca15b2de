"""The frame, byte by byte: what lies where, what stamping changes, and that nothing damaged gets through."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format import frame, varint
from pyspark_commitlog.format.frame import Frame, Identity, Times

TOPIC_ID = "6a1f0c9e-0000-4000-8000-00000000002a"
IDENTITY = Identity(TOPIC_ID, 7, "zstd")
TIMES = Times(1000, 1234)
MESSAGE = b"an Arrow message, as far as the frame knows"


def encode(rows: int = 3, *, times: Times = TIMES) -> bytes:
    return frame.encode(pa.py_buffer(MESSAGE), rows=rows, times=times, identity=IDENTITY)


def parse(data: bytes, position: int = 0) -> Frame:
    found = frame.parse(pa.py_buffer(data), position)
    assert found is not None
    return found


def with_record(record: bytes, length: int | None = None) -> bytes:
    """Return a frame around a record of one's own, with a CRC that holds; `length`: what it says of the record's."""
    told = varint.encode(len(record) if length is None else length)
    covered = struct.pack(">hiqqqhii", 0, 2, 1000, 1234, -1, -1, -1, 1) + told + record
    head = struct.pack(">qii", 0, len(covered) + 9, 0) + b"\x02"
    return head + struct.pack(">I", crc32c(covered)) + covered


def record(*, value_length: int = 3, key_length: int = -1, headers: bytes | None = None) -> bytes:
    parts = [varint.encode(n) for n in (234, 2, key_length, value_length)]
    return b"\0" + b"".join(parts) + b"abc" + (IDENTITY.encode() if headers is None else headers)


# --- what lies where --------------------------------------------------------------------------------------


def test_is_a_record_batch_of_kafkas_version_2() -> None:
    data = encode(rows=3)

    fields = struct.unpack_from(">qiibIhiqqqhii", data)

    crc = crc32c(data[21:])
    assert fields == (0, len(data) - 12, 0, 2, crc, 0, 2, 1000, 1234, -1, -1, -1, 1)


def test_holds_one_record_at_the_last_offset_with_the_largest_timestamp() -> None:
    data = encode(rows=70)

    length, at = varint.decode(data, 61)
    assert at + length == len(data)
    attributes, at = data[at], at + 1
    numbers = []
    for _ in range(4):
        number, at = varint.decode(data, at)
        numbers.append(number)

    assert (attributes, numbers) == (0, [234, 69, -1, len(MESSAGE)])
    assert data[at : at + len(MESSAGE)] == MESSAGE


def test_long_headers_are_read_and_not_kept() -> None:
    kept = frame._parsed.cache_info().currsize
    long = Identity("t" * 2000, 7, "lz4")
    assert frame.open_payload(parse(with_record(record(headers=long.encode())))).identity == long
    assert frame._parsed.cache_info().currsize == kept


@pytest.mark.parametrize("chunk", [None, "9b", "\x14chunk-uuid\x04ab"])
@pytest.mark.parametrize("topic", ["t", "t\x14chunk-uuid\x04ab", "\x14chunk-uuid"])
def test_an_identity_is_what_its_headers_say_whatever_they_look_like(topic: str, chunk: str | None) -> None:
    """Headers that differ in their last one only, the chunk, are parsed once."""
    for partition in (7, 8, 7):
        written = Identity(topic, partition, "\x14chunk-uuid\x02a", chunk=chunk)
        assert frame.open_payload(parse(with_record(record(headers=written.encode())))).identity == written


def test_nothing_comes_after_the_chunk() -> None:
    headers = Identity("t", 7, "lz4", chunk="9b").encode()
    with pytest.raises(CorruptionError, match="its headers end 1 bytes before it"):
        frame.open_payload(parse(with_record(record(headers=headers + b"x"))))


def test_the_record_headers_are_the_identity() -> None:
    written = Identity(TOPIC_ID, 7, "lz4", kind=frame.SPARSE, base_offset=2**40).encode()
    expected = {
        "kind": "arrow-ipc-thinned", "schema": "0", "version": "1", "topic": TOPIC_ID, "partition": "7",
        "codec": "lz4", "base": str(2**40),
    }  # fmt: skip

    count, at = varint.decode(written, 0)
    texts = []
    while at < len(written):
        size, at = varint.decode(written, at)
        texts.append(written[at : at + size].decode())
        at += size

    assert count == len(expected)
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == expected


def test_tells_log_append_time_in_attribute_bit_3() -> None:
    data = encode(times=Times(5, 5, log_append_time=True))

    assert data[21:23] == b"\x00\x08"
    assert parse(data).log_append_time
    assert not parse(encode()).log_append_time


# --- parsing ----------------------------------------------------------------------------------------------


def test_parses_what_it_encoded() -> None:
    found = parse(b"junk" + encode(rows=3) + b"more", 4)
    payload = frame.open_payload(found)

    assert (found.base_offset, found.last_offset, found.next_offset) == (0, 2, 3)
    assert (found.base_timestamp, found.max_timestamp) == (1000, 1234)
    assert payload.identity == IDENTITY
    assert payload.message.to_pybytes() == MESSAGE


def test_a_frame_cut_off_anywhere_is_no_frame_yet() -> None:
    data = encode()

    assert all(frame.parse(pa.py_buffer(data[:length]), 0) is None for length in range(len(data)))


def test_needed_bytes_tells_how_much_to_read() -> None:
    data = encode()

    assert frame.needed_bytes(pa.py_buffer(data[: frame.HEADER_BYTES]), 0) == len(data)
    assert frame.needed_bytes(pa.py_buffer(data[: frame.HEADER_BYTES - 1]), 0) == frame.HEADER_BYTES


@pytest.mark.parametrize(
    ("position", "kind", "value"),
    [(16, "b", 1), (8, "i", 48), (8, "i", -1), (23, "i", -1), (57, "i", 2)],
    ids=["magic", "shorter than its header", "negative length", "negative lastOffsetDelta", "two records"],
)
def test_refuses_a_header_that_cannot_be_one(position: int, kind: str, value: int) -> None:
    data = bytearray(encode())
    struct.pack_into(f">{kind}", data, position, value)

    with pytest.raises(CorruptionError, match="no frame at position 0"):
        frame.parse(pa.py_buffer(bytes(data)), 0)


# --- stamping ---------------------------------------------------------------------------------------------


def test_stamping_changes_only_offset_and_epoch() -> None:
    data = encode()

    head, rest = frame.stamp(parse(data), 2**40, 9)
    stamped = head + rest.to_pybytes()

    assert stamped[0:8] == struct.pack(">q", 2**40)
    assert stamped[12:16] == struct.pack(">i", 9)
    assert stamped[8:12] + stamped[16:] == data[8:12] + data[16:]
    assert frame.open_payload(parse(stamped)).identity == IDENTITY
    assert (parse(stamped).base_offset, parse(stamped).leader_epoch) == (2**40, 9)


# --- damage -----------------------------------------------------------------------------------------------


def is_noticed(data: bytes) -> bool:
    """Whether damaged bytes are refused, or are no whole frame."""
    try:
        found = frame.parse(pa.py_buffer(data), 0)
        if found is not None:
            frame.open_payload(found)
    except CorruptionError:
        return True
    return found is None


def test_every_flipped_bit_outside_the_stamp_is_noticed() -> None:
    data = encode()
    stamp = [*range(64), *range(96, 128)]  # baseOffset and partitionLeaderEpoch

    missed = []
    for bit in set(range(8 * len(data))).difference(stamp):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if not is_noticed(bytes(damaged)):
            missed.append(bit)

    assert not missed


def test_a_crc_that_fails_names_both() -> None:
    data = encode()
    damaged = data[:-1] + bytes((data[-1] ^ 1,))

    with pytest.raises(CorruptionError, match=f"offset 0: CRC-32C is .*, expected {parse(data).crc:08x}"):
        frame.open_payload(parse(damaged))


@pytest.mark.parametrize(
    "broken",
    [
        record()[:-1],
        record() + b"\0",
        record(key_length=0),
        record(value_length=-2),
        record(value_length=2**20),
        record(headers=b""),
        record(headers=varint.encode(0)),
        record(headers=varint.encode(2**40)),
        record(headers=varint.encode(2**40) + varint.encode(-1) * 2),
        record(headers=IDENTITY.encode().replace(b"kind", b"kin\xff")),
        record(headers=IDENTITY.encode().replace(b"\x027", b"\x02x")),
        record(headers=Identity(TOPIC_ID, 7, "none", kind=frame.SPARSE).encode()),
    ],
    ids=[
        "cut off", "bytes behind it", "with a key", "negative value length", "value beyond the end",
        "ends early", "no headers", "headers beyond the end", "negative header length", "not utf-8",
        "partition is no number", "sparse without its base",
    ],
)  # fmt: skip
def test_a_record_that_does_not_parse_is_corrupt_though_its_crc_holds(broken: bytes) -> None:
    with pytest.raises(CorruptionError, match="its record does not parse"):
        frame.open_payload(parse(with_record(broken)))


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_record_ends_where_its_frame_does(wrong: int) -> None:
    whole = record()
    frame.open_payload(parse(with_record(whole)))
    with pytest.raises(CorruptionError, match=f"record length {len(whole) + wrong}, expected {len(whole)}"):
        frame.open_payload(parse(with_record(whole, len(whole) + wrong)))


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"arrow-ipc", b"arrow-new"), (b"version\x021", b"version\x022"), (b"schema\x020", b"schema\x021")],
)
def test_refuses_what_a_newer_release_wrote_and_says_to_upgrade(old: bytes, new: bytes) -> None:
    headers = IDENTITY.encode()
    assert old in headers

    with pytest.raises(UnsupportedError, match="upgrade to read it"):
        frame.open_payload(parse(with_record(record(headers=headers.replace(old, new)))))
