"""Small chunks, read whole and several at a time: each is a request, and several partitions may have a share of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.log.read.unsettled import Hole, Source
from pyspark_commitlog.log.state import ChunkRef
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import results_of

#: A chunk that is longer is read share by share.
CHUNK_BYTES = 8 * 2**20
#: One of which a single partition has a share, if it is longer: the rest of it may be nobody's that is settled now.
ALONE_BYTES = 2**20
#: All chunks that a run holds take no more; those that come after are read share by share.
MOST_BYTES = 64 * 2**20
#: Chunks that are read at a time.
_AT_ONCE = 8


class SmallChunks:
    """The chunks of one run.

    Args:
        storage, paths: where they lie.
        sources: of each partition, what the run will move.
    """

    def __init__(self, storage: Storage, paths: TopicPaths, sources: Iterable[Sequence[Source | Hole]]) -> None:
        self._storage, self._paths = storage, paths
        self._wanted = plan_chunks(source for each in sources for source in each if isinstance(source, Source))
        self._read: dict[str, pa.Buffer] = {}

    def data(self, chunk: ChunkRef) -> pa.Buffer | None:
        """Return all bytes of a chunk, and read those that come next; None where it is to be read share by share.

        Raises:
            FileNotFoundError: it is gone.
        """
        if chunk.name not in self._wanted:
            return None
        if chunk.name not in self._read:
            self._read_from(chunk)
        return self._read[chunk.name]

    def _read_from(self, chunk: ChunkRef) -> None:
        """Read a chunk and the next ones; what fails of those is tried again in its turn."""
        names = list(self._wanted)
        first = names.index(chunk.name)
        ahead = [self._wanted[name] for name in names[first : first + _AT_ONCE] if name not in self._read]

        def read(each: ChunkRef) -> pa.Buffer | None:
            try:
                return pa.py_buffer(self._storage.read(self._paths.chunk(each.name), 0, each.length))
            except (CommitLogError, OSError):
                if each is ahead[0]:
                    raise
                return None

        for each, data in zip(ahead, results_of(read, ahead, _AT_ONCE), strict=True):
            if data is not None:
                self._read[each.name] = data


def plan_chunks(sources: Iterable[Source]) -> dict[str, ChunkRef]:
    """Return the chunks to read whole, by name, in the order in which they are asked for: the small ones (pure)."""
    chunks, shares = dict[str, ChunkRef](), Counter[str]()
    for source in sources:
        if source.chunk is not None and source.chunk.length <= CHUNK_BYTES:
            chunks[source.chunk.name] = source.chunk
            shares[source.chunk.name] += 1
    taken, size = dict[str, ChunkRef](), 0
    for name, chunk in chunks.items():
        if (shares[name] > 1 or chunk.length <= ALONE_BYTES) and size + chunk.length <= MOST_BYTES:
            taken[name] = chunk
            size += chunk.length
    return taken
