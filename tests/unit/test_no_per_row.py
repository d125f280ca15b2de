"""Python works on whole columns: its work must not grow with the rows of a frame or a batch.

Measured for a read and for a write, by counting every line and call that Python runs; and looked for in the sources.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns.untyped import HEADERS, TIMESTAMP
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.spark.read.spark_rows import SparkRows
from pyspark_commitlog.storage.local import local_files
from pyspark_commitlog.topic.read.named_columns import NamedColumns
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.collection import no_collection
from tests.support.records import append, stage

PACKAGE = Path(__file__).resolve().parents[2] / "pyspark_commitlog"
#: Four times as many still fit one frame, and its head is as long: the columns lie aligned in both, or in neither.
ROWS = 10_000
SPARK_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def python_work(act: Callable[[], object]) -> Counter[tuple[str, str, int]]:
    """Return how often each line was run, and each function called from where, while `act` ran."""
    work: Counter[tuple[str, str, int]] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> object:
        work[event, frame.f_code.co_filename, frame.f_lineno] += 1
        return trace

    def profile(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call":
            work[f"calls {getattr(called, '__qualname__', called)}", frame.f_code.co_filename, frame.f_lineno] += 1

    act()  # what is loaded or cached once is no part of the work
    before = sys.gettrace(), sys.getprofile()  # a debugger's, or those that measure coverage
    with no_collection():
        sys.settrace(trace)  # type: ignore[arg-type]
        sys.setprofile(profile)
        try:
            act()
        finally:
            sys.setprofile(before[1])
            sys.settrace(before[0])
    return work


def test_who_traces_goes_on_behind_the_count() -> None:
    seen: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        seen.append(frame.f_code.co_name)

    def profile(frame: FrameType, event: str, _: object) -> None:
        pass

    def nothing() -> None:
        pass

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        assert python_work(nothing).total() > 0
        assert sys.getprofile() is profile
        seen.clear()
        nothing()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    assert "nothing" in seen


#: A frame whose message lies unaligned in its file is decoded another way, a few steps longer, once.
ONCE = 10


def more(work: Counter[tuple[str, str, int]], than: Counter[tuple[str, str, int]]) -> dict[tuple[str, str, int], int]:
    """Return what was done more often, per line of ours or Arrow's; but for the bytes of a number (its logarithm)."""
    return {
        place: times
        for place, times in (work - than).items()
        if times > ONCE
        and not place[1].endswith("/varint.py")
        and ("pyspark_commitlog" in place[1] or "pyarrow" in place[1])
    }


def records(rows: int) -> pa.RecordBatch:
    """Return rows with every column; keys, values and headers of the same length throughout, some of them null."""
    first = 1_700_000_000_000_000
    columns = {
        "key": pa.array([None if i % 10 == 0 else b"key %06d" % (i % 1000) for i in range(rows)], pa.binary()),
        "value": pa.array([b"value %04d" % (i % 100) for i in range(rows)], pa.binary()),
        "timestamp": pa.array(range(first, first + rows), pa.timestamp("us", "Asia/Tokyo")),
        "headers": pa.array([None if i % 2 else [("h", b"x")] for i in range(rows)], HEADERS),
        "partition": pa.array([i % 3 if i % 7 == 0 else None for i in range(rows)], pa.int32()),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns)


def topic_of(tmp_path: Path, rows: int, partitions: int) -> TopicLog:
    """Return an empty topic whose frames hold all rows of a batch."""
    log = CommitLog(str(tmp_path / f"{rows}"))
    config = {"batch.size": 2**28, "inline.max.bytes": 0, "compression.type": "zstd", "retention.ms": -1}
    log.create_topic("t", partitions, config)
    return log.root.topic("t")


