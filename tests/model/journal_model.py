"""An explicit-state model of the journal protocol, explored exhaustively.

What is modelled
    Storage is a map *number -> entry* with an atomic put-if-absent. Every successful put makes a new
    **incarnation** of its number: what tells two files with equal bytes apart. Any put may lose its reply,
    stored or not; a slow network may deliver it later, a careless one twice.
    Writers commit one logical operation, readers follow the journal, collectors delete old entries. Each access
    to storage is one atomic step and all steps of all processes interleave freely. A process that the
    interleaving never schedules again has crashed; one that it schedules late is a zombie.

What is checked
    The *chain* is the list of entries whose put was the next number at its moment: the truth, which no process
    sees. An entry that was put at a collected number is a *stray*.

    P1  An operation reported committed is in the chain.
    P2  No operation is in the chain twice, and every entry in it was built on its predecessor.
    P3  A write reported as never committed is not in the chain, and does not enter it later.
    P4  What a reader believes is in the chain, and a reader that follows it never goes backwards.
    P5  A reader never rests ("nothing new") below a number that was collected: it would wait for ever.

How to read it
    A process is a chain of phases, generators that yield requests to storage: `exploration` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from typing import Literal, TypeVar

from tests.model.exploration import Ask, Done, Next, Outcome, Phase

# --- Guards: each rule of the protocol can be taken out -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guards:
    """The rules of the journal. The defaults are the whole protocol; a test takes one out at a time."""

    anchor_check: Literal["none", "write_id", "attempt", "identity"] = "identity"
    """How an entry is recognised: not at all, by its write id, by an id in the bytes that is fresh for every
    put, or by its incarnation (what storage itself says about the file)."""
    check_after: bool = True
    """The anchor is checked after the put or read that started from it, not before."""
    first_entry: Literal["trusted", "second_names_it", "confirmed"] = "confirmed"
    """A put at number 1 has no anchor. It is trusted; or counts only if no higher number exists or entry 2 names
    it as `prev`; or counts only if a listing confirms it, like any entry that a listing showed."""
    listing: Literal["trusted", "identity", "confirmed"] = "confirmed"
    """The newest entry of a listing is read and trusted at once; or trusted if it has the incarnation that the
    listing gave; or trusted if a second listing, made after the read, shows nothing above number + `slack`."""
    slack: int = 1
    """Must be below `keep`: an entry among the newest `keep` was never collected."""
    recheck: bool = True
    """An entry that a listing confirmed must still be there afterwards."""
    keep: int = 2
    """The collector never deletes the newest `keep` entries of its own (perhaps stale) listing."""
    bound_first: bool = True
    """The collector lists twice: the first listing tells how far it may go, the second what is there."""
    ordered_deletes: bool = True
    """The collector deletes in ascending order."""
    read_back: bool = True
    """A put refused with "exists" is read back: it may be ours."""
    same_number: bool = True
    """An ambiguous put is tried again at the same number, never at another one."""
    give_up_in_doubt: bool = True
    """The anchor is gone after a put that may have been stored: look it up, and if that does not decide, the
    outcome is unknown; never put again under another number."""
    go_on_when_lost: bool = False
    """Not a rule but a liberty: a lookup that comes down to our number and finds another write there is a lost race
    like any other, so that the writer may put again under another number."""
    exists_is_doubt: bool = True
    """"Exists" where nothing is found is ambiguous, at the first try too: it may have been our own put."""
    table_lookup: bool = True
    """A writer with a durable id looks into the writers' table of the entry that it builds on."""
    chain_lookup: bool = True
    """Lookups follow `prev` down from the newest entry; without, any retained file with our write id will do."""
    idle_check: bool = True
    """A reader that finds nothing new checks its anchor before it rests."""
    own_identity_first: bool = True
    """A writer learns the incarnation of its own new entry before it checks the anchor, not after."""
    range_links: bool = True
    """A reader of a range of retained entries goes down from the newest and takes what `prev` names only."""


