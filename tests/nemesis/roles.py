"""What runs while disks fail: each role is a process, which may be killed or stopped at any moment and is started again.

A role takes a ``Play`` and goes on until the file ``stop`` is there. What fails is written down and tried again.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from pyspark_commitlog import Consumer, Producer
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.log.write.commit import commit
from pyspark_commitlog.log.write.writers import Transaction
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.clock import SystemClock
from pyspark_commitlog.storage.local import LocalStorage
from tests.nemesis.history import Acked, Committed, Failed, Read, Recorder, Shown
from tests.nemesis.operating import Requests
from tests.nemesis.stage import GROUP, TOPIC, Stage
from tests.support.records import batch_of, read_partition, stage
from tests.support.syscalls import CHANGING, telling

_SLOW_SECONDS = 0.05
#: Looks of a reader until it opens the topic again, and reads so many offsets at most of what it has read before.
_AGAIN_EVERY, _AGAIN_OFFSETS = 25, 2_000
_DELIVERY_MS = 60_000
_BATCH = 3


@dataclass(frozen=True)
class Play:
    """Where a role plays: the directory of all, its name, its root; ``seed`` and ``skew_ms`` differ from life to life.

    ``pause`` is by how much longer than in a short run writers and readers wait.
    """

    home: Path
    name: str
    root: str = "a"
    acks: str = "all"
    seed: int = 0
    skew_ms: int = 0
    pause: float = 1.0
    recorder: Recorder = field(init=False)
    stage: Stage = field(init=False)

    @property
    def urls(self) -> str:
        """All roots with data, as a client names them; this role's own is the first."""
        return self.stage.urls(self.root)

    def life(self) -> int:
        """Return how often its root came back with other contents than it had."""
        path = self.home / "lives" / self.root
        return path.stat().st_size if path.exists() else 0

    def begin(self) -> None:
        """Open the file of what happens, and find the roots; only in the process that plays."""
        object.__setattr__(self, "stage", Stage.of(self.home))
        object.__setattr__(self, "recorder", Recorder(self.home / "histories" / self.name))

    def ended(self) -> bool:
        """Return whether all is over."""
        return (self.home / "stop").exists()

    def failed(self, what: str, error: BaseException) -> None:
        """Write down what failed."""
        self.recorder.add(Failed(what, f"{type(error).__name__}: {error}"[:500]))


def play(role: str, asked: Play) -> None:
    """Play a role in this process, with its clock and on disks that may be slow, or hang."""
    asked.begin()
    logging.basicConfig(filename=asked.home / "said" / asked.name, format="%(asctime)s %(message)s")
    slow = telling(lambda name, path: _wait_where_slow(asked.home, path), CHANGING)
    with _skewed(asked.skew_ms), _hanging(asked.home), slow:
        ROLES[role](asked, random.Random(asked.seed))


@contextmanager
def _skewed(by_ms: int) -> Iterator[None]:
    now_ms = SystemClock.now_ms
    with mock.patch.object(SystemClock, "now_ms", lambda self: now_ms(self) + by_ms):
        yield


def _wait_where_slow(home: Path, path: str) -> None:
    name = path.removeprefix(f"{home}/").partition("/")[0]
    if len(name) == 1 and os.access(home / f"slow-{name}", os.F_OK):
        time.sleep(_SLOW_SECONDS)
    _wait_while_hanging(home, name)  # also in the middle of what was begun


@contextmanager
def _hanging(home: Path) -> Iterator[None]:
    """Have all that is asked of a local root wait while its disk hangs: what was asked is done when it goes on."""
    name = LocalStorage._name

    def named(self: LocalStorage, path: str) -> str:
        _wait_while_hanging(home, self.url.rpartition("/")[2])
        return name(self, path)

    with mock.patch.object(LocalStorage, "_name", named):
        yield


def _wait_while_hanging(home: Path, name: str) -> None:
    while len(name) == 1 and os.access(home / f"hang-{name}", os.F_OK):
        time.sleep(_SLOW_SECONDS)


# --- who writes ------------------------------------------------------------------------------------------


def produce(asked: Play, chance: random.Random) -> None:
    """Send numbered records, a few at a time; write down what is acknowledged. After a kill the numbers go on higher."""
    lives, number = _next_life(asked), 0
    writer = f"{asked.name}.{lives}"
    while not asked.ended():
        try:
            options = asked.stage.options
            with Producer(
                asked.urls, storage_options=options, acks=asked.acks, delivery_timeout_ms=_DELIVERY_MS
            ) as producer:
                while not asked.ended():
                    for _ in range(chance.randint(1, 5)):
                        number += 1
                        value = f"{writer}-{number}"
                        producer.send(TOPIC, value, partition=chance.randint(0, 1)).add_done_callback(
                            _written_down(asked, writer, value)
                        )
                    time.sleep(chance.uniform(0.02, 0.2) * asked.pause)
        except (CommitLogError, OSError) as error:
            asked.failed("produce", error)
            time.sleep(0.2)


def _next_life(asked: Play) -> int:
    """Return how often this role was played before."""
    path = asked.home / "histories" / f"{asked.name}.lives"
    with open(path, "ab") as file:
        file.write(b".")
    return path.stat().st_size


def _written_down(asked: Play, writer: str, value: str) -> Callable[[Future[object]], None]:
    def done(future: Future[object]) -> None:
        error = future.exception()
        if error is not None:
            asked.failed(f"send {value}", error)
            return
        found = future.result()
        asked.recorder.add(Acked(writer, value, asked.acks, found.partition, found.offset))  # type: ignore[attr-defined]

    return done


