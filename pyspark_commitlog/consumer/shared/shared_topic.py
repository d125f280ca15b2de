"""View and decoded frames of a topic, shared by a process' consumers.

Thread-safe: the first consumer decodes, the others get the same Arrow buffers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import count
from threading import Lock, RLock
from typing import NamedTuple

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError, TopicChangedError, UnknownTopicError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.format.paths import journal
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.pace import LIST_REQUESTS, Pace
from pyspark_commitlog.storage.shared.caches import Cache, Shelf
from pyspark_commitlog.topic.divergence import Divergence, find_divergence
from pyspark_commitlog.topic.read.reader import PartitionReader, Rows
from pyspark_commitlog.topic.read.unsettled import Entries, Pending
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, unknown_topic
from pyspark_commitlog.topic.view import View

log = logging.getLogger("pyspark_commitlog.consumer")

#: Bytes of a cached frame beside its buffers: Arrow's objects for four columns (3.8 KB), and Python's.
ENTRY_BYTES = 4608
#: The same for each column more, of typed topics.
_COLUMN_BYTES, _COLUMNS = 960, 4
#: Interval of full looks at an idle topic: its entry may be gone (the anchor rule).
RECHECK_SECONDS = 1.0
#: The same for paced looks; and the longest interval between two looks that miss nothing: storage without append keeps
#: entries for at least 10 s (`file.delete.delay.ms`).
PACED_RECHECK_SECONDS, _SLOW_SECONDS = 60.0, 5.0
#: Seconds that another root may take to learn an entry seen at a failed one.
_MOVE_SECONDS = 5.0
#: Unique numbers of the topics' histories seen by this process.
_HISTORIES = count(1)
#: Bytes that a reader in progress counts for in the cache: the next read continues it.
_CURSOR_BYTES = 2**16
#: Bytes of an unsettled entry in the cache, and of each partition, extent and chunk that it names.
_PENDING_BYTES, _ROW_BYTES = 2048, 128
#: Column selections remembered per topic.
_CHOICES = 16

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Up to a frame of rows; None if none precede `next_offset`."""

    rows: Rows | None
    next_offset: int


class FrameKey(NamedTuple):
    """Cache key of rows; `start` may be in the gap before."""

    topic_id: str
    history: int
    partition: int
    names: Names
    start: int


class FrameCache:
    """Decoded rows of a topic, in the process' cache by default."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._shelf: Shelf[FrameKey, Fetched] = Shelf(cache)

    def get(self, key: FrameKey) -> Fetched | None:
        """Return cached rows."""
        return self._shelf.get(key)

    def put(self, key: FrameKey, fetched: Fetched) -> None:
        """Cache rows, unless they exceed the cache."""
        more = _COLUMN_BYTES * max(0, len(key.names) - _COLUMNS)
        self._shelf.put(key, fetched, ENTRY_BYTES + more + bytes_of(fetched.rows))

    def clear(self) -> None:
        """Drop all rows."""
        self._shelf.clear()


def bytes_of(rows: Rows | None) -> int:
    """Memory that rows keep."""
    return 0 if rows is None or rows.batch is None else rows.batch.get_total_buffer_size()


class SharedEntries(Entries):
    """Unsettled entries of a topic, read once for all of its partitions.

    Collected entries stay valid: readers check afterwards that the entry is not settled.
    """

    def __init__(self, topic: TopicLog) -> None:
        super().__init__(topic)
        self._pending: Shelf[int, Pending] = Shelf()
        self._inline: Shelf[str, bytes] = Shelf()
        self._lock = Lock()

    def read(self, sequence: int, entry: Entry | None) -> Pending:
        with self._lock:
            pending = self._pending.get(sequence)
            if pending is None:
                pending = super().read(sequence, entry)
                if not pending.why:
                    self._pending.put(sequence, pending, _weight(pending))
            return pending

    def read_many(self, sequences: Sequence[int]) -> dict[int, Pending]:
        with self._lock:
            known = {sequence: self._pending.get(sequence) for sequence in sequences}
            found = {sequence: pending for sequence, pending in known.items() if pending is not None}
            missing = super().read_many([sequence for sequence in sequences if sequence not in found])
            for sequence, pending in missing.items():
                self._pending.put(sequence, pending, _weight(pending))
            for write_id, inline in self._read_ahead.items():
                self._inline.put(write_id, inline, len(inline))
            self._read_ahead = {}
            return {**found, **missing}

    def inline(self, entry: Entry) -> bytes:
        with self._lock:
            inline = self._inline.get(entry.write_id)
            if inline is None:
                inline = super().inline(entry)
                self._inline.put(entry.write_id, inline, len(inline))
            return inline

    def clear(self) -> None:
        """Drop all entries."""
        self._pending.clear()
        self._inline.clear()


def _weight(pending: Pending) -> int:
    return _PENDING_BYTES + _ROW_BYTES * (len(pending.log_end) + len(pending.extents) + len(pending.chunks))


class SharedPartition:
    """Partition of a topic's incarnation, read with fixed columns."""

    def __init__(
        self, topic: TopicLog, view: View, partition: int, names: Names, cache: FrameCache, entries: SharedEntries
    ) -> None:
        self._id, self._partition, self._names, self._cache = view.topic.topic_id, partition, names, cache
        self._history = view.history
        self._reader = PartitionReader(topic, self._id, partition, names, view, entries)
        self._cursors: Shelf[int, Iterator[Rows]] = Shelf()
        self._lock = Lock()

    @property
    def incarnation(self) -> tuple[str, int]:
        """The topic's incarnation and history."""
        return self._id, self._history

    def fetch(self, view: View, start: int) -> Fetched:
        """Return the next rows from `start`, which is within the log.

        Raises:
            OffsetOutOfRangeError: retention overtook `start`.
        """
        key = FrameKey(self._id, self._history, self._partition, self._names, start)
        fetched = self._cache.get(key)
        if fetched is not None:
            return fetched
        with self._lock:
            fetched = self._cache.get(key)  # another thread may have read it meanwhile
            if fetched is None:
                fetched = self._read(view, start)
                if fetched.rows is not None:  # a gap to the end may get records, so is not cached
                    self._cache.put(key, fetched)
            return fetched

    def _read(self, view: View, start: int) -> Fetched:
        end = view.topic.log_end[self._partition]
        cursor = self._cursors.pop(start)
        rows = None if cursor is None else next(cursor, None)
        if rows is None:  # no reader stands here, or it has reached its end
            if view.newest.sequence > self._reader.view.newest.sequence:
                self._reader.follow(view)
            cursor = self._reader.read(start, end, careful=True)
            rows = next(cursor, None)
        if rows is None or cursor is None:
            return Fetched(None, end)
        next_offset = rows.offset_of(rows.count - 1) + 1
        self._cursors.put(next_offset, cursor, _CURSOR_BYTES)
        return Fetched(rows, next_offset)


