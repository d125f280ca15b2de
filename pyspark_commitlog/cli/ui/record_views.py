"""Records as plain data for the page: fields cut to a size, masked, as text or hex (pure)."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.cli.ui.masking import MASKABLE_BYTES, MASKED, masked_bytes, masked_members
from pyspark_commitlog.json_rows import ENCODER, json_values

#: Bytes of a key, value or header that are sent and searched; of a column; of all records of a page.
FIELD_BYTES, CELL_BYTES, PAGE_BYTES = 2**16, 2**12, 2**22
#: Headers of a record that are sent.
HEADERS_SHOWN = 100
#: Columns beside the value, of all topics.
COMMON = ("_key", "_partition_id", "_offset", "_timestamp", "_timestampType", "_headers")
_UTF8 = getincrementaldecoder("utf-8")
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Columns of a topic's records, and what of them is masked."""

    #: Declared ones, in order; empty if the topic is untyped.
    columns: tuple[str, ...] = ()
    #: Columns, members of JSON, and headers; `key` and `value` are those of untyped topics.
    masked: frozenset[str] = frozenset()
    #: The declared column that is the key.
    key: str | None = None

    @property
    def hides_key(self) -> bool:
        """Whether the key is masked: by its name, or that of its column."""
        return not self.masked.isdisjoint({"key", "_key", *([self.key] if self.key else [])})

    @property
    def names(self) -> tuple[str, ...]:
        """Columns to read: masked ones are not even decoded."""
        own = self.columns or ("value",)
        common = COMMON[1:] if self.hides_key else COMMON
        return (*(name for name in own if name not in self.masked), *common)


def record_views(batch: pa.RecordBatch, form: RecordForm) -> Iterator[dict[str, Any]]:
    """Yield a batch's records.

    Timestamps are in ms since 1970; `headers` are pairs of name and field; `cells` are a typed topic's columns. A field
    (`field_of`) is None for null.
    """
    own = {name: batch.column(name) for name in form.columns if name not in form.masked}
    values = _typed_values(own, form, batch.num_rows) if form.columns else _untyped_values(batch, form)
    keys = [_masked_field()] * batch.num_rows if form.hides_key else _byte_fields(batch.column("_key"), form.masked)
    times = batch.column("_timestamp").view(pa.int64()).to_pylist()
    rows = zip(
        *(batch.column(name).to_pylist() for name in ("_partition_id", "_offset", "_timestampType")),
        times, keys, values, _headers(batch.column("_headers")),
        strict=True,
    )  # fmt: skip
    for partition, offset, kind, time, key, (value, cells), headers in rows:
        yield {
            "partition": partition,
            "offset": offset,
            "timestamp": time // _US_PER_MS,
            "timestampType": kind,
            "key": key,
            "value": value,
            **({"cells": cells} if form.columns else {}),
            "headers": [(name, _header(name, data, size, form.masked)) for name, data, size in headers],
        }


def field_of(data: bytes | None, size: int | None = None, most: int = FIELD_BYTES) -> dict[str, Any] | None:
    """Return a field's size in bytes, the first `most` as text or, if they are not UTF-8, hex, and whether it is cut.

    `size` is that of the whole field, of which `data` has perhaps only the first bytes.
    """
    if data is None:
        return None
    size = len(data) if size is None else size
    shown = data[:most]
    cut = size > len(shown)
    try:
        form = {"text": _UTF8().decode(shown, final=not cut)}
    except UnicodeDecodeError:
        form = {"hex": shown.hex()}
    return {"size": size, "cut": cut, **form}


def matches(view: dict[str, Any], search: str) -> bool:
    """Whether what is shown of key, value or columns contains a text."""
    fields = (view["key"], view["value"], *view.get("cells", ()))
    return not search or any(search in field.get("text", field.get("hex", "")) for field in fields if field is not None)


def bytes_of_view(view: dict[str, Any]) -> int:
    """Return about the bytes that a record takes in a response."""
    fields = (view["key"], view["value"], *view.get("cells", ()), *(field for _, field in view["headers"]))
    return sum(len(field.get("text", field.get("hex", ""))) for field in fields if field is not None)


