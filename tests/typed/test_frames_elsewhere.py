"""`Topic.scan` and `Topic.to_pandas`: a topic in Polars and pandas, and what is said without them."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any

import pandas as pd
import polars as pl
import pytest

from pyspark_commitlog.api.topic import Topic
from pyspark_commitlog.format.columns import frame_rows
from pyspark_commitlog.topic.lookup import table
from tests.support.records import append, batch_of
from tests.support.typed import START, rows, typed_topic, write
from tests.support.world import World


@pytest.fixture
def topic(world: World) -> Topic:
    """Fifteen rows in frames of three."""
    handle = typed_topic(world, 1)
    for start in range(0, 15, 3):
        write(handle, *rows(start, start + 3))
    return world.log().topic("t")


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_queries_a_topic(topic: Topic, engine: Any) -> None:
    lazy = topic.scan(["*", "_offset"])
    assert lazy.collect(engine=engine).equals(pl.DataFrame(topic.to_arrow(["*", "_offset"])))
    late = lazy.filter((pl.col("n") > 2**34) & (pl.col("at") > START)).select("user", "_offset", "day")
    expected = [(f"user {number % 2}", number, date(2024, 1, 1 + number)) for number in range(3, 15)]
    for _ in range(2):
        assert late.collect(engine=engine).rows() == expected
    assert late.head(2).collect(engine=engine).rows() == expected[:2]
    assert lazy.head(5).filter(pl.col("_offset") > 1).select("n").collect(engine=engine).height == 3
    assert lazy.slice(4, 3).select("_offset").collect(engine=engine).to_series().to_list() == [4, 5, 6]
    assert lazy.select(pl.len()).collect(engine=engine).item() == 15
    sums = lazy.group_by("user").agg(pl.col("n").sum()).sort("user").collect(engine=engine)
    assert sums.rows() == [("user 0", 56 * 2**33), ("user 1", 49 * 2**33)]


def test_polars_sees_one_state_and_an_untyped_topic_too(world: World) -> None:
    handle = world.create()
    append(handle, batch_of([b"1", b"2"]))
    lazy = world.log().topic("t").scan(["value", "_offset"])
    append(handle, batch_of([b"3"]))
    assert lazy.collect().rows() == [(b"1", 0), (b"2", 1)]
    assert world.log().topic("t").scan().collect_schema().names() == world.log().topic("t").to_arrow().schema.names


def test_polars_has_only_its_columns_decoded_and_stops(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    decode = frame_rows.decode
    monkeypatch.setattr(frame_rows, "decode", lambda payload, names=None: seen.append(names) or decode(payload, names))
    monkeypatch.setattr(table, "_GROUP_BYTES", 1)
    lazy = topic.scan()
    assert seen == []
    assert lazy.head(4).select("n").collect().height == 4
    assert [len(names) for names in seen] == [1, 1]
    seen.clear()
    lazy.filter(pl.col("user") == "user 1").select("n").collect()
    assert {len(names) for names in seen} == {2}


def test_pandas_gets_arrow_s_types(topic: Topic) -> None:
    frame = topic.to_pandas(["user", "n", "at", "price", "_offset"], start={0: 3}, end={0: 6})
    assert frame["n"].tolist() == [number * 2**33 for number in (3, 4, 5)]
    assert frame["price"].tolist() == [each["price"] for each in rows(3, 6)]
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"
    pd.testing.assert_frame_equal(frame, topic.to_arrow(list(frame.columns), {0: 3}, {0: 6}).to_pandas())


_WITHOUT = """
import sys
sys.modules["{package}"] = None
from pyspark_commitlog import CommitLog
CommitLog("{root}").topic("t").{call}()
"""


@pytest.mark.parametrize(("package", "call"), [("polars", "scan"), ("pandas", "to_pandas")])
def test_a_missing_package_is_named(topic: Topic, world: World, package: str, call: str) -> None:
    code = _WITHOUT.format(package=package, root=world.path, call=call)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'pyspark-commitlog[{package}]', or pip install {package}" in child.stderr.splitlines()[-1]
    assert "UnsupportedError" in child.stderr.splitlines()[-1]
