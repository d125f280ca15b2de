"""Check of all indexes, and rebuild of faulty ones.

Reads a log only to rebuild its index; Kafka does this at start (`LogLoader`). Nothing is rebuilt over a damaged log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.indexes import index_fault, mended
from pyspark_commitlog.topic.segments.writer import SegmentWriter, write_manifest
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.topic_log import TopicLog


def recover(topic: TopicLog, topic_id: str) -> int:
    """Rebuild faulty indexes if the lock is free (rule R3).

    Returns the number of rebuilt segments.

    Raises:
        CorruptionError: a needed log or manifest is damaged; other segments were checked, as after any other error.
        TopicChangedError: the incarnation is gone.
    """
    topic.forget_defaults()
    if not topic.storage.can_append or _sound(topic, topic_id):
        return 0
    with topic.settling(topic_id) as held:
        return _recover_locked(topic, topic_id) if held else 0


def _sound(topic: TopicLog, topic_id: str) -> bool:
    """Check without the lock; faults may be concurrent changes."""
    topic.newest(topic_id)
    _, settled = topic.settled(topic_id)
    directories = (
        SegmentDir(topic.storage, topic.paths(topic_id), partition) for partition in range(len(settled.partitions))
    )
    with suppress(Exception):  # a manifest, say: it is met again with the lock, and reported there
        return not any(
            index_fault(directory, row.active, row.end_offset)
            or any(index_fault(directory, sealed, sealed.end_offset) for sealed in topic.sealed(settled, partition))
            for partition, (directory, row) in enumerate(zip(directories, settled.partitions, strict=True))
        )
    return False


def _recover_locked(topic: TopicLog, topic_id: str) -> int:
    _, state = topic.newest(topic_id)
    base, settled = topic.settled(topic_id)
    partitions, rebuilt, failures = list(settled.partitions), 0, Failures()
    for partition, row in enumerate(settled.partitions):
        mender = _Mender(topic, settled, partition, topic.config(state), base, failures)
        partitions[partition] = mender.mend(row)
        rebuilt += mender.rebuilt
    if tuple(partitions) != settled.partitions:
        topic.publish(base, replace(settled, partitions=tuple(partitions)))
    failures.raise_if_any(f"topic {topic.name!r}: {len(failures)} segments could not be checked")
    return rebuilt


class _Mender:
    def __init__(
        self,
        topic: TopicLog,
        settled: SettleState,
        partition: int,
        config: TopicConfig,
        base: Stored,
        failures: Failures,
    ) -> None:
        self._topic, self._settled, self._partition, self._config = topic, settled, partition, config
        self._directory = SegmentDir(topic.storage, topic.paths(settled.topic_id), partition)
        self._base, self._failures = base, failures
        self.rebuilt = 0

    def mend(self, row: SettledPartition) -> SettledPartition:
        with self._failures.collected():
            row = self._active(row)
        before = None
        with self._failures.collected():
            before = self._sealed_of(row)()
        if before is None:
            return row
        after = [self._sealed(segment) for segment in before]
        if after == list(before):
            return row
        directory = self._directory
        return replace(
            row,
            manifest=write_manifest(
                directory.storage,
                directory.paths,
                directory.partition,
                self._base.sequence + 1,
                after,
                self._topic.leaves(self._settled.topic_id, row.manifest),
            ),
        )

    def _active(self, row: SettledPartition) -> SettledPartition:
        directory = self._directory
        if not index_fault(directory, row.active, row.end_offset):
            return row
        writer = SegmentWriter(
            directory.storage, directory.paths, directory.partition, row, self._sealed_of(row), self._config
        )
        try:
            self.rebuilt += 1
            return writer.finish(self._base.sequence + 1, published_ms=self._base.info.modified_ms)
        finally:
            writer.close()

    def _sealed_of(self, row: SettledPartition) -> Callable[[], Sequence[Sealed]]:
        return lambda: self._topic.sealed(self._settled.with_row(self._partition, row), self._partition)

    def _sealed(self, segment: Sealed) -> Sealed:
        rebuilt = None
        with self._failures.collected():
            rebuilt = mended(self._directory, segment, segment.end_offset, self._config.number("index.interval.bytes"))
        self.rebuilt += rebuilt is not None
        return rebuilt if isinstance(rebuilt, Sealed) else segment
