"""Columns of the source, and a job's choice among them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.read.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

#: A schema in an engine's form: Spark's own type, or Arrow's (Sail).
Schema: TypeAlias = "StructType | pa.Schema"

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def chosen(options: SourceOptions) -> StructType:
    """Return a reader's columns if the job names no schema (pure)."""
    if options.columns is None:
        return _COLUMNS if options.include_headers else StructType(_COLUMNS.fields[:-1])
    known = {field.name.lower(): field for field in _COLUMNS.fields}
    asked = [name.lower() for name in options.columns]
    if not set(asked) <= known.keys() or len(set(asked)) < len(asked):
        names = ", ".join(_COLUMNS.fieldNames())
        raise OptionError(f"option 'columns'={', '.join(options.columns)!r}: name some of {names}, each once")
    if options.include_headers and "headers" not in asked:
        raise OptionError("options 'columns' and 'includeHeaders'='true' exclude each other unless it names headers")
    return StructType([known[name] for name in asked])


def check_schema(schema: StructType) -> None:
    """Check a user's schema: some of the source's columns with their types."""
    known = {field.name: field.dataType for field in _COLUMNS.fields}
    if not schema.fields:  # Spark counts no rows of Arrow batches without columns
        raise OptionError(f"schema: it has no column; name at least one of {', '.join(known)}")
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f"schema: there is no column {field.name!r}; choose from {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise OptionError(
                f"schema: column {field.name!r} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def of_engine(schema: StructType) -> Schema:
    """Return a schema in the form of this process's engine.

    Sail, which runs sources in its process, gets Arrow's: it would drop the time zone of Spark's types, and PySpark
    refuse them.
    """
    if "pysail" not in sys.modules:
        return schema
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def as_spark(schema: Schema) -> StructType:
    """Return an engine's schema in Spark's types."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
