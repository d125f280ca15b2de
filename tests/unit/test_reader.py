"""Reads over several segments, chunks and entries, against the list of what was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.format.columns.untyped import SCHEMA, SPARSE_SCHEMA
from pyspark_commitlog.format.frame import SPARSE, Identity, Times
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.segments.frames import Located, Span, check
from pyspark_commitlog.topic.segments.rewrite import rows_of
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> TopicLog:
    """A topic with six sealed segments, an active one, a chunk and an inline commit behind it."""
    log = CommitLog(str(tmp_path_factory.mktemp("root")))
    log.create_topic("t", 1, {"segment.bytes": 4096, "inline.max.bytes": 2000, "compression.type": "none"})
    topic = log.root.topic("t")
    for first in range(0, 210, 30):
        append(topic, batch_of(values(first, first + 30)))
        log.topic("t").maintain()
    append(topic, batch_of(values(210, 240)))
    append(topic, batch_of(values(240, 245)))
    return topic


def values(first: int, last: int) -> list[bytes]:
    return [b"value-%06d" % n * 10 for n in range(first, last)]


def test_every_segment_chunk_and_entry_is_read_in_order(topic: TopicLog) -> None:
    found = read_partition(topic, 0)
    assert [record.offset for record in found] == list(range(245))
    assert [record.value for record in found] == values(0, 245)


def test_the_topic_has_the_parts_this_is_about(topic: TopicLog) -> None:
    _, state = topic.newest()
    _, settled = topic.settled(state.topic_id)
    row = settled.partition(0)
    assert len(topic.sealed(settled, 0)) >= 3
    assert row.active.length > 0
    assert row.end_offset == 210


@pytest.mark.parametrize("start", [0, 1, 29, 30, 31, 59, 60, 100, 149, 150, 209, 210, 211, 239, 240, 244])
@pytest.mark.parametrize("length", [1, 7, 30, 61, 245])
def test_any_range_is_cut_exactly(topic: TopicLog, start: int, length: int) -> None:
    end = min(start + length, 245)
    found = read_partition(topic, 0, start, end)
    assert [(record.offset, record.value) for record in found] == list(enumerate(values(start, end), start))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 246), (300, 400)])
def test_a_range_outside_the_log_is_refused_with_both_bounds(topic: TopicLog, start: int, end: int) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="log start offset is 0 and high watermark 245"):
        read_partition(topic, 0, start, end)


def test_a_frame_that_holds_other_rows_than_its_header_says_is_damaged(topic: TopicLog) -> None:
    """The offsets of all rows behind it would be wrong."""
    topic_id = topic.newest()[1].topic_id
    batch = pa.RecordBatch.from_pydict(
        {"key": [None] * 3, "value": [b"x"] * 3, "headers": [None] * 3, "timestamp": [0] * 3}, schema=SCHEMA
    )
    identity = Identity(topic_id, 0, "none")
    data = codec.encode(untyped.encode(batch, "none"), rows=5, times=Times(0, 0), identity=identity)
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    reader = PartitionReader(topic, topic_id, 0)
    with pytest.raises(CorruptionError, match="frame at offset 0 holds 3 rows, expected 5"):
        list(reader._decode(Located(frame, 0, 0), Span("x.log", 0, frame.length, 0, 0, topic_id, 0), 0, 5))


@pytest.mark.parametrize("names", [None, ("value",)])
@pytest.mark.parametrize("deltas", [(2, 0, 1), (0, 0, 1), (-1, 0, 1), (0, 1, 5), (-2, -1, 5)])
def test_offsets_in_a_sparse_frame_that_do_not_ascend_or_lie_beside_it_are_damage(
    topic: TopicLog, deltas: tuple[int, ...], names: tuple[str, ...] | None
) -> None:
    """Rows came out of order, or were passed over without a word; and so they would be compacted."""
    topic_id = topic.newest()[1].topic_id
    batch = pa.RecordBatch.from_pydict(
        {"key": [None] * 3, "value": [b"x"] * 3, "headers": [None] * 3, "timestamp": [0] * 3, "offsetDelta": deltas},
        schema=SPARSE_SCHEMA,
    )
    identity = Identity(topic_id, 0, "none", SPARSE, base_offset=0)
    data = codec.encode(untyped.encode(batch, "none"), rows=5, times=Times(0, 0), identity=identity)
    frame = codec.parse(pa.py_buffer(data), 0)
    assert frame is not None
    span, located = Span("x.log", 0, frame.length, 0, 0, topic_id, 0), Located(frame, 0, 0)
    with pytest.raises(
        CorruptionError, match="frame at offset 0: the offset deltas of its rows do not ascend between 0 and 4"
    ):
        list(PartitionReader(topic, topic_id, 0, names)._decode(located, span, 0, 5))
    with pytest.raises(
        CorruptionError, match="frame at offset 0: the offset deltas of its rows do not ascend between 0 and 4"
    ):
        rows_of(frame, check(located, span), names)


def test_small_commits_that_are_read_in_order_take_one_look_at_each_entry(tmp_path: Path) -> None:
    """Their frames come with the entry, and the next entry is the one that is looked at first."""
    looks: Counter[str] = Counter()

    def count(name: str, path: str, when: str) -> None:
        looks[name] += when == "before" and "/journal/" in path

    log = CommitLog.on(FaultyStorage(LocalStorage(str(tmp_path)), count))
    log.create_topic("t", 1)
    topic = log.root.topic("t")
    for n in range(100):
        append(topic, batch_of([b"%d" % n]))
    looks.clear()
    assert [record.value for record in read_partition(topic, 0)] == [b"%d" % n for n in range(100)]
    assert looks["read"] <= 8  # those that the search for the first one passed
    assert looks["fetch"] <= 110
