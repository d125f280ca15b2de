"""Parallel whole reads of small chunks and inline bytes, for a settler.

Each is a request whose bytes several partitions may share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import pyarrow as pa

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE, results_of
from pyspark_commitlog.topic.read.unsettled import Entries, Hole, Source
from pyspark_commitlog.topic.state.topic_state import ChunkRef
from pyspark_commitlog.topic.topic_log import TopicLog

#: Longer chunks are read by extent.
CHUNK_BYTES = 8 * 2**20
#: Limit of chunks with one extent, whose remainder may be unneeded.
ALONE_BYTES = 2**20
#: Memory of a run; later ones are read by extent.
MOST_BYTES = 64 * 2**20
#: Next candidates considered for a parallel read.
_LOOKED_AT = 64


class WholeReads(Entries):
    """Small chunks and inline bytes of one run over `sources`."""

    def __init__(self, topic: TopicLog, topic_id: str, sources: Iterable[Sequence[Source | Hole]]) -> None:
        super().__init__(topic)
        self._paths = topic.paths(topic_id)
        moving = (source for each in sources for source in each if isinstance(source, Source))
        self._wanted = plan_reads(moving, self._is_at_hand)
        self._order = list(self._wanted)
        self._places = {name: place for place, name in enumerate(self._order)}
        self._read: dict[str, bytes] = {}

    def chunk(self, chunk: ChunkRef) -> pa.Buffer | None:
        """Return a chunk's bytes, reading ahead; None to read by extent."""
        return pa.py_buffer(self._read_whole(chunk.name)) if chunk.name in self._wanted else None

    def inline(self, entry: Entry) -> bytes:
        name = entry.write_id
        if name not in self._wanted or (name not in self._read and self._is_at_hand(entry)):
            return super().inline(entry)
        return self._read_whole(name)

    def _read_whole(self, name: str) -> bytes:
        if name not in self._read:
            self._read_from(self._places[name])
        return self._read[name]

    def _read_from(self, first: int) -> None:
        """Read one and the next; failed next ones are retried later."""
        coming = (name for name in self._order[first + 1 : first + _LOOKED_AT] if self._is_to_be_read(name))
        ahead = [self._order[first], *islice(coming, REQUESTS_AT_ONCE - 1)]

        def read(name: str) -> bytes | Exception:
            try:
                return self._fetched(self._wanted[name])
            except (CommitLogError, OSError) as error:
                return error

        found = results_of(read, ahead, REQUESTS_AT_ONCE)
        self._read |= {name: data for name, data in zip(ahead, found, strict=True) if isinstance(data, bytes)}
        if isinstance(found[0], Exception):
            raise found[0]

    def _is_to_be_read(self, name: str) -> bool:
        return name not in self._read and not self._is_at_hand(self._wanted[name])

    def _is_at_hand(self, wanted: ChunkRef | Entry) -> bool:
        return isinstance(wanted, Entry) and self._topic.journal.at_hand(wanted) is not None

    def _fetched(self, wanted: ChunkRef | Entry) -> bytes:
        if isinstance(wanted, Entry):
            return super().inline(wanted)
        return self._topic.storage.read(self._paths.chunk(wanted.name), 0, wanted.length)


def plan_reads(sources: Iterable[Source], at_hand: Callable[[Entry], bool]) -> dict[str, ChunkRef | Entry]:
    """Return chunks by name and entries by write id, in order (pure).

    `at_hand`: whether inline bytes take no request, and so no memory here.
    """
    wanted, shares = dict[str, ChunkRef | Entry](), Counter[str]()
    for source in sources:
        if source.chunk is None:
            wanted[source.entry.write_id] = source.entry
        elif source.chunk.length <= CHUNK_BYTES:
            wanted[source.chunk.name] = source.chunk
            shares[source.chunk.name] += 1
    taken, size = dict[str, ChunkRef | Entry](), 0
    for name, each in wanted.items():
        if isinstance(each, Entry):
            length, whole = _inline_bytes(each, at_hand), True
        else:
            length, whole = each.length, shares[name] > 1 or each.length <= ALONE_BYTES
        if whole and size + length <= MOST_BYTES:
            taken[name] = each
            size += length
    return taken


def _inline_bytes(entry: Entry, at_hand: Callable[[Entry], bool]) -> int:
    return entry.inline.length if entry.inline is not None and not at_hand(entry) else 0