def transact(asked: Play, chance: random.Random) -> None:
    """Write numbered batches as a query does: one that may have landed is written again under its number, whoever died."""
    path = asked.home / "histories" / f"{asked.name}.next"
    number = int(path.read_text() or 0) if path.exists() else 0
    while not asked.ended():
        values = [f"{asked.name}-{number * _BATCH + place}" for place in range(_BATCH)]
        try:
            topic = TopicLog(open_storage(asked.urls, asked.stage.options), TOPIC).placed(writing=True)
            staged = stage(topic, batch_of([value.encode() for value in values]), everywhere=chance.random() < 0.5)
            commit(topic, staged.topic_id, [staged], Transaction(f"txn:{asked.name}", number))
        except (CommitLogError, OSError) as error:
            asked.failed(f"commit {number}", error)
            time.sleep(0.2)
            continue
        asked.recorder.add(*(Acked(asked.name, value, "all") for value in values))
        number += 1
        written = path.with_suffix(".new")
        written.write_text(str(number))
        written.replace(path)
        time.sleep(chance.uniform(0.1, 0.4) * asked.pause)


# --- who reads -------------------------------------------------------------------------------------------


def read(asked: Play, chance: random.Random) -> None:
    """Read what one root shows, as it comes, and some of it again from time to time; the topic is opened again then."""
    topic: TopicLog | None = None
    ends, looks = dict[int, int](), 0
    while not asked.ended():
        time.sleep(chance.uniform(0.05, 0.3) * asked.pause)
        try:
            again = topic is None or looks % _AGAIN_EVERY == 0
            if again:
                topic = asked.stage.topic(asked.root)
            life = asked.life()
            stored, state = topic.newest()
            if asked.life() == life:
                asked.recorder.add(Shown(asked.root, stored.sequence, state.log_end, life))
            for partition, end in enumerate(state.log_end):
                if again and (start := chance.randrange(end) if end else 0) < end:
                    until = min(end, start + _AGAIN_OFFSETS)
                    asked.recorder.add(read_at(asked.root, topic, partition, start, until))
                if ends.get(partition, 0) < end:
                    asked.recorder.add(read_at(asked.root, topic, partition, ends.get(partition, 0), end))
                    ends[partition] = end
            looks += 1
        except (CommitLogError, OSError) as error:
            asked.failed(f"read at {asked.root}", error)


def read_at(root: str, topic: TopicLog, partition: int, start: int, end: int) -> Read:
    """Read a range of a partition at a root."""
    records = read_partition(topic, partition, start, end)
    return Read(root, partition, start, end, tuple((each.offset, (each.value or b"").decode()) for each in records))


def consume(asked: Play, chance: random.Random) -> None:
    """Be a member of a group: poll, write down what came, commit."""
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "session_timeout_ms": 10_000}
    while not asked.ended():
        try:
            with Consumer(
                asked.urls, TOPIC, group_id=GROUP, storage_options=asked.stage.options, **options
            ) as consumer:
                while not asked.ended():
                    _hand_out(asked, consumer)
                    time.sleep(chance.uniform(0.05, 0.3) * asked.pause)
        except (CommitLogError, OSError) as error:
            asked.failed("consume", error)
            time.sleep(0.2)


def _hand_out(asked: Play, consumer: Consumer) -> None:
    values = defaultdict[int, list[tuple[int, str]]](list)
    for record in consumer.poll(0.5):
        values[record.partition].append((record.offset, (record.value or b"").decode()))
    for partition, found in values.items():
        asked.recorder.add(Read(GROUP, partition, found[0][0], found[-1][0] + 1, tuple(found)))
    offsets = {each: consumer.position(each) for each in consumer.assignment() if each.partition in values}
    if offsets:
        consumer.commit(offsets)
        asked.recorder.add(*(Committed(GROUP, each.partition, offset) for each, offset in offsets.items()))


# --- who looks after it ----------------------------------------------------------------------------------


def keep(asked: Play, chance: random.Random) -> None:
    """Maintain and replicate at one root, and elect another leader now and then."""
    while not asked.ended():
        time.sleep(chance.uniform(0.3, 1.5))
        what = chance.choice(("maintain", "maintain", "replicate", "replicate", "replicate", "elect"))
        try:
            log, all_of_it = asked.stage.log(asked.root), what != "elect" and chance.random() < 0.3
            getattr(log, what)(*(() if all_of_it else (TOPIC,)))  # all of it: the group, too
        except (CommitLogError, OSError, ExceptionGroup) as error:  # a group where several fail
            asked.failed(f"{what} at {asked.root}", error)


def operate(asked: Play, chance: random.Random) -> None:
    """Do what an operator is asked to: ``operating`` has what that is."""
    requests = Requests(asked.stage)
    while not asked.ended():
        time.sleep(chance.uniform(0.1, 0.5))
        for request in requests.waiting():
            try:
                requests.work(request)
            except (CommitLogError, OSError) as error:
                asked.failed(request, error)


def query(asked: Play, chance: random.Random) -> None:
    """Become an application of Spark that writes by a streaming query; all of its processes are of one session."""
    from tests.nemesis import spark_writer

    os.setsid()
    with open(asked.home / "said" / asked.name, "ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    command = spark_writer.command(asked.home, asked.name, asked.root)
    repository = str(Path(__file__).parents[2])
    os.chdir(repository)
    os.execve(command[0], command, {**os.environ, "PYSPARK_PYTHON": command[0], "PYTHONPATH": repository})


#: Roles by their names; threads of a role end with its process.
ROLES: dict[str, Callable[[Play, random.Random], None]] = {
    "produce": produce,
    "transact": transact,
    "read": read,
    "keep": keep,
    "operate": operate,
    "query": query,
    "consume": consume,
}
