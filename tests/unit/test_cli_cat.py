"""What `commitlog cat` and `produce` decide: where to start, what bytes to write, what a line is."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from pyspark_commitlog.cli.common.arguments import unescape
from pyspark_commitlog.cli.records.lines import LineFormat, LineSplitter, longest_line, parse_lines
from pyspark_commitlog.cli.records.produce import _line_batches
from pyspark_commitlog.cli.records.render import parse_format, render
from pyspark_commitlog.cli.records.starts import StartAndStop, parse_start_and_stop
from pyspark_commitlog.errors import InvalidRecordError, UsageError

LINES = LineFormat(key_separator=b":", null=False, partition=None, headers=(), as_json=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], StartAndStop()),
        (["end"], StartAndStop(name="end")),
        (["7"], StartAndStop(offset=7)),
        (["-7"], StartAndStop(offset=7, back=True)),
        (["s@5", "e@1970-01-01"], StartAndStop(since=5, until=0)),
        (["e@1970-01-01T01:00+01:00", "3"], StartAndStop(offset=3, until=0)),
    ],
)
def test_kcats_forms_of_an_offset(given: list[str], expected: StartAndStop) -> None:
    assert parse_start_and_stop(given) == expected


@pytest.mark.parametrize("given", [["x@5"], ["s@"], ["e@1", "e@2"], ["s@1", "s@2"], ["beginning", "s@2"], [""]])
def test_other_forms_are_refused(given: list[str]) -> None:
    with pytest.raises(UsageError, match="-o"):
        parse_start_and_stop(given)


@pytest.mark.parametrize(
    ("span", "at_since", "expected"),
    [
        (StartAndStop(), None, 10),
        (StartAndStop(name="stored"), None, 10),
        (StartAndStop(name="end"), None, 20),
        (StartAndStop(offset=15), None, 15),
        (StartAndStop(offset=3), None, 10),
        (StartAndStop(offset=30), None, 20),
        (StartAndStop(offset=3, back=True), None, 17),
        (StartAndStop(offset=30, back=True), None, 10),
        (StartAndStop(since=5), 12, 12),
        (StartAndStop(since=5), None, 20),
    ],
)
def test_a_start_lies_in_the_log(span: StartAndStop, at_since: int | None, expected: int) -> None:
    assert span.start(10, 20, at_since) == expected


def test_escapes_stand_for_bytes() -> None:
    assert unescape(r"a\n\t\r\\n\xff\x0Aä", "-D") == b"a\n\t\r\\n\xff\n" + "ä".encode()
    for wrong in ("\\", r"\x", r"\x1", r"\xgg", r"\0"):
        with pytest.raises(UsageError, match="-D"):
            unescape(wrong, "-D")


def test_a_slice_of_a_batch_is_rendered_alone() -> None:
    """Arrow's slices share buffers: only their own bytes count."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"bb", None, b"d"], pa.binary())}).slice(1, 2)
    assert bytes(render(batch, parse_format("%s,"), b"-")) == b"bb,-,"
    assert bytes(render(batch.slice(0, 0), parse_format("%s,"), b"-")) == b""
    assert bytes(render(batch, parse_format("x%%"), b"-")) == b"x%x%"
    assert bytes(render(batch, parse_format("%R%s"), b"-")) == b"\0\0\0\2bb\xff\xff\xff\xff-"


def test_records_before_the_line_that_is_none_are_kept() -> None:
    batch, error = parse_lines([b"a:1", b"b::", b"c", b"d:4"], 5, LINES)
    assert batch.to_pylist() == [{"value": b"1", "key": b"a"}, {"value": b":", "key": b"b"}]
    assert str(error).startswith("line 7: there is no ':' (-K) that ends a key")


