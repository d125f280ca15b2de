"""The heartbeats of a process: a few threads for all of its members of groups, and none where there are none.

So a consumer stays in its group while its application is at work with what it got, up to ``max_poll_interval_ms``.
Members that nobody holds any more fall silent.

One thread says when it is time, and does no I/O. Others call the members: one at a time of each root, so a root that
hangs takes a thread of its own and holds up nobody else. While a call there does not come back, a second one goes on
with the other members of that root.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from threading import Event
from weakref import WeakKeyDictionary, WeakSet, ref

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.storage.clock import monotonic
from pyspark_commitlog.storage.process import WhileNeeded, after_fork, start_thread

log = logging.getLogger("pyspark_commitlog.groups")

#: Threads that call members, at most, whatever the number of members and roots; the one that says when is not counted.
MAX_WORKERS = 8
#: Of these, those that one root can take: the second while the first does not come back.
WORKERS_OF_A_ROOT = 2
#: A call that takes longer makes room for a second one; and one that takes so long is warned of.
HELD_UP_SECONDS = 1.0
_WARN_SECONDS = 10.0
#: Looks at a member per heartbeat interval: a heartbeat is at most this part of one late.
_LOOKS = 4


@dataclass(eq=False, slots=True)
class _HeartbeatCall:
    """A heartbeat that is under way."""

    member: GroupMember
    since: float
    warned: bool = False


@dataclass(eq=False, slots=True)
class _Root:
    """What is to be called of one root in this round, and what is under way."""

    waiting: deque[ref[GroupMember]] = field(default_factory=deque)
    calls: list[_HeartbeatCall] = field(default_factory=list)

    def held_up(self, now: float) -> int:
        """Return how many calls do not come back."""
        return sum(now - call.since > HELD_UP_SECONDS for call in self.calls)

    def is_free(self, now: float) -> bool:
        """Return whether another member may be called now."""
        return bool(self.waiting) and len(self.calls) < min(WORKERS_OF_A_ROOT, 1 + self.held_up(now))


class Heartbeats:
    """Calls the heartbeat of each member."""

    def __init__(self) -> None:
        self._members: WeakSet[GroupMember] = WeakSet()
        self._roots: dict[str, _Root] = {}
        self._workers = 0
        self._failed: WeakKeyDictionary[GroupMember, str] = WeakKeyDictionary()
        self._thread = WhileNeeded("commitlog-heartbeats", self._run)
        self._lock = self._thread.lock
        self._changed = Event()

    def add(self, member: GroupMember) -> None:
        """Look after a member, until ``remove``, or until nobody else holds it."""
        with self._lock:
            self._members.add(member)
        self._changed.set()
        try:
            self._thread.ensure_running()
        except BaseException:
            self.remove(member)
            raise

    def remove(self, member: GroupMember) -> None:
        """Forget a member."""
        with self._lock:
            self._members.discard(member)
        self._changed.set()

    def _run(self) -> None:
        while (pause := self._round()) is not None:
            self._changed.wait(pause)
            self._changed.clear()

    def _round(self) -> float | None:
        """Have all members called that are not yet; return how long to pause, in seconds; None where there are none."""
        now = monotonic()
        with self._lock:
            members = list(self._members)
            if not members:
                self._thread.ends()
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
        """Begin another round of each root whose last one is through: nobody is passed over."""
        by_root: dict[str, list[GroupMember]] = {}
        for member in members:
            by_root.setdefault(member.root, []).append(member)
        for url, of_root in by_root.items():
            root = self._roots.setdefault(url, _Root())
            if not root.waiting:
                under_way = [call.member for call in root.calls]
                root.waiting.extend(ref(member) for member in of_root if member not in under_way)
        for url in [url for url, root in self._roots.items() if not root.waiting and not root.calls]:
            del self._roots[url]

    @staticmethod
    def _is_news(call: _HeartbeatCall, now: float) -> bool:
        news = not call.warned and now - call.since > _WARN_SECONDS
        call.warned = call.warned or news
        return news

    def _start(self, workers: int) -> None:
        """Start threads; where the process gets no more, those there are go on, or this one does their work."""
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
        """Call one member after the other, until none waits that may be called now."""
        try:
            while (taken := self._next()) is not None:
                root, call = taken
                self._call(call.member)
                with self._lock:
                    root.calls.remove(call)
                del root, call, taken  # a member that nobody else holds goes
        finally:
            with self._lock:
                self._workers -= 1

    def _next(self) -> tuple[_Root, _HeartbeatCall] | None:
        """Take a member that waits, of the root that had its turn the longest time ago."""
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
        try:
            member.heartbeat()
        except Exception as error:  # noqa: BLE001 one member's trouble, of whatever kind, is not the others'
            self._warn(member, error)
        else:
            self._failed.pop(member, None)

    def _warn(self, member: GroupMember, error: Exception) -> None:
        """Warn of a failure, once of each; what is no error of ours comes with its traceback."""
        message = f"{type(error).__name__}: {error}"
        if self._failed.get(member) != message:
            self._failed[member] = message
            log.warning(
                "a heartbeat of member %s failed, and is tried again: %s",
                member.member_id,
                message,
                exc_info=None if isinstance(error, CommitLogError) else error,
            )


_process = Heartbeats()


def of_process() -> Heartbeats:
    """Return the heartbeats of this process."""
    return _process


def _begin_again() -> None:
    """Beat for no member of the process that this one was forked from: they are not this one's."""
    global _process
    _process = Heartbeats()


after_fork(_begin_again)
