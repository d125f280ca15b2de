"""The Python client without Spark, next to confluent-kafka, which is librdkafka, on the broker of this run.

Both start from, and end in, what a Python program has in hand: ours Arrow, theirs one call and one object per record.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import client_peer
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import TOPIC, Bench
from client_peer import ClientPeer
from compare import MILLISECONDS, Contender, just

from pyspark_commitlog import Consumer, Producer

#: What ``client-append`` sends at most: the peer holds it as Python's bytes.
MOST_APPENDED = 1_000_000
BATCH_ROWS = 10_000
RECORDS_PER_SECOND = 1_000
SECONDS = 10
#: Records of the first seconds do not count.
WARM_UP_SECONDS = 2
VALUE_BYTES = 200
_PEER = "confluent-kafka"


def client_read(bench: Bench) -> None:
    """All records of a settled topic to Arrow, by one thread that is asked for them."""
    for label, columns in (("all columns", None), ("value only", ["value"])):
        with _peer(bench) as peer:
            peers = {}
            if peer is not None:
                peers[f"{_PEER}, tuned"] = _theirs_read(bench, peer, columns)
            ours = just(lambda columns=columns: _read(bench, columns))  # type: ignore[misc]
            bench.table.rates(f"client read to Arrow, {label}", bench.records, ours, peers)


def client_append(bench: Bench) -> None:
    """Arrow batches of 10,000 records, next to a call per record; until all are acknowledged."""
    count = min(bench.records, MOST_APPENDED)
    table = pq.read_table(bench.events, columns=["key", "value"]).slice(0, count).combine_chunks()
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    with _peer(bench) as peer:
        peers = {}
        if peer is not None:
            peers[f"{_PEER}, tuned"] = _theirs_append(bench, peer, count)
        ours = Contender(lambda root: _append(root, batches), bench.root)
        bench.table.rates("client append, Arrow batches of 10,000", count, ours, peers)


def client_latency(bench: Bench) -> None:
    """From ``send`` in one process to the return of ``poll`` in another, defaults on both sides."""
    found: dict[str, list[list[float]]] = {"": []}
    for _ in range(bench.table.runs):
        found[""].append(_tailed(bench.root()))
        if bench.kafka is not None and client_peer.is_there():
            found.setdefault(_PEER, []).append(_theirs_tailed(bench))
        bench.clean()
    for share in (50, 99):
        work = f"client send to poll, {RECORDS_PER_SECOND:,} records/s, p{share}"
        figures = {name: [float(np.percentile(run, share)) for run in runs] for name, runs in found.items()}
        bench.table.compare(work, MILLISECONDS, figures)


@contextmanager
def _peer(bench: Bench) -> Iterator[ClientPeer | None]:
    """Yield a process with confluent-kafka; None where it, or the broker, is not there."""
    if bench.kafka is None or not client_peer.is_there():
        yield None
        return
    with client_peer.running(bench.kafka.bootstrap) as peer:
        yield peer


def _check(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{what}: {found} instead of {expected}")


def _read(bench: Bench, columns: Sequence[str] | None) -> None:
    with Consumer(bench.settled, TOPIC, auto_offset_reset="earliest") as consumer:
        count = 0
        while rows := consumer.poll_arrow(columns=columns).num_rows:
            count += rows
    _check("records read", count, bench.records)


def _theirs_read(bench: Bench, peer: ClientPeer, columns: Sequence[str] | None) -> Contender:
    topic = bench.kafka_topic
    return just(lambda: _check("records read", peer.ask("read", topic=topic, columns=columns), bench.records))


def _append(root: str, batches: Sequence[pa.RecordBatch]) -> None:
    with Producer(root) as producer:
        for future in [producer.send_batch(TOPIC, batch) for batch in batches]:
            future.result()


def _theirs_append(bench: Bench, peer: ClientPeer, count: int) -> Contender:
    kafka = bench.kafka
    assert kafka is not None
    _check("records loaded", peer.ask("load", directory=str(bench.events), records=count), count)
    return Contender(lambda topic: _check("records that failed", peer.ask("append", topic=topic), 0), kafka.topic)


# --- latency -----------------------------------------------------------------------------------------------


def _feed(root: str, count: int) -> None:
    """Send records at the rate, each with the time it was sent at."""
    filler = b"x" * (VALUE_BYTES - 8)
    with Producer(root) as producer:
        began = time.perf_counter()
        for number in range(count):
            if (early := began + number / RECORDS_PER_SECOND - time.perf_counter()) > 0:
                time.sleep(early)
            producer.send(TOPIC, time.time_ns().to_bytes(8, "little") + filler, b"%d" % number)


def _tailed(root: str) -> list[float]:
    """Return how many ms after it was sent each record was in hand, but for the first seconds'."""
    count = RECORDS_PER_SECOND * (SECONDS + WARM_UP_SECONDS)
    feeder = multiprocessing.get_context("spawn").Process(target=_feed, args=(root, count))
    late: list[float] = []
    with Consumer(root, TOPIC, auto_offset_reset="earliest") as consumer:
        feeder.start()
        while len(late) < count:
            records = consumer.poll(1.0)
            now = time.time_ns()
            late += [(now - int.from_bytes((record.value or b"")[:8], "little")) / 1e6 for record in records]
            if not records and feeder.exitcode:
                raise RuntimeError(f"the process that sends ended with code {feeder.exitcode}")
    feeder.join()
    return late[RECORDS_PER_SECOND * WARM_UP_SECONDS :]


def _theirs_tailed(bench: Bench) -> list[float]:
    kafka = bench.kafka
    assert kafka is not None
    topic, count = kafka.topic(), RECORDS_PER_SECOND * (SECONDS + WARM_UP_SECONDS)
    with client_peer.running(kafka.bootstrap) as tail, client_peer.running(kafka.bootstrap) as feed:
        tail.tell("tail", topic=topic, count=count)
        feed.tell("feed", topic=topic, count=count, rate=RECORDS_PER_SECOND, bytes=VALUE_BYTES)
        late: list[float] = tail.hear()
        _check("records that failed", feed.hear(), 0)
    return late[RECORDS_PER_SECOND * WARM_UP_SECONDS :]
