"""Storage interface: the only access to files, clocks, ids and locks.

Contract (every implementation passes `tests/contract`):

* Paths are relative to the root, with `/`, and never leave it.
* `put_if_absent` is atomic: the file appears whole or not at all, and at most one put at a path succeeds while the
  file exists. It makes no directory.
* After `put_if_absent`, `write_once` or `OutputFile.close` returned, the file survives power loss.
* `write_once` and `create` replace an existing file (a rebuilt index); processes that mapped the old one keep it.
* `FileNotFoundError` and `FileExistsError` are certain. Any other failure of `put_if_absent` is *ambiguous* (it
  may have landed) except `NotPutError`, `StorageFullError` and `StorageDeniedError`.
* Nothing is cached: listings and reads show the current state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.storage.clock import Backoff, Clock
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.storage.events import Events


_Result = TypeVar("_Result")

#: Prefix of unfinished files: neither listed nor reported.
TEMPORARY = ".tmp-"


class NotPutError(StorageError):
    """`put_if_absent` failed before the file could become visible."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Size, time and identity of a file.

    Attributes:
        modified_ms: By storage's clock; -1 if unknown (after a put).
        identity: Differs between successive files at one path, even of equal bytes (locally: inode and time). If it
            includes the time and that is unknown, it ends with `@`; the full one appends `modified_ms`.
    """

    size: int
    modified_ms: int
    identity: str


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, from its note; for display only.

    `host` is empty without a readable note; `since_ms` is storage time.
    """

    host: str = ""
    pid: int = -1
    since_ms: int = -1

    def __str__(self) -> str:
        if not self.host:
            return "a process that left no note of itself"
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host}, since {since}"


class OutputFile(Protocol):
    """A new file that appears, whole and durable, at `close`."""

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append `pieces` in order."""

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Publish the file, durably if asked; return (length in bytes, CRC-32C)."""

    def discard(self) -> None:
        """Drop the file; nothing becomes visible."""


def write_whole(output: OutputFile, data: bytes, *, durable: bool = True) -> None:
    """Write a new file and close it; discard it on any error."""
    with call_on_error(output.discard):
        output.write(data)
        output.close(durable=durable)


