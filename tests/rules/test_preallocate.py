"""`preallocate`: the disk of an active segment is reserved ahead, and what readers see is the same."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from pyspark_commitlog.errors import StorageFullError
from pyspark_commitlog.topic.maintain.settle import Settled, settle, settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of
from tests.support.syscalls import recording, telling
from tests.support.verify import verify
from tests.support.world import CHUNKS, World

_BYTES = 65536
CONFIG = {
    **CHUNKS, "segment.bytes": _BYTES, "compression.type": "none", "batch.size": 1024, "preallocate": "true",
    "settle.entries": 1,
}  # fmt: skip


def write(topic: TopicLog, number: int, size: int = 20_000) -> None:
    """Commit and settle one record of about `size` bytes."""
    append(topic, batch_of([b"%d" % number + b"x" * size]))
    settle(topic, topic.newest()[1].topic_id)


def logs(world: World) -> dict[int, Path]:
    """Return the .log files by base offset."""
    return {int(path.rsplit("/", 1)[1].split(".")[0]): world.path / path for path in world.files(".log")}


def sizes(world: World) -> dict[int, int]:
    return {base: path.stat().st_size for base, path in logs(world).items()}


def numbers(world: World) -> list[int]:
    """Return the numbers of the records that a fresh process reads."""
    return [int((value or b"").rstrip(b"x")) for value in world.values()]


def test_the_active_segment_is_reserved_whole_and_a_sealed_one_is_trimmed(world: World) -> None:
    topic = world.create(config=CONFIG)
    for number in range(4):
        write(topic, number)
    topic_id = topic.newest()[1].topic_id
    row = topic.settled(topic_id)[1].partition(0)
    (sealed,) = topic.sealed(topic.settled(topic_id)[1], 0)
    assert sizes(world) == {0: sealed.length, 3: _BYTES}
    assert sealed.length < _BYTES
    assert logs(world)[3].stat().st_blocks * 512 >= _BYTES
    assert world.log().topic("t").describe().partitions[0].size_bytes == sealed.length + row.active.length
    assert numbers(world) == [0, 1, 2, 3]
    assert verify(topic) == 4


def test_a_sealed_log_is_durable_at_its_trimmed_length(world: World) -> None:
    """R5: trimmed before it is synced; else power loss could give the reservation back to a sealed segment."""
    topic = world.create(config=CONFIG)
    for number in range(3):
        write(topic, number)
    with recording() as calls:
        write(topic, 3)
    of_log = [call for call, path in calls if path == str(logs(world)[0])]
    assert of_log[-2:] == ["ftruncate", "fsync"]


def test_a_reservation_stays_over_runs(world: World) -> None:
    topic = world.create(config=CONFIG)
    write(topic, 0)
    with recording() as calls:
        write(topic, 1)
    assert {call for call, path in calls if path.endswith(".log")} == {"pwritev", "fsync"}


def test_a_torn_tail_inside_the_reservation_is_cut_off(world: World) -> None:
    """R3: what a killed settler wrote behind the published length is gone, and the disk is reserved again."""
    topic = world.create(config=CONFIG)
    write(topic, 0)
    (path,) = logs(world).values()
    published = topic.settled(topic.newest()[1].topic_id)[1].partition(0).active.length
    with path.open("r+b") as file:
        file.seek(published)
        file.write(b"torn" * 10_000)
    write(topic, 1, size=100)
    data = path.read_bytes()
    assert len(data) == _BYTES
    assert b"torn" not in data
    assert path.stat().st_blocks * 512 >= _BYTES
    assert numbers(world) == [0, 1]
    assert verify(topic) == 2


def test_it_can_be_switched_on_and_off_at_any_time(world: World) -> None:
    topic = world.create(config={**CONFIG, "preallocate": "false"})
    write(topic, 0)
    before = sizes(world)[0]
    assert before < _BYTES
    world.log().topic("t").alter({"preallocate": True})
    write(topic, 1)
    assert sizes(world) == {0: _BYTES}
    world.log().topic("t").alter({"preallocate": None})
    write(topic, 2)
    assert before < sizes(world)[0] < _BYTES
    assert numbers(world) == [0, 1, 2]
    assert verify(topic) == 3


@pytest.mark.parametrize("rolled", [False, True])
def test_a_disk_without_room_for_it_publishes_nothing_and_fails_no_commit(
    world: World, caplog: pytest.LogCaptureFixture, rolled: bool
) -> None:
    """R5: an error of the tree that says what to do; records are read from their chunks, and settled later."""
    topic = world.create(config=CONFIG)
    settled = 3 if rolled else 0
    for number in range(settled):
        write(topic, number)
    topic_id = topic.newest()[1].topic_id
    append(topic, batch_of([b"%d" % settled + b"x" * 20_000]))

    def full(name: str, path: str) -> None:
        if name == "posix_fallocate":
            raise OSError(errno.ENOSPC, "injected")

    with telling(full):
        with pytest.raises(StorageFullError, match=r"cannot reserve 65536 bytes for .*\.log"):
            settle(topic, topic_id)
        with caplog.at_level(logging.WARNING):
            assert settle_after_commit(topic, topic_id) == Settled(None)
    assert "committed, but settling failed" in caplog.text
    assert "othing was committed" not in caplog.text
    assert "No space left on device; free space and run again" in caplog.text
    assert topic.settled(topic_id)[1].partition(0).end_offset == settled
    assert numbers(world) == list(range(settled + 1))
    settle(topic, topic_id)
    assert numbers(world) == list(range(settled + 1))
    assert verify(topic) == settled + 1
