"""What may change in a typed topic's schema, by id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType

from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.format.schema.declared import declared_change, declared_fields
from pyspark_commitlog.format.schema.schema_change import (
    SchemaChange,
    changed_schema,
    describe_change,
    is_widening,
    plan_merge,
)
from pyspark_commitlog.format.schema.topic_schema import (
    FORMER_BYTES,
    MAX_CELLS,
    Declaration,
    FormerName,
    TopicSchema,
    check_partitions,
    declare,
    draw_ids,
)

DDL = "user STRING NOT NULL, at TIMESTAMP, n INT NOT NULL, price DECIMAL(5,2), tags ARRAY<STRING>"
BEFORE = declare(Declaration(declared_fields(DDL), "user", "at"), "seed")


def change(before: TopicSchema = BEFORE, **asked: Any) -> TopicSchema:
    wanted = declared_change(**asked)
    assert wanted is not None
    return changed_schema(before, wanted, f"seed {before.version}")


def shown(schema: TopicSchema) -> list[tuple[str, Any, bool]]:
    return [(column.name, column.field.type, column.field.nullable) for column in schema.columns]


def test_each_change_makes_the_next_version() -> None:
    after = change(
        add="x MAP<STRING, INT>", drop="tags", rename={"n": "count"}, widen={"n": "BIGINT", "price": "DECIMAL(9,2)"}
    )
    assert after.version == 2
    assert [name for name, _, _ in shown(after)] == ["user", "at", "count", "price", "x"]
    assert [column.id for column in after.columns[:4]] == [column.id for column in BEFORE.columns[:4]]
    assert (after.key, after.timestamp) == (BEFORE.key, BEFORE.timestamp)
    assert shown(after)[2:4] == [("count", "long", False), ("price", "decimal(9,2)", True)]
    assert [column.since for column in after.columns] == [1, 1, 2, 2, 2]
    assert {column.id for column in after.columns}.isdisjoint({BEFORE.ids["tags"]})


def test_a_whole_schema_moves_drops_adds_and_lets_go_of_not_null() -> None:
    after = change(schema="price DECIMAL(5,2), new DATE, n INT, user STRING NOT NULL, at TIMESTAMP")
    assert [name for name, _, _ in shown(after)] == ["price", "new", "n", "user", "at"]
    assert shown(after)[2] == ("n", "integer", True)
    assert [column.since for column in after.columns] == [1, 2, 2, 1, 1]


def test_without_a_difference_nothing_changes() -> None:
    assert change(schema=DDL) is BEFORE
    assert change(widen={"n": "INT"}) is BEFORE
    assert change(rename={"n": "n"}) is BEFORE


def test_names_may_be_swapped() -> None:
    after = change(rename={"n": "price", "price": "n"})
    assert (after.ids["n"], after.ids["price"]) == (BEFORE.ids["price"], BEFORE.ids["n"])
    assert after.former == ()
    assert after.ids_for_writer(0) == after.ids


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"add": "x INT NOT NULL"}, "column 'x' is NOT NULL: rows of before have none"),
        ({"schema": f"{DDL}, x INT NOT NULL"}, "column 'x' is NOT NULL"),
        ({"add": "N INT"}, "differ only in case"),
        ({"add": "n BIGINT"}, "there is a column 'n' already"),
        ({"add": "x INT, x INT"}, "there are two columns 'x'"),
        ({"schema": "user STRING, at TIMESTAMP, N INT"}, "column 'N' is column 'n' but for case"),
        ({"rename": {"n": ""}}, "'' is no column name: it takes 1 to 255 characters"),
        ({"rename": {"n": "x" * 256}}, "is no column name"),
        ({"rename": {"n": 5}}, "5 is no column name"),
        ({"rename": {"n": "a\ud800"}}, "is no column name"),
        ({"add": "_offset BIGINT"}, "a name that the log uses itself"),
        ({"drop": "user"}, "column 'user' is the key, and can't be dropped"),
        ({"drop": ["at"]}, "column 'at' is the timestamp, and can't be dropped"),
        ({"schema": "at TIMESTAMP, n INT"}, "column 'user' is the key, and can't be dropped"),
        ({"drop": "x"}, "there is no column 'x'; it has user, at, n, price, tags"),
        ({"rename": {"x": "y"}}, "there is no column 'x'"),
        ({"widen": {"x": "INT"}}, "there is no column 'x'"),
        ({"drop": "n", "rename": {"n": "m"}}, "column 'n' can't be dropped and changed at once"),
        ({"drop": "n", "widen": {"n": "BIGINT"}}, "column 'n' can't be dropped and changed at once"),
        ({"rename": {"n": "price"}}, "there are two columns 'price'"),
        ({"widen": {"n": "SMALLINT"}}, "column 'n' is int and can't become smallint"),
        ({"widen": {"n": "DOUBLE"}}, "column 'n' is int and can't become double"),
        ({"widen": {"n": "STRING"}}, "column 'n' is int and can't become string"),
        ({"widen": {"price": "DECIMAL(9,3)"}}, "can't become decimal\\(9,3\\)"),
        ({"widen": {"price": "DECIMAL(4,2)"}}, "can't become decimal\\(4,2\\)"),
        ({"widen": {"user": "BINARY"}}, "column 'user' is the key: its type can't be changed"),
        ({"widen": {"at": "TIMESTAMP_NTZ"}}, "column 'at' is the timestamp: its type can't be changed"),
        ({"widen": {"tags": "ARRAY<BINARY>"}}, "can't become array<binary>"),
        ({"schema": "user STRING, at TIMESTAMP, n INT, price DECIMAL(5,2) NOT NULL"}, "'price' can't become NOT NULL"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_column_and_reason(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        change(**asked)


NESTED = "a STRUCT<x: INT NOT NULL, y: ARRAY<INT>>, m MAP<STRING, INT>"


def test_nulls_may_become_allowed_inside_a_column_and_not_refused() -> None:
    strict = declare(Declaration(declared_fields(NESTED)), "seed")
    loose = change(strict, schema="a STRUCT<x: INT, y: ARRAY<INT>>, m MAP<STRING, INT>")
    assert [column.since for column in loose.columns] == [2, 1]
    with pytest.raises(ConfigError, match="column 'a' is struct"):
        change(loose, schema=NESTED)


@pytest.mark.parametrize("inside", ["a STRUCT<x: INT NOT NULL>", "a ARRAY<INT>", "a MAP<STRING, INT>"])
def test_each_kind_of_place_inside_a_column_may_not_become_not_null(inside: str) -> None:
    before = declare(Declaration(declared_fields(pa.schema([pa.field("a", LOOSE[inside[2:5]])]))), "seed")
    after = pa.schema([pa.field("a", STRICT[inside[2:5]])])
    with pytest.raises(ConfigError, match="column 'a' is"):
        change(before, schema=after)
    assert (
        change(
            declare(Declaration(declared_fields(after)), "s"), schema=pa.schema([pa.field("a", LOOSE[inside[2:5]])])
        ).version
        == 2
    )


LOOSE = {
    "STR": pa.struct([pa.field("x", pa.int32())]),
    "ARR": pa.list_(pa.int32()),
    "MAP": pa.map_(pa.string(), pa.int32()),
}
STRICT = {
    "STR": pa.struct([pa.field("x", pa.int32(), nullable=False)]),
    "ARR": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "MAP": pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
}


def test_types_widen_to_what_holds_all_their_values() -> None:
    whole = ["byte", "short", "integer", "long"]
    allowed = {(one, other) for at, one in enumerate(whole) for other in whole[at + 1 :]} | {("float", "double")}
    kinds = [*whole, "float", "double", "string", "binary", "date", "timestamp", "boolean"]
    assert {(one, other) for one in kinds for other in kinds if is_widening(one, other)} == allowed
    assert is_widening("decimal(5,2)", "decimal(6,2)")
    assert not is_widening("decimal(5,2)", "decimal(5,2)")
    assert not is_widening("decimal(5,2)", "decimal(38,3)")
    assert not is_widening("integer", "decimal(10,0)")


def test_former_names_lead_to_their_columns_until_another_has_the_name() -> None:
    renamed = change(rename={"n": "m"}, drop="tags")
    assert renamed.former == (FormerName("n", BEFORE.ids["n"], 2), FormerName("tags", BEFORE.ids["tags"], 2))
    assert renamed.ids_for_writer(1)["n"] == renamed.ids_for_writer(1)["m"] == BEFORE.ids["n"]
    assert renamed.by_id(renamed.ids_for_writer(1)["tags"]) is None
    assert renamed.ids_for_writer(2) == renamed.ids
    again = change(renamed, rename={"m": "k"})
    assert [each.name for each in again.former] == ["n", "tags", "m"]
    taken = change(again, add="n STRING")
    assert [each.name for each in taken.former] == ["tags", "m"]
    assert taken.ids_for_writer(0)["n"] == taken.ids["n"] != BEFORE.ids["n"]
    back = change(again, rename={"k": "m"})
    assert [(each.name, each.id) for each in back.former] == [
        ("n", BEFORE.ids["n"]),
        ("tags", BEFORE.ids["tags"]),
        ("k", BEFORE.ids["n"]),
    ]


def test_former_names_are_bounded() -> None:
    schema, count = BEFORE, FORMER_BYTES // 250 + 5
    for number in range(count):
        schema = change(schema, rename={schema.columns[2].name: f"{number:03}" + "é" * 125})
    assert FORMER_BYTES - 253 < sum(len(each.name.encode()) for each in schema.former) <= FORMER_BYTES
    assert schema.former[-1].name.startswith(f"{count - 2:03}")


def test_ids_are_never_drawn_twice() -> None:
    first = draw_ids(["a", "b"], "seed")
    assert draw_ids(["a", "b"], "seed") == first
    assert set(draw_ids(["a", "b"], "seed", first)).isdisjoint(first)
    assert draw_ids(["a", "b"], "other") != first
    assert all(0 < each < 2**31 for each in draw_ids([str(n) for n in range(1000)], "seed"))


def test_a_change_is_described_for_a_reader_of_an_earlier_version() -> None:
    second = change(rename={"n": "m"}, widen={"n": "BIGINT"}, drop="tags")
    third = change(second, add="x INT", rename={"price": "cost"})
    assert describe_change(third, 1) == (
        "tags was dropped; n is m bigint since version 2; price is cost decimal(5,2) since version 3; x int since version 3"
    )
    assert describe_change(third, 2) == "price is cost decimal(5,2) since version 3; x int since version 3"
    fourth = change(third, rename={"m": "k"}, drop="cost")
    assert describe_change(fourth, 1).startswith("price was dropped; tags was dropped; n is k bigint since version 4; ")
    moved = change(third, schema="x INT, user STRING NOT NULL, at TIMESTAMP, m BIGINT NOT NULL, cost DECIMAL(5,2)")
    assert describe_change(moved, 3) == "the columns were moved"


def test_merging_adds_and_widens_and_leaves_the_rest() -> None:
    merged = plan_merge(
        BEFORE, declared_fields("n BIGINT, user STRING, z ARRAY<INT> NOT NULL, price DECIMAL(3,2)"), is_running=False
    )
    assert [field.name for field in merged.add] == ["z"]
    assert merged.add[0].nullable
    assert merged.widen == {"n": "long"}
    assert plan_merge(BEFORE, declared_fields("n STRING, at DATE"), is_running=False) == SchemaChange()


def test_a_running_writer_adds_no_former_name_again() -> None:
    renamed = change(rename={"n": "m"}, drop="tags")
    fields = declared_fields("n INT, tags ARRAY<STRING>, z INT")
    assert [field.name for field in plan_merge(renamed, fields, is_running=True).add] == ["z"]
    assert [field.name for field in plan_merge(renamed, fields, is_running=False).add] == ["n", "tags", "z"]


def test_changes_and_a_whole_schema_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="schema= says all columns, drop= changes some"):
        declared_change(DDL, None, "n", None, None)
    assert declared_change(None, None, (), None, None) is None


@pytest.mark.parametrize(
    ("kind", "expected"), [("BIGINT", "long"), (LongType(), "long"), (pa.int64(), "long"), ("array<int>", None)]
)
def test_a_type_is_given_as_text_or_in_a_form_of_spark_or_arrow(kind: object, expected: object) -> None:
    wanted = declared_change(None, None, (), None, {"n": kind})
    assert wanted is not None
    assert wanted.widen["n"] == (expected or {"type": "array", "elementType": "integer", "containsNull": True})


@pytest.mark.parametrize("kind", ["INT, m INT", "INT NOT NULL", "INT COMMENT 'x'", "", 5, LongType, None])
def test_what_is_no_type_is_refused(kind: object) -> None:
    with pytest.raises(ConfigError, match="column 'n' has the type"):
        declared_change(None, None, (), None, {"n": kind})


def test_columns_times_partitions_are_bounded() -> None:
    check_partitions(BEFORE, MAX_CELLS // len(BEFORE.columns))
    check_partitions(None, 10**6)
    with pytest.raises(ConfigError, match="at most 500,000 are allowed"):
        check_partitions(BEFORE, MAX_CELLS // len(BEFORE.columns) + 1)


def test_the_json_form_names_versions_only_where_something_changed() -> None:
    after = change(rename={"n": "m"})
    assert [len(row) for row in after.rows] == [5, 5, 6, 5, 5]
    assert "former" not in BEFORE.to_json()
    assert after.to_json()["former"] == [["n", BEFORE.ids["n"], 2]]
    assert replace(after, former=()) != after
