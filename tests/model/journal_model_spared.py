"""The journal where a look is a request: which looks are spared, and what that rests on. Time passes here, in ticks.

What is modelled
    As in `journal_model`, whose storage, claims and properties these are. Storage stamps entries with its time. A
    collector deletes a number once the entry after it is `DELAY` ticks old. Each process reads the same clock whenever
    it likes, and may be paused for any time between any two steps.

    A writer puts on top of what it remembers, without asking whether that is the newest. Of its own entry it knows the
    bytes, as a put's reply names them, and that it was put until the reply came. A reader polls with one request.

What is spared
    * The look at the anchor, while it was seen as the newest less than `window` ticks ago.
    * The look at the own entry after its put: the file is known again by its bytes and a time that is not too late.
    * Doubt: an anchor that is gone less than `window` ticks after the put began was gone before it.
    * The second listing, where what the first one showed is read less than `listed` ticks after that began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.model.exploration import Ask, Done, Next, Outcome, Phase
from tests.model.journal_model import (
    Believed,
    Claim,
    Committed,
    Delete,
    Guards,
    Listing,
    Never,
    Put,
    Read,
    Reply,
    Rested,
    Seen,
    Store,
    Unknown,
    Unstable,
    World,
    Writer,
    listing,
    walk,
)

_GUARDS, _PROMPT = Guards(), World()

DELAY = 2
"""The age of an entry at which the one before it may go."""


@dataclass(frozen=True, slots=True)
class Spares:
    """The rules. The defaults are all of them; a test takes one out at a time."""

    window: int = DELAY
    """How long what was seen holds; longer than the delay is too long. The code takes half, for clocks that differ."""
    anchor_looked: bool = True
    """After that a put counts only once the anchor was looked at."""
    poll_looked: bool = True
    """After that a poll that finds nothing looks at its anchor."""
    bounded: bool = True
    """An own entry is known again only if its time is not later than its put's reply."""
    in_doubt_later: bool = True
    """An anchor that is gone proves that a put did not count only soon after that put began."""
    doubted_once: bool = True
    """It proves nothing where an earlier try of the same put had no reply."""
    followed: bool = True
    """A number goes once the entry *after* it is old enough; not once it is itself."""
    renewed: bool = True
    """What a poll finds holds from the poll's beginning on, not from its end."""
    quick: bool = True
    """Of a put that took the delay the own file is looked at: its reply bounds the time too late."""
    first_try: bool = True
    """An own entry that is read back holds from the beginning of the first try on, not from the read."""
    listed: int = DELAY
    """How long after a listing began its newest entry may be read and count at once; longer than the delay is too long."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A process reads the clock."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(store, store.now, str(store.now))

    def __str__(self) -> str:
        return "read the clock"


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(replace(store, now=store.now + 1), None, str(store.now + 1))

    def __str__(self) -> str:
        return "tick"


def time(ticks: int) -> Phase:
    """Let time pass."""
    yield Tick()
    return Next(time, (ticks - 1,)) if ticks > 1 else Done()


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a process remembers: an entry, as it was read or as the reply to its put names it, and since when."""

    seen: Seen
    newest_at: int
    told: bool = False

    @property
    def number(self) -> int:
        """Its number."""
        return self.seen.number

    def __str__(self) -> str:
        return f"{self.seen}, the newest at {self.newest_at}"


@dataclass(frozen=True, slots=True)
class Hasty:
    """A writer of one operation after another, on top of what it remembers."""

    operations: tuple[str, ...]
    spares: Spares
    guards: Guards = _GUARDS
    world: World = _PROMPT
    races: int = 2
    attempts: int = 2

    def writer(self, race: int) -> Writer:
        """The writer of its next operation, as `journal_model` has it: each draft has a write id of its own."""
        name = self.operations[0]
        return Writer(name if race == 1 else f"{name}.{race}", name, self.guards, self.world)


def holds(spares: Spares, anchor: Anchor) -> Ask[bool]:
    """Whether the anchor is still there, as the very file."""
    now: Seen | None = yield Read(anchor.number)
    if now is None:
        return False
    if not anchor.told:
        return now == anchor.seen
    return now.entry == anchor.seen.entry and (now.stamp <= anchor.seen.stamp or not spares.bounded)


def put_on(me: Hasty, anchor: Anchor, race: int, attempt: int, first: int = -1) -> Phase:
    """Put at the number after the anchor; nobody was asked whether that is the newest. `first`: the first try's begin."""
    began = yield Clock()
    first = began if attempt == 1 else first
    writer = me.writer(race)
    entry = writer.entry(anchor.seen, attempt)
    reply = yield Put(anchor.number + 1, entry)
    ended = yield Clock()
    if reply is Reply.LOST:
        again = Next(put_on, (me, anchor, race, attempt + 1, first))
        return again if attempt < me.attempts else Done(Unknown(writer.write_id))
    own = Anchor(Seen(anchor.number + 1, entry, 0, ended), began, told=True)
    if reply is Reply.EXISTS:
        return Next(read_back, (me, anchor, race, first))
    if ended - began >= DELAY and me.spares.quick:
        return Next(look_at_own, (me, anchor, own, race, attempt))
    if ended - anchor.newest_at < me.spares.window or not me.spares.anchor_looked:
        return committed(me, own)
    return Next(look, (me, anchor, own, race, attempt))


def look_at_own(me: Hasty, anchor: Anchor, own: Anchor, race: int, attempt: int) -> Phase:
    """Learn which file the own one is; the look at the anchor that follows shows that it was the first at its number."""
    there: Seen | None = yield Read(own.number)
    if there is None or there.entry != own.seen.entry:
        return Next(lookup, (me, own.number, race))
    return Next(look, (me, anchor, Anchor(there, own.newest_at), race, attempt))


