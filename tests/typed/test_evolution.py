"""The schema of a typed topic changes: records keep their values, running readers and writers go on."""

from __future__ import annotations

import logging
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.errors import (
    ConfigError,
    InvalidRecordError,
    SchemaChangedError,
    StagedExpiredError,
    UsageError,
)
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import typed_records
from pyspark_commitlog.topic.write.commit import commit
from tests.property.strategies import examples
from tests.support.objects import ObjectWorld
from tests.support.records import stage
from tests.support.replicas import LAG_MS, Replicated, elect, faults
from tests.support.typed import maintained
from tests.support.verify import verify as check_whole
from tests.support.world import World

DDL = "user STRING NOT NULL, n INT, price DECIMAL(5,2), ratio FLOAT, tags ARRAY<STRING>"


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def put(world: World | Roots, rows: pa.RecordBatch, name: str = "t") -> None:
    topic = world.handle(name=name)
    staged = stage(topic, rows)
    commit(topic, staged.topic_id, [staged], None)


def seen(log: CommitLog, columns: list[str] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.topic("t").to_arrow(columns).to_pylist()
    return found


def test_records_of_before_are_shown_by_the_new_columns(either: World) -> None:
    either.create(schema=DDL, key="user")
    put(either, batch(user=["a"], n=pa.array([1], pa.int32()), tags=[["x"]]))
    log = either.log()
    log.topic("t").alter(rename={"n": "m"}, widen={"n": "BIGINT", "ratio": "DOUBLE"}, drop="tags", add="x DATE")
    put(either, batch(user=["b"], m=[2**40], ratio=[0.1]))
    expected = [
        {"user": "a", "m": 1, "price": None, "ratio": None, "x": None},
        {"user": "b", "m": 2**40, "price": None, "ratio": 0.1, "x": None},
    ]
    assert seen(log) == expected
    either.collect_all()
    assert seen(log) == expected
    log.topic("t").alter(add="tags ARRAY<STRING>")
    assert [row["tags"] for row in seen(log)] == [None, None], "another column of that name"
    described = log.topic("t").describe().schema
    assert described is not None
    assert described.version == 3
    check_whole(either.handle())


def test_a_change_of_columns_and_configs_is_one_entry_and_nothing_is_none(either: World) -> None:
    either.create(schema=DDL)
    topic, entries = either.log().topic("t"), len(either.entries())
    topic.alter({"retention.ms": 1000}, add="x INT")
    assert len(either.entries()) == entries + 1
    topic.alter(schema=f"{DDL}, x INT")
    topic.alter(widen={"x": "INT"})
    topic.alter()
    assert len(either.entries()) == entries + 1
    with pytest.raises(ConfigError, match="nonsense"):
        topic.alter({"nonsense": 1}, add="y INT")
    with pytest.raises(ConfigError, match="no column 'z'"):
        topic.alter({"retention.ms": 5}, drop="z")
    assert topic.describe().config["retention.ms"] == "1000"
    assert len(either.entries()) == entries + 1


def test_an_untyped_topic_stays_untyped(either: World) -> None:
    either.create()
    with pytest.raises(UsageError, match="topic 't' is untyped, and stays it"):
        either.log().topic("t").alter(add="x INT")


def test_partitions_and_columns_are_bounded_together(world: World) -> None:
    world.create(1000, schema=pa.schema([(f"c{n}", pa.int8()) for n in range(500)]))
    topic = world.log().topic("t")
    with pytest.raises(ConfigError, match="501 columns in 1000 partitions are 501,000 slices"):
        topic.alter(add="x INT")
    with pytest.raises(ConfigError, match="500 columns in 1001 partitions"):
        topic.add_partitions(1001)
    with pytest.raises(ConfigError, match="501 columns in 1000 partitions"):
        world.log().create_topic("u", 1000, schema=pa.schema([(f"c{n}", pa.int8()) for n in range(501)]))


# --- a model: rows by column id, whatever becomes of the columns -----------------------------------------------------

KINDS = {"INT": "BIGINT", "SMALLINT": "INT", "FLOAT": "DOUBLE", "STRING": "STRING", "DECIMAL(5,2)": "DECIMAL(9,2)"}
ARROW = {"INT": pa.int32(), "BIGINT": pa.int64(), "SMALLINT": pa.int16(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
         "STRING": pa.string(), "DECIMAL(5,2)": pa.decimal128(5, 2), "DECIMAL(9,2)": pa.decimal128(9, 2)}  # fmt: skip


def value(kind: str, number: int) -> Any:
    if kind == "STRING":
        return f"s{number}"
    return Decimal(number) / 4 if kind.startswith("DECIMAL") else number / 2 if kind in ("FLOAT", "DOUBLE") else number


class Roots(Replicated):
    """Three roots, of which one is away every other time."""

    def handle(self, name: str = "t") -> TopicLog:
        return self.topic(name=name)

    def collect_all(self) -> None:
        """Take a root away, or have it catch up, and settle everywhere."""
        if (self.path / "c").exists():
            self.take_away("c")
            return
        self.give_back("c")
        self.log().replicas.sync("t")
        maintained(self)

    def show(self) -> None:
        """Have the high watermark pass what was decided: without a root in sync that is away, when it has left the ISR."""
        for _ in range(3):
            self.log().replicas.sync("t")
            self.clock.advance(LAG_MS)


class Model:
    """Columns as [name, kind, values by row]; None where a row has none."""

    def __init__(self, world: World | Roots) -> None:
        world.create(schema="key STRING", key="key")
        self.world, self.topic, self.rows, self.made = world, world.log().topic("t"), 0, 0
        self.columns: list[list[Any]] = []

    def write(self, count: int) -> None:
        given = {"key": pa.array([str(self.rows + at) for at in range(count)])}
        for place, (name, kind, held) in enumerate(self.columns):
            new = [None if (self.rows + at + place) % 3 == 0 else value(kind, self.rows + at) for at in range(count)]
            held += new
            given[name] = pa.array(new, ARROW[kind])
        put(self.world, batch(**given))
        self.rows += count

    def add(self, kind: str) -> None:
        self.made += 1
        self._alter(add=f"c{self.made % 4}x{self.made} {kind}")
        self.columns.append([f"c{self.made % 4}x{self.made}", kind, [None] * self.rows])

    def drop(self, at: int) -> None:
        self._alter(drop=self.columns.pop(at % len(self.columns))[0])

    def rename(self, at: int) -> None:
        column = self.columns[at % len(self.columns)]
        free = f"r{at % 3}"
        if free not in [name for name, _, _ in self.columns]:
            self._alter(rename={column[0]: free})
            column[0] = free

    def widen(self, at: int) -> None:
        column = self.columns[at % len(self.columns)]
        column[1] = KINDS.get(column[1], column[1])
        self._alter(widen={column[0]: column[1]})

    def move(self) -> None:
        self.columns.reverse()
        self._alter(schema=", ".join(["key STRING", *(f"{name} {kind}" for name, kind, _ in self.columns)]))

    def _alter(self, **change: Any) -> None:
        self.topic.alter(**change)
        if isinstance(self.world, Roots):
            self.world.show()

    def check(self) -> None:
        if isinstance(self.world, Roots):
            for root in self.world.names:
                self._check(self.world.log(root).topic("t").to_arrow())
        else:
            self._check(self.topic.to_arrow())
        check_whole(self.world.handle())

    def _check(self, table: pa.Table) -> None:
        assert table.schema.names == ["key", *(name for name, _, _ in self.columns)]
        assert table.column("key").to_pylist() == [str(at) for at in range(self.rows)]
        for name, kind, held in self.columns:
            assert table.column(name).type == ARROW[kind]
            assert table.column(name).to_pylist() == held, name


steps = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 40)),
    st.tuples(st.just("add"), st.sampled_from(sorted(KINDS))),
    st.tuples(st.sampled_from(["drop", "rename", "widen"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["move", "settle"])),
)


