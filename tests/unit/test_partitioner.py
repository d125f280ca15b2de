"""Which partition: Kafka's own murmur2 vectors, keyless records, and the explicit column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.format.murmur2 import murmur2
from pyspark_commitlog.topic.write.partitioner import Partitioner, key_partitions

#: From Kafka's UtilsTest, testMurmur2.
KAFKA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def keys(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def assign(by: Partitioner, values: list[bytes | None], given: list[int | None] | None = None) -> list[int]:
    """Return the partitions of records of 10 bytes each."""
    column = None if given is None else pa.array(given, pa.int32())
    chosen: list[int] = by.assign(keys(*values), column, np.full(len(values), 10, np.int64)).tolist()
    return chosen


# --- murmur2 ----------------------------------------------------------------------------------------------


def test_hashes_as_kafka_does() -> None:
    hashes = murmur2(keys(*(key for key, _ in KAFKA))).astype(np.int32)

    assert hashes.tolist() == [expected for _, expected in KAFKA]


@pytest.mark.parametrize(("key", "expected"), KAFKA)
def test_hashes_one_key_as_among_others(key: bytes, expected: int) -> None:
    assert murmur2(keys(key)).astype(np.int32).tolist() == [expected]


def test_hashes_a_slice() -> None:
    column = keys(b"before", *(key for key, _ in KAFKA), b"behind").slice(1, len(KAFKA))

    assert murmur2(column).astype(np.int32).tolist() == [expected for _, expected in KAFKA]


def test_hashes_empty_and_null_keys_alike() -> None:
    alone = murmur2(keys(b"")).tolist()

    assert murmur2(keys(b"", None, b"21", b"")).tolist() == [*alone, *alone, 3321034988, *alone]
    assert murmur2(keys(None, None)).tolist() == alone * 2


@pytest.mark.parametrize("column", [keys(), keys(b"x").slice(1), pa.array([], pa.binary())])
def test_hashes_nothing(column: pa.BinaryArray) -> None:
    assert murmur2(column).tolist() == []


def test_a_hash_is_made_positive_as_kafka_does() -> None:
    positive = [expected & 0x7FFFFFFF for _, expected in KAFKA]

    assert key_partitions(keys(*(key for key, _ in KAFKA)), 7).tolist() == [h % 7 for h in positive]


# --- keyless records --------------------------------------------------------------------------------------


def test_sticky_stays_on_a_partition_for_a_batch_of_bytes() -> None:
    sticky = Partitioner(3, "sticky", batch_bytes=30)

    assert assign(sticky, [None] * 7) == [0, 0, 0, 1, 1, 1, 2]
    assert assign(sticky, [None] * 3) == [2, 2, 0]


def test_sticky_moves_on_when_a_batch_is_closed_that_got_something() -> None:
    sticky = Partitioner(3, "sticky", batch_bytes=30)
    chosen = []
    for keys_ in ([None], [None, None], [b"21"], [None] * 4, [None]):
        chosen.append(assign(sticky, keys_))
        sticky.next_batch()
    by_key = assign(Partitioner(3, "sticky", 30), [b"21"])
    assert chosen == [[0], [1, 1], by_key, [2, 2, 2, 0], [1]]
    sticky.next_batch()
    sticky.next_batch()
    assert assign(sticky, [None]) == [2]


def test_roundrobin_moves_on_with_every_record() -> None:
    roundrobin = Partitioner(3, "roundrobin", batch_bytes=30)

    assert assign(roundrobin, [None] * 4) == [0, 1, 2, 0]
    assert assign(roundrobin, [None] * 2) == [1, 2]


@pytest.mark.parametrize("kind", ["sticky", "roundrobin"])
def test_tasks_start_at_partitions_of_their_own(kind: str) -> None:
    assert [assign(Partitioner(3, kind, batch_bytes=30, first=task), [None])[0] for task in range(5)] == [
        0, 1, 2, 0, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["sticky", "roundrobin"])
def test_records_with_a_key_take_no_turn(kind: str) -> None:
    with_keys, without = Partitioner(4, kind, 20), Partitioner(4, kind, 20)
    mixed = assign(with_keys, [None, b"21", None, b"foobar", None, None])

    assert [mixed[i] for i in (0, 2, 4, 5)] == assign(without, [None] * 4)
    assert [mixed[i] for i in (1, 3)] == key_partitions(keys(b"21", b"foobar"), 4).tolist()


def test_an_empty_key_is_a_key() -> None:
    roundrobin = Partitioner(4, "roundrobin", 20)

    assert len(set(assign(roundrobin, [b""] * 5))) == 1


# --- the explicit column ----------------------------------------------------------------------------------


def test_an_explicit_partition_wins_over_key_and_turn() -> None:
    chosen = assign(Partitioner(4, "roundrobin", 20), [b"21", None, b"foobar"], [3, 3, 3])

    assert chosen == [3, 3, 3]


def test_where_none_is_given_the_partitioner_chooses() -> None:
    by_key = key_partitions(keys(b"21"), 4).tolist()

    assert assign(Partitioner(4, "roundrobin", 20), [b"21", None, b"21"], [None, None, 2]) == [*by_key, 0, 2]
    assert assign(Partitioner(4, "roundrobin", 20), [b"21"], [None]) == by_key


@pytest.mark.parametrize("kind", ["sticky", "roundrobin"])
def test_explicit_partitions_take_no_turn(kind: str) -> None:
    explicit = [0, None] * 4

    chosen = assign(Partitioner(2, kind, batch_bytes=10), [None] * 8, explicit)

    assert chosen[1::2] == [0, 1, 0, 1]


def test_one_partition_takes_all() -> None:
    assert assign(Partitioner(1, "sticky", 10), [b"21", None, b""], [0, None, None]) == [0, 0, 0]
