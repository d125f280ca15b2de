"""Extents of unsettled entries, found by partition: parsed once per entry and process for all that read the topic.

A wide shuffle names tens of thousands of extents in one entry; a reader of one partition needs a few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyspark_commitlog.format.columns import Ints
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.log.state import ChunkRef, Extent
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.caches import Shelf

_PARTITION, _ROWS = 1, 4
#: What a parsed chunk takes in memory, bytes, about.
_CHUNK_BYTES = 256


@dataclass(frozen=True, slots=True, eq=False)
class ExtentTable:
    """The extents of an entry, as numbers until they are asked for.

    ``rows`` has a row for each, as in the entry; ``order`` the rows' numbers by partition, those of one partition in
    the order of the entry; ``partitions`` and ``bounds`` where those of a partition begin in ``order``, and all end.
    """

    rows: Ints
    order: Ints
    partitions: Ints
    bounds: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> ExtentTable:
        """Return the table of an entry's rows, checked before: each number fits into 64 bits."""
        table = np.array(rows, np.int64).reshape(len(rows), len(Extent.__slots__))
        order = np.argsort(table[:, _PARTITION], kind="stable")
        partitions, starts = np.unique(table[order, _PARTITION], return_index=True)
        return cls(table, order, partitions, np.append(starts, len(order)))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Extent]:
        """Yield all, in the order of the entry."""
        return (Extent(*row) for row in self.rows.tolist())

    def of_partition(self, partition: int) -> tuple[Extent, ...]:
        """Return the extents of one partition, ascending by offset."""
        at = int(np.searchsorted(self.partitions, partition))
        if at == len(self.partitions) or self.partitions[at] != partition:
            return ()
        numbers = self.order[self.bounds[at] : self.bounds[at + 1]]
        return tuple(Extent(*row) for row in self.rows[numbers].tolist())

    def counts(self) -> dict[int, int]:
        """Return the number of records of each partition that has extents."""
        if not len(self.rows):
            return {}
        sums = np.add.reduceat(self.rows[self.order, _ROWS], self.bounds[:-1])
        return dict(zip(self.partitions.tolist(), sums.tolist(), strict=True))

    @property
    def size_bytes(self) -> int:
        """Return the memory that it takes."""
        return self.rows.nbytes + self.order.nbytes + self.partitions.nbytes + self.bounds.nbytes


#: Of an entry that has none, or that is lost.
NO_EXTENTS = ExtentTable.of(())


class EntryTables(NamedTuple):
    """The tables of an entry: its extents and the chunks that they lie in."""

    extents: ExtentTable
    chunks: tuple[ChunkRef, ...]


#: By root and write id, those that have files of their own; of all topics of the process.
_tables: Shelf[tuple[str, str], EntryTables] = Shelf()


def read_tables(topic: TopicLog, entry: Entry) -> EntryTables:
    """Return an entry's tables as storage has them now; raises as ``TopicLog.extents`` does."""
    return EntryTables(ExtentTable.of(topic.extent_rows(entry)), topic.chunks(entry))


def shared_tables(topic: TopicLog, entry: Entry) -> EntryTables:
    """Return an entry's tables, from memory where a reader of this process has read them; raises as ``read_tables``.

    They are write-once, and checked when they are read: for readers, not for what looks after damage.
    """
    if not any(isinstance(entry.body.get(kind), dict) for kind in EntryTables._fields):
        return read_tables(topic, entry)
    key = topic.storage.url, entry.write_id
    tables = _tables.get(key)
    if tables is None:
        tables = read_tables(topic, entry)
        _tables.put(key, tables, tables.extents.size_bytes + _CHUNK_BYTES * len(tables.chunks))
    return tables
