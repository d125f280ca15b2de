"""One member's observations of the others, by their files.

Reads are bounded, or N joining members would read N² files per look: joiners' files are cached for a heartbeat,
revocations read until confirmed, only one that is pending, and silence checked once a heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pyspark_commitlog.groups.assignment.rebalance import Observation
from pyspark_commitlog.groups.membership.failure_detector import Watch
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.state.members import NEVER_IN, Member, MemberFile, Members, Profile


class Observer:
    """Looks of one member at the files of the others; `start`: see `Watch`."""

    def __init__(self, files: MemberFiles, start: float, heartbeat_seconds: float) -> None:
        self._files, self._heartbeat, self._watch = files, heartbeat_seconds, Watch(start)
        self._watched: float | None = None
        self._silent: list[str] = []
        self._joiners: dict[str, tuple[float, MemberFile]] = {}
        self._reached: dict[str, int] = {}

    def look(self, members: Members, member_id: str, profile: Profile, given_up: int, now: float) -> Observation:
        """Observe the other members; delete the file of a silent joiner.

        `member_id` looks, wants `profile` and has reached generation `given_up`; `now` is monotonic seconds.
        """
        rows = members.rows
        others = sorted({*rows, *self._files.members()} - {member_id})
        joining = {} if member_id in rows else {member_id: profile}
        joining.update(self._joining(set(others) - rows.keys(), now))
        gone = {}
        for silent in self._watched_now(others, rows, profile, now):
            joining.pop(silent, None)
            if silent in rows:
                gone[silent] = rows[silent].joined
            else:
                self._files.delete(silent)
        self._watch.keep(others)
        self._files.keep(others)
        self._reached = {member: reached for member, reached in self._reached.items() if member in rows}
        stay = {member: row for member, row in rows.items() if member not in gone}
        return Observation(joining, gone, self._given_up(stay, member_id, given_up))

    def _joining(self, members: Collection[str], now: float) -> Iterator[tuple[str, Profile]]:
        self._joiners = {member: read for member, read in self._joiners.items() if member in members}
        for member in members:
            read_at, file = self._joiners.get(member, (0.0, None))
            if file is None or now - read_at >= self._heartbeat:
                file = self._files.read(member)
                if file is None:
                    self._joiners.pop(member, None)
                    continue
                self._joiners[member] = now, file
            if file.generation == NEVER_IN:
                yield member, file.profile

    def _watched_now(
        self, others: Sequence[str], rows: Mapping[str, Member], profile: Profile, now: float
    ) -> list[str]:
        """Return silent members; between heartbeats recheck only those found silent."""
        if self._watched is None or now - self._watched >= self._heartbeat:
            self._watched, turn = now, self._watch.turn(others)
        else:
            turn = [member for member in self._silent if member in others]

        def is_silent(member: str) -> bool:
            session = (rows[member].profile if member in rows else profile).session_timeout_ms / 1000
            return self._watch.see(member, self._files.sign(member), now, session)

        self._silent = [member for member in turn if is_silent(member)]
        return self._silent

    def _given_up(self, rows: Mapping[str, Member], member_id: str, own: int) -> dict[str, int]:
        """Return generations reached by revoking members, to the first pending."""
        found = {}
        for member, row in rows.items():
            if row.revoking:
                found[member] = own if member == member_id else self._reached_by(member, row.revoked_in)
                if found[member] < row.revoked_in:
                    break  # no reassignment before that
        return found

    def _reached_by(self, member: str, generation: int) -> int:
        """Return a file's generation, cached if sufficient, as it only grows."""
        if self._reached.get(member, NEVER_IN) < generation:
            file = self._files.read(member)
            self._reached[member] = NEVER_IN if file is None else file.generation
        return self._reached[member]
