"""A data source whose streaming commits are killed on purpose, and the plan that says where.

The plan is a file: it reaches the process that Spark starts for a commit, and it goes when it has acted, so that a
restarted job is not killed again.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.write.messages import StagedMessage
from pyspark_commitlog.spark.write.sink import CommitLogStreamWriter
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.testing.faults import MUTATING, FaultyStorage, Hook

#: The source's option-less way to its plan: an environment variable with the directory of `plan` and `trace`.
DIRECTORY = "COMMITLOG_TEST_FAULTS"
_commits: dict[str, Hook] = {}


class FaultySource(DefaultSource):
    """`commitlog`, but for the storage under the commits of its streaming writer."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog-faulty"

    def open_log(self, path: str, storage: Mapping[str, str]) -> Root:
        """Return the log; in the commit phase, with a storage that tells the hook."""
        inner = open_storage(path, storage)
        hook = _commits.get("now")
        return Root.on(FaultyStorage(inner, hook) if hook else inner)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer that sets the hook while it commits."""
        return FaultyWriter(self.open_log, self.options, schema, overwrite)


class FaultyWriter(CommitLogStreamWriter):
    """Commits with the hook on."""

    def commit(self, messages: list[StagedMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Commit; one more step, named `returned`, is when all is done but Spark does not know it yet."""
        hook = _commits["now"] = hook_of(Path(os.environ[DIRECTORY]), batchId)
        try:
            super().commit(messages, batchId)
            hook("returned", "", "before")
        finally:
            del _commits["now"]


def write_plan(directory: Path, batch: int, step: int, moment: str) -> None:
    """Have the job killed in a batch's commit, before or after its `step`-th (from 1) mutating operation."""
    (directory / "plan").write_text(json.dumps({"batch": batch, "step": step, "moment": moment}))


def hook_of(directory: Path, batch: int) -> Hook:
    """Return a hook that traces mutating operations, and kills this job's process group where the plan says so."""
    plan, step = directory / "plan", 0

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal step
        if operation not in (*MUTATING, "returned"):
            return
        step += moment == "before"
        with (directory / "trace").open("a") as trace:
            trace.write(json.dumps([batch, step, moment, operation, path]) + "\n")
        if plan.exists() and json.loads(plan.read_text()) == {"batch": batch, "step": step, "moment": moment}:
            plan.unlink()
            os.killpg(int((directory / "group").read_text()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # Spark's Python workers have a group of their own

    return hook


def traced(directory: Path, batch: int) -> list[tuple[int, str, str, str]]:
    """Return (step, moment, operation, path) of the mutating operations of a batch's commit."""
    found = [json.loads(line) for line in (directory / "trace").read_text().splitlines()]
    return [(step, moment, operation, path) for at, step, moment, operation, path in found if at == batch]
