"""Arguments that most commands take, and the principal."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pyspark_commitlog.cli.common.endings import ended_by_errors
from pyspark_commitlog.cli.common.storage_options import storage_at, storage_options, use_storage_options
from pyspark_commitlog.errors import CommitLogError, UsageError
from pyspark_commitlog.instants import parse_instant
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog

#: Longest wait for names in a completion, seconds.
_COMPLETION_SECONDS = 3

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
    return _completions(context, incomplete, lambda log: log.topics())


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return group names with a prefix, as `complete_topic`."""
    return _completions(context, incomplete, lambda log: log.groups.list())


def _completions(context: typer.Context, prefix: str, names: Callable[[CommitLog], Sequence[str]]) -> list[str]:
    try:
        log = _root_of(context)  # touches no storage, and takes long to import what opens it
        signal.alarm(_COMPLETION_SECONDS)  # ends this process: the storage may hang
        return [name for name in names(log) if name.startswith(prefix)] if log else []
    except CommitLogError:
        return []
    finally:
        signal.alarm(0)


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


@contextmanager
def opened(root: str) -> Iterator[CommitLog]:
    """Yield the log at a root, for the command line's principal; an error in the block ends the command."""
    with ended_by_errors():
        from pyspark_commitlog.api.commit_log import CommitLog

        yield CommitLog(root, storage_options(), principal())


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


class ListenAddress(NamedTuple):
    """Address and port to listen at; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> ListenAddress:
    """Parse `127.0.0.1:9308` or `[::1]:9308`, as its text is in a URL (pure).

    Raises:
        UsageError: no address, or no port.
    """
    found = re.fullmatch(r"(?:\[([^]]+)\]|([^:]+)):(\d{1,5})", text, re.ASCII)
    if found is None or int(found[3]) >= 2**16:
        raise UsageError(
            f"--listen {text}: use ADDRESS:PORT, as in 127.0.0.1:9308, or [::1]:9308; port 0 is any free one"
        )
    return ListenAddress(found[1] or found[2], int(found[3]))


@contextmanager
def listening(address: ListenAddress) -> Iterator[None]:
    """Name the address in an error of listening there, as `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"--listen {address}: {error.strerror or error}: give another address, or port 0 for any free one"
        ) from error


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
