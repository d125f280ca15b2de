"""The demo: a year of real flights goes through a commit log, and the writer is killed on the way.

    make demo            or:  .venv/bin/python examples/demo.py [--root DIR]
    make demo ARGS="--root s3"    the same with the log in a bucket, of an S3 server that the demo starts

1. A streaming query writes the 336,776 departures of 2013 into topic `flights`, keyed by carrier. It is killed
   (SIGKILL, the whole process group) after some months and started again on the same checkpoint.
2. A streaming query reads the topic from the earliest offset into a delay summary, with a progress bar.
3. A batch read of the same offset range must give the same table, and the log must hold every flight exactly once.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
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
DEMO_ROOT = str(HERE.parent / "demo-root")
TOPIC = "flights"
PARTITIONS = 4
KILL_AFTER = 0.35
#: A look at a bucket takes several requests, of a server that the writer waits for, too.
LOOK_SECONDS = 0.5
console = Console()


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=DEMO_ROOT, help="made again (default: demo-root); s3: the log is in a bucket")
    given = parser.parse_args().root
    root = Path(DEMO_ROOT if given == "s3" else given).resolve()
    shutil.rmtree(root, ignore_errors=True)
    began = time.monotonic()
    total = prepare(root)
    with bucket(root) if given == "s3" else nullcontext(str(root / "log")) as url:
        same = run(root, url, total)
    console.print(f"\n{'All is well' if same else '[red]Something is wrong'}: {time.monotonic() - began:.0f} s.")
    return 0 if same else 1


def run(root: Path, url: str, total: int) -> bool:
    """Write and read the topic of a new log at `url`; return whether all is well."""
    log = CommitLog(url)
    log.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": -1})
    write_with_a_kill(root, log, url, total)
    log.topic(
        TOPIC
    ).maintain()  # what a writer's commits have not settled into segments yet; readers need not wait for it
    show_topic(log)
    return read_back(root, url, log, total)


@contextmanager
def bucket(root: Path) -> Iterator[str]:
    """Start an S3 server, make a bucket and name both in the environment; yield the log's URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_REGION": "us-east-1",
    }
    with (root / "server.log").open("ab") as out:
        server = subprocess.Popen(
            [sys.executable, HERE / "local_s3.py", "127.0.0.1", str(port)], stdout=out, stderr=out
        )
    try:
        make_bucket(f"http://127.0.0.1:{port}/demo", server)
        console.print(f"an S3 server listens at 127.0.0.1:{port}; the log is s3://demo/log")
        yield "s3://demo/log"
    finally:
        server.kill()
        server.wait()


def make_bucket(address: str, server: subprocess.Popen[bytes]) -> None:
    """Make a bucket as soon as the server answers.

    Raises:
        SystemExit: the server ended, or does not answer.
    """
    for _ in range(300):
        with suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=5).close()
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("the S3 server does not answer: is moto installed? pip install 'moto[server]'")


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


def write_with_a_kill(root: Path, log: CommitLog, url: str, total: int) -> None:
    """Write the topic in a process of its own; kill it in the middle, start it again, let it finish.

    Raises:
        SystemExit: the writer failed by itself; says where its log is.
    """
    console.rule("writeStream.format('commitlog')")
    with bar(total) as (progress, task):

        def show(count: int) -> None:
            progress.update(task, completed=count, description="writing")

        writer = start_writer(root, url)
        watch(writer, log, KILL_AFTER * total, show)
        if killed(writer):
            progress.console.print(
                f"  writer killed (SIGKILL) with {written(log):,} flights in the log; starting it again"
            )
            writer = start_writer(root, url)
        elif writer.returncode == 0:
            progress.console.print("  the writer finished before it could be killed: nothing was killed this time")
        watch(writer, log, math.inf, show)
        progress.update(task, completed=written(log), description="written")
    if writer.returncode:
        raise SystemExit(f"the writer failed, see {root / 'writer.log'}")


def watch(writer: subprocess.Popen[bytes], log: CommitLog, enough: float, show: Callable[[int], object]) -> None:
    """Show how many records there are, until there are enough, or the writer has ended."""
    while writer.poll() is None and (count := written(log)) < enough:
        show(count)
        time.sleep(LOOK_SECONDS)


def killed(writer: subprocess.Popen[bytes]) -> bool:
    """Kill the writer's process group; return False if the writer had ended by itself."""
    if writer.poll() is not None:  # the number of its group may be another's by now
        return False
    os.killpg(writer.pid, signal.SIGKILL)
    return writer.wait() == -signal.SIGKILL


def start_writer(root: Path, url: str) -> subprocess.Popen[bytes]:
    """Start `flights_ingest.py` in a process group of its own."""
    command = [sys.executable, str(HERE / "flights_ingest.py"), "--data", str(root / "incoming"), "--topic", TOPIC]
    command += ["--root", url, "--checkpoint", str(root / "checkpoint")]
    with (root / "writer.log").open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def written(log: CommitLog) -> int:
    """Return how many records the topic holds."""
    return sum(p.high_watermark - p.log_start_offset for p in log.topic(TOPIC).describe().partitions)


@contextmanager
def bar(total: int) -> Iterator[tuple[Progress, int]]:
    """Yield a progress bar of `total` flights."""
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield progress, progress.add_task("starting", total=total)


def show_topic(log: CommitLog) -> None:
    """Print what `describe` says."""
    table = Table(title=f"topic {TOPIC}")
    for name in ("partition", "log start", "high watermark", "segments", "bytes", "not yet settled"):
        table.add_column(name, justify="right")
    for p in log.topic(TOPIC).describe().partitions:
        cells = (p.partition, p.log_start_offset, p.high_watermark, p.segments, p.size_bytes, p.unsettled)
        table.add_row(*(f"{cell:,}" for cell in cells))
    console.print(table)


# --- read -------------------------------------------------------------------------------------------------


def read_back(root: Path, url: str, log: CommitLog, total: int) -> bool:
    """Summarise the topic by a stream and by a batch read; return whether both agree and nothing is lost or doubled."""
    console.rule("readStream.format('commitlog')")
    with errors_to(root / "reader.log"):
        spark = session("commitlog-demo")
    with bar(total) as (progress, task):
        streamed = summarise_stream(
            spark, url, TOPIC, on_rows=lambda rows: progress.update(task, completed=rows, description="reading")
        )
    print_summary("departure delay by carrier", streamed["carrier"])
    print_summary("departure delay by scheduled hour, New York", streamed["hour"])

    console.rule("read.format('commitlog') of the same offset range")
    ends = {str(p.partition): p.high_watermark for p in log.topic(TOPIC).describe().partitions}
    batch = read_batch(spark, url, TOPIC, ends).cache()
    sums = partial_sums(flights_of(batch)).cache()
    agree = all(streamed[by] == summarise(sums, by) for by in ("carrier", "hour"))
    found, distinct = batch.count(), batch.select("value").distinct().count()
    flights = pq.read_table(FLIGHTS)
    expected = flights.group_by(flights.column_names).aggregate([]).num_rows
    console.print(f"stream and batch read give the same tables: {agree}")
    console.print(f"flights in the log {found:,}, in the file {total:,}; different ones {distinct:,} and {expected:,}")
    spark.stop()
    return agree and found == total and distinct == expected


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Have what is started within write its errors to a file: idle Python workers complain when Spark stops them."""
    before = os.dup(2)
    try:
        with path.open("ab") as out:
            os.dup2(out.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


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
