"""Progress bars of commands, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_commitlog.model import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


def progress_bars() -> Bars:
    """Return transient bars on standard error; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def with_progress(names: list[str]) -> Iterator[tuple[str, Progress]]:
    """Yield the names, each with what shows its progress: a bar on a terminal, gone when all is done."""
    with progress_bars() as bars:
        bar = bars.add_task("")
        for number, name in enumerate(names, 1):

            def show(what: str, done: int, total: int, title: str = f"{name} ({number} of {len(names)})") -> None:
                bars.update(bar, description=f"{title}: {what}", completed=done, total=total)

            yield name, show
