"""Unsettled extents by partition, parsed once per entry and process.

A wide shuffle names tens of thousands of extents in an entry; a reader needs a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.storage.shared.caches import Shelf
from pyspark_commitlog.topic.state.topic_state import ChunkRef, Extent
from pyspark_commitlog.topic.topic_log import TopicLog

_PARTITION, _ROWS = 1, 4
#: Approximate memory of a parsed chunk, bytes.
_CHUNK_BYTES = 256


@dataclass(frozen=True, slots=True, eq=False)
class ExtentTable:
    """An entry's extents, as numbers until asked for.

    `order` has the numbers of the `rows`, sorted stably by partition; `bounds` each partition's first position in it,
    then its end.
    """

    rows: Ints
    order: Ints
    partitions: Ints
    bounds: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> ExtentTable:
        """Build from an entry's checked rows."""
        table = np.array(rows, np.int64).reshape(len(rows), len(Extent.__slots__))
        order = np.argsort(table[:, _PARTITION], kind="stable")
        partitions, starts = np.unique(table[order, _PARTITION], return_index=True)
        return cls(table, order, partitions, np.append(starts, len(order)))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Extent]:
        return (Extent(*row) for row in self.rows.tolist())

    def of_partition(self, partition: int) -> tuple[Extent, ...]:
        """Return a partition's extents, by offset."""
        at = int(np.searchsorted(self.partitions, partition))
        if at == len(self.partitions) or self.partitions[at] != partition:
            return ()
        numbers = self.order[self.bounds[at] : self.bounds[at + 1]]
        return tuple(Extent(*row) for row in self.rows[numbers].tolist())

    def counts(self) -> dict[int, int]:
        """Return partition -> number of records."""
        if not len(self.rows):
            return {}
        sums = np.add.reduceat(self.rows[self.order, _ROWS], self.bounds[:-1])
        return dict(zip(self.partitions.tolist(), sums.tolist(), strict=True))

    @property
    def size_bytes(self) -> int:
        """Memory of the table."""
        return self.rows.nbytes + self.order.nbytes + self.partitions.nbytes + self.bounds.nbytes


#: Of an entry without extents, or a lost one.
NO_EXTENTS = ExtentTable.of(())


class EntryTables(NamedTuple):
    """An entry's extents and chunks."""

    extents: ExtentTable
    chunks: tuple[ChunkRef, ...]


#: Tables with side files by root and write id, process-wide.
_tables: Shelf[tuple[str, str], EntryTables] = Shelf()


def read_tables(topic: TopicLog, entry: Entry) -> EntryTables:
    """Read an entry's tables; raises as `TopicLog.extents`."""
    return EntryTables(ExtentTable.of(topic.extent_rows(entry)), topic.chunks(entry))


def shared_tables(topic: TopicLog, entry: Entry) -> EntryTables:
    """Like `read_tables`, cached process-wide; not for a search for damage."""
    if not any(isinstance(entry.body.get(kind), dict) for kind in EntryTables._fields):
        return read_tables(topic, entry)
    key = topic.storage.url, entry.write_id
    tables = _tables.get(key)
    if tables is None:
        tables = read_tables(topic, entry)
        _tables.put(key, tables, tables.extents.size_bytes + _CHUNK_BYTES * len(tables.chunks))
    return tables
