"""Filters against Spark: the rows that are kept are exactly those for which `where` is true."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In, IsNotNull, LessThan, Not, StringStartsWith

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.format.columns.untyped import TIMESTAMP
from pyspark_commitlog.format.schema.arrow_types import from_arrow
from pyspark_commitlog.spark.read.filters import pushed_filter
from pyspark_commitlog.topic.read.filter.condition import parse_condition
from pyspark_commitlog.topic.read.filter.row_filter import make_filter
from pyspark_commitlog.topic.read.filter.selected_rows import value_mask
from pyspark_commitlog.topic.read.filter.spans import Passing
from pyspark_commitlog.topic.read.filter.times import zone_of

ROWS, CONDITIONS = 200, 160
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "+05:30")
COMPARISONS = ("=", "<=>", "!=", "<", "<=", ">", ">=", "==", "<>")
LONGS = (0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63), 9007199254740995, 127, -128)
DOUBLES = (0.0, -0.0, 0.1, 0.5, -1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 16777216.0,
           9007199254740992.0, 3.0, float(np.float32(0.1)))  # fmt: skip
TEXTS = ("", "a", "ab", "b", "a'b", "é", "\U0001f600", "\uffee", "z" * 40, "a\x00", "A", " a", r"a\b")
DAYS = ("2024-03-10", "2024-11-03", "1582-10-04", "1582-10-15", "0001-01-02", "9999-12-30", "1970-01-01", "1883-11-18")
WALLS = ("2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-11-03 06:30:00", "1582-10-10 12:00:00.5", "0001-01-03 00:00:00",
         "1883-11-18 12:00:00", "1969-12-31 23:59:59.999999", "2024-03-10 00:00:00", "2024-03-31 01:30:00", "1970-01-01",
         "2024-07-01 12:00", "2024-03-10 05:00:00")  # fmt: skip
SCHEMA = pa.schema(
    {
        "bo": pa.bool_(),
        "b": pa.int8(),
        "sh": pa.int16(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "small": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 10),
        "s": pa.string(),
        "x": pa.binary(),
        "day": pa.date32(),
        "at": TIMESTAMP,
        "wall": pa.timestamp("us"),
    }
)


def seconds(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def value(column: str, chance: Random) -> Any:
    """Return a random value of a column, mostly one that is hard."""
    if chance.random() < 0.15:
        return None
    whole = {"b": 8, "sh": 16, "i": 32, "l": 64}
    if column in whole:
        wide = 1 << (whole[column] - 1)
        return (chance.choice(LONGS) + wide) % (2 * wide) - wide
    choices: dict[str, Callable[[], Any]] = {
        "bo": lambda: chance.random() < 0.5,
        "f": lambda: float(np.float32(chance.choice(DOUBLES[:9] + DOUBLES[10:]))),
        "d": lambda: chance.choice(DOUBLES),
        "small": lambda: Decimal(f"{chance.choice((0, 1, 100, 101, 150, -100, 99999999_99))}E-2"),
        "wide": lambda: Decimal(f"{chance.choice((0, 1, 10**10, 15 * 10**9, 1 - 10**38, 10**38 - 1))}E-10"),
        "s": lambda: chance.choice(TEXTS),
        "x": lambda: chance.choice(TEXTS).encode() + chance.choice((b"", b"\xff", b"\x00")),
        "day": lambda: dt.date.fromisoformat(chance.choice(DAYS)) + dt.timedelta(chance.choice((-1, 0, 1))),
        "at": lambda: seconds(chance.choice(WALLS)).replace(tzinfo=dt.UTC) + dt.timedelta(hours=chance.choice(range(-6, 7))),
        "wall": lambda: seconds(chance.choice(WALLS)) + dt.timedelta(microseconds=chance.choice((-1, 0, 1))),
    }  # fmt: skip
    return choices[column]()


def quoted(text: str) -> str:
    return ("r" if "\\" in text else "") + "'" + text.replace("'", "''") + "'"


def literal(column: str, chance: Random, *, listed: bool) -> str:
    """Return a literal that is compared with a column, in SQL."""
    if chance.random() < 0.06:
        return "NULL"
    whole = chance.choice((*map(str, LONGS[:-2]), "127", "-128", "300"))
    decimal = chance.choice(("0.5", "-1.5", "1.005", "100.00", "1.01", ".5", "3BD", "9007199254740992.5", "0.10"))
    double = chance.choice(("0.1D", "1e0", "9007199254740992D", "9007199254740993D", "-1.5e0", "9.223372036854775807e18",
                            "1e308", "-0.0D", "0.5D"))  # fmt: skip
    time, day = chance.choice(WALLS), chance.choice(DAYS)
    choices: dict[str, tuple[str, ...]] = {
        "bo": ("TRUE", "false"),
        "f": (decimal, double, "0.1F", "-0.0F", "3", "16777216", "1.5F"),
        "d": (decimal, double, "0.1F", whole, "9007199254740993L"),
        "small": (decimal, "1", "-1", "1L", "1.5BD"),
        "wide": (decimal, "1", "99999999999999", "9999999999999999999999999999"),
        "s": (quoted(chance.choice(TEXTS)),),
        "x": ("X'61'", "X''", "X'ff'", "X'6100'", quoted(chance.choice(TEXTS))),
        "day": (f"DATE '{day}'", f"'{day}'", f"TIMESTAMP '{time}'", f"TIMESTAMP_NTZ '{time}'", "TIMESTAMP '2024-03-10 05:00:00Z'"),
        "at": (f"TIMESTAMP '{time}'", f"'{time}'", f"DATE '{day}'", "TIMESTAMP '2024-03-10 07:30:00Z'", f"timestamp_ltz'{time}'",
               "'2024-11-03T06:30:00+01:00'", "TIMESTAMP '2024-07-01 12:00:00 Asia/Tokyo'"),
        "wall": (f"TIMESTAMP_NTZ '{time}'", f"'{time}'", f"DATE '{day}'"),
    }  # fmt: skip
    if column not in choices:
        return chance.choice((whole, decimal, double, "1L", "1S", "1Y"))
    taken = choices[column]
    if listed and column in ("at", "wall"):
        taken = tuple(each for each in taken if not each.startswith("'"))
    return chance.choice(taken)


def drawn_test(column: str, chance: Random) -> str:
    """Return a random test of a column."""
    kind = chance.random()
    if column == "bo" and kind < 0.3:
        return chance.choice(("bo", "NOT bo", "! bo", "(bo)"))
    if kind < 0.08:
        return f"{column} IS {chance.choice(('', 'NOT '))}NULL"
    if kind < 0.25:
        negated = chance.choice(("", "NOT "))
        return f"{column} {negated}BETWEEN {literal(column, chance, listed=False)} AND {literal(column, chance, listed=False)}"
    if kind < 0.5:
        most = chance.choice((1, 3, 14))
        values = ", ".join(literal(column, chance, listed=True) for _ in range(chance.randint(1, most)))
        return f"{column} {chance.choice(('', 'NOT '))}IN ({values})"
    operator, other = chance.choice(COMPARISONS), literal(column, chance, listed=False)
    text = f"{other} {operator} {column}" if chance.random() < 0.2 else f"{column} {operator} {other}"
    return f"NOT {text}" if chance.random() < 0.15 else text


def conditions(chance: Random) -> Iterator[str]:
    """Yield conditions that a filter takes."""
    types = {field.name: from_arrow(field.type, field.name) for field in SCHEMA}
    while True:
        picked = [chance.choice(SCHEMA.names) for _ in range(chance.choice((1, 1, 1, 2)))]
        text = " AND ".join(drawn_test(column, chance) for column in picked)
        try:
            make_filter(parse_condition(text), types)
        except ValueError:
            continue
        yield text


def kept(table: pa.Table, condition: str, zone: str) -> list[int]:
    """Return the rows that a filter keeps."""
    types = {field.name: from_arrow(field.type, field.name) for field in SCHEMA}
    bound = make_filter(parse_condition(condition), types).bind(zone_of(zone))
    mask = np.ones(table.num_rows, bool)
    for column, values in bound.passing.items():
        mask &= value_mask(values, table.column(column).combine_chunks())
    return [int(row) for row in np.flatnonzero(mask)]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Return rows of all types that have an order."""
    chance = Random(7)
    return pa.Table.from_pylist([{name: value(name, chance) for name in SCHEMA.names} for _ in range(ROWS)], SCHEMA)


