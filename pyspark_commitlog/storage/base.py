"""The one door to files, clocks and ids.

Contract (every implementation passes ``tests/contract``):

* Paths are relative to the root, with ``/``; a path never leaves the root.
* ``put_if_absent`` is atomic: the file appears with its full content or not at all, and at most one put at a
  path ever succeeds while the file exists. It makes no directory.
* What returned from ``put_if_absent``, ``write_once`` or ``OutputFile.close`` is there after power loss.
* ``write_once`` and ``create`` put a new file in the place of one that has the name (a rebuilt index): a process that
  has the old one mapped keeps it.
* ``FileNotFoundError`` and ``FileExistsError`` mean exactly what they say. Any other failure of ``put_if_absent``
  is *ambiguous* (it may have landed) unless it is a ``NotPutError``, ``StorageFullError`` or
  ``StorageReadOnlyError``.
* Nothing is cached: a listing or a read shows what is stored now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.storage.events import Events


_Result = TypeVar("_Result")

#: What the names of files under way begin with: nobody is shown them, or notified of them.
TEMPORARY = ".tmp-"


class NotPutError(StorageError):
    """``put_if_absent`` failed before anything could become visible: the file is certainly not there."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What storage knows of a file.

    ``modified_ms`` is the storage's own time. ``identity`` differs between two files that were put at one path
    one after the other, even with the same bytes (locally: inode and modification time, so at least a tick of the
    kernel's clock apart; nothing is collected that fast).

    The reply to a put may lack the time: ``modified_ms`` is -1 then. Where the time is a part of the identity, that
    lacks it too and ends with ``@``: the file's own is the same, followed by its ``modified_ms`` (in decimal).
    """

    size: int
    modified_ms: int
    identity: str


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, by the note that it left: for people, nothing rests on it.

    ``since_ms`` is the storage's time at which it got the lock. Where no note can be read ``host`` is empty.
    """

    host: str = ""
    pid: int = -1
    since_ms: int = -1

    def __str__(self) -> str:
        if not self.host:
            return "a process that left no note of itself"
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host}, since {since}"


