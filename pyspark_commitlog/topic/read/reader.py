"""Reads of one partition, from segments and unsettled chunks.

Files are resolved at run time from the newest entries (R8), which alone are opened (R4); the logical journal is read
before the settle journal (R12). A file gone, short or damaged is an error only if the newest entries still name it.
Voids of an operator or unclean election are skipped with a warning, those of a clean election silently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError, LogTruncationError, OffsetOutOfRangeError
from pyspark_commitlog.format.columns import frame_rows, untyped
from pyspark_commitlog.format.columns.untyped import Ints
from pyspark_commitlog.format.frame import Payload
from pyspark_commitlog.format.index import lookup_offset, position_after
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.format.segment_object import INDEX
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.storage.shared.caches import Reported
from pyspark_commitlog.storage.shared.read_ahead import FileRange
from pyspark_commitlog.topic.divergence import find_divergence
from pyspark_commitlog.topic.read.filter.row_filter import FieldTests
from pyspark_commitlog.topic.read.filter.selected_rows import select
from pyspark_commitlog.topic.read.neighbours import neighbours_of
from pyspark_commitlog.topic.read.partition_entries import PartitionEntries
from pyspark_commitlog.topic.read.prefetcher import Prefetcher, RecordLocation
from pyspark_commitlog.topic.read.segment_indexes import part_of
from pyspark_commitlog.topic.read.unsettled import WAY_OUT, Entries, Source, overlaps, scan, span_of, void_at
from pyspark_commitlog.topic.segments.frames import Located, Span, check, segment_span, walk
from pyspark_commitlog.topic.state.lost_ranges import elected_away, gaps
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition
from pyspark_commitlog.topic.state.topic_state import Void
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.view import View, read_view

logger = logging.getLogger("pyspark_commitlog.topic")

#: Seconds to wait for an election that this root has not learned.
_PATIENCE_SECONDS = 10.0
_MAX_LOOKS = 20
_LOOK_SECONDS = 0.005
#: A slice of at most 1/2 of its frame's bytes is copied.
_MOST_KEPT = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive records of a partition.

    `batch` has the requested columns, None if none. `offsets` is None if they ascend by 1 from `first_offset`.
    """

    count: int
    first_offset: int
    offsets: Ints | None
    batch: pa.RecordBatch | None
    log_append_time: bool

    def offset_of(self, row: int) -> int:
        """Offset of a row."""
        return self.first_offset + row if self.offsets is None else int(self.offsets[row])


