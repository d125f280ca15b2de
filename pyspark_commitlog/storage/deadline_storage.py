"""Storage wrapper with deadlines, for one of several roots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_commitlog.storage.base import AppendFile, FileInfo, Holder, OutputFile, Storage
from pyspark_commitlog.storage.calls import Calls
from pyspark_commitlog.storage.clock import Deadline, SystemClock
from pyspark_commitlog.storage.turn_queues import TurnPlace

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.storage.events import Events

_Result = TypeVar("_Result")

#: Deadlines in seconds: of a look, a small synced write, and a data transfer.
LOOK_SECONDS, PUT_SECONDS, DATA_SECONDS = 4.0, 8.0, 30.0


def with_deadlines(storage: Storage) -> DeadlineStorage:
    """Return a storage with deadlines; itself, if it has them."""
    return storage if isinstance(storage, DeadlineStorage) else DeadlineStorage(storage)


def begun(storage: Storage, what: str, act: Callable[[], _Result]) -> Callable[[], _Result]:
    """Start a call and return what waits for its result; without deadlines it runs when waited for."""
    return storage.calls.begin(what, act) if isinstance(storage, DeadlineStorage) else act


class DeadlineStorage(Storage):
    """Delegates to another storage, with a deadline for each call.

    Raises, each of its methods:
        ReplicaNotAvailableError: the root hangs; an abandoned write may land later.
    """

    has_deadlines = True

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.url, self.clock = inner.url, inner.clock
        self._appends: bool | None = None
        self._client: str | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"inner": self._inner, "others": self.others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["inner"])  # type: ignore[misc]
        self.others = state["others"]

    @property
    def calls(self) -> Calls:
        """The root's calls in this process."""
        return Calls.of(self.url)

    def _run(
        self,
        what: str,
        act: Callable[[], _Result],
        seconds: float | None = None,
        undo: Callable[[_Result], object] | None = None,
    ) -> _Result:
        return self.calls.run(what, act, LOOK_SECONDS if seconds is None else seconds, undo)

    def _look(
        self,
        what: str,
        act: Callable[[], _Result],
        seconds: float | None = None,
        undo: Callable[[_Result], object] | None = None,
    ) -> _Result:
        """Like `_run`, for calls without changes, which keep no lock."""
        return self.calls.run(what, act, LOOK_SECONDS if seconds is None else seconds, undo, changes=False)

    @property
    def can_append(self) -> bool:  # type: ignore[override]
        """Delegate, once."""
        if self._appends is None:
            self._appends = self._look("a look at the mount", lambda: self._inner.can_append)
        return self._appends

    @property
    def bills_requests(self) -> bool:  # type: ignore[override]
        """Delegate."""
        return self._inner.bills_requests

    @property
    def client(self) -> str:  # type: ignore[override]
        """Delegate, once."""
        if self._client is None:
            self._client = self._look("a look at the mount", lambda: self._inner.client)
        return self._client

    @property
    def remedy(self) -> str:
        return self._inner.remedy

    def peer(self, url: str) -> Storage:
        """Another root's storage, with deadlines."""
        return with_deadlines(self._inner.peer(url))

    def expect_root(self) -> None:
        self._inner.expect_root()

    def place(self) -> object:
        return self._look("a look", self._inner.place)

    def device(self) -> object:
        return self._look("a look", self._inner.device)

    def fault(self, directory: str) -> str | None:
        return self._run(f"a trial of {directory}", lambda: self._inner.fault(directory), DATA_SECONDS)

    def run_as_one_call(self, act: Callable[[], _Result], *, changes: bool = False) -> _Result:
        """Run as one call, with a deadline per step."""
        return self.calls.begin("several calls" if changes else "several looks", act, changes=changes)()

    # --- writing -----------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        return self._run(f"a put of {path}", lambda: self._inner.put_if_absent(path, data), PUT_SECONDS)

    def write_once(self, path: str, data: bytes) -> None:
        self._run(f"a write of {path}", lambda: self._inner.write_once(path, data), DATA_SECONDS)

    def create(self, path: str) -> OutputFile:
        made = self._run(f"a write of {path}", lambda: self._inner.create(path), PUT_SECONDS, OutputFile.discard)
        return _OutputWithDeadlines(self, path, made)

    def open_append(self, path: str) -> AppendFile:
        made = self._run(f"a write of {path}", lambda: self._inner.open_append(path), PUT_SECONDS, AppendFile.close)
        return _AppendWithDeadlines(self, path, made)

    def make_directory(self, directory: str) -> None:
        self._run(f"making {directory}", lambda: self._inner.make_directory(directory), PUT_SECONDS)

    def sync_file(self, path: str) -> None:
        self._run(f"a sync of {path}", lambda: self._inner.sync_file(path), DATA_SECONDS)

    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        self._run(f"a sync of {directory}", lambda: self._inner.sync_directory(directory, fresh=fresh), PUT_SECONDS)

    def delete(self, path: str) -> None:
        self._run(f"a removal of {path}", lambda: self._inner.delete(path), PUT_SECONDS)

    def delete_tree(self, directory: str) -> None:
        self._run(f"a removal of {directory}", lambda: self._inner.delete_tree(directory), DATA_SECONDS)

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        return self._run(
            f"cleaning {directory}", lambda: self._inner.remove_abandoned(directory, before_ms), DATA_SECONDS
        )

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        """Delegate; abandoned calls with changes keep the lock until they end."""
        lock = self._inner.try_lock(path)
        before = self.calls.late_calls()

        def leave(_: bool = False) -> None:  # `undo` is given the result
            lock.__exit__(None, None, None)

        held = self._look(f"a lock of {path}", lock.__enter__, undo=leave)
        try:
            yield held
        finally:
            self.calls.let_go(f"a lock of {path}", leave, LOOK_SECONDS, before)

    def holder(self, path: str) -> Holder:
        return self._look(f"a read of {path}", lambda: self._inner.holder(path))

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """Delegate for the first of this process's callers; the others queue.

        It ends without a deadline, on the caller's thread: one missed there would make completed work look failed.
        """
        place, deadline, queues = TurnPlace(directory), Deadline(SystemClock(), seconds), self.calls.lines
        self.calls.check()  # the turn's holder may be the call that hangs
        try:
            if queues.value.enter(place, seconds):
                with self._turn_of_process(directory, deadline.remaining()) as came:
                    if not came:
                        queues.value.leave(place)  # no turn came: let the next caller go
                    yield came
            else:
                queues.value.leave(place)
                yield False
        finally:
            try:
                queues.value.leave(place)
            except BaseException:  # Ctrl-C before it was done
                queues.value.leave(place)
                raise

    @contextmanager
    def _turn_of_process(self, directory: str, seconds: float) -> Iterator[bool]:
        turn = self._inner.turn(directory, seconds)

        def leave(_: bool = False) -> None:  # `undo` is given the result
            turn.__exit__(None, None, None)

        came = self.calls.wait(f"a turn at {directory}", turn.__enter__, seconds + LOOK_SECONDS, leave)
        if came is None:
            yield False
            return
        try:
            yield came
        finally:
            with suppress(Exception):
                leave()

    def follow(self, events: Events, directory: str) -> int | None:
        return self._look(f"a look at {directory}", lambda: self._inner.follow(events, directory))

    def now_ms(self) -> int:
        return self._look("a look at its time", self._inner.now_ms, DATA_SECONDS)

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._look(f"a read of {path}", lambda: self._inner.read(path, start, length))

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        return self._look(f"a read of {path}", lambda: self._inner.fetch(path, length))

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        """Return a copy: touching a mapped page could hang any thread."""
        import pyarrow as pa

        return self._look(
            f"a read of {path}", lambda: pa.py_buffer(self._inner.read(path, start, length)), DATA_SECONDS
        )

    def info(self, path: str) -> FileInfo:
        return self._look(f"a look at {path}", lambda: self._inner.info(path))

    def exists(self, path: str) -> bool:
        return self._look(f"a look at {path}", lambda: self._inner.exists(path))

    def names(self, directory: str) -> list[str]:
        return self._look(f"a listing of {directory}", lambda: self._inner.names(directory))

    def new_id(self) -> str:
        return self._inner.new_id()

    def jitter(self) -> float:
        return self._inner.jitter()


