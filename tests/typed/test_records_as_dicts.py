"""Records of typed topics as dicts: `Producer.send`, `Consumer.poll` and `Topic.read`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog import Consumer
from pyspark_commitlog.errors import InvalidRecordError, SchemaChangedError
from pyspark_commitlog.format.schema.declared import declared_fields
from pyspark_commitlog.format.schema.topic_schema import Declaration, declare
from pyspark_commitlog.model import Record
from pyspark_commitlog.producer.records.batches import RecordRun, SentFuture, divided
from pyspark_commitlog.producer.records.record_queue import RecordQueue
from pyspark_commitlog.producer.records.row_values import RowValues, value_bytes
from tests.property.strategies import quick
from tests.support.consumers import consumer, drain
from tests.support.producers import lost_reply, producer_on
from tests.support.records import append, batch_of
from tests.support.typed import DECLARED, KEPT, START, START_MS, read_rows, row, rows, write
from tests.support.world import World


def values(ddl: str, **roles: str) -> RowValues:
    """Return the columns that a DDL declares."""
    return RowValues("t", declare(Declaration(declared_fields(ddl), **roles), "seed"))


# --- sending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer_id", [None, "loader"])
def test_dicts_are_read_as_they_were_sent(typed: World, producer_id: str | None) -> None:
    with producer_on(typed, None if producer_id else lost_reply(), producer_id=producer_id) as producer:
        sent = [producer.send("t", each, partition=1) for each in rows(0, 9)]
        assert [each.result().offset for each in sent] == list(range(9))
        last = asyncio.run(producer.asend("t", row(9), partition=1, headers={"h": b"1"}))
        assert (last.partition, last.offset, last.timestamp) == (1, 9, START_MS + 9000)
    assert read_rows(typed.handle(), 1) == rows(0, 10)
    assert typed.log().topic("t").read(1, 9)[0].headers == (("h", b"1"),)


def test_many_dicts_become_few_batches(typed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[int] = []
    arrays = RowValues.arrays
    monkeypatch.setattr(RowValues, "arrays", lambda self, rows: gathered.append(len(rows)) or arrays(self, rows))
    with producer_on(typed, linger_ms=10_000) as producer:
        for each in rows(0, 2000):
            producer.send("t", each)
        producer.flush()
    assert sum(gathered) == 2000
    assert len(gathered) < 20
    assert sorted(each["n"] for each in read_rows(typed.handle())) == [each["n"] for each in rows(0, 2000)]


def test_a_dict_may_be_changed_once_it_was_sent(typed: World) -> None:
    given = row(1, tags=["a"], place={"lat": 1.0, "names": {"x": 1}})
    with producer_on(typed, linger_ms=10_000) as producer:
        producer.send("t", given)
        given["tags"].append("b")
        given["place"]["names"]["x"] = 2
        given["n"] = 7
    (found,) = read_rows(typed.handle())
    assert (found["n"], found["tags"], found["place"]) == (2**33, ["a"], {"lat": 1.0, "names": [("x", 1)]})


def test_dicts_go_by_their_key_column_or_where_a_function_says(typed: World) -> None:
    keys: list[bytes | None] = []
    with producer_on(typed) as producer:
        places = {each["user"]: producer.send("t", each).result().partition for each in rows(0, 4)}
        batch = producer.send_batch("t", pa.Table.from_pylist([row(0)], typed.log().topic("t").to_arrow().schema))
        assert batch.result().offsets.keys() == {places["user 0"]}
    with producer_on(typed, partitioner=lambda key, count: keys.append(key) or count - 1) as producer:
        assert producer.send("t", row(3)).result().partition == 1
        assert producer.send("t", row(3), partition=0).result().partition == 0
    assert keys == [b"user 1"]


def test_a_topic_without_time_column_takes_the_timestamp_beside_the_dict(world: World) -> None:
    world.create(1, KEPT, schema="n INT, timestamp STRING")
    world.clock.advance(START_MS - world.clock.now_ms())
    with producer_on(world) as producer:
        assert (
            producer.send("t", {"n": 1}, timestamp=START - timedelta(days=1)).result().timestamp
            == START_MS - 86_400_000
        )
        assert producer.send("t", {"timestamp": "x"}).result().timestamp == START_MS
    assert [(each.timestamp, each.value) for each in world.log().topic("t").read(0, 0, 9)] == [
        (START_MS - 86_400_000, {"n": 1, "timestamp": None}), (START_MS, {"n": None, "timestamp": "x"}),
    ]  # fmt: skip


Sending = Callable[[Any], object]


@pytest.mark.parametrize(
    ("given", "arguments", "why"),
    [
        (row(1, n="1"), {}, r"column 'n' is '1' \(str\), declared is bigint: it takes whole numbers of -9223372036854775808"),
        (row(1, n=2**63), {}, "column 'n' is 9223372036854775808"),
        (row(1, n=None), {}, "column 'n' is missing or None, and is the key or declared NOT NULL"),
        ({"n": 1}, {}, "column 'user' is missing or None, and is the key"),
        (row(1, more=1, other=2), {}, "there is no column 'more', 'other'; it has user, at, n, .* headers, timestamp"),
        (row(1, _headers=[]), {}, "there is no column '_headers'"),
        (row(1, at=START.replace(tzinfo=None)), {}, r"column 'at' is .*it takes datetime with a time zone"),
        (row(1, price=Decimal("0.001")), {}, r"column 'price' is Decimal\('0.001'\).*decimal\(10,2\)"),
        (row(1, place={"lat": 1.0, "long": 2.0}), {}, "column 'place' is .* it takes dict of its fields"),
        (row(1, place={"lat": "x"}), {}, "column 'place.lat' is 'x'"),
        (row(1), {"key": b"k"}, "is typed: send takes a dict of the columns user, .* and no key"),
        (row(1), {"timestamp": 5}, "column 'at' is its records' timestamp"),
        (b"v", {}, "is typed: send takes a dict"),
        (None, {}, "is typed: send takes a dict"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_at_the_call(
    typed: World, given: Any, arguments: dict[str, Any], why: str
) -> None:
    with producer_on(typed, producer_id="loader") as producer:
        with pytest.raises(InvalidRecordError, match=f"topic 't'.*{why}"):
            producer.send("t", given, **arguments)
        with pytest.raises(InvalidRecordError, match=f"topic 't'.*{why}"):
            asyncio.run(producer.asend("t", given, **arguments))
        assert producer.send("t", row(0)).result().offset == 0, "the producer goes on"
        assert producer.last_sequence("t") == 0


def test_a_limit_of_the_topic_fails_one_record_s_future(world: World) -> None:
    world.create(1, {**KEPT, "max.message.bytes": 2000}, **DECLARED)
    with producer_on(world, linger_ms=10_000) as producer:
        sent = [producer.send("t", row(number, size)) for number, size in ((0, 0), (1, 5000), (2, 0))]
        producer.flush()
        with pytest.raises(InvalidRecordError, match=r"max\.message\.bytes"):
            sent[1].result()
        assert [sent[0].result().offset, sent[2].result().offset] == [0, 1]
    assert [each["n"] for each in read_rows(world.handle())] == [0, 2 * 2**33]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_producer_follows_topics_that_were_made_again(world: World, is_async: bool) -> None:
    def send(value: Any) -> Any:
        return asyncio.run(producer.asend("t", value)) if is_async else producer.send("t", value).result()

    world.create(1, KEPT, schema="a STRING")
    with producer_on(world) as producer:
        send({"a": "x"})
        for schema, good, bad in (("b INT", {"b": 1}, {"a": "x"}), (None, b"v", {"b": 1}), ("c INT", {"c": 1}, b"v")):
            world.log().topic("t").delete()
            world.create(1, KEPT, schema=schema)
            assert send(good).offset == 0
            with pytest.raises(InvalidRecordError):
                send(bad)


def test_records_of_other_columns_start_a_run() -> None:
    queue, first, second = RecordQueue("t", None, 1.0), values("a INT"), values("a INT")
    runs = [queue.open_run(1, 0.0, columns) for columns in (first, first, second, None, None)]
    assert [runs.index(each) for each in runs] == [0, 0, 2, 3, 3] or len({id(each) for each in runs}) == 3
    assert len(queue.items) == 3


def test_a_run_of_dicts_is_divided_by_their_bytes() -> None:
    columns, run = values("a STRING"), RecordRun("t", 0.0)
    run.columns = columns
    for number, text in enumerate(["x" * 100_000, "y", "z"]):
        run.add(columns.row({"a": text}), None, None, 0, None, SentFuture(), 0, number)
    ((first,), (rest,)) = divided([run])
    assert [[each.as_py() for each in part.batches()[0]["a"]] for part in (first, rest)] == [
        ["x" * 100_000],
        ["y", "z"],
    ]
    assert value_bytes(columns.row({"a": "x" * 1000})) > 1000


EVERY = (
    "b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, d DECIMAL(38,3), s STRING, x BINARY, "
    "day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, l ARRAY<INT>, m MAP<STRING, DATE>, r STRUCT<a: TIMESTAMP, b: ARRAY<STRING>>"
)
EVERY_COLUMN = values(EVERY)
ZONE = datetime(2024, 5, 1, 12, tzinfo=UTC)
NAIVE = ZONE.replace(tzinfo=None)
GOOD: list[tuple[str, Any, Any]] = [
    ("b", np.bool_(True), True), ("i1", -128, -128), ("i4", np.int64(7), 7), ("i8", 2**63 - 1, 2**63 - 1),
    ("f8", 3, 3.0), ("f4", np.float32(0.5), 0.5), ("f8", float("inf"), float("inf")), ("f4", float("-inf"), float("-inf")),
    ("d", 5, Decimal("5.000")), ("d", Decimal("1e10"), Decimal("10000000000.000")),
    ("d", Decimal("99999999999999999999999999999999999.999"), Decimal("99999999999999999999999999999999999.999")),
    ("s", np.str_("é"), "é"), ("x", bytearray(b"a"), b"a"), ("x", memoryview(b"a"), b"a"),
    ("day", date(1, 1, 1), date(1, 1, 1)), ("t", pd.Timestamp(ZONE), ZONE), ("t", datetime(9999, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),
    ("t", ZONE.astimezone(tz=None), ZONE), ("n", NAIVE, NAIVE),
    ("l", (1, None), [1, None]), ("l", np.array([1, 2]), [1, 2]), ("l", [], []),
    ("m", {"a": date(2024, 1, 1), "b": None}, [("a", date(2024, 1, 1)), ("b", None)]), ("m", [("a", None)], [("a", None)]),
    ("r", {}, {"a": None, "b": None}), ("r", {"a": ZONE, "b": ["x", None]}, {"a": ZONE, "b": ["x", None]}),
]  # fmt: skip
BAD: list[tuple[str, Any]] = [
    ("b", 1), ("i1", 128), ("i1", True), ("i4", 1.0), ("i8", "1"), ("f8", True), ("f8", 2**53 + 1), ("f8", 10**400),
    ("f4", 1e300), ("f8", Decimal(1)), ("f8", "1"), ("d", 0.5), ("d", Decimal("0.0001")), ("d", Decimal("1e36")),
    ("d", Decimal("nan")), ("d", Decimal("inf")), ("d", True), ("s", b"x"), ("s", "\ud800"), ("s", 1), ("x", "x"), ("x", 1),
    ("day", ZONE), ("day", 5), ("t", NAIVE), ("t", 5), ("t", date(2024, 1, 1)), ("n", ZONE), ("n", 5),
    ("l", {1}), ("l", "ab"), ("l", ["a"]), ("m", {None: None}), ("m", {1: None}), ("m", [("a",)]), ("m", ["ab"]), ("m", 1),
    ("r", {"c": 1}), ("r", []), ("r", {"b": "x"}), ("r", None.__class__),
]  # fmt: skip


def told(value: object) -> str:
    """Return a value as text that is the same in every process."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize(("name", "given", "expected"), GOOD, ids=told)
