"""R8, R11: many small extents, as a wide shuffle leaves them, are read by partition and checked like all others."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.storage import limits
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.shared.caches import process_cache
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.read.extents import EntryTables, ExtentTable
from pyspark_commitlog.topic.read.neighbours import TOGETHER_BYTES, Neighbours, _Window
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.state.topic_state import Extent
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import batch_of, read_partition, stage
from tests.support.world import CHUNKS, Recorder, World

PARTITIONS, TASKS = 40, 25


def shuffled(topic: TopicLog, tasks: int = TASKS, partitions: int = PARTITIONS, size: int = 8) -> None:
    """Commit two records of each task to each partition, as one entry."""
    values = [b"%d-%d " % (task, number) + b"v" * size for task in range(tasks) for number in range(2 * partitions)]
    each = [values[at : at + 2 * partitions] for at in range(0, len(values), 2 * partitions)]
    numbers = [number // 2 for number in range(2 * partitions)]
    staged = [stage(topic, batch_of(part, partition=numbers), task=task) for task, part in enumerate(each)]
    commit(topic, staged[0].topic_id, staged)


def expected(partition: int, tasks: int = TASKS, size: int = 8) -> list[bytes]:
    """Return the values of a partition."""
    return [
        b"%d-%d " % (task, number) + b"v" * size
        for task in range(tasks)
        for number in (2 * partition, 2 * partition + 1)
    ]


def test_readers_of_all_partitions_parse_an_entry_once_and_read_each_chunk_once(world: World) -> None:
    """Each partition is read by a handle of its own, as by Spark's tasks."""
    shuffled(world.create(PARTITIONS))
    seen = Recorder()
    for partition in range(PARTITIONS):
        assert [r.value for r in read_partition(world.handle(seen), partition)] == expected(partition)
    assert len([path for path in seen.paths("read") if path.endswith(".extents")]) == 1
    chunks = [path for kind in ("read", "map") for path in seen.paths(kind) if path.endswith(".chunk")]
    assert len(chunks) == len(set(chunks)) == TASKS


def test_a_table_finds_the_extents_of_a_partition() -> None:
    chance = Random(1)
    for count in (0, 1, 7, 300):
        rows = [[chance.randrange(9), chance.randrange(5), 0, 2**62, chance.randrange(1, 9), n] for n in range(count)]
        table, extents = ExtentTable.of(rows), [Extent(*row) for row in rows]
        assert (len(table), list(table)) == (count, extents)
        counts: dict[int, int] = {}
        for extent in extents:
            counts[extent.partition] = counts.get(extent.partition, 0) + extent.rows
        assert table.counts() == counts
        for partition in range(7):
            assert table.of_partition(partition) == tuple(e for e in extents if e.partition == partition)


@pytest.mark.parametrize("how", ["written to", "replaced", "gone"])
def test_damage_of_a_chunk_that_was_read_together_is_found(world: World, how: str) -> None:
    topic = world.create(PARTITIONS)
    shuffled(topic, tasks=1)
    assert [r.value for r in read_partition(topic, 0)] == expected(0, 1)
    (name,) = world.files(".chunk")
    path = world.path / name
    data = bytearray(path.read_bytes())
    extent = topic.extents(topic.newest()[0].entry)[5]
    data[extent.position + extent.length // 2] ^= 1
    if how == "written to":
        path.write_bytes(data)
        os.utime(path, ns=(1, 1))  # a coarse clock may give it the time of before
    elif how == "replaced":
        (world.path / "other").write_bytes(data)
        (world.path / "other").rename(path)
    else:
        path.unlink()
    with pytest.raises(CorruptionError, match="is missing" if how == "gone" else "CRC-32C"):
        read_partition(world.handle(), 5)


def test_a_bad_sector_of_a_neighbour_keeps_no_extent_from_being_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, read = world.create(PARTITIONS), LocalStorage.read
    shuffled(topic, tasks=1)
    bad = topic.extents(topic.newest()[0].entry)[20].position

    def bad_read(self: LocalStorage, path: str, start: int = 0, length: int | None = None) -> bytes:
        if path.endswith(".chunk") and start <= bad < start + (length or 0):
            raise OSError(errno.EIO, "injected: a bad sector", path)
        return read(self, path, start, length)

    monkeypatch.setattr(LocalStorage, "read", bad_read)
    assert [r.value for r in read_partition(topic, 3)] == expected(3, 1)
    with pytest.raises(OSError, match="bad sector"):
        read_partition(topic, 20)


def test_rows_that_are_kept_hold_the_bytes_of_their_extent_alone(tmp_path: Path) -> None:
    (tmp_path / "chunk").write_bytes(bytes(range(256)) * 1000)
    window = Neighbours(LocalStorage(tmp_path)).window("chunk", 300, 61, 400)
    assert window.to_pybytes() == (bytes(range(256)) * 2)[300:400]
    assert window.parent is None or window.parent.size == 100


def test_what_is_remembered_stays_within_the_limit_of_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4 * TOGETHER_BYTES
    monkeypatch.setattr(limits, "_limits", limits.ProcessLimits(cache_bytes=most))
    topic = world.create(PARTITIONS, {**CHUNKS, "compression.type": "none"})
    shuffled(topic, size=1000)
    state = topic.newest()[1]
    peak = 0
    for partition in range(PARTITIONS):
        wanted = OffsetRange("t", state.topic_id, partition, 0, state.log_end[partition])
        for _ in read_range(world.handle(), wanted):
            held = [value for value, _ in process_cache.value._items.values()]
            pieces = sum(len(value.data) for value in held if isinstance(value, _Window))
            tables = sum(value.extents.rows.nbytes for value in held if isinstance(value, EntryTables))
            peak = max(peak, pieces + tables)
    assert TOGETHER_BYTES < peak <= most


@pytest.mark.parametrize(("tasks", "settles"), [(12, False), (16, True)])
def test_extents_count_as_well_as_bytes_when_it_is_decided_what_is_due(world: World, tasks: int, settles: bool) -> None:
    """R5: 16 tasks of 16 partitions: 256 extents of some 1,000 bytes, each of which counts 4 KiB besides."""
    topic = world.create(16, {**CHUNKS, "settle.bytes": 256 * 4096})
    shuffled(topic, tasks, 16, size=1)
    extents = topic.extents(topic.newest()[0].entry)
    assert sum(extent.length for extent in extents) < 300_000
    done = settle_after_commit(topic, topic.newest()[1].topic_id)
    assert (done.sequence is not None) is settles
    assert [r.value for r in read_partition(topic, 7)] == expected(7, tasks, 1)
