"""DecidedLog of a reader's requests, for read-ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.shared.read_ahead import FileRange, ReadAhead, ahead_of


class RecordLocation(NamedTuple):
    """Byte range of records up to `next_offset`; None if in memory."""

    range: FileRange | None
    next_offset: int


#: Returns the location of an offset for a read up to another one; None if unknown.
WhereIs = Callable[[int, int], RecordLocation | None]


class Prefetcher:
    """Read-ahead of one read of the offsets [start, stop).

    `careful`: see `ReadAhead`.
    """

    def __init__(self, storage: Storage, where_is: WhereIs, start: int, stop: int, *, careful: bool) -> None:
        self._where_is, self._offset, self._stop = where_is, start, stop
        self._seen: object = None
        #: None on local disks.
        self.ahead: ReadAhead | None = ahead_of(storage, self._next_ranges, careful=careful)

    def reach(self, offset: int, view: object) -> None:
        """Set the next offset and its view; another view resets the read-ahead."""
        if self._seen is not view:
            if self._seen is not None and self.ahead is not None:
                self.ahead.forget()
                self._offset = offset
            self._seen = view
        self._offset = max(self._offset, offset)

    def fetch_again(self, offset: int) -> None:
        """Discard the bytes fetched at an offset, which failed."""
        if self.ahead is not None:
            self.ahead.fetch_again()
            self._offset = offset

    def close(self) -> None:
        """Cancel pending fetches."""
        if self.ahead is not None:
            self.ahead.close()

    def _next_ranges(self) -> Sequence[FileRange]:
        while self._offset < self._stop:
            location = self._where_is(self._offset, self._stop)
            if location is None or location.next_offset <= self._offset:
                return ()
            self._offset = location.next_offset
            if location.range is not None:
                return (location.range,)
        return ()
