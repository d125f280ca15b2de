"""Contenders run in turn; a row of the table compares ours with one peer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MILLISECONDS = "ms"
RATE = "records/s"
#: Units of which more is better; of all others less is.
BETTER_IF_MORE = (RATE,)


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Contender:
    """What is timed: `act` is given what `prepare` returned, which is not timed."""

    act: Callable[[Any], object]
    prepare: Callable[[], Any] = nothing


def just(act: Callable[[], object]) -> Contender:
    """Return a contender that needs nothing prepared."""
    return Contender(lambda _: act())


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of ours next to a peer's, and their ratio; without a peer only ours.

    `our_runs` and `their_runs` are what the figures are the medians of, in the order they ran; empty where a
    figure is none.
    """

    work: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None
    our_runs: tuple[float, ...] = ()
    their_runs: tuple[float, ...] = ()
    session: str = ""

    @property
    def ratio(self) -> float | None:
        """Return ours / theirs."""
        return None if self.theirs is None else self.ours / self.theirs

    def line(self) -> str:
        """Return the line."""
        theirs, ratio = ("", "") if self.theirs is None else (number(self.theirs), f"{self.ratio:.2f}")
        return f"{self.work:<60} {self.peer:<38} {self.unit:<10} {number(self.ours):>12} {theirs:>12} {ratio:>7}"


def number(value: float) -> str:
    """Return a figure with as many decimals as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


HEAD = f"{'work':<60} {'peer':<38} {'unit':<10} {'ours':>12} {'peer':>12} {'ratio':>7}"


def side_by_side(rows: Sequence[Row], sessions: Sequence[str]) -> Iterator[str]:
    """Yield a table of ratios: a line for each work and peer that more than one session measured."""
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if row.ratio is not None:
            ratios.setdefault((row.work, row.peer), {})[row.session] = row.ratio
    yield f"{'ours / peer':<60} {'peer':<38}" + "".join(f" {name:>12}" for name in sessions)
    for (work, peer), found in ratios.items():
        if len(found) > 1:
            cells = (f"{found[name]:.2f}" if name in found else "" for name in sessions)
            yield f"{work:<60} {peer:<38}" + "".join(f" {cell:>12}" for cell in cells)


class Table:
    """Measures, and prints each row as soon as it is known.

    Args:
        runs: measured runs of each contender, in turn with the others. Right before each goes one that does not
            count: meanwhile the machine may have taken memory back, of files and programs that nobody used.
        rest: lets the disk finish what others left to it; called before each run.
        clean: removes what a run left; called after each.
        warm_up: rounds before those, in which no run of `rates` counts: Java, in the session and in the broker,
            compiles by and by what runs often, and until then figures tell how far it has come.
        keep: is given each row as soon as it is known.
    """

    def __init__(
        self,
        runs: int,
        rest: Callable[[], None],
        clean: Callable[[], None],
        warm_up: int = 0,
        keep: Callable[[Row], None] | None = None,
    ) -> None:
        self.runs, self._rest, self._clean, self._warm_up, self._keep = runs, rest, clean, warm_up, keep

    def add(self, row: Row) -> None:
        """Print and keep a row."""
        print(row.line(), flush=True)
        if self._keep is not None:
            self._keep(row)

    def rates(self, work: str, records: int, ours: Contender, peers: Mapping[str, Contender]) -> None:
        """Compare how many records each gets done in a second."""
        for _ in range(self._warm_up):
            for contender in (ours, *peers.values()):
                self._run(contender)
        seconds = self.seconds(ours, peers)
        self.compare(work, RATE, {name: [records / each for each in taken] for name, taken in seconds.items()})

    def times(self, work: str, ours: Contender, peers: Mapping[str, Contender]) -> None:
        """Compare how many milliseconds each takes."""
        seconds = self.seconds(ours, peers)
        self.compare(work, MILLISECONDS, {name: [each * 1000 for each in taken] for name, taken in seconds.items()})

    def compare(self, work: str, unit: str, runs: Mapping[str, Sequence[float]]) -> None:
        """Compare the medians of each contender's runs, by name; ours is ''."""
        ours = tuple(runs[""])
        median = statistics.median(ours)
        for peer, theirs in runs.items():
            if peer:
                self.add(Row(work, unit, median, peer, statistics.median(theirs), ours, tuple(theirs)))
        if len(runs) == 1:
            self.add(Row(work, unit, median, our_runs=ours))

    def seconds(self, ours: Contender, peers: Mapping[str, Contender]) -> dict[str, list[float]]:
        """Return what the runs of each contender took, by name; ours is ''."""
        contenders = {"": ours, **peers}
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(self.runs):
            for name, contender in contenders.items():
                self._run(contender)
                taken[name].append(self._run(contender))
        return taken

    def _run(self, contender: Contender) -> float:
        prepared = contender.prepare()
        self._rest()
        began = time.perf_counter()
        contender.act(prepared)
        seconds = time.perf_counter() - began
        self._clean()
        return seconds
