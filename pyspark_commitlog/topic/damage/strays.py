"""Orphaned files: those that a topic's entries do not reference.

Old entries and their files stay for a while, for readers of older views. Files deleted meanwhile are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pyspark_commitlog.errors import CorruptionError, fault_of
from pyspark_commitlog.failures import ErrorBoundary, Failures
from pyspark_commitlog.format import paths as names
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal import Journal
from pyspark_commitlog.model import Watched
from pyspark_commitlog.storage.os_errors import unreadable_is_damage
from pyspark_commitlog.storage.process import results_in_batches
from pyspark_commitlog.topic.damage.check_object import NamedObject, object_faults
from pyspark_commitlog.topic.read.unsettled import is_whole
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettleState
from pyspark_commitlog.topic.state.side_files import side_files
from pyspark_commitlog.topic.state.topic_state import ChunkRef, TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Files in the settle journal's directory that are no entries.
_NOTES = {"lock", "lock.holder", "maintained", "maintenance-runs"}
_Seen = TypeVar("_Seen")


@dataclass(slots=True)
class _References:
    """Files that an entry references, and the faults found in reading."""

    sides: set[str] = field(default_factory=set)
    chunks: tuple[ChunkRef, ...] = ()
    faults: Failures = field(default_factory=Failures)


def _look_at_tables(topic: TopicLog, entry: Entry, seen: _References) -> None:
    seen.sides.update(side_files(entry))
    topic.extents(entry)
    seen.chunks = topic.chunks(entry)
    snapshot = entry.body["state"]["writers"]["snapshot"]
    if isinstance(snapshot, dict):
        topic.journal.side(entry.topic_id, snapshot)
    columns = entry.body["state"].get("schema", {}).get("columns")
    if isinstance(columns, dict):
        topic.journal.side(entry.topic_id, columns)


@dataclass
class Strays:
    """Search for orphans, and for faults of what older entries name.

    Attributes:
        segment: returns a segment's faults, for one published up to an offset.
        unnamed: unreferenced files and directories.
        under_way: chunks and objects that an entry may still name (rules R1, O4).
    """

    topic: TopicLog
    state: TopicState
    settled: SettleState
    segment: Callable[[int, Active | Sealed, int], Sequence[str]]
    progress: Watched
    faults: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    _sides: set[str] = field(default_factory=set)
    _chunks: dict[str, ChunkRef] = field(default_factory=dict)
    _manifests: set[str] = field(default_factory=set)
    _segments: set[tuple[int, str]] = field(default_factory=set)
    _objects: set[str] = field(default_factory=set)
    _unread: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Check everything."""
        self._entries()
        self._settles()
        self._staged()
        self._rest()

    def _guard(self, act: Callable[[], object], is_listed: Callable[[], bool]) -> None:
        with ErrorBoundary(lambda error: self._fault(error, is_listed), self.progress):
            act()

    def _fault(self, error: Exception, is_listed: Callable[[], bool]) -> None:
        if is_listed():
            self.faults.append(fault_of(error, f"topic {self.topic.name!r}"))

    def _readable(
        self, journal_of: Callable[[TopicLog], Journal], look: Callable[[TopicLog, Entry], _Seen]
    ) -> Iterator[tuple[Entry, _Seen, Callable[[], bool]]]:
        """Yield readable entries, newest first, with findings; record others as faults.

        In parallel except on a local disk; a handle is for one thread.
        """
        journal, alone = journal_of(self.topic), self.topic.storage.can_append

        def read(sequence: int) -> tuple[Entry, _Seen] | Exception:
            topic = self.topic if alone else TopicLog(self.topic.storage, self.topic.name)
            failures = Failures()
            with failures.collected():
                entry = journal_of(topic).read(sequence).entry
                return entry, look(topic, entry)
            return failures[0]

        for sequence, found in results_in_batches(read, journal.sequences()[::-1], self.topic.storage.requests_at_once):

            def is_listed(number: int = sequence) -> bool:
                return number in journal.sequences()

            if not isinstance(found, Exception):
                yield *found, is_listed
            elif is_listed():
                self._unread.add(sequence)
                self.faults.append(fault_of(found, f"entry {sequence} of {self.topic.name}"))

    def _entries(self) -> None:
        above = None
        for entry, seen, is_listed in self._readable(lambda topic: topic.journal, self._look_at):
            follows = above is None or above.sequence != entry.sequence + 1 or above.prev == entry.write_id
            if not follows and entry.sequence < self.settled.oldest_unsettled:
                self._name(names.journal(self.topic.name), names.entry_name(entry.sequence))
                continue
            above = entry
            self._sides |= seen.sides
            self._chunks |= {chunk.name: chunk for chunk in seen.chunks}
            for error in seen.faults:
                self._fault(error, is_listed)

    def _look_at(self, topic: TopicLog, entry: Entry) -> _References:
        seen = _References()
        with seen.faults.collected():
            topic.journal.inline(entry)
        if entry.topic_id == self.state.topic_id:  # else an earlier incarnation's: its tables lie there
            with seen.faults.collected():
                _look_at_tables(topic, entry, seen)
        return seen

    def _settles(self) -> None:
        """Check settle entries, with files that only older ones name.

        An entry that the next was not built on is a ghost (rule O6): its files may be gone.
        """
        above, topic_id = None, self.state.topic_id
        settles = self.topic.paths(topic_id).settle
        self._unread.clear()
        self._objects |= {shared.name for shared in self.settled.tail}
        for entry, _, is_listed in self._readable(lambda topic: topic.settle_journal(topic_id), lambda *_: None):
            if not self.topic.storage.can_append and self._is_ghost(entry, above):
                self._name(settles, names.entry_name(entry.sequence))
                continue
            above = entry
            self._sides.update(side_files(entry))
            self._guard(lambda e=entry, listed=is_listed: self._settle(e, listed), is_listed)  # type: ignore[misc]

    def _is_ghost(self, entry: Entry, above: Entry | None) -> bool:
        if above is None or entry.sequence + 1 in self._unread:
            return False
        return (above.sequence, above.prev) != (entry.sequence + 1, entry.write_id)

    def _settle(self, entry: Entry, is_listed: Callable[[], bool]) -> None:
        settle = self.topic.settle_state(entry)
        for shared in settle.tail:
            self._guard(lambda one=shared: self._object(one.name, NamedObject(one), is_listed), is_listed)  # type: ignore[misc]
        for partition in range(len(settle.partitions)):
            self._guard(lambda p=partition: self._row(p, settle, is_listed), is_listed)  # type: ignore[misc]

    def _row(self, partition: int, settle: SettleState, is_listed: Callable[[], bool]) -> None:
        row, newest = settle.partition(partition), self.settled.partition(partition)
        if row.active.base_offset < newest.active.base_offset or row.active.rewrite != newest.active.rewrite:
            self._check_segment(partition, row.active, row.end_offset, is_listed)
        self._segments.add((partition, row.active.stem))
        if row.manifest is None or row.manifest.name in self._manifests:
            return
        leaves = self.topic.leaves(settle.topic_id, row.manifest)
        self._manifests |= {row.manifest.name, *(leaf.name for leaf in leaves)}
        for segment in self.topic.sealed(replace(settle, tail=()), partition):
            self._check_segment(
                partition, segment, segment.end_offset, is_listed, current=row.manifest == newest.manifest
            )

    def _check_segment(
        self,
        partition: int,
        segment: Active | Sealed,
        end: int,
        is_listed: Callable[[], bool],
        *,
        current: bool = False,
    ) -> None:
        if isinstance(segment, Sealed) and segment.place is not None:
            if current:
                self._objects.add(segment.place.object)
            self._object(segment.place.object, NamedObject(), is_listed)
            return
        if (partition, segment.stem) not in self._segments and not current:
            faults = self.segment(partition, segment, end)
            if faults and is_listed():
                self._replaced(partition, segment, faults)
        self._segments.add((partition, segment.stem))

    def _object(self, name: str, named: NamedObject, is_listed: Callable[[], bool]) -> None:
        """Report a damaged object as unneeded, if the newest entry lacks it."""
        if name in self._objects:
            return
        self._objects.add(name)
        path = self.topic.paths(self.state.topic_id).object(name)
        try:
            with unreadable_is_damage(self.topic.storage, path):
                sound = not any(object_faults(self.topic.storage, path, named))
        except FileNotFoundError:
            return
        except CorruptionError:
            sound = False
        if not sound and is_listed():
            self.unnamed.append(path)

    def _replaced(self, partition: int, segment: Active | Sealed, faults: Sequence[str]) -> None:
        """Report damaged files of a replaced segment, as after `void`, as unneeded."""
        directory = self.topic.paths(self.state.topic_id).partition(partition)
        self.faults += [fault for fault in faults if f"{directory}/{segment.stem}." not in fault]
        for name in self.topic.storage.names(directory):
            if name.rpartition(".")[0] == segment.stem and any(f"{directory}/{name}" in fault for fault in faults):
                self._name(directory, name)

    def _staged(self) -> None:
        """Report unreferenced chunks, and damaged ones, unneeded once settled or voided."""
        storage, paths = self.topic.storage, self.topic.paths(self.state.topic_id)

        def is_needed(name: str) -> bool:
            chunk, path = self._chunks.get(name), paths.chunk(name)
            if chunk is None:
                return False
            try:
                with unreadable_is_damage(storage, path):
                    return is_whole(storage, path, chunk)
            except FileNotFoundError:  # collected meanwhile
                return True
            except CorruptionError:
                return False

        for name, needed in results_in_batches(is_needed, storage.names(paths.staged), storage.requests_at_once):
            if not needed:  # damage of unsettled ones is reported as a fault
                begun = None if name in self._chunks else names.parse_chunk(name)
                may_be_named = begun is not None and begun >= self.state.staged_floor  # rule R1
                self._name(paths.staged, name, self.under_way if may_be_named else self.unnamed)

    def _rest(self) -> None:
        topic, paths = self.topic, self.topic.paths(self.state.topic_id)
        self._name_others(names.topic(topic.name), {"journal", self.state.topic_id}.__contains__)
        self._name_others(paths.side, self._sides.__contains__)
        self._name_others(paths.manifests, self._manifests.__contains__)
        self._name_others(names.journal(topic.name), lambda name: names.parse_entry(name) is not None)
        self._name_others(paths.settle, lambda name: names.parse_entry(name) is not None or name in _NOTES)
        self._unnamed_objects()
        ours = {"settle", "staged", "side", "manifests", "objects", "copied", *map(str, range(self.state.partitions))}
        self._name_others(paths.home, ours.__contains__)
        for partition in range(self.state.partitions):
            self._name_others(paths.partition(partition), partial(self._is_segment, partition))

    def _unnamed_objects(self) -> None:
        directory, floor = self.topic.paths(self.state.topic_id).objects, self.settled.files_floor
        for name in self.topic.storage.names(directory):
            if name not in self._objects:
                begun = names.parse_object(name)
                self._name(directory, name, self.unnamed if begun is None or begun < floor else self.under_way)

    def _is_segment(self, partition: int, name: str) -> bool:
        return (partition, name.rpartition(".")[0]) in self._segments and names.parse_segment(name) is not None

    def _name_others(self, directory: str, is_known: Callable[[str], bool]) -> None:
        for name in self.topic.storage.names(directory):
            if not is_known(name):
                self._name(directory, name)

    def _name(self, directory: str, name: str, into: list[str] | None = None) -> None:
        (self.unnamed if into is None else into).append(f"{directory}/{name}")