def _masked_field() -> dict[str, Any]:
    return {"size": None, "cut": False, "text": MASKED, "masked": True}


def _byte_fields(column: pa.Array, masked: frozenset[str]) -> Iterator[dict[str, Any] | None]:
    """Yield fields of a binary column; only their first bytes become Python's."""
    most = MASKABLE_BYTES if masked else FIELD_BYTES
    sizes = pc.binary_length(column).to_pylist()
    for data, size in zip(pc.binary_slice(column, 0, most).to_pylist(), sizes, strict=True):
        if data is None or not masked:
            yield field_of(data, size)
        elif size > most:  # its end might hold a member
            yield _masked_field()
        else:
            shown = masked_bytes(data, masked)
            yield field_of(shown, len(shown))


def _untyped_values(batch: pa.RecordBatch, form: RecordForm) -> Iterator[tuple[dict[str, Any] | None, None]]:
    if "value" in form.masked:
        fields: Iterator[dict[str, Any] | None] = iter([_masked_field()] * batch.num_rows)
    else:
        fields = _byte_fields(batch.column("value"), form.masked)
    return ((field, None) for field in fields)


def _typed_values(
    own: dict[str, pa.Array], form: RecordForm, count: int
) -> Iterator[tuple[dict[str, Any] | None, list[dict[str, Any] | None]]]:
    """Yield each row's JSON and its columns; long texts and bytes are cut before they become Python's."""
    rows = [_cut(own[name], form.masked) if name in own else [(MASKED, None, False)] * count for name in form.columns]
    for row in zip(*rows, strict=True):
        encoded = ENCODER.encode({name: value for name, (value, _, _) in zip(form.columns, row, strict=True)})
        value = field_of(encoded)
        assert value is not None
        value["cut"] = value["cut"] or any(cut for _, _, cut in row)
        yield value, [_cell(*shown) for shown in row]


def _cut(column: pa.Array, masked: frozenset[str]) -> Sequence[tuple[Any, int | None, bool]]:
    """Return values for JSON, the whole size of texts and bytes unless masked, and whether each was cut."""
    sizes, cut = [None] * len(column), [False] * len(column)
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        lengths = pc.binary_length(column)
        cut = pc.fill_null(pc.greater(lengths, CELL_BYTES), False).to_pylist()
        sizes = sizes if masked else lengths.to_pylist()
        is_text = pa.types.is_string(column.type)
        column = (pc.utf8_slice_codeunits if is_text else pc.binary_slice)(column, 0, CELL_BYTES)
    values = (masked_members(value, masked) for value in json_values(column))
    return list(zip(values, sizes, cut, strict=True))


def _cell(value: Any, size: int | None, cut: bool) -> dict[str, Any] | None:
    if value is None:
        return None
    field = field_of(value.encode() if isinstance(value, str) else ENCODER.encode(value), most=CELL_BYTES)
    assert field is not None
    return {**field, "size": field["size"] if size is None else size, "cut": cut or field["cut"]}


def _headers(column: pa.Array) -> Iterator[list[tuple[str, bytes | None, int | None]]]:
    """Yield the first headers of each record: name, first bytes of the value, its size."""
    ends = column.offsets.to_pylist()
    names, data = column.values.slice(ends[0], ends[-1] - ends[0]).flatten()
    values = pc.binary_slice(data, 0, CELL_BYTES).to_pylist()
    headers = list(zip(names.to_pylist(), values, pc.binary_length(data).to_pylist(), strict=True))
    for start, end in pairwise(end - ends[0] for end in ends):
        yield headers[start : min(end, start + HEADERS_SHOWN)]


def _header(name: str, data: bytes | None, size: int | None, masked: frozenset[str]) -> dict[str, Any] | None:
    if name in masked or (masked and size is not None and size > CELL_BYTES):
        return _masked_field()
    return (
        field_of(masked_bytes(data, masked), most=CELL_BYTES) if data and masked else field_of(data, size, CELL_BYTES)
    )
