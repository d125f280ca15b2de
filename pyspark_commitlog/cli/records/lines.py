"""Lines of bytes as records for `commitlog produce` (pure)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyspark_commitlog.config import MAX_PARTITION
from pyspark_commitlog.errors import InvalidRecordError, UsageError
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.format.given_json import RepeatedKeyError, parse_json
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.instants import iso_or_ms
from pyspark_commitlog.producer.records.batches import MAX_TIMESTAMP_MS

_US_PER_MS = 1000
#: Of a line, or value, in an error.
_SHOWN_BYTES = 60
_EXAMPLE = 'give one as {"key": "a", "value": "b"}, or leave --json out'
Header = tuple[str, bytes | None]
#: What a line of JSON may have; kcat's names for a value and a timestamp count, and its other fields are left out.
_NAMES = frozenset(
    ["key", "key_base64", "value", "value_base64", "payload", "payload_base64", "headers", "timestamp", "ts",
     "partition", "topic", "offset", "tstype"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Form of a line, see `commitlog produce`. `partition` and `headers`: of a record without its own.

    `schema`: that of a typed topic.
    """

    key_separator: bytes | None
    null: bool
    partition: int | None
    headers: tuple[Header, ...]
    as_json: bool
    schema: TopicSchema | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None = None


#: Characters of JSON at most for a byte of a record, and beside the record. `cat -J` writes six for a byte that is
#: escaped, some 20 for a header of a byte or two, and says where the record was.
_JSON_PER_BYTE = 16
_JSON_BESIDE = 2**20
#: The same of a row of declared columns, whose fields are named wherever they stand.
_JSON_PER_TYPED_BYTE = 128


def longest_line(record: int, form: LineFormat) -> int:
    """Maximum bytes of a record's line, given the record's.

    Of JSON a generous guess: spaces and headers of nothing have no bound.
    """
    if form.as_json:
        return record * (_JSON_PER_BYTE if form.schema is None else _JSON_PER_TYPED_BYTE) + _JSON_BESIDE
    return record + len(form.key_separator or b"")


class LineSplitter:
    """Lines of bytes that come in pieces; looks at each byte once, however long its line is.

    `rest` is the line without an end yet.
    """

    def __init__(self, end: bytes) -> None:
        self._end, self.rest = end, bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without their ends."""
        searched = max(0, len(self.rest) - len(self._end) + 1)
        self.rest += piece
        if self.rest.find(self._end, searched) < 0:
            return []
        *lines, rest = bytes(self.rest).split(self._end)
        self.rest = bytearray(rest)
        return lines


def parse_headers(given: Sequence[str]) -> tuple[Header, ...]:
    """Parse several `name=value`; `name` alone has no value."""
    headers: list[Header] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not is_utf8(name):
            raise UsageError(f"-H {text!r}: use name=value; the name is UTF-8")
        headers.append((name, value.encode(errors="surrogateescape") if equals else None))
    return tuple(headers)


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can hold a text."""
    try:
        text.encode()
    except UnicodeEncodeError:  # other bytes of a command line, or half a character of JSON
        return False
    return True


def parse_lines(
    lines: Sequence[bytes], first: int, form: LineFormat
) -> tuple[pa.RecordBatch, InvalidRecordError | None]:
    """Return the records of lines, up to the first invalid one, and its error.

    `first` is the number of the first line, from 1.
    """
    rows: list[_Row] = []
    error: InvalidRecordError | None = None
    try:
        rows.extend(_rows(lines, first, form))
    except InvalidRecordError as refused:
        error = refused
    return _batch(rows), error


def _rows(lines: Sequence[bytes], first: int, form: LineFormat) -> Iterator[_Row]:
    for number, line in enumerate(lines, first):
        try:
            yield _json_row(line, form) if form.as_json else _row(line, form)
        except (ValueError, RecursionError) as error:  # a UsageError is one
            raise InvalidRecordError(f"line {number}: {error}") from error


def _row(line: bytes, form: LineFormat) -> _Row:
    key, value = None, line
    if form.key_separator is not None:
        key, separator, value = line.partition(form.key_separator)
        if not separator:
            shown = form.key_separator.decode(errors="backslashreplace")
            raise InvalidRecordError(f"there is no {shown!r} (-K) that ends a key")
    if form.null:
        return _Row(value or None, key or None, form.headers, form.partition)
    return _Row(value, key, form.headers, form.partition)


