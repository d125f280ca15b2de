"""DDL gives columns, or one ConfigError that says what was expected. tests/spark/test_ddl_parser.py compares it with Spark."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema import ddl
from pyspark_commitlog.format.schema.ddl import MAX_BYTES, parse_ddl
from pyspark_commitlog.format.schema.ddl_tokens import WORDS
from pyspark_commitlog.format.schema.topic_schema import Field

EXPECTED = "declare columns as in \"user STRING NOT NULL COMMENT 'login', tags ARRAY<STRING>\""


def array(element: object) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True}


def test_columns_have_types_nullability_and_comments() -> None:
    assert parse_ddl(
        """user STRING NOT NULL, -- the login
        `at``` timestamp COMMENT 'it''s "when"', /* of the shop */
        tags: ARRAY<STRING> NOT NULL COMMENT "a\\"b",
        m map<int, struct<x: dec(5), `y z` numeric(7, 2) NOT NULL COMMENT 'gone'>>"""
    ) == (
        Field("user", "string", False),
        Field("at`", "timestamp", True, 'it\'s "when"'),
        Field("tags", array("string"), False, 'a"b'),
        Field(
            "m",
            {
                "type": "map",
                "keyType": "integer",
                "valueType": {
                    "type": "struct",
                    "fields": [
                        {"name": "x", "type": "decimal(5,0)", "nullable": True, "metadata": {}},
                        {"name": "y z", "type": "decimal(7,2)", "nullable": False, "metadata": {}},
                    ],
                },
                "valueContainsNull": True,
            },
        ),
    )


@pytest.mark.parametrize(
    ("word", "kind"), [each for each in WORDS.items() if each[1] not in ("array", "map", "struct")]
)
def test_each_word_is_its_type(word: str, kind: str) -> None:
    expected = "decimal(10,0)" if kind == "decimal" else kind

    assert parse_ddl(f"a {word}, b ARRAY<{word.lower()}>") == (Field("a", expected), Field("b", array(expected)))


@pytest.mark.parametrize(
    "name", ["key", "timestamp", "select", "not", "like", "struct", "comment", "order", "1a", "interval"]
)
def test_a_keyword_may_be_a_name(name: str) -> None:
    inner = {"type": "struct", "fields": [{"name": name, "type": "date", "nullable": True, "metadata": {}}]}

    assert parse_ddl(f"{name} DATE") == parse_ddl(f"{name}: DATE") == (Field(name, "date"),)
    assert parse_ddl(f"s STRUCT<{name} DATE>, {name} INT") == (Field("s", inner), Field(name, "integer"))


def test_a_struct_around_the_columns_may_be_written() -> None:
    assert parse_ddl("struct<a:int,b:array<string>>") == (Field("a", "integer"), Field("b", array("string")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a TIME", "column 'a' is TIME, which can't be stored: use long"),
        ("a CHAR(3)", "column 'a' is CHAR, which can't be stored: use string"),
        ("a VARCHAR(3)", "column 'a' is VARCHAR, which can't be stored: use string"),
        ("a INTERVAL DAY TO SECOND", "column 'a' is INTERVAL, which can't be stored: use long"),
        ("a VARIANT", "column 'a' is VARIANT, which can't be stored: use string"),
        ("a VOID", "column 'a' is VOID, which can't be stored: cast it"),
        ("a GEOMETRY(4326)", "column 'a' is GEOMETRY, which can't be stored: use binary"),
        ("s STRUCT<x: INT, a: MAP<INT, VARIANT>>", "column 'a' is VARIANT, which can't be stored: use string"),
        ("a STRING COLLATE UTF8_LCASE", "column 'a' is STRING COLLATE UTF8_LCASE, which can't be stored: use string"),
        ("a ARRAY<b INT>", "column 'a' is b, which can't be stored: use one of boolean, byte"),
        ("a TEXT", "column 'a' is TEXT, which can't be stored: use one of boolean, byte"),
        ("a DECIMAL(39)", "column 'a' is decimal(39,0), which can't be stored: its precision must be 1 to 38"),
        ("s STRUCT<x: ARRAY<DECIMAL(5, 6)>>", "column 's.x.element' is decimal(5,6), which can't be stored"),
        ("s STRUCT<a INT, A INT>", "column 's': fields 'a' and 'A' differ only in case"),
        ("a " + "ARRAY<" * 9 + "INT" + ">" * 9, "has more than 8 levels of arrays, maps and structs: flatten it"),
    ],
)
def test_another_type_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_ddl(text)

    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the DDL has the end, but a column or type was expected"),
        ("-- a INT", "the DDL has the end"),
        ("a INT,", "the DDL has the end"),
        (", a INT", "the DDL has ',' at character 1"),
        ("a: ", "the DDL has the end, but a type was expected"),
        ("a: INT -- the end", "':' at character 2, but a type, or a new line after the comment"),
        ("INT", "the end, but a type was expected"),
        ("ARRAY<INT>", "'<' at character 6, but a type was expected"),
        ("struct<a INT>, b INT", "a part that can't be in a list of columns"),
        ("a INT b", "'b' at character 7, but NOT NULL, COMMENT or a comma was expected"),
        ("a INT b INT", "'b' at character 7"),
        ("a INT COMMENT 'x' NOT NULL", "'COMMENT' at character 7"),
        ("a INT COMMENT x", "'COMMENT' at character 7"),
        ("a INT DEFAULT 5", "'DEFAULT' at character 7"),
        ("a INT GENERATED ALWAYS AS (b)", "'GENERATED' at character 7"),
        ("a INT NULL", "'NULL' at character 7"),
        ("a INT ARRAY", "'ARRAY' at character 7"),
        ("a INT[]", "'[' at character 6"),
        ("a TIMESTAMP WITH TIME ZONE", "'WITH' at character 13"),
        ("a DOUBLE PRECISION", "'PRECISION' at character 10"),
        ("a INT UNSIGNED", "'UNSIGNED' at character 7"),
        ("a INT, struct<b INT>", "'<' at character 14, but a type was expected"),
        ("a INT(5)", "'(' at character 6, but NOT NULL, COMMENT or a comma was expected"),
        ("a DECIMAL()", "')' at character 11, but a number was expected"),
        ("a DECIMAL(5,)", "')' at character 13, but a number was expected"),
        ("a DECIMAL(5 5)", "'5' at character 13, but a comma or ) was expected"),
        ("a DECIMAL(x)", "'x' at character 11, but a number was expected"),
        ("a DECIMAL(" + "9" * 10_000 + ")", "but a number was expected"),
        ("a DECIMAL(1,2,3)", "DECIMAL with 3 types or parameters"),
        ("a DECIMAL<5>", "'<' at character 10, but NOT NULL, COMMENT or a comma was expected"),
        ("a ARRAY", "the end, but < was expected"),
        ("a ARRAY(INT)", "'(' at character 8, but < was expected"),
        ("a ARRAY<INT", "the end, but > was expected"),
        ("a ARRAY<INT)", "')' at character 12, but a ( before it was expected"),
        ("a INT>; SELECT 1", "'>' at character 6, but a < before it was expected"),
        ("a DECIMAL(5", "the end, but ) was expected"),
        ("a ARRAY<INT NOT NULL>", "a part that can't be in a list of columns"),
        ("a ARRAY<INT, INT>", "ARRAY with 2 types or parameters"),
        ("a MAP<INT>", "MAP with 1 types or parameters"),
        ("a STRUCT<INT>", "'>' at character 13, but a type was expected"),
        ("a STRUCT<b INT> (5)", "'(' at character 17, but NOT NULL"),
        ("a ARRAY<INT> b", "'b' at character 14, but NOT NULL, COMMENT or a comma was expected"),
        ("123 INT", "'123' at character 1, but a name"),
        ("'a' INT", "\"'a'\" at character 1, but a name"),
        ("a 'INT'", "\"'INT'\" at character 3, but a type was expected"),
        ("a.b INT", "'.' at character 2"),
        ("a INT; DROP TABLE b", "';' at character 6"),
        ("`a INT", "'`' at character 1"),
        ("`` INT", "'`' at character 1"),
        ("a INT COMMENT 'x", '"\'" at character 15'),
        ("a INT /* x", "'/' at character 7"),
        ("a " + "ARRAY<" * 1000 + "INT" + ">" * 1000, "more than 32 brackets inside each other"),
    ],
    ids=lambda each: each[:40],
)
def test_what_is_no_ddl_is_refused_with_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_ddl(text)

    assert str(raised.value).startswith("schema: the DDL ")
    assert words in str(raised.value)
    assert EXPECTED in str(raised.value) or "flatten it" in str(raised.value)


def test_the_size_is_bounded() -> None:
    fits = "a INT COMMENT '" + "é" * (MAX_BYTES // 2 - 8) + "'"
    assert len(fits.encode()) == MAX_BYTES
    parse_ddl(fits)

    with pytest.raises(
        ConfigError, match=r"^schema: the DDL has 65537 bytes, at most 65536 are parsed; pass a StructType"
    ):
        parse_ddl(f"{fits} ")


PARTS = st.sampled_from(
    [
        *WORDS,
        *"<>(),:;[]{}-+*/'\"`\\$@\n",
        "a",
        "5",
        "NOT",
        "NULL",
        "COMMENT",
        "'x'",
        "`b`",
        "--",
        "/*",
        "*/",
        "SELECT",
        "DEFAULT",
        "CASE",
        "{{",
        "0x",
        "1e5",
        "$$",
    ]
)


@given(st.one_of(st.text(), st.lists(PARTS, max_size=30).map(" ".join), st.lists(PARTS, max_size=30).map("".join)))
@example("a INT DEFAULT " + "- " * 30_000)
@example("a INT " + "NOT " * 15_000)
@example("a " + "STRUCT<a " * 7_000)
@example("a \ud800 INT")
@example("`\ud800` INT")
@example("\0 INT")
@example("² INT")
@example("a DECIMAL(²)")
def test_any_text_gives_columns_or_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert parse_ddl(text)


@pytest.mark.parametrize(
    "tree",
    [
        "CREATE TABLE t (a INT)",
        "STRUCT<a INT DEFAULT 5>",
        "STRUCT<a INT UNIQUE>",
        "STRUCT<a TIME>",
        "STRUCT<a ARRAY>",
        "STRUCT<a STRING COLLATE x>",
        "STRUCT<a ARRAY<STRING COLLATE x>>",
        "STRUCT<a INT(5)>",
        "STRUCT<a DECIMAL(x)>",
        "STRUCT<a ENUM('x')>",
        "STRUCT<a INT COMMENT 'x' 'y'>",
        "STRUCT<a INTERVAL DAY TO SECOND>",
        "STRUCT<a OBJECT>",
    ],
)
def test_a_node_that_is_not_named_is_refused(tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddl, "spell_ddl", lambda text: text.removeprefix("STRUCT<").removesuffix(">"))

    with pytest.raises(
        ConfigError,
        match=r"^schema: the DDL has (a part|[\w ]+ with \d types or parameters) that can't be in a list of columns; decl",
    ):
        parse_ddl(tree)


def test_a_second_statement_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddl, "spell_ddl", str)

    with pytest.raises(ConfigError, match="a part that can't be in a list of columns"):
        parse_ddl("a INT>; STRUCT<b INT")


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for text in ("a INT", "ALTER TABLE a", "a FOO", "a ARRAY<b INT>", "SHOW TABLES", "a INT COMMENT '{{x}}'"):
            with suppress(ConfigError):
                parse_ddl(text)

    assert caplog.records == []


def test_the_parser_is_imported_with_the_first_ddl() -> None:
    program = """
import json, sys
import pyspark_commitlog.format.schema.declared as declared
before = "sqlglot" in sys.modules
declared.declared_fields("a INT")
print(json.dumps([before, "sqlglot" in sys.modules, "pyspark" in sys.modules]))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(found.stdout) == [False, True, False]
    assert found.stderr == ""
