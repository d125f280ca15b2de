"""R5, acks=0: chunks that are not synced, who syncs them, and what power loss may take."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError, SyncFailedError
from pyspark_commitlog.spark.write.sink_options import sink_options
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read import unsettled
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, stage
from tests.support.syscalls import recording
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, World, raising


def quick(topic: TopicLog, *values: bytes) -> Committed:
    """Commit with acks=0."""
    staged = stage(topic, batch_of(values), durable=False)
    return commit(topic, staged.topic_id, [staged], durable=False)


def unsynced(world: World) -> int | None:
    return world.handle().newest()[1].unsynced_from


def chunks(world: World) -> list[Path]:
    return [world.path / path for path in world.files(".chunk")]


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


POWER_LOSS = [Path.unlink, emptied, zeroed, torn]


def test_the_option() -> None:
    for text, durable in (("all", True), ("-1", True), ("1", True), ("0", False)):
        assert sink_options({"path": "/p", "topic": "t", "acks": text}).durable is durable


def test_chunks_are_not_synced_but_the_entry_is(world: World) -> None:
    """R5: a task does not wait for the disk; the entry is durable whatever acks says."""
    topic = world.create(config=CHUNKS)
    with recording() as calls:
        done = quick(topic, b"a")
    synced = [path for call, path in calls if call == "fsync"]
    assert not [path for path in synced if "/staged" in path]
    assert [path for path in synced if path.endswith("/t/journal")]
    assert unsynced(world) == done.sequence
    assert world.values() == [b"a"]
    quick(topic, b"b")
    assert unsynced(world) == done.sequence, "the first"


def test_inline_frames_are_durable_with_their_entry(world: World) -> None:
    """R5: no chunk, nothing that may be lost."""
    topic = world.create(config={**CHUNKS, "inline.max.bytes": 65536})
    quick(topic, b"a")
    assert unsynced(world) is None


def test_a_commit_with_acks_makes_what_is_before_it_durable_first(world: World) -> None:
    """R5, I4: else power loss takes offset 0 and leaves offset 1: a hole in front of what was promised to stay."""
    topic = world.create(config=CHUNKS)
    quick(topic, b"a")
    quick(topic, b"b")
    names = {path.name for path in chunks(world)}
    staged = stage(topic, batch_of([b"c"]))
    with recording() as calls:
        commit(topic, staged.topic_id, [staged])
    linked = next(i for i, (call, path) in enumerate(calls) if call == "link" and "/journal/" in path)
    before = [path for call, path in calls[:linked] if call == "fsync"]
    assert names <= {path.rsplit("/", 1)[1] for path in before}
    assert any(path.endswith("/staged") for path in before)
    assert unsynced(world) is None
    with recording() as calls:
        append(topic, batch_of([b"d"]))
    assert sum(call == "fsync" and ".chunk" in path for call, path in calls) == 0, "only once"


def test_an_unsynced_commit_that_wins_the_race_is_synced_too(world: World) -> None:
    """R5, R9: A (acks=all) saw nothing unsynced; B (acks=0) puts first; A's next attempt syncs B's chunk."""
    topic = world.create(config=CHUNKS)
    staged = stage(topic, batch_of([b"a"]))
    slow = world.handle(on_path("/journal/", "put_if_absent", lambda: quick(world.handle(), b"b")))
    with recording() as calls:
        commit(slow, staged.topic_id, [staged])
    (other,) = {path.name for path in chunks(world)} - {staged.chunk.name if staged.chunk else ""}
    assert [path for call, path in calls if call == "fsync" and path.endswith(other)]
    assert unsynced(world) is None
    assert world.values() == [b"b", b"a"]


def test_a_failed_sync_of_an_earlier_chunk_commits_nothing(world: World) -> None:
    """R5: it can't be promised that what is committed now survives with all that is before it."""
    topic = world.create(config=CHUNKS)
    done = quick(topic, b"a")
    staged = stage(topic, batch_of([b"b"]))
    failing = world.handle(on_path(".chunk", "sync_file", raising(SyncFailedError("injected"))))
    with pytest.raises(SyncFailedError):
        commit(failing, staged.topic_id, [staged], Transaction("w", 1))
    assert unsynced(world) == done.sequence
    assert not commit(topic, staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"a", b"b"]


