"""How many small tasks wait for a delayed acknowledgement on Spark's own socket: `python benchmarks/acknowledged.py`.

    sudo unshare -n sh -c "ip link set lo up; python benchmarks/acknowledged.py [--batches 40] [--to topic]"

Micro-batches of 1,000 records, over TCP, as Spark comes. The kernel counts the acknowledgements that it delayed until
their timer ran out (`TcpExt: DelayedACKs`) for a network namespace: in one of its own nothing else counts. Prints
tasks, delayed acknowledgements, and the least and median trigger in milliseconds, after the first five.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from microbatch import PARTITIONS, WARM_UP, ours
from pyspark.sql import SparkSession


def delayed_acks() -> int:
    """Return how many acknowledgements were delayed until their timer ran out."""
    lines = [line.split() for line in Path("/proc/self/net/netstat").read_text().splitlines()]
    names, numbers = (line for line in lines if line[0] == "TcpExt:")
    return int(numbers[names.index("DelayedACKs")])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--unix", action="store_true", help="Unix sockets: what is left is not of tasks")
    parser.add_argument("--to", choices=("noop", "topic"), default="noop")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.python.unix.domain.socket.enabled", str(args.unix).lower()).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as made:
        work, counts = Path(made), list[int]()
        stream = ours(spark, work, args.batches).select("key", "value")
        writer = stream.writeStream.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
        kind = writer.format("noop") if args.to == "noop" else writer.format("commitlog").option("topic", "to")
        counts.append(delayed_acks())
        query = kind.start() if args.to == "noop" else kind.start(str(work / "log"))
        query.awaitTermination()
        counts.append(delayed_acks())
        triggers = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][WARM_UP:]
    spark.stop()
    delayed = counts[1] - counts[0]
    print(f"{args.batches * PARTITIONS} tasks, {delayed} delayed acknowledgements; ", end="")
    print(f"triggers: least {min(triggers)}, median {statistics.median(triggers):.0f} ms")


if __name__ == "__main__":
    main()
