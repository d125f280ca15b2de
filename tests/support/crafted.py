"""Files of a root that somebody crafted: each member left out or of a wrong type, and every seal over it right."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any

from awscrt.checksums import crc32c

Change = Callable[[dict[str, Any]], object]
#: What no field can be, or hardly any.
ABSURD = (
    None,
    True,
    -1,
    -(2**63),
    10**9,
    2**63,
    2**70,
    1.5,
    "x",
    "../../x",
    "",
    [],
    [[]],
    {},
    {"file": "../x"},
    [None] * 3,
)
#: Objects whose members are named by data, and ids, which are such names.
_MAPPINGS = ("config", "rows", "owned", "revoking", "topics", "begins", "learned")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}$|[wx]$|transient:")


def sealed(body: dict[str, Any]) -> bytes:
    """Return an entry's line with a CRC that is right."""
    covered = json.dumps(
        {name: value for name, value in body.items() if name != "crc"}, separators=(",", ":")
    ).encode()[:-1]
    return covered + b',"crc":"%08x"}\n' % crc32c(covered)


def change_entry(path: Path, change: Change) -> None:
    """Change an entry, its inline bytes kept."""
    line, _, inline = path.read_bytes().partition(b"\n")
    body = json.loads(line)
    change(body)
    path.write_bytes(sealed(body) + inline)


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of everything in a JSON value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from leaves(each, (*at, key))


@dataclass(frozen=True)
class Crafted:
    """A JSON value with one change: the member at `place` is `missing`, or it is `value`."""

    body: Any
    place: tuple[Any, ...]
    missing: bool
    value: object = None

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))} {'left out' if self.missing else f'is {self.value!r}'}"

    @property
    def left_out(self) -> str:
        """Return the name of the member that is missing; empty for an item of an array, and what has data for a name."""
        *above, name = self.place
        if not self.missing or isinstance(name, int) or _ID.match(name) or (above and above[-1] in _MAPPINGS):
            return ""
        return ".".join("*" if isinstance(each, int) or _ID.match(each) else each for each in self.place)


def crafted(body: Any, every: int = 1) -> Iterator[Crafted]:
    """Yield a value without each of its members in turn, with an absurd one there, and with an item more.

    `every`: one of so many of these, but each member that has a name is left out once.
    """
    number = count()
    return (each for each in _every(body) if each.left_out or next(number) % every == 0)


def _every(body: Any) -> Iterator[Crafted]:
    values = cycle(ABSURD)
    for place in leaves(body):
        if place:
            yield _without(body, place)
            yield _with(body, place, next(values))
        there = _at(body, place)
        if isinstance(there, list):
            yield _with(body, (*place, len(there)), next(values))


def _without(body: Any, place: tuple[Any, ...]) -> Crafted:
    changed = copy.deepcopy(body)
    del _at(changed, place[:-1])[place[-1]]
    return Crafted(changed, place, missing=True)


def _with(body: Any, place: tuple[Any, ...], value: object) -> Crafted:
    changed = copy.deepcopy(body)
    target = _at(changed, place[:-1])
    if isinstance(target, list):
        target[place[-1] : place[-1] + 1] = [value]
    else:
        target[place[-1]] = value
    return Crafted(changed, place, missing=False, value=value)


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


def replace_named(root: Path, path: Path, data: bytes) -> None:
    """Put other bytes in a file's place, and their length and CRC wherever a JSON file below a root names the file."""
    before, after = (len(path.read_bytes()), crc32c(path.read_bytes())), (len(data), crc32c(data))
    path.write_bytes(data)
    for other in [*root.rglob("*.json"), *root.rglob("*.partitions")]:
        line, newline, inline = other.read_bytes().partition(b"\n")
        if path.name.encode() not in line or other == path:
            continue
        body = json.loads(line)
        if not _rename(body, path.name, before, after):
            continue
        if newline:
            other.write_bytes(sealed(body) + inline)
        else:
            replace_named(root, other, json.dumps(body, separators=(",", ":")).encode())


def _rename(value: Any, name: str, before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Give a row, or an object, that names a file another length and CRC; return whether one does."""
    if isinstance(value, dict) and value.get("file") == name:
        value.update(length=after[0], crc=f"{after[1]:08x}")
        return True
    if isinstance(value, list) and value[:2] == [name, before[0]]:
        value[1:3] = [after[0], f"{after[1]:08x}"]
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_rename(each, name, before, after) for each in inner)
