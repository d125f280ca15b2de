"""Every codec and its inverse, and that nothing damaged decodes."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from awscrt.checksums import crc32c
from hypothesis import given, strategies as st

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format import entry, frame, varint
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.columns.untyped import SCHEMA
from pyspark_commitlog.format.entry import Checked, Entry
from pyspark_commitlog.format.frame import DENSE, Frame, Identity, Payload, Times
from tests.property.strategies import (
    batches,
    codecs,
    encode_frame,
    header_lists,
    identities,
    offsets,
    quick,
    quicker,
    sequences,
    times,
    uuids,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
entries = st.builds(
    Entry,
    journal=st.sampled_from(("topic", "settle")),
    kind=st.text(max_size=10),
    topic_id=uuids,
    sequence=sequences,
    write_id=uuids,
    prev=st.just("") | uuids,
    body=st.fixed_dictionaries({"state": json_values, "extents": json_values}),
)


def parse(data: bytes, position: int = 0) -> Frame:
    found = frame.parse(pa.py_buffer(data), position)
    assert found is not None
    return found


def opened(data: bytes) -> Payload | None:
    """Return what a frame holds; None when it is refused, or not whole."""
    try:
        found = frame.parse(pa.py_buffer(data), 0)
        return None if found is None else frame.open_payload(found)
    except (CorruptionError, UnsupportedError):
        return None


def decode(data: bytes, like: Entry) -> Entry:
    return entry.decode(data, where="it", journal=like.journal, sequence=like.sequence)


# --- varint -----------------------------------------------------------------------------------------------


def near(number: int) -> st.SearchStrategy[int]:
    return st.sampled_from((number - 1, number, -number, -number - 1)).filter(lambda n: -(2**63) <= n < 2**63)


@quick
@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_decodes_to_what_was_encoded(value: int, before: bytes, behind: bytes) -> None:
    written = varint.encode(value)

    assert varint.decode(before + written + behind, len(before)) == (value, len(before) + len(written))


@quick
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 63).flatmap(lambda bits: near(1 << bits)))
def test_a_varint_is_as_short_as_its_zigzag_value_allows(value: int) -> None:
    zigzag = 2 * value if value >= 0 else -2 * value - 1

    assert len(varint.encode(value)) == max(1, -(-zigzag.bit_length() // 7))


@quick
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_cut_off_anywhere_is_refused(value: int) -> None:
    written = varint.encode(value)

    for length in range(len(written)):
        with pytest.raises(ValueError, match="cut off"):
            varint.decode(written[:length], 0)


# --- columns ----------------------------------------------------------------------------------------------


@quick
@given(batches(), codecs)
def test_rows_decode_to_what_was_encoded(batch: pa.RecordBatch, codec: str) -> None:
    assert untyped.decode(untyped.encode(batch, codec), sparse=False).equals(batch)


@quicker
@given(batches(sparse=True), codecs)
def test_thinned_rows_decode_to_what_was_encoded(batch: pa.RecordBatch, codec: str) -> None:
    assert untyped.decode(untyped.encode(batch, codec), sparse=True).equals(batch)


@quick
@given(batches(max_rows=30), st.data(), codecs)
def test_a_slice_decodes_to_its_rows(batch: pa.RecordBatch, data: st.DataObject, codec: str) -> None:
    start = data.draw(st.integers(0, batch.num_rows - 1))
    part = batch.slice(start, data.draw(st.integers(1, batch.num_rows - start)))

    assert untyped.decode(untyped.encode(part, codec), sparse=False).to_pylist() == part.to_pylist()


@quick
@given(batches(), st.sets(st.sampled_from(SCHEMA.names), min_size=1), st.integers(0, 7))
def test_some_columns_decode_at_any_position(batch: pa.RecordBatch, asked: set[str], position: int) -> None:
    message = untyped.encode(batch, "zstd").to_pybytes()
    in_a_file = pa.py_buffer(bytes(position) + message).slice(position)

    found = untyped.decode(in_a_file, sparse=False, names=sorted(asked))

    assert found.equals(batch.select([name for name in SCHEMA.names if name in asked]))


# --- frame ------------------------------------------------------------------------------------------------


@quick
@given(batches(), identities(), times(), offsets, st.binary(max_size=9))
def test_a_frame_parses_to_what_was_encoded(
    batch: pa.RecordBatch, identity: Identity, at: Times, base_offset: int, before: bytes
) -> None:
    data = encode_frame(batch, identity, at, base_offset=base_offset)

    found = parse(before + data + before, len(before))
    payload = frame.open_payload(found)

    assert (found.base_offset, found.last_offset) == (base_offset, base_offset + batch.num_rows - 1)
    assert (found.base_timestamp, found.max_timestamp) == (at.base_ms, at.max_ms)
    assert (found.log_append_time, found.length, found.leader_epoch) == (at.log_append_time, len(data), 0)
    assert payload.identity == identity
    assert untyped.decode(payload.message, sparse=False).equals(batch)


@quick
@given(batches(), identities(), times(), offsets, st.integers(0, 2**31 - 1))
def test_stamping_leaves_crc_and_payload_as_they_are(
    batch: pa.RecordBatch, identity: Identity, at: Times, base_offset: int, epoch: int
) -> None:
    before = parse(encode_frame(batch, identity, at))

    head, rest = frame.stamp(before, base_offset, epoch)
    after = parse(head + rest.to_pybytes())

    assert (after.base_offset, after.leader_epoch) == (base_offset, epoch)
    assert replace(after, base_offset=0, leader_epoch=0) == before
    assert frame.open_payload(after).message.equals(frame.open_payload(before).message)


@quick
@given(batches(), identities(), times(), st.data())
def test_a_flipped_bit_outside_the_stamp_is_noticed(
    batch: pa.RecordBatch, identity: Identity, at: Times, data: st.DataObject
) -> None:
    written = bytearray(encode_frame(batch, identity, at))
    bit = data.draw(st.integers(64, 95) | st.integers(128, 8 * len(written) - 1))

    written[bit // 8] ^= 1 << bit % 8

    assert opened(bytes(written)) is None


@quicker
@given(batches(max_rows=3), identities(), times())
def test_a_frame_cut_off_anywhere_is_none_yet(batch: pa.RecordBatch, identity: Identity, at: Times) -> None:
    data = encode_frame(batch, identity, at)

    assert not any(frame.parse(pa.py_buffer(data[:length]), 0) for length in range(len(data)))


@quick
@given(batches(max_rows=2), identities(), times(), st.data())
def test_whatever_lies_under_a_good_crc_is_opened_or_refused_by_an_error_of_ours(
    batch: pa.RecordBatch, identity: Identity, at: Times, data: st.DataObject
) -> None:
    written = encode_frame(batch, identity, at)
    headers = len(written) - len(identity.encode())
    head = data.draw(st.integers(61, 70) | st.integers(headers - 1, len(written)))
    tail = data.draw(st.integers(head, min(head + 20, len(written))))
    covered = written[21:head] + data.draw(st.binary(max_size=20)) + written[tail:]
    crc = crc32c(covered)

    opened(struct.pack(">qiibI", 0, len(covered) + 9, 0, 2, crc) + covered)


@quick
@given(batches(max_rows=3), identities(), times(), st.binary(max_size=100), st.integers(0, 100))
def test_parsing_anywhere_answers_or_refuses_with_an_error_of_ours(
    batch: pa.RecordBatch, identity: Identity, at: Times, junk: bytes, position: int
) -> None:
    opened((junk + encode_frame(batch, identity, at))[position:])


@quick
@given(st.lists(st.tuples(batches(max_rows=3), identities(), times()), max_size=4), st.integers(0, 60))
def test_frames_lie_one_behind_the_other(frames: list[tuple[Any, Any, Any]], cut: int) -> None:
    written = [encode_frame(*parts) for parts in frames]
    data = b"".join(written)[: -cut or None] if written else b""

    buffer, position, read = pa.py_buffer(data), 0, []
    while position < len(data) and (found := frame.parse(buffer, position)):
        read.append(found.buffer.to_pybytes())
        position += found.length

    whole = written if len(data) == sum(map(len, written)) else written[:-1]
    assert read == whole


# --- entry ------------------------------------------------------------------------------------------------


@quick
@given(entries, st.binary(max_size=50))
def test_an_entry_decodes_to_what_was_encoded(written: Entry, inline: bytes) -> None:
    data = entry.encode(written, inline)

    found = decode(data, written)

    assert (found.kind, found.topic_id, found.write_id, found.prev) == (
        written.kind, written.topic_id, written.write_id, written.prev,
    )  # fmt: skip
    assert {name: found.body[name] for name in written.body} == written.body
    assert found.inline == (Checked.of(inline) if inline else None)
    assert data[found.line_bytes :] == inline


@quick
@given(entries, st.binary(max_size=50), st.data())
def test_a_flipped_bit_in_the_line_is_noticed(written: Entry, inline: bytes, data: st.DataObject) -> None:
    whole = bytearray(entry.encode(written, inline))
    bit = data.draw(st.integers(0, 8 * (len(whole) - len(inline)) - 1))

    whole[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptionError):
        decode(bytes(whole), written)


@quicker
@given(entries, st.data())
def test_a_line_cut_off_anywhere_is_noticed(written: Entry, data: st.DataObject) -> None:
    line = entry.encode(written)

    with pytest.raises(CorruptionError, match="cut off"):
        decode(line[: data.draw(st.integers(0, len(line) - 1))], written)


@quick
@given(st.binary(max_size=30), st.binary(max_size=30))
def test_named_bytes_are_those_and_no_others(data: bytes, other: bytes) -> None:
    named = Checked.from_json(Checked.of(data).to_json())

    assert named.check(data, "it") == data
    if other != data:
        with pytest.raises(CorruptionError):
            named.check(other, "it")


@quick
@given(uuids, st.integers(0, 9999), codecs)
def test_a_dense_identity_has_no_base(topic_id: str, partition: int, codec: str) -> None:
    assert b"base" not in Identity(topic_id, partition, codec, kind=DENSE).encode()


@quick
@given(header_lists)
def test_headers_come_back_in_order_with_repeated_names(headers: list[tuple[str, bytes]] | None) -> None:
    row = {"key": None, "value": None, "headers": headers, "timestamp": 0}
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    (told,) = untyped.decode(untyped.encode(batch, "lz4"), sparse=False).column("headers").to_pylist()

    assert (told and [(header["key"], header["value"]) for header in told]) == headers
