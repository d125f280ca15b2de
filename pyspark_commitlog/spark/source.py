"""``format("commitlog")``: the data source that Spark finds, its batch reader and its micro-batch reader."""

from __future__ import annotations

import logging
import os  # noqa: TID251 to end the process, not for files
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_commitlog.errors import OptionError, UnknownTopicError
from pyspark_commitlog.log.borders import FrameBorders
from pyspark_commitlog.log.find import find_time, spans_outside
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.model import OffsetRange, TopicPartition
from pyspark_commitlog.spark.filters import ANY_TIME, Spans, Taker, common, joined, united, without
from pyspark_commitlog.spark.following import GroupProgress, GroupStart, check_share
from pyspark_commitlog.spark.limits import Limits
from pyspark_commitlog.spark.offsets import GroupMark, SourceOffset
from pyspark_commitlog.spark.options import EARLIEST, GROUP, LATEST, Offsets, SourceOptions, Times, source_options
from pyspark_commitlog.spark.progress import (
    Loss,
    Tell,
    backlog,
    high_watermarks,
    outside,
    ranges,
    topic_ids,
    up_to,
)
from pyspark_commitlog.spark.splits import split
from pyspark_commitlog.spark.throttle import Throttle
from pyspark_commitlog.topics import CommitLog

log = logging.getLogger("pyspark_commitlog")

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


