"""Make the golden root: `python -m tests.golden.make_golden` rewrites what lies beside this file.

Clock and ids are fixed, so the same code and the same pyarrow make the same bytes. What must come out is
counted here, by a list for each partition: nothing is read back from the log.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.entry import Checked, to_json_bytes
from pyspark_commitlog.format.paths import manifest_name, segment_stem
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.segments.rewrite import Rules, rewrite
from pyspark_commitlog.topic.state import settle_state, side_files as side_tables
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import staging, writers
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.records import append, batch_of, stage

HERE = Path(__file__).parent
ROOT = HERE / "root"
EXPECTED = HERE / "expected.json"
MADE_WITH = HERE / "made_with.txt"
CONFIG: dict[str, Any] = {
    "retention.ms": -1,
    "segment.bytes": 6144,
    "segment.index.bytes": 96,
    "index.interval.bytes": 1024,
    "batch.size": 2048,
    "inline.max.bytes": 0,
    "compression.type": "none",
    "file.delete.delay.ms": 1000,
}
FIRST_US = 1_526_384_718_283_007
HOUR_MS = 3_600_000
KEYS = (b"21", b"foobar", b"", None, b"\x00\xff\x80")
HEADERS: tuple[list[tuple[str, bytes | None]] | None, ...] = (
    None,
    [],
    [("trace", b"\x01\x02")],
    [("same", b"1"), ("same", None), ("", b"")],
)

#: [offset, key, value, timestamp in µs, headers]; bytes as the text that Latin-1 makes of them.
Row = list[Any]


class FixedStorage(LocalStorage):
    """A local root whose ids count upwards and whose chance is always the same."""

    can_append = True

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root, clock=clock)
        self._made = 0

    def new_id(self) -> str:
        """Return the next id."""
        self._made += 1
        return f"00000000-0000-4000-8000-{self._made:012x}"

    def jitter(self) -> float:
        """Return a half."""
        return 0.5

    def _sign(self, path: str) -> None:
        """Leave no note: it names a machine and a process."""


@dataclass
class Maker:
    """A topic that is written to, and what it must hold."""

    topic: TopicLog
    clock: ManualClock
    partitions: dict[int, list[Row]] = field(default_factory=dict)
    made: int = 0

    def write(self, counts: dict[int, int], writer: Transaction | ProducerBatch | None = None) -> None:
        """Commit so many records to each partition."""
        append(self.topic, self.batch(counts), writer=writer)

    def batch(self, counts: dict[int, int], *, lost: bool = False) -> pa.RecordBatch:
        """Return so many records for each partition; they will be read unless they are `lost`."""
        chosen = [partition for partition, count in counts.items() for _ in range(count)]
        rows = [self._row() for _ in chosen]
        if not lost:
            for partition, row in zip(chosen, rows, strict=True):
                self._expect(partition, row)
        keys, values, times, headers = zip(*rows, strict=True)
        return batch_of(values, key=keys, timestamp=times, headers=headers, partition=chosen)

    def _row(self) -> tuple[Any, ...]:
        n, self.made = self.made, self.made + 1
        value = None if n % 7 == 6 else b"value %d " % n + b"\xf0" * (n % 3) + b"x" * (n % 11)
        return KEYS[n % 5], value, FIRST_US + (n ^ 2) * 1_234_567, HEADERS[n % 4]

    def _expect(self, partition: int, row: tuple[Any, ...]) -> None:
        key, value, time, headers = row
        rows = self.partitions.setdefault(partition, [])
        told = None if headers is None else [[name, _text(content)] for name, content in headers]
        rows.append([len(rows), _text(key), _text(value), time, told])


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


@contextmanager
def small_tables() -> Iterator[None]:
    """Have even small tables go to side files."""
    with mock.patch.object(side_tables, "TABLE_BYTES", 16), mock.patch.object(writers, "WRITER_ROWS", 1):
        yield


def make(root: Path) -> dict[str, dict[str, list[Row]]]:
    """Make the golden root; return what its topics must hold."""
    clock = ManualClock(FIRST_US // 1000 + HOUR_MS)
    log = CommitLog.on(FixedStorage(root, clock))
    made = {"again": make_again(log, clock), "golden": make_golden(log, clock), "objects": make_objects(log, clock)}
    make_group(log)
    return made


def make_golden(log: CommitLog, clock: ManualClock) -> dict[str, list[Row]]:
    """Make a topic with everything that this version writes, and what it only reads."""
    log.create_topic("golden", 3, CONFIG)
    maker = Maker(log.root.topic("golden"), clock)
    for number, codec in enumerate(("none", "lz4", "zstd") * 3):
        if number:
            log.topic("golden").alter({"compression.type": codec})
        else:
            alter_nothing(log.root.topic("golden"))
        maker.write({0: 4 + number, 1: 2, 2: 9}, Transaction("query 1", number))
        clock.advance(1000)
    _, now = maker.topic.newest()
    settle(maker.topic, now.topic_id)
    rewrite_first(maker, partition=2)
    clock.advance(2000)
    log.topic("golden").maintain()  # what is settled goes from journal/ and staged/
    maker.write({0: 90}, ProducerBatch("producer 7", epoch=0, first=0, last=89))
    settle(maker.topic, now.topic_id, budget_seconds=0)  # one frame: its extent is settled in part
    log.topic("golden").add_partitions(4)
    with small_tables():
        maker.write({1: 3, 3: 1}, ProducerBatch("producer 7", epoch=0, first=90, last=93))
    log.topic("golden").alter({"batch.size": 1024})
    with mock.patch.object(staging, "PIECE_BYTES", 2048):
        maker.write({0: 60, 1: 40})  # one chunk, several extents of each partition
    stage(maker.topic, maker.batch({0: 1}, lost=True))  # never committed
    log.topic("golden").alter({"inline.max.bytes": 65536, "batch.size": 2048})
    with small_tables():
        maker.write({0: 2, 3: 5}, Transaction("query 1", 9))
    lose(log, maker)
    write_at_append_time(log, maker)
    leave_rubbish(maker)
    return {str(partition): rows for partition, rows in sorted(maker.partitions.items())}


def alter_nothing(topic: TopicLog) -> None:
    """Put an entry that changes nothing, as `alter_topic` did once."""
    _, before = topic.newest()

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        _, state = topic.newest_at(base, before.topic_id)
        return Draft("alter", state.topic_id, {"state": state.to_json()}, result=None)

    topic.journal.append(plan)


def make_again(log: CommitLog, clock: ManualClock) -> dict[str, list[Row]]:
    """Make a topic in its second life, with nothing settled yet; its first life's entries are still there."""
    log.create_topic("again", 2)
    Maker(log.root.topic("again"), clock).write({0: 2, 1: 1})
    log.topic("again").delete()
    log.create_topic("again", 1)
    second = Maker(log.root.topic("again"), clock, made=100)
    second.write({0: 3})
    return {str(partition): rows for partition, rows in second.partitions.items()}


