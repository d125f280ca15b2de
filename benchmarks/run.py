"""``make bench``: our reads and writes against floors and Parquet, as ratios within one run.

    python benchmarks/run.py [--records 4000000] [--runs 3] [--only read,write,stream,small,find] [--large] [--work DIR]

Every row is the median of alternating runs (ours, peer, ours, peer, …) in one warm session, page cache warm; what a run
wrote is removed before the next. A ratio above 1 means that ours is faster. Absolute rates are of this machine only.
``find`` is told in ``find.py``: it needs no Spark, and runs only where it is asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark
from data import CHUNK, prepare
from find import measure
from floors import FloorSink, FloorSource
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog

HERE = Path(__file__).resolve().parent
READ_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
TOPIC = "events"
FLOOR_SOURCE = "floor: source of ready batches"
Action = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of the table; rates in records per second."""

    work: str
    peer: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Return ours / theirs."""
        return self.ours / self.theirs


class Bench:
    """A warm session, a topic of the records, and what is measured on them."""

    def __init__(self, work: Path, records: int, runs: int) -> None:
        self.records, self.runs = records, runs
        self.events = str(prepare(work, records))
        self.scratch = work / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.spark = session()
        self.rows: list[Row] = []
        self.kept: set[str] = set()
        self._number = 0

    def fresh(self) -> str:
        """Return a new name."""
        self._number += 1
        return f"t{self._number}"

    def directory(self) -> str:
        """Return a new directory's name; it is removed behind the action that made it."""
        return str(self.scratch / self.fresh())

    def root(self) -> str:
        """Return a new root with the topic of 4 partitions that is written to."""
        root = self.directory()
        CommitLog(root).create_topic(TOPIC, partitions=4, config={"retention.ms": -1})
        return root

    def clean(self) -> None:
        """Remove what the actions wrote, but for the roots that are read."""
        for path in self.scratch.iterdir():
            if str(path) not in self.kept:
                shutil.rmtree(path)

    def compare(self, work: str, ours: Action, peers: dict[str, Action], records: int | None = None) -> None:
        """Run ours and its peers in turn and add a row per peer."""
        count = records or self.records
        actions = {"": ours, **peers}
        for action in actions.values():
            action()
            self.clean()
        seconds: dict[str, list[float]] = {name: [] for name in actions}
        for _ in range(self.runs):
            for name, action in actions.items():
                began = time.perf_counter()
                action()
                seconds[name].append(time.perf_counter() - began)
                self.clean()
        rates = {name: count / statistics.median(times) for name, times in seconds.items()}
        for name in peers:
            row = Row(work, name, rates[""], rates[name])
            self.rows.append(row)
            print(
                f"{row.work:<44} {row.peer:<34} {row.ours:>12,.0f} {row.theirs:>12,.0f} {row.ratio:>7.2f}", flush=True
            )

    # --- batch -------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Batch write of the Parquet records."""
        self.compare(
            "batch write",
            self.write_topic,
            {"floor: sink that drops batches": self.write_floor, "Parquet to Parquet, snappy": self.write_parquet},
        )

    def source(self) -> pyspark.sql.DataFrame:
        """Return the input of every write."""
        return self.spark.read.parquet(self.events)

    def write_topic(self) -> str:
        """Write a new topic; return its root."""
        root = self.root()
        self.source().write.format("commitlog").mode("append").option("topic", TOPIC).save(root)
        return root

    def settled(self) -> str:
        """Return the root of a topic to read: written once, settled."""
        root = self.write_topic()
        self.kept.add(root)
        CommitLog(root).maintain(TOPIC)
        return root

    def write_floor(self) -> None:
        """Write into nothing."""
        self.source().write.format("floor_sink").mode("append").save()

    def write_parquet(self) -> None:
        """Copy to Parquet."""
        self.source().write.parquet(self.directory())

    def read(self) -> None:
        """Batch read of all columns, and of the value alone."""
        root = self.settled()
        self.compare("batch read, all columns", lambda: self.read_topic(root, READ_COLUMNS),
                     {FLOOR_SOURCE: lambda: self.read_floor(root, READ_COLUMNS)})  # fmt: skip
        self.compare("batch read, value only", lambda: self.read_topic(root, "value binary"),
                     {FLOOR_SOURCE: lambda: self.read_floor(root, "value binary")})  # fmt: skip

    def read_topic(self, root: str, schema: str) -> None:
        """Read a topic to nowhere."""
        noop(self.spark.read.format("commitlog").option("subscribe", TOPIC).schema(schema).load(root))

    def read_floor(self, root: str, schema: str) -> None:
        """Read ready batches to nowhere, as many from each partition as the topic has."""
        noop(self.spark.read.format("floor_source").options(**self.ready(root)).schema(schema).load())

    def ready(self, root: str) -> dict[str, str]:
        """Return the floor's options: as many records in each partition as the topic has."""
        records = ",".join(str(partition.high_watermark) for partition in CommitLog(root).describe(TOPIC).partitions)
        return {"records": records, "sample": str(next(Path(self.events).glob("*.parquet")))}

    # --- streams -----------------------------------------------------------------------------------------

    def stream(self) -> None:
        """Streaming read and write, a file (500,000 records) per trigger."""
        root = self.settled()
        peers = {FLOOR_SOURCE: lambda: self.stream_floor(root), "Parquet file stream": self.stream_parquet}
        self.compare("streaming read, 500,000 per trigger", lambda: self.stream_topic(root), peers)
        self.compare("streaming write, 500,000 per trigger", self.stream_into_topic,
                     {"Parquet streaming file sink": self.stream_into_parquet})  # fmt: skip

    def stream_topic(self, root: str) -> None:
        """Stream a topic to nowhere."""
        reader = self.spark.readStream.format("commitlog").option("subscribe", TOPIC)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", CHUNK)
        self.drain(reader.load(root).writeStream.format("noop"))

    def stream_floor(self, root: str) -> None:
        """Stream ready batches to nowhere."""
        options = {**self.ready(root), "triggers": str(self.records // CHUNK)}
        self.drain(self.spark.readStream.format("floor_source").options(**options).load().writeStream.format("noop"))

    def files(self) -> pyspark.sql.DataFrame:
        """Return the records as a file stream, one file per trigger."""
        schema = "key binary, value binary, timestamp timestamp"
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(self.events)

    def stream_parquet(self) -> None:
        """Stream the Parquet files to nowhere."""
        self.drain(self.files().writeStream.format("noop"))

    def stream_into_topic(self) -> None:
        """Stream the files into a new topic."""
        self.drain(self.files().writeStream.format("commitlog").option("topic", TOPIC).option("path", self.root()))

    def stream_into_parquet(self) -> None:
        """Stream the files into new Parquet files."""
        self.drain(self.files().writeStream.format("parquet").option("path", self.directory()))

    def drain(self, writer: pyspark.sql.streaming.DataStreamWriter) -> None:
        """Run a stream over what is there now."""
        writer.option("checkpointLocation", self.directory()).trigger(availableNow=True).start().awaitTermination()

    # --- small commits -----------------------------------------------------------------------------------

    def small(self) -> None:
        """A scan of 1,000 tiny commits against the same records committed at once (settled both)."""
        many, once = self.tiny(1000), self.tiny(1)
        schema = READ_COLUMNS
        self.compare("scan of 1,000 commits of 10 records", lambda: self.read_topic(many, schema),
                     {"the same records in one commit": lambda: self.read_topic(once, schema)}, 10_000)  # fmt: skip

    def tiny(self, commits: int) -> str:
        """Return the root of 10,000 records in so many commits, made below Spark, settled by the commits themselves."""
        sys.path.insert(0, str(HERE.parent))
        from pyspark_commitlog.log.settle import settle_after_commit
        from tests.support.records import append

        root = self.root()
        self.kept.add(root)
        log = CommitLog(root)
        topic, topic_id = log.topic(TOPIC), log.describe(TOPIC).topic_id
        table = pa.parquet.read_table(next(Path(self.events).glob("*.parquet"))).slice(0, 10_000).combine_chunks()
        step = 10_000 // commits
        for first in range(0, 10_000, step):
            append(topic, *table.slice(first, step).to_batches())
            settle_after_commit(topic, topic_id)
        return root


def noop(frame: pyspark.sql.DataFrame) -> None:
    """Run a query and drop what it yields."""
    frame.write.format("noop").mode("overwrite").save()


def session() -> SparkSession:
    """Return a session as on the figures' page: local[2], our recommended configuration."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.driver.memory", "4g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    for line in (HERE.parent / "spark-conf" / "spark-defaults.conf").read_text().splitlines():
        name, _, value = line.partition("#")[0].strip().partition(" ")
        if value:
            builder = builder.config(name, value.strip())
    # For all alike; why it is not in spark-defaults.conf by default is told there.
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FloorSource)
    spark.dataSource.register(FloorSink)
    return spark


def main() -> None:
    """Run what was asked for, print the table, keep it as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="write,read,stream,small")
    parser.add_argument("--large", action="store_true", help="find: in a segment of 1 GB too, which takes minutes")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "bench")
    args = parser.parse_args()
    parts = args.only.split(",")
    versions = f"PySpark {pyspark.__version__}, pyarrow {pa.__version__}, Python {platform.python_version()}"
    rows = []
    if "find" in parts:
        parts.remove("find")
        print(f"{os.cpu_count()} cores; {versions}\n")
        rows += measure(args.work.resolve(), large=args.large)
    if parts:
        print(f"{args.records:,} records, median of {args.runs} alternating runs; {os.cpu_count()} cores; {versions}\n")
        rows += compare(Bench(args.work.resolve(), args.records, args.runs), parts)
    args.work.mkdir(parents=True, exist_ok=True)
    with (args.work / "results.jsonl").open("a") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def compare(bench: Bench, parts: list[str]) -> list[dict[str, object]]:
    """Run what was asked for against its peers, print the table, return its rows."""
    print(f"{'work':<44} {'peer':<34} {'ours/s':>12} {'peer/s':>12} {'ratio':>7}")
    for part in parts:
        getattr(bench, part)()
    bench.spark.stop()
    shutil.rmtree(bench.scratch, ignore_errors=True)
    return [{**row.__dict__, "ratio": row.ratio, "records": bench.records} for row in bench.rows]


if __name__ == "__main__":
    main()
