"""`Topic.dataset`: a topic as an Arrow dataset, queried by DuckDB and by Arrow's own calls."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from pyspark_commitlog.api.topic import Topic
from pyspark_commitlog.errors import OffsetOutOfRangeError, TopicChangedError, UnsupportedError, UsageError
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.topic.lookup import table
from pyspark_commitlog.topic.lookup.dataset import needed_columns
from tests.support.records import append, batch_of
from tests.support.typed import DECLARED, KEPT, SCHEMA, rows, typed_topic, write
from tests.support.world import World


@pytest.fixture
def topic(world: World) -> Topic:
    """Six rows in partition 0, nine in partition 1; the first nine settled, in two frames; two of three."""
    handle = typed_topic(world)
    for start in range(0, 15, 3):
        write(handle, *rows(start, start + 3), partition=0 if start < 6 else 1)
        if start == 6:
            world.maintain()
    return world.log().topic("t")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of each frame that is decoded, by name."""
    seen: list[tuple[str, ...]] = []
    decode = frame_rows.decode

    def watched(payload: Any, names: Any = None) -> pa.RecordBatch:
        seen.append(names)
        return decode(payload, names)

    monkeypatch.setattr(frame_rows, "decode", watched)
    return seen


def test_duckdb_queries_a_variable(topic: Topic) -> None:
    clicks = topic.dataset(["*", "_offset", "_partition_id"])
    assert isinstance(clicks, ds.Dataset)
    found = duckdb.sql(
        "SELECT n, price, tags, _offset FROM clicks WHERE \"user\" = 'user 1' AND _partition_id = 1 ORDER BY n"
    )
    expected = [
        (row["n"], row["price"], row["tags"], number - 6)
        for number, row in enumerate(rows(0, 15))
        if number > 5 and number % 2
    ]
    assert found.fetchall() == expected
    assert duckdb.sql('SELECT count(*), min("at") FROM clicks').fetchall()[0][0] == 15
    assert duckdb.sql("SELECT count(*) FROM clicks WHERE day > DATE '2024-01-10' AND ratio IS NULL").fetchall() == [
        (1,)
    ]
    assert duckdb.sql("SELECT n FROM clicks LIMIT 2").fetchall() == [(0,), (2**33,)]


def test_an_untyped_topic_is_queried_with_the_columns_of_the_log(world: World) -> None:
    append(world.create(), batch_of([b"1", b"2", b"3"]))
    records = world.log().topic("t").dataset(["value", "offset", "_topic", "_offset"])  # noqa: F841 DuckDB finds it
    assert duckdb.sql("SELECT value, \"offset\", _topic FROM records WHERE _offset >= 1").fetchall() == [
        (b"2", 1, "t"), (b"3", 2, "t"),
    ]  # fmt: skip
    assert world.log().topic("t").dataset().schema == world.log().topic("t").to_arrow().schema


