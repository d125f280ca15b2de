"""Journal entry: one line of JSON with its CRC-32C, then inline frames.

Tables too large for an entry are side files, JSON whose length and CRC the entry has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from awscrt.checksums import crc32c
from msgspec import Meta

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format.lineage import NO_LINEAGE, Lineage
from pyspark_commitlog.format.shape import CrcText, Id, Marks, Shape, Text, Whole, check, damage, decode as decode_json

#   {"formatVersion":3,"readFeatures":[],"writeFeatures":[],"journal":"topic","kind":"append","topicId":"…",
#    "sequence":7,"writeId":"…","prev":"…","lineage":"…",…,"inline":{"length":812,"crc":"…"},
#    "crc":"1c291ca3"}\n<inline bytes>
#
# The CRC covers the line's bytes before `,"crc":`.

FORMAT_VERSION = 3
#: Feature of topics with replicas: older releases would read records that may still be lost.
REPLICAS = "replicas"
#: Feature of topics with a schema: older releases would not understand their frames.
TYPED = "typed"
#: Features that this release understands.
KNOWN_FEATURES: frozenset[str] = frozenset([REPLICAS, TYPED])
#: Members of a state that need a feature.
_FEATURES = {"replicas": REPLICAS, "schema": TYPED}
#: Version and features of nearly every entry.
_PLAIN: tuple[object, ...] = (FORMAT_VERSION, [], [])
#: Usual maximum of a line; larger tables go to side files.
MAX_LINE_BYTES = 64 * 1024
MAX_INLINE_BYTES = 2**20
_escaping = json.JSONEncoder(separators=(",", ":")).encode
_TAIL = re.compile(rb',"crc":"([0-9a-f]{8})"}')
_TAIL_BYTES = len(b',"crc":"00000000"}')

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """Length and CRC-32C of bytes stored elsewhere."""

    length: int
    crc: int

    def to_json(self) -> Json:
        """JSON form."""
        return {"length": self.length, "crc": f"{self.crc:08x}"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Checked:
        """Value of the JSON form."""
        return cls(data["length"], int(data["crc"], 16))

    @classmethod
    def of(cls, data: bytes) -> Checked:
        """Return length and CRC of `data`."""
        return cls(len(data), crc32c(data))

    @property
    def at_most(self) -> int:
        """Bytes to read for `check`: one more than its length shows excess."""
        return self.length + 1

    def check(self, data: bytes, what: str) -> bytes:
        """Return `data`, up to `at_most` bytes read, if it matches."""
        if len(data) > self.length:
            raise CorruptionError(f"{what}: more than the expected {self.length} bytes")
        actual = Checked.of(data)
        if actual != self:
            raise CorruptionError(
                f"{what}: {actual.length} bytes with CRC-32C {actual.crc:08x}, "
                f"expected {self.length} bytes with {self.crc:08x}"
            )
        return data


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a journal.

    Attributes:
        prev: Write id of the entry before.
        body: Members of this kind of journal (see `topic.state.topic_state`).
        line_bytes: Position of the inline bytes in the file.
        next: Number of the next entry, if not `sequence` + 1.
        features: Required to read it or to append.
    """

    journal: str
    kind: str
    topic_id: str
    sequence: int
    write_id: str
    prev: str
    body: Json
    lineage: Lineage = NO_LINEAGE
    inline: Checked | None = None
    line_bytes: int = field(default=0, compare=False)
    next: int | None = None
    features: tuple[str, ...] = ()

    @property
    def following(self) -> int:
        """Number of the next entry."""
        return self.sequence + 1 if self.next is None else self.next

    @property
    def is_replicated(self) -> bool:
        """Return whether it has the state of replicas."""
        return REPLICAS in self.features


def features_of(body: Json) -> tuple[str, ...]:
    """Return the features that readers of an entry need, by its state."""
    state = body.get("state", ())
    return tuple(feature for member, feature in _FEATURES.items() if member in state)


def encode(entry: Entry, inline: bytes = b"") -> bytes:
    """Return the bytes of an entry's file."""
    head: Json = {
        "formatVersion": FORMAT_VERSION,
        "readFeatures": list(entry.features),
        "writeFeatures": list(entry.features),
        "journal": entry.journal,
        "kind": entry.kind,
        "topicId": entry.topic_id,
        "sequence": entry.sequence,
        "writeId": entry.write_id,
        "prev": entry.prev,
        "lineage": entry.lineage.marks,
        **entry.body,
    }
    if entry.next is not None:
        head["next"] = entry.next
    if inline:
        head["inline"] = Checked.of(inline).to_json()
    return seal(head) + inline


