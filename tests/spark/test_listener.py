"""`CommitLogListener` beside a real query."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, CommitLogListener
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.spark.session.lag import PartitionLag, QueryLag
from pyspark_commitlog.spark.session.live import POINTS, Live, draw
from tests.support.records import append, batch_of

TOPIC = "orders"


def test_the_lag_behind_every_micro_batch(spark: SparkSession, root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC, partitions=2, config={"retention.ms": -1})
    hour_ago = (int(time.time()) - 3600) * 1_000_000
    append(log.root.topic(TOPIC), batch_of([b"x"] * 6, partition=[0, 0, 0, 0, 1, 1], timestamp=[hour_ago] * 6))
    told: list[QueryLag] = []
    listener = CommitLogListener(root, tell=told.append)
    spark.streams.addListener(listener)
    try:
        df = spark.readStream.format("commitlog").option("subscribe", TOPIC).option("startingOffsets", "earliest")
        query = (
            df.option("maxOffsetsPerTrigger", "3").load(root).writeStream.format("noop").queryName("reports")
            .option("checkpointLocation", f"{root}-checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        until = time.monotonic() + 30
        while len(told) < 2 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.lag for lag in told[:2]] == [3, 0]
    assert {lag.query for lag in told} == {"reports"}
    assert [sum(each.offset for each in lag.partitions) for lag in told[:2]] == [3, 6]
    assert [sum(lag.rows for lag in told[:2]), *(lag.output_rows for lag in told[:2])] == [6, 3, 3]
    assert all({"addBatch", "triggerExecution"} <= lag.durations_ms.keys() for lag in told)
    assert told[0].to_dict()["topics"][TOPIC]["lag"] == 3
    waits = [each for each in told[0].partitions if each.lag]
    assert waits
    for each in waits:
        assert each.behind_bytes is not None
        assert each.behind_bytes > 0
        assert each.behind_ms is not None
        assert 3_600_000 <= each.behind_ms < 4_000_000
    assert all(each.behind_ms == 0 for each in told[1].partitions)


_SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_commitlog import CommitLogListener, DefaultSource
root, checkpoint, end = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(DefaultSource)
listener = CommitLogListener(root)
spark.streams.addListener(listener)
reader = spark.readStream.format("commitlog").option("subscribe", "orders").option("startingOffsets", "earliest")
query = reader.load(root).writeStream.format("noop").option("checkpointLocation", checkpoint).start()
query.processAllAvailable()
if end == "stop":
    query.stop()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["stop", pytest.param("run on", marks=pytest.mark.nightly)])
def test_a_script_that_does_not_stop_spark_ends_without_a_line(
    root: str, log: CommitLog, tmp_path: Path, end: str
) -> None:
    """Spark ends after Python, and logged for each report that nobody took it: 80 lines of the JVM."""
    log.create_topic(TOPIC)
    append(log.root.topic(TOPIC), batch_of([b"a"]))
    command = [sys.executable, "-c", _SCRIPT, root, str(tmp_path / "checkpoint"), end]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "ERROR" in line or "py4j" in line]


def test_a_table_and_text_of_what_was_taken(root: str, log: CommitLog) -> None:
    log.create_topic(TOPIC)
    listener = CommitLogListener()
    offset = '{"orders": {"0": 1}, "__topic_ids": {"orders": "id"}}'
    listener.take(
        {"id": "1", "name": "<reports>", "batchId": 0, "timestamp": "", "sources": [
            {"endOffset": offset, "latestOffset": offset.replace("1}", "1234}"), "numInputRows": 1}]}
    )  # fmt: skip
    assert listener.to_dict()["<reports>"]["lag"] == 1233
    assert (
        'commitlog_query_lag{query="<reports>",source="0",topic="orders",partition="0"} 1233' in listener.prometheus()
    )
    shown = listener._repr_html_()
    assert "&lt;reports&gt;" in shown
    assert "<td>1,233</td>" in shown


class Ended:
    """What Spark says of a query that has ended."""

    def __init__(self, query: str) -> None:
        self.id = query
        self.exception = None


def test_prometheus_keeps_queries_that_have_ended_the_newest_of_them() -> None:
    """`trigger(availableNow=True)` ends by itself: nothing was left to look at."""
    listener = CommitLogListener(tell=lambda lag: None)
    for number in range(102):
        listener.take({**report('{"0": 250}', '{"0": 250}'), "id": f"{number}", "name": f"q{number}"})
        listener.onQueryTerminated(Ended(f"{number}"))
    assert listener.lags() == []
    told = listener.prometheus()
    assert 'commitlog_query_active{query="q101"} 0' in told
    assert 'commitlog_query_offset{query="q101",source="0",topic="orders",partition="0"} 250' in told
    assert told.count("commitlog_query_active{") == 100
    listener.take({**report('{"0": 251}', '{"0": 251}'), "id": "101", "name": "q101"})
    assert 'commitlog_query_active{query="q101"} 1' in listener.prometheus()
    assert listener.prometheus().count('commitlog_query_active{query="q101"}') == 1


class Ending(dict[str, object]):
    """Lags of which one ends as soon as their names are read."""

    def __iter__(self) -> Iterator[str]:
        names = list(super().__iter__())
        self.clear()
        return iter(names)


def test_a_query_that_ends_while_lags_are_read_fails_nobody() -> None:
    """Spark's thread takes it out, beside whoever serves them."""
    listener = CommitLogListener(tell=lambda lag: None)
    listener.take(report('{"0": 250}', '{"0": 250}'))
    listener._lags = Ending(listener._lags)  # type: ignore[assignment]
    assert [lag.query for lag in listener.lags()] == ["reports"]


