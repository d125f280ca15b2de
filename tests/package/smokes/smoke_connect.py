"""Spark Connect: the client is there, and its server finds the data source."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog

if __name__ == "__main__":
    CommitLog("connect-log").create_topic("clicks")
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("commitlog").mode("append").option("topic", "clicks").save("connect-log")
    assert spark.read.format("commitlog").option("subscribe", "clicks").load("connect-log").count() == 10
    spark.stop()
    print("connect")
