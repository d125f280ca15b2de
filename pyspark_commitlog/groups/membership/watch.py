"""Which members are silent: what an observer saw of members' files, by its own monotonic clock (rule R10). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

#: Files that a member looks at in one go: with 1,000 members each is still looked at by many.
AT_ONCE = 64
#: No look counts for more than this part of a session: an observer that slept has to look again.
_PART = 0.5


@dataclass(frozen=True, slots=True)
class _Sight:
    identity: str | None
    at: float
    silent: float = 0.0


class Watch:
    """What one observer knows.

    Args:
        start: where to begin among the members, in [0, 1): observers that begin apart see more together.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._next: int | None = None
        self._seen: dict[str, _Sight] = {}

    def turn(self, members: Sequence[str]) -> list[str]:
        """Return whose files to look at now: all, or where they are many, the next ones."""
        if len(members) <= AT_ONCE:
            return list(members)
        first = int(self._start * len(members)) if self._next is None else self._next
        self._next = (first + AT_ONCE) % len(members)
        return [members[number % len(members)] for number in range(first, first + AT_ONCE)]

    def see(self, member: str, identity: str | None, now: float, session: float) -> bool:
        """Take in what a member's file is now; return whether its member gave no sign of life for a session.

        A file that is gone is no sign of life: another member may have deleted it, and died itself.

        Args:
            member: whose.
            identity: of the file, as storage gives it; None where there is none.
            now: monotonic, in seconds.
            session: in seconds.
        """
        before = self._seen.get(member)
        if before is None or identity not in (None, before.identity):
            self._seen[member] = _Sight(identity, now)
            return False
        silent = before.silent + min(now - before.at, session * _PART)
        self._seen[member] = replace(before, at=now, silent=silent)
        return silent >= session

    def changed(self, member: str, identity: str | None) -> bool:
        """Return whether a file that was seen is another one now."""
        before = self._seen.get(member)
        return before is not None and identity not in (None, before.identity)

    def keep(self, members: Collection[str]) -> None:
        """Forget all others."""
        if len(self._seen) > len(members):
            self._seen = {member: sight for member, sight in self._seen.items() if member in members}
