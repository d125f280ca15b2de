"""An Arrow batch that is larger than ``buffer_memory``: cut into parts that fit, and one future of them all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from pyspark_commitlog.format.columns import bounded
from pyspark_commitlog.producer.batches import RECORD_BYTES, BatchMetadata, SentFuture

#: Of ``buffer_memory``, so that one part is committed while the next one is gathered.
_SHARE = 4


class BatchPart(NamedTuple):
    """Rows that are sent and committed together; ``first`` is the place of the first of them in the whole batch."""

    first: int
    pieces: list[pa.RecordBatch]
    is_all: bool = False


def size_of(pieces: Sequence[pa.RecordBatch]) -> int:
    """Return the bytes that an Arrow batch counts for in the buffer (pure)."""
    return RECORD_BYTES + sum(int(piece.nbytes) for piece in pieces)


def split_batch(pieces: list[pa.RecordBatch], limit: int) -> list[BatchPart]:
    """Return a batch in one part where it fits into ``limit`` bytes, else in parts of about a quarter (pure).

    A row that is larger is a part by itself, and no row is copied.
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
    """Futures of the parts of one batch, and one future of them all.

    ``future`` is done when all parts are that were sent, and no other follows: it fails as the first of them did, else
    with what kept the next one from being sent.
    """

    def __init__(self, topic: str) -> None:
        self.future: SentFuture[BatchMetadata] = SentFuture()
        self._topic, self._lock = topic, Lock()
        self._sent: list[Future[BatchMetadata]] = []
        self._open = 1
        self._kept: Exception | None = None

    @property
    def has_failed(self) -> bool:
        """Return whether a part has: nothing more is sent then."""
        return any(sent.done() and sent.exception() is not None for sent in self._sent)

    @property
    def has_begun(self) -> bool:
        """Return whether a part was sent."""
        return bool(self._sent)

    def add(self, sent: Future[BatchMetadata]) -> None:
        """Take the future of the next part."""
        with self._lock:
            self._sent.append(sent)
            self._open += 1
        sent.add_done_callback(lambda _: self._one_less())

    def end(self, error: Exception | None = None) -> None:
        """Take that nothing follows; ``error`` is what kept the next part from being sent."""
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
    """Return the metadata of a batch whose parts went there (pure): from the first of its offsets to after the last.

    No offsets where those of one part are not known.
    """
    offsets: dict[int, tuple[int, int]] = {}
    for part in parts:
        for partition, (first, end) in part.offsets.items():
            offsets[partition] = offsets.get(partition, (first,))[0], end
    known = all(part.offsets or not part.records for part in parts)
    return BatchMetadata(topic, sum(part.records for part in parts), offsets if known else {})
