"""Arrow's memory, counted."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def counting_pool() -> pa.MemoryPool:
    """Return a pool that is never freed: what is cached while it is the default frees its memory at the process's end."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool
