"""How much waits to be settled, and when a writer looks. On storage without append every look costs requests.

There a process counts what it commits itself, and looks only when that may be due, or has waited for ``settle.ms``.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.log.settle_change import Collecting
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.process import after_fork

# How many times what is due may wait before a commit warns of the lock's holder; small limits count as these.
_OVERDUE = 4
_OVERDUE_ENTRIES = 16
_OVERDUE_MS = 15_000
#: A commit of a replicated topic takes two or three times as long: it gets most of the time while a run goes on.
_REST_SECONDS = 0.003
#: What one run rests at most: others that would settle wait for its lock.
MOST_REST_SECONDS = 0.25
#: Topics whose commits a process counts; of one that is forgotten the next commit looks.
_TOPICS = 1024
#: Seconds between two collections inside commits of a process.
_COLLECT_SECONDS = 600.0
#: Seconds until a collection is tried again that failed under way.
_FAILED_SECONDS = 30.0
#: Pieces of a collection after which each takes longer: those of ten minutes, at a commit a second, take fewer.
_SLICES = 100
_BUDGETS = 10
#: Entries that a commit deletes at least which goes on with a collection, where a request takes 20 ms.
_DELETED_BY_ONE = 4
#: How many times the limits a process waits at most that did not settle last.
_MOST_PATIENCE = 3.0


#: What an extent counts beside its bytes: to find and open one takes a reader as long as to read so many.
EXTENT_BYTES = 4096


def weight(lengths: Iterable[int]) -> int:
    """Return what extents of so many bytes count for when it is decided what is due to be settled (pure)."""
    return sum(length + EXTENT_BYTES for length in lengths)


@dataclass(frozen=True, slots=True)
class SettleLoad:
    """Unsettled bytes (by ``weight``), entries and age (ms), against the config."""

    bytes: int
    entries: int
    age_ms: int

    def reached(self, config: TopicConfig, times: float = 1.0) -> bool:
        """Return whether any limit is reached, ``times`` over (pure)."""
        return self.entries > 0 and (
            self.bytes >= times * config.number("settle.bytes")
            or self.entries >= times * config.number("settle.entries")
            or self.age_ms >= times * config.number("settle.ms")
        )

    def rest(self) -> float:
        """Return how many seconds a run may rest before each entry (pure).

        So that it takes at most half the time in which they came: more do not come than it settles.
        """
        return min(_REST_SECONDS, self.age_ms / 2000 / self.entries) if self.entries else 0.0

    def overdue(self, config: TopicConfig) -> bool:
        """Return whether it has waited so long that the lock's holder is worth a warning (pure)."""
        return self.entries >= _OVERDUE * max(
            config.number("settle.entries"), _OVERDUE_ENTRIES
        ) or self.age_ms >= _OVERDUE * max(config.number("settle.ms"), _OVERDUE_MS)


