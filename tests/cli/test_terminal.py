"""What others chose is printed without what a terminal obeys, or that begins a line of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.cli.shared import complain
from pyspark_commitlog.text import table, visible

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
        assert SHOWN in printed or command[2:3] == ["verify"], command
        assert not any(line.startswith("error: forged") for line in printed.splitlines()), command


def test_a_complaint_is_one_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"error: {EVIL}")
    assert capsys.readouterr().err == f"error: {SHOWN}\n"
