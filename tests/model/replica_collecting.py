"""Three metadata roots collect what all replicas have; one that is new, or lags further, begins with what is left.

What is modelled
    One chain of decisions (`replica_deciding` shows that it is one), so an entry is its number. Each root has a set of
    entries, and the newest that it has accepted. An entry states what the replicas in sync had learned when it was
    decided (`hw`): more, where one that appends nothing raises it along with itself. What all have that learn, those
    that join too, is known of each entry, as whoever collects asks. A writer decides entries; several bring a root on;
    a collector deletes at all roots; roots come and go; a process that was stopped puts an old entry. Each may stop
    between any two steps. A look at one root's list is one step.

What is checked
    C8  Each entry that a replica lacks is held by two of three roots; no root lacks it that has learned what lies above.
        Once all answer, each root is brought on to what was decided, without a gap; while one is away, the other two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.model.exploration import Alone, Done, Next, Phase, Scenario, process
from tests.model.replica_model import Whole, Without
from tests.model.replica_steps import Step

NAMES = "mno"
ALL_ROOTS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Keeps:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    replicas_learned: bool = True
    """What goes all replicas have that learn."""
    insync_asked: bool = True
    """Replicas in sync are asked where `hw` went along unseen."""
    gap_stays: bool = True
    """Nothing goes at a root that has a gap."""
    not_above_hw: bool = True
    """A root does not begin above what its newest entry says that replicas in sync have."""
    linked: bool = True
    """It begins with an entry from which others lead to the decided one."""
    dropped: bool = True
    """What a root had goes once the new beginning is there."""
    from_below_gap: bool = True
    """A root with a gap goes on from what it has below."""


WHOLE_KEEPS = Keeps()


class Kept(NamedTuple):
    """What each root has, what it has accepted, what was decided, and what replicas have learned.

    `hws`: what the replicas in sync had when each entry was decided, by its number; `floors`: what all of them had.
    `away` is a root that does not answer. Budgets: `left`, how often one goes away; `late`, how many are put late.
    `lost`: roots that lost files.
    """

    journals: tuple[frozenset[int], ...]
    accepted: tuple[int, ...]
    decided: int
    hws: tuple[int, ...]
    floors: tuple[int, ...]
    insync: int
    joining: int
    away: int = -1
    left: int = 0
    late: int = 0
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Me:
    """A process that brings a root on, up to below a number; a writer has the roots left that it will ask."""

    rules: Keeps
    name: str
    root: int
    until: int
    writes: tuple[int, ...] | None = None


Ways = Iterator[tuple[Kept, Any, str]]


def begin(entries: frozenset[int]) -> int:
    """The first of the run that ends with the newest entry; 0 for none."""
    first = max(entries, default=0)
    while first - 1 in entries:
        first -= 1
    return first


def has_gap(entries: frozenset[int]) -> bool:
    """Whether a number is missing between entries."""
    return bool(entries) and min(entries) < begin(entries)


def end(entries: frozenset[int]) -> int:
    """The last of the run that begins with the oldest entry; 0 for none."""
    last = min(entries, default=0)
    while last + 1 in entries:
        last += 1
    return last


def holds(store: Kept, root: int, number: int) -> bool:
    """Whether a root has an entry, or has accepted it."""
    return number in store.journals[root] or store.accepted[root] == number


def changed(store: Kept, root: int, entries: frozenset[int]) -> Kept:
    """The store after a root's entries are others."""
    row = (*store.journals[:root], entries, *store.journals[root + 1 :])
    return store._replace(journals=row)


# --- One root is brought on ------------------------------------------------------------------------------------------


