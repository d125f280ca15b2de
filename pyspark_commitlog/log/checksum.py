"""A checksum of a commit's records that no order changes, however they were cut into tasks, batches and frames.

It is the sum, modulo 2⁶⁴, of a hash of each record: over key, value, headers and the timestamp where it was given, null
and empty told apart. FORMAT.md has the definition. Not for adversaries: it tells apart what differs by accident.

A hash is linear in the 8-byte words of a record (each folded, so that its high bits count as much), with factors for
their places, and mixed at the end. So all words of many records are summed up at once, and nothing loops over rows:
values of about the same length are copied to a matrix, which takes one product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.format.columns import instants
from pyspark_commitlog.log.partitioner import Ints

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_WORD = 8
#: Words whose places have factors of their own; longer values are cut into blocks of so many, with a factor per block.
BLOCK = 32
_BLOCK_BYTES = BLOCK * _WORD
#: Bytes that are copied at a time: they stay in the processor's cache.
_AT_A_TIME = 2**20
_MASK = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BLOCKS, _HEADERS = 2**32, 2**33  # where the factors of blocks and of headers begin


def mixed(numbers: Hashes) -> Hashes:
    """Return splitmix64's finalizer of each (Steele, Lea, Flood: Fast splittable pseudorandom number generators)."""
    found = numbers ^ (numbers >> np.uint64(30))
    found *= _MIX1
    found ^= found >> np.uint64(27)
    found *= _MIX2
    found ^= found >> np.uint64(31)
    return found


def factors(places: Any) -> Hashes:
    """Return the factor of each place: the odd numbers next to splitmix64's outputs, by their number."""
    return mixed((np.asarray(places, np.uint64) + np.uint64(1)) * _GOLDEN) | np.uint64(1)


_FACTORS = factors(np.arange(BLOCK + 8))
_WORDS = _FACTORS[:BLOCK]
#: Values from which on those of each length are worth a product of their own.
_MANY = 2048
#: Below that, how many words are copied of values that have so many or fewer; by their number; and the factors of so
#: many, 0 behind them.
_STEPS = (0, 1, 2, 4, 8, 16, 24, 32)
_WIDTHS = np.array([next(step for step in _STEPS if step >= count) for count in range(BLOCK)], np.int64)
_OF_COUNT = {step: np.tri(step + 1, step, -1, dtype=np.uint64) * _WORDS[:step] for step in _STEPS}
_TAIL, _LENGTH, _COUNT, _HEADER_VALUE, _TIME, _TIMED, _VALUE, _HEADER = _FACTORS[BLOCK:]


def checksum(batch: pa.RecordBatch, given: pa.Array | None) -> int:
    """Return the checksum of a batch's records; that of several batches is the sum of theirs (``added``).

    Args:
        batch: rows of ``columns.SCHEMA``; the timestamps in it do not count.
        given: the timestamps that were given, microseconds, null where there was none; None for none at all.
    """
    sums = _of_bytes(batch.column(0)) + _of_bytes(batch.column(1)) * _VALUE
    headers = batch.column(2)
    if headers.null_count < len(headers):
        sums += _of_headers(headers) * _HEADER
    if given is not None and given.null_count < len(given):
        instant = _folded(instants(given.fill_null(0)).view(np.uint64)) * _TIME + _TIMED
        sums += instant * _valid(given) if given.null_count else instant
    return int(mixed(sums).sum(dtype=np.uint64))


def added(*checksums: int) -> int:
    """Return the checksum of what several were made of."""
    return sum(checksums) & _MASK


