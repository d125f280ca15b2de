"""Base of batch and streaming reads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_commitlog.errors import (
    OptionError,
    ReplicaNotAvailableError,
    RootNotAvailableError,
    RootNotFoundError,
    TopicChangedError,
    UnknownTopicError,
)
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.model import OffsetRange, TopicPartition
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.common.opening import OpenRoot, opened
from pyspark_commitlog.spark.common.root_failover import PATIENCE_SECONDS, tried_elsewhere
from pyspark_commitlog.spark.progress.paced import Newest
from pyspark_commitlog.spark.progress.progress import Loss, ReportLoss, error_of, outside
from pyspark_commitlog.spark.progress.splits import Split, longest_first, split
from pyspark_commitlog.spark.read.declared_columns import are_untyped, merged, pin_schemas
from pyspark_commitlog.spark.read.filter_option import given_filter, tests_of
from pyspark_commitlog.spark.read.schema import (
    Schema,
    as_spark,
    check_schema,
    chosen,
    is_common,
    needs_topics,
    of_engine,
    untyped_names,
)
from pyspark_commitlog.spark.read.source_options import EARLIEST, GROUP, LATEST, Offsets, SourceOptions, Timestamps
from pyspark_commitlog.storage.shared.caches import Reported, Shelf
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import HANDLE_BYTES, TopicLog

if TYPE_CHECKING:
    from pyspark_commitlog.spark.read.group_progress import GroupProgress, GroupStart
    from pyspark_commitlog.topic.read.filter.row_filter import RowFilter
    from pyspark_commitlog.topic.read.reader import Rows

log = logging.getLogger("pyspark_commitlog.spark")

#: Topics, least recently used dropped, whose newest entry seen a query remembers.
_SEEN_TOPICS = 10_000
#: Interval of access checks if each look is a request.
_ACCESS_SECONDS = 60.0


@dataclass(frozen=True)
class OffsetRangePartition(InputPartition):
    """Offsets of one topic-partition, nothing else (rule R8)."""

    value: OffsetRange


#: Start or end as asked for.
Starting: TypeAlias = "Offsets | Timestamps | GroupStart | None"


class SourceReader:
    """Base of batch and streaming readers."""

    def __init__(self, open_root: OpenRoot, options: SourceOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._open_root, self._options = open_root, options
        self._topics: Shelf[str, TopicLog] = Shelf()
        schemas = options.schemas
        if schemas is None:
            needed = needs_topics(options) and not are_untyped(options.path, options.selection)
            schemas = pin_schemas(self._topic, options.selection) if needed or not is_common(schema) else {}
        self._schemas = schemas
        declared = merged(schemas)
        check_schema(schema, declared)
        if options.columns is not None and chosen(options, declared).fieldNames() != schema.fieldNames():
            raise OptionError(
                f"option 'columns'={', '.join(options.columns)!r} and the schema {', '.join(schema.fieldNames())!r} "
                "exclude each other: give one of them"
            )
        #: Column ids by topic and name; empty if the topics are untyped, or only common columns are read.
        self._pins = {topic: pinned.schema.ids for topic, pinned in schemas.items()}
        self._declared = declared
        self._untyped_names = [] if schemas else untyped_names(schema)
        self._filter = given_filter(options, declared)
        self._columns = schema
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._reported = Reported()
        self._allowed: float | None = None
        self._seen: dict[str, int] = {}

    def pruneColumns(self, requiredSchema: Schema) -> Schema:
        """Read only these columns; called by engines that prune, which Spark does not yet.

        Without any, one column stands for the rows.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        required = as_spark(requiredSchema).fieldNames()
        kept = [field for field in self._columns if field.name in required] or self._columns.fields[:1]
        self._columns = StructType(kept)
        self._schema = to_arrow_schema(self._columns, timezone="UTC")
        return of_engine(self._columns)

    def __getstate__(self) -> dict[str, Any]:
        for_driver = {"_schemas": {}, "_options": replace(self._options, schemas=None)}
        return {**self.__dict__, "_topics": Shelf(), "_reported": Reported(), "_allowed": None, **for_driver}

    def _log(self) -> Root:
        return opened(self._open_root, self._options)

    def _progress(self) -> GroupProgress | None:
        group, strict = self._options.group, self._options.fail_on_data_loss
        if group is None:
            return None
        from pyspark_commitlog.spark.read.group_progress import GroupProgress

        return GroupProgress(self._log().group(group.name), group, strict=strict)

    def _starting(self, progress: GroupProgress | None) -> Starting:
        return progress.start() if progress and self._options.starting == GROUP else self._options.starting

    def _topic(self, name: str) -> TopicLog:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._log().topic(name)
            self._topics.put(name, topic, HANDLE_BYTES)
        return topic

    def _states(self, known: Mapping[str, str], *, all_there: bool = True) -> dict[str, TopicState]:
        """Newest states of subscribed or known topics, of any incarnation.

        Without `all_there` none need exist: for reports, and plans checked later. A missing known topic is always a
        loss to report.
        """
        return {name: newest.state for name, newest in self._newest_of(known, all_there=all_there).items()}

    def _newest_of(self, known: Collection[str], *, all_there: bool) -> dict[str, Newest]:
        """Newest entries, from another root if one fails."""
        try:
            return tried_elsewhere(lambda: self._look(known, all_there=all_there), self._let_go_of_roots)
        except RootNotFoundError as error:
            if not known:
                raise
            raise RootNotAvailableError.at(self._log().url) from error

    def _let_go_of_roots(self) -> bool:
        self._topics.clear()
        return bool(self._log().storage.others)

    def _look(self, known: Collection[str], *, all_there: bool) -> dict[str, Newest]:
        selection = self._options.selection
        named = selection.topics if selection.pattern is None else selection.select_topics(self._log().listed())
        found = {}
        for name in sorted({*named, *known}):
            topic, new = self._topic(name), name not in known
            try:
                stored, state = topic.newest_durable()
            except UnknownTopicError:
                if topic.is_away():  # else it would be taken for deleted
                    raise ReplicaNotAvailableError(f"the root {topic.storage.url} does not answer") from None
                if all_there and new and selection.pattern is None:
                    raise
                continue
            if state.is_replicated:
                stored, state = self._as_far(topic, stored, state)
            self._check_columns(name, state)
            found[name] = Newest(topic, stored, state)
        return found

    def _check_columns(self, name: str, state: TopicState) -> None:
        """Refuse a topic that lacks the columns of this read, or has others of their names."""
        pinned = self._schemas.get(name)
        if pinned is not None and pinned.topic_id != state.topic_id:
            raise TopicChangedError(
                f"topic {name!r} was made again since this query's columns were chosen: start the query again"
            )
        if state.schema is None:
            if self._pins:
                raise OptionError(
                    f"topic {name!r} is not typed, and topic {min(self._pins)!r} is: read them in two queries"
                )
            return
        if self._pins and pinned is None:
            raise TopicChangedError(
                f"topic {name!r} was made since this query's columns were chosen: start the query again"
            )
        columns = ", ".join(state.schema.names)
        if self._untyped_names:
            raise OptionError(
                f"topic {name!r} is typed: it has the columns {columns}, not {', '.join(self._untyped_names)}. Name it "
                "in 'subscribe', and leave out .schema() and the option 'columns', or name its columns"
            )
        if self._options.newest_per_key:
            raise OptionError(f"topic {name!r} is typed: option 'view'='latest' is for untyped topics")

    def _as_far(self, topic: TopicLog, stored: Stored, state: TopicState) -> tuple[Stored, TopicState]:
        seen = self._seen.get(state.topic_id, 0)
        if stored.sequence < seen:
            topic.journal.await_shown(seen, PATIENCE_SECONDS)
            stored, state = topic.newest_durable()
        self._saw(state.topic_id, stored.sequence)
        return stored, state

    def _saw(self, topic_id: str, sequence: int) -> None:
        self._seen[topic_id] = max(sequence, self._seen.pop(topic_id, 0))
        while len(self._seen) > _SEEN_TOPICS:
            del self._seen[next(iter(self._seen))]

    @contextmanager
    def _losses(self) -> Iterator[ReportLoss]:
        """Yield the function that reports a loss, by warning or error.

        With failOnDataLoss one error at the end has all losses. They go before a TopicChangedError, which names no
        records.
        """
        if not self._options.fail_on_data_loss:
            yield self._warn
            return
        losses: list[Loss] = []
        try:
            yield losses.append
        except TopicChangedError:
            if not losses:
                raise
        if losses:
            raise error_of(losses)

    def _warn(self, loss: Loss) -> None:
        if self._reported.is_new(loss.gap or loss):
            log.warning("%s; failOnDataLoss is false: %s", loss.what, loss.next)

    def _parts(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        parts = ranges
        if self._options.split != Split():
            from pyspark_commitlog.topic.read.frame_bounds import FrameBounds

            parts = split(ranges, self._options.split, FrameBounds(self._topic).of)
        return [OffsetRangePartition(part) for part in longest_first(self._anchored(parts))]

    def _anchored(self, parts: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Add anchors if listings cost requests, so that tasks need none."""
        if not parts or self._log().storage.can_append:
            return parts
        self._check_access({part.topic for part in parts})
        topics = {(part.topic, part.topic_id) for part in parts}
        anchors = {(name, topic_id): self._topic(name).anchors(topic_id) for name, topic_id in topics}
        return [replace(part, anchors=anchors[part.topic, part.topic_id]) for part in parts]

    def _resolve(
        self, states: Mapping[str, TopicState], asked: Starting, default: int, option: str
    ) -> dict[TopicPartition, int]:
        named = asked.topics if isinstance(asked, Timestamps) else set(asked if isinstance(asked, dict) else ())
        if isinstance(asked, Timestamps):  # a single time for all topics can't name a wrong one
            option = by_timestamp(option)
        for name in sorted(named - set(states)):  # a pattern takes it
            raise OptionError(f"option {option!r} names topic {name!r}, which does not exist")
        self._options.check_incarnations(option, {name: state.topic_id for name, state in states.items()})
        offsets: dict[TopicPartition, int] = {}
        with self._losses() as report:
            for name, state in states.items():
                taken = self._options.selection.partitions(name, state.partitions)
                if asked is None or isinstance(asked, int | dict | Timestamps):
                    exact = by_offset(self._topic(name), state, asked, taken)
                else:
                    exact = {name: asked.of(self._topic(name), state, taken, strict=self._options.fail_on_data_loss)}
                resolved = resolve(exact, default, name, state, option, report)
                offsets |= {TopicPartition(name, partition): resolved[partition] for partition in taken}
        return offsets

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, in Arrow; runs in a task."""
        from pyspark_commitlog.spark.common.worker import enter_task, read_explained
        from pyspark_commitlog.spark.read.read_failover import read_on
        from pyspark_commitlog.spark.read.spark_rows import SparkRows
        from pyspark_commitlog.topic.read.lossy import read_kept
        from pyspark_commitlog.topic.read.named_columns import NamedColumns
        from pyspark_commitlog.topic.read.reader import read_range

        enter_task()
        wanted = partition.value
        if not isinstance(wanted, OffsetRange):  # Spark's placeholder for "no partitions"
            return iter(())
        columns = NamedColumns(self._schema, self._pins)
        names = columns.stored(wanted.topic)
        if self._options.newest_per_key:
            from pyspark_commitlog.topic.lookup.latest import latest

            rows = latest(self._to_read(wanted), wanted, names)
        else:
            read = read_range if self._options.fail_on_data_loss else read_kept
            tests = tests_of(self._row_filter, wanted, self._pins)
            rows = read_on(self._to_read, wanted, lambda topic, part: read(topic, part, names, tests))
        converted = SparkRows(columns, wanted.topic, wanted.partition).convert(self._limit_rows(rows))
        return read_explained(converted)

    def _check_access(self, names: Collection[str]) -> None:
        """Check read access at intervals: tasks with anchors don't."""
        root = self._log()
        now = root.storage.clock.monotonic()
        if self._allowed is None or now - self._allowed >= _ACCESS_SECONDS:
            root.access.check(Operation.READ, *sorted(names))
            self._allowed = now

    def _to_read(self, wanted: OffsetRange) -> TopicLog:
        """Return a task's handle; with anchors, without the planner's checks."""
        root = self._log()
        if not wanted.anchors:
            return root.topic(wanted.topic)
        root.storage.expect_root()
        topic = TopicLog(root.storage, wanted.topic)
        topic.resume(wanted.topic_id, wanted.anchors)
        return topic

    @property
    def _row_filter(self) -> RowFilter | None:
        """Rows that tasks return."""
        return self._filter

    def _limit_rows(self, rows: Iterator[Rows]) -> Iterator[Rows]:
        return rows


def check_end(asked: Offsets | Timestamps | None) -> None:
    """Refuse earliest as an end, as Kafka does."""
    if asked == EARLIEST or (isinstance(asked, dict) and any(EARLIEST in ends.values() for ends in asked.values())):
        raise OptionError("option 'endingOffsets'='earliest' makes no sense (nor -2 in JSON): it would be empty")


def by_timestamp(option: str) -> str:
    """Timestamp option in place of the offset option."""
    return f"{option}ByTimestamp"


def check_partitions(option: str, name: str, state: TopicState, partitions: Iterable[int]) -> None:
    """Refuse partitions that a topic does not have."""
    for partition in partitions:
        if partition >= state.partitions:
            raise OptionError(
                f"option {option!r}: topic {name!r} has partitions 0 to {state.partitions - 1}, not {partition}"
            )


def by_offset(
    topic: TopicLog, state: TopicState, asked: Offsets | Timestamps | None, taken: Sequence[int]
) -> Offsets | None:
    """Return start or end by offset; look up timestamps of `taken` partitions.

    No offset exceeds the high watermark of `state`: a record put since may match, but would be a loss.
    """
    if not isinstance(asked, Timestamps):
        return asked
    found = by_time(topic, state, asked, taken)
    return {topic.name: {at: end if end == LATEST else min(end, state.log_end[at]) for at, end in found.items()}}


def by_time(topic: TopicLog, state: TopicState, asked: Timestamps, taken: Sequence[int]) -> dict[int, int]:
    """Return partition -> first offset not earlier, else LATEST.

    The record may be above the high watermark of `state`, if put since.
    """
    from pyspark_commitlog.topic.lookup.timestamps import find_time

    offsets = {}
    for partition, at in asked.of(topic.name, state.partitions).items():
        if partition not in taken and partition < state.partitions:
            continue
        known = partition < state.partitions  # else refused by `resolve`
        record = find_time(topic, state.topic_id, partition, at) if known else None
        if record is None and known and asked.strict:
            raise OptionError(
                f"{topic.name} partition {partition} has no record at or after timestamp {at} (ms); set the option "
                "'startingOffsetsByTimestampStrategy' to 'latest' to start such partitions at their end"
            )
        offsets[partition] = LATEST if record is None else record.offset
    return offsets


def resolve(
    asked: Offsets | None, default: int, name: str, state: TopicState, option: str, report: ReportLoss
) -> list[int]:
    """Return an offset for every partition of a topic (pure).

    Partitions without one get `default`. Offsets outside the log are reported, and moved inside.
    """
    wanted: dict[int, int] = {}
    fallback = default
    if isinstance(asked, dict):
        wanted = asked.get(name, {})
    elif asked is not None:
        fallback = asked
    check_partitions(option, name, state, wanted)
    resolved = []
    for partition, (low, high) in enumerate(zip(state.log_start, state.log_end, strict=True)):
        offset = wanted.get(partition, fallback)
        offset = low if offset == EARLIEST else high if offset == LATEST else offset
        if not low <= offset <= high:
            report(outside(option, TopicPartition(name, partition), low, high, offset))
        resolved.append(min(max(offset, low), high))
    return resolved