def looks(me: Me) -> Phase:
    """Look what the root has learned."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away == me.root:
            yield store, None, "it is away"
            return
        entries = store.journals[me.root]
        last = end(entries)
        if has_gap(entries) and not me.rules.from_below_gap:
            yield store, None, "it has a gap"
        else:
            yield store, last, f"it ends at {last}"

    last = yield Step(f"{me.name} looks at {NAMES[me.root]}", ways)
    if last is None:
        return gives_up(me)
    return reached(me) if last + 1 >= me.until else Next(follows, (me, last, ALL_ROOTS))


def others(me: Me) -> tuple[int, ...]:
    """The other two roots."""
    return tuple(root for root in ALL_ROOTS if root != me.root)


def gives_up(me: Me) -> Next | Done:
    """It raises: a writer goes on to another root."""
    return Next(chooses, (me,)) if me.writes is not None else Done()


def reached(me: Me) -> Next | Done:
    """The root has what was asked for: a writer has it accept the next entry."""
    return Next(accepts, (me,)) if me.writes is not None else Done()


def follows(me: Me, last: int, asked: tuple[int, ...]) -> Phase:
    """Ask one root after the other for the next entry; a register has the newest alone."""

    def ways(store: Kept, world: Any) -> Ways:
        root, number = asked[0], last + 1
        there = number in store.journals[root] or (number == me.until - 1 and store.accepted[root] == number)
        found = root != store.away and there
        yield store, found, f"{NAMES[root]} {'has' if found else 'has not'} {number}"

    if (yield Step(f"{me.name} asks for {last + 1}", ways)):
        return Next(puts, (me, last, last + 1))
    if asked[1:]:
        return Next(follows, (me, last, asked[1:]))
    return Next(copies, (me, last))


def copies(me: Me, last: int) -> Phase:
    """Get a copy of the decided entry, then look what the others have of those that lead to it."""

    def ways(store: Kept, world: Any) -> Ways:
        newest = me.until - 1
        yield store, any(root != store.away and holds(store, root, newest) for root in ALL_ROOTS), f"a copy of {newest}"

    if not (yield Step(me.name, ways)):
        return gives_up(me)
    return Next(oldest, (me, last, others(me), 0))


def oldest(me: Me, last: int, left: tuple[int, ...], found: int) -> Phase:
    """Look what the oldest entry is that another root has; the oldest of both is where this one begins."""
    rules, newest = me.rules, me.until - 1

    def ways(store: Kept, world: Any) -> Ways:
        root = left[0]
        entries = store.journals[root] if root != store.away else frozenset()
        run = entries & set(range(1, newest)) if newest - 1 in entries else frozenset()
        first, hw = begin(run) if rules.linked else min(run, default=0), store.hws[newest - 1]
        yield store, (first, hw), f"{NAMES[root]} begins with {first or 'nothing'}"

    first, hw = yield Step(me.name, ways)
    found = min(filter(None, (found, first)), default=0)
    if left[1:]:
        return Next(oldest, (me, last, left[1:], found))
    if not found or (found > hw and rules.not_above_hw) or (found <= last):
        return gives_up(me)
    return Next(puts, (me, last, found))


def puts(me: Me, last: int, number: int) -> Phase:
    """Put an entry, if absent, after what the root has."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away == me.root:
            yield store, False, "it is away"
        else:
            yield changed(store, me.root, store.journals[me.root] | {number}), True, f"{NAMES[me.root]} has {number}"

    if not (yield Step(me.name, ways)):
        return gives_up(me)
    if number > last + 1 and me.rules.dropped:
        return Next(lists, (me, number))
    return Next(reads, (me, number))


def lists(me: Me, number: int) -> Phase:
    """List what the root has below its new beginning."""

    def ways(store: Kept, world: Any) -> Ways:
        found = () if store.away == me.root else tuple(sorted(n for n in store.journals[me.root] if n < number))
        yield store, found, f"{NAMES[me.root]} has {found} below {number}"

    return Next(drops, (me, (yield Step(me.name, ways)), number))


