"""Appending to a partition's active segment, by a settler under its lock.

Nothing below a published length changes; a torn tail beyond it is cut off, and unsound indexes rebuilt, first. Writes
count once a settle entry publishes the new lengths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.frame import HEADER_BYTES
from pyspark_commitlog.format.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexState,
    RollLimits,
    usable_bytes,
)
from pyspark_commitlog.format.paths import TopicPaths, manifest_name, parse_segment
from pyspark_commitlog.storage import AppendFile, Storage
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.growing import GrowingSegment, Stamped
from pyspark_commitlog.topic.segments.indexes import mended
from pyspark_commitlog.topic.state.leaves import Leaf, manifest_bytes, plan_manifest
from pyspark_commitlog.topic.state.settle_state import Active, Manifest, Sealed, SettledPartition, latest_of

_WRITE_BYTES = 4 * 2**20


class _Files:
    def __init__(
        self,
        storage: Storage,
        paths: TopicPaths,
        partition: int,
        active: Active,
        interval_bytes: int,
        index_bytes: int,
        log_bytes: int,
    ) -> None:
        self.growing = GrowingSegment(active, interval_bytes)
        self._crc = active.crc
        self._clock = storage.clock
        self._open: dict[str, AppendFile] = {}
        self._gathered: list[bytes | pa.Buffer] = []
        self._gathered_bytes = 0
        self._published = active
        names = {s: paths.segment_file(partition, active.stem, s) for s in ("log", "index", "timeindex")}
        _check_published(storage, names["log"], active)
        with call_on_error(self.close):
            for suffix, path in names.items():
                self._open[suffix] = storage.open_append(path)
            self._prepare_log(storage, names["log"], log_bytes)
            self._prepare_indexes(index_bytes)

    def _prepare_log(self, storage: Storage, path: str, log_bytes: int) -> None:
        """Cut off unpublished bytes, and reserve `log_bytes` (`preallocate`; 0 for none).

        An unused reservation stays, rather than being freed and requested by every run. Bytes of a tail that
        power loss tore may stay, too, until they are overwritten or cut at the roll.
        """
        log, end = self._open["log"], self._published.length
        if not log_bytes or any(storage.read(path, end, HEADER_BYTES)):  # a frame's head is not all zeros
            log.truncate(end)
        if log_bytes:
            log.reserve(log_bytes)

    def _prepare_indexes(self, index_bytes: int) -> None:
        """Cut off unpublished entries; preallocate zeros, as Kafka does."""
        at = self._published.index
        for suffix, used, entry in (
            ("index", at.offset_bytes, OFFSET_ENTRY_BYTES),
            ("timeindex", at.time_bytes, TIME_ENTRY_BYTES),
        ):
            self._open[suffix].truncate(used)
            self._open[suffix].truncate(max(used, usable_bytes(index_bytes, entry)))

    @property
    def active(self) -> Active:
        return self.growing.active(self._crc, self._published.rewrite)

    def add(self, frame: Stamped) -> None:
        is_first = not self.growing.length
        self.growing.append(frame)
        if is_first:
            self.growing.roll_from(self._clock.now_ms())
        for piece in frame.pieces:
            self._crc = crc32c(piece, self._crc)
        self._gathered += frame.pieces
        self._gathered_bytes += frame.length
        if self._gathered_bytes >= _WRITE_BYTES:
            self._write_log()

    def _write_log(self) -> None:
        self._open["log"].write_at(self.growing.length - self._gathered_bytes, self._gathered)
        self._gathered, self._gathered_bytes = [], 0

    def flush(self, *, sync_indexes: bool) -> None:
        """Write everything; sync the log (rule R5), and indexes on request."""
        self._write_log()
        at = self._published.index
        self._open["index"].write_at(at.offset_bytes, [bytes(self.growing.offsets)])
        self._open["timeindex"].write_at(at.time_bytes, [bytes(self.growing.times)])
        for suffix in ("log", "index", "timeindex") if sync_indexes else ("log",):  # in Kafka's order
            self._open[suffix].sync()

    def seal(self, end_offset: int) -> Sealed:
        self.growing.seal()
        state = self.growing.index
        self._write_log()
        self._open["log"].truncate(state.position)
        self.flush(sync_indexes=False)
        for suffix, used in (("index", state.offset_bytes), ("timeindex", state.time_bytes)):
            self._open[suffix].truncate(used)
            self._open[suffix].sync()
        self.close()
        return self.growing.sealed(end_offset, self._crc, self._published.rewrite)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open = {}


def _check_published(storage: Storage, path: str, active: Active) -> None:
    if active.length == 0:
        return
    try:
        size = storage.info(path).size
    except FileNotFoundError:
        size = 0
    if size < active.length:
        raise CorruptionError(
            f"{path} has {size} bytes, {active.length} were published; nothing was written: restore it from a copy"
        )


def roll_limits(config: TopicConfig, topic_id: str, partition: int, base_offset: int) -> RollLimits:
    """Return a segment's roll limits (pure; Kafka: `LogConfig.randomSegmentJitter`).

    The jitter is in [0, min(segment.jitter.ms, segment.ms)), derived from the segment's name: every settle run reopens
    the segment, in any process, and all must agree.
    """
    segment_ms = config.max_segment_ms
    most = min(config.number("segment.jitter.ms"), segment_ms)
    drawn = hashlib.sha256(f"{topic_id}/{partition}/{base_offset}".encode()).digest()
    jitter_ms = int.from_bytes(drawn[:8]) % most if most else 0
    return RollLimits(config.number("segment.bytes"), segment_ms, config.number("segment.index.bytes"), jitter_ms)


def flush_due(config: TopicConfig, offsets: tuple[int, int], times_ms: tuple[int, int]) -> bool:
    """Whether a run crosses a multiple of flush.messages or flush.ms (pure).

    Kafka (`LogConfig`, `UnifiedLog.flush`) counts from the last flush; multiples need no memory. Pairs are before and
    after: the partition's next offset, storage time of the base settle entry and now.
    """
    return _crosses(config.number("flush.messages"), *offsets) or _crosses(config.number("flush.ms"), *times_ms)


def _crosses(every: int, before: int, after: int) -> bool:
    return every == 0 or after // every > before // every


class SegmentWriter:
    """Writer of one partition's segmented log, with append.

    `sealed` and `leaves` read its sealed segments and manifest.
    """

    def __init__(
        self,
        storage: Storage,
        paths: TopicPaths,
        partition: int,
        row: SettledPartition,
        sealed: Callable[[], Sequence[Sealed]],
        config: TopicConfig,
        leaves: Callable[[], Sequence[Leaf]] = tuple,
    ) -> None:
        self._storage, self._paths, self._partition = storage, paths, partition
        self._leaves_before = leaves
        self._row = row
        self._sealed_before = sealed
        self._sealed: list[Sealed] = []
        self._index_bytes = config.number("segment.index.bytes")
        self._log_bytes = config.number("segment.bytes") if config.flag("preallocate") else 0
        self._interval = config.number("index.interval.bytes")
        self._config = config
        self._next = row.end_offset
        storage.make_directory(paths.partition(partition))
        self._remove_unpublished()
        #: Whether the active segment's indexes were rebuilt.
        self.rebuilt = False
        self._files = self._open(self._sound(row.active))

    def _remove_unpublished(self) -> None:
        directory = self._paths.partition(self._partition)
        for name in self._storage.names(directory):
            parsed = parse_segment(name)
            if parsed is not None and parsed[0] > self._row.active.base_offset:
                self._storage.delete(f"{directory}/{name}")

    def _sound(self, active: Active) -> Active:
        directory = SegmentDir(self._storage, self._paths, self._partition)
        rebuilt = mended(directory, active, self._next, self._interval)
        self.rebuilt = rebuilt is not None
        if isinstance(rebuilt, Sealed):
            self._sealed.append(rebuilt)
            return Active(IndexState(self._next))
        return rebuilt or active

    def _open(self, active: Active) -> _Files:
        self._limits = roll_limits(self._config, self._paths.topic_id, self._partition, active.base_offset)
        return _Files(
            self._storage, self._paths, self._partition, active, self._interval, self._index_bytes, self._log_bytes
        )

    def latest_timestamp(self) -> int:
        """Last nonempty segment's largest timestamp; -1 if none."""
        if self._files.growing.length:
            return self._files.growing.index.max_timestamp
        return latest_of(self._sealed or self._sealed_before())

    def append(self, frame: Stamped) -> None:
        """Append a frame, rolling first if due."""
        if frame.base_offset != self._next:
            raise CorruptionError(
                f"{self._paths.partition(self._partition)}: frame at offset {frame.base_offset}, expected {self._next}"
            )
        if self._files.growing.is_full(frame, self._limits, self._storage.clock.now_ms()):
            self._roll()
        self._files.add(frame)
        self._next = frame.last_offset + 1

    def _roll(self) -> None:
        self._sealed.append(self._files.seal(self._next))
        self._files = self._open(Active(IndexState(self._next)))

    def finish(self, settle_sequence: int, *, published_ms: int) -> SettledPartition:
        """Make everything durable; return the row for settle entry `settle_sequence`.

        `published_ms`: storage time of the entry before.
        """
        now_ms = self._storage.clock.now_ms()
        due = flush_due(self._config, (self._row.end_offset, self._next), (published_ms, now_ms))
        self._files.flush(sync_indexes=due)
        self._files.close()
        # A settler whose directory sync failed may have made the first segment's files; later files are always new.
        fresh = self._row.active.length == 0
        self._storage.sync_directory(self._paths.partition(self._partition), fresh=fresh)
        manifest = self._row.manifest
        if self._sealed:
            sealed = [*self._sealed_before(), *self._sealed]
            leaves = self._leaves_before()
            manifest = write_manifest(self._storage, self._paths, self._partition, settle_sequence, sealed, leaves)
        return replace(self._row, end_offset=self._next, active=self._files.active, manifest=manifest)

    def close(self) -> None:
        """Close without publishing."""
        self._files.close()


def write_manifest(
    storage: Storage,
    paths: TopicPaths,
    partition: int,
    settle_sequence: int,
    sealed: Sequence[Sealed],
    before: Sequence[Leaf] = (),
) -> Manifest:
    """Write a partition's manifest for a settle entry; return its reference.

    Unchanged leaves of `before` are reused.
    """

    def write(data: bytes) -> str:
        name = manifest_name(partition, settle_sequence, storage.new_id())
        storage.write_once(f"{paths.manifests}/{name}", data)
        return name

    parts = plan_manifest(sealed, before)
    leaves = [leaf if isinstance(leaf, Leaf) else leaf.to_leaf(write(leaf.data)) for leaf in parts.leaves]
    data = manifest_bytes(leaves, parts.last)
    return Manifest(write(data), Checked.of(data), len(sealed), sum(segment.length for segment in sealed))
