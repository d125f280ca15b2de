"""Newest record per key without tombstones (Kafka Streams: `KTable`), in bounded memory.

A hash splits keys into buckets that fit into memory; Arrow compares a bucket's keys, as in compaction (`keymap`). Each
bucket reads the range twice: keys, then rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.murmur2 import Words, murmur2
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.read.named_columns import check_untyped, offsets_of
from pyspark_commitlog.topic.read.reader import Rows, read_range
from pyspark_commitlog.topic.topic_log import TopicLog

#: Bytes of distinct keys held, and of keys waiting to be folded in.
BUFFER_BYTES = 64 * 2**20
_MOST_BUCKETS = 4096
_POSITIVE = np.uint32(0x7FFFFFFF)


class _TooManyError(Exception):
    """A bucket's distinct keys do not fit."""


def latest(
    topic: TopicLog, wanted: OffsetRange, names: Sequence[str], buffer_bytes: int = BUFFER_BYTES
) -> Iterator[Rows]:
    """Yield the newest record of every key with a value, unordered.

    `wanted` begins at the log start. Memory is twice `buffer_bytes` of keys, and a frame.

    Raises:
        UsageError: the topic is typed, a record has no key, or one of another partition, which may have a newer
            record.
        OffsetOutOfRangeError: compaction went beyond the range, so its records may be gone: read again.
    """
    _, state = topic.newest(wanted.topic_id)
    check_untyped({topic.name: state.schema}, "view=latest", "read without it, and take the newest row of each key")
    columns = tuple(dict.fromkeys((*names, "value")))
    buckets, bucket = 1, 0
    while bucket < buckets:
        try:
            winners = _winners(topic, wanted, state.partitions, bucket, buckets, buffer_bytes)
        except _TooManyError:  # split all buckets; the halves of finished ones are finished
            buckets, bucket = buckets * 2, bucket * 2
            continue
        yield from _rows(topic, wanted, columns, tuple(names), winners)
        bucket += 1
    _check_cleaned(topic, wanted)


@dataclass
class _Newest:
    buffer_bytes: int
    fits_always: bool
    keys: pa.Array = field(default_factory=lambda: pa.array([], pa.binary()))
    at: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    waiting: list[tuple[pa.Array, Ints]] = field(default_factory=list)
    waiting_bytes: int = 0

    def add(self, keys: pa.Array, offsets: Ints) -> None:
        self.waiting.append((keys, offsets))
        self.waiting_bytes += keys.nbytes + offsets.nbytes
        if self.waiting_bytes >= self.buffer_bytes:
            self.fold()

    def fold(self) -> None:
        if not self.waiting:
            return
        keys = pa.chunked_array([self.keys, *(keys for keys, _ in self.waiting)], pa.binary())
        at = np.concatenate([self.at, *(offsets for _, offsets in self.waiting)])
        encoded = keys.combine_chunks().dictionary_encode()
        newest = np.empty(len(encoded.dictionary), np.int64)
        newest[encoded.indices.to_numpy()] = at  # the last assignment of equal keys wins
        self.keys, self.at = encoded.dictionary, newest
        self.waiting, self.waiting_bytes = [], 0
        if self.keys.nbytes + self.at.nbytes > self.buffer_bytes and not self.fits_always:
            raise _TooManyError


def _winners(
    topic: TopicLog, wanted: OffsetRange, partitions: int, bucket: int, buckets: int, buffer_bytes: int
) -> Ints:
    newest = _Newest(buffer_bytes, fits_always=buckets >= _MOST_BUCKETS)
    for rows in read_range(topic, wanted, ("key",)):
        assert rows.batch is not None
        keys, offsets = rows.batch.column("key"), offsets_of(rows)
        hashes = murmur2(keys)
        _check_places(topic.name, wanted.partition, partitions, keys, offsets, hashes)
        if buckets > 1:
            mine = np.flatnonzero(_bucket(hashes, buckets) == bucket)
            keys, offsets = keys.take(pa.array(mine)), offsets[mine]
        if len(offsets):
            newest.add(keys, offsets)
    newest.fold()
    return np.sort(newest.at)


def _bucket(hashes: Words, buckets: int) -> Ints:
    """Buckets by high bits, so that doubling splits each."""
    return ((hashes.astype(np.uint64) * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)


def _check_places(topic: str, partition: int, partitions: int, keys: pa.Array, offsets: Ints, hashes: Words) -> None:
    if keys.null_count:
        at = int(offsets[np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0]])
        raise UsageError(
            f"topic {topic!r} partition {partition}: the record at offset {at} has no key, and view=latest is of the "
            "newest record per key: read the topic without it, or write every record with a key"
        )
    if partitions == 1:
        return
    elsewhere = np.flatnonzero((hashes & _POSITIVE) % np.uint32(partitions) != partition)
    if len(elsewhere):
        at = int(elsewhere[0])
        right = int((hashes[at] & _POSITIVE) % np.uint32(partitions))
        raise UsageError(
            f"topic {topic!r} partition {partition}: the key at offset {int(offsets[at])} belongs to partition {right} "
            f"of {partitions}, which may hold a newer record of it: the topic grew since, or a writer chose the "
            "partition. view=latest can't tell; read without it and take the newest record per key yourself"
        )


def _rows(
    topic: TopicLog, wanted: OffsetRange, columns: tuple[str, ...], names: tuple[str, ...], winners: Ints
) -> Iterator[Rows]:
    if not len(winners):
        return
    for rows in read_range(topic, replace(wanted, start=int(winners[0]), end=int(winners[-1]) + 1), columns):
        assert rows.batch is not None
        offsets = offsets_of(rows)
        low, high = np.searchsorted(winners, (offsets[0], offsets[-1] + 1))
        chosen = np.isin(offsets, winners[low:high], assume_unique=True)
        chosen &= rows.batch.column("value").is_valid().to_numpy(zero_copy_only=False)
        if chosen.any():
            kept = offsets[chosen]
            batch = rows.batch.select(list(names)).filter(pa.array(chosen)) if names else None
            yield Rows(len(kept), int(kept[0]), kept, batch, rows.log_append_time)


def _check_cleaned(topic: TopicLog, wanted: OffsetRange) -> None:
    _, settled = topic.settled(wanted.topic_id)
    seen = settled.partition(wanted.partition).compacted_below
    if seen > wanted.end:
        raise OffsetOutOfRangeError(
            f"topic {topic.name!r} partition {wanted.partition}: compaction has come to offset {seen}, beyond the "
            f"end of this view, {wanted.end}: records that were the newest of their keys then may be gone. Run the "
            "read again; a view of an earlier end can't be had of what is compacted"
        )
