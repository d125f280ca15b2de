"""Streaming read and streaming write: availableNow, as many records per trigger for all."""

from __future__ import annotations

from bench import COLUMNS, FLOOR_SOURCE, STORED, TOPIC, Bench
from compare import Contender, just
from kafka_peer import TUNED_CONSUMER, TUNED_PRODUCER, KafkaPeer
from pyspark.sql import DataFrame


def stream_read(bench: Bench) -> None:
    """To nowhere: all columns next to Kafka's source, the three that files have next to files."""
    peers = {FLOOR_SOURCE: _floor(bench, COLUMNS)}
    if bench.kafka is not None:
        limit = {"maxOffsetsPerTrigger": str(bench.per_trigger)}
        kafka, topic = bench.kafka, bench.kafka_topic
        if not bench.quick:
            peers["Kafka source"] = just(lambda: _drain(bench, kafka.stream(topic, limit)))
        peers["Kafka source, tuned"] = just(lambda: _drain(bench, kafka.stream(topic, limit | TUNED_CONSUMER)))
    work = f"streaming read, {bench.per_trigger:,} per trigger"
    bench.table.rates(work, bench.records, _ours(bench, COLUMNS), peers)

    peers = {FLOOR_SOURCE: _floor(bench, STORED), "Parquet file stream": just(lambda: _drain(bench, bench.files()))}
    if bench.delta:
        table = _delta_table(bench)
        source = bench.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table)
        peers["Delta stream"] = just(lambda: _drain(bench, source))
    bench.table.rates(f"{work}: key, value, timestamp", bench.records, _ours(bench, STORED), peers)


def _ours(bench: Bench, schema: str) -> Contender:
    columns = ",".join(column.split()[0] for column in schema.split(", "))
    options = {"maxOffsetsPerTrigger": bench.per_trigger, "columns": columns}
    return just(lambda: _drain(bench, bench.stream(bench.settled, **options)))


def _floor(bench: Bench, schema: str) -> Contender:
    options = {**bench.floor_options(bench.settled), "triggers": str(bench.records // bench.per_trigger)}
    reader = bench.spark.readStream.format("floor_source").options(**options).schema(schema)
    return just(lambda: _drain(bench, reader.load()))


def _drain(bench: Bench, stream: DataFrame) -> None:
    bench.drain(stream.writeStream.format("noop"))


def _delta_table(bench: Bench) -> str:
    """Return a Delta table of as many files as there are triggers."""
    table = bench.directory(keep=True)
    for file in sorted(bench.events.glob("*.parquet")):
        bench.spark.read.parquet(str(file)).coalesce(1).write.format("delta").mode("append").save(table)
    return table


def stream_write(bench: Bench) -> None:
    """From a stream of Parquet files, one per trigger."""

    def into(format_: str, path: str) -> None:
        bench.drain(bench.files().writeStream.format(format_).option("path", path))

    def into_topic(root: str) -> None:
        bench.drain(bench.files().writeStream.format("commitlog").option("topic", TOPIC).option("path", root))

    peers = {"Parquet streaming sink": Contender(lambda path: into("parquet", path), bench.directory)}
    if bench.delta:
        peers["Delta streaming sink"] = Contender(lambda path: into("delta", path), bench.directory)
    if (kafka := bench.kafka) is not None:
        if not bench.quick:
            peers["Kafka sink"] = Contender(lambda topic: _into_kafka(bench, kafka, topic, {}), kafka.topic)
        peers["Kafka sink, tuned"] = Contender(
            lambda topic: _into_kafka(bench, kafka, topic, TUNED_PRODUCER), kafka.topic
        )
    ours = Contender(into_topic, bench.root)
    bench.table.rates(f"streaming write, {bench.per_trigger:,} per trigger", bench.records, ours, peers)


def _into_kafka(bench: Bench, kafka: KafkaPeer, topic: str, options: dict[str, str]) -> None:
    writer = bench.files().writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    bench.drain(writer.option("topic", topic).options(**options))
