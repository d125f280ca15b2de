"""Peak resident memory of a planner, a write task and a read task: `python benchmarks/memory.py [--sizes 0.1,1,4]`.

Each runs alone in a process that prints its peak (VmHWM) at its end: megabytes, against the data's size and the number
of partitions. `nothing` is a process that has imported the same and does nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark_commitlog import CommitLog, DefaultSource
from tests.spark.tasks import TOPIC, measured, write_task

HERE = Path(__file__).resolve().parent
PARTITIONS = (1, 100, 1_000)
COLUMNS = ("nothing", "write task", "planner", "read task of the largest partition")


def nothing(root: str, megabytes: int) -> int:
    """Do nothing."""
    return 0


def plan(root: str, megabytes: int) -> int:
    """Plan a streaming read of all there is, as the driver does; return how many tasks it comes to."""
    source = DefaultSource({"path": root, "subscribe": TOPIC, "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    return len(reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit())))


def read(root: str, megabytes: int) -> int:
    """Read the partition with the most records."""
    partitions = CommitLog(root).topic(TOPIC).describe().partitions
    largest = max(partitions, key=lambda partition: partition.high_watermark)
    source = DefaultSource({"path": root, "assign": json.dumps({TOPIC: [largest.partition]})})
    reader = source.reader(source.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


TASKS = {"nothing": nothing, "write": write_task, "plan": plan, "read": read}


def peak_mb(task: str, root: str, megabytes: int) -> float:
    """Run a task in a process of its own; return its peak."""
    command = [sys.executable, __file__, "--task", task, "--root", root, "--megabytes", str(megabytes)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0.1,1,4", help="GB of records")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        peak_kb, _ = measured(TASKS[args.task], args.root, args.megabytes)
        print(peak_kb / 1024)
        return
    print(f"| data, GB | partitions | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}", flush=True)
    for size in args.sizes.split(","):
        for partitions in PARTITIONS:
            with tempfile.TemporaryDirectory(dir=args.work) as root:
                CommitLog(root).create_topic(TOPIC, partitions)
                megabytes = int(float(size) * 1000)
                peaks = [peak_mb(task, root, megabytes) for task in ("nothing", "write")]
                CommitLog(root).topic(TOPIC).maintain()
                peaks += [peak_mb(task, root, megabytes) for task in ("plan", "read")]
            print(f"| {size} | {partitions:,} | {' | '.join(f'{peak:.0f}' for peak in peaks)} |", flush=True)


if __name__ == "__main__":
    main()
