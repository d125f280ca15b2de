"""Chromium, and the page of a log as `commitlog ui` serves it: these tests run by `make test-ui` only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from selenium import webdriver

from pyspark_commitlog import CommitLog, Producer
from tests.browser.browsing import chromium, served

EVIL = "<script>document.title = 'stolen'</script><img src=x onerror=\"document.title='stolen'\">"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.external)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> CommitLog:
    log = CommitLog(str(tmp_path_factory.mktemp("ui") / "root"))
    log.create_topic("clicks", 2, {"retention.ms": -1})
    log.create_topic("orders", schema="user STRING, price DOUBLE, note STRING", key="user")
    with Producer(log.url) as producer:
        for number in range(60):
            producer.send(
                "clicks",
                b'{"page": %d, "id": 12345678901234567890}' % number,
                key=b"k%d" % number,
                partition=number % 2,
            )
        producer.send("clicks", EVIL.encode(), key=EVIL.encode(), partition=0, headers=[(EVIL, EVIL.encode())])
        producer.send("clicks", b"\xff\x00", partition=1)
        producer.send("orders", {"user": "ada", "price": 1.5, "note": EVIL})
    log.create_topic("sealed", 2, {"segment.bytes": 2000, "retention.ms": -1})
    for number in range(5):
        with Producer(log.url) as producer:
            producer.send("sealed", Random(number).randbytes(1500), partition=0)
        log.topic("sealed").maintain()
    log.topic("sealed").alter({"retention.bytes": 4000})
    log.groups.commit("reports", {"clicks": {0: 3}})
    return log


@pytest.fixture(scope="session")
def url(log: CommitLog) -> Iterator[str]:
    """The address that the command prints, with a token."""
    with served(log.url, "--token") as address:
        yield address


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started
