"""The first batch of a query, and of a topic, is the same whenever it is played, whatever happened since it was planned.

Spark asks a source where a new query starts, and writes down where each batch ends, not where the first one starts:
before it plays that one again it asks anew. A topic that is new in a later batch is in no end before that one.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import OffsetOutOfRangeError, OptionError, TopicChangedError
from pyspark_commitlog.spark.read.stream import CommitLogStreamReader
from tests.spark.driver import Checkpoint, Driver
from tests.spark.jobs import Seen, ended, stream
from tests.spark.recorded import CrashError
from tests.support.records import append, batch_of
from tests.support.restores import Copy

TOPIC = "orders"
#: A topic that is made after a query's first batch.
NEW = "orders-new"
PATTERN = {"subscribePattern": "orders.*"}
#: Of the first records, in µs; each is a second after the one before.
DAY = 1_577_836_800_000_000


@pytest.fixture
def log(log: CommitLog) -> CommitLog:
    """A topic with four records."""
    log.create_topic(TOPIC, config={"retention.ms": "-1"})
    put(log, 4)
    return log


def put(log: CommitLog, count: int, topic: str = TOPIC) -> None:
    """Append values that say their offsets."""
    first = log.topic(topic).describe().partitions[0].high_watermark
    numbers = range(first, first + count)
    rows = batch_of([b"%d" % n for n in numbers], timestamp=[DAY + 1_000_000 * n for n in numbers])
    append(log.root.topic(topic), rows)


def make(log: CommitLog, count: int, topic: str = NEW) -> None:
    """Make a topic with as many records."""
    log.create_topic(topic, config={"retention.ms": "-1"})
    put(log, count, topic)


def given(root: str, **options: Any) -> dict[str, str]:
    """Return options of a query: of the topic, if they name none."""
    topics = {} if "subscribePattern" in options else {"subscribe": TOPIC}
    return {
        name: str(value) for name, value in ({"path": root, "startingOffsets": "earliest"} | topics | options).items()
    }


def reader(root: str, **options: Any) -> CommitLogStreamReader:
    """Return the reader of a process that Spark starts."""
    source = DefaultSource(given(root, **options))
    return source.streamReader(source.schema())


def through(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as it comes back from Spark."""
    return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


def planned(of: CommitLogStreamReader) -> dict[str, Any]:
    """Return where a new query ends its first batch."""
    return through(of.latestOffset(through(of.initialOffset()), ReadAllAvailable()))


def following(of: CommitLogStreamReader, end: dict[str, Any]) -> dict[str, Any]:
    """Return where a batch ends that starts at the end of another one."""
    return through(of.latestOffset(end, ReadAllAvailable()))


