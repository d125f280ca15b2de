"""Summarise departure delays in a topic of flights, by carrier and by hour. A job for spark-submit:

    spark-submit $(commitlog spark-conf --submit) \\
        examples/flights_summary.py --root /tmp/commitlog

It reads the topic as a stream from the earliest offset, in bounded micro-batches, and stops at what is there now.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession, functions as sf

from pyspark_commitlog import configure_spark

Summary = list[tuple[object, int, float | None, int | None]]
PER_TRIGGER = 100_000


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--topic", default="flights")
    args = parser.parse_args()
    spark = session("flights-summary")
    for name, summary in summarise_stream(spark, args.root, args.topic).items():
        print(f"{name:>8} {'flights':>8} {'mean delay':>10} {'max':>6}")
        for key, flights, mean, longest in summary:
            delays = "    (all cancelled)" if mean is None else f"{mean:>10.1f} {longest:>6}"
            print(f"{key!s:>8} {flights:>8,} {delays}")
        print()
    spark.stop()


def session(name: str) -> SparkSession:
    """Return a session whose hours are New York's, where the flights depart."""
    builder = configure_spark(SparkSession.builder).appName(name)
    builder = builder.config("spark.sql.session.timeZone", "America/New_York")
    return builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()


def flights_of(records: DataFrame) -> DataFrame:
    """Return carrier, hour of scheduled departure and delay (minutes; null for a cancelled flight) of each record."""
    delay = "CAST(get_json_object(CAST(value AS STRING), '$.dep_delay') AS INT) AS delay"
    return records.selectExpr("CAST(key AS STRING) AS carrier", "hour(timestamp) AS hour", delay)


def summarise_stream(
    spark: SparkSession, root: str, topic: str, on_rows: Callable[[int], object] = lambda rows: None
) -> dict[str, Summary]:
    """Return the summaries by carrier and by hour of a stream from earliest to what is there now.

    `on_rows` is called from time to time with how many records have been read.
    """
    records = (
        spark.readStream.format("commitlog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .schema("key binary, value binary, timestamp timestamp")
        .load(root)
    )
    query = (
        partial_sums(flights_of(records))
        .writeStream.format("memory")
        .queryName("delays")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(0.2):
        on_rows(rows_read(query.recentProgress))
    on_rows(rows_read(query.recentProgress))
    sums = spark.table("delays")
    return {"carrier": summarise(sums, "carrier"), "hour": summarise(sums, "hour")}


def rows_read(progress: list[Mapping[str, int]]) -> int:
    """Return the records in all micro-batches so far."""
    return sum(batch["numInputRows"] for batch in progress)


def partial_sums(flights: DataFrame) -> DataFrame:
    """Return, per carrier and hour, what means and maxima are made of."""
    return flights.groupBy("carrier", "hour").agg(
        sf.count("*").alias("flights"),
        sf.count("delay").alias("departed"),
        sf.sum("delay").alias("delay"),
        sf.max("delay").alias("longest"),
    )


def summarise(sums: DataFrame, by: str) -> Summary:
    """Return (key, flights, mean delay, longest delay) per carrier or hour, of `partial_sums`."""
    mean = sf.round(sf.sum("delay") / sf.sum("departed"), 6)
    table = sums.groupBy(by).agg(sf.sum("flights"), mean, sf.max("longest"))
    return sorted(tuple(row) for row in table.collect())


def read_batch(spark: SparkSession, root: str, topic: str, ends: Mapping[str, int]) -> DataFrame:
    """Return the records of an offset range: from the earliest to `ends` (partition -> offset, exclusive)."""
    reader = spark.read.format("commitlog").option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("endingOffsets", json.dumps({topic: dict(ends)})).load(root)


if __name__ == "__main__":
    main()