class Waiting:
    """What a process knows of one topic's unsettled commits: what it saw at its last look, and committed since.

    Args:
        drawn: a random number in [0, 1).
    """

    def __init__(self, drawn: float) -> None:
        #: How many times the limits it settles at where another process settled last: two to three (rule O13).
        self.patience = _MOST_PATIENCE - 1.0 + drawn
        #: The write id of the settle entry that this process put last.
        self.published: str | None = None
        self._seen: tuple[SettleLoad, TopicConfig, float] | None = None
        self._times = 1.0
        self._entries = self._bytes = self._commits = 0
        self._collects_from: float | None = None
        self._is_cut_short = self._has_collected = False
        self._slices, self._began = 0, 0.0
        #: Of a collection that was cut short, what a handle remembers of it.
        self.left: Collecting | None = None
        self._lock = Lock()

    def committed(self, entries: int, size_bytes: int) -> None:
        """Count what this process committed."""
        with self._lock:
            self._entries += entries
            self._commits += entries
            self._bytes += size_bytes

    def may_be_due(self, now: float) -> bool:
        """Return whether to look; ``now`` by the monotonic clock, in seconds."""
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
        """Note what waits, and how many times the limits of ``config`` count."""
        with self._lock:
            self._seen, self._times = (seen, config, now), times
            self._entries = self._bytes = 0

    def forget(self) -> None:
        """Have the next commit look."""
        self._seen = None

    def times(self, newest: str, first: bool) -> float:
        """Return how many times the limits count for this process (rule O13).

        Args:
            newest: write id of the newest settle entry.
            first: whether that is the one of the topic's creation.
        """
        return 1.0 if first or newest == self.published else self.patience

    def collects(self, now: float) -> bool:
        """Return whether a commit should collect now; what fails is tried again in ten minutes."""
        with self._lock:
            due = self._collects_from is None or now >= self._collects_from
            if due:
                if not self._is_cut_short:
                    self._slices, self._began = 0, now
                self._collects_from, self._is_cut_short = now + _COLLECT_SECONDS, False
            return due

    def collected(self, began: float, now: float, left: Collecting | None) -> None:
        """Note what a commit has collected: where that was cut short, later ones go on.

        They do for two thirds of the time at most. What comes after it begins ten minutes after it began.

        Args:
            began, now: by the monotonic clock, in seconds: when the commit did, and when it ended.
            left: what its handle remembers, where it was cut short: those of later commits begin with that.
        """
        with self._lock:
            self._is_cut_short, self.left, self._has_collected = left is not None, left, True
            self._slices += 1
            self._collects_from = self._began + _COLLECT_SECONDS if left is None else now + (now - began) / 2

    def failed(self, now: float) -> None:
        """Note that a commit could not collect: one that comes soon goes on, where others could before it.

        Else one in ten minutes tries, as where nobody may delete.
        """
        with self._lock:
            self._is_cut_short, self._slices = self._slices > 0, 0
            if self._is_cut_short:
                self._collects_from = now + _FAILED_SECONDS
            else:
                self.left = None

    def min_entries_to_collect(self, settled: SettleLoad, config: TopicConfig) -> int:
        """Return the minimum number of entries that the commit collects.

        A process that ends soon leaves nothing to later commits: so its first collection takes some more than are
        settled, without those that the process may come to. It is taken to commit as often again as it has, and each
        time to delete a few.
        """
        if self._has_collected:
            return 1
        most = min(settled.entries, math.ceil(_MOST_PATIENCE * config.number("settle.entries")))
        return max(1, most + most // 4 - _DELETED_BY_ONE * self._commits)

    def goes_on_collecting(self, now: float) -> bool:
        """Return whether a collection that was cut short should go on."""
        with self._lock:
            return self._is_cut_short and self._collects_from is not None and now >= self._collects_from

    @property
    def budgets(self) -> int:
        """Return for how many times ``settle.budget.ms`` a commit collects: the longer that goes on, the more.

        Else commits that come faster than entries can be deleted, one after the other, would leave ever more of them.
        Ten times at most: where several writers are faster still, ``maintain`` has to help.
        """
        return min(1 + self._slices // _SLICES, _BUDGETS)


_waiting: OrderedDict[tuple[str, str], Waiting] = OrderedDict()
_lock = Lock()


def waiting_of(storage: Storage, topic_id: str) -> Waiting:
    """Return what this process knows of a topic; of the least recently used ones nothing is known any more."""
    key = storage.url, topic_id
    with _lock:
        found = _waiting.get(key)
        if found is None:
            found = _waiting[key] = Waiting(storage.jitter())
        _waiting.move_to_end(key)
        if len(_waiting) > _TOPICS:
            _waiting.popitem(last=False)
    return found


def is_look_due(storage: Storage, topic_id: str, size_bytes: int) -> bool:
    """Count a commit of this process; return whether it should look what there is to settle, or to collect.

    Where files can be appended to a look costs little: every commit may have one.

    Args:
        storage, topic_id: whose.
        size_bytes: the ``weight`` of the commit's extents.
    """
    if storage.can_append:
        return True
    waiting, now = waiting_of(storage, topic_id), storage.clock.monotonic()
    waiting.committed(1, size_bytes)
    return waiting.may_be_due(now) or waiting.goes_on_collecting(now)


def forget_all() -> None:
    """Begin as a new process does: in a forked child, and in tests."""
    global _lock
    _lock = Lock()
    _waiting.clear()


after_fork(forget_all)