class _OutputWithDeadlines:
    def __init__(self, storage: DeadlineStorage, path: str, inner: OutputFile) -> None:
        self._storage, self._path, self._inner = storage, path, inner

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        self._storage._run(f"a write of {self._path}", lambda: self._inner.write(*pieces), DATA_SECONDS)

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        return self._storage._run(f"a write of {self._path}", lambda: self._inner.close(durable=durable), DATA_SECONDS)

    def discard(self) -> None:
        self._storage._run(f"a write of {self._path}", self._inner.discard)


class _AppendWithDeadlines:
    def __init__(self, storage: DeadlineStorage, path: str, inner: AppendFile) -> None:
        self._storage, self._path, self._inner = storage, path, inner

    def _run(self, act: Callable[[], _Result]) -> _Result:
        return self._storage._run(f"a write of {self._path}", act, DATA_SECONDS)

    def write_at(self, position: int, pieces: Sequence[bytes | memoryview | pa.Buffer]) -> int:
        return self._run(lambda: self._inner.write_at(position, pieces))

    def truncate(self, length: int) -> None:
        self._run(lambda: self._inner.truncate(length))

    def reserve(self, length: int) -> None:
        self._run(lambda: self._inner.reserve(length))

    def sync(self) -> None:
        self._run(self._inner.sync)

    def close(self) -> None:
        self._run(self._inner.close)
