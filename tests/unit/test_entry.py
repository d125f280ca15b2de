"""An entry's line: what it says, and that neither a flipped bit nor a cut gets past its CRC."""

from __future__ import annotations

import json
from typing import Any

import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CorruptionError, UnsupportedError
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import Checked, Entry

INLINE = b"frames, with a \n newline and \x00\xff bytes"
ENTRY = Entry(
    journal="topic",
    kind="append",
    topic_id="6a1f0c9e-0000-4000-8000-00000000002a",
    sequence=7,
    write_id="00000000-0000-4000-8000-000000000001",
    prev="00000000-0000-4000-8000-000000000002",
    body={"state": {"logEnd": [1, 2], "name": "ü\n\u2028"}},
)


def decode(data: bytes, *, journal: str = "topic", sequence: int = 7) -> Entry:
    return codec.decode(data, where="journal/7.json", journal=journal, sequence=sequence)


def line_of(data: bytes) -> bytes:
    return data.partition(b"\n")[0] + b"\n"


def resealed(**changes: Any) -> bytes:
    """Return the entry with other members, under a CRC that holds."""
    fields = {**json.loads(line_of(codec.encode(ENTRY))), **changes}
    del fields["crc"]
    covered = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    return covered + b',"crc":"%08x"}\n' % crc32c(covered)


def test_decodes_what_it_encoded() -> None:
    data = codec.encode(ENTRY, INLINE)

    found = decode(data)

    assert (found.kind, found.topic_id, found.write_id, found.prev) == (
        ENTRY.kind, ENTRY.topic_id, ENTRY.write_id, ENTRY.prev,
    )  # fmt: skip
    assert found.body["state"] == ENTRY.body["state"]
    assert found.inline == Checked.of(INLINE)
    assert data[found.line_bytes :] == INLINE


def test_is_one_line_of_ascii_json_that_ends_with_its_crc() -> None:
    line = line_of(codec.encode(ENTRY))
    covered, _, tail = line.rpartition(b',"crc":')

    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(tail.rstrip(b"}\n")) == f"{crc32c(covered):08x}"
    assert json.loads(line)["state"] == ENTRY.body["state"]


@pytest.mark.parametrize("text", ["plain", "ü", 'a "word"', "back\\slash", "line\n", "\x00", "\u2028", "😀", "</>"])
def test_whatever_a_text_holds_it_is_the_ascii_json_of_the_standard_library(text: str) -> None:
    fields: dict[str, Any] = {"text": text, text: [1, -(2**63), 2**63 - 1, None, True, (0, 1)]}
    covered = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    assert codec.check_seal(codec.seal(fields), "here") == covered


def test_without_inline_bytes_it_names_none() -> None:
    assert decode(codec.encode(ENTRY)).inline is None


def test_the_line_is_enough() -> None:
    assert decode(line_of(codec.encode(ENTRY, INLINE))).inline == Checked.of(INLINE)


def test_every_flipped_bit_of_the_line_is_noticed() -> None:
    data = codec.encode(ENTRY, INLINE)
    missed = []
    for bit in range(8 * len(line_of(data))):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decode(bytes(damaged))
        except CorruptionError:
            continue
        missed.append(bit)

    assert not missed


def test_a_line_cut_off_anywhere_is_noticed() -> None:
    line = line_of(codec.encode(ENTRY))

    for length in range(len(line)):
        with pytest.raises(CorruptionError, match=f"7.json: the line is cut off after {length} bytes"):
            decode(line[:length])


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        (INLINE[:-1], f"{len(INLINE) - 1} bytes with CRC-32C"),
        (INLINE + b"\0", f"more than the expected {len(INLINE)} bytes"),
        (b"F" + INLINE[1:], f"{len(INLINE)} bytes with CRC-32C"),
    ],
)
def test_inline_bytes_are_checked_by_length_and_crc(damaged: bytes, told: str) -> None:
    named = decode(codec.encode(ENTRY, INLINE)).inline
    assert named is not None

    assert named.check(INLINE, "inline") == INLINE
    with pytest.raises(CorruptionError, match=f"inline frames: {told}"):
        named.check(damaged, "inline frames")


@pytest.mark.parametrize(("journal", "sequence"), [("settle", 7), ("topic", 8)])
def test_refuses_another_journals_or_numbers_entry(journal: str, sequence: int) -> None:
    with pytest.raises(CorruptionError, match="holds entry 7 of journal 'topic', expected"):
        decode(codec.encode(ENTRY), journal=journal, sequence=sequence)


OLDER, NEWER = (
    "with the release that wrote it, and write its records to a new root",
    "the release that wrote this root, or a newer",
)


@pytest.mark.parametrize(("version", "remedy"), [(2, OLDER), (4, NEWER), (None, NEWER)])
def test_refuses_another_format_version_and_says_what_to_do(version: int | None, remedy: str) -> None:
    with pytest.raises(UnsupportedError, match=f"7.json: format version {version}, .* reads version 3. .*{remedy}"):
        decode(resealed(formatVersion=version))


@pytest.mark.parametrize("kind", ["readFeatures", "writeFeatures"])
def test_refuses_and_names_features_it_does_not_know(kind: str) -> None:
    with pytest.raises(UnsupportedError, match="uses replication, typed-topics, unknown to this release"):
        decode(resealed(**{kind: ["typed-topics", "replication"]}))


def test_length_and_crc_go_through_json() -> None:
    checked = Checked(12, 0x0000BEEF)

    assert checked.to_json() == {"length": 12, "crc": "0000beef"}
    assert Checked.from_json(json.loads(json.dumps(checked.to_json()))) == checked


def test_the_state_says_which_features_an_entry_needs() -> None:
    assert codec.features_of({"state": {"replicas": {}}}) == ("replicas",)
    assert codec.features_of({"state": {"config": {}}}) == ()
    assert codec.features_of({"through": [1, "w"]}) == (), "a settle entry has no such state"


def test_another_feature_does_not_mean_replicas() -> None:
    assert Entry("topic", "append", "id", 1, "w", "", {}, features=("replicas", "other")).is_replicated
    assert not Entry("topic", "append", "id", 1, "w", "", {}, features=("other",)).is_replicated
