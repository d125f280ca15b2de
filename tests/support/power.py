"""A disk that loses names: a directory's fsync fails once, later ones succeed, and power loss shows what they wrote.

As Linux does on a filesystem without a journal, the worst that there is: a failed fsync is told once, and the changes
that it did not write count as written. The next fsync writes the directory only if it was changed since.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.syscalls import CHANGING, telling

_NAMING = ("link", "mkdir", "open", "rename", "rmdir", "unlink")


@dataclass
class Disk:
    """What of a root's names is on the disk."""

    root: Path
    failing: str = ""
    written: dict[Path, set[str]] = field(default_factory=dict)
    changed: set[Path] = field(default_factory=set)
    failed: int = 0
    fsyncs: int = 0

    def fail_next(self, directory: str) -> None:
        """Let the next fsync of a directory that ends so fail."""
        self.failing = directory

    def told(self, name: str, path: str) -> None:
        """Take note of a system call."""
        there = os.path.lexists(path)
        if (name == "unlink" and not there) or (name == "open" and (there or not os.path.isdir(os.path.dirname(path)))):
            return
        if name in _NAMING:
            parent = Path(os.path.abspath(path)).parent
            self.changed.add(parent)
            self.written.setdefault(parent, names(parent))  # as it was before the first change
        elif name == "fsync":
            self.fsyncs += 1
            if os.path.isdir(path):
                self._synced(Path(path))

    def _synced(self, directory: Path) -> None:
        changed = directory in self.changed
        self.changed.discard(directory)
        if self.failing and str(directory).endswith(self.failing):
            self.failing = ""
            self.failed += 1
            self.written.setdefault(directory, names(directory))
            raise OSError(errno.EIO, "injected")
        if changed or directory not in self.written:
            self.written[directory] = names(directory)

    def lose_power(self) -> list[str]:
        """Remove the names that are not on the disk; return them."""
        lost = []
        for directory, kept in self.written.items():
            for name in sorted(names(directory) - kept):
                (directory / name).unlink()
                lost.append(str((directory / name).relative_to(self.root)))
        return lost


def names(directory: Path) -> set[str]:
    """Return the names of the files in a directory; none if it is not there."""
    return {found.name for found in directory.iterdir() if found.is_file()} if directory.is_dir() else set()


@contextmanager
def losing(root: Path) -> Iterator[Disk]:
    """Watch a root's names; those that are there are on the disk."""
    disk = Disk(root)
    with telling(disk.told, (*CHANGING, "open")):
        yield disk
