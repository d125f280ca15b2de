"""Queries go on while the columns of their topics change, and begin anew with the new ones; on a driver without Spark."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, NullType, StringType, StructField, StructType

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import (
    AccessDeniedError,
    InvalidRecordError,
    OptionError,
    SchemaChangedError,
    TopicChangedError,
    UsageError,
)
from pyspark_commitlog.spark.write.sink import CommitLogWriter
from tests.spark import driven
from tests.spark.driver import Checkpoint, Driver, SinkDriver, in_task, read_batch, sent_over, source, write_batch

TOPIC = "events"
ROWS = pa.RecordBatch.from_pydict({"user": ["a"], "n": pa.array([1], pa.int32())})


@pytest.fixture
def typed(root: str, log: CommitLog) -> CommitLog:
    """Return the log, with a typed topic of one record."""
    log.create_topic(TOPIC, schema="user STRING NOT NULL, n INT", key="user")
    driven.write(root, TOPIC, ROWS)
    return log


class Query:
    """A streaming read whose rows are kept, from run to run."""

    def __init__(self, root: str, **options: Any) -> None:
        self.root, self.options = root, {"subscribe": TOPIC, "startingOffsets": "earliest", **options}
        self.checkpoint, self.rows = Checkpoint(), list[dict[str, Any]]()
        self.start()

    def start(self) -> None:
        self.driver = Driver(source(self.root, **self.options), self.checkpoint, self._take)

    def _take(self, batch: int, rows: list[pa.RecordBatch]) -> None:
        self.rows += [row for each in rows for row in each.to_pylist()]

    def new_rows(self) -> list[dict[str, Any]]:
        self.rows.clear()
        self.driver.process_all_available()
        return list(self.rows)

    @property
    def versions(self) -> dict[str, int]:
        versions: dict[str, int] = json.loads(self.checkpoint.planned[-1]).get("__schemas", {})
        return versions


def changed(log: CommitLog) -> None:
    log.topic(TOPIC).alter(rename={"n": "m"}, widen={"n": "BIGINT"}, add="x STRING")


@pytest.mark.parametrize("columns", [None, "*, _offset", "n, user"])
def test_a_running_query_keeps_its_columns_and_a_restart_has_the_new_ones(
    root: str, typed: CommitLog, columns: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(root, **({} if columns is None else {"columns": columns}))
    names = list(query.new_rows()[0])
    assert query.versions == {TOPIC: 1}
    changed(typed)
    driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"user": ["b"], "m": [2], "x": ["y"]}))
    (row,) = query.new_rows()
    assert list(row) == names
    assert (row["user"], row["n"]) == ("b", 2)
    assert query.versions == {TOPIC: 1}
    driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"user": ["c"], "m": [3], "x": ["z"]}))
    if columns == "n, user":
        with pytest.raises(OptionError, match="option 'columns'='n, user': name some of user, m, x"):
            query.start()
        query.options["columns"] = "m, user"
    with caplog.at_level(logging.WARNING):
        query.start()
        (row,) = query.new_rows()
        assert query.new_rows() == []
    assert (row["user"], row["m"]) == ("c", 3)
    told = [record.getMessage() for record in caplog.records if "columns changed" in record.getMessage()]
    assert told == [
        "topic 'events': since this query ran before, its columns changed (schema version 1, now 2): n is m bigint since "
        "version 2; x string since version 2"
    ]
    assert query.versions == {TOPIC: 2}
    caplog.clear()
    query.start()
    assert query.new_rows() == []
    assert not caplog.records, "told once"


def test_a_query_that_names_only_common_columns_knows_no_version(root: str, typed: CommitLog) -> None:
    query = Query(root, columns="_offset, _key")
    assert query.new_rows() == [{"_offset": 0, "_key": b"a"}]
    assert query.versions == {}
    changed(typed)
    driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"user": ["b"], "m": [2]}))
    assert query.new_rows() == [{"_offset": 1, "_key": b"b"}]


def test_a_value_that_the_query_can_not_show_stops_it_by_its_place(root: str, typed: CommitLog) -> None:
    query = Query(root)
    query.new_rows()
    changed(typed)
    driven.write(root, TOPIC, pa.RecordBatch.from_pydict({"user": ["b"], "m": [2**31]}))
    with pytest.raises(SchemaChangedError, match="partition 0 offset 1: column 'n' is int64 by now"):
        query.new_rows()
    query.start()
    assert query.new_rows() == [{"user": "b", "m": 2**31, "x": None}]


def test_a_batch_read_keeps_the_columns_of_when_it_was_planned(root: str, typed: CommitLog) -> None:
    of = source(root, subscribe=TOPIC)
    schema = of.schema()
    changed(typed)
    assert [row for task in read_batch(of, schema) for each in task for row in each.to_pylist()] == ROWS.to_pylist()


@pytest.mark.parametrize("streaming", [True, False])
def test_a_topic_that_is_made_again_ends_a_query_by_name(root: str, typed: CommitLog, streaming: bool) -> None:
    """Its columns have other ids: all would be null."""
    options = {"failOnDataLoss": "false"} if streaming else {}
    of, query = source(root, subscribe=TOPIC), Query(root, **options)
    schema = of.schema()
    query.new_rows()
    typed.topic(TOPIC).delete()
    typed.create_topic(TOPIC, schema="user STRING NOT NULL, n INT", key="user")
    driven.write(root, TOPIC, ROWS)
    with pytest.raises(TopicChangedError, match="'events' was made again since this query's columns were chosen"):
        query.new_rows() if streaming else read_batch(of, schema)
    assert driven.rows(read_batch(source(root, subscribe=TOPIC)), "user") == [("a",)]


@pytest.mark.parametrize("columns", [{"schema": "user STRING, n INT"}, {}], ids=["typed", "untyped"])
def test_a_topic_that_is_made_after_the_columns_were_chosen_is_refused(
    root: str, typed: CommitLog, columns: dict[str, str]
) -> None:
    of = source(root, subscribe=f"{TOPIC},later")
    schema = of.schema()
    typed.create_topic("later", **columns)
    with pytest.raises((TopicChangedError, OptionError), match=r"topic 'later' (was made since|is not typed)"):
        read_batch(of, schema)


def test_tasks_get_ids_of_columns_and_no_schemas(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, schema=pa.schema([(f"a_long_name_of_column_{n}", pa.int32()) for n in range(900)]))
    of = source(root, subscribe=TOPIC)
    reader = of.reader(of.schema())
    assert b"PinnedSchema" not in pickle.dumps(reader)


def test_a_running_sink_goes_on_across_every_change(root: str, typed: CommitLog) -> None:
    sink = SinkDriver(source(root, topic=TOPIC), from_arrow_schema(ROWS.schema), "query")
    sink.write(0, [[ROWS]])
    changed(typed)
    sink.write(1, [[ROWS]])
    typed.topic(TOPIC).alter(drop="m")
    sink.write(2, [[ROWS]])
    typed.topic(TOPIC).alter(rename={"user": "name"})
    sink.write(3, [[ROWS]])
    sink.write(3, [[ROWS]])  # committed before
    assert typed.topic(TOPIC).to_arrow().to_pylist() == [{"name": "a", "x": None}] * 5


def test_a_batch_write_names_the_columns_that_there_are(root: str, typed: CommitLog) -> None:
    changed(typed)
    with pytest.raises(InvalidRecordError, match="there is no column 'n'; it has user, m, x: drop or rename it"):
        source(root, topic=TOPIC).writer(from_arrow_schema(ROWS.schema), False)  # no job starts


def test_a_retry_after_a_change_is_the_same_batch(
    root: str, typed: CommitLog, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"topic": TOPIC, "txnAppId": "app", "txnVersion": "1"}
    write_batch(source(root, **options), [[ROWS]])
    changed(typed)
    write_batch(source(root, **options), [[pa.RecordBatch.from_pydict({"m": [1], "user": ["a"]})]])
    assert not caplog.records
    write_batch(source(root, **options), [[pa.RecordBatch.from_pydict({"m": [2], "user": ["a"]})]])
    assert "was committed before" in caplog.text
    assert typed.topic(TOPIC).to_arrow(["user"]).num_rows == 2


def test_a_new_query_names_the_columns_that_there_are(root: str, typed: CommitLog) -> None:
    changed(typed)
    sink = SinkDriver(source(root, topic=TOPIC), from_arrow_schema(ROWS.schema), "query")
    with pytest.raises(InvalidRecordError, match="there is no column 'n'; it has user, m, x: drop or rename it"):
        sink.write(0, [[ROWS]])


def test_a_batch_write_goes_on_across_a_change_after_it_began(root: str, typed: CommitLog) -> None:
    writer = sent_over(source(root, topic=TOPIC)).writer(from_arrow_schema(ROWS.schema), False)
    changed(typed)
    with in_task(0, {}):
        message = writer.write(iter([ROWS]))
    writer.commit([message])
    assert typed.topic(TOPIC).to_arrow(["m"]).column("m").to_pylist() == [1, 1]


# --- mergeSchema -----------------------------------------------------------------------------------------------------

MORE = pa.RecordBatch.from_pydict({"user": ["b"], "n": [2**40], "x": [[1]], "y": [{"z": 0.5}]})


@pytest.mark.parametrize("streaming", [True, False])
def test_merging_adds_and_widens_by_one_entry(root: str, typed: CommitLog, streaming: bool) -> None:
    entries = typed.root.topic(TOPIC).newest()[0].sequence
    of = source(root, topic=TOPIC, mergeSchema="true")
    sink = SinkDriver(of, from_arrow_schema(MORE.schema), "query")
    for batch in range(2):
        if streaming:
            sink.write(batch, [[MORE]])
        else:
            write_batch(of, [[MORE]])
    assert typed.root.topic(TOPIC).newest()[0].sequence == entries + 3
    row = {"user": "b", "n": 2**40, "x": [1], "y": {"z": 0.5}}
    assert typed.topic(TOPIC).to_arrow().to_pylist() == [{"user": "a", "n": 1, "x": None, "y": None}, row, row]
    schema = typed.topic(TOPIC).describe().schema
    assert schema is not None
    assert all(column.nullable for column in schema.columns if column.name != "user")


def test_a_running_sink_does_not_add_again_what_was_dropped(root: str, typed: CommitLog) -> None:
    sink = SinkDriver(source(root, topic=TOPIC, mergeSchema="true"), from_arrow_schema(MORE.schema), "query")
    sink.write(0, [[MORE]])
    typed.topic(TOPIC).alter(drop=["x", "y"], rename={"n": "m"})
    sink.write(1, [[MORE]])
    assert typed.topic(TOPIC).to_arrow().to_pylist()[-1] == {"user": "b", "m": 2**40}
    write_batch(source(root, topic=TOPIC, mergeSchema="true"), [[MORE.select(["user", "x"])]])
    assert typed.topic(TOPIC).to_arrow().to_pylist()[-1] == {"user": "b", "m": None, "x": [1]}


def test_merging_makes_no_other_change(root: str, typed: CommitLog) -> None:
    wrong = pa.RecordBatch.from_pydict({"user": ["b"], "n": ["text"], "x": [1]})
    with pytest.raises(InvalidRecordError, match="column 'n' is string, declared is int32"):
        write_batch(source(root, topic=TOPIC, mergeSchema="true"), [[wrong]])


def test_a_null_literal_adds_no_column(root: str, typed: CommitLog) -> None:
    schema = StructType([StructField("user", StringType()), StructField("x", NullType())])
    with pytest.raises(InvalidRecordError, match="there is no column 'x'"):
        source(root, topic=TOPIC, mergeSchema="true").writer(schema, False)


def test_merging_makes_a_topic_with_all_columns(root: str, log: CommitLog) -> None:
    write_batch(source(root, topic="new", createTopic="typed", mergeSchema="true"), [[MORE]])
    assert log.topic("new").to_arrow().to_pylist() == MORE.to_pylist()


def test_merging_goes_on_where_another_writer_made_the_topic(
    root: str, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CommitLogWriter._topic

    def raced(self: CommitLogWriter, root: Any, name: str) -> Any:
        log.create_topic(name, schema="user STRING")
        monkeypatch.setattr(CommitLogWriter, "_topic", made)
        return made(self, root, name)

    monkeypatch.setattr(CommitLogWriter, "_topic", raced)
    write_batch(source(root, topic="new", createTopic="typed", mergeSchema="true"), [[MORE]])
    assert log.topic("new").to_arrow().to_pylist() == MORE.to_pylist()


def test_merging_leaves_a_column_of_a_type_that_only_the_writer_has(root: str, typed: CommitLog) -> None:
    collated = StructType([StructField("user", StringType("UTF8_LCASE")), StructField("n", IntegerType())])
    source(root, topic=TOPIC, mergeSchema="true").writer(collated, False)
    assert typed.topic(TOPIC).describe().schema is not None


def test_merging_is_for_one_typed_topic(root: str, log: CommitLog) -> None:
    log.create_topic("plain")
    value = pa.RecordBatch.from_pydict({"value": [b"x"]})
    with pytest.raises(UsageError, match="topic 'plain' is untyped, and stays it"):
        write_batch(source(root, topic="plain", mergeSchema="true"), [[value]])
    with pytest.raises(OptionError, match="option 'mergeSchema' goes with createTopic=typed"):
        source(root, topic="x", mergeSchema="true", createTopic="true").writer(
            StructType([StructField("value", StringType())]), False
        )
    with pytest.raises(OptionError, match="option 'mergeSchema' goes with 'topic'"):
        source(root, mergeSchema="true").writer(StructType([StructField("topic", StringType())]), False)


def test_merging_asks_for_the_right_to_alter(root: str, typed: CommitLog) -> None:
    typed.access.allow("ops", "admin")
    typed.acting_as("ops").access.allow("ann", "write", TOPIC)
    of = source(root, topic=TOPIC, mergeSchema="true", principal="ann")
    of.writer(from_arrow_schema(ROWS.schema), False)
    with pytest.raises(AccessDeniedError):
        of.writer(StructType([StructField("user", StringType()), StructField("x", IntegerType())]), False)
