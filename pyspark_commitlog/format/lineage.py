"""Lineage: identifies the history of a journal entry or position. Pure.

A restored root reuses topic ids, offsets and sequences. An entry's lineage is a hash chain over all write ids up to it:
journals with an equal mark at a sequence are equal up to there. See docs/explanation/design/restored-roots.md.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

#: A mark at a multiple of 2^k is kept for this many times 2^k entries.
REACH = 16
#: Base64 letters of a mark: 48 bits.
_WIDTH = 8
_POSITION = re.compile(r"([1-9][0-9]{0,18}):((?:[A-Za-z0-9+/]{8})+)")


class Verdict(Enum):
    """Result of comparing two lineages."""

    SAME = "same"
    PARTED = "parted"
    UNKNOWN = "unknown"


@lru_cache(maxsize=64)
def marked_sequences(sequence: int) -> tuple[int, ...]:
    """Sequences an entry has marks of, its own first, descending.

    A multiple of 2^k is kept while at most `REACH` · 2^k below.
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
    while sequence:
        yield sequence
        sequence &= sequence - 1


@dataclass(frozen=True)
class Lineage:
    """Marks of a history, as stored in an entry or a position.

    `marks` concatenates `_WIDTH` letters each, descending from `sequence`.
    """

    sequence: int = 0
    marks: str = ""

    @cached_property
    def at(self) -> Mapping[int, str]:
        """Return sequence -> mark."""
        marks = [self.marks[i : i + _WIDTH] for i in range(0, len(self.marks), _WIDTH)]
        by_entry = marked_sequences(self.sequence)
        # A position has the marks of its descent, a subset of its entry's; equal counts mean all.
        sequences = by_entry if len(by_entry) == len(marks) else _descent(self.sequence)
        return dict(zip(sequences, marks, strict=False))

    @classmethod
    def superseding(cls, sequence: int, write_id: str) -> Lineage:
        """Lineage of an entry without predecessor: every mark differs."""
        begun = cls().advanced(write_id)
        return cls(sequence, begun.marks * len(marked_sequences(sequence)))

    @classmethod
    def of_copied_entry(cls, sequence: int, later: Lineage, before: Lineage, write_id: str) -> Lineage:
        """Lineage of a copied entry below `later`.

        Marks come from `later`, else from the entry `before`; the rest are arbitrary, as no later entry has marks
        there.
        """
        own = cls().advanced(write_id).marks
        return cls(sequence, "".join(later.at.get(at) or before.at.get(at) or own for at in marked_sequences(sequence)))

    def advanced(self, write_id: str) -> Lineage:
        """Lineage of the next entry."""
        covered = f"{self.marks[:_WIDTH]}{write_id}".encode()
        mark = b64encode(hashlib.sha256(covered).digest()[: _WIDTH * 3 // 4]).decode()
        return Lineage(self.sequence + 1, mark + self._inherited_marks)

    @property
    def _inherited_marks(self) -> str:
        """Marks that the next entry inherits.

        At most one expires: that of the multiple of 2^k REACH · 2^k below, 2^k the largest power that divides both.
        Before it stand the REACH multiples of 2^k above it, and REACH / 2 odd multiples of each smaller power.
        """
        step = self.sequence & -self.sequence
        place = (REACH + (step.bit_length() - 1) * REACH // 2) * _WIDTH
        return self.marks[:place] + self.marks[place + _WIDTH :]

    @cached_property
    def position(self) -> str:
        """Text of a position, for a group's row or checkpoint."""
        return f"{self.sequence}:" + "".join(self.at[sequence] for sequence in _descent(self.sequence))

    @classmethod
    def of_position(cls, text: str) -> Lineage | None:
        """Lineage in a position's text; None if absent or malformed."""
        match = _POSITION.fullmatch(text)
        return None if match is None else cls(int(match[1]), match[2])


#: The state before a journal's first entry.
NO_LINEAGE = Lineage()


def compare(mine: Lineage, theirs: Lineage) -> Verdict:
    """Whether `theirs`, a newest entry's, continues `mine`, an earlier one's.

    PARTED proves two histories; SAME takes an equal mark at `mine.sequence`.
    """
    own = theirs.at.get(mine.sequence)
    if own is not None and own == mine.at.get(mine.sequence):
        return Verdict.SAME
    if theirs.sequence <= mine.sequence or common(mine, theirs) < _highest(mine, theirs):
        return Verdict.PARTED
    return Verdict.UNKNOWN


def common(mine: Lineage, theirs: Lineage) -> int:
    """Highest sequence with equal marks; 0 if none."""
    return max((sequence for sequence, mark in mine.at.items() if theirs.at.get(sequence) == mark), default=0)


def _highest(mine: Lineage, theirs: Lineage) -> int:
    return max((sequence for sequence in mine.at if sequence in theirs.at), default=0)
