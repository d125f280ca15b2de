"""`commitlog doctor`, `version`, and `commitlog` alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog, __version__
from tests.support.commands import run


def test_a_log_that_is_well_is_left_as_it_was(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("clicks")
    before = sorted(tmp_path.rglob("*"))
    lines, _ = run("doctor", str(tmp_path))
    assert {line[:2] for line in lines} == {"ok"}
    assert "1 topic, nothing to say about them" in lines[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_each_root_of_several_is_tried(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("a", "b")]
    CommitLog.create(roots).create_topic("clicks")
    rows = [json.loads(line) for line in run("doctor", ",".join(roots), "--json")[0]]
    assert {row["subject"] for row in rows} >= set(roots)
    assert all(row["is_well"] for row in rows)


def test_a_log_that_can_not_be_read_ends_with_1_and_says_what_to_do(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("clicks")
    (entry,) = (tmp_path / "topics" / "clicks" / "journal").iterdir()
    entry.write_bytes(b"{")
    lines, _ = run("doctor", str(tmp_path), code=1)
    place = next(number for number, line in enumerate(lines) if line.startswith("!!  topic clicks"))
    assert "commitlog verify" in lines[place + 1]


def test_without_a_log_there_is_nothing_to_examine(tmp_path: Path) -> None:
    assert "there is no commit log at" in run("doctor", str(tmp_path), code=1)[1]
    assert list(tmp_path.iterdir()) == []


def test_versions_are_those_that_are_installed() -> None:
    assert run("version")[0] == [f"pyspark-commitlog {__version__}"]
    (found,) = run("version", "--all", "--json")[0]
    assert json.loads(found)["pyarrow"] == pa.__version__
    assert json.loads(found)["pyspark-commitlog"] == __version__


def test_the_command_alone_shows_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "No log in this directory" in "\n".join(run()[0])
    assert os.listdir(tmp_path) == []
    CommitLog("data").create_topic("clicks")
    (tmp_path / "other").mkdir()
    lines, _ = run()
    assert "  data  1 topic: clicks" in lines
    assert "  commitlog cat data clicks -o -10 -e" in lines
