"""``commitlog access``, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.cli.test_maintain import run


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