@dataclass(frozen=True, slots=True)
class World:
    """What the environment may do."""

    network: Literal["prompt", "late", "twice"] = "prompt"
    """A request is executed at once or never; or perhaps later; or perhaps now and once more later."""
    torn_listing: bool = False
    """A listing takes time: what is put or deleted meanwhile may or may not show in it."""
    client_retries: bool = False
    """The client library puts again by itself after a lost reply: "exists" may then mean our own put, at once."""


# --- Storage ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """The bytes of one journal entry."""

    write_id: str
    operation: str
    prev: str
    table: frozenset[str]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry as read: number, bytes and incarnation, all from one access. A remembered one is an anchor.

    `stamp` is storage's time of it, in ticks; `journal_model_spared` alone lets time pass.
    """

    number: int
    entry: Entry
    incarnation: int
    stamp: int = 0

    def __str__(self) -> str:
        return f"{self.number}={self.entry.write_id}#{self.incarnation}"


@dataclass(frozen=True, slots=True)
class Store:
    """Everything outside the processes. `chain`, `disowned` are ghosts: only the properties look at them."""

    files: tuple[Seen | None, ...]
    puts: tuple[int, ...]
    chain: tuple[Entry, ...]
    in_flight: frozenset[tuple[int, Entry]] = frozenset()
    disowned: frozenset[str] = frozenset()
    now: int = 0

    def at(self, number: int) -> Seen | None:
        """The file with this number, if there is one."""
        return self.files[number - 1] if 0 < number <= len(self.files) else None

    def is_genuine(self, seen: Seen) -> bool:
        """Whether these bytes are the chain's entry of that number."""
        return seen.number <= len(self.chain) and self.chain[seen.number - 1].write_id == seen.entry.write_id

    def with_put(self, number: int, entry: Entry) -> Store | None:
        """Storage after a put-if-absent, or None where the number is taken."""
        if self.at(number) is not None:
            return None
        room = max(number - len(self.files), 0)
        puts = _changed(self.puts + (0,) * room, number - 1, lambda count: count + 1)
        seen = Seen(number, entry, puts[number - 1], self.now)
        files = _changed(self.files + (None,) * room, number - 1, lambda _: seen)
        chain = (*self.chain, entry) if number > len(self.chain) else self.chain
        return replace(self, files=files, puts=puts, chain=chain)

    def without(self, number: int) -> Store:
        """Storage after a delete."""
        return replace(self, files=_changed(self.files, number - 1, lambda _: None))


_T = TypeVar("_T")


def _changed(items: tuple[_T, ...], index: int, change: Callable[[_T], _T]) -> tuple[_T, ...]:
    return (*items[:index], change(items[index]), *items[index + 1 :])


def history(length: int) -> Store:
    """A journal with `length` entries by writers that are long gone."""
    store = Store(files=(), puts=(), chain=())
    for _ in range(length):
        store = _appended(store)
    return store


def _appended(store: Store) -> Store:
    number = len(store.chain) + 1
    prev = store.chain[-1] if store.chain else None
    name = f"other{number}"
    entry = Entry(name, name, prev.write_id if prev else "", prev.table if prev else frozenset())
    return store.with_put(number, entry) or store


# --- Requests: one atomic step each -------------------------------------------------------------------------


class Reply(Enum):
    """What a put may say."""

    STORED = "stored"
    EXISTS = "exists"
    LOST = "reply lost"


@dataclass(frozen=True, slots=True)
class Read:
    """Read one file: its bytes and its incarnation, or None."""

    number: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        seen = store.at(self.number)
        stray = " (a stray)" if seen is not None and not _first_put(store, seen) else ""
        yield Outcome(store, seen, f"{seen}{stray}" if seen else "absent")

    def __str__(self) -> str:
        return f"read {self.number}"


def _first_put(store: Store, seen: Seen) -> bool:
    return store.is_genuine(seen) and seen.incarnation == 1


