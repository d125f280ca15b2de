"""What it costs to wake a waiting consumer, by the system's events and by looking, side by side.

    python benchmarks/waking.py [--commits 300] [--idle 10] [--topics 100] [--root DIR]

Two processes tail one topic into which a third puts a record now and then: one is notified by the system, the other is
not, as on a shared mount. It prints the times from before the commit until the record is in hand, and how much of a
core each takes; then what it takes to wait for topics where nothing happens.
"""

from __future__ import annotations

import argparse
import random
import shutil
import struct
import sys
import time
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.storage.events import Events

TOPIC = "t"


def tail(root: str, *, notified: bool, commits: int, ready: Barrier, results: Queue[object]) -> None:
    """Take records until all came; tell how late each was in ms, and the part of a core that it took."""
    by(notified=notified)
    consumer = Consumer(root, auto_offset_reset="earliest")
    consumer.subscribe([TOPIC])
    consumer.poll()
    ready.wait()
    began, used, late = time.monotonic(), time.process_time(), list[float]()
    while len(late) < commits:
        for record in consumer.poll(1.0):
            late.append((time.time_ns() - struct.unpack("<q", record.value or b"")[0]) / 1e6)
    results.put((late, (time.process_time() - used) / (time.monotonic() - began)))


def by(*, notified: bool) -> None:
    """Have this process wait for events, or look as where there are none."""
    if not notified:
        Events.open = lambda ignored: None  # type: ignore[method-assign,assignment]


def measure(root: str, commits: int) -> None:
    """Print how late records come, both ways at once."""
    context = get_context("spawn")
    ready, queues = context.Barrier(3), {notified: context.Queue() for notified in (True, False)}
    shared = {"commits": commits, "ready": ready}
    readers = [
        context.Process(target=tail, args=(root,), kwargs={"notified": notified, "results": queue, **shared})
        for notified, queue in queues.items()
    ]
    for reader in readers:
        reader.start()
    ready.wait()
    with Producer(root, linger_ms=0) as producer:
        for _ in range(commits):
            time.sleep(random.uniform(0.02, 0.2))
            producer.send(TOPIC, struct.pack("<q", time.time_ns())).result()
    for notified, queue in queues.items():
        late, cores = queue.get()
        p50, p99 = np.percentile(late, [50, 99])
        print(f"{_name(notified)} record in hand after send: p50 {p50:.1f} ms, p99 {p99:.1f} ms; {cores:.1%} of a core")
    for reader in readers:
        reader.join()


def idle(root: str, topics: list[str], seconds: float) -> None:
    """Print what it takes to wait for topics in which nothing happens."""
    consumer = Consumer(root)
    consumer.subscribe(topics)
    consumer.poll()
    opens = Events.open
    for notified in (True, False):
        time.sleep(1.5)  # the thread that waits ends, and begins again
        by(notified=notified)
        used = time.process_time()
        consumer.poll(seconds)
        print(f"{_name(notified)} {len(topics)} idle topics: {(time.process_time() - used) / seconds:.2%} of a core")
    Events.open = opens  # type: ignore[method-assign]


def _name(notified: bool) -> str:
    return "notified by the system:" if notified else "looking:               "


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "waking")
    args = parser.parse_args()
    shutil.rmtree(args.root, ignore_errors=True)
    log = CommitLog(args.root)
    log.create_topic(TOPIC)
    names = [f"idle-{number}" for number in range(args.topics)]
    for name in names:
        log.create_topic(name)
    measure(str(args.root), args.commits)
    idle(str(args.root), names[:1], args.idle)
    idle(str(args.root), names, args.idle)
    shutil.rmtree(args.root)


if __name__ == "__main__":
    main()
