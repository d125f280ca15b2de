"""What reads of segment objects ask of storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.log.maintain.settle import settle
from pyspark_commitlog.log.read.reader import PartitionReader, read_view
from pyspark_commitlog.log.read.timestamps import find_time
from pyspark_commitlog.log.topic import TopicLog
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import append, batch_of
from tests.support.remote import RemoteStorage

ROWS = 400


@pytest.fixture
def root(unlocked: ObjectWorld) -> Path:
    """A topic of two partitions whose records lie in five objects."""
    topic = unlocked.create(2)
    for number in range(5):
        stamps = [1_000_000 * (number * ROWS + row) for row in range(ROWS)]
        append(topic, batch_of([b"v"] * ROWS, timestamp=stamps, partition=[row % 2 for row in range(ROWS)]))
        assert settle(topic, topic_id(topic)).records == ROWS
    return Path(topic.storage.url)


def handle(root: Path, seconds: float = 0.0) -> tuple[TopicLog, RemoteStorage]:
    storage = RemoteStorage(root, seconds=seconds)
    return TopicLog(storage, "t"), storage


def test_a_footer_is_read_once_by_a_process_and_several_at_a_time(root: Path) -> None:
    topic, storage = handle(root, 0.02)
    view = read_view(topic, topic_id(topic))
    storage.reset()
    topic.segments(view.settle, 0)
    assert storage.requests["GET"] == 5, "a footer of each object"
    assert storage.most_at_once >= 3
    rows = PartitionReader(topic, view.topic.topic_id, 0, view=view).read(0, 5 * ROWS // 2)
    assert sum(each.count for each in rows) == 5 * ROWS // 2
    assert storage.requests["GET"] == 5 + 5, "and a slice"
    other, again = handle(root)
    view = read_view(other, topic_id(other))
    again.reset()
    rows = PartitionReader(other, view.topic.topic_id, 1, view=view).read(0, 5 * ROWS // 2)
    assert sum(each.count for each in rows) == 5 * ROWS // 2
    assert again.requests["GET"] == 5
    assert again.requests["LIST"] == again.requests["HEAD"] == 0


def test_an_index_of_an_object_is_read_once_by_a_process(root: Path) -> None:
    gets = []
    for _ in range(2):
        topic, storage = handle(root)
        view = read_view(topic, topic_id(topic))
        storage.reset()
        assert next(PartitionReader(topic, view.topic.topic_id, 0, view=view).read(250, 260)).count == 10
        gets.append(storage.requests["GET"])
    assert gets[1] == 1, "the frame alone"


def test_a_search_by_time_reads_an_index_once_and_a_frame(root: Path) -> None:
    for limit in (20, 8):
        topic, storage = handle(root)
        identity = topic_id(topic)
        storage.reset()
        found = find_time(topic, identity, 0, 1000 * (3 * ROWS + 10))
        assert found is not None
        assert found.offset == (3 * ROWS + 10) // 2
        assert sum(path.endswith(".segment") for path, _, _ in storage.gets()) <= limit
