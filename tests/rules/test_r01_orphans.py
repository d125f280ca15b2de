"""R1: orphans go only below a floor that every committer checks, and only when nobody names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_commitlog.cli.common.output import fault_lines
from pyspark_commitlog.errors import CorruptionError, StagedExpiredError
from pyspark_commitlog.format.paths import manifest_name, parse_chunk, side_name
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.collect.collect import collect, sweep
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.objects import ObjectWorld
from tests.support.records import append, batch_of, stage
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, World, once


def test_a_driver_paused_over_a_sweep_is_refused(world: World) -> None:
    """R1, I2: chunk staged; driver sleeps; sweep; its put would name a chunk that is gone."""
    topic = world.create()
    late = stage(topic, batch_of([b"late"]))
    append(topic, batch_of([b"first"]))
    world.clock.advance(RETENTION_MS)
    assert world.maintain().swept_chunks == 1
    with pytest.raises(StagedExpiredError, match="staged before entry"):
        commit(topic, late.topic_id, [late])
    assert world.values() == [b"first"]


def test_verify_tells_a_chunk_of_a_task_that_died_from_what_can_never_be_named(world: World) -> None:
    """R1: above the floor its driver may still name it, and it is no fault; below the floor nobody can."""
    topic = world.create()
    late = stage(topic, batch_of([b"late"]))
    append(topic, batch_of([b"first"]))
    assert late.chunk is not None
    path = world.path / topic.paths(late.topic_id).chunk(late.chunk.name)
    report = world.log().topic("t").verify()
    assert (report.faults, report.unnamed, len(report.under_way)) == ((), (), 1)
    said = "\n".join(fault_lines(report))
    assert "yet, which is no fault: its task is under way, or has died; `maintain` sweeps it after staged" in said
    kept = path.read_bytes()
    world.clock.advance(RETENTION_MS)
    world.maintain()
    path.write_bytes(kept)  # a copy brought it back
    report = world.log().topic("t").verify()
    assert (report.faults, len(report.unnamed), report.under_way) == ((), 1, ())


def test_verify_finds_that_a_chunk_at_the_floor_may_be_named(world: World) -> None:
    """R1: only what was begun below the floor is refused."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    late = stage(topic, batch_of([b"late"]))
    world.clock.advance(RETENTION_MS)
    world.maintain()
    assert late.chunk is not None
    assert parse_chunk(late.chunk.name) == world.handle().newest()[1].staged_floor
    report = world.log().topic("t").verify()
    assert (report.faults, report.unnamed, len(report.under_way)) == ((), (), 1)


def test_a_sweep_between_the_check_and_the_put_wins_the_number(world: World) -> None:
    """R1, I2: all checks passed, then sweep, then the put: the sweep's own entry makes the put lose."""
    topic = world.create()
    late = stage(topic, batch_of([b"late"]))
    append(topic, batch_of([b"first"]))
    world.clock.advance(RETENTION_MS)
    swept: list[int] = []
    other = world.handle()
    act = once(lambda: swept.append(sweep(other, late.topic_id)))
    slow = world.handle(on_path("/journal/", "put_if_absent", act))
    with pytest.raises(StagedExpiredError):
        commit(slow, late.topic_id, [late])
    assert swept == [1]
    assert world.values() == [b"first"]


def test_a_commit_between_the_sweep_entry_and_its_deletes_is_refused(world: World) -> None:
    """R1, I2: the floor is in the journal before the first chunk goes, so the committer in between sees it."""
    topic = world.create()
    late = stage(topic, batch_of([b"late"]))
    append(topic, batch_of([b"first"]))
    world.clock.advance(RETENTION_MS)
    outcome: list[str] = []

    def committing() -> None:
        try:
            commit(world.handle(), late.topic_id, [late])
            outcome.append("committed")
        except StagedExpiredError:
            outcome.append("refused")

    sweep(world.handle(on_path(".chunk", "delete", committing)), late.topic_id)
    assert outcome == ["refused"]
    assert world.values() == [b"first"]


