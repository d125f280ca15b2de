"""R5: what follows a failed fsync. The disk here is the worst there is (`tests.support.power`)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import OutcomeUnknownError, StorageError, SyncFailedError
from pyspark_commitlog.storage.local import directories, local
from pyspark_commitlog.testing.faults import io_error, on_path
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.maintain import retention
from pyspark_commitlog.topic.maintain.maintain import maintain_topic
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.power import Disk, losing
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.syscalls import path_of, recording
from tests.support.world import CHUNKS, World, raising

JOURNAL = "topics/t/journal"
WRITERS = [Transaction("q", 1), ProducerBatch("p", 0, 0, 0)]


@pytest.fixture
def disk(world: World) -> Iterator[Disk]:
    """Return the disk of the root."""
    with losing(world.path) as found:
        yield found


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "_doubted", {})
    monkeypatch.setattr(local, "_doubted_files", set())


def try_once(world: World, disk: Disk, writer: Transaction | ProducerBatch | None) -> None:
    """Commit one record; the entry is linked, and the fsync behind it fails."""
    disk.fail_next(JOURNAL)
    with pytest.raises(OutcomeUnknownError, match="fsync"):
        again(world, writer)
    assert disk.failed == 1


def again(world: World, writer: Transaction | ProducerBatch | None) -> Committed:
    """Commit the record by a handle of its own."""
    topic = world.handle()
    staged = stage(topic, batch_of([b"a"]))
    return commit(topic, staged.topic_id, [staged], writer)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("writer", WRITERS, ids=["transaction", "producer"])
def test_a_repetition_is_acknowledged_when_power_loss_can_take_nothing_back(
    world: World, disk: Disk, writer: Transaction | ProducerBatch, elsewhere: bool
) -> None:
    """I4: by the same process, and by one that was never told of the failure."""
    world.create()
    try_once(world, disk, writer)
    if elsewhere:
        directories._doubted.clear()
    assert again(world, writer).skipped
    disk.lose_power()
    assert world.values() == [b"a"]


def test_a_sync_alone_proves_nothing_behind_a_failed_one(world: World, disk: Disk) -> None:
    """The disk of these tests: without a change in between the entry is lost with power."""
    world.create()
    try_once(world, disk, WRITERS[0])
    directories._doubted.clear()
    world.storage().sync_directory(JOURNAL)
    assert disk.lose_power() == [f"{JOURNAL}/{2:020d}.json"]
    assert world.values() == []


def test_what_a_process_shows_behind_a_failure_of_its_own_is_durable(world: World, disk: Disk) -> None:
    """I2: readers of the process that was told."""
    world.create()
    try_once(world, disk, None)
    assert [r.value for r in world.log().topic("t").read(0, 0)] == [b"a"]
    disk.lose_power()
    assert world.values() == [b"a"]


def test_a_reader_that_is_told_first_leaves_it_to_the_writer_as_well(world: World, disk: Disk) -> None:
    """The writer was killed behind its link; who looks first is told, who repeats the commit is not."""
    topic = world.create()
    with mock.patch.object(local, "sync_open"):
        append(topic, batch_of([b"a"]), writer=WRITERS[0])
    disk.fail_next(JOURNAL)
    with pytest.raises(SyncFailedError):
        world.log().topic("t").read(0, 0)
    directories._doubted.clear()
    assert again(world, WRITERS[0]).skipped
    disk.lose_power()
    assert world.values() == [b"a"]


def test_what_was_shown_is_not_certain_yet(world: World, disk: Disk) -> None:
    """One handle reads first and repeats the commit then; it was never told of the failure."""
    world.create()
    try_once(world, disk, WRITERS[0])
    directories._doubted.clear()
    topic = world.handle()
    topic.newest_durable()
    staged = stage(topic, batch_of([b"a"]))
    assert commit(topic, staged.topic_id, [staged], WRITERS[0]).skipped
    disk.lose_power()
    assert world.values() == [b"a"]


def test_a_sync_that_succeeds_ends_the_doubt(world: World, disk: Disk) -> None:
    world.create()
    try_once(world, disk, None)
    assert directories._doubted
    append(world.handle(), batch_of([b"b"]))
    assert not directories._doubted


def test_the_next_entry_makes_the_one_before_durable(world: World, disk: Disk) -> None:
    world.create()
    try_once(world, disk, None)
    append(world.handle(), batch_of([b"b"]))
    disk.lose_power()
    assert world.values() == [b"a", b"b"]


def test_an_acknowledgement_whose_sync_fails_is_outcome_unknown(world: World, disk: Disk) -> None:
    """I5: never "certainly not put", which a StorageError would say: the entry is there."""
    world.create()
    try_once(world, disk, WRITERS[0])
    disk.fail_next(JOURNAL)
    with pytest.raises(OutcomeUnknownError, match="fsync"):
        again(world, WRITERS[0])
    assert again(world, WRITERS[0]).skipped
    disk.lose_power()
    assert world.values() == [b"a"]


def test_a_put_whose_reply_was_lost_is_synced_before_it_counts(world: World, disk: Disk) -> None:
    """The link landed and was told as an error: the second try finds its name, and comes to no sync of its own."""
    world.create()
    real, tries = os.link, []

    def lost(source: str, target: str, **more: Any) -> None:
        real(source, target, **more)
        tries.append(target)
        if len(tries) == 1:
            raise io_error()

    with mock.patch.object(os, "link", lost):
        assert again(world, None).sequence == 2
    disk.lose_power()
    assert world.values() == [b"a"]


def test_a_failed_sync_behind_a_lost_reply_is_outcome_unknown(world: World) -> None:
    world.create()
    slow = world.handle(on_path(f"{2:020d}", "put_if_absent", raising(io_error()), when="after"))
    staged = stage(slow, batch_of([b"a"]))
    with (
        mock.patch.object(directories, "_change", side_effect=io_error()),
        pytest.raises(OutcomeUnknownError, match="cannot change the directory"),
    ):
        commit(slow, staged.topic_id, [staged])


CHANGES: dict[str, tuple[str, Callable[[CommitLog], object]]] = {
    "configs of the root": ("config/journal", lambda log: log.config.alter({"log.retention.ms": 5})),
    "rules": ("access/journal", lambda log: log.access.allow("*", "admin")),
    "deleted records": (JOURNAL, lambda log: log.topic("t").delete_records({0: 1})),
    "offsets of a group": ("groups/g/journal", lambda log: log.groups.commit("g", {"t": {0: 1}})),
}


@pytest.mark.parametrize(("journal", "change"), CHANGES.values(), ids=list(CHANGES))
def test_what_is_there_already_is_durable_when_that_is_told(
    world: World, disk: Disk, journal: str, change: Callable[[CommitLog], object]
) -> None:
    """I4: the second call puts nothing, as what it wants is there: by an entry that power loss could take."""
    append(world.create(), batch_of([b"a"]))
    disk.fail_next(journal)
    with pytest.raises(OutcomeUnknownError):
        change(world.log())
    directories._doubted.clear()
    change(world.log())
    assert not any(path.endswith(".json") for path in disk.lose_power())


def test_a_directory_whose_name_is_in_doubt_is_synced_afresh(world: World, disk: Disk) -> None:
    """mkdir landed, the fsync of its parent failed: the second try finds it there."""
    world.create()
    disk.fail_next("topics/t")
    storage = world.storage()
    with pytest.raises(SyncFailedError):
        storage.make_directory("topics/t/new")
    before = set(disk.changed)
    changed: list[str] = []
    with mock.patch.object(directories, "_change", lambda at, *_: changed.append(Path(at).name)):
        storage.make_directory("topics/t/new")
    assert (before, changed) == (set(), ["t"])


def test_a_settler_makes_names_durable_whose_sync_failed_to_another(world: World, disk: Disk) -> None:
    """I4: the log of a partition that no entry named yet; its chunk goes once the entry is there."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    topic_id = topic.newest()[1].topic_id
    disk.fail_next(f"{topic.paths(topic_id).home}/0")
    with pytest.raises(SyncFailedError):
        settle(topic, topic_id)
    directories._doubted.clear()
    settle(world.handle(), topic_id)
    for value in (b"b", b"c"):
        append(topic, batch_of([value]))
    world.collect_all()
    disk.lose_power()
    assert len(world.files(".chunk")) == 2, "the first record lies in the log only"
    assert [r.value for r in read_partition(world.handle(), 0)] == [b"a", b"b", b"c"]


