"""What every model shows: a scene breaks nothing while all rules hold, and without any one of them some scene does.

A model has its own rows, `Whole` and `Without`; here is how they are explored, judged by tests, and printed as tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tests.model.exploration import Report, Scenario, explore

Story = Callable[..., Scenario]
"""A scene: a function of the rules, and of its bounds."""

Bounds = tuple[tuple[str, Any], ...]
"""What a story takes besides the rules, by name."""


class Whole:
    """A scene that must break nothing, the least number of its states, what it must come to, and its bounds."""

    rules: ClassVar[Any]
    story: Story
    at_least: int
    reaching: str = ""
    bounds: Bounds = ()

    def __str__(self) -> str:
        return "-".join([self.story.__name__, *(f"{name}={value}" for name, value in self.bounds)])

    def scenario(self) -> Scenario:
        """Return the scene with all rules."""
        return self.story(self.rules, **dict(self.bounds))

    def explored(self) -> Report:
        """Explore it."""
        return explore(self.scenario())


class Without:
    """A rule that is taken out or weakened, the scene that shows why it is there, and the property that breaks in it.

    `rule` is its number on the model's page.
    """

    rules: ClassVar[Any]
    rule: str
    guard: str
    value: Any
    story: Story
    breaks: str
    bounds: Bounds = ()

    @property
    def taken_out(self) -> str:
        """Return how the rule is named that does not hold."""
        return f"{self.guard}={self.value}"

    def __str__(self) -> str:
        return f"{self.taken_out}-{self.story.__name__}"

    def explored(self) -> Report:
        """Explore the scene without the rule."""
        return explore(self.story(replace(self.rules, **{self.guard: self.value}), **dict(self.bounds)))

    def is_seen(self, report: Report) -> bool:
        """Return whether the property broke that should."""
        return report.broken is not None and report.broken.startswith(self.breaks)


@dataclass(frozen=True)
class Weakened(Without):
    """A rule with a value that is too weak; rules of a page that gives them no numbers."""

    guard: str
    value: Any
    story: Story
    breaks: str
    bounds: Bounds = ()
    rule: str = ""


def by_size(wholes: Iterable[Any], most: int) -> list[Any]:
    """Return scenes as parameters of a test; those of more states are left to `make test-models`."""
    return [pytest.param(w, marks=[pytest.mark.nightly] if w.at_least > most else [], id=str(w)) for w in wholes]


# --- For tests ----------------------------------------------------------------------------------------------------------


def show(report: Report, capsys: pytest.CaptureFixture[str], name: str = "", bounds: str = "") -> None:
    """Print what was explored, also where the test passes."""
    with capsys.disabled():
        print(f"\n  {f'{name}: ' if name else ''}{report}{f' [{bounds}]' if bounds else ''}", end=" ")


def assert_nothing_breaks(whole: Whole, capsys: pytest.CaptureFixture[str], bounds: str = "") -> None:
    """Explore to the end; the floor and the phases reached make sure that the exploration did not shrink."""
    report = whole.explored()
    show(report, capsys, str(whole), bounds)
    assert report.broken is None, str(report)
    assert report.states >= whole.at_least
    assert report.reached >= set(whole.reaching.split())


def assert_breaks(without: Without) -> None:
    """Explore until the property breaks for which the rule is there."""
    report = without.explored()
    print(report)
    assert report.broken is not None, f"nothing breaks without {without.guard}: is the rule needed?"
    assert without.is_seen(report), str(report)


# --- The tables ---------------------------------------------------------------------------------------------------------


class Tables:
    """Explores all, prints tables in Markdown row by row, and counts what was not as expected.

    Args:
        bounds_of: what a scene's bounds are, in words.
    """

    def __init__(self, bounds_of: Callable[[Scenario], str]) -> None:
        self._bounds_of, self._began = bounds_of, time.monotonic()
        self._odd = self._states = 0

    def scenes(self, wholes: Iterable[Whole]) -> None:
        """Print the scenes in which nothing may break."""
        print("| scene | bounds | states | steps | seconds |\n|---|---|---|---|---|")
        for whole in wholes:
            began = time.monotonic()
            report = whole.explored()
            bounds = self._bounds_of(whole.scenario())
            self.scene(report, str(whole), bounds, f"{time.monotonic() - began:.1f}")

    def scene(self, report: Report, name: str, bounds: str = "", seconds: str = "") -> None:
        """Print one of them."""
        self._states += report.states
        self._odd += report.broken is not None
        row = _row(name, bounds, f"{report.states:,}", f"{report.transitions:,}", seconds)
        print(f"{row}{report.broken or ''}", flush=True)

    def at_random(self, scenario: Scenario, report: Report) -> None:
        """Print what random schedules came to; their states are not all that there are."""
        self.scene(report, "everything, at random", self._bounds_of(scenario))
        self._states -= report.states

    def without(self, cases: Iterable[Without]) -> None:
        """Print what breaks without each rule."""
        print("\n| rule | taken out | scene | states | steps | what breaks |\n|---|---|---|---|---|---|")
        for case in cases:
            report = case.explored()
            self._odd += not case.is_seen(report)
            size = f"{report.states:,}", f"{len(report.trace)}"
            print(_row(case.rule, f"`{case.taken_out}`", case.story.__name__, *size, str(report.broken)), flush=True)

    def end(self) -> int:
        """Print the sum; return how much was not as expected."""
        took = f"{time.monotonic() - self._began:.0f} s"
        print(f"\n{self._odd or 'none'} not as expected; {self._states:,} states, {took}")
        return self._odd


def _row(*cells: str) -> str:
    return "".join(["|", *(f" {cell} |" if cell else " |" for cell in cells)])
