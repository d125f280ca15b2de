"""Typed topics: columns next to JSON in a topic, JSON in Kafka, and Parquet. The session is UTC for all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from bench import TOPIC, Bench, noop, size
from compare import Contender, Row, just
from kafka_peer import PARTITIONS, TUNED_CONSUMER
from pyspark.sql import DataFrame, functions as F  # noqa: N812 as Spark's documentation has it

from pyspark_commitlog import CommitLog

#: The members of an event, and when it came.
EVENT = (
    "user STRING, page STRING, agent STRING, session STRING, amount INT, ts BIGINT, country STRING, ab ARRAY<STRING>"
)
COLUMNS = f"{EVENT}, at TIMESTAMP"
TWO = "user STRING, amount INT"
JSON, KAFKA, PARQUET = "JSON topic, from_json", "Kafka tuned, from_json", "Parquet"


class _Typed:
    """The events as columns: files of Parquet, and a settled typed topic."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @cached_property
    def files(self) -> str:
        """Return a directory with as many files as there are of the records."""
        target = self._bench.events.with_name(f"{self._bench.events.name}-columns")
        if not target.exists():
            partial = target.with_suffix(".partial")
            for file in sorted(self._bench.events.glob("*.parquet")):
                parsed(self._bench.spark.read.parquet(str(file)), EVENT).coalesce(1).write.mode("append").parquet(
                    str(partial)
                )
            partial.rename(target)
        return str(target)

    def input(self) -> DataFrame:
        return self._bench.spark.read.parquet(self.files)

    def stream(self) -> DataFrame:
        reader = self._bench.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.parquet(self.files)

    def root(self, *, keep: bool = False) -> str:
        root = self._bench.directory(keep=keep)
        CommitLog(root).create_topic(
            TOPIC, PARTITIONS, {"retention.ms": -1}, schema=COLUMNS, key="user", timestamp="at"
        )
        return root

    def write(self, root: str) -> None:
        self.input().write.format("commitlog").mode("append").option("topic", TOPIC).save(root)

    @cached_property
    def settled(self) -> str:
        root = self.root(keep=True)
        self.write(root)
        CommitLog(root).topic(TOPIC).maintain()
        return root

    def read(self, columns: str, **options: str) -> DataFrame:
        reader = self._bench.spark.read.format("commitlog").option("subscribe", TOPIC)
        return reader.options(columns=columns, **options).load(self.settled)


def parsed(records: DataFrame, event: str) -> DataFrame:
    """Return JSON records as columns."""
    column = F.from_json(F.col("value").cast("string"), event).alias("event")
    return records.select(column, F.col("timestamp").alias("at")).select("event.*", "at")


def typed(bench: Bench) -> None:
    """Reads of two columns and of all, writes, and bytes."""
    own = _Typed(bench)
    for label, event, names in (("2 of 9 columns", TWO, "user, amount"), ("all 9 columns", EVENT, "*")):
        wanted = ["user", "amount"] if event == TWO else ["*"]
        peers = _readers(bench, event, wanted)
        peers[PARQUET] = just(lambda wanted=wanted: noop(own.input().select(*wanted)))
        ours = just(lambda names=names: noop(own.read(names)))
        bench.table.rates(f"typed read, {label}", bench.records, ours, peers)
    _writes(bench, own)
    written = bench.directory()
    own.input().write.parquet(written)
    topics = Path(own.settled) / "topics"
    stored = sum(file.stat().st_size for file in topics.rglob("*.log"))
    bench.table.add(Row("typed, stored and settled", "bytes", stored, "Parquet, snappy", size(written)))
    bench.clean()


def _readers(bench: Bench, event: str, wanted: list[str]) -> dict[str, Contender]:
    def json() -> None:
        reader = bench.spark.read.format("commitlog").option("subscribe", TOPIC).option("columns", "value, timestamp")
        noop(parsed(reader.load(bench.settled), event).select(*wanted))

    peers = {JSON: just(json)}
    if (kafka := bench.kafka) is not None:
        topic = bench.kafka_topic
        peers[KAFKA] = just(lambda: noop(parsed(kafka.batch(topic, TUNED_CONSUMER), event).select(*wanted)))
    return peers


def _writes(bench: Bench, own: _Typed) -> None:
    def as_json(root: str) -> None:
        records = own.input().select(
            F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"), F.col("at").alias("timestamp")
        )
        records.write.format("commitlog").mode("append").option("topic", TOPIC).save(root)

    peers: Mapping[str, Contender] = {
        "untyped, to_json": Contender(as_json, bench.root),
        "Parquet, snappy": Contender(lambda path: own.input().write.parquet(path), bench.directory),
    }
    bench.table.rates("typed batch write", bench.records, Contender(own.write, own.root), peers)

    def into(format_: str, path: str) -> None:
        bench.drain(own.stream().writeStream.format(format_).option("topic", TOPIC).option("path", path))

    sink = {"Parquet streaming sink": Contender(lambda path: into("parquet", path), bench.directory)}
    ours = Contender(lambda root: into("commitlog", root), own.root)
    bench.table.rates(f"typed streaming write, {bench.per_trigger:,} per trigger", bench.records, ours, sink)


def typed_filter(bench: Bench) -> None:
    """Reads of a sixth of the rows and of one user, next to reads of all, by Spark and as an Arrow table."""
    own = _Typed(bench)
    user = own.input().groupBy("user").count().orderBy("count", "user").first()
    assert user is not None
    topic = CommitLog(own.settled).topic(TOPIC)
    for label, condition in (("1/6 of the rows", "amount < 16667"), ("one user", f"user = '{user.user}'")):
        peers = {
            "all rows": just(lambda: noop(own.read("*"))),
            PARQUET: just(lambda condition=condition: noop(own.input().where(condition))),
        }
        ours = just(lambda condition=condition: noop(own.read("*", filter=condition)))
        bench.table.rates(f"typed filter, {label}", bench.records, ours, peers)
        table = just(lambda condition=condition: topic.to_arrow(filter=condition))
        bench.table.rates(
            f"typed filter, to_arrow, {label}", bench.records, table, {"all rows": just(lambda: topic.to_arrow())}
        )
    bench.clean()


def typed_job(bench: Bench) -> None:
    """Events, summed by minute, to Parquet: available now, one trigger, four partitions of state."""
    own = _Typed(bench)
    bench.spark.conf.set("spark.sql.shuffle.partitions", "4")

    def job(events: DataFrame) -> None:
        by_minute = events.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).agg(F.sum("amount"))
        bench.drain(by_minute.writeStream.format("parquet").option("path", bench.directory()))

    def ours() -> None:
        reader = bench.spark.readStream.format("commitlog").option("subscribe", TOPIC)
        job(reader.option("startingOffsets", "earliest").option("columns", "amount, at").load(own.settled))

    peers = {JSON: just(lambda: job(parsed(bench.stream(bench.settled, columns="value, timestamp"), "amount INT")))}
    if (kafka := bench.kafka) is not None:
        topic = bench.kafka_topic
        peers[KAFKA] = just(lambda: job(parsed(kafka.stream(topic, TUNED_CONSUMER), "amount INT")))
    bench.table.rates("job: events by minute to Parquet", bench.records, just(ours), peers)
