"""A process that holds the settlers' lock and does not go on is named, and what waits for it is shown (R3)."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.errors import ConflictError
from pyspark_commitlog.storage import Holder
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import Backlog
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

EAGER = {**CHUNKS, "settle.entries": 1}


def lock(topic: TopicLog) -> str:
    return topic.paths(topic.newest()[1].topic_id).lock


def write(topic: TopicLog) -> None:
    append(topic, batch_of([b"x"]))
    settle_after_commit(topic, topic.newest()[1].topic_id)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "holds the lock" in record.getMessage()]


def me(world: World) -> Holder:
    return Holder(platform.node(), os.getpid(), world.clock.now_ms())


def test_whoever_does_not_get_the_lock_learns_who_has_it(world: World) -> None:
    topic = world.create()
    holder = me(world)
    with world.storage().try_lock(lock(topic)) as held:
        assert held
        world.clock.advance(5000)
        done = world.maintain()
        assert (done.busy, done.busy_ms) == (holder, 5000)
        assert str(os.getpid()) in str(done.busy)
    done = world.maintain()
    assert (done.busy, done.busy_ms) == (None, 0)


def test_a_compaction_that_was_left_to_the_holder_is_not_said_to_be_idle(world: World) -> None:
    topic = world.create(config={**CHUNKS, "cleanup.policy": "compact"})
    with world.storage().try_lock(lock(topic)) as held:
        assert held
        assert world.maintain().not_compacted == {}
    assert list(world.maintain().not_compacted.values()) == [1]


def test_a_vain_try_does_not_take_the_note_away(world: World) -> None:
    topic = world.create()
    holder = me(world)
    with world.storage().try_lock(lock(topic)):
        for _ in range(2):
            with world.storage().try_lock(lock(topic)) as also:
                assert not also
            assert world.storage().holder(lock(topic)) == holder


@pytest.mark.parametrize(
    "note", [None, b"", b"{", b"[]", b'{"host": 1}', b'{"host":"h","pid":1,"since":1e300}', b"\xff"]
)
def test_a_holder_without_a_note_that_can_be_read_is_one_all_the_same(world: World, note: bytes | None) -> None:
    topic = world.create()
    with world.storage().try_lock(lock(topic)):
        path = world.path / f"{lock(topic)}.holder"
        path.unlink()
        if note is not None:
            path.write_bytes(note)
        done = world.maintain()
    assert (done.busy, done.busy_ms) == (Holder(), 0)
    assert "left no note" in str(done.busy)


def test_a_disk_that_is_full_stops_no_settler(world: World) -> None:
    """Only a hint is lost: a directory lies where the note would."""
    topic = world.create()
    (world.path / f"{lock(topic)}.holder").mkdir()
    append(topic, batch_of([b"x"]))
    assert world.maintain().settled_records == 1


def test_void_says_who_keeps_it_waiting(world: World) -> None:
    topic = world.create()
    with world.storage().try_lock(lock(topic)), pytest.raises(ConflictError, match=f"process {os.getpid()} on"):
        world.log().topic("t").void()


def test_writers_warn_when_much_more_waits_than_is_due(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Not of every settler at work; and once a minute."""
    topic = world.create(config={**CHUNKS, "settle.entries": 20, "settle.ms": 10**9})
    caplog.set_level(logging.WARNING)
    with world.storage().try_lock(lock(topic)):
        for number in range(100):
            write(topic)
            assert len(warnings(caplog)) == (number >= 79), number
        (told,) = warnings(caplog)
        assert f"process {os.getpid()} on {platform.node()}" in told
        assert "80 entries wait" in told
        world.clock.advance(59_000)
        write(topic)
        assert len(warnings(caplog)) == 1
        world.clock.advance(1000)
        write(topic)
        assert len(warnings(caplog)) == 2
    write(topic)
    assert len(warnings(caplog)) == 2


