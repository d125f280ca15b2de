"""Since when pushes to a root fail, by this process' own monotonic clock: nobody else's word counts.

Chunks have a time of their own: a disk that is full for them may have room for an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyspark_commitlog.storage.process import after_fork

#: Units that are remembered, those used last.
_MOST = 1024
#: After so long a failed chunk says nothing of one that fails now: longer than a try to write it may take.
_FORGOTTEN_SECONDS = 120.0


class Lag:
    """Since when roots have not answered about one unit. Safe for several threads."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, bool], float] = {}
        self._chunk_failed: dict[str, float] = {}

    @classmethod
    def of(cls, unit: str) -> Lag:
        """Return the lag of a unit, as this process knows it."""
        with _lock:
            found = _known.setdefault(unit, cls())
            _known.move_to_end(unit)
            while len(_known) > _MOST:
                _known.popitem(last=False)
            return found

    def failed(self, root: str, now: float, *, chunks: bool = False) -> None:
        """Remember that a push, or a chunk, failed at a time, in seconds.

        Few appends have chunks for a root: one that failed long before, and was not tried again, says nothing of now.
        """
        with _lock:
            if chunks:
                if now - self._chunk_failed.get(root, now) > _FORGOTTEN_SECONDS:
                    self._since.pop((root, chunks), None)
                self._chunk_failed[root] = now
            self._since.setdefault((root, chunks), now)

    def answered(self, root: str, *, chunks: bool = False) -> None:
        """Forget it: the root has learned all, or has the chunks."""
        with _lock:
            self._since.pop((root, chunks), None)
            if chunks:
                self._chunk_failed.pop(root, None)

    def seconds(self, root: str, now: float, *, chunks: bool = False) -> float:
        """Return for how long all pushes to a root have failed, or all chunks."""
        with _lock:
            return now - self._since.get((root, chunks), now)


_known: OrderedDict[str, Lag] = OrderedDict()
_lock = Lock()


def _begin_again() -> None:
    """In a forked child nobody lets go of a lock that another thread held."""
    global _lock
    _lock = Lock()


after_fork(_begin_again)
