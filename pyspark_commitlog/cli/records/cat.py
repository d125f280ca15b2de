"""`commitlog cat`: records to the standard output, with the flags of `kcat -C`."""

from __future__ import annotations

import io
import logging
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_commitlog.cli.common.arguments import Root, complete_group, complete_topic, opened, principal, unescape
from pyspark_commitlog.cli.common.endings import SignalledError, complain, ended_by_signals
from pyspark_commitlog.cli.common.progress import record_counter
from pyspark_commitlog.cli.common.storage_options import storage_options
from pyspark_commitlog.cli.records.grep import SEARCHED, Grep
from pyspark_commitlog.cli.records.starts import StartAndStop, parse_partitions, parse_start_and_stop
from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import CommitFailedError, UsageError
from pyspark_commitlog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.consumer import Consumer

log = logging.getLogger("pyspark_commitlog.cli")

#: Seconds that one poll waits.
_WAIT = 1.0
#: Bytes that small batches are gathered to before they are written.
_WRITE_BYTES = 2**20
#: The columns that say which offsets a batch holds.
_PLACE = ("topic", "partition", "offset")


Offset = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--offset",
        help="beginning (default), end, stored, an offset, -N: the last N of each partition, "
        "s@TIME: from the first record that is not earlier, e@TIME: up to it, of what is there now. "
        "s@ and e@ go together. TIME: ms since 1970, UTC as 2026-01-31T12:00, or -1h, today, yesterday.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--format",
        help="%s value, %S its bytes (-1: null), %R the same as big-endian int32, %k key, %K its bytes, %t topic, "
        r"%p partition, %o offset, %T timestamp in ms, %h headers, %%; \n \r \t \\ \xHH.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "-G",
        "--group",
        help="Go on where this group is, and commit to it what was written.",
        autocompletion=complete_group,
    ),
]

#: Writes the records of a batch as bytes.
_Render = Callable[["pa.RecordBatch"], bytes | memoryview]


