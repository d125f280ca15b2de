"""Staging of a chunk at several roots for acks=all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from pyspark_commitlog.replication.protocol import durable_files
from pyspark_commitlog.storage import OutputFile, Storage
from pyspark_commitlog.storage.process import share_out

logger = logging.getLogger("pyspark_commitlog.replication")


class StagedOutput:
    """New file at several roots; one that fails is dropped, unless all do."""

    def __init__(self, path: str, storages: Sequence[Storage]) -> None:
        self._path, self._storages = path, {storage.url: storage for storage in storages}
        self._outputs: dict[str, OutputFile] = {}
        self._failed: OSError | None = None
        for storage in storages:
            self._try(storage.url, lambda storage=storage: self._open(storage))  # type: ignore[misc]
        self._check()

    def _open(self, storage: Storage) -> None:
        self._outputs[storage.url] = storage.create(self._path)

    def _try(self, url: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            logger.warning("%s: not staged at %s: %s", self._path, url, error)
            self._failed = error
            output = self._outputs.pop(url, None)
            if output is not None:
                _give_up(output)

    def _check(self) -> None:
        if not self._outputs:
            assert self._failed is not None
            raise self._failed

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        """Append `pieces` at each root."""
        for url, output in list(self._outputs.items()):
            self._try(url, lambda output=output: output.write(*pieces))  # type: ignore[misc]
        self._check()

    def close(self, *, durable: bool = True) -> tuple[int, int]:
        """Make the file visible; return (length in bytes, CRC-32C)."""
        closed: list[tuple[int, int]] = []

        def close(url: str) -> None:
            self._try(url, lambda: self._close(url, closed, durable=durable))

        share_out(close, list(self._outputs), len(self._outputs))
        self._check()
        return closed[0]

    def _close(self, url: str, closed: list[tuple[int, int]], *, durable: bool) -> None:
        closed.append(self._outputs[url].close(durable=durable))
        if durable:
            durable_files.add(self._storages[url], self._path)

    def discard(self) -> None:
        """Discard the file at each root."""
        for output in self._outputs.values():
            _give_up(output)
        self._outputs.clear()


def _give_up(output: OutputFile) -> None:
    with suppress(OSError):  # a root that hangs, or is read-only, stops no other
        output.discard()
