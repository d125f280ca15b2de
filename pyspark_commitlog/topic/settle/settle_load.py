"""Unsettled load, and when a writer checks it.

Without append every look costs requests: a process counts its own commits, and looks when settling may be due, or after
`settle.ms`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.topic.state.settle_change import Collecting

# Multiples of the limits at which a commit warns of the lock's holder, and least limits for that.
_OVERDUE = 4
_OVERDUE_ENTRIES = 16
_OVERDUE_MS = 15_000
#: Pause per entry: a replicated commit takes two or three times as long, and gets most of the time.
_REST_SECONDS = 0.003
#: Most seconds of pauses in a run, which holds the lock.
MOST_REST_SECONDS = 0.25
#: Maximum of topics counted; the next commit of a forgotten one looks.
_TOPICS = 1024
#: Seconds between collections in a process's commits.
_COLLECT_SECONDS = 600.0
#: Seconds until a failed collection is tried again.
_FAILED_SECONDS = 30.0
#: Pieces of a collection per extra budget, and most budgets. Ten minutes at a commit a second take fewer.
_SLICES = 100
_BUDGETS = 10
#: Least entries deleted by a commit that continues a collection, at 20 ms a request.
_DELETED_BY_ONE = 4
#: Most multiples of the limits before a process settles that did not settle last.
_MOST_PATIENCE = 3.0


#: Cost of an extent in bytes: opening one takes a reader as long as reading these.
EXTENT_BYTES = 4096


def weight(lengths: Iterable[int]) -> int:
    """Weight of extents against `settle.bytes` (pure)."""
    return sum(length + EXTENT_BYTES for length in lengths)


@dataclass(frozen=True, slots=True)
class SettleLoad:
    """Unsettled bytes (by `weight`), entries and age (ms), against the config."""

    bytes: int
    entries: int
    age_ms: int

    def reached(self, config: TopicConfig, times: float = 1.0) -> bool:
        """Whether a limit is reached, `times` over (pure)."""
        return self.entries > 0 and (
            self.bytes >= times * config.number("settle.bytes")
            or self.entries >= times * config.number("settle.entries")
            or self.age_ms >= times * config.number("settle.ms")
        )

    def rest(self) -> float:
        """Seconds to pause before each entry (pure).

        At most half of the time in which they came, so that a run keeps up.
        """
        return min(_REST_SECONDS, self.age_ms / 2000 / self.entries) if self.entries else 0.0

    def overdue(self, config: TopicConfig) -> bool:
        """Whether to warn of the lock's holder (pure)."""
        return self.entries >= _OVERDUE * max(
            config.number("settle.entries"), _OVERDUE_ENTRIES
        ) or self.age_ms >= _OVERDUE * max(config.number("settle.ms"), _OVERDUE_MS)


