"""`commitlog cat --grep` and `describe --watch`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.common import watch
from pyspark_commitlog.testing.jobs import fill_topic
from tests.support.commands import COMMAND, cat, run


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """A topic with a key, a null, and bytes that are no UTF-8."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t")
    rows = [{"key": "ada", "value": "paid 12"}, {"key": "bob", "value": None}, "paid é", b"\xff paid", "no"]
    fill_topic(log, "t", rows)
    return log


@pytest.mark.parametrize(
    ("pattern", "offsets"),
    [("paid", "0 2 3"), ("^paid", "0 2"), ("a.a", "0"), ("bob", "1"), ("é$", "2"), ("(?i)PAID \\d", "0"), ("x", "")],
)
def test_records_are_written_whose_key_or_value_matches(log: CommitLog, pattern: str, offsets: str) -> None:
    assert cat(log.url, "t", "-e", "--grep", pattern, "-f", "%o ").decode().split() == offsets.split()


def test_the_count_is_of_those_that_match(log: CommitLog) -> None:
    assert cat(log.url, "t", "--grep", "paid", "-c", "2", "-f", "%o ").split() == [b"0", b"2"]


def test_the_row_of_a_typed_topic_is_searched_as_json(log: CommitLog) -> None:
    log.create_topic("typed", schema="user STRING, price DOUBLE", key="user")
    fill_topic(log, "typed", [{"user": "ada", "price": 1.5}, {"user": "bob", "price": 2.5}])
    (line,) = cat(log.url, "typed", "-e", "--grep", '"price": ?2').splitlines()
    assert json.loads(line) == {"user": "bob", "price": 2.5}


def test_what_is_no_expression_is_refused(log: CommitLog) -> None:
    assert "--grep (: no regular expression" in run("cat", log.url, "t", "-e", "--grep", "(", code=2)[1]


@pytest.mark.parametrize("command", [["topics", "describe"], ["groups", "describe"]], ids=["topics", "groups"])
def test_what_is_watched_is_shown_again_until_a_signal(log: CommitLog, command: list[str]) -> None:
    log.groups.commit("reports", {"t": {0: 1}})
    watching = subprocess.Popen(
        [*COMMAND, *command, log.url, "--watch", "0.2", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        end = "high_watermark" if command[0] == "topics" else "log_end_offset"
        first = json.loads(watching.stdout.readline())
        fill_topic(log, "t", ["more"])
        seen = first
        while seen == first or not seen:
            seen = json.loads(watching.stdout.readline().strip() or "null")
        assert [row[end] for row in seen["partitions"]] == [6]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.wait()


def test_what_is_watched_ends_with_the_code_of_the_last_look_and_a_line_between_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stops, codes = iter([False, True]), iter([0, 1])
    monkeypatch.setattr(watch, "stopped_by_signals", lambda: SimpleNamespace(wait=lambda seconds: next(stops)))

    def show() -> int:
        print("shown")
        return next(codes)

    assert watch.show_repeatedly(0.2, show) == 1
    assert capsys.readouterr().out == "shown\n\nshown\n"
