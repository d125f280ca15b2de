"""Indexes by Kafka's rules, and when a segment rolls."""

from __future__ import annotations

import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_commitlog.format import index
from pyspark_commitlog.format.index import IndexState, OffsetEntry, Published, RollLimits, TimeEntry

LIMITS = RollLimits(segment_bytes=1000, segment_ms=500, index_bytes=96, jitter_ms=0)


def offsets(*entries: tuple[int, int], base: int = 0) -> pa.Buffer:
    return pa.py_buffer(b"".join(index.encode_offset(OffsetEntry(*entry), base) for entry in entries))


def times(*entries: tuple[int, int], base: int = 0) -> pa.Buffer:
    return pa.py_buffer(b"".join(index.encode_time(TimeEntry(*entry), base) for entry in entries))


# --- entries and lookup -----------------------------------------------------------------------------------


def test_an_offset_entry_is_8_bytes_and_a_time_entry_12() -> None:
    assert index.encode_offset(OffsetEntry(2**40 + 5, 7), 2**40) == bytes.fromhex("00000005 00000007")
    assert index.encode_time(TimeEntry(1, 2**40 + 5), 2**40) == bytes.fromhex("0000000000000001 00000005")
    assert (index.OFFSET_ENTRY_BYTES, index.TIME_ENTRY_BYTES) == (8, 12)


def test_decodes_any_slot() -> None:
    assert index.decode_offset(offsets((12, 0), (15, 99), base=10), 1, 10) == OffsetEntry(15, 99)
    assert index.decode_time(times((12, 11), (15, 14), base=10), 1, 10) == TimeEntry(15, 14)


def test_below_the_first_entry_lies_the_start_of_the_segment() -> None:
    assert index.lookup_offset(offsets((12, 70), base=10), 10, 11) == OffsetEntry(10, 0)
    assert index.lookup_offset(pa.py_buffer(b""), 10, 11) == OffsetEntry(10, 0)
    assert index.lookup_time(times((12, 11), base=10), 10, 11) == TimeEntry(-1, 10)
    assert index.lookup_time(pa.py_buffer(b""), 10, 11) == TimeEntry(-1, 10)


@pytest.mark.parametrize("entries", [1023, 1024, 1025, 1026, 3000])
def test_finds_every_entry_on_both_sides_of_the_warm_tail(entries: int) -> None:
    """Kafka looks at the last 8,192 bytes first: 1,024 entries of an offset index."""
    buffer = offsets(*((2 * i, 10 * i) for i in range(1, entries + 1)))

    for i in [1, 2, *range(entries - 1027, entries - 1020), entries - 1, entries]:
        if i >= 1:
            assert index.lookup_offset(buffer, 0, 2 * i) == OffsetEntry(2 * i, 10 * i)
            assert index.lookup_offset(buffer, 0, 2 * i + 1) == OffsetEntry(2 * i, 10 * i)


def test_bytes_behind_the_last_whole_entry_do_not_count() -> None:
    cut = pa.py_buffer(offsets((5, 50), (9, 90)).to_pybytes()[:-1])

    assert index.lookup_offset(cut, 0, 10) == OffsetEntry(5, 50)


# --- appending --------------------------------------------------------------------------------------------


def append(state: IndexState, last: int, timestamp: int, length: int, every: int = 100) -> index.Indexed:
    frame_ = {"last_offset": last, "max_timestamp": timestamp, "length": length}
    return index.index_frame(state, **frame_, interval_bytes=every)


def test_the_first_frame_of_a_segment_is_never_indexed() -> None:
    added = append(IndexState(50), 54, 1000, 500, every=0)

    assert (added.offset_entry, added.time_entry) == (b"", b"")
    assert added.state == IndexState(50, 500, 500, 1000, 54, 1000)


def test_a_frame_is_indexed_when_more_than_the_interval_lies_before_it() -> None:
    first = append(IndexState(0), 4, 1000, 100).state

    at_the_interval = append(first, 9, 2000, 10)
    assert at_the_interval.offset_entry == b""
    beyond = append(at_the_interval.state, 14, 3000, 10)
    assert beyond.offset_entry == index.encode_offset(OffsetEntry(14, 110), 0)
    assert beyond.time_entry == index.encode_time(TimeEntry(3000, 14), 0)
    assert (beyond.state.offset_bytes, beyond.state.time_bytes, beyond.state.last_time_entry) == (8, 12, 3000)