PRICE = pa.scalar(Decimal(1), pa.decimal128(10, 2))
QUERIES: list[dict[str, Any]] = [
    {},
    {"columns": ["user", "n"]},
    {"columns": ["n", "_offset", "user"], "filter": pc.field("price") > PRICE},
    {"columns": [], "filter": pc.field("ok")},
    {"columns": {"double": pc.field("n") * 2, "day": pc.field("day")}},
    {"columns": {"name": pc.field("user")}, "filter": pc.field("ratio").is_valid() & (pc.field("_offset") < 3)},
    {"columns": ["raw"], "filter": pc.field(2) == 2**33},
    {"columns": ["n"], "filter": pc.field(("place", "lat")) > 3.0},
    {"filter": pc.field("n") < 0},
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_queries_have_the_answers_of_a_table(topic: Topic, query: dict[str, Any]) -> None:
    names = ["*", "_offset"]
    found, whole = topic.dataset(names), ds.InMemoryDataset(topic.to_arrow(names))
    expected = whole.to_table(**query)
    for _ in range(2):
        assert found.to_table(**query).equals(expected)
    assert pa.Table.from_batches(found.to_batches(**query), expected.schema).equals(expected)
    assert found.scanner(**query).to_reader().read_all().equals(expected)
    for count in (0, 1, 4, 100):
        assert found.head(count, **query).equals(expected.slice(0, min(count, expected.num_rows)))
    some = [place for place in (4, 0, 4, 1) if place < expected.num_rows]
    assert found.take(pa.array(some, pa.int64()), **query).equals(expected.take(pa.array(some, pa.int64())))
    assert found.count_rows(filter=query.get("filter")) == expected.num_rows
    assert max((batch.num_rows for batch in found.to_batches(batch_size=2, **query)), default=0) <= 2


def test_filters_add_up(topic: Topic) -> None:
    some = topic.dataset().filter(pc.field("n") > 2**33).filter(pc.field("user") == "user 0")
    assert some.to_table(["n"], filter=pc.field("n") < 5 * 2**33)["n"].to_pylist() == [2 * 2**33, 4 * 2**33]
    assert some.count_rows() == 7


def test_only_columns_of_the_query_are_decoded(topic: Topic, decoded: list[tuple[str, ...]]) -> None:
    clicks = topic.dataset()
    assert decoded == []
    clicks.to_table(["user"], filter=pc.field("n") > 3)
    assert {len(names) for names in decoded} == {2}
    decoded.clear()
    assert clicks.count_rows() == 15
    assert decoded == []


@pytest.mark.parametrize("predicate", [None, pc.field("n") >= 0])
def test_records_are_read_as_they_are_asked_for(
    topic: Topic, decoded: list[tuple[str, ...]], predicate: pc.Expression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_GROUP_BYTES", 1)
    reader = topic.dataset(["n"]).scanner(filter=predicate).to_reader()
    assert decoded == []
    assert reader.read_next_batch().num_rows == 6
    assert len(decoded) == 1
    assert reader.read_all().num_rows == 9
    assert len(decoded) == 4
    decoded.clear()
    assert topic.dataset().head(7, columns=["n"], filter=predicate).num_rows == 7
    assert len(decoded) == 2


def test_small_frames_are_filtered_together(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [[batch.num_rows for batch in group] for group in table.group_batches(topic.dataset(["n"]).to_batches())]
    assert groups == [[6, 3, 3, 3]]
    monkeypatch.setattr(table, "_GROUP_BYTES", 60)
    groups = [[batch.num_rows for batch in group] for group in table.group_batches(topic.dataset(["n"]).to_batches())]
    assert groups == [[6, 3], [3, 3]]


def test_its_offsets_are_those_of_the_call(topic: Topic, world: World) -> None:
    clicks, part = topic.dataset(["n"]), topic.dataset(["n"], start={0: 3, 1: 1}, end={1: 2})
    write(world.handle(), *rows(50, 60), partition=0)
    world.maintain()
    assert clicks.count_rows() == clicks.to_table().num_rows == 15
    assert part.to_table().equals(topic.to_arrow(["n"], start={0: 3, 1: 1}, end={0: 6, 1: 2}))
    topic.delete_records({0: 4})
    assert part.scanner().head(0).num_rows == 0
    with pytest.raises(OffsetOutOfRangeError, match="log start offset is 4"):
        part.to_table()
    with pytest.raises(duckdb.Error, match="log start offset is 4"):
        duckdb.sql("SELECT sum(n) FROM part").fetchall()
    topic.delete()
    world.create(2, KEPT, **DECLARED)
    with pytest.raises(TopicChangedError):
        clicks.to_table()


@pytest.mark.parametrize(
    "use",
    [
        lambda each: each.partition_expression,
        lambda each: each.get_fragments(),
        lambda each: each.replace_schema(SCHEMA),
        lambda each: each.sort_by("n"),
        lambda each: each.join(each, "n"),
        lambda each: each.join_asof(each, "n", [], 1),
    ],
)
def test_calls_that_have_no_meaning_for_a_topic_are_refused(topic: Topic, use: Callable[[Any], object]) -> None:
    with pytest.raises(
        UnsupportedError, match=r"the dataset of a topic has no \w+: use the table that to_table\(\) returns"
    ):
        use(topic.dataset())


def test_arguments_that_do_not_fit_are_refused_at_the_call(topic: Topic) -> None:
    clicks = topic.dataset()
    with pytest.raises(UsageError, match=r"takes no colums: use columns, filter, batch_size"):
        clicks.scanner(colums=["n"])
    for wrong in ({"columns": ["nothing"]}, {"filter": pc.field("nothing") == 1}):
        with pytest.raises(pa.ArrowInvalid, match="nothing"):
            clicks.scanner(**wrong)
    with pytest.raises(UsageError, match="take: the indices 3 to 15 are not all in 0 to 14"):
        clicks.take([3, 15])
    with pytest.raises(UsageError, match="columns="):
        topic.dataset(["nothing"])


def test_arrow_s_own_scanner_fails_and_so_does_pickle(topic: Topic) -> None:
    """It has no dataset in C++: an empty one would be taken for an empty topic, and none ends the process."""
    with pytest.raises(FileNotFoundError, match=r"is read by its own scanner\(\)"):
        ds.Scanner.from_dataset(topic.dataset()).to_table()
    with pytest.raises(FileNotFoundError, match=r"is read by its own scanner\(\)"):
        ds.UnionDataset(topic.dataset().schema, [topic.dataset()]).count_rows()
    with pytest.raises(TypeError, match="got TopicScanner"):
        ds.write_dataset(topic.dataset(), "nowhere", format="parquet")
    with pytest.raises(UsageError, match="can't be pickled"):
        pickle.dumps(topic.dataset())


def test_a_topic_is_written_to_parquet_batch_by_batch(topic: Topic, tmp_path: Any) -> None:
    reader = topic.dataset(["user", "n"]).scanner().to_reader()
    ds.write_dataset(reader, tmp_path / "out", format="parquet", preserve_order=True)
    assert ds.dataset(tmp_path / "out").to_table().equals(topic.to_arrow(["user", "n"]))


ABC = pa.schema([(name, pa.int64()) for name in "abcdefgh"])


@pytest.mark.parametrize(
    ("columns", "predicate", "needed"),
    [
        (None, pc.field("a") > 1, "abcdefgh"),
        ([], None, ""),
        (["h", "b"], None, "bh"),
        (["b"], pc.field("b") > 1, "b"),
        (["b"], (pc.field("h") > 1) | pc.field("c").is_null(), "bch"),
        ([], pc.scalar(True), ""),
        ([], pc.scalar("FieldPath(") == "x", "abcdefgh"),
        (["b"], pc.field(0) > 1, "abcdefgh"),
        ({}, pc.field("e") > 1, "e"),
        ({"x": pc.field("d") + pc.field("a"), "y": pc.scalar(1)}, None, "ad"),
        ({"x": pc.field("d")}, pc.field("g") > 1, "dg"),
        ({"x": pc.field(1)}, None, "abcdefgh"),
    ],
)  # fmt: skip
def test_needed_columns_are_those_that_expressions_name(columns: Any, predicate: Any, needed: str) -> None:
    assert needed_columns(ABC, columns, predicate) == list(needed)