@dataclass(frozen=True, slots=True)
class _Request:
    """Topics, partitions, span and number of records to print, and their format."""

    topics: Sequence[str]
    partitions: Sequence[int] | None
    span: StartAndStop
    to_end: bool
    count: int | None
    group: str | None
    columns: tuple[str, ...]
    render: _Render
    typed: bool = False
    where: str | None = None
    grep: Grep | None = None

    @property
    def is_bounded(self) -> bool:
        return self.to_end or self.span.until is not None

    @property
    def reset(self) -> str:
        return "latest" if self.group is not None and self.span.name == "end" else "earliest"

    @property
    def read_columns(self) -> Sequence[str]:
        if not self.typed:
            return self.columns
        from pyspark_commitlog.cli.records.render import typed_columns

        return typed_columns(self.columns)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those of the polled rows that match, with `columns`."""
        if self.typed:
            from pyspark_commitlog.cli.records.render import as_untyped

            batch = as_untyped(batch, self.columns)
        return batch if self.grep is None else self.grep.rows(batch)


def cat(
    root: Root,
    topic: Annotated[list[str], typer.Argument(help="Topics.", autocompletion=complete_topic)],
    offset: Offset = None,
    partitions: Annotated[str | None, typer.Option("-p", "--partition", help="Only these: 0,2.")] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="End after so many records.", min=1)] = None,
    to_end: Annotated[
        bool,
        typer.Option("-e", "--exit", help="End at what is the end now (-G: when nothing is left); else follow."),
    ] = False,
    form: Format = None,
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="After each record; escapes as in -f.")] = r"\n",
    key_separator: Annotated[
        str | None, typer.Option("-K", "--key-separator", help="Write the key, this, and the value.")
    ] = None,
    null: Annotated[bool, typer.Option("-Z", "--null-value", help="Write NULL for a null; else nothing.")] = False,
    as_json: Annotated[bool, typer.Option("-J", "--json", help="A JSON object per record, as kcat's.")] = False,
    group: Group = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only records that meet this SQL condition: user = 'ada' AND price > 1.5."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="PATTERN", help="Only records whose key or value has this regular expression."),
    ] = None,
) -> None:
    """Write the records of topics to the standard output, as kcat does; and go on as they come, without -e.

    A value is written as its bytes are, a typed topic's row as JSON, and a newline after it. A closed pipe, SIGINT and
    SIGTERM end it with exit code 0.
    """
    with opened(root) as log:
        typed = _are_typed(log, topic)
        columns, render = _output_form(form, delimiter, key_separator, null=null, as_json=as_json, typed=typed)
        request = _Request(
            topics=topic,
            partitions=parse_partitions(partitions),
            span=parse_start_and_stop(offset or ()),
            to_end=to_end,
            count=count,
            group=group,
            columns=tuple(sorted(columns | set(SEARCHED if grep is not None else ()))),
            render=render,
            typed=typed,
            where=where,
            grep=None if grep is None else Grep(grep),
        )
        _check_group(request)
        try:
            with ended_by_signals():
                _run(root, request)
        except (SignalledError, BrokenPipeError):
            pass


def _are_typed(log: CommitLog, topics: Sequence[str]) -> bool:
    """Whether all topics are typed; they must not differ."""
    schemas = {name: log.root.topic(name).newest()[1].schema for name in topics}
    typed = [name for name, schema in schemas.items() if schema is not None]
    if typed and len(typed) < len(schemas):
        other = next(name for name, schema in schemas.items() if schema is None)
        raise UsageError(f"topic {typed[0]!r} is typed and topic {other!r} is not: write them out one by one")
    return bool(typed)


def _output_form(
    form: str | None, delimiter: str, key_separator: str | None, *, null: bool, as_json: bool, typed: bool
) -> tuple[set[str], _Render]:
    """Columns that the output needs, and its renderer."""
    from pyspark_commitlog.cli.records.render import JSON_COLUMNS, columns_of, parse_format, render, render_json

    if as_json + (form is not None) + (key_separator is not None) > 1:
        advice = "" if as_json else ": a format has %k for the key"
        raise UsageError(f"give one of -J, -f and -K{advice}")
    parts = parse_format(form or ("%s" if key_separator is None else "%k"))
    if key_separator is not None:
        parts += [unescape(key_separator, "-K"), "s"]
    if form is None:
        parts.append(unescape(delimiter, "-D"))
    if as_json:
        return set(JSON_COLUMNS), partial(render_json, typed=typed)
    empty = b"NULL" if null else b""
    return columns_of(parts) | set(_PLACE), lambda batch: render(batch, parts, empty)


def _check_group(request: _Request) -> None:
    span = request.span
    if request.group is None and span.name == "stored":
        raise UsageError("-o stored: give the group with -G")
    if request.group is not None and (request.partitions is not None or span != StartAndStop(span.name)):
        raise UsageError("-G: a group goes on where it is; -o takes beginning, end or stored then, and -p nothing")


def _run(root: str, request: _Request) -> None:
    from pyspark_commitlog.consumer import Consumer

    output = _Stdout()
    with (
        record_counter(", ".join(request.topics), wanted=_is_written_to_file()) as count,
        Consumer(
            root,
            group_id=request.group,
            auto_offset_reset=request.reset,
            enable_auto_commit=True,  # before partitions are given up, and at the end; by no time
            auto_commit_interval_ms=LONG_MAX,
            principal=principal(),
            storage_options=storage_options(),
        ) as consumer,
    ):
        ends = _begin(consumer, request)
        left, owed = request.count, False
        while left != 0 and (owed or not _is_done(consumer, request, ends)):
            table = consumer.poll_arrow(_WAIT, left, request.read_columns, request.where)
            for batch in table.to_batches():
                batch = _up_to(request.rows(batch), ends)
                left = None if left is None else left - batch.num_rows
                output.write(request.render(batch))
                count(batch.num_rows)
            output.flush()
            output.check()
            owed = request.group is not None and (owed or table.num_rows > 0) and not _commit(consumer, request.group)
        consumer.close(commit=owed)  # else there may be positions of which nothing was written


def _commit(consumer: Consumer, group: str) -> bool:
    """Commit what was written; return False if the group rebalanced: the next poll follows."""
    try:
        consumer.commit()
    except CommitFailedError:
        log.warning(
            "group %r has moved on: what was written is committed at the next look, and comes again where its "
            "partitions are another member's by then",
            group,
        )
        return False
    return True


def _begin(consumer: Consumer, request: _Request) -> dict[TopicPartition, int]:
    """Go to the request's start; return each partition's end offset, if any."""
    if request.group is not None:
        consumer.subscribe(request.topics)
        return {}
    from pyspark_commitlog.consumer.partition_state import out_of_range

    span = request.span
    places = _places(consumer, request)
    lows, highs = consumer.beginning_offsets(places), consumer.end_offsets(places)
    if request.partitions is None and not request.is_bounded:
        consumer.subscribe(request.topics)  # partitions that are added are read, too
        consumer.seek_to_beginning()
    else:
        consumer.assign(places)
    since = _at(consumer, places, span.since)
    for place in places:
        low, high = lows[place], highs[place]
        start = span.start(low, high, since[place])
        if span.is_outside(low, high):
            complain(f"warning: {out_of_range(place, span.offset or 0, low, high)}; it begins at {start}")
        consumer.seek(place, start)
    until = _at(consumer, places, span.until)
    ends = {place: highs[place] if end is None else end for place, end in until.items()}
    return ends if request.is_bounded else {}


def _places(consumer: Consumer, request: _Request) -> list[TopicPartition]:
    return [
        TopicPartition(name, number)
        for name in dict.fromkeys(request.topics)
        for number in sorted(consumer.partitions_for_topic(name) if request.partitions is None else request.partitions)
    ]


def _at(consumer: Consumer, places: Sequence[TopicPartition], time: int | None) -> dict[TopicPartition, int | None]:
    """Return each first record's offset not before a time; None without one."""
    if time is None:
        return dict.fromkeys(places)
    records = consumer.offsets_for_times(dict.fromkeys(places, time))
    return {place: None if at is None else at.offset for place, at in records.items()}


