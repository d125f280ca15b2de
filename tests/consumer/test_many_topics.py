"""What a process takes at most, whatever the number of topics: threads, open files, caches (docs/reference/limits.md)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

#: Runs in a process of its own, whose threads and files nobody else has; prints what it took at most.
_SCRIPT = """
import gc, os, sys, threading, time
from pyspark_commitlog import CommitLog, Consumer, Producer, TopicPartition
from pyspark_commitlog.storage.shared import caches
from pyspark_commitlog.storage.limits import limits

TOPICS = 300
root = sys.argv[1]
most = {"threads": 0, "files": 0, "cache": 0}
def look():
    ours = [each for each in threading.enumerate() if each.name.startswith("commitlog-")]
    most["threads"] = max(most["threads"], len(ours))
    most["files"] = max(most["files"], len(os.listdir("/proc/self/fd")))
    most["cache"] = max(most["cache"], caches.process_cache.value.size_bytes)
def watch():
    while not over.wait(0.02):
        look()
over = threading.Event()
threading.Thread(target=watch, daemon=True).start()

log = CommitLog(root)
names = [f"t{number}" for number in range(TOPICS)]
for number, name in enumerate(names):
    codec = ("none", "zstd")[number % 2]
    log.create_topic(name, 1, {"compression.type": codec, "settle.entries": 2, "inline.max.bytes": 0})
value = os.urandom(2**17)
with Producer(root, linger_ms=1) as producer:
    futures = [producer.send(name, value) for _ in range(3) for name in names]
    assert producer.flush(300) == 0
    assert all(future.result().has_offset() for future in futures)
    assert len([t for t in threading.enumerate() if t.name.startswith("commitlog-producer")]) <= 12

def read_all(consumer):
    found = 0
    until = time.monotonic() + 300
    while found < 3 * TOPICS and time.monotonic() < until:
        held = consumer.poll_arrow(1.0)
        found += held.num_rows
    assert found == 3 * TOPICS, found

alone = Consumer(root, *names, auto_offset_reset="earliest", fetch_max_bytes=2**22)
read_all(alone)
member = Consumer(root, *names, group_id="g", auto_offset_reset="earliest", fetch_max_bytes=2**22)
read_all(member)
member.commit()
def frames():
    kept = caches.process_cache.value._items.values()
    return sum(size for value, size in kept if type(value).__name__ == "Fetched")
full = frames()
for name in names[10:]:
    log.topic(name).delete()
alone.poll()
member.poll()
gc.collect()
deleted = frames()
alone.unsubscribe()
member.close()
alone.close()
gc.collect()
end = time.monotonic() + 30
while time.monotonic() < end and any(t.name.startswith("commitlog-") for t in threading.enumerate()):
    time.sleep(0.1)
left = [t.name for t in threading.enumerate() if t.name.startswith("commitlog-")]
over.set()
print(most["threads"], most["files"], most["cache"], full, deleted, caches.process_cache.value.size_bytes, len(left))
"""


def run(script: str, *args: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("cache_mib", [16, pytest.param(256, marks=pytest.mark.nightly)])
def test_300_topics_take_bounded_threads_files_and_caches(tmp_path: object, cache_mib: int) -> None:
    """Producer, consumers with and without a group, both codecs, and topics that are deleted."""
    out = run(_SCRIPT, str(tmp_path), COMMITLOG_MAX_CACHE_BYTES=str(cache_mib * 2**20))
    threads, files, cache, full, deleted, closed, left = map(int, out.split())
    assert threads <= 32
    assert files <= 256
    assert cache <= cache_mib * 2**20
    assert full > min(cache_mib, 64) * 2**18, "frames were cached at all"
    assert deleted < full / 2, "the frames of topics that were deleted went"
    assert closed < 2**20, "what nobody reads any more goes"
    assert left == 0, "idle threads end"


_FORK = """
import os, sys, threading
from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.storage.shared import caches
from pyspark_commitlog.storage import process
root = sys.argv[1]
log = CommitLog(root)
for name in ("a", "b"):
    log.create_topic(name, 1, {"settle.entries": 2})
producer = Producer(root)
consumer = Consumer(root, "a", "b", auto_offset_reset="earliest")
for number in range(20):
    producer.send("ab"[number % 2], b"%d" % number).result(60)
while sum(consumer.lag().values()) or not consumer.poll(1.0):
    consumer.poll(0)
assert caches.process_cache.value.size_bytes and process._threads.value.running
caches.process_cache.value._lock.acquire()   # as another thread may have it at that moment
child = os.fork()
if not child:
    assert not caches.process_cache.value.size_bytes and not process._threads.value.running
    assert threading.active_count() == 1
    with Producer(root) as mine:
        futures = [mine.send("a", b"child") for _ in range(5)]
        assert mine.flush(60) == 0
        assert [future.result(0).has_offset() for future in futures] == [True] * 5
    with Consumer(root, "a", group_id="g", auto_offset_reset="earliest") as ours:
        got = []
        while len(got) < 15:
            got += ours.poll(1.0)
    del consumer, producer   # their finalizers touch nothing of the parent's
    os._exit(0)
caches.process_cache.value._lock.release()
assert os.waitpid(child, 0)[1] == 0
producer.send("b", b"parent").result(60)
producer.close()
consumer.close()
"""


def test_a_forked_child_starts_clean(tmp_path: object) -> None:
    """Spark's daemon forks its workers: neither threads, locks nor caches of the parent are theirs."""
    run(_FORK, str(tmp_path))
