"""What a task changes in Spark's Python worker, tried in processes of their own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_BEGIN = """
import gc, resource, sys
from pyspark import TaskContext
from pyspark_commitlog.spark.common.worker import enter_task

class Context:
    def partitionId(self):
        return 3

TaskContext.get = Context if sys.argv[1] == "in Spark" else lambda: None
"""
#: Prints the Spark partition of each task, and whether the collector passes anything over.
_TASKS = """
for _ in range(3):
    print(enter_task(), gc.get_freeze_count() > 0)
"""
#: Prints the pages that the last of ten times as many batches needed.
_BATCHES = """
enter_task()
for _ in range(10):
    began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytes([n]) * 2**23 for n in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began)
"""
_BATCHES_PAGES = 4 * 2**23 // os.sysconf("SC_PAGESIZE")


def told(script: str, where: str, **environment: str) -> list[str]:
    """Return what a process printed that is, or is not, a worker of Spark's."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", _BEGIN + script, where]
    return subprocess.run(
        command, env=known | environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_collector_passes_over_what_was_there_when_the_second_task_started() -> None:
    assert told(_TASKS, "in Spark") == ["3 False", "3 True", "3 True"]


def test_a_process_that_is_no_worker_of_spark_s_stays_as_it_is_and_its_tasks_are_counted() -> None:
    """Sail's tasks are threads of its server, without a number: tasks of equal numbers would crowd one partition."""
    assert told(_TASKS, "elsewhere") == ["0 False", "1 False", "2 False"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_memory_that_batches_gave_back_is_kept() -> None:
    """But not where the user wants it otherwise."""
    (kept,) = told(_BATCHES, "in Spark")
    (otherwise,) = told(_BATCHES, "in Spark", MALLOC_TRIM_THRESHOLD_="131072")
    assert int(kept) < _BATCHES_PAGES // 10
    assert int(otherwise) > _BATCHES_PAGES // 2
