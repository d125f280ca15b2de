"""Producers in processes of their own: killed, forked, ended without close, and many on one topic."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Producer
from tests.crash.processes import start
from tests.support.records import read_partition, read_topic
from tests.support.syscalls import killed_before
from tests.support.verify import verify
from tests.support.world import many

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
_LINES = 3000


def log_in(tmp_path: Path, partitions: int = 1) -> CommitLog:
    """Return a root with a topic that settles often."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t", partitions, {"settle.entries": 8, "retention.ms": -1})
    return log


# --- SIGKILL ----------------------------------------------------------------------------------------------


def follow(tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start the example that copies a file."""
    command = [sys.executable, str(REPOSITORY / "examples/follow_file.py"), "--file", str(tmp_path / "lines"), "--root"]
    command += [str(tmp_path / "root"), "--topic", "t", "--producer-id", "lines"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_file_is_copied_exactly_once_however_often_its_copier_is_killed(tmp_path: Path) -> None:
    """I4, I5: SIGKILL, each time when a little more has landed; the last run ends by itself."""
    log = log_in(tmp_path, 1)
    lines = [b"line %06d " % n + b"x" * (n % 97) for n in range(_LINES)]
    file = tmp_path / "lines"
    for kill in range(4):
        file.write_bytes(b"".join(line + b"\n" for line in lines[: (kill + 1) * _LINES // 5]) + b"half a l")
        before = log.topic("t").describe().partitions[0].high_watermark
        with follow(tmp_path) as copier:
            while copier.poll() is None and log.topic("t").describe().partitions[0].high_watermark == before:
                time.sleep(0.001)
            copier.send_signal(signal.SIGKILL)
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    with follow(tmp_path) as copier:
        assert copier.wait(60) == 0, copier.stderr and copier.stderr.read()
    assert [record.value for record in read_topic(log.root.topic("t"))] == lines
    log.topic("t").maintain()
    assert verify(log.root.topic("t")) == _LINES


def send_and_die(root: Path, count: int, number: int) -> None:
    """Send what has not landed yet, one commit each, and be killed before the `number`-th changing system call."""
    with killed_before(number), Producer(str(root), producer_id="p", linger_ms=0) as producer:
        for sequence in range(producer.last_sequence("t") + 1, count):
            producer.send("t", b"v%06d" % sequence, sequence=sequence).result()


def test_killed_before_every_system_call(tmp_path: Path) -> None:
    """I4, I5: every step of opening the id, committing and settling, one after the other."""
    log = log_in(tmp_path)
    for number in range(1, 40):
        process = start(send_and_die, tmp_path / "root", 10**6, number)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    end = len(read_topic(log.root.topic("t")))
    ended(start(send_and_die, tmp_path / "root", end + 2, 0))
    assert [record.value for record in read_topic(log.root.topic("t"))] == many(end + 2)
    log.topic("t").maintain()
    assert verify(log.root.topic("t")) == end + 2


def ended(process: BaseProcess) -> None:
    """Wait until a process has ended well."""
    process.join(120)
    assert process.exitcode == 0


# --- many -------------------------------------------------------------------------------------------------


def send_many(root: Path, name: str, count: int) -> None:
    """Send records, several under way."""
    with Producer(str(root), linger_ms=0) as producer:
        futures = [
            producer.send("t", b"%s-%06d" % (name.encode(), number), partition=number % 2) for number in range(count)
        ]
        for number in range(0, count, 7):
            producer.send("t", b"%s-%06d" % (name.encode(), count + number)).result()
        offsets = [future.result().offset for future in futures if future.result().partition == 0]
        assert offsets == sorted(offsets)


def test_many_processes_on_one_topic(tmp_path: Path) -> None:
    """I2, I3, I7: offsets are dense, every record is there once, each producer's in its order."""
    log = log_in(tmp_path, 2)
    names = [f"p{number}" for number in range(6)]
    running = [start(send_many, tmp_path / "root", name, 50) for name in names]
    for process in running:
        ended(process)
    found = [read_partition(log.root.topic("t"), partition) for partition in (0, 1)]
    for records in found:
        assert [record.offset for record in records] == list(range(len(records)))
        for name in names:
            own = [r.value for r in records if r.value and r.value.startswith(name.encode()) and int(r.value[-6:]) < 50]
            assert own == sorted(own)
    values = [record.value for records in found for record in records]
    assert len(values) == len(set(values)) == 6 * (50 + 8)


# --- fork and exit ----------------------------------------------------------------------------------------


def run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has a root with topic `t`."""
    log_in(tmp_path)
    code = f"root = {str(tmp_path / 'root')!r}\nfrom pyspark_commitlog import Producer\n{code}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def values(tmp_path: Path) -> list[bytes | None]:
    """Return what landed."""
    return [record.value for record in read_topic(CommitLog(str(tmp_path / "root")).root.topic("t"))]


@pytest.mark.parametrize("first", ["producer.send('t', 'parent')", "pass"])
def test_a_forked_child_is_refused_and_can_make_its_own(tmp_path: Path, first: str) -> None:
    """Both would count sequences under one id, and the child has no thread."""
    code = f"""
import os, sys
producer = Producer(root, linger_ms=10_000)
{first}
child = os.fork()
if child == 0:
    for act in (lambda: producer.send('t', 'lost'), producer.flush):
        try:
            act()
        except Exception as error:
            print(type(error).__name__, error)
    producer.close()
    with Producer(root) as own:
        own.send('t', 'child')
    sys.exit()
os.waitpid(child, 0)
producer.send('t', 'parent')
"""
    done = run(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    told = [line for line in done.stdout.splitlines() if "was forked from it: make a Producer here" in line]
    assert len(told) == 2
    assert values(tmp_path) == [b"child", *[b"parent"] * (1 if first == "pass" else 2)]


_WORKERS = {
    "process": "p = fork.Process(target=send); p.start(); p.join()",
    "failing process": "p = fork.Process(target=send_and_fail); p.start(); p.join()",
    "second producer": "p = fork.Process(target=send_and_send); p.start(); p.join()",
    "pool": "pool = fork.Pool(1); pool.apply(send); pool.close(); pool.join()",
    "pool that renews its workers": "with fork.Pool(1, maxtasksperchild=1) as pool: pool.apply(send); pool.apply(int)",
    "executor": "with ProcessPoolExecutor(1, fork) as pool: pool.submit(send).result()",
    "child of a child": "p = fork.Process(target=fork_and_send); p.start(); p.join()",
    "thread that goes on": "p = fork.Process(target=send_late); p.start(); p.join()",
    "os.fork": "fork_and_send()",
}


@pytest.mark.parametrize("worker", _WORKERS)
def test_a_forked_worker_sends_what_it_was_given_though_it_closes_nothing(tmp_path: Path, worker: str) -> None:
    """`multiprocessing` ends its children without `atexit`; a child of `os.fork` that calls `sys.exit` has it."""
    code = f"""
import multiprocessing, os, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
fork = multiprocessing.get_context("fork")
of_parent = Producer(root, linger_ms=60_000)
of_parent.send('t', 'parent')

def send():
    global producer
    producer = Producer(root, linger_ms=60_000)
    for n in range(1000): producer.send('t', str(n))

def send_and_fail():
    send()
    os.close(2)
    raise RuntimeError

def send_and_send():
    with Producer(root) as first: first.send('t', '0')
    producer = Producer(root, linger_ms=60_000)
    for n in range(1, 1000): producer.send('t', str(n))

def fork_and_send():
    child = os.fork()
    if child == 0:
        send()
        sys.exit()
    os.waitpid(child, 0)

def send_late():
    producer = Producer(root)
    def later():
        while "_shutdown" not in functions(threading.main_thread().ident): time.sleep(0.001)
        for n in range(1000): future = producer.send('t', str(n))
        future.result()
    threading.Thread(target=later).start()

def functions(thread):
    frame = sys._current_frames()[thread]
    while frame:
        yield frame.f_code.co_name
        frame = frame.f_back

{_WORKERS[worker]}
"""
    done = run(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert values(tmp_path) == [*(str(n).encode() for n in range(1000)), b"parent"]


def send_and_leave(root: Path) -> None:
    """Send records and end without closing the producer."""
    producer = Producer(str(root), linger_ms=60_000)
    for value in many(100):
        producer.send("t", value)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_worker_that_is_not_forked_sends_what_it_was_given_too(tmp_path: Path, method: str) -> None:
    log_in(tmp_path)
    process = multiprocessing.get_context(method).Process(target=send_and_leave, args=(tmp_path / "root",))
    process.start()
    ended(process)
    assert values(tmp_path) == many(100)


def test_the_end_of_a_worker_does_not_wait_for_ever_and_reports_what_was_lost(tmp_path: Path) -> None:
    code = """
import logging, multiprocessing, threading
logging.basicConfig()
from pyspark_commitlog.storage.local.local import LocalStorage
def send():
    reached = threading.Event()
    def stuck(*_):
        reached.set()
        threading.Event().wait()
    producer = Producer(root, request_timeout_ms=100, linger_ms=0)
    producer.send('t', 'landed').result()
    LocalStorage.put_if_absent = stuck
    producer.send('t', 'stuck')
    reached.wait()
    for n in range(5): producer.send('t', 'lost')
p = multiprocessing.get_context("fork").Process(target=send)
p.start(); p.join(); exit(p.exitcode)
"""
    done = run(tmp_path, code)
    assert done.returncode == 0
    assert "topic 't': the producer was closed before sending 5 records; under way: 1 record" in done.stderr
    assert values(tmp_path) == [b"landed"]


def test_the_end_of_the_interpreter_sends_what_was_sent(tmp_path: Path) -> None:
    done = run(tmp_path, "p = Producer(root, linger_ms=60_000)\nfor n in range(100): p.send('t', str(n))")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(values(tmp_path)) == 100


def test_the_end_of_the_interpreter_does_not_wait_for_ever_and_tells_what_was_lost(tmp_path: Path) -> None:
    code = """
import logging, threading
logging.basicConfig()
from pyspark_commitlog.storage.local.local import LocalStorage
reached = threading.Event()
def stuck(*_):
    reached.set()
    threading.Event().wait()
producer = Producer(root, request_timeout_ms=100, linger_ms=0)
producer.send('t', 'landed').result()
LocalStorage.put_if_absent = stuck
producer.send('t', 'stuck')
reached.wait()
for n in range(5): producer.send('t', 'lost')
"""
    done = run(tmp_path, code)
    assert done.returncode == 0
    told = "WARNING:pyspark_commitlog.producer:topic 't': the producer was closed before sending 5 records; under way: 1 record"
    assert told in done.stderr
    assert values(tmp_path) == [b"landed"]
