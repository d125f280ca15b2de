"""No garbage collection while something is counted: finalizers of what earlier tests left would count, too."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect, then not again before the block's end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
