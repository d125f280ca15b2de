"""Where the time of a record goes: `python benchmarks/flame.py [--records 4000000] [--runs 5] [--plot docs/images]`.

Writes and reads a topic as a batch, in a session as `make bench` has it, and prints what the cores did for a record:
Python's parts by clocks in the source and the sink (`timed.py`), all else by process and thread (`cores.py`). Then
runs the same under py-spy (Python workers) and Java's Flight Recorder (Spark's tasks), and draws flame-*.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import COLUMNS, TOPIC, Bench, noop
from cores import COMPILERS, IDLE, JVM_REST, OTHERS, PYTHON, TASKS, TASKS_KERNEL, spent
from flamegraph import Folded, Stack, below, draw, java_stacks, python_stacks
from session import session
from timed import PLACE, TimedSource

HERE = Path(__file__).resolve().parent
TASK_THREADS = "Executor task"
HERTZ = 100
PROFILED_RUNS = 3
#: What Spark's tasks do: the first of these that the innermost frames have.
_JVM = {
    "write": {
        "bytes so far, asked for every row": "izeInBytes|BufferSizeFor",
        "rows to Arrow": "ArrowFieldWriter|ArrowWriter|ArrowStreamWriter|MessageSerializer|VectorUnloader",
        "Parquet to rows": "Parquet|Vectorized|GeneratedClass",
        "the rest": "",
    },
    "read": {
        "Arrow to rows": "UnsafeProjection|Arrow|arrow|MessageSerializer",
        "copies of rows": "GeneratedClass",
        "the rest": "",
    },
}
#: Where the stacks that are drawn begin.
_PYTHON_ROOT, _JAVA_ROOT = re.compile(r"\(worker\.py\)$"), re.compile(r"^\w*Task\.runTask$")


@dataclass(frozen=True)
class Run:
    """One write or read: its seconds, the cores' seconds by what, and those of Python's parts."""

    seconds: float
    cores: Counter[str]
    parts: Counter[str]


@dataclass(frozen=True)
class Work:
    """What is measured, and what makes a run of it ready."""

    name: str
    prepare: Callable[[], str]
    act: Callable[[str], None]


def main() -> None:
    """Measure, print, draw."""
    args = _arguments()
    scratch, parts_directory, profiles = (args.work / name for name in ("scratch", "parts", "profiles"))
    for left_behind in (scratch, parts_directory, profiles):
        shutil.rmtree(left_behind, ignore_errors=True)
        left_behind.mkdir(parents=True)
    os.environ[PLACE] = str(parts_directory)
    spark = session(args.work / "spark.log")
    try:
        spark.dataSource.register(TimedSource)
        bench = Bench(spark, args.work, args.records, args.runs, None, delta=False)
        for work in _works(bench):
            runs = [_run(bench, work, parts_directory) for _ in range(args.runs + 1)][1:]
            with _profiled(profiles, work.name) as found:
                for _ in range(PROFILED_RUNS):
                    _run(bench, work, parts_directory)
            python, java = found()
            print(table(work, min(runs, key=lambda run: run.seconds), java, args.records), flush=True)
            if args.plot:
                title = f"batch {work.name}"
                draw(python, f"{title}: Python workers", args.plot / f"flame-{work.name}-python.svg")
                draw(java, f"{title}: Spark's task threads", args.plot / f"flame-{work.name}-jvm.svg")
    finally:
        spark.stop()
        shutil.rmtree(scratch)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument(
        "--runs", type=int, default=5, help="measured ones, after one that warms up; the fastest counts"
    )
    parser.add_argument("--plot", type=Path, help="a directory for pictures, flame-*.svg")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "bench")
    args = parser.parse_args()
    args.work = args.work.resolve()
    return args


def _works(bench: Bench) -> Iterator[Work]:
    def write(root: str) -> None:
        bench.input().write.format("timed").mode("append").option("topic", TOPIC).save(root)

    def read(root: str) -> None:
        noop(bench.spark.read.format("timed").option("subscribe", TOPIC).schema(COLUMNS).load(root))

    yield Work("write", bench.root, write)
    yield Work("read", lambda: bench.settled, read)


def _run(bench: Bench, work: Work, parts_directory: Path) -> Run:
    root = work.prepare()
    for file in parts_directory.iterdir():
        file.unlink()
    before, began = spent(), time.perf_counter()
    work.act(root)
    seconds, cores = time.perf_counter() - began, spent()
    cores.subtract(before)
    bench.clean()
    parts = Counter[str]()
    for line in (line for file in parts_directory.iterdir() for line in file.read_text().splitlines()):
        parts.update(json.loads(line))
    return Run(seconds, cores, parts)


# --- profiles --------------------------------------------------------------------------------------------


@contextmanager
def _profiled(directory: Path, name: str) -> Iterator[Callable[[], tuple[Folded, Folded]]]:
    """Profile what happens inside; after it, the function that is handed out returns Python's and Java's stacks."""
    raw, recording = directory / f"{name}.raw", directory / f"{name}.jfr"
    (java,) = _children("java")
    _java("jcmd", java, "JFR.start", f"name={name}", "settings=profile")  # a sample each 10 ms
    spy = _spy(raw)
    try:
        yield lambda: (below(python_stacks(raw.read_text().splitlines()), _PYTHON_ROOT), _recorded(recording))
    finally:
        spy.send_signal(signal.SIGINT)
        spy.wait()
        _java("jcmd", java, "JFR.stop", f"name={name}", f"filename={recording}")


def _spy(raw: Path) -> subprocess.Popen[bytes]:
    """Start py-spy on this process and all it started; workers are grandchildren, through Spark's JVM."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("py-spy", path=path)
    if found is None:
        sys.exit("py-spy is missing: `make install` brings it, or pip install py-spy")
    command = [found, "record", "--pid", str(os.getpid()), "--subprocesses", "--native", "--rate", str(HERTZ)]
    spy = subprocess.Popen([*command, "--duration", "unlimited", "--format", "raw", "--output", str(raw)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    time.sleep(3)  # it reads symbols first
    return spy


def _children(name: str) -> list[str]:
    """Return the ids of this process's children of a name."""
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [pid for pid, comm in (line.split(None, 1) for line in found.stdout.splitlines()) if comm == name]


def _java(tool: str, *arguments: str) -> str:
    """Run a tool of Java's; return what it prints."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", tool)) if home else tool
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=True).stdout


def _recorded(recording: Path) -> Folded:
    """Return what Spark's tasks did in Java; native code, where they mostly wait, is not in it."""
    printed = _java("jfr", "print", "--stack-depth", "64", "--events", "jdk.ExecutionSample", str(recording))
    return below(java_stacks(printed.splitlines(), TASK_THREADS), _JAVA_ROOT)


# --- the table -------------------------------------------------------------------------------------------


def table(work: Work, run: Run, java: Folded, records: int) -> str:
    """Return, in Markdown, what the cores did for a record, in microseconds."""
    known = run.cores
    rows = {f"Python: {part}": seconds for part, seconds in run.parts.items()}
    rows["Python: the rest"] = known[PYTHON] - run.parts.total()
    rows |= {f"{TASKS}: {kind}": known[TASKS] * share for kind, share in _shares(java, work.name)}
    rows |= {name: known[name] for name in (TASKS_KERNEL, COMPILERS, JVM_REST)}
    lines = [f"| batch {work.name} | µs of a core per record |", "|---|---|"]
    each = 1e6 / records
    ours = [f"| {name} | {rows[name] * each:.3f} |" for name in sorted(rows, key=rows.__getitem__, reverse=True)]
    cores = len(os.sched_getaffinity(0))
    whole, sum_ = run.seconds * cores, sum(rows.values()) + known[OTHERS] + known[IDLE]
    lines += [*ours, f"| all of these | {sum(rows.values()) * each:.3f} |"]
    lines += [f"| {name} | {known[name] * each:.3f} |" for name in (OTHERS, IDLE)]
    took = f"{cores} cores for {run.seconds * each:.3f} µs per record"
    lines += [f"| sum | {sum_ * each:.3f} |", f"| measured: {took} | {whole * each:.3f} |"]
    return "\n".join(lines) + "\n"


def _shares(java: Folded, name: str) -> list[tuple[str, float]]:
    """Return what the JVM's tasks do in Java, as shares."""
    counts = Counter[str]()
    for stack, count in java.items():
        counts[_kind(stack, _JVM[name])] += count
    return [(kind, count / counts.total()) for kind, count in counts.items()]


def _kind(stack: Stack, kinds: Mapping[str, str]) -> str:
    for frame in reversed(stack):
        for kind, pattern in kinds.items():
            if pattern and re.search(pattern, frame):
                return kind
    return list(kinds)[-1]


if __name__ == "__main__":
    main()
