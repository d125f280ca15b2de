"""Storage on object stores (S3, Google Cloud Storage, Azure, memory), by `obstore`.

Put-if-absent is one conditional request (`If-None-Match: *`), never repeated here: the caller handles lost replies.
There is no append, lock or directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from pyspark_commitlog import metrics
from pyspark_commitlog.errors import StorageError, UnsupportedError, UsageError
from pyspark_commitlog.storage.base import (
    TEMPORARY,
    AppendFile,
    FileInfo,
    NotPutError,
    Options,
    write_whole,
)
from pyspark_commitlog.storage.clock import Clock, Deadline, StoreTime, SystemClock
from pyspark_commitlog.storage.object.object_errors import (
    explain,
    explained,
    is_beyond_the_end,
    is_passing,
    no_bucket,
    says_taken,
    was_not_sent,
    without_panic,
)
from pyspark_commitlog.storage.object.object_files import PART_BYTES, ObjectOutputFile
from pyspark_commitlog.storage.object.object_options import KINDS, Opener, check_installed, parse_url
from pyspark_commitlog.storage.per_process import PerProcess, after_fork
from pyspark_commitlog.storage.write_once import REQUEST_BACKOFF, REQUEST_SECONDS, REQUEST_TRIES, WriteOnceStorage

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_Result = TypeVar("_Result")

#: Names per page of a listing.
_PAGE = 1000


class _LibraryUse:
    """Records the library's use: its threads do not survive a fork."""

    used = False
    cut_off = False

    @classmethod
    def forked(cls) -> None:
        cls.cut_off = cls.used


after_fork(_LibraryUse.forked)