class Waiting:
    """A process's knowledge of a topic's unsettled commits.

    `drawn` is a random number in [0, 1).
    """

    def __init__(self, drawn: float) -> None:
        #: Multiple of the limits if another process settled last: two to three (rule O13).
        self.patience = _MOST_PATIENCE - 1.0 + drawn
        #: Write id of the settle entry that this process put last.
        self.published: str | None = None
        self._seen: tuple[SettleLoad, TopicConfig, float] | None = None
        self._times = 1.0
        self._entries = self._bytes = self._commits = 0
        self._collects_from: float | None = None
        self._is_cut_short = self._has_collected = False
        self._slices, self._began = 0, 0.0
        #: Progress of an interrupted collection.
        self.left: Collecting | None = None
        self._lock = Lock()

    def committed(self, entries: int, size_bytes: int) -> None:
        """Count commits of this process."""
        with self._lock:
            self._entries += entries
            self._commits += entries
            self._bytes += size_bytes

    def may_be_due(self, now: float) -> bool:
        """Whether to look, at monotonic time `now` in seconds."""
        with self._lock:
            if self._seen is None:
                return True
            seen, config, at = self._seen
            age_ms = int((now - at) * 1000)
            since = SettleLoad(
                seen.bytes + self._bytes, seen.entries + self._entries, seen.age_ms * (seen.entries > 0) + age_ms
            )
            return since.reached(config, self._times)

    def looked(self, seen: SettleLoad, config: TopicConfig, now: float, times: float) -> None:
        """Record the load, and the multiple of the limits that counts."""
        with self._lock:
            self._seen, self._times = (seen, config, now), times
            self._entries = self._bytes = 0

    def forget(self) -> None:
        """Make the next commit look."""
        self._seen = None

    def times(self, newest: str, first: bool) -> float:
        """Multiple of the limits for this process (rule O13).

        `newest` is the newest settle entry's write id, `first` whether it is the topic's first.
        """
        return 1.0 if first or newest == self.published else self.patience

    def collects(self, now: float) -> bool:
        """Whether a commit should collect now; every ten minutes."""
        with self._lock:
            due = self._collects_from is None or now >= self._collects_from
            if due:
                if not self._is_cut_short:
                    self._slices, self._began = 0, now
                self._collects_from, self._is_cut_short = now + _COLLECT_SECONDS, False
            return due

    def collected(self, began: float, now: float, left: Collecting | None) -> None:
        """Record a collection; if interrupted (`left`), later commits continue it.

        They spend at most two thirds of the time on it; the next starts ten minutes after this one. Times are monotonic
        seconds.
        """
        with self._lock:
            self._is_cut_short, self.left, self._has_collected = left is not None, left, True
            self._slices += 1
            self._collects_from = self._began + _COLLECT_SECONDS if left is None else now + (now - began) / 2

    def failed(self, now: float) -> None:
        """Record a failed collection: retried soon if earlier ones succeeded.

        Otherwise in ten minutes, as if deleting is not permitted.
        """
        with self._lock:
            self._is_cut_short, self._slices = self._slices > 0, 0
            if self._is_cut_short:
                self._collects_from = now + _FAILED_SECONDS
            else:
                self.left = None

    def min_entries_to_collect(self, settled: SettleLoad, config: TopicConfig) -> int:
        """Minimum number of entries that the commit collects.

        A short-lived process should leave nothing: its first collection takes somewhat more than was settled, less a
        few entries for each later commit expected, as many as it has made.
        """
        if self._has_collected:
            return 1
        most = min(settled.entries, math.ceil(_MOST_PATIENCE * config.number("settle.entries")))
        return max(1, most + most // 4 - _DELETED_BY_ONE * self._commits)

    def goes_on_collecting(self, now: float) -> bool:
        """Whether to continue an interrupted collection."""
        with self._lock:
            return self._is_cut_short and self._collects_from is not None and now >= self._collects_from

    @property
    def budgets(self) -> int:
        """Multiple of `settle.budget.ms` for collecting.

        It grows up to ten, else fast commits would leave ever more entries; beyond that `maintain` must help.
        """
        return min(1 + self._slices // _SLICES, _BUDGETS)


class _Topics:
    def __init__(self) -> None:
        self.waiting, self.lock = OrderedDict[tuple[str, str], Waiting](), Lock()


process_topics = PerProcess(_Topics)


def waiting_of(storage: Storage, topic_id: str) -> Waiting:
    """Return this process's knowledge of a topic, from an LRU cache."""
    key, topics = (storage.url, topic_id), process_topics.value
    with topics.lock:
        found = topics.waiting.get(key)
        if found is None:
            found = topics.waiting[key] = Waiting(storage.jitter())
        topics.waiting.move_to_end(key)
        if len(topics.waiting) > _TOPICS:
            topics.waiting.popitem(last=False)
    return found


def is_look_due(storage: Storage, topic_id: str, size_bytes: int) -> bool:
    """Count a commit; return whether to check for settling or collecting.

    Always with append. `size_bytes` is the `weight` of its extents.
    """
    if storage.can_append:
        return True
    waiting, now = waiting_of(storage, topic_id), storage.clock.monotonic()
    waiting.committed(1, size_bytes)
    return waiting.may_be_due(now) or waiting.goes_on_collecting(now)
