"""Topics and groups as the page has them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog, Consumer, TopicPartition, __version__
from pyspark_commitlog.cli.ui import routes
from pyspark_commitlog.cli.ui.routes import status_of
from pyspark_commitlog.cli.ui.views import error_view, page_bounds, partition_names, topic_row, topic_view
from pyspark_commitlog.errors import CorruptionError, RootNotFoundError, StorageError, UnknownTopicError, UsageError
from pyspark_commitlog.model import TopicPartition as Place
from pyspark_commitlog.topic_description import PartitionDescription, TopicDescription
from tests.support.page import ask, page_of


def test_the_root(page: TestClient, log: CommitLog) -> None:
    assert ask(page, "root") == {"url": log.url, "version": __version__, "principal": None, "masked": []}


def test_without_a_root_the_library_s_error(tmp_path: Path) -> None:
    page = page_of(CommitLog(str(tmp_path / "none")))
    for path in ("root", "topics", "groups"):
        answer = ask(page, path, 404)
        assert answer["error"] == "RootNotFoundError"
        assert "there is no commit log at" in answer["message"]
        assert "commitlog topics create" in answer["message"]


def test_topics(page: TestClient) -> None:
    answer = ask(page, "topics")
    assert (answer["total"], answer["from"], answer["pageEnd"]) == (2, 0, 2)
    clicks, orders = answer["rows"]
    assert (clicks["name"], clicks["partitions"], clicks["offsets"], clicks["typed"]) == ("clicks", 3, 9, False)
    assert (orders["name"], orders["partitions"], orders["offsets"], orders["typed"]) == ("orders", 1, 4, True)
    assert clicks["bytes"] > 0
    assert (clicks["replicas"], clicks["faults"]) == (None, [])


def test_topics_by_a_part_of_their_names(page: TestClient) -> None:
    assert [row["name"] for row in ask(page, "topics", search="CLI")["rows"]] == ["clicks"]
    assert ask(page, "topics", search="none")["total"] == 0


def test_a_topic(page: TestClient) -> None:
    topic = ask(page, "topics/clicks")
    assert topic["overrides"] == {"retention.ms": "-1"}
    assert topic["config"]["cleanup.policy"] == "delete"
    assert "settled" in topic["backlog"]
    assert topic["maintained"] == "never maintained"
    rows = topic["partitionRows"]["rows"]
    assert [(row["partition"], row["logStart"], row["highWatermark"], row["logEnd"]) for row in rows] == [
        (0, 0, 3, 3), (1, 0, 3, 3), (2, 0, 3, 3),
    ]  # fmt: skip
    assert {"segments", "bytes", "unsettled"} < rows[0].keys()


def test_a_topic_that_was_maintained(page: TestClient, log: CommitLog) -> None:
    log.topic("clicks").maintain()
    assert ask(page, "topics/clicks")["maintained"].startswith("maintained 0 s ago")
    assert ask(page, "topics/clicks")["unsettled"] == 0


def test_columns_of_a_typed_topic(page: TestClient) -> None:
    schema = ask(page, "topics/orders")["schema"]
    assert [(row["name"], row["type"]) for row in schema["columns"]][:2] == [("user", "string"), ("price", "double")]
    assert schema["key"] == "user"


def test_replicas(tmp_path: Path) -> None:
    urls = [str(tmp_path / name) for name in ("a", "b")]
    log = CommitLog.create(urls)
    log.create_topic("clicks")
    page = page_of(CommitLog(",".join(urls)))
    (row,) = ask(page, "topics")["rows"]
    assert (row["replicas"], row["inSync"]) == (2, 2)
    replication = ask(page, "topics/clicks")["replication"]
    assert sorted(replication["isr"]) == urls
    assert {each["role"] for each in replication["replicas"]} == {"leader", "in sync"}
    assert replication["metadata"] == [{"url": urls[0], "fault": None}]
    assert ask(page, "topics/clicks/records")["ended"]


def test_partitions_come_in_pages(log: CommitLog, page: TestClient) -> None:
    log.create_topic("wide", 250)
    pages = [ask(page, "topics/wide", **{"from": first})["partitionRows"] for first in (0, 100, 200, 999)]
    assert [(each["total"], each["from"], len(each["rows"])) for each in pages] == [
        (250, 0, 100), (250, 100, 100), (250, 200, 50), (250, 250, 0),
    ]  # fmt: skip


def test_a_list_ends_after_a_second_and_goes_on(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_LIST_SECONDS", 0.0)
    first = ask(page, "topics")
    assert (first["total"], first["pageEnd"], [row["name"] for row in first["rows"]]) == (2, 2, ["clicks"])
    assert [row["name"] for row in ask(page, "topics", **{"from": 1})["rows"]] == ["orders"]


def test_one_topic_that_can_not_be_described_stops_no_other(log: CommitLog, page: TestClient, tmp_path: Path) -> None:
    for entry in (tmp_path / "root" / "topics" / "clicks" / "journal").iterdir():
        entry.write_bytes(b"{")
    clicks, orders = ask(page, "topics")["rows"]
    assert (clicks["name"], clicks["error"]) == ("clicks", "CorruptionError")
    assert orders["offsets"] == 4
    assert "commitlog" in ask(page, "topics/clicks", 500)["message"] or ask(page, "topics/clicks", 500)["error"]


def test_groups(page: TestClient) -> None:
    (row,) = ask(page, "groups")["rows"]
    assert row == {"group": "reports", "state": "Empty", "members": 0, "topics": ["clicks"], "lag": 5, "faults": []}
    group = ask(page, "groups/reports")
    assert [(each["partition"], each["offset"], each["lag"]) for each in group["partitionRows"]["rows"]] == [
        (2, None, 3), (0, 1, 2), (1, 3, 0),
    ]  # fmt: skip
    assert ask(page, "groups", search="x")["total"] == 0


def test_members_of_a_group(page: TestClient, log: CommitLog) -> None:
    with Consumer(log.url, "clicks", group_id="live", client_id="ada", initial_rebalance_delay_ms=0) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        group = ask(page, "groups/live")
    (member,) = group["memberRows"]
    assert member["consumerId"].startswith("ada-")
    assert (member["assigned"], member["partitions"]) == (3, "clicks-0, clicks-1, clicks-2")
    assert {row["member"] for row in group["partitionRows"]["rows"]} == {member["consumerId"]}


def test_a_group_of_any_name(log: CommitLog, page: TestClient) -> None:
    name = "a b/ü?#%"
    log.groups.commit(name, {"clicks": {0: 1}})
    assert name in [row["group"] for row in ask(page, "groups")["rows"]]
    assert ask(page, "groups/a%20b%2F%C3%BC%3F%23%25")["group"] == name


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("topics/none", 404, "unknown topic 'none'"),
        ("topics/bad!name", 400, "topic name 'bad!name' is not allowed"),
        ("topics/none/records", 404, "unknown topic 'none'"),
        ("groups/none", 404, "there is no group 'none'"),
        ("topics?from=x", 400, "from=x is not allowed: it takes a whole number"),
        ("topics?from=-1", 400, "from=-1 is not allowed"),
        (f"topics?search={'x' * 5000}", 400, "search has 5000 characters; 4096 are allowed"),
    ],
)
def test_errors_are_the_library_s(page: TestClient, path: str, status: int, text: str) -> None:
    response = page.get(f"/api/{path}")
    assert response.status_code == status, response.text
    assert text in response.json()["message"]


def test_statuses_of_errors() -> None:
    errors = [UsageError(), UnknownTopicError(), RootNotFoundError(), CorruptionError(), StorageError(), OSError()]
    assert [status_of(error) for error in errors] == [400, 404, 404, 500, 500, 500]


def test_an_error_s_text_is_always_json() -> None:
    assert error_view(StorageError("path \udcff"))["message"] == "path \\udcff"


def test_bounds_of_a_page() -> None:
    assert [page_bounds(*each) for each in ((0, 10, 4), (8, 10, 4), (10, 10, 4), (99, 10, 4), (0, 0, 4))] == [
        (0, 4), (8, 10), (10, 10), (10, 10), (0, 0),
    ]  # fmt: skip


def test_a_member_of_many_partitions_names_the_first_of_them() -> None:
    named = partition_names([Place("t", number) for number in range(101)])
    assert named.endswith("t-99, …")


def test_faults_are_in_words() -> None:
    rows = (PartitionDescription(0, 0, 5, 5, 1, 100, 2, 10),)
    topic = TopicDescription("t", "id", {}, rows, damaged={0: "a CRC"}, unsafe_single_writer=True)
    row = topic_row(topic)
    assert (row["bytes"], row["unsettled"], row["offsets"]) == (110, 2, 5)
    assert row["faults"][0] == "partition 0 takes no commits: it can't be settled: a CRC"
    assert "only one process may write" in row["faults"][1]
    assert topic_view(replace(topic, since_maintained_ms=7_200_000), 0)["maintained"].startswith(
        "not maintained for 120"
    )


def test_the_answers_come_from_threads_so_that_a_slow_store_stops_no_other(page: TestClient, log: CommitLog) -> None:
    """The endpoints are functions, not coroutines: Starlette runs them in its pool."""
    app = routes.create_app(log, policy=routes.RequestPolicy())
    endpoints = [route.endpoint for route in app._app.routes if route.path.startswith("/api/")]  # type: ignore[attr-defined]
    assert len(endpoints) >= 7
    assert not any(asyncio.iscoroutinefunction(endpoint) for endpoint in endpoints)
    assert TopicPartition is Place
