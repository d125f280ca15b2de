"""The option `filter`: its condition on the driver and in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import OptionError, UsageError

if TYPE_CHECKING:
    from datetime import tzinfo

    from pyspark_commitlog.format.schema.topic_schema import Type
    from pyspark_commitlog.model import OffsetRange
    from pyspark_commitlog.spark.read.source_options import SourceOptions
    from pyspark_commitlog.topic.read.filter.row_filter import FieldTests, RowFilter


def given_filter(options: SourceOptions, declared: Mapping[str, Type]) -> RowFilter | None:
    """Return the option's filter; `declared` is empty if the topics are untyped.

    Raises:
        OptionError: the topics have no such columns, or Spark would not compare them so.
    """
    if not options.tests:
        return None
    from pyspark_commitlog.topic.read.filter.row_filter import make_filter

    try:
        return make_filter(options.tests, declared or None)
    except UsageError as error:
        raise OptionError(f"option 'filter': {error}") from None


def tests_of(
    row_filter: RowFilter | None, wanted: OffsetRange, ids: Mapping[str, Mapping[str, int]]
) -> FieldTests | None:
    """Return the tests of a range's rows, in a task, by the session's time zone."""
    if row_filter is None:
        return None
    return row_filter.bind(_zone()).of(wanted.topic, wanted.partition, ids.get(wanted.topic))


def _zone() -> tzinfo | None:
    from pyspark_commitlog.spark.common.session_zone import session_zone
    from pyspark_commitlog.topic.read.filter.times import zone_of

    name = session_zone()
    try:
        return None if name is None else zone_of(name)
    except UsageError:
        return None
