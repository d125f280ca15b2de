"""Copy topics that are too large for one process to another root, with Spark's executors. A job for spark-submit:

    spark-submit $(commitlog spark-conf --submit) \\
        examples/copy_topics.py --source /data/commitlog --destination s3://bucket/commitlog --topics flights

Each task stages a partition; then the driver commits what is there, as `commitlog copy` does. Executors must reach
both roots, the bucket with credentials of their environment. Run it again to copy what came since.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, configure_spark
from pyspark_commitlog.copying.topic_copy import stage_ahead
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_root


def main() -> None:
    """Stage all partitions in tasks, then copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="root to copy from")
    parser.add_argument("--destination", required=True, help="root to copy to")
    parser.add_argument("--topics", required=True, nargs="+", help="their names")
    parser.add_argument("--groups", action="store_true", help="copy the offsets of consumer groups, too")
    args = parser.parse_args()
    source, destination = str(args.source), str(args.destination)
    log = CommitLog(source)
    make_root(Root(destination))
    work = [(topic, row.partition) for topic in args.topics for row in log.topic(topic).describe().partitions]

    def stage(tasks: Iterator[tuple[str, int]]) -> None:
        for topic, partition in tasks:
            stage_ahead(Root(source).topic(topic), Root(destination).topic(topic), [partition])

    spark = configure_spark(SparkSession.builder).appName("copy-topics").getOrCreate()
    spark.sparkContext.parallelize(work, max(1, len(work))).foreachPartition(stage)
    for done in log.copy_to(destination, args.topics, groups=args.groups).topics:
        print(f"{done.topic}: {done.copied:,} offsets copied, up to entry {done.sequence}")
    spark.stop()


if __name__ == "__main__":
    main()
