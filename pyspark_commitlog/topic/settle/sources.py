"""Frames of segment objects for a merge, read forward in windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError, missing
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.read.unsettled import Unsettled
from pyspark_commitlog.topic.segments.frames import Span, check_whole, segment_span, walk
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared, sealed_slice
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Bytes of a window, and of all windows.
_WINDOW_BYTES = 4 * 2**20
_WINDOWS_BYTES = 64 * 2**20


class DamagedError(Exception):
    """Damaged or missing sources: names of tail objects, or a partition."""

    def __init__(self, parts: tuple[str | int, ...], error: CorruptionError | FileNotFoundError) -> None:
        super().__init__(parts, error)
        self.parts, self.error = parts, error

    def is_damage(self, before: SettleState, now: SettleState) -> bool:
        """Whether it is a loss, not a collected file (rule R8; pure)."""
        names = {shared.name for shared in now.tail}
        return isinstance(self.error, CorruptionError) or all(
            part in names if isinstance(part, str) else now.partition(part).manifest == before.partition(part).manifest
            for part in self.parts
        )


@contextmanager
def damage_of(*parts: str | int) -> Iterator[None]:
    """Attribute damage to these parts, see `DamagedError`."""
    try:
        yield
    except (CorruptionError, FileNotFoundError) as error:
        raise DamagedError(parts, error) from error


class Sources:
    """Tail objects to merge, without slices below the log start.

    `state` must be read after the settle state, so that its log starts are not below those of earlier merges.

    Raises:
        DamagedError: an object is collected, or its footer damaged.
        CorruptionError: offsets are missing.
    """

    def __init__(self, topic: TopicLog, state: TopicState, objects: Sequence[Shared]) -> None:
        self._storage, self._paths = topic.storage, topic.paths(state.topic_id)
        window = min(_WINDOW_BYTES, _WINDOWS_BYTES // max(1, len(objects)))
        self._files = {
            shared.name: _Forward(self._storage, self._paths.object(shared.name), shared.size_bytes, window)
            for shared in objects
        }
        pieces: dict[int, list[Sealed]] = {}
        for shared in objects:
            with damage_of(shared.name):
                footer = topic.footer(state.topic_id, shared)
            for position, piece in footer.positioned():
                if piece.end_offset > state.log_start[piece.partition]:
                    pieces.setdefault(piece.partition, []).append(sealed_slice(shared.name, position, piece))
        for partition, neighbours in pieces.items():
            _check_neighbours(neighbours, f"topic {topic.name!r} partition {partition}")
        #: Partition, ascending -> its slices by offset.
        self.partitions = dict(sorted(pieces.items()))

    def frames(self, partition: int, piece: Sealed) -> Iterator[Unsettled]:
        """Yield a slice's checked frames; ask in the objects' order.

        Raises:
            DamagedError: the object is collected, or a frame damaged.
        """
        assert piece.place is not None
        with damage_of(piece.place.object):
            span = segment_span(self._paths, partition, piece)
            data = self._files[piece.place.object].read(span.start, piece.length)
            if data is not None:
                path = f"{span.path} from {span.start}"
                span = replace(span, path=path, start=0, end=piece.length, data=data)
            yield from read_frames(self._storage, span, piece)


def read_frames(storage: Storage, span: Span, piece: Sealed) -> Iterator[Unsettled]:
    """Yield a piece's checked frames.

    Raises:
        FileNotFoundError: the file is collected.
        CorruptionError: a frame is damaged.
    """
    offset = piece.base_offset
    for located in walk(storage, span):
        payload, decoded = check_whole(located, span)
        offset = located.next_offset
        yield Unsettled(located.frame, payload, located.base_offset, decoded, located.frame.leader_epoch)
    if offset != piece.end_offset:
        raise CorruptionError(f"{span.path} ends at offset {offset}, {piece.end_offset} was published")


def _check_neighbours(pieces: Sequence[Sealed], where: str) -> None:
    for before, piece in pairwise(pieces):
        if before.end_offset != piece.base_offset:
            raise CorruptionError(
                f"{where}: offsets from {before.end_offset} to {piece.base_offset} are in no segment: not merged"
            )


def settled_with_tail(topic: TopicLog, topic_id: str) -> tuple[SettleState, dict[int, list[int]]]:
    """Newest settle state, and the tail's slice sizes per partition.

    Raises:
        CorruptionError: a footer is damaged, or a named object missing.
    """
    while True:
        _, settled = topic.settled(topic_id)
        sizes: dict[int, list[int]] = {}
        try:
            for shared in settled.tail:
                for piece in topic.footer(topic_id, shared).slices:
                    sizes.setdefault(piece.partition, []).append(piece.parts[0].length)
        except FileNotFoundError as error:
            if topic.settled(topic_id)[1] == settled:
                raise missing(error) from error
            continue
        return settled, sizes


class _Forward:
    def __init__(self, storage: Storage, path: str, size_bytes: int, window_bytes: int) -> None:
        self._storage, self._path, self._size, self._window = storage, path, size_bytes, window_bytes
        self._start, self._held = 0, pa.py_buffer(b"")

    def read(self, start: int, length: int) -> pa.Buffer | None:
        if length > self._window:
            return None
        if not self._start <= start <= start + length <= self._start + self._held.size:
            self._held = pa.py_buffer(b"")
            self._held = self._storage.map(self._path, start, min(self._window, self._size - start))
            self._start = start
        at = start - self._start
        return self._held.slice(at, min(length, self._held.size - at))
