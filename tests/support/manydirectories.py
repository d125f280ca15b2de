"""What directories that came and went leave in memory, in a process that does nothing else."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from pathlib import Path

from pyspark_commitlog.storage.local.local import LocalStorage


def remembered(root: str) -> int:
    """Return the bytes that 600 directories leave, after 300 that fill what is kept in any case."""
    made = LocalStorage(Path(root))

    def left_by(first: int, last: int) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(first, last):
            made.make_directory(f"topics/t{number}/journal")
            shutil.rmtree(Path(root) / f"topics/t{number}")
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    left_by(0, 300)
    return left_by(300, 900)