class ObjectStorage(WriteOnceStorage):
    """A root below a prefix of a bucket or container."""

    bills_requests = True

    def __init__(self, url: str, options: Mapping[str, object] | None = None, *, clock: Clock | None = None) -> None:
        self.url = url.rstrip("/")
        self.clock = clock or SystemClock()
        self._kind = parse_url(url).kind
        check_installed(self.url, self._kind)
        self._opener = Opener(self.url, dict(options or {}))
        self.peer_options = Options(options or {})
        self._clients: dict[bool, ObjectStore] = {}
        self._worked = False
        self._time = PerProcess(StoreTime)
        self._counting = Lock()
        #: Requests by verb (GET, HEAD, PUT, POST, LIST, DELETE), retries included.
        self.requests: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "url": self.url, "options": self._opener.options, "clock": self.clock,
            "others": self.others, "peer_options": self.peer_options,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        ObjectStorage.__init__(self, state["url"], state["options"], clock=state["clock"])
        self.others, self.peer_options = state["others"], state["peer_options"]

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    @property
    def client(self) -> str:  # type: ignore[override]
        """Bucket, endpoint, library and version; empty for memory."""
        return "" if self._kind == "memory" else self._opener.name

    def shares_options_with(self, url: str) -> bool:
        """Whether another root is in the same kind of store."""
        return "://" in url and url.partition(":")[0] in KINDS and parse_url(url).kind == self._kind

    # --- requests ----------------------------------------------------------------------------------------

    def _client(self, *, retries: bool = False) -> ObjectStore:
        """Return this process's client; refuse a forked child whose parent used one."""
        if _LibraryUse.cut_off:
            raise UnsupportedError(
                f"{self.url}: this process was forked from one that has used an object store, whose client does not "
                "live on in it: start processes with multiprocessing's 'spawn' or 'forkserver', or use object stores "
                "in the children only"
            )
        client = self._clients.get(retries)
        if client is None:
            client = self._clients[retries] = self._opener(retries=retries)
            _LibraryUse.used = True
        return client

    def _count(self, verb: str, times: int = 1, size: int = 0) -> None:
        with self._counting:
            self.requests[verb] += times
        metrics.count_requests(self.url, verb, times, size)

    def _explained(self, action: str) -> AbstractContextManager[None]:
        return explained(self.url, action, worked=self._worked)

    def _repeated(
        self, verb: str, act: Callable[[ObjectStore], _Result], again: Callable[[BaseException], bool] = is_passing
    ) -> _Result:
        with without_panic(self.url):
            result = self._tried(verb, act, again)
        self._worked = True
        return result

    def _tried(
        self, verb: str, act: Callable[[ObjectStore], _Result], again: Callable[[BaseException], bool]
    ) -> _Result:
        from obstore import exceptions as theirs

        client, deadline = self._client(), Deadline(self.clock, REQUEST_SECONDS)
        for done in range(REQUEST_TRIES - 1):
            self._count(verb)
            try:
                return act(client)
            except theirs.GenericError as error:
                if not again(error) or deadline.is_over:
                    raise
            self.pause(REQUEST_BACKOFF, done)
        self._count(verb)
        return act(client)

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"path {path!r} leaves the root {self.url}")
        return path

    def _object(self, path: str) -> str:
        if not self._path(path):
            raise FileNotFoundError(f"{self.url} is no object")
        return path

    # --- writing -----------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> FileInfo | None:
        """Put by one conditional request, repeated only if it was not sent."""
        import obstore
        from obstore import exceptions as theirs

        name, action = self._object(path), f"write {path}"
        began = self.clock.monotonic()
        try:
            result = self._repeated(
                "PUT",
                lambda client: obstore.put(client, name, data, mode="create", use_multipart=False),
                was_not_sent,
            )
        except theirs.AlreadyExistsError as error:
            if says_taken(error):
                raise FileExistsError(f"{self.url}/{path} exists") from None
            raise explain(error, self.url, action, worked=self._worked) from None
        except FileNotFoundError:
            raise NotPutError(str(no_bucket(self.url, action))) from None
        except theirs.BaseError as error:
            raise explain(error, self.url, action, worked=self._worked) from None
        self._time.value.put(path, began)
        self._count("PUT", 0, len(data))
        version, e_tag = result["version"], result["e_tag"]
        return FileInfo(len(data), -1, identity(self._kind, version, e_tag, None))

    def write_once(self, path: str, data: bytes) -> None:
        """Put in one request, or by a multipart upload."""
        import obstore

        if len(data) > PART_BYTES:
            write_whole(self.create(path), data)
            return
        name, began = self._object(path), self.clock.monotonic()
        with self._explained(f"write {path}"):
            self._repeated("PUT", lambda client: obstore.put(client, name, data, use_multipart=False))
        self._time.value.put(path, began)
        self._count("PUT", 0, len(data))

    def create(self, path: str) -> ObjectOutputFile:
        """Start a multipart upload, a single put if small."""
        return ObjectOutputFile(self._client(retries=True), self._object(path), self._explained, self._count)

    def open_append(self, path: str) -> AppendFile:
        raise UnsupportedError(f"{self.url}/{self._path(path)}: objects can't be appended to")

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read by one ranged request."""
        return bytes(self._get(path, start, length)[0])

    def fetch(self, path: str, length: int) -> tuple[bytes, FileInfo]:
        data, info = self._get(path, 0, length)
        return bytes(data), info

    def map(self, path: str, start: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self._get(path, start, length)[0])

    def _get(self, path: str, start: int, length: int | None) -> tuple[Any, FileInfo]:
        import obstore
        from obstore import exceptions as theirs

        name, end = self._object(path), None if length is None else start + length
        if end is not None and end <= start:
            return b"", self.info(path)
        options: Any = {"range": {"offset": start} if end is None else (start, end)}

        def get(client: ObjectStore) -> tuple[Any, FileInfo]:
            got = obstore.get(client, name, options=options)
            data, (first, last) = got.bytes(), got.range
            self._count("GET", 0, len(data))
            if len(data) != last - first:
                raise theirs.GenericError(f"Error performing GET: {len(data)} bytes of {last - first} came")
            return data, self._info(path, got.meta)

        with self._explained(f"read {path}"):
            try:
                return self._repeated("GET", get)
            except theirs.GenericError as error:
                if not is_beyond_the_end(error):
                    raise
        info = self.info(path)
        if info.size > start:  # it was replaced
            raise StorageError(f"{self.url}: cannot read {path} from byte {start}: it changed meanwhile; read it again")
        return b"", info

    def info(self, path: str) -> FileInfo:
        import obstore

        name = self._object(path)
        with self._explained(f"read {path}"):
            return self._info(path, self._repeated("HEAD", lambda client: obstore.head(client, name)))

    def _info(self, path: str, meta: Any) -> FileInfo:
        modified_ms = int(meta["last_modified"].timestamp() * 1000)
        self._time.value.observe(path, modified_ms, self.clock.monotonic())
        return FileInfo(meta["size"], modified_ms, identity(self._kind, meta["version"], meta["e_tag"], modified_ms))

    def keeps_versions(self, path: str) -> bool:
        """Whether an S3 bucket keeps versions, judged by one object."""
        return self._kind == "s3" and "@" not in self.info(path).identity

    def names(self, directory: str) -> list[str]:
        """List, 1,000 names a request."""
        import obstore

        prefix = self._path(directory)
        with self._explained(f"list {directory}"):
            listed = self._repeated(
                "LIST", lambda client: obstore.list_with_delimiter(client, f"{prefix}/" if prefix else None)
            )
        found = {*listed["common_prefixes"], *(one["path"] for one in listed["objects"])}
        found.discard(prefix)  # consoles make an empty object for a folder
        self._count("LIST", (len(found) - 1) // _PAGE if found else 0)
        names = (path.rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in names if name and not name.startswith(TEMPORARY))

    # --- deleting ----------------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        import obstore

        name = self._path(path)
        with suppress(FileNotFoundError), self._explained(f"delete {path}"):
            self._repeated("DELETE", lambda client: obstore.delete(client, name))

    def delete_tree(self, directory: str) -> None:
        """Delete by listed pages; never a root, perhaps a whole bucket.

        On GCS and Azure the library stops at a name already deleted: go on singly.
        """
        import obstore

        prefix = self._path(directory)
        if not prefix:
            raise UsageError(f"{self.url}: a whole root is not deleted: name a directory in it")

        def pages(client: ObjectStore) -> list[list[str]]:
            listing = obstore.list(client, f"{prefix}/", chunk_size=_PAGE)
            return [[one["path"] for one in page] for page in listing]

        with self._explained(f"delete {directory}"):
            for paths in self._repeated("LIST", pages):
                self._count("POST" if self._kind == "s3" else "DELETE")
                try:
                    obstore.delete(self._client(retries=True), paths)
                except FileNotFoundError:
                    for path in paths:
                        self.delete(path)


def identity(kind: str, version: str | None, e_tag: str | None, modified_ms: int | None) -> str:
    """Key unique among all objects of a name (pure).

    The version or generation; Azure's ETag; on S3 without versions ETag and time, which a put's reply lacks
    (`FileInfo`; docs/explanation/design/settling-on-object-stores.md, O7).
    """
    if version and version != "null":
        return version
    if kind in ("azure", "memory") and e_tag:
        return e_tag
    return f"{e_tag}@{'' if modified_ms is None else modified_ms}"
