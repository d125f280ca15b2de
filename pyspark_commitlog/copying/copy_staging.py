"""Stage a copy: chunks with the source's records, each noted when whole.

A note (`copied/<chunk>.json`) has a chunk's offsets and their history, for a copy that is begun again. Notes are
checked hints: without them the records are read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from pyspark_commitlog.copying.copy_frames import FrameMaker
from pyspark_commitlog.copying.decision import Piece, chained
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.entry import check_seal, seal
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.format.paths import TopicPaths, chunk_id, chunk_name
from pyspark_commitlog.format.shape import Id, Marks, Shape, Whole, check as check_shape, decode as decode_json
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.storage import OutputFile, Storage
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.segments.encoding import most_frame_bytes
from pyspark_commitlog.topic.state.shapes import Chunk
from pyspark_commitlog.topic.state.topic_state import ChunkRef, Extent, TopicState, chunks_to_json, read_chunks
from pyspark_commitlog.topic.topic_log import TopicLog

#: Bytes of a chunk before it is closed and noted.
CHUNK_BYTES = 64 * 2**20
_NOTE_BYTES = 2**20
_Extent = Annotated[tuple[Whole, Whole, Whole, Whole, Whole], Meta()]


class _Note(Shape):
    """Shape of a note; rows of `Extent`: partition, position, length, rows, base."""

    topic_id: Id
    sequence: Whole
    lineage: Marks
    chunk: Chunk
    extents: Annotated[tuple[_Extent, ...], Meta(max_length=100_000)]


def note_path(paths: TopicPaths, chunk: str) -> str:
    """Path of a chunk's note."""
    return f"{paths.copied}/{chunk.removesuffix('.chunk')}.json"


@dataclass
class ChunkWriter:
    """Writes frames to chunks, partition by partition: a `CopyFrameSink`."""

    storage: Storage
    paths: TopicPaths
    sequence: int
    lineage: Lineage
    pieces: list[Piece] = field(default_factory=list)
    _output: OutputFile | None = None
    _name: str = ""
    _position: int = 0
    _partition: int = 0
    _extents: list[Extent] = field(default_factory=list)

    def begin(self, partition: int) -> None:
        """Begin another partition."""
        self._partition = partition

    def chunk_for(self, offset: int) -> tuple[str, int]:
        """Return a frame's chunk id, and its extent's base offset."""
        if self._output is None:
            self._name = chunk_name(self.sequence, self.storage.new_id())
            self._output, self._position, self._extents = self.storage.create(self.paths.chunk(self._name)), 0, []
        if not self._extents or self._extents[-1].partition != self._partition:
            self._extents.append(Extent(0, self._partition, self._position, 0, 0, offset))
        return chunk_id(self._name), self._extents[-1].base_offset

    def add(self, data: bytes, offset: int, covered: int) -> None:
        """Append a frame that covers `covered` offsets."""
        assert self._output is not None
        self._output.write(data)
        self._position += len(data)
        last = self._extents[-1]
        self._extents[-1] = Extent(0, last.partition, last.position, last.length + len(data), last.rows + covered,
                                   last.base_offset)  # fmt: skip
        if self._position >= CHUNK_BYTES:
            self.close(noted=True)

    def close(self, *, noted: bool) -> None:
        """Make the chunk durable; `noted` if more comes before the commit."""
        if self._output is None:
            return
        chunk = ChunkRef(self._name, *self._output.close())
        self._output = None
        self.pieces += [Piece(chunk, extent) for extent in self._extents]
        if noted:
            note = {
                "topicId": self.paths.topic_id,
                "sequence": self.lineage.sequence,
                "lineage": self.lineage.marks,
                "chunk": chunks_to_json([chunk])[0],
                "extents": [extent.to_json()[1:] for extent in self._extents],
            }
            self.storage.write_once(note_path(self.paths, chunk.name), seal(note))

    def discard(self) -> None:
        """Discard the open chunk."""
        if self._output is not None:
            self._output.discard()


def noted_pieces(storage: Storage, paths: TopicPaths, source: TopicState) -> dict[int, dict[int, Piece]]:
    """Return an interrupted copy's pieces: partition -> base offset -> piece.

    Chunks that are gone are left out.
    """
    found: dict[int, dict[int, Piece]] = defaultdict(dict)
    for name in storage.names(paths.copied):
        path = f"{paths.copied}/{name}"
        try:
            data = storage.read(path, 0, _NOTE_BYTES)
            note = decode_json(check_seal(data, path) + b"}", dict[str, object], path)
            shaped = check_shape(note, _Note, path)
            chunk = read_chunks([note["chunk"]])[0]
            info = storage.info(paths.chunk(chunk.name))
            whole = info.size == chunk.length
        except (FileNotFoundError, CorruptionError):
            continue
        seen = Lineage(shaped.sequence, shaped.lineage)
        if not whole or shaped.topic_id != paths.topic_id or compare(seen, source.lineage) is Verdict.PARTED:
            continue
        for row in shaped.extents:
            extent = Extent(0, *row)
            found[extent.partition].setdefault(extent.base_offset, Piece(chunk, extent, info.modified_ms))
    return found


def remove_notes(storage: Storage, paths: TopicPaths) -> None:
    """Remove all notes, after the commit."""
    for name in storage.names(paths.copied):
        storage.delete(f"{paths.copied}/{name}")


@dataclass(frozen=True, slots=True)
class Stage:
    """Staging of the source's records from `start` on.

    `progress` gets the number of offsets staged; `latest_ms` returns a partition's largest timestamp at the
    destination.
    """

    source: TopicLog
    state: TopicState
    destination: TopicLog
    start: Sequence[int]
    sequence: int
    progress: Callable[[int], None]
    latest_ms: Callable[[int], int]

    def run(self, known: Mapping[int, Mapping[int, Piece]], partitions: Collection[int] | None = None) -> list[Piece]:
        """Stage what `known` lacks; return all pieces, by partition and offset.

        `partitions`: only these, all noted, as another process commits.

        Raises:
            OffsetOutOfRangeError: retention was faster; look at the source again.
            CorruptionError: the source is damaged.
        """
        storage, paths = self.destination.storage, self.destination.paths(self.state.topic_id)
        writer = ChunkWriter(storage, paths, self.sequence, self.state.lineage)
        pieces: list[Piece] = []
        with call_on_error(writer.discard):
            for partition, end in enumerate(self.state.log_end):
                if partitions is not None and partition not in partitions:
                    continue
                there = chained(self.start[partition], end, known.get(partition, {}))
                pieces += there
                position = there[-1].extent.end_offset if there else self.start[partition]
                if position < end:
                    writer.begin(partition)
                    self._partition(writer, partition, position, end)
            writer.close(noted=partitions is not None)
        return sorted([*pieces, *writer.pieces], key=lambda each: (each.extent.partition, each.extent.base_offset))

    def _partition(self, writer: ChunkWriter, partition: int, position: int, end: int) -> None:
        config = self.source.config(self.state)
        maker = FrameMaker(
            writer,
            self.state.topic_id,
            partition,
            position,
            most_frame_bytes(config.number("batch.size"), typed=self.state.schema is not None),
            config.codec(is_typed=self.state.schema is not None),
            lambda: self.latest_ms(partition),
        )
        first = max(position, self.state.log_start[partition])
        planned = self.state.lineage.position
        wanted = OffsetRange(self.source.name, self.state.topic_id, partition, first, end, planned)
        for rows in read_range(self.source, wanted):
            maker.take(rows)
            self.progress(maker.covered - position)
            position = maker.covered
        maker.finish(end)
        self.progress(end - position)
