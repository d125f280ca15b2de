"""The lag of a query, from what Spark reports."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pyspark_commitlog.spark.session.lag import QUERY_METRICS, PartitionLag, QueryLag, lag_of, prometheus


def source(end: dict[str, int], latest: dict[str, int] | None, **more: Any) -> dict[str, Any]:
    """Return a source of topic `t` as Spark reports it."""

    def told(offsets: dict[str, int]) -> str:
        return json.dumps({"t": offsets, "__topic_ids": {"t": "id"}})

    return {
        "description": "…", "endOffset": told(end), "latestOffset": None if latest is None else told(latest),
        "numInputRows": 7, "inputRowsPerSecond": 3.5, "processedRowsPerSecond": 14.0, **more,
    }  # fmt: skip


def progress(*sources: dict[str, Any], name: str | None = "reports") -> dict[str, Any]:
    """Return what Spark reports."""
    return {"id": "q", "name": name, "batchId": 4, "timestamp": "2026-01-01T00:00:00.000Z", "sources": list(sources)}


def test_lag_is_what_lies_between_the_end_of_the_batch_and_the_high_watermark() -> None:
    found = lag_of(progress(source({"1": 40, "0": 42}, {"0": 50, "1": 40})))
    assert found is not None
    assert found.partitions == (PartitionLag("t", 0, 42, 50), PartitionLag("t", 1, 40, 40))
    assert (found.query, found.batch, found.rows, found.input_rate, found.process_rate) == ("reports", 4, 7, 3.5, 14.0)
    assert found.lag == 8
    assert found.to_dict()["partitions"][0]["lag"] == 8


@pytest.mark.parametrize("latest", [None, {"0": 10}])
def test_a_report_that_is_older_than_the_batch_is_no_negative_lag(latest: dict[str, int] | None) -> None:
    found = lag_of(progress(source({"0": 42, "1": 1}, latest)))
    assert found is not None
    assert [each.lag for each in found.partitions] == [0, 0]


def test_other_sources_are_passed_over() -> None:
    rate = {"description": "RateStream", "endOffset": "5", "latestOffset": None, "numInputRows": 1}
    kafka = {"description": "Kafka", "endOffset": json.dumps({"k": {"0": 4}}), "numInputRows": 1}
    assert lag_of(progress(rate, kafka)) is None
    found = lag_of(progress(rate, source({"0": 1}, {"0": 2}), name=None))
    assert found is not None
    assert (found.query, found.rows, found.lag) == ("q", 7, 1)


def test_rates_that_spark_leaves_out_are_0() -> None:
    first = source({"0": 1}, {"0": 1})
    del first["inputRowsPerSecond"]
    found = lag_of(progress(first))
    assert found is not None
    assert found.input_rate == 0


def test_prometheus_text() -> None:
    partitions = (PartitionLag("t", 0, 42, 50, behind_bytes=900, behind_ms=1500), PartitionLag("t", 1, 4, 4))
    told = prometheus([QueryLag('a "b"', 4, "", 7, 3.5, 14.0, partitions)])
    helps = [line.split()[2] for line in told.splitlines() if line.startswith("# HELP ")]
    assert helps == [line.split()[2] for line in told.splitlines() if line.startswith("# TYPE ")]
    assert [line for line in told.splitlines() if not line.startswith("# HELP ")] == [
        "# TYPE commitlog_query_active gauge",
        'commitlog_query_active{query="a \\"b\\""} 1',
        "# TYPE commitlog_query_input_rows gauge",
        'commitlog_query_input_rows{query="a \\"b\\""} 7',
        "# TYPE commitlog_query_input_rows_per_second gauge",
        'commitlog_query_input_rows_per_second{query="a \\"b\\""} 3.5',
        "# TYPE commitlog_query_processed_rows_per_second gauge",
        'commitlog_query_processed_rows_per_second{query="a \\"b\\""} 14.0',
        "# TYPE commitlog_query_offset gauge",
        'commitlog_query_offset{query="a \\"b\\"",source="0",topic="t",partition="0"} 42',
        'commitlog_query_offset{query="a \\"b\\"",source="0",topic="t",partition="1"} 4',
        "# TYPE commitlog_query_lag gauge",
        'commitlog_query_lag{query="a \\"b\\"",source="0",topic="t",partition="0"} 8',
        'commitlog_query_lag{query="a \\"b\\"",source="0",topic="t",partition="1"} 0',
        "# TYPE commitlog_query_behind_bytes gauge",
        'commitlog_query_behind_bytes{query="a \\"b\\"",source="0",topic="t",partition="0"} 900',
        "# TYPE commitlog_query_behind_seconds gauge",
        'commitlog_query_behind_seconds{query="a \\"b\\"",source="0",topic="t",partition="0"} 1.5',
    ]
    assert prometheus([]) == ""


def test_rows_written_and_the_time_of_each_phase_are_those_of_the_report() -> None:
    more = {"sink": {"numOutputRows": 5}, "durationMs": {"addBatch": 3161, "walCommit": 33}}
    found = lag_of(progress(source({"0": 1}, {"0": 2})) | more)
    assert found is not None
    assert {"rows": 7, "numOutputRows": 5, "durationMs": {"addBatch": 3161, "walCommit": 33}}.items() <= (
        found.to_dict().items()
    )
    told = prometheus([found]).splitlines()
    assert 'commitlog_query_output_rows{query="reports"} 5' in told
    assert 'commitlog_query_duration_seconds{query="reports",phase="addBatch"} 3.161' in told
    assert 'commitlog_query_duration_seconds{query="reports",phase="walCommit"} 0.033' in told


@pytest.mark.parametrize("more", [{}, {"sink": {"numOutputRows": -1}}, {"sink": None}])
def test_a_sink_that_does_not_say_its_rows_has_none(more: dict[str, Any]) -> None:
    found = lag_of(progress(source({"0": 1}, {"0": 2})) | more)
    assert found is not None
    assert found.output_rows is None
    assert "commitlog_query_output_rows{" not in prometheus([found])


def test_the_lag_of_each_topic_is_that_of_its_partitions() -> None:
    partitions = (
        PartitionLag("a", 0, 5, 9, behind_bytes=40, behind_ms=1500),
        PartitionLag("a", 1, 5, 6, behind_bytes=10, behind_ms=2500),
        PartitionLag("b", 0, 1, 1),
    )
    query = QueryLag("q", 4, "", 7, 3.5, 14.0, partitions)
    assert query.to_dict()["topics"] == {
        "a": {"lag": 5, "behindBytes": 50, "behindMs": 2500},
        "b": {"lag": 0, "behindBytes": None, "behindMs": None},
    }
    assert query.of_topic("a").partitions == partitions[:2]


def test_each_sample_has_the_labels_of_its_metric() -> None:
    partitions = (PartitionLag("t", 0, 42, 50, behind_bytes=900, behind_ms=1500),)
    query = QueryLag("q", 4, "", 7, 3.5, 14.0, partitions, output_rows=1, durations_ms={"addBatch": 1})
    samples = [line for line in prometheus([query]).splitlines() if not line.startswith("#")]
    labels = {line.partition("{")[0]: tuple(re.findall(r'(\w+)="', line)) for line in samples}
    assert labels == {name: metric.labels for name, metric in QUERY_METRICS.items()}


def test_of_queries_with_one_name_prometheus_has_the_one_that_runs_or_ended_last() -> None:
    def query(name: str, offset: int) -> QueryLag:
        return QueryLag(name, 1, "", 7, 1.0, 1.0, (PartitionLag("t", 0, offset, offset),))

    told = prometheus([query("a", 3)], [query("a", 1), query("b", 4), query("b", 5)])
    rows = [line for line in told.splitlines() if line.startswith(("commitlog_query_active", "commitlog_query_offset"))]
    place = 'source="0",topic="t",partition="0"'
    assert sorted(rows) == [
        'commitlog_query_active{query="a"} 1',
        'commitlog_query_active{query="b"} 0',
        f'commitlog_query_offset{{query="a",{place}}} 3',
        f'commitlog_query_offset{{query="b",{place}}} 5',
    ]


def test_two_sources_of_one_topic_have_series_of_their_own() -> None:
    """Prometheus refuses a text with two samples of one name and the same labels."""
    rate = {"description": "RateStream", "endOffset": "5", "latestOffset": None, "numInputRows": 1}
    both = [source({"0": 1, "1": 4}, {"0": 2, "1": 4}), source({"0": 2, "1": 4}, {"0": 2, "1": 4})]
    found = lag_of(progress(both[0], rate, both[1]))
    assert found is not None
    rows = [line.rsplit(" ", 1) for line in prometheus([found]).splitlines() if not line.startswith("#")]
    assert len({series for series, _ in rows}) == len(rows)
    lags = {series: value for series, value in rows if series.startswith("commitlog_query_lag") and value == "1"}
    assert lags == {'commitlog_query_lag{query="reports",source="0",topic="t",partition="0"}': "1"}
    assert [(row["source"], row["partition"], row["offset"]) for row in found.to_dict()["partitions"]] == [
        (0, 0, 1), (2, 0, 2), (0, 1, 4), (2, 1, 4),
    ]  # fmt: skip


def test_a_query_without_a_name_is_shown_by_its_topics() -> None:
    unnamed = lag_of(progress(source({"0": 1}, {"0": 2}), name=None) | {"id": "3f2a4b6c-0000-0000-0000-000000000000"})
    named = lag_of(progress(source({"0": 1}, {"0": 2})))
    assert unnamed is not None
    assert named is not None
    assert (unnamed.title, named.title) == ("t (3f2a4b6c)", "reports")
