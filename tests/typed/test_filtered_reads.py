"""Filters of reads without Spark: the rows that meet a condition, whatever is skipped by statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_commitlog import Consumer
from pyspark_commitlog.errors import CorruptionError, UsageError
from pyspark_commitlog.format.columns import frame_rows, statistics
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.topic.maintain.settle import settle
from tests.support.commands import run
from tests.support.objects import topic_id
from tests.support.typed import DECLARED, START, Row, row, rows, write
from tests.support.world import CHUNKS, World

COUNT = 60
#: Each of `rows(…, size=500)` few make a frame.
FRAMES = {**CHUNKS, "batch.size": 4096, "compression.type": "none"}
KINDS: dict[str, Callable[[Row], bool]] = {
    "user = 'user 1'": lambda row: row["user"] == "user 1",
    "user <> 'user 1' AND n >= 85899345920": lambda row: row["user"] != "user 1" and row["n"] >= 10 * 2**33,
    "n IN (0, 8589934592, 3)": lambda row: row["n"] in (0, 2**33),
    "price < 1.005": lambda row: row["price"] is not None and row["price"] < Decimal("1.005"),
    "price IS NULL": lambda row: row["price"] is None,
    "ok": lambda row: row["ok"] is True,
    "NOT ok AND day > '2024-01-20'": lambda row: row["ok"] is False and row["day"].toordinal() > 738905,
    "ratio BETWEEN 1 AND 3.5D": lambda row: row["ratio"] is not None and 1 <= row["ratio"] <= 3.5,
    "ratio <=> NULL": lambda row: row["ratio"] is None,
    "at >= '2023-06-01 00:00:30'": lambda row: row["at"] >= START + timedelta(seconds=30),
    "_timestamp < TIMESTAMP '2023-06-01 00:00:10Z'": lambda row: row["at"] < START + timedelta(seconds=10),
    "_key IN (X'757365722030', X'00')": lambda row: row["user"] == "user 0",
    "_topic = 't' AND _partition_id < 1": lambda row: True,
    "_topic > 't'": lambda row: False,
    "tags IS NOT NULL AND place IS NULL": lambda row: row["place"] is None,
    "raw < X'80'": lambda row: row["raw"] < b"\x80",
    "n < 0": lambda row: False,
}


@pytest.fixture(autouse=True)
def short_frames() -> Iterator[None]:
    """Have frames of few rows told of, too."""
    with mock.patch.object(statistics, "MIN_ROWS", 1):
        yield


def make(world: World) -> list[Row]:
    """Write rows in many frames, some of them settled; return them."""
    topic = world.create(1, FRAMES, **DECLARED)
    made = rows(0, COUNT, size=500)
    for start in range(0, COUNT, 20):
        if start == 40:
            settle(topic, topic_id(topic))
        write(topic, *made[start : start + 20])
    return made


@pytest.mark.parametrize("condition", KINDS)
def test_a_table_has_the_rows_that_meet_it(either: World, condition: str) -> None:
    made = make(either)
    expected = [n for n, each in enumerate(made) if KINDS[condition](each)]
    topic = either.log().topic("t")
    for told in (True, False):
        with mock.patch.object(frame_rows, "statistics", frame_rows.statistics if told else lambda *_: {}):
            table = topic.to_arrow(["*", "_offset"], filter=condition)
        assert table["_offset"].to_pylist() == expected
        assert table.drop_columns(["_offset"]).to_pylist() == [made[n] for n in expected]
        assert topic.to_arrow(["_offset"], filter=condition)["_offset"].to_pylist() == expected
    part = topic.to_arrow(["_offset"], {0: 7}, {0: 51}, filter=condition)
    assert part["_offset"].to_pylist() == [n for n in expected if 7 <= n < 51]


@pytest.mark.parametrize("condition", KINDS)
def test_a_consumer_gets_them_and_goes_past_the_others(tmp_path: Any, condition: str) -> None:
    world = World(tmp_path / "root")
    made = make(world)
    expected = [n for n, each in enumerate(made) if KINDS[condition](each)]
    with Consumer(str(tmp_path / "root"), "t", group_id="g", auto_offset_reset="earliest") as consumer:
        found: list[int] = []
        place = TopicPartition("t", 0)
        while not consumer.assignment() or consumer.position(place) < COUNT:
            found += consumer.poll_arrow(0.2, 7, ["_offset", "user"], condition)["_offset"].to_pylist()
        assert found == expected
        consumer.seek(place, 3)
        rest = asyncio.run(consumer.apoll_arrow(0.2, columns=["_offset"], filter=condition))["_offset"].to_pylist()
        assert rest == [n for n in expected if n >= 3][: len(rest)]


def test_frames_without_a_row_that_passes_are_not_decoded(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    make(world)
    topic = world.log().topic("t")
    counted = mock.Mock(side_effect=frame_rows.decode)
    with mock.patch.object(frame_rows, "decode", counted):
        assert topic.to_arrow(["user"], filter=f"n = {41 * 2**33}").num_rows == 1
        assert counted.call_count == 1
        assert topic.to_arrow(["user"], filter="at > '2030-01-01'").num_rows == 0
        assert counted.call_count == 1


def test_frames_whose_rows_all_pass_are_read_without_the_columns_of_the_filter(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    make(world)
    with mock.patch.object(frame_rows, "coded", side_effect=AssertionError):
        assert world.log().topic("t").to_arrow(["user"], filter="n >= 0 AND at > '2020-01-01'").num_rows == COUNT


def test_a_column_that_a_frame_lacks_is_null(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    topic = world.create(1, FRAMES, **DECLARED)
    write(topic, *rows(0, 3))
    real = frame_rows.coded

    def without_ok(payload: Any, names: Any) -> Any:
        found = real(payload, names)
        return {name: column for name, column in found.items() if column.values.type != pa.bool_()}

    with (
        mock.patch.object(frame_rows, "coded", without_ok),
        mock.patch.object(frame_rows, "statistics", return_value={}),
    ):
        assert world.log().topic("t").to_arrow(["n"], filter="ok IS NULL").num_rows == 3
        assert world.log().topic("t").to_arrow(["n"], filter="ok IS NOT NULL").num_rows == 0


def test_a_view_takes_no_filter(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    world.create(1, FRAMES)
    with pytest.raises(UsageError, match="view='latest' takes no filter"):
        world.log().topic("t").to_arrow(view="latest", filter="offset > 3")


def test_cat_writes_the_rows_that_meet_it(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    make(world)
    lines = run("cat", str(tmp_path / "root"), "t", "-e", "--where", "user = 'user 1' AND n > 0")[0]
    assert len(lines) == COUNT // 2
    assert all('"user": "user 1"' in line or '"user":"user 1"' in line for line in lines)


def test_damaged_statistics_are_damage(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    topic = world.create(1, FRAMES, **DECLARED)
    with mock.patch.object(statistics, "encode", return_value='{"1": [5]}'):
        write(topic, row(1))
    with pytest.raises(CorruptionError, match="header statistics"):
        world.log().topic("t").to_arrow(filter="n = 1")
    assert world.log().topic("t").to_arrow().num_rows == 1
    assert any("header statistics" in fault for fault in world.log().topic("t").verify().faults)


def test_statistics_that_do_not_hold_are_a_fault(tmp_path: Any) -> None:
    world = World(tmp_path / "root")
    topic = world.create(1, FRAMES, **DECLARED)
    real = statistics.row_of
    with mock.patch.object(statistics, "row_of", lambda column, *more: real(column.slice(0, 1))):
        write(topic, row(1), row(2))
    faults = world.log().topic("t").verify().faults
    assert any("the statistics of column" in fault for fault in faults)