@dataclass(frozen=True, slots=True)
class Put:
    """Put-if-absent. The reply may be lost, stored or not; the request may linger in the network."""

    number: int
    entry: Entry

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Executed now, with or without its reply; or not now."""
        stored = store.with_put(self.number, self.entry)
        now, reply = (stored, Reply.STORED) if stored else (store, Reply.EXISTS)
        stray = " as a stray" if stored and self.number <= len(store.chain) else ""
        yield Outcome(now, reply, f"{reply.value}{stray}")
        yield Outcome(now, Reply.LOST, f"{reply.value}{stray}, reply lost")
        if stored and world.client_retries:
            yield Outcome(now, Reply.EXISTS, f"{reply.value}{stray}, reply lost, put again by the library: exists")
        if world.network == "prompt":
            yield Outcome(store, Reply.LOST, "not stored, reply lost")
            return
        yield Outcome(self._lingering(store), Reply.LOST, "still under way, reply lost")
        if world.network == "twice":
            again = self._lingering(now)
            yield Outcome(again, reply, f"{reply.value}{stray}, and under way once more")
            yield Outcome(again, Reply.LOST, f"{reply.value}{stray}, reply lost, and under way once more")

    def _lingering(self, store: Store) -> Store:
        return replace(store, in_flight=store.in_flight | {(self.number, self.entry)})

    def __str__(self) -> str:
        attempt = f", attempt {self.entry.attempt}" if self.entry.attempt else ""
        return f"put {self.number}={self.entry.write_id} (prev {self.entry.prev or 'none'}{attempt})"


@dataclass(frozen=True, slots=True)
class Land:
    """The network executes one put that it still holds."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each request in flight; none blocks."""
        for number, entry in sorted(store.in_flight, key=str):
            rest = replace(store, in_flight=store.in_flight - {(number, entry)})
            stored = rest.with_put(number, entry)
            stray = " as a stray" if stored and number <= len(store.chain) else ""
            note = f"{number}={entry.write_id} {'stored' + stray if stored else 'refused: exists'}"
            yield Outcome(stored or rest, None, note)

    def __str__(self) -> str:
        return "a late put lands"


Shown = tuple[tuple[int, int], ...]
"""What a listing shows: (number, incarnation), ascending."""


def _shown(files: Iterable[Seen | None]) -> Shown:
    return tuple(sorted((seen.number, seen.incarnation) for seen in files if seen is not None))


def _told_shown(shown: Shown) -> str:
    return f"{[number for number, _ in shown]}"


@dataclass(frozen=True, slots=True)
class Listing:
    """List at one moment. Most callers keep the newest only, which keeps the number of states small."""

    newest_only: bool = True

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        shown = _shown(store.files)
        yield Outcome(store, shown[-1:] if self.newest_only else shown, _told_shown(shown))

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class ListingBegins:
    """The first half of a listing that takes time: remembers what was there."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(store, store.files, f"{_told_shown(_shown(store.files))} are there")

    def __str__(self) -> str:
        return "list (begins)"


@dataclass(frozen=True, slots=True)
class ListingEnds:
    """The second half: what was there all the time shows, what came or went meanwhile may show."""

    before: tuple[Seen | None, ...]
    newest_only: bool = True

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each list that may be shown."""
        begin, end = set(self.before) - {None}, set(store.files) - {None}
        always, perhaps = begin & end, sorted(begin ^ end, key=str)
        sizes = range(len(perhaps) + 1)
        lists = {_shown(always.union(some)) for size in sizes for some in combinations(perhaps, size)}
        for shown in sorted({shown[-1:] for shown in lists} if self.newest_only else lists):
            yield Outcome(store, shown, f"{'newest shown' if self.newest_only else 'shows'} {_told_shown(shown)}")

    def __str__(self) -> str:
        return "list (ends)"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one file by number; deleting nothing is fine."""

    number: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        gone = store.at(self.number) is None
        yield Outcome(store.without(self.number), None, "was gone already" if gone else "deleted")

    def __str__(self) -> str:
        return f"delete {self.number}"


@dataclass(frozen=True, slots=True)
class Append:
    """A correct writer without trouble commits one operation, in one step: history goes on."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(_appended(store), None, f"{len(store.chain) + 1}=other{len(store.chain) + 1}")

    def __str__(self) -> str:
        return "commit"


