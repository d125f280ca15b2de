"""Storage on any other fsspec filesystem that creates files exclusively.

Put-if-absent is a single `pipe_file(mode="create")`, tested before a root is made (`storage.race`, `fault`). No
look is skipped (`bills_requests` is False).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import SEEK_END
from typing import IO, Any, TypeVar

import pyarrow as pa

from pyspark_commitlog import metrics
from pyspark_commitlog.errors import (
    CommitLogError,
    StorageError,
    StorageReadOnlyError,
    StorageUnreadableError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.storage.base import TEMPORARY, AppendFile, FileInfo, Options, OutputFile
from pyspark_commitlog.storage.clock import Backoff, Clock, StoreTime, SystemClock
from pyspark_commitlog.storage.fsspec.fsspec_files import Instances, SpooledOutputFile
from pyspark_commitlog.storage.fsspec.fsspec_info import file_info
from pyspark_commitlog.storage.fsspec.fsspec_options import INSTEAD, Filesystem
from pyspark_commitlog.storage.fsspec.fsspec_trial import fault_of_files
from pyspark_commitlog.storage.object.object_errors import first_line
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.write_once import WriteOnceStorage

_Result = TypeVar("_Result")

#: Tries of an idempotent request.
_TRIES = 5
_BACKOFF = Backoff(0.2, 2.0, spread=0.5)
#: Tries to read a file unchanged.
_LOOKS = 5


class FsspecStorage(WriteOnceStorage):
    """A root on a filesystem of fsspec."""

    def __init__(self, url: str, options: Mapping[str, object] | None = None, *, clock: Clock | None = None) -> None:
        self.url = url.rstrip("/")
        self.clock = clock or SystemClock()
        self._filesystem = Filesystem(self.url, dict(options or {}))
        self._filesystem.check()
        self._root = self._filesystem.path
        self.peer_options = Options(options or {})
        self._instances = Instances(self._make)
        self._time = PerProcess(StoreTime)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "url": self.url, "options": self._filesystem.options, "clock": self.clock,
            "others": self.others, "peer_options": self.peer_options,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["url"], state["options"], clock=state["clock"])  # type: ignore[misc]
        self.others, self.peer_options = state["others"], state["peer_options"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def client(self) -> str:  # type: ignore[override]
        """The filesystem, its host and versions."""
        return self._filesystem.name

    def shares_options_with(self, url: str) -> bool:
        """Whether another root has the same protocol."""
        return "://" in url and url.partition(":")[0] == self._filesystem.protocol

    @property
    def remedy(self) -> str:
        return f"The filesystem that fsspec has for {self._filesystem.protocol}:// does not do: {INSTEAD}"

    def fault(self, directory: str) -> str | None:
        return fault_of_files(self, directory)

    # --- requests ----------------------------------------------------------------------------------------

    def _make(self) -> Any:
        return self._filesystem()

    @contextmanager
    def _using(self, action: str) -> Iterator[Any]:
        """Lend an instance; translate its errors, except "not found" and "exists"."""
        metrics.count_requests(self.url, action.partition(" ")[0])
        try:
            with self._instances.borrow() as instance:
                yield instance
        except (CommitLogError, FileExistsError):
            raise
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.url}: cannot {action}: it is not there") from None
        except Exception as error:  # noqa: BLE001 each filesystem has its own
            raise self._explain(error, action) from None

    def _explain(self, error: Exception, action: str) -> StorageError:
        where = f"{self.url}: cannot {action}"
        if isinstance(error, PermissionError):
            denied = StorageUnreadableError if action.startswith(("read ", "list ")) else StorageReadOnlyError
            return denied(f"{where}: refused: {first_line(error)}. Check the credentials, and what they allow")
        return StorageError(f"{where}: {type(error).__name__}: {first_line(error)}")

    def _repeated(self, action: str, act: Callable[[Any], _Result]) -> _Result:
        for done in range(_TRIES - 1):
            try:
                with self._using(action) as instance:
                    return act(instance)
            except (FileNotFoundError, FileExistsError, StorageReadOnlyError, StorageUnreadableError):
                raise
            except StorageError:
                self.pause(_BACKOFF, done)
        with self._using(action) as instance:
            return act(instance)

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"path {path!r} leaves the root {self.url}")
        return f"{self._root}/{path}" if path else self._root

    def _file(self, path: str) -> str:
        full = self._path(path)
        if not path:
            raise FileNotFoundError(f"{self.url} is no file")
        return full

    # --- writing -----------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Create the file in one call; errors but "exists" are ambiguous."""
        full, action, began = self._file(path), f"write {path}", self.clock.monotonic()
        try:
            with self._using(action) as instance:
                self._create(instance, full, data)
        except FileExistsError:
            raise FileExistsError(f"{self.url}/{path} exists") from None
        except FileNotFoundError:
            raise StorageError(f"{self.url}: cannot {action}: there is no such directory, or bucket") from None
        except StorageReadOnlyError as error:
            raise self._certain(error) from None
        self._time.value.put(path, began)
        metrics.count_requests(self.url, "write", 0, len(data))
        return None

    def _create(self, instance: Any, full: str, data: bytes) -> None:
        """Create a file exclusively; on other errors than "exists" it may exist."""
        instance.pipe_file(full, data, mode="create")

    def _certain(self, error: CommitLogError) -> CommitLogError:
        """Error of a denied put: ambiguous, as libraries retry."""
        return StorageError(str(error))

    def write_once(self, path: str, data: bytes) -> None:
        full, began = self._file(path), self.clock.monotonic()
        self._repeated(f"write {path}", lambda instance: self._replace(instance, full, data))
        self._time.value.put(path, began)
        metrics.count_requests(self.url, "write", 0, len(data))

    def create(self, path: str) -> OutputFile:
        """Spool to local disk; see `SpooledOutputFile`."""
        full = self._file(path)

        def store(file: IO[bytes]) -> None:
            size = file.seek(0, SEEK_END)
            file.seek(0)
            self._repeated(f"write {path}", lambda instance: self._replace_by_file(instance, full, file))
            metrics.count_requests(self.url, "write", 0, size)

        return SpooledOutputFile(store)

    def _replace(self, instance: Any, full: str, data: bytes) -> None:
        instance.pipe_file(full, data)

    def _replace_by_file(self, instance: Any, full: str, file: IO[bytes]) -> None:
        instance.put_file(file.name, full)

    def open_append(self, path: str) -> AppendFile:
        self._path(path)
        raise UnsupportedError(f"{self.url}/{path}: files here can't be appended to")

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read by a look and a ranged read."""
        return self._read(path, start, length, self.info(path))

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self.read(path, start, length))

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        """Read between two equal looks, as a read has no metadata."""
        before = self.info(path)
        for _ in range(_LOOKS):
            try:
                data: bytes | None = self._read(path, 0, length, before)
            except _ChangedError:
                data = None
            after = self.info(path)
            if data is not None and after == before:
                return data, after
            before = after
        raise StorageError(f"{self.url}: cannot read {path}: it changed {_LOOKS} times meanwhile; read it again")

    def _read(self, path: str, start: int, length: int | None, info: FileInfo) -> bytes:
        full, end = self._file(path), info.size if length is None else min(info.size, start + length)
        if end <= start:
            return b""
        data = self._repeated(f"read {path}", lambda instance: bytes(self._range(instance, full, start, end)))
        if len(data) != end - start:
            raise _ChangedError(
                f"{self.url}: cannot read {path}: {len(data)} bytes of {end - start} came; read it again"
            )
        metrics.count_requests(self.url, "read", 0, len(data))
        return data

    def _range(self, instance: Any, full: str, start: int, end: int) -> Any:
        return instance.cat_file(full, start=start, end=end)

    def info(self, path: str) -> FileInfo:
        full = self._file(path)
        info = self._repeated(f"read {path}", lambda instance: self._look(instance, full))
        self._time.value.observe(path, info.modified_ms, self.clock.monotonic())
        return info

    def _look(self, instance: Any, full: str) -> FileInfo:
        instance.invalidate_cache()
        found = instance.info(full)
        if found["type"] != "file":
            raise FileNotFoundError(full)
        return file_info(found, self.url)

    def names(self, directory: str) -> list[str]:
        return [name for name in self._all_names(directory) if not name.startswith(TEMPORARY)]

    def _all_names(self, directory: str) -> list[str]:
        full = self._path(directory)
        try:
            return sorted(set(self._repeated(f"list {directory}", lambda instance: self._names_in(instance, full))))
        except FileNotFoundError:
            return []

    def _names_in(self, instance: Any, full: str) -> list[str]:
        """List a directory; nothing for a file listed as itself."""
        instance.invalidate_cache()
        pairs = (str(path).rstrip("/").rpartition("/")[::2] for path in instance.ls(full, detail=False))
        return [name for parent, name in pairs if name and parent.strip("/") == full.strip("/")]

    # --- deleting ----------------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        full = self._path(path)
        with suppress(FileNotFoundError):
            self._repeated(f"delete {path}", lambda instance: self._remove(instance, full))

    def _remove(self, instance: Any, full: str) -> None:
        instance.rm_file(full)

    def delete_tree(self, directory: str) -> None:
        """Delete file by file; never a root, perhaps a whole bucket."""
        full = self._path(directory)
        if not directory:
            raise UsageError(f"{self.url}: a whole root is not deleted: name a directory in it")
        with suppress(FileNotFoundError):
            self._repeated(f"delete {directory}", lambda instance: self._remove_tree(instance, full))

    def _remove_tree(self, instance: Any, full: str) -> None:
        instance.invalidate_cache()
        for path in instance.find(full):
            with suppress(FileNotFoundError):
                instance.rm_file(path)


class _ChangedError(StorageError):
    """A file's size changed."""
