"""Check an Arrow message's metadata before Arrow allocates memory for it.

Arrow allocates the size that a compressed buffer claims: a 100 KB frame may claim 8 GB. The check takes microseconds,
as layouts (Arrow: `Message.fbs`) are cached: one writer's messages of a schema differ only in their numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import compress
from operator import add, itemgetter
from struct import (
    Struct,
    error as StructError,  # noqa: N812 its module calls it error
)
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.frame import MAX_ROWS

#: Maximum decoded size of a frame, from the record limit: `max.message.bytes` is at most 2³¹ − 1 as in Kafka, and
#: only a frame of one record gets near. Arrow's offsets end there, too.
MAX_DECODED_BYTES = 2**31 - 1
#: Above this size the compression ratio is checked.
_LARGE_BYTES = 64 * 2**20
#: Maximum decoded bytes per compressed byte, by Arrow's codec number. LZ4: a byte of a match's length adds 255.
#: Zstandard: a block of 128 KiB takes 4 bytes.
_MOST = {0: 256, 1: 2**15}

_CONTINUES = 0xFFFF_FFFF
_I64 = Struct("<q")
_I32 = Struct("<i")
_U32 = Struct("<I")
_U16 = Struct("<H")
_HEAD = Struct("<Ii")
#: Bytes of a message's prefix (continuation, metadata length), of a number, and of a buffer's length prefix.
_WORD = 8
#: Length prefix of an uncompressed buffer.
_PLAIN = -1
#: V5 in `MetadataVersion`, `RecordBatch` in the union `MessageHeader`.
_V5 = 4
_RECORD_BATCH = b"\3"
#: Fields read of a table.
_FIELDS = 5
_ENTRIES = [Struct(f"<{count}H") for count in range(_FIELDS + 1)]
_ABSENT = [(0,) * (_FIELDS - count) for count in range(_FIELDS + 1)]
#: Bound of all numbers in metadata: each counts bytes or rows of one frame.
_MOST_NUMBER = 2**40 - 1
#: Maximum number of cached layouts.
_KEPT = 64
#: Bits of a byte, and of an offset into a buffer.
_BYTE, _OFFSET_BITS = 8, 32

Numbers = tuple[int, ...]


class SchemaShape(NamedTuple):
    """Nodes and buffers of a schema's messages, in message order.

    Attributes:
        alike: Node lengths -> the lengths that they must equal.
        needs: (node, buffer, width, extra): a buffer has `width` bits per value of the node, and `extra` if any.
        bitmaps: (node, buffer): validity buffers.
    """

    nodes: int
    buffers: int
    alike: Callable[[Numbers], Numbers]
    needs: tuple[tuple[int, int, int, int], ...]
    bitmaps: tuple[tuple[int, int], ...]


class _Layout(NamedTuple):
    """Positions of the numbers in a message's metadata.

    The other members index what `read` returns; `rest` is the rest under `mask`.
    """

    mask: int
    rest: int
    read: Callable[[bytes], Numbers]
    body: int
    rows: int
    values: slice
    nulls: slice
    places: slice
    lengths: slice
    codec: int | None


def shape_of(schema: pa.Schema) -> SchemaShape:
    """Message shape of a schema.

    Raises:
        TypeError: a column has a type whose buffers are not known here, such as a union's, a view's or a dictionary's.
    """
    alike: list[int] = []
    needs: list[tuple[int, int, int, int]] = []
    bitmaps: list[tuple[int, int]] = []
    buffers = 0

    def add_node(kind: pa.DataType, like: int | None) -> None:
        nonlocal buffers
        node = len(alike)
        alike.append(node if like is None else like)
        if pa.types.is_null(kind):
            return
        bitmaps.append((node, buffers))
        buffers += 1
        if pa.types.is_struct(kind):
            for field in kind:
                add_node(field.type, alike[node])
            return
        if (width := _width(kind)) is not None:
            needs.append((node, buffers, width, 0))
            buffers += 1
            return
        needs.append((node, buffers, _OFFSET_BITS, _OFFSET_BITS))
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            buffers += 1
            add_node(pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type, None)
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            buffers += 2
        else:
            raise TypeError(f"no column has the Arrow type {kind}")

    for field in schema:
        add_node(field.type, 0)
    return SchemaShape(len(alike), buffers, _getter(alike), tuple(needs), tuple(bitmaps))


def _width(kind: pa.DataType) -> int | None:
    """Return the bits of a value; None unless all values have as many."""
    if pa.types.is_dictionary(kind):
        return None
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return int(kind.bit_width) if is_fixed else None


def _getter(nodes: Sequence[int]) -> Callable[[Numbers], Numbers]:
    if len(nodes) == 1:  # of one number `itemgetter` makes no tuple
        return lambda values: (values[nodes[0]],)
    return itemgetter(*nodes)


def decoded_bytes(message: pa.Buffer, shape: SchemaShape) -> tuple[int, bytes]:
    """RecordBatch message's decoded size, and its metadata's copy.

    Rows are left to Arrow (`RecordBatch.validate`) or `checked_bytes`.
    """
    try:
        measured = _decoded_bytes(memoryview(message), shape)
    except (StructError, ValueError, IndexError, TypeError) as error:
        raise CorruptionError(f"the Arrow message does not parse ({error})") from error
    return measured.total, measured.metadata


def checked_bytes(message: pa.Buffer, shape: SchemaShape) -> int:
    """Return a message's decoded size, checking rows, without decoding it."""
    return checked_size(message, shape)[0]


