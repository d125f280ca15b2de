"""Values of a journal: stored entries, drafts, plans and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.storage import FileInfo

#: Result of an operation, for its caller.
Result = TypeVar("Result")
_Result = TypeVar("_Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry and its file.

    After a put `info` may lack the time: ask `Journal.dated` or `Journal.timed`.
    """

    entry: Entry
    info: FileInfo

    @property
    def sequence(self) -> int:
        """Entry's number."""
        return self.entry.sequence


@dataclass(frozen=True, slots=True)
class Draft(Generic[_Result]):
    """An entry to put, and the operation's result once it is put.

    Attributes:
        sides: Kind -> bytes of a side file, written first.
        lineage, next: For copied topics: the source's history, the next number.
        acks_all: Acknowledge an append only when all of the ISR have it.
        hw_later: Do not wait for the high watermark; the writer raises it later.
    """

    kind: str
    topic_id: str
    body: Json
    inline: bytes = b""
    sides: Mapping[str, bytes] = field(default_factory=dict)
    lineage: Lineage | None = None
    next: int | None = None
    acks_all: bool = True
    hw_later: bool = False
    result: _Result = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[_Result]):
    """A plan's answer if there is nothing (left) to put."""

    result: _Result
    acks_all: bool = False


@dataclass(frozen=True, slots=True)
class LandedDraft:
    """A plan's answer if its own write id landed: use its draft."""


class Appended(NamedTuple, Generic[Result]):
    """The entry that an append stored (None: none), and the result."""

    stored: Stored | None
    result: Result


@dataclass(frozen=True, slots=True)
class Slot:
    """Number and write id of a draft."""

    sequence: int
    write_id: str


def slot_of(entry: Entry) -> Slot:
    """Slot of an entry that was put."""
    return Slot(entry.sequence, entry.write_id)


#: Plans the next entry on top of the newest one. Called once per attempt.
Plan = Callable[[Stored | None, Slot], Draft[Result] | Unchanged[Result] | LandedDraft]


def no_sides(topic_id: str, file: str) -> str:
    """Refuse a side file, for journals whose entries are bounded."""
    raise AssertionError(f"an entry without side files names {file}")
