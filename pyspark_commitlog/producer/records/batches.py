"""Queued records and Arrow batches, and their results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import index
from typing import Any, NamedTuple, NoReturn, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CommitLogError, InvalidRecordError, UsageError
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP, TOGETHER_BYTES, Ints, bounded, instants
from pyspark_commitlog.model import as_whole
from pyspark_commitlog.producer.records.row_values import HeaderList, Row, RowValues, value_bytes
from pyspark_commitlog.producer.records.topic_columns import TopicColumns
from pyspark_commitlog.topic.write.staging import RowPlacement

log = logging.getLogger("pyspark_commitlog.producer")

#: Bytes that a record counts for in the buffer beside key, value and headers: its future, of 1,720 bytes, and its list
#: entries.
RECORD_BYTES = 1800
#: Rows that are cast and distributed at a time.
BATCH_ROWS = 2**16
#: Bytes of the lists that become one Arrow batch.
RUN_BYTES = 8 * 2**20
#: An unknown offset or partition.
UNKNOWN = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_US_PER_MS = 1000
#: The largest timestamp, ms: bounded by Kafka's protocol, and our microseconds.
MAX_TIMESTAMP_MS = LONG_MAX // _US_PER_MS

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]
_T = TypeVar("_T")
_Given = TypeVar("_Given")


class RecordMetadata(NamedTuple):
    """Position of a record (Kafka: `RecordMetadata`); `timestamp` in ms.

    `offset` and `partition` are -1 if an earlier try landed at an unknown position.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int

    def has_offset(self) -> bool:
        """Whether the offset is known."""
        return self.offset != UNKNOWN


class BatchMetadata(NamedTuple):
    """Offsets of an Arrow batch: partition -> (first, one after the last).

    `offsets` is empty if an earlier try landed at an unknown position.
    """

    topic: str
    records: int
    offsets: Mapping[int, tuple[int, int]]


class SentFuture(Future[_T]):
    """Future of `send`; not cancellable, as Kafka's; first outcome holds."""

    def cancel(self) -> bool:
        """Return False."""
        return False

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a future of a Producer can't be pickled or copied: it is completed in this process. Return its result()"
        )

    def set_result(self, result: _T) -> None:
        """Set the result, unless the record failed before."""
        _complete(super().set_result, result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Set the error, unless there is an outcome already."""
        _complete(super().set_exception, exception)


def _complete(act: Callable[[_Given], None], outcome: _Given) -> None:
    """Set an outcome, and contain what a callback raises: other futures must still complete."""
    try:
        act(outcome)
    except KeyboardInterrupt:
        raise
    except InvalidStateError:
        pass
    except BaseException as error:
        log.error("a callback of a future raised %r: it ended nothing", error, exc_info=error)


@dataclass(slots=True)
class RecordRun:
    """Single records; `since` is the first's monotonic time (s).

    `columns`: those that the values are rows of, if the topic is typed.
    """

    topic: str
    since: float
    size: int = 0
    sequences: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[HeaderList | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    partitions: list[int | None] = field(default_factory=list)
    futures: list[SentFuture[RecordMetadata]] = field(default_factory=list)
    columns: RowValues | None = None

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.values)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record."""
        return self.sequences[-1] if self.sequences else UNKNOWN

    def weights(self) -> list[int]:
        """Bytes of each record."""
        rows = zip(self.values, self.keys, self.headers, strict=True)
        return [
            RECORD_BYTES + size_of_value(value) + len(key or b"") + sizes_of(headers or [])
            for value, key, headers in rows
        ]

    def add(
        self,
        value: bytes | Row | None,
        key: bytes | None,
        headers: HeaderList | None,
        timestamp_us: int,
        partition: int | None,
        future: SentFuture[RecordMetadata],
        size: int,
        sequence: int,
    ) -> None:
        """Add a record of `size` bytes."""
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.timestamps.append(timestamp_us)
        self.partitions.append(partition)
        self.futures.append(future)
        self.sequences.append(sequence)
        self.size += size

    def cut(self, rows: int, size: int) -> None:
        """Drop all but the first `rows`, which have `size` bytes."""
        columns = (self.values, self.keys, self.headers, self.timestamps, self.partitions, self.futures, self.sequences)
        for column in columns:
            del column[rows:]
        self.size = size

    def select(self, rows: Sequence[int], partitions: Sequence[int | None]) -> RecordRun:
        """Return some of the records with partitions, uncounted by the buffer."""
        return RecordRun(
            self.topic, self.since, 0, _of(self.sequences, rows), _of(self.values, rows), _of(self.keys, rows),
            _of(self.headers, rows), _of(self.timestamps, rows), list(partitions), _of(self.futures, rows),
            self.columns,
        )  # fmt: skip

    def split(self, row: int) -> tuple[RecordRun, RecordRun]:
        """Split the run at a row, uncounted by the buffer."""
        first, rest = range(row), range(row, self.rows)
        return self.select(first, self.partitions[:row]), self.select(rest, self.partitions[row:])

    def batches(self) -> list[pa.RecordBatch]:
        """Return the records in Arrow."""
        prefix, number = ("", "partition") if self.columns is None else ("_", "_partition_id")
        if self.columns is None:
            columns = {"value": pa.array(self.values, pa.binary()), "key": pa.array(self.keys, pa.binary())}
        else:
            columns = self.columns.arrays(self.values)
        if self.columns is None or self.columns.timestamp is None:
            columns[f"{prefix}timestamp"] = pa.array(self.timestamps, pa.int64()).view(TIMESTAMP)
        if any(self.headers):
            columns[f"{prefix}headers"] = pa.array(self.headers, HEADERS)
        if any(partition is not None for partition in self.partitions):
            columns[number] = pa.array(self.partitions, pa.int64())
        return [pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))]

    def fail(self, error: Exception) -> None:
        """Fail the futures that are pending."""
        for future in self.futures:
            future.set_exception(error)


