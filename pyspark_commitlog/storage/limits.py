"""Process-wide limits, whatever the number of topics, partitions and roots.

Beyond one an operation waits or uses less, but never fails. See docs/reference/limits.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

from pyspark_commitlog.errors import OptionError

#: Minimums.
LEAST = {"threads": 8, "files": 16, "cache_bytes": 0, "read_ahead_bytes": 0}
_VARIABLE = "COMMITLOG_MAX_"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of a process.

    Args:
        threads: threads of the package. Default: 32. Minimum: 8.
        files: files kept open between calls. Default: 256. Minimum: 16.
        cache_bytes: cached bytes of decoded frames, entries and tables. Default: 64 MiB. Minimum: 0.
        read_ahead_bytes: bytes that readers have fetched and not read yet, if files can't be mapped. Default: 128 MiB.
            Minimum: 0; each reader always gets 256 KiB and the frame it reads.
    """

    threads: int = 32
    files: int = 256
    cache_bytes: int = 64 * 2**20
    read_ahead_bytes: int = 128 * 2**20

    def check(self) -> ProcessLimits:
        """Return these limits.

        Raises:
            OptionError: names the invalid limit and its minimum.
        """
        for name, least in LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise OptionError(f"limit {name}={value!r} is not allowed: it takes a whole number, {least} or more")
        return self


def from_environment() -> ProcessLimits:
    """Limits of `COMMITLOG_MAX_THREADS`, `…_FILES` …, else the defaults.

    Raises:
        OptionError: a variable is not allowed.
    """
    limits: dict[str, int] = {}
    for field in fields(ProcessLimits):
        variable = f"{_VARIABLE}{field.name.upper()}"
        text = os.environ.get(variable)
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or int(text) < LEAST[field.name]:
            raise OptionError(
                f"environment variable {variable}={text!r} is not allowed: it takes a whole number, "
                f"{LEAST[field.name]} or more"
            )
        limits[field.name] = int(text)
    return ProcessLimits(**limits)


_limits: ProcessLimits | None = None


def limits() -> ProcessLimits:
    """Return what holds for this process: what `set_process_limits` set, else the environment, else the defaults.

    Raises:
        OptionError: an environment variable is not allowed.
    """
    global _limits
    if _limits is None:
        _limits = from_environment()
    return _limits


def set_process_limits(
    *,
    threads: int | None = None,
    files: int | None = None,
    cache_bytes: int | None = None,
    read_ahead_bytes: int | None = None,
) -> ProcessLimits:
    """Set limits of this process and its future forks.

    Args:
        threads: see `ProcessLimits`. Excess threads end after their current work.
        files: see `ProcessLimits`.
        cache_bytes: see `ProcessLimits`. Excess items are dropped at the next put.
        read_ahead_bytes: see `ProcessLimits`.

    Returns:
        The limits from now on.

    Raises:
        OptionError: one is not allowed; nothing was changed.
    """
    global _limits
    given = {
        "threads": threads, "files": files, "cache_bytes": cache_bytes, "read_ahead_bytes": read_ahead_bytes,
    }  # fmt: skip
    _limits = replace(limits(), **{name: value for name, value in given.items() if value is not None}).check()
    return _limits
