"""The arithmetic of the anchor: what bounds the time of an own put's file, and that a copy of it never fits (pure)."""

from __future__ import annotations

import itertools

import pytest

from pyspark_commitlog.config import MIN_DELAY_MS
from pyspark_commitlog.journal.anchor import FRESH_SECONDS, Moment, OwnPut, Reference
from pyspark_commitlog.storage import FileInfo

_SECOND = 1000
_START = 1_700_000_000_000


def at(seconds: float, wall: float | None = None) -> Moment:
    return Moment(100 + seconds, _START + int((seconds if wall is None else wall) * _SECOND))


def stamped(seconds: float, *, ahead: float = 0) -> int:
    """Return the time of a file that was put at a moment: cut to seconds, by a clock that may be ahead."""
    return (_START + int((seconds + ahead) * _SECOND)) // _SECOND * _SECOND


def test_what_was_seen_holds_for_half_of_the_delay() -> None:
    assert at(0).is_fresh(at(FRESH_SECONDS - 0.001))
    assert not at(0).is_fresh(at(FRESH_SECONDS))
    assert FRESH_SECONDS * 2000 == MIN_DELAY_MS


@pytest.mark.parametrize(("seconds", "wall"), [(0.1, 5.0), (5.0, 0.1), (0.1, -5.0)])
def test_the_clock_that_says_more_counts(seconds: float, wall: float) -> None:
    """A machine that slept, a clock that was set."""
    assert not at(0).is_fresh(at(seconds, wall))


_TOOK = [0.0, 0.2, 0.49]
_AHEAD = [0.0, 2.0]


@pytest.mark.parametrize("began", [0.0, 0.4, 0.999])
@pytest.mark.parametrize("later", [0.0, 7.3, 1700.0])
@pytest.mark.parametrize(("took", "took_then"), list(itertools.product(_TOOK, _TOOK)))
def test_an_own_file_fits_and_a_copy_of_it_never_does(
    began: float, later: float, took: float, took_then: float
) -> None:
    """O7: whenever within its request a put is done, whichever of storage's clocks stamps it, up to 2 s apart.

    A number is collected when an entry above it is older than the delay and a tick; of that the cut to seconds takes one
    second, and the clocks two. This process's own is wrong by almost a second.
    """
    then = began + took + later
    for done, ahead in itertools.product((began, began + took), _AHEAD):
        first = OwnPut.of("a", FileInfo(1, -1, "x@"), at(began), at(began + took), None)
        reference = first.reference(FileInfo(1, stamped(done, ahead=ahead), ""))
        assert reference is not None
        own = OwnPut.of("b", FileInfo(1, -1, "tag@"), at(then), at(then + took_then), reference)
        for put_at, off in itertools.product((then, then + took_then), _AHEAD):
            mine = stamped(put_at, ahead=off)
            assert own.is_file(FileInfo(1, mine, f"tag@{mine}"))
            copied = stamped(put_at + MIN_DELAY_MS / _SECOND + 1 - 1 - 2, ahead=off)
            assert not own.is_file(FileInfo(1, copied, f"tag@{copied}"))


def test_a_slow_put_says_nothing_of_storages_clock() -> None:
    slow = OwnPut.of("a", FileInfo(1, -1, "x@"), at(0), at(0.5), Reference(at(-10), _START))
    assert slow.reference(FileInfo(1, _START, "x@")) is None
    assert not slow.is_certain
    assert not slow.is_file(FileInfo(1, _START, f"x@{_START}"))
    assert slow.is_file_at_once(FileInfo(1, _START, f"x@{_START}"))


def test_what_is_known_of_storages_clock_grows_too_old() -> None:
    reference = Reference(at(0), _START)
    assert reference.at_most(at(1799)) == _START + 1799 * _SECOND + 2 * _SECOND
    assert reference.at_most(at(1800)) is None


def test_an_identity_without_a_time_is_compared_as_it_is() -> None:
    own = OwnPut.of("a", FileInfo(1, -1, "generation 7"), at(0), at(9), None)
    assert own.is_certain
    assert own.is_file(FileInfo(1, _START, "generation 7"))
    assert not own.is_file(FileInfo(1, _START, "generation 8"))
    assert not own.is_file(FileInfo(1, _START, f"generation 7{_START}"))


def test_other_bytes_are_another_file() -> None:
    own = OwnPut.of("a", FileInfo(1, -1, "tag@"), at(0), at(0), Reference(at(0), _START))
    for identity in (f"gat@{_START}", f"tag@{_START + 1}", "tag"):
        assert not own.is_file(FileInfo(1, _START, identity))
        assert not own.is_file_at_once(FileInfo(1, _START, identity))
