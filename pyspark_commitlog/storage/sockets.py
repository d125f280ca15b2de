"""Acknowledgements on the socket between Spark's JVM and a Python worker, sent at once from one task to the next.

Over TCP the JVM sends a task's context, then its partition. Nagle's algorithm holds back the second until the first is
acknowledged, which a kernel delays by 40 ms if nothing is sent back. Linux has ``TCP_QUICKACK`` for that, which lasts
until the next answer only: it has to be set before each task, when no code of ours runs. Spark's daemon collects
garbage there (``pyspark.daemon``), and Python calls back after a collection.
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

#: Descriptors of Spark's socket while a task runs: the daemon's, and a copy to read from and one to write to.
_DESCRIPTORS = 3
_FULL_COLLECTION = 2


class _QuickAck:
    """Sets the option after each full collection, on one connection.

    Args:
        inode: of the connection: a descriptor that leads elsewhere by now is passed over.
        descriptors: of which at least one stays open between tasks. None is duplicated.
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
    """Have Spark's socket acknowledge at once from now on; return whether it was found. To be called in a task, once.

    Nothing where Spark uses Unix sockets, where this is not Linux, or where it is not certain which socket is Spark's.
    """
    if sys.platform != "linux" or os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true":
        return False
    found = _shared_connections()
    if len(found) != 1:
        return False
    gc.callbacks.append(_QuickAck(*found.popitem()))
    return True


def _shared_connections() -> dict[int, list[int]]:
    """Return the TCP connections within this machine that have as many descriptors as Spark's, by inode."""
    sockets: dict[int, list[int]] = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                sockets.setdefault(status.st_ino, []).append(int(name))
    shared = {inode: fds for inode, fds in sockets.items() if len(fds) == _DESCRIPTORS}
    return {inode: sorted(fds) for inode, fds in shared.items() if _with_socket(fds[0], _is_local_tcp)}


def _with_socket(descriptor: int, act: Any) -> Any:
    """Call a function with a socket object of a descriptor, which stays open."""
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
    except OSError:  # it listens, or is not connected any more
        return False


def _acknowledge(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
