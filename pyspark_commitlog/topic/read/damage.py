"""Readable frames of a damaged run, and the lost offsets between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.index import OffsetEntry
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.segments.frames import Located, Span, Windows, check_whole, unmapped, walk


@dataclass(frozen=True, slots=True)
class Fragment:
    """Offsets [start, end): a frame, or unreadable ones if `located` is None."""

    start: int
    end: int
    located: Located | None
    why: str = ""


def fragments_of(
    storage: Storage, span: Span, start: int, end: int, index: Sequence[OffsetEntry] = ()
) -> Iterator[Fragment]:
    """Yield the fragments of a span with offsets [start, end).

    After a damaged frame it goes on only if two witnesses agree on an offset (I2): the frame's length and row count
    lead to a frame of that offset, or an index entry names a whole frame. Otherwise the rest is lost.
    """
    position, offset, ahead = span.start, start, unmapped(storage) if span.unmapped else None
    while offset < end:
        try:
            located = _frame_at(storage, span, position, offset, ahead)
            check_whole(located, span)
            if located.next_offset > end:
                raise CorruptionError(f"{span.path} position {position}: more rows than were published")
        except (FileNotFoundError, CorruptionError) as error:
            position, after = _after(storage, span, position, offset, end, index, ahead)
            why = f"{span.path} is missing" if isinstance(error, FileNotFoundError) else str(error)
            yield Fragment(offset, after, None, why)
            offset = after
        else:
            yield Fragment(offset, located.next_offset, located)
            position, offset = position + located.frame.length, located.next_offset


def _frame_at(storage: Storage, span: Span, position: int, offset: int | None, ahead: Windows | None) -> Located:
    base = None if offset is None else offset - span.shift
    for located in walk(storage, replace(span, start=position, base_offset=base, rewritten=None), ahead):
        return located
    raise CorruptionError(f"{span.path} position {position}: the frames end, rows are missing")


def _after(
    storage: Storage,
    span: Span,
    position: int,
    offset: int,
    end: int,
    index: Sequence[OffsetEntry],
    ahead: Windows | None,
) -> tuple[int, int]:
    try:
        damaged = _frame_at(storage, span, position, None, ahead).frame
        following = position + damaged.length, offset + damaged.last_offset_delta + 1
        if following[1] < end:
            _frame_at(storage, span, *following, ahead)
            return following
    except (FileNotFoundError, CorruptionError):
        pass
    for entry in index:
        if position < entry.position and offset <= entry.offset < end:
            try:
                named = _frame_at(storage, span, entry.position, None, ahead)
                check_whole(named, span)
            except (FileNotFoundError, CorruptionError):
                continue
            if offset < named.base_offset and named.next_offset - 1 == entry.offset:
                return entry.position, named.base_offset
    return span.end, end
