"""Which history a journal entry, or a position, belongs to. Pure.

A root that is restored from a copy goes on with the same topic ids, offsets and sequences, and other records. The
lineage of an entry is a hash over the write ids of all entries up to it: two journals that have it in common at a
sequence are the same up to there. docs/explanation/design/restored-roots.md has the interleavings.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

#: A multiple of 2^k is remembered for so many times 2^k entries.
REACH = 16
#: Base64 letters of a mark: 48 bits.
_WIDTH = 8
_POSITION = re.compile(r"([1-9][0-9]{0,18}):((?:[A-Za-z0-9+/]{8})+)")


class Verdict(Enum):
    """What two lineages say of each other."""

    SAME = "same"
    PARTED = "parted"
    UNKNOWN = "unknown"


@lru_cache(maxsize=64)
def marked_sequences(sequence: int) -> tuple[int, ...]:
    """Return the sequences of which an entry has marks, its own first, then descending.

    A multiple of 2^k is kept while it is no more than ``REACH`` · 2^k below. What the next entry keeps, this one does.
    """
    numbers, at, step = list[int](), sequence, 1
    while at > 0:
        if sequence - at > REACH * step:
            step *= 2
            at -= at % step
        else:
            numbers.append(at)
            at -= step
    return tuple(numbers)


def _descent(sequence: int) -> Iterator[int]:
    """Yield a number, and what is left of it as its lower bits are cleared one by one; not 0."""
    while sequence:
        yield sequence
        sequence &= sequence - 1


@dataclass(frozen=True)
class Lineage:
    """Marks of a history at some sequences, as an entry or a position has them.

    ``marks`` are ``_WIDTH`` letters each, that of ``sequence`` first; which sequences the others belong to follows from
    it. 0 and none before the first entry.
    """

    sequence: int = 0
    marks: str = ""

    @cached_property
    def at(self) -> Mapping[int, str]:
        """Return sequence -> mark."""
        marks = [self.marks[i : i + _WIDTH] for i in range(0, len(self.marks), _WIDTH)]
        by_entry = marked_sequences(self.sequence)
        # A position has those of its descent, a part of what its entry has: all of it, where they are as many.
        sequences = by_entry if len(by_entry) == len(marks) else _descent(self.sequence)
        return dict(zip(sequences, marks, strict=False))

    @classmethod
    def superseding(cls, sequence: int, write_id: str) -> Lineage:
        """Return the lineage of an entry that follows none: a history of its own, which differs at every mark."""
        begun = cls().advanced(write_id)
        return cls(sequence, begun.marks * len(marked_sequences(sequence)))

    @classmethod
    def of_copied_entry(cls, sequence: int, later: Lineage, before: Lineage, write_id: str) -> Lineage:
        """Return the lineage of a copied entry below ``later``.

        It has the marks of ``later`` as far as those are kept there, then those of the entry ``before``. Numbers that
        neither knows get a mark of its own: no later entry of the history has one for them (``marked_sequences``), so
        none differs.
        """
        own = cls().advanced(write_id).marks
        return cls(sequence, "".join(later.at.get(at) or before.at.get(at) or own for at in marked_sequences(sequence)))

    def advanced(self, write_id: str) -> Lineage:
        """Return the lineage of the entry after this one."""
        covered = f"{self.marks[:_WIDTH]}{write_id}".encode()
        mark = b64encode(hashlib.sha256(covered).digest()[: _WIDTH * 3 // 4]).decode()
        return Lineage(self.sequence + 1, mark + self._inherited_marks)

    @property
    def _inherited_marks(self) -> str:
        """Return the marks the next entry inherits: all but one at most.

        A mark goes when it lies one too far below, so that of a multiple of 2^k REACH · 2^k below this entry, where 2^k
        is the largest power that divides both. Before it stand those of the REACH multiples of 2^k above it, and of
        every smaller power the odd multiples, REACH / 2 of them. While there is no such number, there are fewer marks.
        """
        step = self.sequence & -self.sequence
        place = (REACH + (step.bit_length() - 1) * REACH // 2) * _WIDTH
        return self.marks[:place] + self.marks[place + _WIDTH :]

    @cached_property
    def position(self) -> str:
        """Return what a position has to remember: text for a group's row, or a checkpoint."""
        return f"{self.sequence}:" + "".join(self.at[sequence] for sequence in _descent(self.sequence))

    @classmethod
    def of_position(cls, text: str) -> Lineage | None:
        """Return the value of a position's text; None for none, as older ones have, or for what is none."""
        match = _POSITION.fullmatch(text)
        return None if match is None else cls(int(match[1]), match[2])


#: Before the first entry of a journal.
NO_LINEAGE = Lineage()


def compare(mine: Lineage, theirs: Lineage) -> Verdict:
    """Return whether ``theirs``, of a newest entry, goes on from ``mine``, that of an entry seen before.

    PARTED is never said of one history. SAME is said only where both have the same mark of my sequence.
    """
    own = theirs.at.get(mine.sequence)
    if own is not None and own == mine.at.get(mine.sequence):
        return Verdict.SAME
    if theirs.sequence <= mine.sequence or common(mine, theirs) < _highest(mine, theirs):
        return Verdict.PARTED
    return Verdict.UNKNOWN


def common(mine: Lineage, theirs: Lineage) -> int:
    """Return the highest sequence up to which both are shown to be the same; 0 where nothing shows it."""
    return max((sequence for sequence, mark in mine.at.items() if theirs.at.get(sequence) == mark), default=0)


def _highest(mine: Lineage, theirs: Lineage) -> int:
    return max((sequence for sequence in mine.at if sequence in theirs.at), default=0)
