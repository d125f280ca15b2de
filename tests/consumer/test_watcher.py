"""What wakes consumers that wait: the system's events where there are some, else looks."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer
from pyspark_commitlog.consumer.shared import watcher as module
from pyspark_commitlog.consumer.shared.shared_topic import SharedTopic
from pyspark_commitlog.consumer.shared.watcher import Waiter, Watcher
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.support.producers import wait_until
from tests.support.records import append, batch_of

LIMIT = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    CommitLog(str(tmp_path / "root")).create_topic("t")
    return tmp_path / "root"


def put(root: Path, name: str = "t") -> None:
    append(CommitLog(str(root)).root.topic(name), batch_of([b"x"]))


def opened(root: Path, name: str = "t") -> SharedTopic:
    return SharedTopic(LocalStorage(root), name)


@contextmanager
def waiting(watcher: Watcher, *topics: SharedTopic) -> Iterator[threading.Event]:
    """Wait for topics, from what they were when they were looked at last."""
    woken = threading.Event()
    waiter = Waiter(woken.set, {topic: topic.version for topic in topics})
    watcher.add(waiter)
    try:
        yield woken
    finally:
        watcher.remove(waiter)


def counting(topic: SharedTopic, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets the time of every look at the topic."""
    looks, real = list[float](), topic.look
    monkeypatch.setattr(topic, "look", lambda **how: (looks.append(time.monotonic()), real(**how))[1])
    return looks


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked at for its age: what wakes was told."""
    monkeypatch.setattr(module, "RECHECK_SECONDS", 3600.0)


@pytest.mark.usefixtures("unhurried")
def test_who_waits_is_told_and_nobody_looks_meanwhile(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = opened(root)
    topic.look()
    looks = counting(topic, monkeypatch)
    with waiting(watcher, topic) as woken:
        wait_until(lambda: bool(looks))
        assert not woken.wait(0.3)
        assert len(looks) == 1
        put(root)
        assert woken.wait(LIMIT)
    assert len(looks) <= 3  # a settler's lock file may have come as well


@pytest.mark.usefixtures("unhurried")
def test_a_commit_before_its_topic_is_followed_is_not_missed(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = opened(root)
    topic.look()
    follow = topic.follow

    def late(events: Events) -> int | None:
        put(root)
        return follow(events)

    monkeypatch.setattr(topic, "follow", late)
    with waiting(watcher, topic) as woken:
        assert woken.wait(LIMIT)


@pytest.mark.usefixtures("unhurried")
def test_what_was_told_before_somebody_waited_wakes_at_once(root: Path, watcher: Watcher) -> None:
    topic = opened(root)
    topic.look()
    with waiting(watcher, topic):
        wait_until(lambda: topic in watcher._followed)
        seen = topic.version
        put(root)
        wait_until(lambda: topic.version != seen)
        woken = threading.Event()
        watcher.add(Waiter(woken.set, {topic: seen}))
        assert woken.is_set()


@pytest.mark.usefixtures("unhurried")
def test_a_topic_that_comes_to_those_waited_for_is_followed_too(root: Path, watcher: Watcher) -> None:
    CommitLog(str(root)).create_topic("later")
    first, later = opened(root), opened(root, "later")
    with waiting(watcher, first):
        wait_until(lambda: first in watcher._followed)
        later.look()
        with waiting(watcher, later) as woken:
            put(root, "later")
            assert woken.wait(LIMIT)


@pytest.mark.usefixtures("unhurried")
def test_a_topic_that_is_made_while_somebody_waits(root: Path, watcher: Watcher) -> None:
    """Its directory cannot be followed before it is there."""
    there, none = opened(root), opened(root, "none")
    with waiting(watcher, there), waiting(watcher, none) as woken:
        wait_until(lambda: there in watcher._followed)
        CommitLog(str(root)).create_topic("none")
        assert woken.wait(LIMIT)


@pytest.mark.usefixtures("unhurried")
def test_a_root_that_is_put_in_the_place_of_another(root: Path, watcher: Watcher) -> None:
    topic = opened(root)
    topic.look()
    with waiting(watcher, topic):
        wait_until(lambda: topic in watcher._followed)
        shutil.copytree(root, root.with_name("copy"))
        shutil.rmtree(root)
        root.with_name("copy").rename(root)
        topic.look()
        with waiting(watcher, topic) as woken:
            put(root)
            assert woken.wait(LIMIT)


@pytest.mark.usefixtures("unhurried")
def test_a_root_that_is_put_in_the_place_of_another_while_nobody_waits(root: Path, watcher: Watcher) -> None:
    CommitLog(str(root.with_name("elsewhere"))).create_topic("t")
    topic, other = opened(root), opened(root.with_name("elsewhere"))
    topic.look()
    with waiting(watcher, other):
        with waiting(watcher, topic):
            wait_until(lambda: topic in watcher._followed)
        number, events = watcher._followed[topic], watcher._events
        assert events is not None
        shutil.copytree(root, root.with_name("copy"))
        shutil.rmtree(root)
        root.with_name("copy").rename(root)
        wait_until(lambda: not events.follows(number))
        topic.look()
        with waiting(watcher, topic) as woken:
            put(root)
            assert woken.wait(LIMIT)


def test_a_root_that_was_moved_away_for_another_is_followed_anew(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells of that; it must not be looked at once a second from then on."""
    monkeypatch.setattr(module, "RECHECK_SECONDS", 0.1)
    topic = opened(root)
    topic.look()
    with waiting(watcher, topic) as woken:
        wait_until(lambda: topic in watcher._followed)
        before = watcher._followed[topic]
        shutil.copytree(root, root.with_name("copy"))
        root.rename(root.with_name("old"))
        wait_until(lambda: topic not in watcher._followed)
        assert woken.wait(60)  # the topic is gone: who waits looks, and waits again
    with waiting(watcher, topic):
        root.with_name("copy").rename(root)
        wait_until(lambda: topic in watcher._followed)
        assert watcher._followed[topic] != before
        assert watcher._events is not None
        assert not watcher._events.follows(before)


