"""Compact a topic that is too large for one process, with Spark's executors. A job for spark-submit:

    spark-submit $(commitlog spark-conf --submit) \\
        examples/compact.py --root /data/commitlog --topic users

Executors must see the root under the same path. Writers and readers go on meanwhile; smaller topics are compacted by
`commitlog maintain`.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from pyspark_commitlog import configure_spark
from pyspark_commitlog.spark.write.compaction_job import compact


def main() -> None:
    """Compact what is due and tell what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--topic", required=True, help="a topic with cleanup.policy=compact")
    args = parser.parse_args()
    spark = configure_spark(SparkSession.builder).appName(f"compact-{args.topic}").getOrCreate()
    done = compact(spark, args.root, args.topic)
    for one in done:
        (many, few), (large, small) = one.segments, one.size_bytes
        print(f"partition {one.partition}: {many} segments of {large:,} bytes became {few} of {small:,}")
    print(f"{len(done)} rounds" if done else "nothing is due")
    spark.stop()


if __name__ == "__main__":
    main()
