"""Compaction as a Spark job, for partitions too large for one process.

The driver plans and publishes (`topic.compaction.compact`), on local disks under the settlers' lock. Executors need the
root under the same path or URL, and its credentials in their environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window, functions as sf

from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.compaction.compact import (
    Compacted,
    CompactionJob,
    Replacement,
    compact as compact_topic,
    groups_of,
    latest_before,
)
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.rewrite import Rules, rewrite
from pyspark_commitlog.topic.state.settle_state import Sealed
from pyspark_commitlog.topic.topic_log import TopicLog

#: Offsets in one bitmap of `bitmap_construct_agg`.
_BITMAP_BITS = 32_768
#: Bytes that one task rewrites, as a multiple of `segment.bytes`.
_TASK_SEGMENTS = 4


def compact(spark: SparkSession, root: str, topic: str, principal: str | None = None) -> list[Compacted]:
    """Compact the due partitions of a topic with Spark's executors.

    Settle the topic before (`maintain`) if writers don't.

    Args:
        spark: a session, not of Spark Connect.
        root: path of the root that all executors see.
        topic: topic name; needs compact in `cleanup.policy`.
        principal: for access rules; None takes `COMMITLOG_PRINCIPAL`.

    Raises:
        UnknownTopicError: no such topic.
        AccessDeniedError: the principal is no admin of the topic.
        PySparkException: a task failed; its partition is unchanged.
        ExceptionGroup: tasks of several partitions failed.
    """
    log = Root(root, principal=principal).topic(topic, Operation.ADMIN)
    return compact_topic(log, log.newest()[1].topic_id, partial(_work, spark, principal))


def _work(spark: SparkSession, principal: str | None, job: CompactionJob) -> tuple[list[Replacement], int]:
    segments = job.cleanable.segments
    gone, keyless = _superseded(_keys(spark, principal, job), job.cleanable.dirty[0].base_offset)
    cuts = np.searchsorted(gone, [segments[0].base_offset, *(segment.end_offset for segment in segments)])
    listed = [gone[start:end] for start, end in pairwise(cuts)]
    split_bytes = min(_TASK_SEGMENTS * job.rules.segment_bytes, job.split_bytes)
    groups = groups_of(job, [len(offsets) for offsets in listed], split_bytes)
    number = job.number if job.topic.storage.can_append else None
    tasks = [
        _Task(job.topic.storage.url, job.topic.paths(job.topic_id), job.partition, number, job.rules,
              segments[group.start : group.stop], [listed[i] for i in group], latest_before(segments, group))
        for group in groups
    ]  # fmt: skip
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(_Task.run).collect(), keyless


def _keys(spark: SparkSession, principal: str | None, job: CompactionJob) -> DataFrame:
    """Offset and key of the records, one read per core."""
    _, state = job.topic.newest(job.topic_id)
    bounds = [max(segment.base_offset, state.log_start[job.partition]) for segment in job.cleanable.segments]
    step = -(-len(bounds) // spark.sparkContext.defaultParallelism)
    bounds = [*bounds[::step], job.cleanable.segments[-1].end_offset]
    others = {f"{p}": state.log_start[p] for p in range(state.partitions)}

    def read(start: int, end: int) -> DataFrame:
        offsets = ({**others, f"{job.partition}": offset} for offset in (start, end))
        first, last = (json.dumps({job.topic.name: placed}) for placed in offsets)
        reader = spark.read.format("commitlog").option("subscribe", job.topic.name).schema("key binary, offset long")
        if principal is not None:
            reader = reader.option("principal", principal)
        reader = reader.option("failOnDataLoss", "false")  # a record that is gone supersedes none
        return reader.option("startingOffsets", first).option("endingOffsets", last).load(job.topic.storage.url)

    return reduce(DataFrame.union, [read(start, end) for start, end in pairwise(bounds)])


def _superseded(keys: DataFrame, first_dirty: int) -> tuple[Ints, int]:
    """Superseded offsets, ascending, and the number of keyless ones.

    They come to the driver as bitmaps (`topic.compaction.keymap`).
    """
    last = sf.max(sf.when(sf.col("offset") >= first_dirty, sf.col("offset"))).over(Window.partitionBy("key"))
    keyless = sf.expr(f"key IS NULL AND offset >= {first_dirty}")
    marked = keys.select("offset", keyless.alias("keyless"), last.alias("last"))
    gone = marked.where("keyless OR offset < last")
    rows = gone.groupBy(sf.expr("bitmap_bucket_number(offset + 1) AS bucket")).agg(
        sf.expr("bitmap_construct_agg(bitmap_bit_position(offset + 1)) AS bits"),
        sf.expr("count_if(keyless) AS keyless"),
    )
    superseded, without_key = [np.zeros(0, np.int64)], 0
    for row in sorted(rows.collect(), key=lambda row: row["bucket"]):
        bits = np.unpackbits(np.frombuffer(row["bits"], np.uint8), bitorder="little")
        superseded.append(np.flatnonzero(bits) + (row["bucket"] - 1) * _BITMAP_BITS)
        without_key += row["keyless"]
    return np.concatenate(superseded), without_key


@dataclass(frozen=True, slots=True)
class _Task:
    """Segments for an executor to rewrite; picklable."""

    root: str
    paths: TopicPaths
    partition: int
    number: int | None
    rules: Rules
    segments: tuple[Sealed, ...]
    gone: Sequence[Ints]
    latest_ms: int

    def run(self) -> Replacement:
        """Rewrite the segments; without `number`, name them for the newest settle entry (rule O1)."""
        storage = open_storage(self.root)
        number = self.number
        if number is None:
            number = TopicLog(storage, self.paths.name).settled(self.paths.topic_id)[0].sequence
        directory = SegmentDir(storage, self.paths, self.partition)
        made = rewrite(directory, self.segments, self.gone, self.rules, number=number, latest_ms=self.latest_ms)
        return Replacement(self.segments, tuple(made))