class DefaultSource(DataSource):
    """The ``commitlog`` data source. Spark finds it by the package's name; nothing needs to be registered."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog"

    def open_log(self, path: str, storage: Mapping[str, str]) -> CommitLog:
        """Return the log at a root; tests override it to inject faults."""
        return CommitLog(path, storage)

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source (``headers`` with includeHeaders), or those in ``columns``."""
        return chosen(source_options(self.options))

    def reader(self, schema: StructType) -> CommitLogReader:
        """Return the batch reader."""
        return CommitLogReader(self, source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> CommitLogStreamReader:
        """Return the micro-batch reader."""
        return CommitLogStreamReader(self, source_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the batch writer."""
        from pyspark_commitlog.spark.sink import CommitLogWriter

        return CommitLogWriter(self, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the streaming writer."""
        from pyspark_commitlog.spark.sink import CommitLogStreamWriter

        return CommitLogStreamWriter(self, schema, overwrite)


def chosen(options: SourceOptions) -> StructType:
    """Return the columns that a reader gives if the job names no schema (pure).

    Raises:
        OptionError: ``columns`` names one that there is not, or one twice, or leaves out the headers that were asked.
    """
    if options.columns is None:
        return _COLUMNS if options.include_headers else StructType(_COLUMNS.fields[:-1])
    known = {field.name.lower(): field for field in _COLUMNS.fields}
    asked = [name.lower() for name in options.columns]
    for name in asked:
        if name not in known or asked.count(name) > 1:
            told = ", ".join(_COLUMNS.fieldNames())
            raise OptionError(f"option 'columns'={', '.join(options.columns)!r}: name some of {told}, each once")
    if options.include_headers and "headers" not in asked:
        raise OptionError("options 'columns' and 'includeHeaders'='true' exclude each other unless it names headers")
    return StructType([known[name] for name in asked])


def check_schema(schema: StructType) -> None:
    """Check a user's schema: any of the source's columns, in any order, with their types.

    Raises:
        OptionError: names the column and what it must be.
    """
    known = {field.name: field.dataType for field in _COLUMNS.fields}
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f"schema: there is no column {field.name!r}; choose from {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise OptionError(
                f"schema: column {field.name!r} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


@dataclass(frozen=True)
class _Range(InputPartition):
    """An input partition: offsets of one topic-partition, nothing else (rule R8)."""

    value: OffsetRange


#: Where to start or end, as it was asked for.
Starting = Offsets | Times | GroupStart | None


class _Reading:
    """What batch and streaming reads share: opening topics, and turning ranges into Arrow batches in the tasks."""

    def __init__(self, source: DefaultSource, options: SourceOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        check_schema(schema)
        if options.columns is not None and chosen(options).fieldNames() != schema.fieldNames():
            raise OptionError(
                f"option 'columns'={', '.join(options.columns)!r} and the schema {', '.join(schema.fieldNames())!r} "
                "exclude each other: give one of them"
            )
        self._source, self._options = source, options
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._topics: dict[str, TopicLog] = {}
        self._told: set[Loss] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_topics": {}, "_told": set()}

    def _log(self) -> CommitLog:
        log = self._source.open_log(self._options.path, self._options.storage)
        return log.acting_as(self._options.principal)

    def _progress(self) -> GroupProgress | None:
        """Return what follows the query's group, if it has one."""
        group, strict = self._options.group, self._options.fail_on_data_loss
        return None if group is None else GroupProgress(self._log().groups.open(group.name), group, strict=strict)

    def _starting(self, progress: GroupProgress | None) -> Starting:
        return progress.start() if progress and self._options.starting == GROUP else self._options.starting

    def _topic(self, name: str) -> TopicLog:
        if name not in self._topics:
            self._topics[name] = self._log().topic(name)
        return self._topics[name]

    def _states(self, known: Mapping[str, str], *, all_there: bool = True) -> dict[str, TopicState]:
        """Return the newest state of every subscribed or known topic: with failOnDataLoss, of the life that is known.

        Without it a known topic may be missing. With ``all_there`` false any may: for reports, and for plans that are
        checked behind it.
        """
        strict, subscription = self._options.fail_on_data_loss, self._options.subscription
        named = subscription.topics if subscription.pattern is None else subscription.among(self._log().listed())
        states = {}
        for name in sorted({*named, *known}):
            topic, new = self._topic(name), name not in known
            try:
                stored, state = topic.newest(known.get(name) if strict else None)
            except UnknownTopicError:
                if new and subscription.pattern is not None:
                    continue
                if all_there and (strict or new):
                    raise
                continue
            topic.journal.sync_exposed(stored)
            states[name] = state
        return states

    def _tell(self, loss: Loss) -> None:
        """Raise, or warn once and let the query go on, as failOnDataLoss says."""
        if self._options.fail_on_data_loss:
            raise loss.error()
        if loss not in self._told:
            self._told.add(loss)
            log.warning("%s; failOnDataLoss is false: %s", loss.told, loss.next)

    def _parts(self, found: Sequence[OffsetRange]) -> list[InputPartition]:
        """Return ranges as Spark's partitions, cut as the options say."""
        borders = FrameBorders(self._topic)
        return [_Range(each) for each in split(found, self._options.split, borders.of)]

    def _resolve(
        self, states: Mapping[str, TopicState], asked: Starting, default: int, option: str
    ) -> dict[TopicPartition, int]:
        """Return an offset for every partition that is read; see ``by_offset`` and ``resolve``."""
        named = asked.topics if isinstance(asked, Times) else set(asked if isinstance(asked, dict) else ())
        for name in sorted(named - set(states)):  # a pattern takes it
            raise OptionError(f"option {option!r} names topic {name!r}, which does not exist")
        offsets: dict[TopicPartition, int] = {}
        for name, state in states.items():
            taken = self._options.subscription.partitions(name, state.partitions)
            if isinstance(asked, GroupStart):
                exact: Offsets | None = {name: asked.of(name, state, taken, strict=self._options.fail_on_data_loss)}
            else:
                exact = by_offset(self._topic(name), state, asked, taken)
            found = resolve(exact, default, name, state, option, self._tell)
            offsets |= {TopicPartition(name, partition): found[partition] for partition in taken}
        return offsets

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, in Arrow; runs in a task."""
        from pyspark_commitlog.log.kept import read_kept
        from pyspark_commitlog.log.reader import read_range
        from pyspark_commitlog.spark.rows import SparkRows, wanted_columns
        from pyspark_commitlog.spark.worker import enter_task

        enter_task()
        wanted = partition.value
        if not isinstance(wanted, OffsetRange):  # Spark's placeholder for "no partitions"
            return iter(())
        topic = self._log().topic(wanted.topic)
        read = read_range if self._options.fail_on_data_loss else read_kept
        rows = read(topic, wanted, wanted_columns(self._schema))
        return SparkRows(self._schema, wanted.topic, wanted.partition).convert(rows)


class CommitLogReader(_Reading, DataSourceReader):
    """Reads a fixed range of every partition of the subscribed topics."""

    def __init__(self, source: DefaultSource, options: SourceOptions, schema: StructType) -> None:
        super().__init__(source, options, schema)
        if options.starting == LATEST:
            raise OptionError("option 'startingOffsets'='latest' makes no sense for a batch read: it would be empty")
        if options.ending == EARLIEST:
            raise OptionError("option 'endingOffsets'='earliest' makes no sense: it would be empty")
        if options.limits != Limits():
            log.warning("limits of a trigger do nothing in a batch read: it takes all from start to end")
        self._taker = Taker() if options.push_down else None
        if self._taker is not None:
            self.pushFilters = self._taker  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        """Return one range per topic-partition that has records, all of a topic from one entry."""
        states = self._states({})
        starts = self._resolve(states, self._starting(self._progress()), EARLIEST, "startingOffsets")
        ends = self._resolve(states, self._options.ending, LATEST, "endingOffsets")
        found: list[OffsetRange] = []
        for place, start in starts.items():
            name, partition, end = place.topic, place.partition, ends[place]
            if start > end:
                raise OptionError(f"{name} partition {partition}: startingOffsets {start} lies above the end {end}")
            wanted = OffsetRange(name, states[name].topic_id, partition, start, end)
            found += [replace(wanted, start=at, end=stop) for at, stop in self._kept(self._topic(name), wanted)]
        return self._parts(found)

    def _kept(self, topic: TopicLog, wanted: OffsetRange) -> Spans:
        """Return which offsets of a range may pass the filters that Spark pushed."""
        if self._taker is None or not self._taker.taken.tests:
            return united([(wanted.start, wanted.end)])
        filters = self._taker.taken
        kept, times = filters.offsets(wanted.topic, wanted.partition, wanted.start, wanted.end), filters.times()
        if kept and times is not None and times != ANY_TIME:
            outside = spans_outside(topic, wanted.topic_id, wanted.partition, *times)
            kept = common(kept, without(united(outside)))
        return joined(kept)


def by_offset(
    topic: TopicLog, state: TopicState, asked: Offsets | Times | None, taken: Sequence[int]
) -> Offsets | None:
    """Return where to start or end by offset: timestamps are looked up, those of the partitions that are ``taken``.

    Raises:
        OptionError: all records of a partition are earlier, and the strategy is ``error``.
    """
    if not isinstance(asked, Times):
        return asked
    offsets = {}
    for partition, at in asked.of(topic.name, state.partitions).items():
        if partition not in taken and partition < state.partitions:
            continue
        known = partition < state.partitions  # else refused by ``resolve``
        found = find_time(topic, state.topic_id, partition, at) if known else None
        if found is None and known and asked.strict:
            raise OptionError(
                f"{topic.name} partition {partition} has no record at or after timestamp {at} (ms); set the option "
                "'startingOffsetsByTimestampStrategy' to 'latest' to start such partitions at their end"
            )
        offsets[partition] = LATEST if found is None else min(found.offset, state.log_end[partition])
    return {topic.name: offsets}


def resolve(asked: Offsets | None, default: int, name: str, state: TopicState, option: str, tell: Tell) -> list[int]:
    """Return an offset for every partition of a topic (pure).

    Partitions that JSON leaves out get ``default`` (earliest for a start, latest for an end). ``tell`` is told of an
    offset outside [log start offset, high watermark]; if it does not raise, the nearer of the two is taken.

    Raises:
        OptionError: a partition that does not exist.
    """
    wanted: dict[int, int] = {}
    fallback = default
    if isinstance(asked, dict):
        wanted = asked.get(name, {})
    elif asked is not None:
        fallback = asked
    for partition in wanted:
        if partition >= state.partitions:
            raise OptionError(
                f"option {option!r}: topic {name!r} has partitions 0 to {state.partitions - 1}, not {partition}"
            )
    resolved = []
    for partition, (low, high) in enumerate(zip(state.log_start, state.log_end, strict=True)):
        offset = wanted.get(partition, fallback)
        offset = low if offset == EARLIEST else high if offset == LATEST else offset
        if not low <= offset <= high:
            tell(outside(option, TopicPartition(name, partition), low, high, offset))
        resolved.append(min(max(offset, low), high))
    return resolved


class CommitLogStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is committed, micro-batch by micro-batch."""

    def __init__(self, source: DefaultSource, options: SourceOptions, schema: StructType) -> None:
        super().__init__(source, options, schema)
        if options.ending is not None:
            raise OptionError(
                "option 'endingOffsets' is for batch reads; a stream ends with trigger(availableNow=True)"
            )
        if options.push_down:
            raise OptionError("option 'pushDownPredicate' is for batch reads: Spark pushes no filters to a stream")
        self._target: dict[TopicPartition, int] | None = None
        self._throttle = Throttle(options.limits, self._topic)
        self._initial: dict[str, Any] | None = None
        self._group: GroupProgress | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_initial": None, "_group": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts: the same whenever Spark asks, which is twice."""
        if self._initial is None:
            self._initial = self._first_offset().to_json()
        return self._initial

    def _first_offset(self) -> SourceOffset:
        states, group = self._states({}), self._following()
        asked = LATEST if self._options.starting is None else self._starting(group)
        offsets = self._resolve(states, asked, EARLIEST, "startingOffsets")
        return SourceOffset(offsets, topic_ids(states), group.mark(None) if group else None)

    def _following(self) -> GroupProgress | None:
        if self._group is None:
            self._group = self._progress()
        return self._group

    def _follow(self, reached: SourceOffset) -> GroupMark | None:
        group = self._following()
        topics = filter(self._options.subscription.takes, reached.topic_ids)
        return group.commit(reached, set(topics)) if group else None

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark is told; ``latestOffset`` puts all of them together."""
        return self._options.limits.for_spark()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now: the query ends when it is read."""
        self._target = high_watermarks(self._states({}, all_there=False), self._options.subscription)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: all that is committed, or a fair share of the limits.

        What ends at ``start`` is over: this is where the group learns it, also of the last batch of a run.
        """
        begin = SourceOffset.from_json(start)
        check_share(self._options.group, begin.group)
        states, subscription = self._states(begin.topic_ids), self._options.subscription
        mark = self._follow(begin)
        found = backlog(begin, states, subscription, self._tell, lambda name, life: self._topic(name).ended(life))
        ends, ids = dict(found.ends), found.topic_ids
        if self._target is not None:
            ends = up_to(self._target, begin, ends)
            ids = {name: ids[name] for name in {place.topic for place in ends}}
        if not isinstance(limit, ReadAllAvailable):  # which a trigger that runs once asks for
            ends = self._throttle.cut(found, ends, may_wait=self._target is None)
        reached = SourceOffset(ends, ids, begin.group)
        return (reached if reached == begin else replace(reached, group=mark)).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the high watermarks, for the query's progress."""
        states = self._states({}, all_there=False)
        return SourceOffset(high_watermarks(states, self._options.subscription), topic_ids(states)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one range per topic-partition with new records."""
        until = SourceOffset.from_json(end)
        return self._parts(ranges(SourceOffset.from_json(start), until, self._states(until.topic_ids), self._tell))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the group, if there is one. Spark's checkpoint holds the query's progress."""
        self._follow(SourceOffset.from_json(end))

    def stop(self) -> None:
        """Nothing to close. When the query ended, end the process as well.

        Spark tells by closing the pipe. Its worker would then try to answer that, and print a traceback when nobody
        listens (``python_streaming_source_runner``).
        """
        if isinstance(sys.exception(), EOFError):
            os._exit(0)
