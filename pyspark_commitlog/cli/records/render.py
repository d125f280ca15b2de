"""Output of `commitlog cat`: kcat's `-f` and `-J`, from Arrow (pure).

A format is rendered column by column, with no step of Python per record but for headers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.cli.common.arguments import unescape
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.json_rows import ENCODER, json_rows
from pyspark_commitlog.topic.read.named_columns import COMMON, STAR

#: A part of a format: bytes as they are, or the letter of a token.
Part = bytes | str
#: The columns that the tokens of a format need.
_COLUMNS: Mapping[str, str] = {
    "s": "value", "S": "value", "R": "value", "k": "key", "K": "key", "t": "topic", "p": "partition", "o": "offset",
    "T": "timestamp", "h": "headers",
}  # fmt: skip
JSON_COLUMNS = ("topic", "partition", "offset", "timestampType", "timestamp", "key", "value", "headers")
_US_PER_MS = 1000
_BINARY = pa.binary()


def parse_format(text: str) -> list[Part]:
    """Return the parts of a format: `%s %S %R %k %K %t %p %o %T %h`, `%%`, and escapes.

    Raises:
        UsageError: names the token, and those there are.
    """
    head, *rest = text.replace("%%", "\0").split("%")
    parts: list[Part] = [unescape(head.replace("\0", "%"), "-f")]
    for directive in rest:
        token, literal = directive[:1], directive[1:]
        if token not in _COLUMNS:
            raise UsageError(f"-f: %{token} is no token; there are {' '.join('%' + name for name in _COLUMNS)} and %%")
        parts += [token, unescape(literal.replace("\0", "%"), "-f")]
    return [part for part in parts if part]


def columns_of(parts: Sequence[Part]) -> set[str]:
    """Columns that a format needs."""
    return {_COLUMNS[part] for part in parts if isinstance(part, str)}


def render(batch: pa.RecordBatch, parts: Sequence[Part], null: bytes) -> memoryview:
    """Return the bytes of a format for every record; `null` replaces null."""
    pieces = [_piece(batch, part, null) if isinstance(part, str) else pa.scalar(part, _BINARY) for part in parts]
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        return memoryview(b"".join(part for part in parts if isinstance(part, bytes)) * batch.num_rows)
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", _BINARY))
    _, offsets, data = joined.buffers()
    places = memoryview(offsets).cast("i")
    first, end = places[joined.offset], places[joined.offset + len(joined)]
    return memoryview(data)[first:end] if data is not None else memoryview(b"")


def _piece(batch: pa.RecordBatch, token: str, null: bytes) -> pa.Array:
    column = batch.column(_COLUMNS[token])
    if token in "sk":
        return column.fill_null(null) if column.null_count else column
    if token in "SK":
        return _digits(_lengths(column))
    if token == "R":
        packed = pa.py_buffer(_lengths(column).to_numpy().astype(">i4"))
        return pa.Array.from_buffers(pa.binary(4), len(column), [None, packed]).cast(_BINARY)
    if token == "T":
        return _digits(_milliseconds(column))
    if token == "h":
        return pa.array([b",".join(map(_header, headers or ())) for headers in column.to_pylist()], _BINARY)
    return _digits(column)


def _lengths(column: pa.Array) -> pa.Array:
    """Return each value's bytes; -1 for null."""
    return pc.fill_null(pc.binary_length(column), -1)


def _digits(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(_BINARY)


def _milliseconds(column: pa.Array) -> pa.Array:
    return pc.divide(column.cast(pa.int64()), _US_PER_MS)


def _header(header: Mapping[str, Any]) -> bytes:
    value = header["value"]
    return b"%s=%s" % (header["key"].encode(), b"NULL" if value is None else value)


def typed_columns(columns: Iterable[str]) -> list[str]:
    """Return what to read of a typed topic for these columns of an untyped one: `value` is the JSON of all."""
    names = {"value": STAR, "partition": "_partition_id"}
    return [names.get(name, f"_{name}") for name in columns]


def as_untyped(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows of `typed_columns` as these columns of an untyped topic."""
    declared = batch.select([name for name in batch.schema.names if name not in COMMON.names])
    arrays = [
        pa.array(json_rows(declared), _BINARY) if name == STAR else batch.column(name)
        for name in typed_columns(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def render_json(batch: pa.RecordBatch, *, typed: bool = False) -> bytes:
    """Return a line of JSON for every record, as kcat's `-J`; what is not UTF-8 goes into `…_base64`, beside null.

    Headers are a list of names and values by turns; a value that is not UTF-8 is `{"base64": …}`. A typed topic's
    payload is an object of its columns.
    """
    batch = batch.set_column(
        batch.schema.get_field_index("timestamp"), "timestamp", _milliseconds(batch.column("timestamp"))
    )
    line = _typed_line if typed else _json_line
    return b"".join(line(row) for row in batch.to_pylist())


def _json_line(row: Mapping[str, Any]) -> bytes:
    record = _envelope(row, _json_bytes("payload", row["value"]))
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _typed_line(row: Mapping[str, Any]) -> bytes:
    return ENCODER.encode(_envelope(row, {"payload": msgspec.Raw(row["value"])})) + b"\n"


def _envelope(row: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "tstype": "logappend" if row["timestampType"] else "create",
        "ts": row["timestamp"],
        **_json_bytes("key", row["key"]),
        **payload,
        "headers": [part for header in row["headers"] or () for part in (header["key"], _json_header(header["value"]))],
    }


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    text = _text(value)
    if value is None or text is not None:
        return {name: text}
    return {name: None, f"{name}_base64": base64.b64encode(value).decode()}


def _json_header(value: bytes | None) -> str | dict[str, str] | None:
    text = _text(value)
    if value is None or text is not None:
        return text
    return {"base64": base64.b64encode(value).decode()}


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
