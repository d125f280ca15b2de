"""A standalone Spark cluster on this machine: a master and two workers, each in processes of their own.

The workers are hosts to Spark: 127.0.0.1 and 127.0.0.2. All processes die with the one that started them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from tests.spark.conftest import REPOSITORY
from tests.spark.slow_source import PATIENCE_SECONDS, STEPS, UNTIL, WORKER
from tests.support.sessions import kill_session, session_of

HOSTS = {"one": "127.0.0.1", "two": "127.0.0.2"}
CORES = 2
_BIN = Path(pyspark.__file__).parent / "bin"


class Cluster:
    """A running master and workers `one` and `two`; close it.

    `environment` returns what the processes of a host have in their environment, by the host's directory: a job's is
    its own.
    """

    def __init__(self, home: Path, environment: Callable[[Path], dict[str, str]] = lambda home: {}) -> None:
        self._home, self._environment = home, environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._registered = 0
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--host", HOSTS["one"])
            (self.url,) = self._told("master", r"Starting Spark master at (spark://\S+)", 1)
            for name in HOSTS:
                self._start_worker(name)
            self._wait_for_workers(len(HOSTS))
        except BaseException:
            self.close()
            raise

    def stop(self, name: str) -> None:
        """SIGSTOP a worker with its executors and their Python processes: they get tasks, and do nothing of them."""
        for pid in session_of(self._processes[name].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def kill(self, name: str) -> None:
        """SIGKILL a worker with its executors and their Python processes, as if its machine had lost power."""
        kill_session(self._processes.pop(name))

    def restart(self, name: str) -> None:
        """Start a worker again that was killed; it gets executors of the jobs that run."""
        self._start_worker(name)
        self._wait_for_workers(1)

    def job(self, home: Path, until: str, **conf: str) -> subprocess.Popen[bytes]:
        """Start `cluster_job.py`, with tasks as slow as `until` says; its directory gets `output` and `events`."""
        steps = {f"spark.executorEnv.{STEPS}": str(home / "steps"), f"spark.executorEnv.{UNTIL}": until}
        options = [*self._options(home, steps | conf), "pyspark-shell"]
        env = {"PYSPARK_SUBMIT_ARGS": " ".join(options), "SPARK_CONF_DIR": f"{REPOSITORY}/spark-conf"}
        return self._run(home, home / "output", env, sys.executable, "-m", "tests.spark.cluster_job", str(home))

    def submit(self, home: Path, job: str, *arguments: str, **conf: str) -> subprocess.Popen[bytes]:
        """Start a job of `examples/` by spark-submit, as its users do; its directory gets `output` and `events`."""
        command = [str(_BIN / "spark-submit"), *self._options(home, conf), f"{REPOSITORY}/examples/{job}", *arguments]
        return self._run(home, home / "output", {"SPARK_CONF_DIR": f"{REPOSITORY}/spark-conf"}, *command)

    def _options(self, home: Path, more: dict[str, str]) -> list[str]:
        (home / "events").mkdir()
        conf = {
            "spark.master": self.url,
            "spark.driver.host": HOSTS["one"],
            "spark.ui.enabled": "false",
            "spark.cores.max": f"{CORES * len(HOSTS)}",
            "spark.executor.cores": f"{CORES}",
            "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (home / "events").as_uri(),
            **more,
        }
        given = (word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))
        return ["--properties-file", f"{REPOSITORY}/spark-conf/cluster.conf", "--load-spark-defaults", *given]

    def close(self) -> None:
        """Kill all of it."""
        for process in self._processes.values():
            kill_session(process)
        self._processes.clear()

    def _start_worker(self, name: str) -> None:
        work = str(self._home / name / "work")
        options = ["--host", HOSTS[name], "--cores", f"{CORES}", "--memory", "1g", "--work-dir", work]
        self._start(name, "org.apache.spark.deploy.worker.Worker", *options, self.url, **{WORKER: name})

    def _start(self, name: str, class_: str, *options: str, **env: str) -> None:
        env |= {"SPARK_LOCAL_IP": HOSTS["one"], "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
        command = [str(_BIN / "spark-class"), class_, *options, "--webui-port", "0"]
        self._processes[name] = self._run(self._home / name, self._home / f"{name}.output", env, *command)

    def _run(self, host: Path, output: Path, env: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
        host.mkdir(exist_ok=True)
        lifeline = [sys.executable, "-m", "tests.support.lifeline", str(os.getpid())]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, **self._environment(host), **env}
        with output.open("ab") as file:
            return subprocess.Popen(
                [*lifeline, *command], stdout=file, stderr=file, env=env, cwd=host, start_new_session=True
            )

    def _wait_for_workers(self, more: int) -> None:
        self._registered += more
        self._told("master", r"Registering worker (\S+)", self._registered)

    def _told(self, name: str, pattern: str, times: int) -> list[str]:
        """Wait until a process has said something that often."""
        output, end = self._home / f"{name}.output", time.monotonic() + PATIENCE_SECONDS
        while len(found := re.findall(pattern, output.read_text())) < times:
            assert time.monotonic() < end, f"{name} did not say {pattern!r}:\n{output.read_text()[-3000:]}"
            assert self._processes[name].poll() is None, output.read_text()[-3000:]
            time.sleep(0.05)
        return found


def wait_for(job: subprocess.Popen[bytes], home: Path, pattern: str, count: int = 1) -> None:
    """Wait until a job has made so many files of a name in its directory `steps`."""
    end = time.monotonic() + PATIENCE_SECONDS
    while len(list((home / "steps").glob(pattern))) < count:
        assert job.poll() is None, (home / "output").read_text()[-3000:]
        assert time.monotonic() < end, f"no {pattern}:\n{(home / 'output').read_text()[-3000:]}"
        time.sleep(0.02)


def finish(job: subprocess.Popen[bytes], home: Path) -> None:
    """Wait until a job has ended well."""
    code = job.wait(timeout=PATIENCE_SECONDS)
    assert code == 0, (home / "output").read_text()[-3000:]


def ended_tasks(home: Path) -> list[dict[str, Any]]:
    """Return the event log's `Task Info` of every task attempt that ended."""
    events = [json.loads(line) for path in (home / "events").rglob("events_*") for line in path.open()]
    return [event["Task Info"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
