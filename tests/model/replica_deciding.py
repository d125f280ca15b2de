"""How three metadata roots decide the entries of the chain: CASPaxos over a register on each, its records in a journal.

What is modelled
    A value is the whole chain up to an entry. An acceptor's newest record holds (promised, accepted ballot, accepted
    value); a record is appended by put-if-absent on the newest (a compare-and-set). Proposers may stop between any two
    steps, wake late, lose replies; their puts may land late, or as ghosts at numbers that were collected. The three
    metadata roots are the replicas A, B, C: they learn into their own `journal/`.

What is checked, beside what `replica_store` has
    C5  What is decided is one chain: every number is decided itself, once; what is learned, read as the head, or
        reported as decided, is decided; what is reported as lost is not, and never will be; a head is not older than
        what was decided before it was asked for.
    C8  Any two of the three roots hold every decided entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from tests.model.exploration import Done, Next, Phase
from tests.model.replica_rules import Chain, Guards, first_entry, new
from tests.model.replica_steps import Step
from tests.model.replica_store import ROOTS, Root, Store, World, judge

Ballot = tuple[int, int]
"""(number, proposer)."""

NO_BALLOT: Ballot = (0, -1)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of deciding. The defaults are the whole protocol; a test takes one out at a time."""

    majority: bool = True
    """Promises and accepts count from two of three."""
    above_promised: bool = True
    """A ballot is promised only above what was promised."""
    not_below_promised: bool = True
    """A ballot is accepted only if nothing higher was promised."""
    adopt_highest: bool = True
    """A proposer takes the value of the highest accepted ballot that it was told of."""
    anew_first: bool = True
    """It decides that value anew, unless it is known to be decided, before it builds on it."""
    same_ballot: bool = True
    """Known to be decided is what a majority shows under one ballot, not what it shows under two."""
    id_judged: bool = True
    """It looks for its own operation in the value that it builds on."""
    one_value: bool = True
    """A ballot carries one value: it is forgotten before its first put, and by forked children."""
    next_confirmed: bool = True
    """The next ballot, promised with an accept, is used once a majority has accepted."""
    learn_decided: bool = True
    """Learners take what is known to be decided."""
    learn_in_order: bool = True
    """A root learns an entry after the one before it."""
    kept_until_learned: bool = True
    """An acceptor keeps the records whose entries its own `journal/` has not learned."""
    anchored: bool = True
    """A put at a number that was collected does not count: the anchor is looked at."""
    lost_if_other: bool = True
    """An operation is reported as lost only when another entry is decided at its number."""
    head_same_ballot: bool = True
    """A head is what a majority shows under one ballot, read after the question."""
    synced: bool = True
    """Who counts a record that it found has synced its directory."""
    restored_out: bool = True
    """An acceptor whose newest record does not name the one before it as the very file is a copy, and is not counted."""
    named_records: bool = True
    """One that shows fewer records than an entry names is not counted."""


STRICT = Rules()


class Acceptor(NamedTuple):
    """The newest record of an acceptor's journal. `held` are the values that its retained records have.

    `count` is the number of its newest record, `before` the acceptor as power loss leaves it.
    """

    count: int = 0
    promised: Ballot = NO_BALLOT
    ballot: Ballot = NO_BALLOT
    value: Chain | None = None
    held: frozenset[Chain] = frozenset()
    before: Any = None


class Flying(NamedTuple):
    """A put that the network still holds: it lands if nothing was appended since."""

    place: int
    acceptor: Acceptor
    ballot: Ballot


