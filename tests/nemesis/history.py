"""What processes did and saw: values, and the files of lines that they go to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Acked:
    """A record of a writer that was acknowledged, with the ``acks`` that it asked for; no writer sends a value twice.

    ``offset`` is -1 where the writer was not given one.
    """

    writer: str
    value: str
    acks: str
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Shown:
    """A root showed its readers what stands up to entry ``number`` (its high watermark), with these log ends.

    ``life`` counts how often it came back with other contents, old ones or none.
    """

    root: str
    number: int
    ends: tuple[int, ...]
    life: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A reader at a root read the offsets from ``start`` to ``end`` (exclusive) of a partition; others are gaps."""

    root: str
    partition: int
    start: int
    end: int
    records: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Something ended with an error: not a fault by itself."""

    what: str
    error: str


@dataclass(frozen=True, slots=True)
class Batches:
    """A query's checkpoint says that so many batches are committed, of so many ``rows``: values ``writer-0``, ``writer-1``, …"""

    writer: str
    rows: int
    committed: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A consumer group has the records of a partition below an offset behind it; its members tell what they are as ``Read``."""

    group: str
    partition: int
    offset: int


Event = Acked | Shown | Read | Failed | Batches | Committed
_KINDS = {kind.__name__: kind for kind in (Acked, Shown, Read, Failed, Batches, Committed)}


class Recorder:
    """Appends events to a file, each with one system call: a process that is killed leaves whole lines but the last."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._file, b"\n")  # ends what one that was killed began

    def add(self, *events: Event) -> None:
        """Write events down."""
        lines = [json.dumps([type(event).__name__, asdict(event)]) + "\n" for event in events]
        os.write(self._file, "".join(lines).encode())


def recorded(path: Path) -> Iterator[Event]:
    """Yield the events of a file in their order; what a killed process left unfinished is left out."""
    for line in path.read_text().splitlines():
        try:
            name, found = json.loads(line)
        except ValueError:
            continue
        if name == "Shown":
            found["ends"] = tuple(found["ends"])
        if name == "Read":
            found["records"] = tuple((offset, value) for offset, value in found["records"])
        yield _KINDS[name](**found)
