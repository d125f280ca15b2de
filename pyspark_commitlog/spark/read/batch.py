"""Batch reader: fixed ranges of partitions, reduced by pushed filters."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.model import OffsetRange, TopicPartition
from pyspark_commitlog.spark.common.opening import OpenRoot
from pyspark_commitlog.spark.progress.progress import Loss
from pyspark_commitlog.spark.progress.trigger_limits import TriggerLimits
from pyspark_commitlog.spark.read.election_losses import asked_for, lost_ahead, report_each
from pyspark_commitlog.spark.read.filters import (
    ANY_TIME,
    Filters,
    LimitTaker,
    Taker,
    complement,
    joined,
    milliseconds,
    pushed_filter,
)
from pyspark_commitlog.spark.read.source_options import EARLIEST, LATEST, SourceOptions
from pyspark_commitlog.spark.read.source_reader import SourceReader, Starting, check_end
from pyspark_commitlog.topic.lookup.timestamps import spans_outside
from pyspark_commitlog.topic.read.filter.spans import NONE, Spans, common, united
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

if TYPE_CHECKING:
    from pyspark_commitlog.topic.read.filter.row_filter import RowFilter
    from pyspark_commitlog.topic.read.reader import Rows

log = logging.getLogger("pyspark_commitlog.spark")


class CommitLogReader(SourceReader, DataSourceReader):
    """Reader of a fixed range of every partition of the subscribed topics."""

    def __init__(self, open_root: OpenRoot, options: SourceOptions, schema: StructType) -> None:
        super().__init__(open_root, options, schema)
        if options.starting == LATEST:
            raise OptionError("option 'startingOffsets'='latest' makes no sense for a batch read: it would be empty")
        check_end(options.ending)
        if options.limits != TriggerLimits():
            log.warning("limits of a trigger do nothing in a batch read: it takes all from start to end")
        self._taker = Taker(self._declared) if options.push_down else None
        if self._taker is not None:
            self.pushFilters = self._taker  # type: ignore[method-assign]
        self._limit = LimitTaker()
        if hasattr(DataSourceReader, "pushLimit"):
            self.pushLimit = self._limit

    @property
    def _row_filter(self) -> RowFilter | None:
        pushed = None if self._taker is None else pushed_filter(self._taker.taken.tests, self._declared)
        return self._filter if pushed is None else pushed.joined(self._filter)

    def _limit_rows(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        return self._limit.limit_rows(rows)

    def partitions(self) -> list[InputPartition]:
        """Ranges for each topic-partition with records, per topic from one entry."""
        asked = self._starting(self._progress())
        states = self._states({})  # after the group, whose entries may be newer than an earlier look
        starts = self._resolve(states, asked, EARLIEST, "startingOffsets")
        ends = self._resolve(states, self._options.ending, LATEST, "endingOffsets")
        self._tell_lost(states, asked, starts, ends)
        ranges: list[OffsetRange] = []
        for place, start in starts.items():
            name, partition, end = place.topic, place.partition, ends[place]
            if start > end:
                raise OptionError(f"{name} partition {partition}: startingOffsets {start} lies above the end {end}")
            wanted = OffsetRange(name, states[name].topic_id, partition, start, end, states[name].lineage.position)
            ranges += [
                replace(wanted, start=at, end=stop) for at, stop in self._filter_offsets(self._topic(name), wanted)
            ]
        return self._parts(ranges)

    def _tell_lost(
        self,
        states: Mapping[str, TopicState],
        asked: Starting,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """Report an election's losses in ranges asked for; log others."""
        with self._losses() as report:
            for place, start in starts.items():
                losses = lost_ahead([(place, start, ends[place])], states)
                named = asked_for(asked, place) or asked_for(self._options.ending, place)
                report_each(losses, report if named else _pass_over)

    def _filter_offsets(self, topic: TopicLog, wanted: OffsetRange) -> Spans:
        taken = Filters() if self._taker is None else self._taker.taken
        spans = taken.offsets(wanted.topic, wanted.partition, wanted.start, wanted.end)
        spans = _at_times(spans, taken.times(), topic, wanted)
        if self._filter is not None:
            own = self._filter.planned()
            spans = common(spans, own.offsets(wanted.topic, wanted.partition))
            spans = _at_times(spans, milliseconds(own.times()), topic, wanted)
        return joined(spans)


def _at_times(spans: Spans, times: tuple[int, int] | None, topic: TopicLog, wanted: OffsetRange) -> Spans:
    """Leave out offsets whose records are of other times, in ms."""
    if not spans or times is None or times == ANY_TIME:
        return spans if times is not None else NONE
    return common(spans, complement(united(spans_outside(topic, wanted.topic_id, wanted.partition, *times))))


def _pass_over(loss: Loss) -> None:
    log.warning("%s: a read of all there is passes over them", loss.what)
