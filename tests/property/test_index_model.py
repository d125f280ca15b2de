"""Indexes against models: lookup against a plain list, appending against Kafka's recovery of a segment."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given, strategies as st

from pyspark_commitlog.format import index
from pyspark_commitlog.format.index import IndexState, OffsetEntry, RollLimits, TimeEntry
from pyspark_commitlog.topic.state.settle_state import Active
from tests.property.strategies import quick

#: (last offset, max timestamp, size) of a batch; in `frames` its number of rows in place of the offset.
Batch = tuple[int, int, int]
bases = st.integers(0, 2**40)
relatives = st.integers(0, 2**31 - 1)
#: Also more than Kafka's warm tail holds: 1,024 and 682 entries.
rising = st.lists(relatives, unique=True, max_size=50).map(sorted) | st.builds(
    lambda count, step: list(range(0, count * step, step)), st.integers(600, 2000), st.integers(1, 9)
)


# --- lookup -----------------------------------------------------------------------------------------------


def naive(entries: Sequence[tuple[int, int]], target: int, nothing: tuple[int, int]) -> tuple[int, int]:
    """Return the last entry whose key is at most `target`, by looking at all of them."""
    return max((entry for entry in entries if entry[0] <= target), default=nothing)


@quick
@given(bases, rising, st.data())
def test_an_offset_is_found_as_in_a_plain_list(base: int, offsets: list[int], data: st.DataObject) -> None:
    entries = [(base + offset, 3 * i) for i, offset in enumerate(offsets)]
    buffer = pa.py_buffer(b"".join(index.encode_offset(OffsetEntry(*entry), base) for entry in entries))

    for target in data.draw(near([offset for offset, _ in entries], base)):
        found = index.lookup_offset(buffer, base, target)
        assert (found.offset, found.position) == naive(entries, target, (base, 0))


@quick
@given(bases, rising, st.data())
def test_a_timestamp_is_found_as_in_a_plain_list(base: int, stamps: list[int], data: st.DataObject) -> None:
    entries = [(stamp, base + i) for i, stamp in enumerate(stamps)]
    buffer = pa.py_buffer(b"".join(index.encode_time(TimeEntry(*entry), base) for entry in entries))

    for target in data.draw(near(stamps, 0)):
        found = index.lookup_time(buffer, base, target)
        assert (found.timestamp, found.offset) == naive(entries, target, (-1, base))


def near(keys: list[int], base: int) -> st.SearchStrategy[list[int]]:
    """Return targets that lie on, just below and just above some keys, and anywhere."""
    on = st.tuples(st.sampled_from(keys), st.integers(-1, 1)).map(sum) if keys else st.nothing()
    return st.lists(on | relatives.map(lambda r: base + r), max_size=10)


@quick
@given(bases, relatives, relatives, st.integers(0, 2**62))
def test_entries_decode_to_what_was_encoded(base: int, relative: int, position: int, timestamp: int) -> None:
    by_offset, by_time = OffsetEntry(base + relative, position), TimeEntry(timestamp, base + relative)

    assert index.decode_offset(b"x" * 8 + index.encode_offset(by_offset, base), 1, base) == by_offset
    assert index.decode_time(b"x" * 12 + index.encode_time(by_time, base), 1, base) == by_time


# --- appending --------------------------------------------------------------------------------------------


@dataclass
class Recovered:
    """Kafka's `LogSegment.recover`, from its rules: both indexes of a segment, from its batches alone."""

    base: int
    interval: int
    offset_index: list[tuple[int, int]] = field(default_factory=list)
    time_index: list[tuple[int, int]] = field(default_factory=list)

    def read(self, batches: Sequence[Batch], *, sealed: bool) -> tuple[bytes, bytes]:
        """Return the bytes of .index and .timeindex."""
        largest, offset_of_largest, valid_bytes, last_index_entry = -1, -1, 0, 0
        for last_offset, max_timestamp, size in batches:
            if max_timestamp > largest:
                largest, offset_of_largest = max_timestamp, last_offset
            if valid_bytes - last_index_entry > self.interval:
                self.offset_index.append((last_offset - self.base, valid_bytes))
                self._maybe_append(largest, offset_of_largest)
                last_index_entry = valid_bytes
            valid_bytes += size
        if sealed:
            self._maybe_append(largest, offset_of_largest)
        return (
            b"".join(struct.pack(">ii", *entry) for entry in self.offset_index),
            b"".join(struct.pack(">qi", *entry) for entry in self.time_index),
        )

    def _maybe_append(self, timestamp: int, offset: int) -> None:
        last_timestamp = self.time_index[-1][0] if self.time_index else -1
        if timestamp > last_timestamp:
            self.time_index.append((timestamp, offset - self.base))