def make_objects(log: CommitLog, clock: ManualClock) -> dict[str, list[Row]]:
    """Make a topic as it lies where nothing can be appended: in segment objects that partitions share."""
    with mock.patch.object(FixedStorage, "can_append", False):
        log.create_topic("objects", 3, {**CONFIG, "file.delete.delay.ms": 60_000})
        maker = Maker(log.root.topic("objects"), clock, made=200)
        topic_id = maker.topic.newest()[1].topic_id
        for counts in ({0: 12, 1: 3}, {1: 5, 2: 2}, {0: 1, 2: 4}):
            maker.write(counts)
            clock.advance(1000)
            settle(maker.topic, topic_id)
        maker.write({1: 2})
    return {str(partition): rows for partition, rows in sorted(maker.partitions.items())}


def make_group(log: CommitLog) -> None:
    """Make a group whose name needs encoding, reset in one partition, with another that has no offset."""
    log.groups.commit("the groups/1", {"golden": {0: 40, 3: 2}, "again": {0: 1}}, metadata="\u20ac")
    log.groups.reset("the groups/1", {"golden": [3]}, to="earliest", dry_run=False)
    log.groups.commit("the groups/1", {"golden": {0: 41}})


def lose(log: CommitLog, maker: Maker) -> None:
    """Lose a chunk, and a frame in the middle of another, and void both."""
    log.topic("golden").alter({"inline.max.bytes": 0, "batch.size": 1024})
    _, now = maker.topic.newest()
    before = set(maker.topic.storage.names(maker.topic.paths(now.topic_id).staged))
    for counts in ({3: 2}, {3: 150}):
        maker.write(counts)
    whole, part = sorted(set(maker.topic.storage.names(maker.topic.paths(now.topic_id).staged)) - before)
    paths = maker.topic.paths(now.topic_id)
    maker.topic.storage.delete(paths.chunk(whole))
    second = 12 + int.from_bytes(maker.topic.storage.read(paths.chunk(part), 8, 4), "big")
    damaged = maker.topic.storage.open_append(paths.chunk(part))
    damaged.write_at(second + 200, [b"lost"])
    damaged.close()
    for each in log.topic("golden").void():
        rows = maker.partitions[each.partition]
        maker.partitions[each.partition] = [row for row in rows if not each.start <= row[0] < each.end]


