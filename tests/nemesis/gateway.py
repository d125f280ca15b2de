"""A root's place in a bucket of a real S3 server, versitygw, whose files lie on a disk of its own.

What befalls the disk befalls the server's files: it is full, read-only, set back, emptied, or a bit of it flips. Away is
a server that was killed, hanging one that was stopped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.nemesis.disks import Disk, run
from tests.object_stores.servers import ServerMissingError, Versitygw, program

BUCKET, PREFIX = "nemesis", "log"


def is_installed() -> bool:
    """Return whether the server's program is there."""
    try:
        program("bin/versitygw", Versitygw.name)
    except ServerMissingError:
        return False
    return True


class _Server(Versitygw):
    """The server on a directory that is there already."""

    def __init__(self, home: Path, data: Path) -> None:
        super().__init__(home)
        self._data = data

    @property
    def data(self) -> Path:
        """See `Versitygw.data`."""
        return self._data


class Gateway(Disk):
    """A disk that is seen through a server; see `Disk`."""

    faults = frozenset(Disk.faults - {"slow"})

    def __init__(self, home: Path, name: str) -> None:
        self._server = _Server(home / "servers" / name, home / name)
        super().__init__(home, name)

    @property
    def url(self) -> str:
        """Where the root is."""
        return f"s3://{BUCKET}/{PREFIX}/{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` of clients."""
        return self._server.bucket(BUCKET).options

    @property
    def content(self) -> Path:
        """See `Disk.content`."""
        return self._whole / BUCKET / PREFIX / self.name

    def take_away(self) -> None:
        """Kill the server: who waits for a reply gets none."""
        self._server.stop()
        super().take_away()

    def give_back(self) -> None:
        """Start the server on what is there."""
        super().give_back()
        self._server.start()
        if not (self._whole / BUCKET).exists():
            self._server.create(BUCKET)

    def begin(self, what: str) -> bool:
        """See `Disk.begin`; a server hangs that was stopped."""
        if what != "hang":
            return super().begin(what)
        os.kill(self._server.pid, signal.SIGSTOP)
        return True

    def end(self, what: str) -> None:
        """See `Disk.end`."""
        if what != "hang":
            super().end(what)
        else:
            os.kill(self._server.pid, signal.SIGCONT)

    def strays(self) -> list[str]:
        """Return nothing: nobody but the server sees the disk."""
        return []

    def _put_back(self) -> None:
        """Put the copy's files anew, as objects that are put again: a store shows other times of them."""
        run("cp", "-r", "--preserve=xattr", str(self._copy), str(self._whole))

    def leave(self) -> None:
        """End the server."""
        self._server.stop()
