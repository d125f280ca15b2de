"""What a write task stages: one chunk, written piece by piece, each piece grouped by partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.local_files import LocalOutputFile
from pyspark_commitlog.storage.shared.pool import HelperThreads
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import staging
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.partitioner import Partitioner
from pyspark_commitlog.topic.write.staging import BATCH_BYTES, Encode, Staged, Stager, TopicStagers
from tests.support.records import batch_of, read_partition, stage

PARTITIONS = 3
PIECE_BYTES = 2**16
LONG_PIECE_BYTES = 2**17


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    """A topic whose tasks hold 64 KiB of finished frames at most."""
    monkeypatch.setattr(staging, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(staging, "LONG_PIECE_BYTES", LONG_PIECE_BYTES)
    monkeypatch.setattr(staging, "GATHER_BYTES", 2**14)
    monkeypatch.setattr(staging, "BUFFER_BYTES", 2**16)
    log = CommitLog(tmp_path)
    log.create_topic("t", partitions=PARTITIONS, config={"batch.size": 2**14, "compression.type": "none"})
    return log.root.topic("t")


def records(count: int) -> list[pa.RecordBatch]:
    """Return records of about 1 KiB that tell their number, in batches of 50, partition after partition."""
    noise = np.random.default_rng(1).bytes(1000)
    return [
        batch_of([b"%d " % i + noise for i in part], partition=[i % PARTITIONS for i in part])
        for part in (range(first, min(first + 50, count)) for first in range(0, count, 50))
    ]


def numbers(topic: TopicLog, partition: int) -> list[int]:
    """Return the numbers of a partition's records, in offset order."""
    found = read_partition(topic, partition)
    assert [record.offset for record in found] == list(range(len(found)))
    return [int((record.value or b"").split()[0]) for record in found]


def test_a_large_task_stages_one_chunk_of_many_extents_and_keeps_the_order(topic: TopicLog) -> None:
    staged = stage(topic, *records(1000))
    assert len(staged.extents) >= 4 * PARTITIONS
    assert staged.rows == 1000
    commit(topic, staged.topic_id, [staged])
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_the_extents_of_a_chunk_settle_in_order(topic: TopicLog, tmp_path: Path) -> None:
    staged = stage(topic, *records(1000))
    commit(topic, staged.topic_id, [staged])
    CommitLog(tmp_path).topic("t").maintain()
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_two_large_tasks_keep_their_order_one_behind_the_other(topic: TopicLog) -> None:
    first, second = stage(topic, *records(600)), stage(topic, *records(500))
    commit(topic, first.topic_id, [first, second])
    for partition in range(PARTITIONS):
        wanted = [*range(partition, 600, PARTITIONS), *range(partition, 500, PARTITIONS)]
        assert numbers(topic, partition) == wanted


def test_the_extents_of_a_chunk_lie_one_after_the_other_and_fill_it(topic: TopicLog) -> None:
    staged = stage(topic, *records(1000))
    assert staged.chunk is not None
    ends = [extent.position + extent.length for extent in staged.extents]
    assert [extent.position for extent in staged.extents] == [0, *ends[:-1]]
    assert ends[-1] == staged.chunk.length


class Watched(LocalStorage):
    """Remembers how many bytes each write had."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writes: list[int] = []

    def create(self, path: str) -> LocalOutputFile:
        """Return a file that tells its writes."""
        output, writes = super().create(path), self.writes
        write = output.write

        def watched(*pieces: bytes | memoryview | pa.Buffer) -> None:
            writes.append(sum(len(piece) for piece in pieces))
            write(*pieces)

        output.write = watched  # type: ignore[method-assign]
        return output


class WatchedWithoutAppend(Watched):
    """As an object store."""

    can_append = False  # type: ignore[assignment]


def test_finished_frames_are_written_before_they_are_many(topic: TopicLog, tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    stage(TopicLog(storage, "t"), *records(1000))
    assert len(storage.writes) >= 4
    assert max(storage.writes) <= PIECE_BYTES + 2**15  # and the frame that made them as many


def test_without_append_more_is_written_together(topic: TopicLog, tmp_path: Path) -> None:
    """Each extent that is read is a request there."""
    storage = WatchedWithoutAppend(tmp_path)
    stage(TopicLog(storage, "t"), *records(1000))
    assert PIECE_BYTES + 2**15 < max(storage.writes) <= LONG_PIECE_BYTES + 2**15


def test_a_task_that_is_given_up_leaves_nothing(topic: TopicLog, tmp_path: Path) -> None:
    stager = stager_of(topic)
    for batch in records(1000):
        stager.add(batch)
    staged = tmp_path / topic.paths(topic.newest()[1].topic_id).staged
    assert len(list(staged.iterdir())) == 1
    stager.discard()
    assert list(staged.iterdir()) == []


def test_a_chunk_stays_where_its_task_is_discarded_behind_its_end(topic: TopicLog) -> None:
    stager = stager_of(topic)
    for batch in records(1000):
        stager.add(batch)
    staged = stager.finish()
    stager.discard()
    assert staged is not None
    commit(topic, staged.topic_id, [staged])
    assert numbers(topic, 0) == list(range(0, 1000, PARTITIONS))


def test_a_task_of_few_records_stages_no_chunk(topic: TopicLog) -> None:
    staged = stage(topic, batch_of([b"a", b"b"]))
    assert staged.chunk is None
    assert staged.rows == 2


def test_what_a_large_task_has_left_goes_to_its_chunk_however_small(topic: TopicLog) -> None:
    staged = stage(topic, *records(1000), batch_of([b"1000 last"], partition=[1]))
    assert not staged.inline
    commit(topic, staged.topic_id, [staged])
    assert numbers(topic, 1)[-1] == 1000


def test_a_task_without_records_stages_nothing(topic: TopicLog) -> None:
    for batches in ([batch_of([])], []):
        stager = stager_of(topic)
        for batch in batches:
            stager.add(batch)
        assert stager.finish() is None


def stager_of(topic: TopicLog, aside: Callable[[Encode], Encode] | None = None) -> Stager:
    """Return a task's stager, with another thread to encode if one is told."""
    stored, state = topic.newest()
    config, choose = topic.config(state), Partitioner(state.partitions, "sticky", 2**14, 0)
    return Stager(topic.storage, topic.paths(state.topic_id), state, stored.sequence, choose, config, aside=aside)