class PartitionReader:
    """Reader of ranges of one partition of an incarnation.

    Refuses a topic that was restored since the plan.

    Args:
        names: columns to decode; None: all.
        view: one that was read already.
        entries: unsettled entries shared by readers.
        planned: lineage position of the plan (`Lineage.position`), or empty.
        tests: rows to return; None: all.
    """

    def __init__(
        self,
        topic: TopicLog,
        topic_id: str,
        partition: int,
        names: Sequence[str] | None = None,
        view: View | None = None,
        entries: Entries | None = None,
        planned: str = "",
        tests: FieldTests | None = None,
    ) -> None:
        self._tests = tests
        self._topic, self._id, self._partition = topic, topic_id, partition
        self._names = None if names is None else tuple(names)
        self._paths = topic.paths(topic_id)
        self._view = read_view(topic, topic_id) if view is None else view
        self._warned = Reported()
        self._stored = entries or Entries(topic)
        self._entries = PartitionEntries(topic, topic_id, partition, self._stored)
        self._planned = Lineage.of_position(planned)
        self._check_history(self._planned)

    def read(self, start: int, end: int, *, careful: bool = False) -> Iterator[Rows]:
        """Yield the records with offsets in [start, end), in order.

        `careful`: the caller may stop early; limits read-ahead.

        Raises:
            OffsetOutOfRangeError: the range is not in [log start offset, high watermark).
            CorruptionError: stored bytes are damaged; nothing of that frame is returned.
            LogTruncationError: the topic was restored, or an unclean election lost planned records.
        """
        self._check_range(start, end)
        with closing(self._prefetch(start, end, careful=careful)) as prefetcher:
            yield from self._read(start, end, prefetcher)

    def _read(self, start: int, end: int, prefetcher: Prefetcher) -> Iterator[Rows]:
        position, failed, looks = start, "", 0
        while position < end:
            self._meet_lost(position, end)
            position, stop = self._pass_voids(position, end)
            if position == end:
                return
            span, before = self._resolve(position, stop, prefetcher), position
            self._meet_lost(position, end)  # the view may be new
            storage = self._topic.storage
            ahead = prefetcher.ahead or (None if failed else neighbours_of(storage, span))
            try:
                for located in walk(storage, span, ahead):
                    if located.next_offset > position:
                        yield from self._decode(located, span, position, stop)
                        position, looks = min(located.next_offset, stop), 0
                    if position == stop:
                        break
                if position == before:
                    raise CorruptionError(f"it ends before offset {position}")
            except (FileNotFoundError, CorruptionError) as error:
                place = f"{span.path} {span.start}"
                looks += 1
                given_up = place == failed or looks > _MAX_LOOKS
                if given_up and not self._topic.journal.await_election(_PATIENCE_SECONDS):
                    raise self._explained(error, span, position) from error
                failed = place
                prefetcher.fetch_again(position)
                self._look_again()

    def _pass_voids(self, offset: int, end: int) -> tuple[int, int]:
        """Next living offset, and the next void's start or `end`.

        Without replicas, settled voids are empty frames. With replicas, records may have been settled before they were
        voided.
        """
        voids, settled_end = self._view.topic.voids_of(self._partition), self._row().end_offset
        least = 0 if self._view.topic.is_replicated else settled_end
        while offset < end and offset >= least and (void := void_at(voids, offset)):
            if void.end > settled_end:
                self._tell(void)
            offset = min(void.end, end)
        stop = min((max(void.start, least) for void in voids if void.end > max(offset, least)), default=end)
        return offset, min(stop, end)

    def _tell(self, void: Void) -> None:
        if not self._warned.is_new(void):
            return
        state, where = self._view.topic, (self._topic.name, self._partition)
        if not state.is_replicated:
            what = f"offsets {void.start} to {void.end - 1} were lost, and voided by an operator"
            logger.warning("topic %r partition %d: %s: they are skipped", *where, what)
        for gap in gaps(state, self._partition, void.start, void.end):
            if not gap.by.by_election:
                logger.warning("topic %r partition %d: %s: they are skipped", *where, gap.description)

    @property
    def view(self) -> View:
        """Current view."""
        return self._view

    def follow(self, view: View) -> None:
        """Switch to a newer view and forget unneeded entries."""
        self._view = view
        self._entries.forget_below(view.settle.oldest_unsettled)

    def frame_at(self, offset: int) -> Located:
        """Frame of an offset, with only its header checked."""
        with closing(self._prefetch(offset, offset + 1, careful=True)) as prefetcher:
            for located in walk(self._topic.storage, self._resolve(offset, offset + 1, prefetcher), prefetcher.ahead):
                if located.next_offset > offset:
                    return located
        raise CorruptionError(f"topic {self._topic.name!r} partition {self._partition}: no frame holds offset {offset}")

    def _check_range(self, start: int, end: int) -> None:
        state = self._view.topic
        if self._partition >= state.partitions:
            raise OffsetOutOfRangeError(f"topic {self._topic.name!r} has no partition {self._partition}")
        low, high = state.log_start[self._partition], state.log_end[self._partition]
        if start < low or end > high:
            raise OffsetOutOfRangeError(
                f"topic {self._topic.name!r} partition {self._partition}: offsets {start} to {end} are out of "
                f"range: log start offset is {low} and high watermark {high}"
            )

    def _explained(self, error: Exception, span: Span, position: int) -> CorruptionError:
        what = "is missing" if isinstance(error, FileNotFoundError) else str(error)
        remedy = "restore it from a copy"
        if self._view.topic.is_replicated:
            remedy = f"`commitlog replicas repair {self._topic.storage.url}` fetches it from another root"
        return CorruptionError(
            f"topic {self._topic.name!r} partition {self._partition} offset {position}: {span.path} {what}. The newest "
            f"entries still name it: {remedy}"
        )

    def _look_again(self) -> None:
        self._entries.forget()
        seen, self._view = self._view.topic.lineage, read_view(self._topic, self._id)
        self._check_history(seen)

    def _check_history(self, seen: Lineage | None) -> None:
        other = find_divergence(self._topic, seen, self._view.topic)
        if other is not None:
            raise LogTruncationError(
                f"topic {self._topic.name!r} partition {self._partition}: {other.reason}. It happened while this was "
                "read: read it again"
            )

    def _meet_lost(self, start: int, end: int) -> None:
        """Warn once of losses by elections; refuse those after the plan."""
        for gap in elected_away(self._view.topic, self._partition, start, end):
            what = f"topic {self._topic.name!r} partition {self._partition}: {gap.description}"
            if self._planned is not None and gap.by.entry > self._planned.sequence:
                raise LogTruncationError(
                    f"{what}. It happened after offsets {start} to {end - 1} were planned: read them again"
                )
            if self._warned.is_new(gap):
                logger.warning("%s: they are skipped", what)

    # --- location of an offset ---------------------------------------------------------------------------

    def _prefetch(self, start: int, stop: int, *, careful: bool) -> Prefetcher:
        return Prefetcher(self._topic.storage, self._locate, start, stop, careful=careful)

    def _locate(self, offset: int, stop: int) -> RecordLocation | None:
        row = self._row()
        try:
            if offset < row.end_offset:
                segment, end = self._segment_at(row, offset)
                span, _ = self._span_from(segment, end, offset, stop)
                return RecordLocation(FileRange(span.path, span.start, span.until or span.end), min(end, stop))
        except (FileNotFoundError, CorruptionError):  # the reader meets it again
            return None
        return self._entries.locate(offset, stop)

    def _resolve(self, offset: int, stop: int, prefetcher: Prefetcher) -> Span:
        self._check_kept(offset)
        for look in range(_MAX_LOOKS):
            row = self._row()
            prefetcher.reach(offset, self._view)
            try:
                if offset < row.end_offset:
                    segment, end = self._segment_at(row, offset)
                    return replace(self._hinted(segment, end, offset, stop, prefetcher), end_offset=end)
                return self._extent_span(offset)
            except (FileNotFoundError, CorruptionError) as error:  # collected meanwhile: settled by now (rule R12)
                missing = error
                if look and isinstance(error, CorruptionError):
                    raise
                if look:
                    self._topic.storage.clock.sleep(_LOOK_SECONDS)
                prefetcher.fetch_again(offset)
                self._look_again()
                self._check_kept(offset)
        raise CorruptionError(
            f"topic {self._topic.name!r} partition {self._partition} offset {offset}: a journal entry or file that "
            f"should hold it is missing ({missing}); restore it from a copy"
        )

    def _check_kept(self, offset: int) -> None:
        low = self._view.topic.log_start[self._partition]
        if offset < low:
            raise OffsetOutOfRangeError(
                f"topic {self._topic.name!r} partition {self._partition}: offsets {offset} to {low - 1} were deleted "
                f"(retention or delete_records) while they were being read; the log start offset is {low}"
            )

    def _row(self) -> SettledPartition:
        return self._view.settle.partition(self._partition)

    def _sealed_at(self, offset: int) -> Sealed:
        segment = self._topic.holding(self._view.settle, self._partition, offset)
        if segment is None:  # the settle entry is newer than the logical one: retention came between (rule R12)
            raise FileNotFoundError(f"no segment holds offset {offset}")
        return segment

    def _segment_at(self, row: SettledPartition, offset: int) -> tuple[Active | Sealed, int]:
        if offset >= row.active.base_offset:
            return row.active, row.end_offset
        sealed = self._sealed_at(offset)
        return sealed, sealed.end_offset

    def _hinted(self, segment: Active | Sealed, end: int, offset: int, stop: int, prefetcher: Prefetcher) -> Span:
        """Span from the offset index's frame, which confirms it, else the whole segment.

        The span's end only limits the first fetch.
        """
        span, named = self._span_from(segment, end, offset, stop)
        if named is None:
            return span
        whole = replace(segment_span(self._paths, self._partition, segment), until=span.until)
        try:
            first = next(walk(self._topic.storage, span, prefetcher.ahead))
            check(first, span)
        except CorruptionError:
            return whole
        return span if first.frame.last_offset == named <= offset else whole

    def _span_from(self, segment: Active | Sealed, end: int, offset: int, stop: int) -> tuple[Span, int | None]:
        """Span from an offset's frame, and that frame's last offset.

        The index is a hint: without a match, the segment and None.
        """
        whole = segment_span(self._paths, self._partition, segment)
        if offset <= segment.base_offset and stop >= end:
            return whole, None
        try:
            index = part_of(self._topic.storage, self._paths, self._partition, segment, INDEX)
        except FileNotFoundError:
            return whole, None
        hint = lookup_offset(index, segment.base_offset, offset)
        until, length = position_after(index, segment.base_offset, stop - 1), whole.end - whole.start
        if until is not None and max(0, hint.position) < until < length:
            whole = replace(whole, until=whole.start + until)
        if not 0 < hint.position < length:
            return whole, None
        return replace(whole, start=whole.start + hint.position, base_offset=None), hint.offset

    def _extent_span(self, offset: int) -> Span:
        low = max(self._view.settle.oldest_unsettled, self._view.topic.created + 1)
        entry = self._entries.holding(offset, low, self._view.newest)
        if entry.head is None:
            raise CorruptionError(
                f"topic {self._topic.name!r} partition {self._partition} offset {offset}: {entry.why}. {WAY_OUT}"
            )
        at = entry.find_extent(offset)
        if at is None:
            raise FileNotFoundError(f"entry {entry.head.sequence} does not hold offset {offset}")
        extent = entry.extents[at]
        source = Source(entry.head, extent, extent.chunk_in(entry.chunks))
        span = span_of(self._topic, self._id, source, self._stored, extent.end_offset)
        voids = self._view.topic.voids_of(self._partition)
        if voids and overlaps(voids, extent.base_offset, extent.end_offset):
            span = self._behind_damage(source, span, offset)
        self._entries.assure_genuine(entry.head.sequence)
        return span

    def _behind_damage(self, source: Source, whole: Span, offset: int) -> Span:
        for fragment in scan(self._topic, self._id, source):
            if fragment.located is not None and fragment.end > offset:
                return replace(whole, start=fragment.located.position, base_offset=fragment.located.frame.base_offset)
            if fragment.end > offset:
                break
        return whole

    # --- rows --------------------------------------------------------------------------------------------

    def _decode(self, located: Located, span: Span, start: int, end: int) -> Iterator[Rows]:
        payload = check(located, span)
        if self._tests is not None:
            yield from self._decode_filtered(payload, located, start, end, self._tests)
            return
        append_time = located.frame.log_append_time
        base = located.base_offset
        if payload.identity.is_sparse:
            yield from self._decode_sparse(payload, located, start, end)
            return
        rows = located.frame.last_offset_delta + 1
        first, last = max(start - base, 0), min(end - base, rows)
        batch = None
        if self._names is None or self._names:
            batch = frame_rows.decode(payload, self._names)
            if batch.num_rows != rows:
                raise CorruptionError(
                    f"{span.path}: frame at offset {base} holds {batch.num_rows} rows, expected {rows}"
                )
            batch = self._copy_small(batch.slice(first, last - first), located)
        yield Rows(last - first, base + first, None, batch, append_time)

    def _copy_small(self, batch: pa.RecordBatch, located: Located) -> pa.RecordBatch:
        """Copy a small slice: a view would keep the whole block."""
        if self._topic.storage.can_append or batch.get_total_buffer_size() * _MOST_KEPT > located.frame.length:
            return batch
        return own_memory(batch)

    def _decode_sparse(self, payload: Payload, located: Located, start: int, end: int) -> Iterator[Rows]:
        names = None if self._names is None else (*self._names, untyped.OFFSET_DELTA)
        batch = frame_rows.decode(payload, names)
        base = located.base_offset
        offsets = untyped.deltas_of(batch, base, located.frame.last_offset_delta) + base
        first, last = (int(i) for i in np.searchsorted(offsets, (start, end)))
        if first < last:
            rows = batch.drop_columns([untyped.OFFSET_DELTA]).slice(first, last - first)
            kept = offsets[first:last]
            yield Rows(last - first, int(kept[0]), kept, rows, located.frame.log_append_time)

    def _decode_filtered(
        self, payload: Payload, located: Located, start: int, end: int, tests: FieldTests
    ) -> Iterator[Rows]:
        selected = select(payload, located.frame, located.base_offset, start, end, tests)
        if selected is None:
            return
        batch = None
        if self._names is None or self._names:
            batch = frame_rows.decode(payload, self._names, selected.kept)
            if untyped.OFFSET_DELTA in batch.schema.names:
                batch = batch.drop_columns([untyped.OFFSET_DELTA])
        offsets, count = selected.offsets, len(selected.offsets)
        first, is_dense = int(offsets[0]), int(offsets[-1] - offsets[0]) == count - 1
        yield Rows(count, first, None if is_dense else offsets, batch, located.frame.log_append_time)


def own_memory(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch, to keep nothing of its source."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def read_range(
    topic: TopicLog, wanted: OffsetRange, names: Sequence[str] | None = None, tests: FieldTests | None = None
) -> Iterator[Rows]:
    """Yield the records of a range; see `PartitionReader.read`."""
    if wanted.start < wanted.end:
        reader = PartitionReader(topic, wanted.topic_id, wanted.partition, names, planned=wanted.planned, tests=tests)
        yield from reader.read(wanted.start, wanted.end)
