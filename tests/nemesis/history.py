"""What processes did and saw: values, and the files of lines that they go to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args


@dataclass(frozen=True, slots=True)
class Acked:
    """A record of a writer that was acknowledged, with the `acks` that it asked for; no writer sends a value twice.

    `offset` is -1 where the writer was not given one.
    """

    writer: str
    value: str
    acks: str
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Shown:
    """A root showed its readers what stands up to entry `number` (its high watermark), with these log ends, and starts.

    `life` counts how often it came back with other contents, old ones or none.
    """

    root: str
    number: int
    ends: tuple[int, ...]
    life: int = 0
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """A reader at a root read the offsets from `start` to `end` (exclusive) of a partition; others are gaps."""

    root: str
    partition: int
    start: int
    end: int
    records: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record of a writer that it is about to send: it may land, whatever becomes of the writer."""

    writer: str
    value: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """Somebody had the records of a partition deleted below an offset, and was told that they are."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Polled:
    """A consumer whose position was `position` was handed out these records, ascending.

    `start` is the log start offset that was shown afterwards: what it was not handed out lies below.
    """

    partition: int
    position: int
    records: tuple[tuple[int, str], ...]
    start: int


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A reader that was behind was told that what it wanted is deleted."""

    who: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Something ended with an error: not a fault by itself."""

    what: str
    error: str


@dataclass(frozen=True, slots=True)
class Batches:
    """A query's checkpoint says that so many batches are committed, of so many `rows`: values `writer-0`, `writer-1`, …"""

    writer: str
    rows: int
    committed: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A consumer group has the records of a partition below an offset behind it; its members tell what they are as `Read`."""

    group: str
    partition: int
    offset: int


Event = Acked | Shown | Read | Sent | Deleted | Polled | Overtaken | Failed | Batches | Committed
_KINDS = {kind.__name__: kind for kind in get_args(Event)}


class Recorder:
    """Appends events to a file, each with one system call: a process that is killed leaves whole lines but the last."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._file, b"\n")  # ends what one that was killed began

    def add(self, *events: Event) -> None:
        """Write events down."""
        lines = [json.dumps([type(event).__name__, asdict(event)]) + "\n" for event in events]
        os.write(self._file, "".join(lines).encode())


def path_of(home: Path, topic: str, name: str) -> Path:
    """Return the file of what somebody did with a topic, and saw of it."""
    return home / "histories" / topic / name


def histories_of(home: Path, topic: str) -> list[list[Event]]:
    """Return what was written down of a topic, by each who did."""
    return [list(recorded(path)) for path in sorted((home / "histories" / topic).glob("*"))]


def recorded(path: Path) -> Iterator[Event]:
    """Yield the events of a file in their order; what a killed process left unfinished is left out."""
    for line in path.read_text().splitlines():
        try:
            name, found = json.loads(line)
        except ValueError:
            continue
        for field in ("ends", "starts"):
            if field in found:
                found[field] = tuple(found[field])
        if "records" in found:
            found["records"] = tuple((offset, value) for offset, value in found["records"])
        yield _KINDS[name](**found)