def report(end: str, latest: str) -> dict[str, object]:
    """Return Spark's report of a micro-batch, with what its offsets tell of the topic's partitions."""
    offset = '{{"orders": {}, "__topic_ids": {{"orders": "id"}}}}'
    source = {
        "endOffset": offset.format(end), "latestOffset": offset.format(latest), "numInputRows": 2000,
        "inputRowsPerSecond": 1500.0, "processedRowsPerSecond": 2500.0,
    }  # fmt: skip
    return {"id": "1", "name": "reports", "batchId": 7, "timestamp": "", "sources": [source]}


def written_an_hour_ago(log: CommitLog) -> str:
    """Write 1,500 records to one partition of two; return the high watermarks."""
    log.create_topic(TOPIC, partitions=2, config={"retention.ms": -1})
    hour_ago = (int(time.time()) - 3600) * 1_000_000
    append(log.root.topic(TOPIC), batch_of([b"x"] * 1500, partition=[1] * 1500, timestamp=[hour_ago] * 1500))
    return '{"0": 0, "1": 1500}'


def test_the_line_has_rates_records_bytes_and_time(root: str, log: CommitLog, caplog: pytest.LogCaptureFixture) -> None:
    highs = written_an_hour_ago(log)
    listener = CommitLogListener(root)
    with caplog.at_level(logging.INFO, "pyspark_commitlog"):
        listener.take(report('{"0": 0, "1": 250}', highs))
        listener.take(report(highs, highs))
    (lag,) = listener.lags()
    assert (lag.behind_bytes, lag.behind_ms) == (0, 0)
    assert {(line.name, line.levelname) for line in caplog.records} == {("pyspark_commitlog.spark", "INFO")}
    behind, caught_up = (line.getMessage() for line in caplog.records)
    told = re.fullmatch(
        r"query reports batch 7: 2000 records, 1500/s arriving, 2500/s read, lag 1250 "
        r"\((\d+) bytes, (\d+\.\d) s behind\), most in orders partition 1: 1250",
        behind,
    )
    assert told, behind
    assert int(told[1]) > 0
    assert 3600 <= float(told[2]) < 4000
    assert caught_up == "query reports batch 7: 2000 records, 1500/s arriving, 2500/s read, lag 0"


