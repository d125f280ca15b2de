"""The journal: numbered, write-once entries on put-if-absent."""

from __future__ import annotations

from pyspark_commitlog.journal.appending import Journal
from pyspark_commitlog.journal.entries import Appended, Draft, Landed, Plan, Result, Slot, Stored, Unchanged, no_sides
from pyspark_commitlog.journal.reading import Known

__all__ = [
    "Appended",
    "Draft",
    "Journal",
    "Known",
    "Landed",
    "Plan",
    "Result",
    "Slot",
    "Stored",
    "Unchanged",
    "no_sides",
]
