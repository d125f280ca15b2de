"""A compacted topic of many long keys, several versions each: write, compact or check it as a process of its own.

`python -m tests.support.manykeys write|compact|check ROOT KEYS BUFFER_MB`. `compact` prints its peak memory (VmHWM, MB).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.reader import PartitionReader
from tests.support.records import append

KEY_BYTES = 64
VERSIONS = 3
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": 16 * 2**20,
    "min.cleanable.dirty.ratio": 0.1,
    "max.message.bytes": 1000,
}
_STEP = 200_000
_ORDER = 7_368_787  # prime: each version goes through the keys in another order than they count


def keys_of(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    """Return 64 bytes for each number, by splitmix64: random, and the same every time."""
    words = numbers[:, None] * np.uint64(8) + np.arange(8, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = words * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words ^= words >> np.uint64(31)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(KEY_BYTES), len(numbers), [None, pa.py_buffer(words.tobytes())]
    ).cast(pa.binary())


def write(root: str, keys: int, buffer_mb: int) -> None:
    """Write every key once per version; the value says which (number and version, 8 bytes each)."""
    log = CommitLog(root)
    log.create_topic("t", 1, {**CONFIG, "cleaner.dedupe.buffer.size": buffer_mb * 2**20})
    topic = log.root.topic("t")
    for version in range(VERSIONS):
        for start in range(0, keys, _STEP):
            at = np.arange(start, min(start + _STEP, keys), dtype=np.uint64)
            numbers = (at * np.uint64(_ORDER) + np.uint64(version)) % np.uint64(keys)
            values = np.stack([numbers, np.full_like(numbers, version)], axis=1)
            batch = {
                "key": keys_of(numbers),
                "value": pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(16), len(numbers), [None, pa.py_buffer(values.tobytes())]
                ).cast(pa.binary()),
            }
            append(topic, pa.RecordBatch.from_pydict(batch))
        settle(topic, topic.newest()[1].topic_id)


def check(root: str, keys: int) -> None:
    """Read all and compare with what was written: the last version of every key, and no other but in the last segment.

    Raises:
        AssertionError: a record is missing, wrong, or should be gone.
    """
    topic = CommitLog(root).root.topic("t")
    _, state = topic.newest()
    cleaned = topic.settled(state.topic_id)[1].partition(0).cleaned
    assert cleaned > VERSIONS * keys * 6 // 10
    seen = np.zeros((VERSIONS, keys), np.bool_)
    below = np.zeros(keys, np.int64)
    for rows in PartitionReader(topic, state.topic_id, 0).read(0, state.log_end[0]):
        assert rows.batch is not None
        words = np.frombuffer(b"".join(rows.batch.column("value").to_pylist()), np.uint64).reshape(-1, 2)
        numbers, versions = words[:, 0], words[:, 1]
        assert rows.batch.column("key").equals(keys_of(numbers))
        assert not seen[versions, numbers].any()
        seen[versions, numbers] = True
        offsets = rows.first_offset + np.arange(rows.count) if rows.offsets is None else rows.offsets
        np.add.at(below, numbers[offsets < cleaned], 1)
    assert seen[VERSIONS - 1].all()
    assert below.max() == 1
    print("right", int(seen.sum()), "records left")


def main(what: str, root: str, keys: int, buffer_mb: int) -> None:
    """Do one of the three."""
    if what == "write":
        write(root, keys, buffer_mb)
    elif what == "check":
        check(root, keys)
    else:
        topic = CommitLog(root).root.topic("t")
        for done in compact(topic, topic.newest()[1].topic_id):
            print(done)
        lines = Path("/proc/self/status").read_text().splitlines()
        print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