# --- Claims: what processes tell the world, judged against the chain ----------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """The operation is in the journal."""

    operation: str

    def broken(self, store: Store) -> str | None:
        """P1."""
        if any(entry.operation == self.operation for entry in store.chain):
            return None
        return f"P1: {self.operation} was reported committed and is not in the chain"

    def __str__(self) -> str:
        return f"reports {self.operation} committed"


@dataclass(frozen=True, slots=True)
class Never:
    """This write is not in the journal and will never be."""

    write_id: str

    def broken(self, store: Store) -> str | None:
        """P3, as of now; `Store.disowned` remembers it for later."""
        if all(entry.write_id != self.write_id for entry in store.chain):
            return None
        return f"P3: {self.write_id} was reported as never committed and is in the chain"

    def __str__(self) -> str:
        return f"reports {self.write_id} as never committed"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows: any truth is fine."""

    write_id: str

    def broken(self, store: Store) -> str | None:
        """Never."""
        return None

    def __str__(self) -> str:
        return f"reports the outcome of {self.write_id} as unknown"


@dataclass(frozen=True, slots=True)
class Believed:
    """A reader takes this entry for one of the journal's, and has come up to it from number `after`."""

    seen: Seen
    after: int = 0

    def broken(self, store: Store) -> str | None:
        """P4."""
        if not store.is_genuine(self.seen):
            return f"P4: a reader believed {self.seen}, which is a stray"
        if self.seen.number <= self.after:
            return f"P4: a reader went back from {self.after} to {self.seen.number}"
        return None

    def __str__(self) -> str:
        return f"believes {self.seen}"


@dataclass(frozen=True, slots=True)
class Rested:
    """A reader found nothing new after this entry."""

    anchor: Seen

    def broken(self, store: Store) -> str | None:
        """P5."""
        following = self.anchor.number + 1
        if following > len(store.chain) or store.at(following) is not None:
            return None
        return f"P5: a reader rests on {self.anchor} and waits for {following}, which was collected"

    def __str__(self) -> str:
        return f"rests on {self.anchor}"


Claim = Committed | Never | Unknown | Believed | Rested


def chain_fault(before: Store, after: Store) -> str | None:
    """P2 and P3 for an entry that has just entered the chain."""
    if len(after.chain) == len(before.chain):
        return None
    new = after.chain[-1]
    if any(entry.operation == new.operation for entry in before.chain):
        return f"P2: {new.operation} is in the chain twice"
    if new.prev != (before.chain[-1].write_id if before.chain else ""):
        return f"P2: {new.write_id} was built on {new.prev or 'nothing'}, not on its predecessor"
    if new.write_id in before.disowned:
        return f"P3: {new.write_id} was reported as never committed and entered the chain later"
    return None


def judge(before: Store, after: Store, claims: tuple[Claim, ...]) -> tuple[Store, str | None]:
    """All properties, for one step; what was reported as never committed is remembered."""
    faults = [chain_fault(before, after), *(claim.broken(after) for claim in claims)]
    given_up = {claim.write_id for claim in claims if isinstance(claim, Never)}
    store = replace(after, disowned=after.disowned | given_up) if given_up else after
    return store, next(filter(None, faults), None)


# --- Processes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Writer:
    """One logical operation to commit. The writers' table keeps `durable` ones; a fresh process may retry those."""

    write_id: str
    operation: str
    guards: Guards
    world: World = World()
    durable: bool = False
    attempts: int = 2
    races: int = 2
    then: Writer | None = None

    def entry(self, anchor: Seen | None, attempt: int) -> Entry:
        """The bytes to put after `anchor`."""
        table = anchor.entry.table if anchor else frozenset()
        return Entry(
            write_id=self.write_id,
            operation=self.operation,
            prev=anchor.entry.write_id if anchor else "",
            table=table | {self.operation} if self.durable else table,
            attempt=attempt if self.guards.anchor_check == "attempt" else 0,
        )

    def is_ours(self, seen: Seen | None) -> bool:
        """Whether this is our write, whichever attempt."""
        return seen is not None and seen.entry.write_id == self.write_id

    def in_table(self, seen: Seen) -> bool:
        """Whether the writers' table says that our operation was committed."""
        return self.guards.table_lookup and self.durable and self.operation in seen.entry.table