def drops(me: Me, left: tuple[int, ...], number: int) -> Phase:
    """Delete them, ascending."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away == me.root:
            yield store, False, "it is away"
        else:
            yield (
                changed(store, me.root, store.journals[me.root] - {left[0]}),
                True,
                f"{NAMES[me.root]} drops {left[0]}",
            )

    if left and not (yield Step(me.name, ways)):
        return gives_up(me)
    if left[1:]:
        return Next(drops, (me, left[1:], number))
    return Next(reads, (me, number))


def reads(me: Me, number: int) -> Phase:
    """Read back what was put, and go on from there."""

    def ways(store: Kept, world: Any) -> Ways:
        there = store.away != me.root and number in store.journals[me.root]
        yield store, there, f"{number} is {'there' if there else 'gone'}"

    if not (yield Step(me.name, ways)):
        return gives_up(me)
    return reached(me) if number + 1 >= me.until else Next(follows, (me, number, ALL_ROOTS))


# --- A writer --------------------------------------------------------------------------------------------------------


def starts(me: Me) -> Phase:
    """Begin: a majority says what was decided. A writer has no root yet."""

    def ways(store: Kept, world: Any) -> Ways:
        yield store, store.decided, f"{store.decided} is decided"

    me = replace(me, until=1 + (yield Step(me.name, ways)))
    return Next(looks, (me,)) if me.writes is None else Next(chooses, (me,))


def chooses(me: Me) -> Phase:
    """Take one of the roots that were not asked yet."""
    roots = me.writes or ()

    def ways(store: Kept, world: Any) -> Ways:
        for root in roots:
            yield store, root, f"asks {NAMES[root]}"

    if not roots:
        return Done()
    root = yield Step(me.name, ways)
    return Next(looks, (replace(me, root=root, writes=tuple(each for each in roots if each != root)),))


def accepts(me: Me) -> Phase:
    """A root accepts the next entry; with a second one it is decided."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away == me.root or store.accepted[me.root] >= me.until:
            yield store, None, "refused"
            return
        row = (*store.accepted[: me.root], me.until, *store.accepted[me.root + 1 :])
        after = store._replace(accepted=row)
        if len(store.hws) < me.until:
            floors = (*store.floors, min(store.insync, store.joining))
            after = after._replace(hws=(*store.hws, store.insync), floors=floors)
        if row.count(me.until) > 1:
            after = after._replace(decided=max(me.until, store.decided))
        yield after, None, f"{NAMES[me.root]} accepts {me.until}"

    yield Step(me.name, ways)
    return Next(chooses, (me,))


# --- The collector ---------------------------------------------------------------------------------------------------


def collector(rules: Keeps, root: int = 0) -> Phase:
    """List what may go at one root: what all replicas have, as its newest entry says, but two."""

    def ways(store: Kept, world: Any) -> Ways:
        entries = store.journals[root] if store.away != root else frozenset()
        if has_gap(entries) and rules.gap_stays:
            entries = frozenset()
        floor = store.floors[max(entries) - 1] if entries and rules.replicas_learned else 99
        if entries and not rules.insync_asked:
            floor = min(store.hws[max(entries) - 1], store.joining)
        gone = tuple(number for number in sorted(entries)[:-2] if number < floor)
        yield store, gone, f"lists {gone} of {NAMES[root]}"

    return Next(deletes, (rules, root, (yield Step("collector", ways))))


def deletes(rules: Keeps, root: int, left: tuple[int, ...]) -> Phase:
    """Delete them, ascending, then go on to the next root."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away == root:
            yield store, False, "it is away"
        else:
            yield changed(store, root, store.journals[root] - {left[0]}), True, f"deletes {left[0]} at {NAMES[root]}"

    if left and not (yield Step("collector", ways)):
        left = ()
    if left[1:]:
        return Next(deletes, (rules, root, left[1:]))
    return Next(collector, (rules, root + 1)) if root < 2 else Done()


# --- Around them -----------------------------------------------------------------------------------------------------


def replicas() -> Phase:
    """The replicas in sync learn what was decided."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.insync < store.decided:
            after = store._replace(insync=store.insync + 1)
            yield (
                after._replace(joining=max(store.joining, store.insync + 1) if world else store.joining),
                None,
                "learn",
            )

    yield Step("replicas", ways)
    return Next(replicas, ())


def comes_and_goes() -> Phase:
    """One root at a time does not answer."""

    def ways(store: Kept, world: Any) -> Ways:
        if store.away >= 0:
            yield store._replace(away=-1), None, f"{NAMES[store.away]} is back"
        elif store.left:
            for root in ALL_ROOTS:
                yield store._replace(away=root, left=store.left - 1), None, f"{NAMES[root]} is away"

    yield Step("network", ways)
    return Next(comes_and_goes, ())


