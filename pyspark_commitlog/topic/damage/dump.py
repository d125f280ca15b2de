"""Dump of one file's content by its format, regardless of journals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark_commitlog.errors import CommitLogError, CorruptionError, UsageError
from pyspark_commitlog.format import frame as codec
from pyspark_commitlog.format.columns import typed
from pyspark_commitlog.format.frame import Payload
from pyspark_commitlog.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, decode_offset, decode_time
from pyspark_commitlog.format.paths import parse_segment
from pyspark_commitlog.format.segment_object import TRAILER_BYTES, decode_footer, decode_trailer
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.segments.frames import WINDOW_BYTES, Located, Span, walk

Row = dict[str, Any]


def dump(storage: Storage, name: str) -> Iterator[Row]:
    """Yield the rows of a file: frames, index entries, JSON, or slices.

    Damaged frames are marked; after an unparsable header nothing is found. Zeros at the end of a `.log` (`preallocate`)
    are one row.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: no known kind of file.
    """
    suffix = name.rpartition(".")[2]
    if suffix in ("log", "chunk"):
        return _frames(storage, name)
    if suffix == "segment":
        return _object(storage, name)
    if suffix in ("index", "timeindex"):
        return _index(storage, name, suffix)
    if suffix == "json":
        return _json(storage, name)
    storage.info(name)
    raise UsageError(
        f"{name}: no file of a commit log; dump takes .log, .chunk, .segment, .index, .timeindex and .json files"
    )


def _object(storage: Storage, name: str) -> Iterator[Row]:
    size = storage.info(name).size
    try:
        named = decode_trailer(storage.read(name, max(0, size - TRAILER_BYTES), TRAILER_BYTES), name)
        data = storage.read(name, max(0, size - TRAILER_BYTES - named.length), named.length)
        footer = decode_footer(named.check(data, name), name)
    except CorruptionError as error:
        yield {"position": max(0, size - TRAILER_BYTES), "fault": str(error)}
        return
    for position, piece in footer.positioned():
        parts = {part.name: part.length for part in piece.parts}
        yield {
            "position": position,
            "partition": piece.partition,
            "baseOffset": piece.base_offset,
            "endOffset": piece.end_offset,
            "maxTimestamp": piece.max_timestamp,
            "parts": parts,
        }
        yield from _frames(storage, name, position, position + piece.parts[0].length)


def _frames(storage: Storage, name: str, start: int = 0, size: int | None = None) -> Iterator[Row]:
    size = storage.info(name).size if size is None else size
    end = start
    try:
        for located in walk(storage, Span(name, start, size, None, 0, "", 0)):
            end = located.position + located.frame.length
            yield _frame(located)
    except CorruptionError as error:
        if name.endswith(".log") and _zeros(storage, name, end, size):
            yield {"position": end, "zeroBytes": size - end}
        else:
            yield {"position": end, "bytes": size - end, "fault": str(error)}


def _zeros(storage: Storage, name: str, start: int, end: int) -> bool:
    steps = range(start, end, WINDOW_BYTES)
    return all(not any(storage.read(name, at, min(WINDOW_BYTES, end - at)).strip(b"\0")) for at in steps)


def _frame(located: Located) -> Row:
    frame = located.frame
    row: Row = {
        "position": located.position,
        "baseOffset": frame.base_offset,
        "lastOffset": frame.last_offset,
        "bytes": frame.length,
        "baseTimestamp": frame.base_timestamp,
        "maxTimestamp": frame.max_timestamp,
        "leaderEpoch": frame.leader_epoch,
        "timestampType": "LogAppendTime" if frame.log_append_time else "CreateTime",
        "crc": f"{frame.crc:08x}",
    }
    try:
        payload = codec.open_payload(frame)
    except CommitLogError as error:
        return {**row, "fault": str(error)}
    identity = payload.identity
    return {
        **row,
        "topicId": identity.topic_id,
        "partition": identity.partition,
        "kind": identity.kind,
        "codec": identity.codec,
        **_columns(payload),
    }


def _columns(payload: Payload) -> Row:
    """Return a typed frame's columns, by id: their types, and how they are stored."""
    identity = payload.identity
    if identity.columns is None:
        return {}
    try:
        return {"columns": typed.described(payload.message, identity.columns, sparse=identity.is_sparse)}
    except CorruptionError as error:
        return {"fault": str(error)}


def _index(storage: Storage, name: str, suffix: str) -> Iterator[Row]:
    parsed = parse_segment(name.rpartition("/")[2])
    base = parsed[0] if parsed else 0
    data = storage.read(name)
    width = OFFSET_ENTRY_BYTES if suffix == "index" else TIME_ENTRY_BYTES
    for slot in range(min(len(data) // width, -(-len(data.rstrip(b"\0")) // width))):
        if suffix == "index":
            entry = decode_offset(data, slot, base)
            yield {"slot": slot, "offset": entry.offset, "position": entry.position}
        else:
            time_entry = decode_time(data, slot, base)
            yield {"slot": slot, "timestamp": time_entry.timestamp, "offset": time_entry.offset}


def _json(storage: Storage, name: str) -> Iterator[Row]:
    line, newline, inline = storage.read(name).partition(b"\n")
    try:
        parsed = json.loads(line)
    except ValueError as error:
        yield {"fault": f"{name}: its first line is no JSON ({error})"}
        return
    rows = parsed if isinstance(parsed, list) else [parsed]
    for row in rows:
        yield row if isinstance(row, dict) else {"segment": row}
    if newline and inline:
        yield {"inlineBytes": len(inline)}