@pytest.mark.parametrize(
    "line",
    [b"[1]", b"1", b"{}", b'{"key": "a"}', b'{"value": {}}', b'{"value": "a", "partition": "1"}', b"\xff",
     b'{"value": "a", "headers": ["x"]}', b'{"value": "a", "headers": {"x": 1}}', b'{"value": "a", "timestamp": true}',
     b'{"value": "a", "timestamp": "now"}', b'{"value_base64": "?"}', b'{"value": "a", "timestamp": 9223372036854775807}',
     b'{"value": "a", "partition": 9223372036854775808}', b'{"value": "a", "partition": -1}', b'{"value": "\\ud800"}',
     b'{"value": "a", "headers": {"\\ud800": "x"}}', b"[" * 100_000],
)  # fmt: skip
def test_a_line_of_json_that_is_no_record_is_named(line: bytes) -> None:
    batch, error = parse_lines([line], 3, LineFormat(None, False, None, (), True))
    assert batch.num_rows == 0
    assert str(error).startswith("line 3: ")


class Given:
    """A standard input that comes in these pieces."""

    exit_code = 0

    def __init__(self, *pieces: bytes) -> None:
        self.left = list(pieces)

    def read(self) -> bytes:
        return self.left.pop(0) if self.left else b""


@pytest.mark.parametrize("end", [b"\n", b"--", b"<->"])
def test_pieces_of_lines_are_put_together(end: bytes) -> None:
    chance = random.Random(7)
    given = bytes(chance.choices(end + b"x", k=5000))
    lines, found, at = LineSplitter(end), [], 0
    while at < len(given):
        size = chance.randrange(1, 5)
        found += lines.add(given[at : at + size])
        at += size
    assert [*found, lines.rest] == given.split(end)


def test_bytes_that_wait_for_their_end_are_searched_once() -> None:
    class Searched(bytearray):
        count = 0

        def find(self, what: bytes, start: int = 0) -> int:  # type: ignore[override]
            Searched.count += len(self) - start
            return super().find(what, start)

    lines = LineSplitter(b"<->")
    lines.rest = Searched()
    for _ in range(1000):
        assert lines.add(b"x" * 10) == []
    assert lines.rest == b"x" * 10_000
    assert Searched.count <= 1000 * (10 + 2)


@pytest.mark.parametrize(("takes", "unread"), [(2, 2), (3, 1), (4, 0)])
def test_a_line_that_no_topic_takes_is_refused_before_its_end(takes: int, unread: int) -> None:
    """The lines before it are sent."""
    part = b"x" * (2**20 - 2)
    given = Given(b"a:1\nb:" + part, part, part, b"\nc:3\n")
    batches = _line_batches(LINES, b"\n", given, lambda _: takes * 2**20 - 7)  # type: ignore[arg-type]
    assert next(batches)[1] == "line 1"
    if not unread:
        assert [what for _, what in batches] == ["lines 2 to 3"]
        return
    with pytest.raises(
        InvalidRecordError, match=f"line 2: it was not sent: its end does not come within {takes * 2**20 - 7}"
    ):
        next(batches)
    assert len(given.left) == unread


def test_how_much_a_topic_takes_is_asked_for_each_line() -> None:
    """With a producer's id lines that are there already may have any length."""
    part = b"x" * 2**20
    given = Given(b"a:" + part, b"\nb:" + part, b"\n")
    asked: list[int] = []

    def longest(number: int) -> int:
        asked.append(number)
        return 2**21 if number == 1 else 2**20

    batches = _line_batches(LINES, b"\n", given, longest)  # type: ignore[arg-type]
    assert next(batches)[1] == "line 1"
    with pytest.raises(InvalidRecordError, match="line 2: it was not sent"):
        next(batches)
    assert asked == [1, 2]


def test_a_line_may_be_as_long_as_what_a_record_is_written_as() -> None:
    assert longest_line(100, LineFormat(None, False, None, (), False)) == 100
    assert longest_line(100, LINES) == 101
    ends = "\\u0000" * 100_000
    assert longest_line(100_000, LineFormat(None, False, None, (), True)) > len(ends)


@pytest.mark.parametrize(
    "line", [b'{"value": "a", "value": "b"}', b'{"value": "a", "headers": {"value": "1", "value": "2"}}']
)
def test_a_json_line_that_names_a_key_twice_is_refused(line: bytes) -> None:
    batch, error = parse_lines([b'{"value": "kept"}', line], 3, LineFormat(None, False, None, (), True))
    assert batch.num_rows == 1
    assert isinstance(error, InvalidRecordError)
    assert str(error) == "line 4: the key 'value' stands there twice: keep one"
