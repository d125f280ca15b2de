"""Checksum of a typed commit's records: its columns by id, whatever their order and version (FORMAT.md).

A record's hash is the mixed sum over its columns of value × factor of the id; null counts 0, an integer as i64, a float
as double. So a column that was added later, or widened, changes no hash.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.format.columns.nested import as_lists
from pyspark_commitlog.format.columns.typed import HEADERS_NAME, TIME_NAME, time_name
from pyspark_commitlog.topic.write.checksum import (
    Hashes,
    bytes_hashes,
    factors,
    headers_hashes,
    mixed,
    time_hashes,
    words_hashes,
)

#: Places of what has no id; ids are below 2³¹.
_HEADERS, _TIME, _ELEMENTS, _FIELDS = 2**34, 2**35, 2**36, 2**37
#: What a list or struct without values, or with null ones, has that null has not.
_ONE = np.uint64(1)


def checksum(batch: pa.RecordBatch, given: pa.Array | None) -> int:
    """Checksum of a batch's records.

    Args:
        batch: rows of a `frame_schema`.
        given: given timestamps, microseconds, null if none; None if all are.
    """
    return int(hashes(batch, given).sum(dtype=np.uint64))


def hashes(batch: pa.RecordBatch, given: pa.Array | None) -> Hashes:
    """Return each record's hash; see `checksum`."""
    sums, time = np.zeros(batch.num_rows, np.uint64), time_name(batch.schema)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == time:
            if given is not None and given.null_count < len(given):
                sums += time_hashes(given) * _factor(_TIME if name == TIME_NAME else int(name))
        elif column.null_count < len(column):
            if name == HEADERS_NAME:
                sums += headers_hashes(column) * _factor(_HEADERS)
            else:
                sums += _of_column(column) * _factor(int(name))
    return mixed(sums)


def _factor(place: int) -> np.uint64:
    number: np.uint64 = factors(np.array([place]))[0]
    return number


def _of_column(column: pa.Array) -> Hashes:
    """Return a word for each value; 0 for null."""
    kind, rows = column.type, len(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return bytes_hashes(column.view(pa.binary()))
    if pa.types.is_struct(kind):
        sums = np.zeros(rows, np.uint64)
        for at, part in enumerate(column.flatten()):
            sums += _of_column(part) * _factor(_FIELDS + at)
        return _living(mixed(sums + _ONE), column)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _of_lists(as_lists(column))
    if pa.types.is_decimal(kind):
        words = np.frombuffer(column.buffers()[1], "<u8", 2 * rows, column.offset * 16).reshape(rows, 2)
        return _living(words_hashes(words[:, 0]) + words_hashes(words[:, 1]) * _factor(_FIELDS), column)
    return _living(words_hashes(_as_words(column)), column)


def _as_words(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_floating(kind):
        doubles = pc.fill_null(column, 0.0).to_numpy().astype(np.float64)
        words: Hashes = doubles.view(np.uint64)
        return words
    if pa.types.is_boolean(kind):
        numbers = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    elif pa.types.is_date32(kind):
        numbers = pc.fill_null(column.view(pa.int32()), 0).to_numpy()
    elif pa.types.is_timestamp(kind):
        numbers = pc.fill_null(column.view(pa.int64()), 0).to_numpy()
    else:
        numbers = pc.fill_null(column, 0).to_numpy()
    integers: Hashes = numbers.astype(np.int64).view(np.uint64)
    return integers


def _of_lists(column: pa.ListArray) -> Hashes:
    counts = pc.fill_null(column.value_lengths(), 0).to_numpy().astype(np.int64)
    inside = _of_column(column.flatten())
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(len(inside)) - np.repeat(firsts, counts)
    running = np.concatenate(
        (np.zeros(1, np.uint64), np.cumsum(inside * factors(numbers + _ELEMENTS), dtype=np.uint64))
    )
    sums = running[firsts + counts] - running[firsts] + counts.astype(np.uint64)
    return _living(mixed(sums + _ONE), column)


def _living(words: Hashes, column: pa.Array) -> Hashes:
    """Return words that are 0 for null."""
    if column.null_count:
        words = words * column.is_valid().to_numpy(zero_copy_only=False)
    return words
