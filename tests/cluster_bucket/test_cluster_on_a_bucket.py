"""A cluster of two workers that share nothing but a bucket, and one of them dies: every record and every count once."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import CommitLog
from tests.cluster_bucket.s3a import credentials, spark_conf
from tests.object_stores.servers import Bucket, Versitygw, free_port
from tests.spark.cluster import HOSTS, Cluster, ended_tasks, finish
from tests.spark.conftest import REPOSITORY
from tests.support.records import read_topic
from tests.support.sessions import kill_session, wait_until

YEAR = pq.read_table(REPOSITORY / "examples" / "data" / "nycflights-2013.parquet")
FLIGHTS, BY_DAY = "flights", "flights-by-day"
LATENESS = timedelta(days=40)


def files(bucket: Bucket) -> Any:
    """Return boto3's view of the bucket."""
    given = bucket.options
    return boto3.resource(
        "s3", endpoint_url=given["endpoint_url"], aws_access_key_id=given["key"],
        aws_secret_access_key=given["secret"], region_name=given["region_name"],
    ).Bucket("cluster")  # fmt: skip


@pytest.fixture
def months(bucket: Bucket, server: Versitygw) -> None:
    """Lay the year's flights into the bucket, a file a month, each modified at its month's end: Spark takes the oldest first."""
    of = pc.month(YEAR["scheduled_departure"].cast(pa.timestamp("us", "America/New_York")))  # in UTC it ends in 2014
    for month in range(1, 13):
        part, key = BytesIO(), f"flights/2013-{month:02}.parquet"
        pq.write_table(YEAR.filter(pc.equal(of, month)), part)
        files(bucket).put_object(Key=key, Body=part.getvalue())
        os.utime(server.home / "data" / "cluster" / key, (month * 2_592_000 + 1_356_998_400,) * 2)
    modified = [file.last_modified for file in files(bucket).objects.filter(Prefix="flights/")]
    assert modified == sorted(set(modified)), "the server does not say when files were modified"


