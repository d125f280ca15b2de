"""Sail: a Spark Connect server without a JVM, which reads on threads of its own, in the process that has the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import CommitLog, Producer
from tests.sail.source import SailSource

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
    session.dataSource.register(SailSource)
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
            log.maintain("t")
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
    wanted = CommitLog(root).read("t", 2, 0, max_records=50)
    told = sorted(
        (row["offset"], row["key"], row["value"], row["timestamp"].timestamp(), row["topic"]) for row in found
    )
    assert told == [(r.offset, r.key, r.value, r.timestamp / 1000, "t") for r in wanted]