def test_a_landed_commit_is_skipped_before_its_swept_chunk_is_refused(world: World) -> None:
    """R1, I5: the writer id is looked up first: a repetition of what landed is a skip, whatever became of its chunk."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    commit(topic, staged.topic_id, [staged], Transaction("w", 1))
    append(topic, batch_of([b"next"]))
    world.collect_all()
    world.clock.advance(RETENTION_MS)
    world.maintain()
    assert commit(topic, staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"once", b"next"]


def test_a_committed_chunk_below_the_floor_stays(world: World) -> None:
    """R1, I6: committed, not settled for days, far below the floor: an entry names it."""
    topic = world.create()
    staged = stage(topic, batch_of([b"kept"]))
    commit(topic, staged.topic_id, [staged])
    for value in (b"a", b"b"):
        append(topic, batch_of([value]))
    world.clock.advance(RETENTION_MS)
    assert sweep(topic, staged.topic_id) == 0
    assert staged.chunk is not None
    assert topic.newest()[1].staged_floor > (parse_chunk(staged.chunk.name) or 0)
    assert world.values() == [b"kept", b"a", b"b"]


def test_a_task_that_runs_now_is_not_swept_however_old_the_newest_entry_is(world: World) -> None:
    """R1: the topic was idle for days; a task opens its chunk, a sweep runs, the task's write commits."""
    topic = world.create()
    append(topic, batch_of([b"old"]))
    world.clock.advance(10 * RETENTION_MS)
    running = stage(world.handle(), batch_of([b"new"]))
    assert world.maintain().swept_chunks == 0
    commit(topic, running.topic_id, [running])
    assert world.values() == [b"old", b"new"]


def test_the_floor_rises_to_an_entry_older_than_the_retention_only(world: World) -> None:
    """R1: entries younger than staged.retention.ms are not in the floor, so a slow task has all of that time."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    running = stage(topic, batch_of([b"slow task"]))
    world.clock.advance(RETENTION_MS - 2)
    append(topic, batch_of([b"b"]))
    world.clock.advance(1)
    assert world.maintain().swept_chunks == 0
    commit(topic, running.topic_id, [running])
    assert world.values() == [b"a", b"b", b"slow task"]


def test_a_chunk_that_the_committer_writes_carries_the_newest_sequence(world: World) -> None:
    """R1: inline frames beyond an entry's bound go to a chunk; its name says when, as a task's does."""
    topic = world.create(config={**CHUNKS, "inline.max.bytes": 2**20, "compression.type": "none"})
    append(topic, batch_of([b"x"]))
    tasks = [stage(topic, batch_of([bytes([n]) * 700_000])) for n in range(2)]
    newest = topic.newest()[0].sequence
    commit(topic, tasks[0].topic_id, tasks)
    (chunk,) = [path.rsplit("/", 1)[1] for path in world.files(".chunk")]
    assert parse_chunk(chunk) == newest
    assert [len(value or b"") for value in world.values()] == [1, 700_000, 700_000]


def test_files_of_a_settle_attempt_under_way_are_not_collected(world: World) -> None:
    """R1 (files made for an entry): above the newest number an attempt may still name them; below nobody can."""
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024})
    append(topic, batch_of([b"a"]))
    topic_id = topic.newest()[1].topic_id
    settle(topic, topic_id)
    world.clock.advance(DELAY_MS)
    newest_settle, _ = topic.settled(topic_id)
    ours = "11111111-1111-1111-1111-111111111111"
    paths, storage = topic.paths(topic_id), world.storage()
    done, running = (manifest_name(0, newest_settle.sequence + step, ours) for step in (0, 1))
    tables = {
        side_name(topic.newest()[0].sequence, ours, "extents"): False,
        side_name(topic.newest()[0].sequence + 1, ours, "extents"): True,
        side_name(newest_settle.sequence, ours, "partitions"): False,
        side_name(newest_settle.sequence + 1, ours, "partitions"): True,
    }
    for name in (done, running):
        storage.write_once(f"{paths.manifests}/{name}", b"[]")
    for name in tables:
        storage.write_once(f"{paths.side}/{name}", b"[]")
    collect(topic, topic_id, thorough=True)
    assert storage.names(paths.manifests) == [running]
    assert storage.names(paths.side) == sorted(name for name, stays in tables.items() if stays)


def test_side_files_of_a_busy_topic_do_not_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1, R13: the two journals count apart: many commits per settle entry must not leave their tables for ever."""
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    topic = world.create(partitions=4)
    for number in range(12):
        append(topic, batch_of([b"v"] * 4, partition=range(4)))
        assert world.files(".extents")
        if number % 6 == 5:
            world.collect_all()
    assert len(world.files(".extents")) <= 2
    assert len(world.files(".chunks")) <= 2
    assert world.values() == [b"v"] * 48


