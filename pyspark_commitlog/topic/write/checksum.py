"""Checksum of a commit's records (FORMAT.md).

The sum modulo 2⁶⁴ of a hash per record; detects accidents, not adversaries. A hash is linear in folded 8-byte words,
with a factor per place, and mixed at the end: values padded with zeros form a matrix, which takes one product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.format.columns.untyped import Ints, instants

Hashes = npt.NDArray[np.uint64]
Bounds = npt.NDArray[np.int32]

_WORD = 8
#: Words with factors of their own; longer values are cut into blocks with a factor each.
BLOCK = 32
_BLOCK_BYTES = BLOCK * _WORD
#: Blocks of a matrix row, at most; values that are longer, or of very different lengths, take a row per block.
_WIDE = 32
_WIDE_BYTES = _WIDE * _BLOCK_BYTES
#: Words per row up to which einsum costs more than its words.
_NARROW = 3
#: Padded bytes at a time, to stay in the processor's cache.
_AT_A_TIME = 2**21
#: Rows, and their bytes, that Python pads faster than calls of Arrow.
_FEW, _FEW_BYTES = 32, _WIDE_BYTES  # none is longer than a row
_MASK = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE, _27, _29, _30, _31 = (np.uint64(number) for number in (1, 27, 29, 30, 31))
_BLOCKS, _HEADERS = 2**32, 2**33  # first factors of blocks and of headers


def mixed(numbers: Hashes) -> Hashes:
    """Return splitmix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators)."""
    mixture = numbers ^ (numbers >> _30)
    mixture *= _MIX1
    mixture ^= mixture >> _27
    mixture *= _MIX2
    mixture ^= mixture >> _31
    return mixture


def factors(places: Any) -> Hashes:
    """Factors of places: splitmix64's outputs, made odd."""
    return mixed((np.asarray(places, np.uint64) + _ONE) * _GOLDEN) | _ONE


def _of_blocks(numbers: Ints) -> Hashes:
    return np.where(numbers == 0, _ONE, factors(numbers + _BLOCKS))


_FACTORS = factors(np.arange(BLOCK + 7))
_WORDS = np.outer(_of_blocks(np.arange(_WIDE)), _FACTORS[:BLOCK]).ravel()
_LENGTH, _VALUE, _COUNT, _HEADER_VALUE, _HEADER, _TIME, _TIMED = _FACTORS[BLOCK:]
_PAD = pc.get_function("ascii_rpad")  # copies bytes, and looks at none


def checksum(batch: pa.RecordBatch, given: pa.Array | None) -> int:
    """Checksum of a batch's records; `added` sums several.

    Args:
        batch: rows of `columns.SCHEMA`; its timestamps do not count.
        given: given timestamps, microseconds, null if none; None if all are.
    """
    return int(hashes(batch, given).sum(dtype=np.uint64))


def hashes(batch: pa.RecordBatch, given: pa.Array | None) -> Hashes:
    """Return each record's hash; see `checksum`."""
    keys, values, headers = batch.column(0), batch.column(1), batch.column(2)
    if 0 < batch.num_rows <= _FEW and max(_size(keys), _size(values)) <= _FEW_BYTES:
        sums = _of_few(keys.to_pylist(), values.to_pylist())
    else:
        sums = bytes_hashes(keys) + bytes_hashes(values) * _VALUE
    if headers.null_count < len(headers):
        sums += headers_hashes(headers) * _HEADER
    if given is not None and given.null_count < len(given):
        sums += time_hashes(given)
    return mixed(sums)


def added(*checksums: int) -> int:
    """Checksum of the records of several."""
    return sum(checksums) & _MASK


def _bounds(column: pa.Array) -> Bounds:
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


def _size(column: pa.Array) -> int:
    bounds = _bounds(column)
    return int(bounds[-1]) - int(bounds[0])


