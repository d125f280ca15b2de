"""`commitlog produce`: lines of the standard input, or Parquet files, as records; with the flags of `kcat -P`."""

from __future__ import annotations

import io
import json
import logging
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from pyspark_commitlog.cli.common.arguments import Root, Topic, opened, principal, unescape
from pyspark_commitlog.cli.common.endings import LogFormatter, SignalledError, complain, error_text, print_lines
from pyspark_commitlog.cli.common.progress import progress_bars, record_counter
from pyspark_commitlog.cli.common.storage_options import storage_options
from pyspark_commitlog.config import MAX_PARTITION
from pyspark_commitlog.errors import CommitLogError, InvalidRecordError, UsageError
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.cli.records.lines import LineFormat
    from pyspark_commitlog.format.schema.topic_schema import TopicSchema
    from pyspark_commitlog.producer.producer import Producer
    from pyspark_commitlog.producer.records.batches import BatchMetadata

#: Bytes that are read of the standard input at a time, and about as many that a batch of a file has at most.
_READ_BYTES = 2**20
_BATCH_BYTES = 8 * 2**20
#: Seconds between two lines that records are tried again.
_QUIET_SECONDS = 10.0
#: Records, and what names them in an error.
_Batches: TypeAlias = "Iterator[tuple[pa.RecordBatch, str]]"


LinesAreJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help='Lines are objects: {"key":, "value":, "headers":, "timestamp":, "partition":}; bytes as '
        '"value_base64". Of a typed topic: its columns, and "_headers", "_timestamp", "_partition_id". What cat -J '
        "writes will do.",
    ),
]


def produce(
    root: Root,
    topic: Topic,
    key_separator: Annotated[
        str | None, typer.Option("-K", "--key-separator", help=r"A key stands before the first of these; \t, \xHH.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help=r"Ends a record, in place of a newline; escapes as in -K.")
    ] = r"\n",
    null: Annotated[bool, typer.Option("-Z", "--null-value", help="Empty keys and values are null.")] = False,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", help="Where all go; else by key.", min=0, max=MAX_PARTITION)
    ] = None,
    header: Annotated[list[str] | None, typer.Option("-H", "--header", help="name=value. Several times.")] = None,
    as_json: LinesAreJson = False,
    file: Annotated[
        list[str] | None, typer.Option("--file", help="A Parquet file, columns as for the Spark sink. Several times.")
    ] = None,
    acks: Annotated[str, typer.Option(help="all, 1, or 0.")] = "all",
    compression: Annotated[str | None, typer.Option(help="none, lz4, zstd; else the topic's.")] = None,
    producer_id: Annotated[
        str | None, typer.Option(help="Run again with the same input, only what did not land is sent.")
    ] = None,
    print_offsets: Annotated[
        bool, typer.Option("--offsets", help="Print on stdout, as JSON, where records went: from start to before end.")
    ] = False,
) -> None:
    """Send each line of the standard input as a record; a newline, or -D, ends it, and all other bytes count.

    SIGINT and SIGTERM end it: whole lines that were read are sent.
    """
    from pyspark_commitlog.cli.records.lines import LineFormat, parse_headers
    from pyspark_commitlog.producer.producer import Producer

    with opened(root) as log:
        separator = None if key_separator is None else unescape(key_separator, "-K")
        form = LineFormat(separator, null, partition, parse_headers(header or ()), as_json)
        if key_separator == "" or (as_json and (null or key_separator is not None)):
            raise UsageError("-K takes one byte or more, and neither -K nor -Z goes with --json")
        end = unescape(delimiter, "-D")
        _check_input(form, end, file)
        stop = _Signals()
        _show_retries(logging.getLogger("pyspark_commitlog.producer"))
        with Producer(
            root,
            acks=acks,
            compression=compression,
            producer_id=producer_id,
            principal=principal(),
            storage_options=storage_options(),
        ) as producer:
            form = replace(form, schema=_schema(producer, topic, is_read=as_json or bool(file)))
            sender = _BatchSender(producer, topic, numbered=producer_id is not None, print_offsets=print_offsets)
            longest = _longest(log, topic, form, -1 if producer_id is None else producer.last_sequence(topic))
            error = sender.send(_file_batches(file, stop, form) if file else _counted_lines(form, end, stop, longest))
    complain(sender.summary())
    if error is not None:
        complain(f"error: {error_text(error)}")
        raise typer.Exit(1)
    raise typer.Exit(stop.exit_code)


