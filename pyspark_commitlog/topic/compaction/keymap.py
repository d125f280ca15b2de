"""Superseded records by key, exact and in bounded memory.

Kafka's `SkimpyOffsetMap` trusts a 16-byte hash per key. Here a hash only splits keys into buckets that fit into memory,
and keys are read once per bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.murmur2 import murmur2

#: Values of `_Fates` besides a bucket's number.
_SUPERSEDED = 255
_KEYLESS = 254
_MAX_BUCKETS = 254

Hash = Callable[[pa.Array], npt.NDArray[np.uint32]]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of records (binary, null if absent) and their ascending offsets."""

    offsets: Ints
    keys: pa.Array


@dataclass(frozen=True, slots=True)
class KeySource:
    """Segment whose keys can be read repeatedly, frame by frame."""

    base_offset: int
    end_offset: int
    read: Callable[[], Iterator[Keys]]


def find_superseded(
    clean: Sequence[KeySource], dirty: Sequence[KeySource], buffer_bytes: int, key_hash: Hash = murmur2
) -> tuple[list[Ints], int]:
    """Return the offsets to drop of each segment, clean ones first, and the number of keyless records.

    A record is superseded by a later one of its key in the dirty segments.

    Args:
        clean: segments compacted before, with one record per key, below the dirty ones.
        dirty: segments written since, ascending.
        buffer_bytes: of keys, besides one byte per dirty offset.
        key_hash: splits keys into buckets.
    """
    size = sum(keys.keys.nbytes for source in dirty for keys in source.read())
    buckets = min(max(1, -(-size // buffer_bytes)), _MAX_BUCKETS)
    fates = _Fates(dirty)
    gone: list[list[Ints]] = [[] for _ in clean]
    for bucket in range(buckets):
        known = _mark_dirty(dirty, fates, bucket, buckets, key_hash, buffer_bytes)
        if len(known):
            _find_clean(clean, gone, known, bucket, buckets, key_hash, buffer_bytes)
    of_clean = [np.sort(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64) for offsets in gone]
    of_dirty = [
        source.base_offset + np.flatnonzero(fate >= _KEYLESS) for source, fate in zip(dirty, fates, strict=True)
    ]
    return [*of_clean, *of_dirty], int(np.count_nonzero(fates.all == _KEYLESS))


class _Fates:
    """A byte per dirty offset: its bucket or fate."""

    def __init__(self, dirty: Sequence[KeySource]) -> None:
        self.starts = list(accumulate((source.end_offset - source.base_offset for source in dirty), initial=0))
        self.all = np.zeros(self.starts[-1], np.uint8)

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        return (self.all[start:end] for start, end in pairwise(self.starts))


def bucket_of(keys: pa.Array, buckets: int, key_hash: Hash) -> npt.NDArray[np.uint8]:
    """Buckets by the high bits: the partitioner has chosen by the low ones."""
    if buckets == 1:
        return np.zeros(len(keys), np.uint8)
    return ((key_hash(keys).astype(np.uint64) * np.uint64(buckets)) >> np.uint64(32)).astype(np.uint8)


def _mark_dirty(
    dirty: Sequence[KeySource], fates: _Fates, bucket: int, buckets: int, key_hash: Hash, buffer_bytes: int
) -> pa.Array:
    """Mark a bucket's superseded records; return its distinct keys."""
    known, known_at = pa.array([], pa.binary()), np.zeros(0, np.int64)
    gathered: list[pa.Array] = []
    gathered_at: list[Ints] = []

    def fold() -> None:
        """Merge the gathered keys into `known`, and mark all but the last record of each."""
        nonlocal known, known_at
        if not gathered:
            return
        encoded = pa.chunked_array([known, *gathered] if len(known) else gathered).dictionary_encode()
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
        at = np.concatenate([known_at, *gathered_at])
        known = encoded.chunk(0).dictionary
        order = np.arange(len(codes))
        last = np.empty(len(known), np.int64)
        last[codes] = order  # the last assignment of equal codes wins
        fates.all[at[last[codes] != order]] = _SUPERSEDED
        known_at = at[last]
        gathered.clear()
        gathered_at.clear()

    for source, start in zip(dirty, fates.starts, strict=False):
        for frame in source.read():
            at = start + frame.offsets - source.base_offset
            if bucket == 0:
                fates.all[at] = bucket_of(frame.keys, buckets, key_hash)
                if frame.keys.null_count:
                    fates.all[at[frame.keys.is_null().to_numpy(zero_copy_only=False)]] = _KEYLESS
            mine = np.flatnonzero(fates.all[at] == bucket)
            if len(mine):
                gathered.append(frame.keys.take(pa.array(mine)))
                gathered_at.append(at[mine])
            if sum(keys.nbytes for keys in gathered) >= buffer_bytes:
                fold()
    fold()
    return known


def _find_clean(
    clean: Sequence[KeySource],
    gone: Sequence[list[Ints]],
    known: pa.Array,
    bucket: int,
    buckets: int,
    key_hash: Hash,
    buffer_bytes: int,
) -> None:
    gathered: list[pa.Array] = []
    places: list[tuple[int, Ints]] = []
    held = 0

    def look_up() -> None:
        nonlocal held
        if not gathered:
            return
        hit = pc.is_in(pa.chunked_array(gathered), value_set=known).to_numpy()
        start = 0
        for number, offsets in places:
            gone[number].append(offsets[hit[start : start + len(offsets)]])
            start += len(offsets)
        gathered.clear()
        places.clear()
        held = 0

    for number, source in enumerate(clean):
        for frame in source.read():
            mine = frame.keys.is_valid().to_numpy(zero_copy_only=False)
            mine &= bucket_of(frame.keys, buckets, key_hash) == bucket
            chosen = frame.keys.filter(pa.array(mine))
            gathered.append(chosen)
            places.append((number, frame.offsets[mine]))
            held += chosen.nbytes
            if held >= buffer_bytes:
                look_up()
    look_up()
