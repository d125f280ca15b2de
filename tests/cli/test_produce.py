"""`commitlog produce`, as a process of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.commit_log import CommitLog as Log
from tests.support.commands import COMMAND, cat, run_bytes
from tests.support.records import Record, read_topic


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two empty topics with two partitions each; one takes values of 100 bytes at most."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t", 2)
    log.create_topic("small", 2, config={"max.message.bytes": 100})
    return log


@pytest.fixture
def root(log: Log, tmp_path: Path) -> str:
    return str(tmp_path / "root")


def produce(given: bytes, *arguments: str, code: int = 0) -> str:
    """Produce these bytes; return what was said on stderr."""
    done = run_bytes("produce", *arguments, given=given)
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def records(log: Log, topic: str = "t") -> list[Record]:
    return read_topic(log.root.topic(topic))


def test_any_bytes_come_back_as_they_were(root: str) -> None:
    """Empty lines are records, and the last one needs no newline."""
    chance = random.Random(3)
    lines = [chance.randbytes(chance.randrange(2000)).replace(b"\n", b"") for _ in range(3000)]
    lines[10] = b""
    given = b"\n".join([*lines, b"last"])
    assert "t: sent 3,001 records to 1 partition" in produce(given, root, "t", "-p", "1")
    assert cat(root, "t", "-e", "-p", "1") == given + b"\n"


def test_records_may_end_with_any_bytes(root: str, log: Log) -> None:
    """Also where a read ends in the middle of them: newlines, and parts of a delimiter, are bytes as others."""
    produce(b"a\nb\0\0c\n\0", root, "t", "-p", "0", "-D", r"\x00")
    assert [each.value for each in records(log)] == [b"a\nb", b"", b"c\n"]
    chance = random.Random(5)
    given = bytes(chance.choices(b"<->\n", k=2_000_000))
    log.create_topic("d")
    produce(given, root, "d", "-D", "<->")
    values = given.split(b"<->")
    assert [each.value for each in records(log, "d")] == values
    assert cat(root, "d", "-e", "-D", "<->") == given + b"<->"
    produce(b'{"value": "x"};{"value": "y"}', root, "d", "-D", ";", "--json")
    assert cat(root, "d", "-e", "-o", "-2", "-D", "") == b"xy"
    assert "-D takes one byte or more" in produce(b"", root, "d", "-D", "", code=2)
    assert "escapes" in produce(b"", root, "d", "-D", r"\q", code=2)
    assert "--file goes without" in produce(b"", root, "d", "-D", ";", "--file", "x", code=2)


def test_keys_nulls_and_headers(root: str, log: Log) -> None:
    produce(b"a::1\n::2\nb::\n", root, "t", "-K", "::", "-Z", "-p", "0", "-H", "x=1=2", "-H", "y")
    assert [(each.key, each.value) for each in records(log)] == [(b"a", b"1"), (None, b"2"), (b"b", None)]
    assert records(log)[0].headers == (("x", b"1=2"), ("y", None))


def test_json_lines_and_what_cat_writes(root: str, log: Log) -> None:
    rows = [
        {"key": "ä", "value": "v", "headers": {"h": "1", "n": None}, "timestamp": 1500, "partition": 1},
        {"value_base64": "/w==", "key_base64": "AA==", "timestamp": "1970-01-01T00:00:02", "partition": 1},
        {"value": None, "partition": 1, "timestamp": 3000, "headers": ["a", {"base64": "/w=="}]},
    ]
    log.topic("t").alter({"retention.ms": -1})
    produce("\n".join(map(json.dumps, rows)).encode(), root, "t", "--json")
    expected = [
        Record(1, 0, "ä".encode(), b"v", 1_500_000, (("h", b"1"), ("n", None))),  # type: ignore[arg-type]
        Record(1, 1, b"\0", b"\xff", 2_000_000, None),
        Record(1, 2, None, None, 3_000_000, (("a", b"\xff"),)),
    ]
    assert records(log) == expected
    log.create_topic("copy", 2, config={"retention.ms": -1})
    produce(cat(root, "t", "-e", "-J"), root, "copy", "--json")
    assert records(log, "copy") == expected


@pytest.mark.parametrize(
    ("given", "arguments", "told"),
    [
        (b"a=1\nb=2\nc\nd=4\n", ["-K", "="], "line 3: there is no '=' (-K) that ends a key"),
        (b'{"value":"1"}\n{"value":"2"}\n{"value":3}\n{"value":"4"}', ["--json"], "line 3: value is no string"),
        (b'{"value":"1"}\n{"value":"2"}\n{]\n', ["--json"], "line 3: '{]' is no JSON ("),
        (
            b'{"value":"1"}\n{"value":"2"}\n[]\n',
            ["--json"],
            """line 3: a record is an object: give one as {"key": "a", "value": "b"}""",
        ),
        (
            b'{"value":"1"}\n{"value":"2"}\n{"value":{"a":"b"}}\n',
            ["--json"],
            r"""give JSON as a string, as in "value": "{\"a\": \"b\"}"; bytes go""",
        ),
        (b'{"value":"1"}\n{"value":"2"}\n{"values":"3"}\n', ["--json"], "line 3: unknown values: "),
        (b'{"value":"1"}\n{"value":"2"}\n{"value":"3","timestamp":1%018d}\n' % 0, ["--json"], "line 3: timestamp 1"),
    ],
)
def test_a_line_that_is_no_record_ends_it_and_is_named(
    root: str, log: Log, given: bytes, arguments: list[str], told: str
) -> None:
    errors = produce(given, root, "t", *arguments, code=1)
    assert told in errors
    assert "t: sent 2 records" in errors
    assert len(records(log)) == 2


def test_where_records_went_is_told_as_json(root: str, log: Log) -> None:
    def told(given: bytes) -> list[dict[str, object]]:
        done = run_bytes("produce", root, "t", "--json", "--offsets", given=given)
        assert done.returncode == 0
        assert b"t: sent 3 records to 2 partitions" in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    given = b"".join(b'{"value": "v", "partition": %d}\n' % number for number in (1, 0, 1))
    assert told(given) == [
        {"topic": "t", "partition": 0, "start": 0, "end": 1},
        {"topic": "t", "partition": 1, "start": 0, "end": 2},
    ]
    assert [(row["start"], row["end"]) for row in told(given)] == [(1, 2), (2, 4)]


def test_what_the_topic_refuses_is_named(root: str, log: Log) -> None:
    errors = produce(b"a\n" + b"b" * 101 + b"\n", root, "small", code=1)
    assert "lines 1 to 2: none of them was sent: " in errors
    errors = produce(b"x" * 1000, root, "small", code=1)
    assert "error: line 1: it was not sent: topic 'small': " in errors
    assert "alter_topic" not in errors, "what a shell has not"
    assert "max.message.bytes" in errors
    assert "small: sent 0 records to 0 partitions" in errors
    assert "partition 7 does not exist" in produce(b"a\n", root, "t", "-p", "7", code=1)
    assert "unknown topic 'none' in" in produce(b"", root, "none", code=1)
    assert "acks='2'" in produce(b"a\n", root, "t", "--acks", "2", code=2)
    assert "--file goes without" in produce(b"", root, "t", "--file", "x", "-Z", code=2)
    assert "--partition" in produce(b"a\n", root, "t", "-p", "9223372036854775808", code=2)
    assert "-H '\\udcff=1': use name=value" in produce(b"a\n", root, "t", "-H", os.fsdecode(b"\xff=1"), code=2)
    assert records(log) == records(log, "small") == []


def test_parquet_files_are_sent_as_the_sink_takes_them(root: str, log: Log, tmp_path: Path) -> None:
    values = [b"%05d" % number for number in range(3000)]
    for name, part in (("a", values[:2000]), ("b", values[2000:])):
        table = pa.table({"value": part, "key": part, "partition": [1] * len(part), "topic": ["other"] * len(part)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=700)
    files = ["--file", str(tmp_path / "a.parquet"), "--file", str(tmp_path / "b.parquet")]
    assert "t: sent 3,000 records to 1 partition" in produce(b"", root, "t", *files)
    assert [each.value for each in records(log)] == [each.key for each in records(log)] == values
    (tmp_path / "no.parquet").write_bytes(b"no")
    assert "is no Parquet file" in produce(b"", root, "t", "--file", str(tmp_path / "no.parquet"), code=1)
    assert "there is no file" in produce(b"", root, "t", "--file", str(tmp_path / "none"), code=1)
    damaged = bytearray((tmp_path / "b.parquet").read_bytes())
    damaged[20 : len(damaged) // 2] = bytes(len(damaged) // 2 - 20)
    (tmp_path / "b.parquet").write_bytes(damaged)
    told = produce(b"", root, "t", *files, code=1)
    assert "t: sent 2,000 records to 1 partition" in told
    assert "b.parquet is no Parquet file that can be read" in told
    pq.write_table(pa.table({"value": ["x"], "more": [1]}), tmp_path / "more.parquet")
    assert "unknown column 'more'" in produce(b"", root, "t", "--file", str(tmp_path / "more.parquet"), code=1)


def test_with_an_id_the_same_input_is_sent_once(root: str, log: Log) -> None:
    produce(b"a\nb\n", root, "t", "-p", "0", "--producer-id", "me")
    assert "t: sent 1 record" in produce(b"a\nb\nc\n", root, "t", "-p", "0", "--producer-id", "me")
    assert [each.value for each in records(log)] == [b"a", b"b", b"c"]


def test_with_an_id_what_follows_a_refused_line_is_sent_with_it_again(root: str, log: Log) -> None:
    """The lines that came with it, too: else the same input, sent again, would pass over them."""
    lines = [b"%06d" % number for number in range(40_000)]
    given = b"\n".join([*lines[:5], b"b" * 101, *lines[5:]])
    told = produce(given, root, "small", "-p", "0", "--producer-id", "me", code=1)
    assert "none of them was sent: topic 'small': record 5 of its batch has 101 bytes" in told
    log.topic("small").alter({"max.message.bytes": 1000})
    produce(given, root, "small", "-p", "0", "--producer-id", "me")
    assert [each.value for each in records(log, "small")] == given.split(b"\n")


def test_a_line_without_an_end_is_refused_as_soon_as_it_is_too_large(root: str, log: Log) -> None:
    """What is there already is passed over, whatever the topic takes by now; the lines before it are sent."""
    large = b"b" * 2**21
    told = produce(b"a\n" + large, root, "t", "-p", "0", code=1)
    assert "error: line 2: it was not sent: its end does not come within 1048588 bytes" in told
    assert [each.value for each in records(log)] == [b"a"]
    log.topic("small").alter({"max.message.bytes": 2**22})
    produce(large, root, "small", "-p", "0", "--producer-id", "me")
    log.topic("small").alter({"max.message.bytes": 100})
    produce(large + b"\nb", root, "small", "-p", "0", "--producer-id", "me")
    assert [each.value for each in records(log, "small")] == [large, b"b"]


#: Sends the process a signal that another thread takes, when the main one waits for the standard input.
_TAKEN_ELSEWHERE = """
import signal, sys, threading, time
from pyspark_commitlog.cli import main
def come():
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "read":
        time.sleep(0.01)
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=come, daemon=True).start()
main()
"""


def test_a_signal_that_does_not_interrupt_a_read_ends_it(root: str, log: Log) -> None:
    """As one that comes just before the read begins."""
    command = [sys.executable, "-c", _TAKEN_ELSEWHERE, "produce", root, "t"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            assert child.wait(30) == 130
        finally:
            child.kill()
        assert child.stderr is not None
        assert b"t: sent 0 records" in child.stderr.read()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_behind_what_was_read(root: str, log: Log, number: signal.Signals, code: int) -> None:
    """Lines are sent as they come: a line that is not whole is left out."""
    with subprocess.Popen(
        [*COMMAND, "produce", root, "t"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"a\nb\nhal")
        child.stdin.flush()
        deadline = time.monotonic() + 60
        while len(records(log)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(number)
        told = child.stderr.read()
        assert child.wait(60) == code
    assert b"t: sent 2 records" in told
    assert sorted(each.value or b"" for each in records(log)) == [b"a", b"b"]


def test_a_wait_for_the_root_is_said_once_with_its_reason(root: str, log: Log) -> None:
    with subprocess.Popen([*COMMAND, "produce", root, "t"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"a\n")
        child.stdin.flush()
        deadline = time.monotonic() + 60
        while not records(log) and time.monotonic() < deadline:
            time.sleep(0.05)
        away = Path(root).rename(f"{root}-away")
        child.stdin.write(b"b\n")
        child.stdin.flush()
        first = child.stderr.readline().decode()
        time.sleep(1)  # several tries
        away.rename(root)
        child.stdin.close()
        rest = child.stderr.read().decode()
        assert child.wait(60) == 0
    assert first.startswith("topic 't': trying again: ")
    assert root in first
    assert "trying again" not in rest
    assert "t: sent 2 records to" in rest.splitlines()[-1]
