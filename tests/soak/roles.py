"""What the processes of a soak do: `python -m tests.soak.roles <role> <root> <directory for what they found>`.

Each runs until SIGTERM, ends what it began, and writes `<role>.json`: `{"faults": […], …}`. Records are numbered per
partition, `b"<partition>:<number>:…"`, so whoever reads them can tell what is lost, doubled or out of place.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from pyspark_commitlog import CommitLog, Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from pyspark_commitlog.errors import CommitFailedError, CommitLogError
from pyspark_commitlog.model import Record
from tests.soak.judge import add

EVENTS, COPY, TABLE, CHURN = "events", "copy", "table", "churn"
PARTITIONS = 4
KEYS = 200
_ROUND_SECONDS = 0.2
_PER_ROUND = 20
_CHURN_NAMES, _CHURN_SECONDS, _CHURN_RECORDS = 8, 6.0, 40
_RESTORE_SECONDS, _RESTORE_BASE = 20.0, 50
_VISIT_SECONDS = 30.0
#: How long whoever reads has, at the end, to come to it.
_DRAIN_SECONDS = 180.0
_TRIGGER = "10 seconds"
#: What Spark says when a worker takes more than 10 seconds to start, on a machine that has other work.
_NO_WORKER = "Python worker failed to connect back"
Seen = dict[int, list[list[int]]]


def value_of(partition: int, number: int) -> bytes:
    """Return a record's value: some 500 bytes that do not compress well."""
    return b"%d:%d:" % (partition, number) + os.urandom(240).hex().encode()


def place_of(value: bytes | None) -> tuple[int, int]:
    """Return the partition and the number of a record, by its value."""
    partition, number, _ = (value or b"").split(b":", 2)
    return int(partition), int(number)


def note(seen: Seen, record: Record, faults: list[str]) -> None:
    """Count a record; one that came before, or whose partition is another, is a fault."""
    partition, number = place_of(record.value)
    fresh = add(seen.setdefault(partition, []), number)
    if (not fresh or partition != record.partition) and len(faults) < 10:
        why = "came twice" if partition == record.partition else f"has the value of partition {partition}"
        faults.append(f"{record.topic} partition {record.partition} offset {record.offset}: number {number} {why}")


def reached(seen: Seen, targets: dict[str, int]) -> bool:
    """Return whether everything was seen up to the targets, partition -> records."""
    return all(
        bool(ranges := seen.get(int(partition), [])) and ranges[-1][1] + 1 >= target
        for partition, target in targets.items()
        if target
    )


class Draining:
    """Whether to go on: until SIGTERM, and then until the targets are reached, or the time is up."""

    def __init__(self, stop: Event, out: Path) -> None:
        self._stop, self._out = stop, out
        self._until: float | None = None
        self._targets: dict[str, int] = {}

    def goes_on(self, *all_seen: Seen) -> bool:
        """Return whether to go on, given what was seen."""
        if not self._stop.is_set():
            return True
        if self._until is None:
            self._until = time.monotonic() + _DRAIN_SECONDS
            self._targets = json.loads((self._out / "targets.json").read_text())
        return time.monotonic() < self._until and not all(reached(seen, self._targets) for seen in all_seen)


# --- the roles --------------------------------------------------------------------------------------------