def checked_size(message: pa.Buffer, shape: SchemaShape) -> tuple[int, int]:
    """Return a message's decoded size and its rows; see `checked_bytes`."""
    try:
        measured = _decoded_bytes(memoryview(message), shape)
        _check(measured, shape)
    except (StructError, ValueError, IndexError, TypeError) as error:
        raise CorruptionError(f"the Arrow message does not parse ({error})") from error
    return measured.total, measured.numbers[measured.layout.rows]


def message_bytes(buffer: pa.Buffer, start: int) -> int:
    """Return the length of the encapsulated message at `start`."""
    try:
        view = memoryview(buffer)
        continues, length = _HEAD.unpack_from(view, start)
        end = start + _WORD + length
        if continues != _CONTINUES or length <= 0 or length % _WORD or end > len(view):
            raise ValueError(f"it begins with {continues:08x} and metadata of {length} bytes")
        metadata = bytes(view[start + _WORD : end])
        body = _fields(metadata, 0)[3]
        size: int = _I64.unpack_from(metadata, body)[0] if body else 0
        if not 0 <= size <= len(view) - end:
            raise ValueError(f"its body of {size} bytes is not all there")
    except (StructError, ValueError, IndexError) as error:
        raise CorruptionError(f"the Arrow message does not parse ({error})") from error
    return _WORD + int(length) + size


class _Measured(NamedTuple):
    total: int
    sizes: Sequence[int]
    metadata: bytes
    numbers: Numbers
    layout: _Layout


def _decoded_bytes(message: memoryview, shape: SchemaShape) -> _Measured:
    metadata, numbers, layout = _read(message, shape)
    lengths, places, body = numbers[layout.lengths], numbers[layout.places], numbers[layout.body]
    if max(map(add, places, lengths), default=0) > body:
        raise ValueError(f"a buffer reaches beyond its body of {body} bytes: places {places}, lengths {lengths}")
    if layout.codec is None:
        return _Measured(sum(lengths), lengths, metadata, numbers, layout)
    sizes = _sizes(message, places, lengths, body)
    total = sum(sizes)
    if total > _LARGE_BYTES:
        if total > MAX_DECODED_BYTES:
            raise ValueError(f"it decodes to {total} bytes, a frame to {MAX_DECODED_BYTES} at most")
        for length, size in zip(filter(None, lengths), sizes, strict=True):
            if size > length * _MOST[layout.codec]:
                raise ValueError(f"{length} compressed bytes can't decode to {size}")
    return _Measured(total, sizes, metadata, numbers, layout)