@dataclass(frozen=True, slots=True)
class Reader:
    """Follows the journal for a few polls."""

    guards: Guards
    world: World = World()
    polls: int = 2


def holds(guards: Guards, anchor: Seen) -> Ask[bool]:
    """Whether the remembered entry still exists, as far as the guards can tell."""
    if guards.anchor_check == "none":
        return True
    now: Seen | None = yield Read(anchor.number)
    if now is None:
        return False
    match guards.anchor_check:
        case "write_id":
            return now.entry.write_id == anchor.entry.write_id
        case "attempt":
            return (now.entry.write_id, now.entry.attempt) == (anchor.entry.write_id, anchor.entry.attempt)
        case _:
            return now == anchor


def listing(world: World, newest_only: bool = True) -> Ask[Shown]:
    """What is there, ascending: all of it, or the newest at most."""
    if not world.torn_listing:
        shown: Shown = yield Listing(newest_only)
        return shown
    before = yield ListingBegins()
    shown = yield ListingEnds(before, newest_only)
    return shown


class Unstable(Enum):
    """What was remembered or listed does not hold any more: forget it and list."""

    GONE = "gone"


def find_newest(guards: Guards, world: World) -> Ask[Seen | Unstable | None]:
    """The newest entry by listing, None for an empty journal."""
    shown = yield from listing(world)
    if not shown:
        return None
    number, incarnation = shown[-1]
    newest: Seen | None = yield Read(number)
    if newest is None:
        return Unstable.GONE
    match guards.listing:
        case "trusted":
            stands = True
        case "identity":
            stands = newest.incarnation == incarnation
        case "confirmed":
            stands = yield from is_confirmed(guards, world, newest)
    return newest if stands else Unstable.GONE


def is_confirmed(guards: Guards, world: World, seen: Seen) -> Ask[bool]:
    """A listing made after the read shows that this number was never collected."""
    shown = yield from listing(world)
    if not shown or shown[-1][0] > seen.number + guards.slack:
        return False
    return not guards.recheck or (yield from holds(guards, seen))


def follow(guards: Guards, anchor: Seen) -> Ask[Seen | Unstable | None]:
    """The entry after the anchor: there, not there yet, or unknowable from this anchor."""
    if not guards.check_after and not (yield from holds(guards, anchor)):
        return Unstable.GONE
    ahead: Seen | None = yield Read(anchor.number + 1)
    if ahead is None or not guards.check_after or (yield from holds(guards, anchor)):
        return ahead
    return Unstable.GONE


# The writer: find -> refresh -> put -> (read_back) -> verify -> (lookup -> walk)


def find(me: Writer, race: int) -> Phase:
    """Forget everything and list."""
    newest = yield from find_newest(me.guards, me.world)
    if isinstance(newest, Unstable):
        return Next(find, (me, race))
    return propose(me, newest, race)


def refresh(me: Writer, anchor: Seen, race: int) -> Phase:
    """Probe the numbers after a remembered entry."""
    ahead = yield from follow(me.guards, anchor)
    if isinstance(ahead, Unstable):
        return Next(find, (me, race))
    return propose(me, anchor, race) if ahead is None else Next(refresh, (me, ahead, race))


def propose(me: Writer, anchor: Seen | None, race: int) -> Next | Done:
    """Nothing newer than the anchor is known: commit after it, unless that was done already."""
    if anchor is not None and me.in_table(anchor):
        return Done(Committed(me.operation))
    return Next(put, (me, anchor, race, 1))