def seal(fields: Json) -> bytes:
    """Return a JSON object as one line that ends with its CRC-32C."""
    covered = to_json_bytes(fields)[:-1]
    return covered + b',"crc":"%08x"}\n' % crc32c(covered)


def check_seal(line: bytes, where: str) -> bytes:
    """Return the bytes that a line's CRC covers: JSON without its end."""
    covered, tail = line[: -_TAIL_BYTES - 1], _TAIL.fullmatch(line[-_TAIL_BYTES - 1 : -1])
    if tail is None or not line.endswith(b"\n"):
        raise CorruptionError(f"{where}: the line is cut off after {len(line)} bytes; restore the file")
    crc = crc32c(covered)
    if crc != int(tail[1], 16):
        raise CorruptionError(f"{where}: CRC-32C is {crc:08x}, expected {tail[1].decode()}; restore the file")
    return covered


def decode(data: bytes, *, where: str, journal: str, sequence: int) -> Entry:
    """Return the entry in a file's first bytes, perhaps without inline ones.

    Another entry than `sequence` of `journal` is damage.
    """
    line, newline, _ = data.partition(b"\n")
    fields: Json = decode_json(check_seal(line + newline, where) + b"}", dict[str, object], where)
    check_version(fields, where)
    check(fields, _Envelope, where)
    if (fields["journal"], fields["sequence"]) != (journal, sequence):
        raise CorruptionError(
            f"{where}: holds entry {fields['sequence']} of journal {fields['journal']!r}, "
            f"expected entry {sequence} of {journal!r}"
        )
    if fields.get("next", sequence + 1) <= sequence:
        raise damage(where, "next", fields["next"], f"above {sequence}, the entry's own number")
    inline = Checked.from_json(fields["inline"]) if "inline" in fields else None
    return Entry(
        journal=fields["journal"],
        kind=fields["kind"],
        topic_id=fields["topicId"],
        sequence=sequence,
        write_id=fields["writeId"],
        prev=fields["prev"],
        body=fields,
        lineage=Lineage(sequence, fields["lineage"]),
        inline=inline,
        line_bytes=len(line) + 1,
        next=fields.get("next"),
        features=tuple(fields["readFeatures"]),
    )


class _InlineBytes(Shape):
    length: Annotated[int, Meta(ge=0, le=MAX_INLINE_BYTES)]
    crc: CrcText


class _Envelope(Shape):
    journal: Text
    kind: Text
    topic_id: Id
    sequence: Whole
    write_id: Id
    prev: Id
    lineage: Marks
    read_features: tuple[Text, ...]
    write_features: tuple[Text, ...]
    inline: _InlineBytes | None = None
    next: Whole = 0


class _Version(Shape):
    format_version: object = None
    read_features: tuple[Text, ...] = ()
    write_features: tuple[Text, ...] = ()


def check_version(fields: Mapping[str, Any], where: str) -> None:
    """Refuse entries that this release would misread."""
    if (fields.get("formatVersion"), fields.get("readFeatures"), fields.get("writeFeatures")) == _PLAIN:
        return
    version = check(fields, _Version, where).format_version
    if version != FORMAT_VERSION:
        older = type(version) is int and version < FORMAT_VERSION
        remedy = (
            "Read the root with the release that wrote it, and write its records to a new root with this one. For a "
            "topic: `commitlog cat OLD TOPIC -e -J` of that release into `commitlog produce NEW TOPIC --json` of this"
            if older
            else "Use the release that wrote this root, or a newer one"
        )
        raise UnsupportedError(
            f"{where}: format version {version}, this release of pyspark-commitlog reads version {FORMAT_VERSION}. "
            f"{remedy}"
        )
    unknown = {*fields.get("readFeatures", ()), *fields.get("writeFeatures", ())} - KNOWN_FEATURES
    if unknown:
        raise UnsupportedError(
            f"{where}: uses {', '.join(sorted(unknown))}, unknown to this release; upgrade pyspark-commitlog"
        )


def to_json_bytes(value: Any) -> bytes:
    """Return compact ASCII JSON; by msgspec, unless characters need escapes."""
    encoded = msgspec.json.encode(value)
    return encoded if encoded.isascii() and b"\\" not in encoded else _escaping(value).encode()
