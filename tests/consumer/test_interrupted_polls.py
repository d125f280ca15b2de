"""Ctrl-C in a notebook: what it interrupts loses no record, hands none out twice, and can be called again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyspark_commitlog.consumer.consumer import Consumer
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from tests.support.interrupts import interrupted, lines
from tests.support.records import append, batch_of, read_topic
from tests.support.world import World


@pytest.mark.parametrize("group", [None, "g"])
def test_a_poll_that_is_interrupted_hands_nothing_out(world: World, group: str | None) -> None:
    topic = world.create(2, name="i")
    for number in range(6):
        append(topic, batch_of([b"%d" % number, b"%d'" % number], partition=[0, 1]))
    for at in lines():
        name = None if group is None else f"{group}{at}"
        consumer = Consumer(
            SharedRoot.on(world.storage()),
            "i",
            group_id=name,
            auto_offset_reset="earliest",
            initial_rebalance_delay_ms=0,
        )
        got: list[bytes | None] = []

        def act(consumer: Consumer = consumer, got: list[bytes | None] = got) -> None:
            until = time.monotonic() + 20  # what was lost does not come
            while len(got) < 12 and time.monotonic() < until:
                got += [record.value for record in consumer.poll(0, max_records=5)]

        ended = interrupted(act, at, "consumer/")
        act()
        assert sorted(value or b"" for value in got) == sorted(r.value or b"" for r in read_topic(topic)), at
        consumer.close()
        if ended:
            return
    raise AssertionError("it never ended by itself")


def test_iteration_that_is_interrupted_loses_no_record(world: World) -> None:
    topic = world.create(1, name="i")
    for number in range(5):
        append(topic, batch_of([b"%d" % number, b"%d'" % number]))
    for at in lines():
        consumer = Consumer(SharedRoot.on(world.storage()), "i", auto_offset_reset="earliest")
        got: list[bytes | None] = []

        def act(consumer: Consumer = consumer, got: list[bytes | None] = got) -> None:
            while len(got) < 10:
                got.append(next(consumer).value)

        ended = interrupted(act, at, "consumer/")
        act()
        assert got == [record.value for record in read_topic(topic)], at
        if ended:
            return
    raise AssertionError("it never ended by itself")


_SIGNALS = """
import os, random, signal, sys, threading, time
from pyspark_commitlog import CommitLog, Consumer, Producer
root, count = sys.argv[1], 3000
CommitLog(root).create_topic("t", 2, {"settle.entries": 8})
consumer = Consumer(root, "t", auto_offset_reset="earliest")
producer = Producer(root, linger_ms=1)
futures, got, signals, over = [], [], 0, threading.Event()
main = threading.main_thread().ident
inside = False
def interrupted(*_):
    global inside
    if inside:  # not while until() itself runs, which catches nothing there
        inside = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)
def interrupt():
    chance = random.Random(5)
    while not over.wait(chance.uniform(0.001, 0.01)):
        signal.pthread_kill(main, signal.SIGINT)
sent = polled = 0
threading.Thread(target=interrupt, daemon=True).start()
def until(done, act):
    global signals, inside
    while not done():
        try:
            inside = True
            act()
            inside = False
        except KeyboardInterrupt:
            signals += 1
end = time.monotonic() + 120
def send():
    while len(futures) < count:
        futures.append(producer.send("t", b"%d" % len(futures)))
def flush():
    while producer.flush(5):
        pass
    flushed.append(1)
def poll():
    while True:
        found = consumer.poll(0, max_records=20)
        got.append(found)
        if not found:
            return
flushed = []
until(lambda: len(futures) >= count, send)
until(lambda: flushed, flush)
until(lambda: got and not got[-1] and sum(map(len, got)) >= len(futures) and signals > 30 or time.monotonic() > end, poll)
over.set()
producer.close()
places = [(r.partition, r.offset) for found in got for r in found]
told = {(f.result(60).partition, f.result(60).offset) for f in futures}
assert len(told) == count
assert len(set(places)) == len(places), "none came twice"
assert told <= set(places), "none was lost"
assert len(places) == sum(consumer.end_offsets(consumer.assignment()).values())
consumer.close()
print(signals)
"""


def test_signals_during_send_flush_and_poll(tmp_path: Path) -> None:
    """Real ones, in a process of its own, every few milliseconds."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALS, str(tmp_path / "root")],
        env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 20
