"""JSON from users (options, command lines, files), not the log's own. Pure."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def parse_json(text: str | bytes, *, exact: bool = False) -> Any:
    """Return the value of a JSON text without duplicate keys.

    `exact`: numbers with a fraction or exponent are decimals.

    Raises:
        ValueError: not JSON, or a duplicate key, which parsers drop silently.
    """
    return json.loads(text, object_pairs_hook=_object, parse_float=Decimal if exact else None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"the key {twice!r} stands there twice: keep one")
    return found


class RepeatedKeyError(ValueError):
    """An object has a key twice."""
