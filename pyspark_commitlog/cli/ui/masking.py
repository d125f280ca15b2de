"""Masks fields before they leave the process: columns, members of JSON values, headers (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pyspark_commitlog.cli.ui.json_filter import parse_json
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.json_rows import ENCODER

#: Shown in place of a masked field.
MASKED = "***"
#: Largest value that is searched for masked members, in bytes; larger ones are withheld.
MASKABLE_BYTES = 2**20
#: Of bytes that may hold a name in another form: escapes of JSON, and UTF-16.
_ESCAPES = (b"\\", b"\0")


def masked_members(value: Any, names: frozenset[str]) -> Any:
    """Return a JSON value with the members of these names masked, at any depth."""
    if isinstance(value, dict):
        return {key: MASKED if key in names else masked_members(member, names) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [masked_members(member, names) for member in value]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):  # JSON inside a string
        return masked_bytes(value.encode(), names).decode()
    return value


def masked_bytes(data: bytes, names: frozenset[str]) -> bytes:
    """Return a record's bytes with members masked, if they are JSON.

    Other bytes stay if they contain none of the names; else all of them are withheld, as a member can't be found.
    """
    is_suspect = any(name.encode() in data for name in names)
    if not is_suspect and not any(sign in data for sign in _ESCAPES):
        return data
    try:
        value = parse_json(data)
        masked = masked_members(value, names)
        return data if masked == value else ENCODER.encode(masked)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return MASKED.encode() if is_suspect else data


def check_condition(condition: str | None, names: Iterable[str]) -> None:
    """Refuse a filter, path, header or key that contains a masked name: its results would show the values.

    Raises:
        UsageError: it contains the name, anywhere.
    """
    plain = (condition or "").replace("`", "").lower()
    for name in names:
        if name.replace("`", "").lower() in plain:
            raise UsageError(f"the filter contains {name!r}, which is masked: filter by other columns")
