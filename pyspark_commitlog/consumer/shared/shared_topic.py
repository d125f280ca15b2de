"""View and decoded frames of a topic, shared by a process' consumers.

Consumers that tail a topic ask for the same frames at nearly the same time. The first one reads and decodes, the others
get the same Arrow buffers. Everything here is safe for use by several threads at once.
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
from pyspark_commitlog.log.divergence import Divergence, find_divergence
from pyspark_commitlog.log.read.reader import PartitionReader, Rows, View
from pyspark_commitlog.log.read.unsettled import Entries, Pending
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog, unknown_topic
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.caches import Cache, Shelf
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.pace import LIST_REQUESTS, Pace

log = logging.getLogger("pyspark_commitlog.consumer")

#: What a frame in the cache takes beside its buffers: Arrow's objects for four columns (3.8 KB), and Python's.
ENTRY_BYTES = 4608
#: How often an idle topic is looked at in full by a consumer that waits: its entry may be gone (the anchor rule).
RECHECK_SECONDS = 1.0
#: The same where each look is a request; and how far two looks may be apart if nothing is to be missed between them:
#: storage without append keeps entries for 10 s at least (``file.delete.delay.ms``).
PACED_RECHECK_SECONDS, _SLOW_SECONDS = 60.0, 5.0
#: Seconds that another root may take to learn what was seen at one that has gone away.
_MOVE_SECONDS = 5.0
#: Numbers the histories of topics that this process has seen: no two share one.
_HISTORIES = count(1)
#: What a reader under way counts for in the cache: it is kept so that the next read goes on at its place.
_CURSOR_BYTES = 2**16
#: What an unsettled entry takes in the cache, and each partition, extent and chunk that it names.
_PENDING_BYTES, _ROW_BYTES = 2048, 128
#: Choices of columns with which a topic is read that are remembered.
_CHOICES = 16

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows from an offset on, at most a frame of them; None where none are left before ``next_offset``."""

    rows: Rows | None
    next_offset: int


class FrameKey(NamedTuple):
    """Cache key of rows; ``start`` may lie in the gap before them."""

    topic_id: str
    history: int
    partition: int
    names: Names
    start: int


class FrameCache:
    """Decoded rows of a topic, as long as the process' cache has room for them, and the topic is there.

    Args:
        cache: where they are kept; None: in the one of the process.
    """

    def __init__(self, cache: Cache | None = None) -> None:
        self._shelf: Shelf[FrameKey, Fetched] = Shelf(cache)

    def get(self, key: FrameKey) -> Fetched | None:
        """Return cached rows, if they are still there."""
        return self._shelf.get(key)

    def put(self, key: FrameKey, fetched: Fetched) -> None:
        """Keep what was read; what is larger than all of the cache is not."""
        self._shelf.put(key, fetched, ENTRY_BYTES + bytes_of(fetched.rows))

    def clear(self) -> None:
        """Drop all of them."""
        self._shelf.clear()


def bytes_of(rows: Rows | None) -> int:
    """Return the memory that rows keep."""
    return 0 if rows is None or rows.batch is None else rows.batch.get_total_buffer_size()


class SharedEntries(Entries):
    """The newest unsettled entries of a topic, read once for all of its partitions.

    One that was collected stays right: readers check that an entry is not settled when they have found it.
    """

    def __init__(self, topic: TopicLog) -> None:
        super().__init__(topic)
        self._pending: Shelf[int, Pending] = Shelf()
        self._inline: Shelf[str, bytes] = Shelf()
        self._lock = Lock()

    def read(self, sequence: int, entry: Entry | None) -> Pending:
        """Return an entry, from ``entry`` if that was read already; raises as ``Journal.read`` does."""
        with self._lock:
            pending = self._pending.get(sequence)
            if pending is None:
                pending = super().read(sequence, entry)
                if not pending.why:
                    self._pending.put(sequence, pending, _weight(pending))
            return pending

    def read_many(self, sequences: Sequence[int]) -> dict[int, Pending]:
        """Return entries, those that are not in memory read at once; without those that can't be read."""
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
        """Return an entry's inline bytes, from memory where they were read; raises as ``Journal.inline`` does."""
        with self._lock:
            inline = self._inline.get(entry.write_id)
            if inline is None:
                inline = super().inline(entry)
                self._inline.put(entry.write_id, inline, len(inline))
            return inline

    def clear(self) -> None:
        """Forget all of them."""
        self._pending.clear()
        self._inline.clear()


def _weight(pending: Pending) -> int:
    """Return about the memory that an entry takes."""
    return _PENDING_BYTES + _ROW_BYTES * (len(pending.log_end) + len(pending.extents) + len(pending.chunks))


