"""How commands end: one line for each error, exit codes, signals."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

import typer

from pyspark_commitlog.cli.common.progress import without_bars
from pyspark_commitlog.cli.common.storage_options import storage_at
from pyspark_commitlog.errors import CommitLogError, RootNotFoundError, UnknownGroupError, UnknownTopicError, UsageError
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.text import visible

log = logging.getLogger("pyspark_commitlog.cli")

_T = TypeVar("_T")


def complain(text: str) -> None:
    """Print a fault on standard error, in one line."""
    with without_bars():
        typer.echo(visible(text), err=True)


class LogFormatter(logging.Formatter):
    """Formats records as one line each, control characters escaped, and tracebacks below them, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 logging's name
        """Format the line."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 logging's name
        """Format the traceback: no line of an error's text begins one on the terminal."""
        return "\n".join(f"  {visible(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(*, verbose: bool) -> None:
    """Log to standard error: warnings, or all with times and names."""
    if logging.lastResort is not None:  # what prints warnings where no handler is set
        logging.lastResort.setFormatter(LogFormatter())
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(handlers=[handler])
        logging.getLogger("pyspark_commitlog").setLevel(logging.DEBUG)


def error_text(error: CommitLogError) -> str:
    """Return an error's message for the command line."""
    text = error.on_command_line or str(error)
    other = _other_root() if isinstance(error, RootNotFoundError) else None
    return f"{text} ({other} is one: should it come first?)" if other else text


def _other_root() -> str | None:
    """Argument that names a root, if another was taken for it."""
    for text in sys.argv[1:]:
        with suppress(CommitLogError, OSError):
            if storage_at(text).exists(ROOT_MARKER):
                return text
    return None


def exit_code(error: CommitLogError) -> int:
    """Return an error's exit code: 2 for the command line, 1 for others."""
    return 2 if isinstance(error, UsageError) else 1


def complain_of(error: Exception, what: str = "") -> int:
    """Report a failure, each of a group in its own line; return the exit code.

    Tracebacks of unexpected errors are logged, for `--verbose`.
    """
    if isinstance(error, ExceptionGroup):
        return max(complain_of(failure, what) for failure in error.exceptions)
    before = f"{what}: " if what else ""
    if isinstance(error, CommitLogError):
        complain(f"{before}error: {error_text(error)}")
        return exit_code(error)
    log.debug("%sunexpected", before, exc_info=error)
    complain(f"{before}error: {type(error).__name__}: {error}")
    return 1


class EachAlone:
    """Calls for topics or groups, one by one; a failure stops no other.

    `code` is the highest exit code of failures.

    Args:
        named: whether the command line names them; else they were listed, and one that is gone was deleted since.
        ended_by: what ends the command.
    """

    def __init__(self, *, named: bool = True, ended_by: tuple[type[CommitLogError], ...] = ()) -> None:
        self.code = 0
        self._passed = () if named else (UnknownTopicError, UnknownGroupError)
        self._raised: tuple[type[Exception], ...] = (BrokenPipeError, *ended_by)

    def ask(self, of: Callable[[str], _T], name: str = "") -> _T | None:
        """Return the answer for a name, if any; None after a failure."""
        with ErrorBoundary(lambda error: self._failed(error, name), passing=self._raised):
            return of(name)
        return None

    def _failed(self, error: Exception, name: str) -> None:
        if not isinstance(error, self._passed):
            self.report_failure(error, "" if isinstance(error, CommitLogError) else name)

    def report_failure(self, error: Exception, what: str = "") -> None:
        """Report a failure; raise the exit code to its."""
        self.code = max(self.code, complain_of(error, what))

    def found_faults(self) -> None:
        """Raise the exit code to 1: something stored is wrong."""
        self.code = max(self.code, 1)


@contextmanager
def ended_by_errors() -> Iterator[None]:
    """End the command with one line for an error in the block.

    Errors of the system count, as of a full disk. Several failures have a line each, and the worst one's exit code. A
    closed pipe is no error: the reader has ended.
    """
    try:
        yield
    except CommitLogError as error:
        complain(f"error: {error_text(error)}")
        raise typer.Exit(exit_code(error)) from error
    except ExceptionGroup as error:
        raise typer.Exit(complain_of(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"error: {error}")
        raise typer.Exit(1) from error


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, control characters escaped; refuse a closed standard output."""
    for line in lines:
        if sys.stdout is None:
            raise UsageError("the standard output is closed")
        with without_bars():
            typer.echo(visible(line))


class SignalledError(BaseException):
    """SIGINT or SIGTERM came. Like `KeyboardInterrupt`, no error of the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `SignalledError` in the block at SIGINT or SIGTERM; a second one ends the process at once."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(number: int, _: FrameType | None) -> None:
        for signal_number in numbers:
            signal.signal(signal_number, signal.SIG_DFL)
        raise SignalledError(number)

    for signal_number in numbers:
        signal.signal(signal_number, end)
    yield


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGINT or SIGTERM sets; services check it between steps."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
