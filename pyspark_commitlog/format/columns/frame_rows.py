"""Rows of frames, typed or not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.format.columns import typed, untyped
from pyspark_commitlog.format.columns.statistics import Statistics
from pyspark_commitlog.format.columns.typed import Coded
from pyspark_commitlog.format.frame import COLUMNS, DENSE, SPARSE, SPARSE_COLUMNS, Payload


class Encoded(NamedTuple):
    """Value of a frame's record, and its identity's `kind`, `columns` and `statistics`."""

    value: pa.Buffer
    kind: str
    columns: str | None
    statistics: str | None = None


def encode(batch: pa.RecordBatch, compression: str) -> Encoded:
    """Encode rows of an untyped topic's columns, or of a `typed.frame_schema`, sparse or not."""
    sparse = batch.schema.names[-1] == untyped.OFFSET_DELTA
    if not typed.is_typed(batch.schema):
        return Encoded(untyped.encode(batch, compression), SPARSE if sparse else DENSE, None)
    encoded = typed.encode(batch, compression)
    return Encoded(encoded.value, SPARSE_COLUMNS if sparse else COLUMNS, encoded.columns, encoded.statistics)


def decode(payload: Payload, names: Sequence[str] | None = None, kept: pa.BooleanArray | None = None) -> pa.RecordBatch:
    """Return a frame's rows, or those that are `kept`, in the schema's column order.

    Only the columns in `names` (None: all) are decompressed. A typed frame leaves out those that it lacks.
    """
    identity = payload.identity
    if identity.columns is not None:
        return typed.decode(payload.message, identity.columns, names, sparse=identity.is_sparse, kept=kept)
    batch = untyped.decode(payload.message, sparse=identity.is_sparse, names=names)
    return batch if kept is None else batch.filter(kept)


def statistics(payload: Payload, names: Collection[str] | None = None) -> dict[str, Statistics]:
    """Return a typed frame's statistics by field, of those in `names`, None: all; empty if it has none.

    `key` and `timestamp` are the records', declared or not.
    """
    identity = payload.identity
    if identity.columns is None or identity.statistics is None:
        return {}
    return typed.parse_statistics(payload.message, identity.statistics, names)


def dictionaries(payload: Payload, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the distinct values, nulls left out, of those columns that are stored by dictionaries."""
    identity = payload.identity
    if identity.columns is None:
        return {}
    return typed.dictionaries(payload.message, identity.columns, names, sparse=identity.is_sparse)


def coded(payload: Payload, names: Sequence[str]) -> dict[str, Coded]:
    """Return columns for tests, by name; a typed frame leaves out those that it lacks.

    `key` and `timestamp` are those of the records; a key that is a number is as its bytes.
    """
    identity = payload.identity
    if identity.columns is None:
        batch = untyped.decode(payload.message, sparse=identity.is_sparse, names=names)
        return {name: Coded(batch.column(name)) for name in names if name in batch.schema.names}
    found = typed.coded(payload.message, identity.columns, names, sparse=identity.is_sparse)
    key = found.get("key")
    if key is not None and key.indices is None:
        found["key"] = Coded(typed.key_bytes(key.values))
    return found


def decoded_bytes(payload: Payload) -> int:
    """Return the decoded size of a frame's columns, without decoding."""
    identity = payload.identity
    if identity.columns is not None:
        return typed.decoded_bytes(payload.message, identity.columns, sparse=identity.is_sparse)
    return untyped.decoded_bytes(payload.message, sparse=identity.is_sparse)


def schema_bytes(payload: Payload) -> bytes:
    """Return a typed frame's schema message; empty if untyped."""
    return b"" if payload.identity.columns is None else typed.schema_bytes(payload.message)


def with_deltas(batch: pa.RecordBatch, deltas: pa.Array) -> pa.RecordBatch:
    """Return rows as those of a sparse frame."""
    schema = batch.schema.append(untyped.SPARSE_SCHEMA.field(untyped.OFFSET_DELTA))
    return pa.RecordBatch.from_arrays([*batch.columns, deltas], schema=schema)


def common_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return `key`, `value`, `headers` or `timestamp` of a frame's rows, null if the frame lacks it."""
    if not typed.is_typed(batch.schema):
        return batch.column(name)
    if name == typed.TIME_NAME:
        return timestamps(batch)
    stored = typed.key_name(batch.schema) if name == "key" else name
    if stored not in batch.schema.names:
        return pa.nulls(batch.num_rows, untyped.SCHEMA.field(name).type)
    return typed.key_bytes(batch.column(stored)) if name == "key" else batch.column(stored)


def timestamps(batch: pa.RecordBatch) -> pa.Array:
    """Timestamps (µs, UTC, no nulls) of a frame's rows."""
    return batch.column(typed.time_name(batch.schema))