class SharedPartition:
    """A partition of one incarnation of a topic, read with one choice of columns."""

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
        """Return the incarnation of the topic that it reads, and which of its histories."""
        return self._id, self._history

    def fetch(self, view: View, start: int) -> Fetched:
        """Return the next rows from ``start`` on, which lies between log start offset and high watermark.

        Raises:
            OffsetOutOfRangeError: retention overtook ``start``.
            CorruptionError: the frame there is damaged.
            TopicChangedError: this incarnation of the topic is over.
        """
        key = FrameKey(self._id, self._history, self._partition, self._names, start)
        fetched = self._cache.get(key)
        if fetched is not None:
            return fetched
        with self._lock:
            fetched = self._cache.get(key)  # another thread may have read it meanwhile
            if fetched is None:
                fetched = self._read(view, start)
                if fetched.rows is not None:  # a gap to the end is none any more once there is a next record
                    self._cache.put(key, fetched)
            return fetched

    def _read(self, view: View, start: int) -> Fetched:
        end = view.topic.log_end[self._partition]
        cursor = self._cursors.pop(start)
        rows = None if cursor is None else next(cursor, None)
        if rows is None:  # no reader stands here, or it is at the end of what was there when it began
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
    """A topic: what is visible of it now, and its partitions to read.

    ``version`` is the write id of the entry that the last look found; empty before any.
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
        """Return whether looks that find nothing are requests of a budget: on object stores and unknown mounts."""
        return not self.storage.can_append

    def allow(self, requests_per_hour: int) -> None:
        """Raise the budget of idle looks to the largest that a consumer gives."""
        with self._lock:
            self._pace.allow(requests_per_hour)

    def seconds_left(self) -> float:
        """Return how long a caller that waits has to until the next look, where looks are paced."""
        return self._pace.seconds_left(self.storage.clock.monotonic())

    def look(self, *, certain: bool = True) -> View:
        """Return the current view.

        Args:
            certain: False takes one look at storage where nothing has changed, and may miss news for
                ``RECHECK_SECONDS``: the next entry may be gone rather than not put yet (the anchor rule). That is for
                a caller that waits and looks again; one that decides that there is no more must be certain. Where
                looks are paced it takes none before the next one is due.

        Raises:
            UnknownTopicError: there is no such topic, or no longer.
            CorruptionError: the newest entry is damaged.
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
        """Return whether what was seen has to be looked at in full.

        Where looks are paced that is rare. It is safe as long as they follow one another faster than entries are
        collected: what is put after one look is not gone at the next.
        """
        recheck = PACED_RECHECK_SECONDS if self.is_paced else RECHECK_SECONDS
        slow = self.is_paced and not 0 <= now - self._looked < _SLOW_SECONDS
        return self._stored is None or slow or not 0 <= now - self._checked < recheck

    def _require_view(self) -> View:
        if self._view is None:
            if self._unknown is None:  # to find a similar name is a request
                self._unknown = unknown_topic(self.storage, self.name)
            raise copy(self._unknown)
        return self._view

    def doubt(self) -> None:
        """Make the next look certain, for consumers that are new or seek."""
        with self._lock:
            self._checked = -math.inf

    def follow(self, events: Events) -> int | None:
        """Report new entries to ``events``; see ``Storage.follow``."""
        return self.storage.follow(events, journal(self.name))

    def _is_followed(self) -> bool:
        try:
            return self._stored is not None and self._topic.journal.is_followed(self._stored)
        except OSError:
            return True  # the look in full says more

    def _read_somewhere(self) -> None:
        """Look in full; where the root has gone away, at another one from now on."""
        try:
            self._read()
        except (CommitLogError, OSError):
            if not self.is_away():
                raise
            self._move()
            self._read()

    def is_away(self) -> bool:
        """Return whether the root that is read does not answer, and there are others."""
        return self._topic.is_away()

    def _move(self) -> None:
        """Read at another root, one that shows what was seen already.

        Raises:
            ReplicaNotAvailableError: none shows it yet.
            StorageError: none answers.
        """
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
        if stored is None:  # there is no journal, or no longer: the root was removed
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
        """Forget what was read where an entry that was found without an anchor may be of another history."""
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
        """Forget what was read where an unclean election has lost some of it since: it is not handed out any more."""
        if self._view is not None and state.lost != self._view.topic.lost:
            self._forget()

    def _forget(self) -> None:
        """Drop all that was read; a reader under way goes on with what is its own."""
        self._history = next(_HISTORIES)
        self._cache, self._entries = FrameCache(), SharedEntries(TopicLog(self.storage, self.name))
        self._partitions.clear()

    def find_divergence(self, seen: Lineage | None, view: View) -> Divergence | None:
        """Return how the view diverges from the history that was seen, if it does."""
        with self._lock:
            return find_divergence(self._topic, seen, view.topic)

    def _let_go(self) -> None:
        """Drop what was read of an incarnation of the topic that is over."""
        self._partitions.clear()
        self._cache.clear()
        self._entries.clear()

    def partition(self, view: View, partition: int, names: Sequence[str]) -> SharedPartition:
        """Return a partition to read with these columns.

        Raises:
            TopicChangedError: the view is of a history that is gone by now.
        """
        chosen, incarnation = tuple(names), (view.topic.topic_id, view.history)
        with self._lock:
            if view.history != self._history:
                raise TopicChangedError(f"topic {self.name!r} was restored since it was looked at: look again")
            partitions = self._partitions.pop(chosen, {})
            self._partitions[chosen] = partitions  # the last choice stands last
            if len(self._partitions) > _CHOICES:
                del self._partitions[next(iter(self._partitions))]
            if partition not in partitions or partitions[partition].incarnation != incarnation:
                own = TopicLog(self.storage, self.name)  # a handle is for one thread at a time
                partitions[partition] = SharedPartition(own, view, partition, chosen, self._cache, self._entries)
            return partitions[partition]

    @property
    def cache(self) -> FrameCache:
        """Return the decoded frames."""
        return self._cache