def json_object(line: bytes, example: str, *, exact: bool = False) -> Mapping[str, Any]:
    """Parse a line of JSON; `example` is what it should be."""
    try:
        record = parse_json(line, exact=exact)
    except RepeatedKeyError:
        raise
    except ValueError as error:
        shown = line[:_SHOWN_BYTES].decode(errors="backslashreplace")
        raise InvalidRecordError(f"{shown!r} is no JSON ({error}): {example}") from None
    if not isinstance(record, dict):
        raise InvalidRecordError(f"a record is an object: {example}")
    return record


def _json_record(line: bytes) -> Mapping[str, Any]:
    record = json_object(line, _EXAMPLE)
    if unknown := sorted(record.keys() - _NAMES):
        raise InvalidRecordError(
            f"unknown {', '.join(unknown)}: a record has key, value, headers, timestamp, partition"
        )
    return record


def _json_row(line: bytes, form: LineFormat) -> _Row:
    record = _json_record(line)
    name = "payload" if "payload" in record or "payload_base64" in record else "value"
    if name not in record and f"{name}_base64" not in record:
        raise InvalidRecordError("there is no value; null is one")
    return _Row(
        _bytes(record, name),
        _bytes(record, "key"),
        parse_header_pairs(record["headers"]) if "headers" in record else form.headers,
        parse_partition(record.get("partition", form.partition)),
        parse_timestamp(record.get("timestamp", record.get("ts"))),
    )


def parse_partition(given: Any) -> int | None:
    """Check a partition's number."""
    if given is not None and (type(given) is not int or not 0 <= given <= MAX_PARTITION):
        raise InvalidRecordError(f"partition {given!r} is no number from 0 to {MAX_PARTITION}")
    return given


def _bytes(record: Mapping[str, Any], name: str) -> bytes | None:
    encoded = record.get(f"{name}_base64")
    if encoded is not None:
        return _decoded(encoded)
    text = record.get(name)
    if text is not None and not isinstance(text, str):
        quoted = json.dumps(json.dumps(text))
        shown = f', as in "{name}": {quoted}' if len(quoted) <= _SHOWN_BYTES else ""
        raise InvalidRecordError(f"{name} is no string: give JSON as a string{shown}; bytes go into {name}_base64")
    return None if text is None else text.encode()


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise InvalidRecordError(f"{text!r} is not base64 ({error})") from None


def parse_header_pairs(given: Any) -> tuple[Header, ...]:
    """Parse an object, or kcat's list of alternating names and values."""
    pairs = list(given.items()) if isinstance(given, dict) else None
    if isinstance(given, list) and len(given) % 2 == 0:
        pairs = list(zip(given[::2], given[1::2], strict=True))
    if pairs is None or not all(isinstance(name, str) and is_utf8(name) for name, _ in pairs):
        raise InvalidRecordError("headers are an object, or a list of names and values by turns; names are text")
    return tuple((name, _header(value)) for name, value in pairs)


def _header(value: object) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _decoded(value["base64"])
    if value is not None and not isinstance(value, str):
        raise InvalidRecordError(f'header value {value!r} is no string; bytes are {{"base64": …}}')
    return None if value is None else value.encode()


def parse_timestamp(given: object) -> int | None:
    """Parse ms since 1970 or ISO 8601 to ms."""
    instant = None if given is None or isinstance(given, bool) else iso_or_ms(str(given))
    if given is not None and (instant is None or abs(instant) > MAX_TIMESTAMP_MS):
        raise InvalidRecordError(f"timestamp {given!r} is neither ms since 1970 nor a time as 2026-01-31T12:00")
    return instant


def header_cell(headers: Sequence[Header]) -> list[dict[str, str | bytes | None]] | None:
    """Return headers for an Arrow column."""
    return [{"key": name, "value": value} for name, value in headers] or None


def _timestamp_cell(row: _Row) -> int | None:
    return None if row.timestamp_ms is None else row.timestamp_ms * _US_PER_MS


#: Columns that a producer takes: type, and cell of a row.
_COLUMNS: Mapping[str, tuple[pa.DataType, Callable[[_Row], object]]] = {
    "value": (pa.binary(), lambda row: row.value),
    "key": (pa.binary(), lambda row: row.key),
    "headers": (HEADERS, lambda row: header_cell(row.headers)),
    "partition": (pa.int64(), lambda row: row.partition),
    "timestamp": (TIMESTAMP, _timestamp_cell),
}


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    """Columns that a producer takes, but those that no record has."""
    columns = {}
    for name, (kind, cell_of) in _COLUMNS.items():
        cells = [cell_of(row) for row in rows]
        if name == "value" or any(cell is not None for cell in cells):
            columns[name] = pa.array(cells, kind)
    return pa.RecordBatch.from_pydict(columns)
