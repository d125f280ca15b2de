"""Pauses between tries, and deadlines."""

from __future__ import annotations

import pytest

from pyspark_commitlog.storage.clock import Backoff, Deadline
from pyspark_commitlog.testing.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(0.1, 1.0), [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (Backoff(1.0, 4.0, factor=1.5), [1.0, 1.5, 2.25, 3.375, 4.0]),
    ],
)
def test_pauses_grow_to_their_bound(backoff: Backoff, pauses: list[float]) -> None:
    assert [backoff.after(before) for before in range(len(pauses))] == pytest.approx(pauses)
    assert backoff.after(10**9) == backoff.most


@pytest.mark.parametrize(("spread", "shortest"), [(0.0, 2.0), (0.5, 1.0), (1.0, 0.0)])
def test_a_part_of_a_pause_is_random(spread: float, shortest: float) -> None:
    backoff = Backoff(2.0, 2.0, spread)
    assert backoff.after(0, 0.0) == shortest
    assert backoff.after(0, 0.5) == (2.0 + shortest) / 2
    assert backoff.after(0, 1.0) == 2.0


def test_a_deadline_passes_once() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 2.0)
    clock.sleep(1.5)
    assert (deadline.remaining(), deadline.is_over) == (0.5, False)
    clock.sleep(0.5)
    assert (deadline.remaining(), deadline.is_over) == (0.0, True)
    clock.sleep(1.0)
    assert deadline.remaining() == 0.0
    deadline.extend(1.5)
    assert (deadline.remaining(), deadline.is_over) == (0.5, False)


def test_no_deadline_never_passes() -> None:
    deadline = Deadline(ManualClock(), None)
    assert (deadline.remaining(), deadline.is_over) == (float("inf"), False)
