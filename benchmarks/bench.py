"""What the rows share: a warm session, the records, directories, and topics that are made once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from compare import Contender, Row, Table, just
from data import prepare
from kafka_peer import PARTITIONS, KafkaPeer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from pyspark_commitlog import CommitLog

TOPIC = "events"
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
#: What is stored of a record, in a topic as in files.
STORED = "key binary, value binary, timestamp timestamp"
FLOOR_SOURCE = "floor: source of ready batches"
FLOOR_SINK = "floor: sink that drops batches"


class Bench:
    """A session, `records` records as Parquet files, and the table that the rows fill.

    Args:
        spark: the session.
        work: a directory for all; the records stay there, `scratch` in it does not.
        records: how many.
        runs: measured runs of each contender.
        kafka: a running broker, or None.
        delta: whether Delta's jars are there.
        quick: whether rows leave out what is not the strongest peer of its kind.
        warm_up: rounds of rates before the measured ones.
        keep: is given each row.
    """

    def __init__(
        self,
        spark: SparkSession,
        work: Path,
        records: int,
        runs: int,
        kafka: KafkaPeer | None,
        *,
        delta: bool,
        quick: bool = False,
        warm_up: int = 0,
        keep: Callable[[Row], None] | None = None,
    ) -> None:
        self.spark, self.records, self.kafka, self.delta, self.quick = spark, records, kafka, delta, quick
        self.per_trigger = min(500_000, records // 4)
        self.events = prepare(work, records, self.per_trigger)
        self.scratch = work / "scratch"
        self.table = Table(runs, os.sync, self.clean, warm_up, keep)
        self._kept: set[Path] = set()
        self._number = 0

    # --- places ------------------------------------------------------------------------------------------

    def directory(self, *, keep: bool = False) -> str:
        """Return the name of a new directory; it goes with the next `clean` unless it is kept."""
        self._number += 1
        path = self.scratch / f"d{self._number}"
        if keep:
            self._kept.add(path)
        return str(path)

    def root(self, *, keep: bool = False, **config: object) -> str:
        """Return a new root with the topic that is written to."""
        root = self.directory(keep=keep)
        stored = {name.replace("_", "."): value for name, value in config.items()}
        CommitLog(root).create_topic(TOPIC, PARTITIONS, {"retention.ms": -1, **stored})
        return root

    def clean(self) -> None:
        """Remove what runs wrote, but for what is kept."""
        for path in self.scratch.iterdir():
            if path not in self._kept:
                shutil.rmtree(path)
        if self.kafka is not None:
            self.kafka.clean()

    # --- records -----------------------------------------------------------------------------------------

    def input(self) -> DataFrame:
        """Return the records."""
        return self.spark.read.parquet(str(self.events))

    def files(self) -> DataFrame:
        """Return the records as a stream of files, one per trigger."""
        return self.spark.readStream.schema(STORED).option("maxFilesPerTrigger", 1).parquet(str(self.events))

    @property
    def sample(self) -> Path:
        """Return one of the files."""
        return min(self.events.glob("*.parquet"))

    @cached_property
    def settled(self) -> str:
        """Return the root of a topic that holds all records, settled."""
        root = self.root(keep=True)
        self.write(root)
        CommitLog(root).topic(TOPIC).maintain()
        return root

    @cached_property
    def kafka_topic(self) -> str:
        """Return a Kafka topic that holds all records, written with the sink's defaults."""
        assert self.kafka is not None
        topic = self.kafka.topic(passing=False)
        self.kafka.write(self.input(), topic, {})
        return topic

    def write(self, root: str, **options: str) -> None:
        """Write all records to a root's topic, as a batch."""
        self.input().write.format("commitlog").mode("append").option("topic", TOPIC).options(**options).save(root)

    def read(self, root: str, schema: str = COLUMNS) -> Contender:
        """Return a batch read of a root's topic."""
        return just(
            lambda: noop(self.spark.read.format("commitlog").option("subscribe", TOPIC).schema(schema).load(root))
        )

    def stream(self, root: str, **options: object) -> DataFrame:
        """Return a root's topic as a stream from its start."""
        reader = self.spark.readStream.format("commitlog").option("subscribe", TOPIC)
        return reader.option("startingOffsets", "earliest").options(**options).load(root)

    def floor_options(self, root: str) -> dict[str, str]:
        """Return the options that make the floor's source yield as many records per partition as a topic has."""
        counts = [partition.high_watermark for partition in CommitLog(root).topic(TOPIC).describe().partitions]
        return {"records": ",".join(map(str, counts)), "sample": str(self.sample)}

    def drain(self, writer: DataStreamWriter, checkpoint: str = "") -> None:
        """Run a stream over what is there now, with a checkpoint of its own if none is given."""
        place = checkpoint or self.directory()
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()


def noop(frame: DataFrame) -> None:
    """Run a query and drop what it yields."""
    frame.write.format("noop").mode("overwrite").save()


def size(directory: str | Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file())
