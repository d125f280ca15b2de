"""Queries and their groups: what is committed when, where a group starts, who shares, and what a reset comes to."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    OptionError,
    StorageError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, on_path
from tests.spark.driver import Checkpoint, Driver
from tests.spark.jobs import ended, read, stream, values
from tests.spark.recorded import CrashError
from tests.support.records import append, batch_of
from tests.support.world import Recorder, raising

TOPIC = "orders"


@pytest.fixture
def log(log: CommitLog) -> CommitLog:
    """A topic with five records in each of two partitions."""
    log.create_topic(TOPIC, partitions=2)
    put(log, 0, 5)
    put(log, 1, 5)
    return log


def put(log: CommitLog, partition: int, count: int, topic: str = TOPIC) -> None:
    """Append values that say partition and offset."""
    first = log.topic(topic).describe().partitions[partition].high_watermark
    rows = [f"{partition}.{first + number}".encode() for number in range(count)]
    append(log.root.topic(topic), batch_of(rows, partition=[partition] * count))


def offsets(log: CommitLog, group: str = "g") -> list[int | None]:
    """Return what is committed, by partition."""
    return [row.offset for row in log.groups.describe(group).partitions] if group in log.groups.list() else []


class Query:
    """A streaming query in the driver without Spark, with a checkpoint of its own."""

    def __init__(self, root: str, **options: Any) -> None:
        self.options = {"path": root, "subscribe": TOPIC, "startingOffsets": "earliest", "groupId": "g"}
        self.options |= {name: str(value) for name, value in options.items()}
        self.checkpoint = Checkpoint()
        self.seen: list[str] = []

    def run(self, crash_in: int | None = None, source: type[DefaultSource] = DefaultSource) -> list[str]:
        """Run what is available, and return the values of this run; the sink gives up in a batch."""
        before = len(self.seen)

        def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
            if batch == crash_in:
                raise CrashError
            self.seen += sorted(value.decode() for b in rows for value in b.column("value").to_pylist())

        try:
            Driver(source(self.options), self.checkpoint, sink).run()
        except CrashError:
            assert crash_in is not None
        return self.seen[before:]


# --- in Spark ---------------------------------------------------------------------------------------------


def test_all_that_an_available_now_run_has_read_is_committed(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    """Spark calls `commit` one batch late, and never for the last: the look for more records tells it."""
    seen: list[list[str]] = []

    def run() -> None:
        df = stream(spark, root, TOPIC, groupId="g", maxOffsetsPerTrigger=4)
        writer = df.writeStream.foreachBatch(lambda found, _: seen.append(values(found)))
        ended(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())

    run()
    assert (sum(map(len, seen)), offsets(log)) == (10, [5, 5])
    put(log, 1, 2)
    run()
    assert (sum(map(len, seen)), offsets(log)) == (12, [5, 7])
    entries = log.groups.open("g").journal.sequences()
    run()
    assert log.groups.open("g").journal.sequences() == entries


def test_a_running_query_commits_as_it_goes(spark: SparkSession, root: str, log: CommitLog, tmp_path: Path) -> None:
    df = stream(spark, root, TOPIC, **{"kafka.group.id": "g"})
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        assert offsets(log) == [5, 5]
        put(log, 0, 3)
        query.processAllAvailable()
        assert offsets(log) == [8, 5]
    finally:
        query.stop()


def test_a_batch_read_starts_at_the_group_and_commits_nothing(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 3}})
    df = read(spark, root, TOPIC, groupId="g", startingOffsets="group")
    assert values(df) == ["0.3", "0.4", "1.0", "1.1", "1.2", "1.3", "1.4"]
    assert values(read(spark, root, TOPIC, groupId="g", groupShare="2/2")) == [f"1.{n}" for n in range(5)]
    assert offsets(log) == [3, None]


# --- in the driver: what is committed ---------------------------------------------------------------------


def test_what_is_not_over_is_not_committed(root: str, log: CommitLog) -> None:
    query = Query(root, maxOffsetsPerTrigger=4)
    query.run(crash_in=0)
    assert offsets(log) == [0, 0]
    query.run(crash_in=2)
    assert offsets(log) == [4, 4]
    query.run()
    assert offsets(log) == [5, 5]


def test_a_query_never_moves_its_group_back(root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 4, 1: 5}})
    query = Query(root, maxOffsetsPerTrigger=2)
    query.run(crash_in=2)
    assert offsets(log) == [4, 5]
    query.run()
    assert offsets(log) == [5, 5]


def test_two_queries_of_a_group_leave_the_furthest(root: str, log: CommitLog) -> None:
    slow, fast = Query(root, maxOffsetsPerTrigger=2), Query(root)
    fast.options["Kafka.Group.Id"] = fast.options.pop("groupId")
    slow.run(crash_in=1)
    fast.run()
    slow.run(crash_in=2)
    assert offsets(log) == [5, 5]


def test_a_query_that_gets_a_group_later_commits_from_then_on(root: str, log: CommitLog) -> None:
    query = Query(root)
    del query.options["groupId"]
    query.run()
    assert log.groups.list() == ()
    assert "__group" not in query.checkpoint.planned[-1]
    planned = len(query.checkpoint.planned)
    query.options["groupId"] = "g"
    query.run()
    assert offsets(log) == [5, 5]
    assert len(query.checkpoint.planned) == planned, "no batch without rows only to note the group"
    put(log, 0, 1)
    query.run()
    assert '"__group": {"id": "g", "generation": 0, "share": "1/1"}' in query.checkpoint.planned[-1]
    log.groups.reset("other", TOPIC, to="earliest", dry_run=False)
    query.options["groupId"] = "other"
    put(log, 0, 1)
    query.run()
    assert (offsets(log), offsets(log, "other")) == ([6, 5], [7, 5])


class WatchedSource(DefaultSource):
    """A source that tells what its readers do to the root."""

    seen = Recorder()

    def open_log(self, path: str, storage: Any) -> Root:
        """Return a log that is watched."""
        return Root.on(FaultyStorage(LocalStorage(path), self.seen))  # type: ignore[abstract]


def test_a_query_that_waits_leaves_its_group_alone(root: str, log: CommitLog) -> None:
    source = WatchedSource(Query(root).options)
    reader = source.streamReader(source.schema())
    reached = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(reached, ReadAllAvailable()) == reached
    assert offsets(log) == [5, 5]
    WatchedSource.seen.calls.clear()
    for _ in range(3):
        assert reader.latestOffset(reached, ReadAllAvailable()) == reached
        reader.commit(reached)
    assert [path for _, path in WatchedSource.seen.calls if path.startswith("groups")] == []


class FullSource(DefaultSource):
    """A source on which no group can be committed to, twice."""

    def open_log(self, path: str, storage: Any) -> Root:
        """Return a log whose disk is full for groups."""
        full = on_path("groups/", "put_if_absent", raising(StorageError("no space left")), times=15)
        return Root.on(FaultyStorage(LocalStorage(path), full))  # type: ignore[abstract]


def test_a_commit_that_fails_is_told_and_does_not_stop_the_query(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(root, maxOffsetsPerTrigger=4)
    assert len(query.run(source=FullSource)) == 10
    assert "group 'g': progress was not committed, it is tried again" in caplog.text
    query.run()
    assert offsets(log) == [5, 5]


def test_a_group_that_is_damaged_does_not_stop_a_query_that_reports_to_it(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops those that start where it is."""
    query = Query(root, maxOffsetsPerTrigger=1)
    query.run()
    newest = max((Path(root) / "groups" / "g" / "journal").iterdir())
    newest.write_bytes(newest.read_bytes().replace(b'"offsets":[', b'"offsets":[1'))
    put(log, 0, 2)
    with caplog.at_level(logging.WARNING):
        assert query.run() == ["0.5", "0.6"]
    assert caplog.text.count("group 'g': progress was not committed, it is tried again") == 1
    with pytest.raises(CorruptionError, match=newest.name):
        Query(root, startingOffsets="group").run()