@pytest.mark.parametrize("kind", [World, ObjectWorld])
@given(plan=st.lists(steps, min_size=4, max_size=14))
@settings(max_examples=examples(24), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_random_changes_show_each_row_by_its_columns(
    kind: type[World], plan: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    follow(kind(tmp_path_factory.mktemp("root")), plan)


@given(plan=st.lists(steps, min_size=4, max_size=10))
@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_random_changes_are_learned_by_a_root_that_was_away(
    plan: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    follow(Roots(tmp_path_factory.mktemp("roots")), [("settle",), *plan])


def follow(world: World | Roots, plan: list[tuple[Any, ...]]) -> None:
    """Do what a plan says, and compare what is there with the model."""
    model = Model(world)
    for name, *arguments in [("add", "INT"), ("write", 3), *plan]:
        if name == "settle":
            world.collect_all()
        elif model.columns or name not in ("drop", "rename", "widen", "move"):
            getattr(model, name)(*arguments)
    if (world.path / "away-c").exists():
        world.collect_all()
    model.check()
    for _ in range(2):
        world.collect_all()
    model.check()
    shutil.rmtree(world.path)


# --- writers ---------------------------------------------------------------------------------------------------------


def test_a_running_producer_goes_on_across_every_change(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create(schema=DDL, key="user")
    log, given = world.log(), batch(user=["a"], n=pa.array([1], pa.int32()), tags=[["x"]])
    with Producer(str(world.path)) as producer:
        producer.send_batch("t", given).result()
        log.topic("t").alter(rename={"user": "who", "n": "m"}, widen={"n": "BIGINT"}, add="x STRING")
        producer.send_batch("t", given).result()
        log.topic("t").alter(drop="tags")
        typed_records._warned._texts.clear()
        with caplog.at_level(logging.WARNING):
            producer.send_batch("t", given).result()
            producer.send_batch("t", given).result()
    assert [(row["who"], row["m"]) for row in seen(log)] == [("a", 1)] * 4
    dropped = [record.getMessage() for record in caplog.records if "was dropped" in record.getMessage()]
    assert dropped == ["topic 't': column 'tags' was dropped: its values are not written"], "once in a process"


def test_a_new_producer_names_the_columns_that_there_are(world: World) -> None:
    world.create(schema=DDL)
    world.log().topic("t").alter(drop="n")
    with Producer(str(world.path)) as producer, pytest.raises(InvalidRecordError, match="there is no column 'n'"):
        producer.send_batch("t", batch(user=["a"], n=pa.array([1], pa.int32())))


def test_a_column_given_by_two_of_its_names_is_refused(world: World) -> None:
    world.create(schema=DDL)
    world.log().topic("t").alter(rename={"n": "m"})
    twice = batch(user=["a"], n=pa.array([1], pa.int32()), m=pa.array([2], pa.int32()))
    with pytest.raises(InvalidRecordError, match="columns 'n' and 'm' are one column, which was renamed: drop one"):
        put(world, twice)


@pytest.mark.parametrize("inline", [0, 2**20])
def test_rows_staged_before_a_change_are_committed_after_it(either: World, inline: int) -> None:
    topic = either.create(config={"inline.max.bytes": inline}, schema=DDL)
    staged = stage(topic, batch(user=["a"], n=pa.array([1], pa.int32()), tags=[["x"]]))
    either.log().topic("t").alter(rename={"n": "m"}, widen={"n": "BIGINT"}, drop="tags", add="x INT")
    commit(either.handle(), staged.topic_id, [staged], None)
    assert seen(either.log(), ["user", "m", "x"]) == [{"user": "a", "m": 1, "x": None}]


def test_rows_staged_with_columns_of_a_lost_history_are_refused(world: World, tmp_path: Path) -> None:
    topic = world.create(config={"inline.max.bytes": 2**20}, schema=DDL)
    put(world, batch(user=["a"]))
    shutil.copytree(world.path, tmp_path / "copy")
    shared = stage(topic, batch(user=["c"]))
    world.log().topic("t").alter(add="x INT")
    staged = stage(world.handle(), batch(user=["b"], x=pa.array([1], pa.int32())))
    shutil.rmtree(world.path)
    shutil.copytree(tmp_path / "copy", world.path)
    put(world, batch(user=["d"]))
    with pytest.raises(
        StagedExpiredError, match="staged with the columns of journal entry 3, and the topic was restored"
    ):
        commit(world.handle(), staged.topic_id, [staged], None)
    commit(world.handle(), shared.topic_id, [shared], None)
    assert [row["user"] for row in seen(world.log())] == ["a", "d", "c"]


# --- readers ---------------------------------------------------------------------------------------------------------


def test_a_running_consumer_keeps_its_columns_until_a_value_does_not_fit(world: World) -> None:
    world.create(schema=DDL)
    put(world, batch(user=["a"], n=pa.array([1], pa.int32()), ratio=pa.array([0.5], pa.float32())))
    topic = world.log().topic("t")
    with Consumer(str(world.path), "t", group_id="g", auto_offset_reset="earliest") as consumer:
        first = consumer.poll_arrow(timeout=5).schema
        topic.alter(
            rename={"n": "m"},
            widen={"n": "BIGINT", "ratio": "DOUBLE", "price": "DECIMAL(9,2)"},
            add="x INT",
            drop="tags",
        )
        put(world, batch(user=["b"], m=[2], ratio=[0.25], price=pa.array([Decimal("999.99")], pa.decimal128(9, 2))))
        table = consumer.poll_arrow(timeout=5)
        assert table.schema == first
        assert table.to_pylist() == [{"user": "b", "n": 2, "price": Decimal("999.99"), "ratio": 0.25, "tags": None}]
        put(world, batch(user=["c", "d"], m=[3, 2**31]))
        for _ in range(2):  # it stays where it is
            with pytest.raises(SchemaChangedError, match=r"topic 't' partition 0 offset 3: column 'n' is int64 by now"):
                consumer.poll_arrow(timeout=5)
        consumer.unsubscribe()
        consumer.subscribe("t")
        assert consumer.poll_arrow(timeout=5, columns=["m"]).to_pylist() == [{"m": 3}, {"m": 2**31}]
    with Consumer(str(world.path), "t", group_id="h", auto_offset_reset="earliest") as consumer:
        assert consumer.poll_arrow(timeout=5, columns=["m"]).column("m").to_pylist() == [1, 2, 3, 2**31]


@pytest.mark.parametrize(
    ("wide", "fits", "does_not"),
    [
        ({"ratio": "DOUBLE"}, pa.array([0.5, float("nan"), float("inf"), None]), pa.array([0.1])),
        ({"ratio": "DOUBLE"}, pa.array([-0.0]), pa.array([1e300])),
        ({"price": "DECIMAL(9,2)"}, pa.array([Decimal("-999.99")], pa.decimal128(9, 2)), pa.array([Decimal("1000.00")], pa.decimal128(9, 2))),
        ({"n": "BIGINT"}, pa.array([-(2**31), 2**31 - 1, None]), pa.array([-(2**31) - 1])),
    ],
)  # fmt: skip
def test_a_value_is_narrowed_only_without_loss(
    world: World, wide: dict[str, str], fits: pa.Array, does_not: pa.Array
) -> None:
    world.create(schema=DDL)
    put(world, batch(user=["a"]))
    ((name, _),) = wide.items()
    with Consumer(str(world.path), "t", group_id="g", auto_offset_reset="earliest") as consumer:
        kind = consumer.poll_arrow(timeout=5).schema.field(name).type
        world.log().topic("t").alter(widen=wide)
        put(world, batch(user=["b"] * len(fits), **{name: fits}))
        column = consumer.poll_arrow(timeout=5).column(name)
        assert column.type == kind
        assert str(column.to_pylist()) == str(fits.to_pylist())
        put(world, batch(user=["b"] * len(does_not), **{name: does_not}))
        with pytest.raises(SchemaChangedError, match=f"column {name!r} is .* by now, and its value is none of"):
            consumer.poll_arrow(timeout=5)


def test_columns_that_hold_all_values_are_not_searched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(schema=DDL)
    put(world, batch(user=["a"], n=pa.array([1], pa.int32()), ratio=pa.array([0.5], pa.float32())))
    world.log().topic("t").alter(widen={"n": "BIGINT", "ratio": "DOUBLE", "price": "DECIMAL(9,2)"})
    monkeypatch.setattr(pc, "index", lambda *_: pytest.fail("searched"))
    assert world.log().topic("t").to_arrow(["n", "ratio"]).to_pylist() == [{"n": 1, "ratio": 0.5}]


def test_a_topic_made_again_has_its_own_columns(world: World) -> None:
    world.create(schema="user STRING")
    put(world, batch(user=["a"]))
    with Consumer(str(world.path), "t", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll_arrow(timeout=5)
        world.log().topic("t").delete()
        world.create(schema="other INT")
        put(world, batch(other=pa.array([5], pa.int32())))
        assert consumer.poll_arrow(timeout=10).to_pylist() == [{"other": 5}]


# --- many columns, several roots -------------------------------------------------------------------------------------

WIDE = pa.schema([("user", pa.string()), *((f"column_number_{number}", pa.int32()) for number in range(900))])


def test_a_large_schema_changes_in_its_side_file(either: World) -> None:
    either.create(schema=WIDE)
    put(either, batch(user=["a"], column_number_7=pa.array([7], pa.int32())))
    topic = either.log().topic("t")
    before = sorted(either.path.glob("topics/t/*/side/*.columns"))
    topic.alter(rename={"column_number_7": "seven"}, widen={"column_number_7": "BIGINT"})
    assert len(sorted(either.path.glob("topics/t/*/side/*.columns"))) == 2
    put(either, batch(user=["b"], seven=[2**40]))
    either.collect_all()
    assert set(either.path.glob("topics/t/*/side/*.columns")).isdisjoint(before), "the one of before is collected"
    assert seen(either.log(), ["user", "seven"]) == [{"user": "a", "seven": 7}, {"user": "b", "seven": 2**40}]
    topic.alter(schema="user STRING, seven BIGINT")
    put(either, batch(user=["c"]))
    either.collect_all()
    assert sorted(either.path.glob("topics/t/*/side/*.columns")) == []
    assert [row["seven"] for row in seen(either.log())] == [7, 2**40, None]


@pytest.mark.parametrize("schema", ["user STRING, n INT", WIDE], ids=["small", "large"])
def test_replicas_learn_changes_and_lead_on(roots: Replicated, schema: Any) -> None:
    roots.create(schema=schema)
    topic = roots.log().topic("t")

    def write(**columns: Any) -> None:
        handle = roots.topic()
        staged = stage(handle, batch(**columns), everywhere=True)
        commit(handle, staged.topic_id, [staged], None)

    write(user=["a"])
    topic.alter(rename={"user": "who"}, add="x STRING")
    write(who=["b"], x=["y"])
    elect(roots, "b")
    topic.alter(drop="x", add="z INT")
    write(user=["c"], z=pa.array([3], pa.int32()))
    expected = [{"who": "a", "z": None}, {"who": "b", "z": None}, {"who": "c", "z": 3}]
    for _ in range(2):
        for root in roots.names:
            assert roots.log(root).topic("t").to_arrow(["who", "z"]).to_pylist() == expected
            assert not faults(roots, root)
        maintained(roots)
