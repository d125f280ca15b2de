"""Staging: from a write task's records to frames in chunks, or inline.

Memory is bounded: pending rows by `BUFFER_BYTES`, finished frames by `PIECE_BYTES` (without append `LONG_PIECE_BYTES`);
then they go to the chunk, which may have several extents of a partition. It gets its name once whole and synced.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import frame
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.paths import TopicPaths, chunk_name
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.storage import OutputFile, Storage
from pyspark_commitlog.topic.segments.encoding import encode_frame, most_frame_bytes
from pyspark_commitlog.topic.state.topic_state import ChunkRef, TopicState
from pyspark_commitlog.topic.write.checksum import added
from pyspark_commitlog.topic.write.partitioner import Assigner
from pyspark_commitlog.topic.write.records import Records, TopicLimits, UntypedRows, narrowed

#: Bytes of batches that pending rows may keep alive.
BUFFER_BYTES = 48 * 2**20
#: Rows per partition, or bytes, gathered before distribution: a slice of few rows takes more memory than they do.
SLICE_ROWS = 256
GATHER_BYTES = 8 * 2**20
#: Bytes of finished frames per write; longer if each extent is a request, as a partition's frames are then contiguous.
PIECE_BYTES = 8 * 2**20
LONG_PIECE_BYTES = 4 * PIECE_BYTES
#: Total over the topics of a task: less than for one, as each holds a frame under way besides.
HELD_BYTES = 32 * 2**20
#: Bytes of a batch besides its rows; most of it if many topics share Spark's batches.
BATCH_BYTES = 4096
#: Frames that another thread may lag by, and least bytes of rows worth handing over.
FRAMES_ASIDE = 4
ASIDE_BYTES = 2**18
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class StagedExtent:
    """Extent without a base offset, which the commit assigns."""

    partition: int
    position: int
    length: int
    rows: int


@dataclass(frozen=True, slots=True)
class Staged:
    """One task's chunk for one topic, or inline frames. Picklable.

    `keyless`: some records have no key; `old`: number older than `retention.ms`; `schema_at`: lineage position of the
    entry whose columns a typed topic's records have.
    """

    topic: str
    topic_id: str
    extents: tuple[StagedExtent, ...]
    chunk: ChunkRef | None = None
    inline: bytes = b""
    keyless: bool = False
    checksum: int | None = None
    old: int = 0
    schema_at: str | None = None

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(extent.rows for extent in self.extents)


@dataclass(frozen=True, slots=True)
class RowPlacement:
    """Partition and timestamp (µs, UTC) of each row of a batch."""

    partitions: Ints
    timestamps: pa.Array


@dataclass
class _Pending:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0

    def take(self) -> pa.RecordBatch:
        batch = _joined(self.batches)
        self.batches, self.bytes = [], 0
        return batch


Encode = Callable[[], frame.Pieces]


class RowChecks(Protocol):
    """Checks of a topic's records, typed or not."""

    def check_columns(self, schema: pa.Schema) -> None:
        """Check the names and types of a writer's columns."""

    def prepare(self, batch: pa.RecordBatch, now_ms: int) -> Records:
        """Return the checked rows of a batch."""

    def checksum(self, records: Records) -> int:
        """Checksum of checked records."""


def row_checks(schema: TopicSchema | None, limits: TopicLimits, began: int = 0) -> RowChecks:
    """Return the checks of a topic's records; `began`: version of the schema when the writer began."""
    if schema is None:
        return UntypedRows(limits)
    from pyspark_commitlog.topic.write.typed_records import TypedRows

    return TypedRows(limits.topic, schema, limits, began)