def test_the_line_without_a_root_has_what_spark_tells(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyspark_commitlog"):
        CommitLogListener().take(report('{"0": 0, "1": 250}', '{"0": 3, "1": 1500}'))
    assert caplog.messages == [
        "query reports batch 7: 2000 records, 1500/s arriving, 2500/s read, lag 1253, most in orders partition 1: 1250"
    ]


def test_who_asks_is_told_where_the_root_has_rules(root: str, log: CommitLog) -> None:
    highs = written_an_hour_ago(log)
    log.access.allow("ops", "admin")
    for principal, is_told in ((None, False), ("ops", True)):
        listener = CommitLogListener(root, principal=principal, tell=lambda lag: None)
        listener.take(report('{"0": 0, "1": 250}', highs))
        (lag,) = listener.lags()
        assert lag.lag == 1250
        assert (lag.behind_bytes is not None) == is_told


def cells(listener: CommitLogListener) -> list[list[str]]:
    """Return the table that a notebook shows, its head first."""
    rows = re.findall("<tr>(.*?)</tr>", listener._repr_html_())
    return [re.findall("<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_the_table_has_rates_high_watermark_bytes_and_time(root: str, log: CommitLog) -> None:
    highs = written_an_hour_ago(log)
    listener = CommitLogListener(root, tell=lambda lag: None)
    listener.take(report('{"0": 0, "1": 250}', highs))
    head, caught_up, behind = cells(listener)
    assert head[:6] == ["query", "batch", "arriving/s", "read/s", "topic", "partition"]
    assert head[6:] == ["offset", "high watermark", "lag", "bytes behind", "time behind"]
    assert caught_up == ["reports", "7", "1,500", "2,500", "orders", "0", "0", "0", "0", "0", "0.0 s"]
    assert behind[:9] == ["reports", "7", "1,500", "2,500", "orders", "1", "250", "1,500", "1,250"]
    (lag,) = listener.lags()
    assert behind[9] == f"{lag.partitions[1].behind_bytes:,}" != "0"
    assert behind[10].startswith("3,6")
    assert behind[10].endswith(" s")


def test_the_table_without_a_root_leaves_bytes_and_time_empty() -> None:
    listener = CommitLogListener(tell=lambda lag: None)
    listener.take(report('{"0": 250}', '{"0": 1500}'))
    assert cells(listener)[1][6:] == ["250", "1,500", "1,250", "", ""]


def micro_batch(number: int, high: int) -> dict[str, object]:
    """Return Spark's report of a micro-batch that ends at offset 1 of the topic."""
    offset = '{"orders": {"0": 1}, "__topic_ids": {"orders": "id"}}'
    source = {"endOffset": offset, "latestOffset": offset.replace("1}", f"{high}}}"), "numInputRows": 1}
    at = f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000Z"
    return {"id": "1", "name": "reports", "batchId": number, "timestamp": at, "sources": [source]}


def test_the_plot_has_the_lag_and_the_rates_of_each_query() -> None:
    def batch(query: str, second: int, lag: int) -> QueryLag:
        place = PartitionLag(TOPIC, 0, 0, lag)
        return QueryLag(query, second, f"2026-01-01T00:00:0{second}.000Z", 1, 10.0 * second, 20.0 * second, (place,))

    behind, rates = draw({"a": [batch("a", 1, 7), batch("a", 2, 5)], "b": [batch("b", 1, 3)], "none": []}).axes
    assert [list(line.get_ydata()) for line in behind.lines] == [[7, 5], [3]]
    assert [list(line.get_ydata()) for line in rates.lines] == [[20, 40], [10, 20], [20], [10]]
    assert [text.get_text() for text in behind.get_legend().get_texts()] == ["a", "b"]


def test_a_live_view_is_drawn_behind_every_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(Live, "__init__", lambda self, html: shown.append(html))
    monkeypatch.setattr(Live, "update", lambda self, html: shown.append(html))
    listener = CommitLogListener(tell=lambda lag: None)
    listener.live()
    for number in range(POINTS + 10):
        if number in (0, POINTS + 9):
            assert len(shown) == 1 + (number > 0)
            listener.take(micro_batch(number, 100 + number))
        else:
            with monkeypatch.context() as quiet:  # drawing takes long
                quiet.setattr(listener, "_live", [])
                listener.take(micro_batch(number, 100 + number))
    assert "<td>99</td>" in shown[1]
    assert f"<td>{POINTS + 108:,}</td>" in shown[2]
    assert len(listener._history["1"]) == POINTS


def test_a_live_view_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs matplotlib: pip install 'pyspark-commitlog\[notebook\]'"):
        CommitLogListener().live()
