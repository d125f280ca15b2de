"""How late a record is read from an object store: one writer, one partition, one reader.

    make bench-object-latency          or: python benchmarks/object_latency.py [--seconds N] [--delay-ms N]

A producer sends a record at a time and waits for its acknowledgement, a consumer polls; both on versitygw on this
machine. With `--delay-ms` each request takes so much longer, to stand for a store that is further away. Printed for a
steady flow, and for records after a silence: send to acknowledged, acknowledged to read, and the reader's requests.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from tests.object_stores.servers import Versitygw


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="added to each request of the client (0)")
    args = parser.parse_args()
    if args.delay_ms:
        _delay(args.delay_ms / 1000)
    home = Path(tempfile.mkdtemp(prefix="commitlog-bench-"))
    server = Versitygw(home)
    server.start()
    try:
        server.create("bench")
        for what, pause in (("10 records/s", 0.1), ("a record every 3 s", 3.0)):
            bucket = server.bucket("bench")
            _measure(what, f"{bucket.url}/{uuid.uuid4()}", bucket.options, pause, args.seconds)
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def _delay(seconds: float) -> None:
    """Have each request take longer."""
    request: Any = ObjectStorage._repeated

    def late(self: ObjectStorage, *args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return request(self, *args, **kwargs)

    ObjectStorage._repeated = late  # type: ignore[method-assign]
    put: Any = ObjectStorage.put_if_absent

    def put_late(self: ObjectStorage, *args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return put(self, *args, **kwargs)

    ObjectStorage.put_if_absent = put_late  # type: ignore[method-assign]


def _measure(what: str, url: str, options: dict[str, Any], pause: float, seconds: float) -> None:
    CommitLog(url, storage_options=options).create_topic("t")
    read: dict[int, float] = {}
    done, requests = threading.Event(), list[Counter[str]]()

    def consume() -> None:
        with Consumer(url, "t", auto_offset_reset="earliest", storage_options=options) as consumer:
            root: SharedRoot = consumer._root
            while not done.is_set():
                for record in consumer.poll(0.5):
                    read[record.offset] = time.monotonic()
            assert isinstance(root.storage, ObjectStorage)
            requests.append(Counter(root.storage.requests))

    reader = threading.Thread(target=consume)
    reader.start()
    acknowledged: list[tuple[int, float, float]] = []
    with Producer(url, storage_options=options) as producer:
        producer.send("t", value=b"first").result()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sent = time.monotonic()
            offset = producer.send("t", value=b"x" * 100).result().offset
            acknowledged.append((offset, sent, time.monotonic()))
            time.sleep(max(0.0, pause - (time.monotonic() - sent)))
    time.sleep(3)
    done.set()
    reader.join()
    print(f"{what}: {len(acknowledged)} records, reader's requests {dict(requests[0])}")
    _percentiles("send to acknowledged", [at - sent for _, sent, at in acknowledged])
    _percentiles("acknowledged to read", [max(0.0, read[offset] - at) for offset, _, at in acknowledged])
    _percentiles("send to read", [read[offset] - sent for offset, sent, _ in acknowledged])


def _percentiles(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
    print(f"  {what:<22} p50 {statistics.median(ordered) * 1000:6.0f} ms   p99 {p99 * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
