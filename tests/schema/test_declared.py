"""A schema is declared as DDL, by a Spark or Arrow schema, or by an object that has one of these."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.format.schema.declared import arrow_schema, declared_fields
from pyspark_commitlog.format.schema.topic_schema import Column, Field, TopicSchema

DDL = "user STRING NOT NULL, at TIMESTAMP, tags ARRAY<STRING> COMMENT 'x'"
SPARK = StructType(
    [
        StructField("user", StringType(), False),
        StructField("at", TimestampType(), True, {"other": 1}),
        StructField("tags", ArrayType(StringType()), True, {"comment": "x"}),
    ]
)
ARROW = pa.schema(
    [
        pa.field("user", pa.large_string(), nullable=False),
        pa.field("at", pa.timestamp("ns", "Asia/Tokyo"), metadata={"other": "1"}),
        pa.field("tags", pa.list_(pa.string()), metadata={"comment": "x"}),
    ]
)
FIELDS = (
    Field("user", "string", False, None),
    Field("at", "timestamp", True, None),
    Field("tags", {"type": "array", "elementType": "string", "containsNull": True}, True, "x"),
)


@pytest.mark.parametrize(
    "schema",
    [DDL, SPARK, ARROW, SimpleNamespace(schema=SPARK), ARROW.empty_table()],
    ids=["ddl", "spark", "arrow", "data-frame", "arrow-table"],
)
def test_each_kind_of_schema_gives_the_same_columns(schema: object) -> None:
    assert declared_fields(schema) == FIELDS


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        b"a INT",
        ["a INT"],
        {"a": "INT"},
        StructType,
        SimpleNamespace(schema="a INT"),
        SimpleNamespace(schema=3),
    ],
    ids=repr,
)
def test_another_object_is_refused(schema: object) -> None:
    with pytest.raises(
        UsageError, match=r"^schema: it is of type \w+, it must be a DDL string, a Spark StructType, an Arr"
    ):
        declared_fields(schema)


def test_a_type_that_is_no_struct_is_refused() -> None:
    for kind, name in ((LongType(), "long"), (ArrayType(LongType()), "array")):
        with pytest.raises(ConfigError, match=f"^schema: it is the Spark type {name}, it must be a StructType"):
            declared_fields(kind)


def test_a_column_has_a_name() -> None:
    for schema in (StructType([StructField("", LongType())]), pa.schema([("", pa.int8())])):
        with pytest.raises(ConfigError, match=r"^schema: a field has the name ''"):
            declared_fields(schema)


def test_a_collation_is_refused_at_the_top_as_well() -> None:
    with pytest.raises(ConfigError, match=r"^column 'a' is string collate UTF8_LCASE, .*: use string"):
        declared_fields(StructType([StructField("a", ArrayType(StringType("UTF8_LCASE")))]))


def test_a_comment_that_is_no_text_is_dropped() -> None:
    assert declared_fields(StructType([StructField("a", LongType(), True, {"comment": 5})])) == (Field("a", "long"),)
    assert declared_fields(pa.schema([pa.field("a", pa.int64(), metadata={"comment": b"\xff"})]))[0].comment == "\ufffd"


def test_readers_are_shown_nullable_columns() -> None:
    inner = StructType([StructField("n", IntegerType(), False)])
    fields = declared_fields(
        StructType([StructField("a", ArrayType(inner, False), False), StructField("b", LongType(), False)])
    )
    schema = TopicSchema(1, tuple(Column(number, field) for number, field in enumerate(fields, 7)))

    shown = arrow_schema(schema)

    assert shown.equals(
        pa.schema([("a", pa.list_(pa.field("element", pa.struct([("n", pa.int32())])))), ("b", pa.int64())]),
        check_metadata=True,
    )
    assert declared_fields(shown) == (
        Field(
            "a",
            {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}],
                },
                "containsNull": True,
            },
        ),
        Field("b", "long"),
    )
