"""Blocks that may fail: collect their errors and go on, or undo and raise."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import as_reported, combine_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from pyspark_commitlog.model import Watched

    Passing = type[Exception] | tuple[type[Exception], ...]


class ErrorBoundary:
    """Passes an error of its block to `take`, and goes on after the block.

    Raises interrupts, errors in `passing`, and what `progress` raised to end all work.
    """

    def __init__(
        self, take: Callable[[Exception], object], progress: Watched | None = None, passing: Passing = ()
    ) -> None:
        self._take, self._progress, self._passing = take, progress, passing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        if self._progress is not None and self._progress.ended_by(error):
            return False
        self._take(error)  # of any class: a bug in one part stops no other
        return True


class Failures(list[Exception]):
    """Collected errors, in order; arguments as of `ErrorBoundary`."""

    def __init__(self, progress: Watched | None = None, passing: Passing = ()) -> None:
        super().__init__()
        self._progress, self._passing = progress, passing

    def collected(self) -> ErrorBoundary:
        """Return a boundary that collects."""
        return ErrorBoundary(self.append, self._progress, self._passing)

    def reported(self) -> list[Exception]:
        """Errors by `as_reported`."""
        return [*map(as_reported, self)]

    def raise_if_any(self, what: str) -> None:
        """Raise the reported errors by `combine_errors`."""
        if self:
            raise combine_errors(self.reported(), what)


@contextmanager
def call_on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block fails, by Ctrl-C too.

    Not for locks: Ctrl-C at its very beginning or end is missed.
    """
    try:
        yield
    except BaseException:  # Ctrl-C
        undo()
        raise
