"""Micro-batch reader of committed records."""

from __future__ import annotations

import logging
import os  # noqa: TID251 to end the process, not for files
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_commitlog.errors import CommitLogError, OptionError, RootNotFoundError
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.common.opening import OpenRoot
from pyspark_commitlog.spark.progress.paced import PacedLooks
from pyspark_commitlog.spark.progress.progress import (
    AvailableOffsets,
    batch_start,
    find_available_offsets,
    high_watermarks,
    lineages,
    ranges,
    topic_ids,
    up_to,
)
from pyspark_commitlog.spark.progress.source_offset import TOPIC_IDS, GroupMark, SourceOffset, check_share
from pyspark_commitlog.spark.progress.throttle import Throttle
from pyspark_commitlog.spark.read.election_losses import lost_ahead, lost_before, report_each
from pyspark_commitlog.spark.read.source_options import EARLIEST, LATEST, SourceOptions
from pyspark_commitlog.spark.read.source_reader import SourceReader
from pyspark_commitlog.spark.read.stream_end import Bounds
from pyspark_commitlog.topic.divergence import Divergence, find_divergence
from pyspark_commitlog.topic.state.topic_state import TopicState

if TYPE_CHECKING:
    from pyspark_commitlog.spark.read.group_progress import GroupProgress

log = logging.getLogger("pyspark_commitlog.spark")

#: Error that keeps a new query from starting, in place of its first offset; never written.
_REFUSED = "__refused"


