"""The journal: numbered, write-once entries, and the one coordination primitive of a root.

All it asks of storage is an atomic put-if-absent. Everything else is care:

* An outcome other than "done" and "exists" is ambiguous: the same bytes are put at the same number again.
* "exists" is read back: our write id means that an earlier try landed.
* A number that was collected can be put again! So a put or a read at a number that was reached from a remembered
  entry N counts only if N is still there as the very file that we remembered (the anchor rule).

DESIGN notes and counter-examples: ARCHITECTURE.md, "Journal"; ``tests/model`` explores the protocol exhaustively.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.anchor import KEPT_ENTRIES, stays_ms
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import (
    ConflictError,
    CorruptionError,
    OutcomeUnknownError,
    StagedExpiredError,
    StorageError,
    UsageError,
)
from pyspark_commitlog.journal.entries import (
    Appended,
    Draft,
    LandedDraft,
    Plan,
    Result,
    Slot,
    Stored,
    Unchanged,
    slot_of,
)
from pyspark_commitlog.journal.putting import JournalPutter, UndecidedError

_MAX_ATTEMPTS = 500
#: Where a look is a request: how many appends go by between two looks for what can be trimmed.
_TRIM_EVERY = 16
#: How many drafts of an operation may be in doubt before it is given up.
_DOUBTS = 5

#: What a plan, or a look, that fails leaves open after a put in doubt.
_UNCERTAIN = (CorruptionError, FileNotFoundError, StagedExpiredError, StorageError, UsageError)


class Journal(JournalPutter):
    """One journal directory.

    Args:
        storage: the root.
        directory: where the entries lie; it must exist before an append.
        kind: the journal's kind, which every entry repeats (``topic``, ``settle``).
        sides: (topic id, file name) -> path of a side file.
        check: refuses what an entry of this journal can't be, whatever its CRC (``CorruptionError``): (body, path).

    Not safe for use by several threads at once. ``listings`` counts how often the newest entry was found without an
    anchor: while it stays, all that ``newest`` returns is of one history.

    Where files can't be appended to, a look is a request, and ``anchor`` says which ones can be spared: an idle poll is
    one request while polls are less than 5 s apart, and a small append one put and at most one look.
    """

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put one entry that ``plan`` makes on top of the newest; plan again whenever somebody else was first.

        ``plan`` re-checks its preconditions on every attempt (rule R9) and raises when they no longer hold.

        Args:
            plan: makes the entry; called on an entry that may not be the newest any more, too, but only what it answers
                or raises on the newest counts.
            repeatable: whether the preconditions of what was put can never hold again (rule O2): where the outcome of a
                put can't be known, the plan is made again on the newest entry, which shows it. The entry is not
                returned then.

        Returns:
            The entry as stored, None when ``plan`` answered that nothing is to be done; and the result of the answer
            that counts, of whatever attempt.

        Raises:
            OutcomeUnknownError: the put may have landed; retrying with the same writer id is safe.
            ConflictError: others were first, too many times.
            StorageError: certainly not put.
        """
        with self._turn():  # for speed alone: safety is put_if_absent's
            return self._repeated(plan) if repeatable else self._append(plan)

    def _repeated(self, plan: Plan[Result]) -> Appended[Result]:
        """Append what may be planned again after doubt: each draft has a write id of its own, so both may be put."""
        doubt: OutcomeUnknownError | None = None
        for attempt in range(_DOUBTS):
            try:
                return self._append(plan)
            except OutcomeUnknownError as error:
                doubt = error
            except _UNCERTAIN as error:
                if doubt is None:
                    raise
                raise doubt from error
            self.forget()
            self._back_off(attempt)
        assert doubt is not None
        raise doubt

    def _append(self, plan: Plan[Result]) -> Appended[Result]:
        for attempt in range(_MAX_ATTEMPTS):
            base, certain = self._base(attempt)
            slot = Slot(1 if base is None else base.entry.following, self._storage.new_id())
            try:
                answer = plan(base, slot)
            except FileNotFoundError:  # a side file of the base was collected with it: plan on a newer one
                self.forget()
                if base is None or self.newest() == base:
                    raise
                continue
            except Exception:
                if certain or self._is_newest(base):
                    raise
                continue
            if isinstance(answer, Unchanged):
                if not certain and not self._is_newest(base):
                    continue
                self._acknowledge(base)
                return Appended(None, answer.result)
            assert isinstance(answer, Draft), "no attempt before this one may have landed"
            try:
                stored = self._attempt(base, slot, answer)
            except UndecidedError as error:
                landed = self._landed_answer(plan, slot, answer)
                if landed is None:
                    raise self._unknown(slot, answer.kind, str(error)) from error
                return Appended(None, landed.result)
            if stored is not None:
                return Appended(stored, answer.result)
            self._back_off(attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _base(self, attempt: int) -> tuple[Stored | None, bool]:
        """Return the base of a plan, and whether it is certainly newest.

        Where a look is a request, the first attempt goes by what is remembered: the put shows whether it is the newest.
        Where others put too, that would be a put in vain, mostly, or an entry at a number that was collected.
        """
        if attempt == 0 and self._anchor is not None and not self._crowded and not self._storage.can_append:
            return self._anchor, False
        return self.newest(), True

    def _is_newest(self, base: Stored | None) -> bool:
        newest = self.newest()
        return newest is not None and base is not None and newest.entry is base.entry

    def _landed_answer(
        self, plan: Plan[Result], slot: Slot, draft: Draft[Result]
    ) -> Draft[Result] | Unchanged[Result] | None:
        """Return the answer of an undecided put that landed; None if undecided.

        It landed if the plan finds on the newest state that nothing is left to put.

        Where the plan can't be made any more (a chunk is collected, the disk does not answer) that proves nothing: if
        the put landed, it could be made then. What else it raises holds whether it landed or not.

        Raises:
            OutcomeUnknownError: the plan can't be made.
        """
        try:
            newest = self.newest()
            answer = plan(newest, slot)
            if isinstance(answer, Draft):
                return None
            self._acknowledge(newest)
            return draft if isinstance(answer, LandedDraft) else answer
        except _UNCERTAIN as error:
            raise self._unknown(slot, draft.kind, str(error)) from error

    def supersede(self, make: Callable[[Slot], Draft[object]]) -> Stored:
        """Put an entry above all there are, whatever they hold, and remove those: what can't be read is given up.

        For deleting all that a journal holds. It follows no entry (``prev`` is ``""``); a process that remembered one
        finds it gone, and lists the directory (the anchor rule). What was put a moment ago stays where looks are
        requests: others may go by it without one.

        Raises:
            OutcomeUnknownError: the put may have landed; doing it again is safe.
            ConflictError: others were first, too many times.
            StorageError: certainly not put.
        """
        with self._turn():
            for attempt in range(_MAX_ATTEMPTS):
                self.forget()
                below = self.sequences()
                slot = Slot(below[-1] + 1 if below else 1, self._storage.new_id())
                draft = make(slot)
                try:
                    stored = self._attempt(None, slot, draft)
                except UndecidedError as error:
                    raise self._unknown(slot, draft.kind, str(error)) from error
                if stored is not None:
                    self._delete_all(below)
                    return stored
                self._back_off(attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _acknowledge(self, stored: Stored | None) -> None:
        """Make durable what is there already, before it is reported as done.

        Raises:
            OutcomeUnknownError: it may not survive power loss.
        """
        if stored is None:
            return
        try:
            self.assure(stored)
        except OSError as error:
            raise self._unknown(slot_of(stored.entry), stored.entry.kind, str(error)) from error

    # --- deleting ----------------------------------------------------------------------------------------

    def delete(self, sequence: int) -> None:
        """Remove an entry. Only the collector does, one by one and ascending (the anchor rule needs it)."""
        self._storage.delete(self._path(sequence))

    def _delete_all(self, sequences: list[int]) -> None:
        """Delete entries; where others may go by one without a look, only those that an old one follows."""
        oldest: int | None = None
        if not self._storage.can_append:
            oldest = self.older_than(self._storage.now_ms() - stays_ms())
        for sequence in sequences:
            if oldest is None or sequence < oldest:
                self.delete(sequence)

    def trim(self) -> None:
        """Remove all entries but the newest two, and what killed writers left: for journals nobody reads history of.

        Where a look is a request that is done now and then, and leaves those that no entry of the delay's age follows.
        """
        if not self._storage.can_append and self._anchor is not None and self._anchor.sequence % _TRIM_EVERY:
            return
        self._delete_all(self.sequences()[:-KEPT_ENTRIES])
        self._storage.remove_abandoned(self._directory, self._storage.clock.now_ms() - DAY_MS)
