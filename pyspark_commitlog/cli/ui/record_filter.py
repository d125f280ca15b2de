"""Filters of records by key, JSON path and header, on Arrow batches (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.cli.ui.json_filter import JsonFilter, parse_json, parse_json_filter
from pyspark_commitlog.cli.ui.masking import MASKABLE_BYTES, check_condition, masked_bytes, masked_members
from pyspark_commitlog.cli.ui.record_query import RecordQuery
from pyspark_commitlog.cli.ui.record_views import RecordForm
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.json_rows import json_values

#: Bytes of a number as a key, by its type: those of Kafka's serializers.
_KEY_SIZES = {"short": 2, "integer": 4, "long": 8}
#: Stands for a value that is no JSON: no path matches it.
_NO_JSON: Any = object()


@dataclass(frozen=True, slots=True)
class HeaderFilter:
    """A header's name, and its value; None for any."""

    name: str
    value: bytes | None = None


def parse_header_filter(text: str) -> HeaderFilter:
    """Parse `name=value`, or `name` alone."""
    name, equals, value = text.partition("=")
    return HeaderFilter(name.strip(), value.strip().encode() if equals else None)


def parse_key(text: str, kind: str) -> bytes:
    """Parse a key: `0x` and hex digits, a whole number if its column is one, or text.

    Args:
        text: as it is typed in.
        kind: `string`, `binary`, `short`, `integer` or `long`.

    Raises:
        UsageError: it is no key of that type.
    """
    try:
        if text.lower().startswith("0x"):
            return bytes.fromhex(text[2:])
        if kind in _KEY_SIZES:
            return int(text).to_bytes(_KEY_SIZES[kind], "big", signed=True)
    except (ValueError, OverflowError):
        raise UsageError(f"key {text}: this is no key of type {kind}: use 0x and hex digits for any bytes") from None
    return text.encode()


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """What the key, a JSON path and a header of a record must be; None for anything."""

    key: bytes | None = None
    path: JsonFilter | None = None
    header: HeaderFilter | None = None

    @classmethod
    def of(cls, query: RecordQuery, form: RecordForm, key: bytes | None) -> RecordFilter:
        """Return the filter of a query.

        Raises:
            UsageError: a part can't be parsed, or names a masked field.
        """
        for text in (query.path, query.header, query.key):
            check_condition(text, form.masked)
        if query.key and form.hides_key:
            raise UsageError("the key is masked: filter by other columns")
        if query.path and "value" in form.masked and not form.columns:
            raise UsageError("the value is masked: filter by other columns")
        path = parse_json_filter(query.path) if query.path else None
        return cls(key, path, parse_header_filter(query.header) if query.header else None)

    def rows(self, batch: pa.RecordBatch, form: RecordForm) -> pa.RecordBatch:
        """Return the rows that meet it."""
        if self.key is not None:
            batch = batch.filter(pc.fill_null(pc.equal(batch.column("_key"), self.key), fill_value=False))
        if self.header is not None:
            batch = batch.filter(pa.array(_with_header(batch.column("_headers"), self.header, form.masked)))
        if self.path is not None:
            values = _documents(batch, form, self.path)
            found = [value is not _NO_JSON and self.path.matches(value) for value in values]
            batch = batch.filter(pa.array(found, pa.bool_()))
        return batch


def _documents(batch: pa.RecordBatch, form: RecordForm, path: JsonFilter) -> Iterator[Any]:
    """Yield each row's value as JSON, masked; of a typed topic the columns that the path may reach."""
    if not form.columns:
        return (_parsed(data, form.masked) for data in batch.column("value"))
    names = [name for name in form.columns if name not in form.masked and path.column in (name, None)]
    columns = [json_values(batch.column(name)) for name in names]
    rows: Iterator[Sequence[Any]] = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
    return (masked_members(dict(zip(names, row, strict=True)), form.masked) for row in rows)


def _parsed(scalar: pa.BinaryScalar, masked: frozenset[str]) -> Any:
    """Return a value's JSON, masked; `_NO_JSON` if it is none, or has more than `MASKABLE_BYTES`."""
    data = scalar.as_buffer()
    if data is None or data.size > MASKABLE_BYTES:
        return _NO_JSON
    try:
        return parse_json(masked_bytes(data.to_pybytes(), masked) if masked else data.to_pybytes())
    except ValueError:
        return _NO_JSON


def _with_header(column: pa.Array, wanted: HeaderFilter, masked: frozenset[str]) -> np.ndarray[Any, Any]:
    """Return, per row, whether it has the header."""
    ends = column.offsets.to_numpy()
    names, values = column.values.slice(ends[0], ends[-1] - ends[0]).flatten()
    found = pc.equal(names, wanted.name).to_numpy(zero_copy_only=False).astype(np.bool_)
    for at in np.flatnonzero(found) if wanted.value is not None else ():
        found[at] = _header_bytes(values[int(at)], masked) == wanted.value
    before = np.concatenate([[0], np.cumsum(found)])
    return np.asarray(before[ends[1:] - ends[0]] > before[ends[:-1] - ends[0]])


def _header_bytes(scalar: pa.BinaryScalar, masked: frozenset[str]) -> bytes | None:
    data = scalar.as_buffer()
    if data is None or (masked and data.size > MASKABLE_BYTES):
        return None
    return masked_bytes(data.to_pybytes(), masked) if masked else bytes(data.to_pybytes())
