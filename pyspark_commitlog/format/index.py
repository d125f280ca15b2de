"""Sparse indexes, byte for byte Kafka's (`OffsetIndex`, `TimeIndex`)."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

# .index: 8-byte entries, relative offset i32 (last offset of a frame - base offset), position i32 of the frame.
# .timeindex: 12-byte entries, timestamp i64 (largest so far, ms), relative offset i32 of its frame.
# Both are big-endian and strictly increasing, and may end with zeros while the segment is active.
_OFFSET = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
OFFSET_ENTRY_BYTES = _OFFSET.size
TIME_ENTRY_BYTES = _TIME.size
# Kafka reads a warm tail of the index first: 8,192 bytes, which stay in the page cache (AbstractIndex).
_WARM_BYTES = 8192
_OFFSETS = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIMES = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_Column = np.ndarray[tuple[int], np.dtype[np.signedinteger]]


@dataclass(frozen=True, slots=True, order=True)
class OffsetEntry:
    """Last offset of a frame, and the frame's position in the `.log`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, order=True)
class TimeEntry:
    """Largest timestamp (ms) so far, and the last offset of its frame."""

    timestamp: int
    offset: int


def encode_offset(entry: OffsetEntry, base_offset: int) -> bytes:
    """Return the 8 bytes of an entry."""
    return _OFFSET.pack(entry.offset - base_offset, entry.position)


def decode_offset(buffer: pa.Buffer | bytes, slot: int, base_offset: int) -> OffsetEntry:
    """Return the entry in a slot."""
    relative, position = _OFFSET.unpack_from(buffer, slot * OFFSET_ENTRY_BYTES)
    return OffsetEntry(base_offset + relative, position)


def encode_time(entry: TimeEntry, base_offset: int) -> bytes:
    """Return the 12 bytes of an entry."""
    return _TIME.pack(entry.timestamp, entry.offset - base_offset)


def decode_time(buffer: pa.Buffer | bytes, slot: int, base_offset: int) -> TimeEntry:
    """Return the entry in a slot."""
    timestamp, relative = _TIME.unpack_from(buffer, slot * TIME_ENTRY_BYTES)
    return TimeEntry(timestamp, base_offset + relative)


def lookup_offset(buffer: pa.Buffer, base_offset: int, target: int) -> OffsetEntry:
    """Return the largest entry with offset <= `target`, else (base offset, 0)."""
    slot = _last_at_most(buffer.size // OFFSET_ENTRY_BYTES, OFFSET_ENTRY_BYTES, target,
                         lambda i: decode_offset(buffer, i, base_offset).offset)  # fmt: skip
    return OffsetEntry(base_offset, 0) if slot < 0 else decode_offset(buffer, slot, base_offset)


def lookup_time(buffer: pa.Buffer, base_offset: int, target: int) -> TimeEntry:
    """Return the largest entry with timestamp <= `target`, else (-1, base offset)."""
    slot = _last_at_most(buffer.size // TIME_ENTRY_BYTES, TIME_ENTRY_BYTES, target,
                         lambda i: decode_time(buffer, i, base_offset).timestamp)  # fmt: skip
    return TimeEntry(-1, base_offset) if slot < 0 else decode_time(buffer, slot, base_offset)


def position_after(buffer: pa.Buffer, base_offset: int, target: int) -> int | None:
    """Nearest indexed position after `target`'s frame; None if none."""
    slots = buffer.size // OFFSET_ENTRY_BYTES
    last = bisect_left(range(slots), target, key=lambda i: decode_offset(buffer, i, base_offset).offset)
    return decode_offset(buffer, last + 1, base_offset).position if last + 1 < slots else None


