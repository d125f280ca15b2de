"""JSON that others wrote: options, command lines and files, not the log's own entries. Pure."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON in which no object has a key twice.

    Raises:
        ValueError: it is no JSON, or names a key twice, of which a parser would drop one.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"the key {twice!r} stands there twice: keep one")
    return found


class RepeatedKeyError(ValueError):
    """A key stands twice in one object."""
