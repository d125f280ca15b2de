"""Keep running totals of a topic of flights in another topic, by carrier. A job for spark-submit:

    PYSPARK_PYTHON=.venv/bin/python spark-submit --properties-file spark-conf/spark-defaults.conf \\
        examples/flights_totals.py --root /tmp/commitlog --checkpoint /tmp/totals-checkpoint

An aggregation in output mode `update`: Spark offers that mode to no sink in Python, so `foreachBatch` writes each
batch's rows. Query id and batch id name the write: a batch that Spark runs again is not written again. The topic is
compacted: it keeps the newest total of each carrier, which `view=latest` reads.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import configure_spark

PER_TRIGGER = 100_000


def main() -> None:
    """Run the query until it has read what is there, and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint")
    parser.add_argument("--topic", default="flights", help="topic to read")
    parser.add_argument("--totals", default="flights-totals", help="topic to write; it is made if it is missing")
    args = parser.parse_args()
    spark = configure_spark(SparkSession.builder).appName("flights-totals").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    run(spark, args.root, args.topic, args.totals, args.checkpoint)
    totals = spark.read.format("commitlog").option("subscribe", args.totals).option("view", "latest").load(args.root)
    for row in totals.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value").sort("key").collect():
        print(f"{row.key} {row.value}")
    spark.stop()


def run(spark: SparkSession, root: str, topic: str, totals: str, checkpoint: str) -> None:
    """Write the totals of the carriers in each micro-batch, until all that is there now is read."""
    records = (
        spark.readStream.format("commitlog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .load(root)
    )
    counts = records.groupBy("key").count()

    def write(rows: DataFrame, batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        (
            rows.selectExpr("key", "CAST(count AS STRING) AS value")
            .write.format("commitlog")
            .mode("append")
            .option("topic", totals)
            .option("txnAppId", query)
            .option("txnVersion", batch)
            .option("createTopic", "true")
            .option("topic.cleanup.policy", "compact")
            .save(root)
        )

    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
