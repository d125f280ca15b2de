"""murmur2 bit for bit against Kafka's, written out key by key."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import example, given, strategies as st

from pyspark_commitlog.format.murmur2 import murmur2
from pyspark_commitlog.spark.write.sink_options import PARTITIONERS
from pyspark_commitlog.topic.write.partitioner import Partitioner, key_partitions
from tests.property.strategies import quick

MASK = 0xFFFFFFFF
keys = st.lists(st.none() | st.binary(max_size=40), max_size=40)
#: Key, explicit partition and size.
Record = tuple[bytes | None, int | None, int]
records = st.tuples(
    st.sampled_from((None, None, b"", b"21")), st.sampled_from((None, None, None, 3)), st.integers(0, 50)
)


def kafka_murmur2(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned number."""
    length, m, r = len(data), 0x5BD1E995, 24
    h = 0x9747B28C ^ length
    for i in range(length // 4):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little")
        k = k * m & MASK
        k ^= k >> r
        k = k * m & MASK
        h = h * m & MASK
        h ^= k
    tail = data[length & ~3 :]
    for i in reversed(range(len(tail))):
        h ^= tail[i] << 8 * i
    if tail:
        h = h * m & MASK
    h ^= h >> 13
    h = h * m & MASK
    return h ^ h >> 15


@quick
@given(keys)
@example([bytes(range(256)) * 3])
@example([b"\xff" * n for n in range(12)])
def test_hashes_bit_for_bit_as_kafka_does(values: list[bytes | None]) -> None:
    hashes = murmur2(pa.array(values, pa.binary()))

    assert hashes.tolist() == [kafka_murmur2(value or b"") for value in values]


@quick
@given(keys, st.data())
def test_a_slice_hashes_as_its_keys_do(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - start))

    hashes = murmur2(pa.array(values, pa.binary()).slice(start, length))

    assert hashes.tolist() == [kafka_murmur2(value or b"") for value in values[start : start + length]]


@quick
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=20), st.integers(1, 1000))
def test_a_key_goes_where_kafkas_default_partitioner_puts_it(values: list[bytes], partitions: int) -> None:
    chosen = key_partitions(pa.array(values, pa.binary()), partitions)

    assert chosen.tolist() == [(kafka_murmur2(value) & 0x7FFFFFFF) % partitions for value in values]


@quick
@given(
    st.lists(records, min_size=4, max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.sampled_from(PARTITIONERS),
    st.integers(0, 9),
)
def test_records_go_one_by_one_where_they_go_together(
    task: list[Record], cuts: list[int], kind: str, first: int
) -> None:
    """However a task's records are cut into batches, and against the rules written out record by record."""
    partitioner = Partitioner(5, kind, batch_bytes=60, first=first)
    chosen: list[int] = []
    bounds = sorted({0, len(task), *(min(cut, len(task)) for cut in cuts)})
    for start, end in pairwise(bounds):
        values, explicit, sizes = zip(*task[start:end], strict=True)
        column = pa.array(explicit, pa.int32())
        chosen += partitioner.assign(pa.array(values, pa.binary()), column, np.array(sizes)).tolist()

    assert chosen == one_by_one(task, kind, first)


def one_by_one(task: list[Record], kind: str, first: int) -> list[int]:
    chosen, count, held = [], 0, 0
    for key, explicit, size in task:
        if explicit is not None:
            chosen.append(explicit)
        elif key is not None:
            chosen.append((kafka_murmur2(key) & 0x7FFFFFFF) % 5)
        else:
            chosen.append((first + (count if kind == "roundrobin" else held // 60)) % 5)
            count, held = count + 1, held + size
    return chosen