def spans(of: CommitLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return what a batch reads: topics with their first and next offsets."""
    return [(part.value.topic, part.value.start, part.value.end) for part in of.partitions(start, end)]


def again(of: CommitLogStreamReader, end: dict[str, Any]) -> list[tuple[int, int]]:
    """Return what a first batch reads that a process plays which has not planned it."""
    return [(part.value.start, part.value.end) for part in of.partitions(through(of.initialOffset()), end)]


class Query:
    """A query in the driver without Spark."""

    def __init__(self, root: str, **options: Any) -> None:
        self.options = given(root, **options)
        self.checkpoint = Checkpoint()
        self.batches: list[list[bytes]] = []

    def run(self, *, crash: bool = False) -> None:
        """Run what is available; the sink gives up in the first batch of the run."""

        def sink(batch: int, rows: list[pa.RecordBatch]) -> None:
            if crash:
                raise CrashError
            self.batches.append([value for found in rows for value in found.column("value").to_pylist()])

        try:
            Driver(DefaultSource(self.options), self.checkpoint, sink).run()
        except CrashError:
            assert crash


def test_what_retention_took_of_a_first_batch_is_an_error(root: str, log: CommitLog) -> None:
    query = Query(root)
    query.run(crash=True)
    log.topic(TOPIC).delete_records({0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="orders partition 0: offsets 0 to 2, 3 of them, were deleted"):
        query.run()
    assert query.batches == []


def test_a_query_that_may_lose_records_is_told_which_it_lost_of_its_first_batch(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(root, failOnDataLoss="false")
    query.run(crash=True)
    log.topic(TOPIC).delete_records({0: 3})
    with caplog.at_level(logging.WARNING):
        query.run()
    assert "orders partition 0: offsets 0 to 2, 3 of them, were deleted" in caplog.text
    assert query.batches == [[b"3"]]


def test_a_first_batch_from_the_latest_offset_on_has_its_records_again(root: str, log: CommitLog) -> None:
    first = reader(root, startingOffsets="latest")
    first.initialOffset()
    put(log, 2)
    end = planned(first)
    put(log, 2)
    then = reader(root, startingOffsets="latest")
    assert [again(then, end), again(then, end)] == [[(4, 6)]] * 2
    later = through(then.latestOffset(end, ReadAllAvailable()))
    assert [(part.value.start, part.value.end) for part in then.partitions(end, later)] == [(6, 8)]
    assert through(then.latestOffset(later, ReadAllAvailable())) == later, "though a new query would start there"


def test_a_reset_of_its_group_does_not_move_a_first_batch(root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 2}})
    options = {"startingOffsets": "group", "groupId": "g"}
    end = planned(reader(root, **options))
    log.groups.reset("g", to="earliest", dry_run=False)
    assert again(reader(root, **options), end) == [(2, 4)]


def test_an_empty_first_batch_stays_empty(root: str, log: CommitLog) -> None:
    log.groups.commit("g", {TOPIC: {0: 4}})
    options = {"startingOffsets": "group", "groupId": "g"}
    end = planned(reader(root, **options))
    log.groups.reset("g", to="earliest", dry_run=False)
    assert again(reader(root, **options), end) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": f'{{"{TOPIC}": {{"0": 3}}}}'},
        {"startingOffsets": f'{{"{TOPIC}": {{"0": 99}}}}'},
        {"startingTimestamp": DAY // 1000 + 3000},
        {"startingTimestamp": DAY // 1000 + 99_000},
        {"startingOffsets": "group", "groupId": "new"},
    ],
    ids=str,
)
def test_where_to_start_counts_for_a_new_query_only(root: str, log: CommitLog, changed: dict[str, Any]) -> None:
    """Also where it would keep a new query from starting."""
    end = planned(reader(root))
    assert again(reader(root, **changed), end) == [(0, 4)]


def test_a_start_by_time_that_no_record_has_any_more_is_told_as_what_it_is(root: str, log: CommitLog) -> None:
    by_time = {"startingTimestamp": DAY // 1000 + 2000}
    end = planned(reader(root, **by_time))
    log.topic(TOPIC).delete_records({0: 4})
    with pytest.raises(OffsetOutOfRangeError, match="orders partition 0: offsets 2 to 3, 2 of them, were deleted"):
        again(reader(root, **by_time), end)
    assert again(reader(root, **by_time, failOnDataLoss=False), end) == []


def test_a_first_batch_of_a_topic_that_is_gone_is_told(root: str, log: CommitLog) -> None:
    end = planned(reader(root))
    log.topic(TOPIC).delete()
    with pytest.raises(TopicChangedError, match=r"offsets 0 to 3 of the topic with id .* were planned"):
        again(reader(root), end)
    assert again(reader(root, failOnDataLoss=False), end) == []


def test_what_keeps_a_new_query_from_starting_is_told_where_spark_plans_it(root: str, log: CommitLog) -> None:
    """Spark asks for the start before it says whether it plans a batch, or plays one again."""
    late = reader(root, startingTimestamp=DAY // 1000 + 99_000)
    start = through(late.initialOffset())
    with pytest.raises(OptionError, match="has no record at or after timestamp"):
        late.latestOffset(start, ReadAllAvailable())
    with pytest.raises(OptionError, match="has no record at or after timestamp"):
        late.partitions(start, {TOPIC: {"0": 4}, "__topic_ids": {TOPIC: log.topic(TOPIC).describe().topic_id}})


def test_a_first_batch_starts_where_the_histories_parted_that_it_was_planned_over(
    root: str, log: CommitLog, tmp_path: Path
) -> None:
    """The root was put back between the two questions of a new query."""
    copy = Copy(Path(root), tmp_path / "aside")
    put(log, 2)
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    first = reader(root, **options)
    start = through(first.initialOffset())
    assert start[TOPIC] == {"0": 6}
    copy.copied()
    put(CommitLog(root), 3)
    end = through(first.latestOffset(start, ReadAllAvailable()))
    put(CommitLog(root), 1)
    assert again(reader(root, **options), end) == [(4, 7)]


def test_only_the_first_offset_of_a_checkpoint_has_a_start(root: str, log: CommitLog) -> None:
    """Where nothing is new Spark gets the very text, or it would plan an empty batch."""
    query = Query(root, maxOffsetsPerTrigger="3")
    query.run()
    query.run()
    assert query.batches == [[b"0", b"1", b"2"], [b"3"]]
    first, second = map(json.loads, query.checkpoint.planned)
    assert first["__start"][TOPIC] == {"0": 0}
    assert "__start" not in second

    alone = Query(root)
    alone.run()
    alone.run()
    assert len(alone.checkpoint.planned) == 1


def test_a_checkpoint_without_a_start_is_played_from_where_a_new_query_starts(root: str, log: CommitLog) -> None:
    """An earlier release made it."""
    end = planned(reader(root))
    del end["__start"]
    assert again(reader(root), end) == [(0, 4)]


# --- a topic that is new in a later batch -----------------------------------------------------------------


def test_the_start_of_a_batch_does_not_count_for_another_one(root: str, log: CommitLog) -> None:
    """Spark plans no batch that ends where it starts; others do."""
    query = reader(root, **PATTERN)
    first = planned(query)
    make(log, 4)
    second = following(query, first)
    assert [spans(query, start, second) for start in (first, second)] == [[(NEW, 0, 4)], []]
    assert spans(query, first, first) == []


@pytest.mark.parametrize("now", [PATTERN, {"subscribe": f"{TOPIC},{NEW}"}], ids=["matches", "is named"])
def test_what_was_deleted_of_a_new_topic_s_first_batch_is_an_error(
    root: str, log: CommitLog, now: dict[str, str]
) -> None:
    """The batch is planned; the process dies; retention takes some of it; the batch is played again."""
    query = Query(root)
    query.run()
    make(log, 4)
    query.options = given(root, **now)
    query.run(crash=True)
    log.topic(NEW).delete_records({0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="orders-new partition 0: offsets 0 to 2, 3 of them, were deleted"):
        query.run()
    assert query.batches == [[b"0", b"1", b"2", b"3"]]


def test_what_was_deleted_of_a_topic_before_a_pattern_found_it_is_an_error_once(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    """The query was away while the topic was made and retention took some of it, as with Spark's Kafka source."""
    query = Query(root, **PATTERN)
    query.run()
    make(log, 4)
    log.topic(NEW).delete_records({0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="orders-new partition 0: offsets 0 to 2, 3 of them, were deleted"):
        query.run()
    query.options = given(root, **PATTERN, failOnDataLoss="false")
    query.run()
    assert "orders-new partition 0: offsets 0 to 2, 3 of them, were deleted" in caplog.text
    put(log, 1, NEW)
    query.options = given(root, **PATTERN)
    query.run()
    assert query.batches[1:] == [[b"3"], [b"4"]]


def test_a_topic_that_is_named_later_starts_at_its_log_start(root: str, log: CommitLog) -> None:
    """It may be older than the query, which never asked for what is gone."""
    query = Query(root)
    query.run()
    make(log, 4)
    log.topic(NEW).delete_records({0: 3})
    query.options = given(root, subscribe=f"{TOPIC},{NEW}")
    query.run()
    assert query.batches[1:] == [[b"3"]]


def test_what_is_deleted_of_a_new_topic_between_a_plan_and_its_tasks_is_an_error(root: str, log: CommitLog) -> None:
    """No process dies."""
    query = reader(root, **PATTERN)
    first = planned(query)
    query.partitions(through(query.initialOffset()), first)
    make(log, 4)
    second = following(query, first)
    log.topic(NEW).delete_records({0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="orders-new partition 0: offsets 0 to 2, 3 of them, were deleted"):
        query.partitions(first, second)


def test_what_was_deleted_of_a_topic_that_was_made_again_is_told(
    root: str, log: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Its id is new to the query, its name is not."""
    query = Query(root, failOnDataLoss="false")
    query.run()
    log.topic(TOPIC).delete()
    make(log, 5, TOPIC)
    query.run(crash=True)
    log.topic(TOPIC).delete_records({0: 3})
    with caplog.at_level(logging.WARNING):
        query.run()
    assert "orders partition 0: offsets 0 to 2, 3 of them, were deleted" in caplog.text
    assert query.batches[1:] == [[b"3", b"4"]]


def test_what_was_deleted_of_the_first_batch_of_a_partition_that_was_added_is_an_error(
    root: str, log: CommitLog
) -> None:
    """It has no start in the checkpoint and needs none: that is 0, whatever was deleted before the query found it."""
    query = Query(root)
    query.run()
    log.topic(TOPIC).add_partitions(2)
    append(log.root.topic(TOPIC), batch_of([b"a", b"b", b"c"], partition=[1] * 3))
    query.run(crash=True)
    assert "__start" not in json.loads(query.checkpoint.planned[-1])
    log.topic(TOPIC).delete_records({1: 2})
    with pytest.raises(OffsetOutOfRangeError, match="orders partition 1: offsets 0 to 1, 2 of them, were deleted"):
        query.run()


def test_a_topic_that_is_made_between_the_two_questions_of_a_new_query_has_a_start(root: str, log: CommitLog) -> None:
    first = reader(root, **PATTERN, startingOffsets="latest")
    start = through(first.initialOffset())
    make(log, 4)
    end = through(first.latestOffset(start, ReadAllAvailable()))
    log.topic(NEW).delete_records({0: 3})
    then = reader(root, **PATTERN, startingOffsets="latest")
    with pytest.raises(OffsetOutOfRangeError, match="orders-new partition 0: offsets 0 to 2, 3 of them, were deleted"):
        again(then, end)


def test_a_new_topic_s_first_batch_has_no_more_records_where_its_log_start_went_back(
    root: str, log: CommitLog, tmp_path: Path
) -> None:
    """The root was put back from a copy of before records were deleted: the batch was planned without them."""
    first = planned(reader(root))
    make(log, 6)
    copy = Copy(Path(root), tmp_path / "aside")
    log.topic(NEW).delete_records({0: 3})
    both = {"subscribe": f"{TOPIC},{NEW}"}
    second = following(reader(root, **both), first)
    copy.copied()
    assert CommitLog(root).topic(NEW).describe().partitions[0].log_start_offset == 0
    assert spans(reader(root, **both), first, second) == [(NEW, 3, 6)]


def test_only_the_batch_in_which_a_topic_is_new_has_a_start(root: str, log: CommitLog) -> None:
    query = Query(root, **PATTERN, maxOffsetsPerTrigger="4")
    query.run()
    make(log, 6)
    query.run()
    assert query.batches[1:] == [[b"0", b"1", b"2", b"3"], [b"4", b"5"]]
    _, second, third = map(json.loads, query.checkpoint.planned)
    start = second["__start"]
    assert (start[TOPIC], start[NEW]) == ({"0": 4}, {"0": 0})
    assert (start["__topic_ids"], "__start" in start) == (second["__topic_ids"], False)
    assert "__start" not in third


def test_a_batch_with_a_new_topic_that_starts_where_a_new_query_would_has_its_records_once(
    root: str, log: CommitLog
) -> None:
    """The new topic is gone before the batch is played again: nothing tells the batch from a query's first by its start."""
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"} | PATTERN
    first = planned(reader(root, **options))
    make(log, 2)
    put(log, 1)
    del first["__start"]
    second = following(reader(root, **options), first)
    log.topic(NEW).delete()
    then = reader(root, **options)
    then.initialOffset()
    assert spans(then, first, second) == [(TOPIC, 4, 5)]


def test_a_batch_with_a_new_topic_of_an_earlier_release_is_played_from_the_log_start(root: str, log: CommitLog) -> None:
    first = planned(reader(root, **PATTERN))
    make(log, 4)
    second = following(reader(root, **PATTERN), first)
    del second["__start"]
    log.topic(NEW).delete_records({0: 1})
    assert spans(reader(root, **PATTERN), first, second) == [(NEW, 1, 4)]


# --- in Spark ---------------------------------------------------------------------------------------------


def fails(df: DataFrame, batch: int) -> None:
    """Give up, between Spark's notes of where a batch ends and that it is over."""
    raise CrashError


def crashed(df: DataFrame, seen: Seen) -> None:
    """Run a query whose sink gives up in its first batch."""
    writer = df.writeStream.option("checkpointLocation", str(seen.checkpoint)).foreachBatch(fails)
    with pytest.raises(StreamingQueryException, match="CrashError"):
        ended(writer.trigger(availableNow=True).start())


def test_spark_plays_the_first_batch_as_it_was_planned(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    seen = Seen(tmp_path / "checkpoint")
    crashed(stream(spark, root, TOPIC), seen)
    put(log, 2)
    log.topic(TOPIC).delete_records({0: 3})
    with pytest.raises(StreamingQueryException, match="offsets 0 to 2, 3 of them, were deleted"):
        seen.run(stream(spark, root, TOPIC, startingOffsets="latest"))
    lossy = stream(spark, root, TOPIC, startingOffsets="latest", failOnDataLoss="false")
    assert seen.run(lossy) == [["3"], ["4", "5"]]
    assert seen.run(lossy) == []


def test_spark_plays_an_empty_first_batch_again_and_goes_on_behind_it(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    seen, latest = Seen(tmp_path / "checkpoint"), {"startingOffsets": "latest"}
    crashed(stream(spark, root, TOPIC, **latest), seen)
    put(log, 2)
    assert seen.run(stream(spark, root, TOPIC, **latest)) == [[], ["4", "5"]]
    put(log, 1)
    assert seen.run(stream(spark, root, TOPIC, **latest)) == [["6"]]


def test_spark_plays_a_new_topic_s_first_batch_as_it_was_planned(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    def matching(**options: str) -> DataFrame:
        return spark.readStream.format("commitlog").options(**given(root, **PATTERN, **options)).load()

    seen = Seen(tmp_path / "checkpoint")
    assert seen.run(matching()) == [["0", "1", "2", "3"]]
    make(log, 4)
    crashed(matching(), seen)
    put(log, 2, NEW)
    log.topic(NEW).delete_records({0: 3})
    with pytest.raises(
        StreamingQueryException, match="orders-new partition 0: offsets 0 to 2, 3 of them, were deleted"
    ):
        seen.run(matching())
    assert seen.run(matching(failOnDataLoss="false")) == [["3"], ["4", "5"]]
    assert seen.run(matching()) == []
