"""Failure detector: silence of members by the observer's clock (R10). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

#: Files looked at in one go: of 1,000 members each is still watched by many.
AT_ONCE = 64
#: Largest part of a session that one look counts for: an observer that slept has to look again.
_PART = 0.5


@dataclass(frozen=True, slots=True)
class _Sight:
    identity: str | None
    at: float
    silent: float = 0.0


class Watch:
    """Observations of one member.

    `start` is its first position among the members, in [0, 1): different starts cover more together.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._next: int | None = None
        self._seen: dict[str, _Sight] = {}

    def turn(self, members: Sequence[str]) -> list[str]:
        """Members to look at: all, or the next ones."""
        if len(members) <= AT_ONCE:
            return list(members)
        first = int(self._start * len(members)) if self._next is None else self._next
        self._next = (first + AT_ONCE) % len(members)
        return [members[number % len(members)] for number in range(first, first + AT_ONCE)]

    def see(self, member: str, identity: str | None, now: float, session: float) -> bool:
        """Record a file; return whether its member was silent for a session.

        A missing file (`identity` None) is no sign of life: its deleter may have died. `now` is monotonic; seconds.
        """
        before = self._seen.get(member)
        if before is None or identity not in (None, before.identity):
            self._seen[member] = _Sight(identity, now)
            return False
        silent = before.silent + min(now - before.at, session * _PART)
        self._seen[member] = replace(before, at=now, silent=silent)
        return silent >= session

    def changed(self, member: str, identity: str | None) -> bool:
        """Whether a file seen before has changed."""
        before = self._seen.get(member)
        return before is not None and identity not in (None, before.identity)

    def keep(self, members: Collection[str]) -> None:
        """Forget all others."""
        if len(self._seen) > len(members):
            self._seen = {member: sight for member, sight in self._seen.items() if member in members}
