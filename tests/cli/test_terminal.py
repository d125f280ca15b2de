"""What others chose is printed without what a terminal obeys, or that begins a line of its own."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.cli.common.endings import LogFormatter, complain
from pyspark_commitlog.text import table, visible
from tests.groups.conftest import Group
from tests.support.commands import run_bytes
from tests.support.crafted import change_entry
from tests.support.world import World

EVIL = "g\x1b]0;owned\x07\r\nerror: forged\x9b2J"
SHOWN = r"g\x1b]0;owned\x07\r\nerror: forged\x9b2J"


def test_control_characters_are_shown_and_all_else_stays() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("Grüße\t日本 – ok") == "Grüße\t日本 – ok"
    assert visible("a\u202eb\udc80") == r"a\u202eb\udc80"


def test_a_table_is_as_wide_as_what_it_shows() -> None:
    assert list(table(["A", "B"], [["\n", 1]])) == ["A   B", r"\n  1"]


def test_no_command_prints_an_escape_of_a_groups_or_a_principals_name_or_a_stray_files(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("t")
    log.groups.commit(EVIL, {"t": {0: 0}})
    (tmp_path / "root/topics/t" / EVIL.replace("/", "")).write_bytes(b"")
    log.access.allow(EVIL, "admin")
    for command in (
        ["groups", "list", root],
        ["--principal", EVIL, "groups", "describe", root, EVIL],
        ["--principal", EVIL, "access", "list", root],
        ["--principal", EVIL, "verify", root],
        ["--principal", EVIL, "groups", "describe", root, f"{EVIL}s"],
    ):
        result = CliRunner().invoke(app, command)
        printed = result.stdout + result.stderr
        assert not {"\x1b", "\x07", "\r", "\x9b"} & set(printed), command
        assert (f"nothing refers to topics/t/{SHOWN}\n" if "verify" in command else SHOWN) in printed, command
        assert not any(line.startswith("error: forged") for line in printed.splitlines()), command


def printed_by(*command: str, code: int = 0) -> str:
    """Return what a process prints, which has no escape and no forged line."""
    done = run_bytes(*command)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == code, text
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(text)
    assert not any(line.startswith("error: forged") for line in text.splitlines())
    return text


@pytest.fixture
def root(tmp_path: Path) -> str:
    """One of several roots, whose lists name a URL that somebody chose."""
    at = [str(tmp_path / name) for name in "ab"]
    CommitLog.create(at, [str(tmp_path / "m")]).create_topic("t", config={"replication.factor": 2})
    for name in "abm":
        path = max((tmp_path / name / "replicas/journal").iterdir())
        change_entry(path, lambda body: body["data"][1].__setitem__(1, f"/nowhere/{EVIL}"))
    return at[0]


LACKS = f"topics/t/journal: root ID lacks what was decided: /nowhere/{SHOWN} (root ID)"


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (("replicas", "list", "ROOT"), 0, f"no answer from /nowhere/{SHOWN}: "),
        (("topics", "describe", "ROOT", "t"), 0, f"Isr: ROOT,/nowhere/{SHOWN}\n"),
        (("replicas", "sync", "ROOT"), 1, f"lacks what was decided: /nowhere/{SHOWN} (root "),
        (("replicas", "remove", "ROOT", "x"), 2, f"none of the roots that hold data: ROOT (root ID), /nowhere/{SHOWN}"),
        (("maintain", "ROOT", "--once"), 0, f"{LACKS} does not answer"),
        (("-v", "maintain", "ROOT", "--once"), 0, f" WARNING pyspark_commitlog.replication: {LACKS} does not answer"),
    ],
    ids=["a table", "a description", "a failure", "a hint", "a warning", "a log line"],
)
def test_no_command_prints_an_escape_of_a_listed_url(root: str, command: tuple[str, ...], code: int, told: str) -> None:
    printed = printed_by(*(root if word == "ROOT" else word for word in command), code=code)
    assert told in re.sub("[0-9a-f]{8}-[0-9a-f-]{27}", "ID", printed).replace(root, "ROOT")


def test_no_command_prints_an_escape_of_a_client_id(tmp_path: Path) -> None:
    group = Group(World(tmp_path / "root"))
    group.world.create(1)
    group.join("a")
    group.run()

    def change(body: dict[str, Any]) -> None:
        for row in body["state"]["members"]["rows"].values():
            row.update(clientId=EVIL, host=EVIL)

    change_entry(max((group.world.path / "groups/g/journal").iterdir()), change)
    assert f"{SHOWN}  {SHOWN}" in printed_by("groups", "describe", str(group.world.path), "g", "--members")


def test_a_traceback_in_the_log_has_no_escapes_and_begins_no_line() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("n", logging.WARNING, "", 0, "of %s", (EVIL,), sys.exc_info())
    line, *traceback = LogFormatter().format(record).split("\n")
    assert line == f"of {SHOWN}"
    assert traceback[-2:] == [r"  ValueError: g\x1b]0;owned\x07\r", r"  error: forged\x9b2J"]
    assert all(each.startswith("  ") for each in traceback)


def test_a_complaint_is_one_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"error: {EVIL}")
    assert capsys.readouterr().err == f"error: {SHOWN}\n"
