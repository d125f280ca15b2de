"""What a write task stages: chunks of bounded size, in order, each grouped by partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.log import staging
from pyspark_commitlog.log.commit import commit
from pyspark_commitlog.log.partitioner import Partitioner
from pyspark_commitlog.log.staging import Encode, Staged, Stager
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.process import Aside
from tests.support.records import batch_of, read_partition, stage_all

PARTITIONS = 3
TASK_BYTES = 2**18


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    """A topic whose tasks may hold 256 KiB only."""
    monkeypatch.setattr(staging, "TASK_BYTES", TASK_BYTES)
    monkeypatch.setattr(staging, "GATHER_BYTES", 2**14)
    monkeypatch.setattr(staging, "BUFFER_BYTES", 2**16)
    log = CommitLog(tmp_path)
    log.create_topic("t", partitions=PARTITIONS, config={"batch.size": 2**14, "compression.type": "none"})
    return log.topic("t")


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


def test_a_large_task_stages_several_chunks_and_keeps_the_order(topic: TopicLog) -> None:
    staged = stage_all(topic, *records(1000))
    assert len(staged) >= 4
    assert all(part.chunk is not None and part.chunk.length <= TASK_BYTES for part in staged)
    assert sum(part.rows for part in staged) == 1000
    commit(topic, staged[0].topic_id, staged)
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_several_chunks_of_a_task_settle_in_order(topic: TopicLog, tmp_path: Path) -> None:
    staged = stage_all(topic, *records(1000))
    commit(topic, staged[0].topic_id, staged)
    CommitLog(tmp_path).maintain("t")
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_two_large_tasks_keep_their_order_one_behind_the_other(topic: TopicLog) -> None:
    first, second = stage_all(topic, *records(600)), stage_all(topic, *records(500))
    commit(topic, first[0].topic_id, [*first, *second])
    for partition in range(PARTITIONS):
        wanted = [*range(partition, 600, PARTITIONS), *range(partition, 500, PARTITIONS)]
        assert numbers(topic, partition) == wanted


def test_a_chunk_holds_each_partition_in_one_piece(topic: TopicLog) -> None:
    for part in stage_all(topic, *records(1000)):
        assert part.chunk is not None
        assert [group.partition for group in part.groups] == sorted({group.partition for group in part.groups})
        ends = [group.position + group.length for group in part.groups]
        assert [group.position for group in part.groups] == [0, *ends[:-1]]
        assert ends[-1] == part.chunk.length


def test_a_task_of_few_records_stages_no_chunk(topic: TopicLog) -> None:
    (staged,) = stage_all(topic, batch_of([b"a", b"b"]))
    assert staged.chunk is None
    assert staged.rows == 2


def test_what_a_large_task_has_left_is_a_chunk_however_small(topic: TopicLog) -> None:
    staged = stage_all(topic, *records(1000), batch_of([b"1000 last"], partition=[1]))
    assert all(part.chunk is not None for part in staged)
    commit(topic, staged[0].topic_id, staged)
    assert numbers(topic, 1)[-1] == 1000


def test_a_task_without_records_stages_nothing(topic: TopicLog) -> None:
    assert stage_all(topic, batch_of([])) == ()
    assert stage_all(topic) == ()


def stage_aside(topic: TopicLog, aside: Callable[[Encode], Encode], *batches: pa.RecordBatch) -> tuple[Staged, ...]:
    """Stage with another thread to encode."""
    stored, state = topic.newest()
    config, choose = topic.config(state), Partitioner(state.partitions, "sticky", 2**14, 0)
    stager = Stager(
        topic.storage, topic.paths(state.topic_id), state, stored.sequence, choose, config, aside=aside
    )  # fmt: skip
    for batch in batches:
        stager.add(batch)
    return stager.finish()


def test_frames_that_another_thread_encodes_keep_their_order_and_their_chunk(
    topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ASIDE_BYTES", 2**13)  # the last frames are smaller, and encoded by this thread
    encoder = Aside("encoder")
    staged = stage_aside(topic, encoder.begin, *records(1000))
    encoder.end()
    assert len(staged) >= 4
    assert all(part.chunk is not None and part.chunk.length <= TASK_BYTES for part in staged)
    commit(topic, staged[0].topic_id, staged)
    for partition in range(PARTITIONS):
        assert numbers(topic, partition) == list(range(partition, 1000, PARTITIONS))


def test_another_thread_is_a_few_frames_behind_at_most(topic: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ASIDE_BYTES", 1)
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

    monkeypatch.setattr(staging.columns, "encode", fail)
    encoder = Aside("encoder")
    with pytest.raises(MemoryError, match="no frame"):
        stage_aside(topic, encoder.begin, *records(100))
    encoder.end()
