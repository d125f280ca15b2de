"""Progress on a terminal: there, gone afterwards, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import IO

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.testing.jobs import fill_topic
from tests.support.commands import COMMAND, run

#: What erases a line, and what goes back to a bar's when it is taken off.
CLEARED, GONE = "\x1b[2K", "\x1b[?25h\r\x1b[1A"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root of a set, with two topics and a group."""
    at = tmp_path_factory.mktemp("progress")
    log = CommitLog.create([f"{at}/a", f"{at}/b"])
    for name in ("clicks", "orders"):
        log.create_topic(name)
    fill_topic(log, "clicks", [f"{number}" for number in range(3)])
    log.groups.commit("reports", {"clicks": {0: 1}})
    return f"{at}/a"


def on_terminal(
    *arguments: str, stdin: int | IO[bytes] | None = subprocess.DEVNULL, stdout: IO[bytes] | None = None
) -> str:
    """Run a command with its standard error, and output unless it is given, on a terminal; return what came there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdin=stdin, stdout=stdout or theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65_536):
            shown += chunk
    except OSError:  # Linux says so when the last process has closed it
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, shown
    return shown.decode()


@pytest.mark.parametrize(
    ("command", "title", "printed"),
    [
        (["verify", "ROOT"], "clicks (1 of 2)", "clicks: no fault in "),
        (["doctor", "ROOT"], "orders (2 of 2)", "ok  topics: 2 topics"),
        (["groups", "describe", "ROOT"], "reports (1 of 1)", "GROUP"),
        (["replicas", "repair", "ROOT"], "orders (2 of 2)", "orders: "),
        (["void", "ROOT", "clicks"], "looking for records that can't be read", "clicks: "),
    ],
    ids=["verify", "doctor", "groups", "repair", "void"],
)
def test_a_command_that_may_take_long_shows_it_on_a_terminal_alone(
    root: str, command: list[str], title: str, printed: str
) -> None:
    arguments = [root if word == "ROOT" else word for word in command]
    shown = on_terminal(*arguments)
    assert title in shown
    last_line = shown.rpartition(title)[2].partition("\r\n")[2]
    assert last_line.startswith(f"{GONE}{CLEARED}")
    at = shown.find(printed, shown.find(CLEARED))
    assert shown[:at].endswith((CLEARED, "\n"))
    lines, errors = run(*arguments)
    assert any(line.startswith(printed) for line in lines)
    assert title not in errors
    assert "\x1b" not in errors + "".join(lines)


def test_a_command_that_prints_nothing_leaves_nothing(root: str) -> None:
    shown = on_terminal("replicas", "sync", root)
    assert "replicating" in shown
    assert shown.endswith(f"{GONE}{CLEARED}")
    assert run("replicas", "sync", root) == ([], "")


def test_records_that_go_to_a_file_are_counted(root: str, tmp_path: Path) -> None:
    with (tmp_path / "records").open("wb") as file:
        assert "clicks: 3 records" in on_terminal("cat", root, "clicks", "-e", stdout=file)
    assert (tmp_path / "records").read_bytes() == b"0\n1\n2\n"


def test_records_that_go_to_a_pipe_or_a_terminal_are_not(root: str) -> None:
    """The reader of the pipe may draw on the terminal itself."""
    pipe = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert pipe.stdin is not None
    with pipe.stdin as given:
        assert on_terminal("cat", root, "clicks", "-e", stdout=given) == ""
    assert pipe.wait(30) == 0
    assert on_terminal("cat", root, "clicks", "-e") == "0\r\n1\r\n2\r\n"


def test_records_of_a_file_are_counted_as_they_are_read(root: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"x\n" * 5)
    with (tmp_path / "lines").open("rb") as file:
        shown = on_terminal("produce", root, "orders", stdin=file)
    assert "standard input: 5 records" in shown
    assert shown.endswith("orders: sent 5 records to 1 partition\r\n")
