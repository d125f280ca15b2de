"""A root that hangs in a system call is one that fails: nobody waits for it longer than a call may take.

The interleavings: a put that was left behind is done later (its entry is decided, or a number is lost: the writer's id
says which); one that learns is left behind, wakes, and does nothing more; a lock that comes late is let go of; a write of
a settler that was left behind is done later, while its lock is still held.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.model import silent
from pyspark_commitlog.storage import calls, deadline_storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.local_files import LocalAppendFile
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import Settled, settle
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.replicas import Replicated, poll

LIMIT = 0.3
#: What nothing takes that waits for a few limits, on a busy machine too; and how long a hook hangs, seconds.
SOON = 60


@pytest.fixture(autouse=True)
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[Container[str]]:
    """Have the limit be short of roots that hang, by name or URL, in any of the containers; others have time."""
    roots, run = list[Container[str]](), calls.Calls.run

    def patient(of: calls.Calls, what: str, act: Any, seconds: float, *more: Any, **named: Any) -> Any:
        hangs = any(at in each for each in roots for at in (of.url, Path(of.url).name))
        return run(of, what, act, LIMIT if hangs else SOON, *more, **named)

    monkeypatch.setattr(calls.Calls, "run", patient)
    return roots


@pytest.fixture
def roots(tmp_path: Path, hanging: list[Container[str]]) -> Iterator[Replicated]:
    made = Replicated(tmp_path)
    hanging.append(made.hooks)
    yield made
    for hook in made.hooks.values():
        hook.go_on.set()  # type: ignore[attr-defined]


class Hang:
    """A hook: all that is asked of the root waits."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, operation: str, path: str, moment: str) -> None:
        if moment == "before":
            self.go_on.wait(SOON)
            self.go_on.set()  # a test that is red ends


def test_acks_1_waits_for_a_follower_that_hangs_as_long_as_a_call_may_take(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"1", topic=topic)
    roots.hooks["c"] = Hang()
    began = time.monotonic()
    roots.write(b"2", acks_all=False, topic=topic)
    roots.write(b"3", acks_all=False, topic=topic)
    assert time.monotonic() - began < SOON


def test_acks_all_takes_a_root_out_that_hangs(roots: Replicated) -> None:
    topic = roots.create()
    roots.hooks["c"] = Hang()
    began = time.monotonic()
    roots.write(b"1", topic=topic)
    assert time.monotonic() - began < SOON
    assert roots.isr() == "ab"
    assert [roots.values(root) for root in "ab"] == [[b"1"]] * 2


