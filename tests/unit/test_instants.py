"""Points in time as people type them."""

from __future__ import annotations

import pytest

from pyspark_commitlog.instants import parse_instant

NOON = 1_796_040_000_000  # 2026-11-30T12:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("0", 0),
        ("112000", 112_000),
        ("10000000000", 10**10),
        (" 1700000000000 ", 1_700_000_000_000),
        ("2026-11-30", NOON - 12 * HOUR),
        ("2026-11-30T13:00+01:00", NOON),
        ("2026-11-30 12:00:00.001", NOON + 1),
        ("1970-01-02", 24 * HOUR),
        ("now", NOON),
        ("Today", NOON - 12 * HOUR),
        ("yesterday", NOON - 36 * HOUR),
        ("-90s", NOON - 90_000),
        ("-15m", NOON - HOUR // 4),
        ("-1h", NOON - HOUR),
        ("-2d", NOON - 48 * HOUR),
        ("-1w", NOON - 168 * HOUR),
    ],
)
def test_forms_of_an_instant(text: str, instant: int) -> None:
    assert parse_instant(text, NOON) == instant


@pytest.mark.parametrize("text", ["", "soon", "1h", "-1", "-1q", "1969-12-31", "-99999999w", "1.5", "2026-13-01"])
def test_other_text_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^use milliseconds since 1970, a time as 2026-01-31 or .*, now, today or yest"
    ):
        parse_instant(text, NOON)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "1700000000",
            "that is 1970-01-20T16:13:20.00:00 in milliseconds; for seconds give 1700000000000, which is 2023",
        ),
        ("946684800", "for seconds give 946684800000, which is 2000-01-01"),
        ("20261128", "for that day give 2026-11-28"),
        ("20261399", "for seconds give 20261399000"),
        ("9999999999", "for seconds give 9999999999000"),
    ],
)
def test_seconds_and_dates_are_not_read_as_milliseconds(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_instant(text, NOON)
