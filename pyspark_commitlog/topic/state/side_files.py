"""Side files: large tables, written once beside an entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from pyspark_commitlog.format.entry import Checked, Entry, Json, to_json_bytes
from pyspark_commitlog.format.paths import SIDE_NAME, side_name
from pyspark_commitlog.format.shape import CrcText, Shape, Whole

#: A table larger than this goes to a side file, bytes.
TABLE_BYTES = 16 * 1024
#: Tables of a settle entry, and their side files' suffixes; all others belong to the topic's journal.
SETTLE_KINDS = ("partitions", "damaged")
SETTLE_TABLES = tuple(f".{kind}" for kind in SETTLE_KINDS)


class Side(Shape):
    """Reference to a side file."""

    file: Annotated[str, Meta(pattern=SIDE_NAME)]
    length: Whole
    crc: CrcText


@dataclass(frozen=True, slots=True)
class Tables:
    """An entry's tables, inline or as references to side files."""

    body: Json
    sides: Mapping[str, bytes]


def place_tables(tables: Mapping[str, Any], sequence: int, write_id: str) -> Tables:
    """Move tables above `TABLE_BYTES` to side files."""
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
    """Return an entry's reference to a side file."""
    return {"file": side_name(sequence, write_id, kind), **Checked.of(data).to_json()}


def side_tables(entry: Entry) -> list[Json]:
    """Return an entry's references to side files, of either journal."""
    body = entry.body
    tables = [body.get(kind) for kind in ("extents", "chunks", *SETTLE_KINDS)]
    if "state" in body:
        tables.append(body["state"]["writers"]["snapshot"])
        tables.append(body["state"].get("schema", {}).get("columns"))
    return [table for table in tables if isinstance(table, dict)]


def side_files(entry: Entry) -> list[str]:
    """Names of an entry's side files."""
    return [table["file"] for table in side_tables(entry)]
