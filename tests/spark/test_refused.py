"""What can't heal by itself ends a read, a write and a query within seconds; all other entry points: tests/refused."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.root.root import Root
from tests.support.refusals import refuse

#: What nothing may take longer than, s, beside three times what it takes Spark where all is well: others are at work here.
LIMIT = 5.0
#: What the system pretends below a root of this name: (error, whether it refuses reads, too).
PRETENDED = {
    "may-not-read": (errno.EACCES, True),
    "may-not-write": (errno.EACCES, False),
    "read-only-mount": (errno.EROFS, False),
}


class RefusedSource(DefaultSource):
    """`commitlog` in processes that the system refuses what the root's name says: these run as who runs Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog-refused"

    def open_log(self, path: str, storage: Mapping[str, str]) -> Root:
        """Return the log of a process that is refused it."""
        code, reads = PRETENDED.get(Path(path).name, (0, False))
        if code and path not in _refused:
            refuse(path, code, reads=reads)
            _refused.add(path)
        return Root(path, storage)


_refused = set[str]()
Act = Callable[[SparkSession, str, str, Path], object]


def batch_read(spark: SparkSession, root: str, topic: str, _: Path) -> object:
    return spark.read.format("commitlog-refused").option("subscribe", topic).load(root).count()


def batch_write(spark: SparkSession, root: str, topic: str, _: Path) -> object:
    rows = spark.sql("SELECT 'v' AS value")
    return rows.write.format("commitlog-refused").mode("append").option("topic", topic).save(root)


def stream_read(spark: SparkSession, root: str, topic: str, path: Path) -> object:
    frame = spark.readStream.format("commitlog-refused").option("subscribe", topic).load(root)
    to = frame.writeStream.format("noop").option("checkpointLocation", str(path / "read")).trigger(availableNow=True)
    return to.start().awaitTermination()


def stream_write(spark: SparkSession, root: str, topic: str, path: Path) -> object:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().selectExpr("'v' AS value")
    to = frame.writeStream.format("commitlog-refused").option("topic", topic).option("path", root)
    return to.option("checkpointLocation", str(path / "write")).trigger(availableNow=True).start().awaitTermination()


ACTS: dict[str, tuple[Act, str]] = {
    "batch read": (batch_read, "reads"),
    "stream read": (stream_read, "reads"),
    "batch write": (batch_write, "writes"),
    "stream write": (stream_write, "writes"),
}
DENIED = r"cannot (read|list) \S+ under {root}\S*: Permission denied; make it readable for this user"
NO_ROOT = "there is no commit log at {root}: check the path, and that its disk is mounted, or make it with"
#: (the root's name, the topic, what is told); what "reads" is told of what nobody may write is nothing.
FAULTS = {
    "may not read": ("may-not-read", "orders", DENIED),
    "may not write": ("may-not-write", "orders", "Permission denied; make it writable"),
    "read-only mount": ("read-only-mount", "orders", "Read-only file system; mount it writable"),
    "below a file": ("root/commitlog.json/root", "orders", NO_ROOT),
    "no root": ("nothing", "orders", NO_ROOT),
    "no topic": ("root", "ordres", r"unknown topic 'ordres' in {root} \(did you mean 'orders'\?\): create it with"),
    "no such scheme": ("hdfs://namenode/root", "orders", "hdfs:// is not supported by this version"),
}


@pytest.fixture(scope="module")
def well(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """How long each act takes where all is well, s, in Python processes that have begun."""
    spark.dataSource.register(RefusedSource)
    path = tmp_path_factory.mktemp("well")
    CommitLog(str(path / "root")).create_topic("orders")
    batch_read(spark, str(path / "root"), "orders", path)
    acts = {name: partial(act, spark, str(path / "root"), "orders", path) for name, (act, _) in ACTS.items()}
    return {name: timed(act) for name, act in acts.items()}


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ACTS)
def test_a_job_ends(spark: SparkSession, tmp_path: Path, well: dict[str, float], name: str, fault: str) -> None:
    act, does = ACTS[name]
    place, topic, told = FAULTS[fault]
    for each in ("root", *PRETENDED):
        CommitLog(str(tmp_path / each)).create_topic("orders")
    root = place if "://" in place else str(tmp_path / place)
    began = time.monotonic()
    if does == "reads" and fault in ("may not write", "read-only mount"):
        act(spark, root, topic, tmp_path)
        return
    with pytest.raises(PySparkException) as raised:
        act(spark, root, topic, tmp_path)
    assert time.monotonic() - began < LIMIT + 3 * well[name]
    assert re.search(told.replace("{root}", re.escape(root)), str(raised.value)), str(raised.value)