def test_a_leader_that_hangs_is_replaced(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    assert roots.leader() == "a"
    roots.hooks["a"] = Hang()
    began = time.monotonic()
    roots.write(b"2", topic=roots.topic("b"))
    assert time.monotonic() - began < SOON
    assert (roots.leader(), roots.isr()) == ("b", "bc")
    assert [roots.values(root) for root in "bc"] == [[b"1", b"2"]] * 2


def test_a_metadata_root_that_hangs_refuses_writes_and_holds_up_no_reader(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"1", topic=topic)
    roots.hooks["m"] = Hang()
    began = time.monotonic()
    with pytest.raises(CommitLogError, match="hangs"):
        roots.write(b"2", topic=topic)
    assert [roots.values(root) for root in "abc"] == [[b"1"]] * 3
    assert time.monotonic() - began < SOON


def test_a_root_that_goes_on_is_in_sync_again(roots: Replicated) -> None:
    topic = roots.create()
    hang = roots.hooks["c"] = Hang()
    roots.write(b"1", topic=topic)
    assert roots.isr() == "ab"
    hang.go_on.set()
    del roots.hooks["c"]
    until = time.monotonic() + 10
    while roots.isr() != "abc":
        assert time.monotonic() < until
        roots.log("a").replicas.sync("t")
    assert roots.values("c") == [b"1"]


def test_a_put_that_was_left_behind_and_is_done_later_loses_and_repeats_nothing(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"1", topic=topic)
    hang = roots.hooks["m"] = Hang()

    def at_the_put(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent":
            hang(operation, path, moment)

    at_the_put.go_on = hang.go_on  # type: ignore[attr-defined]
    roots.hooks["m"] = at_the_put
    from pyspark_commitlog.topic.write.writers import Transaction

    writer = Transaction("txn:app", 1, False)
    with pytest.raises(CommitLogError, match="hangs"):
        roots.write(b"2", writer=writer, topic=topic)
    assert calls.Calls.of(str(roots.path / "m")).late_calls(), (
        "a lock that it was made under is kept until it has ended"
    )
    del roots.hooks["m"]
    hang.go_on.set()  # the put lands now, or has: nobody who asked waits for it
    until = time.monotonic() + 10
    while True:
        try:
            roots.write(b"2", writer=writer)
            break
        except CommitLogError:
            assert time.monotonic() < until
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3


class LateWrite:
    """The next write of a segment: it is given up soon, and done when `go_on` is set. All else has time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hanging: list[Container[str]]) -> None:
        self.go_on, self.under_way = threading.Event(), threading.Event()
        asked, done = deadline_storage._AppendWithDeadlines.write_at, LocalAppendFile.write_at

        def ask(append: Any, position: int, pieces: Any) -> int:
            if append._path.endswith(".log"):
                hanging.append({"b"})
            try:
                return asked(append, position, pieces)
            finally:
                hanging[1:] = []

        def do(append: Any, position: int, pieces: Any) -> int:
            if str(append._path).endswith(".log") and not self.under_way.is_set():
                self.under_way.set()
                self.go_on.wait(60)
            return done(append, position, pieces)

        monkeypatch.setattr(deadline_storage._AppendWithDeadlines, "write_at", ask)
        monkeypatch.setattr(LocalAppendFile, "write_at", do)


def settle_at(roots: Replicated, root: str, *, limits: bool) -> Settled:
    storage = LocalStorage(roots.path / root, clock=roots.clock)
    topic = TopicLog(deadline_storage.with_deadlines(storage) if limits else storage, "t")
    return settle(topic, topic.newest()[1].topic_id)


def test_a_write_that_was_left_behind_holds_the_settlers_lock(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch, hanging: list[Container[str]]
) -> None:
    """R3, I2: done later, it would overwrite what the next settler has published."""
    roots.create()
    roots.write(b"1")
    settle_at(roots, "b", limits=False)
    roots.write(b"2" * 300)
    late = LateWrite(monkeypatch, hanging)
    with suppress(CommitLogError):  # no error is kept: its traceback would keep the lock
        settle_at(roots, "b", limits=True)
    gc.collect()
    try:
        assert late.under_way.is_set()
        calls._process.value.known.clear()  # from here on another process, which knows of no call that hangs
        roots.write(b"3" * 500)
        roots.write(b"4" * 500)
        roots.decided_log().state_hw()
        assert settle_at(roots, "b", limits=False).sequence is None, "the lock is held for the write"
    finally:
        late.go_on.set()
    until = time.monotonic() + 30
    while settle_at(roots, "b", limits=False).sequence is None:
        assert time.monotonic() < until, "the end of the write lets go of the lock"
    assert verify(roots.at("b"), silent).faults == ()
    assert roots.values("b") == [b"1", b"2" * 300, b"3" * 500, b"4" * 500]


# --- the root that clients use -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    places = [str(tmp_path / name) for name in "abc"]
    log = CommitLog.create(places, [str(tmp_path / "m")])
    log.create_topic("t", 1, {"replica.lag.time.max.ms": 300})
    return ",".join(places)


@pytest.fixture
def hang_at(monkeypatch: pytest.MonkeyPatch, hanging: list[Container[str]]) -> Iterator[Any]:
    """Return what makes all calls of a root hang, in this process."""
    go_on, name, urls = threading.Event(), LocalStorage._name, set[str]()
    hanging.append(urls)

    def hangs(self: LocalStorage, path: str) -> str:
        if self.url in urls:
            go_on.wait(SOON)
            go_on.set()
        return name(self, path)

    monkeypatch.setattr(LocalStorage, "_name", hangs)
    yield urls.add
    go_on.set()


def test_a_producer_and_a_consumer_go_on_at_another_root(path: str, tmp_path: Path, hang_at: Any) -> None:
    with Producer(path, linger_ms=0) as producer, Consumer(path, "t", auto_offset_reset="earliest") as consumer:
        producer.send("t", b"1").result(30)
        assert poll(consumer, 1) == [b"1"]
        hang_at(str(tmp_path / "a"))
        began = time.monotonic()
        producer.send("t", b"2").result(30)
        assert poll(consumer, 1) == [b"2"]
        assert time.monotonic() - began < SOON


def test_a_log_is_opened_at_a_root_that_does_not_hang(path: str, tmp_path: Path, hang_at: Any) -> None:
    with Producer(path, linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
    hang_at(str(tmp_path / "a"))
    began = time.monotonic()
    assert [record.value for record in CommitLog(path).topic("t").read(0, 0, 10)] == [b"1"]
    assert time.monotonic() - began < SOON


def test_a_real_system_call_that_hangs_is_left_behind(roots: Replicated, hanging: list[Container[str]]) -> None:
    """Opening a FIFO that nobody writes to waits in the kernel."""
    roots.create()
    roots.write(b"1")
    hanging.append({"a"})
    marker = roots.path / "a" / "commitlog.json"
    data = marker.read_bytes()
    marker.unlink()
    os.mkfifo(marker)
    began = time.monotonic()
    try:
        roots.write(b"2", topic=roots.topic("b"))
        assert time.monotonic() - began < SOON
        assert roots.leader() == "b"
    finally:
        os.close(os.open(marker, os.O_RDWR | os.O_NONBLOCK))  # those that wait go on, and find nothing
        marker.unlink()
        marker.write_bytes(data)
