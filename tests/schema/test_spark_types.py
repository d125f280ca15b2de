"""Every type of PySpark is stored, or refused by name with something to use instead; the page says which."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pyspark.sql.types as spark_types
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.arrow_types import from_arrow, to_arrow
from pyspark_commitlog.format.schema.declared import declared_fields
from pyspark_commitlog.format.schema.types import REMEDIES, as_nullable, normalize_type

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/column-types.md"


class Point(spark_types.UserDefinedType):
    """A user's type."""

    @classmethod
    def sqlType(cls) -> DataType:
        return LongType()

    @classmethod
    def module(cls) -> str:
        return __name__


T = spark_types
STORED: dict[str, list[DataType]] = {
    "ArrayType": [T.ArrayType(LongType()), T.ArrayType(T.ArrayType(StringType(), False))],
    "BinaryType": [T.BinaryType()],
    "BooleanType": [T.BooleanType()],
    "ByteType": [T.ByteType()],
    "DateType": [T.DateType()],
    "DecimalType": [T.DecimalType(), T.DecimalType(38, 38), T.DecimalType(1, 0)],
    "DoubleType": [T.DoubleType()],
    "FloatType": [T.FloatType()],
    "IntegerType": [T.IntegerType()],
    "LongType": [LongType()],
    "MapType": [
        T.MapType(StringType(), LongType()),
        T.MapType(LongType(), T.MapType(StringType(), T.DateType()), False),
        T.MapType(StructType([StructField("k", LongType(), False)]), StringType()),
    ],
    "ShortType": [T.ShortType()],
    "StringType": [StringType()],
    "StructType": [
        StructType([StructField("a", LongType(), False), StructField("b", T.ArrayType(T.TimestampType(), False))]),
    ],
    "TimestampNTZType": [T.TimestampNTZType()],
    "TimestampType": [T.TimestampType()],
}
REFUSED: dict[str, tuple[DataType, str]] = {
    "CalendarIntervalType": (T.CalendarIntervalType(), "interval"),
    "CharType": (T.CharType(5), "char(5)"),
    "DayTimeIntervalType": (T.DayTimeIntervalType(), "interval day to second"),
    "GeographyType": (T.GeographyType(4326), "geography"),
    "GeometryType": (T.GeometryType(4326), "geometry"),
    "NullType": (T.NullType(), "void"),
    "StringType": (StringType("UTF8_LCASE"), "string collate UTF8_LCASE"),
    "TimeType": (T.TimeType(), "time(6)"),
    "UserDefinedType": (Point(), "udt"),
    "VarcharType": (T.VarcharType(9), "varchar(9)"),
    "VariantType": (T.VariantType(), "variant"),
    "YearMonthIntervalType": (T.YearMonthIntervalType(), "interval year to month"),
}
STORED_ONES = [kind for kinds in STORED.values() for kind in kinds]


def inside(kind: DataType) -> list[DataType]:
    """A type, and others with it inside."""
    return [
        kind,
        T.ArrayType(kind),
        T.MapType(StringType(), kind),
        T.MapType(kind, StringType()),
        StructType([StructField("in", kind)]),
        T.ArrayType(StructType([StructField("in", T.ArrayType(kind))])),
    ]


def test_every_class_of_spark_is_stored_or_refused() -> None:
    found = {
        name
        for name, kind in inspect.getmembers(spark_types, inspect.isclass)
        if issubclass(kind, DataType) and not {each for each in kind.__subclasses__() if each is not Point}
    }

    assert found - {"StructField"} == set(STORED) | set(REFUSED)


@pytest.mark.parametrize("kind", STORED_ONES, ids=str)
def test_a_stored_type_is_in_arrow_as_spark_has_it_and_comes_back(kind: DataType) -> None:
    [field] = declared_fields(StructType([StructField("c", kind)]))
    arrow = to_arrow(field.type)
    expected = to_arrow_type(kind, timezone="UTC")

    assert field.type == kind.jsonValue() == from_arrow(arrow, "c")
    assert arrow.equals(expected, check_metadata=True)
    assert str(arrow) == str(expected)  # with the names of elements, and with what is not null


@pytest.mark.parametrize("kind", STORED_ONES, ids=str)
def test_a_nullable_type_is_that_of_spark(kind: DataType) -> None:
    assert as_nullable(normalize_type(kind.jsonValue(), "c")) == kind._as_nullable().jsonValue()


@pytest.mark.parametrize(("kind", "name"), REFUSED.values(), ids=REFUSED)
def test_a_refused_type_is_named_with_another_to_use(kind: DataType, name: str) -> None:
    for outer in inside(kind):
        with pytest.raises(ConfigError, match=rf"^column 'c[^']*' is {re.escape(name)}") as raised:
            declared_fields(StructType([StructField("ok", LongType()), StructField("c", outer)]))
        assert str(raised.value).rpartition(": ")[2] in REMEDIES.values()


def test_the_page_has_every_type() -> None:
    text = PAGE.read_text()
    stored, refused = text.partition("| refused |")[::2]

    for kind in STORED_ONES:
        assert f"\n| `{kind.typeName()}` |" in stored, kind
    for name in REMEDIES:
        assert f"\n| `{name}` |" in refused
    for kind, name in REFUSED.values():
        assert any(
            f"\n| `{start}` |" in refused
            for start in (name, name.partition("(")[0], name.rpartition(" ")[0], name.partition(" ")[0])
        ), kind
