"""What a journal holds and what is put next: values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.storage import FileInfo

#: What an operation comes to, for its caller.
Result = TypeVar("Result")
_Result = TypeVar("_Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it lies in storage.

    Of one that was just put, ``info`` may lack the time (``FileInfo``): ask ``Journal.dated``, or ``Journal.timed``.
    """

    entry: Entry
    info: FileInfo

    @property
    def sequence(self) -> int:
        """Return the entry's number."""
        return self.entry.sequence


@dataclass(frozen=True, slots=True)
class Draft(Generic[_Result]):
    """What an operation wants to put next, and ``result``: what it comes to when that is put.

    ``sides`` are tables that go to write-once files before the entry is put: kind -> bytes. ``lineage`` and ``next``
    are those of a copied topic's entries: the history of its source, and where the next entry goes. ``acks_all`` is
    said of appends: whether all replicas that are in sync have to have the records before they are acknowledged;
    ``hw_later`` whether their writer has the high watermark stated after that, so that nobody waits for it.
    """

    kind: str
    topic_id: str
    body: Json
    inline: bytes = b""
    sides: Mapping[str, bytes] = field(default_factory=dict)
    lineage: Lineage | None = None
    next: int | None = None
    features: tuple[str, ...] = ()
    acks_all: bool = True
    hw_later: bool = False
    result: _Result = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[_Result]):
    """The answer of a plan that has nothing (left) to put, and what the operation comes to all the same.

    ``acks_all``: as of a ``Draft``, for what was appended before.
    """

    result: _Result
    acks_all: bool = False


@dataclass(frozen=True, slots=True)
class LandedDraft:
    """Answer of a plan that finds its own write id in place.

    Its draft landed: the result of that counts.
    """


class Appended(NamedTuple, Generic[Result]):
    """What an append did: the entry as stored, None where there was nothing to put; and the operation's result."""

    stored: Stored | None
    result: Result


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a draft would go: its number, and a write id of its own."""

    sequence: int
    write_id: str


def slot_of(entry: Entry) -> Slot:
    """Return where an entry went."""
    return Slot(entry.sequence, entry.write_id)


#: Plans the next entry on top of the newest one. Called once per attempt.
Plan = Callable[[Stored | None, Slot], Draft[Result] | Unchanged[Result] | LandedDraft]


def no_sides(topic_id: str, file: str) -> str:
    """Return where a journal without side files has them: nowhere, its entries are bounded."""
    raise AssertionError(f"an entry without side files names {file}")
