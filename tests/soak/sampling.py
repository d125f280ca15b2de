"""Looks at processes, by /proc, and at the files of topics."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from tests.soak.judge import Stored, Usage

#: Of Spark's Java the pools of 100 threads each that its cleaner has remove what a garbage collection found unused, with
#: every collection a burst of them, which end after a minute: what their threads' names begin with, as the system has them.
POOLS = ("block-manager-a", "block-manager-s")  # block-manager-ask-thread-pool, block-manager-storage-async-thread-pool


def usage(pids: Iterable[int]) -> Usage | None:
    """Return what some processes use together; None when none of them is there."""
    found = [each for pid in pids if (each := _usage(pid)) is not None]
    if not found:
        return None
    return Usage(*(sum(each) for each in zip(*(astuple(u) for u in found), strict=True)))


def _usage(pid: int) -> Usage | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fds = len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines())
    if "VmRSS" not in fields:  # a zombie
        return None
    pooled = _pooled(pid)
    return Usage(int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]) - pooled, fds, pooled)


def _pooled(pid: int) -> int:
    """Return how many threads of a process are of `POOLS`."""
    found = 0
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended
            found += path.read_text().startswith(POOLS)
    return found


def below(pid: int) -> dict[int, str]:
    """Return the processes that a process started, and those that they did: id -> name."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (path / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(tail.split()[1]), []).append(int(path.name))
        names[int(path.name)] = head.partition("(")[2]
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            found[child] = names[child]
            waiting.append(child)
    return found


def processes(roles: Mapping[str, int]) -> dict[str, Usage]:
    """Return what each role's process uses; of Spark's its Java and all of its Python workers too."""
    found = {}
    for role, pid in roles.items():
        parts = {role: [pid]}
        if role == "spark":
            children = below(pid)
            parts["spark: Java"] = [child for child, name in children.items() if name == "java"]
            parts["spark: workers"] = [child for child, name in children.items() if name.startswith("python")]
        found |= {name: each for name, pids in parts.items() if (each := usage(pids)) is not None}
    return found


def stored(root: Path, topic: str) -> Stored:
    """Return the entries and the bytes of a topic."""
    entries = size = 0
    for directory, _, names in os.walk(root / "topics" / topic):
        if os.path.basename(directory) in ("journal", "settle"):
            entries += sum(name.endswith(".json") for name in names)
        for name in names:
            try:
                size += os.stat(os.path.join(directory, name)).st_blocks * 512
            except FileNotFoundError:  # collected meanwhile
                continue
    return Stored(entries, size)