frames = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 60), st.integers(61, 400)), max_size=60)


def with_offsets(base: int, drawn: list[Batch]) -> list[Batch]:
    """Return batches with so many rows, one behind the other."""
    found, following = [], base
    for rows, timestamp, size in drawn:
        following += rows
        found.append((following - 1, timestamp, size))
    return found


@quick
@given(bases, frames, st.integers(0, 1000), st.sets(st.integers(0, 60)))
def test_appended_indexes_are_those_that_kafka_recovers(
    base: int, drawn: list[Batch], interval: int, published: set[int]
) -> None:
    """Now and then the state goes through the settle journal, as between two settlers."""
    batches = with_offsets(base, drawn)
    state, by_offset, by_time = IndexState(base), b"", b""
    for number, (last_offset, timestamp, size) in enumerate(batches):
        added = index.index_frame(
            state, last_offset=last_offset, max_timestamp=timestamp, length=size, interval_bytes=interval
        )
        by_offset, by_time = by_offset + added.offset_entry, by_time + added.time_entry
        state = Active.from_json(Active(added.state).to_json()).index if number in published else added.state

    assert (by_offset, by_time) == Recovered(base, interval).read(batches, sealed=False)
    assert (state.offset_bytes, state.time_bytes) == (len(by_offset), len(by_time))
    assert state.position == sum(size for _, _, size in batches)
    sealed = by_time + index.seal_time(state)
    assert (by_offset, sealed) == Recovered(base, interval).read(batches, sealed=True)


@quick
@given(bases, frames, st.integers(0, 1000))
def test_an_index_leads_to_the_frame_or_before_it(base: int, drawn: list[Batch], interval: int) -> None:
    batches = with_offsets(base, drawn)
    by_offset, by_time = Recovered(base, interval).read(batches, sealed=True)
    starts = [0]
    for _, _, size in batches:
        starts.append(starts[-1] + size)

    for number, (last_offset, timestamp, _) in enumerate(batches):
        found = index.lookup_offset(pa.py_buffer(by_offset), base, last_offset)
        assert found.position <= starts[number]
        assert found.position in starts
        before = index.lookup_time(pa.py_buffer(by_time), base, timestamp - 1)
        assert all(t < timestamp for last, t, _ in batches if last < before.offset)


# --- rolling ----------------------------------------------------------------------------------------------


def kafka_rolls(
    state: IndexState, limits: RollLimits, size: int, timestamp: int, last_offset: int, created: int, now: int
) -> bool:
    """Kafka's `LogSegment.shouldRoll` for a segment that is not empty."""
    max_offsets, max_times = limits.index_bytes // 8, limits.index_bytes // 12
    waited = timestamp - state.first_timestamp if state.first_timestamp >= 0 else now - created
    relative = last_offset - state.base_offset
    return (
        state.position > limits.segment_bytes - size
        or waited > limits.segment_ms - limits.jitter_ms
        or state.offset_bytes // 8 >= max_offsets
        or state.time_bytes // 12 >= max_times - 1
        or not 0 <= relative <= 2**31 - 1
    )


@quick
@given(
    st.builds(
        IndexState,
        base_offset=st.just(100),
        position=st.integers(58, 61),
        first_timestamp=st.sampled_from((-1, 0, 9, 10, 11)),
        offset_bytes=st.integers(5, 6).map(lambda n: 8 * n),
        time_bytes=st.integers(1, 3).map(lambda n: 12 * n),
    ),
    st.builds(RollLimits, st.just(100), st.just(20), st.sampled_from((47, 48, 55, 56)), st.integers(0, 2)),
    st.integers(39, 41),
    st.integers(29, 31),
    st.integers(100 + 2**31 - 2, 100 + 2**31),
    st.integers(0, 10),
    st.integers(25, 31),
)
def test_a_segment_rolls_when_kafkas_would(
    state: IndexState, limits: RollLimits, size: int, timestamp: int, last_offset: int, created: int, now: int
) -> None:
    rolls = index.should_roll(
        index.rolling_from(state, created),
        limits,
        incoming_bytes=size,
        incoming_max_timestamp=timestamp,
        incoming_last_offset=last_offset,
        now_ms=now,
    )

    assert rolls == kafka_rolls(state, limits, size, timestamp, last_offset, created, now)


@quick
@given(rising, relatives)
def test_the_model_of_a_lookup_is_a_bisection(keys: list[int], target: int) -> None:
    """The oracle of this file, checked once against another."""
    at = bisect_right(keys, target)

    assert naive([(key, key) for key in keys], target, (-1, -1))[0] == (keys[at - 1] if at else -1)