@pytest.mark.parametrize("lose", POWER_LOSS)
@pytest.mark.parametrize("behind", [False, True])
def test_what_power_loss_took_is_voided_loudly(
    world: World, lose: Callable[[Path], None], behind: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """R5: a settler voids it; also where a commit with acks=all came behind: that must not bless the damage."""
    topic = world.create(config=CHUNKS)
    append(topic, batch_of([b"a"]))
    before = set(chunks(world))
    done = quick(topic, b"b", b"c")
    (lost,) = set(chunks(world)) - before
    quick(topic, b"d")
    lose(lost)
    if behind:
        append(world.handle(), batch_of([b"e"]))
        assert unsynced(world) == done.sequence
    expected = [b"a", b"d", b"e"] if behind else [b"a", b"d"]
    with pytest.raises(CorruptionError):
        world.values()
    with caplog.at_level(logging.ERROR):
        world.maintain()
    assert "offsets 1 to 2 (2 records), written with acks=0, are lost and voided" in caplog.text
    assert [(v.start, v.end) for v in world.handle().newest()[1].voids] == [(1, 3)]
    for _ in range(3):
        assert world.values() == expected
        world.clock.advance(DELAY_MS)
        world.maintain()
    verify(world.handle())
    append(world.handle(), batch_of([b"f"]))
    assert unsynced(world) is None
    assert world.values() == [*expected, b"f"]


@pytest.mark.parametrize("lose", POWER_LOSS)
def test_any_other_damage_stays_an_error(world: World, lose: Callable[[Path], None]) -> None:
    """R5, I8: the chunk was synced, so it is no work of power loss: an operator's to judge."""
    topic = world.create(2, CHUNKS)
    append(topic, batch_of([b"a"], partition=[0]))
    lose(chunks(world)[0])
    staged = stage(topic, batch_of([b"b"], partition=[1]), durable=False)
    commit(topic, staged.topic_id, [staged], durable=False)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            settle(world.handle(), topic.newest()[1].topic_id)
    assert world.handle().newest()[1].voids == ()
    rows = world.handle().settled(topic.newest()[1].topic_id)[1].partitions
    assert [row.end_offset for row in rows] == [0, 1]


def test_a_chunk_that_was_synced_behind_is_not_voided(world: World) -> None:
    """R5: once a commit with acks=all has made it durable, its loss is no longer what acks=0 allows."""
    topic = world.create(config=CHUNKS)
    quick(topic, b"a")
    lost = chunks(world)[0]
    append(topic, batch_of([b"b"]))
    lost.unlink()
    with pytest.raises(CorruptionError):
        world.maintain()
    assert world.handle().newest()[1].voids == ()


def test_what_is_settled_needs_no_sync(world: World) -> None:
    """R5: the log is durable; the chunk is collected; a commit with acks=all does not look for it."""
    topic = world.create(config=CHUNKS)
    quick(topic, b"a")
    world.collect_all()
    quick(topic, b"b")
    world.collect_all()
    append(world.handle(), batch_of([b"c"]))
    assert unsynced(world) is None
    assert world.values() == [b"a", b"b", b"c"]


def test_a_chunk_that_is_collected_while_it_is_synced(world: World) -> None:
    """R5, R13: settled and gone between the look and the fsync: nothing is missing."""
    topic = world.create(config=CHUNKS)
    for value in (b"a", b"b", b"c"):
        quick(topic, value)
    staged = stage(topic, batch_of([b"d"]))
    slow = world.handle(on_path(".chunk", "sync_file", world.collect_all))
    commit(slow, staged.topic_id, [staged])
    assert unsynced(world) is None
    assert world.values() == [b"a", b"b", b"c", b"d"]


def test_damage_to_a_chunk_of_acks_all_is_left_to_the_operator(world: World) -> None:
    """What an acks=all commit made durable behind the lost chunk is damaged, or away for a while."""
    topic = world.create(1, CHUNKS)
    lost = stage(topic, batch_of([b"acks=0"]), durable=False)
    commit(topic, lost.topic_id, [lost], durable=False)
    assert lost.chunk is not None
    (world.path / topic.paths(lost.topic_id).chunk(lost.chunk.name)).write_bytes(b"")  # power loss
    safe = stage(topic, batch_of([b"acks=all"]))
    commit(topic, safe.topic_id, [safe])
    assert safe.chunk is not None
    path = world.path / topic.paths(safe.topic_id).chunk(safe.chunk.name)
    kept = path.with_name("away")
    shutil.move(path, kept)
    with contextlib.suppress(CorruptionError):
        settle(world.handle(), lost.topic_id)
    shutil.move(kept, path)  # the operator restores it
    settle(world.handle(), lost.topic_id)
    assert world.values() == [b"acks=all"]


def test_acks_all_makes_all_durable_that_was_written_before_many_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries are not settled."""
    monkeypatch.setattr(unsettled, "MAX_ENTRIES", 3)
    topic = world.create(1, {**CHUNKS, "settle.entries": 10**6})
    for n in range(6):
        staged = stage(topic, batch_of([b"%d" % n]), durable=False)
        commit(topic, staged.topic_id, [staged], durable=False)
    synced: list[str] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "sync_file" and moment == "after":
            synced.append(path)

    handle = world.handle(hook)
    staged = stage(handle, batch_of([b"acks=all"]))
    commit(handle, staged.topic_id, [staged])
    _, state = world.handle().newest()
    assert len(synced) == 6 or state.unsynced_from is not None


def test_damage_to_a_chunk_of_acks_0_that_was_made_durable_is_left_to_the_operator(world: World) -> None:
    """An acks=all commit read it back: power loss can't be what took it. Another acks=0 commit follows."""
    topic = world.create(1, CHUNKS)
    first = stage(topic, batch_of([b"acks=0"]), durable=False)
    commit(topic, first.topic_id, [first], durable=False)
    safe = stage(topic, batch_of([b"acks=all"]))
    commit(topic, safe.topic_id, [safe])
    late = stage(topic, batch_of([b"late"]), durable=False)
    commit(topic, late.topic_id, [late], durable=False)
    assert first.chunk is not None
    (world.path / topic.paths(first.topic_id).chunk(first.chunk.name)).unlink()
    with pytest.raises(CorruptionError):
        settle(world.handle(), first.topic_id)
    assert topic.newest()[1].voids == ()
