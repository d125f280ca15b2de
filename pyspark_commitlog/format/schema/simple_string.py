"""Column types as Spark's `simpleString` spells them."""

from __future__ import annotations

import re
from typing import Any

from pyspark_commitlog.format.schema.topic_schema import Type

_ATOMIC = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def simple_string(kind: Type) -> str:
    """Return a checked type as text that DDL takes, without nested NOT NULL (pure)."""
    if isinstance(kind, str):
        return _ATOMIC.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{simple_string(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{simple_string(kind['keyType'])},{simple_string(kind['valueType'])}>"
    return f"struct<{','.join(_field(field) for field in kind['fields'])}>"


def _field(field: Any) -> str:
    name = field["name"]
    quoted = name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
    return f"{quoted}:{simple_string(field['type'])}"
