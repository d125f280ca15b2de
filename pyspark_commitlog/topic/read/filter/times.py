"""Dates and times of literals, by the session's time zone. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import NoReturn
from zoneinfo import ZoneInfo

from pyspark_commitlog.errors import UsageError

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ZONE = r"(?: ?(Z|UTC|[+-]\d{2}:\d{2}|[A-Z]\w+/[\w+/-]+))?"
_TIME = re.compile(
    rf"(\d{{4}}-\d{{2}}-\d{{2}})(?:[T ](\d{{2}}:\d{{2}})(?::(\d{{2}})(?:\.(\d{{1,6}}))?)?{_ZONE})?", re.ASCII
)
#: Java's spellings of a zone that is an offset.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{2}):(\d{2})", re.ASCII)
_UTC_NAMES = ("Z", "UTC", "GMT", "UT", "Etc/UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
US_PER_DAY = 86_400_000_000
FIRST_DAY, LAST_DAY = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY


class ZoneUnknownError(UsageError):
    """A literal means an instant only in the session's time zone, which is unknown here."""


def zone_of(name: str) -> tzinfo:
    """Return a time zone by Spark's name of it.

    Raises:
        UsageError: it is not among Python's.
    """
    if name in _UTC_NAMES:
        return UTC
    if offset := _OFFSET.fullmatch(name):
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes <= 18 * 60 and int(offset[3]) < 60:
            return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    if "/" in name:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, KeyError):
            pass
    raise UsageError(f"the time zone {name!r} is unknown here: use a name such as Europe/Berlin, or an offset")


def day_of(text: str) -> int | None:
    """Days of a date since 1970; None if it is not written as `2026-01-31`."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def wall_time(text: str) -> tuple[datetime, str] | None:
    """Wall time and zone (empty if none) of `2026-01-31 12:00:00.5 Europe/Berlin`; None if written otherwise."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, minutes, seconds, fraction, zone = match.groups("")
    try:
        wall = datetime.fromisoformat(f"{day}T{minutes or '00:00'}:{seconds or '00'}")
    except ValueError:
        return None
    return wall.replace(microsecond=int(fraction.ljust(6, "0"))), zone


def instant(wall: datetime, zone: tzinfo) -> int:
    """Return the µs since 1970 of a wall time, as Java does.

    Of two instants it is the earlier, and a skipped time takes the offset before.
    """
    return (wall.replace(tzinfo=zone, fold=0) - _EPOCH) // _MICROSECOND


def wall_microseconds(wall: datetime) -> int:
    """Return a wall time as `timestamp_ntz` stores it."""
    return instant(wall, UTC)


def midnight(day: int, zone: tzinfo) -> int:
    """Instant at which a date begins."""
    return instant(datetime.combine(date.fromordinal(day + _EPOCH_DAY), datetime.min.time()), zone)


def refuse_zone(text: str) -> NoReturn:
    """Raise the error of a literal whose zone is unknown."""
    raise ZoneUnknownError(
        f"the filter has {text}, and spark.sql.session.timeZone is not set, or unknown to Python, so tasks do not know "
        "what it means: set it to a name such as Europe/Berlin, or write a zone into the literal, as in TIMESTAMP "
        "'2026-01-31 12:00:00Z'"
    )