class Deciding(NamedTuple):
    """The acceptors, and, for the properties only, who has accepted what under ballots that are not decided."""

    acceptors: tuple[Acceptor, ...] = (Acceptor(),) * 3
    votes: frozenset[tuple[Ballot, Chain, int]] = frozenset()
    flying: Flying | None = None
    copy: tuple[int, Acceptor] | None = None
    copied: int = 0
    lost: int = 0
    refused: frozenset[int] = frozenset()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What deciding may take: ballots, replies that are lost, puts that are late, pairs (proposer, acceptor) that are slow.

    A `copy` of a root has the bytes, but files of its own; a `snapshot` that is rolled back to has the very files.

    `counts` says whether records are counted: where ghosts, late puts, copies need it.
    """

    rounds: int = 3
    lost: int = 0
    late: bool = False
    slow: tuple[tuple[int, int], ...] = ()
    copies: Literal["", "copy", "snapshot"] = ""
    power: bool = False
    learns: bool = True
    counts: bool = False


class Fault(NamedTuple):
    """Something that is seen to be wrong in a step."""

    text: str

    def __str__(self) -> str:
        return self.text


def judge_deciding(guards: Guards, world: World) -> Callable[[Any, Any, tuple[Any, ...]], tuple[Any, str | None]]:
    """C5 and C8 of deciding, then all that holds of the data."""
    data = judge(guards, world)

    def judged(before: Store, after: Store, claims: tuple[Any, ...]) -> tuple[Store, str | None]:
        if after.deciding.fault:
            return after, after.deciding.fault
        for claim in claims:
            if isinstance(claim, Fault):
                return after, claim.text
        if after.chain != before.chain and (fault := places_fault(after)):
            return after, fault
        if after.deciding != before.deciding and (fault := places_fault(after)):
            return after, fault
        return data(before, after, claims)

    return judged


def places_fault(store: Store) -> str | None:
    """C8: any two of three roots hold every decided entry."""
    if store.lost or store.deciding.copied > 1:
        return None
    for number in range(1, len(store.chain)):
        value = Chain(store.chain[: number + 1])
        holding = sum(store.roots[r].synced >= number or value in store.deciding.acceptors[r].held for r in ROOTS)
        if holding < 2:
            return f"C8: entry {number} is decided and held by {holding} of three roots"
    operations = [e.batch for e in store.chain if e.kind == "touch" and e.batch >= 0]
    if len(set(operations)) < len(operations):
        return f"C6: an operation is twice in {operations}"
    refused = [each for each in store.deciding.refused if each in operations]
    return f"C5: operation {refused[0]} was reported as lost, and is decided" if refused else None


# --- Acceptors -------------------------------------------------------------------------------------------------------


def recorded(
    store: Store, rules: Rules, bounds: Bounds, place: int, promised: Ballot, ballot: Ballot, value: Chain | None
) -> Acceptor:
    """An acceptor with one record more: it keeps the newest two, and what its root has not learned."""
    old = store.deciding.acceptors[place]
    mine = store.roots[place]
    learned = mine.synced if rules.synced else mine.learned
    some = {v for v in (*old.held, old.value, value) if v is not None}
    held = frozenset(v for v in some if v in (old.value, value) or (rules.kept_until_learned and len(v) - 1 > learned))
    return Acceptor(old.count + (1 if bounds.counts else 0), promised, ballot, value, held)


def with_acceptor(store: Store, place: int, acceptor: Acceptor) -> Store:
    """The store with one acceptor changed."""
    old = store.deciding
    row = (*old.acceptors[:place], acceptor, *old.acceptors[place + 1 :])
    return store._replace(deciding=old._replace(acceptors=row))


def accepted(store: Store, place: int, ballot: Ballot, value: Chain) -> Store:
    """The store after one more accept: with a majority under one ballot the value is decided."""
    old = store.deciding
    mask = next((m for b, v, m in old.votes if (b, v) == (ballot, value)), 0)
    votes = old.votes - {(ballot, value, mask)}
    mask |= 1 << place
    if mask.bit_count() < 2:
        return store._replace(deciding=old._replace(votes=votes | {(ballot, value, mask)}))
    fault = ""
    chain = store.chain
    shorter, longer = sorted((chain, value), key=len)
    if longer[: len(shorter)] != shorter:
        fault = f"C5: two histories are decided, {told(chain)} and {told(value)}"
    elif len(value) > len(chain) + 1:
        fault = f"C5: {told(value)} is decided, its number {len(chain)} never was"
    elif len(value) > len(chain):
        chain = value
    return store._replace(chain=chain, deciding=old._replace(votes=votes | {(ballot, value, mask)}, fault=fault))


def synced_at(store: Store, place: int) -> Store:
    """The store after who reads an acceptor's record has synced its directory: what it accepted counts."""
    mine = store.deciding.acceptors[place]
    if mine.before is None:
        return store
    store = with_acceptor(store, place, mine._replace(before=None))
    fresh = mine.value is not None and mine.ballot != mine.before.ballot
    return accepted(store, place, mine.ballot, mine.value) if fresh and mine.value is not None else store


