"""Records of a topic that wait for a commit, in order."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.producer.records.batches import RUN_BYTES, UNKNOWN, Item, RecordRun
from pyspark_commitlog.producer.records.row_values import RowValues


class QueueMark(NamedTuple):
    """State before a record; `run`: rows and bytes of the last item."""

    last: int
    sent: int
    size: int
    items: int
    run: tuple[int, int]


class RecordQueue:
    """Waiting items and their numbers, guarded by the buffer's lock.

    `size`: bytes of the items. `sent`: records appended so far.
    """

    def __init__(self, topic: str, committed_sequence: int | None, together_seconds: float) -> None:
        self._topic, self._together = topic, together_seconds
        self.items: list[Item] = []
        self.size = self.sent = 0
        self.last = UNKNOWN if committed_sequence is None else committed_sequence

    def mark(self) -> QueueMark:
        """State before a record, for `undo`."""
        last = self.items[-1] if self.items else None
        run = (last.rows, last.size) if isinstance(last, RecordRun) else (0, 0)
        return QueueMark(self.last, self.sent, self.size, len(self.items), run)

    def undo(self, mark: QueueMark) -> None:
        """To a mark."""
        self.last, self.sent, self.size = mark.last, mark.sent, mark.size
        del self.items[mark.items :]
        if self.items and isinstance(self.items[-1], RecordRun):
            self.items[-1].cut(*mark.run)

    def number(self, sequence: int | None, rows: int = 1) -> int:
        """Assign the next numbers, or those from `sequence` on; return the last."""
        self.last = (self.last + 1 if sequence is None else sequence) + rows - 1
        return self.last

    def check_ascends(self, sequence: int, rows: int = 1) -> None:
        """Raise UsageError if sequence numbers do not ascend, or are too large."""
        if sequence + rows - 1 > LONG_MAX:
            raise UsageError(
                f"topic {self._topic!r}: sequence {sequence + rows - 1} is too large, at most {LONG_MAX} is allowed"
            )
        if sequence <= self.last:
            raise UsageError(
                f"topic {self._topic!r}: sequence {sequence} is not above {self.last}, which was sent before it: "
                "number the records upwards"
            )

    def open_run(self, size: int, now: float, columns: RowValues | None) -> RecordRun:
        """Run for a record of `size` bytes and of `columns`, sent `now`."""
        last = self.items[-1] if self.items else None
        if (
            isinstance(last, RecordRun)
            and last.size + size <= RUN_BYTES
            and now - last.since <= self._together
            and last.columns is columns
        ):
            return last
        run = RecordRun(self._topic, now, columns=columns)
        self.items.append(run)
        return run

    def count(self, rows: int, size: int) -> None:
        """Count rows appended."""
        self.sent += rows
        self.size += size

    def take(self, limit: int) -> list[Item]:
        """Remove and return the first items up to `limit` bytes; one at least."""
        taken, size = 0, 0
        for item in self.items:
            if taken and size + item.size > limit:
                break
            taken, size = taken + 1, size + item.size
        return self.drop(taken)

    def drop(self, count: int | None = None) -> list[Item]:
        """Remove and return the first items; all by default."""
        items = self.items[:count]
        del self.items[:count]
        self.size -= sum(item.size for item in items)
        return items
