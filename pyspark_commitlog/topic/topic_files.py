"""A topic's side of replication: files to learn, and elections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Checked, Entry, Json
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.journal import Draft, Journal
from pyspark_commitlog.replication.protocol.unit import NeededFile, ReadSide, ReplicationLimits, UncleanElection
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.state.home import make_home, settle_journal
from pyspark_commitlog.topic.state.shapes import Chunks, Extents, WriterRows
from pyspark_commitlog.topic.state.side_files import side_tables
from pyspark_commitlog.topic.state.topic_state import (
    Extent,
    LostOffsets,
    TopicState,
    Void,
    WriterRow,
    Writers,
    merged,
    read_chunks,
    read_extents,
    read_writer_rows,
    with_lost,
)

_APPEND = "append"


class TopicFiles:
    """`UnitFiles` of one topic at one root."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._name, self._defaults = name, RootDefaults(storage)

    def limits(self, entry: Entry) -> ReplicationLimits:
        """Replication configs in force at an entry."""
        config = TopicConfig({**self._defaults.by_topic_name(), **entry.body["state"]["config"]})
        return ReplicationLimits(
            config.number("min.insync.replicas"),
            config.number("replica.lag.time.max.ms"),
            config.flag("unclean.leader.election.enable"),
        )

    def tables(self, entry: Entry) -> Sequence[NeededFile]:
        """Side files that an entry names."""
        side = TopicPaths(self._name, entry.topic_id).side
        return [NeededFile(f"{side}/{table['file']}", Checked.from_json(table)) for table in side_tables(entry)]

    def chunks(self, entry: Entry, newest: Entry, side: ReadSide) -> Sequence[NeededFile]:
        """Return an entry's chunks that are not void by `newest`.

        None for an earlier incarnation: nobody reads it.
        """
        if entry.kind != _APPEND or entry.topic_id != newest.topic_id or self._voids(entry, newest, side):
            return []
        rows = self._table(entry, "chunks", Chunks, side)
        return self._chunks_of(entry.topic_id, rows)

    def drafted(self, draft: Draft[Any]) -> Sequence[NeededFile]:
        """Chunks that a drafted append names."""
        if draft.kind != _APPEND:
            return []
        rows = draft.body["chunks"]
        if isinstance(rows, dict):
            rows = checked_json(draft.sides["chunks"], Chunks, f"chunks of an entry of topic {self._name!r}")
        return self._chunks_of(draft.topic_id, rows)

    def _chunks_of(self, topic_id: str, rows: Sequence[Mapping[str, Any]]) -> list[NeededFile]:
        home = TopicPaths(self._name, topic_id)
        return [NeededFile(home.chunk(c.name), Checked(c.length, c.crc)) for c in read_chunks(rows)]

    def _table(self, entry: Entry, kind: str, shape: Any, side: ReadSide) -> Any:
        table = entry.body.get(kind, ())
        if not isinstance(table, dict):
            return table
        return checked_json(side(entry.topic_id, table), shape, f"{kind} of entry {entry.sequence} of {self._name!r}")

    def settled(self, storage: Storage, topic_id: str) -> int:
        """Entry below which a root settled everything; 0 for none."""
        newest = settle_journal(storage, TopicPaths(self._name, topic_id)).newest()
        return 0 if newest is None else int(newest.entry.body["through"][0])

    def begins(self, newest: Entry) -> int:
        """First entry that a root needs."""
        state = TopicState.from_entry(newest.topic_id, newest.body)
        return newest.sequence if state.deleted else state.created

    def prepare(self, storage: Storage, entry: Entry) -> None:
        """Make the directories and first settle entry of a created topic."""
        if entry.kind == "create":
            storage.make_directory(paths.journal(self._name))
            make_home(storage, TopicPaths(self._name, entry.topic_id), len(entry.body["state"]["logEnd"]))

    def is_living(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Whether an entry is an append not void by `newest`."""
        return entry.kind == _APPEND and entry.topic_id == newest.topic_id and not self._voids(entry, newest, side)

    def offsets(self, entry: Entry, side: ReadSide) -> Sequence[tuple[int, int, int]]:
        """Offsets of an append: (partition, start, end)."""
        extents = read_extents(self._table(entry, "extents", Extents, side))
        return [(extent.partition, extent.base_offset, extent.end_offset) for extent in extents]

    # --- elections ---------------------------------------------------------------------------------------

    def is_void(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        """Whether an entry is an append that is void by `newest`."""
        return entry.kind == _APPEND and self._voids(entry, newest, side)

    def _voids(self, entry: Entry, newest: Entry, side: ReadSide) -> bool:
        if entry.topic_id != newest.topic_id:
            return False
        if not newest.body["state"]["voids"]:  # the common case; called for each entry at each root
            return False
        voids = TopicState.from_entry(newest.topic_id, newest.body).voids
        extents = read_extents(self._table(entry, "extents", Extents, side))
        return all(_is_in(extent, voids) for extent in extents)

    def elected(
        self,
        base: Entry,
        hw: int,
        above: Sequence[int],
        voids: Sequence[int],
        journal: Journal,
        election: UncleanElection | None = None,
    ) -> Json:
        """Body of an entry that voids appends."""
        state = TopicState.from_entry(base.topic_id, base.body, base.lineage)
        if voids:
            entries = _entries(journal, hw, base)
            side: ReadSide = journal.side
            gone = [extent for n in voids for extent in read_extents(self._table(entries[n], "extents", Extents, side))]
            ranges = [Void(extent.partition, extent.base_offset, extent.end_offset) for extent in gone]
            rows = _rows_back(state, _Tables(self._name, journal, entries), hw, above, voids)
            state = replace(state, voids=merged([*state.voids, *ranges]), writers=rows)
            if election is not None:
                lost = with_lost(state.lost, LostOffsets(*election, ranges=tuple(ranges)), state.log_start)
                state = replace(state, lost=lost)
        return {"state": state.to_json()}


def _entries(journal: Journal, hw: int, base: Entry) -> dict[int, Entry]:
    found, number = dict[int, Entry](), hw
    while number <= base.sequence:
        entry = journal.read(number).entry
        if entry.topic_id == base.topic_id:
            found[number] = entry
        number = entry.following
    return found


class _Tables:
    def __init__(self, name: str, journal: Journal, entries: Mapping[int, Entry]) -> None:
        self._name, self._journal, self.entries = name, journal, entries
        self._snapshots: dict[str, Mapping[str, WriterRow]] = {}

    def row(self, number: int, writer: str) -> WriterRow | None:
        entry = self.entries[number]
        writers = TopicState.from_entry(entry.topic_id, entry.body).writers
        return writers.rows.get(writer) or self.snapshot(entry.topic_id, writers).get(writer)

    def written_by(self, number: int) -> list[str]:
        entry = self.entries[number]
        writers = TopicState.from_entry(entry.topic_id, entry.body).writers
        rows = writers.rows or self.snapshot(entry.topic_id, writers)  # a snapshot was just taken
        return [name for name, row in rows.items() if row.sequence == number]

    def snapshot(self, topic_id: str, writers: Writers) -> Mapping[str, WriterRow]:
        named = writers.snapshot
        if named is None:
            return {}
        if named["file"] not in self._snapshots:
            data = self._journal.side(topic_id, named)
            rows = checked_json(data, WriterRows, f"writers of topic {self._name!r}")
            self._snapshots[named["file"]] = read_writer_rows(rows)
        return self._snapshots[named["file"]]


def _rows_back(state: TopicState, tables: _Tables, hw: int, above: Sequence[int], voids: Sequence[int]) -> Writers:
    """Roll the writers of void appends back to their last living row (rule 5).

    Rows above the high watermark, and their ranges, may be of appends that earlier elections voided.
    """
    lost = _void_appends(tables.entries, hw, frozenset(above).difference(voids))
    kept = sorted(set(tables.entries) - lost, reverse=True)
    there, snapshot = dict(state.writers.rows), tables.snapshot(state.topic_id, state.writers)
    for name in {name for number in voids for name in tables.written_by(number)}:
        rows = (tables.row(number, name) for number in kept)
        row = next((row for row in rows if row is not None and row.sequence not in lost), None)
        if row is not None:
            there[name] = replace(row, ranges=_living_ranges(row, name, tables, lost))
        elif name in snapshot:
            there[name] = WriterRow(-1, 0, hw, snapshot[name].at_ms, checksum=None)
        else:
            there.pop(name, None)
    return replace(state.writers, rows=there)


def _void_appends(entries: Mapping[int, Entry], hw: int, living: Collection[int]) -> set[int]:
    return {n for n, entry in entries.items() if n > hw and entry.kind == _APPEND and n not in living}


def _living_ranges(row: WriterRow, name: str, tables: _Tables, lost: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return a producer's batches without void ones: a retry writes those again."""
    rows = ((number, tables.row(number, name)) for number in lost)
    gone = {there.ranges[-1] for number, there in rows if there and there.sequence == number and there.ranges}
    return tuple(pair for pair in row.ranges if pair not in gone)


def _is_in(extent: Extent, voids: Sequence[Void]) -> bool:
    return any(
        void.partition == extent.partition and void.start <= extent.base_offset and extent.end_offset <= void.end
        for void in voids
    )
