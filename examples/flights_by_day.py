"""Stream flights into a topic, and count them by carrier and day into a second one. A job for a cluster on a bucket:

    spark-submit --master spark://master:7077 --packages org.apache.hadoop:hadoop-aws:3.5.0 \\
        --properties-file spark-conf/cluster.conf --load-spark-defaults examples/flights_by_day.py \\
        --data s3a://bucket/flights --root s3://bucket/commitlog --checkpoint s3a://bucket/checkpoints

Spark reads the data and keeps the checkpoints, with the counts' state, through Hadoop's S3A; the log needs none of it.
Driver and executors share nothing else. Run it again with the same checkpoint, and it goes on where it stopped, however
it was stopped. docs/how-to/cluster-on-a-bucket.md
"""

from __future__ import annotations

import argparse

from flights_ingest import create_topic, ingest
from pyspark.sql import DataFrame, SparkSession, functions as sf
from pyspark.sql.streaming import StreamingQuery

from pyspark_commitlog import configure_spark

FLIGHTS, BY_DAY = "flights", "flights-by-day"
#: A day is counted when flights have come that depart so much later; what comes for it after that is left out. Files
#: are taken in the order of their modification, and partitions are read in even parts: they don't reach a day at once.
LATENESS = "40 days"
PER_TRIGGER = 50_000


def main() -> None:
    """Do both, one after the other, with what is there now."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="directory of Parquet files")
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--checkpoint", required=True, help="directory for both queries' checkpoints")
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    for topic in (FLIGHTS, BY_DAY):
        create_topic(args.root, topic, args.partitions)
    builder = configure_spark(SparkSession.builder).appName("flights-by-day")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()  # the windows' days are UTC's
    ingest(spark, args.data, args.root, FLIGHTS, f"{args.checkpoint}/{FLIGHTS}").awaitTermination()
    count_by_day(spark, args.root, f"{args.checkpoint}/{BY_DAY}").awaitTermination()
    spark.stop()


def count_by_day(spark: SparkSession, root: str, checkpoint: str) -> StreamingQuery:
    """Start the query that writes a record for each carrier and day (UTC) that is over, and stops."""
    flights = (
        spark.readStream.format("commitlog")
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .load(root)
    )
    return (
        counted(flights)
        .writeStream.format("commitlog")
        .option("topic", BY_DAY)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(root)
    )


def counted(flights: DataFrame) -> DataFrame:
    """Return records of counts: key the carrier, value JSON, timestamp the day's begin."""
    days = flights.withWatermark("timestamp", LATENESS).groupBy("key", sf.window("timestamp", "1 day").alias("day"))
    return days.agg(sf.count("*").alias("flights")).selectExpr(
        "key",
        "to_json(struct(string(key) AS carrier, date_format(day.start, 'yyyy-MM-dd') AS day, flights)) AS value",
        "day.start AS timestamp",
    )


if __name__ == "__main__":
    main()
