"""An archive of the classes that Spark loads when it starts, for JVMs to map instead of reading 200 jars.

    python -m tests.support.classes

makes it, by running a small job once; `make test` does. Without it tests are slower, and otherwise the same. It holds for one
Java and one PySpark; a JVM whose class path is another one passes over it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from pyspark_commitlog import CommitLog
from tests.spark.kill_copier import SOURCE
from tests.spark.kill_writer import TOPIC
from tests.support.records import append, batch_of
from tests.support.sessions import kill_session, session_of

REPOSITORY = Path(__file__).resolve().parents[2]
#: What the JVMs of tests are started with: one that lives for seconds is not worth optimising.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Nothing waits for the archive any longer; on two idle cores it takes half a minute, on busy ones three times as long.
PATIENCE_SECONDS = 120


def archive() -> Path:
    """Return where the archive of this Java and this PySpark lies, or would."""
    release = Path(os.environ.get("JAVA_HOME", "/"), "release")
    found = re.search(r'JAVA_RUNTIME_VERSION="(\S+)"', release.read_text()) if release.is_file() else None
    return Path(sys.prefix) / f"spark-{pyspark.__version__}-java-{found[1] if found else 'unknown'}.jsa"


def options() -> str:
    """Return the JVM options that use the archive. What the JVM thinks of it is not printed."""
    return f"-XX:SharedArchiveFile={archive()} -Xlog:disable -Xlog:all=error:stderr"


def make() -> None:
    """Make the archive, if there is none. Where that fails, which a JVM without such archives does, say so and go on."""
    if archive().is_file():
        return
    made = Path(sys.prefix) / f"{os.getpid()}.jsa"
    with tempfile.TemporaryDirectory() as home:
        log = CommitLog(f"{home}/log")
        for topic in (SOURCE, TOPIC):
            log.create_topic(topic, partitions=2)
        append(log.root.topic(SOURCE), batch_of([b"a", b"b"]))
        if run_job(home, f"-XX:ArchiveClassesAtExit={made} -Xlog:disable") and made.is_file():
            made.rename(archive())
        else:
            print("no archive of Spark's classes was made: tests are slower", file=sys.stderr)
            made.unlink(missing_ok=True)


def run_job(home: str, java_options: str) -> bool:
    """Copy a topic by Spark; return whether the job and its JVM, which outlives it, ended well and in time."""
    env = {
        **os.environ,
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": java_options,
    }
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kill_copier", home, "commitlog"], env=env, cwd=home,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + PATIENCE_SECONDS
    while job.poll() is None or session_of(job.pid):
        if time.monotonic() > end:
            kill_session(job)
            return False
        time.sleep(0.05)
    return job.returncode == 0


if __name__ == "__main__":
    make()
