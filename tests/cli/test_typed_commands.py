"""`commitlog topics`, `cat` and `produce` of typed topics, as processes of their own."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.commit_log import CommitLog as Log
from pyspark_commitlog.cli.records.column_lines import parse_column_lines
from pyspark_commitlog.cli.records.lines import LineFormat, longest_line
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.schema.arrow_types import to_arrow
from pyspark_commitlog.format.schema.declared import declared_fields
from pyspark_commitlog.format.schema.topic_schema import Declaration, declare
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.json_rows import json_rows, json_values
from tests.support.commands import cat, run, run_bytes
from tests.support.records import append
from tests.support.typed import DECLARED, SCHEMA, rows, typed_batch
from tests.support.typed_rows import column

DDL = (
    "user STRING NOT NULL COMMENT 'login', at TIMESTAMP, n BIGINT, price DECIMAL(10,2), ratio DOUBLE, raw BINARY, "
    "day DATE, local TIMESTAMP_NTZ, ok BOOLEAN, tags ARRAY<STRING>, counts MAP<INT, FLOAT>, "
    "place STRUCT<lat: DOUBLE, `of`: ARRAY<TIMESTAMP>>"
)
ROW = {
    "user": "ünï", "at": datetime(2026, 1, 31, 12, 0, 0, 5, UTC), "n": 2**62, "price": Decimal("-1.10"),
    "ratio": math.inf, "raw": b"\xff\0", "day": date(2026, 1, 31), "local": datetime(2026, 1, 31, 12),  # noqa: DTZ001
    "ok": True,
    "tags": ["a", None], "counts": [(1, 0.5), (-2, None)],
    "place": {"lat": 0.1, "of": [datetime(2026, 1, 1, tzinfo=UTC)]},
}  # fmt: skip
SHOWN = {
    "user": "ünï", "at": "2026-01-31T12:00:00.000005Z", "n": 2**62, "price": -1.1, "ratio": "Infinity", "raw": "/wA=",
    "day": "2026-01-31", "local": "2026-01-31T12:00:00", "ok": True, "tags": ["a", None],
    "counts": {"1": 0.5, "-2": None}, "place": {"lat": 0.1, "of": ["2026-01-01T00:00:00Z"]},
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with a typed topic `t` that was declared by DDL."""
    root = str(tmp_path / "root")
    options = ["--schema", DDL, "--key", "user", "--timestamp", "at", "--config", "retention.ms=-1"]
    run("topics", "create", root, "t", *options)
    return root


@pytest.fixture
def log(root: str) -> Log:
    return CommitLog(root)


def fill(log: Log, *given: dict[str, Any], topic: str = "t") -> None:
    schema = log.root.topic(topic).newest()[1].schema
    assert schema is not None
    kinds = pa.schema([(each.name, to_arrow(as_nullable(each.field.type))) for each in schema.columns])
    append(log.root.topic(topic), pa.RecordBatch.from_pylist(list(given), kinds))


def produce(given: bytes, *arguments: str, code: int = 0) -> str:
    done = run_bytes("produce", *arguments, given=given)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_a_topic_is_declared_and_described(root: str) -> None:
    lines, _ = run("topics", "describe", root, "t")
    assert "t: SchemaVersion: 1  Key: user  Timestamp: at" in lines
    assert any(line.split() == ["user", "string", "no", "login"] for line in lines)
    assert any("struct<lat:double,of:array<timestamp>>" in line for line in lines)
    (line,) = run("topics", "describe", root, "t", "--json")[0]
    schema = json.loads(line)["schema"]
    assert (schema["version"], schema["key"], schema["timestamp"]) == (1, "user", "at")
    assert schema["columns"][0] == {"name": "user", "type": "string", "nullable": False, "comment": "login"}
    run("topics", "create", root, "untyped")
    assert json.loads(run("topics", "describe", root, "untyped", "--json")[0][0])["schema"] is None


def test_columns_are_taken_from_a_parquet_file(tmp_path: Path, root: str, log: Log) -> None:
    path = str(tmp_path / "some.parquet")
    table = pa.table({"a": pa.array([5], pa.timestamp("ns")), "topic": ["x"], "b": pa.array([1.5], pa.float32())})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    run("topics", "create", root, "p", "--schema-from", path, "--timestamp", "a", "--config", "retention.ms=-1")
    assert "p: sent 1 record to 1 partition" in produce(b"", root, "p", "--file", path)
    (found,) = log.topic("p").to_arrow().to_pylist()
    assert found == {"a": datetime(1970, 1, 1, tzinfo=UTC), "topic": "x", "b": 1.5}
    both = ["--schema-from", path, "--schema", "a INT"]
    assert "not both" in run("topics", "create", root, "q", *both, code=2)[1]
    missing = str(tmp_path / "none.parquet")
    assert "there is no file" in run("topics", "create", root, "q", "--schema-from", missing, code=2)[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--key", "user"], "there is no schema"),
        (["--schema", "a INTERVAL DAY"], "is INTERVAL, which can't be stored"),
        (["--schema", "a INT", "--key", "b"], "'b' is not among the columns a"),
        (["--schema", "a TIMESTAMP", "--timestamp", "a"], "Set retention.ms"),
    ],
)
def test_a_schema_that_can_t_be_is_refused(root: str, options: list[str], why: str) -> None:
    assert why in run("topics", "create", root, "q", *options, code=2)[1]