def look(me: Hasty, anchor: Anchor, own: Anchor, race: int, attempt: int) -> Phase:
    """The put was done; it counts if its anchor is there."""
    if (yield from holds(me.spares, anchor)):
        return committed(me, own)
    now = yield Clock()
    soon = now - own.newest_at < me.spares.window or not me.spares.in_doubt_later
    if soon and (attempt == 1 or not me.spares.doubted_once):
        return lost(me, race)
    return Next(lookup, (me, own.number, race))


def read_back(me: Hasty, anchor: Anchor, race: int, first: int) -> Phase:
    """The number is taken: by an earlier try of ours, by another write, or by something unknowable."""
    writer = me.writer(race)
    there: Seen | None = yield Read(anchor.number + 1)
    now = yield Clock()
    stands = now - anchor.newest_at < me.spares.window or (yield from holds(me.spares, anchor))
    if stands and there is not None and writer.is_ours(there):
        return committed(me, Anchor(there, first if me.spares.first_try else now))
    if stands and there is not None:
        return lost(me, race)
    return Next(lookup, (me, anchor.number + 1, race))


def lost(me: Hasty, race: int) -> Next | Done:
    """Another write has the number: list, and put on top of the newest, as a write of its own."""
    if race >= me.races:
        return Done(Never(me.writer(race).write_id))
    return Next(start, (me, race + 1), Never(me.writer(race).write_id))


def committed(me: Hasty, own: Anchor) -> Next | Done:
    """Report success; go on with the next operation on top of it."""
    claim: Claim = Committed(me.operations[0])
    if len(me.operations) == 1:
        return Done(claim)
    return Next(put_on, (replace(me, operations=me.operations[1:]), own, 1, 1), claim)


def find_newest(spares: Spares, world: World) -> Ask[Anchor | Unstable | None]:
    """The newest entry by listing, None for an empty journal; a listing a while ago is confirmed by a second one."""
    began = yield Clock()
    shown = yield from listing(world)
    if not shown:
        return None
    newest: Seen | None = yield Read(shown[-1][0])
    now = yield Clock()
    if newest is not None and now - began < spares.listed:
        return Anchor(newest, began)
    again = yield from listing(world)
    if newest is None or not again or again[-1][0] != newest.number:
        return Unstable.GONE
    there: Seen | None = yield Read(newest.number)
    return Anchor(newest, now) if there == newest else Unstable.GONE


def start(me: Hasty, race: int) -> Phase:
    """Find the newest entry by listing, and put on top of it."""
    newest = yield from find_newest(me.spares, me.world)
    if newest is None:
        return Done()
    return Next(start, (me, race)) if isinstance(newest, Unstable) else Next(put_on, (me, newest, race, 1))


def lookup(me: Hasty, number: int, race: int) -> Phase:
    """Our put may have been stored and its anchor is gone: the chain from the newest entry down decides, or nothing does."""
    writer, newest = me.writer(race), (yield from find_newest(me.spares, me.world))
    if isinstance(newest, Unstable):
        return Next(lookup, (me, number, race))
    if newest is None:
        return Done(Unknown(writer.write_id))
    found = newest.seen
    return Done(Committed(writer.operation)) if writer.in_table(found) else Next(walk, (writer, found, number, race))


@dataclass(frozen=True, slots=True)
class Poller:
    """Follows the journal."""

    spares: Spares
    polls: int = 3
    world: World = _PROMPT


def poll(me: Poller, anchor: Anchor, polls: int) -> Phase:
    """Read on from the anchor until nothing is there; that counts while no number after it can be collected."""
    began = yield Clock()
    latest = anchor.seen
    while True:
        ahead: Seen | None = yield Read(latest.number + 1)
        if ahead is None:
            break
        latest = ahead
    now = yield Clock()
    if (
        now - anchor.newest_at >= me.spares.window
        and me.spares.poll_looked
        and not (yield from holds(me.spares, anchor))
    ):
        return Next(list_again, (me, anchor.number, polls - 1)) if polls > 1 else Done()
    found = latest.number > anchor.number
    claim: Claim = Believed(latest, anchor.number) if found else Rested(anchor.seen)
    following = Anchor(latest, began if me.spares.renewed else now, anchor.told and not found)
    return Next(poll, (me, following, polls - 1), claim) if polls > 1 else Done(claim)


def list_again(me: Poller, after: int, polls: int) -> Phase:
    """The anchor is gone: list."""
    newest = yield from find_newest(me.spares, me.world)
    if not isinstance(newest, Anchor):
        return Next(list_again, (me, after, polls)) if newest is not None else Done()
    claim: Claim | None = Believed(newest.seen, after) if newest.number != after else None
    return Next(poll, (me, newest, polls), claim)


def collect_old(spares: Spares, keep: int = 2) -> Phase:
    """List; of each number but the newest ones, ascending, look whether the entry after it is old enough; delete it."""
    shown = yield Listing(newest_only=False)
    return Next(collect_next, (spares, tuple(number for number, _ in shown[:-keep])))


def collect_next(spares: Spares, doomed: tuple[int, ...]) -> Phase:
    """Delete the first one, if it may go; else end."""
    if not doomed:
        return Done()
    witness: Seen | None = yield Read(doomed[0] + 1 if spares.followed else doomed[0])
    now = yield Clock()
    if witness is not None and now - witness.stamp < DELAY:
        return Done()
    yield Delete(doomed[0])
    return Next(collect_next, (spares, doomed[1:]))
