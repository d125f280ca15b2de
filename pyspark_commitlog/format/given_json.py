"""JSON from users (options, command lines, files), not the log's own. Pure."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text without duplicate keys.

    Raises:
        ValueError: not JSON, or a duplicate key, which parsers drop silently.
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
    """An object has a key twice."""