def test_cat_shows_columns_as_json(root: str, log: Log) -> None:
    fill(log, ROW, {"user": "", "at": ROW["at"]})
    first, second = [json.loads(line) for line in cat(root, "t", "-e", "-J").splitlines()]
    assert first == {
        "topic": "t", "partition": 0, "offset": 0, "tstype": "create", "ts": 1769860800000, "key": "ünï",
        "payload": SHOWN, "headers": [],
    }  # fmt: skip
    assert second["payload"] == {**dict.fromkeys(SHOWN), "user": "", "at": SHOWN["at"]}
    lines = cat(root, "t", "-e").splitlines()
    assert [json.loads(line) for line in lines] == [SHOWN, second["payload"]]
    assert b'"price":-1.10,' in lines[0], "no digit is lost"
    assert cat(root, "t", "-e", "-f", "%k %S %t %p %o %T %s|").split(b"|")[0] == (
        f"ünï {len(lines[0])} t 0 0 1769860800000 ".encode() + lines[0]
    )
    assert cat(root, "t", "-e", "-K", ":", "-o", "1", "-c", "1").startswith(b':{"user":""')


def test_cat_of_several_topics(root: str, log: Log) -> None:
    log.create_topic("other", schema="n BIGINT, more STRING")
    fill(log, ROW)
    fill(log, {"n": 5, "more": "x"}, topic="other")
    found = {
        record["topic"]: record["payload"]
        for record in map(json.loads, cat(root, "t", "other", "-e", "-J").splitlines())
    }
    assert found == {"t": {**SHOWN, "more": None}, "other": {**dict.fromkeys(SHOWN), "n": 5, "more": "x"}}
    log.create_topic("untyped")
    why = run("cat", root, "t", "untyped", "-e", code=2)[1]
    assert "topic 't' is typed and topic 'untyped' is not" in why


def test_what_cat_writes_is_produced_again(root: str, log: Log) -> None:
    fill(log, ROW, {"user": "b", "at": ROW["at"], "ratio": math.nan})
    log.create_topic("again", 3, {"retention.ms": -1}, schema=DDL, key="user", timestamp="at")
    for form in (["-J"], []):
        assert "again: sent 2 records" in produce(cat(root, "t", "-e", *form), root, "again", "--json")
    assert sorted(cat(root, "again", "-e").splitlines()) == sorted(cat(root, "t", "-e").splitlines() * 2)


def test_lines_say_where_they_go_and_what_their_headers_are(root: str, log: Log) -> None:
    log.create_topic("u", 3, {"retention.ms": -1, "message.timestamp.before.max.ms": 2**62}, schema="payload STRING")
    lines = (
        b'{"payload": "a", "_partition_id": 2, "_timestamp": "2026-01-31", "_headers": {"h": "1"}, "_offset": 7}\n'
        b'{"payload": "b"}\n'
    )
    assert "u: sent 2 records to 2 partitions" in produce(lines, root, "u", "--json", "-p", "1", "-H", "x=y")
    found = (
        log.topic("u").to_arrow(["payload", "_partition_id", "_headers", "_timestamp"]).sort_by("payload").to_pylist()
    )
    assert [(each["payload"], each["_partition_id"]) for each in found] == [("a", 2), ("b", 1)]
    assert [each["_headers"] for each in found] == [[{"key": "h", "value": b"1"}], [{"key": "x", "value": b"y"}]]
    assert found[0]["_timestamp"] == datetime(2026, 1, 31, tzinfo=UTC)


def test_a_bad_line_ends_it_after_those_before(root: str, log: Log) -> None:
    said = produce(b'{"user": "a"}\n{"user": "b", "n": "5"}\n{"user": "c"}\n', root, "t", "--json", code=1)
    assert "line 2: column 'n' is \"5\", declared is bigint: give a whole number" in said
    assert log.topic("t").to_arrow(["user"]).to_pylist() == [{"user": "a"}]


