"""What reads ask of storage where each look is a request: each byte once, in large blocks, and little besides."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.shared import read_ahead
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.read.unsettled import AT_ONCE, read_pending
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.view import read_view
from pyspark_commitlog.topic.write import staging
from tests.support.records import append, batch_of, each_record, read_partition
from tests.support.remote import RemoteStorage

CONFIG = {"inline.max.bytes": 0, "batch.size": 4096, "retention.ms": -1, "compression.type": "none"}
KIB = 2**10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 8 KiB in place of 8 MiB."""
    for name, size in {"BLOCK_BYTES": 8, "LONG_BLOCK_BYTES": 16, "_LONG_BYTES": 64, "FIRST_BYTES": 4}.items():
        monkeypatch.setattr(read_ahead, name, size * KIB)


def values(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number * 20 for number in range(first, first + count)]


def filled(
    root: Path, commits: int, rows: int, partitions: int = 1, settled: bool = True, **config: object
) -> TopicLog:
    """Return a handle on a topic of so many commits, as another process that pays for each look has it."""
    log = CommitLog(str(root))
    log.create_topic("t", partitions, {**CONFIG, **config})
    for number in range(commits):
        append(log.root.topic("t"), batch_of(values(number * rows, rows)))
    if settled:
        settle(log.root.topic("t"), log.root.topic("t").newest()[1].topic_id)
    return TopicLog(RemoteStorage(root), "t")


def requests(topic: TopicLog) -> RemoteStorage:
    storage = topic.storage
    assert isinstance(storage, RemoteStorage)
    return storage


def twice(fetched: list[tuple[str, int, int]]) -> int:
    ordered = sorted(fetched)
    return sum(max(0, end - next_[1]) for (path, _, end), next_ in pairwise(ordered) if path == next_[0])


def test_each_byte_of_a_segment_is_fetched_once_in_blocks(tmp_path: Path) -> None:
    topic = filled(tmp_path / "root", 10, 300)
    view = read_view(topic, topic.newest()[1].topic_id)
    reader, storage = PartitionReader(topic, view.topic.topic_id, 0, view=view), requests(topic)
    storage.reset()
    assert sum(rows.count for rows in reader.read(0, 3000)) == 3000
    size = view.settle.partition(0).active.length
    assert sum(end - start for _, start, end in storage.gets(".log")) == size
    assert twice(storage.gets(".log")) == 0
    assert storage.requests["GET"] <= 1.01 * size / (8 * KIB) + 1
    assert storage.requests["LIST"] == storage.requests["HEAD"] == 0
    assert not storage.gets(".index"), "of all of a segment nobody asks where a record lies"


def test_part_of_a_segment_takes_its_index_and_nothing_twice(tmp_path: Path) -> None:
    topic = filled(tmp_path / "root", 10, 300)
    view = read_view(topic, topic.newest()[1].topic_id)
    reader, storage = PartitionReader(topic, view.topic.topic_id, 0, view=view), requests(topic)
    storage.reset()
    assert sum(rows.count for rows in reader.read(1000, 1600)) == 600
    assert len(storage.gets(".index")) <= 2
    assert twice(storage.gets(".log")) == 0, "the frame that bears the index out is the first that is read"
    share = view.settle.partition(0).active.length * 600 / 3000
    assert sum(end - start for _, start, end in storage.gets(".log")) <= share + 3 * 8 * KIB


def test_a_look_at_one_record_fetches_little(tmp_path: Path) -> None:
    topic = filled(tmp_path / "root", 10, 300)
    view = read_view(topic, topic.newest()[1].topic_id)
    reader, storage = PartitionReader(topic, view.topic.topic_id, 0, view=view), requests(topic)
    storage.reset()
    assert next(reader.read(1000, 3000, careful=True)).count
    assert sum(end - start for _, start, end in storage.gets(".log")) <= 4 * 4 * KIB, "a frame, and what comes with it"
    storage.reset()
    reader.frame_at(2000)
    assert len(storage.gets(".log")) <= 3


def test_files_of_several_commits_are_fetched_at_the_same_time(tmp_path: Path) -> None:
    """Chunks that are not settled: entries are read several at a time, and the chunks that they name."""
    filled(tmp_path / "root", 60, 5, settled=False)
    topic = TopicLog(RemoteStorage(tmp_path / "root", seconds=0.01), "t")
    assert [record.value for record in read_partition(topic, 0)] == values(0, 300)
    assert requests(topic).most_at_once >= 4
    assert len(requests(topic).gets(".chunk")) == 60


def test_extents_that_follow_one_another_in_a_chunk_are_fetched_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task flushes its frames group by group."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 5 * KIB)
    monkeypatch.setattr(staging, "GATHER_BYTES", KIB)
    topic = filled(tmp_path / "root", 1, 2000, settled=False)
    view, storage = read_view(topic, topic.newest()[1].topic_id), requests(topic)
    assert len(topic.extents(view.newest)) > 20
    reader = PartitionReader(topic, view.topic.topic_id, 0, view=view)
    storage.reset()
    assert sum(rows.count for rows in reader.read(0, 2000)) == 2000
    size = sum(end - start for _, start, end in storage.gets(".chunk"))
    assert len(storage.gets(".chunk")) <= size / (16 * KIB) + 1, "long blocks, none that ends with an extent"
    assert twice(storage.gets(".chunk")) == 0