def puts_late() -> Phase:
    """A process that was stopped puts an entry at a root that has collected it."""

    def ways(store: Kept, world: Any) -> Ways:
        for root in ALL_ROOTS if store.late else ():
            for number in range(1, begin(store.journals[root])):
                if number not in store.journals[root] and store.away != root:
                    after = changed(store, root, store.journals[root] | {number})
                    yield after._replace(late=store.late - 1), None, f"{number} lands at {NAMES[root]}"

    yield Step("late", ways)
    return Next(puts_late, ())


def away(root: int) -> Phase:
    """For what is asked of every state: this root alone is away; -1: none is."""

    def ways(store: Kept, world: Any) -> Ways:
        yield store._replace(away=root), None, "all others answer"

    yield Step("all", ways)
    return Done()


def judged(before: Kept, after: Kept, claims: tuple[Any, ...]) -> tuple[Kept, str | None]:
    """C8: what is held."""
    for number in range(1 + min(after.insync, after.joining), after.decided + 1):
        holding = sum(holds(after, root, number) for root in ALL_ROOTS)
        if holding < 2 - len(after.lost):
            return after, f"C8: entry {number}, which a replica lacks, is held by {holding} of three roots"
    for root, entries in enumerate(after.journals):
        if root not in after.lost and not has_gap(entries) and begin(entries) > after.insync + 1:
            return after, f"C8: {NAMES[root]} begins with {begin(entries)}, replicas in sync end at {after.insync}"
    return after, None


def not_brought_on(root: int) -> Any:
    """C8: what is wrong where all roots but one were brought on."""

    def fault(store: Kept) -> str | None:
        for place, entries in enumerate(store.journals):
            if place != root and (has_gap(entries) or max(entries, default=0) < store.decided):
                return f"C8: {NAMES[place]} ends with {sorted(entries)}, decided is {store.decided}"
        return None

    return fault


def scene(name: str, rules: Keeps, store: Kept, bring: str, *more: str) -> Scenario:
    """Roots that are brought on, beside a collector, and what else there is."""
    made = {
        "collector": lambda: process("collector", collector, rules),
        "writer": lambda: process("writer", starts, Me(rules, "writer", -1, 0, ALL_ROOTS)),
        "replicas": lambda: process("replicas", replicas),
        "network": lambda: process("network", comes_and_goes),
        "late": lambda: process("late", puts_late),
    }
    on = [process(f"brings {root} on", starts, Me(rules, "bringer", NAMES.index(root), 0)) for root in bring]
    alone = []
    for gone in (-1, *(() if store.lost else ALL_ROOTS)):
        asked = [process("back", away, gone)]
        asked += 2 * [process(NAMES[r], starts, Me(rules, "bringer", r, 0)) for r in ALL_ROOTS if r != gone]
        alone.append(Alone(tuple(asked), not_brought_on(gone)))
    processes = (*on, *(made[each]() for each in more))
    return Scenario(name, store, processes, "replicas" in more, judged, tuple(alone), symmetric=True)


def some(*numbers: int) -> frozenset[int]:
    """Entries."""
    return frozenset(numbers)


THREE_LEFT = Kept((some(3, 4, 5), some(3, 4, 5), some()), (5, 5, 0), 5, (0, 0, 1, 3, 4), (0, 0, 1, 3, 4), 4, 4)
"""Five entries are decided, two are collected; o is new."""

ALL_LEFT = THREE_LEFT._replace(journals=(some(1, 2, 3, 4, 5), some(1, 2, 3, 4, 5), some()))
"""None is collected yet."""


def begins(keeps: Keeps) -> Scenario:
    """Two bring a new root on, while others collect, and an old entry is put late."""
    return scene("begins", keeps, THREE_LEFT._replace(late=1), "oo", "collector", "late")


def overtaken(keeps: Keeps) -> Scenario:
    """Two bring a new root on; what they would put next is collected."""
    return scene("overtaken", keeps, ALL_LEFT, "oo", "collector")


