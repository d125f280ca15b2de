"""Ten thousand partitions and a hundred groups: pages come within two seconds, without a request per partition."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest
from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage
from tests.support.page import ask, page_of

pytestmark = pytest.mark.slow

PARTITIONS, GROUPS = 10_000, 100
#: Seconds until a page is there.
LIMIT = 2.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "root"
    log = CommitLog(str(path))
    log.create_topic("wide", PARTITIONS)
    for number in range(GROUPS):
        log.groups.commit(f"g{number:03}", {"wide": {number: 0}})
    return path


def timed(page: TestClient, path: str, **parameters: object) -> object:
    begun = monotonic()
    answer = ask(page, path, **parameters)
    assert monotonic() - begun < LIMIT, path
    return answer


@pytest.mark.parametrize(
    "path",
    [
        "topics",
        "groups",
        "topics/wide",
        "topics/wide/segments?from=9980",
        "groups/g000",
        "topics/wide/records?partition=9999",
    ],
)
def test_a_page_is_there_within_two_seconds(root: Path, path: str) -> None:
    page = page_of(CommitLog(str(root)))
    ask(page, "root")
    path, _, query = path.partition("?")
    timed(page, path, **dict([query.split("=")] if query else []))


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("topics", 40),
        ("topics/wide", 40),
        ("topics/wide/segments", 60),
        ("groups/g000", 40),
        ("topics/wide/records?partition=7", 60),
    ],
)
def test_there_is_no_request_per_partition(root: Path, path: str, most: int) -> None:
    calls = list[str]()

    def note(call: str, path: str, moment: str) -> None:
        if moment == "before":
            calls.append(f"{call} {path}")

    storage = FaultyStorage(LocalStorage(root), note)  # type: ignore[abstract]
    page = page_of(CommitLog.on(storage))
    path, _, query = path.partition("?")
    ask(page, path, **dict([query.split("=")] if query else []))
    assert 0 < len(calls) < most, calls
