"""What `commitlog doctor` concludes from what it found, and what `commitlog` alone shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.common.overview import overview_lines
from pyspark_commitlog.cli.doctor import disk_diagnosis, place_diagnosis, topic_diagnoses
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.local.free_space import FreeSpace, free_space
from pyspark_commitlog.storage.local.probe import Finding, clock_finding
from pyspark_commitlog.topic_description import Backlog, ReplicaDescription, ReplicationDescription, TopicDescription

HOUR_MS = 3_600_000
GIB = 2**30
TOPIC = TopicDescription("clicks", "id", {}, ())


@pytest.mark.parametrize(
    ("free", "total", "well"),
    [(GIB, 10 * GIB, True), (GIB - 1, 2 * GIB, False), (10 * GIB, 101 * GIB, False), (11 * GIB, 101 * GIB, True)],
)
def test_a_disk_is_nearly_full_below_a_gibibyte_or_a_tenth(free: int, total: int, well: bool) -> None:
    found = disk_diagnosis("/data", FreeSpace(free, total))
    assert found.is_well is well
    assert ("retention.ms" in found.remedy) is not well


def test_free_space_is_that_of_the_root(tmp_path: Path) -> None:
    found = free_space(open_storage(str(tmp_path)))
    assert found is not None
    assert 0 < found.free_bytes <= found.total_bytes
    assert free_space(open_storage("memory://doctor")) is None


@pytest.mark.parametrize(
    ("stamped", "held", "text"),
    [
        (1000, True, "agree"),
        (6000, True, "agree"),  # whole seconds
        (-4000, True, "agree"),
        (6101, False, "5 s slow by the store's"),
        (-4001, False, "5 s fast by the store's"),
    ],
)
def test_clocks_that_differ_by_more_than_5_s_are_reported(stamped: int, held: bool, text: str) -> None:
    found = clock_finding(1000, stamped, 1100)
    assert (found.held, found.safe) == (held, True)
    assert found.told.endswith(text)


def test_a_place_that_loses_records_is_to_be_left() -> None:
    assert "commitlog copy" in place_diagnosis("/data", Finding("lock", False, "is not held", safe=False)).remedy
    assert "NTP" in place_diagnosis("/data", Finding("clock", False, "60 s slow")).remedy
    assert "lifecycle" in place_diagnosis("s3://b", Finding("versions", False, "kept")).remedy


def test_a_topic_without_faults_has_none() -> None:
    fresh = replace(TOPIC, unsettled=Backlog(2, 100, HOUR_MS), since_maintained_ms=HOUR_MS)
    assert list(topic_diagnoses(fresh)) == list(topic_diagnoses(TOPIC)) == []


REPLICATION = ReplicationDescription(
    "a",
    "/a",
    0,
    (ReplicaDescription("a", "/a", "leader"), ReplicaDescription("b", "/b", "out of sync")),
    ("a",),
    (),
    (),
)


@pytest.mark.parametrize(
    ("topic", "found", "remedy"),
    [
        (replace(TOPIC, unsettled=Backlog(2, 100, HOUR_MS + 1)), "2 journal entries", "commitlog maintain"),
        (replace(TOPIC, since_maintained_ms=HOUR_MS + 1), "not maintained for 60 minutes", "commitlog maintain"),
        (replace(TOPIC, damaged={3: "a CRC differs"}), "partition 3 takes no commits: a CRC", "troubleshooting"),
        (replace(TOPIC, unsafe_single_writer=True), "two writers", "one process"),
        (replace(TOPIC, replication=REPLICATION), "1 of 2 replicas", "replicas describe"),
    ],
    ids=["unsettled", "unmaintained", "damaged", "unsafe", "under-replicated"],
)
def test_a_fault_of_a_topic_says_what_to_do(topic: TopicDescription, found: str, remedy: str) -> None:
    (diagnosis,) = topic_diagnoses(topic)
    assert not diagnosis.is_well
    assert diagnosis.subject == "topic clicks"
    assert found in diagnosis.found
    assert remedy in diagnosis.remedy


def test_where_no_log_is_the_commands_make_one() -> None:
    lines = list(overview_lines({}))
    assert [line.strip() for line in lines if line.startswith("  ")] == [
        "commitlog topics create log clicks", "commitlog produce log clicks", "commitlog cat log clicks -o -10 -e",
    ]  # fmt: skip


def test_the_logs_that_are_here_are_named_with_their_topics() -> None:
    lines = list(overview_lines({"data": [f"t{number}" for number in range(9)], "empty": []}))
    assert "  data  9 topics: t0, t1, t2, t3, t4, t5, t6, t7, …" in lines
    assert "  empty  0 topics" in lines
    assert "  commitlog doctor data" in lines
    assert "  commitlog ui data" in lines
    assert not any("topics create" in line for line in lines)


def test_a_log_without_topics_is_given_one() -> None:
    assert "  commitlog topics create empty clicks" in list(overview_lines({"empty": []}))


def test_the_examined_log_names_what_can_not_be_described(tmp_path: Path) -> None:
    from pyspark_commitlog.cli.doctor import examine

    log = CommitLog(str(tmp_path / "log"))
    log.create_topic("clicks")
    well = list(examine(log, ["clicks"], [log.root.storage]))
    assert [each.is_well for each in well] == [True] * len(well)
    assert {each.subject for each in well} == {"versions", f"disk of {log.url}", log.url, "topics"}
    (entry,) = (tmp_path / "log" / "topics" / "clicks" / "journal").iterdir()
    entry.write_bytes(b"{")
    sick = [each for each in examine(CommitLog(log.url), ["clicks"], []) if not each.is_well]
    assert [each.subject for each in sick] == ["topic clicks"]
    assert "commitlog verify" in sick[0].remedy