def _of_few(keys: list[bytes | None], values: list[bytes | None]) -> Hashes:
    key, value = (-(-max(len(data or b"") for data in column) // _WORD) * _WORD for column in (keys, values))
    rows = (_row(left, key) + _row(right, value) for left, right in zip(keys, values, strict=True))
    words = np.frombuffer(b"".join(rows), "<u8").reshape(len(keys), -1)
    sums: Hashes = _folded(words).dot(_of_places(key, value))
    return sums


def _row(data: bytes | None, size: int) -> bytes:
    return bytes(_WORD + size) if data is None else (len(data) + 1).to_bytes(_WORD, "little") + data.ljust(size, b"\0")


@lru_cache(256)
def _of_places(key: int, value: int) -> Hashes:
    keys, values = (np.append(_LENGTH, _WORDS[: size // _WORD]) for size in (key, value))
    return np.concatenate((keys, values * _VALUE))


def bytes_hashes(column: pa.Array) -> Hashes:
    """Return a word for each value; 0 for null."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint64)
    bounds, data = _bounds(column), column.buffers()[2]
    lengths = bounds[1:] - bounds[:-1]
    longest = int(lengths.max())
    sums = _products(bounds, data, longest) if longest <= _BLOCK_BYTES else _of_long(bounds, lengths, data, longest)
    sums += (lengths.astype(np.uint64) + _ONE) * _LENGTH
    if column.null_count:
        sums *= _valid(column)  # a null may have bytes
    return sums


def _of_long(bounds: Bounds, lengths: Bounds, data: pa.Buffer, longest: int) -> Hashes:
    blocks = np.maximum(-(-lengths // _BLOCK_BYTES), 1)
    firsts = np.cumsum(blocks)
    total = int(firsts[-1])
    if longest <= _WIDE_BYTES and longest * len(lengths) <= total * _BLOCK_BYTES:
        return _products(bounds, data, longest)
    firsts -= blocks
    numbers = np.arange(total) - np.repeat(firsts, blocks)
    cuts = np.repeat(bounds[:-1], blocks) + numbers * _BLOCK_BYTES
    sums = _products(np.append(cuts, bounds[-1]).astype(np.int32), data, _BLOCK_BYTES)
    return np.add.reduceat(sums * _of_blocks(numbers), firsts)


def _products(bounds: Bounds, data: pa.Buffer, longest: int) -> Hashes:
    count, width = len(bounds) - 1, -(-longest // _WORD)
    sums = np.zeros(count, np.uint64)
    at_a_time = _AT_A_TIME // (width * _WORD) if width else count
    offsets, options = pa.py_buffer(bounds), pc.PadOptions(width * _WORD, "\0")
    for first in range(0, count if width else 0, at_a_time):
        rows = min(at_a_time, count - first)
        texts = pa.StringArray.from_buffers(rows, offsets, data, None, 0, first)
        padded = _PAD.call([texts], options).buffers()[2]
        words = np.frombuffer(padded, "<u8", rows * width).reshape(rows, width)
        sums[first : first + rows] = _product(_folded(words))
    return sums


def _product(words: Hashes) -> Hashes:
    width = words.shape[1]
    if width > _NARROW:
        sums: Hashes = np.einsum("ij,j->i", words, _WORDS[:width])
        return sums
    sums = words[:, 0] * _WORDS[0]
    for place in range(1, width):
        sums += words[:, place] * _WORDS[place]
    return sums


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _folded(words: Hashes) -> Hashes:
    """Fold high bits into low ones: a product moves bits up.

    Not by 32: an equal change in both halves of a word, as in pairs of 4-byte numbers, would change no low bit.
    """
    folded = words >> _29
    folded ^= words
    return folded


def time_hashes(column: pa.Array) -> Hashes:
    """Return a word for each timestamp; 0 for null."""
    sums = words_hashes(instants(column.fill_null(0) if column.null_count else column).view(np.uint64))
    if column.null_count:
        sums *= _valid(column)
    return sums


def words_hashes(words: Hashes) -> Hashes:
    """Return a word for each number that is not null."""
    sums = _folded(words)
    sums *= _TIME
    sums += _TIMED
    return sums


def headers_hashes(column: pa.Array) -> Hashes:
    """Return a word for each record's headers; 0 for null."""
    flat = column.flatten()
    hashes = mixed(bytes_hashes(flat.field(0)) + bytes_hashes(flat.field(1)) * _HEADER_VALUE)
    known = _valid(column)
    counts: Ints = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(len(hashes)) - np.repeat(firsts, counts)
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(hashes * factors(numbers + _HEADERS), dtype=np.uint64)))
    sums: Hashes = running[firsts + counts] - running[firsts] + (counts + 1).astype(np.uint64) * _COUNT
    return np.where(known, sums, np.uint64(0))