def write_at_append_time(log: CommitLog, maker: Maker) -> None:
    """Commit records whose timestamp is the write task's clock."""
    log.topic("golden").alter({"message.timestamp.type": "LogAppendTime"})
    maker.write({1: 2})
    for row in maker.partitions[1][-2:]:
        row[3] = maker.clock.now_ms() * 1000


def leave_rubbish(maker: Maker) -> None:
    """Leave what a killed settler leaves: bytes beyond a published length, a segment that nobody names."""
    _, now = maker.topic.newest()
    _, settled = maker.topic.settled(now.topic_id)
    paths, active = maker.topic.paths(now.topic_id), settled.partitions[0].active
    torn = maker.topic.storage.open_append(paths.segment_file(0, active.stem, "log"))
    torn.write_at(active.length, [b"torn tail"])
    torn.close()
    maker.topic.storage.write_once(paths.segment_file(0, segment_stem(10**6), "log"), b"nobody names this")


# --- a rewritten segment, as compaction writes it ----------------------------------------------------------


def rewrite_first(maker: Maker, partition: int) -> None:
    """Thin the partition's first sealed segment out, and publish it under its new name."""
    topic, (_, now) = maker.topic, maker.topic.newest()
    base, before = topic.settled(now.topic_id)
    row = before.partitions[partition]
    first, *others = topic.sealed(before, partition)
    kept, gone = thinned(topic, now.topic_id, partition, first)
    maker.partitions[partition] = [r for r in maker.partitions[partition] if r[0] not in gone]
    name = manifest_name(partition, base.sequence + 1, topic.storage.new_id())
    table = [*kept, *others]
    data = to_json_bytes([sealed.to_json() for sealed in table])
    topic.storage.write_once(f"{topic.paths(now.topic_id).manifests}/{name}", data)
    manifest = settle_state.Manifest(name, Checked.of(data), len(table), sum(sealed.length for sealed in table))
    rows = list(before.partitions)
    rows[partition] = settle_state.SettledPartition(row.end_offset, row.active, manifest, cleaned=first.end_offset)
    publish(topic, settle_state.SettleState(now.topic_id, before.through, before.oldest_unsettled, tuple(rows)))


def publish(topic: TopicLog, after: settle_state.SettleState) -> None:
    """Put a settle entry whose table lies in a side file."""

    def plan(_: Stored | None, slot: Slot) -> Draft[None]:
        rows = [row.to_json() for row in after.partitions]
        tables = side_tables.place_tables({"partitions": rows}, slot.sequence, slot.write_id)
        body = {"through": list(after.through), "oldestUnsettled": after.oldest_unsettled, **tables.body}
        return Draft("settle", after.topic_id, body, sides=tables.sides, result=None)

    with small_tables():
        topic.settle_journal(after.topic_id).append(plan)


def thinned(
    topic: TopicLog, topic_id: str, partition: int, old: settle_state.Sealed
) -> tuple[list[settle_state.Sealed], Ints]:
    """Write a segment anew: every second row of frame 1 left, frame 2 gone, then whole ones, the last gone.

    Returns:
        What takes its place, and which offsets are gone.
    """
    paths = topic.paths(topic_id)
    frames = list(walk(topic.storage, segment_span(paths, partition, old)))
    assert len(frames) >= 4, "the segment is too small to show every kind of gap"
    first, second, last = (np.arange(frames[n].base_offset, frames[n].next_offset) for n in (0, 1, -1))
    gone = np.concatenate((first[::2], second, last))
    config, now_ms = topic.config(topic.newest()[1]), topic.storage.clock.now_ms()
    rules = Rules.of(config, log_start=0, cleaned=old.end_offset, now_ms=now_ms)
    directory = SegmentDir(topic.storage, paths, partition)
    return rewrite(directory, [old], [gone], rules, number=1, latest_ms=-1), gone


def files(root: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def to_json(expected: dict[str, dict[str, list[Row]]]) -> str:
    """Return what is expected, one record a line."""
    topics = []
    for name, partitions in expected.items():
        told = [f'"{p}": [\n{_lines(rows)}\n]' for p, rows in partitions.items()]
        topics.append(f"{json.dumps(name)}: {{\n" + ",\n".join(told) + "\n}")
    return "{\n" + ",\n".join(topics) + "\n}\n"


def _lines(rows: Sequence[Row]) -> str:
    return ",\n".join(f"  {json.dumps(row)}" for row in rows)


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    EXPECTED.write_text(to_json(make(ROOT)))
    MADE_WITH.write_text(f"pyarrow {pa.__version__}\n")
    print(f"{len(files(ROOT))} files, {sum(map(len, files(ROOT).values()))} bytes in {ROOT}")
