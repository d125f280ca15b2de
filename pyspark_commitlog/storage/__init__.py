"""The one door to storage: ``open_storage`` picks the implementation for a root's URL.

An implementation is imported when a root is opened: a Python process that Spark starts to check options needs none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from pyspark_commitlog.errors import UnsupportedError, UsageError
from pyspark_commitlog.storage.base import (
    TEMPORARY,
    AppendFile,
    Clock,
    FileInfo,
    Holder,
    NotPutError,
    OutputFile,
    Storage,
)
from pyspark_commitlog.storage.process import process_name

__all__ = [
    "TEMPORARY",
    "AppendFile",
    "Clock",
    "FileInfo",
    "Holder",
    "NotPutError",
    "OutputFile",
    "Storage",
    "environment",
    "open_storage",
    "process_name",
]


_LOCAL_PROTOCOLS = ("file", "local")
_OBJECT_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
#: ``bootstrap.servers``: ``host:port``, several of them with commas.
_BROKERS = re.compile(r"[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*")


def environment(name: str) -> str | None:
    """Return an environment variable; None where it is not set, or empty."""
    return os.environ.get(name) or None


def open_storage(root: str, storage_options: Mapping[str, object] | None = None) -> Storage:
    """Return the door to ``root``; touches nothing.

    Args:
        root: a path, or a URL: ``file://``, ``s3://``, ``gs://``, ``az://``, ``abfs://``, ``memory://``.
        storage_options: as the fsspec filesystem for the URL takes them (``key``, ``secret``, ``endpoint_url``, …).

    Raises:
        UsageError: no root was given, options for a path, or a URL without a bucket.
        UnsupportedError: a filesystem whose put-if-absent is not known to be atomic here; or Windows.
    """
    if sys.platform == "win32":
        raise UnsupportedError(
            f"cannot open {root!r}: this package works with files as Linux does, and not on Windows itself. Run Python "
            "in WSL (Windows Subsystem for Linux: wsl --install), with the root on its own disk"
        )
    from pyspark_commitlog.storage.local import LocalStorage

    if not root:
        raise UsageError("no root given: name the directory of the commit log, for example /data/commitlog")
    if "://" not in root and not root.startswith("file:"):
        _refuse_addresses(root)
        if storage_options:
            raise UsageError(
                f"storage options {', '.join(sorted(storage_options))} are for the filesystem of a URL, and {root!r} "
                "is a path: leave them out"
            )
        return LocalStorage(root)
    protocol = root.partition(":")[0]
    if protocol in _OBJECT_PROTOCOLS:
        from pyspark_commitlog.storage.object_store import ObjectStorage

        return ObjectStorage(root, storage_options)
    if protocol not in _LOCAL_PROTOCOLS:
        raise UnsupportedError(
            f"{protocol}:// is not supported by this version (root {root!r}): use s3://, gs://, az:// or abfs://, or a "
            "local directory"
        )
    from fsspec.core import url_to_fs

    try:
        _, path = url_to_fs(root, **dict(storage_options or {}))
    except (ImportError, ValueError) as error:
        raise UnsupportedError(f"cannot open {root!r}: {error}") from error
    return LocalStorage(path)


def _refuse_addresses(root: str) -> None:
    """Refuse what names brokers, unless there is a directory of that name."""
    if _BROKERS.fullmatch(root) and not os.path.isdir(root):
        raise UsageError(
            f"{root!r} is the address of a Kafka broker, and here is none: name the directory of the commit log, for "
            f"example /data/commitlog (a directory of that very name: ./{root})"
        )