def test_values_of_a_type_are_taken(name: str, given: Any, expected: Any) -> None:
    columns = EVERY_COLUMN
    assert columns.arrays([columns.row({name: given})])[name].to_pylist() == [expected]


@pytest.mark.parametrize(("name", "given"), BAD, ids=told)
def test_values_of_other_types_are_refused(name: str, given: Any) -> None:
    with pytest.raises(InvalidRecordError, match=f"topic 't': column '{name}"):
        EVERY_COLUMN.row({name: given})


def test_not_null_holds_inside_of_values() -> None:
    columns = values("p STRUCT<a: INT NOT NULL>, l ARRAY<STRUCT<b: STRING NOT NULL>>")
    for record, place in (({"p": {}}, "p.a"), ({"l": [{"b": None}]}, "l.element.b")):
        with pytest.raises(InvalidRecordError, match=f"column '{place}' is missing or None"):
            columns.row(record)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.dates(),
    st.datetimes(), st.datetimes(timezones=st.just(UTC)), st.decimals(allow_nan=False), st.just(np.int8(3)),
)  # fmt: skip
ANYTHING = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=2), SCALARS, max_size=3),
    st.fixed_dictionaries({}, optional={"a": SCALARS, "b": st.lists(SCALARS, max_size=2)}),
)  # fmt: skip


