"""Test of an unknown filesystem: whole appearance and identity of files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from pyspark_commitlog.errors import StorageError, UnsupportedError
from pyspark_commitlog.storage.base import Storage

#: Size of a file large enough to be sent in pieces, and number of puts.
_BODY_BYTES = 8 * 2**20
_PUTS = 3
#: Files may be stamped by the second; collected names are never reused faster.
_TICK_SECONDS = 1.1


def fault_of_files(storage: Storage, directory: str) -> str | None:
    """First defect of a place's files, or None.

    `directory` is the test's own; it is made and deleted.
    """
    storage.make_directory(directory)
    try:
        return _fault_of_identity(storage, f"{directory}/again") or _fault_of_wholeness(storage, directory)
    finally:
        with suppress(StorageError):
            storage.delete_tree(directory)


def _fault_of_identity(storage: Storage, path: str) -> str | None:
    identities = []
    for _ in range(2):
        storage.put_if_absent(path, b"the same bytes\n")
        first = storage.info(path).identity
        storage.clock.sleep(_TICK_SECONDS)
        if storage.info(path).identity != first:
            return "a file that nobody touches seems to be another one a moment later"
        identities.append(first)
        storage.delete(path)
    if identities[0] == identities[1]:
        return "two files that were put at one path one after the other can't be distinguished"
    return None


def _fault_of_wholeness(storage: Storage, directory: str) -> str | None:
    body = bytes(range(256)) * (_BODY_BYTES // 256)
    for number in range(_PUTS):
        sizes = _seen_during(storage, f"{directory}/whole-{number}", body)
        if sizes - {len(body)}:
            return f"a file of {len(body)} bytes was seen with {min(sizes)} while it was put"
    return None


def _seen_during(storage: Storage, path: str, body: bytes) -> set[int]:
    seen, stop = set[int](), Event()

    def look() -> None:
        while not stop.is_set():
            with suppress(FileNotFoundError):
                seen.add(storage.info(path).size)

    failed = list[BaseException]()
    watcher = Thread(target=_keep_error, args=(look, failed), daemon=True)
    watcher.start()
    try:
        storage.put_if_absent(path, body)
    finally:
        stop.set()
        watcher.join()
    if failed:
        raise failed[0]
    return seen


def _keep_error(act: Callable[[], None], failed: list[BaseException]) -> None:
    try:
        act()
    except (OSError, UnsupportedError) as error:
        failed.append(error)
