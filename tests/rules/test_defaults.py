"""Root-wide defaults: who goes by them, from when on, what they cost, and what damage to them stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.errors import (
    CommitLogError,
    ConfigError,
    CorruptionError,
    InvalidRecordError,
    OutcomeUnknownError,
    RootNotFoundError,
)
from pyspark_commitlog.storage import NotPutError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain.settle import settle, settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import append, batch_of, read_topic, stage
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, Recorder, World, raising

_JOURNAL = "config/journal"


def entries(world: World) -> list[str]:
    """Return the names of all files in the config journal."""
    return sorted(path.name for path in (world.path / _JOURNAL).glob("*"))


# --- what is set ------------------------------------------------------------------------------------------


def test_a_topic_wins_over_the_root_and_that_over_the_built_in_default(world: World) -> None:
    world.create(config={"segment.bytes": 4096})
    log = world.log()
    log.config.alter({"log.segment.bytes": 8192, "log.retention.hours": 24, "settle.entries": 7})
    config = log.topic("t").describe().config
    assert (config["segment.bytes"], config["retention.ms"]) == ("4096", "86400000")
    assert (config["settle.entries"], config["segment.ms"]) == ("7", "604800000")
    log.topic("t").alter({"segment.bytes": None})
    assert log.topic("t").describe().config["segment.bytes"] == "8192"
    world.create(name="later")
    assert log.topic("later").describe().config["segment.bytes"] == "8192"


def test_defaults_are_told_as_given_and_taken_back_one_by_one(world: World) -> None:
    world.create()
    log = world.log()
    assert log.config.get() == {}
    log.config.alter({"log.roll.ms": 5000, "log.roll.hours": 2, "preallocate": True})
    assert log.config.get() == {"log.roll.ms": "5000", "log.roll.hours": "2", "preallocate": "true"}
    log.config.alter({"log.roll.ms": None, "log.preallocate": False})
    assert world.log().config.get() == {"log.roll.hours": "2", "preallocate": "true", "log.preallocate": "false"}
    config = world.log().topic("t").describe().config
    assert (config["segment.ms"], config["preallocate"]) == ("7200000", "true")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"log.retention.hour": 1},
            r"unknown default 'log\.retention\.hour' \(did you mean 'log\.retention\.hours'\?\)",
        ),
        ({"log.segment.byte": None}, r"did you mean 'log\.segment\.bytes'"),
        ({"log.roll.hours": 0}, r"log\.roll\.hours=0 is not allowed: it takes 1 to"),
        ({"message.max.bytes": "many"}, r"message\.max\.bytes='many' is not allowed: it takes a whole number"),
        ({"log.message.timestamp.type": "best"}, r"log\.message\.timestamp\.type='best' is not allowed"),
    ],
)
def test_a_wrong_default_is_refused_and_nothing_is_changed(world: World, config: dict[str, object], told: str) -> None:
    world.create()
    with pytest.raises(ConfigError, match=told):
        world.log().config.alter({"segment.bytes": 4096, **config})
    assert world.log().config.get() == {}
    assert not (world.path / "config").exists()


def test_a_root_that_is_not_there_is_an_error(world: World) -> None:
    for call in (world.log().config.get, lambda: world.log().config.alter({"segment.bytes": 4096})):
        with pytest.raises(RootNotFoundError, match="create_topic"):
            call()
    assert not world.path.exists()


# --- from when on -----------------------------------------------------------------------------------------


def written(topic: TopicLog, value: bytes = b"x" * 2000) -> int:
    """Commit, and settle as the config says; return the number of segments."""
    append(topic, batch_of([value]))
    settle_after_commit(topic, topic.newest()[1].topic_id)
    return segments(topic)


def segments(topic: TopicLog) -> int:
    row = topic.settled(topic.newest()[1].topic_id)[1].partition(0)
    return (row.manifest.segments if row.manifest else 0) + (row.active.length > 0)


def alter_root(world: World, **config: object) -> None:
    world.log().config.alter({f"log.{name.replace('_', '.')}": value for name, value in config.items()})


def alter_topic(world: World, **config: object) -> None:
    world.log().topic("t").alter({name.replace("_", "."): value for name, value in config.items()})


@pytest.mark.parametrize("alter", [alter_root, alter_topic])
def test_a_running_writer_rolls_by_a_config_from_its_next_commit_on(world: World, alter: object) -> None:
    """One handle for all commits, as of a streaming query; the change is another process'."""
    topic = world.create(config={**CHUNKS, "settle.entries": 1, "compression.type": "none", "batch.size": 1024})
    assert [written(topic) for _ in range(3)] == [1, 1, 1]
    alter(world, segment_bytes=4096)  # type: ignore[operator]
    assert [written(topic) for _ in range(3)] == [2, 3, 4]
    alter(world, segment_bytes=None)  # type: ignore[operator]
    assert [written(topic) for _ in range(3)] == [4, 4, 4]
    assert verify(topic) == 9


