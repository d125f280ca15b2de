"""Heartbeats of a process' group members, by a few threads, while needed.

Members stay while the application works, up to `max_poll_interval_ms`; unreferenced ones fall silent. One thread
schedules, without I/O. Others call members, one per root; while its call hangs, a second one serves the root's other
members.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from weakref import WeakKeyDictionary, WeakSet, ref

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.failures import ErrorBoundary, call_on_error
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.per_process import PerProcess
from pyspark_commitlog.storage.process import WhileNeeded, start_thread

log = logging.getLogger("pyspark_commitlog.groups")

#: Maximum threads that call members, besides the scheduler.
MAX_WORKERS = 8
#: Maximum of these per root: the second while the first hangs.
WORKERS_OF_A_ROOT = 2
#: Durations after which a call counts as hanging, and is warned of.
HELD_UP_SECONDS = 1.0
_WARN_SECONDS = 10.0
#: Looks at a member per heartbeat interval: bounds the delay of a heartbeat.
_LOOKS = 4


@dataclass(eq=False, slots=True)
class _HeartbeatCall:
    member: GroupMember
    since: float
    warned: bool = False


@dataclass(eq=False, slots=True)
class _Root:
    waiting: deque[ref[GroupMember]] = field(default_factory=deque)
    calls: list[_HeartbeatCall] = field(default_factory=list)

    def held_up(self, now: float) -> int:
        return sum(now - call.since > HELD_UP_SECONDS for call in self.calls)

    def is_free(self, now: float) -> bool:
        return bool(self.waiting) and len(self.calls) < min(WORKERS_OF_A_ROOT, 1 + self.held_up(now))


class Heartbeats:
    """Scheduler of the members' heartbeats."""

    def __init__(self) -> None:
        self._members: WeakSet[GroupMember] = WeakSet()
        self._roots: dict[str, _Root] = {}
        self._workers = 0
        self._failed: WeakKeyDictionary[GroupMember, str] = WeakKeyDictionary()
        self._thread = WhileNeeded("commitlog-heartbeats", self._run)
        self._lock = self._thread.lock
        self._changed = Event()

    def add(self, member: GroupMember) -> None:
        """Send a member's heartbeats until `remove`, while others reference it."""
        with self._lock:
            self._members.add(member)
        self._changed.set()
        with call_on_error(lambda: self.remove(member)):
            self._thread.ensure_running()

    def remove(self, member: GroupMember) -> None:
        """Stop a member's heartbeats."""
        with self._lock:
            self._members.discard(member)
        self._changed.set()

    def _run(self) -> None:
        while (pause := self._round()) is not None:
            self._changed.wait(pause)
            self._changed.clear()

    def _round(self) -> float | None:
        """Start due calls; return the pause in seconds, or None without members."""
        now = monotonic()
        with self._lock:
            members = list(self._members)
            if not members:
                self._thread.mark_ending()
                return None
            self._gather(members)
            due = sum(root.is_free(now) for root in self._roots.values())
            starting = max(0, min(due, MAX_WORKERS - self._workers))
            self._workers += starting
            silent = [call for root in self._roots.values() for call in root.calls if self._is_news(call, now)]
        for call in silent:
            log.warning(
                "a heartbeat of member %s has not come back for %.0f s: its storage, %s, hangs. It gives no sign of "
                "life meanwhile; members of other roots go on",
                call.member.member_id,
                now - call.since,
                call.member.root,
            )
        self._start(starting)
        return min(member.heartbeat_seconds for member in members) / _LOOKS

    def _gather(self, members: list[GroupMember]) -> None:
        by_root: dict[str, list[GroupMember]] = {}
        for member in members:
            by_root.setdefault(member.root, []).append(member)
        for url, of_root in by_root.items():
            root = self._roots.setdefault(url, _Root())
            if not root.waiting:
                under_way = [call.member for call in root.calls]
                root.waiting.extend(ref(member) for member in of_root if member not in under_way)
        self._roots = {url: root for url, root in self._roots.items() if root.waiting or root.calls}

    @staticmethod
    def _is_news(call: _HeartbeatCall, now: float) -> bool:
        news = not call.warned and now - call.since > _WARN_SECONDS
        call.warned = call.warned or news
        return news

    def _start(self, workers: int) -> None:
        for number in range(workers):
            try:
                start_thread("commitlog-heartbeat", self._work)
            except RuntimeError:
                with self._lock:
                    self._workers -= workers - number
                    alone = not self._workers
                    self._workers += alone
                if alone:
                    self._work()
                return

    def _work(self) -> None:
        try:
            while (taken := self._next()) is not None:
                root, call = taken
                self._call(call.member)
                with self._lock:
                    root.calls.remove(call)
                del root, call, taken  # drop the last reference to a member
        finally:
            with self._lock:
                self._workers -= 1

    def _next(self) -> tuple[_Root, _HeartbeatCall] | None:
        """Take a waiting member, of the least recently served root."""
        now = monotonic()
        with self._lock:
            for url, root in list(self._roots.items()):
                while root.is_free(now):
                    member = root.waiting.popleft()()
                    if member is None or member not in self._members:
                        continue
                    self._roots[url] = self._roots.pop(url)
                    call = _HeartbeatCall(member, now)
                    root.calls.append(call)
                    return root, call
        return None

    def _call(self, member: GroupMember) -> None:
        with ErrorBoundary(partial(self._warn, member)):
            member.heartbeat()
            self._failed.pop(member, None)

    def _warn(self, member: GroupMember, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        if self._failed.get(member) != message:
            self._failed[member] = message
            log.warning(
                "a heartbeat of member %s failed, and is tried again: %s",
                member.member_id,
                message,
                exc_info=None if isinstance(error, CommitLogError) else error,
            )


process_heartbeats = PerProcess(Heartbeats)
