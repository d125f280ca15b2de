"""What a commit makes of a topic's newest state, planned without any storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_commitlog.errors import (
    OutcomeUnknownError,
    StagedExpiredError,
    StaleBatchError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.format.paths import chunk_name
from pyspark_commitlog.journal import Slot
from pyspark_commitlog.topic.state.topic_state import INLINE, ChunkRef, Extent, TopicState, WriterRow, Writers
from pyspark_commitlog.topic.write.commit import Batch, Committed, PlannedCommit, plan_commit
from pyspark_commitlog.topic.write.staging import Staged, StagedExtent
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction

STATE = TopicState("id of t", False, {}, log_start=(0, 0), log_end=(10, 20), created=1, staged_floor=5)
UNIQUE = "00000000-0000-4000-8000-000000000000"
SLOT = Slot(8, "write id")
CHUNK = ChunkRef(chunk_name(7, UNIQUE), 300, 1)
OTHER = ChunkRef(chunk_name(6, UNIQUE), 100, 2)


def task(
    *extents: tuple[int, int, int, int], chunk: ChunkRef | None = CHUNK, inline: bytes = b"", checksum: int | None = 3
) -> Staged:
    """Return what one task staged: (partition, position, length, rows) of each extent."""
    return Staged("t", "id of t", tuple(StagedExtent(*extent) for extent in extents), chunk, inline, checksum=checksum)


def batch(
    *staged: Staged,
    writer: Transaction | ProducerBatch | None = None,
    durable: bool = True,
    checksum: int | None = None,
) -> Batch:
    return Batch("t", staged, writer, durable, checksum)


def planned(state: TopicState, of: Batch, row: WriterRow | None = None) -> PlannedCommit:
    plan = plan_commit(state, of, row, SLOT)
    assert plan is not None
    return plan


def test_records_follow_the_newest_offsets_in_the_order_of_their_tasks() -> None:
    """I7: two extents of a partition from two tasks, and a partition that only one has."""
    plan = planned(STATE, batch(task((1, 0, 100, 4)), task((0, 0, 40, 2), (1, 40, 60, 3), chunk=OTHER)))
    assert plan.chunks == (CHUNK, OTHER)
    assert plan.extents == (
        Extent(0, 1, 0, 100, 4, base_offset=20),
        Extent(1, 0, 0, 40, 2, base_offset=10),
        Extent(1, 1, 40, 60, 3, base_offset=24),
    )
    assert plan.state == replace(STATE, log_end=(12, 27))
    assert plan.committed == Committed(SLOT.sequence, 9, {0: (10, 12), 1: (20, 27)})
    assert plan.partitions == {0, 1}


def test_inline_frames_of_several_tasks_lie_one_after_the_other() -> None:
    """The entry has the tasks' bytes in their order: positions go on, and no chunk is named."""
    first, second = task((0, 0, 5, 1), chunk=None, inline=b"12345"), task((0, 0, 3, 1), chunk=None, inline=b"678")
    plan = planned(STATE, batch(first, second))
    assert plan.chunks == ()
    assert plan.extents == (Extent(INLINE, 0, 0, 5, 1, 10), Extent(INLINE, 0, 5, 3, 1, 11))


def test_partitions_without_records_are_not_among_those_committed_to() -> None:
    """What is damaged elsewhere is nothing to this commit."""
    assert planned(STATE, batch(task((1, 0, 100, 4)))).partitions == {1}


@pytest.mark.parametrize(
    ("durable", "chunk", "before", "after"),
    [
        (False, CHUNK, None, SLOT.sequence),
        (False, CHUNK, 3, 3),
        (False, None, None, None),
        (True, CHUNK, None, None),
    ],
    ids=["the first", "an earlier one stays", "inline frames are in the synced entry", "acks above 0"],
)
def test_the_first_entry_whose_chunks_are_unsynced_is_marked(
    durable: bool, chunk: ChunkRef | None, before: int | None, after: int | None
) -> None:
    """R5: what the next commit with acks has to make durable."""
    state = replace(STATE, unsynced_from=before)
    plan = planned(state, batch(task((0, 0, 5, 1), chunk=chunk, inline=b"12345"), durable=durable))
    assert plan.state.unsynced_from == after


def test_a_repetition_plans_nothing() -> None:
    """R6, I5: by number for a transaction, by the range for a producer."""
    staged, row = task((0, 0, 40, 2)), WriterRow(7, 2, 4, 0, checksum=3)
    assert plan_commit(STATE, batch(staged, writer=Transaction("txn:a", 7), checksum=3), row, SLOT) is None
    assert plan_commit(STATE, batch(staged, writer=Transaction("txn:a", 8), checksum=3), row, SLOT) is not None
    sent = WriterRow(7, 2, 4, 0, epoch=1, ranges=((6, 7),))
    assert plan_commit(STATE, batch(staged, writer=ProducerBatch("producer:a", 1, 6, 7)), sent, SLOT) is None


def test_a_repetition_is_no_error_though_its_chunks_are_swept() -> None:
    """R1 after R6: what landed long ago is told as done, whatever became of the files of the second try."""
    swept = replace(STATE, staged_floor=100)
    row = WriterRow(7, 2, 4, 0, checksum=3)
    assert plan_commit(swept, batch(task((0, 0, 40, 2)), writer=Transaction("txn:a", 7), checksum=3), row, SLOT) is None


def test_a_chunk_below_the_floor_is_refused() -> None:
    """R1: the sweep may have removed it."""
    with pytest.raises(StagedExpiredError, match=CHUNK.name):
        plan_commit(replace(STATE, staged_floor=8), batch(task((0, 0, 40, 2))), None, SLOT)


def test_a_query_of_an_earlier_life_of_the_topic_is_refused() -> None:
    """R14: before anything that its number says."""
    state = replace(STATE, former_queries=("spark:q",))
    with pytest.raises(TopicChangedError, match="deleted and made again"):
        plan_commit(state, batch(task((0, 0, 40, 2)), writer=Transaction("spark:q", 7)), None, SLOT)


def test_an_older_number_is_refused() -> None:
    """R6: a checkpoint that was restored."""
    with pytest.raises(StaleBatchError, match="commits 6, but 7 is committed"):
        plan_commit(
            STATE, batch(task((0, 0, 40, 2)), writer=Transaction("txn:a", 6), checksum=3), WriterRow(7, 2, 4, 0), SLOT
        )


def test_a_batch_of_a_producer_whose_row_may_be_forgotten_is_unknown() -> None:
    """R6: it was tried first behind entry 3, and rows up to entry 4 may be gone."""
    state = replace(STATE, writers=Writers(forgotten=4))
    of = batch(task((0, 0, 40, 2)), writer=ProducerBatch("transient:a", 1, 6, 7, since=3))
    with pytest.raises(OutcomeUnknownError, match="landed"):
        plan_commit(state, of, None, SLOT)
    assert plan_commit(replace(state, writers=Writers(forgotten=3)), of, None, SLOT) is not None


def test_a_transaction_needs_checksums_of_what_is_staged() -> None:
    """Or other records under its number would not be noticed; a producer's numbers decide alone."""
    with pytest.raises(UsageError, match="checksum"):
        Batch.of("t", [task((0, 0, 40, 2), checksum=None)], Transaction("txn:a", 1), durable=True)
    assert Batch.of("t", [task((0, 0, 40, 2))], ProducerBatch("producer:a", 1, 0, 1), durable=True).checksum is None
    assert Batch.of("t", [task((0, 0, 40, 2))], Transaction("txn:a", 1), durable=True).checksum == 3