def test_writers_warn_when_a_little_waits_for_long(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topic = world.create(config={**CHUNKS, "settle.entries": 10**6, "settle.ms": 30_000})
    caplog.set_level(logging.WARNING)
    with world.storage().try_lock(lock(topic)):
        write(topic)
        world.clock.advance(119_000)
        write(topic)
        assert warnings(caplog) == []
        world.clock.advance(1000)
        write(topic)
        assert "the oldest for 120 s" in warnings(caplog)[0]


def test_what_waits_is_shown_with_its_age_and_bytes(world: World) -> None:
    topic = world.create()
    assert world.log().topic("t").describe().unsettled == Backlog()
    sizes = []
    for _ in range(3):
        append(topic, batch_of([b"x" * 100]))
        sizes.append(sum(extent.length for extent in topic.extents(topic.newest()[0].entry)))
        world.clock.advance(1000)
    expected = Backlog(3, sum(sizes), 3000)
    assert world.log().topic("t").describe().unsettled == expected
    assert verify(world.handle()).unsettled == expected
    world.maintain()
    assert world.log().topic("t").describe().unsettled == verify(world.handle()).unsettled == Backlog()


def test_of_many_entries_the_bytes_are_estimated(world: World) -> None:
    topic = world.create()
    total = 0
    for number in range(150):
        append(topic, batch_of([b"x" * (100 + number)]))
        total += sum(extent.length for extent in topic.extents(topic.newest()[0].entry))
    found = world.log().topic("t").describe().unsettled
    assert found.entries == 150
    assert abs(found.size_bytes - total) < total / 20


def test_the_commands_show_it(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("t")
    topic = log.root.topic("t")
    append(topic, batch_of([b"x"]))
    run = CliRunner()
    storage = LocalStorage(root)
    with storage.try_lock(lock(topic)):
        said = run.invoke(app, ["maintain", root, "--once"])
        assert said.exit_code == 0, "it may be at work"
        assert f"held by process {os.getpid()} on {platform.node()}" in said.output
        told = json.loads(run.invoke(app, ["maintain", root, "--once", "--json"]).output.splitlines()[0])
        assert told["busy"]["pid"] == os.getpid()
        note = tmp_path / "root" / f"{lock(topic)}.holder"
        note.write_text(json.dumps({**json.loads(note.read_text()), "since": 0}))
        assert run.invoke(app, ["maintain", root, "--once"]).exit_code == 1, "nobody works for so long"
    assert "1 journal entry (" in run.invoke(app, ["verify", root]).output
    assert json.loads(run.invoke(app, ["verify", root, "--json"]).output.splitlines()[-1])["unsettled"]["entries"] == 1
    assert "to be settled, the oldest for" in run.invoke(app, ["topics", "describe", root]).output
    found = json.loads(run.invoke(app, ["topics", "describe", root, "--json"]).output)
    assert found["unsettled"]["entries"] == 1
    run.invoke(app, ["maintain", root, "--once"])
    assert "t: all is settled" in run.invoke(app, ["topics", "describe", root]).output


_HOLD = """
import sys, time
from pyspark_commitlog.storage.local.local import LocalStorage
with LocalStorage(sys.argv[1]).try_lock(sys.argv[2]) as held:
    print(held, flush=True)
    time.sleep(600)
"""


def test_a_stopped_process_is_named_and_the_next_settles_when_it_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGSTOP, then hundreds of commits: none fails, and somebody says why nothing is settled."""
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("t", config=EAGER)
    topic = log.root.topic("t")
    holding = subprocess.Popen([sys.executable, "-c", _HOLD, root, lock(topic)], stdout=subprocess.PIPE)
    try:
        assert holding.stdout is not None
        assert holding.stdout.readline() == b"True\n"
        holding.send_signal(signal.SIGSTOP)
        caplog.set_level(logging.WARNING)
        for _ in range(100):
            write(topic)
        assert f"process {holding.pid} on" in warnings(caplog)[0]
        busy = log.topic("t").maintain().busy
        assert busy is not None
        assert busy.pid == holding.pid
        assert log.topic("t").describe().unsettled.entries == 100
    finally:
        holding.kill()
        holding.wait()
    write(topic)
    assert log.topic("t").maintain().busy is None
    assert log.topic("t").describe().unsettled == Backlog()