def told(chain: Chain) -> str:
    """A chain in a line."""
    return " ".join(f"{e.kind}{e.batch if e.batch >= 0 else ''}" for e in chain[1:]) or "nothing"


def said_records(chain: Chain, place: int) -> int:
    """How many records an entry names of an acceptor; a touch holds them in `on`."""
    return max((entry.on >> 8 * place & 255 for entry in chain if entry.kind == "touch"), default=0)


# --- A proposer ------------------------------------------------------------------------------------------------------


Build = Callable[[Store, World, Chain], "Chain | str | None"]
"""From the store, the world and the decided base: the chain with the own entry, why there is none, or None: done."""


@dataclass(frozen=True)
class Me:
    """A proposer: its number, the rules, what it proposes, one after the other."""

    place: int
    rules: Rules
    bounds: Bounds
    builds: tuple[Build, ...]
    told_lost: bool = False


Got = tuple[tuple[int, Ballot, "Chain | None", int], ...]


def idle(me: Me, done: int, number: int = 0) -> Phase:
    """Take a ballot above all that was promised."""

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        high = max(a.promised[0] for a in store.deciding.acceptors) + 1
        if number < high <= me.bounds.rounds:
            yield store, high, f"ballot {high}.{me.place}"

    if done == len(me.builds):
        return Done()
    high = yield Step("begins", ways)
    return Next(prepare, (me, done, high, ()))


def beaten(me: Me, store: Store, number: int) -> Iterator[tuple[Store, Any, str]]:
    """Another ballot is above this one, or its reply got lost: it may begin again."""
    high = max(a.promised for a in store.deciding.acceptors)
    if (high > (number + 1, me.place) or store.deciding.lost) and high[0] < me.bounds.rounds and high[0] >= number:
        yield store, "again", "begins again"


Appended = tuple[Store, bool, bool, Acceptor, str]
"""The store after an append, whether it counts, whether its reply is seen, the record that it was put on, a note."""


def appends(
    me: Me, store: Store, place: int, memory: tuple[int, Acceptor] | None, ballot: Ballot, value: Chain | None
) -> Iterator[Appended]:
    """Append a promise (value is None) or an accept to one acceptor."""
    rules, bounds = me.rules, me.bounds
    if bounds.copies == "copy" and rules.restored_out and store.deciding.copied == 2 and store.stale >> place & 1:
        return
    store = synced_at(store, place)
    newest = store.deciding.acceptors[place]
    old = memory[1] if memory else newest
    if value is None:
        fine = ballot > old.promised or (not rules.above_promised and ballot[0] >= old.promised[0] - 1)
        promised, record = ballot, (old.ballot, old.value)
    else:
        fine = ballot >= old.promised or not rules.not_below_promised
        promised, record = max((ballot[0] + 1, ballot[1]), old.promised), (ballot, value)
    if not fine:
        return
    if old.count != newest.count:
        if old.count + 3 <= newest.count and not rules.anchored:
            yield store, True, True, old, "a GHOST"
        else:
            yield store, False, True, old, "refused"
        return
    after = recorded(store, rules, bounds, place, promised, *record)
    stored = with_acceptor(store, place, after)
    put = accepted(stored, place, ballot, value) if value is not None else stored
    yield put, True, True, old, "stored"
    budget = store.deciding.lost < bounds.lost
    if budget:
        quiet = with_acceptor(stored, place, after._replace(before=newest)) if bounds.power else put
        yield (
            quiet._replace(deciding=quiet.deciding._replace(lost=store.deciding.lost + 1)),
            True,
            False,
            old,
            "stored, reply lost",
        )
    if budget and bounds.late and store.deciding.flying is None:
        flying = Flying(place, after, ballot if value is not None else NO_BALLOT)
        late = store.deciding._replace(flying=flying, lost=store.deciding.lost + 1)
        yield store._replace(deciding=late), True, False, old, "under way, reply lost"


def slow_read(me: Me, store: Store, places: tuple[int, ...]) -> Iterator[tuple[Store, Any, str]]:
    """A slow proposer reads an acceptor; its put comes in a later step."""
    for place in places:
        if (me.place, place) in me.bounds.slow:
            yield store, ("read", place, store.deciding.acceptors[place]), f"reads {'ABC'[place]}"


