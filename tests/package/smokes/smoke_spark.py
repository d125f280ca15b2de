"""Spark finds the data source by the package's name: batch and stream, in Python processes of Spark's."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import pyspark_commitlog
from pyspark_commitlog import CommitLog, configure_spark
from pyspark_commitlog.spark.session.configure import quick_python

if __name__ == "__main__":
    assert pyspark_commitlog.__file__.startswith(sys.prefix), pyspark_commitlog.__file__
    assert str(quick_python()).startswith(sys.prefix), "it is not installed as a program"
    CommitLog("spark-log").create_topic("clicks", 2)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = configure_spark(builder).getOrCreate()
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.format("commitlog").mode("append").option("topic", "clicks").save("spark-log")
    stream = spark.readStream.format("commitlog").option("subscribe", "clicks").option("startingOffsets", "earliest")
    query = stream.load("spark-log").writeStream.format("parquet").option("checkpointLocation", "checkpoint")
    query.trigger(availableNow=True).start("rows").awaitTermination()
    assert spark.read.parquet("rows").count() == 100
    spark.stop()
    print("spark")