def test_what_is_told_when_all_are_looked_at_is_not_lost(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consumer looked just before, and is about to wait."""
    monkeypatch.setattr(module, "RECHECK_SECONDS", 0.0)  # at any time
    CommitLog(str(root)).create_topic("other")
    topic, other = opened(root), opened(root, "other")
    topic.look()
    with waiting(watcher, other):
        with waiting(watcher, topic):
            wait_until(lambda: topic in watcher._followed)
        seen = topic.version
        put(root)
        wait_until(lambda: topic.version != seen)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("why", ["none for this process", "none for this directory"])
def test_where_nothing_tells_it_looks(root: Path, watcher: Watcher, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = opened(root)
    topic.look()
    if why == "none for this process":
        monkeypatch.setattr(Events, "open", lambda ignored: None)
    else:
        monkeypatch.setattr(topic, "follow", lambda events: None)
    looks = counting(topic, monkeypatch)
    with waiting(watcher, topic) as woken:
        wait_until(lambda: len(looks) > 5)
        put(root)
        assert woken.wait(LIMIT)


def test_what_nothing_told_of_is_seen_in_a_second(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest entry itself may be gone (the anchor rule), and a file's events may be lost."""
    topic = opened(root)
    topic.look()
    read = Events._read
    monkeypatch.setattr(Events, "_read", lambda self: read(self) and set())
    with waiting(watcher, topic) as woken:
        put(root)
        assert woken.wait(LIMIT)


def test_the_thread_ends_and_closes_what_it_opened(root: Path, watcher: Watcher) -> None:
    topic = opened(root)
    before = set(threading.enumerate())
    with waiting(watcher, topic):
        wait_until(lambda: topic in watcher._followed)
        events = watcher._events
        assert events is not None
    (thread,) = set(threading.enumerate()) - before
    thread.join(LIMIT)
    assert not thread.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        events.wake()
    topic.look()
    with waiting(watcher, topic) as woken:
        put(root)
        assert woken.wait(LIMIT)


def test_many_commits_wake_many_times(root: Path, watcher: Watcher) -> None:
    topic = opened(root)
    for _ in range(50):
        topic.look()
        with waiting(watcher, topic) as woken:
            put(root)
            assert woken.wait(LIMIT)


def test_one_topic_s_trouble_of_whatever_kind_does_not_end_the_thread_of_all(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**how: bool) -> bool:
        raise RuntimeError("injected")

    ill, well = opened(root), opened(root)
    monkeypatch.setattr(ill, "look", fail)
    with waiting(watcher, ill) as told, waiting(watcher, well) as woken:
        assert told.wait(LIMIT), "who polls is told"
        put(root)
        assert woken.wait(LIMIT)
    assert [thread.name for thread in threading.enumerate()].count("commitlog-watcher") >= 1


@pytest.mark.parametrize("way", ["poll", "apoll"])
def test_a_root_that_hangs_keeps_no_consumer_of_another_waiting(
    root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """One thread looks for all roots of the process: while it does not come back, who waits looks itself."""
    hangs, free, real = threading.Event(), threading.Event(), watcher.add
    ill = opened(root.parent / "other")
    monkeypatch.setattr(ill, "look", lambda **how: (hangs.set(), free.wait(LIMIT)))
    monkeypatch.setattr(module._process, "value", module._ProcessState(watcher=watcher))
    monkeypatch.setattr(module, "HELD_UP_SECONDS", 0.05)

    def add(waiter: Waiter) -> None:
        real(waiter)
        if not put_once:
            put_once.append(put(root))

    put_once: list[None] = []
    try:
        with waiting(watcher, ill), Consumer(str(root), "t", auto_offset_reset="earliest") as consumer:
            assert hangs.wait(LIMIT)
            monkeypatch.setattr(watcher, "add", add)
            began = time.monotonic()
            found = consumer.poll(10) if way == "poll" else asyncio.run(consumer.apoll(10))
            assert [record.value for record in found] == [b"x"]
            assert time.monotonic() - began < 5
    finally:
        free.set()


def test_who_waits_for_the_root_that_hangs_goes_on_waiting(root: Path, watcher: Watcher) -> None:
    """It would hang there itself, and in a task take a thread of the event loop's."""
    watcher._under_way = opened(root).storage.url, time.monotonic() - 2 * module.HELD_UP_SECONDS
    assert watcher.is_held_up([opened(root.parent / "other")])
    assert not watcher.is_held_up([opened(root.parent / "other"), opened(root)])
