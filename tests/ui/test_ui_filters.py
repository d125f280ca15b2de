"""Filters of the page by key, JSON path and header, and the records that are saved as Parquet."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.cli.ui import record_scan
from pyspark_commitlog.cli.ui.json_filter import parse_json_filter, values_at
from pyspark_commitlog.cli.ui.masking import MASKABLE_BYTES, MASKED
from pyspark_commitlog.cli.ui.record_filter import HeaderFilter, parse_header_filter, parse_key
from pyspark_commitlog.cli.ui.record_query import RecordQuery, chosen_partitions
from pyspark_commitlog.errors import UsageError
from tests.support.page import ask, page_of, records

DOCUMENT = {
    "user": {"city": "Berlin", "age": 36, "a name": "x"},
    "items": [{"price": 9.5}, {"price": Decimal("12.25")}],
    "id": 12345678901234567890,
    "zip": "01097",
    "ok": True,
    "none": None,
}


@pytest.fixture
def keyed(log: CommitLog) -> CommitLog:
    """Four keys, each twice in the partition of the default partitioner, and one of them in another one, too."""
    log.create_topic("keyed", 4)
    with Producer(log.url) as producer:
        for number in range(8):
            producer.send(
                "keyed",
                b'{"n": %d, "user": {"city": "%s"}}' % (number, b"Berlin" if number % 2 else b"Bern"),
                key=b"key %d" % (number % 4),
                headers=[("trace", b"t%d" % number), ("empty", None)] if number < 4 else (),
            )
        producer.send("keyed", b"no JSON", key=b"key 1", partition=(partition_of(log, "key 1") + 1) % 4)
    return log


def partition_of(log: CommitLog, key: str) -> int:
    return int(ask(page_of(log), "topics/keyed/records", key=key)["keyPartition"])


def numbers(found: list[dict[str, Any]]) -> list[str]:
    return [record["value"]["text"].removeprefix('{"n": ')[:1] for record in found]


# ---- key ----


def test_the_records_of_a_key_are_looked_for_in_its_partition(keyed: CommitLog, page: TestClient) -> None:
    answer = ask(page, "topics/keyed/records", key="key 1")
    assert numbers(answer["records"]) == ["1", "5"]
    assert {record["partition"] for record in answer["records"]} == {answer["keyPartition"]}
    assert answer["start"] == f"{answer['keyPartition']}:0"


def test_all_partitions_are_searched_for_a_key_on_request(keyed: CommitLog, page: TestClient) -> None:
    answer = ask(page, "topics/keyed/records", key="key 1", everywhere=1)
    assert sorted(numbers(answer["records"])) == ["1", "5", "n"]
    assert answer["keyPartition"] is None
    other = (partition_of(keyed, "key 1") + 1) % 4
    chosen = ask(page, "topics/keyed/records", key="key 1", partition=other)
    assert (numbers(chosen["records"]), chosen["keyPartition"]) == (["n"], None)


def test_a_key_from_an_offset_on(keyed: CommitLog, page: TestClient) -> None:
    first, second = records(page, "keyed", key="key 1")
    assert numbers(records(page, "keyed", key="key 1", offset=first["offset"] + 1)) == ["5"]
    assert records(page, "keyed", key="key 1", offset=second["offset"] + 1) == []
    assert numbers(records(page, "keyed", key="key 1", newest=1)) == ["1", "5"]
    assert "an offset is of one partition" in ask(page, "topics/keyed/records", 400, key="k", offset=1, everywhere=1)["message"]  # fmt: skip


def test_a_page_of_a_key_goes_on_in_its_partition(keyed: CommitLog, page: TestClient) -> None:
    first = ask(page, "topics/keyed/records", key="key 1", limit=1)
    second = ask(page, "topics/keyed/records", key="key 1", limit=1, cursor=first["next"])
    assert numbers(first["records"] + second["records"]) == ["1", "5"]
    assert second["keyPartition"] == first["keyPartition"]


def test_keys_in_hex(keyed: CommitLog, page: TestClient) -> None:
    assert numbers(records(page, "keyed", key="0x" + b"key 2".hex())) == ["2", "6"]
    assert "0xzz" in ask(page, "topics/keyed/records", 400, key="0xzz")["message"]


def test_a_typed_key_is_of_its_column(log: CommitLog, page: TestClient) -> None:
    log.create_topic("numbered", 3, schema="n BIGINT, s STRING", key="n")
    with Producer(log.url) as producer:
        for number in (1, -2, 3):
            producer.send("numbered", {"n": number, "s": f"s{number}"})
    (record,) = records(page, "numbered", key="-2")
    assert '"s":"s-2"' in record["value"]["text"]
    assert "no key of type long" in ask(page, "topics/numbered/records", 400, key="x")["message"]


def test_keys_are_parsed() -> None:
    assert parse_key("ada", "string") == b"ada"
    assert parse_key("0x00ff", "string") == b"\x00\xff"
    assert parse_key("258", "short") == b"\x01\x02"
    assert parse_key("-1", "integer") == b"\xff" * 4
    for text, kind in (("70000", "short"), ("x", "long"), ("0x1", "binary")):
        with pytest.raises(UsageError, match="use 0x and hex digits"):
            parse_key(text, kind)


def test_the_partitions_of_a_query() -> None:
    assert list(chosen_partitions("t", 3, RecordQuery(), 1)) == [0, 1, 2]
    assert list(chosen_partitions("t", 3, RecordQuery(key="k"), 1)) == [1]
    assert list(chosen_partitions("t", 3, RecordQuery(key="k", everywhere=True), 1)) == [0, 1, 2]
    assert list(chosen_partitions("t", 3, RecordQuery(key="k", partition=2), 1)) == [2]
    assert list(chosen_partitions("t", 3, RecordQuery(key="k", cursor={0: 1}), 1)) == [0]
    assert list(chosen_partitions("t", 101, RecordQuery(key="k"), 1)) == [1]
    with pytest.raises(UsageError, match="100 are read together"):
        chosen_partitions("t", 101, RecordQuery(key="k", everywhere=True), 1)


# ---- JSON path ----


@pytest.mark.parametrize(
    "text",
    [
        "$.user.city = Berlin",
        "$.user.city='Berlin'",
        '$.user.city == "Berlin"',
        "$['user'].city != Bern",
        "$.user.city contains erl",
        "$.user.age > 35.9",
        "$.user.age <= 36",
        "$.user['a name'] = x",
        '$["user"]["a name"] = x',
        "$.items[*].price > 12",
        "$.items[0].price = 9.5",
        "$.items[-1].price = 12.250",
        "$.*.city = Berlin",
        "$.id = 12345678901234567890",
        "$.zip = 01097",
        "$.zip contains 10",
        "$.ok = true",
        "$.none = null",
        "$.ok",
        "$",
        '$.items[0] = {"price": 9.5}',
    ],
)
def test_a_path_that_matches(text: str) -> None:
    assert parse_json_filter(text).matches(DOCUMENT)


@pytest.mark.parametrize(
    "text",
    [
        "$.user.city = berlin",
        "$.city = Berlin",
        "$.city != Berlin",
        "$.user.age > 36",
        "$.user.age < x",
        '$.user.age = "36"',
        "$.user.age contains 3",
        "$.items[2]",
        "$.items.price = 9.5",
        "$.id = 12345678901234567891",
        "$.ok = 1",
        "$.none",
        "$.none.deep = 1",
        "$[0]",
    ],
)
def test_a_path_that_does_not_match(text: str) -> None:
    assert not parse_json_filter(text).matches(DOCUMENT)


@pytest.mark.parametrize("text", ["user = 1", "$.a ~ b", "$.a b", "$..a = 1", "$[a] = 1"])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"JSON path .*: use \$\.user\.city = Berlin"):
        parse_json_filter(text)


def test_a_number_equals_the_text_of_the_same_digits_unless_quoted() -> None:
    assert parse_json_filter("$.a = 12").matches({"a": "12"})
    assert parse_json_filter("$.a = 12").matches({"a": 12})
    assert not parse_json_filter("$.a = '12'").matches({"a": 12})
    assert parse_json_filter("$.a = 0.1").matches({"a": 0.1})
    assert values_at({"a": [1, [2, 3]]}, ("a", None, None)) == [2, 3]


def test_records_by_a_json_path(keyed: CommitLog, page: TestClient) -> None:
    assert sorted(numbers(records(page, "keyed", path="$.user.city = Berlin"))) == ["1", "3", "5", "7"]
    found = records(page, "keyed", path="$.user.city = Berlin", key="key 1", filter="key <> 'key 3'", search='n": 5')
    assert numbers(found) == ["5"]
    assert sorted(numbers(records(page, "keyed", path="$.n >= 6", newest=1))) == ["6", "7"]
    assert "it begins with $" in ask(page, "topics/keyed/records", 400, path="x")["message"]


def test_a_json_path_of_declared_columns(page: TestClient) -> None:
    assert [each["key"]["text"] for each in records(page, "orders", path="$.price >= 1")] == ["u2", "u3"]
    assert len(records(page, "orders", path="$.tags[*] = b")) == 4
    assert [each["key"]["text"] for each in records(page, "orders", path="$.* = u1")] == ["u1"]
    assert records(page, "orders", path="$.nothing = 1") == []


def test_what_is_no_json_or_too_large_does_not_match(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t", config={"max.message.bytes": 20_000_000})
    large = b'{"a": "%s", "b": 1}'
    values = [b"[" * 100_000, b'{"b": NaN}', b"\xff", None, large % (b"x" * MASKABLE_BYTES), large % (b"x" * 100_000)]
    with Producer(log.url) as producer:
        for value in values:
            producer.send("t", value)
    assert [each["offset"] for each in records(page, "t", path="$.b = 1")] == [5]
    assert [each["offset"] for each in records(page, "t", path="$ != 7")] == [5]


# ---- header ----


def test_records_by_a_header(keyed: CommitLog, page: TestClient) -> None:
    assert numbers(records(page, "keyed", header="trace=t2")) == ["2"]
    assert sorted(numbers(records(page, "keyed", header="trace"))) == ["0", "1", "2", "3"]
    assert sorted(numbers(records(page, "keyed", header="empty"))) == ["0", "1", "2", "3"]
    assert records(page, "keyed", header="empty=") == []
    assert records(page, "keyed", header="TRACE") == []
    assert numbers(records(page, "keyed", header="trace", key="key 2", path="$.n < 3")) == ["2"]
    assert records(page, "keyed", header="trace", key="no such key", path="$.n") == []
    assert parse_header_filter("a = b=c ") == HeaderFilter("a", b"b=c")
    assert parse_header_filter("a") == HeaderFilter("a")


# ---- masks ----


def test_filters_do_not_show_what_is_masked(log: CommitLog) -> None:
    log.create_topic("t")
    secret = b'{"ssn": "078", "n": 1, "deep": "{\\"ssn\\": 1}"}'
    with Producer(log.url) as producer:
        escaped = b'{"\\u0073sn": "078"}'
        producer.send("t", secret, key=b"k", headers=[("h", secret), ("ssn", b"078"), ("escaped", escaped)])
    page = page_of(log, masked=("ssn",))
    for parameters in ({"path": "$.ssn = 078"}, {"header": "ssn=078"}, {"key": "ssn"}):
        assert "which is masked" in ask(page, "topics/t/records", 400, **parameters)["message"]
    assert len(records(page, "t", path="$.n = 1")) == 1
    assert records(page, "t", path="$.* = 078") == []
    assert len(records(page, "t", path=f"$.* = {MASKED}")) == 1
    assert records(page, "t", header="h=" + secret.decode().replace("ssn", "x")) == []
    assert records(page, "t", header=f"escaped={escaped.decode()}") == []
    assert len(records(page, "t", header="escaped")) == 1
    whole = page_of(log, masked=("key", "value"))
    assert "the key is masked" in ask(whole, "topics/t/records", 400, key="k")["message"]
    assert "the value is masked" in ask(whole, "topics/t/records", 400, path="$.n = 1")["message"]
    typed = page_of(log, masked=("user",))
    assert "which is masked" in ask(typed, "topics/orders/records", 400, path="$.user = u1")["message"]
    assert records(typed, "orders", path="$.* = u1") == []


# ---- Parquet ----


def saved(page: TestClient, topic: str, **parameters: object) -> pa.Table:
    given = {name: str(value) for name, value in parameters.items()}
    response = page.get(f"/api/topics/{topic}/parquet", params=given)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/vnd.apache.parquet"
    return pq.read_table(BytesIO(response.content))


def test_records_are_saved_as_parquet(log: CommitLog, page: TestClient) -> None:
    table = saved(page, "clicks", cursor="0:1,2:0", end="0:3,2:1")
    assert table.schema.names == ["value", "key", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert table.drop_columns(["timestamp"]).sort_by("partition").to_pylist()[-1] == {
        "value": b"value 2", "key": b"key 2", "partition": 2, "offset": 0, "timestampType": 0, "headers": None
    } | {"headers": table.column("headers")[0].as_py()}  # fmt: skip
    assert sorted(table.column("value").to_pylist()) == [b"value 2", b"value 3", b"value 6"]


def test_columns_are_saved_in_their_types(page: TestClient) -> None:
    table = saved(page, "orders", cursor="0:0", end="0:4", path="$.price > 0")
    assert table.schema.names[:4] == ["user", "price", "at", "tags"]
    assert table.schema.field("price").type == pa.float64()
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.column("price").to_pylist() == [0.5, 1.0, 1.5]
    assert table.column("tags").to_pylist() == [["a", "b"]] * 3


def test_filters_apply_to_what_is_saved(keyed: CommitLog, page: TestClient) -> None:
    parameters = {"path": "$.user.city = Berlin", "key": "key 1", "search": '"n": 5'}
    (record,) = records(page, "keyed", **parameters)
    place, offset = record["partition"], record["offset"]
    table = saved(page, "keyed", cursor=f"{place}:0", end=f"{place}:{offset + 1}", **parameters)
    assert table.column("offset").to_pylist() == [offset]


def test_whole_values_are_saved_up_to_a_bound(
    log: CommitLog, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("t")
    with Producer(log.url) as producer:
        for number in range(4):
            producer.send("t", b"%d" % number * 200_000)
    assert len(saved(page, "t", cursor="0:1", end="0:2").column("value")[0].as_py()) == 200_000
    monkeypatch.setattr(record_scan, "PARQUET_BYTES", 2**19)
    assert saved(page, "t", cursor="0:0", end="0:2").num_rows == 2
    refused = ask(page, "topics/t/parquet", 400, cursor="0:0", end="0:4")
    assert "the whole values take more than" in refused["message"]
    monkeypatch.setattr(record_scan, "MOST_RECORDS", 1)
    assert "save fewer" in ask(page, "topics/t/parquet", 400, cursor="0:0", end="0:2")["message"]


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({}, 400, "give cursor and end"),
        ({"cursor": "0:0"}, 400, "give cursor and end"),
        ({"cursor": "0:0", "end": "1:1"}, 400, "end is of the partitions of cursor"),
        ({"end": "0:1"}, 400, "end is of the partitions of cursor"),
        ({"cursor": "0:3", "end": "0:3"}, 400, "there are no records to save"),
        ({"cursor": "0:9", "end": "0:9"}, 416, "offset 9 is out of range"),
        ({"cursor": "9:0", "end": "9:1"}, 400, "has partitions 0 to 2, not 9"),
    ],
)
def test_what_can_not_be_saved(page: TestClient, parameters: dict[str, object], status: int, text: str) -> None:
    assert text in ask(page, "topics/clicks/parquet", status, **parameters)["message"]


def test_masked_fields_are_not_saved(log: CommitLog) -> None:
    log.create_topic("t", schema="ssn STRING, doc STRING, deep STRUCT<ssn: STRING, n: INT>, data BINARY, n BIGINT")
    secret = '{"ssn": "078"}'
    with Producer(log.url) as producer:
        row = {"ssn": "078", "doc": secret, "deep": {"ssn": "078", "n": 1}, "data": secret.encode(), "n": 7}
        producer.send("t", row, headers=[("ssn", b"078"), ("h", secret.encode()), ("n", None)])
    page = page_of(log, masked=("ssn",))
    assert b"078" not in page.get("/api/topics/t/parquet?cursor=0:0&end=0:1").content
    (row,) = saved(page, "t", cursor="0:0", end="0:1").to_pylist()
    assert "ssn" not in row
    assert (row["doc"], row["data"], row["n"]) == ('{"ssn":"***"}', b'{"ssn":"***"}', 7)
    assert row["deep"] == '{"ssn":"***","n":1}'
    assert [header["value"] for header in row["_headers"]] == [b"***", b'{"ssn":"***"}', None]
    hidden = saved(page_of(log, masked=("key", "value")), "clicks", cursor="0:0", end="0:1")
    assert hidden.schema.names == ["partition", "offset", "timestamp", "timestampType", "headers"]
