"""The worked example of FORMAT.md, made from the golden root: `python -m tests.golden.example`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tests.golden.read_golden import varint

ROOT = Path(__file__).parent / "root"
HOME = next(path.relative_to(ROOT) for path in ROOT.glob("topics/golden/0*")).as_posix()
ENTRY = "topics/again/journal/00000000000000000005.json"
SETTLE = f"{HOME}/settle/00000000000000000004.json"
MANIFEST = next(path.relative_to(ROOT) for path in (ROOT / HOME).glob("manifests/1-*.json")).as_posix()
SEGMENT = f"{HOME}/1/00000000000000000000"
_FIELDS = (
    ("baseOffset", "q"), ("batchLength", "i"), ("partitionLeaderEpoch", "i"), ("magic", "b"), ("crc", "I"),
    ("attributes", "h"), ("lastOffsetDelta", "i"), ("baseTimestamp", "q"), ("maxTimestamp", "q"),
    ("producerId", "q"), ("producerEpoch", "h"), ("baseSequence", "i"), ("recordCount", "i"),
)  # fmt: skip
_BYTES_A_LINE = 16
_TEXT_A_LINE = 110


def example() -> str:
    """Return the example as FORMAT.md shows it."""
    line, _, inline = (ROOT / ENTRY).read_bytes().partition(b"\n")
    settle = (ROOT / SETTLE).read_bytes().rstrip(b"\n")
    blocks = [
        _block(ENTRY, _wrapped(line.decode())),
        _block(f"{ENTRY}, after its first newline", _frame(inline)),
        _block(SETTLE, _wrapped(settle.decode())),
        _block(MANIFEST, _wrapped((ROOT / MANIFEST).read_text())),
        _entries(f"{SEGMENT}.index", "ii", "relative offset {}, position {}"),
        _entries(f"{SEGMENT}.timeindex", "qi", "timestamp {}, relative offset {}"),
    ]
    return "\n".join(blocks)


def _block(title: str, lines: Iterator[str]) -> str:
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines), ""])


def _wrapped(text: str) -> Iterator[str]:
    for start in range(0, len(text), _TEXT_A_LINE):
        yield text[start : start + _TEXT_A_LINE]


def _row(data: bytes, at: int, end: int, told: str) -> Iterator[str]:
    """Yield the bytes from `at` to `end` in hex; what they are stands behind the first ones."""
    for start in range(at, end, _BYTES_A_LINE):
        shown = data[start : min(end, start + _BYTES_A_LINE)].hex(" ")
        yield f"{start:4}  {shown:{3 * _BYTES_A_LINE}} {told if start == at else ''}"


def _frame(data: bytes) -> Iterator[str]:
    at = 0
    for name, kind in _FIELDS:
        size = struct.calcsize(f">{kind}")
        (value,) = struct.unpack_from(f">{kind}", data, at)
        yield from _row(data, at, at + size, f"{name} {value:08x}" if name == "crc" else f"{name} {value}")
        at += size
    for name in ("record length", "attributes", "timestampDelta", "offsetDelta", "keyLength", "valueLength"):
        value, end = varint(data, at)
        yield from _row(data, at, end, f"{name} {value}")
        at = end
    (metadata,) = struct.unpack_from("<i", data, at + 4)
    yield from _row(data, at, at + 8, f"the Arrow message: ff ff ff ff, {metadata} bytes of metadata")
    yield f"{at + 8:4}  … {value - 8} bytes more"
    yield from _headers(data, at + value)


def _headers(data: bytes, at: int) -> Iterator[str]:
    count, end = varint(data, at)
    yield from _row(data, at, end, f"{count} headers")
    for _ in range(count):
        start, texts = end, list[str]()
        for _ in range(2):
            size, end = varint(data, end)
            texts.append(data[end : end + size].decode())
            end += size
        yield from _row(data, start, end, " = ".join(texts))
    assert end == len(data), "there is more behind the last header"


def _entries(path: str, kind: str, told: str) -> str:
    data, lines = (ROOT / path).read_bytes(), list[str]()
    for i, values in enumerate(struct.iter_unpack(f">{kind}", data)):
        size = struct.calcsize(f">{kind}")
        lines += _row(data, i * size, (i + 1) * size, told.format(*values))
    return _block(path, iter(lines))


if __name__ == "__main__":
    print(example())