@dataclass(slots=True)
class ArrowBatch:
    """Arrow batch, sent atomically; fields as of `RecordRun`.

    `partition`: its column of explicit partitions.
    """

    topic: str
    since: float
    pieces: list[pa.RecordBatch]
    rows: int
    size: int
    future: SentFuture[BatchMetadata]
    last_sequence: int = UNKNOWN
    partition: str = "partition"

    def bound(self, partitions: Sequence[npt.NDArray[np.int64]]) -> ArrowBatch:
        """Batch with fixed partitions, uncounted by the buffer.

        `partitions` has one array per piece.
        """
        pieces = [
            bound_for(piece, chosen, self.partition) for piece, chosen in zip(self.pieces, partitions, strict=True)
        ]
        return replace(self, pieces=pieces, size=0)

    def batches(self) -> list[pa.RecordBatch]:
        """Return the records."""
        return self.pieces

    def weights(self) -> list[int]:
        """Its bytes, as one unit."""
        return [RECORD_BYTES + sum(piece.nbytes for piece in self.pieces)]

    def fail(self, error: Exception) -> None:
        """Fail the future, unless it has an outcome."""
        self.future.set_exception(error)


Item = RecordRun | ArrowBatch


def _of(values: Sequence[_T], rows: Sequence[int]) -> list[_T]:
    return [values[row] for row in rows]


def bound_for(piece: pa.RecordBatch, partitions: npt.NDArray[np.int64], name: str) -> pa.RecordBatch:
    """Replace the partition column `name`."""
    kept = piece.drop_columns([name]) if name in piece.schema.names else piece
    return kept.append_column(name, pa.array(partitions, pa.int64()))


def as_bytes(value: bytes | str | None, what: str) -> bytes | None:
    """Encode a key or value; text as UTF-8.

    Raises:
        InvalidRecordError: wrong type, or a lone surrogate.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"a record's {what} is no text that UTF-8 can hold: {error}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRecordError(f"a record's {what} is a {type(value).__name__}: it takes bytes, str or None")


def as_headers(headers: Headers) -> HeaderList:
    """Headers as pairs, in order.

    Raises:
        InvalidRecordError: they have another form.
    """
    pairs: HeaderList = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidRecordError(f"a record's header is {pair!r}: it takes pairs of a str and bytes, str or None")
        as_bytes(pair[0], "header name")
        pairs.append((pair[0], as_bytes(pair[1], f"header {pair[0]!r}")))
    return pairs


def as_microseconds(timestamp: int | datetime) -> int:
    """Convert ms or an aware datetime to microseconds since 1970.

    Raises:
        InvalidRecordError: a naive datetime, or another type.
    """
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidRecordError(f"a record's timestamp {timestamp} has no time zone: add one, as in tzinfo=UTC")
        return (timestamp - _EPOCH) // _US
    milliseconds = timestamp if type(timestamp) is int else as_whole(timestamp)
    if milliseconds is None or abs(milliseconds) > MAX_TIMESTAMP_MS:
        raise InvalidRecordError(
            f"a record's timestamp is {timestamp!r}: it takes milliseconds since 1970, or a datetime with a time zone"
        )
    return milliseconds * _US_PER_MS


def as_sequence(sequence: SupportsIndex) -> int:
    """Convert a sequence number to int, also from NumPy.

    Raises:
        UsageError: no integer, or negative, which would count as landed.
    """
    try:
        number = UNKNOWN if isinstance(sequence, bool) else index(sequence)
    except TypeError:
        number = UNKNOWN
    if number < 0:
        raise UsageError(f"a record's sequence is {sequence!r}: it takes whole numbers from 0 on")
    return number


def size_of_value(value: bytes | Row | None) -> int:
    """Bytes of a value, or of a typed topic's row."""
    return value_bytes(value) if isinstance(value, tuple) else len(value or b"")


