"""Checked frames of a file or inline buffer, in bounded windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.format.segment_object import INDEX, LOG, PARTS, TIMEINDEX
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import is_eio, unreadable_is_damage
from pyspark_commitlog.storage.shared.read_ahead import FileRange, ReadAhead, ahead_of
from pyspark_commitlog.topic.state.settle_state import Active, Sealed

#: Bytes of a file that are mapped at a time: bounds the resident memory of a reader.
WINDOW_BYTES = 16 * 2**20
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """Run of frames of one partition.

    Attributes:
        path: the file; for messages only if `data` has inline bytes.
        start, end: byte positions at frame boundaries.
        base_offset: stored offset of the first frame (0 in a chunk's group); None to trust the frame.
        shift: added to stored offsets: an extent's base offset in a chunk, 0 in a segment.
        topic_id, partition, chunk: expected identity; no chunk in segments and inline bytes.
        until: likely end of the read; bounds the first mapping.
        rewritten: length and CRC of a rewritten segment: its predecessor has the same identities.
        unmapped: read, don't map; an unreadable sector is damage.
        end_offset: if checked.
    """

    path: str
    start: int
    end: int
    base_offset: int | None
    shift: int
    topic_id: str
    partition: int
    chunk: str | None = None
    data: pa.Buffer | None = None
    until: int | None = None
    rewritten: tuple[int, int] | None = None
    unmapped: bool = False
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes [start, start + length) of a file."""

    path: str
    start: int
    length: int


def segment_part(paths: TopicPaths, partition: int, segment: Active | Sealed, suffix: str) -> FilePart:
    """Return the published bytes of a segment's `log`, `index` or `timeindex`."""
    lengths = {LOG: segment.length, INDEX: segment.offset_bytes, TIMEINDEX: segment.time_bytes}
    if isinstance(segment, Active) or segment.place is None:
        return FilePart(paths.segment_file(partition, segment.stem, suffix), 0, lengths[suffix])
    before = sum(lengths[part] for part in PARTS[: PARTS.index(suffix)])
    return FilePart(paths.object(segment.place.object), segment.place.position + before, lengths[suffix])


def segment_span(paths: TopicPaths, partition: int, segment: Active | Sealed, *, unmapped: bool = False) -> Span:
    """Span of a segment's published frames; see `Span.unmapped`."""
    log = segment_part(paths, partition, segment, LOG)
    return Span(
        path=log.path,
        start=log.start,
        end=log.start + log.length,
        base_offset=segment.base_offset,
        shift=0,
        topic_id=paths.topic_id,
        partition=partition,
        rewritten=(segment.length, segment.crc) if isinstance(segment, Sealed) and segment.rewrite else None,
        unmapped=unmapped,
    )


@dataclass(frozen=True, slots=True)
class Located:
    """Frame, its file position, and the offset of its first row."""

    frame: Frame
    position: int
    base_offset: int

    @property
    def next_offset(self) -> int:
        """Offset after the frame."""
        return self.base_offset + self.frame.last_offset_delta + 1


class Windows(Protocol):
    """Reader of windows of files."""

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        """Return bytes of a file from `position` on; see `ReadAhead.window`."""


def walk(storage: Storage, span: Span, ahead: Windows | None = None) -> Iterator[Located]:
    """Yield a span's frames, their headers checked for continuity.

    `ahead` reads files that can't be mapped, for callers that walk several spans.

    Raises:
        FileNotFoundError: the file is gone.
        CorruptionError: it is too short, discontinuous, or a rewritten segment's predecessor.
    """
    if span.unmapped:
        with unreadable_is_damage(storage, span.path):
            yield from walk(storage, replace(span, unmapped=False), ahead or unmapped(storage))
        return
    if span.rewritten is not None:
        _check_rewritten(storage, span.path, *span.rewritten)
    if ahead is not None or span.data is not None or storage.can_append:
        yield from _walk(storage, span, ahead)
        return
    expected = [FileRange(span.path, span.start, span.until or span.end)]
    with closing(ReadAhead(storage, lambda: [expected.pop()] if expected else (), careful=True)) as own:
        yield from _walk(storage, span, own)


def _walk(storage: Storage, span: Span, ahead: Windows | None) -> Iterator[Located]:
    position, expected = span.start, span.base_offset
    window, inside = pa.py_buffer(b""), 0
    while position < span.end:
        frame = _parse(window, inside, span, position) if inside < window.size else None
        if frame is None:  # after the window's last whole frame: go on from here
            window, inside = _window_for(storage, span, position, ahead), 0
            frame = _parse(window, inside, span, position)
        if frame is None:
            raise _truncation_error(span, position)
        if expected is not None and frame.base_offset != expected:
            raise CorruptionError(
                f"{_describe_position(span, position)}: frame has offset {frame.base_offset}, expected {expected}"
            )
        if span.end_offset is not None and frame.next_offset + span.shift > span.end_offset:
            raise CorruptionError(
                f"{_describe_position(span, position)}: frame goes on to offset {frame.next_offset + span.shift}, its "
                f"frames end at {span.end_offset} by the entry that names them"
            )
        yield Located(frame, position, frame.base_offset + span.shift)
        position, inside, expected = position + frame.length, inside + frame.length, frame.next_offset


def _check_rewritten(storage: Storage, path: str, length: int, crc: int) -> None:
    """Refuse another file in place of a rewritten segment.

    Only its size differs visibly. Bytes after the published length are harmless only if the CRC up to it is right. The
    size is that of the opened file: NFS may cache an older one by name.
    """
    size = storage.fetch(path, 0)[1].size
    if size < length or (size > length and crc_of(storage, path, length) != crc):
        raise CorruptionError(
            f"{path} has {size} bytes, {length} were published: it was cut, or the file that it took the place of was "
            "put there; restore it from a copy"
        )


def _window_for(storage: Storage, span: Span, position: int, ahead: Windows | None) -> pa.Buffer:
    if ahead is not None and span.data is None:
        return _window_ahead(ahead, span, position)
    likely = WINDOW_BYTES if span.until is None or span.until <= position else span.until - position
    size = min(max(likely, codec.HEADER_BYTES), WINDOW_BYTES)  # a header has the length
    window = _window(storage, span, position, size)
    needed = codec.needed_bytes(window, 0)
    if window.size < needed <= span.end - position:
        window = _window(storage, span, position, needed)
    return window


def _window_ahead(ahead: Windows, span: Span, position: int) -> pa.Buffer:
    left, until = span.end - position, span.end if span.until is None else span.until
    window = ahead.window(span.path, position, min(codec.HEADER_BYTES, left), until)
    needed = codec.needed_bytes(window, 0)
    if window.size < needed <= left:
        window = ahead.window(span.path, position, needed, until)
    return window.slice(0, min(window.size, left))


def _window(storage: Storage, span: Span, position: int, size: int) -> pa.Buffer:
    size = min(size, span.end - position)
    if span.data is not None:  # an extent may claim more than there is
        start = min(position, span.data.size)
        return span.data.slice(start, min(size, span.data.size - start))
    return storage.map(span.path, position, size)


def _parse(window: pa.Buffer, inside: int, span: Span, position: int) -> Frame | None:
    try:
        return codec.parse(window, inside)
    except CorruptionError as error:
        raise CorruptionError(f"{_describe_position(span, position)}: {error}") from error


def check(located: Located, span: Span) -> Payload:
    """Check a frame's CRC and identity, and return its payload (invariant I8)."""
    try:
        payload = codec.open_payload(located.frame)
    except CorruptionError as error:
        raise CorruptionError(
            f"{_describe_position(span, located.position)}: {error}; restore the file from a copy"
        ) from error
    identity = payload.identity
    if (identity.topic_id, identity.partition) != (span.topic_id, span.partition):
        raise CorruptionError(
            f"{_describe_position(span, located.position)}: frame belongs to topic id {identity.topic_id} partition "
            f"{identity.partition}, expected {span.topic_id} partition {span.partition}: the file was swapped"
        )
    if span.chunk is not None and identity.chunk != span.chunk:
        raise CorruptionError(
            f"{_describe_position(span, located.position)}: frame was staged for chunk {identity.chunk}: the file was "
            "swapped; restore it from a copy"
        )
    if identity.is_sparse and identity.base_offset != located.base_offset:
        raise CorruptionError(
            f"{_describe_position(span, located.position)}: frame has offset {located.base_offset}, "
            f"its record says {identity.base_offset}"
        )
    return payload


def check_whole(located: Located, span: Span) -> tuple[Payload, int]:
    """Check a frame and its Arrow message; return payload and decoded bytes.

    For callers that pass frames on undecoded: impossible metadata would fail every reader.
    """
    payload = check(located, span)
    try:
        return payload, frame_rows.decoded_bytes(payload)
    except CorruptionError as error:
        raise CorruptionError(
            f"{_describe_position(span, located.position)}: {error}; restore the file from a copy"
        ) from error


def earliest_ms(frame: Frame, payload: Payload) -> int | None:
    """Return a frame's smallest timestamp, from its header if it is there."""
    return frame.base_timestamp if frame.delete_horizon_ms is None else earliest_row_ms(frame, payload)


def earliest_row_ms(frame: Frame, payload: Payload) -> int | None:
    """Smallest timestamp of a frame's rows; None if undecodable."""
    try:
        batch = frame_rows.decode(payload, ("timestamp",))
    except CorruptionError:  # the CRC is right; a reader gets the error
        return None
    return earliest_of(batch) if batch.num_rows else frame.max_timestamp


def earliest_of(batch: pa.RecordBatch) -> int:
    """Smallest timestamp (ms) of a non-empty batch."""
    return int(untyped.instants(frame_rows.timestamps(batch)).min()) // _US_PER_MS


def crc_of(storage: Storage, path: str, length: int, start: int = 0) -> int:
    """CRC-32C of `length` bytes of a file, unmapped."""
    crc = 0
    for window in windows(storage, path, start, start + length):
        crc = crc32c(window, crc)
    return crc


def windows(storage: Storage, path: str, start: int, end: int) -> Iterator[pa.Buffer]:
    """Yield windows of the bytes [start, end) of a file."""
    whole = [FileRange(path, start, end)]
    with closing(ahead_of(storage, lambda: [whole.pop()] if whole else ()) or _Pieces(storage)) as ahead:
        while start < end:
            window = ahead.window(path, start, 1, end)
            if not window.size:
                return
            yield window.slice(0, min(window.size, end - start))
            start += window.size


class _Pieces:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        return pa.py_buffer(self._storage.read(path, position, min(max(needed, WINDOW_BYTES), end - position)))

    def close(self) -> None:
        """Nothing is kept."""


def unmapped(storage: Storage) -> Windows | None:
    """Reader that never maps; None if the storage never does.

    A process that has a bad sector mapped is killed (SIGBUS).
    """
    return _Unmapped(storage) if storage.can_append else None


class _Unmapped:
    """Reader that keeps one window.

    Around a bad sector it reads only the needed bytes.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._path, self._start, self._data = "", 0, pa.py_buffer(b"")
        self._bad = range(0)

    def window(self, path: str, position: int, needed: int, end: int) -> pa.Buffer:
        inside = position - self._start
        if path != self._path or not 0 <= inside <= self._data.size - needed:
            self._data = pa.py_buffer(self._read(path, position, needed, end))
            self._path, self._start, inside = path, position, 0
        return self._data.slice(inside)

    def _read(self, path: str, position: int, needed: int, end: int) -> bytes:
        size = max(needed, min(WINDOW_BYTES, end - position))
        if not (path == self._path and position in self._bad):
            try:
                return self._storage.read(path, position, size)
            except OSError as error:
                if not is_eio(error):
                    raise
            self._bad = range(position, position + size)
        return self._storage.read(path, position, needed)


def _describe_position(span: Span, position: int) -> str:
    return f"{span.path} position {position} (partition {span.partition})"


def _truncation_error(span: Span, position: int) -> CorruptionError:
    return CorruptionError(
        f"{_describe_position(span, position)}: the file ends inside a frame, expected {span.end} bytes; "
        "restore it from a copy"
    )
