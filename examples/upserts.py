"""What the examples of upserts share: the newest record of each key of a micro-batch, and the query that hands it on.

A topic of users, keyed by id: the value is JSON, `{"name": …, "city": …}`, or null where the user is deleted.
`docs/how-to/upserts.md` says what holds, and what to change for tables of your own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession, functions as sf

from pyspark_commitlog import configure_spark

#: What the values hold; other fields of theirs are left out.
SCHEMA = "name string, city string"

#: Applies the changes of a micro-batch (a row for each key: id, name, city, deleted), given the ids of query and batch.
Upsert = Callable[[DataFrame, str, int], None]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of what all these jobs take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--topic", default="users", help="(default: users)")
    parser.add_argument("--checkpoint", required=True, help="the query's checkpoint directory")
    parser.add_argument("--per-batch", type=int, default=100_000, help="records at a time at most (default: 100000)")
    parser.add_argument("--follow", action="store_true", help="do not end at what is there")
    return parser


def run(
    name: str,
    args: argparse.Namespace,
    open_table: Callable[[SparkSession], Upsert],
    settings: Mapping[str, str] | None = None,
) -> None:
    """Keep a table in a session of its own, with the settings of Spark that the table needs."""
    builder = configure_spark(SparkSession.builder).appName(name)
    for setting, value in (settings or {}).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    follow(spark, args, open_table(spark))
    spark.stop()


def follow(spark: SparkSession, args: argparse.Namespace, upsert: Upsert) -> None:
    """Hand each micro-batch of the topic to `upsert`, until all that is there was, or for ever with `--follow`."""
    records = (
        spark.readStream.format("commitlog")
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("columns", "key, value, offset")
        .option("maxOffsetsPerTrigger", args.per_batch)
        .load(args.root)
    )

    def each(batch: DataFrame, batch_id: int) -> None:
        # The id that the checkpoint keeps: a new checkpoint counts its batches from 0, and is another query.
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        upsert(changes(batch), query, batch_id)

    writer = records.writeStream.foreachBatch(each).option("checkpointLocation", args.checkpoint)
    query = (writer if args.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


def changes(batch: DataFrame) -> DataFrame:
    """Return the newest record of each key as a row of the table: id, name, city, and whether the user is deleted.

    A key has all its records in one partition, so the largest offset is the newest. What is no record of a table ends
    the query instead of getting lost: one without a key, and a value that is not JSON.
    """
    key = sf.coalesce("key", sf.raise_error(sf.lit("a record without a key is no row of a table")))
    newest = batch.groupBy(key.cast("string").alias("id")).agg(sf.max_by("value", "offset").alias("value"))
    fields = sf.from_json(sf.col("value").cast("string"), SCHEMA, {"mode": "FAILFAST"})
    return newest.select("id", fields.alias("user"), sf.isnull("value").alias("deleted")).select(
        "id", "user.*", "deleted"
    )
