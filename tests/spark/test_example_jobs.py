"""The examples' jobs, tested with the kit that users have for theirs; tests/spark/test_examples.py submits them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, Topic
from pyspark_commitlog.testing.jobs import assert_topic, fill_topic
from tests.spark.submitted import EXAMPLES

CreateTopic = Callable[..., Topic]
Example = Callable[[str], ModuleType]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """Import an example as a module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def flight(carrier: str, number: int, delay: int | None = None) -> dict[str, str]:
    """Return a record of a topic of flights: its key is the carrier."""
    value = {
        "scheduled_departure": "2013-01-01T05:00:00Z", "carrier": carrier, "flight": number, "dep_delay": delay
    }  # fmt: skip
    return {"key": carrier, "value": json.dumps(value)}


def test_what_fits_becomes_columns_and_the_rest_stays_as_it_is(
    example: Example, spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic, tmp_path: Path
) -> None:
    bad = [{"value": "{no json"}, {"value": '{"carrier": "AA", "flight": "twelve"}'}, {"value": '{"flight": 12}'}]
    commitlog_topic("flights", [flight("AA", 1, 7), *bad, flight("UA", 2)])
    for _ in range(2):  # the second time there is nothing new
        example("json_to_typed").convert(spark, commitlog.url, "flights", "typed", str(tmp_path / "checkpoints"))
        assert_topic(
            commitlog.topic("typed"),
            [{"carrier": "AA", "flight": 1, "dep_delay": 7}, {"carrier": "UA", "flight": 2, "dep_delay": None}],
            in_order=False,
        )
        assert_topic(commitlog.topic("typed-rejected"), bad, in_order=False)


def test_totals_are_those_of_all_flights_after_a_restart(
    example: Example, spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic, tmp_path: Path
) -> None:
    run, places = example("flights_totals").run, ("flights", "totals", str(tmp_path / "checkpoint"))
    commitlog_topic("flights", [flight("AA", 1), flight("UA", 2), flight("AA", 3)])
    run(spark, commitlog.url, *places)
    fill_topic(commitlog, "flights", [flight("AA", 4)])
    run(spark, commitlog.url, *places)
    totals = [{"key": "AA", "value": "2"}, {"key": "UA", "value": "1"}, {"key": "AA", "value": "3"}]
    assert_topic(commitlog.topic("totals"), totals, in_order=False)


def test_a_summary_leaves_cancelled_flights_out_of_the_mean(
    example: Example, spark: SparkSession, commitlog: CommitLog, commitlog_topic: CreateTopic
) -> None:
    commitlog_topic("flights", [flight("AA", 1, 10), flight("AA", 2, 20), flight("AA", 3), flight("UA", 4)])
    summary = example("flights_summary").summarise_stream(spark, commitlog.url, "flights")
    assert summary["carrier"] == [("AA", 3, 15.0, 20), ("UA", 1, None, None)]
