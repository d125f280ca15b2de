"""The heartbeats of a process: one thread for all of its members of groups, and none where there are none.

So a consumer stays in its group while its application is at work with what it got, up to ``max_poll_interval_ms``.
Members that nobody holds any more fall silent.
"""

from __future__ import annotations

import logging
from threading import Event
from weakref import WeakSet

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.groups.member import GroupMember
from pyspark_commitlog.storage.process import WhileNeeded, after_fork

log = logging.getLogger("pyspark_commitlog.groups")

#: Looks at a member per heartbeat interval: it tells that it lives at most this part of one late.
_LOOKS = 4


class Heartbeats:
    """Has members tell that they live, in turn."""

    def __init__(self) -> None:
        self._members: WeakSet[GroupMember] = WeakSet()
        self._thread = WhileNeeded("commitlog-heartbeats", self._run)
        self._lock = self._thread.lock
        self._changed = Event()

    def add(self, member: GroupMember) -> None:
        """Look after a member, until ``remove``, or until nobody else holds it."""
        with self._lock:
            self._members.add(member)
        self._changed.set()
        try:
            self._thread.needed()
        except BaseException:
            self.remove(member)
            raise

    def remove(self, member: GroupMember) -> None:
        """Forget a member."""
        with self._lock:
            self._members.discard(member)
        self._changed.set()

    def _run(self) -> None:
        while (pause := self._beat()) is not None:
            self._changed.wait(pause)
            self._changed.clear()

    def _beat(self) -> float | None:
        """Call all members once; return how long to pause, in seconds; None where there are none."""
        with self._lock:
            members = list(self._members)
            if not members:
                self._thread.ends()
                return None
        for member in members:
            try:
                member.heartbeat()
            except CommitLogError as error:  # who polls is told, too
                log.warning("a heartbeat of member %s failed: %s", member.member_id, error)
        return min(member.heartbeat_seconds for member in members) / _LOOKS


_process = Heartbeats()


def of_process() -> Heartbeats:
    """Return the heartbeats of this process."""
    return _process


def _begin_anew() -> None:
    """Beat for no member of the process that this one was forked from: they are not this one's."""
    global _process
    _process = Heartbeats()


after_fork(_begin_anew)
