"""The journal: append by put-if-absent, a root's only coordination primitive.

* An outcome other than "done" and "exists" is ambiguous: put the same bytes again at the same number.
* "exists" is read back: our write id means that an earlier try landed.
* A put succeeds at a collected number! So a put or read at a number reached from a remembered entry counts only if that
  is still the same file (the anchor rule).

`tests/model` explores the protocol (ARCHITECTURE.md, "Journal") exhaustively.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import (
    ConflictError,
    CorruptionError,
    OutcomeUnknownError,
    StagedExpiredError,
    StorageError,
    UsageError,
)
from pyspark_commitlog.journal.anchor import KEPT_ENTRIES, stays_ms
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
from pyspark_commitlog.journal.putting import RACE_BACKOFF, JournalPutter, UndecidedError

_MAX_ATTEMPTS = 500
#: If a look is a request: appends between two looks for entries to trim.
_TRIM_EVERY = 16
#: Attempts with unknown outcome before a repeatable operation fails.
_DOUBTS = 5

#: Errors of a plan or look that leave an earlier put's outcome unknown.
_UNCERTAIN = (CorruptionError, FileNotFoundError, StagedExpiredError, StorageError, UsageError)


class Journal(JournalPutter):
    """One journal directory; not thread-safe.

    While `listings` stays, `newest` returns one history. If a look is a request, polls less than 5 s apart cost
    one, a small append a put and at most one look.

    Args:
        storage: the root.
        directory: must exist before an append.
        kind: `topic`, `settle` …, repeated in every entry.
        sides: (topic id, file name) -> path of a side file.
        check: (body, path); raises `CorruptionError` for an invalid body.
    """

    # --- appending ---------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Put the entry that `plan` makes from the newest one.

        A lost race repeats this; `plan` raises if its preconditions no longer hold (rule R9).

        Args:
            plan: may get an older entry, too, but only its answer on the newest counts.
            repeatable: the put makes its preconditions false for ever (rule O2): after an unknown outcome, plan again
                on the newest entry, and return no entry.

        Raises:
            OutcomeUnknownError: the put may have landed; retry with the same writer id.
            ConflictError: too many lost races.
            StorageError: certainly not put.
        """
        with self._turn():  # for speed only: put_if_absent is the safety
            return self._repeated(plan) if repeatable else self._append(plan)

    def _repeated(self, plan: Plan[Result]) -> Appended[Result]:
        """Append a repeatable plan; each draft's own write id distinguishes them."""
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
            self._storage.pause(RACE_BACKOFF, attempt)
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
            except Exception:  # of any class: planned on an older entry, it may be in vain
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
            self._storage.pause(RACE_BACKOFF, attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _base(self, attempt: int) -> tuple[Stored | None, bool]:
        """Return a plan's base, and whether it is certainly the newest.

        If a look is a request, the first attempt trusts the anchor, which the put verifies; not if others put too, as
        it would mostly be in vain.
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
        """Answer of an undecided put that landed; None if undecided.

        It landed if the plan has nothing left to put. A plan that fails now (chunk collected, disk down) proves
        nothing.

        Raises:
            OutcomeUnknownError: the plan failed so.
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
        """Put an entry above all others, unread, and delete those.

        It follows none: anchors are gone, so processes list. If looks are requests, recent entries stay, as others rely
        on them.

        Raises:
            OutcomeUnknownError: the put may have landed; repeat it.
            ConflictError: too many lost races.
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
                self._storage.pause(RACE_BACKOFF, attempt)
        raise ConflictError(f"{self._directory}: lost {_MAX_ATTEMPTS} races for the next entry; try again later")

    def _acknowledge(self, stored: Stored | None) -> None:
        """Make a found entry durable before it is reported as done.

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
        """Delete an entry; the collector must go in ascending order (anchor rule)."""
        self._storage.delete(self._path(sequence))

    def _delete_all(self, sequences: list[int]) -> None:
        """Delete entries; if looks are requests, only those with an old successor."""
        oldest: int | None = None
        if not self._storage.can_append:
            oldest = self.older_than(self._storage.now_ms() - stays_ms())
        for sequence in sequences:
            if oldest is None or sequence < oldest:
                self.delete(sequence)

    def trim(self) -> None:
        """Delete all but the newest two entries, and abandoned temporary files.

        For journals whose history nobody reads. If looks are requests, only now and then, and sparing entries without
        an old successor.
        """
        if not self._storage.can_append and self._anchor is not None and self._anchor.sequence % _TRIM_EVERY:
            return
        self._delete_all(self.sequences()[:-KEPT_ENTRIES])
        self._storage.remove_abandoned(self._directory, self._storage.clock.now_ms() - DAY_MS)
