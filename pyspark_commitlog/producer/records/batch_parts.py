"""Arrow batches larger than `buffer_memory`: division, and common future."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.format.columns.untyped import bounded
from pyspark_commitlog.producer.records.batches import RECORD_BYTES, BatchMetadata, SentFuture

#: Divisor of `buffer_memory`: one part is committed while the next one gathers.
_SHARE = 4


class BatchPart(NamedTuple):
    """Rows committed together; `first` is their index in the batch."""

    first: int
    pieces: list[pa.RecordBatch]
    is_all: bool = False


def size_of(pieces: Sequence[pa.RecordBatch]) -> int:
    """Return an Arrow batch's bytes in the buffer (pure)."""
    return RECORD_BYTES + sum(int(piece.nbytes) for piece in pieces)


def skip_rows(pieces: list[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """Return a batch without its first rows (pure)."""
    return list(pa.Table.from_batches(pieces).slice(rows).to_batches())


def split_batch(pieces: list[pa.RecordBatch], limit: int) -> list[BatchPart]:
    """Split a batch above `limit` bytes, into quarters of it (pure).

    A larger row is a part by itself. Rows are not copied.
    """
    if size_of(pieces) <= limit:
        return [BatchPart(0, pieces, is_all=True)]
    most = max(1, limit // _SHARE - RECORD_BYTES)
    parts, first, rows, size = list[BatchPart](), 0, 0, 0
    for piece in (piece for batch in pieces for piece in bounded(batch, most)):
        if not parts or size + piece.nbytes > most:
            first, rows, size = first + rows, 0, 0
            parts.append(BatchPart(first, []))
        parts[-1].pieces.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    return parts


class PartFutures:
    """Futures of a batch's parts, and their common `future`.

    It fails as the first part that failed, else with the error that stopped the next one.
    """

    def __init__(self, topic: str) -> None:
        self.future: SentFuture[BatchMetadata] = SentFuture()
        self._topic, self._lock = topic, Lock()
        self._sent: list[Future[BatchMetadata]] = []
        self._open = 1
        self._kept: Exception | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a part has failed."""
        return any(sent.done() and sent.exception() is not None for sent in self._sent)

    @property
    def has_begun(self) -> bool:
        """Whether a part was sent."""
        return bool(self._sent)

    def add(self, sent: Future[BatchMetadata]) -> None:
        """Add the next part's future."""
        with self._lock:
            self._sent.append(sent)
            self._open += 1
        sent.add_done_callback(lambda _: self._one_less())

    def end(self, error: Exception | None = None) -> None:
        """Mark the end; `error` kept a next part from being sent."""
        self._kept = error
        self._one_less()

    def _one_less(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open:
                return
        failed = next((error for sent in self._sent if (error := sent.exception()) is not None), self._kept)
        if failed is not None:
            self.future.set_exception(failed)
        else:
            self.future.set_result(joined(self._topic, [sent.result() for sent in self._sent]))


def joined(topic: str, parts: Sequence[BatchMetadata]) -> BatchMetadata:
    """Merge the metadata of a batch's parts (pure).

    No offsets if those of one part are unknown.
    """
    offsets: dict[int, tuple[int, int]] = {}
    for part in parts:
        for partition, (first, end) in part.offsets.items():
            offsets[partition] = offsets.get(partition, (first,))[0], end
    known = all(part.offsets or not part.records for part in parts)
    return BatchMetadata(topic, sum(part.records for part in parts), offsets if known else {})