@pytest.mark.parametrize("strict", [False, True])
def test_a_root_restored_from_an_older_copy_is_told_by_the_query_not_by_its_group(
    root: str, log: CommitLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    """Its group can't commit offsets that the log does not have."""
    shutil.copytree(root, tmp_path / "copy")
    put(log, 0, 2)
    query = Query(root, failOnDataLoss=strict)
    assert len(query.run()) == 12
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    if strict:
        with pytest.raises(OffsetOutOfRangeError, match="orders partition 0: the checkpoint is at offset 7"):
            query.run()
        return
    with caplog.at_level(logging.WARNING):
        assert query.run() == []
    assert "progress was not committed" in caplog.text
    put(CommitLog(root), 0, 1)
    assert query.run() == ["0.5"]
    assert offsets(CommitLog(root)) == [6, 5]


def test_a_topic_that_is_gone_does_not_keep_its_group_from_the_others(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("gone")
    put(log, 0, 1, "gone")
    query = Query(root, subscribe=f"{TOPIC},gone", failOnDataLoss=False)
    query.run()
    log.topic("gone").delete()
    put(log, 0, 2)
    with caplog.at_level(logging.WARNING):
        assert query.run() == ["0.5", "0.6"]
    assert "progress is committed without what is gone" in caplog.text
    assert offsets(log)[-2:] == [7, 5]


# --- resets -----------------------------------------------------------------------------------------------


def test_a_reset_is_not_undone_by_a_query_of_before(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by the one that runs, nor by one that starts with its checkpoint; a new one goes by it."""
    query = Query(root, maxOffsetsPerTrigger=4)
    query.run(crash_in=1)
    log.groups.reset("g", {TOPIC: [0]}, to="earliest", dry_run=False)
    with caplog.at_level(logging.WARNING):
        query.run()
    assert offsets(log) == [0, 5]
    assert caplog.text.count("no longer counts for 1 partitions, such as orders partition 0") == 1
    put(log, 0, 1)
    assert query.run() == ["0.5"]
    assert offsets(log) == [0, 5]
    anew = Query(root, startingOffsets="group")
    assert anew.run() == [f"0.{n}" for n in range(6)]
    assert offsets(log) == [6, 5]


def test_a_reset_while_a_batch_runs_is_not_undone(root: str, log: CommitLog) -> None:
    query = Query(root, maxOffsetsPerTrigger=4)

    def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
        if batch == 1:
            log.groups.reset("g", offset=1, dry_run=False)

    Driver(DefaultSource(query.options), query.checkpoint, sink).run()
    assert offsets(log) == [1, 1]


def test_a_query_with_a_group_is_told_what_it_had_not_read_of_a_topic_made_again(root: str, log: CommitLog) -> None:
    """The group, too, refuses such a topic, and without naming a record."""
    query = Query(root)
    query.run()
    put(log, 0, 2)
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC, partitions=2)
    with pytest.raises(
        TopicChangedError, match=r"orders partition 0: .* offsets 5 to 6 of the topic with id .* not read"
    ):
        query.run()


def test_the_group_is_told_of_a_topic_made_again_that_gets_to_the_same_offsets(root: str, log: CommitLog) -> None:
    source = DefaultSource(Query(root, failOnDataLoss=False).options)
    reader = source.streamReader(source.schema())
    begin = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset(begin, ReadAllAvailable())
        reader.partitions(begin, end)
        reader.commit(end)
        assert offsets(log) == [5, 5]
        log.topic(TOPIC).delete()
        log.create_topic(TOPIC, partitions=2)
        put(log, 0, 5)
        put(log, 1, 5)
        begin = end


def test_a_deleted_group_stays_deleted_for_its_queries(root: str, log: CommitLog) -> None:
    query = Query(root)
    query.run()
    log.groups.delete("g")
    put(log, 0, 1)
    query.run()
    assert log.groups.list() == ()


# --- where a group starts ---------------------------------------------------------------------------------


def test_a_query_starts_at_its_group_and_at_earliest_where_nothing_is_committed(root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 3}})
    assert Query(root, startingOffsets="group").run() == ["0.3", "0.4", "1.0", "1.1", "1.2", "1.3", "1.4"]
    assert Query(root, startingOffsets="Group", groupId="new").run() == sorted(
        f"{p}.{n}" for p in (0, 1) for n in range(5)
    )
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC)
    put(log, 0, 2)
    assert Query(root, startingOffsets="group").run() == ["0.0", "0.1"]


@pytest.mark.parametrize(("starting", "expected"), [("group", 3), ("latest", 5)])
def test_a_query_plans_its_first_batch_from_where_it_started(
    root: str, log: CommitLog, starting: str, expected: int
) -> None:
    """Spark asks twice for the initial offset; meanwhile the group moves, and records come."""
    log.groups.commit("g", {TOPIC: {0: 3, 1: 3}})
    source = DefaultSource(Query(root, startingOffsets=starting).options)
    reader = source.streamReader(source.schema())
    first = reader.initialOffset()
    put(log, 0, 1)
    log.groups.commit("g", {TOPIC: {0: 6}})
    assert reader.initialOffset() == first
    assert first[TOPIC] == {"0": expected, "1": expected}


def test_a_group_that_retention_has_overtaken_is_told(root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 1, 1: 5}})
    log.topic(TOPIC).delete_records({0: 4})
    with pytest.raises(
        OffsetOutOfRangeError, match=r"group 'g' is at offset 1 of orders partition 0.*3 records.*Reset it"
    ):
        Query(root, startingOffsets="group").run()
    assert Query(root, startingOffsets="group", groupShare="2/2").run() == []


# --- shares -----------------------------------------------------------------------------------------------


def test_shares_of_a_group_read_every_record_once(root: str, log: CommitLog) -> None:
    log.topic(TOPIC).add_partitions(5)
    for partition in range(2, 5):
        put(log, partition, partition)
    queries = [Query(root, groupShare=f"{k}/3", maxOffsetsPerTrigger=4) for k in (1, 2, 3)]
    queries[1].run()
    assert offsets(log) == [None, 5, None, None, 4]
    for query in queries:
        query.run()
    assert [sorted({value[0] for value in query.seen}) for query in queries] == [["0", "3"], ["1", "4"], ["2"]]
    assert offsets(log) == [5, 5, 2, 3, 4]
    log.topic(TOPIC).add_partitions(6)
    put(log, 5, 1)
    assert [query.run() for query in queries] == [[], [], ["5.0"]]
    assert len({value for query in queries for value in query.seen}) == sum(len(query.seen) for query in queries) == 20


def test_a_share_without_partitions_reads_nothing(root: str, log: CommitLog) -> None:
    query = Query(root, groupShare="3/3")
    assert (query.run(), query.run()) == ([], [])
    log.topic(TOPIC).add_partitions(3)
    put(log, 2, 1)
    assert query.run() == ["2.0"]


@pytest.mark.parametrize(("before", "after"), [("1/3", "1/2"), ("1/1", "1/2"), ("2/2", "1/1")])
@pytest.mark.parametrize("crash_in", [None, 0])
def test_another_share_needs_another_checkpoint(
    root: str, log: CommitLog, before: str, after: str, crash_in: int | None
) -> None:
    """Else partitions would be left out, or read again."""
    query = Query(root, groupShare=before)
    query.run(crash_in)
    query.options["groupShare"] = after
    with pytest.raises(OptionError, match=rf"'groupShare' is {after}, the checkpoint was made with {before}"):
        query.run()
    if after == "1/1":
        del query.options["groupShare"], query.options["groupId"]
        with pytest.raises(OptionError, match="groupShare"):
            query.run()


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"groupId": None, "startingOffsets": "group"}, "'startingOffsets'='group' needs 'groupId'"),
        ({"groupId": None, "groupShare": "1/2"}, "'groupShare'='1/2' needs 'groupId'"),
        ({"kafka.group.id": "other"}, "name two groups"),
        ({"groupShare": "0/2"}, "use k/n with k from 1 to n"),
        ({"groupShare": "3/2"}, "use k/n"),
        ({"groupShare": "half"}, "use k/n"),
        ({"groupId": "__g"}, "group name '__g' is not allowed"),
    ],
)
def test_options_that_cannot_be_are_refused(root: str, options: dict[str, str | None], told: str) -> None:
    given = {"path": root, "subscribe": TOPIC, "groupId": "g", **options}
    source = DefaultSource({name: value for name, value in given.items() if value is not None})
    with pytest.raises(UsageError, match=told):
        source.schema()
