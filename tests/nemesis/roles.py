"""What runs while disks fail: each role is a process, which may be killed or stopped at any moment and is started again.

A role takes a `Play` and goes on until the file `stop` is there. What fails is written down and tried again.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest import mock

from pyspark_commitlog import Consumer, Producer
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.clock import SystemClock
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.nemesis.cleaned_roles import change, delete_some, trail
from tests.nemesis.history import Acked, Committed, Read
from tests.nemesis.operating import Requests
from tests.nemesis.playing import Play, keep_sending, written_down
from tests.nemesis.reading import Reader
from tests.nemesis.stage import COMPACTED, GROUP, PARTITIONS, RETAINED, TOPIC
from tests.support.records import batch_of, stage
from tests.support.syscalls import CHANGING, telling

_SLOW_SECONDS = 0.05
_BATCH = 3
#: How often a keeper has some of the oldest records deleted.
_OFTEN_DELETED = 0.1


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
    writer, numbers = f"{asked.name}.{asked.next_life()}", count(1)

    def send(producer: Producer) -> None:
        value = f"{writer}-{next(numbers)}"
        sent = producer.send(asked.topic, value, partition=chance.randrange(PARTITIONS))
        sent.add_done_callback(written_down(asked, writer, value))

    keep_sending(asked, chance, "produce", send)


def transact(asked: Play, chance: random.Random) -> None:
    """Write numbered batches as a query does: one that may have landed is written again under its number, whoever died."""
    path = asked.note("next")
    number = int(path.read_text() or 0) if path.exists() else 0
    while not asked.ended():
        values = [f"{asked.name}-{number * _BATCH + place}" for place in range(_BATCH)]
        try:
            topic = TopicLog(open_storage(asked.urls, asked.stage.options), TOPIC).route(writing=True)
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
    """Read what one root shows of topics, as it comes, and some of it again from time to time."""
    readers = [Reader(asked, topic, chance) for topic in asked.topics]
    while not asked.ended():
        time.sleep(chance.uniform(0.05, 0.3) * asked.pause)
        for reader in readers:
            try:
                reader.look()
            except (CommitLogError, OSError) as error:
                asked.failed(f"read {reader.name} at {asked.root}", error)


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
    """Maintain and replicate at one root, and elect another leader now and then: of one topic, and of one of the others."""
    while not asked.ended():
        time.sleep(chance.uniform(0.3, 1.5))
        for topic in chance.sample((TOPIC, chance.choice((COMPACTED, RETAINED))), 2):
            what = chance.choice(("maintain", "maintain", "sync", "sync", "sync", "elect"))
            try:
                log, all_of_it = asked.stage.log(asked.root), chance.random() < 0.3  # the group, too
                if what == "elect":
                    log.replicas.elect(topic)
                elif what == "sync":
                    log.replicas.sync(None if all_of_it else topic)
                elif all_of_it:
                    log.maintain()
                else:
                    log.topic(topic).maintain()
                if topic == RETAINED and chance.random() < _OFTEN_DELETED:
                    asked.recorders[topic].add(*delete_some(asked.stage, log, asked.root, chance))
            except (CommitLogError, OSError, ExceptionGroup) as error:  # a group where several fail
                asked.failed(f"{what} {topic} at {asked.root}", error)


def operate(asked: Play, chance: random.Random) -> None:
    """Do what an operator is asked to: `operating` has what that is."""
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
    "change": change,
    "trail": trail,
}
