"""A unit's journals at all roots, and its decider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, ConflictError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Draft, ReaderState, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, LandedDraft, Plan, Result
from pyspark_commitlog.replication.metadata import quorum_changes
from pyspark_commitlog.replication.metadata.quorum import Quorum, Sent, certain
from pyspark_commitlog.replication.metadata.quorum_members import MovedError
from pyspark_commitlog.replication.protocol.entry_fields import state_of, with_state
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet, ReplicaState
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots, check_identity
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.clock import Backoff

#: Replacements of metadata roots to survive in one call.
_TRIES = 20

_Found = TypeVar("_Found")


class Donors:
    """Roots that may have files, opened on demand."""

    def __init__(self, places: Places, roots: Sequence[str]) -> None:
        self._places, self._roots = places, roots

    def __iter__(self) -> Iterator[Storage]:
        for root in self._roots:
            try:
                storage = self._places.at(root).storage
            except (CommitLogError, OSError):
                continue
            yield storage


class Places:
    """A unit at all its roots. Not thread-safe, except `at`.

    `reader_states`: other handles' of this process, by root URL.
    """

    def __init__(
        self,
        roots: Roots,
        unit: Unit,
        check: quorum_changes.Check,
        reader_states: Mapping[str, ReaderState] | None = None,
    ) -> None:
        self.roots, self.unit, self._check = roots, unit, check
        self._at: dict[str, Replica] = {}
        self._reader_states = dict(reader_states or {})
        self._quorum: Quorum | None = None
        self._quorum_of: Listed | None = None

    def at(self, root: str) -> Replica:
        """Return the unit at a root."""
        if root not in self._at:
            data = any(address.id == root for address in self.roots.listed().data)
            made = Replica.at(root, self.roots.open(root), self.unit, self._check, data=data)
            state = self._reader_states.pop(made.storage.url, None)  # once: a reopened root is asked again
            if state is not None:
                made.journal.go_on_from(state)
            self._at[root] = made
        return self._at[root]

    def reader_states(self) -> dict[str, ReaderState]:
        """Return the journals' reader states by root URL."""
        found = {replica.storage.url: replica.journal.reader_state() for replica in self._at.values()}
        return {**self._reader_states, **{url: state for url, state in found.items() if state is not None}}

    def decider(self) -> Replica:
        """Return the unit at the metadata root, or a majority."""
        self.roots.compare()
        listed = self.roots.listed()
        if len(listed.metadata) > 1:
            return self._by_majority(listed)
        self._quorum = None
        return self.at(listed.metadata[0].id)

    def make_directory(self) -> None:
        """Make a unit's directory at a single metadata root."""
        decider = self.decider()
        if self._quorum is None:
            decider.storage.make_directory(self.unit.directory)

    def _by_majority(self, listed: Listed) -> Replica:
        if self._quorum_of is None or listed.decided_by(self._quorum_of) != listed:
            self._quorum = None
        if self._quorum is None or len(self._quorum.seats) < len(listed.metadata):
            made = quorum_changes.quorum_of(self.roots, listed, self.unit, self._check, self.at)
            if self._quorum is None or len(self._quorum.seats) < len(made.seats):
                self._quorum, self._quorum_of = made, listed
        first = self._quorum.first
        return Replica(first.id, first.storage, self.unit, self._quorum)

    def deciding(self) -> tuple[str, ...]:
        """Ids of the roots that decide."""
        return self.roots.listed().deciding()

    def metadata(self) -> list[Replica]:
        """Answering metadata roots; none during a replacement."""
        decider, listed = self.decider(), self.roots.listed()
        if self._quorum is None:
            return [decider]
        return [] if listed.former else [seat.replica for seat in self._quorum.seats]

    def decide(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry where the newest says; see `Journal.append`."""
        own: Sent[Result] = {}

        def append() -> Appended[Result]:
            decider = self.decider()
            quorum, planned = self._quorum, self._by_base(decider, plan)
            if quorum is None:
                if own:
                    raise ReplicaNotAvailableError(f"{self.unit.directory}: {decider.storage.url} decides by now")
                return decider.journal.append(planned, repeatable=repeatable)
            try:
                return quorum.planned(planned, own)
            except ReplicaNotAvailableError as error:  # one of the seats may have been replaced
                if self.roots.compare(again=True):
                    raise MovedError from error
                raise

        with certain(self.unit.directory, own):
            return self._where_decided(append)

    def _where_decided(self, act: Callable[[], _Found]) -> _Found:
        for _ in range(_TRIES):
            try:
                return act()
            except MovedError:
                if not self.roots.compare(again=True):
                    quorum_changes.follow(self.roots)
        raise ConflictError(f"{self.unit.directory}: metadata roots are replaced all the time; try again later")

    def teach(self, target: Replica) -> Stored | None:
        """Bring a future metadata root up to date; return the newest entry."""

        def act() -> Stored | None:
            newest = self.decided()
            if newest is not None and self._quorum is not None:
                self._quorum.teach(target, newest)
            return newest

        return self._where_decided(act)

    def _by_base(self, decider: Replica, plan: Plan[Result]) -> Plan[Result]:
        """Plan, refused if the base says that others decide.

        After a replacement the register says so; the next entry names the new set.
        """
        moved = None if self._quorum is None else self._quorum_of

        def planned(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
            if base is None or not base.entry.is_replicated:
                return plan(base, slot)
            deciding, now = state_of(base.entry).set, self.deciding() if moved is None else moved.deciding()
            if deciding.roots != now and (moved is None or deciding.generation >= moved.generation):
                raise ReplicaNotAvailableError(
                    f"{self.unit.directory}: root {', '.join(deciding.roots)} decides what comes next, not "
                    f"{decider.storage.url} (root {decider.id}): run `commitlog replicas recover` again"
                )
            answer = plan(base, slot)
            if deciding.roots == now or moved is None or not isinstance(answer, Draft):
                return answer
            said = ReplicaState.from_json(answer.body["state"]["replicas"])
            return with_state(answer, replace(said, set=MetadataSet(moved.generation, slot.write_id, now)))

        return planned

    def decided(self) -> Stored | None:
        """Newest decided entry, if any.

        Without its marker the metadata root is an empty mount point.
        """
        try:
            return self._where_decided(self._decided)
        except (CommitLogError, OSError):  # another root may decide by now
            if not self.roots.compare(again=True) and self._quorum is None:
                raise
            self._quorum = None
            self._at.clear()
            self._reader_states.clear()
            return self._where_decided(self._decided)

    def _decided(self) -> Stored | None:
        decider = self.decider()
        stored = decider.journal.newest()
        address = self.roots.listed().address(decider.id)
        if stored is None and address is not None:
            check_identity(decider.storage, address)
        return stored

    def has_decided(self, number: int) -> bool:
        """Whether an entry that the decider lacked is decided."""
        newest = self.decided()
        return newest is not None and newest.sequence >= number

    def newest(self) -> Stored:
        """Newest decided entry.

        Raises:
            ReplicaNotAvailableError: the metadata root lacks the unit.
        """
        stored = self.decided()
        if stored is None:
            raise ReplicaNotAvailableError(
                f"the metadata root {self.decider().storage.url} has no {self.unit.directory}: restore it"
            )
        return stored

    def standing(self, base: Stored | None) -> Stored:
        """Return the base of a plan for an existing unit."""
        if base is None:
            self.newest()  # raises while the root is away
            raise ReplicaNotAvailableError(f"{self.unit.directory}: the metadata root was away; run it again")
        return base

    def newest_known(self) -> Stored | None:
        """Newest decided entry, else one found learned."""
        try:
            return self.decided()
        except (CommitLogError, OSError):  # reads do not need the metadata root
            return self._learned_anywhere()

    def _learned_anywhere(self) -> Stored:
        failures = []
        for address in self.roots.listed().data:
            try:
                check_identity(self.roots.open(address.id), address)
                newest = self.at(address.id).journal.newest()
                if newest is not None:
                    return newest
                failures.append(f"{address} has not learned of it")
            except (CommitLogError, OSError) as error:
                failures.append(str(error))
        raise ReplicaNotAvailableError(
            f"{self.unit.directory}: the metadata root does not answer, and no root that has it: {'; '.join(failures)}"
        )

    def unlisted_replica(self, root: str, storage: Storage) -> Replica:
        """Return the unit at an unlisted root."""
        return Replica.at(root, storage, self.unit, self._check)

    def forget(self, root: str) -> None:
        """Reopen a root the next time."""
        self._at.pop(root, None)

    def donors(self, state: ReplicaState) -> Donors:
        """Answering roots with files, leader first."""
        return Donors(self, tuple(dict.fromkeys((state.leader, *state.isr, *state.replicas))))

    def staged_at(self) -> list[Storage]:
        """Answering roots for acks=all, leader first."""
        state, found = state_of(self.newest().entry), []
        for root in dict.fromkeys((state.leader, *state.isr, *state.joining)):
            try:
                found.append(self.at(root).storage)
            except (CommitLogError, OSError):
                continue
        return found

    def addresses(self, state: ReplicaState) -> list[Address]:
        """Return where the replicas are, in their order."""
        listed = self.roots.listed()
        return [listed.address(root) or Address(root, "a root that is not listed") for root in state.replicas]

    def monotonic(self) -> float:
        """Monotonic time, in seconds."""
        return self.decider().storage.clock.monotonic()

    def pause(self, backoff: Backoff, before: int) -> None:
        """Sleep as `Storage.pause`."""
        self.decider().storage.pause(backoff, before)
