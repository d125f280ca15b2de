"""Points in time as users type them: ms, ISO 8601, relative. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

#: The forms that `parse_instant` takes, for error messages.
FORMS = (
    "milliseconds since 1970, a time as 2026-01-31 or 2026-01-31T12:00+01:00 (else UTC), -1h, now, today or yesterday"
)
_DAY_MS = 86_400_000
_UNIT_MS = {"s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": _DAY_MS, "w": 7 * _DAY_MS}
_RELATIVE = re.compile(r"-([0-9]{1,9})([a-z]+)")
#: As milliseconds these lie within weeks of 1970: the user means seconds, or a date without hyphens.
_NOT_MS = range(10**7, 10**10)


def iso_or_ms(text: str) -> int | None:
    """Ms since 1970 of a number or ISO 8601 time.

    None if it is neither. A time without a zone is UTC.
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_instant(text: str, now_ms: int) -> int:
    """Return a point in time, in ms since 1970, of one of `FORMS`; days are UTC.

    Raises:
        ValueError: not one of the forms, before 1970, or probably seconds or a date.
    """
    text = text.strip()
    relative = _relative_ms(text.lower(), now_ms)
    instant = iso_or_ms(text) if relative is None else relative
    if instant is None or instant < 0:
        raise ValueError(f"use {FORMS}")
    if instant in _NOT_MS and text.isdigit():
        raise ValueError(f"that is {_iso(instant)} in milliseconds; {_meant(text)}")
    return instant


def _relative_ms(text: str, now_ms: int) -> int | None:
    midnight = now_ms - now_ms % _DAY_MS
    days = {"now": now_ms, "today": midnight, "yesterday": midnight - _DAY_MS}
    if text in days:
        return days[text]
    match = _RELATIVE.fullmatch(text)
    if match is None or match[2] not in _UNIT_MS:
        return None
    return now_ms - int(match[1]) * _UNIT_MS[match[2]]


def _meant(text: str) -> str:
    try:
        return f"for that day give {datetime.strptime(text, '%Y%m%d').date().isoformat()}"  # noqa: DTZ007 no time of day
    except ValueError:
        return f"for seconds give {text}000, which is {_iso(int(text) * 1000)}"


def _iso(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="seconds")
