"""Queries whose sources have names: sources come and go with one checkpoint, and `commitlog checkpoint` knows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from tests.support.records import append, batch_of

#: Names of sources, and the version of offsets that has them: 4.3 writes that one on its own.
SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@pytest.fixture
def evolving(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with names for sources."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, found in before.items():
        assert found is not None
        spark.conf.set(name, found)


class Query:
    """A query of topics, each read by a source with the topic's name."""

    def __init__(self, spark: SparkSession, log: CommitLog, checkpoint: Path) -> None:
        self._spark, self._log, self._checkpoint = spark, log, checkpoint

    def run(self, *topics: str) -> list[str]:
        """Read what is there, and return the values."""
        rows: list[Row] = []
        frames = []
        for topic in topics:
            reader = self._spark.readStream.format("commitlog").option("subscribe", topic)
            frames.append(reader.option("startingOffsets", "earliest").name(f"of_{topic}").load(self._log.url))
        together = frames[0]
        for frame in frames[1:]:
            together = together.union(frame)
        writer = together.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
        return sorted(row.value.decode() for row in rows)


def commitlog(*arguments: object) -> list[list[str]]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return [line.split() for line in done.stdout.splitlines()]


def test_sources_come_and_go_and_their_offsets_are_shown_and_moved(evolving: SparkSession, tmp_path: Path) -> None:
    log, checkpoint = CommitLog(str(tmp_path / "root")), tmp_path / "checkpoint"
    for topic in "abc":
        log.create_topic(topic)
        append(log.root.topic(topic), batch_of([f"{topic}{n}".encode() for n in range(2)]))
    query = Query(evolving, log, checkpoint)
    assert query.run("a", "b") == ["a0", "a1", "b0", "b1"]
    assert query.run("c", "a") == ["c0", "c1"], "the first source is another one now"
    shown = commitlog("checkpoint", "show", checkpoint)
    assert shown[0] == ["batch", "1", "is", "over"]
    assert sorted(shown[2:]) == [["of_a", "a", "0", "2"], ["of_c", "c", "0", "2"]]
    commitlog("checkpoint", "set", log.url, checkpoint, "--topic", "c", "--to-offset", "1", "--execute")
    append(log.root.topic("b"), batch_of([b"b2"]))
    assert query.run("a", "b", "c") == ["b2", "c1"], "a source that comes back goes on where it was"
