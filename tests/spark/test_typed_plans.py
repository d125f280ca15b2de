"""Plans, names and refusals of typed topics, on a driver without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.errors import InvalidRecordError, OptionError
from pyspark_commitlog.spark.read.declared_columns import are_untyped
from pyspark_commitlog.spark.read.filters import Filters
from pyspark_commitlog.spark.read.source_options import source_options
from tests.spark import driven
from tests.spark.driver import Checkpoint, Driver, SinkDriver, read_batch, source

TOPIC = "events"
ROWS = pa.RecordBatch.from_pydict({"user": ["a", "b"], "n": pa.array([1, None], pa.int32())})


@pytest.fixture
def typed(root: str, log: CommitLog) -> CommitLog:
    """Return the log, with a typed topic of two records."""
    log.create_topic(TOPIC, schema="user STRING NOT NULL, n INT", key="user")
    driven.write(root, TOPIC, ROWS)
    return log


def read(root: str, topics: str = TOPIC, **options: Any) -> list[dict[str, Any]]:
    return [
        row
        for task in read_batch(source(root, subscribe=topics, **options))
        for each in task
        for row in each.to_pylist()
    ]


def test_a_read_has_the_declared_columns(root: str, typed: CommitLog) -> None:
    assert read(root) == ROWS.to_pylist()
    assert read(root, columns="N, _offset") == [{"n": 1, "_offset": 0}, {"n": None, "_offset": 1}]
    assert read(root, columns="_key") == [{"_key": b"a"}, {"_key": b"b"}]


def test_a_column_of_another_topic_is_null(root: str, typed: CommitLog) -> None:
    typed.create_topic("more", schema="price DOUBLE, user STRING")
    driven.write(root, "more", pa.RecordBatch.from_pydict({"price": [0.5], "user": ["c"]}))
    assert read(root, f"{TOPIC},more", columns="user, n, price")[-1] == {"user": "c", "n": None, "price": 0.5}
    assert read(root, f"{TOPIC},more", columns="price")[:2] == [{"price": None}, {"price": None}]


def test_a_column_of_two_types_is_refused(root: str, typed: CommitLog) -> None:
    typed.create_topic("more", schema="n BIGINT")
    with pytest.raises(OptionError, match="column 'n' is integer in topic 'events' and long in topic 'more'"):
        source(root, subscribe=f"{TOPIC},more").schema()


def test_typed_and_untyped_topics_are_refused_by_name(root: str, typed: CommitLog) -> None:
    typed.create_topic("plain")
    with pytest.raises(OptionError, match="topic 'events' is typed and topic 'plain' is not"):
        source(root, subscribe=f"{TOPIC},plain").schema()
    both = source(root, subscribe=f"{TOPIC},late")  # which comes, untyped, when the reader is made
    reader = both.reader(both.schema())
    typed.create_topic("late")
    with pytest.raises(OptionError, match="topic 'late' is not typed, and topic 'events' is"):
        reader.partitions()
    assert len(read(root, f"{TOPIC},plain", columns="_offset")) == 2  # what all topics have


@pytest.mark.parametrize("options", [{"columns": "value"}, {"columns": "offset, _offset"}])
def test_columns_that_a_typed_topic_lacks_are_refused(root: str, typed: CommitLog, options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"topic 'events' is typed: it has the columns user, n, not (value|offset)"):
        read(root, **options)


def test_a_pattern_finds_no_typed_topic(root: str, typed: CommitLog) -> None:
    with pytest.raises(OptionError, match=r"topic 'events' is typed.*Name it in 'subscribe'"):
        read_batch(source(root, subscribePattern="ev.*"))


def test_a_view_of_a_typed_topic_is_refused(root: str, typed: CommitLog) -> None:
    with pytest.raises(OptionError, match="topic 'events' is typed: option 'view'='latest' is for untyped topics"):
        read(root, view="latest", columns="user")


def test_headers_are_asked_for_by_name(root: str, typed: CommitLog) -> None:
    with pytest.raises(OptionError, match="'includeHeaders' is for untyped topics: name _headers"):
        source(root, subscribe=TOPIC, includeHeaders="true", columns="*, _headers").schema()


def test_a_schema_of_other_types_is_refused(root: str, typed: CommitLog) -> None:
    with pytest.raises(OptionError, match="schema: column 'n' is int, not bigint"):
        read_batch(source(root, subscribe=TOPIC), StructType([StructField("n", LongType())]))


def test_columns_named_as_the_log_s_are_data(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema="offset BIGINT, partition INT")
    driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"offset": [70], "partition": pa.array([8], pa.int32())}))
    assert read(root) == [{"offset": 70, "partition": 8}]
    assert read(root, columns="*, _offset") == [{"offset": 70, "partition": 8, "_offset": 0}]
    given = StructType([StructField("offset", LongType()), StructField("partition", IntegerType())])
    ((batch,),) = read_batch(source(root, subscribe=TOPIC), given)
    assert batch.to_pylist() == [{"offset": 70, "partition": 8}]


def test_filters_on_data_choose_no_offsets() -> None:
    tests = (EqualTo(("offset",), 70), GreaterThan(("_offset",), 4))
    assert Filters(tests).offsets("t", 0, 0, 100) == ((70, 71),)
    assert Filters(tests, declared={"offset"}).offsets("t", 0, 0, 100) == ((5, 100),)


def test_a_look_knows_untyped_topics_and_only_those(root: str, typed: CommitLog) -> None:
    typed.create_topic("plain")

    def untyped(topics: str, path: str = root) -> bool:
        return are_untyped(path, source_options({"path": path, "subscribe": topics}).selection)

    assert untyped("plain")
    assert not untyped(TOPIC)
    assert not untyped(f"plain,{TOPIC}")
    assert not untyped("none")  # on another of several roots, perhaps
    assert not untyped("plain", "memory://bucket")
    assert untyped("plain", f"{root}/none")  # no root: the planner says so


def test_a_stream_of_columns_is_written_once(root: str, typed: CommitLog) -> None:
    typed.create_topic("copy", schema="user STRING, n INT")
    of, checkpoint = driven.stream(root, TOPIC), Checkpoint()
    for _ in range(2):
        sink = SinkDriver(source(root, topic="copy"), of.schema(), "query")
        Driver(of, checkpoint, lambda batch, rows, to=sink: to.write(batch, [[each] for each in rows])).run()
        checkpoint.over = 0  # Spark forgot that it had ended: the batch is played again
    assert read(root, "copy") == ROWS.to_pylist()


def test_the_sink_makes_a_typed_topic(root: str) -> None:
    options = {"createTopic": "typed", "keyColumn": "user", "numPartitions": 2}
    driven.write(root, "made", ROWS, **options)
    schema = CommitLog(root).topic("made").describe().schema
    assert schema is not None
    assert [(column.name, column.type, column.nullable) for column in schema.columns] == [
        ("user", "string", True),
        ("n", "int", True),
    ]
    assert schema.key == "user"


def test_the_key_column_goes_with_a_typed_topic(root: str) -> None:
    with pytest.raises(OptionError, match="'keyColumn' goes with createTopic=typed"):
        driven.write(root, "made", ROWS, createTopic="true", keyColumn="user")


def test_key_and_value_go_to_no_typed_topic(root: str, typed: CommitLog) -> None:
    with pytest.raises(InvalidRecordError, match="is typed: it takes the columns user, n, not key and value"):
        driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]}))


def test_an_engine_may_prune_to_no_column(root: str, typed: CommitLog) -> None:
    of = DefaultSource({"path": root, "subscribe": TOPIC})
    reader = of.reader(of.schema())
    assert reader.pruneColumns(StructType()).fieldNames() == ["user"]


def test_pushed_filters_on_columns_drop_rows_in_tasks(root: str, typed: CommitLog) -> None:
    of = source(root, subscribe=TOPIC, pushDownPredicate="true", filter="_offset >= 0")
    reader: Any = of.reader(of.schema())
    assert list(reader.pushFilters([EqualTo(("user",), "b")])) == [EqualTo(("user",), "b")]
    parts = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"user": "b", "n": None}]


def test_the_filter_s_columns_need_not_be_read(root: str, typed: CommitLog) -> None:
    assert read(root, filter="USER = 'b'", columns="_offset") == [{"_offset": 1}]
    typed.create_topic("more", schema="price DOUBLE, user STRING")
    driven.write(root, "more", pa.RecordBatch.from_pydict({"price": [0.5], "user": ["c"]}))
    assert read(root, f"{TOPIC},more", columns="user", filter="price IS NULL AND n IS NOT NULL") == [{"user": "a"}]
    typed.create_topic("plain")
    both = f"{TOPIC},plain"
    assert read(root, both, columns="_offset", filter="_topic = 'events' AND _offset > 0") == [{"_offset": 1}]
    with pytest.raises(OptionError, match=r"option 'filter': the filter has 'user': there is no such column"):
        read(root, "plain", filter="user = 'a'")


def test_a_filter_goes_without_a_view(root: str, typed: CommitLog) -> None:
    with pytest.raises(OptionError, match="options 'view' and 'filter' exclude each other"):
        read(root, view="latest", filter="_offset > 3")


def test_a_filter_narrows_the_plan_of_a_batch_read(root: str, typed: CommitLog) -> None:
    of = source(root, subscribe=TOPIC, filter="_offset = 1")
    assert [part.value.start for part in of.reader(of.schema()).partitions()] == [1]
    of = source(root, subscribe=TOPIC, filter="_topic = 'other'")
    assert not list(of.reader(of.schema()).partitions())