@pytest.fixture
def cluster(workers: None, bucket: Bucket, tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster whose hosts have directories of their own for everything."""

    def environment(host: Path) -> dict[str, str]:
        (temporary := host / "tmp").mkdir(exist_ok=True)
        java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={temporary}"
        own = dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS", "LOCAL_DIRS", "HOME"), str(temporary))
        return {**own, "JDK_JAVA_OPTIONS": java, **credentials(bucket)}

    cluster = Cluster(tmp_path, environment)
    yield cluster
    cluster.close()


@pytest.mark.timeout(1200)
def test_a_cluster_that_shares_a_bucket_only_writes_and_counts_every_flight_once_while_a_worker_dies(
    cluster: Cluster, bucket: Bucket, s3a: Path, months: None, tmp_path: Path
) -> None:
    """The worker is killed in the middle of a task, once in the query that writes and once in that which counts."""
    (home := tmp_path / "driver").mkdir()
    log = CommitLog(f"{bucket.url}/log", bucket.options)
    for topic in (FLIGHTS, BY_DAY):
        log.create_topic(topic, partitions=4, config={"retention.ms": -1})
    places = ["--data", "s3a://cluster/flights", "--root", f"{bucket.url}/log"]
    places += ["--checkpoint", "s3a://cluster/checkpoints"]
    driver = Driver(cluster, home, *places, **spark_conf(s3a, bucket))
    try:
        begun = {}
        for topic in (FLIGHTS, BY_DAY):
            driver.wait(lambda topic=topic: records(log, topic) > 0)  # type: ignore[misc]
            driver.kill_in_a_task("two")
            begun[topic] = records(log, topic)
            cluster.restart("two")
        finish(driver.process, home)
    finally:
        kill_session(driver.process)
    check_flights(log)
    check_counts(log)
    lost = [task for task in ended_tasks(home) if task["Failed"] and task["Host"] == HOSTS["two"]]
    assert len(lost) >= 2
    assert all(records(log, topic) > count for topic, count in begun.items())
    check_places(bucket, tmp_path)


class Driver:
    """The driver of a job in client mode."""

    def __init__(self, cluster: Cluster, home: Path, *arguments: str, **conf: str) -> None:
        self._cluster, self._home, self._port = cluster, home, free_port()
        ui = {"spark.ui.enabled": "true", "spark.ui.port": f"{self._port}"}
        self.process = cluster.submit(home, "flights_by_day.py", *arguments, **conf, **ui)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, while the job runs."""
        assert wait_until(condition, self.process), (self._home / "output").read_text()[-3000:]
        assert self.process.poll() is None, "the job is over: nothing can be killed in its middle"

    def kill_in_a_task(self, worker: str) -> None:
        """Stop a worker, with its executor, wait until it has a task, and kill it: the task has begun and won't end."""
        self._cluster.stop(worker)
        self.wait(lambda: self._tasks(HOSTS[worker]) > 0)
        self._cluster.kill(worker)

    def _tasks(self, host: str) -> int:
        """Return how many tasks run on a host, as Spark sees it."""
        (job,) = self._ask("applications")
        executors = self._ask(f"applications/{job['id']}/executors")
        return sum(each["activeTasks"] for each in executors if each["hostPort"].startswith(f"{host}:"))

    def _ask(self, what: str) -> Any:
        time.sleep(0.1)
        with urllib.request.urlopen(f"http://{HOSTS['one']}:{self._port}/api/v1/{what}", timeout=60) as answer:
            return json.load(answer)


def records(log: CommitLog, topic: str) -> int:
    """Return how many records readers see."""
    time.sleep(0.1)  # a look is several requests, and a process that waits looks again and again
    return sum(partition.high_watermark for partition in log.topic(topic).describe().partitions)


def check_flights(log: CommitLog) -> None:
    """Every flight once, at dense offsets."""
    found = read_topic(log.root.topic(FLIGHTS))
    for partition in range(4):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(len(offsets)))
    values = (json.loads(record.value or b"{}") for record in found)
    names = ("carrier", "flight", "origin", "dest")
    flown = Counter((*(value[name] for name in names), value.get("tailnum")) for value in values)
    assert flown == Counter(zip(*(YEAR[name].to_pylist() for name in (*names, "tailnum")), strict=True))
    assert Counter(record.timestamp for record in found) == Counter(
        pc.cast(YEAR["scheduled_departure"], pa.int64()).to_pylist()
    )


def check_counts(log: CommitLog) -> None:
    """A record for each carrier and day that no more flights may come of, once, with all of the day's flights."""
    days = pc.strftime(YEAR["scheduled_departure"], format="%Y-%m-%d")
    flown = Counter(zip(YEAR["carrier"].to_pylist(), days.to_pylist(), strict=True))
    over = (pc.max(YEAR["scheduled_departure"]).as_py() - LATENESS - timedelta(days=1)).strftime("%Y-%m-%d")
    wanted = {(carrier, day): count for (carrier, day), count in flown.items() if day <= over}
    values = [json.loads(record.value or b"{}") for record in read_topic(log.root.topic(BY_DAY))]
    assert len(values) == len(wanted)
    assert {(value["carrier"], value["day"]): value["flights"] for value in values} == wanted


def check_places(bucket: Bucket, home: Path) -> None:
    """Checkpoints and state are in the bucket, and nothing of them, or of the log, on the hosts."""
    keys = [file.key for file in files(bucket).objects.filter(Prefix="checkpoints/")]
    for query in (FLIGHTS, BY_DAY):
        assert f"checkpoints/{query}/commits/1" in keys
    assert any(key.startswith(f"checkpoints/{BY_DAY}/state/0/1/") for key in keys)
    shared = ("offsets", "commits", "state", "journal", "staged")
    assert not [path for path in home.rglob("*") if path.name in shared]
