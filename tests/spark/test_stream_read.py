"""The micro-batch source: where a query starts, what a trigger takes, what stops it, and how it goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.groups.reset_target import Target, Way
from pyspark_commitlog.spark.session.query_checkpoint import moved_checkpoint, read_checkpoint, write_checkpoint
from pyspark_commitlog.storage import open_storage
from tests.spark import driven
from tests.spark.driver import source
from tests.spark.jobs import Seen, ended, put, stream, told_offsets

TOPIC = "orders"


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    """Return a query's record, with a checkpoint of its own."""
    return Seen(tmp_path / "checkpoint")


def test_earliest_reads_what_was_there_before_the_query(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["a"], 0)
    driven.put(log, TOPIC, ["b"], 1)
    assert seen.run(driven.stream(root, TOPIC)) == [["a", "b"]]


def test_a_checkpoint_of_spark_s_can_be_moved_back(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen, tmp_path: Path
) -> None:
    """`commitlog checkpoint` edits what Spark wrote, and Spark reads what it wrote."""
    log.create_topic(TOPIC)
    put(spark, root, TOPIC, ["a", "b", "c"], 0)
    assert seen.run(stream(spark, root, TOPIC)) == [["a", "b", "c"]]
    storage = open_storage(str(tmp_path / "checkpoint"))
    before = read_checkpoint(storage)
    assert (before.batch, before.committed) == (0, True)
    changed, moved = moved_checkpoint(log.root, before, None, Target(Way.OFFSET, 1))
    assert [(row.before, row.after) for row in moved] == [(3, 1)]
    write_checkpoint(storage, changed, before)
    assert seen.run(stream(spark, root, TOPIC)) == [["b", "c"]]


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}])
def test_latest_reads_only_what_comes_after_the_start_and_is_the_default(
    root: str, log: CommitLog, options: dict[str, str]
) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["before"], 0)
    query = seen.start(source(root, subscribe=TOPIC, **options))
    query.process_all_available()
    driven.put(log, TOPIC, ["after"], 0)
    driven.put(log, TOPIC, ["after too"], 1)
    query.process_all_available()
    assert seen.all() == ["after", "after too"]


def test_json_names_where_partitions_start_and_left_out_ones_start_at_earliest(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=3)
    for partition in range(3):
        driven.put(log, TOPIC, [f"{partition}.{i}" for i in range(3)], partition)
    starting = json.dumps({TOPIC: {"0": 2, "1": -1}})
    assert seen.run(driven.stream(root, TOPIC, startingOffsets=starting)) == [["0.2", "2.0", "2.1", "2.2"]]


def test_a_limit_is_shared_by_backlog_and_starves_no_partition(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=3)
    driven.put(log, TOPIC, [f"busy {i:03}" for i in range(300)], 0)
    driven.put(log, TOPIC, [f"calm {i:03}" for i in range(100)], 1)
    driven.put(log, TOPIC, ["rare"], 2)

    batches = seen.run(driven.stream(root, TOPIC, maxOffsetsPerTrigger=40))

    shares = [sum(value.startswith("busy") for value in batches[0]), sum(v.startswith("calm") for v in batches[0])]
    assert shares == [29, 10]  # 40 × 300/401 = 29.93 and 40 × 100/401 = 9.98: the record left goes to who was cut most
    assert "rare" in batches[0]  # 40 × 1/401, rounded up
    assert all(len(batch) <= 41 for batch in batches)
    assert len(seen.all()) == len(set(seen.all())) == 401


def test_a_query_that_retention_overtook_is_told_what_it_missed(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen
) -> None:
    log.create_topic(TOPIC, partitions=2)
    put(spark, root, TOPIC, ["a", "b"], 0)
    assert seen.run(stream(spark, root, TOPIC)) == [["a", "b"]]
    put(spark, root, TOPIC, ["c", "d", "e", "f"], 0)
    log.topic(TOPIC).delete_records({0: 5})
    with pytest.raises(StreamingQueryException, match=r"orders partition 0: offsets 2 to 4, 3 of them, were deleted"):
        seen.run(stream(spark, root, TOPIC))
    assert seen.all() == ["a", "b"]