def _check_input(form: LineFormat, end: bytes, file: Sequence[str] | None) -> None:
    """Refuse an empty end of lines, flags of lines beside files, and lines of a closed standard input."""
    from pyspark_commitlog.cli.records.lines import LineFormat

    if not end:
        raise UsageError("-D takes one byte or more")
    if file and (form, end) != (LineFormat(None, False, None, (), False), b"\n"):
        raise UsageError("--file goes without -K, -D, -Z, -p, -H and --json: the columns say all that")
    if not file and sys.stdin is None:
        raise UsageError("the standard input is closed")


def _schema(producer: Producer, topic: str, *, is_read: bool) -> TopicSchema | None:
    """Return the topic's schema; None if untyped. A missing topic is the first error.

    `is_read`: the input has columns.
    """
    from pyspark_commitlog.producer.gathering import declared_schema

    schema = declared_schema(producer, topic)
    if schema is not None and not is_read:
        raise UsageError(f"topic {topic!r} is typed: lines have no columns: use --json, or --file")
    return schema


class _News(logging.Filter):
    """Passes log lines that say what this command does not: warnings, and every ten seconds that it tries again."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = -_QUIET_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        from pyspark_commitlog.producer.records.delivery_errors import NOT_COMMITTED, TRIED_AGAIN

        if record.msg != TRIED_AGAIN:
            return record.levelno >= logging.WARNING and record.msg != NOT_COMMITTED
        if record.created - self._shown < _QUIET_SECONDS:
            return False
        self._shown = record.created
        return True


def _show_retries(logger: logging.Logger) -> None:
    """Show on standard error why records wait; with --verbose all is shown anyway."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    handler.addFilter(_News())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _longest(log: CommitLog, topic: str, form: LineFormat, landed: int) -> Callable[[int], int]:
    """Return a function of a line's number that bounds its bytes by what the topic takes then.

    `landed`: up to this sequence records are there already, whatever the topic takes now.
    """
    from pyspark_commitlog.cli.records.lines import longest_line
    from pyspark_commitlog.format.frame import MAX_RECORD_BYTES
    from pyspark_commitlog.topic.access import Operation

    def longest(number: int) -> int:
        handle = log.root.topic(topic, Operation.DESCRIBE)
        _, state = handle.newest()
        takes = handle.config(state).number("max.message.bytes")
        return longest_line(MAX_RECORD_BYTES if number - 1 <= landed else min(takes, MAX_RECORD_BYTES), form)

    return longest


