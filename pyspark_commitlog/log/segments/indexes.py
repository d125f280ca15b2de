"""A segment's two indexes: check them against what is published, rebuild them from the log.

Only a settler does, under its lock (rule R3). Kafka: ``AbstractIndex.sanityCheck``, ``LogSegment.recover``. An index is
rebuilt into a new file that is renamed over the old one: a reader may have the old one mapped.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import google_crc32c

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.index import (
    IndexState,
    Published,
    index_frame,
    offset_index_fault,
    seal_time,
    time_index_fault,
)
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.log.frames import check, segment_span, walk
from pyspark_commitlog.log.settle_state import Active, Sealed
from pyspark_commitlog.storage import Storage

log = logging.getLogger("pyspark_commitlog.log")


@dataclass(frozen=True, slots=True)
class Home:
    """Where a partition's segments lie."""

    storage: Storage
    paths: TopicPaths
    partition: int

    def file(self, segment: Active | Sealed, suffix: str) -> str:
        """Return the path of a segment's file."""
        return self.paths.segment_file(self.partition, segment.stem, suffix)


def published(segment: Active | Sealed, end_offset: int) -> Published:
    """Return what a segment's indexes must agree with (pure)."""
    if isinstance(segment, Sealed):
        return Published(segment.base_offset, end_offset, segment.length, segment.offset_bytes, segment.time_bytes,
                         None, segment.max_timestamp)  # fmt: skip
    i = segment.index
    return Published(i.base_offset, end_offset, i.position, i.offset_bytes, i.time_bytes,
                     i.position - i.since_last_entry, i.last_time_entry)  # fmt: skip


def index_fault(home: Home, segment: Active | Sealed, end_offset: int) -> str:
    """Return what is wrong with a segment's indexes, naming the file, "" for nothing; reads indexes, not the log."""
    expected = published(segment, end_offset)
    for suffix, length, fault in (
        ("index", expected.offset_bytes, offset_index_fault),
        ("timeindex", expected.time_bytes, time_index_fault),
    ):
        path, sealed = home.file(segment, suffix), isinstance(segment, Sealed)
        try:  # one byte more than published is too long for a sealed one
            data = home.storage.read(path, 0, length + sealed) if segment.length or sealed else b""
        except FileNotFoundError:
            return f"{path} is missing"
        told = fault(data, expected)
        if told:
            return f"{path}: {told}"
    return ""


def mended(home: Home, segment: Active | Sealed, end_offset: int, interval_bytes: int) -> Active | Sealed | None:
    """Rebuild a segment's indexes where they are damaged or missing.

    Returns:
        None when they are sound. Else the segment as it is then, to be published: an active one may be sealed by this.

    Raises:
        CorruptionError: the published part of the log is damaged; nothing was written.
    """
    fault = index_fault(home, segment, end_offset)
    if not fault:
        return None
    log.warning("topic %r partition %d: rebuilding an index: %s", home.paths.name, home.partition, fault)
    if isinstance(segment, Sealed):
        return _rebuild_sealed(home, segment, interval_bytes)
    return _rebuild_active(home, segment, end_offset, interval_bytes)


def _rebuild_sealed(home: Home, sealed: Sealed, interval_bytes: int) -> Sealed:
    state, offsets, times = _walked(home, sealed, sealed.crc, sealed.end_offset, interval_bytes)
    times += seal_time(state)
    _replace(home, sealed, offsets, times)
    return replace(sealed, offset_bytes=len(offsets), time_bytes=len(times), max_timestamp=state.max_timestamp)


def _rebuild_active(home: Home, active: Active, settled: int, interval_bytes: int) -> Active | Sealed:
    """Seal the segment when an index has become shorter than published (``index.interval.bytes`` has grown).

    A reader with an older view maps as much as it was told: such a file must not be extended with zeros, and cut later.
    """
    state, offsets, times = _walked(home, active, active.crc, settled, interval_bytes)
    before = active.index
    state = replace(state, first_timestamp=before.first_timestamp)  # may be the clock, which no frame tells
    if state.offset_bytes >= before.offset_bytes and state.time_bytes >= before.time_bytes:
        _replace(home, active, offsets, times)
        return replace(active, index=state)
    times += seal_time(state)
    _replace(home, active, offsets, times)
    _cut_log(home, active)
    return Sealed(state.base_offset, settled, active.rewrite, state.position, active.crc, len(offsets), len(times),
                  state.max_timestamp, active.min_timestamp, active.lateness)  # fmt: skip


def _walked(
    home: Home, segment: Active | Sealed, crc: int, end_offset: int, interval_bytes: int
) -> tuple[IndexState, bytearray, bytearray]:
    """Return the state and both indexes as appending the published frames one by one makes them, each checked."""
    span = segment_span(home.paths, home.partition, segment)
    path = span.path
    state, offsets, times = IndexState(segment.base_offset), bytearray(), bytearray()
    following, found_crc = segment.base_offset, 0
    try:
        for located in walk(home.storage, span):
            check(located, span)
            following = located.next_offset
            found_crc = google_crc32c.extend(found_crc, located.frame.buffer)
            added = index_frame(
                state,
                last_offset=following - 1,
                max_timestamp=located.frame.max_timestamp,
                length=located.frame.length,
                interval_bytes=interval_bytes,
            )
            state = added.state
            offsets += added.offset_entry
            times += added.time_entry
    except FileNotFoundError as error:
        raise _damaged(home, following, f"{path} position {state.position}: the file is missing") from error
    except CorruptionError as error:
        raise _damaged(home, following, str(error)) from error
    if found_crc != crc or following != end_offset:
        told = f"its {segment.length} bytes have CRC-32C {found_crc:08x} and end at offset {following}"
        raise _damaged(home, segment.base_offset, f"{path} position 0: {told}, expected {crc:08x} and {end_offset}")
    return state, offsets, times


def _damaged(home: Home, offset: int, told: str) -> CorruptionError:
    return CorruptionError(
        f"topic {home.paths.name!r} partition {home.partition} offset {offset}: an index is to be rebuilt, but the "
        f"log is damaged: {told}. Restore it from a copy"
    )


def _replace(home: Home, segment: Active | Sealed, offsets: bytearray, times: bytearray) -> None:
    for suffix, data in (("index", offsets), ("timeindex", times)):
        home.storage.write_once(home.file(segment, suffix), bytes(data))


def _cut_log(home: Home, active: Active) -> None:
    """Cut off what a settler that was killed left behind the published part."""
    file = home.storage.open_append(home.file(active, "log"))
    try:
        file.truncate(active.length)
        file.sync()
    finally:
        file.close()
