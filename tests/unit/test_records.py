"""What a record may be: which columns, cast to what, within which limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, TIMESTAMP
from pyspark_commitlog.topic.write.records import Records, TopicLimits, check_columns, prepare

NOW = 1_700_000_000_000
HOUR = 3_600_000
LIMITS = TopicLimits.of("orders", 4, TopicConfig({}))


def prepared(limits: TopicLimits = LIMITS, **columns: Any) -> Records:
    batch = pa.RecordBatch.from_pydict(columns)
    check_columns(limits.topic, batch.schema)
    return prepare(batch, limits, NOW)


def column(records: Records, name: str) -> list[Any]:
    found = records.batch.column(name)
    values: list[Any] = (found.cast(pa.int64()) if name == "timestamp" else found).to_pylist()
    return values


def stamps(values: list[int | None], kind: pa.DataType = TIMESTAMP) -> pa.Array:
    return pa.array(values, kind)


# --- columns ----------------------------------------------------------------------------------------------


def test_a_value_is_enough() -> None:
    records = prepared(value=pa.array([b"a", None], pa.binary()))

    assert records.batch.schema == SCHEMA
    assert column(records, "value") == [b"a", None]
    assert column(records, "key") == column(records, "headers") == [None, None]
    assert column(records, "timestamp") == [NOW * 1000] * 2
    assert records.partition is None


TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), *TEXTS]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_keys_and_values_may_be_dictionaries_of_text_or_bytes(kind: pa.DataType) -> None:
    texts = pa.array(["ü", "v"], pa.string()).cast(pa.binary()).cast(kind)
    indices = pa.array([1, None, 0, 1], pa.uint32())
    records = prepared(key=pa.DictionaryArray.from_arrays(indices, texts),
                       value=pa.DictionaryArray.from_arrays(indices, texts))  # fmt: skip

    assert column(records, "key") == column(records, "value") == [b"v", None, "ü".encode(), b"v"]


@pytest.mark.parametrize("make_list", LISTS)
@pytest.mark.parametrize("name", TEXTS, ids=str)
@pytest.mark.parametrize("value", BYTES, ids=str)
def test_headers_may_be_large_and_views(make_list: Any, name: pa.DataType, value: pa.DataType) -> None:
    pairs = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None, [{"key": "g", "value": b"2"}], None]
    headers = pa.array(pairs, make_list(pa.struct([("key", name), ("value", value)])))
    for first in range(2):  # a slice counts its own rows
        records = prepared(value=pa.array([b""] * len(headers[first:])), headers=headers[first:])

        assert records.batch.schema == SCHEMA
        assert column(records, "headers") == pairs[first:]


@pytest.mark.parametrize("make_list", LISTS)
def test_an_empty_array_without_a_type_is_no_header(make_list: Any) -> None:
    found = prepared(value=pa.array([b"", b""]), headers=pa.array([[], None], make_list(pa.null())))
    assert column(found, "headers") == [[], None]
    with pytest.raises(InvalidRecordError, match="headers hold a null"):
        prepared(value=pa.array([b""]), headers=pa.array([[None]], make_list(pa.null())))


def test_a_column_of_a_literal_null_is_one_without_values() -> None:
    nulls = pa.nulls(2)
    records = prepared(value=nulls, key=nulls, headers=nulls, partition=nulls, timestamp=nulls)

    assert column(records, "value") == column(records, "key") == column(records, "headers") == [None, None]
    assert column(records, "timestamp") == [NOW * 1000] * 2
    assert (records.partition, records.given) == (None, None)


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_keys_and_values_may_be_text_or_bytes(kind: pa.DataType) -> None:
    records = prepared(key=pa.array(["ü", None], kind), value=pa.array(["", "é"], kind))

    assert column(records, "key") == ["ü".encode(), None]
    assert column(records, "value") == [b"", "é".encode()]


@pytest.mark.parametrize("make_list", [pa.list_, pa.large_list])
def test_headers_as_spark_sends_them(make_list: Any) -> None:
    inner = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    kind = make_list(pa.field("element", inner, nullable=False))
    headers = [[("h", b"1"), ("h", None)], [], None]

    records = prepared(value=pa.array([b"", b"", b""]), headers=pa.array(headers, kind))

    assert records.batch.schema == SCHEMA
    told = [found and [(h["key"], h["value"]) for h in found] for found in column(records, "headers")]
    assert told == headers


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(pair: dict[str, Any] | None) -> None:
    headers = pa.array([None, [{"key": "h", "value": b"1"}, pair]], HEADERS)
    with pytest.raises(InvalidRecordError, match=r"'orders': a record's headers hold a null, or one whose key is null"):
        prepared(value=pa.array([b"", b""]), headers=headers)


def test_a_header_whose_key_no_reader_could_decode_is_refused() -> None:
    """Spark takes any bytes for a string: `cast(X'FF' as string)`."""
    key = pa.array([b"\xff"], pa.binary()).view(pa.string())
    pairs = pa.StructArray.from_arrays([key, pa.array([b"1"])], names=["key", "value"])
    with pytest.raises(InvalidRecordError, match="no UTF-8"):
        prepared(value=pa.array([b""]), headers=pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs))


def test_a_column_of_nulls_is_no_headers() -> None:
    assert column(prepared(value=pa.array([b"a"]), headers=pa.nulls(1)), "headers") == [None]


def test_there_must_be_a_value_column() -> None:
    with pytest.raises(InvalidRecordError, match=r"no 'value' column among \['key'\]; .* AS value"):
        prepared(key=pa.array([b"a"]))


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidRecordError, match="topic 'orders': unknown column 'colour'; a record has key"):
        prepared(value=pa.array([b"a"]), colour=pa.array(["red"]))


def test_the_source_s_own_columns_are_ignored() -> None:
    plain = prepared(value=pa.array([b"a", b"b"]))
    copied = prepared(value=pa.array([b"a", b"b"]), offset=pa.array([7, 9]), timestampType=pa.array([1, 0], pa.int32()))
    assert copied.batch.equals(plain.batch)
    assert copied.partition is None


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("value", pa.array([1])),
        ("key", pa.array([1.5])),
        ("timestamp", pa.array([NOW])),
        ("partition", pa.array(["1"])),
        ("topic", pa.array([1])),
        ("headers", pa.array([{"key": "a", "value": b"b"}])),
        ("headers", pa.array([[(b"b", "a")]], pa.list_(pa.struct({"value": pa.binary(), "key": pa.string()})))),
        ("headers", pa.array([[{"key": b"a", "value": b"b"}]])),
        ("headers", pa.array([[{"key": "a", "value": 1}]])),
    ],
)
def test_a_column_of_another_type_is_named_with_what_it_takes(name: str, wrong: pa.Array) -> None:
    columns = {"value": pa.array([b"a"]), name: wrong}

    with pytest.raises(InvalidRecordError, match=f"column '{name}' is .*; it takes "):
        prepared(**columns)


# --- sizes ------------------------------------------------------------------------------------------------


def test_a_record_has_the_bytes_of_key_value_and_headers() -> None:
    records = prepared(
        key=pa.array([b"12", None, None, b""]),
        value=pa.array([b"123", None, b"1", b"1"]),
        headers=pa.array([[("ab", b"123"), ("c", None)], [], None, [("", b"")]], HEADERS),
    )

    assert records.sizes.tolist() == [2 + 3 + 2 + 3 + 1, 0, 1, 1]


def test_sizes_of_a_slice_are_those_of_its_rows() -> None:
    headers = pa.array([[("x", b"xx")], [("ab", b"c")], None, [("d", None)], [("y", b"yy")]], HEADERS)
    values = pa.array([b"x" * 50, b"1", None, b"123", b"y" * 50])
    whole = pa.RecordBatch.from_pydict({"value": values, "headers": headers})

    assert prepare(whole.slice(1, 3), LIMITS, NOW).sizes.tolist() == [4, 0, 4]


def test_a_record_as_large_as_allowed_passes_and_one_byte_more_does_not() -> None:
    small = replace(LIMITS, max_message_bytes=10)
    prepared(small, key=pa.array([b"1234"]), value=pa.array([b"123456"]))

    with pytest.raises(InvalidRecordError, match=r"record 1 of .* has 11 bytes, max\.message\.bytes is 10"):
        prepared(small, key=pa.array([b"", b"1234"]), value=pa.array([b"", b"1234567"]))


# --- timestamps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "instant", "microseconds"),
    [
        (pa.timestamp("us", "America/New_York"), NOW * 1000 + 7, NOW * 1000 + 7),
        (pa.timestamp("us"), NOW * 1000 + 7, NOW * 1000 + 7),
        (pa.timestamp("ms", "UTC"), NOW, NOW * 1000),
        (pa.timestamp("ns", "UTC"), NOW * 1_000_000 + 7999, NOW * 1000 + 7),
    ],
    ids=str,
)
def test_timestamps_name_the_same_instants_in_utc(kind: pa.DataType, instant: int, microseconds: int) -> None:
    records = prepared(value=pa.array([b"a"]), timestamp=stamps([instant], kind))

    assert column(records, "timestamp") == [microseconds]


def test_a_null_timestamp_is_now() -> None:
    records = prepared(value=pa.array([b"a", b"b"]), timestamp=stamps([5_000_000, None]))

    assert column(records, "timestamp") == [5_000_000, NOW * 1000]


def test_log_append_time_replaces_the_writers_timestamps() -> None:
    by_log = replace(LIMITS, log_append_time=True)

    records = prepared(by_log, value=pa.array([b"a"]), timestamp=stamps([-5]))

    assert column(records, "timestamp") == [NOW * 1000]


@pytest.mark.parametrize("far", [-1, NOW * 1000 + HOUR * 1000 + 1000])
def test_a_timestamp_out_of_bounds_is_refused(far: int) -> None:
    with pytest.raises(InvalidRecordError, match=r"[Nn]othing staged"):
        prepared(value=pa.array([b"a", b"b"]), timestamp=stamps([NOW * 1000, far]))


@pytest.mark.parametrize("near", [0, (NOW + HOUR) * 1000])
def test_the_bounds_themselves_are_allowed(near: int) -> None:
    prepared(value=pa.array([b"a"]), timestamp=stamps([near]))


def test_a_timestamp_too_far_in_the_past_names_the_config() -> None:
    recent = replace(LIMITS, before_max_ms=HOUR)
    prepared(recent, value=pa.array([b"a"]), timestamp=stamps([(NOW - HOUR) * 1000]))

    with pytest.raises(InvalidRecordError, match=r"is below .* \(message\.timestamp\.before\.max\.ms\)"):
        prepared(recent, value=pa.array([b"a"]), timestamp=stamps([(NOW - HOUR - 1) * 1000]))


def test_a_timestamp_that_microseconds_cannot_tell_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="topic 'orders': a timestamp is out of range"):
        prepared(value=pa.array([b"a"]), timestamp=stamps([2**62], pa.timestamp("s")))


# --- partitions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16()])
def test_the_partition_may_be_any_integer(kind: pa.DataType) -> None:
    records = prepared(value=pa.array([b"a"] * 3), partition=pa.array([3, None, 0], kind))

    assert records.partition is not None
    assert records.partition.equals(pa.array([3, None, 0], pa.int32()))


def test_partitions_that_are_all_null_are_none() -> None:
    assert prepared(value=pa.array([b"a"]), partition=pa.array([None], pa.int32())).partition is None


@pytest.mark.parametrize("missing", [-1, 4, 2**40])
def test_a_partition_that_does_not_exist_is_refused(missing: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"partition {missing} does not exist; it has 0 to 3"):
        prepared(value=pa.array([b"a", b"b"]), partition=pa.array([0, missing]))


# --- limits -----------------------------------------------------------------------------------------------


def test_limits_are_the_topics_config() -> None:
    config = TopicConfig(
        {
            "max.message.bytes": "7",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "8",
            "message.timestamp.after.max.ms": "9",
        }
    )

    assert TopicLimits.of("orders", 4, config) == TopicLimits("orders", 4, 7, True, 8, 9)
    assert TopicLimits.of("orders", 4, TopicConfig({})) == TopicLimits("orders", 4, 1048588, False, 2**63 - 1, HOUR)


def test_an_empty_batch_is_fine() -> None:
    empty = prepared(
        value=pa.array([], pa.binary()), timestamp=stamps([]), partition=pa.array([], pa.int32()),
        headers=pa.array([], HEADERS),
    )  # fmt: skip

    assert (empty.batch.num_rows, len(empty.sizes), empty.partition) == (0, 0, None)