@quick
@given(st.dictionaries(st.sampled_from(list(EVERY_COLUMN.names)), ANYTHING))
def test_what_is_taken_becomes_arrow(record: dict[str, Any]) -> None:
    """A value that Arrow refused in the thread that commits would fail the records beside it."""
    columns = EVERY_COLUMN
    for name, value in record.items():
        try:
            taken = columns.row({name: value})
        except InvalidRecordError:
            continue
        found = columns.arrays([taken])[name]
        found.validate(full=True)
        if name in ("b", "i1", "i2", "i4", "i8", "f8", "d", "s", "x", "day", "t", "n"):
            assert found.to_pylist() == [value.item() if isinstance(value, np.generic) else value]


# --- reading ----------------------------------------------------------------------------------------------


def test_records_have_the_columns_and_the_key_s_bytes(typed: World) -> None:
    handle = typed.handle()
    write(handle, *rows(0, 4), partition=1)
    typed.maintain()
    write(handle, *rows(4, 6), partition=1)
    expected = [
        Record("t", 1, number, (START_MS + number * 1000) * 1000, 0, f"user {number % 2}".encode(), row(number))
        for number in range(6)
    ]
    topic = typed.log().topic("t")
    assert topic.read(1, 0, 10) == tuple(expected)
    assert topic.read(1, 2, 3) == tuple(expected[2:5])
    assert topic.read(1, 6) == ()
    with consumer(typed, "t") as each:
        assert each.poll(max_records=3) == expected[:3]
        assert asyncio.run(each.apoll(max_records=2)) == expected[3:5]
        assert each.poll() == expected[5:]
    with consumer(typed, "t") as each:
        assert list(islice(each, 6)) == expected