def _read(message: memoryview, shape: SchemaShape) -> tuple[bytes, Numbers, _Layout]:
    continues, length = _HEAD.unpack_from(message)
    start = _WORD + length
    if continues != _CONTINUES or length <= 0 or start % _WORD or start > len(message):
        raise ValueError(f"it begins with {continues:08x} and metadata of {length} bytes, of {len(message)} in all")
    metadata = bytes(message[_WORD:start])
    layout = _layouts.get((shape.nodes, shape.buffers, length))
    if layout is None or int.from_bytes(metadata, "little") & layout.mask != layout.rest:
        layout = _learn(metadata, shape)
    numbers = layout.read(metadata)
    if numbers[layout.body] != len(message) - start:
        raise ValueError(f"its body has {len(message) - start} bytes, expected {numbers[layout.body]}")
    if numbers[layout.rows] > MAX_ROWS:
        raise ValueError(f"it has {numbers[layout.rows]} rows, expected {MAX_ROWS} at most")
    return metadata, numbers, layout


def _sizes(message: memoryview, places: Numbers, lengths: Numbers, body: int) -> list[int]:
    words = _words(message)
    start = len(words) - body // _WORD
    sizes = [words[start + (at >> 3)] for at in compress(places, lengths)]
    if min(sizes, default=0) < 0:
        return [_plain(size, length) for size, length in zip(sizes, filter(None, lengths), strict=True)]
    return sizes


def _words(message: memoryview) -> Sequence[int]:
    return message.cast("q") if sys.byteorder == "little" else Struct(f"<{len(message) // _WORD}q").unpack(message)


def _plain(size: int, length: int) -> int:
    if size >= 0:
        return size
    if size != _PLAIN or length < _WORD:
        raise ValueError(f"a buffer of {length} bytes decodes to {size}")
    return length - _WORD


def _check(measured: _Measured, shape: SchemaShape) -> None:
    """Refuse more rows than buffers hold; even null ones take an offset."""
    numbers, layout, sizes = measured.numbers, measured.layout, measured.sizes
    values, nulls, rows = numbers[layout.values], numbers[layout.nulls], numbers[layout.rows]
    if layout.codec is not None:
        sizes = _of_every_buffer(sizes, numbers[layout.lengths])
    if values[0] != rows or shape.alike(values) != values:
        raise ValueError(f"of {rows} rows its columns, or the fields of a struct, are not equally long: {values}")
    for node, buffer, width, more in shape.needs:
        if values[node] * width + more > _BYTE * sizes[buffer] and values[node]:
            raise ValueError(f"{values[node]} values can't be in a buffer of {sizes[buffer]} bytes")
    for node, bitmap in shape.bitmaps:
        if nulls[node] and not nulls[node] <= values[node] <= _BYTE * sizes[bitmap]:
            raise ValueError(f"{nulls[node]} of {values[node]} values are null in a bitmap of {sizes[bitmap]} bytes")


