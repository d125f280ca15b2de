"""Push decided entries to the replicas; state HW and ISR."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import HW, state_of, states_hw_alone, without_append
from pyspark_commitlog.replication.protocol.learning import Allowance, BehindError, Replica, learn
from pyspark_commitlog.replication.protocol.push_lag import Lag
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.rules import RefusedError
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.deadline_storage import begun

logger = logging.getLogger("pyspark_commitlog.replication")

#: Attempts to join while others append.
_TRIES = 20
#: Time for a root to learn that it is no replica any more.
_TELLING_SECONDS = 10


@dataclass
class Pushed:
    """Numbers learned, and errors, by root."""

    learned: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)


class Pusher:
    """Pushes decided entries to a unit's replicas.

    `learned` has the number last seen at each, synced.
    """

    def __init__(self, places: Places) -> None:
        self._places, self._unit = places, places.unit
        self._lag = Lag.of(places.unit.directory)
        self.learned: dict[str, int] = {}

    def failed(self, root: str, *, chunks: bool = False) -> None:
        """Record a root's failure."""
        self._places.forget(root)
        self._lag.failed(root, self._places.monotonic(), chunks=chunks)

    def took_chunks(self, root: str) -> None:
        """Record that a root took chunks."""
        self._lag.answered(root, chunks=True)

    def push(self, newest: Stored | None = None) -> Pushed:
        """Have in-sync and joining roots learn what is decided."""
        pushed = self._push(newest or self._places.newest())
        ahead = [error.number for error in pushed.failed.values() if isinstance(error, BehindError)]
        if ahead and self._places.has_decided(max(ahead)):
            pushed = self._push(self._places.newest())
        return pushed

    def _push(self, newest: Stored) -> Pushed:
        state, decider = state_of(newest.entry), self._places.decider()
        pushed, donors = Pushed(), self._places.donors(state)
        decider.journal.assure(newest)  # its writer may have been killed before the sync: learned entries must stay
        for root in state.set.roots:
            pushed.learned[root] = newest.sequence  # learns by the put

        wanted = [root for root in (*state.isr, *state.joining) if root not in state.set.roots]
        learning = {root: self._learning(root, decider, donors, newest, state.learned.get(root, 0)) for root in wanted}
        for root in wanted:
            try:
                pushed.learned[root] = learning[root]()
                self._lag.answered(root)
            except (CommitLogError, OSError) as error:
                pushed.failed[root] = error
                self.failed(root)
        self.learned = dict(pushed.learned)
        return pushed

    def _learning(
        self, root: str, decider: Replica, donors: Iterable[Storage], newest: Stored, least: int
    ) -> Callable[[], int]:
        try:
            target = self._places.at(root)
            act = partial(learn, decider, target, self._unit, donors, newest, least)
            return begun(target.storage, f"learning entry {newest.sequence} of {self._unit.directory}", act)
        except (CommitLogError, OSError) as error:
            return partial(_raise, error)

    def raise_hw(self, head: Stored) -> Stored:
        """Raise the high watermark, if possible; return the head."""

        def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            base = self._places.standing(base)
            state = state_of(base.entry)
            may = rules.hw_may_rise_to(state, base.sequence, self.learned)
            if may <= state.hw or state.hw >= base.sequence or states_hw_alone(base.entry):
                return Unchanged(None)
            after = rules.with_hw(rules.after_other(state, base.sequence, slot.sequence), may)
            return without_append(HW, base, after, None)

        state = state_of(head.entry)
        if states_hw_alone(head.entry) or rules.hw_may_rise_to(state, head.sequence, self.learned) <= state.hw:
            return head
        if self._places.decide(plan).stored is not None:
            self.push()
        return self._places.newest()

    def overdue(self, failed: Mapping[str, Exception], at: Stored, *, chunks: bool = False) -> list[str]:
        """Roots that `lags` and may be taken out."""
        state = state_of(at.entry)
        out = [root for root in failed if root != state.leader and root in (*state.isr, *state.joining)]
        return [root for root in out if self.lags(root, at, chunks=chunks)]

    def lags(self, root: str, at: Stored, *, chunks: bool = False) -> bool:
        """Whether pushes, or `chunks`, failed for `replica.lag.time.max.ms`."""
        lag_ms, now = self._unit.files.limits(at.entry).lag_ms, self._places.monotonic()
        seconds = [self._lag.seconds(root, now, chunks=each) for each in (False, chunks)]
        return max(seconds) * 1000 >= lag_ms

    def shrink(self, root: str, why: str) -> None:
        """Take a root out of the ISR."""
        self.change("isr", lambda state, base: rules.shrunk(state, root))
        logger.warning("%s: root %s is out of the ISR: %s", self._unit.directory, root, why)

    def join(self, root: str) -> bool:
        """Bring an out-of-sync replica into the ISR; return success."""
        if root not in state_of(self._places.newest().entry).joining:
            self.change("joining", lambda state, base: rules.joining(state, root))
        for _ in range(_TRIES):
            newest = self._places.newest()
            donors = self._places.donors(state_of(newest.entry))
            try:
                learned = learn(self._places.decider(), self._places.at(root), self._unit, donors, newest)
            except BehindError as error:
                if not self._places.has_decided(error.number):
                    raise
                continue
            if self.change("isr", lambda state, base: rules.joined(state, base.sequence, root, learned)):  # noqa: B023
                logger.warning("%s: root %s is in the ISR again", self._unit.directory, root)
                self.push()
                return True
        return False

    def tell(self, root: str) -> None:
        """Let a former replica learn that it is none."""
        places, newest = self._places, self._places.newest()
        donors = places.donors(state_of(newest.entry))
        try:
            target = places.at(root)
            allowed = Allowance(target.storage.clock, _TELLING_SECONDS)
            learn(places.decider(), target, self._unit, donors, newest, allowed=allowed)
        except (CommitLogError, OSError) as error:
            where = self._unit.directory
            logger.warning("%s: root %s does not know yet that it is no replica: %s", where, root, error)

    def change(self, kind: str, change: Callable[[ReplicaState, Stored], ReplicaState]) -> bool:
        """Put a change of the state of replicas; False if refused."""

        def plan(base: Stored | None, slot: Slot) -> Draft[bool] | Unchanged[bool]:
            base = self._places.standing(base)
            try:
                changed = change(state_of(base.entry), base)
            except RefusedError:
                return Unchanged(False)
            after = rules.after_other(changed, base.sequence, slot.sequence)
            may = rules.hw_may_rise_to(changed, base.sequence, self.learned)
            return without_append(kind, base, rules.with_hw(after, may), True)

        return bool(self._places.decide(plan).result)


def _raise(error: Exception) -> int:
    raise error
