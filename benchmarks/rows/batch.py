"""Batch write and batch read."""

from __future__ import annotations

from bench import COLUMNS, FLOOR_SINK, FLOOR_SOURCE, Bench, noop
from compare import Contender, just
from kafka_peer import TUNED_CONSUMER, TUNED_PRODUCER


def write(bench: Bench) -> None:
    """All records from Parquet; a root, topic or directory is made again for each run, before the clock starts."""
    peers = {
        FLOOR_SINK: just(lambda: bench.input().write.format("floor_sink").mode("append").save()),
        "Parquet, snappy": just(lambda: bench.input().write.parquet(bench.directory())),
    }
    if bench.delta:
        peers["Delta, without statistics"] = just(lambda: bench.input().write.format("delta").save(bench.directory()))
    if (kafka := bench.kafka) is not None:
        records = bench.input()
        if not bench.quick:
            peers["Kafka sink"] = Contender(lambda topic: kafka.write(records, topic, {}), kafka.topic)
        peers["Kafka sink, tuned"] = Contender(lambda topic: kafka.write(records, topic, TUNED_PRODUCER), kafka.topic)
    bench.table.rates("batch write", bench.records, Contender(bench.write, bench.root), peers)


def read(bench: Bench) -> None:
    """All columns, and the value alone, to nowhere."""
    asked = {"all columns": COLUMNS} if bench.quick else {"all columns": COLUMNS, "value only": "value binary"}
    for columns_read, schema in asked.items():
        peers = {FLOOR_SOURCE: _floor(bench, schema)}
        if bench.kafka is not None:
            columns = [column.split()[0] for column in schema.split(", ")]
            if not bench.quick:
                peers["Kafka source"] = _kafka(bench, columns, {})
            peers["Kafka source, tuned"] = _kafka(bench, columns, TUNED_CONSUMER)
        bench.table.rates(f"batch read, {columns_read}", bench.records, bench.read(bench.settled, schema), peers)


def _floor(bench: Bench, schema: str) -> Contender:
    options = bench.floor_options(bench.settled)
    return just(lambda: noop(bench.spark.read.format("floor_source").options(**options).schema(schema).load()))


def _kafka(bench: Bench, columns: list[str], options: dict[str, str]) -> Contender:
    kafka, topic = bench.kafka, bench.kafka_topic
    assert kafka is not None
    return just(lambda: noop(kafka.batch(topic, options).select(*columns)))
