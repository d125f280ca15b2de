"""Check and rebuild of a segment's indexes, by a settler (rule R3).

Kafka: `AbstractIndex.sanityCheck`, `LogSegment.recover`. A rebuilt index is a new file renamed over the old one, which
a reader may have mapped.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.index import (
    Published,
    offset_index_fault,
    time_index_fault,
)
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import check, walk
from pyspark_commitlog.topic.segments.growing import GrowingSegment, stamped
from pyspark_commitlog.topic.state.settle_state import Active, Sealed

logger = logging.getLogger("pyspark_commitlog.topic")


def published(segment: Active | Sealed, end_offset: int) -> Published:
    """Facts that a segment's indexes must match (pure)."""
    if isinstance(segment, Sealed):
        return Published(segment.base_offset, end_offset, segment.length, segment.offset_bytes, segment.time_bytes,
                         None, segment.max_timestamp)  # fmt: skip
    i = segment.index
    return Published(i.base_offset, end_offset, i.position, i.offset_bytes, i.time_bytes,
                     i.position - i.since_last_entry, i.last_time_entry)  # fmt: skip


def index_fault(directory: SegmentDir, segment: Active | Sealed, end_offset: int) -> str:
    """Fault of a segment's indexes with its file, or ""."""
    expected = published(segment, end_offset)
    for suffix, length, fault in (
        ("index", expected.offset_bytes, offset_index_fault),
        ("timeindex", expected.time_bytes, time_index_fault),
    ):
        part, sealed = directory.part(segment, suffix), isinstance(segment, Sealed)
        path, whole_file = part.path, isinstance(segment, Sealed) and segment.place is None
        try:  # one byte more than published is too long for a sealed one with files of its own
            data = directory.storage.read(path, part.start, length + whole_file) if segment.length or sealed else b""
        except FileNotFoundError:
            return f"{path} is missing"
        why = fault(data, expected)
        if why:
            return f"{path}: {why}"
    return ""


def mended(
    directory: SegmentDir, segment: Active | Sealed, end_offset: int, interval_bytes: int
) -> Active | Sealed | None:
    """Rebuild a segment's indexes if damaged or missing; nothing is written if the log is damaged.

    Return the segment to publish, None if all is sound. An active one may be sealed.
    """
    fault = index_fault(directory, segment, end_offset)
    if not fault:
        return None
    logger.warning("topic %r partition %d: rebuilding an index: %s", directory.paths.name, directory.partition, fault)
    if isinstance(segment, Sealed):
        return _rebuild_sealed(directory, segment, interval_bytes)
    return _rebuild_active(directory, segment, end_offset, interval_bytes)


def _rebuild_sealed(directory: SegmentDir, sealed: Sealed, interval_bytes: int) -> Sealed:
    growing = _walked(directory, sealed, sealed.end_offset, interval_bytes)
    growing.seal()
    _replace(directory, sealed, growing)
    i = growing.index
    return replace(sealed, offset_bytes=i.offset_bytes, time_bytes=i.time_bytes, max_timestamp=i.max_timestamp)


def _rebuild_active(directory: SegmentDir, active: Active, end_offset: int, interval_bytes: int) -> Active | Sealed:
    """Rebuild in place, or seal if an index became shorter than published.

    `index.interval.bytes` has grown then. Readers of an older view map the published length, so the file can't be
    padded with zeros and cut later.
    """
    growing, before = _walked(directory, active, end_offset, interval_bytes), active.index
    if growing.index.offset_bytes >= before.offset_bytes and growing.index.time_bytes >= before.time_bytes:
        _replace(directory, active, growing)
        # perhaps from the clock, not a frame
        return replace(active, index=replace(growing.index, first_timestamp=before.first_timestamp))
    growing.seal()
    _replace(directory, active, growing)
    _cut_log(directory, active)
    sealed = growing.sealed(end_offset, active.crc, active.rewrite)
    return replace(sealed, min_timestamp=active.min_timestamp, lateness=active.lateness)


def _walked(directory: SegmentDir, segment: Active | Sealed, end_offset: int, interval_bytes: int) -> GrowingSegment:
    span = directory.span(segment)
    path = span.path
    growing = GrowingSegment.at(segment.base_offset, interval_bytes)
    following, found_crc = segment.base_offset, 0
    try:
        for located in walk(directory.storage, span):
            check(located, span)
            following = located.next_offset
            found_crc = crc32c(located.frame.buffer, found_crc)
            growing.append(stamped(located.frame, None))
    except FileNotFoundError as error:
        raise _damaged(directory, following, f"{path} position {growing.length}: the file is missing") from error
    except CorruptionError as error:
        raise _damaged(directory, following, str(error)) from error
    if found_crc != segment.crc or following != end_offset:
        why = f"its {segment.length} bytes have CRC-32C {found_crc:08x} and end at offset {following}"
        raise _damaged(
            directory, segment.base_offset, f"{path} position 0: {why}, expected {segment.crc:08x} and {end_offset}"
        )
    return growing


def _damaged(directory: SegmentDir, offset: int, why: str) -> CorruptionError:
    return CorruptionError(
        f"topic {directory.paths.name!r} partition {directory.partition} offset {offset}: an index is to be rebuilt, "
        f"but the log is damaged: {why}. Restore it from a copy"
    )


def _replace(directory: SegmentDir, segment: Active | Sealed, growing: GrowingSegment) -> None:
    for suffix, data in (("index", growing.offsets), ("timeindex", growing.times)):
        directory.storage.write_once(directory.file(segment, suffix), bytes(data))


def _cut_log(directory: SegmentDir, active: Active) -> None:
    file = directory.storage.open_append(directory.file(active, "log"))
    try:
        file.truncate(active.length)
        file.sync()
    finally:
        file.close()
