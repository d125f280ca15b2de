"""What a benchmark ran on: figures without it mean little."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import pyarrow as pa

from tests.kafka.toolchain import fetched

HERE = Path(__file__).resolve().parent
#: Spark's Kafka connector and Delta, and Kafka itself: `make bench-peers` fetches both.
PEERS_POM = HERE / "jars" / "pom.xml"
KAFKA_POM = HERE.parent / "tests" / "kafka" / "pom.xml"
#: What `session.py` sets for the Spark session of a run.
_OF_A_SESSION = ("SPARK_CONF_DIR", "PYSPARK_PYTHON", "QUICK_PYTHON")
_WRITES = 64 << 20
_SYNCS = 20


def peers_are_there() -> bool:
    """Return whether the peers' jars have been fetched."""
    return fetched(PEERS_POM) and fetched(KAFKA_POM)


def environment_without_session() -> dict[str, str]:
    """Return the environment for a process of its own, without what the Spark session of this run has set."""
    return {name: value for name, value in os.environ.items() if name not in _OF_A_SESSION}


def commit() -> str:
    """Return the short commit of the clone, with `+` after it if files differ; `unknown` outside a clone."""
    git = ["git", "-C", str(HERE)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


def describe(work: Path) -> dict[str, object]:
    """Return the machine: cores, memory, processor, what the disk under `work` does, versions."""
    work.mkdir(parents=True, exist_ok=True)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "processor": _processor(),
        **_disk(work / "probe"),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "kernel": platform.release(),
        "commit": commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _disk(probe: Path) -> dict[str, object]:
    """Return the median of a small write with fsync, and the rate of a large one with fsync."""
    taken = []
    fd = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            os.write(fd, b"x" * 4096)
            os.fsync(fd)
            taken.append(time.perf_counter() - began)
        data, began = os.urandom(_WRITES), time.perf_counter()
        os.write(fd, data)
        os.fsync(fd)
        rate = _WRITES / (time.perf_counter() - began)
    finally:
        os.close(fd)
        probe.unlink()
    return {"fsync ms": round(statistics.median(taken) * 1000, 2), "write MB/s": round(rate / 1e6)}


def described(machine: dict[str, object]) -> str:
    """Return it in one paragraph."""
    return ", ".join(f"{name} {value}" for name, value in machine.items())
