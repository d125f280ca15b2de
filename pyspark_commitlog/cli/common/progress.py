"""Progress bars of commands, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_commitlog.model import Progress
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

#: The bars on the terminal.
_on_terminal: list[Bars] = []


@contextmanager
def progress_bars(*, wanted: bool = True) -> Iterator[Bars]:
    """Yield transient bars on standard error; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    shown = wanted and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bars:
        if shown:
            _on_terminal.append(bars)
        try:
            yield bars
        finally:
            _on_terminal.clear()


@contextmanager
def without_bars() -> Iterator[None]:
    """Take the bars off the terminal for the block, which prints: no line of it follows them."""
    for bars in _on_terminal:
        bars.stop()
    try:
        yield
    finally:
        for bars in _on_terminal:
            bars.start()


def with_progress(names: list[str]) -> Iterator[tuple[str, Progress]]:
    """Yield the names, each with what shows its progress: a bar on a terminal, gone when all is done."""
    with progress_bars() as bars:
        bar = bars.add_task("", total=None)
        for number, name in enumerate(names, 1):
            title = f"{name} ({number} of {len(names)})"
            bars.update(bar, description=title)

            def show(what: str, done: int, total: int, title: str = title) -> None:
                bars.update(bar, description=f"{title}: {what}", completed=done, total=total)

            yield name, show


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show on a terminal what the block does, and for how long already."""
    with progress_bars() as bars:
        bars.add_task(what, total=None)
        yield


@contextmanager
def record_counter(what: str, *, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Yield what adds a number of records to the count that a terminal shows."""
    with progress_bars(wanted=wanted) as bars:
        bar, done = bars.add_task(what, total=None), 0

        def add(records: int) -> None:
            nonlocal done
            done += records
            bars.update(bar, description=f"{what}: {counted(done, 'record')}")

        yield add