def _of_bytes(column: pa.Array) -> Hashes:
    """Return the sum of each value of a binary or string column, 0 for null."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint64)
    data, bounds = _layout(column)
    lengths = bounds[1:] - bounds[:-1]
    known = _valid(column) if column.null_count else None
    if known is not None:
        lengths *= known  # a null may have bytes
    every_word = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    cut = np.maximum(_WORD - lengths, 0).astype(np.uint64) * np.uint64(8)  # all of a word's bits, for nothing: 0
    sums = _folded(every_word[bounds[1:] - _WORD] >> cut)
    sums *= _TAIL
    sums += (lengths + 1).astype(np.uint64) * _LENGTH
    if known is not None:
        sums *= known
    words = np.maximum(lengths - 1, 0) >> 3
    if len(words) and int(words.max()) > 0:
        _add_words(sums, data, bounds[:-1], words)
    return sums


def _layout(column: pa.Array) -> tuple[Bytes, Ints]:
    """Return a column's bytes, and where its values begin and end in them: a word lies before the end of each."""
    _, offsets, buffer = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    begin = max(0, int(bounds[0]) - _WORD)  # of a slice, the rest is not ours
    data = np.frombuffer(buffer, np.uint8, int(bounds[-1]) - begin, begin) if bounds[-1] else np.zeros(0, np.uint8)
    bounds -= begin
    if bounds[1] < _WORD:
        data = np.concatenate((np.zeros(_WORD, np.uint8), data))
        bounds += _WORD
    return data, bounds


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _folded(words: Hashes) -> Hashes:
    """Return words whose lower half has the upper one too: a product moves bits up only."""
    return words ^ (words >> np.uint64(32))


def _add_words(sums: Hashes, data: Bytes, starts: Ints, words: Ints) -> None:
    """Add the words of each value but its last: whole blocks first, then what is left, by how many words that is."""
    blocks = words >> 5
    long = bool(blocks.any())
    if long:
        _add_blocks(sums, data, starts, blocks)
        starts = starts + blocks * _BLOCK_BYTES
    left = words & (BLOCK - 1)
    exact = len(left) >= _MANY
    width = left if exact else _WIDTHS[left]
    held = np.bincount(width, minlength=BLOCK + 1)
    for count in range(1, BLOCK + 1):
        if held[count]:
            rows = np.flatnonzero(width == count) if held[count] < len(width) else slice(None)
            found = _products(data, starts[rows], count, None if exact else left[rows])
            sums[rows] += found * _of_block(blocks[rows]) if long else found


def _add_blocks(sums: Hashes, data: Bytes, starts: Ints, blocks: Ints) -> None:
    rows = np.flatnonzero(blocks)
    counts = blocks[rows]
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    found = _products(data, np.repeat(starts[rows], counts) + numbers * _BLOCK_BYTES, BLOCK)
    sums[rows] += np.add.reduceat(found * _of_block(numbers), firsts)


def _of_block(numbers: Ints) -> Hashes:
    """Return the factors of blocks; the first has 1."""
    if not numbers.any():
        return np.ones(1, np.uint64)
    return np.where(numbers == 0, np.uint64(1), factors(numbers + _BLOCKS))


def _products(data: Bytes, starts: Ints, width: int, counts: Ints | None = None) -> Hashes:
    """Return, of some words from each start on, the sum of their products with the factors of their places.

    Args:
        data: all bytes.
        starts: where each value's words start.
        width: the words that are copied of each.
        counts: how many of them are its own; None: all.
    """
    size, found = width * _WORD, np.empty(len(starts), np.uint64)
    inside = int(np.searchsorted(starts, len(data) - size, "right"))
    if inside < len(starts):  # a copy's end may lie behind the last value's
        begin, more = int(starts[inside]), np.zeros(size, np.uint8)
        rest = np.concatenate((data[begin:], more))
        found[inside:] = _products(rest, starts[inside:] - begin, width, None if counts is None else counts[inside:])
    every = np.ndarray(max(0, len(data) - size + 1), f"V{size}", data, strides=(1,))
    at_a_time = max(1, _AT_A_TIME // size)
    for first in range(0, inside, at_a_time):
        here = slice(first, min(first + at_a_time, inside))
        words = every[starts[here]].view("<u8").reshape(-1, width)
        words ^= words >> np.uint64(32)
        if counts is None:
            found[here] = np.einsum("ij,j->i", words, _WORDS[:width])
        else:
            found[here] = np.einsum("ij,ij->i", words, _OF_COUNT[width][counts[here]])
    return found


def _of_headers(column: pa.Array) -> Hashes:
    """Return the sum of each record's headers, 0 for null."""
    flat = column.flatten()
    each = mixed(_of_bytes(flat.field(0)) + _of_bytes(flat.field(1)) * _HEADER_VALUE)
    known = _valid(column)
    counts: Ints = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(len(each)) - np.repeat(firsts, counts)
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(each * factors(numbers + _HEADERS), dtype=np.uint64)))
    sums: Hashes = running[firsts + counts] - running[firsts] + (counts + 1).astype(np.uint64) * _COUNT
    return np.where(known, sums, np.uint64(0))
