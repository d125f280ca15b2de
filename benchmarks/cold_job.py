"""One job in a process of its own, as spark-submit runs it: prints the seconds that it takes after `getOrCreate()`,
and when it ended.

    python benchmarks/cold_job.py commitlog|kafka batch|stream TOPIC PLACE CHECKPOINT

`PLACE` is a root, or the broker's address. Ours is set by `configure_spark`, Kafka's source by its tuned options.
"""

from __future__ import annotations

import sys
import time

from kafka_peer import TUNED_CONSUMER
from machine import PEERS_POM
from pyspark.sql import SparkSession

from pyspark_commitlog import configure_spark
from tests.kafka.toolchain import jars

PER_TRIGGER = 500_000


def main() -> None:
    """Run the job that the arguments name."""
    source, kind, topic, place, checkpoint = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    if source == "kafka":
        builder = builder.config("spark.driver.extraClassPath", f"{jars(PEERS_POM)}/*")
    spark = (configure_spark(builder) if source == "commitlog" else builder).getOrCreate()
    began = time.perf_counter()
    options = {"path": place} if source == "commitlog" else {"kafka.bootstrap.servers": place, **TUNED_CONSUMER}
    options |= {"subscribe": topic, "startingOffsets": "earliest"}
    if kind == "batch":
        spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()
    else:
        stream = spark.readStream.format(source).options(**options, maxOffsetsPerTrigger=PER_TRIGGER).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
    print(f"seconds {time.perf_counter() - began:.3f} {time.time():.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
