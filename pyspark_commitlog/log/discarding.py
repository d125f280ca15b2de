"""Discarding of unfinished output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class _Discardable(Protocol):
    def discard(self) -> None: ...


@contextmanager
def discard_on_error(output: _Discardable) -> Iterator[None]:
    """Discard an output if the block fails."""
    try:
        yield
    except BaseException:
        output.discard()
        raise
