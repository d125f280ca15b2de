"""A streaming job that a test kills: topic -> topic, partition by partition. It leads a process group of its own.

    python -m tests.spark.kill_copier <home> <format>

`<home>` has `log/` (a root with topics `source` and `records`) and gets `checkpoint/`. Exit code 0: all that
was there is copied.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.kill_writer import TOPIC, session

SOURCE = "source"
#: Records per micro-batch.
ROWS = 200


def main(home: Path, format_: str) -> None:
    """Copy what is there."""
    spark = session(home)
    query = (
        spark.readStream.format("commitlog")
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS)
        .load(str(home / "log"))
        .select("key", "value", "timestamp", "partition")
        .writeStream.format(format_)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(home / "log"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
