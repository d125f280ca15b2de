"""The journal: numbered, write-once entries on put-if-absent."""

from __future__ import annotations

from pyspark_commitlog.journal.appending import Journal
from pyspark_commitlog.journal.entries import (
    Appended,
    Draft,
    LandedDraft,
    Plan,
    Result,
    Slot,
    Stored,
    Unchanged,
    no_sides,
)
from pyspark_commitlog.journal.reading import ReaderState

__all__ = [
    "Appended",
    "Draft",
    "Journal",
    "LandedDraft",
    "Plan",
    "ReaderState",
    "Result",
    "Slot",
    "Stored",
    "Unchanged",
    "no_sides",
]
