"""A log with a topic of key and value, a typed one and a group, and a client of its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog, Producer
from tests.support.page import page_of


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("clicks", 3, {"retention.ms": -1})
    log.create_topic("orders", schema="user STRING, price DOUBLE, at TIMESTAMP, tags ARRAY<STRING>", key="user")
    with Producer(log.url) as producer:
        for number in range(9):
            producer.send("clicks", b"value %d" % number, key=b"key %d" % number, partition=number % 3)
        for number in range(4):
            producer.send("orders", {"user": f"u{number}", "price": number / 2, "tags": ["a", "b"]})
    log.groups.commit("reports", {"clicks": {0: 1, 1: 3}})
    return log


@pytest.fixture
def page(log: CommitLog) -> TestClient:
    return page_of(log)