class AppendFile(Protocol):
    """A file that a settler extends in place (`can_append`)."""

    def write_at(self, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
        """Write `pieces` in order from `position`; return the end position."""

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file to `length` bytes."""

    def reserve(self, length: int) -> None:
        """Zero-extend to `length` bytes, on reserved disk if possible; never cut.

        Raises:
            StorageFullError: the file is unchanged.
        """

    def sync(self) -> None:
        """Make written bytes durable."""

    def close(self) -> None:
        """Close without syncing."""


class Options(dict[str, object]):
    """Storage options; `repr` shows only names, as values may be secrets."""

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self))})"


class Storage(ABC):
    """A root on some filesystem."""

    #: Whether files can grow in place and locks die with their holder (local disks only).
    can_append: bool
    #: Whether every look is a billed request: do not look at what a reply has shown.
    bills_requests: bool = False
    #: Whether calls have deadlines, so that each runs in another thread.
    has_deadlines: bool = False
    #: The root as the user named it; for messages.
    url: str
    clock: Clock
    #: Endpoint, client and version that put-if-absent depends on, if it must be tested (`storage.race`); empty if it
    #: is known to be atomic.
    client: str = ""
    #: Roots named together with this one; any of them will do.
    others: tuple[str, ...] = ()
    #: Opens a peer. Set by `storage/__init__`, which knows all backends, as they all know this class.
    open_peer: ClassVar[Callable[[str, Options | None, Options | None], Storage]]
    #: Options for URLs, also used to open this log's other roots.
    peer_options: Options | None = None
    #: The roots of this log, as this process knows them (`replication.protocol.roots`).
    together: object = None
    #: Whether the root's marker allows a single writer only: the store is not tested then.
    single_writer: bool = False

    @property
    def requests_at_once(self) -> int:
        """Maximum concurrent looks of one operation; 1 unless each is a request."""
        return 1 if self.can_append else REQUESTS_AT_ONCE

    def expect_root(self) -> None:  # noqa: B027 most storage needs none
        """Trust absence only while the root's marker is there.

        Else raise `RootNotAvailableError`: an unmounted disk looks empty. No-op here: a deleted bucket reports
        itself.
        """

    def run_as_one_call(self, act: Callable[[], _Result], *, changes: bool = False) -> _Result:
        """Run successive calls as one, if each call has a price.

        `act` may run in another thread, awaited here; `changes`: whether it may change the root.
        """
        return act()

    def place(self) -> object:
        """Return a key equal exactly for roots in the same directory, or None."""
        return None

    def device(self) -> object:
        """Return a key equal for roots on the same disk, or None."""
        return None

    def peer(self, url: str) -> Storage:
        """Another root's storage, with the options for URLs; changes nothing."""
        return Storage.open_peer(url, self.peer_options if self.shares_options_with(url) else None, self.peer_options)

    def shares_options_with(self, url: str) -> bool:
        """Whether the given options apply to another root's URL."""
        return True

    @property
    def remedy(self) -> str:
        """Advice, as a sentence, if no log fits here."""
        return (
            f"Use a store that obeys If-None-Match (commitlog probe {self.url} tries it); or, where one process alone "
            "ever writes, make the root with the config unsafe.single.writer=true"
        )

    def fault(self, directory: str) -> str | None:
        """Another defect that rules out a log here, or None.

        Tested in `directory`, its own, if `client` requires tests.

        Raises:
            StorageError: the test failed to run.
        """
        return None

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Create `path` with `data`, atomically and durably.

        Returns:
            The new file's `FileInfo` from the reply; None if it says nothing.

        Raises:
            FileExistsError: another put won.
            NotPutError, StorageFullError, StorageDeniedError: certainly not put.
            SyncFailedError: visible, but perhaps not durable.
            OSError: anything else is ambiguous.
        """

    @abstractmethod
    def write_once(self, path: str, data: bytes) -> None:
        """Write a uniquely named file durably, with its directory."""

    @abstractmethod
    def create(self, path: str) -> OutputFile:
        """Start a uniquely named file larger than memory, with its directory."""

    @abstractmethod
    def open_append(self, path: str) -> AppendFile:
        """Open or make a file for writing in place (`can_append`)."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Up to `length` bytes from `start`.

        Allocates only for bytes that exist.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """Return a file's first bytes, up to `length`, with its `FileInfo`.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """Up to `length` bytes from `start`, without a copy if possible."""

    @abstractmethod
    def info(self, path: str) -> FileInfo:
        """Return a file's `FileInfo`.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """Return a directory's names, sorted, without temporary ones; [] if absent."""

    @abstractmethod
    def make_directory(self, directory: str) -> None:
        """Make a directory and its parents, durably."""

    @abstractmethod
    def sync_file(self, path: str) -> None:
        """Make a file's bytes durable, not its name (`sync_directory`).

        Raises:
            FileNotFoundError: there is no such file.
            SyncFailedError: it may not survive power loss.
        """

    @abstractmethod
    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        """Make the names in a directory durable.

        Args:
            directory: its path.
            fresh: change it first, as another process's sync may have failed (docs/explanation/design/failed-fsync.md).
                For callers that acknowledge others' names; needs write access.

        Raises:
            FileNotFoundError: there is no such directory.
            SyncFailedError: they may not survive power loss.
            StorageReadOnlyError: `fresh` without write access.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Delete a directory with its content, if it exists."""

    @abstractmethod
    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        """Delete temporary files written before a storage time; return their number."""

    @abstractmethod
    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Hold a free exclusive lock for the block; yield whether held.

        Never waits. The holder leaves a note for `holder`.

        Raises:
            FileNotFoundError: its directory is missing.
        """

    def holder(self, path: str) -> Holder:
        """Return a lock's holder, the last one if it is free."""
        return Holder()

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """Wait for a turn to put into a directory; yield success.

        Never fails. It only orders waiters; others may put all the same. Never comes if the backend has no blocking
        locks.
        """
        yield False

    def follow(self, events: Events, directory: str) -> int | None:
        """Let `events` report new files in a directory; return its number there.

        None if nothing reports them: poll then.
        """
        return None

    def now_ms(self) -> int:
        """Return a lower bound of storage's time, comparable to `modified_ms`.

        On a local disk the clock's. Elsewhere a few requests per 10 minutes; 0 if unknown.
        """
        return self.clock.now_ms()

    @abstractmethod
    def new_id(self) -> str:
        """Return a fresh uuid."""

    @abstractmethod
    def jitter(self) -> float:
        """Return a random number in [0, 1), for backoff."""

    def pause(self, backoff: Backoff, before: int) -> None:
        """Sleep for a pause of a backoff, after `before` others."""
        self.clock.sleep(backoff.after(before, self.jitter()))

    def exists(self, path: str) -> bool:
        """Whether a file exists."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True
