"""The browser of records: where a page begins and ends, what of a record is sent, and what never is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from starlette.testclient import TestClient

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.cli.ui import record_scan
from pyspark_commitlog.cli.ui.masking import MASKED, check_condition, masked_bytes
from pyspark_commitlog.cli.ui.record_query import check_inside, cursor_text, going_back, parse_cursor
from pyspark_commitlog.cli.ui.record_views import CELL_BYTES, FIELD_BYTES, field_of, matches
from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from tests.support.page import ask, page_of, records

EVIL = b"<script>alert(1)</script>"


def send(log: CommitLog, *values: bytes | None, topic: str = "t", **more: Any) -> None:
    with Producer(log.url) as producer:
        for value in values:
            producer.send(topic, value, **more)


def values(found: list[dict[str, Any]]) -> list[str]:
    return [record["value"]["text"] for record in found]


# ---- where a page begins and ends ----


def test_the_newest_of_one_partition(page: TestClient) -> None:
    answer = ask(page, "topics/clicks/records", partition=1, newest=1, limit=2)
    assert values(answer["records"]) == ["value 4", "value 7"]
    assert (answer["start"], answer["next"], answer["previous"], answer["ended"]) == ("1:1", "1:3", "1:0", True)
    older = ask(page, "topics/clicks/records", cursor=answer["previous"], limit=1)
    assert (values(older["records"]), older["previous"], older["ended"]) == (["value 1"], None, False)
    assert values(records(page, "clicks", cursor=older["next"])) == ["value 4", "value 7"]


def test_all_partitions_by_time(page: TestClient) -> None:
    answer = ask(page, "topics/clicks/records", newest=1)
    assert sorted(values(answer["records"])) == [f"value {number}" for number in range(9)]
    times = [record["timestamp"] for record in answer["records"]]
    assert times == sorted(times)
    assert answer["next"] == "0:3,1:3,2:3"


def test_from_an_offset(page: TestClient) -> None:
    assert [record["offset"] for record in records(page, "clicks", partition=0, offset=1)] == [1, 2]
    assert records(page, "clicks", partition=0, offset=3) == []


def test_from_a_time(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t", config={"retention.ms": -1})
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with Producer(log.url) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, timestamp=start + timedelta(minutes=number))
    assert values(records(page, "t", time="2026-01-31T12:01")) == ["1", "2"]
    assert values(records(page, "t", time="-1h")) == []
    assert "time x: use milliseconds since 1970" in ask(page, "topics/t/records", 400, time="x")["message"]


def test_pages_go_on_where_the_last_one_ended(page: TestClient) -> None:
    found, cursor = [], "0:0,1:0,2:0"
    for _ in range(20):
        answer = ask(page, "topics/clicks/records", cursor=cursor, limit=2)
        found += values(answer["records"])
        cursor = answer["next"]
        if answer["ended"]:
            break
    assert sorted(found) == [f"value {number}" for number in range(9)]


def test_what_comes_later_follows(log: CommitLog, page: TestClient) -> None:
    before = ask(page, "topics/clicks/records", newest=1)
    send(log, b"late", topic="clicks", partition=2)
    after = ask(page, "topics/clicks/records", cursor=before["next"])
    assert values(after["records"]) == ["late"]
    assert ask(page, "topics/clicks/records", cursor=after["next"])["records"] == []


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({"partition": 3}, 400, "has partitions 0 to 2, not 3"),
        ({"partition": 0, "offset": 4}, 416, "offset 4 is out of range: log start offset is 0 and high watermark 3"),
        ({"cursor": "0:4"}, 416, "offset 4 is out of range"),
        ({"cursor": "7:0"}, 400, "has partitions 0 to 2, not 7"),
        ({"cursor": "-1:0"}, 400, "has partitions 0 to 2, not -1"),
        ({"cursor": "0:-1"}, 416, "offset -1 is out of range"),
        ({"cursor": "0;4"}, 400, "cursor '0;4': use partition:offset"),
        ({"offset": 1}, 400, "an offset is of one partition"),
        ({"partition": 0, "offset": 1, "newest": 1}, 400, "give one of offset, time, cursor and newest"),
        ({"partition": "x"}, 400, "partition=x is not allowed"),
        ({"offset": "9" * 30, "partition": 0}, 400, "it takes a whole number"),
        ({"limit": 0}, 400, "limit=0 is not allowed: it takes 1 to 500"),
        ({"limit": 501}, 400, "limit=501 is not allowed"),
        ({"filter": "nothing = 1"}, 400, "there is no such column"),
        ({"filter": "key ="}, 400, "the filter ends where"),
    ],
)
def test_errors_say_what_to_do(page: TestClient, parameters: dict[str, object], status: int, text: str) -> None:
    assert text in ask(page, "topics/clicks/records", status, **parameters)["message"]


def test_an_offset_below_the_log_start(log: CommitLog, page: TestClient) -> None:
    log.topic("clicks").delete_records({0: 2})
    answer = ask(page, "topics/clicks/records", 416, partition=0, offset=1)
    assert answer["error"] == "OffsetOutOfRangeError"
    assert "log start offset is 2" in answer["message"]


def test_many_partitions_are_read_one_by_one(log: CommitLog, page: TestClient) -> None:
    log.create_topic("wide", 101)
    answer = ask(page, "topics/wide/records", 400)
    assert "101 partitions; 100 are read together at most: choose one" in answer["message"]
    assert ask(page, "topics/wide/records", partition=100)["records"] == []


# ---- filter and search ----


def test_a_filter_of_declared_columns(page: TestClient) -> None:
    found = records(page, "orders", filter="price >= 0.5 AND user <> 'u2'")
    assert [json.loads(text)["user"] for text in values(found)] == ["u1", "u3"]


def test_a_filter_by_key_offset_and_time(page: TestClient) -> None:
    assert values(records(page, "clicks", filter="key = 'key 4'")) == ["value 4"]
    assert len(records(page, "clicks", filter="_offset > 1")) == 3
    assert records(page, "clicks", filter="_timestamp < TIMESTAMP '2001-01-01 00:00:00'") == []


def test_a_search_in_keys_values_and_columns(page: TestClient) -> None:
    assert values(records(page, "clicks", search="lue 5")) == ["value 5"]
    assert values(records(page, "clicks", search="key 7")) == ["value 7"]
    assert len(records(page, "orders", search="u3")) == 1
    assert records(page, "clicks", search="VALUE") == []


def test_a_search_goes_on_after_its_bound(log: CommitLog, page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_scan, "SCANNED_RECORDS", 20)
    monkeypatch.setattr(record_scan, "_STEP", 10)
    log.create_topic("t")
    send(log, *(b"%03d" % number for number in range(100)))
    first = ask(page, "topics/t/records", search="055")
    assert (first["records"], first["scanned"], first["ended"], first["next"]) == ([], 20, False, "0:20")
    found, cursor = list[str](), first["next"]
    while not found:
        answer = ask(page, "topics/t/records", search="055", cursor=cursor)
        assert answer["scanned"] <= 20
        found, cursor = values(answer["records"]), answer["next"]
    assert found == ["055"]


def test_the_newest_that_match(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t")
    send(log, *(b"%d of %d" % (number % 2, number) for number in range(40)))
    answer = ask(page, "topics/t/records", search="1 of", newest=1, limit=3)
    assert values(answer["records"]) == ["1 of 35", "1 of 37", "1 of 39"]
    assert (answer["scanned"], answer["ended"]) == (40, True)


def test_a_page_that_is_full_ends_after_the_last_record_that_it_has(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t")
    send(log, *(b"x%d" % number for number in range(30)))
    answer = ask(page, "topics/t/records", search="x", limit=7)
    assert (len(answer["records"]), answer["next"]) == (7, "0:7")
    assert values(records(page, "t", search="x", limit=1, cursor=answer["next"])) == ["x7"]


# ---- what of a record is sent ----


def test_html_is_text(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t")
    send(log, EVIL, key=EVIL, headers=[("<b>", EVIL)])
    response = page.get("/api/topics/t/records")
    assert response.headers["content-type"] == "application/json"
    (record,) = response.json()["records"]
    name, header = record["headers"][0]
    assert {record["value"]["text"], record["key"]["text"], header["text"]} == {EVIL.decode()}
    assert name == "<b>"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", bytes(range(256))])
def test_what_is_no_utf_8_is_hex(log: CommitLog, page: TestClient, data: bytes) -> None:
    log.create_topic("t")
    send(log, data, key=data)
    (record,) = records(page, "t")
    assert record["value"] == record["key"] == {"size": len(data), "cut": False, "hex": data.hex()}


def test_null_and_empty_are_two_things(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t")
    send(log, None, b"")
    null, empty = records(page, "t")
    assert (null["value"], null["key"]) == (None, None)
    assert empty["value"] == {"size": 0, "cut": False, "text": ""}


def test_a_large_value_is_cut_and_its_size_said(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t", config={"max.message.bytes": 20_000_000})
    send(log, b"x" * 9_000_000 + b"needle")
    response = page.get("/api/topics/t/records")
    assert len(response.content) < FIELD_BYTES + 2000
    (record,) = response.json()["records"]
    assert (record["value"]["size"], record["value"]["cut"]) == (9_000_006, True)
    assert record["value"]["text"] == "x" * FIELD_BYTES
    assert records(page, "t", search="needle") == []  # it looks at what is shown


def test_a_page_of_large_values_ends_early(log: CommitLog, page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_scan, "PAGE_BYTES", 2 * FIELD_BYTES)
    log.create_topic("t")
    send(log, *[b"x" * 100_000] * 10)
    answer = ask(page, "topics/t/records")
    assert (len(answer["records"]), answer["next"], answer["ended"]) == (2, "0:2", False)


def test_a_character_is_not_cut_in_two() -> None:
    assert field_of("aü".encode(), most=2) == {"size": 3, "cut": True, "text": "a"}
    assert field_of(b"a\xff\xffx", most=2) == {"size": 4, "cut": True, "hex": "61ff"}
    assert field_of(b"abc", 3, most=3) == {"size": 3, "cut": False, "text": "abc"}


def test_rows_of_a_typed_topic(page: TestClient) -> None:
    answer = ask(page, "topics/orders/records")
    assert answer["columns"] == ["user", "price", "at", "tags"]
    record = answer["records"][1]
    assert json.loads(record["value"]["text"]) == {"user": "u1", "price": 0.5, "at": None, "tags": ["a", "b"]}
    assert [cell and cell["text"] for cell in record["cells"]] == ["u1", "0.5", None, '["a","b"]']
    assert record["key"]["text"] == "u1"


def test_typed_values_keep_all_their_digits(log: CommitLog, page: TestClient) -> None:
    log.create_topic("exact", schema="n BIGINT, d DECIMAL(38,2), b BINARY, s STRING")
    row = {"n": 2**63 - 1, "d": Decimal("123456789012345678901234567890.12"), "b": b"\xff", "s": "é" * 5000}
    with Producer(log.url) as producer:
        producer.send("exact", row)
    (record,) = records(page, "exact")
    n, d, b, s = record["cells"]
    assert (n["text"], d["text"], b["text"]) == (str(2**63 - 1), "123456789012345678901234567890.12", "/w==")
    assert (s["cut"], s["size"]) == (True, 10_000)
    assert (b["cut"], b["size"]) == (False, 1)
    assert len(s["text"].encode()) <= CELL_BYTES
    assert f'"n":{2**63 - 1},' in record["value"]["text"]
    assert record["value"]["cut"]


def test_a_search_finds_hex() -> None:
    view = {"key": None, "value": field_of(b"\xff\x01"), "headers": []}
    assert matches(view, "ff01")
    assert not matches(view, "ff02")


# ---- masks ----


def test_a_masked_member_is_not_sent_in_any_form(log: CommitLog) -> None:
    log.create_topic("t")
    send(
        log,
        b'{"ssn": "078-05-1120", "name": "ada", "deep": [{"ssn": 1, "n": 1.10}]}',
        headers=[("ssn", b"078-05-1120")],
    )
    page = page_of(log, masked=("ssn",))
    text = page.get("/api/topics/t/records").text
    assert "078-05" not in text
    (record,) = records(page, "t")
    assert json.loads(record["value"]["text"]) == {"ssn": MASKED, "name": "ada", "deep": [{"ssn": MASKED, "n": 1.1}]}
    assert "1.10" in record["value"]["text"]
    assert record["headers"] == [["ssn", {"size": None, "cut": False, "text": MASKED, "masked": True}]]
    assert records(page, "t", search="078") == []
    assert len(records(page, "t", search="ada")) == 1


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b'{"ssn": 1', MASKED.encode()),
        (b'{"ssn": 1}\n{"ssn": 2}', MASKED.encode()),
        (b'{"s\\u0073n": 1}', b'{"ssn":"***"}'),
        ('{"ssn": 1}'.encode("utf-16"), b'{"ssn":"***"}'),
        (b'{"in": "{\\"ssn\\": 1}"}', b'{"in":"{\\"ssn\\":\\"***\\"}"}'),
        (b'"{\\"ssn\\": 1}"', b'"{\\"ssn\\":\\"***\\"}"'),
        (b"[" * 100_000 + b'"ssn"', MASKED.encode()),
        (b'{"ssn": NaN}', MASKED.encode()),
        (b"\xff\x00 \\", b"\xff\x00 \\"),
        (b'{"a": "the ssn"}', b'{"a": "the ssn"}'),
    ],
)  # fmt: skip
def test_members_are_found_in_every_writing(data: bytes, shown: bytes) -> None:
    assert masked_bytes(data, frozenset(["ssn"])) == shown


def test_what_is_no_json_is_withheld_if_it_holds_the_name() -> None:
    assert masked_bytes(b"ssn=078-05-1120", frozenset(["ssn"])) == MASKED.encode()
    assert masked_bytes(b"n=078-05-1120", frozenset(["ssn"])) == b"n=078-05-1120"


def test_members_are_masked_in_json_inside_a_string() -> None:
    data = json.dumps({"in": json.dumps({"ssn": 1})}).encode()
    assert json.loads(json.loads(masked_bytes(data, frozenset(["ssn"])))["in"]) == {"ssn": MASKED}


def test_a_value_too_large_to_look_into_is_withheld(log: CommitLog) -> None:
    log.create_topic("t", config={"max.message.bytes": 20_000_000})
    send(log, b'{"name": "' + b"x" * 2_000_000 + b'", "ssn": 1}')
    (record,) = records(page_of(log, masked=("ssn",)), "t")
    assert record["value"]["text"] == MASKED


def test_masked_columns_are_not_read(log: CommitLog) -> None:
    page = page_of(log, masked=("user",))
    answer = ask(page, "topics/orders/records")
    assert answer["columns"] == ["user", "price", "at", "tags"]
    for record in answer["records"]:
        assert json.loads(record["value"]["text"])["user"] == MASKED
        assert (record["cells"][0]["text"], record["key"]["text"]) == (MASKED, MASKED)  # the key is that column
    assert "u1" not in page.get("/api/topics/orders/records").text
    for condition in ("user = 'u1'", "`user` = 'u1'", "USER = 'u1'", "_key = 'u1'"):
        refused = ask(page, "topics/orders/records", 400, filter=condition)
        assert "which is masked" in refused["message"]
    assert records(page, "orders", search="u1") == []


def test_members_of_keys_and_headers_are_masked_too(log: CommitLog) -> None:
    log.create_topic("t")
    secret = b'{"ssn": "078-05-1120"}'
    send(log, b"1", key=secret, headers=[("h", secret), ("long", secret + b" " * CELL_BYTES), ("n", None)])
    page = page_of(log, masked=("ssn",))
    assert "078-05" not in page.get("/api/topics/t/records").text
    (record,) = records(page, "t")
    assert record["key"]["text"] == '{"ssn":"***"}'
    assert [field and field["text"] for _, field in record["headers"]] == ['{"ssn":"***"}', MASKED, None]


def test_many_headers_are_cut(log: CommitLog, page: TestClient) -> None:
    log.create_topic("t")
    send(log, b"1", headers=[(f"h{number}", b"x" * 5000) for number in range(150)])
    send(log, b"2", b"3", headers=[("h", b"y")])
    first, *rest = records(page, "t")
    assert len(first["headers"]) == 100
    assert first["headers"][99] == ["h99", {"size": 5000, "cut": True, "text": "x" * CELL_BYTES}]
    assert [each["headers"] for each in rest] == [[["h", {"size": 1, "cut": False, "text": "y"}]]] * 2
    assert [each["headers"][0][0] for each in records(page, "t", partition=0, offset=1)] == ["h", "h"]


def test_keys_and_values_can_be_masked_whole(log: CommitLog) -> None:
    page = page_of(log, masked=("key", "value"))
    text = page.get("/api/topics/clicks/records").text
    assert "value 1" not in text
    assert "key 1" not in text
    assert len(records(page, "clicks")) == 9
    assert ask(page, "root")["masked"] == ["key", "value"]


# ---- the parts ----


def test_cursors() -> None:
    assert parse_cursor("1:7,0:25") == {0: 25, 1: 7}
    assert cursor_text({1: 7, 0: 25}) == "0:25,1:7"
    for text in ("", "1", "a:b", "1:2:3", "1:2,"):
        with pytest.raises(UsageError, match="use partition:offset"):
            parse_cursor(text)


def test_going_back_shares_the_records_among_the_partitions() -> None:
    assert going_back({0: 100, 1: 3}, {0: 0, 1: 1}, 10) == {0: 95, 1: 1}
    assert going_back({0: 100}, {0: 99}, 10) == {0: 99}
    assert going_back({}, {}, 10) == {}


def test_offsets_are_checked() -> None:
    check_inside("t", {0: 5}, {0: 5}, {0: 9})
    check_inside("t", {0: 9}, {0: 5}, {0: 9})
    for offset in (4, 10):
        with pytest.raises(OffsetOutOfRangeError, match="log start offset is 5 and high watermark 9"):
            check_inside("t", {0: offset}, {0: 5}, {0: 9})


def test_conditions_are_checked() -> None:
    check_condition(None, ["ssn"])
    check_condition("name = 'ada'", ["ssn"])
    with pytest.raises(UsageError, match="'ssn', which is masked"):
        check_condition("SSN > 1", ["ssn"])