def test_retention_in_a_partition_that_was_added_meanwhile_is_told_too(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["a"], 0)
    assert seen.run(driven.stream(root, TOPIC)) == [["a"]]
    log.topic(TOPIC).add_partitions(2)
    driven.put(log, TOPIC, ["b", "c", "d"], 1)
    log.topic(TOPIC).delete_records({1: 2})
    with pytest.raises(OffsetOutOfRangeError, match=r"orders partition 1: offsets 0 to 1, 2 of them, were deleted"):
        seen.run(driven.stream(root, TOPIC))


def test_a_query_goes_on_where_it_stopped_whatever_startingoffsets_says(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["a", "b"], 0)
    assert seen.run(driven.stream(root, TOPIC)) == [["a", "b"]]
    assert seen.run(driven.stream(root, TOPIC)) == []
    driven.put(log, TOPIC, ["c"], 0)
    driven.put(log, TOPIC, ["d"], 1)
    assert seen.run(driven.stream(root, TOPIC, startingOffsets="latest")) == [["c", "d"]]


def test_available_now_ends_at_what_was_there_at_the_start(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic(TOPIC)
    put(spark, root, TOPIC, [f"{i}" for i in range(6)])
    counts: list[int] = []

    def take(df: DataFrame, batch: int) -> None:
        counts.append(df.count())
        put(spark, root, TOPIC, [f"late {batch}"])

    writer = stream(spark, root, TOPIC, maxOffsetsPerTrigger=4).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    ended(writer.start())
    assert counts == [4, 2]
    ended(writer.start())
    assert counts == [4, 2, 2]


def test_partitions_added_while_a_query_runs_are_read_from_their_start(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=1)
    query = seen.start(driven.stream(root, TOPIC, startingOffsets="latest"))
    query.process_all_available()
    log.topic(TOPIC).add_partitions(3)
    driven.put(log, TOPIC, ["first of 2"], 2)
    query.process_all_available()
    assert seen.all() == ["first of 2"]

    log.topic(TOPIC).add_partitions(4)  # and while it does not run
    driven.put(log, TOPIC, ["first of 3"], 3)
    assert seen.run(driven.stream(root, TOPIC, startingOffsets="latest")) == [["first of 3"]]


def test_partitions_added_during_available_now_wait_for_the_next_run(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=1)
    driven.put(log, TOPIC, ["a", "b"], 0)
    seen = driven.Seen()

    def add(batch: int) -> None:
        if batch == 0:
            log.topic(TOPIC).add_partitions(2)
            driven.put(log, TOPIC, ["c"], 1)

    for expected in ([["a"], ["b"]], [["c"]]):
        assert seen.run(driven.stream(root, TOPIC, maxOffsetsPerTrigger=1), add) == expected


def test_two_topics_are_read_by_one_query(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic("a")
    log.create_topic("b", partitions=2)
    driven.put(log, "a", ["1"])
    driven.put(log, "b", ["2"], 1)
    assert seen.run(driven.stream(root, "b,a")) == [["1", "2"]]
    offset = seen.offsets()
    assert list(offset) == ["a", "b", "__topic_ids", "__lineages", "__start"]
    assert (told_offsets(offset, "a"), told_offsets(offset, "b")) == ([1], [0, 1])
    assert offset["__topic_ids"] == {name: log.topic(name).describe().topic_id for name in ("a", "b")}
    assert offset["__lineages"].keys() == {"a", "b"}


def test_there_is_one_spark_partition_per_topic_partition_with_new_records(
    spark: SparkSession, root: str, log: CommitLog, tmp_path: Path
) -> None:
    log.create_topic(TOPIC, partitions=4)
    for partition in (0, 1, 3):
        put(spark, root, TOPIC, ["a", "b"], partition)
    partitions: list[int] = []
    writer = stream(spark, root, TOPIC).writeStream.foreachBatch(
        lambda df, batch: partitions.append(df.rdd.getNumPartitions())
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    ended(writer.trigger(availableNow=True).start())
    assert partitions == [3]


def test_progress_tells_the_high_watermarks(spark: SparkSession, root: str, log: CommitLog, seen: Seen) -> None:
    log.create_topic(TOPIC, partitions=2)
    put(spark, root, TOPIC, ["a", "b", "c"], 1)
    query = ended(seen.start(stream(spark, root, TOPIC, maxOffsetsPerTrigger=2)))
    (source,) = query.recentProgress[0]["sources"]
    assert told_offsets(json.loads(source["latestOffset"]), TOPIC) == [0, 3]
    assert told_offsets(json.loads(source["endOffset"]), TOPIC) == [0, 2]
    assert [p["numInputRows"] for p in query.recentProgress] == [2, 1]


# --- what a query must refuse -----------------------------------------------------------------------------


def recreate(log: CommitLog, partitions: int = 1) -> None:
    """Delete the topic and make it again."""
    log.topic(TOPIC).delete()
    log.create_topic(TOPIC, partitions=partitions)


def test_a_running_query_refuses_a_topic_that_was_made_again(
    spark: SparkSession, root: str, log: CommitLog, seen: Seen
) -> None:
    log.create_topic(TOPIC)
    put(spark, root, TOPIC, ["a"])
    query = seen.start(stream(spark, root, TOPIC), now=False)
    try:
        query.processAllAvailable()
        recreate(log)
        put(spark, root, TOPIC, ["b", "c"])
        told = r"the topic was deleted( and made again)?: all .* was read. Start with"  # as the query happens to look
        with pytest.raises(StreamingQueryException, match=told):
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen.all() == ["a"]


def test_a_restarted_query_refuses_a_topic_that_was_made_again(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["a"])
    seen.run(driven.stream(root, TOPIC))
    driven.put(log, TOPIC, ["b", "c"], 0)
    driven.put(log, TOPIC, ["d"], 1)
    former = log.topic(TOPIC).describe().topic_id
    recreate(log, partitions=2)
    driven.put(log, TOPIC, ["e"])
    told = (
        f"{TOPIC} partition 0: the topic was deleted and made again: offsets 1 to 2 of the topic with id {former} were "
        f"not read; {TOPIC} partition 1: the topic was deleted and made again: offsets 0 to 0 of the topic with id"
    )
    with pytest.raises(TopicChangedError, match=told):
        seen.run(driven.stream(root, TOPIC))
    assert seen.all() == ["a"]


def test_a_query_whose_topic_is_deleted_says_so(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["a"])
    seen.run(driven.stream(root, TOPIC))
    log.topic(TOPIC).delete()
    with pytest.raises(TopicChangedError, match=f"{TOPIC} partition 0: the topic was deleted: all that"):
        seen.run(driven.stream(root, TOPIC))


def test_what_retention_took_of_all_partitions_is_one_error(root: str, log: CommitLog) -> None:
    seen = driven.Seen()
    log.create_topic(TOPIC, partitions=2)
    driven.put(log, TOPIC, ["a"], 0)
    seen.run(driven.stream(root, TOPIC))
    driven.put(log, TOPIC, ["b", "c"], 0)
    driven.put(log, TOPIC, ["d", "e"], 1)
    log.topic(TOPIC).delete_records({0: 2, 1: 2})
    told = r"partition 0: offsets 1 to 1, 1 of them, were deleted .*; orders partition 1: offsets 0 to 1, 2 of them, "
    with pytest.raises(OffsetOutOfRangeError, match=told):
        seen.run(driven.stream(root, TOPIC))
    assert seen.all() == ["a"]


def test_a_checkpoint_ahead_of_the_log_is_refused(root: str, log: CommitLog) -> None:
    """The root was restored from an older copy: going on would skip what is written next."""
    seen = driven.Seen()
    log.create_topic(TOPIC)
    driven.put(log, TOPIC, ["a"])
    shutil.copytree(root, f"{root}-copy")
    driven.put(log, TOPIC, ["b", "c"])
    seen.run(driven.stream(root, TOPIC))
    shutil.rmtree(root)
    shutil.move(f"{root}-copy", root)
    told = "the checkpoint is at offset 3, and the topic was restored .* up to offset 1; the high watermark is 1"
    with pytest.raises(OffsetOutOfRangeError, match=told):
        seen.run(driven.stream(root, TOPIC))
