"""The soak's judge: what grows is told, what only moves is not, and no number may be lost or come twice."""

from __future__ import annotations

import pytest

from tests.soak.judge import Cycle, Sample, Stored, Usage, add, faults, judged, table, window

MIB = 2**20


def samples(rss: list[int], threads: list[int], entries: list[int]) -> list[Sample]:
    return [
        Sample(10.0 * i, {"p": Usage(r * MIB, t, 5)}, {"t": Stored(e, e * MIB)})
        for i, (r, t, e) in enumerate(zip(rss, threads, entries, strict=True))
    ]


def over(found: list[Sample]) -> list[str]:
    rows = judged(found, {"t": Cycle(10, 10 * MIB)})
    return [row.name for each in rows for row in each if not row.held]


def test_what_stays_or_moves_about_a_value_holds() -> None:
    rss = [100, 102, 100, 101, 130, 100, 101, 99, 102, 101] * 3
    assert over(samples(rss, [9, 10, 9] * 10, [5, 40, 20] * 10)) == []


def test_what_grows_is_over_its_bound() -> None:
    rss = [1000 + 2 * i for i in range(30)]
    assert over(samples(rss, [9] * 30, [5] * 30)) == ["p: RSS"]
    assert over(samples([100] * 30, [9 + i // 8 for i in range(30)], [5] * 30)) == ["p: threads"]
    assert over(samples([100] * 30, [9] * 30, [5 + i for i in range(30)])) == ["t: entries", "t: disk"]


def test_threads_of_pools_may_come_and_go_up_to_the_size_of_their_pools() -> None:
    def pooled(counts: list[int]) -> list[Sample]:
        return [Sample(10.0 * i, {"p": Usage(MIB, 9, 5, count)}, {}) for i, count in enumerate(counts)]

    assert over(pooled([0] * 20 + [200] * 10)) == []
    assert over(pooled([0] * 29 + [201])) == ["p: threads of pools"]
    assert over(pooled([0] * 30)) == []


def test_growth_within_the_bounds_holds() -> None:
    rss = [1000 + i // 2 for i in range(30)]
    assert over(samples(rss, [9 + i // 15 for i in range(30)], [5 + i // 4 for i in range(30)])) == []


def test_the_window_is_the_last_two_thirds() -> None:
    found = window(samples([1] * 60, [1] * 60, [1] * 60), 600.0)
    assert (found[0].at, len(found)) == (200.0, 40)


def test_a_process_that_came_late_is_compared_with_itself() -> None:
    found = samples([100] * 10, [9] * 10, [5] * 10)
    late = [Sample(s.at, {**s.processes, "q": Usage(50 * MIB, 1, 1)}, s.topics) if s.at >= 50 else s for s in found]
    assert over(late) == []


def test_the_table_says_what_is_over() -> None:
    lines = table(judged(samples([100] * 5 + [200] * 5, [9] * 10, [5] * 10), {"t": Cycle(1, 1)})[0])
    assert lines[2] == "| p: RSS | 100.0 MiB | 200.0 MiB | 102.0 MiB | **over** |"
    assert lines[3] == "| p: threads | 9 | 9 | 11 | held |"


def test_numbers_in_any_order_make_one_range() -> None:
    seen: list[list[int]] = []
    assert all(add(seen, number) for number in (3, 0, 1, 5, 4, 2))
    assert seen == [[0, 5]]
    assert not add(seen, 3)


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ([[0, 9]], []),
        ([[5, 9], [0, 4]], []),
        ([[0, 4], [6, 9]], ["5 to 5 are lost"]),
        ([[0, 5], [5, 9]], ["5 to 5 came twice"]),
        ([[0, 8]], ["9 to 9 are lost"]),
        ([[0, 11]], ["10 to 11 were never sent"]),
        ([], ["0 to 9 are lost"]),
    ],
)
def test_each_number_must_have_come_once(ranges: list[list[int]], told: list[str]) -> None:
    assert faults("r", {0: ranges}, {0: 10}) == [f"r: partition 0: {each}" for each in told]
