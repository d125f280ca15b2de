"""`commitlog access`, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from tests.support.commands import completions, run, run_bytes


def test_rules_are_set_shown_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path / "root")
    CommitLog(root).create_topic("orders")
    assert run("access", "list", root) == ([], "")
    assert "nobody could change the rules" in run("access", "allow", root, "etl", "write", "orders", code=2)[1]
    run("access", "allow", root, "ops", "admin")
    assert "no principal is set" in run("access", "allow", root, "etl", "write", "orders", code=1)[1]
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "ops")
    run("access", "allow", root, "etl", "write", "orders")
    assert run("access", "list", root)[0] == ["etl may write orders", "ops may admin *"]
    rows = [json.loads(line) for line in run("access", "list", root, "--json")[0]]
    assert rows[0] == {"principal": "etl", "operation": "write", "topic": "orders"}
    run("access", "revoke", root, "etl", "write", "orders")
    run("maintain", root, "--once")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "web")
    assert "may not admin topic 'orders'" in run("maintain", root, "--once", code=1)[1]
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "ops")
    run("access", "clear", root)
    assert run("access", "list", root) == ([], "")


def test_rules_as_json_behind_each_change(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    CommitLog(root).create_topic("orders")
    admin = {"principal": "ops", "operation": "admin", "topic": "*"}
    writer = {"principal": "etl", "operation": "write", "topic": "orders"}
    for arguments, expected in (
        (["allow", root, "ops", "admin"], [admin]),
        (["allow", root, "etl", "write", "orders"], [writer, admin]),
        (["revoke", root, "etl", "write", "orders"], [admin]),
        (["clear", root], []),
    ):
        lines = run("--principal", "ops", "access", *arguments, "--json")[0]
        assert [json.loads(line) for line in lines] == expected


def test_who_asks_is_said_before_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts for every verb that opens a root, and wins over the environment."""
    root, log = str(tmp_path / "root"), CommitLog(str(tmp_path / "root"), principal="ops")
    log.create_topic("orders")
    log.access.allow("ops", "admin")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "nobody")
    for words in (["cat", root, "orders", "-e"], ["maintain", root, "--once"]):
        assert "'nobody' may not" in run(*words, code=1)[1]
        run("--principal", "ops", *words)
    done = run_bytes("--principal", "ops", "produce", root, "orders", given=b"a\n")
    assert (done.returncode, done.stderr) == (0, b"orders: sent 1 record to 1 partition\n")
    log.groups.commit("g", {"orders": {0: 0}})
    describe = ["groups", "describe", root, "g"]
    rows = [CliRunner().invoke(app, [*who, *describe]).stdout.count("orders") for who in ([], ["--principal", "ops"])]
    assert rows == [0, 1], "topics that may not be seen are left out"
    (tmp_path / "file").write_text("orders,0,1")
    from_file = ["--from-file", str(tmp_path / "file"), "--execute"]
    for words in (
        ["topics", "describe", root, "orders"],
        ["topics", "create", root, "more"],
        ["topics", "alter", root, "orders", "--config", "segment.ms=7"],
        ["topics", "delete", root, "more"],
        ["offsets", root, "orders"],
        ["groups", "reset", root, "g", *from_file],
        ["groups", "delete", root, "g"],
        ["access", "allow", root, "web", "read"],
        ["verify", root],
        ["void", root, "orders"],
        ["delete-records", root, "orders", "--offset", "0:1"],
    ):
        refused, told = (CliRunner().invoke(app, [*who, *words]) for who in ([], ["--principal", "ops"]))
        assert (refused.exit_code, told.exit_code) == (1, 0), words
        assert "'nobody' may not" in refused.stderr
    assert run("topics", "list", root)[0] == []
    assert run("--principal", "ops", "topics", "list", root)[0] == ["orders"]
    assert completions("--principal", "ops", "cat", root, "or") == ["orders"]
    assert completions("cat", root, "or") == []


def test_verify_goes_on_behind_a_topic_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path / "root")
    for topic in ("closed", "open"):
        CommitLog(root).create_topic(topic)
    run("access", "allow", root, "ops", "admin")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "ops")
    run("access", "allow", root, "web", "read", "open")
    monkeypatch.setenv("COMMITLOG_PRINCIPAL", "web")
    told, complained = run("verify", root, "--json", code=1)
    assert [json.loads(line)["topic"] for line in told] == ["open"]
    assert "'web' may not read topic 'closed'" in complained
