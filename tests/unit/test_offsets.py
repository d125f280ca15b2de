"""How a trigger's share is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.offsets import prorate

BACKLOGS = st.lists(st.integers(0, 10**9), min_size=1, max_size=12)


def cut(backlog: list[int], limit: int) -> list[int]:
    """Return what each partition gets of a limit."""
    places = [TopicPartition("t", partition) for partition in range(len(backlog))]
    start = {place: 100 * place.partition for place in places}
    end = {place: start[place] + size for place, size in zip(places, backlog, strict=True)}
    found = prorate(start, end, limit)
    return [found[place] - start[place] for place in places]


def test_shares_follow_the_backlog() -> None:
    assert cut([600, 300, 100], 100) == [60, 30, 10]


def test_what_rounding_leaves_is_given_out() -> None:
    assert cut([500, 500, 500], 100) in ([34, 33, 33], [33, 34, 33], [33, 33, 34])
    assert cut([199, 100, 101], 100) == [50, 25, 25]


def test_nobody_starves() -> None:
    assert cut([10**9, 1, 0, 5], 10) == [9, 1, 0, 1]


@given(BACKLOGS, st.integers(1, 10**9))
def test_a_share_is_within_the_backlog_and_all_shares_make_the_limit(backlog: list[int], limit: int) -> None:
    shares = cut(backlog, limit)
    assert all(min(size, 1) <= share <= size for share, size in zip(shares, backlog, strict=True))
    assert sum(shares) >= min(limit, sum(backlog))
    assert sum(shares) <= max(limit, min(limit, sum(backlog)) + len(backlog))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(8, 10**6))
def test_a_backlog_of_n_limits_takes_n_triggers(backlog: list[int], limit: int) -> None:
    triggers, left = 0, backlog
    while sum(left):
        left = [size - share for size, share in zip(left, cut(left, limit), strict=True)]
        triggers += 1
        if triggers > 50:
            break
    assert triggers <= min(51, -(-sum(backlog) // limit))