@pytest.mark.parametrize("alter", [alter_root, alter_topic])
def test_a_running_settler_goes_by_a_config_from_its_next_run_on(world: World, alter: object) -> None:
    topic = world.create(config={**CHUNKS, "compression.type": "none", "batch.size": 1024})
    topic_id = topic.newest()[1].topic_id
    writer = world.handle()
    found = []
    for segment_bytes in (None, None, 4096, 4096):
        if segment_bytes:
            alter(world, segment_bytes=segment_bytes)  # type: ignore[operator]
        append(writer, batch_of([b"x" * 2000]))
        settle(topic, topic_id)
        found.append(segments(topic))
    assert found == [1, 1, 2, 3]


def test_a_commit_settles_when_the_roots_default_says_so(world: World) -> None:
    topic = world.create()
    assert written(topic) == 0
    world.log().config.alter({"settle.entries": 1})
    assert written(topic) == 1


def test_a_task_stages_by_the_roots_defaults(world: World) -> None:
    """Codec, inline or chunk, and the largest record."""
    topic = world.create(config={})
    world.log().config.alter({"compression.type": "none", "inline.max.bytes": 0, "message.max.bytes": 5000})
    staged = stage(topic, batch_of([b"x" * 4000]))
    assert staged.chunk is not None
    assert staged.chunk.length > 4000
    with pytest.raises(InvalidRecordError, match="5000"):
        stage(topic, batch_of([b"x" * 5001]))


