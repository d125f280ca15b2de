"""Frame bounds for plans that cut ranges, by offset index and header."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.topic_log import TopicLog

#: Maximum of look-ups per plan.
MAX_LOOKUPS = 1000


class FrameBounds:
    """Looks up frames, at most `MAX_LOOKUPS`."""

    def __init__(self, topic: Callable[[str], TopicLog]) -> None:
        self._topic, self._left = topic, MAX_LOOKUPS

    def of(self, wanted: OffsetRange) -> Callable[[int], tuple[int, int] | None]:
        """Return a function from an offset to its frame's bounds, if known."""
        reader: PartitionReader | None = None
        last = (0, 0)

        def frame_of(offset: int) -> tuple[int, int] | None:
            nonlocal reader, last
            if last[0] <= offset < last[1]:
                return last
            if not self._left:
                return None
            self._left -= 1
            try:
                reader = reader or PartitionReader(self._topic(wanted.topic), wanted.topic_id, wanted.partition, ())
                frame = reader.frame_at(offset)
            except (FileNotFoundError, CorruptionError, OffsetOutOfRangeError, TopicChangedError):  # the task fails
                return None
            last = frame.base_offset, frame.next_offset
            return last

        return frame_of