def put(me: Writer, anchor: Seen | None, race: int, attempt: int) -> Phase:
    """One attempt at the number after the anchor."""
    if anchor and not me.guards.check_after and not (yield from holds(me.guards, anchor)):
        return Next(find, (me, race))
    reply = yield Put(anchor.number + 1 if anchor else 1, me.entry(anchor, attempt))
    match reply:
        case Reply.STORED:
            return Next(verify, (me, anchor, race))
        case Reply.EXISTS if me.guards.read_back:
            return Next(read_back, (me, anchor, race, attempt > 1))
        case Reply.LOST if me.guards.same_number:
            again = Next(put, (me, anchor, race, attempt + 1))
            return again if attempt < me.attempts else Done(Unknown(me.write_id))
        case _:
            return lost_race(me, anchor, race)


def lost_race(me: Writer, anchor: Seen | None, race: int) -> Next | Done:
    """Another write has the number: go on from here, or from a listing; give up after a few races."""
    if race >= me.races:
        return Done(Never(me.write_id))
    return Next(refresh, (me, anchor, race + 1)) if anchor else Next(find, (me, race + 1))


def read_back(me: Writer, anchor: Seen | None, race: int, in_doubt: bool) -> Phase:
    """The number is taken: by us (an earlier attempt), by another write, or by something unknowable."""
    number = anchor.number + 1 if anchor else 1
    there: Seen | None = yield Read(number)
    if me.is_ours(there):
        return Next(verify, (me, anchor, race))
    if there and anchor and (yield from holds(me.guards, anchor)):
        return lost_race(me, there, race)
    in_doubt = in_doubt or (me.guards.exists_is_doubt and me.world.client_retries)
    if in_doubt and me.guards.give_up_in_doubt:
        return Next(lookup, (me, number, race))
    return lost_race(me, None, race)


def verify(me: Writer, anchor: Seen | None, race: int) -> Phase:
    """Our entry is at the number. It counts only if the number was not a collected one."""
    if anchor is None:
        counts, own = (yield from is_first(me)), None
    else:
        counts, own = yield from is_after(me, anchor)
    if counts:
        return committed(me, own)
    if not me.guards.give_up_in_doubt:
        return lost_race(me, None, race)
    return Next(lookup, (me, anchor.number + 1 if anchor else 1, race))


def is_first(me: Writer) -> Ask[bool]:
    """Number 1, which holds our entry, was never used before."""
    match me.guards.first_entry:
        case "trusted":
            return True
        case "second_names_it":
            shown = yield from listing(me.world)
            if shown and shown[-1][0] == 1:
                return True
            second: Seen | None = yield Read(2)
            return second is not None and second.entry.prev == me.write_id
        case "confirmed":
            first: Seen | None = yield Read(1)
            if first is None or not me.is_ours(first):
                return False
            return (yield from is_confirmed(me.guards, me.world, first))


def is_after(me: Writer, anchor: Seen) -> Ask[tuple[bool, Seen | None]]:
    """Whether the anchor still holds; also our own entry as an anchor for a further operation."""
    own: Seen | None = None
    if me.then and me.guards.own_identity_first:
        own = yield Read(anchor.number + 1)
    counts = not me.guards.check_after or (yield from holds(me.guards, anchor))
    if counts and me.then and not me.guards.own_identity_first:
        own = yield Read(anchor.number + 1)
    return counts, own


def committed(me: Writer, own: Seen | None) -> Next | Done:
    """Report success; go on with the next operation, if there is one, from our own entry."""
    claim = Committed(me.operation)
    if me.then is None:
        return Done(claim)
    return Next(refresh, (me.then, own, 1), claim) if own else Next(find, (me.then, 1), claim)


def lookup(me: Writer, number: int, race: int) -> Phase:
    """Our put may have been stored and its anchor is gone: the newest entry decides, or nothing does."""
    if not me.guards.chain_lookup:
        return (yield from scan(me))
    newest = yield from find_newest(me.guards, me.world)
    if isinstance(newest, Unstable):
        return Next(lookup, (me, number, race))
    if newest is None:
        return Done(Unknown(me.write_id))
    return Done(Committed(me.operation)) if me.in_table(newest) else Next(walk, (me, newest, number, race))


