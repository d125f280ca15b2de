"""What one member sees of the others of its group, by their files.

Each member looks at all others, so what a look reads is bounded: a herd of N that joins would else read N² files with
each look. A joiner's file counts for a heartbeat, which is how often its member writes it; a file that says that
something is given up is not read again; of those that don't say so yet one is enough; and silence is looked for
once a heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pyspark_commitlog.groups.assignment.rebalance import Observation
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.membership.watch import Watch
from pyspark_commitlog.groups.state.members import NEVER_IN, Member, MemberFile, Members, Profile


class Observer:
    """The looks of one member at the files of the others.

    Args:
        files: of the group.
        start: where it begins to watch among the members; see ``Watch``.
        heartbeat_seconds: the time between two heartbeats.
    """

    def __init__(self, files: MemberFiles, start: float, heartbeat_seconds: float) -> None:
        self._files, self._heartbeat, self._watch = files, heartbeat_seconds, Watch(start)
        self._watched: float | None = None
        self._silent: list[str] = []
        self._joiners: dict[str, tuple[float, MemberFile]] = {}
        self._reached: dict[str, int] = {}

    def look(self, members: Members, member_id: str, profile: Profile, given_up: int, now: float) -> Observation:
        """Observe the other members; delete the file of a silent joiner.

        Args:
            members: as the newest entry has them.
            member_id: the member that looks.
            profile: what it wants.
            given_up: the generation that it has reached.
            now: monotonic, in seconds.
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
        """Yield those of the members without a row that want to come in, and what they want."""
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
        """Return which members gave no sign of life for their session; between heartbeats those that were silent."""
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
        """Return the generations that members with something to give up have reached, up to the first that has not."""
        found = {}
        for member, row in rows.items():
            if row.revoking:
                found[member] = own if member == member_id else self._reached_by(member, row.revoked_in)
                if found[member] < row.revoked_in:
                    break  # nothing is handed on before that
        return found

    def _reached_by(self, member: str, generation: int) -> int:
        """Return the generation that a member's file has reached: it only grows, so it is read until it is enough."""
        if self._reached.get(member, NEVER_IN) < generation:
            file = self._files.read(member)
            self._reached[member] = NEVER_IN if file is None else file.generation
        return self._reached[member]