class Clock(Protocol):
    """Wall and monotonic time; tests pass one that they move by hand."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, as the storage would stamp a file now."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class OutputFile(Protocol):
    """A new file that appears whole at ``close`` and is durable then; ``discard`` gives it up."""

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append ``pieces``, one after the other."""

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Make the file visible and (if asked) durable; return (length in bytes, CRC-32C)."""

    def discard(self) -> None:
        """Give up: nothing becomes visible."""


def write_whole(output: OutputFile, data: bytes) -> None:
    """Write a new file and close it; give it up where that fails, whatever raises."""
    try:
        output.write(data)
        output.close()
    except BaseException:
        output.discard()
        raise


class AppendFile(Protocol):
    """A file that one settler, under its lock, writes at its end (capability ``can_append``)."""

    def write_at(self, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
        """Write ``pieces`` one after the other from ``position``; return the position after them."""

    def truncate(self, length: int) -> None:
        """Cut or extend (with zeros) the file to ``length`` bytes."""

    def reserve(self, length: int) -> None:
        """Extend (with zeros) to ``length`` bytes, the disk for them reserved where the system can; never cut.

        Raises:
            StorageFullError: the file is as it was.
        """

    def sync(self) -> None:
        """Make what was written durable."""

    def close(self) -> None:
        """Close without syncing."""


class Options(dict[str, object]):
    """Storage options; their names alone are shown, for values may be secrets."""

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self))})"


class Storage(ABC):
    """A root on some filesystem."""

    #: Whether files can be appended to in place and locks hold while their holder lives (local disks only).
    can_append: bool
    #: Whether every look is a request to a server, which is billed: what a reply has said is not looked at once more.
    bills_requests: bool = False
    #: Whether calls have limits, so that each is made by another thread.
    has_limits: bool = False
    #: What the user called the root; for messages.
    url: str
    clock: Clock
    #: What put-if-absent rests on, where it has to be tried (``storage.race``): endpoint, client and version. Empty
    #: where it is known to be atomic.
    client: str = ""
    #: The roots that were named beside this one: any of them will do.
    others: tuple[str, ...] = ()
    #: What was given for URLs: other roots of this log that are URLs are opened with it.
    peer_options: Options | None = None
    #: The roots that belong together with this one, as this process knows them (``replicas.roots``).
    together: object = None
    #: Whether the root's marker says that one process alone may write: the store is not tried then.
    single_writer: bool = False

    @property
    def requests_at_once(self) -> int:
        """Return how many looks of one piece of work are under way at a time: one, unless each is a request."""
        return 1 if self.can_append else REQUESTS_AT_ONCE

    def expect_root(self) -> None:  # noqa: B027 most storage needs none
        """Have absence count only where the root's marker is, from now on: a disk that is not mounted looks empty.

        What is absent while the marker is too raises ``RootNotAvailableError``. Here nothing is done: a bucket that is
        gone says so.
        """

    def run_as_one_call(self, act: Callable[[], _Result], *, changes: bool = False) -> _Result:
        """Run successive calls as one, if each has a price.

        ``act`` may be called by another thread, which the caller waits for; ``changes``: whether it may change
        something in this root.
        """
        return act()

    def place(self) -> object:
        """Return what two roots have in common only if they are one directory; None where nothing is known."""
        return None

    def device(self) -> object:
        """Return what two roots have in common if they are lost together: a disk; None where nothing is known."""
        return None

    def peer(self, url: str) -> Storage:
        """Return the door to another root, with the options that were given for URLs; changes nothing."""
        from pyspark_commitlog.storage import open_peer

        return open_peer(url, self.peer_options if self.shares_options_with(url) else None, self.peer_options)

    def shares_options_with(self, url: str) -> bool:
        """Return whether another root takes the options that were given: of a bucket, one of the same kind of store."""
        return True

    @property
    def remedy(self) -> str:
        """What to do where this place can't hold a log, as a sentence."""
        return (
            f"Use a store that obeys If-None-Match (commitlog probe {self.url} tries it); or, where one process alone "
            "ever writes, make the root with the config unsafe.single.writer=true"
        )

    def fault(self, directory: str) -> str | None:
        """Return what else makes this place unfit for a log, tried in a directory of its own; None where nothing does.

        Asked where ``client`` says that put-if-absent has to be tried, after that was.

        Raises:
            StorageError: it can't be tried.
        """
        return None

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Create ``path`` with ``data``, atomically and durably.

        Returns:
            What the reply says of the file just put, if it says anything: see ``FileInfo``. None where only ``info``
            knows.

        Raises:
            FileExistsError: somebody was first.
            NotPutError, StorageFullError, StorageDeniedError: certainly not put.
            SyncFailedError: visible, but perhaps not durable.
            OSError: anything else is ambiguous.
        """

    @abstractmethod
    def write_once(self, path: str, data: bytes) -> None:
        """Write a uniquely named file whole and durably, making its directory if need be."""

    @abstractmethod
    def create(self, path: str) -> OutputFile:
        """Start a uniquely named file that is too large for memory, making its directory if need be."""

    @abstractmethod
    def open_append(self, path: str) -> AppendFile:
        """Open (or make) a file for writing in place. Needs ``can_append``."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return up to ``length`` bytes from ``start``; takes memory for those that are there, whatever is asked.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """Return up to ``length`` first bytes of a file and what storage knows of that very file.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return ``length`` bytes from ``start`` without copying where possible (fewer if the file is shorter)."""

    @abstractmethod
    def info(self, path: str) -> FileInfo:
        """Return what storage knows of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted, temporary ones left out; empty when it does not exist."""

    @abstractmethod
    def make_directory(self, directory: str) -> None:
        """Make a directory and its parents, durably."""

    @abstractmethod
    def sync_file(self, path: str) -> None:
        """Make the bytes of a file durable that was closed without; its name: see ``sync_directory``.

        Raises:
            FileNotFoundError: there is no such file.
            SyncFailedError: it may not survive power loss.
        """

    @abstractmethod
    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        """Make the names in a directory durable.

        Args:
            directory: its path.
            fresh: for a caller that acknowledges names that others made: hold also where their own sync failed and they
                know, which a sync alone may not (docs/explanation/design/failed-fsync.md). It needs to be allowed to
                write there.

        Raises:
            FileNotFoundError: there is no such directory.
            SyncFailedError: they may not survive power loss.
            StorageReadOnlyError: ``fresh`` by who may not write there.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; nothing happens when it is not there."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Remove a directory with all in it; nothing happens when it is not there."""

    @abstractmethod
    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        """Remove temporary files that a killed writer left, last written before a storage time; return how many."""

    @abstractmethod
    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Hold an exclusive lock for the block, if it is free now: yields whether it is held. Never waits.

        A process that gets it leaves a note for ``holder``.

        Raises:
            FileNotFoundError: its directory is not there (the disk is not mounted): it is not made.
        """

    def holder(self, path: str) -> Holder:
        """Return the holder of a lock that ``try_lock`` did not get; of one that is free, the last one."""
        return Holder()

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """Wait for one's turn to put into a directory, at most so long; yields whether it came. Never fails.

        Others may put all the same: it only keeps those who wait from losing races, and serves them in order. Here, and
        wherever locks can't be waited for, it never comes.
        """
        yield False

    def follow(self, events: Events, directory: str) -> int | None:
        """Have ``events`` report new files in a directory; return its number there, None where nothing reports them.

        Then a waiter has to look now and then.
        """
        return None

    def now_ms(self) -> int:
        """Return what storage's own time is at least, for a comparison with ``FileInfo.modified_ms``.

        On a local disk the clock's; elsewhere this machine's clock says nothing of it. It may take requests, a few in
        10 minutes. 0 where nothing is known.
        """
        return self.clock.now_ms()

    @abstractmethod
    def new_id(self) -> str:
        """Return a fresh uuid."""

    @abstractmethod
    def jitter(self) -> float:
        """Return a random number in [0, 1), for backoff."""

    def pause(self, tries: int, first: float, longest: float) -> None:
        """Wait before a request is tried again, twice as long as the time before, and not when others do.

        Args:
            tries: how many there were.
            first: a half of the longest wait after the first try, seconds.
            longest: that no wait is longer than, seconds.
        """
        self.clock.sleep(min(longest, first * 2**tries) * (0.5 + self.jitter() / 2))

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True