@pytest.mark.parametrize("partitioner", ["sticky", "roundrobin"])
def test_staging_a_batch_costs_python_the_same_whatever_its_rows(
    tmp_path: Path, partitioner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_CALL_BYTES", 2**30)  # system calls go by bytes, of which more rows have more
    monkeypatch.setattr(frame, "_LARGE_BYTES", 0)  # and so do the pieces of a frame
    few, many = (python_work(staging(tmp_path, rows, partitioner)) for rows in (ROWS, 4 * ROWS))
    assert more(many, few) == {}
    assert few.total() > 100  # it was counted at all


def staging(tmp_path: Path, rows: int, partitioner: str) -> Callable[[], None]:
    """Return a write task of one batch."""
    topic, batch = topic_of(tmp_path, rows, 3), records(rows)

    def write() -> None:
        assert stage(topic, batch, partitioner=partitioner).rows == rows

    return write


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("names", [SPARK_SCHEMA.names, ["offset", "value"]])
def test_reading_a_frame_costs_python_the_same_whatever_its_rows(
    tmp_path: Path, names: list[str], settled: bool
) -> None:
    schema = pa.schema([SPARK_SCHEMA.field(name) for name in names])
    few, many = (python_work(reading(tmp_path, rows, schema, settled)) for rows in (ROWS, 4 * ROWS))
    assert more(many, few) == {}
    assert few.total() > 100


def reading(tmp_path: Path, rows: int, schema: pa.Schema, settled: bool) -> Callable[[], None]:
    """Return a read of a topic with one frame, as a Spark task does it."""
    topic = topic_of(tmp_path, rows, 1)
    append(topic, records(rows).drop_columns(["partition"]))
    if settled:
        CommitLog.on(topic.storage).topic("t").maintain()
    wanted = OffsetRange("t", topic.newest()[1].topic_id, 0, 0, rows)

    def read() -> None:
        columns = NamedColumns(schema, {})
        batches = list(SparkRows(columns, "t", 0).convert(read_range(topic, wanted, columns.stored("t"))))
        assert [batch.num_rows for batch in batches] == [rows]

    return read


# --- in the sources ---------------------------------------------------------------------------------------

#: Each makes Python objects out of a column's values.
PER_ROW = {"to_pylist", "to_pydict", "to_pandas", "as_py", "tolist", "item", "iterrows", "vectorize", "frompyfunc"}
#: Where they may stand: (module, function) and why its work does not grow with the rows.
ALLOWED = {
    ("topic/write/checksum.py", "hashes"): "a few records, where a call of Arrow costs as much as some of them",
    (
        "topic/lookup/fetch.py",
        "records",
    ): "as many records as the caller asked for, each of them wanted as an object",
    ("topic/read/extents.py", "__iter__"): "the extents of an entry",
    ("topic/read/extents.py", "of_partition"): "one partition's extents of an entry",
    ("topic/read/extents.py", "counts"): "one number per partition of an entry",
    ("topic/write/records.py", "partitions_of"): "the two bounds of a batch",
    ("topic/write/typed_records.py", "_column"): "the place of a refused null",
    ("topic/read/named_columns.py", "_first_wider"): "the place of a value that a column can't hold",
    ("format/columns/statistics.py", "_ends"): "two values per column of a frame",
    ("format/columns/statistics.py", "_extremes"): "two values per column of a frame",
    ("format/columns/storing.py", "_by_dictionary"): "one number per column of a frame",
    ("format/columns/storing.py", "_bytes"): "one number per column of a frame",
    ("format/columns/storing.py", "_expanded"): "two numbers per column of a frame",
    ("format/columns/storing.py", "_narrowed"): "the two bounds of a column of a frame",
    ("spark/write/local_times.py", "_instants"): "one answer for a batch: whether a change of the clocks skips any",
    ("topic/write/staging.py", "_split"): "one number per partition that the batch has records for",
    ("topic/write/staging.py", "split_topics"): "one name per topic that the batch has records for",
}


def uses(source: str) -> Iterator[tuple[str, str]]:
    """Yield (function, name) of every attribute in `PER_ROW` in a module's source."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in PER_ROW:
                    yield function.name, node.attr


def test_no_module_makes_python_objects_of_a_column() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), function)
        for room in ("consumer", "spark", "topic", "format")
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for function, _ in uses(path.read_text())
    }
    assert found - set(ALLOWED) == set()
    assert set(ALLOWED) - found == set(), "no longer needed"


def test_that_look_finds_what_it_looks_for() -> None:
    source = "def f(column):\n    return [value.as_py() for value in column]\n"
    assert list(uses(source)) == [("f", "as_py")]
