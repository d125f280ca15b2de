"""Topics whose segments did not come about by appending records alone: compacted, voided, preallocated.

Only here these tests meet the project's code. Each function makes a topic of one partition below a root, and puts
copies of what its newest settle entry names into a directory, under the names that Kafka knows.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow as pa

from pyspark_commitlog.format.columns import typed as columns, untyped
from pyspark_commitlog.format.frame import SPARSE
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.damage.dump import Row, dump
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_state import Active, Sealed
from pyspark_commitlog.topic.write.commit import Committed
from tests.kafka.frames import Frame
from tests.support.objects import ObjectWorld
from tests.support.records import append, batch_of, read_partition
from tests.support.typed import DECLARED, rows as typed_rows, write as write_typed
from tests.support.world import CHUNKS, World

SEGMENT_BYTES = 16_384
INDEX_INTERVAL_BYTES = 5_000  # some frames get index entries, others none
HOUR_MS = 3_600_000
FIRST_MS = 1_600_000_000_000
_CONFIG = {
    **CHUNKS,
    "segment.bytes": SEGMENT_BYTES,
    "index.interval.bytes": INDEX_INTERVAL_BYTES,
    "batch.size": 2_048,
    "compression.type": "none",
}
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "delete.retention.ms": HOUR_MS}
_ROWS = 8
_PAD = [("pad", b"x" * 150)]
_LOST = 70_000  # more offsets than one frame without rows covers when voided


@dataclass(frozen=True, slots=True)
class Scene:
    """A topic: its root, its partition's files under Kafka's names, and how long the active `.log` is published."""

    world: World
    name: str
    directory: Path
    active_bytes: int

    def our_dump(self, log: Path) -> list[Row]:
        """Return what our own `dump` says of a `.log` in the directory."""
        return list(dump(LocalStorage(log.parent), log.name))

    def our_offsets_for_times(self, times_ms: Iterable[int]) -> list[int | None]:
        """Return for each timestamp the offset that our client finds."""
        log = self.world.log()
        found = (log.topic(self.name).offsets_for_times({0: at})[0] for at in times_ms)
        return [each and each.offset for each in found]


def rows_in(frame: Frame) -> int:
    """Return how many rows a frame has."""
    headers, value = dict(frame.record.headers), pa.py_buffer(frame.record.value)
    if "columns" in headers:
        return columns.decode(value, headers["columns"]).num_rows
    return untyped.decode(value, sparse=headers["kind"] == SPARSE).num_rows


def compacted(home: Path) -> Scene:
    """Compact twice: tombstones, rows gone from frames, all rows of a segment gone, and the last of one.

    The second round supersedes all records of one segment and the last ones of another, with others between them.
    """
    return _compacted(home, "compacted").scene()


def _compacted(home: Path, name: str) -> _Topic:
    topic = _Topic(home, name, **_COMPACT)
    for number in range(70):
        keys = [b"often %d" % (number % 3), *(b"%d %d" % (number, row) for row in range(1, _ROWS))]
        topic.write(keys, [None if number % 10 == 9 and row == 3 else b"first" for row in range(_ROWS)])
        topic.settle()
    topic.world.maintain(topic.name)
    whole, last = topic.segments()[1], topic.segments()[3]
    ends = [segment.end_offset for segment in (whole, last) if isinstance(segment, Sealed)]
    for start, end in zip((whole.base_offset, ends[1] - 4 * _ROWS), ends, strict=True):
        for record in read_partition(topic.log, 0, start, end):
            topic.write([record.key or b""] * _ROWS, [b"second"] * _ROWS)
    topic.write([b"other"] * 100, [b"third"] * 100)  # seals what is before
    topic.settle()
    topic.world.maintain(topic.name)
    return topic


def voided(home: Path) -> Scene:
    """Lose and void the first chunk, the last, and some between, one of these with a great many offsets."""
    topic = _Topic(home, "voided")
    for number in range(60):
        rows = _LOST if number == 35 else _ROWS
        chunk = topic.write([b"key"] * rows, [b""] * rows)
        if number in (0, 6, 15, 35, 59):
            chunk.unlink()
    topic.world.log().topic(topic.name).void()
    topic.settle()
    return topic.scene()


def preallocated(home: Path) -> Scene:
    """Write to segments whose disk is reserved ahead, each in many settle runs."""
    topic = _Topic(home, "preallocated", preallocate=True)
    for number in range(30):
        topic.write([b"%d" % number] * _ROWS, [b"value"] * _ROWS)
        topic.settle()
    return topic.scene()


def copied(home: Path) -> Scene:
    """Copy a compacted topic to storage without append, and from there to a local root."""
    source = _compacted(home / "source", "copied")
    bucket = ObjectWorld(home / "bucket", source.world.clock)
    there = World(home / "root", source.world.clock)
    source.world.log().copy_to(bucket.log())
    bucket.log().copy_to(there.log())
    return _Topic(home, source.name, there).scene()


def typed(home: Path) -> Scene:
    """Write declared columns, frame by frame and joined, and void some."""
    topic = _Topic(home, "typed", declared=DECLARED, **{"retention.ms": -1})
    for number in range(60):
        chunk = topic.write_columns(number * _ROWS)
        if number in (6, 30):
            chunk.unlink()
            topic.world.log().topic(topic.name).void()
        elif number % 4:
            topic.settle()
    topic.settle()
    return topic.scene()


MAKE: dict[str, Callable[[Path], Scene]] = {
    "typed": typed,
    "compacted": compacted,
    "voided": voided,
    "preallocated": preallocated,
    "copied": copied,
}


class _Topic:
    """A topic of one partition that is being written, below `home`."""

    def __init__(
        self,
        home: Path,
        name: str,
        there: World | None = None,
        declared: Mapping[str, object] | None = None,
        **config: object,
    ) -> None:
        self.name, self._home = name, home
        self.world = there or World(home / "root")
        if there is None:
            self.log = self.world.create(config={**_CONFIG, **config}, name=name, **(declared or {}))
        else:
            self.log = there.handle(name=name)
        self._some, self._now_ms = random.Random(name), FIRST_MS

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Path:
        """Commit records in one chunk; return its path. Timestamps sometimes go back."""
        self._now_ms += 1000
        times = [(self._now_ms + self._some.randrange(5000)) * 1000 for _ in keys]
        return self._chunk_of(append(self.log, batch_of(values, key=keys, timestamp=times, headers=[_PAD] * len(keys))))

    def write_columns(self, start: int) -> Path:
        """Commit rows of declared columns in one chunk; return its path."""
        return self._chunk_of(write_typed(self.log, *typed_rows(start, start + _ROWS, size=150)))

    def _chunk_of(self, done: Committed) -> Path:
        (chunk,) = self.log.chunks(self.log.journal.read(done.sequence or 0).entry)
        return self.world.path / self._paths().chunk(chunk.name)

    def settle(self) -> None:
        """Settle all that is committed."""
        settle(self.log, self._paths().topic_id)

    def segments(self) -> list[Sealed | Active]:
        """Return the segments that the newest settle entry names; the active one is the last."""
        row = self.log.settled(self._paths().topic_id)[1].partition(0)
        return [*self.log.sealed(self.log.settled(self._paths().topic_id)[1], 0), row.active]

    def scene(self) -> Scene:
        """Return the topic as it is now."""
        directory = self._home / "files"
        directory.mkdir()
        for segment, suffix in product(self.segments(), ("log", "index", "timeindex")):
            file = self.world.path / self._paths().segment_file(0, segment.stem, suffix)
            shutil.copy(file, directory / f"{segment.base_offset:020d}.{suffix}")
        return Scene(self.world, self.name, directory, self.segments()[-1].length)

    def _paths(self) -> TopicPaths:
        return self.log.paths(self.log.newest()[1].topic_id)
