"""Side files: tables that would make an entry too large, written beside it once and named by it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.format.entry import Checked, Entry, Json, to_json_bytes
from pyspark_commitlog.format.paths import side_name

#: A table larger than this goes to a side file, bytes.
TABLE_BYTES = 16 * 1024
#: The tables of a settle entry, and how the names of their side files end; all others belong to the topic's journal.
SETTLE_KINDS = ("partitions", "damaged")
SETTLE_TABLES = tuple(f".{kind}" for kind in SETTLE_KINDS)


@dataclass(frozen=True, slots=True)
class Tables:
    """A body's large tables, each kept in the entry or moved to a side file."""

    body: Json
    sides: Mapping[str, bytes]


def place_tables(tables: Mapping[str, Any], sequence: int, write_id: str) -> Tables:
    """Return each table as it stands in the entry: itself, or the name of the side file that is to hold it."""
    body: Json = {}
    sides: dict[str, bytes] = {}
    for kind, table in tables.items():
        data = to_json_bytes(table)
        if len(data) <= TABLE_BYTES:
            body[kind] = table
        else:
            body[kind] = named_side(kind, data, sequence, write_id)
            sides[kind] = data
    return Tables(body, sides)


def named_side(kind: str, data: bytes, sequence: int, write_id: str) -> Json:
    """Return how an entry names a side file."""
    return {"file": side_name(sequence, write_id, kind), **Checked.of(data).to_json()}


def side_tables(entry: Entry) -> list[Json]:
    """Return how an entry of a topic's journal, or of its settle journal, names its side files."""
    body = entry.body
    tables = [body.get(kind) for kind in ("extents", "chunks", *SETTLE_KINDS)]
    if "state" in body:
        tables.append(body["state"]["writers"]["snapshot"])
    return [table for table in tables if isinstance(table, dict)]


def side_files(entry: Entry) -> list[str]:
    """Return the names of the side files that an entry of a topic's journal, or of its settle journal, names."""
    return [table["file"] for table in side_tables(entry)]
