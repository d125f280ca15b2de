"""What the last runs of `maintain` did: a list for people, on which nothing else depends."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain import maintenance_runs
from pyspark_commitlog.topic.maintain.maintenance_runs import MaintenanceRun, former_runs
from pyspark_commitlog.topic.maintain.settle import settle
from tests.support.objects import ObjectWorld
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

SEVERAL_SEGMENTS = {**CHUNKS, "segment.bytes": 2000, "settle.entries": 1000}


def runs_of(world: World | ObjectWorld) -> tuple[MaintenanceRun, ...]:
    topic = world.handle()
    return former_runs(topic, topic.newest()[1].topic_id)


def write(world: World | ObjectWorld, records: int = 1) -> None:
    """Append records of one key, of a size that fills most of a segment."""
    values = [random.Random(number).randbytes(1500) for number in range(records)]
    append(world.handle(), batch_of(values, key=[b"k"] * records))


def list_of(world: World) -> Path:
    (path,) = world.files("settle/maintenance-runs")
    return world.path / path


def test_a_run_says_what_it_did(world: World) -> None:
    world.create(config=SEVERAL_SEGMENTS)
    for records in (1, 2, 3, 4):
        write(world, records)
        world.clock.advance(5_000)
        world.maintain()
        assert runs_of(world)[-1] == MaintenanceRun(world.clock.now_ms(), settled_records=records)
    world.log().topic("t").alter({"retention.bytes": 4000})
    world.clock.advance(5_000)
    retained = world.maintain().retained
    ((before, after),) = retained.log_start.values()
    assert runs_of(world)[4:] == (
        MaintenanceRun(world.clock.now_ms(), deleted_records=after - before, released_segments=retained.segments),
    )
    assert after > before == 0


def test_so_it_does_where_nothing_can_be_appended(tmp_path: Path) -> None:
    world = ObjectWorld(tmp_path / "root")
    world.create(config=SEVERAL_SEGMENTS)
    write(world, 3)
    world.maintain()
    assert [run.settled_records for run in runs_of(world)] == [3]
    topic = world.handle()
    for _ in range(9):
        write(world)
        settle(topic, topic.newest()[1].topic_id)
    merges = world.maintain().merged.merges
    assert runs_of(world)[-1].merges == merges > 0


def test_former_incarnations_are_counted(world: World) -> None:
    world.create(config={**SEVERAL_SEGMENTS, "file.delete.delay.ms": 1000})
    write(world)
    world.log().topic("t").delete()
    world.create(config={**SEVERAL_SEGMENTS, "file.delete.delay.ms": 1000})
    world.clock.advance(60_000)
    assert world.maintain().removed_lives == 1
    assert runs_of(world) == (MaintenanceRun(world.clock.now_ms(), removed_incarnations=1),)


def test_compaction_and_what_is_removed_are_counted(world: World) -> None:
    world.create(config={**SEVERAL_SEGMENTS, "cleanup.policy": "compact", "file.delete.delay.ms": 1000})
    for _ in range(4):
        write(world)
        done = world.maintain()
    assert runs_of(world)[-1].compacted_segments == sum(each.segments[0] for each in done.compacted) > 0
    world.clock.advance(60_000)
    gone = world.maintain().collected
    removed = gone.chunks + gone.entries + gone.settle_entries + gone.files + gone.segments
    assert runs_of(world)[-1].removed_files == removed > 0


def test_a_run_without_work_is_not_listed(world: World) -> None:
    """Of a service that goes round every five minutes few runs do something: those stay."""
    world.create(config=SEVERAL_SEGMENTS)
    write(world)
    world.maintain()
    assert len(runs_of(world)) == 1
    for _ in range(3):
        world.clock.advance(10)
        world.maintain()
    assert len(runs_of(world)) == 1


def test_the_last_ones_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_runs, "MOST_RUNS", 2)
    world.create(config=SEVERAL_SEGMENTS)
    for records in (1, 2, 3):
        write(world, records)
        world.maintain()
    assert [run.settled_records for run in runs_of(world)] == [2, 3]


def test_what_fails_is_counted_and_takes_no_other_place(world: World) -> None:
    """A fault that lasts fails every five minutes."""
    world.create(config=SEVERAL_SEGMENTS)
    for _ in range(4):
        write(world)
        world.maintain()
    for manifest in world.files("manifests/"):
        (world.path / manifest).write_bytes(b"{")
    before = runs_of(world)
    for _ in range(3):
        world.clock.advance(10)
        with pytest.raises((CorruptionError, ExceptionGroup)):
            world.maintain()
    *kept, last = runs_of(world)
    assert tuple(kept) == before
    assert last == MaintenanceRun(world.clock.now_ms(), failures=last.failures)
    assert last.failures > 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[" * 60_000,
        b'{"runs": 3}',
        b'{"runs": [{"atMs": -1}]}',
        json.dumps({"runs": [{"atMs": 1}] * (maintenance_runs.MOST_RUNS + 1)}).encode(),
        b" " * 2**20 + b'{"runs": []}',
    ],
)
def test_a_damaged_list_is_none_and_begins_anew(world: World, data: bytes) -> None:
    world.create(config=SEVERAL_SEGMENTS)
    write(world)
    world.maintain()
    list_of(world).write_bytes(data)
    assert runs_of(world) == ()
    write(world, 2)
    world.maintain()
    assert [run.settled_records for run in runs_of(world)] == [2]


def test_a_list_that_can_not_be_written_stops_no_maintenance(world: World) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    world.create(config=SEVERAL_SEGMENTS)
    write(world)
    done = world.log(on_path("maintenance-runs", "create", full)).topic("t").maintain()
    assert done.settled_records == 1
    assert runs_of(world) == ()


def test_a_list_that_can_not_be_read_now_is_not_lost(world: World) -> None:
    def hangs() -> None:
        raise TimeoutError

    world.create(config=SEVERAL_SEGMENTS)
    write(world)
    world.maintain()
    write(world, 2)
    world.log(on_path("maintenance-runs", "read", hangs)).topic("t").maintain()
    assert [run.settled_records for run in runs_of(world)] == [1]


def test_the_list_is_no_stray_file(world: World) -> None:
    world.create(config=SEVERAL_SEGMENTS)
    write(world)
    world.maintain()
    assert list_of(world).exists()
    report = world.log().topic("t").verify()
    assert (report.faults, report.unnamed) == ((), ())