def first_time(buffer: pa.Buffer, base_offset: int, after_ms: int, from_offset: int) -> TimeEntry | None:
    """First entry after `after_ms` at or above `from_offset`, else None."""
    slots = range(buffer.size // TIME_ENTRY_BYTES)

    def is_after(slot: int) -> bool:
        entry = decode_time(buffer, slot, base_offset)
        return entry.timestamp > after_ms and entry.offset >= from_offset

    slot = bisect_left(slots, True, key=is_after)
    return decode_time(buffer, slot, base_offset) if slot < len(slots) else None


def _last_at_most(slots: int, entry_bytes: int, target: int, key: Callable[[int], int]) -> int:
    warm = max(0, slots - 1 - _WARM_BYTES // entry_bytes)
    low = warm if slots and key(warm) <= target else 0
    return bisect_right(range(slots), target, lo=low, key=key) - 1


def usable_bytes(configured: int, entry_bytes: int) -> int:
    """Return `segment.index.bytes` rounded down to whole entries (`AbstractIndex`)."""
    return configured // entry_bytes * entry_bytes


@dataclass(frozen=True, slots=True)
class IndexState:
    """State of an active segment between appends (`LogSegment`'s fields).

    Absolute offsets, timestamps in ms, -1 for none. `first_timestamp` is the largest of the first frame, else -1 -
    its time of arrival (`rolling_from`).
    """

    base_offset: int
    position: int = 0
    since_last_entry: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    first_timestamp: int = -1
    offset_bytes: int = 0
    time_bytes: int = 0
    last_time_entry: int = -1


@dataclass(frozen=True, slots=True)
class Indexed:
    """State after an append, and the index entries it adds."""

    state: IndexState
    offset_entry: bytes = b""
    time_entry: bytes = b""


def index_frame(
    state: IndexState, *, last_offset: int, max_timestamp: int, length: int, interval_bytes: int
) -> Indexed:
    """Index one appended frame (pure; `LogSegment.append` and `recover`)."""
    first = max_timestamp if state.position == 0 else state.first_timestamp
    top, top_offset = state.max_timestamp, state.max_timestamp_offset
    if max_timestamp > top:
        top, top_offset = max_timestamp, last_offset
    offset_entry, time_entry, since = b"", b"", state.since_last_entry
    if since > interval_bytes:
        offset_entry = encode_offset(OffsetEntry(last_offset, state.position), state.base_offset)
        if top > state.last_time_entry:
            time_entry = encode_time(TimeEntry(top, top_offset), state.base_offset)
        since = 0
    after = IndexState(
        base_offset=state.base_offset,
        position=state.position + length,
        since_last_entry=since + length,
        max_timestamp=top,
        max_timestamp_offset=top_offset,
        first_timestamp=first,
        offset_bytes=state.offset_bytes + len(offset_entry),
        time_bytes=state.time_bytes + len(time_entry),
        last_time_entry=top if time_entry else state.last_time_entry,
    )
    return Indexed(after, offset_entry, time_entry)


def rolling_from(state: IndexState, now_ms: int) -> IndexState:
    """First frame's state with a start for time-based rolls (pure).

    Without a timestamp, the clock's time (`LogSegment.created`).
    """
    return replace(state, first_timestamp=-1 - now_ms) if state.first_timestamp < 0 else state


def seal_time(state: IndexState) -> bytes:
    """Return the last time entry, forced by a roll (`LogSegment.onBecomeInactiveSegment`)."""
    if state.max_timestamp <= state.last_time_entry:
        return b""
    return encode_time(TimeEntry(state.max_timestamp, state.max_timestamp_offset), state.base_offset)


@dataclass(frozen=True, slots=True)
class Published:
    """Published lengths (bytes) and last entries of a segment and its indexes.

    Attributes:
        last_position: Of the last offset entry; 0 without one, None if unknown (sealed).
        last_timestamp: Of the last time entry, in ms; -1 if none.
    """

    base_offset: int
    end_offset: int
    log_bytes: int
    offset_bytes: int
    time_bytes: int
    last_position: int | None
    last_timestamp: int


def offset_index_fault(data: bytes, published: Published) -> str:
    """Offset index's fault, or "" (pure; `OffsetIndex.sanityCheck`).

    Not compared with the log: readers check the frames.
    """
    fault = _length_fault(len(data), published.offset_bytes, OFFSET_ENTRY_BYTES)
    if fault:
        return fault
    entries = np.frombuffer(data, _OFFSETS)
    positions = entries["position"]
    fault = _column_fault(entries["offset"], positions, 1, published)
    if fault:
        return fault
    last = int(positions[-1]) if len(entries) else 0
    if len(entries) and not (positions[0] > 0 and last < published.log_bytes):
        return f"a position lies outside the {published.log_bytes} bytes of the log"
    if published.last_position not in (None, last):
        return f"its last entry is at position {last}, expected {published.last_position}"
    return ""


def time_index_fault(data: bytes, published: Published) -> str:
    """Time index's fault, or "" (pure; `TimeIndex.sanityCheck`)."""
    fault = _length_fault(len(data), published.time_bytes, TIME_ENTRY_BYTES)
    if fault:
        return fault
    entries = np.frombuffer(data, _TIMES)
    stamps = entries["timestamp"]
    fault = _column_fault(entries["offset"], stamps, 0, published)
    if fault:
        return fault
    last = int(stamps[-1]) if len(entries) else -1
    if last != published.last_timestamp:
        return f"its last timestamp is {last}, expected {published.last_timestamp}"
    return ""


def _length_fault(length: int, expected: int, entry_bytes: int) -> str:
    if length != expected:
        return f"it has {'more' if length > expected else length} bytes, expected {expected}"
    return f"{expected} bytes are no whole entries" if expected % entry_bytes else ""


def _column_fault(offsets: _Column, other: _Column, least: int, published: Published) -> str:
    if not (_rises(offsets) and _rises(other)):
        return "its entries do not rise"
    if len(offsets) and not (offsets[0] >= least and published.base_offset + int(offsets[-1]) < published.end_offset):
        return f"an offset lies outside {published.base_offset + least} to {published.end_offset - 1}"
    return ""


def _rises(column: _Column) -> bool:
    return bool(np.all(column[1:] > column[:-1]))


@dataclass(frozen=True, slots=True)
class RollLimits:
    """Limits in bytes and ms; `jitter_ms` is subtracted from `segment_ms`."""

    segment_bytes: int
    segment_ms: int
    index_bytes: int
    jitter_ms: int


def should_roll(
    state: IndexState,
    limits: RollLimits,
    *,
    incoming_bytes: int,
    incoming_max_timestamp: int,
    incoming_last_offset: int,
    now_ms: int,
) -> bool:
    """Whether to roll before the incoming frame (pure; `LogSegment.shouldRoll`).

    By size, time, a full index, or the 32-bit relative offset.
    """
    if state.position == 0:
        return False
    by_size = state.position > limits.segment_bytes - incoming_bytes
    by_time = _waited(state, incoming_max_timestamp, now_ms) > limits.segment_ms - limits.jitter_ms
    offsets_full = state.offset_bytes >= usable_bytes(limits.index_bytes, OFFSET_ENTRY_BYTES)
    times_full = state.time_bytes >= usable_bytes(limits.index_bytes, TIME_ENTRY_BYTES) - TIME_ENTRY_BYTES
    by_offset = not 0 <= incoming_last_offset - state.base_offset <= 2**31 - 1
    return by_size or by_time or offsets_full or times_full or by_offset


def _waited(state: IndexState, incoming_max_timestamp: int, now_ms: int) -> int:
    """Return the segment's wait for its roll in ms (`LogSegment.timeWaitedForRoll`)."""
    if state.first_timestamp >= 0:
        return incoming_max_timestamp - state.first_timestamp
    return now_ms - (-1 - state.first_timestamp)
