"""What is no column type is refused with the column, the type and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.types import MAX_DEPTH, normalize_type


def array(element: object, **others: object) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": True, **others}


def struct(*names: object) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": "long", "nullable": True} for name in names]}


def nested(levels: int) -> object:
    kind: object = "long"
    for level in range(levels):
        kind = (
            array(kind)
            if level % 3 == 0
            else {"type": "map", "keyType": "string", "valueType": kind}
            if level % 3 == 1
            else {"type": "struct", "fields": [{"name": "f", "type": kind}]}
        )
    return kind


@pytest.mark.parametrize(
    ("kind", "normal"),
    [
        ("decimal", "decimal(10,0)"),
        ("decimal(5, 2)", "decimal(5,2)"),
        ("decimal(38,38)", "decimal(38,38)"),
        ("decimal(1,0)", "decimal(1,0)"),
        ({"type": "array", "elementType": "long"}, array("long")),
        (array("decimal", other=1), array("decimal(10,0)")),
        (
            {
                "type": "struct",
                "fields": [{"name": "a", "type": "date", "nullable": False, "metadata": {"comment": "x"}}],
            },
            {"type": "struct", "fields": [{"name": "a", "type": "date", "nullable": False, "metadata": {}}]},
        ),
    ],
)
def test_a_type_has_one_spelling(kind: object, normal: object) -> None:
    assert normalize_type(kind, "c") == normal


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("decimal(39,0)", "'c' is decimal(39,0), which can't be stored: its precision must be 1 to 38"),
        ("decimal(0,0)", "precision must be 1 to 38"),
        ("decimal(5,6)", "its scale 0 to the precision"),
        ("decimal(5,-1)", "its scale 0 to the precision"),
        ("decimal(1e3,0)", "is decimal(1e3,0), which can't be stored: use one of boolean, byte"),
        ("LONG", "is LONG, which can't be stored: use one of boolean"),
        ("bigint", "is bigint, which can't be stored: use one of boolean"),
        ("timestamp_xyz", "use one of boolean"),
        ("char(3)", "use string, and check the length"),
        ("interval", "use long, with a unit"),
        ("null", "cast it"),
        ("object", "use binary"),
        ("", "use one of boolean"),
        (None, "is None, which can't be stored"),
        (7, "is 7, which can't be stored"),
        ({}, "is None, which can't be stored"),
        ({"type": "list", "elementType": "long"}, "is list, which can't be stored"),
        ({"type": array("long")}, "which can't be stored"),
        ({"type": "array"}, "'c.element' is None"),
        (array("udt"), "'c.element' is udt, which can't be stored: use the type that it is stored as"),
        ({"type": "map", "keyType": "variant", "valueType": "long"}, "'c.key' is variant"),
        ({"type": "map", "keyType": "long", "valueType": "variant"}, "'c.value' is variant"),
        (struct(), "is a struct without fields: declare at least one"),
        ({"type": "struct", "fields": "ab"}, "is a struct without fields"),
        ({"type": "struct", "fields": ["a"]}, "is a struct with the field 'a'"),
        (struct("a", ""), "column 'c': a field has the name ''"),
        (struct(None), "column 'c': a field has the name None"),
        (struct("a\ud800"), "no valid Unicode"),
        (struct("total", "Total"), "fields 'total' and 'Total' differ only in case"),
        (struct("a", "a"), "differ only in case"),
    ],
)
def test_another_type_is_refused(kind: object, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        normalize_type(kind, "c")

    assert words in str(raised.value)
    assert str(raised.value).startswith("column 'c")


@pytest.mark.parametrize("collations", [{"a": "icu.UNICODE"}, {"a.element": "spark.UNICODE"}])
def test_a_collation_in_metadata_is_refused(collations: dict[str, str]) -> None:
    field = {"name": "a", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": collations}}

    with pytest.raises(ConfigError, match=r"column 'c\.a' is string collate UNICODE.*: use string"):
        normalize_type({"type": "struct", "fields": [field]}, "c")


def test_the_depth_is_bounded() -> None:
    normalize_type(nested(MAX_DEPTH), "c")

    for levels in (MAX_DEPTH + 1, 500):
        with pytest.raises(ConfigError, match=rf"^column 'c\.\S+' has more than {MAX_DEPTH} levels .*: flatten it"):
            normalize_type(nested(levels), "c")
