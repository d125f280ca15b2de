"""The peer: a Kafka broker of one node on this machine, and Spark's own connector.

The broker has Kafka's default threads, heap and collector. It does not wait for the disk, as is Kafka's default; our
commits do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

from tests.kafka.broker import Broker, prepare
from tests.kafka.toolchain import Java, java

PARTITIONS = 4
_PROPERTIES = """\
num.network.threads=3
num.io.threads=8
log.segment.delete.delay.ms=1000
"""
_FLAGS = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Djava.net.preferIPv4Stack=true",
)
#: A consumer that fetches more at a time and waits less.
TUNED_CONSUMER = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "5000",
    "kafka.fetch.max.wait.ms": "20",
}
#: A producer that sends more at a time.
TUNED_PRODUCER = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "20", "kafka.buffer.memory": str(64 << 20)}


class KafkaPeer:
    """A running broker, and topics in it."""

    def __init__(self, spark: SparkSession, broker: Broker, tools: Java) -> None:
        self._spark, self.tools, self.bootstrap = spark, tools, broker.bootstrap
        self._broker = broker
        admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient
        properties = spark._jvm.java.util.Properties()
        properties.put("bootstrap.servers", broker.bootstrap)
        self._admin = admin.create(properties)
        self._passing: list[str] = []
        self._number = 0

    def close(self) -> None:
        """Close the admin client."""
        self._admin.close()

    def topic(self, *, passing: bool = True) -> str:
        """Make a topic of 4 partitions; a passing one goes with the next `clean`."""
        self._number += 1
        name, jvm = f"t{self._number}", self._spark._jvm
        absent = jvm.java.util.Optional
        new = jvm.org.apache.kafka.clients.admin.NewTopic(name, absent.of(PARTITIONS), absent.empty())
        self._admin.createTopics([new]).all().get()
        if passing:
            self._passing.append(name)
        return name

    def clean(self) -> None:
        """Delete the passing topics."""
        if self._passing:
            self._admin.deleteTopics(self._passing).all().get()
            self._passing = []

    def bytes(self, topic: str) -> int:
        """Return what a topic's segments take on the disk."""
        partitions = (self._broker.partition(topic, partition) for partition in range(PARTITIONS))
        return sum(file.stat().st_size for directory in partitions for file in directory.glob("*.log"))

    def write(self, records: DataFrame, topic: str, options: dict[str, str]) -> None:
        """Write with the batch sink."""
        writer = records.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", topic).options(**options).save()

    def batch(self, topic: str, options: dict[str, str]) -> DataFrame:
        """Return all of a topic."""
        return self._from(self._spark.read, topic, options)

    def stream(self, topic: str, options: dict[str, str]) -> DataFrame:
        """Return a topic as a stream from its start, unless `options` say otherwise."""
        return self._from(self._spark.readStream, topic, options)

    def _from(self, reader: DataFrameReader | DataStreamReader, topic: str, options: dict[str, str]) -> DataFrame:
        given = {"startingOffsets": "earliest", "kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return reader.format("kafka").options(**given | options).load()


@contextmanager
def running(spark: SparkSession, home: Path) -> Iterator[KafkaPeer]:
    """Run a broker that keeps all under `home`."""
    tools = java()
    with prepare(tools, home, _PROPERTIES, _FLAGS).running() as broker:
        peer = KafkaPeer(spark, broker, tools)
        try:
            yield peer
        finally:
            peer.close()
