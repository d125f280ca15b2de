"""Decided log of a unit: metadata roots decide, replicas learn.

Any process moves it on: the writer stages, pushes, states HW, and takes out roots that do not answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
)
from pyspark_commitlog.journal import Draft, ReaderState, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, LandedDraft, Plan, Result
from pyspark_commitlog.replication.leader.election import Elections
from pyspark_commitlog.replication.leader.placement import assigned, candidates, how_many, resized
from pyspark_commitlog.replication.leader.pushing import Pushed, Pusher
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.metadata.quorum_changes import Check
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of, states_hw_alone, with_state
from pyspark_commitlog.replication.protocol.learning import (
    BehindError,
    NowhereError,
    RestoredError,
    SupersededError,
    bring,
    learn,
)
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet, ReplicaState
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.replication.protocol.rules import Ack, Reason, RefusedError
from pyspark_commitlog.replication.protocol.unit import ReplicationLimits, Unit
from pyspark_commitlog.storage.clock import Backoff

logger = logging.getLogger("pyspark_commitlog.replication")

#: While waiting for a replica.
_BACKOFF = Backoff(0.02, 1.0)
#: Appends again after elections that voided them.
_TRIES = 20


@dataclass
class _Attempt:
    number: int = 0
    epoch: int = 0
    acks_all: bool = False
    appends: bool = False
    on_all: bool = False
    hw_later: bool = False
    limits: ReplicationLimits | None = None


class DecidedLog:
    """Decides the entries of one unit. Not thread-safe."""

    def __init__(
        self, roots: Roots, unit: Unit, check: Check, reader_states: Mapping[str, ReaderState] | None = None
    ) -> None:
        self._unit = unit
        self.places = Places(roots, unit, check, reader_states)
        self.pusher = Pusher(self.places)
        self.elections = Elections(self.places, self.pusher)

    def exists(self) -> bool:
        """Whether the unit was decided to exist."""
        return self.places.decided() is not None

    def create(self, plan: Plan[Result], factor: int | None, ordinal: int) -> Appended[Result]:
        """Put the first entry of a unit's incarnation, with its replicas.

        A recreated topic's new replicas are out of sync.

        Args:
            factor: None for as many replicas as before, else three or all roots.
            ordinal: leaders go round robin by it.

        Raises:
            UsageError, ReplicaNotAvailableError: too few roots, or too few answer: nothing was put.
            NotLeaderError, ConflictError: its replicas can't be changed: nothing was put.
        """
        decider, listed = self.places.decider(), self.places.roots.listed()
        how_many(self.places, factor)
        before = self.places.decided()  # raises if it is not the same root any more
        is_new = before is None or not before.entry.is_replicated
        chosen, others = assigned(self.places, factor, ordinal) if is_new else ((), ())
        answering, free = ((), ()) if before is None or is_new else self._resizing(before, factor)
        of = MetadataSet(listed.generation, decider.storage.new_id(), listed.deciding())

        def created(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
            answer = plan(base, slot)
            if not isinstance(answer, Draft):
                return answer
            if base is not None and base.entry.is_replicated:
                state = self._resized(state_of(base.entry), factor, answering, free)
                return with_state(answer, rules.made_again(state, slot.sequence))
            if base is not None:  # that root alone has the earlier entries
                return with_state(answer, rules.made_where_it_was(of, decider.id, (*chosen, *others), slot.sequence))
            return with_state(answer, rules.created(of, chosen, chosen[0], slot.sequence, others))

        self.places.make_directory()
        appended = self.places.decide(created)
        for root, error in self.pusher.push().failed.items():
            logger.warning("%s: root %s has not learned it yet: %s", self._unit.directory, root, error)
        if before is not None and not is_new and factor is not None:
            try:
                self._tell_those_gone(before)
            except (CommitLogError, OSError) as error:  # the unit is created all the same
                logger.warning("%s: former replicas don't know yet that they are none: %s", self._unit.directory, error)
        return appended

    def _resizing(self, before: Stored, factor: int | None) -> tuple[Sequence[str], Sequence[str]]:
        held = state_of(before.entry).replicas
        if factor is None or factor == len(held):
            return (), ()
        if factor > len(held):
            return (), candidates(self.places, factor - len(held))
        self.elections.leader(before)
        return [root for root in held if self.places.roots.answers(root)], ()

    def _resized(
        self, state: ReplicaState, factor: int | None, answering: Sequence[str], free: Sequence[str]
    ) -> ReplicaState:
        if factor is None:
            return state
        after = resized(state, factor, answering, free)
        if len(after.replicas) != factor:
            raise ConflictError(f"{self._unit.directory}: others make it, nothing was made here: run it again")
        return after

    def _tell_those_gone(self, before: Stored) -> None:
        after = state_of(self.places.newest().entry).replicas
        for root in state_of(before.entry).replicas:
            if root not in after:
                self.pusher.tell(root)

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry; see `ReplicatedJournal.append`."""
        for _ in range(_TRIES):
            attempt = _Attempt()
            appended = self._decide(plan, attempt, repeatable)
            if self._spread(appended.stored, attempt):
                return appended
        raise OutcomeUnknownError(
            f"{self._unit.directory}: elections made void what was appended, {_TRIES} times; run it again"
        )

    def _decide(self, plan: Plan[Result], attempt: _Attempt, repeatable: bool) -> Appended[Result]:
        waited = 0
        while True:
            try:
                return self.places.decide(self._deciding(plan, attempt), repeatable=repeatable)
            except _HomeError as error:
                waits = self._waits_for_home(error)
            except _LackingError as error:
                waits = self._waits_for_roots(error)
            if waits:
                self.places.pause(_BACKOFF, waited)
                waited += 1

    def _waits_for_roots(self, error: _LackingError) -> bool:
        leader = error.state.leader
        if error.reason is Reason.TOO_MANY_ABOVE_HW:
            return not self._raises_hw(error.state.hw)
        if error.reason is Reason.NOT_ON_LEADER and not self.places.roots.answers(leader):
            self.elections.elect(gone=leader, why="the leader's root does not take chunks")
            return False
        if error.heirs:
            if not self.pusher.lags(leader, error.base, chunks=True):
                return True
            why = f"the leader's root takes no chunks: {error.roots[leader]}"
            self.elections.elect(gone=leader, why=why, preferred=error.heirs)
            return False
        overdue = self.pusher.overdue(error.roots, error.base, chunks=True)
        if not overdue and not error.waits:
            raise error.as_user_sees() from error
        for root in overdue:
            self.pusher.shrink(root, str(error))
        return not overdue

    def _raises_hw(self, above: int) -> bool:
        pushed = self._push()  # usually after an append, but none is decided here
        head = self.pusher.raise_hw(self.places.newest())
        for root in self.pusher.overdue(pushed.failed, head):
            self.pusher.shrink(root, str(pushed.failed[root]))
        self._replace_leader(pushed, head)
        return state_of(self.places.newest().entry).hw > above

    def _waits_for_home(self, error: _HomeError) -> bool:
        """Whether to wait for the leader's root, which takes nothing.

        Once overdue, another is elected. True also if the metadata root was behind.
        """
        cause, leader = error.cause, state_of(error.base.entry).leader
        if isinstance(cause, BehindError) and self.places.has_decided(cause.number):
            return True
        of_home = isinstance(cause, OSError) and not isinstance(cause, ReplicaNotAvailableError)
        of_home = of_home or isinstance(cause, RestoredError)  # else the metadata root may be, and decides nothing
        if not of_home or not self.places.roots.answers(error.home):
            raise cause
        if error.home == leader:
            self.pusher.failed(error.home)
            if not self.pusher.lags(error.home, error.base):
                return True
            self.elections.elect(gone=leader, why=f"the leader's root takes nothing: {cause}")
        raise NotLeaderError(
            f"{self._unit.directory}: NOT_LEADER_OR_FOLLOWER: nothing was written: root {error.home} does not lead and "
            f"has not learned entry {error.base.sequence}: {cause}. Run the write again, at the leader"
        ) from cause

    def _deciding(self, plan: Plan[Result], attempt: _Attempt) -> Plan[Result]:
        def decided(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
            base = self.places.standing(base)
            state = state_of(base.entry)
            self._catch_up_home(state, base)
            answer = plan(base, slot)
            if isinstance(answer, Unchanged):
                attempt.number = base.sequence - states_hw_alone(base.entry)
                attempt.acks_all, attempt.appends = answer.acks_all, False
                attempt.epoch, attempt.on_all, attempt.hw_later = state.leader_epoch, False, False
            if isinstance(answer, Draft):
                return self._with_replicas(base, state, slot, answer, attempt)
            return answer

        return decided

    def _catch_up_home(self, state: ReplicaState, base: Stored) -> None:
        if self._unit.whole:  # read at the metadata root
            return
        home = self.places.roots.own_id()
        if home in state.replicas and home not in state.set.roots:
            decider, donors = self.places.decider(), self.places.donors(state)
            try:
                self.pusher.learned[home] = learn(
                    decider, self.places.at(home), self._unit, donors, base, state.learned.get(home, 0)
                )
            except (CommitLogError, OSError) as error:
                raise _HomeError(home, base, error) from error

    def _with_replicas(
        self, base: Stored, state: ReplicaState, slot: Slot, draft: Draft[Result], attempt: _Attempt
    ) -> Draft[Result]:
        may = rules.hw_may_rise_to(state, base.sequence, self.pusher.learned)
        attempt.number, attempt.epoch, attempt.hw_later = slot.sequence, state.leader_epoch, draft.hw_later
        attempt.appends, attempt.acks_all = draft.kind == "append", draft.acks_all and draft.kind == "append"
        if attempt.appends:  # those at or below the hw that it states do not count above it
            after = self._appended(base, rules.with_hw(state, may), slot, draft, attempt)
            attempt.on_all = set(state.isr) <= set(after.on[slot.sequence])
        else:
            after = rules.with_hw(rules.after_other(state, base.sequence, slot.sequence), may)
        return with_state(draft, after)

    def _appended(
        self, base: Stored, state: ReplicaState, slot: Slot, draft: Draft[Result], attempt: _Attempt
    ) -> ReplicaState:
        needed = self._unit.files.drafted(draft)
        wanted = {state.leader, *state.isr, *state.joining} if draft.acks_all else {state.leader, *state.set.roots}
        on, failed = [], dict[str, Exception]()
        for root in state.replicas if not needed else state.ordered(wanted):
            try:
                if needed:
                    self.places.at(root).check()
                for file in needed:
                    bring(file, self.places.at(root).storage, self.places.donors(state))
                on.append(root)
                if needed:
                    self.pusher.took_chunks(root)
            except NowhereError as error:  # not this root's fault
                failed[root] = error
            except (CommitLogError, OSError) as error:
                failed[root] = error
                self.pusher.failed(root, chunks=True)
        limits = attempt.limits = self._unit.files.limits(base.entry)
        try:
            return rules.after_append(state, slot.sequence, on, acks_all=draft.acks_all, min_insync=limits.min_insync)
        except RefusedError as error:
            raise _LackingError(self._unit.directory, error.reason, state, base, on, failed, limits) from error

    # --- after it was decided ----------------------------------------------------------------------------

    def _spread(self, stored: Stored | None, attempt: _Attempt) -> bool:
        """Push what was decided, await `acks`; return False if void."""
        just_put = stored
        for tries in count():
            try:
                pushed, just_put = self._push(just_put), None
                head = self.places.newest()
                if not attempt.hw_later:  # with acks=all its chunks are on all of the ISR: it need not be at the HW
                    head = self.pusher.raise_hw(head)
                verdict = self._judged(stored, attempt, pushed, head)
                for root in self.pusher.overdue(pushed.failed, head):
                    self.pusher.shrink(root, str(pushed.failed[root]))
                if verdict is not Ack.WAIT:
                    break
                self._replace_leader(pushed, head)
            except (CommitLogError, OSError) as error:
                if not attempt.acks_all and not attempt.appends:
                    logger.warning("%s: decided, and not known to all replicas: %s", self._unit.directory, error)
                    return True
                raise OutcomeUnknownError(
                    f"{self._unit.directory}: entry {attempt.number} is decided, and not known to be on the replicas "
                    f"that acks asks for ({error}); run it again with the same writer id"
                ) from error
            self.places.pause(_BACKOFF, tries)
        if verdict is Ack.TOO_FEW:
            state, least = state_of(head.entry), self._unit.files.limits(head.entry).min_insync
            raise NotEnoughReplicasAfterAppendError(
                f"{self._unit.directory}: NOT_ENOUGH_REPLICAS_AFTER_APPEND: entry {attempt.number} is decided, and "
                f"{len(state.isr)} replicas are in sync, fewer than min.insync.replicas={least}; it may be lost with "
                "them. Bring a root back, then run it again with the same writer id: it will be in the log once"
            )
        return verdict is Ack.YES

    def state_hw(self) -> bool:
        """Push what is decided, and state HW; return whether it covers all.

        In-sync roots overdue by `replica.lag.time.max.ms` are taken out.
        """
        pushed = self.pusher.push()
        head = self.pusher.raise_hw(self.places.newest())
        if not pushed.failed:
            return True
        for root in self.pusher.overdue(pushed.failed, head):
            self.pusher.shrink(root, str(pushed.failed[root]))
            self.pusher.push()
        newest = self.pusher.raise_hw(self.places.newest())
        return newest.entry.kind != "append" and state_of(newest.entry).hw >= newest.sequence - 1

    def _push(self, just_put: Stored | None = None) -> Pushed:
        pushed = self.pusher.push(just_put)
        for error in pushed.failed.values():
            if isinstance(error, SupersededError):  # what was decided here is of an abandoned history
                self.places.roots.compare(again=True)
                raise error
        return pushed

    def _replace_leader(self, pushed: Pushed, head: Stored) -> None:
        leader = state_of(head.entry).leader
        if leader not in pushed.failed:
            return
        if not self.places.roots.answers(leader) or self.pusher.lags(leader, head):
            self.elections.elect(gone=leader, why=f"the leader's root has not learned: {pushed.failed[leader]}")

    def _judged(self, stored: Stored | None, attempt: _Attempt, pushed: Pushed, head: Stored) -> Ack:
        state = state_of(head.entry)
        if state.leader_epoch != attempt.epoch and (attempt.acks_all or attempt.appends):
            is_void = stored is None or self._unit.files.is_void(
                stored.entry, head.entry, self.places.decider().journal.side
            )
            if is_void:
                return Ack.VOID
        if not attempt.acks_all:
            lacks = attempt.appends and pushed.learned.get(state.leader, 0) < attempt.number
            return Ack.WAIT if lacks else Ack.YES
        is_own = stored is not None and stored.entry.write_id == head.entry.write_id
        limits = (attempt.limits if is_own else None) or self._unit.files.limits(head.entry)
        return rules.may_return(
            state,
            attempt.number,
            pushed.learned,
            own_on_all_isr=attempt.on_all,
            is_void=False,
            min_insync=limits.min_insync,
        )


class _HomeError(Exception):
    def __init__(self, home: str, base: Stored, cause: CommitLogError | OSError) -> None:
        super().__init__(str(cause))
        self.home, self.base, self.cause = home, base, cause


class _LackingError(Exception):
    def __init__(
        self, unit: str, reason: Reason, state: ReplicaState, base: Stored, on: Sequence[str],
        failed: Mapping[str, Exception], limits: ReplicationLimits,
    ) -> None:  # fmt: skip
        super().__init__(f"{reason}: {'; '.join(map(str, failed.values()))}" if failed else str(reason))
        self.unit, self.reason, self.state, self.base, self.on, self.roots = unit, reason, state, base, on, failed
        self.least = limits.min_insync

    @property
    def heirs(self) -> tuple[str, ...]:
        """In-sync roots with the chunks that the leader does not take.

        Empty if the leader decides alone, or no root has them whole.
        """
        leader = self.state.leader
        if self.reason is not Reason.NOT_ON_LEADER or leader in self.state.set.roots:
            return ()
        if isinstance(self.roots[leader], NowhereError):
            return ()
        return tuple(root for root in self.state.isr if root in self.on)

    @property
    def waits(self) -> bool:
        mended = any(not isinstance(error, NowhereError) for error in self.roots.values())
        return self.reason is Reason.NOT_ON_ISR and mended

    def as_user_sees(self) -> CommitLogError:
        if self.reason in (Reason.NOT_ON_LEADER, Reason.NOT_ON_METADATA):
            return NotLeaderError(
                f"{self.unit}: NOT_LEADER_OR_FOLLOWER: nothing was written: {self}. Run the write again; if the "
                "root of the leader is gone, `commitlog replicas elect` names another"
            )
        return NotEnoughReplicasError(
            f"{self.unit}: NOT_ENOUGH_REPLICAS: nothing was written: {self}; {len(self.state.isr)} of "
            f"{len(self.state.replicas)} replicas are in sync, min.insync.replicas={self.least}. Bring a root back, or "
            "write with acks=1"
        )