def sizes_of(headers: HeaderList) -> int:
    """Bytes of headers."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def as_pieces(topic: str, batch: Any, columns: TopicColumns) -> list[pa.RecordBatch]:
    """Check an Arrow table or batch; split it into bounded pieces.

    Raises:
        InvalidRecordError: another type, or columns or values that the topic does not take.
    """
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if not isinstance(batch, pa.Table):
        raise InvalidRecordError(
            f"topic {topic!r}: send_batch takes a pyarrow.Table or RecordBatch, not {type(batch).__name__}"
        )
    columns.check_names(batch.schema)
    pieces = batch.to_batches(max_chunksize=BATCH_ROWS)
    return [part for piece in pieces for part in bounded(piece, TOGETHER_BYTES)]


def halves(batch: pa.RecordBatch, start: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield both halves of a batch with their first row numbers."""
    half = batch.num_rows // 2
    yield batch.slice(0, half), start
    yield batch.slice(half), start + half


def divided(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Split items in order into two parts of equal bytes (pure).

    The second is empty for a single record. Arrow batches stay whole.
    """
    weights = [item.weights() for item in items]
    sums = np.cumsum([weight for of_item in weights for weight in of_item])
    left = min(int(np.searchsorted(sums, sums[-1] / 2)) + 1, max(len(sums) - 1, 1))
    for number, (item, units) in enumerate(zip(items, map(len, weights), strict=True)):
        if left == 0:
            return list(items[:number]), list(items[number:])
        if left < units and isinstance(item, RecordRun):
            first, rest = item.split(left)
            return [*items[:number], first], [rest, *items[number + 1 :]]
        left -= units
    return list(items), []


def cut_out(items: Sequence[Item], number: int, row: int) -> tuple[list[Item], Item, list[Item]]:
    """Split items around one record (pure); an Arrow batch counts as one.

    `number` is the item's index, `row` the record's in a run.
    """
    before, item, after = list(items[:number]), items[number], list(items[number + 1 :])
    if isinstance(item, RecordRun):
        first, item = item.split(row)
        item, rest = item.split(1)
        before += [first] if first.rows else []
        after = [rest, *after] if rest.rows else after
    return before, item, after


def separate_damaged(
    placed: Sequence[tuple[Item, int, RowPlacement]], damaged: Sequence[int]
) -> tuple[list[Item], list[Item]]:
    """Separate records of damaged partitions from the rest (pure).

    The rest keeps its partitions. An Arrow batch stays whole.
    """
    kept, refused = list[Item](), list[Item]()
    for _, group in groupby(placed, key=lambda row: id(row[0])):
        parts = list(group)
        item = parts[0][0]
        chosen = [part.partitions for _, _, part in parts]
        lost = np.isin(np.concatenate(chosen), damaged)
        if isinstance(item, ArrowBatch):
            if lost.any():
                refused.append(item)
            else:
                kept.append(item.bound(chosen))
            continue
        rows = np.concatenate([start + np.arange(len(part.partitions)) for _, start, part in parts])
        for into, mask in ((kept, ~lost), (refused, lost)):
            if mask.any():
                into.append(item.select(rows[mask].tolist(), np.concatenate(chosen)[mask].tolist()))
    return kept, refused


def fail_all(items: Iterable[Item], error: CommitLogError) -> None:
    """Complete the futures of items with an error."""
    for item in items:
        item.fail(error)


def acknowledge_run(run: RecordRun, start: int, placed: RowPlacement, offsets: Ints) -> None:
    """Complete the futures of placed records with their offsets."""
    stamps = instants(placed.timestamps) // _US_PER_MS
    futures = run.futures[start : start + len(offsets)]
    places = zip(futures, placed.partitions.tolist(), offsets.tolist(), stamps.tolist(), strict=True)
    for future, partition, offset, timestamp in places:
        future.set_result(RecordMetadata(run.topic, partition, offset, timestamp))