def producer(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Write `events`, of which the offsets must be the numbers, and `table`, whose keys come again and again."""
    faults: list[str] = []
    counts, rounds = [0] * PARTITIONS, 0
    last: dict[str, str] = {}
    waiting: deque[tuple[int, Future[Any]]] = deque()
    with Producer(root, linger_ms=100, producer_id="soak") as events, Producer(root, linger_ms=100) as keyed:
        while not stop.wait(_ROUND_SECONDS):
            rounds += 1
            for partition in range(PARTITIONS):
                for _ in range(_PER_ROUND // PARTITIONS):
                    number = counts[partition]
                    counts[partition] += 1
                    waiting.append((number, events.send(EVENTS, value_of(partition, number), partition=partition)))
            for _ in range(2):
                key, text = f"k{random.randrange(KEYS)}", f"{rounds}"
                keyed.send(TABLE, text * 20, key=key)
                last[key] = text * 20
            while waiting and waiting[0][1].done():
                number, future = waiting.popleft()
                if future.result().offset not in (number, -1) and len(faults) < 10:
                    faults.append(f"{EVENTS}: number {number} has offset {future.result().offset}")
        events.flush()
        keyed.flush()
        for _, future in waiting:
            future.result()
    return {"faults": faults, "counts": {str(p): count for p, count in enumerate(counts)}, "table": last}


def tail(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Read what is written, and what the stream copies, by two consumers without a group."""
    faults: list[str] = []
    draining = Draining(stop, out)
    seen: dict[str, Seen] = {EVENTS: {}, COPY: {}}
    begin = {"auto_offset_reset": "earliest"}
    with Consumer(root, EVENTS, **begin) as first, Consumer(root, COPY, **begin) as second:
        while draining.goes_on(*seen.values()):
            for consumer in (first, second):
                for record in consumer.poll(0.2):
                    note(seen[record.topic], record, faults)
                    if record.topic == EVENTS and record.offset != place_of(record.value)[1]:
                        faults.append(f"{EVENTS}: offset {record.offset} has number {place_of(record.value)[1]}")
    return {"faults": faults[:10], "seen": seen}


class Worker(ConsumerRebalanceListener):
    """A member of the group. What it was handed out counts once it is committed, and no sooner."""

    def __init__(self, root: str, faults: list[str]) -> None:
        self._faults, self._waiting = faults, list[Record]()
        self.seen: Seen = {}
        self._consumer = Consumer(
            root, group_id="soak", auto_offset_reset="earliest", enable_auto_commit=False,
            partition_assignment_strategy=("cooperative-sticky",),
        )  # fmt: skip
        self._consumer.subscribe([EVENTS], listener=self)

    def work(self) -> None:
        """Take what has come, and commit it."""
        self._waiting += self._consumer.poll(0.5)
        self._commit()

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Commit what was handed out of them; they are another's then."""
        self._commit()
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Forget what was not committed: another member is handed it."""
        self._waiting = [each for each in self._waiting if TopicPartition(each.topic, each.partition) not in partitions]

    def _commit(self) -> None:
        if not self._waiting:
            return
        with suppress(CommitFailedError):  # a rebalance came first: the next commit has what is still ours
            self._consumer.commit()
            for record in self._waiting:
                note(self.seen, record, self._faults)
            self._waiting.clear()

    def leave(self, together: Path) -> None:
        """Leave the group, and tell what was done."""
        self._consumer.close()
        _tell(together, self.seen)


def member(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Be a member of a group; what counts is what was committed."""
    faults: list[str] = []
    draining, worker, together = Draining(stop, out), Worker(root, faults), out / "group.jsonl"
    while True:
        worker.work()
        if stop.is_set():
            _tell(together, worker.seen)
            if not draining.goes_on(_of_all(together)):
                break
    worker.leave(together)
    return {"faults": faults}


def visitor(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Join the group, and leave it, again and again."""
    faults: list[str] = []
    visits = 0
    while not stop.is_set():
        worker, until = Worker(root, faults), time.monotonic() + _VISIT_SECONDS
        while not stop.is_set() and time.monotonic() < until:
            worker.work()
        worker.leave(out / "group.jsonl")
        visits += 1
        stop.wait(_VISIT_SECONDS)
    return {"faults": faults, "visits": visits}


def _tell(together: Path, seen: Seen) -> None:
    """Add what one member did to what all did."""
    with open(together, "a") as file:
        file.write(json.dumps(seen) + "\n")
    seen.clear()


def _of_all(together: Path) -> Seen:
    found: Seen = {}
    for line in together.read_text().splitlines() if together.exists() else ():
        for partition, ranges in json.loads(line).items():
            found.setdefault(int(partition), []).extend(ranges)
    return {partition: sorted(ranges) for partition, ranges in found.items()}


def churn(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Make topics, write and read them, delete them; by one producer, and one member that subscribes to a pattern."""
    faults: list[str] = []
    log, rounds = CommitLog(root), 0
    reading = Consumer(root, group_id="churners", auto_offset_reset="earliest", metadata_max_age_ms=500)
    with Producer(root, linger_ms=20) as sending, reading as consumer:
        consumer.subscribe(pattern=f"{CHURN}-.*")
        while not stop.is_set():
            began = time.monotonic()
            name, values = f"{CHURN}-{rounds % _CHURN_NAMES}", {f"{rounds}:{n}" for n in range(_CHURN_RECORDS)}
            log.create_topic(name, 2, {"file.delete.delay.ms": 5000})
            for each in [sending.send(name, value, key=value) for value in sorted(values)]:
                each.result()
            found: list[str] = []
            while len(found) < len(values) and time.monotonic() < began + _DRAIN_SECONDS:
                found += [(record.value or b"").decode() for record in consumer.poll(0.5)]
            if sorted(found) != sorted(values) and len(faults) < 10:
                faults.append(f"{name}, round {rounds}: sent {len(values)} records, {len(found)} came")
            log.topic(name).delete()
            rounds += 1
            stop.wait(max(0.0, _CHURN_SECONDS - (time.monotonic() - began)))
    return {"faults": faults, "rounds": rounds}


def restore(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Copy a root away and put the copy back under a consumer that lives on; a root of its own."""
    faults: list[str] = []
    home, copy = Path(f"{root}-restored"), Path(f"{root}-backup")
    CommitLog(str(home)).create_topic("kept", 1, {"settle.entries": 4, "file.delete.delay.ms": 1000})
    truth = _append(home, [], 0, _RESTORE_BASE)
    CommitLog(str(home)).topic("kept").maintain()
    shutil.copytree(home, copy)
    rounds, base = 0, list(truth)
    with Consumer(str(home), "kept", auto_offset_reset="earliest") as consumer:
        while not stop.wait(_RESTORE_SECONDS):
            rounds += 1
            truth = _append(home, truth, rounds, random.randrange(1, 40))
            _read_up(consumer, truth, rounds, faults)
            _put_back(copy, home)
            truth = _append(home, base, rounds + 10**6, random.randrange(1, 40))
            _read_up(consumer, truth, rounds, faults)
            with Consumer(str(home), "kept", auto_offset_reset="earliest") as fresh:
                _read_up(fresh, truth, rounds, faults)
            CommitLog(str(home)).topic("kept").maintain()
    return {"faults": faults, "rounds": rounds}


def _append(home: Path, before: list[bytes], number: int, count: int) -> list[bytes]:
    values = [b"%d:%d" % (number, n) for n in range(count)]
    with Producer(str(home), linger_ms=0) as sending:
        for value in values:
            sending.send("kept", value).result()
    return [*before, *values]


def _put_back(copy: Path, home: Path) -> None:
    fresh, old = home.with_name(f"{home.name}-next"), home.with_name(f"{home.name}-old")
    shutil.copytree(copy, fresh)
    home.rename(old)
    fresh.rename(home)
    shutil.rmtree(old)


def _read_up(consumer: Consumer, truth: list[bytes], rounds: int, faults: list[str]) -> None:
    """Read until the last record has come; each must be what the root holds now."""
    until, last, error = time.monotonic() + 60, -1, ""
    while last < len(truth) - 1 and time.monotonic() < until:
        try:
            records = consumer.poll(0.5)
        except CommitLogError as raised:  # while the root is being put back
            error = str(raised)
            time.sleep(0.1)
            continue
        for record in records:
            last = record.offset
            wrong = last >= len(truth) or truth[last] != record.value
            if wrong and len(faults) < 10:
                faults.append(f"restore {rounds}: offset {last} is {record.value!r}, which the root does not hold")
    if last < len(truth) - 1 and len(faults) < 10:
        faults.append(f"restore {rounds}: read up to {last} of {len(truth)} records. {error}")


def spark(root: str, out: Path, stop: Event) -> dict[str, Any]:
    """Copy `events` by a stream, exactly once."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "1g",
        # All of the heap from the start: what grows beyond is no garbage that waits to be collected.
        "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch -XX:MaxMetaspaceSize=256m",
        "spark.python.worker.reuse": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("soak")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    from pyspark_commitlog import DefaultSource

    session.dataSource.register(DefaultSource)
    reader = session.readStream.format("commitlog").option("subscribe", EVENTS).option("startingOffsets", "earliest")
    rows = reader.load(root).select("key", "value", "partition")
    writer = rows.writeStream.format("commitlog").option("topic", COPY)
    started = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(processingTime=_TRIGGER)
    query, restarts = started.start(root), 0
    (out / "spark.ready").touch()
    while not stop.wait(1.0):
        if query.isActive:
            continue
        if _NO_WORKER not in str(query.exception()):
            return {"faults": [f"the stream ended: {query.exception()}"]}
        query, restarts = started.start(root), restarts + 1
    query.processAllAvailable()
    progress = query.lastProgress
    batches = progress["batchId"] + 1 if progress else 0
    query.stop()
    session.stop()
    return {"faults": [], "batches": batches, "restarts": restarts}


ROLES = {each.__name__: each for each in (producer, tail, member, visitor, churn, restore, spark)}


def main() -> None:
    """Play a role."""
    role, root, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    name = sys.argv[4] if len(sys.argv) > 4 else role
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    found = ROLES[role](root, out, stop)
    (out / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
