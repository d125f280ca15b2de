"""Check of a typed frame's values, beyond what readers look at: text, and nulls."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.columns.nested import null_parts
from pyspark_commitlog.format.columns.statistics import holds
from pyspark_commitlog.format.frame import Frame, Payload
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.topic_schema import Column, TopicSchema
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.topic.segments.rewrite import rows_of


def typed_faults(frame: Frame, payload: Payload, schema: TopicSchema | None) -> Iterator[str]:
    """Yield the faults of a frame's rows, of one without columns if it has rows.

    Args:
        schema: the topic's; NOT NULL is only ever dropped, so the newest one holds for all frames.
    """
    if schema is None and not payload.identity.is_typed:
        return
    try:
        batch, _ = rows_of(frame, payload)
    except CorruptionError as error:
        yield str(error)
        return
    if schema is None or not payload.identity.is_typed:
        if batch.num_rows:
            yield f"{batch.num_rows} rows have the columns {batch.schema.names}, which are not the topic's"
        return
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            yield f"column {name} is no valid {values.type} ({error})"
    yield from _statistics_faults(payload, batch)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for column in schema.columns:
        yield from _null_faults(column, columns.get(column.stored_name), batch.num_rows)


def _statistics_faults(payload: Payload, batch: pa.RecordBatch) -> Iterator[str]:
    try:
        found = frame_rows.statistics(payload)
    except CorruptionError as error:
        yield str(error)
        return
    for name in sorted(found.keys() & set(batch.schema.names)):
        if not holds(found[name], batch.column(name)):
            yield f"the statistics of column {name} say {found[name]}, which its values do not fit"


def _null_faults(column: Column, values: pa.Array | None, rows: int) -> Iterator[str]:
    nulls = rows if values is None else values.null_count
    if nulls and not column.field.nullable:
        yield f"column {column.name!r} is null in {nulls} of {rows} rows, and is declared NOT NULL"
    if values is not None and values.type == to_arrow(as_nullable(column.field.type)):
        for part, count in null_parts(column.name, column.field.type, values):
            yield f"{part} is null in {count} places of column {column.name!r}, and is declared NOT NULL"
