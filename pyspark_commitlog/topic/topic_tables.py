"""Files that a topic's entries name: tables, manifests and footers, written once and cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from pyspark_commitlog.errors import CorruptionError, missing
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.format.schema.topic_schema import Column
from pyspark_commitlog.format.segment_object import TRAILER_BYTES, Footer, decode_footer
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.journal import Journal
from pyspark_commitlog.replication.leader.quorum_journal import unit_journal
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.os_errors import unreadable_is_damage
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE, share_out
from pyspark_commitlog.storage.shared.caches import Shelf
from pyspark_commitlog.topic.state.home import settle_journal, side_path
from pyspark_commitlog.topic.state.leaves import LEAF_SEGMENTS, Leaf
from pyspark_commitlog.topic.state.schema_state import parse_columns
from pyspark_commitlog.topic.state.settle_state import (
    Damage,
    Manifest,
    Sealed,
    SealedSegments,
    SettledPartition,
    SettleState,
    Shared,
    sealed_slice,
)
from pyspark_commitlog.topic.state.shapes import (
    Chunks,
    DamagedRows,
    Extents,
    LongManifest,
    SealedRows,
    SettledRows,
    WriterRows,
    check_extents,
    check_sealed,
    check_settled,
    check_topic_entry,
)
from pyspark_commitlog.topic.state.tail import Slices, Unreadable, slices_of
from pyspark_commitlog.topic.state.topic_state import (
    ChunkRef,
    Extent,
    Mark,
    TopicState,
    WriterRow,
    read_chunks,
    read_extents,
    read_writer_rows,
)
from pyspark_commitlog.topic.topic_files import TopicFiles

#: Footers by root, path (with a uuid) and CRC, process-wide.
_footers: Shelf[tuple[str, str, int], Footer] = Shelf()
#: Columns of schemas in side files by root, path (with a uuid) and CRC, process-wide.
_columns: Shelf[tuple[str, str, str], tuple[Column, ...]] = Shelf()
#: Estimated memory of a parsed table per byte of its JSON.
_PARSED = 6
#: Estimated bytes of JSON per segment's row.
_ROW_BYTES = 100


#: Key of a cached file.
_Table = str | Manifest | Shared | Leaf


class TopicTables:
    """Journals of a topic, and the files that their entries name. Not thread-safe."""

    def __init__(self, storage: Storage, name: str, *, decided: bool = False) -> None:
        self.storage, self._decided = storage, decided
        self.name = paths.check_topic_name(name)
        self._side = partial(side_path, name)  # no method: journals would hold their handle, and it them, as a cycle
        unit = Unit(paths.journal(name), "topic", self._side, TopicFiles(storage, name))
        self.journal = unit_journal(storage, unit, check_topic_entry, decided=decided)
        self._settles: dict[str, Journal] = {}
        self._tables: Shelf[_Table, Mapping[str, WriterRow] | SealedSegments | Footer | list[list[Any]]] = Shelf()

    # --- logical -----------------------------------------------------------------------------------------

    def extents(self, entry: Entry) -> tuple[Extent, ...]:
        """Return an entry's extents; none unless it is an append."""
        return read_extents(self.extent_rows(entry))

    def extent_rows(self, entry: Entry) -> Sequence[Sequence[int]]:
        """Return an entry's extents as checked rows."""
        rows: Sequence[Sequence[int]] = self._table(entry, "extents", Extents)
        if rows:
            chunks, partitions = len(self._table(entry, "chunks", Chunks)), len(entry.body["state"]["logEnd"])
            check_extents(rows, chunks, partitions, f"entry {entry.sequence} of {self.name!r}")
        return rows

    def chunks(self, entry: Entry) -> tuple[ChunkRef, ...]:
        """Chunks that an entry names."""
        return read_chunks(self._table(entry, "chunks", Chunks))

    def _table(self, entry: Entry, kind: str, shape: Any) -> Any:
        table = entry.body.get(kind, ())
        return self._side_table(self.journal, entry.topic_id, table, shape) if isinstance(table, dict) else table

    def _side_table(self, journal: Journal, topic_id: str, named: Json, shape: Any) -> Any:
        return checked_json(journal.side(topic_id, named), shape, self._side(topic_id, named["file"]))

    def writer(self, state: TopicState, writer_id: str) -> WriterRow | None:
        """Writer id's row, if remembered."""
        row = state.writers.rows.get(writer_id) or self.snapshot(state).get(writer_id)
        return None if row is None or row.is_forgotten else row

    def snapshot(self, state: TopicState) -> Mapping[str, WriterRow]:
        """Snapshot of the writers' table."""
        named = state.writers.snapshot
        if named is None:
            return {}
        writer_rows = self._tables.get(named["file"])
        if writer_rows is None:
            writer_rows = read_writer_rows(self._side_table(self.journal, state.topic_id, named, WriterRows))
            self._tables.put(named["file"], writer_rows, named["length"] * _PARSED)
        return cast(Mapping[str, WriterRow], writer_rows)

    def columns(self, topic_id: str, named: Json) -> tuple[Column, ...]:
        """Columns of a schema in a side file, cached process-wide.

        Raises:
            CorruptionError: it is damaged, or missing.
        """
        path = self._side(topic_id, named["file"])
        columns = _columns.get((self.storage.url, path, named["crc"]))
        if columns is None:
            try:
                columns = parse_columns(self.journal.side(topic_id, named), path)
            except FileNotFoundError as error:
                raise missing(error) from error
            _columns.put((self.storage.url, path, named["crc"]), columns, named["length"] * _PARSED)
        return columns

    # --- physical ----------------------------------------------------------------------------------------

    def paths(self, topic_id: str) -> TopicPaths:
        """Paths of one incarnation of the topic."""
        return TopicPaths(self.name, topic_id)

    def settle_journal(self, topic_id: str) -> Journal:
        """Settle journal of one incarnation of the topic."""
        if topic_id not in self._settles:
            self._settles = {topic_id: settle_journal(self.storage, self.paths(topic_id))}
        return self._settles[topic_id]

    def _leaves_of(self, settle: SettleState, other: SettleState) -> set[str]:
        same = {row.manifest for row in other.partitions}
        manifests = (row.manifest for row in settle.partitions if row.manifest not in same)
        return {leaf.name for manifest in manifests for leaf in self.leaves(settle.topic_id, manifest)}

    def settle_state(self, entry: Entry) -> SettleState:
        """Parse a settle entry's state."""

        def table(kind: str, shape: Any) -> Any:
            rows = entry.body.get(kind, ())
            if isinstance(rows, dict):
                rows = self._side_table(self.settle_journal(entry.topic_id), entry.topic_id, rows, shape)
            return rows

        rows = table("partitions", SettledRows)
        check_settled(rows, f"settle entry {entry.sequence} of topic {self.name!r}")
        sequence, write_id = entry.body["through"]
        body = entry.body
        return SettleState(
            topic_id=entry.topic_id,
            through=(sequence, write_id),
            oldest_unsettled=entry.body["oldestUnsettled"],
            partitions=tuple(SettledPartition.from_json(row) for row in rows),
            damaged=tuple(Damage(*row) for row in table("damaged", DamagedRows)),
            ahead=body.get("othersUnsettled"),
            tail=tuple(map(Shared.from_json, body.get("tail", ()))),
            files_floor=body.get("filesFloor", 0),
            marks=tuple(Mark(*mark) for mark in body.get("marks", ())),
            drops=tuple(body.get("drops", ())),
        )

    # --- sealed segments ---------------------------------------------------------------------------------

    def sealed(self, settle: SettleState, partition: int, low: int = 0) -> tuple[Sealed, ...]:
        """Return a partition's sealed segments from `low` on, by base offset.

        Raises:
            FileNotFoundError: an object that may have such offsets is collected: read the newest settle entry again.
        """
        slices = self._slices(settle, partition)
        slices.check(low)
        return tuple(Sealed.from_json(segment) for segment in (*self._own_rows(settle, partition), *slices.rows))

    def sealed_before_gap(
        self, settle: SettleState, partition: int, low: int
    ) -> tuple[tuple[Sealed, ...], Unreadable | None]:
        """Sealed segments before the first gap above `low`, and its error.

        Raises as `sealed`, of the manifest.
        """
        slices = self._slices(settle, partition)
        gap = slices.gap_above(low)
        every = (Sealed.from_json(segment) for segment in (*self._own_rows(settle, partition), *slices.rows))
        if gap is None:
            return tuple(every), None
        return tuple(segment for segment in every if segment.end_offset <= gap.start), gap.why

    def _own_rows(self, settle: SettleState, partition: int) -> list[list[Any]]:
        manifest = settle.partition(partition).manifest
        return [] if manifest is None else self._rows(settle.topic_id, manifest)

    def leaves(self, topic_id: str, manifest: Manifest | None) -> tuple[Leaf, ...]:
        """Return a manifest's leaves; none of a short one. Raises as `sealed`."""
        if manifest is None or manifest.segments <= LEAF_SEGMENTS:
            return ()
        return self._manifest_parts(topic_id, manifest)[0]

    def segments(self, settle: SettleState, partition: int, low: int = 0) -> SealedSegments:
        """Return a partition's sealed segments for look-ups; raises as `sealed`.

        Cached by manifest: written once, under a uuid, and the key includes its CRC.
        """
        slices = self._slices(settle, partition)
        slices.check(low)
        return self.own_segments(settle, partition).followed_by(slices.rows)

    def holding(self, settle: SettleState, partition: int, offset: int) -> Sealed | None:
        """Last sealed segment from at most `offset`; raises as `sealed`.

        The tail is read only if no own segment has the offset.
        """
        found = self.own_segments(settle, partition).holding(offset)
        if found is not None and offset < found.end_offset:
            return found
        slices = self._slices(settle, partition)
        slices.check_offset(offset)
        return SealedSegments.of(slices.rows).holding(offset) or found

    def own_segments(self, settle: SettleState, partition: int) -> SealedSegments:
        """Return a partition's own sealed segments, without the tail."""
        manifest = settle.partition(partition).manifest
        if manifest is None:
            return SealedSegments((), ())
        segments = self._tables.get(manifest)
        if segments is None:
            rows = self._rows(settle.topic_id, manifest)
            segments = SealedSegments.of(rows)
            self._tables.put(manifest, segments, manifest.segments * _ROW_BYTES * _PARSED)
        return cast(SealedSegments, segments)

    def footer(self, topic_id: str, shared: Shared) -> Footer:
        """Return an object's footer, cached process-wide. Raises as `sealed`."""
        footer = self._known_footer(topic_id, shared)
        if footer is None:
            path = self.paths(topic_id).object(shared.name)
            start = shared.size_bytes - TRAILER_BYTES - shared.footer.length
            data = self.storage.read(path, start, shared.footer.length)
            footer = decode_footer(shared.footer.check(data, path), path)
            _footers.put((self.storage.url, path, shared.footer.crc), footer, shared.footer.length * _PARSED)
        return footer

    def _known_footer(self, topic_id: str, shared: Shared) -> Footer | None:
        return _footers.get((self.storage.url, self.paths(topic_id).object(shared.name), shared.footer.crc))

    def footer_or_fault(self, topic_id: str, shared: Shared) -> Footer | Unreadable:
        """Return an object's footer, or the error of reading it."""
        try:
            with unreadable_is_damage(self.storage, self.paths(topic_id).object(shared.name)):
                return self.footer(topic_id, shared)
        except (FileNotFoundError, CorruptionError) as error:
            return error

    def _tail(self, settle: SettleState) -> list[tuple[Shared, Footer | Unreadable]]:
        found: list[Footer | Unreadable | None] = [
            self._known_footer(settle.topic_id, shared) for shared in settle.tail
        ]

        def look(at: int) -> None:
            found[at] = self.footer_or_fault(settle.topic_id, settle.tail[at])

        share_out(look, [at for at, known in enumerate(found) if known is None], REQUESTS_AT_ONCE)  # each is a request
        return [(shared, each) for shared, each in zip(settle.tail, found, strict=True) if each is not None]

    def slice_in(self, topic_id: str, shared: Shared, partition: int) -> Sealed | None:
        """Return a partition's segment in an object, if any."""
        piece = self.footer(topic_id, shared).of(partition)
        return None if piece is None else sealed_slice(shared.name, *piece)

    def _slices(self, settle: SettleState, partition: int) -> Slices:
        tail, start = self._tail(settle), 0
        if not all(isinstance(found, Footer) for _, found in tail):
            start = self.own_segments(settle, partition).end_offset
        return slices_of(partition, tail, start, settle.partition(partition).active.base_offset)

    def _rows(self, topic_id: str, manifest: Manifest) -> list[list[Any]]:
        leaves, last = self._manifest_parts(topic_id, manifest)
        rows = [row for leaf in leaves for row in self._leaf(topic_id, leaf)] + last
        path = f"{self.paths(topic_id).manifests}/{manifest.name}"
        check_sealed(rows, path)
        if len(rows) != manifest.segments:
            raise CorruptionError(f"{path}: {len(rows)} segments, expected {manifest.segments}; restore the file")
        return rows

    def _manifest_parts(self, topic_id: str, manifest: Manifest) -> tuple[tuple[Leaf, ...], list[list[Any]]]:
        path = f"{self.paths(topic_id).manifests}/{manifest.name}"
        data = manifest.checked.check(self.storage.read(path, 0, manifest.checked.at_most), path)
        if manifest.segments <= LEAF_SEGMENTS:
            return (), checked_json(data, SealedRows, path)
        parts = checked_json(data, LongManifest, path)
        return tuple(map(Leaf.from_json, parts["leaves"])), parts["segments"]

    def _leaf(self, topic_id: str, leaf: Leaf) -> list[list[Any]]:
        rows = self._tables.get(leaf)
        if rows is None:
            path = f"{self.paths(topic_id).manifests}/{leaf.name}"
            data = leaf.checked.check(self.storage.read(path, 0, leaf.checked.at_most), path)
            rows = checked_json(data, SealedRows, path)
            self._tables.put(leaf, rows, leaf.checked.length * _PARSED)
        return cast(list[list[Any]], rows)