def test_maintenance_goes_by_the_roots_defaults(world: World) -> None:
    """Age of records, of files that nothing needs, of chunks that nobody committed."""
    topic = world.create(config={"inline.max.bytes": 0})
    world.log().config.alter(
        {
            "log.roll.ms": 1000,
            "log.retention.minutes": 90,
            "log.segment.delete.delay.ms": DELAY_MS // 2,
            "staged.retention.ms": RETENTION_MS,
        }
    )
    append(topic, batch_of([b"old"]))
    append(topic, batch_of([b"old"]))
    stage(topic, batch_of([b"orphan"]))
    append(topic, batch_of([b"old"]))
    world.maintain()
    world.clock.advance(DELAY_MS // 2)
    assert world.maintain().collected.chunks == 1
    world.clock.advance(RETENTION_MS)
    assert world.maintain().swept_chunks == 1
    append(topic, batch_of([b"new"]))
    assert world.values() == [b"old", b"old", b"old", b"new"]
    world.clock.advance(RETENTION_MS // 2)
    world.maintain()
    assert world.values() == [b"new"]
    world.log().topic("t").delete()
    world.clock.advance(DELAY_MS // 2)
    assert world.maintain().removed_lives == 1


# --- what it costs ----------------------------------------------------------------------------------------


def asked(seen: Recorder) -> list[str]:
    """Return the operations on the config journal since the last call."""
    found = [operation for operation, path in seen.calls if path.startswith("config")]
    seen.calls.clear()
    return found


def test_a_root_without_defaults_is_asked_once_per_commit_and_never_by_readers(world: World) -> None:
    world.create(config={**CHUNKS, "settle.entries": 1})
    seen = Recorder()
    topic = world.handle(seen)
    for _ in range(3):
        staged = stage(world.handle(), batch_of([b"a"]))
        commit(topic, staged.topic_id, [staged])
        settle_after_commit(topic, staged.topic_id)
        assert asked(seen) == ["names"]
    assert len(read_topic(topic)) == 3
    assert asked(seen) == []


def test_a_long_lived_handle_lists_the_journal_once(world: World) -> None:
    world.create()
    world.log().config.alter({"segment.bytes": 4096})
    seen = Recorder()
    topic = world.handle(seen)
    append(topic, batch_of([b"a"]))
    assert "names" in asked(seen)
    for number in range(3):
        world.log().config.alter({"segment.bytes": 8192 + number})
        append(topic, batch_of([b"a"]))
        assert set(asked(seen)) == {"fetch", "info"}


# --- the journal ------------------------------------------------------------------------------------------


def test_the_newest_two_entries_stay_and_what_changes_nothing_adds_none(world: World) -> None:
    world.create()
    for number in range(5):
        world.log().config.alter({"segment.bytes": 4096 + number})
        world.log().config.alter({"segment.bytes": 4096 + number})
    assert entries(world) == [f"{4:020d}.json", f"{5:020d}.json"]
    (world.path / _JOURNAL / ".tmp-of-a-killed-writer").touch()
    world.clock.advance(10 * 365 * 86_400_000)
    world.log().config.alter({"segment.bytes": None})
    assert entries(world) == [f"{5:020d}.json", f"{6:020d}.json"]
    assert world.log().config.get() == {}


def test_two_who_alter_at_once_both_succeed(world: World) -> None:
    """R9: the loser of the race applies its change to the winner's entry."""
    world.create()
    world.log().config.alter({"log.roll.ms": 1})
    other = on_path(_JOURNAL, "put_if_absent", lambda: world.log().config.alter({"log.segment.bytes": 4096}))
    world.log(other).config.alter({"log.roll.ms": None, "log.retention.ms": -1})
    assert world.log().config.get() == {"log.segment.bytes": "4096", "log.retention.ms": "-1"}


def test_a_sleeper_whose_number_was_collected_is_applied_on_top(world: World) -> None:
    """The anchor rule: its put at the collected number succeeds, and does not count."""
    world.create()
    world.log().config.alter({"settle.entries": 1})

    def meanwhile() -> None:
        for number in range(3):
            world.log().config.alter({"settle.ms": number})

    world.log(on_path(_JOURNAL, "put_if_absent", meanwhile)).config.alter({"settle.bytes": 5})
    assert world.log().config.get() == {"settle.entries": "1", "settle.ms": "2", "settle.bytes": "5"}


def until_told(act: Callable[[], None]) -> None:
    """Run it again where nobody can tell whether it landed: its entry was collected before a starved thread looked."""
    while True:
        try:
            return act()
        except OutcomeUnknownError:
            continue


def test_many_writers_at_once_lose_no_change(world: World) -> None:
    world.create()
    names = ["segment.ms", "segment.bytes", "retention.ms", "settle.ms", "settle.entries", "batch.size"]
    failed: list[BaseException] = []

    def alter(name: str) -> None:
        try:
            for number in range(4):
                until_told(lambda number=number: world.log().config.alter({name: 4096 + number}))
        except CommitLogError as error:
            failed.append(error)

    threads = [threading.Thread(target=alter, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert world.log().config.get() == dict.fromkeys(names, "4099")


def damage(world: World) -> Path:
    """Flip a byte of the newest entry."""
    path = world.path / _JOURNAL / entries(world)[-1]
    path.write_bytes(path.read_bytes().replace(b"retention", b"Retention"))
    return path


def test_damaged_defaults_stop_what_goes_by_them_and_are_named(world: World) -> None:
    """I8: built-in defaults in their place would delete what was to stay."""
    topic = world.create(config={"inline.max.bytes": 0})
    append(topic, batch_of([b"a"]))
    world.log().config.alter({"retention.ms": -1})
    sound = (world.path / _JOURNAL / entries(world)[-1]).read_bytes()
    path = damage(world)
    world.clock.advance(365 * 86_400_000)
    calls = [
        lambda: stage(world.handle(), batch_of([b"b"])),
        lambda: world.maintain(),
        lambda: world.log().topic("t").describe(),
        lambda: world.log().config.get(),
        lambda: world.log().config.alter({"segment.bytes": 4096}),
    ]
    for call in calls:
        with pytest.raises(CorruptionError, match=rf"config/journal/{path.name}.*restore"):
            call()
    assert world.values() == [b"a"], "readers do not need them"
    assert world.log().topic("t").verify().faults == ()
    path.write_bytes(sound)
    world.maintain()
    assert world.values() == [b"a"]


def test_a_commit_that_cannot_read_them_commits_nothing(world: World) -> None:
    topic = world.create()
    staged = stage(topic, batch_of([b"a"]))
    failing = world.handle(on_path(_JOURNAL, "names", raising(NotPutError("injected"))))
    with pytest.raises(NotPutError):
        commit(failing, staged.topic_id, [staged])
    assert world.values() == []
    commit(failing, staged.topic_id, [staged])
    assert world.values() == [b"a"]


def test_defaults_that_contradict_each_other_are_refused(world: World) -> None:
    """Among themselves, and with what a topic sets (`LogConfig.validateValues`)."""
    world.create(1, CHUNKS)
    with pytest.raises(ConfigError):
        world.log().config.alter({"log.cleaner.min.compaction.lag.ms": 10, "log.cleaner.max.compaction.lag.ms": 5})
    world.log().config.alter({"log.cleaner.max.compaction.lag.ms": 5})
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=10 is above max"):
        world.log().topic("t").alter({"min.compaction.lag.ms": 10})
    with pytest.raises(ConfigError):
        world.log().create_topic("u", config={"min.compaction.lag.ms": 10})
