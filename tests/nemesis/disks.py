"""Disks that can be taken away, filled, made read-only, set back and damaged.

They are file systems in memory, in a mount namespace of one's own.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_SIZE_BYTES = 256 * 2**20
_ZEROS = bytes(2**20)
#: A disk that a process writes to can't be made read-only at that moment.
_TRIES = 50
INSIDE = "NEMESIS_INSIDE"


def enter_namespace(module: str, arguments: list[str]) -> None:
    """Run the module again where mounts are seen by nobody else, and go with the last process.

    Raises:
        SystemExit: neither root nor a user namespace may mount here.
    """
    if os.environ.get(INSIDE):
        return
    unshare = namespace_command()
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, "-m", module, *arguments])


def namespace_command() -> list[str]:
    """Return the words before a command that run it in a mount namespace of its own.

    Raises:
        SystemExit: neither root nor a user namespace may mount here.
    """
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    tried = subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if tried.returncode != 0:
        sys.exit(
            "This needs file systems of its own, and can't mount any here: run it as root, or allow user "
            f"namespaces (`{' '.join(unshare)} mount -t tmpfs tmpfs /mnt` says: {tried.stderr.strip()})"
        )
    return unshare


class Disk:
    """A file system of its own, seen at `place` while it is there. `faults` are what `begin` takes.

    Args:
        home: a directory, for all disks, and for the marks of those that are slow, or hang: processes go by them.
        name: of the disk.
    """

    faults = frozenset({"away", "full", "read only", "slow", "hang"})

    def __init__(self, home: Path, name: str) -> None:
        self.name, self.place, self._home = name, home / name, home
        self._backing = home / "disks" / name
        self._filler = self._backing / "filler"
        self._whole = self._backing / "whole"
        self._copy = home / "copies" / name
        for directory in (self.place, self._backing, self._copy.parent):
            directory.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(self._backing))
        self._whole.mkdir()
        self.give_back()

    def begin(self, what: str) -> bool:
        """Have one of `faults` begin; False where it can't at this moment."""
        match what:
            case "away":
                self.take_away()
            case "full":
                self._fill()
            case "read only":
                return _tried(lambda: run("mount", "-o", "remount,bind,ro", str(self.place)))
            case _:
                (self._home / f"{what}-{self.name}").touch()
        return True

    def end(self, what: str) -> None:
        """Undo `begin`."""
        match what:
            case "away":
                self.give_back()
            case "full":
                self._filler.unlink(missing_ok=True)
            case "read only":
                run("mount", "-o", "remount,bind,rw", str(self.place))
            case _:
                (self._home / f"{what}-{self.name}").unlink()

    def take_away(self) -> None:
        """Take it away: an empty directory is left. Processes that have files open go on writing to them."""
        run("umount", "--lazy", str(self.place))

    def give_back(self) -> None:
        """Give it back as it is."""
        run("mount", "--bind", str(self._whole), str(self.place))

    def strays(self) -> list[str]:
        """Take it away, and return the files below: what was written while it was not there."""
        self.take_away()
        found = [str(path.relative_to(self.place)) for path in sorted(self.place.rglob("*")) if path.is_file()]
        self.give_back()
        return found

    def _fill(self) -> None:
        """Leave no room on it."""
        with suppress(OSError), open(self._filler, "ab", buffering=0) as file:
            while True:
                file.write(_ZEROS)

    # --- what it holds -------------------------------------------------------------------------------

    @property
    def content(self) -> Path:
        """Where its root is, also while it is away."""
        return self._whole

    def copy(self) -> None:
        """Keep a copy of what is on it; nothing may change meanwhile."""
        shutil.rmtree(self._copy, ignore_errors=True)
        run("cp", "-a", str(self._whole), str(self._copy))

    def set_back(self) -> bool:
        """Have it hold what was copied, in files of their own; False where there is no copy. It is to be away."""
        if not self._copy.exists():
            return False
        self._clear()
        self._put_back()
        return True

    def _put_back(self) -> None:
        run("cp", "-a", str(self._copy), str(self._whole))

    def clear(self) -> bool:
        """Have an empty one in its place, of which there is no copy. It is to be away."""
        self._clear()
        shutil.rmtree(self._copy, ignore_errors=True)
        self._whole.mkdir()
        return True

    def _clear(self) -> None:
        """Remove what is on it; who has files open goes on with those."""
        gone = self._backing / "gone"
        self._whole.rename(gone)
        shutil.rmtree(gone)

    def files(self, *patterns: str) -> list[str]:
        """Return the files with content whose names, from the root on, are of one of these patterns."""
        found = {path for pattern in patterns for path in self.content.glob(pattern)}
        return sorted(str(path.relative_to(self.content)) for path in found if path.is_file() and path.stat().st_size)

    def newest(self, topic: str) -> int:
        """Return the number of the newest entry of a topic on it; 0 where there is none."""
        entries = self.content.glob(f"topics/{topic}/journal/*.json")
        return max((int(path.stem) for path in entries if path.stem.isdigit()), default=0)

    def flip(self, file: str, chance: random.Random) -> None:
        """Flip a bit of a file, in place."""
        with open(self.content / file, "r+b") as opened:
            at = chance.randrange(os.fstat(opened.fileno()).st_size)
            (byte,) = os.pread(opened.fileno(), 1, at)
            os.pwrite(opened.fileno(), bytes([byte ^ 1 << chance.randrange(8)]), at)

    def leave(self) -> None:
        """Leave it: it goes with the namespace."""

    def save(self, target: Path) -> None:
        """Copy what is on it."""
        shutil.copytree(self.content, target)


def _tried(act: Callable[[], None]) -> bool:
    for _ in range(_TRIES):
        try:
            act()
            return True
        except subprocess.CalledProcessError:
            time.sleep(0.02)
    return False


def run(*words: str) -> None:
    """Run a command that succeeds."""
    subprocess.run(words, check=True, capture_output=True)
