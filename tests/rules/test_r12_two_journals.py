"""R12: first the newest logical entry, then the newest settle entry; what is visible is the former's."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.view import read_view
from tests.support.records import append, batch_of, read_topic
from tests.support.world import DELAY_MS, Recorder, World, many, once


def test_what_settles_between_the_two_reads_is_not_visible_yet(world: World) -> None:
    """R12, I1: L is read; a commit lands and settles; S is read and has more than L: L's range is what counts."""
    topic = world.create()
    append(topic, batch_of(many(3)))
    world.maintain()

    def more() -> None:
        append(world.handle(), batch_of([b"later"]))
        world.maintain()

    slow = world.handle(on_path("/settle", "names", once(more)))
    topic_id = topic.newest()[1].topic_id
    reader = PartitionReader(slow, topic_id, 0)
    assert sum(rows.count for rows in reader.read(0, 3)) == 3
    with pytest.raises(OffsetOutOfRangeError, match="high watermark 3"):
        list(reader.read(0, 4))
    view = read_view(world.handle(on_path("/settle", "names", once(more))), topic_id)
    assert view.topic.log_end == (4,)
    assert view.settle.partition(0).end_offset == 5


@pytest.mark.parametrize("reads", range(1, 18))
def test_settled_and_collected_at_any_point_of_a_read(world: World, reads: int) -> None:
    """R12, I3: at the n-th access of a reader everything is settled and collected: it reads both journals again."""
    topic = world.create()
    for number in range(4):
        append(topic, batch_of(many(5, b"%d-" % number)))
    left = [reads]

    def hook(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation in ("fetch", "names", "map", "read"):
            left[0] -= 1
            if left[0] == 0:
                world.collect_all()

    found = [record.value for record in read_topic(world.handle(hook))]
    assert left[0] <= 0, "the point lies within the read"
    assert found == [value for number in range(4) for value in many(5, b"%d-" % number)]


def test_a_settle_entry_names_the_entry_that_it_settled_through(world: World) -> None:
    """R12: topic id, sequence and write id: proof of which journal its numbers speak of."""
    topic = world.create()
    committed = append(topic, batch_of([b"a"]))
    state = topic.newest()[1]
    settle(topic, state.topic_id)
    stored, settled = topic.settled(state.topic_id)
    entry = topic.journal.read(committed.sequence or 0).entry
    assert (stored.entry.topic_id, settled.through) == (entry.topic_id, (entry.sequence, entry.write_id))
    assert settled.oldest_unsettled == entry.sequence + 1


def test_the_collector_acts_on_a_durable_settle_entry_only(world: World) -> None:
    """R12, I4: an entry that is linked but not synced could be lost with the power, after its chunks are gone."""
    topic = world.create()
    for value in (b"a", b"b", b"c"):
        append(topic, batch_of([value]))
    world.maintain()
    world.clock.advance(DELAY_MS)
    seen = Recorder()
    world.log(seen).topic("t").maintain()
    deleted = seen.first("delete")
    before = seen.calls[:deleted]
    settle_read = max(i for i, call in enumerate(before) if call[0] == "fetch" and "/settle/" in call[1])
    listed = max(i for i, call in enumerate(before) if call[0] == "names" and call[1].endswith("/settle"))
    synced = seen.first("sync_directory", "/settle")
    assert listed < settle_read < synced < deleted


def test_one_commit_is_seen_whole_or_not_at_all_whatever_is_settled(world: World) -> None:
    """R12, I1: one partition is settled, the other is not: a view shows both or none of each commit."""
    topic = world.create(2)
    topic_id = topic.newest()[1].topic_id
    for number in range(6):
        append(topic, batch_of([b"%d" % number] * 2, partition=[0, 1]))
        if number % 2:
            settle(topic, topic_id, budget_seconds=0.0)
        ends = read_view(world.handle(), topic_id).topic.log_end
        assert ends == (number + 1, number + 1)
    settled = topic.settled(topic_id)[1]
    assert settled.partition(0).end_offset != settled.partition(1).end_offset
    assert len(world.values()) == 12


@pytest.mark.parametrize("lost", [1, 2])
def test_a_writer_refuses_a_journal_that_is_older_than_the_segments(world: World, lost: int) -> None:
    """R12: what it commits would have the offsets of settled records, and these are what readers see there."""
    topic = world.create()
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
    world.maintain()
    entries, end = world.entries(), 4 - lost
    for sequence in entries[-lost:]:
        (world.path / topic.journal._path(sequence)).unlink()
    for handle in (world.handle(), topic):
        with pytest.raises(
            CorruptionError, match=r"entries up to 5 are in its segments, and its newest entry is [34]: "
        ):
            append(handle, batch_of([b"new"]))
    assert world.entries() == entries[:-lost]
    assert world.values() == [b"%d" % number for number in range(end)]


def test_what_settles_while_a_commit_is_planned_is_not_taken_for_an_older_journal(world: World) -> None:
    topic = world.create()
    append(topic, batch_of(many(3)))
    world.maintain()

    def more() -> None:
        append(world.handle(), batch_of([b"other"]))
        world.maintain()

    append(world.handle(on_path("/settle", "names", once(more))), batch_of([b"own"]))
    assert world.values()[3:] == [b"other", b"own"]