def test_lines_without_columns_are_refused(root: str, log: Log) -> None:
    assert "topic 't' is typed: lines have no columns: use --json, or --file" in produce(b"x\n", root, "t", code=2)
    assert "unknown topic 'missing'" in produce(b"x\n", root, "missing", "--json", code=1)
    assert log.topic("t").to_arrow().num_rows == 0


def test_a_file_is_sent_by_the_names_of_its_columns(tmp_path: Path, root: str, log: Log) -> None:
    log.create_topic("f", 1, {"retention.ms": -1}, **DECLARED)
    path = str(tmp_path / "some.parquet")
    pq.write_table(pa.Table.from_batches([typed_batch(rows(0, 5), None)]).select(SCHEMA.names[::-1]), path)
    produce(b"", root, "f", "--file", path)
    assert log.topic("f").to_arrow().to_pylist() == rows(0, 5)
    pq.write_table(pa.table({"n": ["x"]}), path)
    assert "column 'n' is string, declared is int64" in produce(b"", root, "f", "--file", path, code=1)


# --- values -----------------------------------------------------------------------------------------------


def parsed(line: bytes, ddl: str) -> tuple[pa.RecordBatch, InvalidRecordError | None]:
    schema = declare(Declaration(declared_fields(ddl)), "seed")
    return parse_column_lines([line], 3, LineFormat(None, False, None, (), True, schema))


@pytest.mark.parametrize("seed", range(5))
def test_any_value_comes_back_from_its_json(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = declared_fields(
        DDL.replace("user STRING NOT NULL", "user STRING") + ", m MAP<TIMESTAMP, BOOLEAN>, s SMALLINT, f FLOAT"
    )
    kinds = pa.schema([(field.name, to_arrow(field.type)) for field in fields])
    arrays = [column(rng, field.type, 52).slice(2) for field in kinds]
    days = pa.array(rng.integers(-700_000, 2_900_000, 50), pa.int32())
    times = pa.array(rng.integers(-(6 * 10**16), 25 * 10**16, 50), pa.int64())
    simple = {"at": times.view(kinds.field("at").type), "local": times.view(kinds.field("local").type)}
    simple |= {"day": days.view(pa.date32()), "place": pa.nulls(50, kinds.field("place").type)}
    simple["m"] = pa.array([[(1, True)], None] * 25, kinds.field("m").type)
    simple["counts"] = pa.array([[(n, n / 3)] for n in range(50)], kinds.field("counts").type)
    batch = pa.RecordBatch.from_arrays(
        [simple.get(name, array) for name, array in zip(kinds.names, arrays, strict=True)], schema=kinds
    )
    schema = declare(Declaration(fields), "seed")
    lines = json_rows(batch)
    back, error = parse_column_lines(lines, 1, LineFormat(None, False, None, (), True, schema))
    assert error is None
    assert json_rows(back) == lines
    for name in kinds.names:
        if name not in ("ratio", "f"):  # NaN is no NaN
            assert back.column(name).to_pylist() == batch.column(name).to_pylist(), name


@pytest.mark.parametrize(
    ("ddl", "value", "why"),
    [
        ("a INT", "1.0", "give a whole number"),
        ("a INT", "true", "give a whole number"),
        ("a TINYINT", "128", "it takes 8 bits"),
        ("a BIGINT", "1" + "0" * 5000, ""),
        ("a DOUBLE", '"1"', "give a number"),
        ("a DOUBLE", "1e999", "it is too large"),
        ("a DECIMAL(3,1)", "100", "it does not fit"),
        ("a DECIMAL(3,1)", "1.25", "it does not fit"),
        ("a DECIMAL(3,1)", "1e999999999", "it does not fit"),
        ("a DECIMAL(3,1)", "NaN", "give a number"),
        ("a DECIMAL(3,1)", '"NaN"', "it does not fit"),
        ("a BOOLEAN", "1", "give true or false"),
        ("a STRING", "1", "give text"),
        ("a STRING", '"\\ud800"', "give text"),
        ("a BINARY", '"?"', "give base64"),
        ("a DATE", '"2026-02-30"', "give a date"),
        ("a DATE", "5", "give a date"),
        ("a TIMESTAMP", '"now"', "give a time as"),
        ("a TIMESTAMP_NTZ", '"2026-01-31T12:00Z"', "without a zone"),
        ("a ARRAY<INT>", "{}", "give a list"),
        ("a ARRAY<INT>", '[1, "x"]', "column 'a[]' is \"x\", declared is int"),
        ("a MAP<INT, INT>", '{"x": 1}', "column 'a.key' is"),
        ("a MAP<STRING, STRUCT<b: INT>>", '{"x": {"b": ""}}', "column 'a.value.b' is"),
        ("a STRUCT<b: INT>", '{"c": 1}', "it has no field 'c'"),
        ("a STRUCT<b: INT>", "[]", "give an object"),
        ("a INT NOT NULL", "null", "is missing or null, and must have a value"),
    ],
)
def test_a_value_of_another_type_is_named(ddl: str, value: str, why: str) -> None:
    batch, error = parsed(b'{"a": %s}' % value.encode(), ddl)
    assert batch.num_rows == 0
    assert str(error).startswith("line 3: ")
    assert why in str(error)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1]", 'a record is an object: give one as {"a": '),
        (b"x", "is no JSON"),
        (b'{"a": 1, "b": 2}', "there is no column 'b': it has a"),
        (b'{"a": 1, "a": 2}', "stands there twice"),
        (b'{"a": 1, "_partition_id": -1}', "partition -1 is no number"),
        (b'{"a": 1, "_timestamp": "x"}', "timestamp 'x' is neither"),
        (b'{"a": 1, "_headers": 5}', "headers are an object"),
        (b'{"payload": {"a": 1}, "more": 1}', "there is no column 'more'"),
    ],
)
def test_a_line_that_is_no_row_is_named(line: bytes, why: str) -> None:
    batch, error = parsed(line, "a INT")
    assert batch.num_rows == 0
    assert why in str(error)