class CommitLogStreamReader(SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of committed records, micro-batch by micro-batch."""

    def __init__(self, open_root: OpenRoot, options: SourceOptions, schema: StructType) -> None:
        super().__init__(open_root, options, schema)
        if options.push_down:
            raise OptionError("option 'pushDownPredicate' is for batch reads: Spark pushes no filters to a stream")
        if options.newest_per_key:
            raise OptionError("option 'view' is for batch reads; a stream has every record, in order")
        self._target: dict[TopicPartition, int] | None = None
        self._is_available_now = False
        self._bounds = Bounds(options.ending, options.selection, self._topic)
        self._throttle = Throttle(options.limits, self._topic)
        self._initial: dict[str, Any] | None = None
        self._refused: CommitLogError | None = None
        self._has_planned = False
        self._looks = self._no_looks()
        self._group: GroupProgress | None = None
        self._answered: tuple[dict[str, Any], SourceOffset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        asked = {"_initial": None, "_refused": None, "_group": None, "_answered": None, "_looks": self._no_looks()}
        return super().__getstate__() | asked

    def _no_looks(self) -> PacedLooks:
        return PacedLooks(self._options.idle_poll_interval_ms, listed=self._options.selection.pattern is not None)

    def _awaited(self, known: Mapping[str, str]) -> dict[str, TopicState]:
        """Newest states, paced if each look is a request."""
        storage = self._log().storage
        if storage.can_append:
            return self._states(known)
        read = partial(self._newest_of, known, all_there=True)
        return self._looks.look(frozenset(known), storage.clock.monotonic, read)

    def initialOffset(self) -> dict[str, Any]:
        """Start of a new query, the same at each call.

        Spark also asks before it replays the first batch, which has its own start. So the next call that needs the
        answer raises an error.
        """
        if self._initial is None:
            try:
                self._initial = self._first_offset().to_json()
            except CommitLogError as error:
                self._refused = error
                self._initial = {TOPIC_IDS: {}, _REFUSED: str(error)}
        return self._initial

    def _first_offset(self) -> SourceOffset:
        group = self._following()
        asked = LATEST if self._options.starting is None else self._starting(group)
        states = self._states({})  # after the group, whose entries may be newer than an earlier look
        offsets = self._resolve(states, asked, EARLIEST, "startingOffsets")
        return SourceOffset(offsets, topic_ids(states), group.mark(None) if group else None, lineages(states))

    def _following(self) -> GroupProgress | None:
        if self._group is None:
            self._group = self._progress()
        return self._group

    def _follow(self, reached: SourceOffset) -> GroupMark | None:
        group = self._following()
        topics = filter(self._options.selection.takes, reached.topic_ids)
        return group.commit(reached, set(topics)) if group else None

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for Spark; `latestOffset` combines all of them."""
        return self._options.limits.for_spark()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end, at which the query ends.

        A missing root is reported by `latestOffset`, which knows whether there is a checkpoint.
        """
        self._is_available_now = True
        with suppress(RootNotFoundError):
            self._target = high_watermarks(self._states({}, all_there=False), self._options.selection)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """End of the next micro-batch, within the limits.

        All before `start` is processed: here the group learns it, also for a run's last batch.
        """
        begin = self._offset(start)
        check_share(self._options.group, begin.group)
        self._tell_of_changes(begin)
        states, selection = self._awaited(begin.topic_ids), self._options.selection
        with self._losses() as report:
            restored = self._restored(begin, states)
            over = lambda name, life: self._topic(name).ended(life)  # noqa: E731
            to_read = find_available_offsets(begin, states, selection, report, over, restored)
            before = lost_before(begin, states, restored)
            report_each(before, report)
            mark = self._follow(begin)
        ends, ids = self._up_to_target(begin, to_read, states)
        self._options.check_incarnations("endingOffsets", topic_ids(states))
        ends = self._bounds.cut(to_read.starts, ends, states)
        if not isinstance(limit, ReadAllAvailable):  # which a trigger that runs once asks for
            ends = self._throttle.cut(to_read, ends, may_wait=self._target is None)
        with self._losses() as report:
            spans = ((place, to_read.starts[place], end) for place, end in ends.items())
            report_each(lost_ahead(spans, states), report)
        reached, first = SourceOffset(ends, ids, begin.group), self._is_new(start)
        if reached == begin and not restored and not first and not before:  # else it has to record what was reported
            self._answered = start, begin
            return start
        versions = {name: pinned.schema.version for name, pinned in self._schemas.items() if name in ids}
        reached = replace(reached, group=mark, lineages=_lineages_of(ids, begin, states), schemas=versions)
        return self._answer(replace(reached, start=batch_start(begin, reached, to_read.starts, is_first=first)))

    def _up_to_target(
        self, begin: SourceOffset, to_read: AvailableOffsets, states: Mapping[str, TopicState]
    ) -> tuple[dict[TopicPartition, int], Mapping[str, str]]:
        if self._target is None and self._is_available_now:  # the root came back since
            self._target = high_watermarks(states, self._options.selection)
        if self._target is None:
            return dict(to_read.ends), to_read.topic_ids
        ends = up_to(self._target, begin, to_read.ends)
        return ends, {name: to_read.topic_ids[name] for name in {place.topic for place in ends}}

    def _is_new(self, start: dict[str, Any]) -> bool:
        return start == self._initial and not self._has_planned

    def _tell_of_changes(self, begin: SourceOffset) -> None:
        """Log once how columns changed since the query ran before."""
        from pyspark_commitlog.format.schema.schema_change import describe_change

        for name, version in begin.schemas.items():
            topic_id, schema = self._schemas.get(name, (None, None))
            if schema is None or topic_id != begin.topic_ids.get(name) or version >= schema.version:
                continue
            if self._reported.is_new((name, version)):
                log.warning("topic %r: since this query ran before, its columns changed (schema version %d, now %d): "
                            "%s", name, version, schema.version, describe_change(schema, version))  # fmt: skip

    def _answer(self, reached: SourceOffset) -> dict[str, Any]:
        self._answered = reached.to_json(), reached
        return self._answered[0]

    def _offset(self, answer: dict[str, Any]) -> SourceOffset:
        """Parse an offset, mostly the last answer; raise if a new query can't start here."""
        if self._answered is not None and self._answered[0] == answer:
            return self._answered[1]
        if self._refused is not None and answer == self._initial:
            raise self._refused
        offset = SourceOffset.from_json(answer)
        for name, mark in offset.lineages.items():
            lineage = Lineage.of_position(mark)
            if lineage is not None and name in offset.topic_ids:
                self._saw(offset.topic_ids[name], lineage.sequence)
        return offset

    def reportLatestOffset(self) -> dict[str, Any]:
        """High watermarks, for the query's progress."""
        seen = None if self._log().storage.can_append else self._looks.last_states
        states = self._states({}, all_there=False) if seen is None else seen
        return SourceOffset(high_watermarks(states, self._options.selection), topic_ids(states)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Ranges for each topic-partition with new records.

        A replayed batch starts where it was planned, not where a query or topic would start now.
        """
        until = self._offset(end)
        begin = self._planned_start(start, until)
        self._has_planned = True
        with self._losses() as report:
            states = self._states(until.topic_ids)
            since = self._restored(until, states)
            readable = ranges(begin, until, states, report, self._restored(begin, states), since)
            spans = ((TopicPartition(of.topic, of.partition), of.start, of.end) for of in readable)
            report_each(lost_ahead(spans, states), report)
        return self._parts(readable)

    def _planned_start(self, start: dict[str, Any], until: SourceOffset) -> SourceOffset:
        """Start recorded in the end, unless of another batch."""
        if until.start is not None and start == self._initial:
            return until.start
        begin = self._offset(start)
        return until.start if until.start is not None and until.start.extends(begin) else begin

    def _restored(self, reached: SourceOffset, states: Mapping[str, TopicState]) -> dict[str, Divergence]:
        restored = {}
        for name, mark in reached.lineages.items():
            state = states.get(name)
            if state is None or state.topic_id != reached.topic_ids.get(name):
                continue
            gone = find_divergence(self._topic(name), Lineage.of_position(mark), state)
            if gone is not None:
                restored[name] = gone
        return restored

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the group, if any; Spark's checkpoint holds the progress."""
        self._follow(self._offset(end))

    def stop(self) -> None:
        """Exit the process if the query ended.

        Spark closes the pipe, and its worker would print a traceback when it answers
        (`python_streaming_source_runner`).
        """
        if isinstance(sys.exception(), EOFError):
            os._exit(0)


def _lineages_of(ids: Mapping[str, str], begin: SourceOffset, states: Mapping[str, TopicState]) -> dict[str, str]:
    """Lineage of each topic id; of a deleted topic, which may be restored, the last one."""
    there = {name: state for name, state in states.items() if ids.get(name) == state.topic_id}
    gone = {name: lineage for name, lineage in begin.lineages.items() if ids.get(name) == begin.topic_ids.get(name)}
    return {**gone, **lineages(there)}
