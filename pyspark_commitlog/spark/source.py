"""Data source `format("commitlog")`.

Imports are local: a query waits for each Python process, and those that find the source and check options need no
Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_commitlog.spark.read.declared_columns import PinnedSchema, are_untyped, merged, pin_schemas
from pyspark_commitlog.spark.read.schema import Schema, as_spark, chosen, needs_topics, of_engine
from pyspark_commitlog.spark.read.source_options import SourceOptions, source_options

if TYPE_CHECKING:
    from pyspark_commitlog.root.root import Root
    from pyspark_commitlog.spark.read.batch import CommitLogReader
    from pyspark_commitlog.spark.read.stream import CommitLogStreamReader


class DefaultSource(DataSource):
    """The `commitlog` data source, found by the package's name."""

    #: Schemas of subscribed topics when `schema` was answered: a query's columns are those, whatever changes.
    _schemas: dict[str, PinnedSchema] | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog"

    def open_log(self, path: str, storage: Mapping[str, str]) -> Root:
        """Open a root; tests override it to inject faults."""
        from pyspark_commitlog.root.root import Root

        return Root(path, storage)

    def schema(self) -> Schema:
        """Return the source's columns, as the options choose them."""
        options = source_options(self.options)
        if not needs_topics(options) or are_untyped(options.path, options.selection):
            return of_engine(chosen(options))
        log = self.open_log(options.path, options.storage).acting_as(options.principal)
        self._schemas = pin_schemas(log.topic, options.selection)
        return of_engine(chosen(options, merged(self._schemas)))

    @property
    def _opener(self) -> Any:
        source = copy(self)  # which goes to each task
        source._schemas = None
        return source.open_log

    def _reading(self) -> SourceOptions:
        return replace(source_options(self.options), schemas=self._schemas)

    def reader(self, schema: Schema) -> CommitLogReader:
        """Return the batch reader."""
        from pyspark_commitlog.spark.read.batch import CommitLogReader

        return CommitLogReader(self._opener, self._reading(), as_spark(schema))

    def streamReader(self, schema: Schema) -> CommitLogStreamReader:
        """Return the micro-batch reader."""
        from pyspark_commitlog.spark.read.stream import CommitLogStreamReader

        return CommitLogStreamReader(self._opener, self._reading(), as_spark(schema))

    def writer(self, schema: Schema, overwrite: bool) -> Any:
        """Return the batch writer."""
        from pyspark_commitlog.spark.write.sink import CommitLogWriter

        return CommitLogWriter(self.open_log, self.options, as_spark(schema), overwrite)

    def streamWriter(self, schema: Schema, overwrite: bool) -> Any:
        """Return the streaming writer."""
        from pyspark_commitlog.spark.write.sink import CommitLogStreamWriter

        return CommitLogStreamWriter(self.open_log, self.options, as_spark(schema), overwrite)
