"""Columns that a topic's Arrow batches have, checked before they are queued."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX, MAX_PARTITIONS
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.frame import MAX_RECORD_BYTES
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.topic.write.records import TopicLimits, narrowed
from pyspark_commitlog.topic.write.staging import row_checks


class TopicColumns:
    """Columns of one topic's batches.

    Attributes:
        schema: None if the topic is untyped.
        partition: name of the column of explicit partitions.
    """

    def __init__(self, topic: str, schema: TopicSchema | None) -> None:
        self._topic, self.schema = topic, schema
        self._name, self.partition = ("topic", "partition") if schema is None else ("_topic", "_partition_id")
        # A topic's limits may change until the rows are staged: those are for the stager.
        limits = TopicLimits(
            topic, MAX_PARTITIONS, MAX_RECORD_BYTES, log_append_time=True, before_max_ms=LONG_MAX, after_max_ms=LONG_MAX
        )
        self._checks = row_checks(schema, limits)

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

    def check_record(self) -> None:
        """Refuse a record of key and value if the topic is typed."""
        if self.schema is not None:
            raise InvalidRecordError(
                f"topic {self._topic!r} is typed: it takes the columns {', '.join(self.schema.names)}, no key and "
                "value: use send_batch"
            )
