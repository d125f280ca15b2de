"""A query goes on from the checkpoint of an earlier release, whatever was moved or renamed since: nothing lost, nothing
doubled. tests/golden/make_query.py made the checkpoint and the root.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_commitlog import CommitLog
from tests.golden import make_query as before
from tests.spark.jobs import ended, forget_commit, last_offsets, start
from tests.support.records import read_partition

#: Of the checkpoint.
LAST_BATCH = 4
#: Written by today's code, behind those that the query never saw.
NEW = range(before.ALL.stop, before.ALL.stop + 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the root."""
    return Path(shutil.copytree(before.ROOT, tmp_path / "root"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a copy of the checkpoint."""
    return Path(shutil.copytree(before.CHECKPOINT, tmp_path / "checkpoint"))


def copied(root: Path) -> dict[str, list[str]]:
    """Return the values of the copies, in the order of their offsets, by topic and partition."""
    copies: dict[str, list[str]] = {}
    for record in read_partition(CommitLog(str(root)).root.topic(before.COPIES), 0):
        assert record.value is not None
        text = record.value.decode()
        copies.setdefault(text.rpartition(" ")[0], []).append(text)
    return copies


def all_once(numbers: range) -> dict[str, list[str]]:
    """Return the copies of so many records of each partition."""
    places = [(topic, place) for topic, partitions in before.SOURCES.items() for place in range(partitions)]
    return {f"{topic} {place}": [before.text(topic, place, number) for number in numbers] for topic, place in places}


def run(spark: SparkSession, root: Path, checkpoint: Path) -> StreamingQuery:
    """Run the query on today's code, over what is there."""
    return ended(start(before.copied(spark, root), str(root), before.COPIES, checkpoint))


def test_a_query_goes_on_at_the_next_offset(spark: SparkSession, root: Path, checkpoint: Path) -> None:
    reached = last_offsets(checkpoint)
    assert copied(root) == all_once(before.SEEN)
    before.send(root, NEW)

    first = run(spark, root, checkpoint).recentProgress[0]

    assert first["batchId"] == LAST_BATCH + 1
    assert _topics(json.loads(first["sources"][0]["startOffset"])) == _topics(reached)
    assert copied(root) == all_once(range(NEW.stop))
    committed = CommitLog(str(root)).groups.describe(before.GROUP).partitions
    assert [(place.offset, place.lag) for place in committed] == [(NEW.stop, 0)] * 3


def test_a_batch_that_landed_before_is_not_written_again(spark: SparkSession, root: Path, checkpoint: Path) -> None:
    """The query died after its last commit to the log, and before Spark's own."""
    forget_commit(checkpoint, LAST_BATCH)

    first = run(spark, root, checkpoint).recentProgress[0]

    assert (first["batchId"], first["numInputRows"]) == (LAST_BATCH, 4)
    assert copied(root) == all_once(before.ALL)


def _topics(offset: dict[str, object]) -> dict[str, object]:
    return {name: of for name, of in offset.items() if name in before.SOURCES}
