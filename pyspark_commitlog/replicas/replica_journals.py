"""Where a unit is: its journals at the roots that belong together, the one that decides among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, ConflictError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Draft, ReaderState, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, LandedDraft, Plan, Result
from pyspark_commitlog.replicas import quorum_changes
from pyspark_commitlog.replicas.entry_fields import state_of, with_state
from pyspark_commitlog.replicas.learning import Replica
from pyspark_commitlog.replicas.quorum import Quorum, Sent, certain
from pyspark_commitlog.replicas.quorum_members import MovedError
from pyspark_commitlog.replicas.replica_state import MetadataSet, ReplicaState
from pyspark_commitlog.replicas.roots import Address, Listed, Roots, check_identity
from pyspark_commitlog.replicas.unit import Unit
from pyspark_commitlog.storage import Storage

#: How often the metadata roots may be replaced while something is decided.
_TRIES = 20

_Found = TypeVar("_Found")


class Donors:
    """Roots that may have files. They are asked whether they answer when a file is looked for: mostly none is."""

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
    """A unit at all its roots.

    Args:
        roots: those that belong together.
        unit: what is there.
        check: see ``Journal``.
        reader_states: what other handles of this process know of its journals, by the URLs of their roots.

    Not safe for use by several threads at once, but for ``at``.
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
        """Return the unit at a root.

        Raises:
            ReplicaNotAvailableError: it does not answer, or is another root now.
        """
        if root not in self._at:
            data = any(address.id == root for address in self.roots.listed().data)
            made = Replica.at(root, self.roots.open(root), self.unit, self._check, data=data)
            state = self._reader_states.pop(made.storage.url, None)  # once: a root that is opened again is asked again
            if state is not None:
                made.journal.go_on_from(state)
            self._at[root] = made
        return self._at[root]

    def reader_states(self) -> dict[str, ReaderState]:
        """Return the reader states of the unit's journals, by root URL."""
        found = {replica.storage.url: replica.journal.reader_state() for replica in self._at.values()}
        return {**self._reader_states, **{url: state for url, state in found.items() if state is not None}}

    def decider(self) -> Replica:
        """Return the unit at the metadata root.

        Raises:
            UnsupportedError: there are several.
            ReplicaNotAvailableError: it does not answer: nothing can be decided.
        """
        self.roots.compare()
        listed = self.roots.listed()
        return self._by_majority(listed) if len(listed.metadata) > 1 else self.at(listed.metadata[0].id)

    def make_directory(self) -> None:
        """Make a new unit's directory at the metadata root; several make it as they accept the first entry."""
        decider = self.decider()
        if not isinstance(decider.journal, Quorum):
            decider.storage.make_directory(self.unit.directory)

    def _by_majority(self, listed: Listed) -> Replica:
        """Return the unit at several metadata roots, of which a majority answers."""
        if self._quorum_of is None or listed.decided_by(self._quorum_of) != listed:
            self._quorum = None
        if self._quorum is None or len(self._quorum.seats) < len(listed.metadata):
            made = quorum_changes.quorum_of(self.roots, listed, self.unit, self._check, self.at)
            if self._quorum is None or len(self._quorum.seats) < len(made.seats):
                self._quorum, self._quorum_of = made, listed
        first = self._quorum.first
        return Replica(first.id, first.storage, self.unit, self._quorum)

    def deciding(self) -> tuple[str, ...]:
        """Return the ids of the roots that decide."""
        return self.roots.listed().deciding()

    def metadata(self) -> list[Replica]:
        """Return the unit at the metadata roots that answer; none while one of them is being replaced.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer, or most of several.
        """
        decider, listed = self.decider(), self.roots.listed()
        if self._quorum is None or len(listed.metadata) == 1:
            return [decider]
        return [] if listed.former else [seat.replica for seat in self._quorum.seats]

    def decide(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry, at the metadata root that the newest entry names; see ``Journal.append``.

        Raises:
            ReplicaNotAvailableError: it does not answer, or is not the one that decides.
        """
        own: Sent[Result] = {}

        def append() -> Appended[Result]:
            decider = self.decider()
            journal, planned = decider.journal, self._by_base(decider, plan)
            if not isinstance(journal, Quorum):
                if own:
                    raise ReplicaNotAvailableError(f"{self.unit.directory}: {decider.storage.url} decides by now")
                return journal.append(planned, repeatable=repeatable)
            try:
                return journal.planned(planned, own)
            except ReplicaNotAvailableError as error:  # one of those that are there may have been replaced
                if self.roots.compare(again=True):
                    raise MovedError from error
                raise

        with certain(self.unit.directory, own):
            return self._where_decided(append)

    def _where_decided(self, act: Callable[[], _Found]) -> _Found:
        """Do something at the metadata roots; at those that follow, where one of them was replaced."""
        for _ in range(_TRIES):
            try:
                return act()
            except MovedError:
                if not self.roots.compare(again=True):
                    quorum_changes.follow(self.roots)
        raise ConflictError(f"{self.unit.directory}: metadata roots are replaced all the time; try again later")

    def teach(self, target: Replica) -> Stored | None:
        """Have a root learn all that is decided that is to decide with others; return the newest entry, if any.

        Raises:
            CommitLogError, OSError: it can't.
        """

        def act() -> Stored | None:
            newest = self.decided()
            if newest is not None and self._quorum is not None:
                self._quorum.teach(target, newest)
            return newest

        return self._where_decided(act)

    def _by_base(self, decider: Replica, plan: Plan[Result]) -> Plan[Result]:
        """Return a plan that is refused where the newest entry says that others decide.

        Of several its register says so, where one was replaced: then the next entry names those of now.
        """
        by, of = decider.journal, self._quorum_of
        moved = of if of is not None and isinstance(by, Quorum) else None

        def planned(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
            if base is None or not base.entry.features:
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
        """Return the newest decided entry; None where there is no such unit.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer. Without its marker it is not the one that it
                was: an empty mount point has no entries either, and nothing may be decided there.
        """
        try:
            return self._where_decided(self._decided)
        except (CommitLogError, OSError):  # another one may be named by now
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
        """Return whether an entry is decided by now that the metadata root lacked: others may not have reached it.

        It has learned it then; of several another one may be read from now on.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer, or most of several.
        """
        newest = self.decided()
        return newest is not None and newest.sequence >= number

    def newest(self) -> Stored:
        """Return the newest decided entry.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer, or lacks the unit.
        """
        stored = self.decided()
        if stored is None:
            raise ReplicaNotAvailableError(
                f"the metadata root {self.decider().storage.url} has no {self.unit.directory}: restore it"
            )
        return stored

    def standing(self, base: Stored | None) -> Stored:
        """Return the base of a plan for a unit that is there: the newest entry was read before.

        Raises:
            ReplicaNotAvailableError: the metadata root is away since then, or was for a moment.
        """
        if base is None:
            self.newest()  # raises while the root is away
            raise ReplicaNotAvailableError(f"{self.unit.directory}: the metadata root was away; run it again")
        return base

    def newest_known(self) -> Stored | None:
        """Return the newest decided entry, where the metadata root does not answer the first that is found learned.

        None: there is no such unit.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer, and no root that has it either.
        """
        try:
            return self.decided()
        except (CommitLogError, OSError):  # reading does not need it
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
        """Return the unit at a root that is not listed (yet)."""
        return Replica.at(root, storage, self.unit, self._check)

    def forget(self, root: str) -> None:
        """Open a root again when it is asked next: it did not answer."""
        self._at.pop(root, None)

    def donors(self, state: ReplicaState) -> Donors:
        """Return the roots that may have files, the leader first; those that answer."""
        return Donors(self, tuple(dict.fromkeys((state.leader, *state.isr, *state.replicas))))

    def staged_at(self) -> list[Storage]:
        """Return the roots where acks=all stages: all that are in sync or join, the leader first; those that answer."""
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
        """Return this process' monotonic time, seconds."""
        return self.decider().storage.clock.monotonic()

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.decider().storage.clock.sleep(seconds)
