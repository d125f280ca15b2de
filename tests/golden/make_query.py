"""Make a root, and the checkpoint of a query that copies some of its topics into another: source and sink are ours.

`python -m tests.golden.make_query` writes `query/` beside this file. What lies there is from before modules and
classes moved, made on PySpark 4.2: tests/spark/test_earlier_checkpoint.py restarts the query on today's code, and a query
must be able to go on whatever moved since. So it is made again only where the format's version is raised, by the last code of
the version before, or it would show nothing.

The query ran twice, in batches of at most `PER_BATCH` records. Then more records came, which it never saw.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog, Producer

QUERY = Path(__file__).parent / "query"
ROOT, CHECKPOINT = QUERY / "root", QUERY / "checkpoint"
SOURCES = {"orders": 2, "refunds": 1}
COPIES, GROUP = "copies", "copiers"
PER_BATCH = 5
#: Records of each partition that the first and the second run saw, and those that came after them.
FIRST, SECOND, UNSEEN = range(4), range(4, 7), range(7, 9)
SEEN, ALL = range(SECOND.stop), range(UNSEEN.stop)


def text(topic: str, partition: int, number: int) -> str:
    """Return the value of a record."""
    return f"{topic} {partition} {number}"


def send(root: Path, numbers: Sequence[int]) -> None:
    """Append so many records to each partition of the sources."""
    with Producer(str(root)) as producer:
        for topic, partitions in SOURCES.items():
            for partition in range(partitions):
                for number in numbers:
                    producer.send(topic, text(topic, partition, number).encode(), partition=partition)


def copied(spark: SparkSession, root: Path) -> DataFrame:
    """Return the stream that the query copies."""
    asked = {"subscribe": ",".join(SOURCES), "startingOffsets": "earliest", "groupId": GROUP}
    reader = spark.readStream.format("commitlog").options(**asked, maxOffsetsPerTrigger=PER_BATCH)
    return reader.load(str(root)).select("value")


def run(spark: SparkSession, root: Path, checkpoint: Path) -> None:
    """Run the query over what is there."""
    writer = copied(spark, root).writeStream.format("commitlog").trigger(availableNow=True)
    writer.options(topic=COPIES, checkpointLocation=str(checkpoint)).start(str(root)).awaitTermination()


def make(root: Path, checkpoint: Path) -> None:
    """Make the root, and the checkpoint."""
    log = CommitLog(str(root))
    for topic, partitions in {**SOURCES, COPIES: 1}.items():
        log.create_topic(topic, partitions, {"retention.ms": -1, "segment.index.bytes": 96})
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    for numbers in (FIRST, SECOND):
        send(root, numbers)
        run(spark, root, checkpoint)
        for topic in SOURCES:
            log.topic(topic).maintain()  # a part is settled
    send(root, UNSEEN)
    spark.stop()
    for note in root.rglob("*.holder"):  # of a lock: it names a machine and a process
        note.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        make(made / "root", made / "checkpoint")
        shutil.rmtree(QUERY, ignore_errors=True)
        shutil.copytree(made, QUERY)
    files = [path for path in QUERY.rglob("*") if path.is_file()]
    assert not any(directory.encode() in path.read_bytes() for path in files), (
        "a file names the directory it was made in"
    )
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files)} bytes in {QUERY}")
