"""`commitlog cat`, as a process of its own."""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog, Consumer, TopicPartition
from pyspark_commitlog.api.commit_log import CommitLog as Log
from pyspark_commitlog.cli.records.cat import _is_done, _Request, _run
from pyspark_commitlog.cli.records.starts import StartAndStop
from tests.support.commands import COMMAND, cat, run
from tests.support.records import append, batch_of

#: 2020-01-01T00:00:00Z, in ms.
DAY = 1_577_836_800_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Five records in each of two partitions, a second apart from 2020 on: 0-0, 0-1 … 1-4."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t", 2, config={"retention.ms": -1})
    times = [(DAY + 1000 * (n // 2)) * 1000 for n in range(10)]
    values = [b"%d-%d" % (n % 2, n // 2) for n in range(10)]
    append(log.root.topic("t"), batch_of(values, partition=[0, 1] * 5, timestamp=times))
    return log


@pytest.fixture
def root(log: Log, tmp_path: Path) -> str:
    return str(tmp_path / "root")


def test_any_bytes_are_written_as_they_are_and_told_in_json(root: str, log: Log) -> None:
    chance = random.Random(7)
    values: list[bytes | None] = [chance.randbytes(chance.randrange(3000)) for _ in range(200)]
    log.create_topic("bytes")
    append(log.root.topic("bytes"), batch_of([*values, None, b""]))
    assert cat(root, "bytes", "-e", "-D", "") == b"".join(v or b"" for v in values)
    rows = [json.loads(line) for line in cat(root, "bytes", "-e", "-J").splitlines()]
    told = [base64.b64decode(r["payload_base64"]) if "payload_base64" in r else r["payload"] for r in rows]
    assert [v.encode() if isinstance(v, str) else v for v in told] == [*values, None, b""]
    assert [row["offset"] for row in rows] == list(range(202))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["-o", "beginning", "-p", "1"], ["1-0", "1-1", "1-2", "1-3", "1-4"]),
        (["-o", "end"], []),
        (["-o", "3"], ["0-3", "0-4", "1-3", "1-4"]),
        (["-o", "99"], []),
        (["-o", "-2", "-p", "0,1"], ["0-3", "0-4", "1-3", "1-4"]),
        (["-o", "-99", "-p", "0"], ["0-0", "0-1", "0-2", "0-3", "0-4"]),
        (["-o", f"s@{DAY + 3500}"], ["0-4", "1-4"]),
        (["-o", "e@2020-01-01T00:00:02"], ["0-0", "0-1", "1-0", "1-1"]),
        (["-o", f"s@{DAY + 1000}", "-o", "e@2020-01-01T00:00:02.5"], ["0-1", "0-2", "1-1", "1-2"]),
        (["-o", "s@2030-01-01"], []),
    ],
)
def test_where_it_starts_and_stops(root: str, given: list[str], expected: list[str]) -> None:
    follow = [] if any(each.startswith("e@") for each in given) else ["-e"]
    assert sorted(cat(root, "t", *given, *follow).decode().splitlines()) == expected


def test_an_offset_that_is_not_there_is_warned_of(root: str, log: Log) -> None:
    log.topic("t").delete_records({0: 2})
    _, said = run("cat", root, "t", "-e", "-p", "0", "-o", "1")
    assert "warning: topic 't' partition 0: offsets 1 to 1 were deleted" in said
    assert said.endswith("it begins at 2\n")
    _, said = run("cat", root, "t", "-e", "-p", "0", "-o", "99")
    assert "position 99 is beyond the log; the log start offset is 2, the high watermark 5; it begins at 5" in said
    assert run("cat", root, "t", "-e", "-p", "0", "-o", "5")[1] == ""
    assert run("cat", root, "t", "-e", "-p", "0", "-o", "-99")[1] == ""


def test_formats_are_kcats(root: str, log: Log) -> None:
    log.create_topic("f")
    rows = batch_of(
        [b"v\xff", None],
        key=[None, b"k"],
        timestamp=[1_999, 2_000_000],
        headers=[[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None],
    )
    append(log.root.topic("f"), rows)
    form = r"%t[%p]%o %T %K:%k %S:%s %h%%\x21\n"
    assert (
        cat(root, "f", "-e", "-Z", "-f", form) == b"f[0]0 1 -1:NULL 2:v\xff a=1,b=NULL%!\nf[0]1 2000 1:k -1:NULL %!\n"
    )
    assert cat(root, "f", "-e", "-f", "%R%s") == b"\0\0\0\2v\xff" + b"\xff" * 4
    assert cat(root, "f", "-e", "-K", ":") == b":v\xff\nk:\n"
    assert cat(root, "f", "-e", "-f", r"x\t") == b"x\tx\t"
    row = json.loads(cat(root, "f", "-o", "1", "-e", "-J"))
    assert row == {
        "topic": "f", "partition": 0, "offset": 1, "tstype": "create", "ts": 2000, "key": "k", "payload": None,
        "headers": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (["-f", "%x"], 2, "%x is no token"),
        (["-f", r"\q"], 2, "escapes"),
        (["-o", "soon"], 2, "use beginning, end, stored"),
        (["-o", "s@soon"], 2, "-o s@ soon: use milliseconds since 1970, a time as"),
        (["-o", "s@20261128"], 2, "for that day give 2026-11-28"),
        (["-o", "s@1700000000"], 2, "for seconds give 1700000000000, which is 2023-11-14T22:13:20"),
        (["-o", "1", "-o", "2"], 2, "give one start"),
        (["-o", "stored"], 2, "-G"),
        (["-G", "g", "-p", "0"], 2, "a group goes on where it is"),
        (["-p", "x"], 2, "partition numbers"),
        (["-p", "2", "-e"], 2, "partitions 0 to 1, not 2"),
        (["-J", "-f", "%s"], 2, "one of -J, -f and -K"),
        (["none", "-e"], 1, "unknown topic 'none'"),
    ],
)
def test_what_cannot_be_read_is_told(root: str, given: list[str], code: int, told: str) -> None:
    lines, errors = run("cat", root, "t", *given, code=code)
    assert lines == []
    assert told in errors
    assert "Traceback" not in errors


def test_nothing_is_waited_for_of_a_topic_that_is_deleted_meanwhile(root: str, log: Log) -> None:
    request: Any = SimpleNamespace(group=None, is_bounded=True)
    places = [TopicPartition("t", partition) for partition in (0, 1)]
    with Consumer(root, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        consumer.poll(max_records=1)
        ends = consumer.end_offsets(places)
        assert not _is_done(consumer, request, dict(ends))
        log.topic("t").delete()
        assert _is_done(consumer, request, dict(ends))


def test_a_group_goes_on_behind_what_was_written(root: str, log: Log) -> None:
    first = cat(root, "t", "-G", "g", "-c", "4").decode().split()
    assert sum(row.offset or 0 for row in log.groups.describe("g").partitions) == len(first) == 4
    rest = cat(root, "t", "-G", "g", "-o", "stored", "-e").decode().split()
    assert sorted(first + rest) == [f"{p}-{n}" for p in (0, 1) for n in range(5)]
    assert cat(root, "t", "-G", "g", "-e") == b""


def test_a_group_has_nothing_of_a_start_from_which_nothing_was_written(root: str, log: Log) -> None:
    assert cat(root, "t", "-G", "g", "-o", "end", "-e") == b""
    assert len(cat(root, "t", "-G", "g", "-e").split()) == 10


def test_a_group_does_not_go_past_what_could_not_be_written(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of the pipe is gone when the bytes are written: the next one gets them."""

    class Closed:
        held = False

        def write(self, data: bytes) -> None:
            self.held = True

        def flush(self) -> None:
            if self.held:
                raise BrokenPipeError

        def check(self) -> None:
            pass

    monkeypatch.setattr(import_module("pyspark_commitlog.cli.records.cat"), "_Stdout", Closed)
    request = _Request(
        ["t"], None, StartAndStop(), True, None, "g", ("offset", "partition", "topic", "value"), lambda batch: b"x"
    )
    with pytest.raises(BrokenPipeError):
        _run(root, request)
    assert "g" not in log.groups.list() or not any(row.offset for row in log.groups.describe("g").partitions)
    assert len(cat(root, "t", "-G", "g", "-e").split()) == 10


class Written:
    """A standard output that keeps what it takes, and a cat of a group that has something happen before its first commit."""

    def __init__(self, root: str, happens: Callable[[], None], *, count: int | None) -> None:
        self._root, self._happens, self._count = root, happens, count
        self._lines: list[str] = []

    def run(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the lines that were written, sorted."""
        monkeypatch.setattr(import_module("pyspark_commitlog.cli.records.cat"), "_Stdout", lambda: self)
        columns = ("offset", "partition", "topic", "value")
        _run(self._root, _Request(["t"], None, StartAndStop(), self._count is None, self._count, "g", columns, _values))
        return sorted(self._lines)

    def write(self, data: bytes) -> None:
        self._lines += data.decode().split()

    def flush(self) -> None:
        pass

    def check(self) -> None:
        if self._lines:
            self._happens()
            self._happens = lambda: None


def _values(batch: pa.RecordBatch) -> bytes:
    return b"\n".join(batch.column("value").to_pylist()) + b"\n"


@pytest.mark.parametrize("count", [None, 10], ids=["to the end", "so many records"])
def test_a_member_that_joins_before_the_commit_ends_nothing(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    with Consumer(root, "t", group_id="g", enable_auto_commit=False) as other:

        def joins() -> None:
            while len(log.groups.describe("g").members) < 2:
                other.poll(0.02)

        assert Written(root, joins, count=count).run(monkeypatch) == [f"{p}-{n}" for p in (0, 1) for n in range(5)]
    assert [row.offset for row in log.groups.describe("g").partitions] == [5, 5], "what was written is committed"


def test_what_a_member_had_that_leaves_before_the_commit_is_read(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, other = Event(), Consumer(root, "t", group_id="g", enable_auto_commit=False)

    def poll() -> None:
        while not done.is_set():
            other.poll(0.02)

    def leaves() -> None:
        done.set()
        polling.join()
        other.close()

    polling = Thread(target=poll)
    polling.start()
    try:
        while not other.assignment():
            done.wait(0.05)
        lines = Written(root, leaves, count=None).run(monkeypatch)
    finally:
        leaves()
    assert lines == [f"{p}-{n}" for p in (0, 1) for n in range(5)]
    assert [row.offset for row in log.groups.describe("g").partitions] == [5, 5]


def test_a_member_that_gets_no_partition_ends_too(root: str, log: Log) -> None:
    """More members than partitions: there is nothing for the last one to wait for."""
    keep = ["cooperative-sticky"]  # who has a partition keeps it
    members = [Consumer(root, "t", group_id="g", partition_assignment_strategy=keep) for _ in range(2)]
    done = Event()

    def poll() -> None:
        while not done.is_set():
            for member in members:
                member.poll(0.02)

    polling = Thread(target=poll)
    polling.start()
    try:
        while not all(member.assignment() for member in members):
            done.wait(0.05)
        assert sorted(len(member.assignment()) for member in members) == [1, 1]
        assert cat(root, "t", "-G", "g", "-e") == b""
    finally:
        done.set()
        polling.join()
        for member in members:
            member.close()


def test_it_follows_what_comes_later_and_ends_on_sigint(root: str, log: Log) -> None:
    command = [*COMMAND, "cat", root, "t", "-o", "-1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"0-4\n"
        append(log.root.topic("t"), batch_of([b"later"], partition=[0]))
        assert child.stdout.readline() == b"later\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60) == (b"", b"")
    assert child.returncode == 0


def test_a_closed_pipe_ends_it_quietly(root: str, log: Log) -> None:
    """Also where nothing comes that would have to be written."""
    with subprocess.Popen([*COMMAND, "cat", root, "t"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"0-0\n"
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
        assert child.wait(60) == 0
