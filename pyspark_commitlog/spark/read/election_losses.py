"""Losses by unclean elections, as a query reports them (pure).

A query lost the gap if it reads across it, or had passed it before the election (`topic.state.lost_ranges`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.progress import Loss, ReportLoss, Restored
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.read.source_options import EARLIEST, LATEST, Timestamps
from pyspark_commitlog.topic.state.lost_ranges import LostRange, elected_away, losses_since
from pyspark_commitlog.topic.state.topic_state import TopicState


def lost_ahead(spans: Iterable[tuple[TopicPartition, int, int]], states: Mapping[str, TopicState]) -> list[Loss]:
    """Losses in spans of (partition, start, end)."""
    losing = _losing(states)
    if not losing:  # common: nearly all polls, of thousands of partitions
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
    """Losses of a query that had passed the records.

    The lineages of `begin` tell which were reported; losses of `restored` topics are reported elsewhere.
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
    """Report each loss."""
    for loss in losses:
        report(loss)


def asked_for(option: object, place: TopicPartition) -> bool:
    """Whether an option of a batch names an exact position."""
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