def test_one_poll_has_records_of_typed_topics_and_others(typed: World) -> None:
    typed.create(1, KEPT, name="other", schema="n STRING", key="n")
    typed.create(name="untyped")
    write(typed.handle(), row(1), partition=0)
    append(typed.handle(name="untyped"), batch_of([b"v"]))
    with producer_on(typed) as producer:
        producer.send("other", {"n": "x"})
    with consumer(typed, "t", "other", "untyped") as each:
        found = {record.topic: (record.key, record.value) for record in drain(each)}
        assert found == {"t": (b"user 1", row(1)), "other": (b"x", {"n": "x"}), "untyped": (None, b"v")}
        typed.log().topic("other").delete()
        typed.create(1, KEPT, name="other", schema="m INT")
        with producer_on(typed) as producer:
            producer.send("other", {"m": 1}).result()
        assert [record.value for record in drain(each)] == [{"m": 1}]


def test_only_a_record_s_columns_are_in_its_value(world: World) -> None:
    """Those of a topic without key, and with columns named as those of the log."""
    world.create(1, KEPT, schema="value STRING, key INT, headers INT")
    with producer_on(world) as producer:
        producer.send("t", {"value": "v", "key": 1}, headers=[("h", None)]).result()
    (record,) = world.log().topic("t").read(0, 0, 5)
    assert (record.key, record.value) == (None, {"value": "v", "key": 1, "headers": None})
    assert record.headers == (("h", None),)


def test_a_running_producer_and_consumer_go_on_with_the_columns_they_began_with(world: World) -> None:
    world.create(schema="user STRING NOT NULL, n INT, z INT", key="user")
    topic, given = world.log().topic("t"), {"user": "a", "n": 1, "z": 3}
    with (
        producer_on(world) as producer,
        Consumer(str(world.path), "t", group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", given).result()
        assert [record.value for record in consumer.poll(timeout=5)] == [given]
        topic.alter(rename={"n": "m"}, widen={"n": "BIGINT"}, drop="z", add="x STRING")
        for _ in range(3):
            producer.send("t", given).result()
        producer.send("t", {"user": "b", "m": 2**40, "x": "y"}).result()
        with pytest.raises(InvalidRecordError, match="there is no column 'k'; it has user, m, x"):
            producer.send("t", {**given, "k": 1})
        with pytest.raises(InvalidRecordError, match="two of 'user', 'n', 'z', 'm' are one column, which was renamed"):
            producer.send("t", {**given, "m": 1})
        assert [record.value for record in consumer.poll(max_records=3, timeout=5)] == [{**given, "z": None}] * 3
        with pytest.raises(SchemaChangedError, match="offset 4: column 'n' is int64 by now"):
            consumer.poll(timeout=5)
    assert [record.value for record in topic.read(0, 3, 2)] == [
        {"user": "a", "m": 1, "x": None},
        {"user": "b", "m": 2**40, "x": "y"},
    ]
