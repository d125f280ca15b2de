"""Files of a group's members: messages that may be lost or stale."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError, UnknownTopicError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.members import MemberFile, Profile, TopicIncarnation
from pyspark_commitlog.replication.metadata.metadata_roots import Deciders
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.base import write_whole

_Result = TypeVar("_Result")

log = logging.getLogger("pyspark_commitlog.groups")

#: Looks at a valid file before it is read again.
_LOOKS = 8
#: More than the file of a member with 10,000 topics by name and 100,000 partitions; a longer one is cut, and invalid.
_MAX_BYTES = 16 * 2**20


@dataclass(slots=True)
class _Read:
    valid: bool
    looks: int = 0


class MemberFiles:
    """Directory of a group's member files; other files count as missing.

    With several metadata roots each has one: all readers of a majority see a write to one. Files of a root that was
    away are stale until the next heartbeat.
    """

    def __init__(self, storage: Storage, group: str, deciders: Deciders | None = None) -> None:
        self._storage, self._group, self._deciders = storage, group, deciders
        self._directory = paths.group_members(group)
        self._read: dict[str, _Read] = {}

    @classmethod
    def of(cls, handle: GroupLog) -> MemberFiles:
        """Files of a group."""
        return cls(handle.storage, handle.name, handle.deciders)

    def _run_at_each_root(self, act: Callable[[Storage], _Result]) -> list[_Result]:
        """Run a function at each reachable root; return the results."""
        if self._deciders is None:
            return [act(self._storage)]
        found, failures = list[_Result](), list[str]()
        for storage in self._deciders.reachable_roots():
            try:
                done = act(storage)
                if not done and not storage.exists(paths.ROOT_MARKER):  # an unmounted disk has no files
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
        """Replace a file, not durably."""

        def put(storage: Storage) -> bool:
            write_whole(storage.create(self._path(member_id)), file.encode(), durable=False)
            return True

        self._run_at_each_root(put)

    def read(self, member_id: str) -> MemberFile | None:
        """Return a member's file; None if missing or invalid, warned of once.

        Of several, the highest generation: others are from before an outage.
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
        path = self._path(member_id)
        try:
            return MemberFile.decode(storage.read(path, 0, _MAX_BYTES), path)
        except FileNotFoundError:
            return None
        except CorruptionError as error:
            return error

    def sign(self, member_id: str, *, closely: bool = False) -> str | None:
        """Return a member's sign of life, which changes with its file.

        None without one. Valid files are read only now and then, or if `closely`. An unreadable file is no sign, or
        others would wait for ever.
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
        """Forget all others."""
        if len(self._read) > len(members):
            self._read = {member_id: seen for member_id, seen in self._read.items() if member_id in members}

    def delete(self, member_id: str) -> None:
        """Remove a file; a live member writes it again."""
        self._run_at_each_root(lambda storage: storage.delete(self._path(member_id)))

    def faults(self) -> list[str]:
        """Faults of invalid files."""
        found = [self._run_at_each_root(lambda storage: self._at(storage, member)) for member in self.members()]  # noqa: B023
        return [str(each) for of_member in found for each in of_member if isinstance(each, CorruptionError)]

    def clear(self) -> None:
        """Remove all files."""

        def clear(storage: Storage) -> None:
            for name in storage.names(self._directory):
                storage.delete(f"{self._directory}/{name}")

        self._run_at_each_root(clear)

    def members(self) -> list[str]:
        """Members with files, sorted."""
        named = self._run_at_each_root(lambda storage: storage.names(self._directory))
        member_ids = (paths.parse_member(name) for name in sorted(set[str]().union(*named)))
        return [member_id for member_id in member_ids if member_id is not None]


def topic_incarnations(
    handle: GroupLog, profiles: Iterable[Profile], known: Mapping[str, TopicIncarnation], warn: Callable[[str], object]
) -> dict[str, TopicIncarnation]:
    """Present incarnations of the topics that members want.

    A damaged topic keeps its `known` incarnation, so that others proceed, and is passed to `warn`.
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
