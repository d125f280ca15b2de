"""DDL gives the columns that Spark's own parser gives, and is refused if Spark refuses it or a type can't be stored."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format.schema.ddl import parse_ddl
from pyspark_commitlog.format.schema.ddl_tokens import WORDS
from pyspark_commitlog.format.schema.declared import declared_fields
from pyspark_commitlog.format.schema.topic_schema import Field

ATOMIC = [word for word, kind in WORDS.items() if kind not in ("array", "map", "struct")]
ACCEPTED = [
    *(f"a {word}, b: {word.lower()}" for word in ATOMIC),
    "a INT NOT NULL",
    "a INT COMMENT 'x'",
    "a INT NOT NULL COMMENT 'x', b STRING",
    'a INT not null comment "x"',
    "a INT COMMENT 'it\\'s'",
    "a INT COMMENT 'it''s'",
    'a INT COMMENT "a""b"',
    r"a INT COMMENT 'tab\t line\n nul\0 Z\Z back\\ per\% und\_ u\u0041 oct\101 other\q'",
    "a INT COMMENT ''",
    "a ARRAY<INT>",
    "a ARRAY<ARRAY<INT>>",
    "a MAP<STRING, ARRAY<ARRAY<ARRAY<INT>>>>",
    "a STRUCT<b: INT, c STRING NOT NULL COMMENT 'x'>",
    "a STRUCT<b: INT, c: STRUCT<d: DATE>> NOT NULL COMMENT 'x', e MAP<INT, INT>",
    "struct<a:int,b:string>",
    "struct<a:int,b:struct<c:decimal(5,2)>>",
    "STRUCT < a INT >",
    "a DECIMAL(5)",
    "a DECIMAL(5,2)",
    "a DECIMAL( 38 , 38 )",
    "a DEC(7), b NUMERIC(7,1)",
    "a   INT\n,\tb\nSTRING",
    "a INT -- the number\n, b STRING",
    "a INT --x\r, b -- y\\\n z\n INT",
    "a INT /* the number */, b STRING",
    "a\xa0INT\u2003, b\u3000INT\x0b",
    "`a b` INT, `c``d` STRING, `e.f` DATE, `g\\h` INT, `-- i` INT",
    "1a INT, a1 INT, _ INT, 2024_sum INT, 12abc INT, 1e INT, 5b INT",
    "select INT, not INT, like INT, key STRING, timestamp TIMESTAMP, comment STRING, order INT, null INT",
    "array ARRAY<INT>, map MAP<INT, INT>, struct STRUCT<struct: INT>, decimal DECIMAL(5, 2), interval INT",
    "INT INT",
    "comment STRING COMMENT 'x'",
]
REFUSED = [
    "-- a INT",
    "a",
    "INT",
    "ARRAY<INT>",
    "MAP<INT, INT>",
    "a INT,",
    ", a INT",
    "a INT,, b INT",
    "a INT b INT",
    "a INT; b INT",
    "a INT COMMENT 'x' NOT NULL",
    "a INT NOT NULL NOT NULL",
    "a INT COMMENT x",
    "a INT COMMENT",
    "a INT DEFAULT 5",
    "a INT GENERATED ALWAYS AS (b)",
    "a INT PRIMARY KEY",
    "a INT NULL",
    "a INT ARRAY",
    "a INT[]",
    "a INT(5)",
    "a STRING(5)",
    "a INT UNSIGNED",
    "a DOUBLE PRECISION",
    "a TIMESTAMP WITH TIME ZONE",
    "a TEXT",
    "a DATETIME",
    "a UUID",
    "a ARRAY",
    "a ARRAY<>",
    "a ARRAY<INT, INT>",
    "a ARRAY<b INT>",
    "a ARRAY<INT NOT NULL>",
    "a ARRAY<INT",
    "a ARRAY<INT>>",
    "a ARRAY(INT)",
    "a MAP<INT>",
    "a MAP<INT, INT, INT>",
    "a STRUCT<INT>",
    "a STRUCT<b INT,>",
    "a STRUCT",
    "a DECIMAL()",
    "a DECIMAL(5,)",
    "a DECIMAL(1,2,3)",
    "a DECIMAL(39)",
    "a DECIMAL(5,6)",
    "a DECIMAL(x)",
    "a DECIMAL(5.0)",
    "a.b INT",
    "a-b INT",
    "a:: INT",
    "a : : INT",
    "'a' INT",
    '"a" INT',
    "a 'INT'",
    "a `INT`",
    "`a INT",
    "123 INT",
    "é INT",
    "a\x85INT",
    "1e5 INT",
    *(f"5{suffix} INT" for suffix in ("L", "s", "Y", "d", "F", "BD", "e5bd")),
    "struct<a: INT>, b INT",
    "SELECT 1",
    "CREATE TABLE t (a INT)",
    "(a INT)",
]
#: Spark reads them; their types and names can't be stored.
NOT_STORED = [
    "a CHAR(5)",
    "a CHARACTER(5)",
    "a VARCHAR(5)",
    "a STRING COLLATE UTF8_LCASE",
    "a ARRAY<STRING COLLATE UNICODE>",
    "a INTERVAL",
    "a INTERVAL DAY TO SECOND",
    "a INTERVAL YEAR",
    "a TIME",
    "a TIME(3)",
    "a VARIANT",
    "a VOID",
    "a GEOMETRY(4326)",
    "a GEOGRAPHY(4326)",
    "a STRUCT<>",
    "`` INT",
    "a " + "ARRAY<" * 9 + "INT" + ">" * 9,
]


def of_spark(text: str) -> StructType | None:
    try:
        kind = StructType.fromDDL(text)
    except PySparkException:
        return None
    return kind if isinstance(kind, StructType) else None


def of_ours(text: str) -> tuple[Field, ...] | None:
    try:
        return parse_ddl(text)
    except UsageError:
        return None


def columns(kind: StructType | None) -> tuple[Field, ...] | None:
    try:
        return declared_fields(kind)
    except UsageError:
        return None


@pytest.mark.parametrize("text", ACCEPTED)
def test_ddl_gives_the_columns_of_spark(spark: SparkSession, text: str) -> None:
    assert parse_ddl(text) == declared_fields(of_spark(text))


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_what_spark_refuses_is_refused(spark: SparkSession, text: str) -> None:
    assert (of_ours(text), of_spark(text)) == (None, None)


@pytest.mark.parametrize("text", NOT_STORED)
def test_a_type_that_cannot_be_stored_is_refused(spark: SparkSession, text: str) -> None:
    assert of_spark(text) is not None
    assert (of_ours(text), columns(of_spark(text))) == (None, None)


NAMES = st.one_of(
    st.sampled_from(["a", "B", "_c1", "select", "not", "key", "timestamp", "array", "1x", "comment"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).map(
        lambda name: f"`{name.replace('`', '``')}`"
    ),
)
COMMENTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), max_size=8).map(
    lambda text: f" COMMENT '{text.replace(chr(39), chr(39) * 2)}'"
)
SUFFIXES = st.builds(str.__add__, st.sampled_from(["", " NOT NULL", " not  null"]), st.one_of(st.just(""), COMMENTS))


def columns_of(types: st.SearchStrategy[str], separators: list[str]) -> st.SearchStrategy[str]:
    column = st.builds("{}{}{}{}".format, NAMES, st.sampled_from(separators), types, SUFFIXES)
    return st.lists(column, min_size=1, max_size=3).map(", ".join)


TYPES = st.recursive(
    st.one_of(
        st.sampled_from([*ATOMIC, *(word.lower() for word in ATOMIC)]),
        st.builds("DECIMAL({},{})".format, st.integers(1, 40), st.integers(0, 10)),
        st.builds("dec( {} )".format, st.integers(1, 38)),
    ),
    lambda inner: st.one_of(
        inner.map("ARRAY<{}>".format),
        st.builds("map<{} , {}>".format, inner, inner),
        columns_of(inner, [" ", ":", " : "]).map("STRUCT<{}>".format),
    ),
    max_leaves=6,
)
SCHEMAS = columns_of(TYPES, [" ", ": "])


@settings(deadline=None)
@given(text=SCHEMAS)
def test_any_schema_gives_the_columns_of_spark(spark: SparkSession, text: str) -> None:
    assert of_ours(text) == columns(of_spark(text))


DAMAGES = st.tuples(
    st.integers(0, 80), st.integers(0, 3), st.sampled_from(["", *" ,<>():`'-", "5", "x", " INT", " NOT", "--", "/*"])
)


@settings(deadline=None)
@given(text=st.one_of(st.sampled_from(ACCEPTED), SCHEMAS), damages=st.lists(DAMAGES, min_size=10, max_size=10))
def test_a_damaged_schema_gives_the_columns_of_spark(
    spark: SparkSession, text: str, damages: list[tuple[int, int, str]]
) -> None:
    for start, length, inserted in damages:
        start %= len(text)
        damaged = text[:start] + inserted + text[start + length :]
        assert of_ours(damaged) == (columns(of_spark(damaged)) or None)
