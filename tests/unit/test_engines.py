"""Schemas as the engines take and give them: Spark's own types, and Arrow's for Sail."""

from __future__ import annotations

import sys
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.spark.read.schema import as_spark

OPTIONS = {"subscribe": "t", "startingOffsets": "earliest"}


@pytest.fixture
def root(tmp_path: object) -> str:
    path = f"{tmp_path}/log"
    CommitLog(path).create_topic("t", 1)
    return path


def test_spark_gets_its_own_types() -> None:
    assert isinstance(DefaultSource({"path": "/nowhere", **OPTIONS}).schema(), StructType)


def test_sail_gets_arrow_s_types_with_a_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Spark's types Sail would make timestamps without one, and PySpark refuses those."""
    monkeypatch.setitem(sys.modules, "pysail", ModuleType("pysail"))
    schema = DefaultSource({"path": "/nowhere", **OPTIONS}).schema()
    assert isinstance(schema, pa.Schema)
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_a_reader_takes_arrow_s_schema(root: str) -> None:
    source = DefaultSource({"path": root, **OPTIONS})
    asked = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
    assert source.reader(asked)._schema == asked


def test_a_writer_takes_arrow_s_schema_and_checks_it(root: str) -> None:
    source = DefaultSource({"path": root, "topic": "t"})
    source.writer(pa.schema([("value", pa.string())]), overwrite=False)
    with pytest.raises(Exception, match="value"):
        source.writer(pa.schema([("payload", pa.string())]), overwrite=False)


def test_both_forms_of_a_schema_are_the_same() -> None:
    schema = DefaultSource({"path": "/nowhere", "includeHeaders": "true", **OPTIONS}).schema()
    assert isinstance(schema, StructType)
    assert as_spark(to_arrow_schema(schema, timezone="UTC")).simpleString() == schema.simpleString()
