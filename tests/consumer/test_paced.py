"""Consumers that wait where each look is a request: at an interval, never by a listing, and soon after a record."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer
from pyspark_commitlog.consumer.shared import shared_topic, watcher as watcher_module
from pyspark_commitlog.consumer.shared.shared_topic import SharedTopic
from pyspark_commitlog.consumer.shared.watcher import SharedRoot, Waiter, Watcher
from pyspark_commitlog.errors import UnknownTopicError, UsageError
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.support.producers import wait_until
from tests.support.records import append, batch_of
from tests.support.remote import RemoteStorage

HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def root(tmp_path: Path, clock: ManualClock) -> Path:
    CommitLog.on(LocalStorage(tmp_path / "root", clock=clock)).create_topic("t")
    return tmp_path / "root"


@pytest.fixture
def topic(root: Path, clock: ManualClock) -> SharedTopic:
    return SharedTopic(RemoteStorage(root, clock=clock), "t")


def requests_of(topic: SharedTopic) -> RemoteStorage:
    assert isinstance(topic.storage, RemoteStorage)
    return topic.storage


def put(topic: SharedTopic) -> None:
    local = LocalStorage(Path(topic.storage.url), clock=topic.storage.clock)
    append(CommitLog.on(local).root.topic("t"), batch_of([b"x"]))


def idle(topic: SharedTopic, clock: ManualClock, seconds: float) -> None:
    """Look whenever a look is due, as the watcher does, and each second besides, as polls may."""
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        topic.look(certain=False)
        clock.advance(max(1, round(min(1.0, topic.seconds_left()) * 1000)))


@pytest.mark.parametrize("interval_ms", [1000, 30_000])
def test_an_idle_hour_takes_its_requests_and_no_listing(
    topic: SharedTopic, clock: ManualClock, interval_ms: int
) -> None:
    topic._pace, per_hour = shared_topic.Pace(interval_ms), 3_600_000 // interval_ms
    topic.look()
    requests_of(topic).reset()
    idle(topic, clock, HOUR)
    requests = requests_of(topic).requests
    assert 0.8 * per_hour <= sum(requests.values()) <= per_hour + 2
    assert requests["LIST"] == 0


def test_a_look_that_finds_nothing_is_one_request(topic: SharedTopic, clock: ManualClock) -> None:
    topic.look()
    for _ in range(10):
        requests_of(topic).reset()
        clock.advance(1100)
        topic.look(certain=False)
        assert requests_of(topic).requests.total() == 1
        topic.look(certain=False)
        assert requests_of(topic).requests.total() == 1, "the next one is not due yet"


def test_a_record_is_seen_at_the_next_look_and_then_it_looks_at_once(topic: SharedTopic, clock: ManualClock) -> None:
    topic.look()
    idle(topic, clock, HOUR)
    for _ in range(5):
        before = topic.version
        put(topic)
        clock.advance(1100)
        topic.look(certain=False)
        assert topic.version != before
        assert topic.seconds_left() <= 0.02
        idle(topic, clock, 60)
    assert requests_of(topic).requests["LIST"] == 4, "those of the first look: two for each journal"


def test_an_application_that_polls_without_waiting_takes_no_more(topic: SharedTopic, clock: ManualClock) -> None:
    topic.look()
    requests_of(topic).reset()
    for _ in range(100_000):
        clock.advance(1)
        topic.look(certain=False)
    assert requests_of(topic).requests.total() <= 60 + 100


def test_after_a_long_pause_a_look_is_certain(topic: SharedTopic, clock: ManualClock) -> None:
    """What was put in between may be settled and collected, and the entry that was seen last with it."""
    topic.look()
    before = topic.version
    log = CommitLog.on(LocalStorage(Path(topic.storage.url), clock=clock))
    log.topic("t").alter({"file.delete.delay.ms": 0})
    for _ in range(3):
        put(topic)
        clock.advance(3_000)
        log.topic("t").maintain()
    assert not topic.storage.exists("topics/t/journal/00000000000000000002.json")
    topic.look(certain=False)
    assert topic.version != before


def test_it_is_looked_in_full_once_a_minute(topic: SharedTopic, clock: ManualClock) -> None:
    """A root that was removed, or another one in its place, shows no next entry."""
    topic.look()
    idle(topic, clock, 10)
    shutil.rmtree(topic.storage.url)
    with pytest.raises(UnknownTopicError):
        idle(topic, clock, 62)


def test_a_topic_that_is_not_there_is_asked_for_seldom(root: Path, clock: ManualClock) -> None:
    none = SharedTopic(RemoteStorage(root, clock=clock), "none")
    for _ in range(3600):
        clock.advance(1000)
        with pytest.raises(UnknownTopicError):
            none.look(certain=False)
    assert requests_of(none).requests["LIST"] <= 3600 // 12 + 10


def test_a_seek_is_not_put_off(topic: SharedTopic) -> None:
    topic.look()
    before = topic.version
    put(topic)
    topic.look(certain=False)
    topic.doubt()
    topic.look(certain=False)
    assert topic.version != before


def test_who_waits_is_woken_within_the_pace(root: Path, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real clock: the thread waits for the next look that is due."""
    monkeypatch.setattr(watcher_module, "RECHECK_SECONDS", 3600.0)
    topic, woken = SharedTopic(RemoteStorage(root), "t"), threading.Event()
    topic.shorten_idle_interval(100)
    topic.look()
    waiter = Waiter(woken.set, {topic: topic.version})
    watcher.add(waiter)
    try:
        wait_until(lambda: requests_of(topic).requests["HEAD"] > 5)
        put(topic)
        assert woken.wait(30)
    finally:
        watcher.remove(waiter)
    assert requests_of(topic).requests["LIST"] == 4, "those of the first look"


def test_the_shortest_interval_of_the_consumers_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedRoot(RemoteStorage(root), object())
    monkeypatch.setattr(SharedRoot, "open", lambda *_: shared)
    with (
        Consumer(str(root), "t", idle_poll_interval_ms=36) as first,
        Consumer(str(root), "t", idle_poll_interval_ms=60_000) as second,
    ):
        first.poll(0)
        second.poll(0)
        assert shared.topic("t")._pace.interval_ms == 36


def test_an_interval_that_is_not_allowed_is_named(root: Path) -> None:
    with pytest.raises(UsageError, match="idle_poll_interval_ms=60001 is not allowed: it takes 1 to 60000 ms"):
        Consumer(str(root), "t", idle_poll_interval_ms=60_001)
