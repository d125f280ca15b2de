"""Journal of a topic at one root, for readers, settlers, writers.

With replicas it ends at the high watermark learned here, and puts are decided where the newest entry says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format.entry import Json
from pyspark_commitlog.journal import Draft, Journal, ReaderState, Slot, Stored, Unchanged
from pyspark_commitlog.journal.entries import Appended, LandedDraft, Plan, Result
from pyspark_commitlog.replication.leader.collect_bound import collectable
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.replica_staging import StagedOutput
from pyspark_commitlog.replication.protocol.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.replication.protocol.rules import visible
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage import OutputFile, Storage, first_that_answers
from pyspark_commitlog.storage.clock import Deadline

#: Retries while the newest entry moves on before the one at its high watermark is read.
_TRIES = 5
#: Between two looks of a waiting reader.
_PAUSE_SECONDS = 0.1


class _DecidedElsewhereError(Exception):
    """Other roots decide."""


class ReplicatedJournal(Journal):
    """Journal that other roots may decide or learn."""

    def __init__(self, storage: Storage, unit: Unit, check: Callable[[Json, str], object]) -> None:
        super().__init__(storage, unit.directory, unit.kind, unit.sides, check)
        self._unit = unit
        self._decided_log: DecidedLog | None = None
        self._shown: tuple[int, Stored] | None = None
        self._handed: Mapping[str, ReaderState] | None = None

    # --- handles of one process --------------------------------------------------------------------------

    def known_everywhere(self) -> Mapping[str, ReaderState]:
        """Return the journals' reader states by root URL."""
        known = dict(self._handed or {}) if self._decided_log is None else self._decided_log.places.reader_states()
        here = self.reader_state()
        return known if here is None else {self._storage.url: here, **known}

    def go_on_with(self, known: Mapping[str, ReaderState]) -> None:
        """Take over the reader states of another handle."""
        self._handed = known
        if self._storage.url in known:
            self.go_on_from(known[self._storage.url])

    # --- reading -----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Newest visible entry, at the high watermark."""
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
        anchor = self._anchor
        is_alone = anchor is not None and not anchor.entry.is_replicated
        return anchor if is_alone and self._was_newest(seconds) else self.newest()

    def to_stage_by(self, seconds: float) -> Stored | None:
        """Entry to stage by: with replicas the newest learned.

        It is decided, and nearer to the commit's base than the newest visible.
        """
        return self.head() if self.is_replicated else self.recent(seconds)

    @property
    def is_replicated(self) -> bool:
        """Whether the topic has replicas, or is decided elsewhere."""
        if self._anchor is None:
            return self._decided_log is not None
        return self._anchor.entry.is_replicated or (self._decided_log is not None and not self._decides_alone())

    def head(self) -> Stored | None:
        """Newest entry learned (LEO)."""
        return super().newest()

    def is_followed(self, stored: Stored) -> bool:
        return super().is_followed(self._anchor if stored.entry.is_replicated and self._anchor is not None else stored)

    def _visible(self, head: Stored | None) -> Stored | None:
        if head is None or not head.entry.is_replicated or (until := visible(state_of(head.entry))) >= head.sequence:
            return head
        if self._shown is None or self._shown[0] != self.listings or self._shown[1].sequence != until:
            try:
                self._shown = self.listings, self.read(until)
            except FileNotFoundError:
                return self._begun(head, until)
        return self._shown[1]

    def _begun(self, head: Stored, until: int) -> Stored | None:
        # a root that began with another's segments shows those
        settled = self._unit.files.settled(self._storage, head.entry.topic_id)
        try:
            return self.read(settled) if until < settled <= head.sequence else None
        except FileNotFoundError:
            return None

    def await_shown(self, sequence: int, seconds: float) -> None:
        """Wait up to `seconds` until this root shows an entry; push meanwhile.

        Raises:
            ReplicaNotAvailableError: it does not.
        """
        clock = self._storage.clock
        deadline = Deadline(clock, seconds)
        while (newest := self.newest()) is None or newest.sequence < sequence:
            with suppress(CommitLogError, OSError):  # the metadata root may be away
                self.decided_log().state_hw()
            if deadline.is_over:
                raise ReplicaNotAvailableError(
                    f"{self._storage.url}/{self._directory} ends with entry {newest.sequence if newest else 0} so far, "
                    f"and entry {sequence} was read at another root: `commitlog replicas sync` has this one learn it"
                )
            clock.sleep(_PAUSE_SECONDS)

    def await_election(self, seconds: float) -> bool:
        """Wait until the newest election is visible; return whether it was not.

        Before, this root may lack a chunk that only the election voids.
        """
        if not self.is_replicated:
            return False
        try:
            known = self.decided_log().places.newest_known()
        except (CommitLogError, OSError):
            return False
        if known is None or self._shows(known):
            return False
        clock = self._storage.clock
        deadline = Deadline(clock, seconds)
        while not self._shows(known):
            with suppress(CommitLogError, OSError):
                self.decided_log().state_hw()
            if deadline.is_over and not self._shows(known):
                raise ReplicaNotAvailableError(
                    f"{self._storage.url}/{self._directory}: an election that this root does not show yet may have "
                    f"made void what is missing here: `commitlog replicas sync` has it learn entry {known.sequence}"
                )
            clock.sleep(_PAUSE_SECONDS)
        return True

    def _shows(self, known: Stored) -> bool:
        shown = self.newest()
        return shown is not None and state_of(shown.entry).leader_epoch >= state_of(known.entry).leader_epoch

    def kept_from(self, waited_ms: int) -> int | None:
        """Lowest number that must stay; None without replicas.

        `waited_ms`: for out-of-sync replicas.
        """
        head = self.head()
        if head is None or not head.entry.is_replicated:
            return None
        now = self._storage.now_ms()
        return collectable(self.decided_log().places, head, lambda: self.older_than(now - waited_ms)) + 1

    def metadata(self) -> list[Storage]:
        """Metadata roots that answer and lack nothing.

        Empty if one has a replica, or is being replaced.
        """
        if not self.is_replicated:
            return []
        places = self.decided_log().places
        newest, replicas = places.newest(), places.metadata()  # those that answer learn the newest first
        if not newest.entry.is_replicated or any(each.id in state_of(newest.entry).replicas for each in replicas):
            return []
        return [each.storage for each in replicas if _lacks_nothing(each)]

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry; see `Journal.append`.

        Raises:
            NotEnoughReplicasError: not put: fewer than `min.insync.replicas` are in sync.
            NotEnoughReplicasAfterAppendError: put, but not known to be on enough in-sync replicas.
        """
        if not self.is_replicated:
            try:
                return self._append_alone(plan, repeatable)
            except _DecidedElsewhereError:
                self.forget()
        try:
            return self.decided_log().append(plan, repeatable=repeatable)
        except NotReplicatedError:  # without replicas after all
            if not self._decides_alone():
                raise
        return self._append_alone(plan, repeatable)

    def _append_alone(self, plan: Plan[Result], repeatable: bool) -> Appended[Result]:
        return super().append(_plan_without_replicas(plan, self._decides_alone), repeatable=repeatable)

    def _decides_alone(self) -> bool:
        if self._storage.together is None:
            return True
        roots = Roots.of(self._storage)
        return roots.own_id() in [address.id for address in roots.listed().metadata]

    def leader(self) -> Storage:
        """Return the leader's root; this one without such a topic."""
        decided_log = self.decided_log()
        decided = decided_log.places.decided()
        if decided is None:
            return self._storage
        return decided_log.elections.leader(decided) if decided.entry.is_replicated else self._alone_at(decided_log)

    def _alone_at(self, decided_log: DecidedLog) -> Storage:
        own = decided_log.places.roots.own_id()
        decider = decided_log.places.decider()
        return self._storage if decider.id == own else decider.storage

    def nearest(self) -> Storage:
        """Root to read: this one, if it holds a replica."""
        head, decided_log = self.head(), self.decided_log()
        here = head is not None and (head.entry.is_replicated or self._decides_alone())
        if not here:
            head = decided_log.places.newest_known()
        if head is None:
            return self._storage
        if not head.entry.is_replicated:
            return self._storage if here else self._alone_at(decided_log)
        return decided_log.elections.nearest(state_of(head.entry), here=here)

    def fallback_root(self) -> Storage:
        """Root to read while this one is away."""
        storage = first_that_answers(self._storage) if self._storage.others else None
        if storage is not None:
            return ReplicatedJournal(storage, self._unit, self._check).nearest()
        return self.decided_log().elections.fallback_root(self._storage)

    def creates(self, *, acks_all: bool) -> Callable[[str], OutputFile]:
        """Return what makes durable files here, or at all in-sync replicas."""
        storages = self.decided_log().places.staged_at() if acks_all else [self._storage]
        return lambda path: StagedOutput(path, storages)

    def learned_in_sync(self) -> int | None:
        """Push; return the newest entry learned by all in-sync and joining."""
        head = self.head()
        if head is None or not head.entry.is_replicated:
            return None
        decided_log = self.decided_log()
        learned, state = decided_log.pusher.push().learned, state_of(decided_log.places.newest().entry)
        return min(learned.get(root, 0) for root in (*state.isr, *state.joining))

    def decided_log(self) -> DecidedLog:
        """Decided log."""
        if self._decided_log is None:
            self._decided_log = DecidedLog(Roots.of(self._storage), self._unit, self._check, self._handed)
            self._handed = None
        return self._decided_log


def _lacks_nothing(replica: Replica) -> bool:
    replica.journal.forget()  # replicas may lack what it lost since
    with suppress(CommitLogError, OSError):
        return replica.learned() is not None
    return False


def _plan_without_replicas(plan: Plan[Result], decides: Callable[[], bool]) -> Plan[Result]:
    def checked(base: Stored | None, slot: Slot) -> Draft[Result] | Unchanged[Result] | LandedDraft:
        if base is not None and (base.entry.is_replicated or not decides()):
            raise _DecidedElsewhereError
        return plan(base, slot)

    return checked