def alone_left(keeps: Keeps) -> Scenario:
    """A root is away, while a new one is brought on, others collect, an old entry is put late."""
    return scene("alone_left", keeps, THREE_LEFT._replace(left=1, late=1), "o", "network", "late", "collector")


def goes_on(keeps: Keeps) -> Scenario:
    """A root is away, while others decide one more entry; replicas lack two."""
    store = THREE_LEFT._replace(hws=(0, 0, 1, 2, 3), floors=(0, 0, 1, 2, 3), insync=3, joining=3, left=1)
    return scene("goes_on", keeps, store, "o", "network", "writer")


def joins(keeps: Keeps) -> Scenario:
    """A replica that joins has learned nothing yet."""
    store = ALL_LEFT._replace(joining=0, floors=(0,) * 5, left=1)
    return scene("joins", keeps, store, "o", "network", "collector", "writer")


def holed(keeps: Keeps) -> Scenario:
    """A root has lost entries that replicas lack, and has older ones, and newer ones."""
    journals = (some(1, 2, 3, 4, 5, 6), some(1, 2, 3, 4, 5, 6), some(1, 2, 5, 6))
    return scene(
        "holed", keeps, Kept(journals, (6, 6, 6), 6, (0, 0, 1, 2, 3, 3), (0, 0, 1, 2, 3, 3), 3, 3), "o", "collector"
    )


def shortened(keeps: Keeps) -> Scenario:
    """A root has lost its oldest entries, which replicas lack; the one that has them is away."""
    journals = (some(4, 5), some(2, 3, 4, 5), some())
    store = THREE_LEFT._replace(journals=journals, hws=(0, 0, 1, 2, 2), floors=(0, 0, 1, 2, 2), insync=2, joining=2)
    return scene("shortened", keeps, store._replace(lost=(0,), left=1), "o", "network")


def lags(keeps: Keeps) -> Scenario:
    """A root lags further than what is left; one is away, others collect and decide."""
    store = THREE_LEFT._replace(journals=(*THREE_LEFT.journals[:2], some(1)), left=1)
    return scene("lags", keeps, store, "o", "network", "collector", "writer")


def alters(keeps: Keeps) -> Scenario:
    """The last entries append nothing: the high watermark went along with them, unseen."""
    store = ALL_LEFT._replace(hws=(1, 2, 3, 4, 5), floors=(1, 1, 2, 2, 2), insync=2, left=1)
    return scene("alters", keeps, store, "o", "network", "collector", "replicas")


def moves_on(keeps: Keeps) -> Scenario:
    """Replicas learn, others decide and collect, while a new root is brought on."""
    return scene("moves_on", keeps, ALL_LEFT, "o", "collector", "writer", "replicas")


# --- What is explored, and what is taken out -------------------------------------------------------------------------


class WholeKeeps(Whole):
    """A scene of collecting that must break nothing."""

    rules = WHOLE_KEEPS


class Lost(Without):
    """A rule of collecting that is taken out."""

    rules = WHOLE_KEEPS


COLLECTING = [
    WholeKeeps(begins, 33_000),
    WholeKeeps(overtaken, 10_000),
    WholeKeeps(alone_left, 13_000),
    WholeKeeps(goes_on, 18_000),
    WholeKeeps(holed, 140),
    WholeKeeps(shortened, 130),
    WholeKeeps(alters, 5_000),
]

LARGE_COLLECTING = [WholeKeeps(joins, 80_000), WholeKeeps(lags, 290_000), WholeKeeps(moves_on, 500_000)]

WITHOUT_KEEPS = [
    Lost("7", "replicas_learned", joins, "C8"),
    Lost("7", "insync_asked", alters, "C8"),
    Lost("7", "gap_stays", holed, "C8"),
    Lost("7", "not_above_hw", shortened, "C8"),
    Lost("7", "linked", begins, "C8"),
    Lost("7", "dropped", overtaken, "C8"),
    Lost("7", "from_below_gap", overtaken, "C8"),
]
