"""The source, as Sail takes it: Sail gives and expects Arrow's schemas where Spark has its own."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pyspark_commitlog.spark.batch import CommitLogReader
from pyspark_commitlog.spark.source import DefaultSource


class SailSource(DefaultSource):
    """The ``commitlog`` data source with Arrow's schemas."""

    def schema(self) -> Any:
        """Return the schema; Sail would convert Spark's own without a time zone, which PySpark refuses."""
        return to_arrow_schema(super().schema(), timezone="UTC")

    def reader(self, schema: Any) -> CommitLogReader:
        """Return the batch reader."""
        return super().reader(from_arrow_schema(schema))
