"""Sail: a server without a JVM reads a topic."""

from __future__ import annotations

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, DefaultSource, Producer

if __name__ == "__main__":
    CommitLog("sail-log").create_topic("clicks")
    with Producer("sail-log") as producer:
        producer.send("clicks", b"value").result()
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.dataSource.register(DefaultSource)
    assert spark.read.format("commitlog").option("subscribe", "clicks").load("sail-log").count() == 1
    spark.stop()
    server.stop()
    print("sail")