def asks(
    me: Me, store: Store, places: tuple[int, ...], memory: Any, ballot: Ballot, value: Chain | None
) -> Iterator[tuple[int, Appended]]:
    """Append to each of these acceptors; a slow proposer to the one alone that it has read."""
    for place in places:
        slow = (me.place, place) in me.bounds.slow
        if not slow or (memory is not None and memory[0] == place):
            for appended in appends(me, store, place, memory if slow else None, ballot, value):
                yield place, appended


def prepare(me: Me, done: int, number: int, got: Got, memory: Any = None) -> Phase:
    """Ask acceptors, in any order, for a promise; with a majority, look what to propose."""
    asked = tuple(each[0] for each in got)

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        yield from beaten(me, store, number)
        places = tuple(r for r in store.live if r not in asked)
        if memory is None:
            yield from slow_read(me, store, places)
        for place, (after, counts, seen, old, note) in asks(me, store, places, memory, (number, me.place), None):
            if me.rules.named_records and me.bounds.copies and old.count < said(store, place):
                continue
            reply = (place, old.ballot, old.value, old.count) if counts else None
            yield after, reply if seen else "lost", f"promised by {'ABC'[place]}, {note}"

    def said(store: Store, place: int) -> int:
        chains = [v for _, _, v, _ in got if v] + [Chain(store.chain[: r.learned + 1]) for r in store.roots]
        return max(said_records(chain, place) for chain in chains)

    reply = yield Step(f"{number}.{me.place}", ways)
    if reply == "again":
        return Next(idle, (me, done, number))
    if reply is None or reply == "lost":
        return Next(prepare, (me, done, number, got))
    if reply[0] == "read":
        return Next(prepare, (me, done, number, got, reply[1:]))
    got = tuple(sorted((*got, reply), key=lambda each: each[0]))
    enough = 2 if me.rules.majority else 1
    return Next(choose if len(got) >= enough else prepare, (me, done, number, got))


def choose(me: Me, done: int, number: int, got: Got) -> Phase:
    """Take the value of the highest ballot; decide it anew, or build on it if it is known to be decided."""
    top = max(got, key=lambda each: each[1]) if me.rules.adopt_highest else got[0]

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        longest = max((store.roots[r].learned for r in store.live), default=0)
        value = top[2] if top[2] is not None else Chain(store.chain[:1])
        same = sum(each[1:3] == top[1:3] for each in got) >= 2
        alike = not me.rules.same_ballot and sum(each[2] == top[2] for each in got) >= 2
        linked = len(value) - 1 <= longest and value == store.chain[: len(value)]
        known = top[2] is None or same or alike or linked or not me.rules.anew_first
        if not known:
            yield store, ("anew", value), f"decides {told(value)} anew"
            return
        yield from built(me, store, world, value, done, got)

    verdict, value = yield Step(f"{number}.{me.place} looks", ways)
    if verdict == "anew":
        return Next(accept, (me, done, number, value, (), False))
    return ended(me, done, number, verdict, value)


def built(me: Me, store: Store, world: World, base: Chain, done: int, got: Got) -> Iterator[tuple[Store, Any, str]]:
    """Build the own entry on a base that is decided."""
    fault = ""
    if base != store.chain[: len(base)]:
        fault = f"C5: {told(base)} is taken for decided"
    store = store._replace(deciding=store.deciding._replace(fault=fault)) if fault else store
    longer = me.builds[done](store, world, base)
    if me.told_lost and isinstance(longer, Chain):
        tried = longer[-1].batch
        gone = store.deciding._replace(refused=store.deciding.refused | {tried})
        yield store._replace(deciding=gone), ("lost", None), f"reports operation {tried} as lost"
    if longer is None:
        yield store, ("done", base), "finds itself decided"
    elif isinstance(longer, str):
        yield store, ("refused", longer), longer
    else:
        counts = (
            sum(c << 8 * place for place, _, _, c in got)
            if longer[-1].kind == "touch" and me.bounds.copies
            else longer[-1].on
        )
        longer = Chain((*base, longer[-1]._replace(on=counts)))
        yield store, ("own", longer), f"proposes {told(longer)}"


