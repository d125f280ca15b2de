"""Spark Connect: the client is there, its server finds the data source, and may be left for the next program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog


def use(spark: SparkSession, topic: str) -> None:
    CommitLog("connect-log").create_topic(topic)
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    root = str(Path("connect-log").resolve())
    rows.write.format("commitlog").mode("append").option("topic", topic).save(root)
    assert spark.read.format("commitlog").option("subscribe", topic).load(root).count() == 10
    spark.stop()


def reused(topic: str) -> int:
    """Use a server that is left, in a program of its own; return the server's process id."""
    subprocess.run([sys.executable, __file__, topic], check=True)
    found: int = json.loads(Path(os.environ["SPARK_LOCAL_CONNECT_DISCOVERY"]).read_text())["pid"]
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        builder = SparkSession.builder.remote("local[1]").config("spark.local.connect.reuse", "true")
        use(builder.getOrCreate(), sys.argv[1])
        sys.exit()
    use(SparkSession.builder.remote("local[1]").getOrCreate(), "clicks")
    if pyspark.__version__ >= "4.3":
        os.environ["SPARK_LOCAL_CONNECT_DISCOVERY"] = str(Path("connect.json").resolve())
        for name in (
            "SPARK_LOCAL_REMOTE",
            "SPARK_REMOTE",
            "SPARK_CONNECT_MODE_ENABLED",
            "SPARK_CONNECT_AUTHENTICATE_TOKEN",
        ):
            os.environ.pop(name, None)
        try:
            assert reused("orders") == reused("returns")
        finally:
            subprocess.run([sys.executable, "-m", "pyspark.sql.connect.local_server", "--stop"], check=True)
    print("connect")
