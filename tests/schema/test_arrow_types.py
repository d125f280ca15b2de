"""Arrow types are taken as the column type with the same values, and refused by name if there is none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.format.schema.arrow_types import from_arrow, to_arrow
from pyspark_commitlog.format.schema.types import MAX_DEPTH

BYTES = {"type": "array", "elementType": "byte", "containsNull": True}
WORDS = pa.dictionary(pa.int8(), pa.string())
TAKEN = [
    (pa.large_string(), "string"),
    (pa.string_view(), "string"),
    (pa.large_binary(), "binary"),
    (pa.binary_view(), "binary"),
    (pa.binary(3), "binary"),
    (WORDS, "string"),
    (pa.dictionary(pa.int32(), pa.decimal64(12, 2)), "decimal(12,2)"),
    (pa.large_list(pa.int8()), BYTES),
    (pa.list_view(pa.int8()), BYTES),
    (pa.large_list_view(pa.int8()), BYTES),
    (pa.list_(pa.int8(), 2), BYTES),
    (pa.list_(pa.field("x", pa.int8(), nullable=False)), {**BYTES, "containsNull": False}),
    (pa.list_(WORDS), {**BYTES, "elementType": "string"}),
    (pa.decimal32(5, 2), "decimal(5,2)"),
    (pa.decimal64(12, 2), "decimal(12,2)"),
    (pa.decimal256(38, 2), "decimal(38,2)"),
    (pa.timestamp("s"), "timestamp_ntz"),
    (pa.timestamp("ns"), "timestamp_ntz"),
    (pa.timestamp("us", "UTC"), "timestamp"),
    (pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
    (pa.date64(), "date"),
    (
        pa.map_(pa.string_view(), pa.field("value", pa.large_binary(), nullable=False)),
        {"type": "map", "keyType": "string", "valueType": "binary", "valueContainsNull": False},
    ),
    (
        pa.struct([pa.field("a", pa.large_list(pa.int8()), nullable=False, metadata={"comment": "x"})]),
        {"type": "struct", "fields": [{"name": "a", "type": BYTES, "nullable": False, "metadata": {}}]},
    ),
]
REFUSED = [
    (pa.uint8(), "uint8", "cast it to a larger signed integer"),
    (pa.uint16(), "uint16", "cast it to a larger signed integer"),
    (pa.uint32(), "uint32", "cast it to a larger signed integer"),
    (pa.uint64(), "uint64", "cast it to int64 or decimal128(20, 0)"),
    (pa.float16(), "halffloat", "cast it to float32"),
    (pa.time32("s"), "time32[s]", "cast it to int64"),
    (pa.time64("ns"), "time64[ns]", "cast it to int64"),
    (pa.duration("us"), "duration[us]", "cast it to int64"),
    (pa.month_day_nano_interval(), "month_day_nano_interval", "use int64"),
    (pa.dense_union([pa.field("a", pa.int8())]), "dense_union<a: int8=0>", "use a struct"),
    (pa.sparse_union([pa.field("a", pa.int8())]), "sparse_union<a: int8=0>", "use a struct"),
    (pa.null(), "null", "cast it"),
    (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_encoded<", "decode it with pyarrow.compute.run_end_decode"),
    (pa.uuid(), "the extension type extension<arrow.uuid>", "cast it to its storage type, fixed_size_binary[16]"),
    (pa.json_(), "the extension type extension<arrow.json>", "cast it to its storage type, string"),
    (pa.decimal256(39, 0), "decimal(39,0)", "its precision must be 1 to 38"),
    (pa.decimal128(5, -2), "decimal(5,-2)", "its precision must be 1 to 38, its scale 0 to the precision"),
]


@pytest.mark.parametrize(("kind", "expected"), TAKEN, ids=str)
def test_a_type_with_the_same_values_is_taken(kind: pa.DataType, expected: object) -> None:
    taken = from_arrow(kind, "c")

    assert taken == expected
    assert from_arrow(to_arrow(taken), "c") == taken
    pa.nulls(1, kind).cast(to_arrow(taken))


@pytest.mark.parametrize(("kind", "name", "remedy"), REFUSED, ids=str)
def test_another_type_is_refused_by_name(kind: pa.DataType, name: str, remedy: str) -> None:
    for outer, path in (
        (kind, "c"),
        (pa.list_(kind), "c.element"),
        (pa.map_(pa.string(), kind), "c.value"),
        (pa.struct([("in", kind)]), "c.in"),
    ):
        with pytest.raises(ConfigError) as raised:
            from_arrow(outer, "c")
        assert str(raised.value).startswith(f"column {path!r} is {name}")
        assert f", which can't be stored: {remedy}" in str(raised.value)


def test_fields_of_a_struct_have_names_of_their_own() -> None:
    with pytest.raises(ConfigError, match="fields 'a' and 'A' differ only in case"):
        from_arrow(pa.struct([("a", pa.int8()), ("A", pa.int8())]), "c")
    with pytest.raises(ConfigError, match="is a struct without fields"):
        from_arrow(pa.struct([]), "c")
    with pytest.raises(ConfigError, match="a field has the name ''"):
        from_arrow(pa.struct([("", pa.int8())]), "c")


def test_the_depth_is_bounded() -> None:
    kind = pa.int8()
    for _ in range(MAX_DEPTH):
        kind = pa.list_(kind)
    from_arrow(kind, "c")

    for _ in range(1500):
        kind = pa.list_(kind)
    with pytest.raises(ConfigError, match="more than 8 levels"):
        from_arrow(kind, "c")


def test_a_conversion_is_kept() -> None:
    assert to_arrow(dict(BYTES)) is to_arrow(dict(BYTES))
    assert from_arrow(pa.list_(pa.int8()), "c") is from_arrow(pa.list_(pa.int8()), "c")
