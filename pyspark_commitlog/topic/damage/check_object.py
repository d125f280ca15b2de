"""Check of a segment object against its footer and the settle entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.segment_object import LOG, TRAILER_BYTES, Footer, decode_footer, decode_trailer
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.segments.frames import crc_of
from pyspark_commitlog.topic.state.settle_state import Sealed, Shared, sealed_slice


@dataclass
class NamedObject:
    """An object as named: in the tail, or partition -> segment."""

    shared: Shared | None = None
    rows: dict[int, Sealed] = field(default_factory=dict)


def object_faults(storage: Storage, path: str, named: NamedObject) -> Iterator[str]:
    """Yield an object's faults; the caller walks the logs of `named.rows`.

    Raises:
        FileNotFoundError: it is missing.
        CorruptionError: its trailer or footer is damaged.
    """
    size = storage.info(path).size
    if named.shared is not None and size != named.shared.size_bytes:
        yield f"{path} has {size} bytes, {named.shared.size_bytes} were published"
        return
    checked = decode_trailer(storage.read(path, max(0, size - TRAILER_BYTES), TRAILER_BYTES), path)
    if named.shared is not None and checked != named.shared.footer:
        yield f"{path}: its trailer names a footer of {checked}, the settle entry one of {named.shared.footer}"
        return
    footer = _footer(storage, path, size, checked)
    parts_end = sum(piece.length for piece in footer.slices)
    if parts_end + checked.length + TRAILER_BYTES != size:
        yield f"{path} has {size} bytes, its parts and footer {parts_end + checked.length + TRAILER_BYTES}"
    yield from _row_faults(path, footer, named.rows)
    yield from _part_faults(storage, path, footer, named.rows)


def _footer(storage: Storage, path: str, size: int, checked: Checked) -> Footer:
    start = size - TRAILER_BYTES - checked.length
    if start < 0:
        raise CorruptionError(f"{path}: its trailer names a footer of {checked.length} bytes, it has {size}")
    return decode_footer(checked.check(storage.read(path, start, checked.length), path), path)


def _row_faults(path: str, footer: Footer, rows: Mapping[int, Sealed]) -> Iterator[str]:
    name = path.rpartition("/")[2]
    for partition, row in rows.items():
        found = footer.of(partition)
        stored = None if found is None else sealed_slice(name, *found)
        if stored != replace(row, rewrite=0):
            yield f"{path}: its footer has {stored} for partition {partition}, the settle entry names {row}"


def _part_faults(storage: Storage, path: str, footer: Footer, rows: Mapping[int, Sealed]) -> Iterator[str]:
    for position, piece in footer.positioned():
        row = rows.get(piece.partition)
        for part in piece.parts:
            walked = part.name == LOG and row is not None and (row.length, row.crc) == (part.length, part.crc)
            crc = part.crc if walked else crc_of(storage, path, part.length, position)
            if crc != part.crc:
                what = f"{part.name} of partition {piece.partition}, {part.length} bytes from {position}"
                yield f"{path}: the {what}, has CRC-32C {crc:08x}, expected {part.crc:08x}"
            position += part.length