@pytest.mark.parametrize("kind", [World, ObjectWorld], ids=["local", "object"])
def test_a_lost_table_keeps_the_chunks_that_it_may_name_from_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[World]
) -> None:
    """R1: while an entry that is not settled is there, its table may be restored from a copy; then it is needed."""
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 20)
    world = kind(tmp_path / "root")
    topic = world.create()
    for value in (b"a", b"b", b"c"):
        append(topic, batch_of([value]))
    topic_id, chunks = topic.newest()[1].topic_id, set(world.files("/staged/"))
    lost = world.path / world.files(".chunks")[1]
    table = lost.read_bytes()
    lost.unlink()
    stage(topic, batch_of([b"of nobody"]))
    (orphan,) = set(world.files("/staged/")) - chunks
    for value in (b"d", b"e"):
        world.clock.advance(RETENTION_MS)
        append(topic, batch_of([value]))
        world.clock.advance(RETENTION_MS)
        assert sweep(world.handle(), topic_id) == 0
    assert chunks <= set(world.files("/staged/"))
    lost.write_bytes(table)
    assert world.values() == [b"a", b"b", b"c", b"d", b"e"]
    settle(topic, topic_id)
    lost.unlink()
    append(topic, batch_of([b"f"]))
    world.clock.advance(RETENTION_MS)
    sweep(world.handle(), topic_id)
    assert orphan not in world.files("/staged/")
    assert world.values() == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_temporary_files_of_killed_writers_go_when_they_are_old(world: World) -> None:
    """R1: a killed task leaves a temporary file as large as a chunk, which no listing shows."""
    topic = world.create()
    _, state = topic.newest()
    staged = world.path / topic.paths(state.topic_id).staged
    old, fresh = staged / ".tmp-old", staged / ".tmp-fresh"
    for file, age_ms in ((old, RETENTION_MS + 1), (fresh, RETENTION_MS - 1)):
        file.write_bytes(b"half a chunk")
        stamp = (world.clock.now_ms() - age_ms) * 1_000_000
        os.utime(file, ns=(stamp, stamp))
    world.maintain()
    assert (old.exists(), fresh.exists()) == (False, True)


@pytest.mark.parametrize(("change", "told"), [(-1, "has {} bytes"), (1, "has {} bytes"), (None, "is missing")])
def test_a_chunk_that_is_not_as_long_as_it_was_staged_is_refused(world: World, change: int | None, told: str) -> None:
    """I8: driver and workers see different directories, or one of them lost something: nothing is committed."""
    topic = world.create()
    staged = stage(topic, batch_of([b"a"]))
    (chunk,) = (world.path / path for path in world.files(".chunk"))
    data = chunk.read_bytes() + b"x"
    if change is None:
        chunk.unlink()
    else:
        chunk.write_bytes(data[: len(data) - 1 + change])
    found = told.format(len(data) - 1 + (change or 0))
    with pytest.raises(CorruptionError, match=f"{found}, expected {len(data) - 1} bytes; nothing was committed"):
        commit(topic, staged.topic_id, [staged])
    assert world.entries() == [1]
