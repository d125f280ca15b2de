"""How long pushes to a root have failed, by this process's clock.

Chunks are timed apart: a disk too full for them may have room for an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyspark_commitlog.storage.per_process import PerProcess

#: Units remembered, those used last.
_MOST = 1024
#: Age after which a failed chunk is forgotten: longer than an attempt to write it may take.
_FORGOTTEN_SECONDS = 120.0


class Lag:
    """Failing roots of one unit, and since when. Thread-safe."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, bool], float] = {}
        self._chunk_failed: dict[str, float] = {}

    @classmethod
    def of(cls, unit: str) -> Lag:
        """Process-wide lag of a unit."""
        with _lock.value:
            found = _known.setdefault(unit, cls())
            _known.move_to_end(unit)
            while len(_known) > _MOST:
                _known.popitem(last=False)
            return found

    def failed(self, root: str, now: float, *, chunks: bool = False) -> None:
        """Record a failed push, or chunk, at a monotonic time.

        Chunks are rare: an old failure without retry says nothing.
        """
        with _lock.value:
            if chunks:
                if now - self._chunk_failed.get(root, now) > _FORGOTTEN_SECONDS:
                    self._since.pop((root, chunks), None)
                self._chunk_failed[root] = now
            self._since.setdefault((root, chunks), now)

    def answered(self, root: str, *, chunks: bool = False) -> None:
        """Forget a root's failures, of pushes or chunks."""
        with _lock.value:
            self._since.pop((root, chunks), None)
            if chunks:
                self._chunk_failed.pop(root, None)

    def seconds(self, root: str, now: float, *, chunks: bool = False) -> float:
        """Return for how long pushes, or chunks, have failed."""
        with _lock.value:
            return now - self._since.get((root, chunks), now)


_known: OrderedDict[str, Lag] = OrderedDict()
_lock = PerProcess(Lock)
