"""Reads a page of a topic's records: from an offset, a time or the end, in bounded steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_commitlog import CommitLog, Consumer, TopicPartition
from pyspark_commitlog.cli.ui.masking import check_condition
from pyspark_commitlog.cli.ui.record_filter import RecordFilter, parse_key
from pyspark_commitlog.cli.ui.record_query import (
    MOST_RECORDS,
    Offsets,
    RecordQuery,
    check_inside,
    chosen_partitions,
    cursor_text,
    going_back,
)
from pyspark_commitlog.cli.ui.record_table import parquet_of
from pyspark_commitlog.cli.ui.record_views import PAGE_BYTES, RecordForm, bytes_of_view, matches, record_views
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.instants import parse_instant
from pyspark_commitlog.topic.write.partitioner import key_partitions

#: A search ends after so many records, or seconds; the next page goes on.
SCANNED_RECORDS, SCAN_SECONDS = 20_000, 5.0
#: Records that one step of a search reads, and about the decoded bytes of a step.
_STEP, _STEP_BYTES = 1000, 2**23
#: Bytes of the records of a Parquet file.
PARQUET_BYTES = 2**26


def up_to_bytes(views: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield records until they take `PAGE_BYTES`."""
    size = 0
    for view in views:
        yield view
        size += bytes_of_view(view)
        if size >= PAGE_BYTES:
            return


def read_page(log: CommitLog, topic: str, query: RecordQuery, masked: frozenset[str]) -> dict[str, Any]:
    """Read records of a topic.

    Returns:
        `records` (`record_views`), by time, or by offset of one partition; `start`, `next`, `previous`: cursors;
        `scanned`: offsets; `ended`: whether the high watermark was reached; `keyPartition`: the partition of the key,
        if it alone was read.

    Raises:
        UnknownTopicError, AccessDeniedError: the principal can't read it.
        UsageError: no such partition, or a filter that can't be one.
        OffsetOutOfRangeError: the offset is not in the log.
    """
    with _opened(log, topic, query, masked) as reader:
        return reader.read()


def read_parquet(log: CommitLog, topic: str, query: RecordQuery, masked: frozenset[str]) -> bytes:
    """Read the records from a query's `cursor` up to its `end` as a Parquet file, see `parquet_of`.

    Raises:
        UsageError: there are none or too many, they take too many bytes, or too long to find; else as `read_page`.
    """
    if query.end is None:
        raise UsageError("say which records to save: give cursor and end")
    with _opened(log, topic, query, masked) as reader:
        return reader.parquet()


@contextmanager
def _opened(log: CommitLog, topic: str, query: RecordQuery, masked: frozenset[str]) -> Iterator[_PageReader]:
    _, state = log.root.topic(topic).newest_durable()
    schema = state.schema
    column = None if schema is None else schema.by_id(schema.key)
    form = RecordForm(schema.names if schema else (), masked, None if column is None else column.name)
    check_condition(query.condition, {*masked, *(["key"] if form.hides_key else [])})
    key = parse_key(query.key, "binary" if column is None else str(column.field.type)) if query.key else None
    filtered = RecordFilter.of(query, form, key)
    chosen = chosen_partitions(topic, state.partitions, query, _partition_of(key, state.partitions))
    root, principal = SharedRoot.on(log.root.storage), log.root.principal
    with closing(
        Consumer(root, auto_offset_reset="none", fetch_max_bytes=_STEP_BYTES, principal=principal)
    ) as consumer:
        _check_partitions(consumer, topic, chosen, state.partitions)
        lows = {partition: state.log_start[partition] for partition in chosen}
        highs = {partition: state.log_end[partition] for partition in chosen}
        yield _PageReader(log, consumer, topic, query, form, filtered, lows, highs)


def _partition_of(key: bytes | None, count: int) -> int:
    return 0 if key is None else int(key_partitions(pa.array([key], pa.binary()), count)[0])


def _check_partitions(consumer: Consumer, topic: str, chosen: Sequence[int], count: int) -> None:
    if unknown := [TopicPartition(topic, each) for each in chosen if not 0 <= each < count]:
        consumer.beginning_offsets(unknown)  # its error names those there are


class _Match(NamedTuple):
    """A matching record, and its row of a batch."""

    view: dict[str, Any]
    batch: pa.RecordBatch
    row: int