def ended(me: Me, done: int, number: int, verdict: str, value: Any) -> Next | Done:
    """What follows on having looked."""
    if verdict == "own":
        return Next(accept, (me, done, number, value, (), True))
    if verdict == "done":
        return Next(idle, (me, done + 1, number))
    if verdict == "lost":
        return Done()
    return Next(idle, (me, done, number))


def accept(me: Me, done: int, number: int, value: Chain, oks: tuple[int, ...], own: bool, memory: Any = None) -> Phase:
    """Ask acceptors, in any order, to accept; an accept promises the next ballot too."""

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        yield from beaten(me, store, number)
        places = tuple(r for r in store.live if r not in oks)
        if memory is None:
            yield from slow_read(me, store, places)
        for place, (after, counts, seen, _, note) in asks(me, store, places, memory, (number, me.place), value):
            reply = ("ok", place) if counts and seen else "lost"
            yield after, reply, f"{told(value)} accepted by {'ABC'[place]}, {note}"
        if not me.rules.one_value and own and oks:
            child = value[-1]._replace(batch=value[-1].batch + 5)
            yield store, ("child", Chain((*value[:-1], child))), "a forked child goes on with the same ballot"

    enough = 2 if me.rules.majority else 1
    if len(oks) >= enough or (oks and not me.rules.next_confirmed and own and done + 1 < len(me.builds)):
        return (yield from confirmed(me, done, number, value, own, len(oks) >= enough))
    reply = yield Step(f"{number}.{me.place}", ways)
    if reply == "again":
        return Next(idle, (me, done, number))
    if reply == "lost":
        return Next(accept, (me, done, number, value, oks, own))
    if reply[0] == "read":
        return Next(accept, (me, done, number, value, oks, own, reply[1:]))
    if reply[0] == "child":
        return Next(accept, (me, done, number, reply[1], (), False))
    return Next(accept, (me, done, number, value, tuple(sorted((*oks, reply[1]))), own))


def confirmed(me: Me, done: int, number: int, value: Chain, own: bool, enough: bool) -> Any:
    """A majority has accepted: go on under the next ballot, which they have promised."""
    after = done + 1 if own else done

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        if enough and value != store.chain[: len(value)]:
            fault = store.deciding._replace(
                fault=f"C5: {told(value)} is reported as decided, decided is {told(store.chain)}"
            )
            yield store._replace(deciding=fault), ("refused", None), "reports success"
        elif after == len(me.builds):
            yield store, ("end", None), "success"
        else:
            quiet = replace(me, told_lost=False)
            yield from built(quiet, store, world, value, after, ())

    verdict, longer = yield Step(f"{number}.{me.place} has a majority", ways)
    if verdict == "end":
        return Done()
    if verdict == "own":
        return Next(accept, (me, after, number + 1, longer, (), True))
    return ended(me, after, number + 1, verdict, longer)


# --- Learning from acceptors, reading the head, what fails -------------------------------------------------------------


def known_decided(rules: Rules, store: Store, places: tuple[int, ...]) -> Chain:
    """The longest chain that acceptors show to be decided: same ballot on two, or what an accepted value is built on."""
    row = [store.deciding.acceptors[r] for r in places]
    found = [Chain(a.value[:-1]) for a in row if a.value]
    found += [a.value for a in row if a.value and sum(b.ballot == a.ballot and b.value == a.value for b in row) >= 2]
    if not rules.learn_decided:
        found += [a.value for a in row if a.value]
    return max(found, key=len, default=Chain(store.chain[:1]))


def learn(guards: Guards, rules: Rules) -> Phase:
    """Put the next entry, known to be decided, into a root's `journal/`; it needs no chunk here."""

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        for place in store.live:
            yield from learned_next(rules, store, place)
        if store.deciding.flying is not None:
            yield landed(store), None, "a late put lands"

    fault = yield Step("anybody", ways)
    return Next(learn, (guards, rules), Fault(fault) if fault else None)


