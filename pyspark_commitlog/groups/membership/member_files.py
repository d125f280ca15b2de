"""The files of a group's members: messages that anybody may read, lose or find old (``MemberFile``)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyspark_commitlog.errors import CorruptionError, UnknownTopicError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.members import MemberFile, Profile, TopicIncarnation
from pyspark_commitlog.storage import Storage

log = logging.getLogger("pyspark_commitlog.groups")

#: Looks at a file that was a member's before it is read again.
_LOOKS = 8
#: More than a member's file takes that wants 10,000 topics by name and has 100,000 partitions; a longer one is cut off,
#: and is no member's.
_MAX_BYTES = 16 * 2**20


@dataclass(slots=True)
class _Read:
    """What a file was when it was read last, and how often it was looked at since."""

    valid: bool
    looks: int = 0


class MemberFiles:
    """The directory of one group's members; what lies there and is no member's file counts as not there."""

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage, self._group = storage, group
        self._directory = paths.group_members(group)
        self._read: dict[str, _Read] = {}

    def _path(self, member_id: str) -> str:
        return f"{self._directory}/{paths.member_name(member_id)}"

    def write(self, member_id: str, file: MemberFile) -> None:
        """Put a file in the place of the one there is; it need not survive power loss."""
        output = self._storage.create(self._path(member_id))
        try:
            output.write(file.encode())
            output.close(durable=False)
        except BaseException:
            output.discard()
            raise

    def read(self, member_id: str) -> MemberFile | None:
        """Return what a member says; None where there is no such file, or none that a member wrote: warned of once."""
        path, before = self._path(member_id), self._read.get(member_id)
        file = None
        try:
            file = MemberFile.decode(self._storage.read(path, 0, _MAX_BYTES), path)
            self._read[member_id] = _Read(valid=True)
        except FileNotFoundError:
            self._read.pop(member_id, None)
        except CorruptionError as error:
            if before is None or before.valid:
                log.warning("group %r: member %s counts as gone: %s", self._group, member_id, error)
            self._read[member_id] = _Read(valid=False)
        return file

    def sign(self, member_id: str, *, closely: bool = False) -> str | None:
        """Return a member's sign of life: what differs from the file before; None where there is none.

        A file is read when it is first seen, and now and then; one that was no member's each time. A member whose file
        can't be read gives no sign: if the others waited for what it says, they would for ever.

        Args:
            member_id: whose.
            closely: read it in any case.
        """
        known = self._read.get(member_id)
        if closely or known is None or not known.valid or known.looks >= _LOOKS:
            self.read(member_id)
            known = self._read.get(member_id)
        if known is None or not known.valid:
            return None
        known.looks += 1
        try:
            return self._storage.info(self._path(member_id)).identity
        except FileNotFoundError:
            return None

    def keep(self, members: Collection[str]) -> None:
        """Forget what was seen of all others."""
        if len(self._read) > len(members):
            self._read = {member_id: seen for member_id, seen in self._read.items() if member_id in members}

    def delete(self, member_id: str) -> None:
        """Remove a file; its member, if it lives, writes it again."""
        self._storage.delete(self._path(member_id))

    def faults(self) -> list[str]:
        """Return what is wrong with files that are no members'."""
        faults = []
        for member_id in self.members():
            path = self._path(member_id)
            try:
                MemberFile.decode(self._storage.read(path, 0, _MAX_BYTES), path)
            except FileNotFoundError:  # its member has left meanwhile
                continue
            except CorruptionError as error:
                faults.append(str(error))
        return faults

    def clear(self) -> None:
        """Remove all files that there are."""
        for name in self._storage.names(self._directory):
            self._storage.delete(f"{self._directory}/{name}")

    def members(self) -> list[str]:
        """Return whose files there are, sorted."""
        member_ids = (paths.parse_member(name) for name in self._storage.names(self._directory))
        return [member_id for member_id in member_ids if member_id is not None]


def topic_incarnations(handle: GroupLog, profiles: Iterable[Profile]) -> dict[str, TopicIncarnation]:
    """Return the topics that members want and that are there, as they are now."""
    incarnations = {}
    for name in sorted({name for wanted in {profile.topics for profile in profiles} for name in wanted}):
        try:
            _, state = handle.topic(name).newest()
        except (UnknownTopicError, UsageError):
            continue
        incarnations[name] = TopicIncarnation(state.topic_id, state.partitions)
    return incarnations