class _PageReader:
    """Reads a page by a consumer without a group, which writes nothing."""

    def __init__(
        self,
        log: CommitLog,
        consumer: Consumer,
        topic: str,
        query: RecordQuery,
        form: RecordForm,
        filtered: RecordFilter,
        lows: Offsets,
        highs: Offsets,
    ) -> None:
        self._log, self._consumer, self._topic = log, consumer, topic
        self._query, self._form, self._filter = query, form, filtered
        self._lows, self._highs = lows, highs
        self._clock = log.root.storage.clock
        #: Records by which `newest` and `previous` go back.
        self._window = SCANNED_RECORDS if query.is_selective else query.limit

    def read(self) -> dict[str, Any]:
        """See `read_page`."""
        lows, highs, limit = self._lows, self._highs, self._query.limit
        start = self._positioned()
        following = dict(start)
        if self._query.newest and self._query.is_selective:  # the last ones of the window, not the first
            found = (match.view for match in self._matches(following, highs, SCANNED_RECORDS))
            records = list(up_to_bytes(reversed(deque(found, maxlen=limit))))
        else:
            records = list(up_to_bytes(match.view for match in self._matches(following, highs, limit)))
        records.sort(key=lambda view: (len(lows) > 1 and view["timestamp"], view["partition"], view["offset"]))
        before = going_back(start, lows, self._window)
        return {
            "records": records,
            "columns": list(self._form.columns),
            "start": cursor_text(start),
            "next": cursor_text(following),
            "previous": cursor_text(before) if before != start else None,
            "scanned": sum(following.values()) - sum(start.values()),
            "ended": all(following[partition] >= high for partition, high in highs.items()),
            "keyPartition": next(iter(lows)) if self._query.is_by_key else None,
        }

    def parquet(self) -> bytes:
        """See `read_parquet`."""
        ends = {partition: min(offset, self._highs[partition]) for partition, offset in (self._query.end or {}).items()}
        following, rows, size = dict(self._positioned()), list[pa.RecordBatch](), 0
        for match in self._matches(following, ends, MOST_RECORDS):
            if match.view["offset"] >= ends[match.view["partition"]]:
                continue
            row = match.batch.take(pa.array([match.row]))  # a copy: the batch need not stay
            rows.append(row)
            size += row.nbytes
            if size > PARQUET_BYTES:
                raise UsageError(f"the whole values take more than {PARQUET_BYTES >> 20} MiB: save fewer records")
        if not rows:
            raise UsageError("there are no records to save")
        if any(following[partition] < end for partition, end in ends.items()):
            raise UsageError(
                f"the records are more than {MOST_RECORDS}, more than {SCANNED_RECORDS:,} offsets apart, or take more "
                f"than {SCAN_SECONDS:.0f} s to find: save fewer"
            )
        return parquet_of(rows, self._form)

    def _positioned(self) -> Offsets:
        """Seek to where the query starts."""
        start = self._start(self._lows, self._highs)
        check_inside(self._topic, start, self._lows, self._highs)
        places = [TopicPartition(self._topic, partition) for partition in self._lows]
        self._consumer.assign(places)
        for place in places:
            self._consumer.seek(place, start[place.partition])
        return start

    def _start(self, lows: Offsets, highs: Offsets) -> Offsets:
        query = self._query
        if query.cursor is not None:
            return query.cursor
        if query.newest:
            return going_back(highs, lows, self._window)
        if query.offset is not None:
            return dict.fromkeys(lows, query.offset)
        return lows if query.time is None else self._at_time(query.time, lows, highs)

    def _at_time(self, time: str, lows: Offsets, highs: Offsets) -> Offsets:
        try:
            at_ms = parse_instant(time, self._clock.now_ms())
        except ValueError as error:
            raise UsageError(f"time {time}: {error}") from None
        found = self._log.topic(self._topic).offsets_for_times(dict.fromkeys(lows, at_ms))
        return {
            partition: highs[partition] if at is None else min(max(at.offset, lows[partition]), highs[partition])
            for partition, at in found.items()
        }

    def _matches(self, following: dict[int, int], highs: Offsets, most: int) -> Iterator[_Match]:
        """Yield up to `most` matching records; `following` is after the last one."""
        begun, until = sum(following.values()), self._clock.monotonic() + SCAN_SECONDS
        while any(following[partition] < high for partition, high in highs.items()):
            before = sum(following.values())
            for match in self._step(most, following):
                yield match
                most -= 1
                if not most:
                    return
            reached = sum(following.values())
            if reached == before or reached - begun >= SCANNED_RECORDS or self._clock.monotonic() >= until:
                return

    def _step(self, most: int, following: dict[int, int]) -> Iterator[_Match]:
        """Yield the matching records of one poll, and move `following` past each."""
        query = self._query
        count = _STEP if query.is_selective else min(most, _STEP)
        table = self._consumer.poll_arrow(0.0, count, self._form.names, query.condition)
        for batch in table.to_batches():
            kept = self._filter.rows(batch, self._form)
            for row, view in enumerate(record_views(kept, self._form)):
                following[view["partition"]] = view["offset"] + 1
                if matches(view, query.search):
                    yield _Match(view, kept, row)
        following.update({place.partition: self._consumer.position(place) for place in self._consumer.assignment()})
