"""When a caller that waits looks again: the interval holds, and records that flow are seen at once."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage.pace import (
    EARNED,
    FIRST_PAUSE,
    LIST_REQUESTS,
    MAX_IDLE_POLL_INTERVAL_MS,
    Pace,
    check_idle_poll_interval,
)

HOUR = 3600.0


def looks(pace: Pace, start: float, seconds: float, requests: int = 1) -> list[float]:
    """Return when a caller looks that finds nothing."""
    now, at = start, list[float]()
    while (now := now + pace.seconds_left(now)) < start + seconds:
        at.append(now)
        pace.looked(now, requests, news=False)
    return at


@pytest.mark.parametrize("interval_ms", [60_000, 30_000, 1000, 100])
def test_an_idle_hour_takes_no_more_than_its_requests(interval_ms: int) -> None:
    pace, per_hour = Pace(interval_ms), 3_600_000 // interval_ms
    first, second = looks(pace, 5.0, HOUR), looks(pace, 5.0 + HOUR, HOUR)
    assert len(first) <= per_hour
    assert 0.85 * per_hour <= len(second) <= per_hour


@pytest.mark.parametrize("requests", [2, LIST_REQUESTS])
def test_a_look_of_several_requests_counts_as_such(requests: int) -> None:
    assert len(looks(Pace(6000), 5.0, HOUR, requests)) * requests <= 600 + requests


def found_nothing(pace: Pace, start: float) -> int:
    """Return how many looks find nothing in an hour with a record every five seconds."""
    now, found = start, 0
    for number in range(1, 721):
        while (now := now + pace.seconds_left(now)) < start + number * 5.0:
            pace.looked(now, 1, news=False)
            found += 1
        pace.looked(now, 1, news=True)
    return found


def test_a_record_every_few_seconds_buys_ten_looks() -> None:
    assert 3600 < found_nothing(Pace(1000), 0.0) <= 3600 + 720 * EARNED
    assert found_nothing(Pace(60_000), 0.0) <= 60 + 720 * EARNED


def test_a_steady_flow_is_followed_closely() -> None:
    """Ten records a second: each is seen soon after it came."""
    pace, now, late = Pace(1000), 0.0, list[float]()
    for number in range(1, 36_000):
        while (now := now + pace.seconds_left(now)) < number * 0.1:
            pace.looked(now, 1, news=False)
        late.append(now - number * 0.1)
        pace.looked(now, 1, news=True)
    assert max(late) <= 0.05


def test_what_is_saved_up_has_a_bound() -> None:
    pace = Pace(1000)
    pace.looked(0.0, 1, news=False)
    pace.looked(100 * HOUR, 1, news=True)
    assert found_nothing(pace, 100 * HOUR) <= 3600 + 720 * EARNED


def test_after_news_it_looks_at_once_and_is_never_late_by_more_than_the_longest_pause() -> None:
    pace = Pace(1000)
    last = looks(pace, 0.0, 2 * HOUR)[-1]
    assert pace.seconds_left(last) <= pace.longest_pause < 1.13
    pace.looked(last + pace.seconds_left(last), 1, news=True)
    now = last + pace.longest_pause
    for _ in range(100_000):  # records flow: each look finds some
        assert pace.seconds_left(now) <= max(FIRST_PAUSE, pace.longest_pause)
        now += pace.seconds_left(now)
        pace.looked(now, 1, news=True)
    assert now - last < 100_000 * FIRST_PAUSE + 2


def test_after_a_silence_there_is_something_left_to_look_soon() -> None:
    pace = Pace(1000)
    last = looks(pace, 0.0, HOUR)[-1]
    now = last + pace.seconds_left(last)
    pace.looked(now, 1, news=True)
    assert pace.seconds_left(now) == pytest.approx(FIRST_PAUSE)
    assert len(looks(pace, now, 1.0)) >= 8


def test_the_shortest_interval_counts() -> None:
    pace = Pace(60_000)
    looks(pace, 0.0, HOUR)
    pace.shorten(100)
    assert pace.seconds_left(HOUR) == 0
    pace.shorten(60_000)
    assert pace.interval_ms == 100
    assert len(looks(pace, HOUR, 100.0)) >= 890


def test_an_interval_has_a_range_and_is_a_whole_number() -> None:
    assert check_idle_poll_interval("idle_poll_interval_ms", 1) == 1
    assert check_idle_poll_interval("idle_poll_interval_ms", MAX_IDLE_POLL_INTERVAL_MS) == 60_000
    for wrong in (60_001, 0, -1, True, "1000", 1e3):
        with pytest.raises(UsageError, match=r"idle_poll_interval_ms=.* 1 to 60000 ms"):
            check_idle_poll_interval("idle_poll_interval_ms", wrong)
