"""The files of a group's members: messages that anybody may read, lose or find old (``MemberFile``)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_commitlog.errors import CorruptionError, UnknownTopicError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.group import GroupLog
from pyspark_commitlog.groups.members import MemberFile, Profile, TopicLife
from pyspark_commitlog.groups.rebalance import wanted_topics
from pyspark_commitlog.storage import Storage

#: More than a member's file takes that wants 10,000 topics by name and has 100,000 partitions; a longer one is cut off,
#: and is no member's.
_MAX_BYTES = 16 * 2**20


class MemberFiles:
    """The directory of one group's members."""

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage = storage
        self._directory = paths.group_members(group)

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
        """Return what a member says; None where there is no such file, or none that a member wrote."""
        path = self._path(member_id)
        try:
            return MemberFile.decode(self._storage.read(path, 0, _MAX_BYTES), path)
        except (FileNotFoundError, CorruptionError):
            return None

    def identity(self, member_id: str) -> str | None:
        """Return what tells a file from the one before; None where there is none."""
        try:
            return self._storage.info(self._path(member_id)).identity
        except FileNotFoundError:
            return None

    def delete(self, member_id: str) -> None:
        """Remove a file; its member, if it lives, writes it again."""
        self._storage.delete(self._path(member_id))

    def members(self) -> list[str]:
        """Return whose files there are, sorted."""
        found = (paths.parse_member(name) for name in self._storage.names(self._directory))
        return [member_id for member_id in found if member_id is not None]


def topic_lives(handle: GroupLog, profiles: Iterable[Profile]) -> dict[str, TopicLife]:
    """Return the topics that members want and that are there, as they are now."""
    profiles = list(profiles)
    names = {name for each in profiles for name in each.topics}
    if any(each.pattern is not None for each in profiles):
        listed = dict.fromkeys(handle.storage.names(paths.TOPICS), TopicLife("", 0))
        names.update(wanted_topics(profiles, listed))
    found = {}
    for name in sorted(names):
        try:
            _, state = handle.topic(name).newest()
        except (UnknownTopicError, UsageError):
            continue
        found[name] = TopicLife(state.topic_id, state.partitions)
    return found
