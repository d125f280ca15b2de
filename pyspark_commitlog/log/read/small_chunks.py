"""Small chunks that several partitions have a share of, read whole: a request each, where every read is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.log.read.unsettled import Hole, Source
from pyspark_commitlog.log.state import ChunkRef
from pyspark_commitlog.storage import Storage

#: A chunk that is longer is read share by share.
CHUNK_BYTES = 8 * 2**20
#: All chunks that a run holds take no more; those that come after are read share by share.
MOST_BYTES = 64 * 2**20


class SmallChunks:
    """The chunks of one run.

    Args:
        storage, paths: where they lie.
        sources: of each partition, what the run will move.
    """

    def __init__(self, storage: Storage, paths: TopicPaths, sources: Iterable[Sequence[Source | Hole]]) -> None:
        self._storage, self._paths = storage, paths
        self._shared = plan_chunks(source for each in sources for source in each if isinstance(source, Source))
        self._read: dict[str, pa.Buffer] = {}

    def data(self, chunk: ChunkRef) -> pa.Buffer | None:
        """Return all bytes of a chunk; None where it is to be read share by share.

        Raises:
            FileNotFoundError: it is gone.
        """
        if chunk.name not in self._shared:
            return None
        if chunk.name not in self._read:
            path = self._paths.chunk(chunk.name)
            self._read[chunk.name] = pa.py_buffer(self._storage.read(path, 0, chunk.length))
        return self._read[chunk.name]


def plan_chunks(sources: Iterable[Source]) -> frozenset[str]:
    """Return the names of the chunks to read whole: small, with more than one share of what is moved (pure)."""
    chunks, shares = dict[str, ChunkRef](), Counter[str]()
    for source in sources:
        if source.chunk is not None and source.chunk.length <= CHUNK_BYTES:
            chunks[source.chunk.name] = source.chunk
            shares[source.chunk.name] += 1
    taken, size = set[str](), 0
    for name, chunk in chunks.items():
        if shares[name] > 1 and size + chunk.length <= MOST_BYTES:
            taken.add(name)
            size += chunk.length
    return frozenset(taken)
