"""Reads for `failOnDataLoss=false`: they skip what retention took, with a warning.

Damage is never skipped (I8).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from pyspark_commitlog.errors import LogTruncationError, OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.read.filter.row_filter import FieldTests
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows
from pyspark_commitlog.topic.topic_log import TopicLog

logger = logging.getLogger("pyspark_commitlog.topic")


def read_kept(
    topic: TopicLog, wanted: OffsetRange, names: Sequence[str] | None = None, tests: FieldTests | None = None
) -> Iterator[Rows]:
    """Yield the remaining records of a range; see `PartitionReader.read`."""
    where, position = f"topic {topic.name!r} partition {wanted.partition}", wanted.start
    planned = wanted.planned
    while position < wanted.end:
        try:
            _, state = topic.newest(wanted.topic_id)
            low, high = state.log_start[wanted.partition], state.log_end[wanted.partition]
            if high < wanted.end:
                logger.warning("%s: offsets %d to %d are beyond the high watermark: they are skipped",
                            where, max(position, high), wanted.end - 1)  # fmt: skip
            if low > position:
                logger.warning("%s: offsets %d to %d were deleted (retention or delete_records): they are skipped",
                            where, position, min(low, wanted.end) - 1)  # fmt: skip
            position, end = max(position, low), min(wanted.end, high)
            if position >= end:
                return
            reader = PartitionReader(topic, wanted.topic_id, wanted.partition, names, planned=planned, tests=tests)
            for rows in reader.read(position, end):
                position = (rows.first_offset + rows.count) if rows.offsets is None else int(rows.offsets[-1]) + 1
                yield rows
            return
        except LogTruncationError as error:
            logger.warning("%s: it goes on at offset %d of what is there: %s", where, position, error)
            planned = ""
        except OffsetOutOfRangeError:  # retention was faster: find the new log start
            continue
        except TopicChangedError as error:
            logger.warning("%s: offsets %d to %d are skipped: %s", where, position, wanted.end - 1, error)
            return
