"""The demo: a year of real flights goes through a commit log, and the writer is killed on the way.

    make demo            or:  .venv/bin/python examples/demo.py [--root DIR]

1. A streaming query writes the 336,776 departures of 2013 into topic ``flights``, keyed by carrier. It is killed
   (SIGKILL, the whole process group) after some months and started again on the same checkpoint.
2. A streaming query reads the topic from the earliest offset into a delay summary, with a progress bar.
3. A batch read of the same offset range must give the same table, and the log must hold every flight exactly once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from flights_summary import flights_of, partial_sums, read_batch, session, summarise, summarise_stream
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyspark_commitlog import CommitLog

HERE = Path(__file__).resolve().parent
FLIGHTS = HERE / "data" / "nycflights-2013.parquet"
TOPIC = "flights"
PARTITIONS = 4
KILL_AFTER = 0.35
console = Console()


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parent / "demo-root", help="made again (default: demo-root)")
    root = parser.parse_args().root.resolve()
    shutil.rmtree(root, ignore_errors=True)
    began = time.monotonic()
    total = prepare(root)
    log = CommitLog(str(root / "log"))
    log.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": -1})
    write_with_a_kill(root, log, total)
    log.maintain(TOPIC)  # what a writer's commits have not settled into segments yet; readers need not wait for it
    show_topic(log)
    same = read_back(root, log, total)
    console.print(f"\n{'All is well' if same else '[red]Something is wrong'}: {time.monotonic() - began:.0f} s.")
    return 0 if same else 1


def prepare(root: Path) -> int:
    """Lay the year out as one Parquet file a month, for Spark's file stream; return the number of flights."""
    flights = pq.read_table(FLIGHTS)
    months = pc.month(flights["scheduled_departure"])
    (root / "incoming").mkdir(parents=True)
    for month in range(1, 13):
        part = flights.filter(pc.equal(months, month))
        pq.write_table(part, root / "incoming" / f"2013-{month:02d}.parquet")
    return flights.num_rows


# --- write ------------------------------------------------------------------------------------------------


def write_with_a_kill(root: Path, log: CommitLog, total: int) -> None:
    """Write the topic in a process of its own; kill it in the middle, start it again, let it finish.

    Raises:
        SystemExit: the writer failed by itself; says where its log is.
    """
    console.rule("writeStream.format('commitlog')")
    with bar(total) as (progress, task):
        writer = start_writer(root)
        while written(log) < KILL_AFTER * total and writer.poll() is None:
            progress.update(task, completed=written(log), description="writing")
            time.sleep(0.1)
        if killed(writer):
            progress.console.print(
                f"  writer killed (SIGKILL) with {written(log):,} flights in the log; starting it again"
            )
            writer = start_writer(root)
        elif writer.returncode == 0:
            progress.console.print("  the writer finished before it could be killed: nothing was killed this time")
        while writer.poll() is None:
            progress.update(task, completed=written(log), description="writing")
            time.sleep(0.1)
        progress.update(task, completed=written(log), description="written")
    if writer.returncode:
        raise SystemExit(f"the writer failed, see {root / 'writer.log'}")


def killed(writer: subprocess.Popen[bytes]) -> bool:
    """Kill the writer's process group; return False if the writer had ended by itself."""
    if writer.poll() is not None:  # the number of its group may be another's by now
        return False
    os.killpg(writer.pid, signal.SIGKILL)
    return writer.wait() == -signal.SIGKILL


def start_writer(root: Path) -> subprocess.Popen[bytes]:
    """Start ``flights_ingest.py`` in a process group of its own."""
    command = [sys.executable, str(HERE / "flights_ingest.py"), "--data", str(root / "incoming"), "--topic", TOPIC]
    command += ["--root", str(root / "log"), "--checkpoint", str(root / "checkpoint")]
    with (root / "writer.log").open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def written(log: CommitLog) -> int:
    """Return how many records the topic holds."""
    return sum(p.high_watermark - p.log_start_offset for p in log.describe(TOPIC).partitions)


@contextmanager
def bar(total: int) -> Iterator[tuple[Progress, int]]:
    """Yield a progress bar of ``total`` flights."""
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield progress, progress.add_task("starting", total=total)


def show_topic(log: CommitLog) -> None:
    """Print what ``describe`` says."""
    table = Table(title=f"topic {TOPIC}")
    for name in ("partition", "log start", "high watermark", "segments", "bytes", "not yet settled"):
        table.add_column(name, justify="right")
    for p in log.describe(TOPIC).partitions:
        cells = (p.partition, p.log_start_offset, p.high_watermark, p.segments, p.size_bytes, p.unsettled)
        table.add_row(*(f"{cell:,}" for cell in cells))
    console.print(table)


# --- read -------------------------------------------------------------------------------------------------


def read_back(root: Path, log: CommitLog, total: int) -> bool:
    """Summarise the topic by a stream and by a batch read; return whether both agree and nothing is lost or doubled."""
    console.rule("readStream.format('commitlog')")
    spark = session("commitlog-demo")
    path = str(root / "log")
    with bar(total) as (progress, task):
        streamed = summarise_stream(
            spark, path, TOPIC, on_rows=lambda rows: progress.update(task, completed=rows, description="reading")
        )
    print_summary("departure delay by carrier", streamed["carrier"])
    print_summary("departure delay by scheduled hour, New York", streamed["hour"])

    console.rule("read.format('commitlog') of the same offset range")
    ends = {str(p.partition): p.high_watermark for p in log.describe(TOPIC).partitions}
    batch = read_batch(spark, path, TOPIC, ends).cache()
    sums = partial_sums(flights_of(batch)).cache()
    agree = all(streamed[by] == summarise(sums, by) for by in ("carrier", "hour"))
    found, distinct = batch.count(), batch.select("value").distinct().count()
    flights = pq.read_table(FLIGHTS)
    expected = flights.group_by(flights.column_names).aggregate([]).num_rows
    console.print(f"stream and batch read give the same tables: {agree}")
    console.print(f"flights in the log {found:,}, in the file {total:,}; different ones {distinct:,} and {expected:,}")
    spark.stop()
    return agree and found == total and distinct == expected


def print_summary(title: str, summary: Sequence[tuple[object, int, float, int]]) -> None:
    """Print a table of (key, flights, mean delay, longest delay)."""
    table = Table(title=title)
    for name in ("", "flights", "mean delay, min", "longest, min"):
        table.add_column(name, justify="right")
    for key, flights, mean, longest in summary:
        table.add_row(str(key), f"{flights:,}", formatted(mean, ".1f"), "" if longest is None else str(longest))
    console.print(table)


def formatted(number: float | None, form: str = "") -> str:
    """Return a number as text; nothing where there is none."""
    return "" if number is None else format(number, form)


if __name__ == "__main__":
    sys.exit(main())
