"""What reads of segment objects ask of storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.format.index import OffsetEntry
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read import reader as reading
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.state.settle_state import Active, Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.view import View, read_view
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


def _flipped(data: pa.Buffer) -> pa.Buffer:
    damaged = bytearray(data)
    damaged[len(damaged) // 2] ^= 1
    return pa.py_buffer(bytes(damaged))


def _gone(data: pa.Buffer) -> pa.Buffer:
    raise FileNotFoundError


@pytest.mark.parametrize("spoiled", [_flipped, _gone])
def test_what_failed_once_is_asked_for_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, spoiled: Callable[[pa.Buffer], pa.Buffer]
) -> None:
    """The newest entries name it still: the second answer decides, not the first one once more."""
    topic, storage = handle(root)
    view = read_view(topic, topic_id(topic))
    topic.segments(view.settle, 0)
    fetch, times = storage.map, iter([spoiled])

    def map_(*at: Any) -> pa.Buffer:
        data = fetch(*at)
        return next(times, lambda data: data)(data) if data.size > 100 else data  # not an index

    monkeypatch.setattr(storage, "map", map_)
    rows = PartitionReader(topic, view.topic.topic_id, 0, view=view).read(0, 5 * ROWS // 2)
    assert sum(each.count for each in rows) == 5 * ROWS // 2
    assert next(times, None) is None, "the scene"


def test_an_index_that_is_damaged_ends_no_range_before_it_begins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, _ = handle(root)
    view = read_view(topic, topic_id(topic))
    reader = PartitionReader(topic, view.topic.topic_id, 0, view=view)
    segment = topic.holding(view.settle, 0, ROWS // 4)
    assert segment is not None
    monkeypatch.setattr(reading, "lookup_offset", lambda *_: OffsetEntry(ROWS // 4, 30))
    for until, taken in ((20, None), (30, None), (31, 31), (10**9, None)):
        monkeypatch.setattr(reading, "position_after", lambda *_, until=until: until)
        span, _ = reader._span_from(segment, segment.end_offset, ROWS // 4, ROWS // 4 + 1)
        begin = span.start - 30
        assert span.until == (None if taken is None else begin + taken)


def test_what_failed_once_where_an_index_led_is_asked_for_again(
    unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unlocked.create(1, {"batch.size": 1024, "index.interval.bytes": 1})
    append(topic, batch_of([b"%d" % number * 20 for number in range(ROWS)]))
    assert settle(topic, topic_id(topic)).records == ROWS
    reading_topic, storage = handle(Path(topic.storage.url))
    view = read_view(reading_topic, topic_id(reading_topic))
    span, named = PartitionReader(reading_topic, view.topic.topic_id, 0, view=view)._span_from(
        found(reading_topic, view), ROWS, ROWS // 2, ROWS
    )
    assert named is not None, "the scene"
    fetch, times = storage.map, iter([_gone])

    def map_(path: str, start: int, length: int) -> pa.Buffer:
        data = fetch(path, start, length)
        return next(times, lambda data: data)(data) if start == span.start else data

    monkeypatch.setattr(storage, "map", map_)
    rows = PartitionReader(reading_topic, view.topic.topic_id, 0, view=view).read(ROWS // 2, ROWS)
    assert sum(each.count for each in rows) == ROWS // 2
    assert next(times, None) is None, "the scene"


def found(topic: TopicLog, view: View) -> Sealed | Active:
    segment = topic.holding(view.settle, 0, ROWS // 2)
    return segment if segment is not None else view.settle.partition(0).active