def test_a_chunk_whose_sync_failed_is_written_again_before_it_is_blessed(world: World, disk: Disk) -> None:
    """acks=0, then acks=1 twice: the pages that were not written count as written."""
    topic = world.create()
    staged = stage(topic, batch_of([b"a"]), durable=False)
    commit(topic, staged.topic_id, [staged], durable=False)
    chunk = world.files(".chunk")[0]
    wrong = [1]

    def fsync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(chunk) and wrong:
            wrong.pop()
            raise OSError(errno.EIO, "injected")

    written: list[bytes] = []
    real = os.pwritev

    def pwritev(fd: int, views: list[memoryview], position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(chunk):
            written.append(b"".join(views))
        return real(fd, views, position)

    with mock.patch.multiple(os, fsync=fsync, pwritev=pwritev):
        with pytest.raises(SyncFailedError):
            append(world.handle(), batch_of([b"b"]))
        assert written == []
        append(world.handle(), batch_of([b"b"]))
        append(world.handle(), batch_of([b"c"]))
    assert b"".join(written) == (world.path / chunk).read_bytes()
    assert not local._doubted_files
    assert world.values() == [b"a", b"b", b"c"]


def test_who_may_only_read_goes_on_behind_the_next_entry(world: World, disk: Disk) -> None:
    """A reader was told of the failure and can't change the directory; the next writer does, and both are durable."""
    world.create()
    try_once(world, disk, None)
    os.utime(world.path / JOURNAL, ns=(0, directories._doubted[str(world.path / JOURNAL)]))
    with mock.patch.object(directories, "_change", side_effect=PermissionError(errno.EACCES, "injected")):
        with pytest.raises(StorageError, match="make it writable"):
            world.log().topic("t").read(0, 0)
        mine = dict(directories._doubted)
        append(world.handle(), batch_of([b"b"]))
        directories._doubted.update(mine)  # the writer is another process
        os.utime(world.path / JOURNAL, ns=(0, 1))
        assert [r.value for r in world.log().topic("t").read(0, 0, 2)] == [b"a", b"b"]
    disk.lose_power()
    assert world.values() == [b"a", b"b"]


def test_a_full_disk_can_be_freed(world: World) -> None:
    """No room for a name: the directory's time is set, which a filesystem's journal takes as a change, too."""
    world.create()
    real = os.open

    def full(path: str, flags: int, *rest: int, **more: Any) -> int:
        if flags & os.O_CREAT and ".tmp-" in str(path):
            raise OSError(errno.ENOSPC, "injected")
        return real(path, flags, *rest, **more)

    with mock.patch.object(os, "open", full), recording() as calls:
        world.storage().sync_directory(JOURNAL, fresh=True)
    assert [(name, path.endswith(JOURNAL)) for name, path in calls] == [("utime", True), ("fsync", True)]


def test_what_became_read_only_by_an_error_is_told(world: World) -> None:
    """ext4 and btrfs answer so; what was mounted to be read only does not."""
    world.create()
    with (
        mock.patch.object(os, "fsync", side_effect=OSError(errno.EROFS, "injected")),
        mock.patch.object(os, "fstatvfs", return_value=SimpleNamespace(f_flag=os.ST_RDONLY)),
        pytest.raises(SyncFailedError),
    ):
        world.storage().sync_directory(JOURNAL)


def _retained(world: World, topic: TopicLog, topic_id: str) -> None:
    """Let go of what another deletes while this one is at work."""

    def meanwhile(*_: object) -> None:
        world.log().topic("t").delete_records({0: 1})

    with mock.patch.object(retention, "_raise_log_start", meanwhile):
        assert retention.retain(topic, topic_id).segments


def _removed(world: World, topic: TopicLog) -> None:
    world.log().topic("t").delete()
    maintain_topic(topic, lambda *_: None)


ACTS: dict[str, tuple[str, Callable[[World, TopicLog, str], object]]] = {
    "settle": (JOURNAL, lambda world, topic, topic_id: settle(topic, topic_id)),
    "retain": (JOURNAL, lambda world, topic, topic_id: _retained(world, topic, topic_id)),
    "compact": (JOURNAL, lambda world, topic, topic_id: compact(topic, topic_id)),
    "remove a former incarnation": (JOURNAL, lambda world, topic, topic_id: _removed(world, topic)),
    "collect": ("/settle", lambda world, topic, topic_id: collect(topic, topic_id)),
    "bless": ("/staged", lambda world, topic, topic_id: append(topic, batch_of([b"c"], key=[b"k"]))),
}


@pytest.mark.parametrize(("directory", "act"), ACTS.values(), ids=list(ACTS))
def test_whoever_deletes_by_what_another_put_changes_its_directory_first(
    world: World, directory: str, act: Callable[[World, TopicLog, str], object]
) -> None:
    """I2, I4: the sync of the one who put it may have failed."""
    config = {**CHUNKS, "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0, "segment.bytes": 1024}
    topic = world.create(config=config)
    topic_id = topic.newest()[1].topic_id
    for _ in range(3):
        append(topic, batch_of([b"x" * 2000], key=[b"k"]))
        settle(topic, topic_id)
    if directory == "/staged":
        staged = stage(topic, batch_of([b"u"], key=[b"k"]), durable=False)
        commit(topic, topic_id, [staged], durable=False)
    changed: list[str] = []
    real = directories._change

    def change(at: str, unique: str, fd: int) -> None:
        changed.append(at)
        real(at, unique, fd)

    with mock.patch.object(directories, "_change", change):
        act(world, world.handle(), topic_id)
    assert [path for path in changed if path.endswith(directory)]


def test_a_directory_is_open_before_it_is_changed(world: World) -> None:
    """A failure that another process is told first is told to whoever had it open by then."""
    world.create()
    calls: list[str] = []
    real_open, real_link = os.open, os.link

    def opened(path: str, flags: int, *rest: int, **more: Any) -> int:
        full = path_of(path, more.get("dir_fd"))
        calls.extend(["open"] * (full.endswith(JOURNAL) and bool(flags & os.O_DIRECTORY)))
        return real_open(path, flags, *rest, **more)

    def linked(source: str, target: str, **more: Any) -> None:
        calls.append("link")
        real_link(source, target, **more)

    with mock.patch.multiple(os, open=opened, link=linked):
        world.storage().put_if_absent(f"{JOURNAL}/x", b"")
    assert calls == ["open", "link"]


def test_what_goes_well_costs_the_fsyncs_it_always_did(world: World, disk: Disk) -> None:
    """Two for each file or entry: itself, and its directory. A change of names before a sync adds none."""
    topic = world.create()
    append(topic, batch_of([b"warm"]))
    topic_id, counts = topic.newest()[1].topic_id, []

    def counted(act: Callable[[], object]) -> None:
        before = disk.fsyncs
        act()
        counts.append(disk.fsyncs - before)

    writer = Transaction("q", 1)
    staged = [stage(topic, batch_of([b"a"])) for _ in range(3)]
    counted(lambda: stage(topic, batch_of([b"a"])))
    for handle, task in zip((topic, topic, world.handle()), staged, strict=True):
        counted(partial(commit, handle, topic_id, [task], writer))
    for _ in range(2):
        counted(lambda: settle(topic, topic_id))
        append(topic, batch_of([b"b"]))
    world.clock.advance(10**6)
    counted(world.maintain)
    # The first settling of all, and maintenance, leave a note beside the entries: a process syncs that directory's name once.
    assert counts == [2, 2, 0, 1, 6, 4, 12]
