"""Losses by unclean elections, as a query reports them (pure).

A query has lost them that reads a range with the gap in it, and one that was beyond the gap before the election: what
it read is gone. One that begins after the gap later on is not stopped (``log.lost_ranges``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.log.lost_ranges import LostRange, elected_away, losses_since
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.read.progress import Loss, ReportLoss, Restored
from pyspark_commitlog.spark.read.source_offset import SourceOffset
from pyspark_commitlog.spark.read.source_options import EARLIEST, LATEST, Timestamps


def lost_ahead(spans: Iterable[tuple[TopicPartition, int, int]], states: Mapping[str, TopicState]) -> list[Loss]:
    """Return the losses of a read of these spans: partition, start, end."""
    losing = _losing(states)
    if not losing:  # which nearly all polls find, of thousands of partitions
        return []
    return [
        Loss(
            f"{place.topic} partition {place.partition}: {gap.description}",
            f"Have them written again if their source still has them, and start after them, at offset {gap.end}",
            f"it goes on at offset {gap.end}",
            truncated=True,
            gap=(place, gap.start, gap.end),
        )
        for place, start, end in spans
        if place.topic in losing
        for gap in elected_away(losing[place.topic], place.partition, start, end)
    ]


def lost_before(begin: SourceOffset, states: Mapping[str, TopicState], restored: Restored) -> list[Loss]:
    """Return the losses of a query that was beyond records before an election lost them.

    Args:
        begin: where it is; what it was reached under says what was reported to it.
        states: the newest of its topics.
        restored: the topics that are another history: that is reported.
    """
    losing = _losing(states)
    if not losing:
        return []
    return [
        _loss_of_passed_gap(place, offset, gap)
        for place, offset in sorted(begin.offsets.items())
        if (state := losing.get(place.topic)) is not None
        and state.topic_id == begin.topic_ids[place.topic]
        and place.topic not in restored
        for gap in losses_since(
            state, place.partition, offset, Lineage.of_position(begin.lineages.get(place.topic, ""))
        )
    ]


def _losing(states: Mapping[str, TopicState]) -> dict[str, TopicState]:
    return {name: state for name, state in states.items() if state.lost}


def report_each(losses: Iterable[Loss], report: ReportLoss) -> None:
    """Report each of some losses."""
    for loss in losses:
        report(loss)


def asked_for(option: object, place: TopicPartition) -> bool:
    """Return whether an option of a batch names a place to start or end at, not just the earliest or latest offset.

    ``option`` is what it says: offsets by topic and partition, timestamps, a group's, or one number for all.
    """
    if isinstance(option, Timestamps):
        return isinstance(option.at, int) or place.partition in option.at.get(place.topic, {})
    if isinstance(option, dict):
        return option.get(place.topic, {}).get(place.partition, EARLIEST) not in (EARLIEST, LATEST)
    return option is not None and not isinstance(option, int)


def _loss_of_passed_gap(place: TopicPartition, offset: int, gap: LostRange) -> Loss:
    return Loss(
        f"{place.topic} partition {place.partition}: {gap.description}; the checkpoint is at offset {offset} since "
        "before that: the query may have read them",
        "Start with a new checkpoint once you know what it made of them",
        f"it goes on at offset {max(offset, gap.end)}",
        truncated=True,
        gap=(place, gap.start, gap.end),
    )
