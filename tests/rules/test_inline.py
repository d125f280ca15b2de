"""Inline frames: those of small commits travel inside the journal entry."""

from __future__ import annotations

import pytest

from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write import commit as commit_module
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import batch_of, read_topic, stage
from tests.support.world import World


@pytest.mark.parametrize(("kind", "stored"), [("CreateTime", 0), ("LogAppendTime", 1)])
def test_many_small_tasks_together_go_to_one_chunk(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, stored: int
) -> None:
    """An entry's inline bytes are bounded: the committer stages what is beyond, as frames of that chunk."""
    monkeypatch.setattr(commit_module, "MAX_INLINE_BYTES", 2000)
    topic = world.create(2, {"message.timestamp.type": kind, "retention.ms": -1})
    batches = [[batch_of([b"%d-%d" % (task, p)], partition=[p]) for p in (0, 1)] for task in range(3)]
    staged = [stage(topic, *batch) for batch in batches]
    done = commit(topic, staged[0].topic_id, staged, Transaction("w", 1))
    entry = topic.journal.read(done.sequence or 0).entry
    assert len(topic.chunks(entry)) == 1
    expected = [b"0-0", b"1-0", b"2-0", b"0-1", b"1-1", b"2-1"]
    before = read_topic(topic)
    assert [record.value for record in before] == expected
    assert {record.timestamp_type for p in (0, 1) for record in world.log().topic("t").read(p, 0, 9)} == {stored}
    settle(topic, staged[0].topic_id)
    assert read_topic(topic) == before
