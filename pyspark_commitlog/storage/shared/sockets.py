"""TCP quick acknowledgements between Spark's JVM and a Python worker.

The JVM sends a task's context, then its partition, which Nagle's algorithm holds back until the kernel's
acknowledgement, 40 ms later. `TCP_QUICKACK` lasts until the next reply, so a callback of the garbage collection of
Spark's daemon (`pyspark.daemon`) sets it before each task.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

#: Descriptors of Spark's socket during a task: the daemon's, one to read and one to write.
_DESCRIPTORS = 3
_FULL_COLLECTION = 2


class _QuickAck:
    """GC callback that sets the option on a connection after full collections.

    `descriptors` are not duplicated; those no longer of `inode` are skipped.
    """

    def __init__(self, inode: int, descriptors: list[int]) -> None:
        self._inode, self._descriptors = inode, descriptors

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != _FULL_COLLECTION:
            return
        for descriptor in self._descriptors:
            with suppress(OSError):
                if os.fstat(descriptor).st_ino == self._inode:
                    _with_socket(descriptor, _acknowledge)
                    return


def acknowledge_between_tasks() -> bool:
    """Enable quick acknowledgements on Spark's socket; return success.

    Call once, in a task. Only on Linux, with TCP and an unambiguous socket.
    """
    if sys.platform != "linux" or os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true":
        return False
    found = _shared_connections()
    if len(found) != 1:
        return False
    gc.callbacks.append(_QuickAck(*found.popitem()))
    return True


def _shared_connections() -> dict[int, list[int]]:
    """Local TCP connections with as many descriptors as Spark's, by inode."""
    sockets: dict[int, list[int]] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                sockets.setdefault(status.st_ino, []).append(int(name))
    shared = {inode: fds for inode, fds in sockets.items() if len(fds) == _DESCRIPTORS}
    return {inode: sorted(fds) for inode, fds in shared.items() if _with_socket(fds[0], _is_local_tcp)}


def _with_socket(descriptor: int, act: Any) -> Any:
    opened = socket.socket(fileno=descriptor)
    try:
        return act(opened)
    finally:
        opened.detach()


def _is_local_tcp(opened: socket.socket) -> bool:
    if opened.family not in (socket.AF_INET, socket.AF_INET6) or opened.type != socket.SOCK_STREAM:
        return False
    try:
        return bool(opened.getpeername()[0] in ("127.0.0.1", "::1"))
    except OSError:  # listening or disconnected
        return False


def _acknowledge(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
