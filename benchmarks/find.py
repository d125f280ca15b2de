"""How long a look-up takes with more segments, and in larger ones: `python benchmarks/find.py [--large]`.

By offset (`fetch`: one record) and by timestamp (`find_time`), each at random places. Cold: with a new handle on
the topic, which knows nothing yet, page cache warm; warm: with one handle for all. Ratios are to the smallest topic.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from pyspark_commitlog import CommitLog
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import find_time
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import stage

TOPIC = "t"
SEGMENTS = (1, 10, 100, 1_000, 10_000)
SIZES = {"1 KB": 1, "1 MB": 1_000, "64 MB": 64_000}  # records of about 1,000 bytes
LARGE = {"1 GB": 1_000_000}
START_MS = 1_500_000_000_000
STEP_MS = 1000
LOOKUPS = 200
#: Records of a commit.
COMMIT = 50_000
COLUMNS = ("offset cold", "offset warm", "time cold", "time warm")
Lookup = Callable[[TopicLog, int], object]


def records(count: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield `count` records whose values are `size` bytes that do not compress, a second apart."""
    noise = np.random.default_rng(0)
    for first in range(0, count, COMMIT):
        rows = min(COMMIT, count - first)
        data = pa.py_buffer(noise.bytes(rows * size))
        offsets = pa.py_buffer(np.arange(0, (rows + 1) * size, size, dtype=np.int32))
        times = pa.array((START_MS + np.arange(first, first + rows) * STEP_MS) * 1000, pa.timestamp("us", "UTC"))
        values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
        yield pa.RecordBatch.from_arrays([values, times], ["value", "timestamp"])


def topic_of(root: Path, count: int, size: int, **config: int) -> str:
    """Make a settled topic of so many records in one partition; without fsync, for nobody needs it any longer."""
    log = CommitLog(str(root))
    stored = {name.replace("_", "."): value for name, value in config.items()}
    with mock.patch("os.fsync"):
        log.create_topic(TOPIC, 1, {"retention.ms": -1, "inline.max.bytes": 0, "compression.type": "none", **stored})
        for batch in records(count, size):
            staged = stage(log.root.topic(TOPIC), batch)
            commit(log.root.topic(TOPIC), staged.topic_id, [staged])
            log.topic(TOPIC).maintain()
    return str(root)


def by_offset(topic: TopicLog, offset: int) -> None:
    """Look an offset up."""
    (record,) = fetch(topic, 0, offset, 1)
    assert record.offset == offset


def by_time(topic: TopicLog, offset: int) -> None:
    """Look the timestamp of an offset's record up."""
    found = find_time(topic, topic.newest()[1].topic_id, 0, START_MS + offset * STEP_MS)
    assert found is not None
    assert found.offset == offset


def microseconds(root: str, count: int, lookup: Lookup, *, warm: bool) -> float:
    """Return the median time of a look-up."""
    chance = random.Random(1)
    log = CommitLog(root)
    topic = log.root.topic(TOPIC)
    lookup(topic, 0)
    taken = []
    for _ in range(LOOKUPS):
        offset = chance.randrange(count)
        handle = topic if warm else log.root.topic(TOPIC)
        began = time.perf_counter()
        lookup(handle, offset)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def measure(scratch: Path, *, large: bool) -> None:
    """Make the topics, print both tables."""
    sizes = {**SIZES, **(LARGE if large else {})}
    print(f"µs per look-up, median of {LOOKUPS}; in brackets the ratio to the first line\n")
    many = {f"{count:,} segments": (count, 1100, {"segment_bytes": 1024, "batch_size": 1024}) for count in SEGMENTS}
    long = {f"a segment of {name}": (count, 1000, {"batch_size": 16_384}) for name, count in sizes.items()}
    for group in (many, long):
        first: list[float] = []
        print(f"{'topic':<22}" + "".join(f"{column:>20}" for column in COLUMNS))
        for name, (count, size, config) in group.items():
            root = topic_of(scratch / "root", count, size, **config)
            found = [
                microseconds(root, count, act, warm=warm) for act in (by_offset, by_time) for warm in (False, True)
            ]
            first = first or found
            ratios = [now / before for now, before in zip(found, first, strict=True)]
            cells = "".join(f"{at:>12,.0f} ({ratio:>4.1f})" for at, ratio in zip(found, ratios, strict=True))
            print(f"{name:<22}{cells}", flush=True)
            shutil.rmtree(root)
        print()


def main() -> None:
    """Measure in a directory that is removed again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="in a segment of 1 GB too, which takes minutes")
    parser.add_argument("--work", type=Path, help="where to make the topics")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.work) as scratch:
        measure(Path(scratch), large=args.large)


if __name__ == "__main__":
    main()
