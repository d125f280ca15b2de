"""Turn a topic of JSON into a typed one, records that do not fit apart; then ask both the same question, and time it.

    spark-submit $(commitlog spark-conf --submit) \\
        examples/json_to_typed.py --root /tmp/commitlog --checkpoint /tmp/checkpoint

The topic of JSON is what flights_ingest.py writes. Run it again with the same checkpoint and it goes on where it
stopped: each record is in the typed topic, or among the rejected ones, exactly once.
"""

from __future__ import annotations

import argparse
import time

from flights_ingest import SCHEMA
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, from_json

from pyspark_commitlog import CommitLog, configure_spark

REJECTED = "_rejected"


def main() -> None:
    """Convert what is there, then print the mean delay of each carrier, by both topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--checkpoint", required=True, help="directory for both queries' checkpoints")
    parser.add_argument("--topic", default="flights", help="topic of JSON")
    parser.add_argument("--typed", default="flights-typed", help="typed topic; it is made if it is missing")
    args = parser.parse_args()
    spark = configure_spark(SparkSession.builder).appName("json-to-typed").getOrCreate()
    convert(spark, args.root, args.topic, args.typed, args.checkpoint)

    as_json = spark.read.format("commitlog").option("subscribe", args.topic).load(args.root)
    parsed = as_json.select(from_json(col("value").cast("string"), SCHEMA).alias("flight")).select("flight.*")
    columns = {"subscribe": args.typed, "columns": "carrier, dep_delay"}
    typed = spark.read.format("commitlog").options(**columns).load(args.root)
    for name, flights in (("JSON", parsed), ("columns", typed)):
        answer(flights).collect()  # the first one pays for the JVM's warming up
        began = time.perf_counter()
        rows = answer(flights).collect()
        print(f"{name}: {time.perf_counter() - began:.2f} s, {len(rows)} carriers, most late {rows[0].carrier}")
    spark.stop()


def convert(spark: SparkSession, root: str, topic: str, typed: str, checkpoint: str) -> None:
    """Write each record to the typed topic, or apart, until all that is there now is read."""
    log, forever = CommitLog(root), {"retention.ms": -1}
    columns = {"schema": SCHEMA, "key": "carrier", "timestamp": "scheduled_departure"}
    log.create_topic(typed, partitions=4, config=forever, if_not_exists=True, **columns)
    log.create_topic(f"{typed}-rejected", config=forever, if_not_exists=True)
    options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    records = spark.readStream.format("commitlog").options(**options).load(root)
    whole = from_json(
        col("value").cast("string"), f"{SCHEMA}, {REJECTED} string", {"columnNameOfCorruptRecord": REJECTED}
    )
    parsed = records.withColumn("flight", whole)
    fits = col(f"flight.{REJECTED}").isNull() & col("flight.carrier").isNotNull()
    good = parsed.where(fits).select("flight.*").drop(REJECTED)
    bad = parsed.where(~fits | fits.isNull()).select("key", "value", "headers", "timestamp")
    queries = [
        rows.writeStream.format("commitlog")
        .option("topic", to)
        .option("checkpointLocation", f"{checkpoint}/{to}")
        .trigger(availableNow=True)
        .start(root)
        for rows, to in ((good, typed), (bad, f"{typed}-rejected"))
    ]
    for query in queries:
        query.awaitTermination()


def answer(flights: DataFrame) -> DataFrame:
    """Return the mean delay of each carrier."""
    return flights.groupBy("carrier").agg(avg("dep_delay").alias("late"), count("*")).orderBy("late", ascending=False)


if __name__ == "__main__":
    main()