class SharedTopic:
    """Shared view and partitions of a topic.

    `version` is the write id of the newest entry seen; empty before.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage, self.name = storage, name
        self.version = ""
        self._topic = TopicLog(storage, name)
        self._cache, self._entries = FrameCache(), SharedEntries(TopicLog(storage, name))
        self._partitions: dict[Names, dict[int, SharedPartition]] = {}
        self._history, self._listings = next(_HISTORIES), 0
        self._stored: Stored | None = None
        self._view: View | None = None
        self._unknown: UnknownTopicError | None = None
        self._checked = self._looked = 0.0
        self._pace = Pace()
        self._lock = RLock()

    @property
    def is_paced(self) -> bool:
        """Whether looks that find nothing are requests, and paced: on object stores and unknown mounts."""
        return not self.storage.can_append

    def shorten_idle_interval(self, interval_ms: int) -> None:
        """Lower the interval between idle looks to the shortest of any consumer."""
        with self._lock:
            self._pace.shorten(interval_ms)

    def seconds_left(self) -> float:
        """Seconds until the next paced look."""
        return self._pace.seconds_left(self.storage.clock.monotonic())

    def look(self, *, certain: bool = True) -> View:
        """Return the current view.

        Args:
            certain: whether to conclude from the view that there is no more. False is for a caller that will look
                again: at most one request if nothing changed, none before a paced look is due, and possibly no news for
                `RECHECK_SECONDS`, if the next entry is collected already (the anchor rule).
        """
        with self._lock:
            now = self.storage.clock.monotonic()
            if not certain and self.is_paced and self._checked >= 0 and self._pace.seconds_left(now) > 0:
                return self._require_view()
            due, before, listed = certain or self._is_old(now), self.version, self._topic.journal.listings
            try:
                if due or self._is_followed():
                    due = True
                    self._read_somewhere()
                    self._checked = now
            finally:
                self._looked = now
                requests = LIST_REQUESTS if self._topic.journal.listings > listed else 1 + due
                self._pace.looked(now, requests, news=self.version != before)
            return self._require_view()

    def _is_old(self, now: float) -> bool:
        """Whether a full look is due.

        Paced looks need it rarely while closer than the collection of entries: nothing put after one look is gone at
        the next.
        """
        recheck = PACED_RECHECK_SECONDS if self.is_paced else RECHECK_SECONDS
        slow = self.is_paced and not 0 <= now - self._looked < _SLOW_SECONDS
        return self._stored is None or slow or not 0 <= now - self._checked < recheck

    def _require_view(self) -> View:
        if self._view is None:
            if self._unknown is None:  # the search for similar names is a request
                self._unknown = unknown_topic(self.storage, self.name)
            raise copy(self._unknown)
        return self._view

    def doubt(self) -> None:
        """Make the next look certain, for new consumers and seeks."""
        with self._lock:
            self._checked = -math.inf

    def follow(self, events: Events) -> int | None:
        """Report new entries to `events` (`Storage.follow`)."""
        return self.storage.follow(events, journal(self.name))

    def _is_followed(self) -> bool:
        try:
            return self._stored is not None and self._topic.journal.is_followed(self._stored)
        except OSError:
            return True  # the full look shows more

    def _read_somewhere(self) -> None:
        try:
            self._read()
        except (CommitLogError, OSError):
            if not self.is_away():
                raise
            self._move()
            self._read()

    def is_away(self) -> bool:
        """Whether the root does not answer, and there are others."""
        return self._topic.is_away()

    def _move(self) -> None:
        """Move to another root that shows the newest entry seen."""
        topic = self._topic.at_fallback_root()
        if self._stored is not None:
            topic.journal.await_shown(self._stored.sequence, _MOVE_SECONDS)
        self.storage, self._topic = topic.storage, topic
        self._forget()
        self._stored = None

    def _read(self) -> None:
        stored = self._topic.journal.newest()
        if stored is None and self.is_away():
            raise ReplicaNotAvailableError(f"the root {self.storage.url} does not answer")
        if stored is None:  # the journal does not exist, or the root was removed
            self._stored, self._view, self.version = None, None, ""
            self._forget()
            return
        if self._stored is not None and stored.info.identity == self._stored.info.identity:
            return
        self._follow_history(stored)
        self._topic.journal.sync_exposed(stored)  # rule R5: consumers are about to see it
        state = self._topic.state_of(stored.entry)
        self._follow_elections(state)
        view = None
        if not state.deleted:
            _, settled = self._topic.settled(state.topic_id)
            view = View(state, stored.entry, settled, self._history)
        if self._view is not None and (view is None or view.topic.topic_id != self._view.topic.topic_id):
            self._let_go()
        self._stored, self._view = stored, view
        self.version = stored.entry.write_id

    def _follow_history(self, stored: Stored) -> None:
        """Drop caches if an unanchored entry may be of another history."""
        listings, self._listings = self._listings, self._topic.journal.listings
        if self._stored is None or listings == self._listings:
            return
        verdict = compare(self._stored.entry.lineage, stored.entry.lineage)
        if verdict is Verdict.PARTED:
            log.warning(
                "topic %r in %s was restored from an older copy: journal entry %d that was seen is gone, or another. "
                "What this process kept of the topic is forgotten",
                self.name, self.storage.url, self._stored.sequence,
            )  # fmt: skip
        if verdict is not Verdict.SAME:
            self._forget()

    def _follow_elections(self, state: TopicState) -> None:
        if self._view is not None and state.lost != self._view.topic.lost:
            self._forget()

    def _forget(self) -> None:
        self._history = next(_HISTORIES)
        self._cache, self._entries = FrameCache(), SharedEntries(TopicLog(self.storage, self.name))
        self._partitions.clear()

    def find_divergence(self, seen: Lineage | None, view: View) -> Divergence | None:
        """Return the view's divergence from the history seen, if any."""
        with self._lock:
            return find_divergence(self._topic, seen, view.topic)

    def _let_go(self) -> None:
        self._partitions.clear()
        self._cache.clear()
        self._entries.clear()

    def partition(self, view: View, partition: int, names: Sequence[str]) -> SharedPartition:
        """Partition for reading these columns."""
        chosen, incarnation = tuple(names), (view.topic.topic_id, view.history)
        with self._lock:
            if view.history != self._history:
                raise TopicChangedError(f"topic {self.name!r} was restored since it was looked at: look again")
            partitions = self._partitions.pop(chosen, {})
            self._partitions[chosen] = partitions  # most recent last
            if len(self._partitions) > _CHOICES:
                del self._partitions[next(iter(self._partitions))]
            if partition not in partitions or partitions[partition].incarnation != incarnation:
                own = TopicLog(self.storage, self.name)  # a handle is single-threaded
                partitions[partition] = SharedPartition(own, view, partition, chosen, self._cache, self._entries)
            return partitions[partition]

    @property
    def cache(self) -> FrameCache:
        """Decoded frames."""
        return self._cache
