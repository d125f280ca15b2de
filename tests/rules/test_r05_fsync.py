"""R5: what is made durable before what; and what settling inside a commit may cost."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import OutcomeUnknownError, StorageFullError, SyncFailedError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.maintain.retention import retain
from pyspark_commitlog.topic.maintain.settle import Settled, settle, settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.syscalls import recording, telling
from tests.support.world import CHUNKS, DELAY_MS, Recorder, World, many, raising

JOURNAL = "topics/t/journal"
_EAGER = {**CHUNKS, "settle.entries": 1}


def position(calls: list[tuple[str, str]], name: str, part: str, after: int = -1) -> int:
    """Return where a call lies in the order."""
    found = [i for i, (call, path) in enumerate(calls) if call == name and part in path and i > after]
    assert found, f"{name} of …{part}… is missing in {calls[after + 1 :]}"
    return found[0]


def test_an_entry_is_whole_and_durable_before_it_is_told(world: World) -> None:
    """R5, I4: content synced, then linked, then the directory synced, then the commit returns."""
    topic = world.create()
    staged = stage(topic, batch_of([b"a"]))
    with recording() as calls:
        commit(topic, staged.topic_id, [staged])
    linked = position(calls, "link", "/journal/")
    synced = [i for i, (call, path) in enumerate(calls) if call == "fsync" and "/journal/.tmp-" in path]
    assert synced
    assert synced[0] < linked < position(calls, "fsync", "/t/journal", linked)


def test_a_chunk_is_durable_before_its_task_returns(world: World) -> None:
    """R5, I4: content synced, renamed into place, directory synced: only then is there a commit message."""
    topic = world.create()
    with recording() as calls:
        stage(topic, batch_of([b"a"]))
    renamed = position(calls, "rename", ".chunk")
    assert position(calls, "fsync", "/staged/.tmp-") < renamed < position(calls, "fsync", "/staged", renamed)


def test_logs_and_their_directory_are_durable_before_the_settle_entry(world: World) -> None:
    """R5, I4: the chunk may go once the entry is there, so the log must be on the disk by then."""
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    append(topic, batch_of([b"a" * 700]))
    settle(topic, topic.newest()[1].topic_id)
    append(topic, batch_of([b"b" * 700]))
    with recording() as calls:
        settle(topic, topic.newest()[1].topic_id)
    published = position(calls, "link", "/settle/")
    sealed, active = (f"{base:020d}" for base in (0, 1))
    for path in (f"{sealed}.log", f"{sealed}.index", f"{sealed}.timeindex", f"{active}.log", "/manifests/.tmp-"):
        assert position(calls, "fsync", path) < published, path
    written = max(i for i, (call, path) in enumerate(calls) if call == "pwritev" and f"{active}.log" in path)
    assert written < position(calls, "fsync", f"{active}.log", written) < published
    home = topic.paths(topic.newest()[1].topic_id).home
    assert any(call == "fsync" and path.endswith(f"{home}/0") for call, path in calls[:published])
    assert position(calls, "fsync", "/manifests", position(calls, "rename", "/manifests/")) < published


def synced(calls: list[tuple[str, str]]) -> list[str]:
    """Return the suffixes of the segment files that were synced before the settle entry was linked, in order."""
    before = calls[: position(calls, "link", "/settle/")]
    return [path.rsplit(".", 1)[1] for call, path in before if call == "fsync" and f"{0:020d}." in path]


@pytest.mark.parametrize(
    ("config", "due"),
    [
        ({}, [False] * 6),
        ({"flush.messages": 1}, [True] * 6),
        ({"flush.messages": 4}, [False, True, False, True, False, True]),
        ({"flush.messages": 5}, [False, False, True, False, True, False]),
        ({"flush.ms": 0}, [True] * 6),
        ({"flush.ms": 2000}, [False, False, True, False, True, False]),
        ({"flush.ms": 2000, "flush.messages": 4}, [False, True, True, True, True, True]),
    ],
)
def test_active_indexes_are_synced_when_due_behind_the_log(
    world: World, config: dict[str, int], due: list[bool]
) -> None:
    """R5: the log always, whatever flush.* says; the indexes every so many records, or ms, in Kafka's order."""
    world.clock.advance(-(world.clock.now_ms() % 2000))
    topic = world.create(config={**CHUNKS, **config})
    for expected in due:
        append(topic, batch_of([b"a", b"b"]))
        with recording() as calls:
            settle(topic, topic.newest()[1].topic_id)
        assert synced(calls) == (["log", "index", "timeindex"] if expected else ["log"])
        written = [i for i, (call, path) in enumerate(calls) if call == "pwritev" and f"{0:020d}." in path]
        assert max(written) < position(calls, "fsync", f"{0:020d}.")
        world.clock.advance(1000)


