"""First steps of every task in Spark's Python worker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from pyspark import TaskContext

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.storage.process import address_space, keep_freed_memory
from pyspark_commitlog.storage.shared.sockets import acknowledge_between_tasks

_Rows = TypeVar("_Rows")
#: Advised spark.executor.pyspark.memory: writes and reads of 1 KB rows in batches of 10,000 passed with it.
MEMORY_NEEDED = "512m"

_tasks = 0
#: Task numbers if the engine gives none.
_numbers = count()


def enter_task() -> int:
    """Prepare the worker for a task and return its Spark partition number.

    Sail gives none: its tasks, threads of one process, get consecutive numbers, to begin with different partitions.

    Spark's daemon collects garbage between tasks of a reused worker (`pyspark.daemon`). Objects alive at the second
    task are frozen, so collections skip them.
    """
    global _tasks
    context = TaskContext.get()
    if context is None:
        return next(_numbers)
    _tasks += 1
    if _tasks == 1:
        keep_freed_memory()
        acknowledge_between_tasks()
    if _tasks == 2:
        gc.freeze()
    return int(context.partitionId())


@contextmanager
def memory_explained() -> Iterator[None]:
    """Name Spark's memory setting if a task exhausts its limit."""
    try:
        yield
    except MemoryError as error:
        limit = address_space()
        if limit is None:
            raise
        raise OptionError(
            f"a task's Python process may take {limit >> 20} MiB of address space (spark.executor.pyspark.memory), and "
            f"these are used up: Python and Arrow alone take about 340. Give {MEMORY_NEEDED} or more, or unset it"
        ) from error


def read_explained(rows: Iterator[_Rows]) -> Iterator[_Rows]:
    """Yield a task's rows, with `memory_explained`."""
    with memory_explained():
        yield from rows
