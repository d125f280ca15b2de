"""Columns of typed topics by name: `to_arrow`, `poll_arrow`, what refuses them, and `describe`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog import Consumer
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.format.schema.declared import declared_fields
from pyspark_commitlog.format.schema.simple_string import simple_string
from pyspark_commitlog.topic.lookup.fetch import timestamp_at
from tests.support.consumers import consumer
from tests.support.records import append, batch_of
from tests.support.typed import DECLARED, SCHEMA, START_MS, row, rows, write
from tests.support.world import World

CONFIG = {"retention.ms": -1}


@pytest.fixture
def typed(world: World) -> World:
    """Seven rows in partition 1 of two, some settled, the last in a frame of its own."""
    world.clock.advance(START_MS - world.clock.now_ms())
    topic = world.create(2, CONFIG, **DECLARED)
    write(topic, *rows(0, 4), partition=1)
    world.maintain()
    write(topic, *rows(4, 6), partition=1)
    write(topic, row(6), partition=1)
    return world


def reads(world: World) -> Sequence[Callable[..., pa.Table]]:
    """Return the ways to read the topic whole as a table."""

    def polled(columns: Sequence[str] | None = None) -> pa.Table:
        with consumer(world, "t") as each:
            return each.poll_arrow(columns=columns)

    def read_up(columns: Sequence[str] | None = None) -> pa.Table:
        with consumer(world, "t") as each:
            return each.to_arrow(max_records=100, columns=columns)

    return world.log().topic("t").to_arrow, polled, read_up


def test_declared_columns_come_by_default_as_they_were_written(typed: World) -> None:
    for read in reads(typed):
        table = read()
        assert table.schema.names == SCHEMA.names
        assert table.to_pylist() == rows(0, 7)


def test_columns_come_in_the_order_asked_for_with_those_of_the_log(typed: World) -> None:
    names = ["_offset", "n", "_key", "_topic", "_partition_id", "_timestampType", "_headers", "_timestamp", "user"]
    for read in reads(typed):
        table = read(names)
        assert table.schema.names == names
        assert table.slice(4, 1).to_pylist() == [
            {
                "_offset": 4, "n": row(4)["n"], "_key": b"user 0", "_topic": "t", "_partition_id": 1,
                "_timestampType": 0, "_headers": None, "_timestamp": row(4)["at"], "user": "user 0",
            }
        ]  # fmt: skip
        assert read(["*", "_offset"]).schema.names == [*SCHEMA.names, "_offset"]


def test_only_what_is_asked_for_is_decompressed(typed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[list[str]] = []
    real = frame_rows.decode

    def decode(*given: Any) -> pa.RecordBatch:
        batch = real(*given)
        decoded.append(batch.schema.names)
        return batch

    monkeypatch.setattr(frame_rows, "decode", decode)
    for read in reads(typed):
        read(["n", "_offset"])
    assert {len(names) for names in decoded} == {1}
    decoded.clear()
    assert typed.log().topic("t").to_arrow(["_offset", "_topic"]).num_rows == 7
    assert decoded == []


@pytest.mark.parametrize("columns", [["value"], ["n", "n"], ["*", "n"], [], ["_tombstone"], ["N"]])
def test_other_names_are_refused_with_those_there_are(typed: World, columns: list[str]) -> None:
    for read in reads(typed):
        with pytest.raises(UsageError, match=r"columns=\[.*user, at, n, .*_topic, .*each once"):
            read(columns)


def test_untyped_topics_have_the_columns_of_the_log_too(world: World) -> None:
    append(world.create(), batch_of([b"v"], key=[b"k"], timestamp=[1_000_000]))
    for read in reads(world):
        (found,) = read(["_key", "value", "_offset", "_partition_id", "_topic"]).to_pylist()
        assert found == {"_key": b"k", "value": b"v", "_offset": 0, "_partition_id": 0, "_topic": "t"}
        assert read(["*"]).schema.names == read().schema.names


def test_a_consumer_of_several_topics_shows_the_columns_of_all(world: World) -> None:
    write(world.create(1, CONFIG, "a", schema=SCHEMA), row(1))
    other = pa.schema([("n", pa.int64()), ("topic", pa.string())])
    append(world.create(1, CONFIG, "b", schema=other), pa.record_batch([pa.array([5]), pa.array(["x"])], schema=other))
    with consumer(world, "a", "b") as each:
        table = each.poll_arrow(columns=["_topic", "n", "topic", "user"])
        assert table.sort_by("_topic").to_pylist() == [
            {"_topic": "a", "n": row(1)["n"], "topic": None, "user": "user 1"},
            {"_topic": "b", "n": 5, "topic": "x", "user": None},
        ]
        assert each.poll_arrow().schema.names == [*SCHEMA.names, "topic"]


def test_topics_that_differ_are_read_apart_or_by_the_columns_of_all(world: World) -> None:
    write(world.create(1, CONFIG, "a", schema=SCHEMA), row(1))
    append(world.create(name="b"), batch_of([b"v"]))
    other = pa.schema([("n", pa.string())])
    append(world.create(1, CONFIG, "c", schema=other), pa.record_batch([pa.array(["x"])], schema=other))
    with consumer(world, "a", "b") as each:
        with pytest.raises(UsageError, match="topic 'a' is typed and topic 'b' is not"):
            each.poll_arrow()
        assert sorted(each.poll_arrow(columns=["_topic"]).column(0).to_pylist()) == ["a", "b"]
    with consumer(world, "a", "c") as each, pytest.raises(UsageError, match="column 'n' is int64 in topic 'a' and st"):
        each.poll_arrow()


def test_a_member_without_partitions_answers_in_the_columns_of_its_topic(typed: World) -> None:
    with Consumer(SharedRoot.on(typed.storage()), "t", group_id="g") as each:
        assert each.poll_arrow(columns=["user", "_offset"]).schema.names == ["user", "_offset"]


def test_positions_lag_and_commits_are_those_of_other_topics(typed: World) -> None:
    with consumer(typed, "t", group_id="g") as each:
        assert each.poll_arrow(max_records=5).num_rows == 5
        each.commit()
        assert sum(each.lag().values()) == 2
    assert typed.group_offsets() == [0, 5]


def test_a_view_by_key_is_refused(typed: World) -> None:
    topic = typed.log().topic("t")
    with pytest.raises(UsageError, match="topic 't' is typed, view='latest' is for"):
        topic.to_arrow(view="latest")


def test_times_are_looked_up_by_the_timestamp_column(typed: World) -> None:
    found = typed.log().topic("t").offsets_for_times({1: START_MS + 4500})[1]
    assert found is not None
    assert found.offset == 5
    assert timestamp_at(typed.handle(), 1, 5) == START_MS + 5000
    assert timestamp_at(typed.handle(), 1, 7) is None
    assert typed.log().topic("t").to_arrow(["n"], start={1: 6}).num_rows == 1


def test_a_description_shows_the_columns(typed: World) -> None:
    description = typed.log().topic("t").describe()
    schema = description.schema
    assert schema is not None
    assert (schema.version, schema.key, schema.timestamp) == (1, "user", "at")
    assert [(each.name, each.type, each.nullable) for each in schema.columns][:4] == [
        ("user", "string", True), ("at", "timestamp", True), ("n", "bigint", False), ("price", "decimal(10,2)", True),
    ]  # fmt: skip
    assert schema.columns[8].type == "struct<lat:float,names:map<string,int>>"
    text = str(description)
    assert "t: SchemaVersion: 1  Key: user  Timestamp: at\n" in text
    assert "\nn       bigint" in text
    world_of_none = typed.create(name="untyped")
    assert typed.log().topic(world_of_none.name).describe().schema is None


@pytest.mark.parametrize(
    "ddl",
    [
        "a tinyint, b smallint, c int, d bigint, e float, f double, g boolean, h binary, i date, j timestamp_ntz",
        "a array<map<bigint,struct<`x y`:int,z:decimal(38,18)>>>",
    ],
)
def test_types_are_shown_as_spark_shows_them_and_as_ddl_takes_them(ddl: str) -> None:
    fields = declared_fields(ddl)
    assert ", ".join(f"{field.name} {simple_string(field.type)}" for field in fields) == ddl


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ({"message.timestamp.type": "LogAppendTime"}, "would overwrite column 'at'"),
        ({"retention.ms": None}, "Set retention.ms"),
    ],
)
def test_configs_that_a_schema_rules_out_are_refused_later_too(
    typed: World, config: dict[str, object], why: str
) -> None:
    topic = typed.log().topic("t")
    before = topic.describe().config
    with pytest.raises(ConfigError, match=why):
        topic.alter(config)
    topic.alter({"segment.ms": 7})
    assert topic.describe().config == {**before, "segment.ms": "7"}


def test_a_default_of_the_root_compacts_no_typed_topic(typed: World) -> None:
    topic = typed.log().topic("t")
    topic.alter({"segment.ms": 1})
    typed.log().config.alter({"log.cleanup.policy": "compact"})
    for number in (7, 8):
        write(typed.handle(), row(number), partition=1)
        typed.clock.advance(10_000_000)
        done = typed.maintain()
    assert done.compacted == ()
    assert done.not_compacted == {"it is typed, and cleanup.policy=compact is the root's default": 2}
    assert topic.to_arrow().to_pylist() == rows(0, 9)
