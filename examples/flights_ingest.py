"""Stream Parquet files of flights into a topic, exactly once. A job for spark-submit:

    spark-submit $(commitlog spark-conf --submit) \\
        examples/flights_ingest.py --data examples/data --root /tmp/commitlog --checkpoint /tmp/checkpoint

Key: the carrier. Value: the flight as JSON. Timestamp: the scheduled departure. Run it again with the same checkpoint
and it goes on where it stopped, however it was stopped.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_commitlog import CommitLog, configure_spark

SCHEMA = (
    "scheduled_departure timestamp, carrier string, flight int, tailnum string, origin string, dest string, "
    "dep_delay short, arr_delay short, air_time short, distance int"
)


def main() -> None:
    """Create the topic if it is not there, then write what is in the directory and stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="directory of Parquet files")
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--checkpoint", required=True, help="the query's checkpoint directory")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    create_topic(args.root, args.topic, args.partitions)
    spark = configure_spark(SparkSession.builder).appName("flights-ingest").getOrCreate()
    ingest(spark, args.data, args.root, args.topic, args.checkpoint).awaitTermination()
    spark.stop()


def create_topic(root: str, topic: str, partitions: int) -> None:
    """Create a topic that keeps its records, if it is not there."""
    config = {"retention.ms": -1}  # these flights are of 2013: keep them whatever their age
    CommitLog(root).create_topic(topic, partitions=partitions, config=config, if_not_exists=True)


def ingest(spark: SparkSession, data: str, root: str, topic: str, checkpoint: str) -> StreamingQuery:
    """Start the query that writes what is in the directory, a file per micro-batch, and then stops."""
    files = spark.readStream.schema(SCHEMA).option("pathGlobFilter", "*.parquet")
    flights = files.option("maxFilesPerTrigger", 1).parquet(data)
    return (
        as_records(flights)
        .writeStream.format("commitlog")
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(root)
    )


def as_records(flights: DataFrame) -> DataFrame:
    """Return flights as records: key, value, timestamp."""
    return flights.selectExpr("carrier AS key", "to_json(struct(*)) AS value", "scheduled_departure AS timestamp")


if __name__ == "__main__":
    main()
