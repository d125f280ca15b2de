"""Arguments of most commands, the principal, and endings by errors."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pyspark_commitlog.cli.common.storage_options import storage_at, storage_options, use_storage_options
from pyspark_commitlog.errors import CommitLogError, RootNotFoundError, UnknownGroupError, UnknownTopicError, UsageError
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.instants import parse_instant
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import SystemClock
from pyspark_commitlog.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from pyspark_commitlog.api.commit_log import CommitLog

log = logging.getLogger("pyspark_commitlog.cli")

_T = TypeVar("_T")

_asking: ContextVar[str | None] = ContextVar("asking", default=None)


def ask_as(principal: str | None) -> None:
    """Set the command's principal; None: `COMMITLOG_PRINCIPAL`."""
    _asking.set(principal)


def principal() -> str | None:
    """Principal of the command line, if any."""
    return _asking.get()


def _root_of(context: typer.Context) -> CommitLog | None:
    """Log of a command line being completed, if named."""
    from pyspark_commitlog.api.commit_log import CommitLog

    root = context.params.get("root")
    given = context.find_root().params
    use_storage_options(given.get("storage_option"))
    return CommitLog(root, storage_options(), given.get("principal")) if isinstance(root, str) else None


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return topic names with a prefix; none for an unreadable root: a completion shows no errors."""
    try:
        log = _root_of(context)
        return [name for name in log.topics() if name.startswith(incomplete)] if log else []
    except CommitLogError:
        return []


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return group names with a prefix, as `complete_topic`."""
    try:
        log = _root_of(context)
        return [name for name in log.groups.list() if name.startswith(incomplete)] if log else []
    except CommitLogError:
        return []


Root = Annotated[
    str,
    typer.Argument(help="The root: a directory, or a URL as s3://bucket/path; several with commas."),
]
Topic = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)]
Topics = Annotated[
    list[str] | None,
    typer.Argument(help="Topics; all without any.", autocompletion=complete_topic),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON objects, one a line.")]


def open_parent(path: str) -> tuple[Storage, str]:
    """Return the storage of a file's directory, and the file's name there."""
    if not path or path.endswith("/"):
        raise UsageError(f"{path!r} names no file")
    directory, _, name = path.rpartition("/")
    return storage_at(directory or "/" * path.startswith("/") or "."), name


def progress_bars() -> Bars:
    """Return transient bars on standard error; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def complain(text: str) -> None:
    """Print a fault on standard error, in one line."""
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


@contextmanager
def opened(root: str) -> Iterator[CommitLog]:
    """Yield the log at a root, for the command line's principal; an error in the block ends the command."""
    with ended_by_errors():
        from pyspark_commitlog.api.commit_log import CommitLog

        yield CommitLog(root, storage_options(), principal())


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, control characters escaped; refuse a closed standard output."""
    for line in lines:
        if sys.stdout is None:
            raise UsageError("the standard output is closed")
        typer.echo(visible(line))


def parse_config(pairs: list[str] | None) -> dict[str, object]:
    """Parse several `--config name=value`."""
    config: dict[str, object] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--config {pair}: use name=value")
        config[name.strip()] = value.strip()
    return config


def parse_partitions(pairs: list[str], what: str) -> dict[int, int]:
    """Parse several `0:25` to partition -> number."""
    numbers: dict[int, int] = {}
    for pair in pairs:
        partition, _, number = pair.partition(":")
        try:
            numbers[int(partition)] = int(number)
        except ValueError:
            raise UsageError(f"{what} {pair}: use partition:offset, as in 0:25") from None
    return numbers


def instant_of(option: str, text: str, also: str = "") -> int:
    """Return an option's point in time, in ms since 1970 (`instants.parse_instant`).

    `also`: what else the option takes, for the error.
    """
    try:
        return parse_instant(text, SystemClock().now_ms())
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}{also}") from None


_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}


def unescape(text: str, what: str) -> bytes:
    r"""Return a text as UTF-8, `\n`, `\r`, `\t`, `\\` and `\xHH` as the bytes they stand for (pure).

    Raises:
        UsageError: another escape.
    """

    def of(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if escape[:1] == b"x" and len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        raise UsageError(f"{what} {text!r}: it takes the escapes \\n, \\r, \\t, \\\\ and \\xHH")

    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.?)", of, text.encode(errors="surrogateescape"), flags=re.DOTALL)


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
