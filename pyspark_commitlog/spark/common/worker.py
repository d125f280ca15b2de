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
from pyspark_commitlog.storage.sockets import acknowledge_between_tasks

_Rows = TypeVar("_Rows")
#: As spark.executor.pyspark.memory: writes and reads of rows of 1 KB in batches of 10,000 passed with it.
MEMORY_NEEDED = "512m"

_tasks = 0
#: Numbers of tasks where the engine gives none.
_numbers = count()


def enter_task() -> int:
    """Return the number of the task's Spark partition.

    Sail gives none: its tasks, threads of one process, get the next numbers, so that they do not all begin with the
    same partition of the topic.

    Spark's daemon runs a full garbage collection after every task of a worker that it keeps (``pyspark.daemon``), and
    the next task waits for it: most of a small task's time goes into walking modules that never change. So what is
    there when the second task starts (the first one's garbage is collected by then) is left out from then on.

    The memory of a batch that came from Spark is kept for the next one. Spark's socket, where it is one of TCP,
    acknowledges at once from the next task on.
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
    """Name Spark's setting if the task's memory was used up that it limits.

    Raises:
        OptionError: the setting, its value and a larger one.
    """
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
    """Yield the rows that a task reads; raises what ``memory_explained`` does."""
    with memory_explained():
        yield from rows
