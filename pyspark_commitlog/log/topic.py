"""Handle on one topic: both journals and their newest states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pyspark_commitlog.anchor import FRESH_SECONDS
from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    ReplicaNotAvailableError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.format.segment_object import TRAILER_BYTES, Footer, decode_footer
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.log.frames import unreadable_is_damage
from pyspark_commitlog.log.home import settle_draft, settle_journal, side_path
from pyspark_commitlog.log.leaves import LEAF_SEGMENTS, Leaf
from pyspark_commitlog.log.replicated import TopicFiles
from pyspark_commitlog.log.settle_change import MARKS_A_RETENTION, Collecting, Operation, begun_at, published_after
from pyspark_commitlog.log.settle_state import (
    Damage,
    Manifest,
    Sealed,
    SealedSegments,
    SettledPartition,
    SettleState,
    Shared,
    sealed_slice,
)
from pyspark_commitlog.log.shapes import (
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
from pyspark_commitlog.log.state import (
    ChunkRef,
    Extent,
    Mark,
    TopicState,
    WriterRow,
    read_chunks,
    read_extents,
    read_writer_rows,
)
from pyspark_commitlog.log.tables import side_files
from pyspark_commitlog.log.tail import Slices, Unreadable, slices_of
from pyspark_commitlog.replicas.decided_journal import DecidedJournal
from pyspark_commitlog.replicas.journal import ReplicatedJournal
from pyspark_commitlog.replicas.replica_staging import StagedOutput
from pyspark_commitlog.replicas.unit import Unit
from pyspark_commitlog.storage import Holder, OutputFile, Storage
from pyspark_commitlog.storage.caches import Shelf
from pyspark_commitlog.storage.process import REQUESTS_AT_ONCE, share_out
from pyspark_commitlog.text import did_you_mean, similar_names

#: Estimated bytes of a handle in caches: the parsed newest entries.
HANDLE_BYTES = 2**15
#: Footers by root, path (with a uuid) and CRC, process-wide.
_footers: Shelf[tuple[str, str, int], Footer] = Shelf()
#: Estimated memory of a parsed table per byte of its JSON.
_PARSED = 6
#: Seconds for which a writer trusts its view of the settle journal and defaults if a look is a request, like Kafka's
#: `metadata.max.age.ms`.
RECENT_SECONDS = 300.0
#: Estimated bytes of JSON per segment's row.
_ROW_BYTES = 100


#: Key of a cached file.
_Table = str | Manifest | Shared | Leaf


def check_partition(topic: str, state: TopicState, partition: int) -> None:
    """Refuse a partition that a topic does not have.

    Raises:
        UsageError: names the valid range.
    """
    if not 0 <= partition < state.partitions:
        raise UsageError(f"topic {topic!r} has partitions 0 to {state.partitions - 1}, not {partition}")


class TopicLog:
    """One topic of a root, as of the newest entries. Not thread-safe.

    `decided`: read what several metadata roots decided, not this root's copy.
    """

    def __init__(self, storage: Storage, name: str, *, decided: bool = False) -> None:
        self.storage, self._decided = storage, decided
        self.name = paths.check_topic_name(name)
        self._side = partial(side_path, name)  # no method: journals would hold their handle, and it them, as a cycle
        unit = Unit(paths.journal(name), "topic", self._side, TopicFiles(storage, name))
        self.journal = (DecidedJournal if decided else ReplicatedJournal)(storage, unit, check_topic_entry)
        self._settles: dict[str, Journal] = {}
        self._tables: Shelf[_Table, Mapping[str, WriterRow] | SealedSegments | Footer | list[list[Any]]] = Shelf()
        self._settled: tuple[Stored, SettleState] | None = None
        self._root_defaults = RootDefaults(storage)
        self._defaults: Mapping[str, str] | None = None
        self._defaults_at = 0.0
        self._in_steps = False
        #: Whether a writer found the chunks it named, if a look is a request.
        self.chunks_found = False
        #: Holder of the settlers' lock at the last failed attempt.
        self.busy: Holder | None = None
        #: Write id of the last settle entry that `change` put.
        self.published: str | None = None
        #: Monotonic time of a writer's last warning about it.
        self.warned: float | None = None
        #: Monotonic time of the last check of the topic's maintenance.
        self.maintenance_checked: float | None = None
        self._collecting = Collecting()

    # --- replicas ----------------------------------------------------------------------------------------

    def route(self, *, writing: bool) -> TopicLog:
        """Return a handle at the leader, or at a root to read.

        Raises:
            NotLeaderError, ReplicaNotAvailableError: there is none.
        """
        storage = self.journal.leader() if writing else self.journal.nearest()
        if storage is self.storage and not self._decided:
            return self
        handle = TopicLog(storage, self.name)
        if not self._decided:
            handle.journal.go_on_with(self.journal.known_everywhere())
        return handle

    def readable(self) -> TopicLog:
        """Return a handle at a root that has the records."""
        return self.route(writing=False) if self.journal.is_replicated else self

    def is_away(self) -> bool:
        """Return whether this root does not answer while other roots may."""
        if not self.journal.is_replicated and not self.storage.others and self.storage.together is None:
            return False
        try:
            return not self.storage.exists(paths.ROOT_MARKER)
        except OSError:
            return True

    def at_fallback_root(self) -> TopicLog:
        """Return a handle at another of the known roots that answers.

        Raises:
            ReplicaNotAvailableError: none does.
        """
        return TopicLog(self.journal.fallback_root(), self.name)

    def at_leader(self) -> TopicLog:
        """Return a handle at the leader; raises as `route`."""
        return self.route(writing=True) if self.journal.is_replicated else self

    def creates_chunks(self, state: TopicState, *, acks_all: bool) -> Callable[[str], OutputFile]:
        """Return the factory of chunks: local, or at all in-sync replicas.

        Chunks at replicas are durable; the commit does not sync them again.
        """
        if not state.is_replicated:
            return self.storage.create
        storages = self.journal.order().places.staged_at() if acks_all else [self.storage]
        return lambda path: StagedOutput(path, storages)

    # --- logical -----------------------------------------------------------------------------------------

    def newest(self, topic_id: str | None = None) -> tuple[Stored, TopicState]:
        """Return the newest entry and its state.

        Raises:
            UnknownTopicError: there is no such topic.
            ReplicaNotAvailableError: the root is one of several, and does not answer.
            TopicChangedError: incarnation `topic_id` was deleted or recreated.
        """
        return self.newest_at(self.journal.newest(), topic_id)

    def newest_durable(self, topic_id: str | None = None, *, fresh: bool = False) -> tuple[Stored, TopicState]:
        """Return the newest entry and state, synced (R5); raises as `newest`.

        For effects that outlive the entry: its writer may have died before the directory's sync. `fresh`: for callers
        that write here and delete by it.
        """
        stored, state = self.newest(topic_id)
        if fresh:
            self.journal.assure(stored)
        else:
            self.journal.sync_exposed(stored)
        return stored, state

    def newest_at(self, stored: Stored | None, topic_id: str | None) -> tuple[Stored, TopicState]:
        """Check the newest entry; returns and raises as `newest`."""
        if stored is None and self.is_away():
            raise ReplicaNotAvailableError(f"topic {self.name!r}: the root {self.storage.url} does not answer")
        if stored is None:
            raise self._unknown()
        state = self.state_of(stored.entry)
        if topic_id is not None and (state.deleted or state.topic_id != topic_id):
            raise self.changed(state, topic_id)
        if state.deleted:
            raise self._unknown()
        return stored, state

    def ended(self, topic_id: str) -> TopicState | None:
        """Return the last state of an ended incarnation, if still known."""
        stored = self.journal.newest()
        if stored is None:
            return None
        state = self.state_of(stored.entry)
        if state.topic_id != topic_id:  # the incarnation before ended with the entry before this one's first
            try:
                state = self.state_of(self.journal.read(state.created - 1).entry)
            except (FileNotFoundError, CorruptionError):  # collected
                return None
        return state if state.deleted and state.topic_id == topic_id else None

    def _unknown(self) -> UnknownTopicError:
        return unknown_topic(self.storage, self.name)

    def changed(self, state: TopicState, topic_id: str) -> TopicChangedError:
        """Return the error for a caller with an ended incarnation."""
        now = "it is deleted" if state.deleted else f"it was made again with id {state.topic_id}"
        return TopicChangedError(
            f"topic {self.name!r} (id {topic_id}) in {self.storage.url} is gone: {now}. Its offsets mean nothing any "
            "more: start the query again, with a new checkpoint"
        )

    def state_of(self, entry: Entry) -> TopicState:
        """Return the state that an entry carries."""
        return TopicState.from_entry(entry.topic_id, entry.body, entry.lineage)

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
        """Return the chunks that an entry names."""
        return read_chunks(self._table(entry, "chunks", Chunks))

    def _table(self, entry: Entry, kind: str, shape: Any) -> Any:
        table = entry.body.get(kind, ())
        return self._side_table(self.journal, entry.topic_id, table, shape) if isinstance(table, dict) else table

    def _side_table(self, journal: Journal, topic_id: str, named: Json, shape: Any) -> Any:
        return checked_json(journal.side(topic_id, named), shape, self._side(topic_id, named["file"]))

    def writer(self, state: TopicState, writer_id: str) -> WriterRow | None:
        """Return a writer id's row, if remembered."""
        row = state.writers.rows.get(writer_id) or self.snapshot(state).get(writer_id)
        return None if row is None or row.is_forgotten else row

    def snapshot(self, state: TopicState) -> Mapping[str, WriterRow]:
        """Return the snapshot of the writers' table."""
        named = state.writers.snapshot
        if named is None:
            return {}
        writer_rows = self._tables.get(named["file"])
        if writer_rows is None:
            writer_rows = read_writer_rows(self._side_table(self.journal, state.topic_id, named, WriterRows))
            self._tables.put(named["file"], writer_rows, named["length"] * _PARSED)
        return cast(Mapping[str, WriterRow], writer_rows)

    # --- physical ----------------------------------------------------------------------------------------

    def paths(self, topic_id: str) -> TopicPaths:
        """Return the paths of one incarnation of the topic."""
        return TopicPaths(self.name, topic_id)

    def settle_journal(self, topic_id: str) -> Journal:
        """Return the settle journal of one incarnation of the topic."""
        if topic_id not in self._settles:
            self._settles = {topic_id: settle_journal(self.storage, self.paths(topic_id))}
        return self._settles[topic_id]

    @contextmanager
    def settling(self, topic_id: str) -> Iterator[bool]:
        """Try the settlers' lock; rereads both journals under it (R3).

        Yields whether it was free; if not, `busy` is its holder.

        Raises:
            TopicChangedError: no settle journal: topic deleted, or disk not mounted.
        """
        lock = self.paths(topic_id).lock
        with ExitStack() as stack:
            try:
                held = stack.enter_context(self.storage.try_lock(lock))
            except FileNotFoundError as error:
                raise self._no_settle_journal(topic_id) from error
            if held:
                self.journal.forget()
                self.settle_journal(topic_id).forget()
            else:
                self.busy = self.storage.holder(lock)
            yield held

    def publish(self, base: Stored, after: SettleState) -> Stored | None:
        """Put a settle entry on `base` (rule R3); None if outdated."""

        def plan(newest: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            if newest is None or newest.entry.write_id != base.entry.write_id:
                return Unchanged(None)
            return settle_draft(after, slot)

        return self.settle_journal(after.topic_id).append(plan).stored

    def change(self, topic_id: str, operation: Operation, state: TopicState | None = None) -> Stored | None:
        """Change the settle state without a lock, replanned after lost races.

        `operation` checks its preconditions on every attempt; they cannot hold again after success, so after an unknown
        outcome the newest entry decides (rule O2). `state` is the topic's, if the root has no entry of it.

        Returns:
            The entry; None if nothing was put: given up, files below the floor (rule O4), or landed before.

        Raises:
            TopicChangedError: this incarnation is gone.
            OutcomeUnknownError, ConflictError, StorageError: see `Journal.append`; safe to repeat.
        """

        def plan(newest: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            if newest is None:
                raise self._no_settle_journal(topic_id)
            before = self.settle_state(newest.entry)
            change = operation(newest, before)
            if change is None or any(begun_at(path) < before.files_floor for path in change.made):
                return Unchanged(None)
            now = state or self.newest_at(self.journal.recent(RECENT_SECONDS), None)[1]  # for the interval alone
            every = self.config(now).number("staged.retention.ms") // MARKS_A_RETENTION
            after = published_after(before, change, *self.settle_journal(topic_id).dated(newest), every)
            more = [f"side/{file}" for file in side_files(newest.entry)]
            leaves = self._leaves_of(before, after) - self._leaves_of(after, before)
            more += [f"manifests/{name}" for name in sorted(leaves)]
            return settle_draft(replace(after, drops=(*after.drops, *more)), slot)

        stored = self.settle_journal(topic_id).append(plan, repeatable=True).stored
        self.published = self.published if stored is None else stored.entry.write_id
        return stored

    def _leaves_of(self, settle: SettleState, other: SettleState) -> set[str]:
        same = {row.manifest for row in other.partitions}
        manifests = (row.manifest for row in settle.partitions if row.manifest not in same)
        return {leaf.name for manifest in manifests for leaf in self.leaves(settle.topic_id, manifest)}

    def collecting(self, topic_id: str) -> Collecting:
        """Return this handle's progress of collecting an incarnation."""
        if self._collecting.topic_id != topic_id:
            self._collecting = Collecting(topic_id)
        return self._collecting

    def go_on_collecting(self, memory: Collecting) -> None:
        """Take over the collecting progress of another handle of this process."""
        self._collecting = memory

    def reserve(self, base: Stored, settled: SettleState) -> Stored | None:
        """Put `base` again, to own the next number for segments' names.

        Else a task that outlives its driver's lock could overwrite files of the next driver (rule R1). None as from
        `publish`.
        """
        return self.publish(base, settled)

    def settled(self, topic_id: str, *, within: float = 0.0) -> tuple[Stored, SettleState]:
        """Return the newest settle entry and state, at most `within` seconds old.

        Read it after the logical one (rule R12).

        Raises:
            TopicChangedError: this incarnation is gone.
            CorruptionError: the entry is damaged, or its table missing.
        """
        journal = self.settle_journal(topic_id)
        while (stored := journal.recent(within)) is not None:
            if self._settled is not None and self._settled[0].entry is stored.entry:
                return self._settled
            try:
                self._settled = stored, self.settle_state(stored.entry)
                return self._settled
            except FileNotFoundError as error:  # its table was collected meanwhile: there is a newer entry
                if journal.newest() == stored:
                    raise CorruptionError(
                        f"topic {self.name!r}: {error.filename or error} is missing, and the newest settle entry "
                        "names it: restore it from a copy"
                    ) from error
        raise self._no_settle_journal(topic_id)

    def _no_settle_journal(self, topic_id: str) -> TopicChangedError:
        return TopicChangedError(
            f"topic {self.name!r} (id {topic_id}) in {self.storage.url} has no settle journal: it was deleted"
        )

    def anchors(self, topic_id: str) -> tuple[tuple[int, str], ...]:
        """Return (number, file identity) of both newest entries, for `resume`.

        Empty if this incarnation is gone.
        """
        newest = self.journal.newest(), self.settle_journal(topic_id).newest()
        found = tuple((stored.sequence, stored.info.identity) for stored in newest if stored is not None)
        return found if len(found) == len(newest) else ()

    def resume(self, topic_id: str, anchors: Sequence[tuple[int, str]]) -> None:
        """Continue from another process's `anchors`, without listing."""
        for journal, (sequence, identity) in zip((self.journal, self.settle_journal(topic_id)), anchors, strict=False):
            journal.resume(sequence, identity)

    def damaged(self, topic_id: str) -> tuple[Damage, ...]:
        """Return the damaged partitions; usually one look.

        If a look is a request, the view may be `RECENT_SECONDS` old.

        Raises:
            CorruptionError: the newest settle entry is damaged.
        """
        stored = self.settle_journal(topic_id).recent(RECENT_SECONDS)
        return self.settled(topic_id)[1].damaged if stored is not None and "damaged" in stored.entry.body else ()

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

    def sealed(self, settle: SettleState, partition: int, low: int = 0) -> tuple[Sealed, ...]:
        """Return a partition's sealed segments from `low` on, by base offset.

        Raises:
            FileNotFoundError: an object that may have such offsets is collected: read the newest settle entry again.
            CorruptionError: a manifest or footer differs from its reference.
        """
        slices = self._slices(settle, partition)
        slices.check(low)
        return tuple(Sealed.from_json(segment) for segment in (*self._own_rows(settle, partition), *slices.rows))

    def sealed_before_gap(
        self, settle: SettleState, partition: int, low: int
    ) -> tuple[tuple[Sealed, ...], Unreadable | None]:
        """Return sealed segments before the first gap above `low`, and its error.

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
        """Return a manifest's leaves; none of a short one.

        Raises:
            FileNotFoundError: it is collected.
            CorruptionError: it differs from its reference.
        """
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
        """Return the last sealed segment from at most `offset`; raises as `sealed`.

        The tail is read only if no own segment has the offset.
        """
        found = self.own_segments(settle, partition).holding(offset)
        if found is not None and offset < found.end_offset:
            return found
        slices = self._slices(settle, partition)
        slices.check_offset(offset)
        return SealedSegments.of(slices.rows).holding(offset) or found

    def own_segments(self, settle: SettleState, partition: int) -> SealedSegments:
        """Return a partition's own sealed segments, without the tail; raises as `sealed`."""
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
        """Return an object's footer, cached process-wide.

        Raises:
            FileNotFoundError: the object is collected.
            CorruptionError: the footer differs from its reference.
        """
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
        """Return a partition's segment in an object, or None; raises as `footer`."""
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

    def config(self, state: TopicState) -> TopicConfig:
        """Return the effective config: the topic's, the root's, or built-in.

        Reads the root's defaults once per operation (`forget_defaults`).

        Raises:
            CorruptionError: the root's defaults are damaged.
        """
        if self._defaults is None:
            self._defaults = self._root_defaults.by_topic_name()
            self._defaults_at = self.storage.clock.monotonic()
        return TopicConfig({**self._defaults, **state.config})

    def forget_defaults(self, *, kept: bool = False) -> None:
        """Start an operation: `config` rereads the root's defaults.

        `kept`: for writers, at most every `RECENT_SECONDS` if a look is a request.
        """
        least = RECENT_SECONDS if kept else FRESH_SECONDS if self._in_steps else 0.0
        asked = not self.storage.can_append and self.storage.clock.monotonic() - self._defaults_at < least
        self._defaults = self._defaults if asked else None

    @contextmanager
    def in_steps(self) -> Iterator[None]:
        """Read the root's defaults now, and inside at most every 5 s."""
        self.forget_defaults()
        self._in_steps = True
        try:
            yield
        finally:
            self._in_steps = False


def unknown_topic(storage: Storage, name: str) -> UnknownTopicError:
    """Return the error for a missing topic; suggests a similar name."""
    url = storage.url
    return UnknownTopicError(f"{_no_topic(storage, name)}: create it with ").advising(
        f"CommitLog({url!r}).create_topic({name!r}, partitions=…)", f"commitlog topics create {url} {name}"
    )


def nothing_to_delete(storage: Storage, name: str) -> UnknownTopicError:
    """Return the error for the deletion of a missing topic."""
    return UnknownTopicError(f"{_no_topic(storage, name)}: all that there are: ").advising(
        f"CommitLog({storage.url!r}).topics()", f"commitlog topics list {storage.url}"
    )


def _no_topic(storage: Storage, name: str) -> str:
    return f"unknown topic {name!r} in {storage.url}{did_you_mean(_similar_topic(storage, name))}"


def _similar_topic(storage: Storage, name: str) -> str | None:
    with suppress(CommitLogError, OSError):  # the error is about the name that was given
        for similar in similar_names(name, storage.names(paths.TOPICS)):
            topic = TopicLog(storage, similar)
            stored = topic.journal.newest()
            if stored is not None and not topic.state_of(stored.entry).deleted:
                return similar
    return None
