"""What three replicas cost: acks=all on three roots, next to Kafka with three brokers on this machine.

    python benchmarks/replicas.py [--records 600000] [--runs 3] [--sends 300] [--only sends] [--directory /tmp]

Kafka: replication factor 3, acks=all, min.insync.replicas=2, Spark's own connector with large batches and, for single
records, confluent-kafka; its brokers don't wait for the disk, unless `flush.messages=1`. Ours: three roots on this
disk, the metadata on a fourth, each write synced at each root. Single records are sent one by one, each when the one
before is acknowledged; none lingers: librdkafka's `flush` sends at once, our `linger_ms` is 0. Then 1,000 a
second, whatever is acknowledged: both clients by their defaults, by which records linger for 5 ms. What is timed
comes after 3,000 sends to each. The floor of one such send is bare puts of as many bytes: one at the metadata's root,
then one at each of the three, at once. `make bench-peers` fetches Kafka and its clients.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.kafka.broker import Broker, prepare_cluster, running_together
from tests.kafka.toolchain import java

sys.path.insert(0, str(Path(__file__).parent))
import client_peer
from data import prepare
from kafka_peer import _FLAGS, _PROPERTIES, PARTITIONS, TUNED_PRODUCER
from session import session

NODES = 3
_BYTES = 100
_RATE = 1000
#: Sends before those that are timed: brokers are several times faster once their code is compiled.
_WARM = 3000
_INTERNAL = f"offsets.topic.replication.factor={NODES}\nmin.insync.replicas=2\n"


@contextmanager
def cluster(home: Path) -> Iterator[Broker]:
    """Run three brokers; yield the first."""
    brokers = prepare_cluster(java(), home, NODES, _PROPERTIES + _INTERNAL, _FLAGS)
    with running_together(brokers):
        yield brokers[0]


def make_topic(broker: Broker, name: str, *config: str) -> None:
    """Create a topic of three replicas."""
    settings = [word for each in ("min.insync.replicas=2", *config) for word in ("--config", each)]
    shape = ["--partitions", str(PARTITIONS), "--replication-factor", str(NODES)]
    broker._tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap, "--create", "--topic",
                 name, *shape, *settings)  # fmt: skip


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def batch_writes(home: Path, broker: Broker, records: int, runs: int) -> None:
    """Print records per second of Spark's batch write, by turns."""
    spark = session(home / "said.txt")
    frame = spark.read.parquet(str(prepare(home, records, records // 4))).select("key", "value")
    rates: dict[str, list[float]] = {"kafka": [], "commitlog": []}
    for run in range(runs + 1):  # the first warms up
        make_topic(broker, f"batch{run}")
        kafka = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        kafka = kafka.option("topic", f"batch{run}").option("kafka.acks", "all").options(**TUNED_PRODUCER)
        rates["kafka"].append(records / timed(kafka.save))
        places = [str(home / f"run{run}" / name) for name in "abc"]
        log = CommitLog.create(places, [str(home / f"run{run}" / "metadata")])
        log.create_topic("t", PARTITIONS, {"min.insync.replicas": 2, "retention.ms": -1})
        ours = frame.write.format("commitlog").mode("append").option("path", places[0]).option("topic", "t")
        rates["commitlog"].append(records / timed(ours.save))
        shutil.rmtree(home / f"run{run}")
    spark.stop()
    for name, found in rates.items():
        print(f"batch write, {name}: {statistics.median(found[1:]) / 1000:,.0f} k records/s {_all(found[1:])}")
    ratios = [mine / theirs for mine, theirs in zip(rates["commitlog"][1:], rates["kafka"][1:], strict=True)]
    print(f"batch write, commitlog / kafka: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def _all(found: list[float]) -> str:
    return "(" + ", ".join(f"{rate / 1000:,.0f}" for rate in found) + ")"


def sends(home: Path, broker: Broker, count: int) -> None:
    """Print how long a record takes from send to its acknowledgement by all: one after the other, and at a rate."""
    alone, paced = dict[str, list[float]](), dict[str, list[float]]()
    with client_peer.running(broker.bootstrap) as client:
        for name, config in (("as-it-comes", ()), ("synced", ("flush.messages=1",))):
            make_topic(broker, name, *config)
            client.ask("one_by_one", topic=name, count=_WARM, bytes=_BYTES)
            alone[f"kafka {name}"] = client.ask("one_by_one", topic=name, count=count, bytes=_BYTES)
            paced[f"kafka {name}"] = client.ask("paced", topic=name, count=10 * count, rate=_RATE, bytes=_BYTES)
    places = [str(home / "sends" / name) for name in "abc"]
    log = CommitLog.create(places, [str(home / "sends" / "metadata")])
    log.create_topic("t", PARTITIONS, {"min.insync.replicas": 2})
    with Producer(places[0], linger_ms=0) as producer:

        def send() -> None:
            producer.send("t", b"x" * _BYTES).result()

        for _ in range(_WARM):
            send()
        alone["commitlog"] = [timed(send) * 1000 for _ in range(count)]
    alone["bare puts"] = bare_puts(home / "bare", _entry_bytes(places[0]), count)
    with Producer(places[0]) as producer:
        paced["commitlog"] = _paced(producer, 10 * count)
    _print("send one by one", alone)
    _print(f"send {_RATE:,} a second", paced)


def _entry_bytes(root: str) -> int:
    """Return how large the newest entry of the only topic is."""
    entries = sorted(Path(root).glob("**/journal/0*.json"))
    return max(path.stat().st_size for path in entries[-10:])


def bare_puts(home: Path, size: int, count: int) -> list[float]:
    """Return how many ms each of `count` takes: a put at one root, then at three others at once, as a send needs."""
    roots = []
    for name in ("metadata", *"abc"):
        (home / name / "journal").mkdir(parents=True)
        roots.append(LocalStorage(home / name))
    metadata, own, *others = roots
    with ThreadPoolExecutor(len(others)) as threads:

        def put(number: int) -> None:
            entry = f"journal/{number:020d}.json", b"x" * size
            metadata.put_if_absent(*entry)
            begun = [threads.submit(root.put_if_absent, *entry) for root in others]
            own.put_if_absent(*entry)
            for each in begun:
                each.result()

        for number in range(_WARM):
            put(number)
        return [timed(lambda number=number: put(number)) * 1000 for number in range(_WARM, _WARM + count)]


def _paced(producer: Producer, count: int) -> list[float]:
    """Return how many ms each of `count` records took; see `confluent_client.paced`."""
    took, began = list[float](), time.perf_counter()

    def acknowledged(sent: float) -> Callable[[object], None]:
        return lambda future: took.append((time.perf_counter() - sent) * 1000)

    for number in range(count):
        if (early := began + number / _RATE - time.perf_counter()) > 0:
            time.sleep(early)
        producer.send("t", b"x" * _BYTES).add_done_callback(acknowledged(time.perf_counter()))
    producer.flush()
    return took


def _print(what: str, found: dict[str, list[float]]) -> None:
    for name, took in found.items():
        print(f"{what}, {name}: p50 {_percentile(took, 50):.1f} ms, p99 {_percentile(took, 99):.1f} ms")
    for name in ("as-it-comes", "synced"):
        ratios = (_percentile(found["commitlog"], p) / _percentile(found[f"kafka {name}"], p) for p in (50, 99))
        print(f"{what}, commitlog / kafka {name}: p50 {next(ratios):.2f}, p99 {next(ratios):.2f}")
    if "bare puts" in found:
        synced = _percentile(found["bare puts"], 50) / _percentile(found["kafka synced"], 50)
        print(f"{what}, bare puts / kafka synced: p50 {synced:.2f}")


def _percentile(took: Sequence[float], percent: int) -> float:
    return sorted(took)[len(took) * percent // 100]


def main() -> None:
    """Measure."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--records", type=int, default=600_000)
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--sends", type=int, default=300)
    asked.add_argument("--only", choices=["batch", "sends"], default=None)
    asked.add_argument("--directory", default=None)
    given = asked.parse_args()
    home = Path(tempfile.mkdtemp(prefix="replicas-", dir=given.directory))
    try:
        with cluster(home / "kafka") as broker:
            if given.only != "sends":
                batch_writes(home, broker, given.records, given.runs)
            if given.only != "batch" and client_peer.is_there():
                sends(home, broker, given.sends)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
