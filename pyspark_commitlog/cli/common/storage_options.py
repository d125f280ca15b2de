"""`commitlog --storage-option NAME=VALUE`: how a command gets at an object store, secrets kept out of its history."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from pyspark_commitlog.errors import StorageError, UsageError
from pyspark_commitlog.storage import Storage, environment, open_peer, open_storage

_FROM_ENVIRONMENT, _FROM_FILE = "env:", "@"
_SECRET = re.compile(
    r"secret|password|token|credential|account_key|access_key$|encryption_key|connection_string|sas", re.IGNORECASE
)
_LARGEST_FILE = 2**20

_given: ContextVar[tuple[str, ...]] = ContextVar("given", default=())


def use_storage_options(pairs: Sequence[str] | None) -> None:
    """Set the options that the command opens storage with."""
    _given.set(tuple(pairs or ()))


def storage_options() -> dict[str, object]:
    """Return the storage options of the command line.

    Raises:
        UsageError: see `parse_storage_options`.
    """
    return parse_storage_options(_given.get(), environment, _content)


def parse_storage_options(
    pairs: Sequence[str], variable: Callable[[str], str | None], content: Callable[[str], str]
) -> dict[str, object]:
    """Return options by name; the value `env:NAME` is an environment variable's, `@FILE` a file's (pure).

    Args:
        pairs: `name=value` each.
        variable: returns an environment variable, None where there is none.
        content: returns what is in a file.

    Raises:
        UsageError: one has no `=`, names a variable or file that is not there, or is a secret in plain sight.
    """
    options: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("--storage-option takes name=value, name=env:VARIABLE or name=@FILE")
        if value.startswith(_FROM_ENVIRONMENT):
            found = variable(value.removeprefix(_FROM_ENVIRONMENT))
            if found is None:
                raise UsageError(
                    f"--storage-option {name}: the environment has no {value.removeprefix(_FROM_ENVIRONMENT)}"
                )
            value = found.rstrip("\r\n")
        elif value.startswith(_FROM_FILE):
            value = content(value.removeprefix(_FROM_FILE)).rstrip("\r\n")
        elif _SECRET.search(name):
            raise UsageError(
                f"--storage-option {name}: a secret would stand in the command's history: give {name}=env:VARIABLE or "
                f"{name}=@FILE"
            )
        options[name.strip()] = value
    return options


def storage_at(place: str, pairs: Sequence[str] | None = None) -> Storage:
    """Return the door to a place that a command line names; a path takes none of the options, but for its replicas.

    Args:
        place: a path or a URL.
        pairs: options for this place alone; None for those of the whole command line.

    Raises:
        UsageError, UnsupportedError: it can't be opened.
    """
    if pairs:
        return open_storage(place, parse_storage_options(pairs, environment, _content))
    return open_peer(place, storage_options(), storage_options())


def _content(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    try:
        return open_storage(directory or slash or ".").read(name, 0, _LARGEST_FILE).decode()
    except (FileNotFoundError, StorageError, UnicodeDecodeError) as error:
        raise UsageError(f"--storage-option: cannot read the file {path}: {type(error).__name__}") from error