def _of_every_buffer(sizes: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Add the buffers of length 0, which `sizes` leaves out."""
    if any(0 < length < _WORD for length in lengths):
        raise ValueError(f"a compressed buffer has less than {_WORD} bytes")
    left = iter(sizes)
    return [next(left) if length else 0 for length in lengths]


# --- the flatbuffer ---------------------------------------------------------------------------------------

#: Cached layouts, by numbers of nodes and buffers and length of metadata; one writer makes few.
_layouts: dict[tuple[int, int, int], _Layout] = {}


def _learn(metadata: bytes, shape: SchemaShape) -> _Layout:
    """Parse a new layout from metadata and cache it.

    A position beyond the end raises `struct.error`; only a vtable's offset can lead before the start.
    """
    version, kind, header, body, *_ = _fields(metadata, 0)
    if not version or _U16.unpack_from(metadata, version)[0] != _V5:  # V4 encodes compression differently
        raise ValueError("it is not of metadata version V5")
    if not kind or not header or metadata[kind : kind + 1] != _RECORD_BATCH:
        raise ValueError("it is no RecordBatch")
    rows, nodes, buffers, compression, variadic = _fields(metadata, header)
    if variadic:
        raise ValueError("it has buffers of a variable number")
    codec = _codec(metadata, compression) if compression else None
    runs = [(body, 1), (rows, 1), (_pairs(metadata, nodes, shape.nodes), 2 * shape.nodes)]
    runs.append((_pairs(metadata, buffers, shape.buffers), 2 * shape.buffers))
    layout = _layout(metadata, runs, codec)
    if len(_layouts) >= _KEPT:
        _layouts.clear()
    _layouts[shape.nodes, shape.buffers, len(metadata)] = layout
    return layout


def _layout(metadata: bytes, runs: Sequence[tuple[int, int]], codec: int | None) -> _Layout:
    """Layout of (position, count) runs: body length, rows, nodes, buffers.

    Body length or rows at position 0 are absent.
    """
    names, end, count, first = "<", 0, 0, {0: -1}
    for at, many in sorted(run for run in runs if run[0]):
        if not end <= at <= len(metadata) - many * _WORD:
            raise ValueError("its numbers lie over each other, or are not all there")
        names += f"{at - end}x{many}q"
        end, first[at], count = at + many * _WORD, count, count + many
    unpack = Struct(names).unpack_from
    body, rows, nodes, buffers = (first[at] for at, _ in runs)
    end_of_nodes, end = nodes + runs[2][1], buffers + runs[3][1]
    places = slice(buffers, end, 2)
    numbers = unpack(metadata)
    if not 0 <= min(numbers) <= max(numbers) <= _MOST_NUMBER or any(place % _WORD for place in numbers[places]):
        raise ValueError(f"a number is negative, larger than any of a frame, or no place for a buffer: {numbers}")
    mask = _mask(len(metadata), runs)
    return _Layout(
        mask, int.from_bytes(metadata, "little") & mask,
        unpack if body >= 0 <= rows else lambda metadata: (*unpack(metadata), 0), body, rows,
        slice(nodes, end_of_nodes, 2), slice(nodes + 1, end_of_nodes, 2), places, slice(buffers + 1, end, 2), codec,
    )  # fmt: skip


def _mask(length: int, runs: Sequence[tuple[int, int]]) -> int:
    """Mask of constant bits; of numbers: sign, high bits, low bits of places."""
    mask = (1 << 8 * length) - 1
    for at, many in (run for run in runs if run[0]):
        for number in range(at, at + many * _WORD, _WORD):
            mask ^= _MOST_NUMBER << 8 * number
    places, many = runs[3]
    for place in range(places, places + many * _WORD, 2 * _WORD):
        mask ^= (_WORD - 1) << 8 * place
    return mask


def _fields(metadata: bytes, at: int) -> Numbers:
    """Positions of the first fields (0: absent) of a table.

    `at` holds the offset to the table.
    """
    table = at + _U32.unpack_from(metadata, at)[0]
    listed = table - _I32.unpack_from(metadata, table)[0]
    if listed < 0:
        raise ValueError("a table's list of fields lies before it")
    count = min(max(0, _U16.unpack_from(metadata, listed)[0] - 4) // 2, _FIELDS)
    entries: Numbers = _ENTRIES[count].unpack_from(metadata, listed + 4)
    return (*(table + entry if entry else 0 for entry in entries), *_ABSENT[count])


def _pairs(metadata: bytes, at: int, expected: int) -> int:
    """Start of a vector of `expected` FieldNodes or Buffers."""
    start = at + _U32.unpack_from(metadata, at)[0] if at else 0
    count = _U32.unpack_from(metadata, start)[0] if at else 0
    if count != expected:
        raise ValueError(f"it has {count} nodes or buffers, expected {expected}")
    return start + _U32.size


def _codec(metadata: bytes, at: int) -> int:
    codec, method, *_ = _fields(metadata, at)
    number, way = (metadata[place] if place else 0 for place in (codec, method))
    if number not in _MOST or way:
        raise ValueError(f"it is compressed by codec {number} in way {way}")
    return number
