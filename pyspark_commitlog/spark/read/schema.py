"""Columns of the source, and a job's choice among them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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

    from pyspark_commitlog.format.schema.topic_schema import Type

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
#: The same of all topics, typed or not, beside declared columns.
_COMMON = StructType(
    [
        StructField("_key" if field.name == "key" else f"_{field.name}", field.dataType)
        for field in _COLUMNS
        if field.name not in ("value", "partition")
    ]
).add(StructField("_partition_id", IntegerType()))
#: All columns, in the option `columns`.
STAR = "*"


def needs_topics(options: SourceOptions) -> bool:
    """Whether a reader's columns, or those of its filter, depend on its topics' schemas."""
    if not {test.column.lower() for test in options.tests} <= {name.lower() for name in _COMMON.fieldNames()}:
        return True
    if options.columns is None:
        return not options.include_headers
    known = {name.lower() for name in (*_COLUMNS.fieldNames(), *_COMMON.fieldNames())}
    return not {name.lower() for name in options.columns} <= known


def chosen(options: SourceOptions, declared: Mapping[str, Type] | None = None) -> StructType:
    """Return a reader's columns if the job names no schema (pure).

    `declared` are the columns of its typed topics; None or empty if they are untyped.
    """
    own = _declared(declared) if declared else _COLUMNS
    if declared and options.include_headers:
        raise OptionError("option 'includeHeaders' is for untyped topics: name _headers in the option 'columns'")
    default = own.fieldNames() if declared or options.include_headers else own.fieldNames()[:-1]
    if options.columns is None:
        return StructType([own[name] for name in default])
    known = {field.name.lower(): field for field in (*own.fields, *_COMMON.fields)}
    asked = [each for name in options.columns for each in (default if name == STAR else [name])]
    lower = [name.lower() for name in asked]
    if not set(lower) <= known.keys() or len(set(lower)) < len(lower):
        names = ", ".join((*own.fieldNames(), *_COMMON.fieldNames()))
        raise OptionError(f"option 'columns'={', '.join(options.columns)!r}: name some of {names}, each once")
    if options.include_headers and "headers" not in lower:
        raise OptionError("options 'columns' and 'includeHeaders'='true' exclude each other unless it names headers")
    return StructType([known[name] for name in lower])


def _declared(columns: Mapping[str, Type]) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return StructType.fromJson({"fields": fields})


def is_common(schema: StructType) -> bool:
    """Whether a schema has only columns that untyped topics have, or all."""
    known = {field.name: field.dataType for field in (*_COLUMNS.fields, *_COMMON.fields)}
    return all(_is_of(field, known.get(field.name)) for field in schema.fields)


def untyped_names(schema: StructType) -> list[str]:
    """Names of a schema's columns that typed topics lack."""
    return [name for name in schema.fieldNames() if name in _COLUMNS.fieldNames()]


def check_schema(schema: StructType, declared: Mapping[str, Type] | None = None) -> None:
    """Check a user's schema: some of the source's columns with their types."""
    own = _declared(declared) if declared else _COLUMNS
    known = {field.name: field.dataType for field in (*own.fields, *_COMMON.fields)}
    if not schema.fields:  # Spark counts no rows of Arrow batches without columns
        raise OptionError(f"schema: it has no column; name at least one of {', '.join(own.fieldNames())}")
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f"schema: there is no column {field.name!r}; choose from {', '.join(known)}")
        if not _is_of(field, known[field.name]):
            raise OptionError(
                f"schema: column {field.name!r} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def _is_of(field: StructField, kind: object) -> bool:
    return kind is not None and field.dataType.simpleString() == kind.simpleString()  # type: ignore[attr-defined]


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