def test_the_first_publication_of_a_partition_syncs_where_its_directory_lies(world: World) -> None:
    """R5: a settler died between mkdir and its fsync; the next one finds the directory, and must sync it."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    home = topic.paths(topic.newest()[1].topic_id).home
    (world.path / home / "0").mkdir()
    with recording() as calls:
        settle(topic, topic.newest()[1].topic_id)
    published = position(calls, "link", "/settle/")
    assert any(call == "fsync" and path.endswith(home) for call, path in calls[:published])


def test_a_planner_syncs_a_found_entry_once(world: World) -> None:
    """R5, I4: readers must not see what power loss can still take back; one fsync per entry and process."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    seen = Recorder()
    reader = world.handle(seen)
    for _ in range(3):
        reader.journal.sync_exposed(reader.newest()[0])
    assert len(seen.paths("sync_directory")) == 1
    append(topic, batch_of([b"b"]))
    reader.journal.sync_exposed(reader.newest()[0])
    assert len(seen.paths("sync_directory")) == 2


SHOWN: dict[str, Callable[[CommitLog], object]] = {
    "read": lambda log: log.topic("t").read(0, 0),
    "offsets_for_times": lambda log: log.topic("t").offsets_for_times({0: 0}),
    "max_timestamps": lambda log: log.topic("t").max_timestamps(),
    "describe": lambda log: log.topic("t").describe(),
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=list(SHOWN))
def test_what_is_shown_of_another_s_entry_is_durable(world: World, show: Callable[[CommitLog], object]) -> None:
    """R5, I2: its writer was killed between the link and the sync of the directory."""
    append(world.create(), batch_of([b"a"]))
    seen = Recorder()
    show(world.log(seen))
    assert JOURNAL in seen.paths("sync_directory")


def test_a_repetition_makes_what_it_found_durable_before_it_is_told(world: World) -> None:
    """R5, R6, I4: the first driver was killed between the link and the sync of the directory; the second says "landed"."""
    topic = world.create()
    append(topic, batch_of([b"a"]), writer=Transaction("q", 1))
    staged = stage(topic, batch_of([b"a"]))
    with recording() as calls:
        assert commit(world.handle(), staged.topic_id, [staged], Transaction("q", 1)).skipped
    assert any(call == "fsync" and path.endswith(JOURNAL) for call, path in calls)


