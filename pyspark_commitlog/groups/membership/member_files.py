"""The files of a group's members: messages that anybody may read, lose or find old (``MemberFile``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError, UnknownTopicError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.members import MemberFile, Profile, TopicIncarnation
from pyspark_commitlog.replicas.metadata_roots import Deciders
from pyspark_commitlog.storage import Storage

_Result = TypeVar("_Result")

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
    """The directory of one group's members; what lies there and is no member's file counts as not there.

    Where several metadata roots decide it lies at each of them: what a member writes to a majority, all see that reach
    one. What lies at one that was away may be old, and is written again with the next heartbeat.

    Args:
        storage: the root.
        group: its name.
        deciders: the metadata roots, where there are several.
    """

    def __init__(self, storage: Storage, group: str, deciders: Deciders | None = None) -> None:
        self._storage, self._group, self._deciders = storage, group, deciders
        self._directory = paths.group_members(group)
        self._read: dict[str, _Read] = {}

    @classmethod
    def of(cls, handle: GroupLog) -> MemberFiles:
        """Return those of a group."""
        return cls(handle.storage, handle.name, handle.deciders)

    def _run_at_each_root(self, act: Callable[[Storage], _Result]) -> list[_Result]:
        """Run a function at each root of the directory; return the results.

        Of several roots those count that answer.

        Raises:
            StorageError: it failed; of several roots no majority is left.
        """
        if self._deciders is None:
            return [act(self._storage)]
        found, failures = list[_Result](), list[str]()
        for storage in self._deciders.reachable_roots():
            try:
                done = act(storage)
                if not done and not storage.exists(paths.ROOT_MARKER):  # a disk that is not mounted has no files
                    raise ReplicaNotAvailableError(f"{storage.url} does not answer")
                found.append(done)
            except OSError as error:
                failures.append(str(error))
        if len(found) < self._deciders.majority:
            raise ReplicaNotAvailableError(
                f"{self._directory}: {len(found)} metadata roots answer, {self._deciders.majority} have to"
                f"{': ' if failures else ''}{'; '.join(failures)}"
            )
        return found

    def _path(self, member_id: str) -> str:
        return f"{self._directory}/{paths.member_name(member_id)}"

    def write(self, member_id: str, file: MemberFile) -> None:
        """Put a file in the place of the one there is; it need not survive power loss."""

        def put(storage: Storage) -> bool:
            output = storage.create(self._path(member_id))
            try:
                output.write(file.encode())
                output.close(durable=False)
            except BaseException:
                output.discard()
                raise
            return True

        self._run_at_each_root(put)

    def read(self, member_id: str) -> MemberFile | None:
        """Return a member's file; None if it is missing or invalid.

        A file that no member wrote is warned of once.

        Of several the one that has come furthest: another is of before its root was away.
        """
        before = self._read.get(member_id)
        found = self._run_at_each_root(lambda storage: self._at(storage, member_id))
        files = [each for each in found if isinstance(each, MemberFile)]
        damaged = next((each for each in found if isinstance(each, CorruptionError)), None)
        if files:
            self._read[member_id] = _Read(valid=True)
            return max(files, key=lambda file: file.generation)
        if damaged is None:
            self._read.pop(member_id, None)
            return None
        if before is None or before.valid:
            log.warning("group %r: member %s counts as gone: %s", self._group, member_id, damaged)
        self._read[member_id] = _Read(valid=False)
        return None

    def _at(self, storage: Storage, member_id: str) -> MemberFile | CorruptionError | None:
        """Return a member's file at a root, what is wrong with it, or None where there is none."""
        path = self._path(member_id)
        try:
            return MemberFile.decode(storage.read(path, 0, _MAX_BYTES), path)
        except FileNotFoundError:
            return None
        except CorruptionError as error:
            return error

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
        signs = self._run_at_each_root(lambda storage: self._identity(storage, member_id))
        return " ".join(sign or "-" for sign in signs) if any(signs) else None

    def _identity(self, storage: Storage, member_id: str) -> str | None:
        try:
            return storage.info(self._path(member_id)).identity
        except FileNotFoundError:
            return None

    def keep(self, members: Collection[str]) -> None:
        """Forget what was seen of all others."""
        if len(self._read) > len(members):
            self._read = {member_id: seen for member_id, seen in self._read.items() if member_id in members}

    def delete(self, member_id: str) -> None:
        """Remove a file; its member, if it lives, writes it again."""
        self._run_at_each_root(lambda storage: storage.delete(self._path(member_id)))

    def faults(self) -> list[str]:
        """Return the faults of files that are no members'."""
        found = [self._run_at_each_root(lambda storage: self._at(storage, member)) for member in self.members()]  # noqa: B023
        return [str(each) for of_member in found for each in of_member if isinstance(each, CorruptionError)]

    def clear(self) -> None:
        """Remove all files that there are."""

        def clear(storage: Storage) -> None:
            for name in storage.names(self._directory):
                storage.delete(f"{self._directory}/{name}")

        self._run_at_each_root(clear)

    def members(self) -> list[str]:
        """Return whose files there are, sorted."""
        named = self._run_at_each_root(lambda storage: storage.names(self._directory))
        member_ids = (paths.parse_member(name) for name in sorted(set[str]().union(*named)))
        return [member_id for member_id in member_ids if member_id is not None]


def topic_incarnations(
    handle: GroupLog, profiles: Iterable[Profile], known: Mapping[str, TopicIncarnation], warn: Callable[[str], object]
) -> dict[str, TopicIncarnation]:
    """Return the topics that members want and that are there, as they are now.

    Args:
        handle: the group.
        profiles: of the members.
        known: the topics as the group has them: one that is damaged stays so, as the members' other topics go on.
        warn: called where one is damaged.
    """
    incarnations: dict[str, TopicIncarnation] = {}
    for name in sorted({name for wanted in {profile.topics for profile in profiles} for name in wanted}):
        try:
            _, state = handle.topic(name).newest()
        except (UnknownTopicError, UsageError):
            continue
        except CorruptionError as error:
            warn(f"group {handle.name!r}: topic {name!r} can't be read, and is taken as it was: {error}")
            incarnations |= {name: known[name]} if name in known else {}
            continue
        incarnations[name] = TopicIncarnation(state.topic_id, state.partitions)
    return incarnations