class _Signals:
    """SIGINT and SIGTERM while records are sent: they end a read at once, and all else when it is done."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._reads = False
        self._woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, number: int, _: FrameType | None) -> None:
        for handled in (signal.SIGINT, signal.SIGTERM):
            signal.signal(handled, signal.SIG_DFL)
        error = SignalledError(number)
        self.exit_code = error.exit_code
        if self._reads:
            raise error

    def read(self) -> bytes:
        """Return the next bytes of the standard input, as soon as there are some; none at its end, or by a signal.

        A read that begins just after a signal came, or while another thread takes it, is not interrupted by it: so the
        descriptor to which the interpreter writes signals is awaited too.
        """
        before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        try:
            self._reads = True
            if self.exit_code:
                return b""
            select.select([sys.stdin, self._woken], [], [])
            return cast(io.BufferedReader, sys.stdin.buffer).read1(_READ_BYTES)
        except SignalledError:
            return b""
        finally:
            self._reads = False
            signal.set_wakeup_fd(before)


def _line_batches(form: LineFormat, end: bytes, stop: _Signals, longest: Callable[[int], int]) -> _Batches:
    """Yield the records of the standard input, each ended by `end`; the last one need not be.

    `longest` bounds a line's bytes by its number; asked if one has more than a read. An invalid or longer line raises
    after the records before it.
    """
    from pyspark_commitlog.cli.records.lines import LineSplitter

    first, gathered, allowed = 1, LineSplitter(end), _READ_BYTES
    while chunk := stop.read():
        if lines := gathered.add(chunk):
            yield from _parsed(lines, first, form)
            first, allowed = first + len(lines), _READ_BYTES
        if len(gathered.rest) > allowed:
            allowed = longest(first) + len(end) - 1  # a part of its end may be there
        if len(gathered.rest) > allowed:
            raise InvalidRecordError(
                f"line {first}: it was not sent: its end does not come within {allowed} bytes, and the topic takes "
                "nothing longer: say with -D what ends a record, raise max.message.bytes, or store the value elsewhere"
            )
    if gathered.rest and not stop.exit_code:
        yield from _parsed([bytes(gathered.rest)], first, form)


def _counted_lines(form: LineFormat, end: bytes, stop: _Signals, longest: Callable[[int], int]) -> _Batches:
    """Yield the records of the standard input; count them on a terminal, unless somebody types them there."""
    with record_counter("standard input", wanted=not sys.stdin.isatty()) as count:
        for batch, what in _line_batches(form, end, stop, longest):
            yield batch, what
            count(batch.num_rows)


def _parsed(lines: Sequence[bytes], first: int, form: LineFormat) -> _Batches:
    from pyspark_commitlog.cli.records.column_lines import parse_column_lines
    from pyspark_commitlog.cli.records.lines import parse_lines

    batch, error = (parse_lines if form.schema is None else parse_column_lines)(lines, first, form)
    yield batch, f"line {first}" if batch.num_rows == 1 else f"lines {first} to {first + batch.num_rows - 1}"
    if error is not None:
        raise error


def _file_batches(files: Sequence[str], stop: _Signals, form: LineFormat) -> _Batches:
    """Yield the records of Parquet files, with a bar on a terminal."""
    with progress_bars() as bars:
        for path in files:
            bar, done = bars.add_task(path), 0
            for batch, rows in _parquet(path, "topic" if form.schema is None else "_topic"):
                if stop.exit_code:
                    return
                yield batch, f"{path} rows {done} to {done + batch.num_rows - 1}"
                done += batch.num_rows
                bars.update(bar, completed=done, total=rows)


def _parquet(path: str, left_out: str) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield bounded batches of a Parquet file's records without a column, with their total number."""
    from pyspark_commitlog.cli.common.parquet import opened_parquet, with_instants
    from pyspark_commitlog.producer.records.batches import BATCH_ROWS

    with opened_parquet(path) as parquet:
        kept = [column for column in parquet.schema_arrow.names if column != left_out]
        for batch in parquet.iter_batches(BATCH_ROWS, columns=kept):
            batch = with_instants(batch, parquet)
            step = max(1, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, _BATCH_BYTES))
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step), parquet.metadata.num_rows


class _BatchSender:
    """Sends batches to a topic, and counts the records that were committed.

    Args:
        numbered: give each record its number in the input as sequence.
        print_offsets: print where records went, as soon as they are committed.
    """

    def __init__(self, producer: Producer, topic: str, *, numbered: bool, print_offsets: bool) -> None:
        self._producer, self._topic, self._numbered, self._prints_offsets = producer, topic, numbered, print_offsets
        self._under_way: deque[tuple[Future[BatchMetadata], str]] = deque()
        self._given = self._records = 0
        self._partitions: set[int] = set()
        self._failed: CommitLogError | None = None

    def send(self, batches: _Batches) -> CommitLogError | None:
        """Send all; return the first error, after which the producer gets nothing more."""
        refused: CommitLogError | None = None
        try:
            for batch, what in batches:
                sequence = self._given if self._numbered else None
                self._under_way.append((self._producer.send_batch(self._topic, batch, sequence=sequence), what))
                self._given += batch.num_rows
                while self._under_way and self._under_way[0][0].done():
                    self._settle()
                if self._failed is not None:
                    break
        except CommitLogError as error:
            refused = error  # what is under way came before it
        while self._under_way:
            self._settle()
        return self._failed or refused

    def _settle(self) -> None:
        """Wait for the oldest batch, and count it, or keep the first failure."""
        future, what = self._under_way.popleft()
        try:
            done = future.result()
        except InvalidRecordError as error:
            unsent = "it was not sent" if what.startswith("line ") else "none of them was sent"
            self._failed = self._failed or InvalidRecordError(f"{what}: {unsent}: {error}")
            return
        except CommitLogError as error:
            self._failed = self._failed or error
            return
        self._records += done.records
        for number, (start, end) in sorted(done.offsets.items()):
            if end > start:
                self._partitions.add(number)
                if self._prints_offsets:
                    row = {"topic": self._topic, "partition": number, "start": start, "end": end}
                    print_lines([json.dumps(row)])

    def summary(self) -> str:
        records, partitions = counted(self._records, "record"), counted(len(self._partitions), "partition")
        return f"{self._topic}: sent {records} to {partitions}"