def _is_done(consumer: Consumer, request: _Request, ends: dict[TopicPartition, int]) -> bool:
    """Return whether all is written; stop polling finished partitions."""
    if request.group is not None:
        begun = bool(consumer.assignment()) or consumer.is_stable()  # others may have all partitions
        return request.to_end and begun and not any(consumer.lag().values())
    lag = consumer.lag() if ends else {}
    for place, end in list(ends.items()):
        if not lag.get(place) or consumer.position(place) >= end:  # nothing is left, also of a topic that was deleted
            consumer.pause(place)
            del ends[place]
    return request.is_bounded and not ends


def _up_to(batch: pa.RecordBatch, ends: dict[TopicPartition, int]) -> pa.RecordBatch:
    if not ends or not batch.num_rows:
        return batch
    place = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
    end = ends.get(place)
    return batch if end is None else batch.slice(0, int(batch.column("offset").to_numpy().searchsorted(end)))


def _is_written_to_file() -> bool:
    """Whether standard output is no terminal and no pipe, whose reader may draw on the terminal itself."""
    return sys.__stdout__ is not None and sys.__stdout__.seekable()


class _Stdout:
    """Unbuffered standard output: what was written is with the reader, and nothing is left to write at the end."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise UsageError("the standard output is closed")
        stream: Any = sys.stdout.buffer
        self._raw: io.RawIOBase = getattr(stream, "raw", stream)  # with PYTHONUNBUFFERED it is raw already
        self._closed = select.poll()
        self._closed.register(self._raw, 0)  # no event but errors: the reader of a pipe is gone
        self._held: list[bytes | memoryview] = []
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Take a batch's bytes; small ones are gathered."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= _WRITE_BYTES:
            self.flush()

    def check(self) -> None:
        """Raise `BrokenPipeError` if nobody reads, without writing."""
        if self._closed.poll(0):
            raise BrokenPipeError

    def flush(self) -> None:
        data = memoryview(self._held[0] if len(self._held) == 1 else b"".join(self._held))
        self._held, self._size = [], 0
        while data:
            data = data[self._raw.write(data) or 0 :]
