"""Bytes of the values of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.format.columns.nested import as_lists
from pyspark_commitlog.format.columns.untyped import Ints

_BITS = 8


def row_bytes(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return the bytes of each row's values; nulls have none."""
    total = np.zeros(rows, np.int64)
    for column in columns:
        if column.null_count < len(column):
            total += _of_column(column)
    return total


def _of_column(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _counted(pc.binary_length(column))
    if pa.types.is_struct(kind):
        return row_bytes(column.flatten(), len(column))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _of_lists(as_lists(column))
    width = -(-int(kind.bit_width) // _BITS)
    present: Ints = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return present * width


def _of_lists(column: pa.ListArray) -> Ints:
    per_row = _counted(column.value_lengths())
    ends = np.cumsum(per_row)
    running = np.concatenate(([0], np.cumsum(_of_column(column.flatten()))))
    sizes: Ints = running[ends] - running[ends - per_row]
    return sizes


def _counted(lengths: pa.Array) -> Ints:
    counts: Ints = pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
    return counts