def walk(me: Writer, genuine: Seen, number: int, race: int) -> Phase:
    """Follow `prev` down from an entry that is known to be in the chain."""
    if me.write_id in (genuine.entry.write_id, genuine.entry.prev):
        return Done(Committed(me.operation))
    if me.guards.go_on_when_lost and genuine.number <= number + 1:
        return lost_race(me, None, race)
    below = yield from read_below(genuine)
    return Next(walk, (me, below, number, race)) if below else Done(Unknown(me.write_id))


def read_below(genuine: Seen) -> Ask[Seen | None]:
    """The predecessor of an entry in the chain, if it is retained: a stray in its place has another write id."""
    if genuine.number == 1:
        return None
    below: Seen | None = yield Read(genuine.number - 1)
    return below if below and below.entry.write_id == genuine.entry.prev else None


def scan(me: Writer) -> Phase:
    """The naive lookup: any retained file with our write id will do."""
    shown = yield from listing(me.world, newest_only=False)
    for number, _ in reversed(shown):
        there: Seen | None = yield Read(number)
        if me.is_ours(there):
            return Done(Committed(me.operation))
    return Done(Unknown(me.write_id))


# The reader: open_reader -> poll -> poll ...


def open_reader(me: Reader, after: int, polls: int) -> Phase:
    """List, and take the newest entry."""
    newest = yield from find_newest(me.guards, me.world)
    if newest is None:
        return Done()
    if isinstance(newest, Unstable):
        return Next(open_reader, (me, after, polls))
    if newest.number == after:
        return Next(poll, (me, newest, polls))
    return Next(poll, (me, newest, polls), Believed(newest, after))


def poll(me: Reader, anchor: Seen, polls: int) -> Phase:
    """Probe the number after the anchor."""
    ahead = yield from follow(me.guards, anchor)
    if isinstance(ahead, Seen):
        claim = Believed(ahead, anchor.number)
        return Next(poll, (me, ahead, polls - 1), claim) if polls > 1 else Done(claim)
    if ahead is None and (not me.guards.idle_check or (yield from holds(me.guards, anchor))):
        return Done(Rested(anchor))
    return Next(open_reader, (me, anchor.number, polls - 1)) if polls > 1 else Done()


def plan(me: Reader) -> Phase:
    """Read the retained entries as one range, from the newest down; how far is told by something older."""
    newest = yield from find_newest(me.guards, me.world)
    if newest is None:
        return Done()
    if isinstance(newest, Unstable):
        return Next(plan, (me,))
    return Next(plan_below, (me, newest), Believed(newest))


def plan_below(me: Reader, above: Seen) -> Phase:
    """The next lower entry of the range; one that is gone, or not the predecessor, ends it."""
    if me.guards.range_links:
        below = yield from read_below(above)
    else:
        below = yield Read(above.number - 1)
    return Next(plan_below, (me, below), Believed(below)) if below else Done()


# The surroundings


def collect(guards: Guards, world: World) -> Phase:
    """List, then delete all but the newest, one by one; the list gets stale meanwhile."""
    newest = (yield from listing(world)) if guards.bound_first else None
    shown = yield from listing(world, newest_only=False)
    highest = max(shown if newest is None else newest, default=(0, 0))[0]
    doomed = tuple(number for number, _ in shown if number <= highest - guards.keep)
    return Next(delete, (doomed if guards.ordered_deletes else doomed[::-1],))


def delete(doomed: tuple[int, ...]) -> Phase:
    """Delete the first of the doomed numbers."""
    if not doomed:
        return Done()
    yield Delete(doomed[0])
    return Next(delete, (doomed[1:],))


def others(commits: int) -> Phase:
    """History goes on by writers without trouble."""
    yield Append()
    return Next(others, (commits - 1,)) if commits > 1 else Done()


def network() -> Phase:
    """Late puts land, in any order and at any time."""
    yield Land()
    return Next(network, ())
