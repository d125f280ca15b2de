"""Lines of JSON as rows of a typed topic, for `commitlog produce` (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyspark_commitlog.cli.records.json_columns import converter
from pyspark_commitlog.cli.records.lines import (
    Header,
    LineFormat,
    header_cell,
    json_object,
    parse_header_pairs,
    parse_partition,
    parse_timestamp,
)
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.topic_schema import RESERVED, TopicSchema
from pyspark_commitlog.format.schema.types import as_nullable

_US_PER_MS = 1000
#: What `cat -J` writes beside the payload; all but a record's headers, partition and time is left out.
_ENVELOPE = frozenset(["topic", "partition", "offset", "tstype", "ts", "key", "key_base64", "payload", "headers"])


def parse_column_lines(
    lines: Sequence[bytes], first: int, form: LineFormat
) -> tuple[pa.RecordBatch, InvalidRecordError | None]:
    """Return the rows of lines, up to the first invalid one, and its error; see `parse_lines`."""
    assert form.schema is not None
    rows = _Rows(form.schema, form)
    for number, line in enumerate(lines, first):
        try:
            rows.add(line)
        except (ValueError, RecursionError) as error:  # a UsageError is one
            refused = InvalidRecordError(f"line {number}: {error}")
            refused.__cause__ = error
            return rows.batch(), refused
    return rows.batch(), None


class _Rows:
    def __init__(self, schema: TopicSchema, form: LineFormat) -> None:
        self._schema, self._form = schema, form
        self._example = f'give one as {{"{schema.names[0]}": …}}, with the columns {", ".join(schema.names)}'
        key = schema.by_id(schema.key)
        self._converters = {
            column.name: converter(column.field.type, nullable=column.field.nullable and column is not key)
            for column in schema.columns
        }
        self._cells: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._partitions, self._times = list[int | None](), list[int | None]()
        self._headers = list[Sequence[Header]]()

    def add(self, line: bytes) -> None:
        """Add a line's row; nothing of it if it is refused."""
        record = json_object(line, self._example, exact=True)
        columns, beside = self._split(record)
        if unknown := sorted(columns.keys() - self._cells.keys()):
            raise InvalidRecordError(f"there is no column {unknown[0]!r}: it has {', '.join(self._schema.names)}")
        cells = {name: convert(columns.get(name), name) for name, convert in self._converters.items()}
        given = beside.get("headers")
        headers = self._form.headers if given is None else parse_header_pairs(given)
        partition = parse_partition(beside.get("partition_id", self._form.partition))
        timestamp = parse_timestamp(beside.get("timestamp"))
        for name, cell in cells.items():
            self._cells[name].append(cell)
        self._headers.append(headers)
        self._partitions.append(partition)
        self._times.append(None if timestamp is None else timestamp * _US_PER_MS)

    def _split(self, record: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return a line's columns, and what stands beside them: of `cat -J`, or with an underscore."""
        payload = record.get("payload")
        if "payload" not in self._cells and isinstance(payload, dict) and record.keys() <= _ENVELOPE:
            beside = {"headers": record.get("headers"), "partition_id": record.get("partition", self._form.partition)}
            return payload, {**beside, "timestamp": record.get("ts")}
        columns = {name: value for name, value in record.items() if name not in RESERVED}
        return columns, {name.removeprefix("_"): record[name] for name in record.keys() - columns.keys()}

    def batch(self) -> pa.RecordBatch:
        """Return the rows for `Producer.send_batch`."""
        arrays = {
            column.name: pa.array(self._cells[column.name], to_arrow(as_nullable(column.field.type)))
            for column in self._schema.columns
        }
        beside: dict[str, tuple[Sequence[object], pa.DataType]] = {
            "_headers": ([header_cell(headers) for headers in self._headers], HEADERS),
            "_partition_id": (self._partitions, pa.int64()),
            "_timestamp": (self._times, TIMESTAMP),
        }
        arrays |= {
            name: pa.array(cells, kind)
            for name, (cells, kind) in beside.items()
            if any(cell is not None for cell in cells)
        }
        return pa.RecordBatch.from_pydict(arrays)