def stage_aside(topic: TopicLog, aside: Callable[[Encode], Encode], *batches: pa.RecordBatch) -> Staged:
    """Stage with another thread to encode."""
    stager = stager_of(topic, aside)
    for batch in batches:
        stager.add(batch)
    staged = stager.finish()
    assert staged is not None
    return staged


def test_frames_that_another_thread_encodes_keep_their_order_and_their_chunk(
    topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ASIDE_BYTES", 2**13)  # the last frames are smaller, and encoded by this thread
    encoder = HelperThreads("encoder", 8)
    staged = stage_aside(topic, encoder.begin, *records(1000))
    assert len(staged.extents) >= 4 * PARTITIONS
    commit(topic, staged.topic_id, [staged])
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_another_thread_is_a_few_frames_behind_at_most(topic: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ASIDE_BYTES", 1)
    monkeypatch.setattr(staging, "PIECE_BYTES", 2**18)
    begun, most = 0, 0

    def aside(encode: Encode) -> Encode:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)

        def wait() -> staging.frame.Pieces:
            nonlocal begun
            begun -= 1
            return encode()

        return wait

    stage_aside(topic, aside, *records(1000))
    assert (begun, most) == (0, staging.FRAMES_ASIDE + 1)


def test_what_fails_in_another_thread_fails_the_task(topic: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ASIDE_BYTES", 1)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no frame")

    monkeypatch.setattr(frame_rows, "encode", fail)
    encoder = HelperThreads("encoder", 8)
    with pytest.raises(MemoryError, match="no frame"):
        stage_aside(topic, encoder.begin, *records(100))


# --- several topics of one task -----------------------------------------------------------------------------

HELD_BYTES = 2**17
TOPICS = [f"t{number}" for number in range(8)]


class Together:
    """What a task stages for many topics of one partition."""

    def __init__(self, root: Path) -> None:
        self.log = CommitLog(root)
        self.begun: dict[str, Stager] = {}
        self.stagers = TopicStagers(self._begin)

    def _begin(self, name: str) -> Stager:
        self.log.create_topic(name, config={"batch.size": 2**14, "compression.type": "none"})
        self.begun[name] = stager_of(self.log.root.topic(name))
        return self.begun[name]

    @property
    def held(self) -> int:
        """Return what all hold."""
        return sum(stager.held for stager in self.begun.values())

    def put(self, name: str, batch: pa.RecordBatch) -> None:
        """Give the task records of a topic, all of one partition."""
        self.stagers.add(name, batch.set_column(1, "partition", pa.array([0] * batch.num_rows, pa.int32())))


@pytest.fixture
def together(topic: TopicLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Together:
    """A task whose topics hold 128 KiB together at most."""
    monkeypatch.setattr(staging, "HELD_BYTES", HELD_BYTES)
    return Together(tmp_path)


def test_the_topics_of_a_task_hold_so_much_together_at_most(together: Together) -> None:
    for number, batch in enumerate(records(2000)):
        for name in TOPICS:
            together.put(name, batch.slice(number % 7, 4))
            assert together.held <= HELD_BYTES
    for staged in together.stagers.finish():
        commit(together.log.root.topic(staged.topic), staged.topic_id, [staged])
    wanted = [first + number % 7 + i for number, first in enumerate(range(0, 2000, 50)) for i in range(4)]
    assert {name: numbers(together.log.root.topic(name), 0) for name in TOPICS} == dict.fromkeys(TOPICS, wanted)


def test_a_topic_alone_is_bounded_by_itself(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "HELD_BYTES", 0)
    together.put("alone", records(50)[0])
    assert together.held > 0


def test_the_topic_that_holds_most_is_let_go_of_first(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "HELD_BYTES", 2**15)
    small = records(50)[0].slice(0, 2)
    together.put("small", small)
    for batch in records(1000):
        together.put("large", batch)
    large, rest = together.stagers.finish()
    assert large.chunk is not None
    assert (rest.chunk, rest.rows) == (None, 2)


def test_rows_that_come_one_by_one_count_with_what_a_batch_takes(together: Together) -> None:
    one = batch_of([b"1 "], partition=[0])
    for _ in range(HELD_BYTES // BATCH_BYTES):
        for name in TOPICS:
            together.put(name, one)
            assert together.held <= HELD_BYTES
    assert sum(len(stager._gathered) for stager in together.begun.values()) * BATCH_BYTES <= HELD_BYTES


def test_a_task_of_many_topics_that_is_given_up_leaves_nothing(together: Together, tmp_path: Path) -> None:
    for batch in records(1000):
        for name in TOPICS:
            together.put(name, batch)
    together.stagers.discard()
    assert [path for name in TOPICS for path in (tmp_path / "topics" / name).rglob("staged/*")] == []
