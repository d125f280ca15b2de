"""Producers in the writers' table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.topic.state.topic_state import WriterRow
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.writers import ProducerBatch, remember


def opened(row: WriterRow | None, at_ms: int, sequence: int) -> WriterRow:
    """Return a producer's row under a higher epoch (Kafka: `InitProducerId`; pure).

    A forgotten id may have a living instance: its new epoch is the entry's number, above all it had.
    """
    if row is None:
        return WriterRow(last=-1, rows=0, sequence=sequence, at_ms=at_ms, epoch=sequence)
    return replace(row, sequence=sequence, at_ms=at_ms, epoch=row.epoch + 1)


def init_producer(topic: TopicLog, writer_id: str) -> tuple[str, WriterRow]:
    """Take over a producer id and fence its earlier epochs (rule R6); safe to repeat.

    Return the topic id, and the row with epoch and last landed sequence.
    """
    topic.forget_defaults(kept=True)

    def plan(base: Stored | None, slot: Slot) -> Draft[tuple[str, WriterRow]]:
        stored, state = topic.newest_at(base, None)
        at_ms = max(stored.info.modified_ms, topic.storage.clock.now_ms())
        row = opened(topic.writer(state, writer_id), at_ms, slot.sequence)
        after, sides = remember(topic, stored, state, slot, writer_id, row)
        body = {"state": after.to_json()}
        return Draft("init-producer", state.topic_id, body, sides=sides, result=(state.topic_id, row))

    return topic.journal.append(plan).result


def landed_ranges(topic: TopicLog, topic_id: str, batch: ProducerBatch) -> Mapping[int, tuple[int, int]]:
    """Return a committed batch's offsets: partition -> (first, end).

    Empty if the entry is collected, or another batch followed: as in Kafka, its offsets are forgotten.
    """
    _, state = topic.newest(topic_id)
    row = topic.writer(state, batch.writer_id)
    if row is None or row.last != batch.last or row.ranges[-1:] != ((batch.first, batch.last),):
        return {}
    try:
        entry = topic.journal.read(row.sequence).entry
        extents = topic.extents(entry) if entry.kind == "append" else ()  # a copy's has those of other commits too
    except FileNotFoundError:
        return {}
    ranges: dict[int, tuple[int, int]] = {}
    for extent in extents:
        first, _ = ranges.get(extent.partition, (extent.base_offset, 0))
        ranges[extent.partition] = first, extent.end_offset
    return ranges
