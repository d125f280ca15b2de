"""Storage on HDFS by WebHDFS, with fsspec's session.

Put-if-absent renames a temporary file to a free name, atomic at the name node; fsspec's own calls overwrite. A file's
identity is its number there, never reused.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import IO, Any, NoReturn
from urllib.parse import quote

from pyspark_commitlog.errors import (
    CommitLogError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnreadableError,
    UnsupportedError,
)
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.storage.base import TEMPORARY, FileInfo, NotPutError
from pyspark_commitlog.storage.fsspec.fsspec_store import FsspecStorage
from pyspark_commitlog.storage.object.object_errors import first_line

#: Timeouts in seconds, to connect and between bytes; the request may have been done.
_TIMEOUT = (5, 60)
_FULL = ("NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException")
_DENIED = ("AccessControlException", "SecurityException", "AuthenticationException", "InvalidToken")
#: Message if part of a path is a file.
_NOT_A_DIRECTORY = "is not a directory"


class WebHdfsStorage(FsspecStorage):
    """A root on HDFS: `webhdfs://NAMENODE:9870/PATH`; options as for fsspec's `WebHDFS`."""

    # --- writing -----------------------------------------------------------------------------------------

    def _create(self, instance: Any, full: str, data: bytes) -> None:
        temporary = self._temporary(full)
        try:
            _write(instance, temporary, data, make_parents=False)
        except FileNotFoundError:
            raise NotPutError(f"{self.url}: cannot write {full}: its directory is not there") from None
        except (StorageFullError, StorageDeniedError):
            raise
        except (CommitLogError, OSError) as error:  # nothing was renamed
            _discard(instance, temporary)
            raise NotPutError(f"{self.url}: cannot write {full}: {first_line(error)}") from None
        self._publish(instance, temporary, full, "NONE")

    def _certain(self, error: CommitLogError) -> CommitLogError:
        return error

    def _replace(self, instance: Any, full: str, data: bytes | IO[bytes]) -> None:
        temporary = self._temporary(full)
        with call_on_error(lambda: _discard(instance, temporary)):
            _write(instance, temporary, data, make_parents=True)
        self._publish(instance, temporary, full, "OVERWRITE")

    def _replace_by_file(self, instance: Any, full: str, file: IO[bytes]) -> None:
        file.seek(0)
        self._replace(instance, full, file)

    def _temporary(self, full: str) -> str:
        return f"{full.rpartition('/')[0]}/{TEMPORARY}{self.new_id()}"

    def _publish(self, instance: Any, temporary: str, full: str, option: str) -> None:
        """Rename, or delete the file so that it is never renamed later."""
        with call_on_error(lambda: _discard(instance, temporary)):
            answer = _ask(instance, "PUT", temporary, "RENAME", destination=full, renameoptions=option).content
            if answer and json.loads(answer).get("boolean") is not True:
                raise UnsupportedError(
                    f"{self.url} can't hold a commit log: its server renames without options, so that a name that is "
                    "taken can't be distinguished from other failures (HttpFS?): give the name node's own address"
                )

    # --- reading -----------------------------------------------------------------------------------------

    def _range(self, instance: Any, full: str, start: int, end: int) -> bytes:
        data: bytes = _ask(instance, "GET", full, "OPEN", offset=start, length=end - start).content
        return data

    def _look(self, instance: Any, full: str) -> FileInfo:
        found = _ask(instance, "GET", full, "GETFILESTATUS").json()["FileStatus"]
        if found["type"] != "FILE":
            raise FileNotFoundError(full)
        if not found.get("fileId"):
            raise UnsupportedError(
                f"{self.url} can't hold a commit log: its name node shows no number of a file (fileId), without which "
                "two files that were put at one path one after the other can't be distinguished: it takes Hadoop 2.1 "
                "or later"
            )
        return FileInfo(found["length"], found["modificationTime"], str(found["fileId"]))

    def _names_in(self, instance: Any, full: str) -> list[str]:
        found = _ask(instance, "GET", full, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        return [one["pathSuffix"] for one in found if one["pathSuffix"]]  # a file's own has none

    # --- directories -------------------------------------------------------------------------------------

    def make_directory(self, directory: str) -> None:
        full = self._path(directory)
        self._repeated(f"make {directory}", lambda instance: _ask(instance, "PUT", full, "MKDIRS"))

    def sync_directory(self, directory: str, *, fresh: bool = False) -> None:
        """Check that it exists: the name node persists its answers."""
        full = self._path(directory)
        self._repeated(f"read {directory}", lambda instance: _ask(instance, "GET", full, "GETFILESTATUS"))

    def delete_tree(self, directory: str) -> None:
        full = self._path(directory)
        with suppress(FileNotFoundError):
            self._repeated(f"delete {directory}", lambda instance: _delete(instance, full, recursive=True))

    def _remove(self, instance: Any, full: str) -> None:
        _delete(instance, full, recursive=False)

    def remove_abandoned(self, directory: str, before_ms: int) -> int:
        removed = 0
        for name in self._all_names(directory):
            path = f"{directory}/{name}" if directory else name
            with suppress(FileNotFoundError):
                if name.startswith(TEMPORARY) and self.info(path).modified_ms < before_ms:
                    self.delete(path)
                    removed += 1
        return removed


def _write(instance: Any, full: str, data: bytes | IO[bytes], *, make_parents: bool) -> None:
    parents = "true" if make_parents else "false"
    _ask(instance, "PUT", full, "CREATE", data, overwrite="false", createparent=parents)


def _delete(instance: Any, full: str, *, recursive: bool) -> None:
    _ask(instance, "DELETE", full, "DELETE", recursive="true" if recursive else "false")


def _discard(instance: Any, temporary: str) -> None:
    with suppress(CommitLogError, OSError):
        _delete(instance, temporary, recursive=False)


def _ask(
    instance: Any, method: str, full: str, operation: str, data: bytes | IO[bytes] | None = None, **options: object
) -> Any:
    """Return the answer of the name node or a redirect's data node.

    fsspec's calls have no timeout, and hide redirects and failures.

    Raises:
        FileNotFoundError, FileExistsError: the answer says so.
        StorageError, OSError: it says another failure, or none came.
    """
    answer = instance.session.request(
        method,
        instance._apply_proxy(instance.url + quote(full, safe="/=")),
        params={"op": operation, **options, **instance.pars},
        allow_redirects=False,
        timeout=_TIMEOUT,
    )
    if answer.status_code == 307:
        place = instance._apply_proxy(answer.headers["Location"])
        kind = {"content-type": "application/octet-stream"} if data is not None else {}
        answer = instance.session.request(
            method, place, data=data, headers=kind, allow_redirects=False, timeout=_TIMEOUT
        )
    if answer.status_code not in (200, 201):
        _fail(answer, operation)
    return answer


def _fail(answer: Any, operation: str) -> NoReturn:
    try:
        said = answer.json()["RemoteException"]
        kind, text = str(said["exception"]), str(said["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        kind, text = "", f"status {answer.status_code}"
    if kind in ("FileNotFoundException", "ParentNotDirectoryException") or _NOT_A_DIRECTORY in text:
        raise FileNotFoundError(text)
    if kind == "FileAlreadyExistsException":
        raise FileExistsError(text)
    if kind in _FULL:
        raise StorageFullError(f"{operation}: {text}")
    if kind in _DENIED or answer.status_code == 401:
        reading = operation in ("OPEN", "GETFILESTATUS", "LISTSTATUS")
        raise (StorageUnreadableError if reading else StorageReadOnlyError)(f"{operation}: {kind}: {text}")
    raise StorageError(f"{operation}: {kind} {text}".strip())
