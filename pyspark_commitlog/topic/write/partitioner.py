"""Partition choice: Kafka's murmur2 of the key, sticky, or round robin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.murmur2 import murmur2


def key_partitions(keys: pa.BinaryArray, partitions: int) -> Ints:
    """Return `toPositive(murmur2(key)) % partitions` (`BuiltInPartitioner.partitionForKey`)."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int64)


class Assigner(Protocol):
    """Source of partitions for a stager."""

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record; see `Partitioner.assign`."""


@dataclass
class Partitioner:
    """Partition choice of one write task or producer.

    Args:
        kind: for keyless records: `sticky` moves on after `batch_bytes` (at least 1), `roundrobin` after each.
        first: start of keyless records, by task.
    """

    partitions: int
    kind: str
    batch_bytes: int
    first: int = 0
    _count: int = 0
    _bytes: int = 0

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record.

        `keys` are null if absent, `explicit` (int32) null to choose, `sizes` in bytes.
        """
        if self.partitions == 1:
            return np.zeros(len(keys), np.int64)
        keyed = keys.null_count < len(keys)
        chosen = key_partitions(keys, self.partitions) if keyed else np.zeros(len(keys), np.int64)
        free = keys.is_null().to_numpy(zero_copy_only=False) if keys.null_count else np.zeros(len(keys), np.bool_)
        if explicit is not None:
            given = explicit.is_valid().to_numpy(zero_copy_only=False)
            chosen[given] = explicit.drop_null().to_numpy()
            free &= ~given
        keyless = np.flatnonzero(free)
        if len(keyless):
            chosen[keyless] = self._keyless(sizes[keyless])
        return chosen

    def next_batch(self) -> None:
        """Close a batch: `sticky` moves on, if the partition got records (KIP-480)."""
        self._bytes = -(-self._bytes // self.batch_bytes) * self.batch_bytes

    def _keyless(self, sizes: Ints) -> Ints:
        if self.kind == "roundrobin":
            turns = self._count + np.arange(len(sizes))
            self._count += len(sizes)
        else:
            before = self._bytes + np.cumsum(sizes) - sizes
            turns = before // self.batch_bytes
            self._bytes += int(sizes.sum())
        return (self.first + turns) % self.partitions


@dataclass
class KeyIgnoring:
    """Treats all records as keyless (Kafka: `RoundRobinPartitioner`, `partitioner.ignore.keys`)."""

    inner: Partitioner

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record; see `Partitioner.assign`."""
        return self.inner.assign(pa.nulls(len(keys), pa.binary()), explicit, sizes)
