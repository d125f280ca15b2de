"""Segments of the page, what maintenance has left, and what it is to do: as maintenance then does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.cli.ui import maintenance_view
from pyspark_commitlog.cli.ui.maintenance_view import done_lines, due_lines, work_row
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.topic.maintain.due import DueWork, SegmentRange
from pyspark_commitlog.topic.maintain.maintenance_runs import MaintenanceRun
from tests.support.page import ask, page_of

SEGMENTS = tuple(SegmentRange(at * 10, at * 10 + 10, 100, at, is_active=at == 4) for at in range(5))
WORK = DueWork(3, SEGMENTS, 5, 20, 2, 200, 50, 7, 10, 1, 100, "", 70)


def filled(log: CommitLog, **config: object) -> None:
    """Make a topic whose partition 0 has several segments."""
    given = {name.replace("_", "."): value for name, value in config.items()}
    log.create_topic("t", 2, {**given, "segment.bytes": 2000})
    for number in range(6):
        with Producer(log.url) as producer:
            producer.send("t", b"%d" % number * 1500, key=b"same", partition=0)
        log.topic("t").maintain()


def row_of(page: TestClient, partition: int = 0) -> dict[str, Any]:
    row: dict[str, Any] = ask(page, "topics/t/segments")["rows"][partition]
    return row


def test_segments_and_what_is_due(log: CommitLog, page: TestClient) -> None:
    filled(log, retention_ms=-1)
    row = row_of(page)
    assert (row["partition"], row["logStart"], row["settledEnd"], row["unsettled"]) == (0, 0, 6, 0)
    assert len(row["segments"]) > 2
    assert [each["base"] for each in row["segments"][1:]] == [each["end"] for each in row["segments"][:-1]]
    assert row["segments"][-1]["active"]
    assert row["bytes"] == sum(each["bytes"] for each in row["segments"])
    assert row["due"] == []
    assert row_of(page, 1)["segments"] == []


def test_records_that_are_not_settled_are_due(log: CommitLog, page: TestClient) -> None:
    filled(log)
    topic = log.root.topic("t")
    with topic.settling(topic.newest()[1].topic_id) as held, Producer(log.url) as producer:
        assert held  # so that the producer can't settle
        producer.send("t", b"late", partition=1)
        producer.flush()
        row = row_of(page, 1)
    assert (row["settledEnd"], row["unsettled"]) == (0, 1)
    assert row["unsettledBytes"] > 4
    assert row["due"] == [f"settle 1 record ({row['unsettledBytes']:,} bytes)"]
    log.topic("t").maintain()
    assert row_of(page, 1)["due"] == []


def test_what_retention_is_to_delete_is_what_it_deletes(log: CommitLog, page: TestClient) -> None:
    filled(log, retention_ms=-1)
    log.topic("t").alter({"retention.bytes": 4000})
    row = row_of(page)
    gone = [each for each in row["segments"] if each["due"]]
    assert row["due"] == [
        f"delete {len(gone)} segments ({sum(each['bytes'] for each in gone):,} bytes); the log starts at {gone[-1]['end']}"
    ]
    done = log.topic("t").maintain()
    assert done.retained.log_start == {0: (0, gone[-1]["end"])}
    assert done.retained.segments == len(gone)
    assert row_of(page)["logStart"] == gone[-1]["end"]
    assert row_of(page)["due"] == []


def test_what_compaction_is_to_take_is_what_it_takes(log: CommitLog, page: TestClient) -> None:
    filled(log, retention_ms=-1)
    log.topic("t").alter({"cleanup.policy": "compact"})
    row = row_of(page)
    (line,) = row["due"]
    (done,) = log.topic("t").maintain().compacted
    assert line == f"compact {done.segments[0]} segments ({done.size_bytes[0]:,} bytes)"
    after = row_of(page)
    assert after["cleaned"] > row["cleaned"] == 0
    assert after["due"][0].startswith("not compact: no segment was sealed since the last compaction")


def test_what_the_last_runs_did_is_shown_the_newest_first(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t", 2)
    assert ask(page, "topics/t/segments")["runs"] == []
    for records in (1, 2):
        with Producer(log.url) as producer:
            for number in range(records):
                producer.send("t", b"%d" % number, partition=0)
        log.topic("t").maintain()
    runs = ask(page, "topics/t/segments")["runs"]
    assert [run["did"] for run in runs] == [["settled 2 records"], ["settled 1 record"]]
    assert runs[0]["at"] > runs[1]["at"] > 1_700_000_000_000


def test_a_run_in_words() -> None:
    assert done_lines(MaintenanceRun(1, 2, 1, 1, 1, 5, 1, 1000, 2, 1)) == [
        "settled 2 records", "merged segment objects in 1 step", "deleted 1 record", "let go of 1 segment",
        "compacted 5 segments", "rebuilt the indexes of 1 segment", "removed 1,000 files",
        "removed what was left of 2 former incarnations", "met 1 error",
    ]  # fmt: skip


def test_partitions_come_in_pages_of_their_own(log: CommitLog, page: TestClient) -> None:
    log.create_topic("wide", 50)
    pages = [ask(page, "topics/wide/segments", **{"from": first}) for first in (0, 20, 40, 99)]
    assert [(each["total"], each["from"], len(each["rows"])) for each in pages] == [
        (50, 0, 20), (50, 20, 20), (50, 40, 10), (50, 50, 0),
    ]  # fmt: skip
    assert ask(page, "topics/none/segments", 404)["error"] == "UnknownTopicError"


def test_a_partition_that_can_not_be_read_stops_no_other(log: CommitLog, page: TestClient, tmp_path: Path) -> None:
    filled(log)
    for manifest in (tmp_path / "root" / "topics" / "t").rglob("manifests/*"):
        manifest.write_bytes(b"{")
    answer = ask(page_of(CommitLog(log.url)), "topics/t/segments")
    assert [row["partition"] for row in answer["rows"]] == [1]
    assert answer["failures"][0].startswith("partition 0: ")
    assert maintenance_view.maintenance_view([], {7: CorruptionError("x")}, [], 0, 9)["failures"] == ["partition 7: x"]


def test_the_newest_segments_are_sent(monkeypatch: Any) -> None:
    assert [each["due"] for each in work_row(WORK)["segments"]] == [True, True, False, False, False]
    assert work_row(WORK)["earlier"] == {"segments": 0, "bytes": 0}
    monkeypatch.setattr(maintenance_view, "MOST_SEGMENTS", 2)
    row = work_row(WORK)
    assert [each["base"] for each in row["segments"]] == [30, 40]
    assert row["earlier"] == {"segments": 3, "bytes": 300}
    assert row["bytes"] == 500
    assert row["segments"][-1] == {"base": 40, "end": 50, "bytes": 100, "latest": 4, "active": True, "due": False}


def test_the_work_in_words() -> None:
    assert due_lines(WORK) == [
        "settle 7 records (70 bytes)",
        "delete 2 segments (200 bytes); the log starts at 20",
        "compact 1 segment (100 bytes)",
    ]
