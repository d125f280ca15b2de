"""Quorum: three or five metadata roots decide a unit's entries, by majority.

An acceptor takes an entry only after its own root's `journal/` has the one before, so no entry is only in a register
that goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pyspark_commitlog import metrics
from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
    UsageError,
)
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import Entry, Json
from pyspark_commitlog.journal import Appended, Draft, Plan, Result, Slot, Stored, Unchanged
from pyspark_commitlog.replication.metadata.acceptor import RefusedBallotError
from pyspark_commitlog.replication.metadata.promised_ballots import PromisedBallot, RegisterKey, keep, take
from pyspark_commitlog.replication.metadata.quorum_members import MovedError, Seat, SeatedJournal
from pyspark_commitlog.replication.protocol import ballots
from pyspark_commitlog.replication.protocol.ballots import NO_BALLOT, NO_VALUE, Ballot, Register, Value
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.unit import Unit
from pyspark_commitlog.storage.clock import Backoff
from pyspark_commitlog.storage.process import share_out

_TRIES = 200
#: Attempts while decided entries are collected as they are read.
_LOOKS = 5
_BACKOFF = Backoff(0.005, 0.5)
#: Rounds in a row in which seats that promised may fail to accept, while nobody else decides.
_FRUITLESS = 10


#: Entries sent that may still be decided: number -> write id -> result.
Sent = dict[int, dict[str, Result]]


@contextmanager
def certain(directory: str, own: Mapping[int, object]) -> Iterator[None]:
    """Raise `OutcomeUnknownError` on failure after a send."""
    try:
        yield
    except (OutcomeUnknownError, MovedError):
        raise
    except Exception as error:  # of any class: what was sent may be decided
        if not own:
            raise
        raise OutcomeUnknownError(
            f"{directory}: cannot tell whether entry {max(own)} is decided ({error}). Run it again with the same "
            "writer id: it will be committed once"
        ) from error


class Quorum(SeatedJournal):
    """Journal of a unit, decided by a majority of seats. Not thread-safe.

    Entries are read by number at the first seat.

    Args:
        seats: the roots that answer, at least a majority.
        many: size of the set.
        former: returns the former set's quorum, while it may decide units.
        is_last: whether no set follows; asked after finding a unit's first entry, or none.
    """

    def __init__(
        self,
        seats: Sequence[Seat],
        many: int,
        unit: Unit,
        check: Callable[[Json, str], object],
        former: Callable[[], Quorum] | None = None,
        is_last: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(seats, unit, check, is_last, many)
        self._former = former
        self._failed: list[str] = []

    # --- the head ----------------------------------------------------------------------------------------

    def newest(self) -> Stored | None:
        """Newest decided entry, if any, read at the first seat.

        The former set's last is this one's first. Raises `MovedError` if others decide.
        """
        for _ in range(_LOOKS):
            value = self._head()
            try:
                return None if value == NO_VALUE else self._learned(value)
            except FileNotFoundError:  # others went on, and collected it
                self.forget()
        raise ConflictError(f"{self._directory}: what is decided is collected before it is read; try again")

    def _head(self) -> Value:
        for tries in range(_TRIES):
            found = self._settled()
            if found.ended:
                raise MovedError
            if found.value != NO_VALUE:
                return found.value
            last = self._former().end() if self._former is not None else None
            if last is None:
                self._check_last()
                return NO_VALUE
            if not self._begin(*last):
                self._storage.pause(_BACKOFF, tries)
        raise ConflictError(
            f"{self._directory}: what was decided last is not accepted where it is decided now; try again"
        )

    def _settled(self, *, end: bool = False) -> Register:
        """Decided register: a majority's, else after a round of Paxos.

        `end`: decide nothing after its value.
        """
        fruitless = 0
        for tries in range(_TRIES):
            shown = self._ask(lambda seat: seat.acceptor.read())
            found = ballots.decided(list(shown.values()), self._many)
            if found is not None and (found.ended or not end or found.value == NO_VALUE):
                return found
            ballot = ballots.ballot_above(shown.values(), self._storage.new_id())
            promised = self._promised(ballot)
            if promised is not None:
                highest = ballots.highest(promised.values())
                if highest.value == NO_VALUE:
                    return highest
                last = replace(highest, ended=end or highest.ended)
                if self._accept_again(ballot, last, promised):
                    return last
                fruitless = self._fruitless_rounds(fruitless, last.value)
            self._storage.pause(_BACKOFF, tries)
        raise ConflictError(f"{self._directory}: others decide all the time; try again later")

    def _fruitless_rounds(self, before: int, value: Value) -> int:
        times = before + 1 if self._failed else 0
        if times >= _FRUITLESS:
            raise ReplicaNotAvailableError(
                f"{self._directory}: no majority of the metadata roots takes entry {value.number}, which one of them "
                f"has accepted: {'; '.join(self._failed)}. Where one was restored from a copy, others may have decided "
                "without what it had forgotten; what the roots with data have can be read"
            )
        return times

    # --- sets that follow one another --------------------------------------------------------------------

    def end(self) -> tuple[Value, bytes] | None:
        """End the set; return its last entry and file, if any."""
        last = self._settled(end=True).value
        if last == NO_VALUE:
            return None
        return last, self._copy_of(last)[1]

    def _begin(self, value: Value, data: bytes) -> bool:
        ballot, promised = self._prepared()
        if promised is None:
            return False
        highest = ballots.highest(promised.values())
        if highest.value != NO_VALUE:
            return self._accept_again(ballot, highest, promised)
        return self._accepted(ballot, value, data, promised)

    def teach(self, replica: Replica, newest: Stored) -> None:
        """Bring a root without seat up to a decided entry."""
        self._catch_up(replica, newest.entry.write_id, until=newest.sequence + 1)

    def _promised(self, ballot: Ballot) -> dict[str, Register] | None:
        shown = self._ask(lambda seat: seat.acceptor.promise(ballot))
        return shown if len(shown) >= ballots.majority(self._many) else None

    def _accepted(
        self,
        ballot: Ballot,
        value: Value,
        data: bytes,
        promised: dict[str, Register],
        *,
        ahead: Ballot = NO_BALLOT,
        ended: bool = False,
    ) -> bool:
        """Accept an entry at all that promised; return whether a majority did.

        Each first learns the entry before, which its register held.
        """
        entry = self._decoded(data, value)

        def accept(seat: Seat) -> Register:
            if entry.prev:
                self._catch_up(seat.replica, entry.prev, until=entry.sequence)
            self._bring_tables(entry, seat.replica)
            return seat.acceptor.accept(ballot, value, data, ahead=ahead, ended=ended)

        shown = self._ask(accept, of=promised, least=0)
        if ahead > ballot and len(shown) == self._many:  # else the next entry is prepared first
            keep(self._register(), PromisedBallot(ahead, value, shown))
        return len(shown) >= ballots.majority(self._many)

    def _ask(
        self, act: Callable[[Seat], Register], *, of: dict[str, Register] | None = None, least: int | None = None
    ) -> dict[str, Register]:
        """Ask seats; return the registers of those that agreed.

        `least`: answers needed, refusals included.
        """
        shown, refused, failed = dict[str, Register](), set[str](), list[Exception]()

        def ask(seat: Seat) -> None:
            try:
                shown[seat.acceptor.root] = act(seat)
            except RefusedBallotError:
                refused.add(seat.acceptor.root)
            except (CommitLogError, OSError) as error:
                failed.append(error)

        share_out(ask, [seat for seat in self.seats if of is None or seat.acceptor.root in of], self._many)
        self._failed = [] if refused else [str(error) for error in failed]
        if len(shown) + len(refused) < (ballots.majority(self._many) if least is None else least):
            raise ReplicaNotAvailableError(
                f"{self._directory}: {len(shown)} of {self._many} metadata roots answer, no majority: nothing can be "
                f"decided{': ' if failed else ''}{'; '.join(map(str, failed))}"
            )
        return shown

    def _accept_again(self, ballot: Ballot, register: Register, promised: dict[str, Register]) -> bool:
        failures = list[Exception]()
        self._failed = []
        for seat in self.seats:
            if promised.get(seat.acceptor.root, Register()).accepted != register.accepted:
                continue
            try:
                now, data = seat.acceptor.held()
            except (CommitLogError, OSError) as error:  # another seat may have it
                failures.append(error)
                continue
            if now.value == register.value:
                return self._accepted(ballot, register.value, data, promised, ended=register.ended)
        if failures:  # else those that had it have gone on
            raise failures[0]
        return False

    # --- learning ----------------------------------------------------------------------------------------

    def _learned(self, value: Value, following: tuple[Entry, bytes] | None = None) -> Stored:
        """Teach the seats a decided entry; the first that can becomes first.

        Seats that lack only `following`, just decided, learn it in parallel.
        """
        learned, failed = self._learning(*following) if following is not None else (set[str](), dict[str, str]())
        there, failures = list[Seat](), list(failed.values())
        for seat in self.seats:
            if seat.acceptor.root in failed:
                continue
            try:
                if seat.acceptor.root not in learned:
                    self._catch_up(seat.replica, value.write_id, until=value.number + 1)
                there.append(seat)
            except (CommitLogError, OSError) as error:
                failures.append(str(error))
        if not there:
            raise ReplicaNotAvailableError(f"{self._directory}: no metadata root can learn: {'; '.join(failures)}")
        if there[0] is not self.seats[0]:
            self.seats = [there[0], *(seat for seat in self.seats if seat is not there[0])]
            self._storage = there[0].replica.storage
            self.forget()
        return self.read(value.number)

    def _learning(self, entry: Entry, data: bytes) -> tuple[set[str], dict[str, str]]:
        learned, failed = set[str](), dict[str, str]()

        def learn(seat: Seat) -> None:
            try:
                if self._takes(seat.replica, entry, data):
                    learned.add(seat.acceptor.root)
            except (CommitLogError, OSError) as error:
                failed[seat.acceptor.root] = str(error)

        share_out(learn, self.seats, self._many)
        return learned, failed

    def trim(self) -> None:
        """Keep only the newest two entries, if each is complete."""
        for seat in self.seats if self._unit.whole else ():
            with suppress(CommitLogError, OSError):  # the next change trims them
                seat.replica.journal.trim()

    # --- deciding ----------------------------------------------------------------------------------------

    def append(self, plan: Plan[Result], *, repeatable: bool = False) -> Appended[Result]:
        """Decide an entry made by `plan`; see `Journal.append`.

        Raises:
            OutcomeUnknownError: it was sent to a metadata root.
            ReplicaNotAvailableError: certainly not decided.
        """
        own: Sent[Result] = {}
        with certain(self._directory, own):
            return self.planned(plan, own)

    def planned(self, plan: Plan[Result], own: Sent[Result]) -> Appended[Result]:
        """Append; `own` collects what was sent, also to the former set.

        Raises `MovedError` if others decide.
        """
        for tries in range(_TRIES):
            base = self.newest()
            landed = self._landed_of(own, base)
            if landed is not None:
                return landed
            slot = Slot(1 if base is None else base.entry.following, self._storage.new_id())
            answer = plan(base, slot)
            if isinstance(answer, Unchanged) and not own:
                return Appended(None, answer.result)
            if not isinstance(answer, Draft):
                raise OutcomeUnknownError(f"{self._directory}: what was sent before may be decided yet; run it again")
            entry = self._composed(base, slot, answer)
            data = codec.encode(entry, answer.inline)
            self._as_read(data, slot)
            if len(data) > codec.MAX_INLINE_BYTES:
                raise UsageError(
                    f"{self._directory}: an entry of {len(data)} bytes, at most {codec.MAX_INLINE_BYTES} are decided "
                    "by several metadata roots: set inline.max.bytes lower"
                )
            self.write_sides(slot, answer)
            won = self._decide(base, entry, data, own, answer.result)
            metrics.count_put(self._kind, answer.kind, won=won)
            if won:
                stored = self._learned(Value(entry.sequence, entry.write_id), (entry, data))
                own.clear()
                return Appended(stored, answer.result)
            self._storage.pause(_BACKOFF, tries)
        raise ConflictError(f"{self._directory}: lost {_TRIES} races for the next entry; try again later")

    def _decide(self, base: Stored | None, entry: Entry, data: bytes, own: Sent[Result], result: Result) -> bool:
        """Decide an entry on its base, by its own ballot.

        If an acceptor alone took another, as its writer died, that is decided first.
        """
        expected = NO_VALUE if base is None else Value(base.sequence, base.entry.write_id)
        ballot, promised = self._take_ballot(expected) or self._prepared()
        if promised is None:
            return False
        highest = ballots.highest(promised.values())
        if highest.value != expected or highest.ended:  # nothing follows the end of a set
            if highest.value.number > expected.number or highest.ended:
                self._accept_again(ballot, highest, promised)
            return False
        own.setdefault(entry.sequence, {})[entry.write_id] = result
        ahead = ballots.following(ballot, self._storage.new_id())
        return self._accepted(ballot, Value(entry.sequence, entry.write_id), data, promised, ahead=ahead)

    def _prepared(self) -> tuple[Ballot, dict[str, Register] | None]:
        shown = self._ask(lambda seat: seat.acceptor.read())
        ballot = ballots.ballot_above(shown.values(), self._storage.new_id())
        return ballot, self._promised(ballot)

    def _take_ballot(self, base: Value) -> tuple[Ballot, dict[str, Register]] | None:
        found = take(self._register(), base)
        return None if found is None else (found.ballot, dict(found.promised))

    def _register(self) -> RegisterKey:
        seats = frozenset((seat.acceptor.root, seat.replica.storage.url) for seat in self.seats)
        return self.seats[0].acceptor.directory, seats

    def _landed_of(self, own: Sent[Result], base: Stored | None) -> Appended[Result] | None:
        for number in [number for number in own if base is not None and number <= base.sequence]:
            stored = self.read(number)
            if stored.entry.write_id in own[number]:
                result = own[number][stored.entry.write_id]
                own.clear()
                return Appended(stored, result)
            del own[number]
        return None
