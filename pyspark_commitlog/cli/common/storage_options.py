"""`commitlog --storage-option NAME=VALUE`: options of an object store, secrets kept out of the history."""

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
    """Set the command's storage options."""
    _given.set(tuple(pairs or ()))


def storage_options() -> dict[str, object]:
    """Return the command's storage options."""
    return parse_storage_options(_given.get(), environment, _content)


def parse_storage_options(
    pairs: Sequence[str], variable: Callable[[str], str | None], content: Callable[[str], str]
) -> dict[str, object]:
    """Return options by name; the value `env:NAME` is an environment variable's, `@FILE` a file's (pure)."""
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
    """Open the storage at a path or URL named on the command line.

    A path takes options only for its replicas. `pairs` are for this place alone; None: the command's.
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
