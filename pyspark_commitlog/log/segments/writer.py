"""Append frames to a partition's active segment, keep its sparse indexes, roll it. Only a settler does, under its lock.

Nothing below a published length is touched. What lies beyond it (a torn tail) is cut off first. Nothing written here
counts before the settle entry that names the new lengths is put. Indexes that do not agree with what is published are
rebuilt first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from awscrt.checksums import crc32c

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CorruptionError
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
from pyspark_commitlog.log.leaves import Leaf, manifest_bytes, plan_manifest
from pyspark_commitlog.log.segments.directory import SegmentDir
from pyspark_commitlog.log.segments.growing import GrowingSegment, Stamped
from pyspark_commitlog.log.segments.indexes import mended
from pyspark_commitlog.log.settle_state import Active, Manifest, Sealed, SettledPartition, latest_of
from pyspark_commitlog.storage import AppendFile, Storage

_WRITE_BYTES = 4 * 2**20


class _Files:
    """The open files of the active segment, with writes gathered."""

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
        try:
            for suffix, path in names.items():
                self._open[suffix] = storage.open_append(path)
            self._prepare_log(storage, names["log"], log_bytes)
            self._prepare_indexes(index_bytes)
        except BaseException:
            self.close()
            raise

    def _prepare_log(self, storage: Storage, path: str, log_bytes: int) -> None:
        """Cut off what is not published, and reserve ``log_bytes`` (``preallocate``; 0 for none).

        A reservation in which nothing was written stays, or every run would give it back and ask for it again. (Of a
        torn tail power loss may keep the end only: that stays too, until it is written over or the roll cuts it off.)
        """
        log, end = self._open["log"], self._published.length
        if not log_bytes or any(storage.read(path, end, HEADER_BYTES)):  # a frame's head is not all zeros
            log.truncate(end)
        if log_bytes:
            log.reserve(log_bytes)

    def _prepare_indexes(self, index_bytes: int) -> None:
        """Cut off what is not published; preallocate with zeros, as Kafka does."""
        at = self._published.index
        for suffix, used, entry in (
            ("index", at.offset_bytes, OFFSET_ENTRY_BYTES),
            ("timeindex", at.time_bytes, TIME_ENTRY_BYTES),
        ):
            self._open[suffix].truncate(used)
            self._open[suffix].truncate(max(used, usable_bytes(index_bytes, entry)))

    @property
    def active(self) -> Active:
        """Return the segment as it is to be published."""
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
        """Write all that is gathered; sync the log (rule R5), and the indexes, which are hints, only if asked to."""
        self._write_log()
        at = self._published.index
        self._open["index"].write_at(at.offset_bytes, [bytes(self.growing.offsets)])
        self._open["timeindex"].write_at(at.time_bytes, [bytes(self.growing.times)])
        for suffix in ("log", "index", "timeindex") if sync_indexes else ("log",):  # in Kafka's order
            self._open[suffix].sync()

    def seal(self, end_offset: int) -> Sealed:
        """Write the forced last time-index entry, trim all three files, sync them."""
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
    """Refuse to append to a log that lost published bytes."""
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
    """Return when a segment rolls (pure; Kafka: ``LogConfig.randomSegmentJitter``).

    The jitter lies in [0, min(segment.jitter.ms, segment.ms)). Kafka draws it when it opens a segment; here every
    settle run opens it again, in any process, so it is drawn from the segment's name: all agree on it.
    """
    segment_ms = config.max_segment_ms
    most = min(config.number("segment.jitter.ms"), segment_ms)
    drawn = hashlib.sha256(f"{topic_id}/{partition}/{base_offset}".encode()).digest()
    jitter_ms = int.from_bytes(drawn[:8]) % most if most else 0
    return RollLimits(config.number("segment.bytes"), segment_ms, config.number("segment.index.bytes"), jitter_ms)


def flush_due(config: TopicConfig, offsets: tuple[int, int], times_ms: tuple[int, int]) -> bool:
    """Return whether a run syncs the active indexes, too: it crosses a multiple of flush.messages or flush.ms (pure).

    Kafka (``LogConfig``, ``UnifiedLog.flush``) counts what was appended since the last flush; with multiples there is
    nothing to remember between runs.

    Args:
        config: of the topic.
        offsets: the partition's next offset before and after the run.
        times_ms: when the settle entry built upon was stored, and now.
    """
    return _crosses(config.number("flush.messages"), *offsets) or _crosses(config.number("flush.ms"), *times_ms)


def _crosses(every: int, before: int, after: int) -> bool:
    return every == 0 or after // every > before // every


class SegmentWriter:
    """Appends to one partition's segmented log and says what to publish.

    Args:
        storage: the root; it must be able to append.
        paths, partition: whose segments.
        row: the partition as published.
        sealed: reads its sealed segments; asked only when the segment rolls.
        config: of the topic.
        leaves: reads the leaves of its manifest; asked only then, too.
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
        #: Whether the indexes of the active segment had to be rebuilt.
        self.rebuilt = False
        self._files = self._open(self._sound(row.active))

    def _remove_unpublished(self) -> None:
        """Remove segments that an interrupted settler rolled to: the published active one is the last."""
        directory = self._paths.partition(self._partition)
        for name in self._storage.names(directory):
            parsed = parse_segment(name)
            if parsed is not None and parsed[0] > self._row.active.base_offset:
                self._storage.delete(f"{directory}/{name}")

    def _sound(self, active: Active) -> Active:
        """Return the segment to append to, its indexes in order; another one when rebuilding them sealed it."""
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
        """Return the largest timestamp of the last segment that has frames; -1 where there is none."""
        if self._files.growing.length:
            return self._files.growing.index.max_timestamp
        return latest_of(self._sealed or self._sealed_before())

    def append(self, frame: Stamped) -> None:
        """Append a frame, in a new segment when a roll is due.

        Raises:
            CorruptionError: the frame does not continue the log.
        """
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
        """Make all durable and return the partition's row for the settle entry ``settle_sequence``.

        Args:
            settle_sequence: the number of the entry that will publish it.
            published_ms: when the entry before was stored.
        """
        now_ms = self._storage.clock.now_ms()
        due = flush_due(self._config, (self._row.end_offset, self._next), (published_ms, now_ms))
        self._files.flush(sync_indexes=due)
        self._files.close()
        # Of a first segment the name may be a settler's whose sync failed; later ones were removed, and made again.
        fresh = self._row.active.length == 0
        self._storage.sync_directory(self._paths.partition(self._partition), fresh=fresh)
        manifest = self._row.manifest
        if self._sealed:
            sealed = [*self._sealed_before(), *self._sealed]
            leaves = self._leaves_before()
            manifest = write_manifest(self._storage, self._paths, self._partition, settle_sequence, sealed, leaves)
        return replace(self._row, end_offset=self._next, active=self._files.active, manifest=manifest)

    def close(self) -> None:
        """Give up without publishing."""
        self._files.close()


def write_manifest(
    storage: Storage,
    paths: TopicPaths,
    partition: int,
    settle_sequence: int,
    sealed: Sequence[Sealed],
    before: Sequence[Leaf] = (),
) -> Manifest:
    """Write a partition's sealed segments for the settle entry ``settle_sequence``; return how it names them.

    Args:
        storage, paths, partition, settle_sequence: where, and for which entry.
        sealed: all of them, by base offset.
        before: the leaves of the manifest before: those that have not changed are named again.
    """

    def write(data: bytes) -> str:
        name = manifest_name(partition, settle_sequence, storage.new_id())
        storage.write_once(f"{paths.manifests}/{name}", data)
        return name

    parts = plan_manifest(sealed, before)
    leaves = [leaf if isinstance(leaf, Leaf) else leaf.to_leaf(write(leaf.data)) for leaf in parts.leaves]
    data = manifest_bytes(leaves, parts.last)
    return Manifest(write(data), Checked.of(data), len(sealed), sum(segment.length for segment in sealed))