class Stager:
    """Collector of one write task's records for one topic.

    Args:
        storage, paths, state, config: the topic as the task read it.
        sequence: the newest entry then, for the chunk's name (R1).
        durable: False only with acks=0 (R5); ignored without append.
        aside: encodes a frame in another thread.
        summed: compute the checksum that a `Transaction` needs (R6).
        create: makes the chunk (`TopicLog.creates_chunks`).
        began: version of a typed topic's schema when the writer began.
    """

    def __init__(
        self,
        storage: Storage,
        paths: TopicPaths,
        state: TopicState,
        sequence: int,
        partitioner: Assigner,
        config: TopicConfig,
        *,
        durable: bool = True,
        aside: Callable[[Encode], Encode] | None = None,
        summed: bool = True,
        codec: str | None = None,
        create: Callable[[str], OutputFile] | None = None,
        began: int = 0,
    ) -> None:
        self._create = create or storage.create
        self._checksum = 0 if summed else None
        self._durable, self._aside = durable or not storage.can_append, aside
        self._storage, self._paths, self._sequence = storage, paths, sequence
        self._piece_bytes = PIECE_BYTES if storage.can_append else LONG_PIECE_BYTES
        self._partitioner = partitioner
        self._limits = TopicLimits.of(paths.name, state.partitions, config)
        self._checks = row_checks(state.schema, self._limits, began)
        self._is_typed = state.schema is not None
        self._schema_at = state.lineage.position if self._is_typed else None
        self._frame_bytes = most_frame_bytes(config.number("batch.size"), typed=self._is_typed)
        self._codec = config.codec(codec, is_typed=state.schema is not None)
        self._inline_bytes = config.number("inline.max.bytes")
        self._gathered: list[tuple[pa.RecordBatch, Ints]] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._enough_rows = state.partitions * SLICE_ROWS
        self._pending: dict[int, _Pending] = defaultdict(_Pending)
        self._pinned = self._slices = 0
        self._encoding: deque[tuple[int, int, Encode]] = deque()  # partition, bytes of the rows, result
        self._finished: dict[int, list[frame.Pieces]] = defaultdict(list)
        self._finished_bytes = 0
        self._rows: dict[int, int] = defaultdict(int)
        self._chunk_id = storage.new_id()
        self._output: OutputFile | None = None
        self._extents: list[StagedExtent] = []
        self._position = 0
        self._keyless, self._old = False, 0
        self._retention_ms = config.number("retention.ms") if config.has_policy("delete") else -1
        self._checked: pa.Schema | None = None

    def add(self, batch: pa.RecordBatch) -> RowPlacement:
        """Add a batch (columns: see `records.check_columns`).

        Raises:
            InvalidRecordError: nothing of this batch was added.
        """
        records = self.checked(batch)
        placed = RowPlacement(self._choose(records), frame_rows.timestamps(records.batch))
        if batch.num_rows == 0:
            return placed
        if self._checksum is not None:
            self._checksum = added(self._checksum, self._checks.checksum(records))
        self._keyless = self._keyless or records.keys.null_count > 0
        if self._retention_ms >= 0:
            oldest = self._storage.clock.now_ms() - self._retention_ms
            stamps = untyped.instants(placed.timestamps)  # retention ignores those not above 0
            self._old += int(np.count_nonzero((stamps < oldest * _US_PER_MS) & (stamps > 0)))
        size = records.batch.nbytes
        if self._gathered_bytes + size > untyped.TOGETHER_BYTES:
            self._distribute()
        self._gathered.append((records.batch, placed.partitions))
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += size
        if self._gathered_rows >= self._enough_rows or self._gathered_bytes >= GATHER_BYTES:
            self._distribute()
        return placed

    def checked(self, batch: pa.RecordBatch) -> Records:
        """Check a batch without adding it."""
        if batch.schema != self._checked:  # a new object in every batch
            self._checks.check_columns(batch.schema)
            self._checked = batch.schema
        return self._checks.prepare(batch, self._storage.clock.now_ms())

    def _choose(self, records: Records) -> Ints:
        return self._partitioner.assign(records.keys, records.partition, records.sizes)

    def _distribute(self) -> None:
        if not self._gathered:
            return
        batches, chosen = zip(*self._gathered, strict=True)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        batch = _joined(batches)
        self._pinned += batch.nbytes
        for partition, rows in _split(batch, np.concatenate(chosen)):
            self._hold(partition, rows)
        if self._pinned > BUFFER_BYTES:
            self._flush_all()
        if not self._slices:  # all encoded: nothing keeps those batches alive
            self._pinned = 0

    def _hold(self, partition: int, rows: pa.RecordBatch) -> None:
        pending = self._pending[partition]
        size = rows.nbytes
        if pending.bytes + size > untyped.TOGETHER_BYTES:
            self._flush(partition)
        pending.batches.append(rows)
        pending.bytes += size
        self._slices += 1
        if pending.bytes >= self._frame_bytes:
            self._flush(partition)

    def _flush(self, partition: int) -> None:
        pending = self._pending[partition]
        if not pending.batches:
            return
        size = pending.bytes
        self._slices -= len(pending.batches)
        batch = pending.take()
        pieces = max(1, round(size / self._frame_bytes), -(-batch.num_rows // frame.MAX_ROWS))
        step = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, step):
            for piece in untyped.bounded(batch.slice(start, step), untyped.most_decoded(self._frame_bytes)):
                self._encode(partition, piece)

    def _flush_all(self) -> None:
        """Encode all pending rows: one slice would keep its whole batch alive."""
        for partition in sorted(self._pending):
            self._flush(partition)
        self._pinned = 0

    def _encode(self, partition: int, batch: pa.RecordBatch) -> None:
        encode: Encode = partial(
            encode_frame,
            batch,
            codec=self._codec,
            topic_id=self._paths.topic_id,
            partition=partition,
            log_append_time=self._limits.log_append_time,
            base_offset=self._rows[partition],
            chunk=self._chunk_id,
        )
        size = batch.nbytes
        if self._aside is not None and size >= ASIDE_BYTES:
            encode = self._aside(encode)
        self._encoding.append((partition, size, encode))
        self._finished_bytes += size
        self._rows[partition] += batch.num_rows
        self._collect(FRAMES_ASIDE if self._aside is not None else 0)
        if self._finished_bytes >= self._piece_bytes:
            self._write_piece()

    def _collect(self, left: int) -> None:
        while len(self._encoding) > left:
            partition, size, encode = self._encoding.popleft()
            data = encode()
            self._finished[partition].append(data)
            self._finished_bytes += data.size - size

    @property
    def takes_instants(self) -> bool:
        """Whether a column `timestamp` is the records', as given."""
        return not (self._is_typed or self._limits.log_append_time)

    @property
    def held(self) -> int:
        """Approximate bytes held, besides the chunk."""
        batches = len(self._gathered) + self._slices
        return self._gathered_bytes + self._pinned + self._finished_bytes + batches * BATCH_BYTES

    def let_go(self) -> None:
        """Write everything held to the chunk, in short frames if needed."""
        self._distribute()
        self._flush_all()
        self._write_piece()

    def finish(self) -> Staged | None:
        """Stage the rest; return the commit's input, None without records."""
        self._distribute()
        self._flush_all()
        self._collect(0)
        if self._output is None and self._finished_bytes <= self._inline_bytes:
            inline = b"".join(self._take_frames())
            return self._staged(None, inline) if inline else None
        self._write_piece()
        assert self._output is not None
        length, crc = self._output.close(durable=self._durable)
        return self._staged(ChunkRef(self._chunk_name(), length, crc))

    def discard(self) -> None:
        """Discard everything; harmless after `finish`."""
        if self._output is not None:
            self._output.discard()

    def _write_piece(self) -> None:
        self._collect(0)
        if self._output is None:
            self._output = self._create(self._paths.chunk(self._chunk_name()))
        self._output.write(*self._take_frames())

    def _chunk_name(self) -> str:
        return chunk_name(self._sequence, self._chunk_id)

    def _take_frames(self) -> list[bytes | pa.Buffer]:
        taken: list[bytes | pa.Buffer] = []
        for partition in sorted(self._finished):
            frames = self._finished[partition]
            length = sum(each.size for each in frames)
            self._extents.append(StagedExtent(partition, self._position, length, self._rows[partition]))
            self._position += length
            for each in frames:
                taken += each.to_write()
        self._finished.clear()
        self._finished_bytes = 0
        self._rows.clear()
        return taken

    def _staged(self, chunk: ChunkRef | None, inline: bytes = b"") -> Staged:
        extents = tuple(self._extents)
        return Staged(self._paths.name, self._paths.topic_id, extents, chunk, inline, self._keyless, self._checksum,
                      self._old, self._schema_at)  # fmt: skip


class TopicStagers:
    """Collector of one write task's records; topics share about `HELD_BYTES`."""

    def __init__(self, begin: Callable[[str], Stager]) -> None:
        self._begin = begin
        self._stagers: dict[str, Stager] = {}
        self._held = 0

    def of(self, name: str) -> Stager:
        """Return a topic's stager, begun at the first call."""
        stager = self._stagers.get(name)
        if stager is None:
            stager = self._stagers[name] = self._begin(name)
        return stager

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add a batch; raises as `Stager.add`."""
        stager = self.of(name)
        self._held -= stager.held
        stager.add(batch)
        self._held += stager.held
        while self._held > HELD_BYTES and len(self._stagers) > 1:
            largest = max(self._stagers.values(), key=lambda each: each.held)
            self._held -= largest.held
            largest.let_go()

    def finish(self) -> tuple[Staged, ...]:
        """Stage the rest; return each topic's commit input, by name."""
        finished = [self._stagers[name].finish() for name in sorted(self._stagers)]
        return tuple(staged for staged in finished if staged is not None)

    def discard(self) -> None:
        """Discard everything; harmless after `finish`."""
        with ExitStack() as stack:
            for stager in self._stagers.values():
                stack.callback(stager.discard)


def _split(batch: pa.RecordBatch, chosen: Ints) -> Iterator[tuple[int, pa.RecordBatch]]:
    counts = np.bincount(chosen)
    used = np.flatnonzero(counts)
    if len(used) == 1:
        yield int(used[0]), batch
        return
    narrow = chosen.astype(np.uint16) if len(counts) <= 2**16 else chosen  # 16 bits sort by radix
    batch = batch.take(pa.array(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(counts)
    for partition in used.tolist():
        count = int(counts[partition])
        yield partition, batch.slice(int(ends[partition]) - count, count)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split_topics(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (topic, its rows in order); a null topic is `''`."""
    encoded = narrowed("topic", batch.column("topic"), pa.string(), "(topic column)").dictionary_encode()
    rest = batch.drop_columns(["topic"])
    indices = pc.fill_null(encoded.indices, -1)
    codes: Ints = indices.to_numpy()
    for code in np.unique(codes).tolist():
        name = "" if code < 0 else encoded.dictionary[code].as_py()
        yield name, rest.filter(pa.array(codes == code))