def test_the_bytes_of_an_indexed_frame_count_towards_the_next_entry() -> None:
    state = append(IndexState(0), 4, 1000, 101).state
    state = append(state, 9, 1000, 101).state

    assert append(state, 14, 1000, 1).offset_entry


def test_a_time_entry_names_the_first_frame_with_the_largest_timestamp() -> None:
    state = append(IndexState(0), 4, 5000, 60).state
    state = append(state, 9, 5000, 60).state

    assert append(state, 14, 4000, 60).time_entry == index.encode_time(TimeEntry(5000, 4), 0)


def test_no_time_entry_when_the_largest_timestamp_did_not_grow() -> None:
    state = append(IndexState(0), 4, 5000, 101).state
    state = append(state, 9, 4000, 101).state
    assert state.time_bytes == 12

    added = append(state, 14, 5000, 101)

    assert added.offset_entry
    assert added.time_entry == b""


def test_the_first_frames_timestamp_is_remembered_for_the_roll() -> None:
    state = append(IndexState(0), 4, 5000, 60).state

    assert append(state, 9, 7000, 60).state.first_timestamp == 5000


def test_sealing_forces_the_last_time_entry_once() -> None:
    state = append(IndexState(0), 4, 5000, 60).state

    assert index.seal_time(state) == index.encode_time(TimeEntry(5000, 4), 0)
    assert index.seal_time(replace(state, last_time_entry=5000)) == b""
    assert index.seal_time(IndexState(0)) == b""


def test_timestamp_0_is_a_timestamp() -> None:
    assert index.seal_time(append(IndexState(0), 4, 0, 60).state) == index.encode_time(TimeEntry(0, 4), 0)


def test_an_index_holds_whole_entries() -> None:
    assert index.usable_bytes(10485760, index.TIME_ENTRY_BYTES) == 10485756
    assert index.usable_bytes(96, index.OFFSET_ENTRY_BYTES) == 96
    assert index.usable_bytes(95, index.OFFSET_ENTRY_BYTES) == 88


# --- rolling ----------------------------------------------------------------------------------------------

ROOMY = IndexState(base_offset=10, position=600, first_timestamp=1000)


def rolls(
    state: IndexState,
    *,
    size: int = 400,
    timestamp: int = 1500,
    last_offset: int = 20,
    now: int = 10**9,
    limits: RollLimits = LIMITS,
) -> bool:
    return index.should_roll(
        state,
        limits,
        incoming_bytes=size,
        incoming_max_timestamp=timestamp,
        incoming_last_offset=last_offset,
        now_ms=now,
    )


def test_a_frame_that_just_fits_does_not_roll() -> None:
    assert not rolls(ROOMY)


def test_rolls_when_the_frame_would_exceed_segment_bytes() -> None:
    assert rolls(ROOMY, size=401)


def test_rolls_when_the_first_frame_is_older_than_segment_ms() -> None:
    assert rolls(ROOMY, timestamp=1501)


def test_jitter_is_taken_off_segment_ms() -> None:
    early = replace(LIMITS, jitter_ms=200)
    assert not rolls(ROOMY, timestamp=1300, limits=early)
    assert rolls(ROOMY, timestamp=1301, limits=early)


def test_without_a_timestamp_the_clock_tells_how_long_a_segment_has_waited() -> None:
    """`timeWaitedForRoll`: what comes in may have a timestamp, or none; only the first frame's counts."""
    begun = index.rolling_from(append(IndexState(10), 14, -1, 60).state, 7000)
    for timestamp in (-1, 0, 10**12):
        assert not rolls(begun, timestamp=timestamp, now=7500)
        assert rolls(begun, timestamp=timestamp, now=7501)
    assert rolls(begun, timestamp=-1, now=7301, limits=replace(LIMITS, jitter_ms=200))


def test_timestamp_0_of_the_first_frame_is_counted_from() -> None:
    begun = index.rolling_from(append(IndexState(10), 14, 0, 60).state, 7000)
    assert begun.first_timestamp == 0
    assert not rolls(begun, timestamp=500)
    assert rolls(begun, timestamp=501, now=0)


