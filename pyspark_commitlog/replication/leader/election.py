"""Leaders: found, or elected by any process that misses one."""

from __future__ import annotations

import logging
from collections.abc import Collection

from pyspark_commitlog.errors import CommitLogError, NotLeaderError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.leader.pushing import Pusher
from pyspark_commitlog.replication.leader.unclean import UNCLEAN, draft_unclean_election
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of, states_hw_alone, with_state
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.rules import Reason, RefusedError
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replication")


class Elections:
    """Leader of a unit, found or elected."""

    def __init__(self, places: Places, pusher: Pusher) -> None:
        self._places, self._pusher, self._unit = places, pusher, places.unit

    def leader(self, newest: Stored | None = None) -> Storage:
        """Return the leader's root; elect another if it is away.

        `newest`: the newest decided entry, if just read.

        Raises:
            NotLeaderError: nobody of the ISR can lead.
        """
        state = state_of((newest or self._places.newest()).entry)
        if self._places.roots.answers(state.leader):
            return self._places.at(state.leader).storage
        return self._places.at(self.elect(gone=state.leader, why="the leader's root does not answer")).storage

    def nearest(self, state: ReplicaState, *, here: bool = True) -> Storage:
        """Return the opened root if a replica, else the first that answers.

        `here`: whether the opened one has learned any of the unit.
        """
        own = self._places.roots.own_id()
        if own in state.replicas and here:
            return self._places.at(own).storage
        for root in dict.fromkeys((state.leader, *state.isr, *state.replicas)):
            if (here or root != own) and self._places.roots.answers(root):
                return self._places.at(root).storage
        raise ReplicaNotAvailableError(
            f"{self._unit.directory}: no replica answers: {', '.join(map(str, self._places.addresses(state)))}"
        )

    def fallback_root(self, away: Storage) -> Storage:
        """Return another replica's root that answers."""
        state = state_of(self._places.newest().entry)
        for root in dict.fromkeys((state.leader, *state.isr, *state.replicas)):
            if self._places.roots.answers(root) and self._places.at(root).storage is not away:
                return self._places.at(root).storage
        raise ReplicaNotAvailableError(f"{self._unit.directory}: no other replica answers")

    def elect(
        self, leader: str | None = None, *, gone: str | None = None, why: str, unclean: bool = False,
        preferred: Collection[str] = (),
    ) -> str:  # fmt: skip
        """Elect another leader; return its root id.

        Args:
            leader: the next one; None for the one of the ISR that has learned most.
            gone: the lost leader; nothing is done if another leads.

        Raises:
            NotLeaderError: nobody can lead: nothing was changed.
        """
        lost, is_all_shown = list[int](), False

        def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
            nonlocal is_all_shown
            base = self._places.standing(base)
            state, is_all_shown = state_of(base.entry), states_hw_alone(base.entry)
            if leader == state.leader or gone not in (None, state.leader):
                return Unchanged(state.leader)
            lost.clear()
            try:
                chosen, learned = self._candidate(state, leader, base, preferred)  # read AFTER the base (rule 5)
            except NotLeaderError:
                if not unclean and not self._unit.files.limits(base.entry).unclean:
                    raise
                chosen, body, after, voids = draft_unclean_election(self._places, base, slot.sequence, leader, why)
                lost.extend(voids)
                return with_state(Draft(UNCLEAN, base.entry.topic_id, body, result=chosen), after)
            return self._draft_clean_election(base, slot, chosen, learned, why)

        self._pusher.push()  # what the next leader learns first is not lost
        stored, chosen = self._places.decide(plan)
        if stored is None:
            return chosen
        logger.warning("%s: root %s leads: %s", self._unit.directory, chosen, why)
        if stored.entry.kind == UNCLEAN:
            logger.error(
                "%s: UNCLEAN election of root %s: %d appends that it lacks are lost, also what was acknowledged or "
                "read; their offsets are passed over", self._unit.directory, chosen, len(lost),
            )  # fmt: skip
        self._pusher.push()
        if not is_all_shown or stored.entry.kind == UNCLEAN:  # else all is visible, and the next entry states it
            self._pusher.raise_hw(self._places.newest())
        return chosen

    def _draft_clean_election(self, base: Stored, slot: Slot, chosen: str, learned: int, why: str) -> Draft[str]:
        state = state_of(base.entry)
        try:
            lost = None if self._places.roots.answers(state.leader) else state.leader
            after, voids = rules.elected(
                state, base.sequence, slot.sequence, chosen, learned, gone=lost,
                at_ms=self._places.at(chosen).storage.now_ms(), why=why,
            )  # fmt: skip
        except RefusedError as error:
            raise NotLeaderError(f"{self._unit.directory}: root {chosen} can't lead: {error}") from error
        body = self._unit.files.elected(base.entry, state.hw, sorted(state.on), voids, self._places.decider().journal)
        return with_state(Draft("elect", base.entry.topic_id, body, result=chosen), after)

    def _candidate(
        self, state: ReplicaState, wanted: str | None, base: Stored, preferred: Collection[str]
    ) -> tuple[str, int]:
        found, failures = list[tuple[int, str]](), []
        if wanted and wanted not in state.isr:
            reason = Reason.NOT_IN_SYNC if wanted in state.replicas else Reason.NO_REPLICA
            raise NotLeaderError(f"{self._unit.directory}: root {wanted} can't lead: {reason}: {wanted}")
        for root in [wanted] if wanted else [r for r in state.isr if r != state.leader]:
            try:
                if not self._places.roots.answers(root):
                    raise ReplicaNotAvailableError(f"root {root} does not answer")
                if root in state.set.roots:
                    found.append((base.sequence, root))
                else:
                    newest = self._places.at(root).learned()
                    learned = 0 if newest is None else newest.sequence
                    if not wanted and rules.is_restored(state, root, learned):
                        raise ReplicaNotAvailableError(f"root {root} ends at {learned}: it was restored from a copy")
                    found.append((learned, root))
            except (CommitLogError, OSError) as error:
                failures.append(str(error))
        if not found:
            raise NotLeaderError(
                f"{self._unit.directory}: the leader {state.leader} is gone, and no other root in sync answers"
                f"{': ' if failures else ''}{'; '.join(failures)}. Bring one of them back"
            )
        learned, root = max(found, key=lambda pair: (pair[1] in preferred, pair[0]))
        return root, learned
