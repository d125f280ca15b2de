"""What maintenance asks of an object store, by verb: a listing is paid for as a put is."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.model import silent
from pyspark_commitlog.storage import FileInfo
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.maintain.maintain import maintain_topic
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import LATER_MS, topic_id
from tests.support.records import append, batch_of, read_topic
from tests.support.world import CHUNKS, RETENTION_MS


class Later(ObjectStorage):
    """Objects in memory, of a store whose time a test moves."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.shift_ms, self._shifts = 0, dict[str, int]()

    def now_ms(self) -> int:
        """Return the store's time, moved."""
        return super().now_ms() + self.shift_ms

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Put at that time."""
        self._shifts[path] = self.shift_ms
        return super().put_if_absent(path, data)

    def _info(self, path: str, meta: Any) -> FileInfo:
        info = super()._info(path, meta)
        return replace(info, modified_ms=info.modified_ms + self._shifts.get(path, 0))

    def spent(self) -> Counter[str]:
        """Return the requests since the last time."""
        spent, self.requests = self.requests, Counter()
        return spent


@pytest.fixture
def store() -> Later:
    """An empty root in memory with a topic `t`."""
    storage = Later(f"memory://{uuid.uuid4()}")
    CommitLog.on(storage).create_topic("t", 4, CHUNKS)
    storage.now_ms()  # it may put a file to learn the store's time
    return storage


def commit(topic: TopicLog, commits: int) -> None:
    """Commit, and settle."""
    for _ in range(commits):
        append(topic, batch_of([b"v"] * 4, partition=range(4)))
    settle(topic, topic_id(topic))


def test_in_a_steady_state_nothing_is_listed_or_put(store: Later) -> None:
    topic = TopicLog(store, "t")
    for _ in range(3):
        commit(topic, 10)
    store.shift_ms += LATER_MS
    assert collect(topic, topic_id(topic)).chunks >= 20
    commit(topic, 10)
    store.shift_ms += LATER_MS
    store.spent()
    done = collect(topic, topic_id(topic))
    spent = store.spent()
    assert (done.chunks, done.entries, done.settle_entries) == (10, 10, 1)
    assert spent["LIST"] == spent["PUT"] == spent["POST"] == 0
    assert spent["DELETE"] == 10 + 10 + 1
    assert spent["GET"] + spent["HEAD"] <= 10 + 13, "each entry once, and the newest ones"
    assert len(read_topic(TopicLog(store, "t"))) == 160


def test_an_idle_topic_is_maintained_for_few_requests(store: Later) -> None:
    log = CommitLog.on(store)
    commit(TopicLog(store, "t"), 3)
    for later in (RETENTION_MS, RETENTION_MS, LATER_MS, LATER_MS):
        store.shift_ms += later
        log.topic("t").maintain()
    store.spent()
    log.topic("t").maintain()
    spent = store.spent()
    assert spent["LIST"] <= 6, "two for each journal, of defaults and access one at a time; none of files or chunks"
    assert spent["PUT"] == 1, "when it was maintained"
    assert spent["DELETE"] == 0


def test_a_change_of_what_was_just_read_is_one_put(store: Later) -> None:
    topic = TopicLog(store, "t")
    commit(topic, 10)
    which = topic_id(topic)
    topic.settled(which)
    store.spent()
    assert topic.change(which, lambda base, before: Change(before)) is not None
    assert store.spent() == {"PUT": 1}


def test_the_defaults_of_a_root_without_any_are_looked_for_once(store: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry is there to be remembered: each question is a listing."""
    topic = TopicLog(store, "t")
    append(topic, batch_of([b"v"] * 4, partition=range(4)))
    listed, names = Counter[str](), store.names

    def counted(directory: str) -> list[str]:
        listed[directory] += 1
        return names(directory)

    monkeypatch.setattr(store, "names", counted)
    log = CommitLog.on(store)
    log.topic("t").maintain()
    assert listed["config/journal"] == 1

    log.config.alter({"settle.entries": 7})
    maintain_topic(topic, silent)
    assert topic.config(topic.newest()[1]).number("settle.entries") == 7, "a run that begins asks"
