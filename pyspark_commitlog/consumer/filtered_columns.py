"""Columns of polled rows that a filter keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from pyspark_commitlog.topic.read.filter.row_filter import BoundFilter, filter_of
from pyspark_commitlog.topic.read.filter.selected_rows import decoded_mask
from pyspark_commitlog.topic.read.named_columns import NamedColumns, Schemas, offsets_of
from pyspark_commitlog.topic.read.reader import Rows

Select = Callable[[Schemas], NamedColumns]


class FilteredColumns(NamedColumns):
    """Columns of a reader's rows, without the rows that do not pass.

    Frames are decoded as for other consumers of the process, which share them.
    """

    def __init__(self, columns: NamedColumns, row_filter: BoundFilter, schemas: Schemas) -> None:
        self.schema, self._columns, self._filter = columns.schema, columns, row_filter
        self._declared = {topic: None if schema is None else schema.ids for topic, schema in schemas.items()}

    def stored(self, topic: str) -> tuple[str, ...]:
        fields = self._filter.of(topic, 0, self._declared.get(topic)).fields
        return tuple(sorted({*self._columns.stored(topic), *fields}))

    def batch(self, topic: str, partition: int, rows: Rows) -> pa.RecordBatch:
        tests = self._filter.of(topic, partition, self._declared.get(topic))
        mask = decoded_mask(tests, rows.batch, offsets_of(rows))
        batch = self._columns.batch(topic, partition, rows)
        return batch if mask.all() else batch.filter(pa.array(mask))


def filtered(select: Select, condition: str | None) -> Select:
    """Return a selection of columns whose rows meet a condition, if one is given."""
    return select if condition is None else partial(_filtered, select, condition)


def _filtered(select: Select, condition: str, schemas: Schemas) -> NamedColumns:
    row_filter = filter_of(condition, schemas)
    assert row_filter is not None
    return FilteredColumns(select(schemas), row_filter, schemas)
