"""A reader made from FORMAT.md, with Python and pyarrow and nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS), ("timestamp", pa.int64())]
VALUES = pa.schema([("values", pa.binary())])
DENSE, SPARSE = pa.schema(COLUMNS), pa.schema([*COLUMNS, ("offsetDelta", pa.int32())])
TABLE = list(range(256))
for _ in range(8):
    TABLE = [n >> 1 ^ (0x82F63B78 if n & 1 else 0) for n in TABLE]


def checked(data: bytes, crc: int, length: int) -> bytes:
    found = 0xFFFFFFFF
    for byte in data:
        found = TABLE[(found ^ byte) & 0xFF] ^ found >> 8
    assert (found ^ 0xFFFFFFFF, len(data)) == (crc, length), "other bytes than were written"
    return data


def entry(path: Path) -> tuple[dict[str, Any], bytes]:
    line, _, inline = path.read_bytes().partition(b"\n")
    fields, covered = json.loads(line), line[: -len(',"crc":"00000000"}')]
    checked(covered, int(fields["crc"], 16), len(covered))
    assert fields["formatVersion"] == 3 and {*fields["readFeatures"]} <= {"typed"}, "a newer format"  # noqa: PT018
    return fields, inline


def load(path: Path, length: int, crc: str) -> Any:
    return json.loads(checked(path.read_bytes(), int(crc, 16), length))


def table(home: Path, value: Any) -> Any:
    return load(home / "side" / value["file"], value["length"], value["crc"]) if isinstance(value, dict) else value


def varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw, at, shift = raw | (data[at] & 0x7F) << shift, at + 1, shift + 7
        if data[at - 1] < 0x80:
            return raw >> 1 ^ -(raw & 1), at


def open_frame(data: bytes) -> tuple[bytes, dict[str, str]]:
    checked(data[21:], int.from_bytes(data[17:21], "big"), len(data) - 21)
    size, at = 0, 61
    for skipped in (0, 1, 0, 0, 0):  # length, attributes + timestampDelta, offsetDelta, key and value length
        size, at = varint(data, at + skipped)
    message, (count, at), texts = data[at : at + size], varint(data, at + size), list[str]()
    for _ in range(2 * count):
        size, at = varint(data, at)
        texts, at = [*texts, data[at : at + size].decode()], at + size
    return message, dict(zip(texts[::2], texts[1::2], strict=True))


def rows(data: bytes, topic_id: str, partition: int, shift: int = 0, voids: Any = ()) -> Iterator[list[Any]]:
    while data:
        base, length = struct.unpack_from(">qi", data)
        frame, data = data[: 12 + length], data[12 + length :]
        if base + shift in voids:
            continue
        message, told = open_frame(frame)
        assert (told["topic"], told["partition"]) == (topic_id, str(partition)), "a foreign frame"
        if told["kind"].startswith("arrow-columns"):
            found = typed_rows(message, json.loads(told["columns"]))
        else:
            batch = pa.ipc.read_record_batch(pa.py_buffer(message), SPARSE if "base" in told else DENSE)
            found = [
                [row.get("offsetDelta"), row["key"], row["value"], row["timestamp"], row["headers"]]
                for row in batch.to_pylist()
            ]
        for i, (delta, key, value, time, headers) in enumerate(found):
            pairs = headers and [[header["key"], header["value"]] for header in headers]
            yield [base + shift + (i if delta is None else delta), key, value, time, pairs]


def typed_rows(value: bytes, storings: dict[str, Any]) -> list[list[Any]]:
    stream = iter(pa.ipc.MessageReader.open_stream(pa.BufferReader(value)))
    schema, columns = pa.ipc.read_schema(next(stream)), dict[str, pa.Array]()
    by_dictionary = sum(storing[0] == "dictionary" for storing in storings.values())
    values = [pa.ipc.read_record_batch(next(stream), VALUES).column(0) for _ in range(by_dictionary)]
    plain = [(field.name, pa.binary() if field.type == pa.string() else field.type) for field in schema]
    stored = pa.schema([(n, f"uint{8 * storings[n][1]}" if n in storings else kind) for n, kind in plain])
    batch = pa.ipc.read_record_batch(next(stream), stored)
    for field, column in zip(schema, batch.columns, strict=True):
        how, _, first, second = storings.get(field.name, ("plain", 0, 0, 0))
        if how == "dictionary":
            column = values[first].take(column)
        elif how != "plain":
            numbers = [n if n is None else n + (first if how == "reference" else second) for n in column.to_pylist()]
            whole = numbers if how == "reference" else list(accumulate([first, *numbers[1:]]))
            column = pa.array(whole, f"int{field.type.bit_width}").view(field.type)
        columns[field.name] = column.view(pa.string()) if field.type == pa.string() else column
    told = {name.decode(): number.decode() for name, number in schema.metadata.items()}
    key, times = columns.get(told["key"]), columns[told["timestamp"] or "timestamp"].view(pa.int64()).to_pylist()
    ids = {name: columns[name].to_pylist() for name in columns if name.isdigit()}
    keys, nulls = key.to_pylist() if key is not None else [None] * len(times), [None] * len(times)
    deltas, headers = (columns[n].to_pylist() if n in columns else nulls for n in ("offsetDelta", "headers"))
    each = ({number: column[i] for number, column in ids.items()} for i in range(len(times)))
    return [list(row) for row in zip(deltas, keys, each, times, headers, strict=True)]


def segments(home: Path, partition: int, row: Any, tail: Any) -> Iterator[tuple[str, int, int, int]]:
    listed = load(home / "manifests" / row[1][0], *row[1][1:3]) if row[1] else []
    leaves = listed["leaves"] if isinstance(listed, dict) else []
    sealed = [each for leaf in leaves for each in load(home / "manifests" / leaf[0], *leaf[1:3])]
    for base, _, rewrite, length, crc, *more in [*sealed, *(listed["segments"] if leaves else listed)]:
        name = f"{partition}/{base:020}{f'.{rewrite}' if rewrite else ''}.log"
        yield (f"objects/{more[5]}", more[6], length, crc) if len(more) > 5 else (name, 0, length, crc)
    for name, _, size, length, crc in tail:
        footer, position = (home / "objects" / name).read_bytes()[size - 16 - length : size - 16], 0
        for piece in json.loads(checked(footer, crc, length))["slices"]:
            if piece["partition"] == partition:
                yield f"objects/{name}", position, *piece["parts"][0][1:]
            position += sum(part[1] for part in piece["parts"])
    if row[2]:
        base, rewrite, length, crc = row[2][:4]
        yield f"{partition}/{base:020}{f'.{rewrite}' if rewrite else ''}.log", 0, length, crc


def read(root: Path, topic: str, partition: int) -> list[list[Any]]:
    _, (logical, _) = entry(root / "commitlog.json"), entry(max((root / "topics" / topic / "journal").glob("*.json")))
    topic_id, state = logical["topicId"], logical["state"]
    home = root / "topics" / topic / topic_id
    settle, _ = entry(max((home / "settle").glob("*.json")))
    known = dict(enumerate(table(home, settle["partitions"])))
    row = known.get(partition, [0, None, None])
    found, voids = list[Any](), {o for p, *v in state["voids"] if p == partition for o in range(*v)}
    for file, start, length, crc in segments(home, partition, row, settle.get("tail", ())):
        data = (home / file).read_bytes()[start : start + length] if length else b""
        found += rows(checked(data, crc, length), topic_id, partition)
    for sequence in range(max(settle["oldestUnsettled"], state["created"] + 1), logical["sequence"] + 1):
        fields, inline = entry(root / "topics" / topic / "journal" / f"{sequence:020}.json")
        for chunk, owner, position, length, count, base in table(home, fields.get("extents", [])):
            if owner == partition and base + count > row[0] and not voids.issuperset(range(base, base + count)):
                file = home / "staged" / table(home, fields["chunks"])[chunk]["name"] if chunk >= 0 else None
                data = (file.read_bytes() if file else inline)[position : position + length]
                found += (each for each in rows(data, topic_id, partition, base, voids) if each[0] >= row[0])
    names = {str(row[0]): row[1] for row in table(home, state.get("schema", {}).get("columns", []))}
    for row in found:
        if names:
            row[2] = {name: row[2].get(number) for number, name in names.items()}
    return [row for row in found if state["logStart"][partition] <= row[0] < state["logEnd"][partition]]
