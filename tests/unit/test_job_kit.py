"""The test kit's fixtures and helpers, without Spark."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import entry_points
from multiprocessing import get_context
from typing import Any

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer, Topic
from pyspark_commitlog.errors import (
    CommitLogError,
    DeliveryTimeoutError,
    OutcomeUnknownError,
    StorageError,
    StorageReadOnlyError,
    StorageUnreadableError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.testing import plugin
from pyspark_commitlog.testing.jobs import assert_topic, fill_topic
from pyspark_commitlog.testing.named_faults import FAULTS, Faults
from pyspark_commitlog.testing.shifted_clock import ShiftedClock

CreateTopic = Callable[..., Topic]


def test_a_topic_is_filled_from_values(commitlog_topic: CreateTopic) -> None:
    topic = commitlog_topic("clicks", ["a", b"\xff", None])
    assert [record.value for record in topic.read(0, 0, 10)] == [b"a", b"\xff", None]


def test_a_topic_is_filled_from_fields(commitlog_topic: CreateTopic) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"key": "k", "value": "v", "headers": [("h", b"1")], "timestamp": at, "partition": 1}
    topic = commitlog_topic("clicks", [row, {"key": "gone", "partition": 0}], partitions=2)
    assert_topic(topic, [{"key": "gone", "value": None, "partition": 0}, {**row, "offset": 0}])


def test_a_topic_is_filled_from_columns(commitlog_topic: CreateTopic) -> None:
    rows = [{"user": "ada", "price": 1.5, "tags": {"a": 1}}, {"user": None, "price": math.nan, "tags": None}]
    topic = commitlog_topic("clicks", rows, schema="user STRING, price DOUBLE, tags MAP<STRING, INT>")
    assert_topic(topic, rows)
    with pytest.raises(AssertionError, match="partition 0 offset 0: expected"):
        assert_topic(topic, [{**rows[0], "tags": {"a": 2}}, rows[1]])


def test_what_a_topic_refuses_is_raised(commitlog: CommitLog) -> None:
    commitlog.create_topic("clicks")
    with pytest.raises(UnknownTopicError):
        fill_topic(commitlog, "missing", ["a"])


def test_differences_are_named_by_their_place(commitlog_topic: CreateTopic) -> None:
    topic = commitlog_topic("clicks", [f"{number}" for number in range(20)])
    with pytest.raises(AssertionError) as refused:
        assert_topic(topic, ["0", "x", *[f"{number}" for number in range(2, 20)], "more"])
    assert f"{refused.value}".splitlines() == [
        "topic 'clicks' holds 20 records, expected 21:",
        "  partition 0 offset 1: expected {'value': 'x'}, found {'value': b'1'}",
        "  missing: {'value': 'more'}",
    ]
    with pytest.raises(AssertionError, match=r"offset 5: not expected: \{'value': b'5'\}(.|\n)*\n  and 5 more$"):
        assert_topic(topic, ["0", "1", "2", "3", "4"])


def test_an_order_that_differs_is_a_difference_unless_none_is_asked_for(commitlog_topic: CreateTopic) -> None:
    topic = commitlog_topic("clicks", ["a", "b", "b"])
    assert_topic(topic, ["b", "a", "b"], in_order=False)
    with pytest.raises(AssertionError):
        assert_topic(topic, ["b", "a", "b"])
    with pytest.raises(AssertionError, match=r"missing: \{'value': 'a'\}\n  partition 0 offset 2: not expected"):
        assert_topic(topic, ["b", "a", "a"], in_order=False)


def test_an_empty_topic_holds_nothing(commitlog_topic: CreateTopic) -> None:
    assert_topic(commitlog_topic("clicks"), [])


def test_a_field_that_no_topic_has_is_refused(commitlog_topic: CreateTopic) -> None:
    with pytest.raises(UsageError, match="valeu"):
        assert_topic(commitlog_topic("clicks", ["a"]), [{"valeu": "a"}])


def test_records_leave_when_the_clock_is_advanced(commitlog: CommitLog, commitlog_clock: ShiftedClock) -> None:
    """A program that opens the root by its path has the clock, too."""
    topic = commitlog.create_topic("clicks", config={"retention.ms": 7 * 86_400_000, "segment.ms": 3_600_000})
    fill_topic(commitlog, "clicks", ["old"])
    commitlog_clock.advance(days=6)
    CommitLog(commitlog.url).maintain()
    assert topic.describe().partitions[0].log_start_offset == 0
    commitlog_clock.advance(days=2)
    fill_topic(commitlog, "clicks", ["new"])
    CommitLog(commitlog.url).maintain()
    assert_topic(topic, ["new"])


def test_files_have_the_time_of_the_advanced_clock(commitlog: CommitLog, commitlog_clock: ShiftedClock) -> None:
    """Else maintenance would take what is being written for what was abandoned."""
    commitlog.create_topic("clicks")
    commitlog_clock.advance(days=30)
    storage = commitlog.root.storage
    file = storage.create("topics/clicks/staged")
    file.write(b"data")
    file.close()
    assert abs(storage.info("topics/clicks/staged").modified_ms - commitlog_clock.now_ms()) < 60_000


OUTCOMES: dict[str, type[CommitLogError]] = {
    "commit-fails": OutcomeUnknownError,
    "disk-full": DeliveryTimeoutError,
    "read-only": StorageReadOnlyError,
    "unreadable": StorageUnreadableError,
    "disk-fails": StorageError,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_named_fault_meets_a_producer_and_goes_with_its_context(
    commitlog: CommitLog, commitlog_faults: Faults, name: str
) -> None:
    commitlog.create_topic("clicks")
    with (
        commitlog_faults(name),
        pytest.raises(OUTCOMES[name]),
        Producer(commitlog.url, delivery_timeout_ms=1000, request_timeout_ms=500) as producer,
    ):
        producer.send("clicks", b"1").result()
    fill_topic(commitlog, "clicks", ["2"])
    assert_topic(commitlog.topic("clicks"), ["2"])


def test_a_commit_whose_reply_is_lost_counts_once(
    commitlog_topic: CreateTopic, commitlog: CommitLog, commitlog_faults: Faults
) -> None:
    topic = commitlog_topic("clicks")
    with commitlog_faults("commit-reply-lost", times=1), Producer(commitlog.url) as producer:
        producer.send("clicks", b"1").result()
    assert_topic(topic, ["1"])


def test_a_reader_meets_a_fault(commitlog_topic: CreateTopic, commitlog: CommitLog, commitlog_faults: Faults) -> None:
    commitlog_topic("clicks", ["a"])
    with (
        commitlog_faults("unreadable"),
        pytest.raises(StorageUnreadableError),
        Consumer(commitlog.url, "clicks", auto_offset_reset="earliest") as consumer,
    ):
        consumer.poll(1)


def test_a_fault_is_of_one_root(commitlog_faults: Faults, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = CommitLog(str(tmp_path_factory.mktemp("other") / "log"))
    with commitlog_faults("disk-fails"):
        other.create_topic("clicks")
        fill_topic(other, "clicks", ["a"])
    assert_topic(other.topic("clicks"), ["a"])


def _send(url: str) -> None:
    with Producer(url) as producer:
        producer.send("clicks", b"1").result()


@pytest.mark.parametrize(("name", "found"), [("killed-before-commit", []), ("killed-after-commit", ["1"])])
def test_a_forked_writer_is_killed_at_its_commit(
    commitlog_topic: CreateTopic, commitlog: CommitLog, commitlog_faults: Faults, name: str, found: list[str]
) -> None:
    topic = commitlog_topic("clicks")
    with commitlog_faults(name):
        writer = get_context("fork").Process(target=_send, args=[commitlog.url])
        writer.start()
        writer.join(60)
    assert writer.exitcode == -9
    assert_topic(topic, found)


def test_an_unknown_fault_is_refused_with_those_that_there_are(commitlog_faults: Faults) -> None:
    with pytest.raises(UsageError, match=", ".join(FAULTS)):
        commitlog_faults("full-disk")


def test_each_fault_that_is_no_kill_is_tried() -> None:
    assert set(OUTCOMES) == {name for name in FAULTS if not name.startswith(("killed", "commit-reply"))}


@pytest.mark.parametrize(
    ("wanted", "found"), [([1.0], 1), ({"a": 1}, [("b", 1)]), ({"a": 1}, {"a": 1, "b": 2}), ("a", "b"), (None, 0)]
)
def test_values_that_differ_are_no_match(commitlog: CommitLog, wanted: Any, found: Any) -> None:
    from pyspark_commitlog.testing.jobs import _equal

    assert not _equal(wanted, found)


def test_pytest_finds_the_fixtures_and_imports_nothing_with_them() -> None:
    """They are in every run of pytest in their environment."""
    (found,) = entry_points(group="pytest11", name="commitlog")
    assert found.value == plugin.__name__
    program = (
        f"import pytest, sys; before = set(sys.modules); import {plugin.__name__}; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} <= {"pyspark_commitlog", "_pytest"}
    assert "pyspark_commitlog.storage" not in done.stdout