def test_a_settler_publishes_no_entry_that_power_loss_can_take_back(world: World) -> None:
    """R5, I2: another record would get the settled one's offset, and readers would go on seeing the old one."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    seen = Recorder()
    settle(world.handle(seen), topic.newest()[1].topic_id)
    assert seen.first("sync_directory", JOURNAL) < seen.first("put_if_absent", "/settle/")


def test_retention_lets_go_of_nothing_that_power_loss_can_bring_back(world: World) -> None:
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    for _ in range(3):
        append(topic, batch_of([b"x" * 900]))
        settle(topic, topic.newest()[1].topic_id)
    world.log().topic("t").delete_records({0: 2})
    seen = Recorder()
    assert retain(world.handle(seen), topic.newest()[1].topic_id).segments == 2
    assert seen.first("sync_directory", JOURNAL) < seen.first("put_if_absent", "/settle/")


def test_compaction_goes_by_what_power_loss_cannot_take_back(world: World) -> None:
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    for _ in range(3):
        append(topic, batch_of([b"x" * 900], key=[b"k"]))
        settle(topic, topic.newest()[1].topic_id)
    world.log().topic("t").alter({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    seen = Recorder()
    assert compact(world.handle(seen), topic.newest()[1].topic_id)
    assert seen.first("sync_directory", JOURNAL) < seen.first("put_if_absent", "/settle/")


def test_records_that_another_deleted_are_gone_for_good_when_that_is_told(world: World) -> None:
    append(world.create(), batch_of([b"a", b"b"]))
    world.log().topic("t").delete_records({0: 1})
    seen = Recorder()
    assert world.log(seen).topic("t").delete_records({0: 1}) == {0: 1}
    assert JOURNAL in seen.paths("sync_directory")


@pytest.mark.parametrize("again", [False, True])
def test_the_files_of_a_deleted_topic_go_behind_a_durable_entry(world: World, again: bool) -> None:
    world.create()
    world.log().topic("t").delete()
    if again:
        world.create()
    world.clock.advance(DELAY_MS)
    seen = Recorder()
    assert world.log(seen).topic("t").maintain().removed_lives == 1
    assert seen.first("sync_directory", JOURNAL) < seen.first("delete_tree")


def test_a_failed_fsync_behind_the_put_is_outcome_unknown(world: World) -> None:
    """R5, I5: never tried again into success; the writer id tells a repetition that it landed."""
    topic = world.create()
    staged = stage(topic, batch_of([b"a"]))
    linked: list[str] = []

    def failing_sync(name: str, path: str) -> None:
        if name == "link":
            linked.append(path)
        if name == "fsync" and len(linked) == 1 and path.endswith("/journal"):
            linked.append("failed")  # Linux says so once
            raise OSError(errno.EIO, "injected")

    with telling(failing_sync), pytest.raises(OutcomeUnknownError, match="fsync"):
        commit(topic, staged.topic_id, [staged], Transaction("w", 1))
    assert commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"a"]


def test_a_failed_fsync_of_a_log_publishes_nothing_and_fails_no_commit(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """R5: the settler of a commit fails: a warning; the commit stands, the records are read from the chunk."""
    topic = world.create(config=_EAGER)
    append(topic, batch_of([b"a"]))
    topic_id = topic.newest()[1].topic_id

    def failing_sync(name: str, path: str) -> None:
        if name == "fsync" and path.endswith(".log"):
            raise OSError(errno.EIO, "injected")

    with telling(failing_sync):
        with pytest.raises(SyncFailedError, match="nothing was published"):
            settle(topic, topic_id)
        with caplog.at_level(logging.WARNING):
            assert settle_after_commit(topic, topic_id) == Settled(None)
    assert "committed, but settling failed" in caplog.text
    assert topic.settled(topic_id)[1].partition(0).end_offset == 0
    assert world.values() == [b"a"]
    assert settle_after_commit(topic, topic_id).records == 1


@pytest.mark.parametrize("error", [StorageFullError("full"), OSError(errno.EIO, "raw"), ValueError("a bug of ours")])
def test_whatever_settling_meets_the_commit_stands(world: World, error: Exception) -> None:
    """R5: its failure never fails the commit, not even an error that nobody thought of."""
    topic = world.create(config=_EAGER)
    append(topic, batch_of([b"a"]))
    slow = world.handle(on_path(".chunk", "read", raising(error), times=2))
    assert settle_after_commit(slow, topic.newest()[1].topic_id).sequence is None
    assert world.values() == [b"a"]


def test_settling_inside_a_commit_keeps_its_budget_and_goes_on_later(world: World) -> None:
    """R5: when time is up, what is done is published: some partitions only, the longest waiting first next time."""
    topic = world.create(partitions=6, config=_EAGER)
    for number in range(3):
        append(topic, batch_of(many(6, b"%d-" % number), partition=range(6)))
    topic_id = topic.newest()[1].topic_id

    def slow_disk(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation == "open_append" and path.endswith(".log"):
            world.clock.advance(150)

    progress = []
    for _ in range(4):
        done = settle_after_commit(world.handle(slow_disk), topic_id)
        assert done.sequence is not None
        progress.append(sum(row.end_offset for row in world.handle().settled(topic_id)[1].partitions))
    assert progress == sorted(set(progress)), "each run gets on"
    assert progress[0] < 18
    assert len(world.values()) == 18


def test_reading_the_backlog_counts_into_the_budget(world: World) -> None:
    """R5: hundreds of unsettled entries: a commit reads only as many as it has time for, and at least one."""
    topic = world.create(config=_EAGER)
    for number in range(30):
        append(topic, batch_of([b"%d" % number]))
    read: list[str] = []

    def slow_disk(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation == "fetch" and "/journal/" in path:
            read.append(path)
            world.clock.advance(60)

    settle_after_commit(world.handle(slow_disk), topic.newest()[1].topic_id)
    assert len(read) < 15
    assert 0 < world.handle().settled(topic.newest()[1].topic_id)[1].partition(0).end_offset < 30
    assert [int(value or b"") for value in world.values()] == list(range(30))


def test_no_partition_waits_for_ever_behind_a_busy_one(world: World) -> None:
    """R5: partition 0 gets more in each commit than a budget can move; partition 1 is settled all the same."""
    topic = world.create(partitions=2, config=_EAGER)
    append(topic, batch_of([b"quiet"], partition=[1]))
    topic_id = topic.newest()[1].topic_id

    def slow_disk(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation in ("open_append", "map", "read"):
            world.clock.advance(201)

    for number in range(4):
        append(topic, batch_of(many(3, b"%d-" % number), partition=[0, 0, 0]))
        settle_after_commit(world.handle(slow_disk), topic_id)
    assert world.handle().settled(topic_id)[1].partition(1).end_offset == 1
    assert [r.value for r in read_partition(topic, 1)] == [b"quiet"]


def test_settling_starts_behind_the_put(world: World) -> None:
    """R5: a reader that comes while a commit settles sees the commit."""
    world.create(config=_EAGER)
    seen: list[int] = []
    slow: TopicLog = world.handle(on_path("00000.log", "open_append", lambda: seen.append(len(world.values()))))
    append(slow, batch_of([b"a", b"b"]))
    settle_after_commit(slow, slow.newest()[1].topic_id)
    assert seen == [2]