def learned_next(rules: Rules, store: Store, place: int) -> Iterator[tuple[Store, Any, str]]:
    """One root learns the next entry from acceptors or from another root's journal."""
    best = known_decided(rules, store, store.live)
    root = store.roots[place]
    journals = max(store.roots[r].learned for r in store.live)
    number = root.learned + 1 if rules.learn_in_order else len(best) - 1
    if number <= root.learned:
        return
    held = any(len(v) > number and v[: number + 1] == best[: number + 1] and (v[: number + 1] in store.deciding.acceptors[r].held)
               for r in store.live for v in (best,)) if len(best) > number else False  # fmt: skip
    if not held and journals < number:
        return
    value = best if len(best) > number else store.chain
    synced = store
    if rules.synced:
        for r in store.live:
            synced = synced_at(synced, r)
    if value[: number + 1] != synced.chain[: number + 1]:
        yield (
            store,
            f"C5: {told(Chain(value[: number + 1]))} is learned, and not decided",
            f"{'ABC'[place]} learns {number}",
        )
    elif number > root.learned + 1:
        yield store, f"C5: {'ABC'[place]} learns {number} before {root.learned + 1}", f"{'ABC'[place]} learns {number}"
    else:
        after = synced.root(place, root._replace(learned=number, synced=number))
        yield after, None, f"{'ABC'[place]} learns {number}"


def landed(store: Store) -> Store:
    """A late put lands, if nothing was appended since."""
    old = store.deciding
    flying = old.flying
    after = store._replace(deciding=old._replace(flying=None))
    if flying is None or old.acceptors[flying.place].count + 1 != flying.acceptor.count:
        return after
    after = with_acceptor(after, flying.place, flying.acceptor)
    if flying.ballot != NO_BALLOT and flying.acceptor.value is not None:
        after = accepted(after, flying.place, flying.ballot, flying.acceptor.value)
    return after


def read_head(rules: Rules) -> Phase:
    """Ask two acceptors; what both show under one ballot is the head."""

    def begins(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        yield store, len(store.chain), f"asks; {len(store.chain) - 1} is decided"

    def first(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        for place in store.live:
            yield store, (place, store.deciding.acceptors[place][2:4]), f"reads {'ABC'[place]}"

    def second(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        for place in store.live:
            shown = store.deciding.acceptors[place][2:4]
            alike = shown == one[1] or (not rules.head_same_ballot and shown[1] == one[1][1])
            if place != one[0] and alike:
                head = shown[1] if shown[1] is not None else store.chain[:1]
                wrong = len(head) < least or head != store.chain[: len(head)]
                fault = f"C5: the head is read as {told(head)}; decided is {told(store.chain)}" if wrong else ""
                yield store, fault, f"reads {'ABC'[place]} too: the head is {len(head) - 1}"

    least = yield Step("reader", begins)
    one = yield Step("reader", first)
    fault = yield Step("reader", second)
    return Done(Fault(fault)) if fault else Done()


def breaks(bounds: Bounds) -> Phase:
    """An acceptor loses power, or is brought back from a copy."""

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        old = store.deciding
        for place in store.live:
            mine = old.acceptors[place]
            if mine.before is not None:
                yield with_acceptor(store, place, mine.before), None, f"{'ABC'[place]} loses power"
            if not bounds.copies:
                continue
            if old.copied == 0 and mine.count:
                taken = old._replace(copy=(place, mine), copied=1)
                yield store._replace(deciding=taken), None, f"a copy of {'ABC'[place]} is taken"
            elif old.copy is not None and old.copy[0] == place and old.copy[1] != mine:
                back = with_acceptor(store, place, old.copy[1])
                back = back._replace(deciding=back.deciding._replace(copy=None, copied=2), stale=1 << place)
                yield back, None, f"{'ABC'[place]} comes back as of the copy"

    yield Step("failure", ways)
    return Next(breaks, (bounds,))


# --- Operations that carry no data -------------------------------------------------------------------------------------


def operation(rules: Rules, batch: int) -> Build:
    """An operation that is done when an entry has its id."""

    def build(store: Store, world: World, base: Chain) -> Chain | None:
        if rules.id_judged and any(entry.batch == batch for entry in base):
            return None
        return new(base, "touch", batch=batch, on=0)

    return build


def begun(bounds: Bounds) -> Store:
    """Three acceptors that have decided nothing."""
    return Store(first_entry(7), (Root(),) * 3, (), held=0, deciding=Deciding())


NOTHING = World((), (), 0)
"""The bounds of data that there is none of."""
