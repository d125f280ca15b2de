"""Bundles: the items of one commit, and their division after an error (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.producer.records.batches import (
    UNKNOWN,
    ArrowBatch,
    BatchMetadata,
    Item,
    RecordRun,
    acknowledge_run,
    divided,
    separate_damaged,
)
from pyspark_commitlog.topic.write.staging import RowPlacement, Staged
from pyspark_commitlog.topic.write.writers import ProducerBatch


@dataclass
class ProducerIdentity:
    """Writer id of a topic's batches, and their last committed sequence.

    `topic_id`: where a durable id was opened; None for transient ids, valid in all incarnations.
    """

    writer_id: str
    epoch: int = 0
    last_sequence: int = -1
    topic_id: str | None = None

    @property
    def durable(self) -> bool:
        """Whether the application chose the id."""
        return self.topic_id is not None

    def number(self, items: Sequence[Item], newest: int) -> ProducerBatch:
        """Next sequence numbers; `newest` is that of the entry read last."""
        if self.durable:
            return ProducerBatch(self.writer_id, self.epoch, self.last_sequence + 1, items[-1].last_sequence)
        last = self.last_sequence + sum(item.rows for item in items)
        return ProducerBatch(self.writer_id, self.epoch, self.last_sequence + 1, last, since=newest)


@dataclass
class Bundle:
    """Items of one commit.

    `tried`: placements of the last try that may have landed. `checks`: check all pieces of an Arrow batch before
    staging. `rest`: items of the following bundle.
    """

    items: list[Item]
    deadline: float
    durable: bool
    batch: ProducerBatch | None = None
    topic_id: str = ""
    partitions: int = 0
    staged: Sequence[Staged] | None = None
    placed: list[tuple[Item, int, RowPlacement]] = field(default_factory=list)
    tried: list[tuple[Item, int, RowPlacement]] = field(default_factory=list)
    doubt: bool = False
    tries: int = 0
    error: Exception | None = None
    checks: bool = False
    rest: list[Item] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(item.rows for item in self.items)

    @property
    def is_whole(self) -> bool:
        """Whether it fails as a whole: a try may have landed, or later records must not."""
        return self.doubt or self.durable

    def replace(self, items: list[Item]) -> None:
        """Replace the items; they are numbered and staged again."""
        self.items, self.batch, self.staged = items, None, None

    def leave_out(self, damaged: Sequence[int]) -> list[Item]:
        """Remove and return records of damaged partitions; none if no others are left."""
        if self.is_whole:
            return []
        kept, refused = separate_damaged(self.placed, damaged)
        if not kept or not refused:
            return []
        self.replace(kept)
        return refused

    def divide(self, error: Exception) -> bool:
        """Defer half of the items to the following bundle; return success.

        A durable id allows it: the rest has higher numbers and lands later.
        """
        if self.doubt:
            return False
        first, rest = divided(self.items)
        if not rest:
            return False
        self.items, self.rest = first, [*rest, *self.rest]
        self.batch, self.staged, self.error = None, None, error
        return True

    def acknowledge(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Complete futures with their offsets, unknown without `ranges`."""
        following: Ints = np.zeros(self.partitions, np.int64)
        for partition, (first, _) in ranges.items():
            following[partition] = first
        spans: dict[int, dict[int, tuple[int, int]]] = {}
        for item, start, placed in self.placed:
            if isinstance(item, RecordRun):
                offsets = offsets_of(placed.partitions, following)
                acknowledge_run(item, start, placed, offsets if ranges else np.full_like(offsets, UNKNOWN))
            elif ranges:
                counts = np.bincount(placed.partitions, minlength=len(following))
                span = spans.setdefault(id(item), {})
                for partition in np.flatnonzero(counts).tolist():
                    first, _ = span.get(partition, (int(following[partition]), 0))
                    span[partition] = first, int(following[partition] + counts[partition])
                following += counts
        for item in self.items:
            if isinstance(item, ArrowBatch):
                item.future.set_result(BatchMetadata(item.topic, item.rows, spans.get(id(item), {})))


def offsets_of(partitions: Ints, following: Ints) -> Ints:
    """Offset of every row, and advance `following` per partition (pure)."""
    order = np.argsort(partitions, kind="stable")
    grouped = partitions[order]
    counts = np.bincount(partitions, minlength=len(following))
    starts = np.cumsum(counts) - counts
    offsets = np.empty_like(partitions)
    offsets[order] = following[grouped] + np.arange(len(grouped)) - starts[grouped]
    following += counts
    return offsets