def test_does_not_roll_for_frames_older_than_the_first() -> None:
    assert not rolls(ROOMY, timestamp=0)


def test_rolls_when_the_offset_index_is_full() -> None:
    assert rolls(replace(ROOMY, offset_bytes=96))
    assert not rolls(replace(ROOMY, offset_bytes=88))


def test_rolls_when_the_time_index_has_only_the_slot_for_the_forced_entry_left() -> None:
    assert rolls(replace(ROOMY, time_bytes=84))
    assert not rolls(replace(ROOMY, time_bytes=72))


def test_rolls_when_an_offset_would_not_fit_into_32_bits() -> None:
    assert not rolls(ROOMY, last_offset=10 + 2**31 - 1)
    assert rolls(ROOMY, last_offset=10 + 2**31)


def test_an_empty_segment_never_rolls() -> None:
    assert not rolls(IndexState(10), size=10**9, timestamp=2**60)


# --- what is published, and what is there ------------------------------------------------------------------

PUBLISHED = Published(
    base_offset=100, end_offset=131, log_bytes=900, offset_bytes=24, time_bytes=24, last_position=800, last_timestamp=9
)


def by_offset(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def by_time(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def test_sound_indexes_have_no_fault() -> None:
    assert index.offset_index_fault(by_offset((1, 1), (7, 300), (30, 800)), PUBLISHED) == ""
    assert index.time_index_fault(by_time((0, 0), (9, 30)), PUBLISHED) == ""
    sealed = replace(PUBLISHED, last_position=None)
    assert index.offset_index_fault(by_offset((1, 1), (7, 300), (30, 899)), sealed) == ""
    empty = replace(PUBLISHED, offset_bytes=0, time_bytes=0, last_position=0, last_timestamp=-1)
    assert (index.offset_index_fault(b"", empty), index.time_index_fault(b"", empty)) == ("", "")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "has 0 bytes, expected 24"),
        (bytes(23), "has 23 bytes"),
        (bytes(25), "has more bytes"),
        (bytes(24), "do not rise"),
        (by_offset((1, 1), (7, 300), (7, 800)), "do not rise"),
        (by_offset((1, 1), (7, 300), (9, 300)), "do not rise"),
        (by_offset((1, 300), (2, 1), (9, 800)), "do not rise"),
        (by_offset((0, 1), (7, 300), (30, 800)), "an offset lies outside 101 to 130"),
        (by_offset((1, 1), (7, 300), (31, 800)), "an offset lies outside 101 to 130"),
        (by_offset((1, 0), (7, 300), (30, 800)), "a position lies outside the 900 bytes"),
        (by_offset((1, 1), (7, 300), (30, 900)), "a position lies outside the 900 bytes"),
        (by_offset((1, 1), (7, 300), (30, 799)), "its last entry is at position 799, expected 800"),
        (by_offset((-(2**31), 1), (7, 300), (2**31 - 1, 800)), "an offset lies outside"),
    ],
)
def test_an_offset_index_that_can_not_be(data: bytes, told: str) -> None:
    assert told in index.offset_index_fault(data, PUBLISHED)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "has 0 bytes, expected 24"),
        (bytes(24), "do not rise"),
        (by_time((5, 0), (5, 30)), "do not rise"),
        (by_time((5, 7), (9, 7)), "do not rise"),
        (by_time((5, -1), (9, 30)), "an offset lies outside 100 to 130"),
        (by_time((5, 0), (9, 31)), "an offset lies outside 100 to 130"),
        (by_time((5, 0), (8, 30)), "its last timestamp is 8, expected 9"),
    ],
)
def test_a_time_index_that_can_not_be(data: bytes, told: str) -> None:
    assert told in index.time_index_fault(data, PUBLISHED)


def test_lengths_that_are_no_whole_entries() -> None:
    assert "no whole entries" in index.offset_index_fault(bytes(20), replace(PUBLISHED, offset_bytes=20))
    assert "no whole entries" in index.time_index_fault(bytes(20), replace(PUBLISHED, time_bytes=20))