@pytest.fixture(scope="module")
def stored(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Return the rows as Spark has them, from Parquet."""
    path = str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    pq.write_table(table.append_column("n", pa.array(range(ROWS), pa.int32())), path)
    return spark.read.parquet(path)


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Spark in each of its modes."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param == "true"
    spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("zone", ZONES)
def test_kept_rows_are_those_for_which_spark_says_true(
    spark: SparkSession, table: pa.Table, stored: DataFrame, zone: str, ansi: bool
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    drawn = conditions(Random(f"{zone} {ansi}"))
    asked = list(dict.fromkeys(next(drawn) for _ in range(CONDITIONS)))
    if not ansi:
        asked = [each for each in asked if "x IN" not in each and "x NOT IN" not in each]
    answers = stored.orderBy("n").selectExpr(*(f"({each}) AS c{n}" for n, each in enumerate(asked))).toArrow()
    wrong = []
    for n, each in enumerate(asked):
        expected = [row for row, true in enumerate(answers.column(n).to_pylist()) if true]
        found = kept(table, each, zone)
        if found != expected:
            rows = sorted(set(found) ^ set(expected))
            wrong.append((each, len(found), len(expected), table.take(rows[:1]).to_pylist()))
    assert not wrong


TOPIC = "rows"
DDL = "n INT, s STRING, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE"


@pytest.fixture
def written(spark: SparkSession, root: str, log: CommitLog) -> DataFrame:
    """Write rows to a typed topic, half of them settled; return them as Spark has them."""
    log.create_topic(TOPIC, 2, {"retention.ms": -1}, schema=DDL, key="s", timestamp="at")
    rows = spark.sql(
        "SELECT CAST(id AS INT) n, CAST(id % 7 AS STRING) s, timestamp'2024-03-10 00:00:00' + make_dt_interval(0, id) at, "
        "timestamp_ntz'2024-03-10 00:00:00' + make_dt_interval(0, id) wall, date_add(date'2024-01-01', CAST(id AS INT)) day "
        "FROM range(0, 300, 1, 2)"
    )
    rows.where("n < 150").write.format("commitlog").option("topic", TOPIC).mode("append").save(root)
    log.topic(TOPIC).maintain()
    rows.where("n >= 150").write.format("commitlog").option("topic", TOPIC).mode("append").save(root)
    return rows


CONDITIONS_READ = (
    "s = '3'",
    "n BETWEEN 100 AND 200 AND s <> '3'",
    "at >= '2024-03-10 02:30:00' AND at < TIMESTAMP '2024-03-12'",
    "day > TIMESTAMP '2024-03-10 12:00:00'",
    "wall IN (TIMESTAMP_NTZ '2024-03-10 05:00:00')",
    "n < 0",
    "_partition_id = 1 AND _offset BETWEEN 3 AND 60",
    "_key IN (X'33', X'34')",
    "_timestamp < '2024-03-10 10:00:00' AND _topic = 'rows'",
    "_topic = 'other'",
)


@pytest.mark.parametrize("condition", CONDITIONS_READ)
def test_the_option_keeps_what_where_keeps(spark: SparkSession, root: str, written: DataFrame, condition: str) -> None:
    reader = spark.read.format("commitlog").option("subscribe", TOPIC)
    every = reader.option("columns", "*, _offset, _partition_id, _key, _topic, _timestamp").load(root)
    expected = sorted(row.n for row in every.where(condition).collect())
    for columns in ("n", "n, s", "*, _offset, _key"):
        found = reader.option("columns", columns).option("filter", condition).load(root)
        assert sorted(row.n for row in found.collect()) == expected
    rows = reader.option("columns", "n, _partition_id, _offset").option("filter", condition).load(root)
    by_place = {(row._partition_id, row._offset): row.n for row in every.collect()}
    assert all(by_place[row._partition_id, row._offset] == row.n for row in rows.collect())


def test_a_stream_has_what_passes_and_goes_on_behind_the_rest(
    spark: SparkSession, root: str, log: CommitLog, written: DataFrame, tmp_path: Path
) -> None:
    condition = "s = '3' AND at >= '2024-03-10 02:30:00'"
    stream = spark.readStream.format("commitlog").option("subscribe", TOPIC).option("startingOffsets", "earliest")
    stream = stream.option("filter", condition).option("maxOffsetsPerTrigger", 100)

    def copied() -> list[int]:
        query = stream.load(root).writeStream.format("parquet").option("path", str(tmp_path / "copy"))
        started = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert started.awaitTermination(120)
        assert sum(progress["numInputRows"] for progress in started.recentProgress) <= 100
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "copy")).collect())

    expected = sorted(row.n for row in written.where(condition).collect())
    assert copied() == expected
    written.write.format("commitlog").option("topic", TOPIC).mode("append").save(root)
    assert copied() == sorted(expected * 2)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("user = 'a'", "option 'filter': the filter has 'user': there is no such column; a filter takes n, s, at"),
        ("s = 5", "column s is string, and it is integer; write '5'"),
        ("n = 1 OR s = '2'", "AND or the end is expected there"),
        ("offset = 3", "there is no such column"),
    ],
)
def test_what_can_be_no_filter_is_refused_before_a_job(
    spark: SparkSession, root: str, written: DataFrame, condition: str, message: str
) -> None:
    def batch() -> None:
        spark.read.format("commitlog").options(subscribe=TOPIC, filter=condition).load(root).collect()

    def stream() -> None:
        df = spark.readStream.format("commitlog").options(subscribe=TOPIC, filter=condition).load(root)
        df.writeStream.format("noop").start().processAllAvailable()

    for job in (batch, stream):
        with pytest.raises(PySparkException, match=re.escape(message)):
            job()


def test_records_of_untyped_topics_are_filtered_by_their_common_columns(
    spark: SparkSession, root: str, log: CommitLog
) -> None:
    log.create_topic("plain", 1, {"retention.ms": -1})
    rows = spark.sql(
        "SELECT CAST(id % 5 AS STRING) key, CAST(id AS STRING) value, timestamp_millis(id) timestamp FROM range(50)"
    )
    rows.coalesce(1).write.format("commitlog").option("topic", "plain").mode("append").save(root)
    reader = spark.read.format("commitlog").option("subscribe", "plain")
    every = reader.load(root)
    for condition in (
        "key = X'33'",
        "offset >= 40 AND key < '2'",
        "timestamp > '1970-01-01T00:00:00.020Z'",
        "_offset = 7",
    ):
        found = reader.option("filter", condition).load(root)
        assert_df_equality(
            found.orderBy("offset"), every.where(condition.replace("_offset", "offset")).orderBy("offset")
        )


def test_pushed_filters_on_columns_drop_rows_in_the_source(spark: SparkSession, table: pa.Table, root: str) -> None:
    log = CommitLog(root)
    log.create_topic(TOPIC, 1, {"retention.ms": -1}, schema=SCHEMA)
    with Producer(root) as producer:
        producer.send_batch(TOPIC, table.drop_columns(["at", "wall", "day"])).result()
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        drawn, reader = conditions(Random("pushed")), spark.read.format("commitlog").option("subscribe", TOPIC)
        every = reader.option("columns", "*, _offset").load(root).cache()
        asked = [each for each in (next(drawn) for _ in range(60)) if not re.search(r"\b(at|wall|day|x)\b", each)][:24]
        for condition in asked:
            pushing = reader.option("columns", "*, _offset").option("pushDownPredicate", "true").load(root)
            found = sorted(row._offset for row in pushing.where(condition).select("_offset").collect())
            assert found == sorted(row._offset for row in every.where(condition).select("_offset").collect()), condition
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


EARLY = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (EqualTo(("l",), 3), {"l": Passing(((3, 4),))}),
        (Not(EqualNullSafe(("l",), None)), {"l": Passing(((-(2**63), 2**63),))}),
        (IsNotNull(("l",)), {"l": Passing(((-(2**63), 2**63),))}),
        (Not(IsNotNull(("s",))), {"s": Passing((), null=True)}),
        (In(("i",), (1, None, 5)), {"i": Passing(((1, 2), (5, 6)))}),
        (LessThan(("at",), EARLY), {"at": Passing(((-(2**63), 0),))}),
        (EqualTo(("wall",), dt.datetime(1970, 1, 1, 0, 0, 1)), {"wall": Passing(((10**6, 10**6 + 1),))}),  # noqa: DTZ001
        (EqualTo(("day",), dt.date(1970, 1, 2)), {"day": Passing(((1, 2),))}),
        (EqualTo(("x",), b"a"), {"x": Passing((((0, b"a"), (0, b"a\0")),))}),
        (StringStartsWith(("s",), "a"), None),
        (EqualTo(("_offset",), 3), None),
        (EqualTo(("l", "m"), 3), None),
        (EqualTo(("l",), "3"), None),
        (EqualTo(("l",), ["no", "literal"]), None),
    ],
    ids=str,
)
def test_pushed_filters_that_are_no_test_are_left_to_spark(pushed: Filter, expected: dict[str, Passing] | None) -> None:
    found = pushed_filter([pushed], {field.name: from_arrow(field.type, field.name) for field in SCHEMA})
    assert (None if found is None else found.bind(None).passing) == expected
