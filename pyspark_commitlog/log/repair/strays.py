"""Check what lies in a topic's directories besides what its newest entries need, and name what nothing refers to.

Old entries, and what those name, stay for a while: for readers with an older view, and to look back. Of what
was deleted meanwhile nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark_commitlog.errors import fault_of
from pyspark_commitlog.format import paths as names
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal import Journal
from pyspark_commitlog.log.frames import crc_of
from pyspark_commitlog.log.settle_state import Active, Sealed, SettleState
from pyspark_commitlog.log.state import ChunkRef, TopicState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.model import Watched

#: In the settle journal's directory besides its entries.
_NOTES = {"lock", "lock.holder", "maintained"}


@dataclass
class Strays:
    """One look: ``faults`` of what is named, ``unnamed`` files and directories that nothing refers to.

    ``segment`` returns the faults of a segment of a partition, as published up to an offset, and reports progress; the
    caller also checks what the newest entries name, and need.
    """

    topic: TopicLog
    state: TopicState
    settled: SettleState
    segment: Callable[[int, Active | Sealed, int], Sequence[str]]
    progress: Watched
    faults: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    _sides: set[str] = field(default_factory=set)
    _chunks: dict[str, ChunkRef] = field(default_factory=dict)
    _manifests: set[str] = field(default_factory=set)
    _segments: set[tuple[int, str]] = field(default_factory=set)

    def look(self) -> None:
        """Look at everything."""
        self._entries()
        self._settles()
        self._staged()
        self._rest()

    def _guard(self, act: Callable[[], object], still: Callable[[], bool]) -> None:
        """Run a check; what fails is a fault while what names it is ``still`` there."""
        try:
            act()
        except Exception as error:
            if self.progress.ended_by(error):
                raise
            if still():
                self.faults.append(fault_of(error, f"topic {self.topic.name!r}"))

    def _readable(self, journal: Journal) -> Iterator[tuple[Entry, Callable[[], bool]]]:
        """Yield the entries that are there, newest first; one that can't be read is a fault."""
        for sequence in reversed(journal.sequences()):

            def still(number: int = sequence) -> bool:
                return number in journal.sequences()

            try:
                entry = journal.read(sequence).entry
            except Exception as error:  # noqa: BLE001 a fault
                if still():
                    self.faults.append(fault_of(error, f"entry {sequence} of {self.topic.name}"))
                continue
            yield entry, still

    def _entries(self) -> None:
        """Check all entries of the topic's journal with their tables and inline bytes."""
        journal, above = self.topic.journal, None
        for entry, still in self._readable(journal):
            follows = above is None or above.sequence != entry.sequence + 1 or above.prev == entry.write_id
            if not follows and entry.sequence < self.settled.oldest_unsettled:
                self._name(names.journal(self.topic.name), names.entry_name(entry.sequence))
                continue
            above = entry
            self._guard(lambda entry=entry: journal.inline(entry), still)  # type: ignore[misc]
            if entry.topic_id != self.state.topic_id:  # an earlier incarnation's: its tables lie there
                continue
            self._guard(lambda entry=entry: self._tables(entry), still)  # type: ignore[misc]

    def _tables(self, entry: Entry) -> None:
        tables = [entry.body.get("extents"), entry.body.get("chunks"), entry.body["state"]["writers"]["snapshot"]]
        self._sides |= {table["file"] for table in tables if isinstance(table, dict)}
        self.topic.extents(entry)
        for chunk in self.topic.chunks(entry):
            self._chunks[chunk.name] = chunk
        if isinstance(tables[-1], dict):
            self.topic.journal.side(entry.topic_id, tables[-1])

    def _settles(self) -> None:
        """Check all settle entries, their tables and manifests, and the segments that only older ones name."""
        for entry, still in self._readable(self.topic.settle_journal(self.state.topic_id)):
            tables = (entry.body.get(kind) for kind in ("partitions", "damaged"))
            self._sides |= {table["file"] for table in tables if isinstance(table, dict)}
            self._guard(lambda entry=entry, still=still: self._settle(entry, still), still)  # type: ignore[misc]

    def _settle(self, entry: Entry, still: Callable[[], bool]) -> None:
        settle = self.topic.settle_state(entry)
        for partition in range(len(settle.partitions)):
            self._guard(lambda p=partition: self._row(p, settle, still), still)  # type: ignore[misc]

    def _row(self, partition: int, settle: SettleState, still: Callable[[], bool]) -> None:
        row, newest = settle.partition(partition), self.settled.partition(partition)
        if row.active.base_offset < newest.active.base_offset or row.active.rewrite != newest.active.rewrite:
            self._named(partition, row.active, row.end_offset, still)
        self._segments.add((partition, row.active.stem))
        if row.manifest is None or row.manifest.name in self._manifests:
            return
        leaves = self.topic.leaves(settle.topic_id, row.manifest)
        self._manifests |= {row.manifest.name, *(leaf.name for leaf in leaves)}
        for segment in self.topic.sealed(settle, partition):
            self._named(partition, segment, segment.end_offset, still, current=row.manifest == newest.manifest)

    def _named(
        self, partition: int, segment: Active | Sealed, end: int, still: Callable[[], bool], *, current: bool = False
    ) -> None:
        if (partition, segment.stem) not in self._segments and not current:
            faults = self.segment(partition, segment, end)
            if faults and still():
                self._replaced(partition, segment, faults)
        self._segments.add((partition, segment.stem))

    def _replaced(self, partition: int, segment: Active | Sealed, faults: Sequence[str]) -> None:
        """Name the damaged files of a segment that another took the place of, as after ``void``: nobody needs it."""
        directory = self.topic.paths(self.state.topic_id).partition(partition)
        self.faults += [fault for fault in faults if f"{directory}/{segment.stem}." not in fault]
        for name in self.topic.storage.names(directory):
            if name.rpartition(".")[0] == segment.stem and any(f"{directory}/{name}" in fault for fault in faults):
                self._name(directory, name)

    def _staged(self) -> None:
        """Name chunks that nothing refers to, and damaged ones: once they are settled, or voided, nobody needs them."""
        storage, paths = self.topic.storage, self.topic.paths(self.state.topic_id)
        for name in storage.names(paths.staged):
            chunk, path = self._chunks.get(name), paths.chunk(name)
            if chunk is None:
                self._name(paths.staged, name)
                continue
            try:
                size = storage.info(path).size
                crc = crc_of(storage, path, chunk.length) if size == chunk.length else None
            except FileNotFoundError:  # collected meanwhile
                continue
            if (size, crc) != (chunk.length, chunk.crc):  # of what is not settled it is a fault, and reported as such
                self._name(paths.staged, name)

    def _rest(self) -> None:
        """Name what nothing refers to, in all other directories."""
        topic, storage = self.topic, self.topic.storage
        paths = topic.paths(self.state.topic_id)
        for directory, known in (
            (names.topic(topic.name), {"journal", self.state.topic_id}),
            (paths.side, self._sides),
            (paths.manifests, self._manifests),
        ):
            for name in storage.names(directory):
                if name not in known:
                    self._name(directory, name)
        for directory in (names.journal(topic.name), paths.settle):
            for name in storage.names(directory):
                if names.parse_entry(name) is None and (directory != paths.settle or name not in _NOTES):
                    self._name(directory, name)
        ours = {"settle", "staged", "side", "manifests", *map(str, range(self.state.partitions))}
        for name in storage.names(paths.home):
            if name not in ours:
                self._name(paths.home, name)
        for partition in range(self.state.partitions):
            for name in storage.names(paths.partition(partition)):
                if (partition, name.rpartition(".")[0]) not in self._segments or names.parse_segment(name) is None:
                    self._name(paths.partition(partition), name)

    def _name(self, directory: str, name: str) -> None:
        self.unnamed.append(f"{directory}/{name}")
