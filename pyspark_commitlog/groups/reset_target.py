"""Targets of a reset, as of `kafka-consumer-groups --reset-offsets`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from pyspark_commitlog.config import LONG_MAX
from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.model import TopicPartition, as_whole, whole_number

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}

#: topic -> partition -> offset
Offsets = Mapping[str, Mapping[int, int]]


class Way(Enum):
    """Kind of a reset's target."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIMESTAMP = "timestamp"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a reset.

    `number` is an offset, a shift in records, or ms since 1970.
    """

    way: Way
    number: int = 0
    each: Offsets | None = None


def target_of(
    to: str | Offsets | None,
    offset: int | None,
    timestamp: int | datetime | None,
    shift: int | None,
    duration: str | None,
    now_ms: int,
) -> Target:
    """One target that was given."""
    given = {"to": to, "offset": offset, "timestamp": timestamp, "shift": shift, "duration": duration}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise UsageError(f"give exactly one of {', '.join(given)}; given: {', '.join(chosen) or 'none'}")
    if to is not None:
        return _named_target(to)
    if offset is not None:
        return Target(Way.OFFSET, whole_number("offset", offset))
    if shift is not None:
        return Target(Way.SHIFT, whole_number("shift", shift))
    if duration is not None:
        return Target(Way.TIMESTAMP, now_ms - duration_ms(duration))
    return Target(Way.TIMESTAMP, _ms(timestamp))


def _named_target(to: str | Offsets) -> Target:
    if isinstance(to, Mapping):
        return Target(Way.EACH, each=whole_offsets(to))
    if to not in ("earliest", "latest", "current"):
        raise UsageError(f"to={to!r}: use earliest, latest, current, or topic -> partition -> offset")
    return Target(Way(to))


def whole_offsets(offsets: Offsets) -> dict[str, dict[int, int]]:
    """Convert topic -> partition -> offset to Python's integers."""
    return {
        name: {whole_number("partition", p): whole_number("offset", offset) for p, offset in by_partition.items()}
        for name, by_partition in offsets.items()
    }


def _ms(timestamp: int | datetime | None) -> int:
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise UsageError(f"timestamp={timestamp!r}: give it a time zone, such as tzinfo=datetime.UTC")
        return int(timestamp.timestamp() * 1000)
    milliseconds = as_whole(timestamp)
    if milliseconds is None or milliseconds < 0:
        raise UsageError(f"timestamp={timestamp!r}: use milliseconds since 1970, or a datetime")
    return milliseconds


def duration_ms(text: str) -> int:
    """Ms of an ISO 8601 duration (Kafka: `Duration.parse`)."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"duration {text!r}: use PnDTnHnMnS, such as PT1H or P1DT12H")
    duration = sum(float(match[unit] or 0) * ms for unit, ms in _UNIT_MS.items())
    if duration > LONG_MAX:
        raise UsageError(f"duration {text!r}: no timestamp is so long ago; the longest is {LONG_MAX} ms")
    return int(duration)


def new_offset(place: TopicPartition, target: Target, current: int | None, low: int, high: int) -> int:
    """Return a partition's target offset, except for timestamps.

    As in Kafka a shift stays in the log, and `current` without a committed offset is the high watermark. `low` is the
    log start offset, `high` the high watermark.
    """
    match target.way:
        case Way.EARLIEST:
            return low
        case Way.LATEST:
            return high
        case Way.CURRENT:
            return high if current is None else min(current, high)
        case Way.SHIFT:
            if current is None:
                raise UsageError(f"{place.topic} partition {place.partition} has no committed offset to shift from")
            return max(low, min(current + target.number, high))
        case _:
            offset = target.number if target.each is None else target.each[place.topic][place.partition]
            return check_range(place, offset, low, high)


def check_range(place: TopicPartition, offset: int, low: int, high: int) -> int:
    """Return an offset, if inside the log."""
    if not low <= offset <= high:
        raise OffsetOutOfRangeError(
            f"{place.topic} partition {place.partition} has offsets {low} to {high} (the high watermark), not {offset}"
        )
    return offset
