"""Threads that Python did not start, as an embedder's are: Python makes a state for each call, and takes it down after.

    python -m tests.support.foreign <root>

plays such an embedder: it writes a topic, and reads it in every way there is, all of it on such threads. It prints how
many records each way found. Memory that is used after it was freed ends it by a signal: run it in a process of its own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence

ROUNDS = 5
RECORDS = 300
_NATIVE = ctypes.CDLL(None)
_START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def run_on_foreign_threads(calls: Sequence[Callable[[], object]]) -> None:
    """Run each call on a thread of its own, all at once; raise what the first that failed raised."""
    failed: list[Exception] = []

    def started(call: Callable[[], object]) -> Callable[[object], None]:
        def run(_: object) -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                failed.append(error)

        return run

    kept = [_START(started(call)) for call in calls]
    threads = [ctypes.c_ulong() for _ in kept]
    for thread, start in zip(threads, kept, strict=True):
        assert _NATIVE.pthread_create(ctypes.byref(thread), None, start, None) == 0
    for thread in threads:
        assert _NATIVE.pthread_join(thread, None) == 0
    if failed:
        raise failed[0]


def main(path: str) -> None:
    """Write, read, and print what was found."""
    from pyspark_commitlog import CommitLog, Consumer, Producer, TopicPartition
    from pyspark_commitlog.model import OffsetRange
    from pyspark_commitlog.root.root import Root
    from pyspark_commitlog.topic.read.reader import read_range

    found: dict[str, list[int]] = {"records": [], "ranges": [], "polled": []}
    log = CommitLog(path)
    log.create_topic("t", partitions=1)
    topic = Root(path).topic("t")

    def write() -> None:
        with Producer(path) as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)

    def records() -> None:
        found["records"].append(len(log.topic("t").read(0, 0, max_records=10 * RECORDS)))

    def ranges() -> None:
        _, state = topic.newest()
        asked = OffsetRange("t", state.topic_id, 0, 0, state.log_end[0])
        found["ranges"].append(sum(rows.count for rows in read_range(topic, asked, ("value",))))

    def polled() -> None:
        with Consumer(path) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            found["polled"].append(len(consumer.poll(1000, max_records=10 * RECORDS)))

    run_on_foreign_threads([write])
    for _ in range(ROUNDS):
        run_on_foreign_threads([records, ranges, polled] * 2)
        log.topic("t").maintain()
    print(*(sum(each) for each in found.values()))


if __name__ == "__main__":
    main(sys.argv[1])
