"""Which partition a record goes to: Kafka's murmur2 over the key, sticky or round robin without one.

Everything works on whole columns; nothing loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)
#: Masks of the lowest 0 to 3 bytes of a word.
_LOW_BYTES = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
PARTITIONERS = ("sticky", "roundrobin")

Ints = npt.NDArray[np.int64]


def murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Return Kafka's 32-bit murmur2 of every key (``Utils.murmur2``); of a null key, that of the empty one.

    Steps through the 4-byte words of all keys together: the number of steps is that of the longest key.
    """
    data, starts, lengths = _layout(keys)
    order = np.argsort(_shorter(lengths), kind="stable")
    starts, lengths = starts[order], lengths[order]
    with np.errstate(over="ignore"):
        hashes = _mix_tail(data, starts, lengths, _mix_words(data, starts, lengths))
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _shorter(lengths: Ints) -> npt.NDArray[np.generic]:
    """Return by how much each key is shorter than the longest; in 16 bits where they do, which sort by radix."""
    longest = int(lengths.max(initial=0))
    shorter = longest - lengths
    return shorter.astype(np.uint16) if longest < 2**16 else shorter


def _layout(keys: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """Return (bytes, start of each key, length of each key) of a binary array, without copying the bytes."""
    _, offsets, data = keys.buffers()
    if len(keys) == 0 or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    bounds = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return bytes_, bounds[:-1], bounds[1:] - bounds[:-1]


def _mix_words(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> npt.NDArray[np.uint32]:
    """Mix the whole words; keys come longest first, so that those still running are a prefix."""
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths // 4
    if not len(words) or words[0] == 0:
        return hashes
    every_word = _every_word(data)
    running = np.searchsorted(-words, -np.arange(1, words[0] + 1), side="right")
    for step, count in enumerate(running):
        k = every_word[starts[:count] + 4 * step].astype(np.uint32)
        k *= _M
        k ^= k >> _R
        k *= _M
        head = hashes[:count]
        head *= _M
        head ^= k
    return hashes


def _mix_tail(
    data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, hashes: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Mix the 1 to 3 bytes behind the last whole word."""
    left = lengths & 3
    has = np.flatnonzero(left)
    if len(has):
        left = left[has]
        tail = starts[has] + lengths[has] - left
        hashes[has] = (hashes[has] ^ _words_at(data, tail) & _LOW_BYTES[left]) * _M
    return hashes


def _words_at(data: npt.NDArray[np.uint8], positions: Ints) -> npt.NDArray[np.uint32]:
    """Return the little-endian word at each position, zeros in place of bytes behind the end."""
    if len(data) < 4:
        data = np.pad(data, (0, 4 - len(data)))
    inside = np.minimum(positions, len(data) - 4)
    beyond = (positions - inside).astype(np.uint32)
    return _every_word(data)[inside].astype(np.uint32) >> (beyond * np.uint32(8))


def _every_word(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return a view of the little-endian words that start at each byte."""
    return np.ndarray(len(data) - 3, dtype="<u4", buffer=data, strides=(1,))


def key_partitions(keys: pa.BinaryArray, partitions: int) -> Ints:
    """Return ``toPositive(murmur2(key)) % partitions`` (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


class Assigner(Protocol):
    """What a stager asks for partitions."""

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record; see ``Partitioner.assign``."""


@dataclass
class Partitioner:
    """Chooses partitions for the records of one write task.

    Args:
        partitions: how many the topic has.
        kind: for records without a key: ``sticky`` stays on a partition for ``batch_bytes``, ``roundrobin`` moves on
            with every record.
        batch_bytes: bytes after which ``sticky`` moves on.
        first: where keyless records start (the task's number, so that tasks spread).
    """

    partitions: int
    kind: str
    batch_bytes: int
    first: int = 0
    _count: int = 0
    _bytes: int = 0

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record.

        Args:
            keys: binary, null where there is no key.
            explicit: the partition column (int32), null where the partitioner shall choose; None without one.
            sizes: bytes of each record.
        """
        if self.partitions == 1:
            return np.zeros(len(keys), np.int64)
        chosen = key_partitions(keys, self.partitions)
        free = keys.is_null().to_numpy(zero_copy_only=False) if keys.null_count else np.zeros(len(keys), np.bool_)
        if explicit is not None:
            given = explicit.is_valid().to_numpy(zero_copy_only=False)
            chosen[given] = explicit.drop_null().to_numpy()
            free &= ~given
        keyless = np.flatnonzero(free)
        if len(keyless):
            chosen[keyless] = self._keyless(sizes[keyless])
        return chosen

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
    """Chooses as ``inner`` does for records without a key, whatever their keys.

    Kafka: ``RoundRobinPartitioner``, and the built-in one under ``partitioner.ignore.keys``.
    """

    inner: Partitioner

    def assign(self, keys: pa.BinaryArray, explicit: pa.Array | None, sizes: Ints) -> Ints:
        """Return the partition of every record; see ``Partitioner.assign``."""
        return self.inner.assign(pa.nulls(len(keys), pa.binary()), explicit, sizes)
