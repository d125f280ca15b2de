"""The journal of a topic at one root, as its readers, settlers and writers use it.

While the topic lives on this root alone that is a ``Journal``, at no other cost. Of a topic with replicas it ends at
the high watermark that this root has learned: what is above it may still be lost. What is put is decided on the topic's
metadata root, whatever a cache says: the newest entry alone names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import Draft, Journal, ReaderState, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, LandedDraft, Plan, Result
from pyspark_commitlog.replicas.collecting import collectable
from pyspark_commitlog.replicas.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replicas.learning import Replica
from pyspark_commitlog.replicas.order import Order
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.replicas.rules import visible
from pyspark_commitlog.replicas.unit import Unit
from pyspark_commitlog.storage import Storage, first_that_answers

#: How often the newest entry may move on while the one at its high watermark is read.
_TRIES = 5
#: Between two looks of a reader that waits for what another root has shown.
_PAUSE_SECONDS = 0.1


class _DecidedElsewhereError(Exception):
    """The newest entry says that other roots decide."""


class ReplicatedJournal(Journal):
    """A journal that others may decide, or learn.

    Args:
        storage: the root where it is read.
        unit: what it is, and which files its entries need.
        check: see ``Journal``.
    """

    def __init__(self, storage: Storage, unit: Unit, check: Callable[[Json, str], object]) -> None:
        super().__init__(storage, unit.directory, unit.kind, unit.sides, check)
        self._unit = unit
        self._order: Order | None = None
        self._shown: tuple[int, Stored] | None = None
        self._handed: Mapping[str, ReaderState] | None = None

    # --- handles of one process --------------------------------------------------------------------------

    def known_everywhere(self) -> Mapping[str, ReaderState]:
        """Return the reader states of the unit's journals, by root URL.

        For another handle of this process: see ``go_on_with``.
        """
        known = dict(self._handed or {}) if self._order is None else self._order.places.reader_states()
        here = self.reader_state()
        return known if here is None else {self._storage.url: here, **known}

    def go_on_with(self, known: Mapping[str, ReaderState]) -> None:
        """Go on from what another handle of this process knows, which has just done something with the unit."""
        self._handed = known
        if self._storage.url in known:
            self.go_on_from(known[self._storage.url])

    # --- reading -----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Return the newest entry that readers may see: that at the high watermark, where there are replicas."""
        for _ in range(_TRIES):
            head = super().newest()
            shown = self._visible(head)
            if shown is not None or head is None:
                return shown
            self.forget()
        raise CorruptionError(
            f"{self._directory}: the entry at the high watermark is missing, and the newest entry names it; "
            "`commitlog verify` says more"
        )

    def recent(self, seconds: float) -> Stored | None:
        """See ``Journal.recent``; of a topic with replicas the newest that readers may see."""
        anchor = self._anchor
        is_alone = anchor is not None and not anchor.entry.features
        return anchor if is_alone and self._was_newest(seconds) else self.newest()

    def to_stage_by(self, seconds: float) -> Stored | None:
        """Return the entry that a writer stages by.

        As ``recent``; with replicas the newest entry that this root has learned.

        That is decided, if not seen by readers yet, and nearer to what the commit is planned on.
        """
        return self.head() if self.is_replicated else self.recent(seconds)

    @property
    def is_replicated(self) -> bool:
        """Return whether the topic was seen to have replicas, or to be decided elsewhere."""
        if self._anchor is None:
            return self._order is not None
        return bool(self._anchor.entry.features) or (self._order is not None and not self._decides_alone())

    def head(self) -> Stored | None:
        """Return the newest entry that this root has learned: its log end offsets are the LEO."""
        return super().newest()

    def is_followed(self, stored: Stored) -> bool:
        """Return whether this root has learned more since ``stored`` was the newest; see ``Journal.is_followed``."""
        return super().is_followed(self._anchor if stored.entry.features and self._anchor is not None else stored)

    def _visible(self, head: Stored | None) -> Stored | None:
        """Return the entry at the high watermark of ``head``; None where it is gone, for there is a newer one."""
        if head is None or not head.entry.features or (until := visible(state_of(head.entry))) >= head.sequence:
            return head
        if self._shown is None or self._shown[0] != self.listings or self._shown[1].sequence != until:
            try:
                self._shown = self.listings, self.read(until)
            except FileNotFoundError:
                return self._begun(head, until)
        return self._shown[1]

    def _begun(self, head: Stored, until: int) -> Stored | None:
        """Return the entry up to which a root has settled, where that is above the high watermark that it has learned.

        It began there, with the segments of another root: so its readers may see that.
        """
        settled = self._unit.files.settled(self._storage, head.entry.topic_id)
        try:
            return self.read(settled) if until < settled <= head.sequence else None
        except FileNotFoundError:
            return None

    def await_shown(self, sequence: int, seconds: float) -> None:
        """Wait until this root shows an entry that another one has shown already.

        A reader that waits moves it on: it has the replicas learn what is decided.

        Raises:
            ReplicaNotAvailableError: it takes longer than that.
        """
        clock = self._storage.clock
        until = clock.monotonic() + seconds
        while (newest := self.newest()) is None or newest.sequence < sequence:
            with suppress(CommitLogError, OSError):  # the metadata root may be away
                self.order().state_hw()
            if clock.monotonic() >= until:
                raise ReplicaNotAvailableError(
                    f"{self._storage.url}/{self._directory} ends with entry {newest.sequence if newest else 0} so far, "
                    f"and entry {sequence} was read at another root: `commitlog replicate` has this one learn it"
                )
            clock.sleep(_PAUSE_SECONDS)

    def await_election(self, seconds: float) -> bool:
        """Wait until readers see the newest election at this root; return whether there was one that they did not.

        After an unclean election a root may lack a chunk that its newest entry calls living, and the election void.

        Raises:
            ReplicaNotAvailableError: it takes longer than that.
        """
        if not self.is_replicated:
            return False
        try:
            known = self.order().places.newest_known()
        except (CommitLogError, OSError):
            return False
        if known is None or self._shows(known):
            return False
        clock = self._storage.clock
        until = clock.monotonic() + seconds
        while not self._shows(known):
            with suppress(CommitLogError, OSError):
                self.order().state_hw()
            if clock.monotonic() >= until and not self._shows(known):
                raise ReplicaNotAvailableError(
                    f"{self._storage.url}/{self._directory}: an election that this root does not show yet may have "
                    f"made void what is missing here: `commitlog replicate` has it learn entry {known.sequence}"
                )
            clock.sleep(_PAUSE_SECONDS)
        return True

    def _shows(self, known: Stored) -> bool:
        """Return whether what readers see here has the elections of an entry."""
        shown = self.newest()
        return shown is not None and state_of(shown.entry).leader_epoch >= state_of(known.entry).leader_epoch

    def kept_from(self, waited_ms: int) -> int | None:
        """Return the lowest number that has to stay, whatever this root has settled; None for a topic that is alone.

        Args:
            waited_ms: how long a replica that is out of sync may lag and come back.
        """
        head = self.head()
        if head is None or not head.entry.features:
            return None
        now = self._storage.now_ms()
        return collectable(self.order().places, head, lambda: self.older_than(now - waited_ms)) + 1

    def metadata(self) -> list[Storage]:
        """Return the metadata roots that answer, and lack nothing, where none of them is a replica or being replaced.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer, or most of several.
        """
        if not self.is_replicated:
            return []
        places = self.order().places
        newest, replicas = places.newest(), places.metadata()  # those that answer learn it first
        if not newest.entry.features or any(each.id in state_of(newest.entry).replicas for each in replicas):
            return []
        return [each.storage for each in replicas if _lacks_nothing(each)]

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry; see ``Journal.append``. Where there are replicas the metadata root decides it.

        Raises:
            NotEnoughReplicasError: certainly not put: fewer replicas than ``min.insync.replicas`` are in sync.
            NotEnoughReplicasAfterAppendError: put, and not known to be on all that are in sync.
        """
        if not self.is_replicated:
            try:
                return self._append_alone(plan, repeatable)
            except _DecidedElsewhereError:
                self.forget()
        try:
            return self.order().append(plan, repeatable=repeatable)
        except NotReplicatedError:  # it was only looked for among the roots
            if not self._decides_alone():
                raise
        return self._append_alone(plan, repeatable)

    def _append_alone(self, plan: Plan[Result], repeatable: bool) -> Appended[Result]:
        return super().append(_plan_without_replicas(plan, self._decides_alone), repeatable=repeatable)

    def _decides_alone(self) -> bool:
        """Return whether entries without replicas may be put here: not at a root that learns them of another."""
        if self._storage.together is None:
            return True
        roots = Roots.of(self._storage)
        return roots.own_id() in [address.id for address in roots.listed().metadata]

    def leader(self) -> Storage:
        """Return the root to write to: this one where there is no such topic, else the leader's.

        Raises:
            NotLeaderError: nobody of the ISR can lead.
            ReplicaNotAvailableError: the metadata root does not answer.
        """
        order = self.order()
        decided = order.places.decided()
        if decided is None:
            return self._storage
        return order.elections.leader(decided) if decided.entry.features else self._alone_at(order)

    def _alone_at(self, order: Order) -> Storage:
        """Return the root that decides, which alone has a unit without replicas."""
        own = order.places.roots.own_id()
        decider = order.places.decider()
        return self._storage if decider.id == own else decider.storage

    def nearest(self) -> Storage:
        """Return the root to read from: this one, unless it holds no replica. The metadata root is not needed.

        Raises:
            ReplicaNotAvailableError: no replica answers.
        """
        head, order = self.head(), self.order()
        here = head is not None and (bool(head.entry.features) or self._decides_alone())
        if not here:
            head = order.places.newest_known()
        if head is None:
            return self._storage
        if not head.entry.features:
            return self._storage if here else self._alone_at(order)
        return order.elections.nearest(state_of(head.entry), here=here)

    def fallback_root(self) -> Storage:
        """Return the root to read from while this one does not answer.

        Raises:
            ReplicaNotAvailableError: there is none.
        """
        storage = first_that_answers(self._storage) if self._storage.others else None
        if storage is not None:
            return ReplicatedJournal(storage, self._unit, self._check).nearest()
        return self.order().elections.fallback_root(self._storage)

    def learned_in_sync(self) -> int | None:
        """Return the newest entry that all replicas in sync, or joining, have learned, once that was pushed to them.

        None where there are no replicas.

        Raises:
            ReplicaNotAvailableError: the metadata root does not answer.
        """
        head = self.head()
        if head is None or not head.entry.features:
            return None
        order = self.order()
        learned, state = order.pusher.push().learned, state_of(order.places.newest().entry)
        return min(learned.get(root, 0) for root in (*state.isr, *state.joining))

    def order(self) -> Order:
        """Return the order of decisions of a topic with replicas."""
        if self._order is None:
            self._order = Order(Roots.of(self._storage), self._unit, self._check, self._handed)
            self._handed = None
        return self._order


def _lacks_nothing(replica: Replica) -> bool:
    """Return whether a root answers, and has no gap, by a new look: what it lost may be what replicas lack."""
    replica.journal.forget()
    with suppress(CommitLogError, OSError):
        return replica.learned() is not None
    return False


def _plan_without_replicas(plan: Plan[Result], decides: Callable[[], bool]) -> Plan[Result]:
    def checked(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
        if base is not None and (base.entry.features or not decides()):
            raise _DecidedElsewhereError
        return plan(base, slot)

    return checked
