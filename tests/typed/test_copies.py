"""Copies of typed topics: the source's rows, offsets, columns and ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog.topic.damage.dump import dump
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.retention import delete_records
from pyspark_commitlog.topic.write.commit import commit
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import stage
from tests.support.typed import DECLARED, START_MS, placed_rows, read_rows, row, rows, typed_batch, write
from tests.support.verify import verify
from tests.support.world import CHUNKS, World


def copy(source: World, there: World) -> None:
    """Copy topic t; both ends have the same rows, history and columns then."""
    source.log().copy_to(there.log(), ["t"])
    assert placed_rows(there.handle()) == placed_rows(source.handle())
    before, after = source.handle().newest()[1], there.handle().newest()[1]
    assert after.schema == before.schema
    assert after.lineage == before.lineage
    (compared,) = source.log().compare_with(there.log(), ["t"])
    assert (compared.faults, compared.records) == ((), len(placed_rows(source.handle())))
    assert verify(there.handle())


@pytest.mark.parametrize("inline", [0, 2**20])
def test_a_copy_is_continued_over_storage_without_append(tmp_path: Path, inline: int) -> None:
    first = World(tmp_path / "first")
    second, third = ObjectWorld(tmp_path / "second", first.clock), World(tmp_path / "third", first.clock)
    topic = first.create(2, {**CHUNKS, "inline.max.bytes": inline}, **DECLARED)
    for begin in (0, 10, 20):
        write(topic, *rows(begin, begin + 7, 100))
        write(topic, *rows(begin + 7, begin + 10), partition=1)
        first.maintain()
        for source, there in ((first, second), (second, third)):
            copy(source, there)
    assert read_rows(third.handle(), 1) == [each for begin in (7, 17, 27) for each in rows(begin, begin + 3)]


@pytest.mark.parametrize("columns", [1, 900])
def test_a_copy_follows_changes_of_columns(tmp_path: Path, columns: int) -> None:
    source = World(tmp_path / "source")
    there = ObjectWorld(tmp_path / "there", source.clock)
    topic = source.create(schema=pa.schema([(f"column_number_{number}", pa.int32()) for number in range(columns)]))
    for name in ("column_number_0", "zero"):
        staged = stage(topic, pa.RecordBatch.from_pydict({name: pa.array([1], pa.int32())}))
        commit(topic, staged.topic_id, [staged], None)
        copy(source, there)
        source.log().topic("t").alter(rename={name: "zero"}, widen={name: "BIGINT"}, add=f"x{len(name)} INT")
        copy(source, there)
    source.log().topic("t").alter(drop=["x4", "x15"])
    copy(source, there)
    assert there.log().topic("t").to_arrow(["zero"]).to_pylist() == [{"zero": 1}] * 2


def test_a_copy_begins_behind_what_was_deleted_and_voided(tmp_path: Path) -> None:
    """A frame without rows covers what is lost; it is no frame of columns."""
    source, there = World(tmp_path / "source"), ObjectWorld(tmp_path / "there")
    topic = source.create(config={**CHUNKS, "batch.size": 1024, "compression.type": "none"}, **DECLARED)
    write(topic, *rows(0, 6, 2100), each=True)
    (name,) = source.files(".chunk")
    data = bytearray((source.path / name).read_bytes())
    data[len(data) * 7 // 12] ^= 1
    (source.path / name).write_bytes(data)
    source.log().topic("t").void()
    source.maintain()
    delete_records(topic, topic_id(topic), {0: 1})
    source.log().copy_to(there.log(), ["t"])
    assert placed_rows(there.handle()) == {(0, n): row(n, 2100) for n in range(1, 6) if n != 3}
    assert source.log().compare_with(there.log(), ["t"])[0].faults == ()
    found = find_time(there.handle(), topic_id(topic), 0, START_MS + 3000)
    assert found is not None
    assert found.offset == 4


def test_the_frames_of_a_copy_are_as_large_as_those_of_the_source(tmp_path: Path) -> None:
    source, there = World(tmp_path / "source"), World(tmp_path / "there")
    topic = source.create(config={**CHUNKS, "compression.type": "none", "batch.size": 100_000}, **DECLARED)
    write(topic, *rows(0, 90, 5000))
    copy(source, there)
    source.maintain()
    frames = [
        [each["lastOffset"] for each in dump(world.storage(), world.files(".log")[0])] for world in (source, there)
    ]
    assert frames[1] == frames[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"n": 1},
        {"price": None},
        {"ok": None},
        {"tags": ["tag 4"]},
        {"place": {"lat": 2.0, "names": [("name 4", 5), ("none", None)]}},
        {"user": "another"},
        {"raw": b"\0"},
        {"at": row(5)["at"]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_value_is_named(tmp_path: Path, changed: dict[str, object]) -> None:
    """A topic with the same ids whose row 4 differs in one column."""
    source, there = World(tmp_path / "source"), World(tmp_path / "there")
    write(source.create(**DECLARED), *rows(0, 3))
    source.log().copy_to(there.log(), ["t"])
    write(source.handle(), *rows(3, 6))
    write(there.handle(), row(3), {**row(4), **changed}, row(5))
    (compared,) = source.log().compare_with(there.log(), ["t"])
    assert compared.faults == ("partition 0 offset 4: the records differ",)
    assert compared.records == 5


def test_other_headers_are_named(tmp_path: Path) -> None:
    source, there = World(tmp_path / "source"), World(tmp_path / "there")
    write(source.create(**DECLARED), *rows(0, 3))
    source.log().copy_to(there.log(), ["t"])
    for world, headers in ((source, [{"key": "h", "value": b"1"}]), (there, [{"key": "h", "value": b"2"}])):
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        staged = stage(world.handle(), typed_batch([row(3)]).append_column("_headers", pa.array([headers], kind)))
        commit(world.handle(), staged.topic_id, [staged], None)
    (compared,) = source.log().compare_with(there.log(), ["t"])
    assert compared.faults == ("partition 0 offset 3: the records differ",)
