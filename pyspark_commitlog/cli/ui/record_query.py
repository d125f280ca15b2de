"""Which records a page has: its parameters, and the offsets where it begins (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError

#: Records of a page, and partitions that are read together.
MOST_RECORDS, MOST_PARTITIONS = 500, 100

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """What to read of a topic: from the log start, unless an offset, a time, a cursor or the newest are asked for."""

    #: None: all, or the one of `key`.
    partition: int | None = None
    offset: int | None = None
    #: A form of `parse_instant`: from the first record that is not earlier.
    time: str | None = None
    #: `next` or `previous` of another page.
    cursor: Offsets | None = None
    #: Offsets to read up to, of the partitions of `cursor`; None: the high watermarks.
    end: Offsets | None = None
    #: The last records; with a filter or search those of the last `SCANNED_RECORDS`.
    newest: bool = False
    limit: int = 50
    #: SQL, as of `Topic.to_arrow`.
    condition: str | None = None
    #: A text that key, value or a column contains.
    search: str = ""
    #: The key, see `parse_key`; without a partition the one that Kafka's default partitioner chooses is read.
    key: str = ""
    #: Read all partitions for `key`.
    everywhere: bool = False
    #: See `parse_json_filter`, `parse_header_filter`.
    path: str = ""
    header: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MOST_RECORDS:
            raise UsageError(f"limit={self.limit} is not allowed: it takes 1 to {MOST_RECORDS}")
        if sum([self.offset is not None, self.time is not None, self.cursor is not None, self.newest]) > 1:
            raise UsageError("give one of offset, time, cursor and newest")
        if self.offset is not None and self.partition is None and not self.is_by_key:
            raise UsageError("an offset is of one partition: give partition, too")
        if self.end is not None and self.end.keys() != (self.cursor or {}).keys():
            raise UsageError("end is of the partitions of cursor: give both")

    @property
    def is_by_key(self) -> bool:
        """Whether the key says which partition is read."""
        return bool(self.key) and self.partition is None and not self.everywhere

    @property
    def is_selective(self) -> bool:
        """Whether records are left out."""
        return bool(self.search or self.key or self.path or self.header) or self.condition is not None


def parse_cursor(text: str) -> Offsets:
    """Parse `0:25,1:7`: partition and offset.

    Raises:
        UsageError: it is none.
    """
    try:
        return {int(partition): int(offset) for partition, offset in (each.split(":") for each in text.split(","))}
    except ValueError:
        raise UsageError(f"cursor {text!r}: use partition:offset, as in 0:25,1:7") from None


def cursor_text(offsets: Offsets) -> str:
    """Return offsets in the form of `parse_cursor`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def check_inside(topic: str, offsets: Offsets, lows: Offsets, highs: Offsets) -> None:
    """Refuse an offset below the log start offset or above the high watermark.

    Raises:
        OffsetOutOfRangeError: names the range.
    """
    for partition, offset in offsets.items():
        if not lows[partition] <= offset <= highs[partition]:
            raise OffsetOutOfRangeError(
                f"topic {topic!r} partition {partition}: offset {offset} is out of range: log start offset is "
                f"{lows[partition]} and high watermark {highs[partition]}; start from an offset between them"
            )


def chosen_partitions(topic: str, count: int, query: RecordQuery, key_partition: int) -> Sequence[int]:
    """Return the partitions to read, of which some may not exist; `key_partition` is that of the query's key.

    Raises:
        UsageError: too many.
    """
    if query.cursor is not None:
        chosen: Sequence[int] = sorted(query.cursor)
    elif query.is_by_key:
        chosen = [key_partition]
    else:
        chosen = range(count) if query.partition is None else [query.partition]
    if len(chosen) > MOST_PARTITIONS:
        raise UsageError(
            f"topic {topic!r} has {count} partitions; {MOST_PARTITIONS} are read together at most: choose one"
        )
    return chosen


def going_back(offsets: Offsets, lows: Offsets, limit: int) -> Offsets:
    """Return where a page of `limit` records begins that ends about there."""
    share = max(1, limit // max(1, len(offsets)))
    return {partition: max(lows[partition], offset - share) for partition, offset in offsets.items()}
