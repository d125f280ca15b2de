"""Reads a page of a topic's records: from an offset, a time or the end, in bounded steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog import CommitLog, Consumer, TopicPartition
from pyspark_commitlog.cli.ui.masking import check_condition
from pyspark_commitlog.cli.ui.record_views import PAGE_BYTES, RecordForm, bytes_of_view, matches, record_views
from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.instants import parse_instant

#: Records of a page, and partitions that are read together.
MOST_RECORDS, MOST_PARTITIONS = 500, 100
#: A search ends after so many records, or seconds; the next page goes on.
SCANNED_RECORDS, SCAN_SECONDS = 20_000, 5.0
#: Records that one step of a search reads, and about the decoded bytes of a step.
_STEP, _STEP_BYTES = 1000, 2**23

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """What to read of a topic: from the log start, unless an offset, a time, a cursor or the newest are asked for."""

    #: None: all.
    partition: int | None = None
    offset: int | None = None
    #: A form of `parse_instant`: from the first record that is not earlier.
    time: str | None = None
    #: `next` or `previous` of another page.
    cursor: Offsets | None = None
    #: The last records; with a filter or search those of the last `SCANNED_RECORDS`.
    newest: bool = False
    limit: int = 50
    #: SQL, as of `Topic.to_arrow`.
    condition: str | None = None
    #: A text that key, value or a column contains.
    search: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MOST_RECORDS:
            raise UsageError(f"limit={self.limit} is not allowed: it takes 1 to {MOST_RECORDS}")
        if sum([self.offset is not None, self.time is not None, self.cursor is not None, self.newest]) > 1:
            raise UsageError("give one of offset, time, cursor and newest")
        if self.offset is not None and self.partition is None:
            raise UsageError("an offset is of one partition: give partition, too")

    @property
    def is_selective(self) -> bool:
        """Whether records are left out."""
        return bool(self.search) or self.condition is not None


def parse_cursor(text: str) -> Offsets:
    """Parse `0:25,1:7`: partition and offset.

    Raises:
        UsageError: it is none.
    """
    try:
        return {int(partition): int(offset) for partition, offset in (each.split(":") for each in text.split(","))}
    except ValueError:
        raise UsageError(f"cursor {text!r}: use partition:offset, as in 0:25,1:7") from None


def cursor_text(offsets: Offsets) -> str:
    """Return offsets in the form of `parse_cursor`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def check_inside(topic: str, offsets: Offsets, lows: Offsets, highs: Offsets) -> None:
    """Refuse an offset below the log start offset or above the high watermark.

    Raises:
        OffsetOutOfRangeError: names the range.
    """
    for partition, offset in offsets.items():
        if not lows[partition] <= offset <= highs[partition]:
            raise OffsetOutOfRangeError(
                f"topic {topic!r} partition {partition}: offset {offset} is out of range: log start offset is "
                f"{lows[partition]} and high watermark {highs[partition]}; start from an offset between them"
            )


def going_back(offsets: Offsets, lows: Offsets, limit: int) -> Offsets:
    """Return where a page of `limit` records begins that ends about there."""
    share = max(1, limit // max(1, len(offsets)))
    return {partition: max(lows[partition], offset - share) for partition, offset in offsets.items()}


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
        `scanned`: offsets; `ended`: whether the high watermark was reached.

    Raises:
        UnknownTopicError, AccessDeniedError: the principal can't read it.
        UsageError: no such partition, or a filter that can't be one.
        OffsetOutOfRangeError: the offset is not in the log.
    """
    _, state = log.root.topic(topic).newest_durable()
    schema = state.schema
    form = RecordForm(schema.names if schema else (), masked, _key_of(schema))
    check_condition(query.condition, {*masked, *(["key"] if form.hides_key else [])})
    storage, principal = log.root.storage, log.root.principal
    with closing(
        Consumer.on(storage, auto_offset_reset="none", fetch_max_bytes=_STEP_BYTES, principal=principal)
    ) as consumer:
        chosen = _partitions(topic, state.partitions, query)
        if unknown := [TopicPartition(topic, each) for each in chosen if not 0 <= each < state.partitions]:
            consumer.beginning_offsets(unknown)  # its error names those there are
        lows = {partition: state.log_start[partition] for partition in chosen}
        highs = {partition: state.log_end[partition] for partition in chosen}
        return _PageReader(log, consumer, topic, query, form).read(lows, highs)


def _key_of(schema: Any) -> str | None:
    column = None if schema is None else schema.by_id(schema.key)
    return None if column is None else str(column.name)


def _partitions(topic: str, count: int, query: RecordQuery) -> Sequence[int]:
    if query.cursor is not None:
        chosen: Sequence[int] = sorted(query.cursor)
    else:
        chosen = range(count) if query.partition is None else [query.partition]
    if len(chosen) > MOST_PARTITIONS:
        raise UsageError(
            f"topic {topic!r} has {count} partitions; {MOST_PARTITIONS} are read together at most: choose one"
        )
    return chosen


class _PageReader:
    """Reads a page by a consumer without a group, which writes nothing."""

    def __init__(self, log: CommitLog, consumer: Consumer, topic: str, query: RecordQuery, form: RecordForm) -> None:
        self._log, self._consumer, self._topic = log, consumer, topic
        self._query, self._form = query, form
        self._clock = log.root.storage.clock
        #: Records by which `newest` and `previous` go back.
        self._window = SCANNED_RECORDS if query.is_selective else query.limit

    def read(self, lows: Offsets, highs: Offsets) -> dict[str, Any]:
        """See `read_page`."""
        start = self._start(lows, highs)
        check_inside(self._topic, start, lows, highs)
        places = [TopicPartition(self._topic, partition) for partition in lows]
        self._consumer.assign(places)
        for place in places:
            self._consumer.seek(place, start[place.partition])
        following, limit = dict(start), self._query.limit
        if self._query.newest and self._query.is_selective:  # the last ones of the window, not the first
            newest = deque(self._matches(following, highs, SCANNED_RECORDS), maxlen=limit)
            records = list(up_to_bytes(reversed(newest)))
        else:
            records = list(up_to_bytes(self._matches(following, highs, limit)))
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
        }

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

    def _matches(self, following: dict[int, int], highs: Offsets, most: int) -> Iterator[dict[str, Any]]:
        """Yield up to `most` matching records; `following` is after the last one."""
        begun, until = sum(following.values()), self._clock.monotonic() + SCAN_SECONDS
        while any(following[partition] < high for partition, high in highs.items()):
            before = sum(following.values())
            for view in self._step(most, following):
                yield view
                most -= 1
                if not most:
                    return
            reached = sum(following.values())
            if reached == before or reached - begun >= SCANNED_RECORDS or self._clock.monotonic() >= until:
                return

    def _step(self, most: int, following: dict[int, int]) -> Iterator[dict[str, Any]]:
        """Yield the matching records of one poll, and move `following` past each."""
        query = self._query
        count = _STEP if query.is_selective else min(most, _STEP)
        table = self._consumer.poll_arrow(0.0, count, self._form.names, query.condition)
        for batch in table.to_batches():
            for view in record_views(batch, self._form):
                following[view["partition"]] = view["offset"] + 1
                if matches(view, query.search):
                    yield view
        following.update({place.partition: self._consumer.position(place) for place in self._consumer.assignment()})