def test_numbers_that_json_can_t_have_are_told() -> None:
    assert json_values(pa.array([math.nan, math.inf, -math.inf, None, 0.1], pa.float32())) == [
        "NaN", "Infinity", "-Infinity", None, 0.1,
    ]  # fmt: skip
    batch, error = parsed(b'{"a": NaN, "b": "-Infinity", "c": 5}', "a DOUBLE, b FLOAT, c DECIMAL(38,2)")
    assert error is None
    assert str(batch.to_pylist()) == "[{'a': nan, 'b': -inf, 'c': Decimal('5.00')}]"
    assert json_values(pa.array([10**7], pa.date32())) == ["29349-01-26"]


def test_a_row_s_line_may_be_longer_than_another_record_s() -> None:
    schema = declare(Declaration(declared_fields("flags ARRAY<STRUCT<a_long_name: BOOLEAN>>")), "seed")
    form = LineFormat(None, False, None, (), True)
    assert longest_line(1000, LineFormat(None, False, None, (), True, schema)) > longest_line(1000, form)


def described(root: str) -> dict[str, Any]:
    """Return the columns of topic t, and their version."""
    lines, _ = run("topics", "describe", root, "t", "--json")
    schema: dict[str, Any] = json.loads(lines[0])["schema"]
    return schema


def test_columns_are_altered(root: str) -> None:
    done, _ = run("topics", "alter", root, "t", "--add", "x STRING, y INT", "--drop", "raw", "--drop", "ok",
                  "--rename", "n=count", "--widen", "price=DECIMAL(12,2)", "--config", "retention.ms=5")  # fmt: skip
    assert done == ["altered topic t: its configs are changed, its columns are changed"]
    shown = {each["name"]: each["type"] for each in described(root)["columns"]}
    assert described(root)["version"] == 2
    assert (shown["x"], shown["y"], shown["count"], shown["price"]) == ("string", "int", "bigint", "decimal(12,2)")
    assert shown.keys().isdisjoint({"raw", "ok", "n"})
    run("topics", "alter", root, "t", "--schema", "user STRING NOT NULL, at TIMESTAMP")
    assert [each["name"] for each in described(root)["columns"]] == ["user", "at"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--widen", "n"], "--widen 'n': give a column, =, and what it becomes"),
        (["--rename", "=x"], "--rename '=x': give a column, ="),
        (["--rename", "x="], "--rename 'x=': give a column, ="),
        (["--drop", "user"], "column 'user' is the key, and can't be dropped"),
        (["--rename", "n=a", "--rename", "n=b"], "--rename names column 'n' twice"),
        (["--add", ""], "schema: the DDL has the end"),
        (["--drop", "n", "-p", "100000"], "partitions=100000 is not allowed"),
        (["--add", ", ".join(f"x{n} INT" for n in range(600)), "-p", "900"], "slices in each write task"),
        (["--add", "x INT", "-p", "1"], "topic 't' has 1 partitions; 1 would not add any"),
        ([], "nothing to change: give --partitions"),
    ],
)
def test_a_change_of_columns_that_can_not_be_changes_nothing(root: str, arguments: list[str], why: str) -> None:
    _, told = run("topics", "alter", root, "t", *arguments, code=2)
    assert why in told
    assert described(root)["version"] == 1
