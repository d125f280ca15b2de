"""Sail: a Spark Connect server without a JVM, which reads on threads of its own, in the process that has the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog, DefaultSource, Producer
from pyspark_commitlog.errors import RootNotFoundError

CLONE = Path(__file__).parents[2]
RECORDS = 20_000
PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Yield the port of a server; it must end as it should, not by a signal."""
    command = [sys.executable, "-m", "tests.sail.server"]
    with subprocess.Popen(command, cwd=CLONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def spark(server: int) -> Iterator[SparkSession]:
    """Yield a session that knows the source."""
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{server}").getOrCreate()
    session.client.set_retry_policies([])  # else a call waits ten minutes for a server that crashed
    session.dataSource.register(DefaultSource)
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["none", "lz4", "zstd"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a root whose topic has records in segments, and in what is not settled yet."""
    path = str(tmp_path_factory.mktemp("sail") / "log")
    log = CommitLog(path)
    log.create_topic("t", 4, {"compression.type": request.param, "settle.bytes": 2**40, "settle.ms": 2**40})
    for settled in (True, False):
        with Producer(path) as producer:
            for number in range(RECORDS // 2):
                producer.send("t", b"value %d %s" % (number, b"." * (number % 100)), b"%d" % number)
        if settled:
            log.topic("t").maintain()
    return path


def read(spark: SparkSession, root: str, **options: str) -> DataFrame:
    """Return the topic."""
    return spark.read.format("commitlog").options(path=root, subscribe="t", **options).load()


def test_batch_reads_on_the_server_s_threads_give_every_record(spark: SparkSession, root: str) -> None:
    """Each read of a partition is a call on a thread that Python did not start; one crash ends the server."""
    wanted = sorted(b"value %d %s" % (n, b"." * (n % 100)) for n in range(RECORDS // 2) for _ in range(2))
    for _ in range(5):
        found = read(spark, root).select("value", "offset").toArrow()
        assert sorted(found["value"].to_pylist()) == wanted
        assert read(spark, root, columns="key").count() == RECORDS


def test_reads_of_several_clients_at_once(spark: SparkSession, root: str) -> None:
    with ThreadPoolExecutor(4) as clients:
        counted = list(clients.map(lambda _: len(read(spark, root).select("key", "value").toArrow()), range(12)))
    assert counted == [RECORDS] * 12


def test_a_record_is_the_same_as_without_sail(spark: SparkSession, root: str) -> None:
    found = read(spark, root, includeHeaders="true").where("partition = 2 AND offset < 50").toArrow().to_pylist()
    wanted = CommitLog(root).topic("t").read(2, 0, max_records=50)
    told = sorted(
        (row["offset"], row["key"], row["value"], row["timestamp"].timestamp(), row["topic"]) for row in found
    )
    assert told == [(r.offset, r.key, r.value, r.timestamp / 1000, "t") for r in wanted]


def empty(directory: Path, **config: object) -> str:
    """Return a new root with an empty topic of four partitions."""
    CommitLog(str(directory / "log")).create_topic("t", 4, {name.replace("_", "."): v for name, v in config.items()})
    return str(directory / "log")


def write(frame: DataFrame, root: str, **options: str) -> None:
    """Append to the topic."""
    frame.write.format("commitlog").mode("append").options(path=root, topic="t", **options).save()


def records(root: str) -> list[list[bytes | None]]:
    """Return the values of each partition."""
    log = CommitLog(root)
    ends = [partition.high_watermark for partition in log.topic("t").describe().partitions]
    return [[r.value for r in log.topic("t").read(p, 0, max_records=end)] if end else [] for p, end in enumerate(ends)]


def test_a_batch_write_stores_every_record_once_and_in_the_order_of_its_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = empty(tmp_path)
    write(spark.range(0, 40_000, 1, 4).selectExpr("'k' AS key", "CAST(id AS STRING) AS value"), root)
    found = records(root)
    assert [len(values) for values in found].count(0) == 3
    assert [int(v) for values in found for v in values if v] == list(range(40_000))


def test_tasks_without_keys_spread_over_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Each is a thread of the server, and Sail gives it no number."""
    root = empty(tmp_path)
    write(spark.range(0, 400, 1, 4).selectExpr("CAST(id AS STRING) AS value"), root)
    assert [len(values) for values in records(root)] == [100] * 4


def test_a_write_with_a_transaction_lands_once(spark: SparkSession, tmp_path: Path) -> None:
    root = empty(tmp_path)
    for _ in range(2):
        write(spark.range(100).selectExpr("CAST(id AS STRING) AS value"), root, txnAppId="job", txnVersion="1")
    assert sum(map(len, records(root))) == 100


def test_filters_and_options_reach_the_source(spark: SparkSession, root: str) -> None:
    found = read(spark, root, pushDownPredicate="true").where("partition = 1 AND offset >= 10 AND offset < 20")
    assert sorted(found.select("offset").toArrow()["offset"].to_pylist()) == list(range(10, 20))
    ends = read(spark, root, startingOffsets='{"t": {"0": 5, "1": -1, "2": -1, "3": -1}}', endingOffsets="latest")
    assert ends.where("offset < 5").count() == 0


def test_the_newest_record_of_each_key_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    root = empty(tmp_path, cleanup_policy="compact")
    for told in ("old", "new"):
        write(spark.range(100).selectExpr("CAST(id AS STRING) AS key", f"'{told}' AS value"), root)
    found = read(spark, root, view="latest").select("key", "value").toArrow().to_pylist()
    assert sorted(int(row["key"]) for row in found) == list(range(100))
    assert {row["value"] for row in found} == {b"new"}


def test_an_error_says_what_it_says_elsewhere(spark: SparkSession, root: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="unknown topic 'nope'"):
        spark.read.format("commitlog").options(path=root, subscribe="nope").load().count()
    with pytest.raises(Exception, match=RootNotFoundError.__name__):
        spark.read.format("commitlog").options(path=str(tmp_path / "none"), subscribe="t").load().count()
    with pytest.raises(Exception, match="cannot be overwritten"):
        spark.range(1).selectExpr("'v' AS value").write.format("commitlog").mode("overwrite").options(
            path=root, topic="t"
        ).save()
