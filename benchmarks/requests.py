"""What a topic asks of an object store, by verb, and what that costs a month at list prices.

    .venv/bin/python benchmarks/requests.py

Commits of one second's records each, in memory, counted at the door (`ObjectStorage.requests`): settling and merging
are in it, as they run inside commits. Not in it: `maintain` (a few listings and looks a run; deletes are free), and
readers, of which an idle one asks once per `idle_poll_interval_ms`. Then what a member of a group asks that has
nothing to do, in a minute of real time.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_commitlog import CommitLog, Consumer, Producer

COMMITS = 1280  # 20 settles of 64 entries
RECORD_BYTES = 100
SECONDS_A_MONTH = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a request, and for a GB that goes up. LIST is billed as PUT, HEAD as GET, DELETE is free."""

    name: str
    put: float
    get: float
    upload_gb: float = 0.0

    def a_month(self, requests: Mapping[str, float], commits: int, size_bytes: int) -> float:
        """Return dollars a month, of one commit a second."""
        paid = sum(requests.get(verb, 0) for verb in ("PUT", "LIST", "POST")) * self.put
        paid += sum(requests.get(verb, 0) for verb in ("GET", "HEAD")) * self.get + size_bytes / 2**30 * self.upload_gb
        return paid / commits * SECONDS_A_MONTH


#: US East (N. Virginia), https://aws.amazon.com/s3/pricing and the S3 FAQs, 2026.
PRICES = (Prices("S3 Standard", 5e-6, 4e-7), Prices("S3 Express", 1.13e-6, 3e-8, 0.0032))


def main() -> None:
    """Print the table."""
    print(f"Requests for each commit, over {COMMITS} commits, one a second; dollars a month for requests\n")
    print("| records/s | partitions | PUT | HEAD | GET | LIST | " + " | ".join(p.name for p in PRICES) + " |")
    print("|---|---|---|---|---|---|" + "---|" * len(PRICES))
    for rate in (1, 100, 10_000):
        for partitions in (4, 100):
            requests, size = measure(rate, partitions)
            each = " | ".join(f"{requests.get(verb, 0) / COMMITS:.2f}" for verb in ("PUT", "HEAD", "GET", "LIST"))
            dollars = " | ".join(f"{prices.a_month(requests, COMMITS, size):.2f}" for prices in PRICES)
            print(f"| {rate:,} | {partitions} | {each} | {dollars} |", flush=True)
    print("\nRequests of an idle member of a group in an hour, two members, one topic; dollars a month\n")
    print("| heartbeat_interval_ms | PUT | HEAD | GET | LIST | " + " | ".join(p.name for p in PRICES) + " |")
    print("|---|---|---|---|---|" + "---|" * len(PRICES))
    for interval_ms in (3_000, 15_000):
        requests = idle_member(interval_ms)
        each = " | ".join(f"{requests.get(verb, 0):,.0f}" for verb in ("PUT", "HEAD", "GET", "LIST"))
        dollars = " | ".join(f"{prices.a_month(requests, 3600, 0):.2f}" for prices in PRICES)
        print(f"| {interval_ms:,} | {each} | {dollars} |", flush=True)


def measure(rate: int, partitions: int) -> tuple[dict[str, int], int]:
    """Return the requests of all commits by verb, and about how many bytes went up: staged, settled, merged."""
    url = f"memory://{uuid.uuid4()}"
    CommitLog(url).create_topic("t", partitions=partitions, config={"retention.ms": -1})
    batch = records(rate, partitions)
    with Producer(url, linger_ms=0) as producer:
        storage: Any = producer._storage
        producer.send_batch("t", batch)
        producer.flush()
        before = dict(storage.requests)
        for _ in range(COMMITS):
            producer.send_batch("t", batch)
            producer.flush()
    after = storage.requests
    return {verb: after[verb] - before.get(verb, 0) for verb in after}, COMMITS * rate * RECORD_BYTES * 3


def idle_member(interval_ms: int) -> dict[str, float]:
    """Return the requests of a group's member in an hour, by verb, as half of what two ask in a minute."""
    url = f"memory://{uuid.uuid4()}"
    log = CommitLog(url)
    log.create_topic("t", partitions=4)
    settings: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": interval_ms, "auto_offset_reset": "earliest"}
    with Consumer(url, "t", **settings) as one, Consumer(url, "t", **settings) as other:
        both = (one, other)

        def poll(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for consumer in both:
                    consumer.poll(0.5)

        poll(2 * interval_ms / 1000 + 5)  # they join
        storages: list[Any] = [*{id(each._root.storage): each._root.storage for each in both}.values()]
        before = sum((Counter(each.requests) for each in storages), Counter[str]())
        poll(60)
        after = sum((Counter(each.requests) for each in storages), Counter[str]())
    return {verb: (after[verb] - before[verb]) * 60 / len(both) for verb in after}


def records(rate: int, partitions: int) -> pa.RecordBatch:
    """Return one second's records, spread over the partitions."""
    random = np.random.default_rng(3)
    values = [random.integers(0, 256, RECORD_BYTES, dtype=np.uint8).tobytes() for _ in range(rate)]
    places = pa.array(np.arange(rate, dtype=np.int32) % partitions)
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), "partition": places})


if __name__ == "__main__":
    main()
