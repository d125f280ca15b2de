"""Records as a Parquet file: whole values, typed columns, without what is masked (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_commitlog.cli.ui.masking import MASKABLE_BYTES, MASKED, masked_bytes, masked_members
from pyspark_commitlog.cli.ui.record_views import RecordForm
from pyspark_commitlog.json_rows import ENCODER, json_values

#: Names of an untyped topic's columns, as of `Topic.to_arrow`.
_UNTYPED = {
    "_key": "key",
    "_partition_id": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_timestampType": "timestampType",
    "_headers": "headers",
}


def parquet_of(batches: Sequence[pa.RecordBatch], form: RecordForm) -> bytes:
    """Return rows of `form.names` as a Parquet file.

    Masked columns are missing. With masks, nested columns are JSON text, as their members are masked there.
    """
    table = pa.Table.from_batches(batches)
    columns = {name: masked_column(table.column(name), form.masked, name) for name in table.column_names}
    if not form.columns:
        columns = {_UNTYPED.get(name, name): column for name, column in columns.items() if name not in form.masked}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def masked_column(column: pa.ChunkedArray, masked: frozenset[str], name: str = "") -> pa.ChunkedArray | pa.Array:
    """Return a column with masked members."""
    kind = column.type
    if not masked:
        return column
    if name == "_headers":
        rows = column.to_pylist()
        return pa.array([[_header(header, masked) for header in headers or ()] for headers in rows], kind)
    if pa.types.is_binary(kind):
        return pa.array([_masked(data, masked) for data in column.to_pylist()], kind)
    if pa.types.is_string(kind) or pa.types.is_nested(kind):
        values = masked_members(json_values(column.combine_chunks()), masked)
        return pa.array(list(map(_text, values)), pa.string())
    return column


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else ENCODER.encode(value).decode()


def _header(header: dict[str, Any], masked: frozenset[str]) -> dict[str, Any]:
    value = MASKED.encode() if header["key"] in masked else _masked(header["value"], masked)
    return {**header, "value": value}


def _masked(data: bytes | None, masked: frozenset[str]) -> bytes | None:
    if data is None:
        return None
    return masked_bytes(data, masked) if len(data) <= MASKABLE_BYTES else MASKED.encode()