def test_rows_of_few_columns_keep_no_block_of_the_file(tmp_path: Path) -> None:
    """Who holds the keys of a partition (a table, a cache) must not hold its values."""
    topic = filled(tmp_path / "root", 5, 2000)
    view = read_view(topic, topic.newest()[1].topic_id)
    reader = PartitionReader(topic, view.topic.topic_id, 0, ("value",), view)
    size = view.settle.partition(0).active.length
    tracemalloc.start()
    try:
        held = list(reader.read(0, 10_000))
        kept, _ = tracemalloc.get_traced_memory()  # what was fetched are bytes of Python's
    finally:
        tracemalloc.stop()
    assert sum(rows.count for rows in held) == 10_000
    assert kept < size / 2


@pytest.mark.parametrize("inline", [0, 65_536])
def test_an_unsettled_commit_is_a_request_for_its_entry_and_one_for_its_chunk(tmp_path: Path, inline: int) -> None:
    topic = filled(tmp_path / "root", 64, 5, settled=False, **{"inline.max.bytes": inline})
    view, storage = read_view(topic, topic.newest()[1].topic_id), requests(topic)
    reader = PartitionReader(topic, view.topic.topic_id, 0, view=view)
    storage.reset()
    assert sum(rows.count for rows in reader.read(0, 320)) == 320
    entries = [path for path, _, _ in storage.gets(".json") if "/journal/" in path]
    assert len(entries) <= 64 + 7, "those in order, and the few that the search for the first one looked at"
    assert len(storage.gets(".chunk")) == (0 if inline else 64)
    assert storage.requests["LIST"] == 0
    assert storage.requests["HEAD"] <= 10, "whether entries are settled meanwhile is asked once for many"
    assert storage.requests["GET"] <= len(entries) + len(storage.gets(".chunk")) + 12


def test_staged_extents_of_two_blocks_cost_what_as_much_of_a_segment_does(tmp_path: Path) -> None:
    """Each has an entry, which is a request, too: so the extent is one."""
    topic = filled(tmp_path / "root", 30, 100, settled=False)
    view, storage = read_view(topic, topic.newest()[1].topic_id), requests(topic)
    reader = PartitionReader(topic, view.topic.topic_id, 0, view=view)
    storage.reset()
    assert sum(rows.count for rows in reader.read(0, 3000)) == 3000
    chunks = storage.gets(".chunk")
    assert len(chunks) == 30
    size = sum(end - start for _, start, end in chunks)
    assert 15 * KIB <= size / 30 <= 20 * KIB, f"{size}"
    search = 20
    assert storage.requests["GET"] <= size / (8 * KIB) * 1.01 + search


def test_the_search_for_an_entry_is_bounded(tmp_path: Path) -> None:
    topic = filled(tmp_path / "root", 200, 1, settled=False)
    view, storage = read_view(topic, topic.newest()[1].topic_id), requests(topic)
    reader = PartitionReader(topic, view.topic.topic_id, 0, view=view)
    storage.reset()
    reader.frame_at(123)
    assert len([path for path, _, _ in storage.gets(".json") if "/journal/" in path]) <= 8 + 1


def test_a_commit_that_is_settled_and_collected_meanwhile_is_read_from_its_segment(tmp_path: Path) -> None:
    """O8: entries that were read ahead count only if they are unsettled afterwards."""
    root = tmp_path / "root"
    topic = filled(root, 40, 3, settled=False, **{"file.delete.delay.ms": 0})
    got, log = [], CommitLog(str(root))
    for number, record in enumerate(each_record(topic, 0)):
        got.append(record.value)
        if number in (10, 70):
            log.topic("t").maintain()
    assert got == values(0, 120)


def test_what_waits_to_be_settled_is_read_several_at_a_time(tmp_path: Path) -> None:
    filled(tmp_path / "root", 100, 1, settled=False)
    topic = TopicLog(RemoteStorage(tmp_path / "root", seconds=0.005), "t")
    stored, state = topic.newest()
    _, settled = topic.settled(state.topic_id)
    requests(topic).reset()
    pending = read_pending(topic, settled, state, stored, lambda: False)
    assert [entry.sequence for entry in pending] == list(range(2, 102))
    assert requests(topic).most_at_once >= 4
    assert requests(topic).requests["GET"] == 99
    requests(topic).reset()
    assert len(read_pending(topic, settled, state, stored, lambda: True)) == 1
    assert requests(topic).requests["GET"] == 1, "no more than is wanted at first"
    assert AT_ONCE <= 64


def test_what_waits_to_be_settled_is_kept_without_the_state_of_the_topic(tmp_path: Path) -> None:
    """Each entry says all that is known of the topic: thousands of them at once took gigabytes."""
    topic = filled(tmp_path / "root", 20, 1, settled=False)
    stored, state = topic.newest()
    _, settled = topic.settled(state.topic_id)
    pending = read_pending(topic, settled, state, stored, lambda: False)
    assert len(pending) == 20
    assert [entry.entry.body for entry in pending if entry.entry is not None] == [{}] * 20
