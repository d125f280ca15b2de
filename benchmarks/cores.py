"""What the cores of this machine do meanwhile: seconds by process and kind of thread, from /proc."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASKS, TASKS_KERNEL = "JVM tasks", "JVM tasks: in the kernel (socket, files, page faults)"
COMPILERS, JVM_REST, PYTHON, OTHERS, IDLE = "JVM: compilers", "JVM: the rest", "Python", "other processes", "idle"
_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_IDLE_FIELDS = (3, 4)  # idle, iowait


@dataclass(frozen=True)
class _Process:
    """A line of `stat`, of a process or a thread: seconds in user code and in the kernel, without children."""

    name: str
    parent: int
    user: float
    kernel: float

    @classmethod
    def of(cls, directory: Path) -> _Process:
        before, _, after = (directory / "stat").read_text().rpartition(")")
        fields = after.split()
        return cls(before.partition("(")[2], int(fields[1]), int(fields[11]) / _SECOND, int(fields[12]) / _SECOND)


def spent() -> Counter[str]:
    """Return the seconds that this machine's cores have spent, by what; ours are this process and its descendants.

    Take it before and after, and subtract. Processes that end in between count as others.
    """
    total = [int(field) / _SECOND for field in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    found = Counter({IDLE: sum(total[field] for field in _IDLE_FIELDS)})
    for pid, process in _ours():
        found.update(_java(pid, process) if process.name == "java" else {PYTHON: process.user + process.kernel})
    found[OTHERS] = sum(total) - found.total()
    return found


def _ours() -> Iterator[tuple[int, _Process]]:
    every: dict[int, _Process] = {}
    for directory in _PROC.iterdir():
        if directory.name.isdecimal():
            try:
                every[int(directory.name)] = _Process.of(directory)
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
    known = {os.getpid()}
    while more := {pid for pid, process in every.items() if process.parent in known} - known:
        known |= more
    return ((pid, every[pid]) for pid in known)


def _java(pid: int, process: _Process) -> Counter[str]:
    found = Counter[str]()
    for directory in (_PROC / str(pid) / "task").iterdir():
        try:
            thread = _Process.of(directory)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if thread.name.startswith("Executor task"):
            found.update({TASKS: thread.user, TASKS_KERNEL: thread.kernel})
        elif "CompilerThre" in thread.name:
            found[COMPILERS] += thread.user + thread.kernel
    found[JVM_REST] = process.user + process.kernel - found.total()
    return found
