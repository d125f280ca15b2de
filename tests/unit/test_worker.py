"""What a task changes in Spark's Python worker, tried in processes of their own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.common import worker

_BEGIN = """
import gc, resource, sys
from pyspark import TaskContext
from pyspark_commitlog.spark.common.worker import enter_task

class Context:
    def partitionId(self):
        return 3

TaskContext.get = Context if sys.argv[1] == "in Spark" else lambda: None
"""
#: Prints the Spark partition of each task, and whether the collector passes over more than at first (some, on Python 3.12).
_TASKS = """
first = gc.get_freeze_count()
for _ in range(3):
    print(enter_task(), gc.get_freeze_count() > first)
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
#: Prints the bytes of address space that four threads take, beside what they hold.
_THREADS = """
import threading
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
enter_task()
threading.stack_size(2**18)

def space():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

begun, held, ended = threading.Barrier(5), [], threading.Event()

def hold():
    held.append(bytes(2000))
    begun.wait()
    ended.wait()

before = space()
for _ in range(4):
    threading.Thread(target=hold).start()
begun.wait()
print(space() - before)
ended.set()
"""
_ARENA_BYTES = 64 * 2**20
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_threads_reserve_no_address_space_that_is_limited() -> None:
    """`spark.executor.pyspark.memory` limits it."""
    (taken,) = told(_THREADS, "in Spark")
    assert int(taken) < _ARENA_BYTES


def test_memory_that_is_used_up_names_spark_s_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "address_space", lambda: 384 * 2**20)
    with pytest.raises(OptionError, match=r"384 MiB of address space \(spark.executor.pyspark.memory\).*Give 512m"):
        list(worker.read_explained(_used_up()))


def test_memory_that_nothing_limits_is_an_error_of_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "address_space", lambda: None)
    with pytest.raises(MemoryError):
        list(worker.read_explained(_used_up()))


def _used_up() -> Iterator[int]:
    yield 1
    raise pa.ArrowMemoryError("malloc of size 10800000 failed")
