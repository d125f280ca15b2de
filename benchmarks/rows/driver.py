"""What a driver does beside the records: polls, opens, restarts and look-ups, in short and in long histories."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import find as lookups
from bench import FLOOR_SOURCE, TOPIC, Bench
from compare import MILLISECONDS, Contender, Row, just
from history import commits
from pyspark.sql import DataFrame

from pyspark_commitlog import CommitLog
from pyspark_commitlog.spark.source import DefaultSource

LONG = 10_000
CALLS = 200


def poll(bench: Bench) -> None:
    """``latestOffset`` of an idle topic, a new handle on it: after 10,000 commits, one a second, next to 1."""
    roots = [bench.directory(keep=True) for _ in range(2)]
    for root, count in zip(roots, (1, LONG), strict=True):
        commits(Path(root), count)
    for work, act in (("poll of an idle topic", _poller), ("open of a topic", _opener)):
        short, long = (_each(act(root)) for root in roots)
        bench.table.add(Row(f"{work}, {LONG:,} commits", MILLISECONDS, long, "the same, 1 commit", short))


def find(bench: Bench) -> None:
    """A record by offset and by timestamp, in 1,000 segments next to 1; ``find.py`` has more."""
    for name, act in (("offset", lookups.by_offset), ("timestamp", lookups.by_time)):
        taken = []
        for count in (1, 1000):
            root = lookups.topic_of(Path(bench.directory()), count, 1100, segment_bytes=1024, batch_size=1024)
            taken.append(lookups.microseconds(root, count, act, warm=True) / 1000)
        bench.table.add(Row(f"find by {name}, 1,000 segments", MILLISECONDS, taken[1], "the same, 1 segment", taken[0]))
    bench.clean()


def restart(bench: Bench) -> None:
    """A query that starts from its checkpoint, finds nothing new, and ends."""
    options = {**bench.floor_options(bench.settled), "triggers": "1"}
    floor = bench.spark.readStream.format("floor_source").options(**options).load()
    peers = {FLOOR_SOURCE: _restarted(bench, lambda: floor), "Parquet file stream": _restarted(bench, bench.files)}
    if (kafka := bench.kafka) is not None:
        peers["Kafka source"] = _restarted(bench, lambda: kafka.stream(bench.kafka_topic, {}))
    ours = _restarted(bench, lambda: bench.stream(bench.settled))
    bench.table.times("restart of a query, nothing new", ours, peers)


def _restarted(bench: Bench, source: Callable[[], DataFrame]) -> Contender:
    checkpoint = bench.directory(keep=True)

    def run() -> None:
        bench.drain(source().writeStream.format("noop"), checkpoint)

    run()
    return just(run)


def _poller(root: str) -> Callable[[], object]:
    source = DefaultSource({"path": root, "subscribe": TOPIC})
    reader = source.streamReader(source.schema())
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    return lambda: reader.latestOffset(start, reader.getDefaultReadLimit())


def _opener(root: str) -> Callable[[], object]:
    return lambda: CommitLog(root).root.topic(TOPIC).newest()


def _each(act: Callable[[], object]) -> float:
    """Return the median time of a call in milliseconds."""
    taken = []
    for _ in itertools.repeat(None, CALLS):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1000
