"""Columns that a topic's Arrow batches have, checked before they are queued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX, MAX_PARTITIONS
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.frame import MAX_RECORD_BYTES
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.producer.records.row_values import RowValues, SentRecord, value_bytes
from pyspark_commitlog.topic.write.records import TopicLimits, narrowed
from pyspark_commitlog.topic.write.staging import row_checks


class TopicColumns:
    """Columns of one topic's batches.

    Attributes:
        schema: None if the topic is untyped.
        began: version of the schema when the producer began.
        partition: name of the column of explicit partitions.
    """

    def __init__(self, topic: str, schema: TopicSchema | None, began: int | None = None) -> None:
        self._topic, self.schema = topic, schema
        present = 0 if schema is None else schema.version
        self.began = present if began is None else began
        self._name, self.partition = ("topic", "partition") if schema is None else ("_topic", "_partition_id")
        # A topic's limits may change until the rows are staged: those are for the stager.
        limits = TopicLimits(
            topic, MAX_PARTITIONS, MAX_RECORD_BYTES, log_append_time=True, before_max_ms=LONG_MAX, after_max_ms=LONG_MAX
        )
        self._checks = row_checks(schema, limits, self.began)

    def check_names(self, schema: pa.Schema) -> None:
        """Check the names and types of a batch's columns."""
        self._checks.check_columns(schema)
        if self._name in schema.names:
            raise InvalidRecordError(
                f"topic {self._topic!r}: a batch goes to one topic; leave its column {self._name!r} out"
            )

    def check_values(self, pieces: Iterable[pa.RecordBatch]) -> None:
        """Check that values fit declared columns; nothing to check of an untyped topic."""
        for piece in pieces if self.schema is not None else ():
            self._checks.prepare(piece, 0)

    def keys(self, piece: pa.RecordBatch) -> pa.Array:
        """Bytes of the records' keys."""
        if self.schema is not None:
            return self._checks.prepare(piece, 0).keys
        if "key" not in piece.schema.names:
            return pa.nulls(piece.num_rows, pa.binary())
        return narrowed("key", piece.column("key"), pa.binary(), self._topic)

    @cached_property
    def values(self) -> RowValues | None:
        """Columns of single records; None if the topic is untyped."""
        return None if self.schema is None else RowValues(self._topic, self.schema, self.began)

    def fit(self, record: SentRecord) -> SentRecord:
        """Return a record as it is queued, with the columns of its dict.

        Raises:
            InvalidRecordError: it is a dict and the topic is untyped, or the reverse, or a value does not fit.
        """
        columns, value = self.values, record.value
        if columns is None:
            if isinstance(value, Mapping):
                raise InvalidRecordError(
                    f"topic {self._topic!r} declares no columns: its records are bytes, str or None, not dicts"
                )
            return record
        if not isinstance(value, Mapping) or record.key is not None:
            raise InvalidRecordError(
                f"topic {self._topic!r} is typed: send takes a dict of the columns {', '.join(columns.names)}, and no "
                "key beside them; send_batch takes many as an Arrow table"
            )
        if record.is_stamped and columns.timestamp is not None:
            raise InvalidRecordError(
                f"topic {self._topic!r}: column {columns.timestamp!r} is its records' timestamp: set it, and leave "
                "the argument timestamp out"
            )
        row = columns.row(value)
        return record._replace(value=row, size=record.size + value_bytes(row), columns=columns)

    def key(self, record: SentRecord) -> bytes | None:
        """Bytes of a record's key, once it fits."""
        return record.key if record.columns is None else record.columns.key_of(record.value)
