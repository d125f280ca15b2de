"""What a notebook shows of logs, topics and groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.testing.jobs import fill_topic
from pyspark_commitlog.text import MAX_ROWS, html_lines, html_table


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    log = CommitLog(str(tmp_path / "log"))
    log.create_topic("clicks", partitions=2, config={"retention.ms": -1})
    fill_topic(log, "clicks", [{"value": "a", "partition": 1}])
    log.groups.commit("reports", {"clicks": {1: 0}})
    return log


def test_text_is_no_markup() -> None:
    assert html_lines(["<b>&"]) == "<div>&lt;b&gt;&amp;</div>"
    assert html_table(["A<"], [["<script>"], [None]]) == (
        "<table><tr><th>A&lt;</th></tr><tr><td>&lt;script&gt;</td></tr><tr><td>-</td></tr></table>"
    )


def test_a_table_ends_and_says_how_much_it_leaves_out() -> None:
    shown = html_table(["N"], [[number] for number in range(MAX_ROWS + 1500)])
    assert shown.count("<td>") == MAX_ROWS
    assert shown.endswith("<div>and 1,500 more</div>")
    assert "more" not in html_table(["N"], [[0]] * MAX_ROWS)


def test_a_topic_is_shown_as_it_is_described(log: CommitLog) -> None:
    topic = log.topic("clicks")
    shown = topic._repr_html_()
    assert "Configs: retention.ms=-1" in shown
    assert "<tr><td>1</td><td>0</td><td>1</td><td>1</td>" in shown
    assert "clicks: 1 journal entry" in shown
    assert "unknown topic" in log.topic("gone")._repr_html_()


def test_columns_and_replicas_have_tables(tmp_path: Path) -> None:
    log = CommitLog.create([str(tmp_path / name) for name in "ab"])
    shown = log.create_topic("typed", schema="user STRING, n INT")._repr_html_()
    assert "<tr><td>n</td><td>int</td><td>yes</td><td>-</td></tr>" in shown
    assert shown.count("<td>leader</td>") == 1


def test_a_group_is_shown_with_its_lag(log: CommitLog) -> None:
    shown = log.groups.describe("reports")._repr_html_()
    assert "Group: reports  State: Empty  Members: 0  Lag: 1" in shown
    assert "<tr><td>clicks</td><td>1</td><td>0</td><td>1</td><td>1</td></tr>" in shown


def test_a_log_names_its_topics_and_groups(log: CommitLog, tmp_path: Path) -> None:
    shown = log._repr_html_()
    assert "<td>topic</td><td>clicks</td>" in shown
    assert "<td>group</td><td>reports</td>" in shown
    assert "there is no commit log at" in CommitLog(str(tmp_path / "none"))._repr_html_()


def test_an_error_in_a_cell_shows_the_cells_lines_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In IPython's own shell; a debugger and `%debug` still have all frames."""
    shell = InteractiveShell()
    shown: list[str] = []
    monkeypatch.setattr(shell, "_showtraceback", lambda kind, error, lines: shown.extend(lines))
    shell.run_cell(
        "from pyspark_commitlog import CommitLog\n"
        "def ask(path):\n"
        "    return CommitLog(path).topic('clicks').describe()\n"
        f"ask({str(tmp_path)!r})"
    )
    text = "\n".join(shown)
    assert "return CommitLog(path).topic('clicks').describe()" in text
    assert [line for line in shown if "pyspark_commitlog/" in line or "IPython" in line] == []
    assert shown[-1].startswith("RootNotFoundError: ")
    assert len([line for line in shown if line.startswith("  File ")]) == 2  # the cell's, and its function's


def test_an_error_in_a_cell_names_its_cause() -> None:
    error = CommitLogError("no place")
    error.__cause__ = OSError("disk full")
    assert error._render_traceback_() == ["CommitLogError: no place", "Caused by OSError: disk full"]
