"""Schemas of many columns: a side file has them, which entries name, roots learn, copies carry, and collectors keep."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CorruptionError, TopicExistsError
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.format.schema.topic_schema import Column, ColumnTable, Field, TopicSchema
from pyspark_commitlog.format.schema.types import normalize_type
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic import topic_tables
from pyspark_commitlog.topic.state import schema_state
from pyspark_commitlog.topic.state.schema_state import check_schema, parse_columns, parse_schema, place_schema
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.replication.lost import recover
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import stage
from tests.support.replicas import Replicated, faults
from tests.support.typed import maintained, read_rows, typed_batch
from tests.support.verify import verify
from tests.support.world import DELAY_MS, Recorder, World

COLUMNS = 900
WIDE = pa.schema([(f"column_number_{number}", pa.int32()) for number in range(COLUMNS)])
SMALL = pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
TABLE = ".columns"


def wide(number: int) -> dict[str, int]:
    """Return a row."""
    return {name: number + at for at, name in enumerate(WIDE.names)}


def put(topic: TopicLog, *numbers: int, everywhere: bool = False) -> None:
    """Commit rows."""
    staged = stage(topic, typed_batch([wide(number) for number in numbers], schema=WIDE), everywhere=everywhere)
    commit(topic, staged.topic_id, [staged], None)


def forget() -> None:
    """Be a process that has read no schema yet."""
    topic_tables._columns.clear()


def tables(path: Path) -> list[Path]:
    return sorted(path.glob(f"topics/t/*/side/*{TABLE}"))


def test_every_entry_names_one_side_file_and_readers_read_it_once(either: World) -> None:
    topic = either.create(schema=WIDE)
    for number in range(3):
        put(topic, number)
    (table,) = tables(either.path)
    assert all(
        len(path.read_bytes()) < 8000 for path in (either.path / "topics/t/journal").iterdir() if "1." in path.name
    )
    forget()
    recorder = Recorder()
    fresh = either.handle(recorder)
    for _ in range(3):
        _, state = fresh.newest()
        assert state.schema is not None
        assert (len(state.schema.columns), state.schema.names) == (COLUMNS, tuple(WIDE.names))
        fresh.journal.forget()
    assert sum(table.name in path for path in recorder.paths("read")) == 1
    assert read_rows(either.handle()) == [wide(number) for number in range(3)]


def test_collectors_keep_the_table_while_an_entry_names_it(either: World) -> None:
    topic = either.create(schema=WIDE)
    for number in range(4):
        put(topic, number)
        either.clock.advance(DELAY_MS + 1001)
        either.collect_all()
    assert min(either.entries()) > 1, "the entry that placed it is gone"
    assert len(tables(either.path)) == 1
    forget()
    assert read_rows(either.handle()) == [wide(number) for number in range(4)]
    assert verify(either.handle()) == 4
    either.log().topic("t").delete()
    either.create(schema=SMALL)
    for _ in range(3):
        either.clock.advance(10**9)
        either.maintain()
    assert tables(either.path) == []


def test_what_needs_no_column_works_without_the_table_and_verify_names_it(world: World) -> None:
    """Settling, for example: a frame says its own schema."""
    topic = world.create(schema=WIDE)
    put(topic, 1)
    (table,) = tables(world.path)
    kept = table.read_bytes()
    for damage in (lambda: table.unlink(), lambda: table.write_bytes(kept[:-1] + b"}")):
        damage()
        forget()
        world.maintain()
        (fault,) = world.log().topic("t").verify().faults
        assert table.name in fault
        with pytest.raises(CorruptionError, match=re.escape(table.name)):
            read_rows(world.handle())
        table.write_bytes(kept)
    forget()
    assert read_rows(world.handle()) == [wide(1)]
    assert world.log().topic("t").verify().faults == ()


def test_replicas_learn_the_table(roots: Replicated) -> None:
    topic = roots.create(schema=WIDE)
    put(topic, 0, everywhere=True)
    for root in "abc":
        forget()
        assert read_rows(roots.at(root)) == [wide(0)]
        assert len(tables(roots.path / root)) == 1
        assert not faults(roots, root)
    tables(roots.path / "b")[0].unlink()
    forget()
    with pytest.raises(CorruptionError):
        read_rows(roots.at("b"))
    assert faults(roots, "b")
    assert roots.log("b").topic("t").repair().files
    maintained(roots)
    forget()
    put(roots.topic("b"), 1, everywhere=True)
    assert read_rows(roots.at("b")) == [wide(0), wide(1)]


def test_a_majority_and_a_root_that_was_away_learn_the_table(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, metadata="mno")
    roots.create(name="other")
    roots.take_away("o")
    roots.take_away("c")
    topic = roots.create(schema=WIDE)
    put(topic, 0)
    with pytest.raises(TopicExistsError):
        roots.create(schema=WIDE)
    roots.give_back("o")
    roots.give_back("c")
    roots.log("b").replicas.sync("t")
    roots.take_away("a")
    forget()
    put(roots.topic("b"), 1)
    assert read_rows(roots.at("c")) == [wide(0), wide(1)]
    assert not faults(roots, "c")


def test_it_is_there_after_the_metadata_is_lost(roots: Replicated) -> None:
    put(roots.create(schema=WIDE), 0, everywhere=True)
    roots.take_away("m")
    recover(roots, "m", to="a", at="a")
    after = Replicated(roots.path, clock=roots.clock, metadata="a")
    after.log("a").replicas.sync("t")
    forget()
    put(after.topic("b"), 1, everywhere=True)
    assert [read_rows(after.at(root)) for root in "abc"] == [[wide(0), wide(1)]] * 3


def test_replicas_that_are_added_learn_the_table(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    put(world.create(schema=WIDE), 0)
    world.collect_all()
    roots = Replicated(tmp_path, clock=world.clock, metadata="a")
    roots.log("a").replicas.add([str(tmp_path / "b"), str(tmp_path / "c")])
    roots.log("a").topic("t").set_replication_factor(3)
    forget()
    put(roots.topic("b"), 1, everywhere=True)
    assert [read_rows(roots.at(root)) for root in "abc"] == [[wide(0), wide(1)]] * 3


def test_a_copy_has_a_table_of_its_own(tmp_path: Path) -> None:
    source, there = World(tmp_path / "source"), ObjectWorld(tmp_path / "there")
    topic = source.create(schema=WIDE)
    for number in range(3):
        put(topic, number)
        source.log().copy_to(there.log(), ["t"])
        forget()
        assert read_rows(there.handle()) == [wide(each) for each in range(number + 1)]
        assert there.handle().newest()[1].schema == topic.newest()[1].schema
    assert len(tables(there.path)) <= 2, "an unchanged schema is not stored again"
    there.collect_all()
    assert verify(there.handle()) == 3
    assert source.log().compare_with(there.log(), ["t"])[0].faults == ()


def test_a_copy_says_that_the_table_of_its_source_is_lost(tmp_path: Path) -> None:
    source = World(tmp_path / "source")
    put(source.create(schema=WIDE), 0)
    tables(source.path)[0].unlink()
    forget()
    with pytest.raises(CorruptionError, match="is missing"):
        source.log().copy_to(World(tmp_path / "there").log(), ["t"])


def test_small_schemas_stay_in_the_entry(world: World) -> None:
    world.create(schema=SMALL)
    assert tables(world.path) == []


def test_a_table_is_placed_once_and_pickled_as_its_columns() -> None:
    columns = tuple(Column(number, Field(f"column {number}", "long")) for number in range(1, 900))
    schema = TopicSchema(3, columns, key=5)
    placed, sides = place_schema(schema, 7, "0" * 8 + "-0000-0000-0000-" + "0" * 12)
    assert placed is not None
    assert list(sides) == ["columns"]
    assert placed.to_json()["columns"]["length"] == len(sides["columns"])
    assert place_schema(placed, 8, "another") == (placed, {})
    assert placed == schema
    assert pickle.loads(pickle.dumps(placed)) == schema
    assert isinstance(pickle.loads(pickle.dumps(placed)).columns, tuple)
    parsed = parse_schema(placed.to_json())
    assert (parsed.version, parsed.key) == (3, 5)
    assert isinstance(parsed.columns, ColumnTable)
    assert parsed == placed
    assert placed != place_schema(TopicSchema(3, columns[1:], key=5), 7, "another")[0]


def column(number: int, kind: object = "long") -> list[object]:
    return [number, f"name {number}", kind, True, None]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"version": 1, "columns": [], "key": None, "timestamp": None}, "columns"),
        ({"version": 0, "columns": [column(1)], "key": None, "timestamp": None}, "version"),
        ({"version": 1, "columns": [column(1), column(1)], "key": None, "timestamp": None}, "each once"),
        ({"version": 1, "columns": [column(1)], "key": 2, "timestamp": None}, "key is 2"),
        ({"version": 1, "columns": [column(1)], "key": None, "timestamp": 3}, "timestamp is 3"),
        ({"version": 1, "columns": [column(1, "interval")], "key": None, "timestamp": None}, "name 1"),
        ({"version": 1, "columns": [column(0)], "key": None, "timestamp": None}, "columns"),
        (
            {"version": 1, "columns": {"file": "x", "length": 1, "crc": "00000000"}, "key": None, "timestamp": None},
            "file",
        ),
    ],
    ids=["no column", "version", "id twice", "key", "timestamp", "type", "id", "side file"],
)
def test_a_damaged_schema_is_named(schema: dict[str, object], said: str) -> None:
    with pytest.raises(CorruptionError, match=f"journal/1: .*{re.escape(said)}"):
        check_schema(schema, "journal/1")


@pytest.mark.parametrize("rows", [[], [column(1), column(1)], [column(1, "interval")], [[1, "name", "long", True]]])
def test_a_damaged_table_is_named(world: World, rows: list[object]) -> None:
    with pytest.raises(CorruptionError, match="side/table"):
        parse_columns(to_json_bytes(rows), "side/table")


def test_a_schema_is_parsed_once_however_often_its_topic_is_looked_at(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))
    log.create_topic("t", schema=pa.schema([(f"c{number}", pa.int32()) for number in range(100)]))
    schema_state._parsed.cache_clear()
    with mock.patch.object(schema_state, "normalize_type", wraps=normalize_type) as checked:
        for _ in range(5):
            CommitLog.on(LocalStorage(tmp_path)).root.topic("t").newest()
    assert checked.call_count == 100


def test_columns_of_two_incarnations_are_told_apart(world: World) -> None:
    put(world.create(schema=WIDE), 0)
    first = topic_id(world.handle())
    world.log().topic("t").delete()
    put(world.create(schema=WIDE), 1)
    assert topic_id(world.handle()) != first
    assert read_rows(world.handle()) == [wide(1)]


def change_schema(topic: TopicLog) -> None:
    """Put an entry with one column less, as a change of the schema does."""

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        _, state = topic.newest_at(base, None)
        assert state.schema is not None
        changed = TopicSchema(2, tuple(state.schema.columns[:-1]))
        placed, sides = place_schema(changed, slot.sequence, slot.write_id)
        return Draft(
            "alter", state.topic_id, {"state": replace(state, schema=placed).to_json()}, sides=sides, result=None
        )

    topic.journal.append(plan)


def test_the_table_of_an_earlier_schema_goes_with_the_last_entry_that_names_it(either: World) -> None:
    topic = either.create(schema=WIDE)
    put(topic, 0)
    change_schema(topic)
    before, after = tables(either.path)
    kept = before.read_bytes()
    before.unlink()
    faults = either.log().topic("t").verify().faults
    assert any(before.name in fault for fault in faults), "older entries are left that name it"
    before.write_bytes(kept)
    for _ in range(3):
        either.clock.advance(DELAY_MS + 1001)
        topic.journal.append(lambda base, slot: _same(topic, base))
        either.collect_all()
    assert tables(either.path) == [after]
    forget()
    names = WIDE.names[:-1]
    assert read_rows(either.handle()) == [{name: wide(0)[name] for name in names}]
    assert verify(either.handle()) == 1


def _same(topic: TopicLog, base: Stored | None) -> Draft[None]:
    _, state = topic.newest_at(base, None)
    return Draft("alter", state.topic_id, {"state": state.to_json()}, result=None)
