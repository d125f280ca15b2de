"""What a task changes in Spark's Python worker, tried in processes of their own."""

from __future__ import annotations

import subprocess
import sys

_TASKS = """
import gc, sys
from pyspark import TaskContext
from pyspark_commitlog.spark.worker import enter_task

class Context:
    def partitionId(self):
        return 3

TaskContext.get = Context if sys.argv[1] == "in Spark" else lambda: None
for _ in range(3):
    print(enter_task(), gc.get_freeze_count() > 0)
"""


def tasks(where: str) -> list[str]:
    """Return what three tasks of one process found: their partition, and whether the collector passes modules over."""
    done = subprocess.run([sys.executable, "-c", _TASKS, where], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_collector_passes_over_what_was_there_when_the_second_task_started() -> None:
    assert tasks("in Spark") == ["3 False", "3 True", "3 True"]


def test_a_process_that_is_no_task_stays_as_it_is() -> None:
    assert tasks("elsewhere") == ["0 False"] * 3
