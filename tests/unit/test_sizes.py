"""Stored bytes of a range: by segments, index entries and extents."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.index import OffsetEntry
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.lookup.sizes import StoredSizes, Stretch, by_index, bytes_between, reached
from pyspark_commitlog.topic.read.frame_bounds import FrameBounds
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of

THREE = [Stretch(0, 10, 1000), Stretch(10, 30, 1000), Stretch(30, 31, 5000)]


def test_bytes_lie_evenly_in_a_stretch() -> None:
    assert bytes_between(THREE, 0, 31) == 7000
    assert bytes_between(THREE, 5, 20) == 500 + 500
    assert bytes_between(THREE, 31, 40) == 0


@pytest.mark.parametrize(
    ("start", "budget", "wanted"),
    [(0, 99, 0), (0, 100, 1), (0, 1000, 10), (0, 1049, 10), (0, 1050, 11), (5, 1000, 20), (29, 5000, 30), (29, 5050, 31), (0, 10**6, 31)],
)  # fmt: skip
def test_a_budget_reaches_as_far_as_whole_records_fit(start: int, budget: int, wanted: int) -> None:
    assert reached(THREE, start, budget) == wanted


def test_an_index_tells_where_the_bytes_of_a_segment_lie() -> None:
    segment = Stretch(100, 200, 10_000)
    pieces = by_index(segment, [OffsetEntry(110, 9000), OffsetEntry(190, 9500)])
    assert pieces == [Stretch(100, 110, 9000), Stretch(110, 190, 500), Stretch(190, 200, 500)]
    assert by_index(segment, []) == [segment]
    assert by_index(segment, [OffsetEntry(120, 5000), OffsetEntry(110, 6000)]) == [segment]
    assert by_index(segment, [OffsetEntry(99, 10), OffsetEntry(150, 10_001)]) == [segment]


def fill(log: CommitLog, count: int, size: int, partition: int = 0) -> None:
    """Append values of a size, which don't compress."""
    append(
        log.root.topic("t"), batch_of([bytes([i % 256]) * size for i in range(count)], partition=[partition] * count)
    )


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """Return a log with a topic whose frames hold some ten records."""
    log = CommitLog(f"{tmp_path}/root")
    log.create_topic("t", 2, {"compression.type": "none", "batch.size": 10_000, "segment.bytes": 100_000})
    return log


def sizes(topic: TopicLog) -> StoredSizes:
    """Return what is known now."""
    found = StoredSizes(topic, topic.newest()[1].topic_id)
    found.look()
    return found


@pytest.mark.parametrize("settled", [False, True])
def test_the_bytes_of_a_partition_are_those_of_its_files(log: CommitLog, settled: bool) -> None:
    for _ in range(3):
        fill(log, 200, 1000)
        fill(log, 50, 100, partition=1)
        if settled:
            log.topic("t").maintain()
    known = sizes(log.root.topic("t"))
    whole = known.estimate_bytes(0, 0, 600)
    assert 600_000 < whole < 800_000  # frames and their schemas take an eighth
    assert known.estimate_bytes(0, 100, 300) == pytest.approx(whole / 3, rel=0.05)
    assert 15_000 < known.estimate_bytes(1, 0, 150) < 30_000
    assert known.reached(0, 0, 600, whole // 6) == pytest.approx(100, abs=10)
    assert known.reached(0, 590, 600, 10**9) == 600


def test_the_index_finds_a_cut_where_records_differ_in_size(log: CommitLog) -> None:
    """One segment: a hundred large records, a thousand small ones behind them."""
    log.topic("t").alter({"segment.bytes": 10**7})
    fill(log, 100, 10_000)
    fill(log, 1000, 10)
    log.topic("t").maintain()
    known = sizes(log.root.topic("t"))
    assert 40 <= known.reached(0, 0, 1100, 500_000) <= 50  # less than 50, with their frames; evenly it would be 450


def test_what_was_read_once_is_not_read_again(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 10, 100)
    fill(log, 10, 100)
    topic = log.root.topic("t")
    known = sizes(topic)
    read, numbers = topic.journal.read, list[int]()

    def noted(sequence: int) -> object:
        numbers.append(sequence)
        return read(sequence)

    fill(log, 10, 100)
    monkeypatch.setattr(topic.journal, "read", noted)
    newest = topic.newest()[0].sequence
    numbers.clear()
    known.look()
    assert [number for number in numbers if number <= newest] == [newest]
    assert known.estimate_bytes(0, 0, 30) > 3000


def test_what_is_settled_is_not_counted_in_its_chunk_too(log: CommitLog, tmp_path: Path) -> None:
    """Partition 1 can't be settled, so the entry stays; partition 0 lies in a segment."""
    log.topic("t").alter({"inline.max.bytes": 0})
    append(log.root.topic("t"), batch_of([b"x" * 1000] * 20, partition=[0] * 10 + [1] * 10))
    before = sizes(log.root.topic("t")).estimate_bytes(0, 0, 10)
    (chunk,) = tmp_path.rglob("*.chunk")
    damaged = bytearray(chunk.read_bytes())
    damaged[-10] ^= 1
    chunk.write_bytes(bytes(damaged))
    with pytest.raises(CorruptionError):
        log.topic("t").maintain()
    topic = log.root.topic("t")
    assert [topic.settled(topic.newest()[1].topic_id)[1].partition(p).end_offset for p in (0, 1)] == [10, 0]
    assert sizes(topic).estimate_bytes(0, 0, 10) == pytest.approx(before, rel=0.1)


def test_a_topic_that_is_gone_weighs_nothing(log: CommitLog) -> None:
    fill(log, 10, 100)
    topic = log.root.topic("t")
    known = sizes(topic)
    log.topic("t").delete()
    known.look()
    assert known.estimate_bytes(0, 0, 10) == 0


# --- frames -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [False, True])
def test_a_frame_is_found_by_each_of_its_offsets(log: CommitLog, settled: bool) -> None:
    fill(log, 100, 1000)
    if settled:
        log.topic("t").maintain()
    topic = log.root.topic("t")
    wanted = OffsetRange("t", topic.newest()[1].topic_id, 0, 0, 100)
    frame_of = FrameBounds(lambda name: topic).of(wanted)
    found = [frame_of(offset) for offset in range(100)]
    assert all(frame is not None and frame[0] <= offset < frame[1] for offset, frame in enumerate(found))
    borders = sorted({border for frame in found if frame is not None for border in frame})
    assert (borders[0], borders[-1]) == (0, 100)
    assert 5 < len(borders) < 30


def test_lookups_end_with_their_budget_and_what_is_gone_is_unknown(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 100, 1000)
    topic = log.root.topic("t")
    wanted = OffsetRange("t", topic.newest()[1].topic_id, 0, 0, 100)
    monkeypatch.setattr("pyspark_commitlog.topic.read.frame_bounds.MAX_LOOKUPS", 2)
    frame_of = FrameBounds(lambda name: topic).of(wanted)
    assert [frame_of(offset) is None for offset in (0, 1, 50, 50, 99)] == [False, False, False, False, True]
    log.topic("t").delete_records({0: 60})
    assert FrameBounds(lambda name: log.root.topic(name)).of(wanted)(10) is None
    log.topic("t").delete()
    assert FrameBounds(lambda name: log.root.topic(name)).of(wanted)(70) is None
