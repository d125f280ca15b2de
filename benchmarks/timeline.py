"""The processes of a cold job, one after the other: when each starts, and what it waits for.

    .venv-compat/bin/python benchmarks/timeline.py [batch|stream] [--records 5]

Runs `cold_job.py` in a process of its own, on a root of its own, and prints a line per Python process that Spark
starts: seconds after `getOrCreate()`. What lies between them is Java's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data import make_small_topic
from machine import environment_without_session

HERE = Path(__file__).resolve().parent
TOPIC = "t"
_WHAT = {
    "lookup_data_sources": "looks for data sources",
    "create_data_source": "makes the source, checks its options",
    "plan_data_source_read": "plans the read",
    "python_streaming_source_runner": "runs the stream's source",
    "pyspark.worker": "tasks",
}
_WIDTH = 60


def main() -> None:
    """Run a job, print its timeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", default="batch", choices=("batch", "stream"))
    parser.add_argument("--records", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        root, said = f"{work}/root", f"{work}/timeline"
        make_small_topic(root, TOPIC, args.records, 4)
        ended, took = _run(args.kind, root, f"{work}/checkpoint", said)
        events = [json.loads(line) for line in Path(said).read_text().splitlines()]
    print(f"{args.kind}, {args.records:,} records: {took:.2f} s after getOrCreate()\n")
    for line in drawn(events, ended - took, took):
        print(line)


def _run(kind: str, root: str, checkpoint: str, said: str) -> tuple[float, float]:
    """Return when the job ended, and what it took."""
    environment = environment_without_session()
    paths = [str(HERE / "recorder"), environment.get("PYTHONPATH", "")]
    environment |= {"TIMELINE": said, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, str(HERE / "cold_job.py"), "commitlog", kind, TOPIC, root, checkpoint]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    ended, took = done.stdout.split("seconds")[-1].split()[-1], done.stdout.split("seconds")[-1].split()[0]
    return float(ended), float(took)


def drawn(events: Sequence[dict[str, Any]], zero: float, whole: float) -> Iterator[str]:
    """Yield a line per process that started after `zero`, and a bar for it (pure)."""
    for started in (event for event in events if event["event"] == "start" and event["began"] >= zero - 0.05):
        group = _family(events, started["pid"])
        begin, end = started["began"] - zero, max(event["at"] for event in group) - zero
        imports = _imports(group)
        bar = " " * round(begin / whole * _WIDTH) + "█" * max(1, round((end - begin) / whole * _WIDTH))
        purpose = _purpose(started["arguments"])
        yield f"{begin:5.2f} – {end:5.2f}  {bar:<{_WIDTH + 1}} {purpose}{imports}"


def _family(events: Sequence[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    """Return what a process and those forked from it wrote."""
    pids = {pid, *(event["pid"] for event in events if event["event"] == "fork" and event["parent"] == pid)}
    return [event for event in events if event["pid"] in pids]


def _imports(group: Sequence[dict[str, Any]]) -> str:
    """Return what took the most to import, by top-level package, the longest import of each."""
    longest: dict[str, float] = {}
    for event in group:
        if event["event"] == "import":
            package = event["name"].partition(".")[0]
            longest[package] = max(longest.get(package, 0.0), event["seconds"])
    seconds_each = ", ".join(f"{name} {seconds:.2f}" for name, seconds in longest.items())
    return f" (imports: {seconds_each})" if seconds_each else ""


def _purpose(arguments: Sequence[str]) -> str:
    """Return what Spark starts a Python with these arguments for."""
    last = arguments[-1].rpartition(".")[2] if arguments else ""
    whole = arguments[-1] if arguments else ""
    return _WHAT.get(whole, _WHAT.get(last, "asks for Python's version" if "version_info" in whole else whole[-60:]))


if __name__ == "__main__":
    main()
