"""Copies of a root, and the ways in which people put them back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Snapped:
    """A file as a snapshot has it: its inode, held by another link, its bytes and times."""

    link: Path
    data: bytes
    times: tuple[int, int]


class Copy:
    """A copy of a root as it was when this was made.

    Args:
        root: the root.
        aside: a directory that is not there yet, on the same disk.
    """

    def __init__(self, root: Path, aside: Path) -> None:
        self.root, self._copy, self._links = root, aside / "copy", aside / "links"
        shutil.copytree(root, self._copy)
        self._snapshot: dict[Path, _Snapped] = {}
        self._links.mkdir()
        for number, path in enumerate(_files(root)):
            link, found = self._links / str(number), path.stat()
            os.link(path, link)
            times = (found.st_atime_ns, found.st_mtime_ns)
            self._snapshot[path.relative_to(root)] = _Snapped(link, path.read_bytes(), times)

    def copied(self, between: Callable[[], object] = lambda: None) -> None:
        """`rm -rf root; cp -a copy root`: new inodes, times of before."""
        shutil.rmtree(self.root)
        between()
        shutil.copytree(self._copy, self.root)

    def one_topic(self, name: str = "t") -> None:
        """Put one topic's directory back: groups and other topics stay."""
        shutil.rmtree(self.root / "topics" / name)
        shutil.copytree(self._copy / "topics" / name, self.root / "topics" / name)

    def synchronised(self) -> None:
        """`rsync -a --delete copy/ root`: files that differ in size or time are written aside and renamed."""
        for path in _files(self._copy):
            there = self.root / path.relative_to(self._copy)
            if _looks(there) != _looks(path):
                there.parent.mkdir(parents=True, exist_ok=True)
                aside = there.with_name(f".{there.name}.rsync")
                shutil.copy2(path, aside)
                aside.replace(there)
        self._delete_others({path.relative_to(self._copy) for path in _files(self._copy)})

    def rolled_back(self) -> None:
        """Roll a snapshot of the disk back: every file of then, with its inode, bytes and times, and no other."""
        self._delete_others(set(self._snapshot))
        for name, snapped in self._snapshot.items():
            path = self.root / name
            if not path.exists() or not path.samefile(snapped.link):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                os.link(snapped.link, path)
            if path.read_bytes() != snapped.data:
                path.write_bytes(snapped.data)
            os.utime(path, ns=snapped.times)

    def _delete_others(self, names: set[Path]) -> None:
        for path in list(_files(self.root)):
            if path.relative_to(self.root) not in names:
                path.unlink()
        for directory, _, _ in os.walk(self.root, topdown=False):
            there = self._copy / Path(directory).relative_to(self.root)
            if not there.exists():
                Path(directory).rmdir()


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def _looks(path: Path) -> tuple[int, int] | None:
    """Return what rsync compares."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns
