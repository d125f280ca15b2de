"""A metadata root is replaced: the set m, n, o of a unit is followed by m, n, p, each with registers of its own.

What is modelled
    One unit, by a register at each root and set. A value is the history up to an entry; `ended` says that nothing follows
    it in its set. Writers make the first entry, or append; they go by the old set, by the next one while units may be
    left at the old one (`pending`), or by the next one alone, and may wake late. o answers all the while: who goes by the
    old set has its vote. Which set follows is decided by one register (`replica_deciding` shows that it is one).

What is checked
    C5  What is counted (learned, acknowledged, shown) is one history; a head, or that there is none, is not older than
        what was counted before it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from tests.model.exploration import Done, Next, Phase, Scenario, process
from tests.model.replica_model import Whole, Without
from tests.model.replica_steps import Step

History = tuple[str, ...]
Ballot = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Follows:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    nothing_after_end: bool = True
    """Nothing is built on what has ended a set."""
    ended_first: bool = True
    """What the next set begins with has ended the one before: a majority has accepted that."""
    former_asked: bool = True
    """While units may be left at the old set, the next one makes nothing that it has not looked for there."""
    by_former_majority: bool = True
    """The old set is asked by a majority of its own."""
    adopts_here: bool = True
    """The next set goes on with what one of it has accepted, else with the last of the set before."""
    first_while_last: bool = True
    """A first entry counts where no set follows, looked at after a majority has accepted it."""
    none_while_last: bool = True
    """That there is nothing counts where no set follows, looked at after a majority has shown it."""
    named_after_decided: bool = True
    """Which units there are is looked at after the next set was decided."""
    moved_before_finished: bool = True
    """The old set is asked until all that is named there has moved."""


WHOLE_FOLLOWS = Follows()


class Register(NamedTuple):
    """What a root has promised and accepted of a unit, in one set."""

    promised: Ballot = (0, "")
    ballot: Ballot = (0, "")
    value: History = ()
    ended: bool = False


class Sets(NamedTuple):
    """The registers of both sets, whether the second was decided and all is moved to it, and what was counted."""

    sets: tuple[tuple[Register, ...], ...] = ((Register(),) * 3, (Register(),) * 3)
    decided: bool = False
    finished: bool = False
    counted: History = ()
    fault: str = ""


@dataclass(frozen=True)
class Client:
    """A process: the rules, the entry that it makes (none: it reads), and how high its ballots go.

    `reaches` are the places of the old set that it reaches when it goes by the next list: all, or all but o.
    """

    rules: Follows
    name: str
    writes: bool
    rounds: int
    reaches: tuple[int, ...] = (0, 1, 2)


Ways = Iterator[tuple[Sets, Any, str]]
Got = tuple[tuple[int, Register], ...]
NAMES = ("mno", "mnp")


class Goal(NamedTuple):
    """What a round is for: an entry of its own, to end the old set, or to begin the next one with `last`.

    `knows`: old, pending or new. `least` is what was counted when a reader asked. `empty`: the old set has nothing.
    """

    knows: str
    what: str = "own"
    last: History = ()
    least: int = 0
    empty: bool = False

    @property
    def at(self) -> int:
        """Which set is asked."""
        return 0 if self.knows == "old" or self.what == "end" else 1


def with_register(store: Sets, at: int, place: int, register: Register) -> Sets:
    """The store with one register changed."""
    row = store.sets[at]
    rows = list(store.sets)
    rows[at] = (*row[:place], register, *row[place + 1 :])
    return store._replace(sets=tuple(rows))


def counts(store: Sets, history: History, least: int = 0) -> Sets:
    """The store after a history was counted."""
    short, long = sorted((store.counted, history), key=len)
    if long[: len(short)] != short:
        return store._replace(fault=f"C5: {' '.join(store.counted)} is counted, and {' '.join(history)}")
    if len(history) < least:
        return store._replace(fault=f"C5: {' '.join(store.counted)} was counted, {' '.join(history) or 'nothing'} read")
    return store._replace(counted=long)


def learns(me: Client, goal: Goal) -> Phase:
    """Hear which set decides: a list may be old."""

    def ways(store: Sets, world: Any) -> Ways:
        if store.decided:
            yield store, "pending", "hears of the next set"
        if store.finished:
            yield store, "new", "hears that all has moved"

    knows = yield Step(me.name, ways)
    return Next(begins, (me, Goal(knows, least=goal.least)))


def begins(me: Client, goal: Goal, number: int = 0) -> Phase:
    """Take a ballot above all that was promised."""

    def ways(store: Sets, world: Any) -> Ways:
        high = 1 + max(register.promised[0] for register in store.sets[goal.at])
        if number < high <= me.rounds:
            yield store, (high, len(store.counted)), f"ballot {high} of {NAMES[goal.at]}"

    high, counted = yield Step(me.name, ways)
    fresh = goal if number or goal.least else goal._replace(least=0 if me.writes else counted)
    return Next(promises, (me, fresh, high, ()))


def asked(me: Client, goal: Goal) -> tuple[tuple[int, ...], int]:
    """The places that are asked, and how many have to answer."""
    ending = goal.at == 0 and goal.knows != "old"
    enough = 1 if ending and not me.rules.by_former_majority else 2
    return me.reaches if ending else (0, 1, 2), enough


def beaten(me: Client, goal: Goal, store: Sets, number: int) -> Ways:
    """Another ballot is higher: it may begin again."""
    if max(register.promised for register in store.sets[goal.at]) > (number, me.name):
        yield store, "again", "begins again"


def promises(me: Client, goal: Goal, number: int, got: Got) -> Phase:
    """Ask for promises, one root after the other, in any order; with a majority, choose."""
    places, enough = asked(me, goal)

    def ways(store: Sets, world: Any) -> Ways:
        yield from beaten(me, goal, store, number)
        for place in places:
            old = store.sets[goal.at][place]
            if place not in [each[0] for each in got] and (number, me.name) > old.promised:
                after = with_register(store, goal.at, place, old._replace(promised=(number, me.name)))
                yield after, (place, old), f"promised by {NAMES[goal.at][place]}"

    reply = yield Step(f"{number}.{me.name}", ways)
    if reply == "again":
        return Next(begins, (me, goal, number))
    got = tuple(sorted((*got, reply)))
    return chosen(me, goal, number, got) if len(got) >= enough else Next(promises, (me, goal, number, got))


def chosen(me: Client, goal: Goal, number: int, got: Got) -> Next | Done:
    """What a round goes on with that a majority has promised."""
    rules, top = me.rules, max((each[1] for each in got), key=lambda register: register.ballot)
    value, ended = top.value, top.ended
    if goal.what == "end":
        if not value:
            return Next(begins, (me, goal._replace(what="own", empty=True)))
        if not rules.ended_first:
            return Next(begins, (me, goal._replace(what="first", last=value)))
        return Next(accepts, (me, goal, number, value, True, ()))
    if goal.what == "first":
        first = value if value and rules.adopts_here else goal.last
        return Next(accepts, (me, goal, number, first, False, ()))
    if ended and rules.nothing_after_end:
        return Next(learns, (me, goal))
    if not value and goal.knows == "pending" and not goal.empty and rules.former_asked:
        return Next(begins, (me, goal._replace(what="end")))
    longer = (*value, me.name) if me.writes and me.name not in value else value
    if not longer:
        return Next(looks, (me, goal, ()))
    return Next(accepts, (me, goal, number, longer, False, ()))


def accepts(me: Client, goal: Goal, number: int, value: History, ended: bool, oks: tuple[int, ...]) -> Phase:
    """Ask those of a set to accept; what a majority has accepted is decided there."""
    places, enough = asked(me, goal)

    def ways(store: Sets, world: Any) -> Ways:
        yield from beaten(me, goal, store, number)
        for place in places:
            if place not in oks and (number, me.name) >= store.sets[goal.at][place].promised:
                register = Register((number, me.name), (number, me.name), value, ended)
                said = f"{' '.join(value)}{', the last,' if ended else ''} accepted by {NAMES[goal.at][place]}"
                yield with_register(store, goal.at, place, register), place, said

    reply = yield Step(f"{number}.{me.name}", ways)
    if reply == "again":
        return Next(begins, (me, goal, number))
    oks = tuple(sorted((*oks, reply)))
    if len(oks) < enough:
        return Next(accepts, (me, goal, number, value, ended, oks))
    if goal.what == "end":
        return Next(begins, (me, goal._replace(what="first", last=value)))
    if goal.what == "first":
        return Next(begins, (me, goal._replace(what="own")))
    return Next(looks, (me, goal, value))


def looks(me: Client, goal: Goal, value: History) -> Phase:
    """Look whether another set follows, where nothing before says who decides: a first entry, or none."""
    rule = me.rules.first_while_last if value else me.rules.none_while_last

    def ways(store: Sets, world: Any) -> Ways:
        first = value[:1] != store.counted[:1] or not value
        if rule and first and goal.at == 0 and store.decided:
            yield store, False, "another set follows"
        else:
            yield store, True, f"counts {' '.join(value) or 'nothing'}"

    if not (yield Step(me.name, ways)):
        return Next(learns, (me, goal))
    return Next(counted, (me, goal, value))


def counted(me: Client, goal: Goal, value: History) -> Phase:
    """Learn, acknowledge, show it."""

    def ways(store: Sets, world: Any) -> Ways:
        yield counts(store, value, goal.least), None, f"has counted {' '.join(value) or 'nothing'}"

    yield Step(me.name, ways)
    return Done()


# --- The replacement -------------------------------------------------------------------------------------------------


def replaces(me: Client, named: bool | None = None) -> Phase:
    """Decide the next set, look what is named at a majority of the old one, move that, and finish."""

    def names(store: Sets, world: Any) -> Ways:
        for two in combinations(me.reaches, 2):
            found = any(store.sets[0][place].promised > (0, "") for place in two)
            yield store, found, f"finds the unit {'named' if found else 'nowhere'}"

    def decides(store: Sets, world: Any) -> Ways:
        yield store._replace(decided=True), None, "the next set is decided"

    if not me.rules.named_after_decided:
        named = yield Step(me.name, names)
    yield Step(me.name, decides)
    if named is None:
        named = yield Step(me.name, names)
    if named and me.rules.moved_before_finished:
        return Next(moves, (me, Goal("pending")))
    return Next(finishes, (me,))


def moves(me: Client, goal: Goal) -> Phase:
    """Wait for the unit to be in the next set, or nowhere: whoever asks there moves it, as a reader does."""

    def ways(store: Sets, world: Any) -> Ways:
        values = [register.value for register in store.sets[1]]
        if (
            sum(bool(value) for value in values) >= 2
            or sum(not store.sets[0][place].value for place in me.reaches) >= 2
        ):
            yield store, None, "the unit has moved, or there is none"

    yield Step(me.name, ways)
    return Next(finishes, (me,))


def finishes(me: Client) -> Phase:
    """The old set is asked no more."""

    def ways(store: Sets, world: Any) -> Ways:
        yield store._replace(finished=True), None, "all has moved"

    yield Step(me.name, ways)
    return Done()


def judged(before: Any, after: Any, claims: tuple[Any, ...]) -> tuple[Any, str | None]:
    """What is wrong stands in the store."""
    return after, after.fault or None


def scene(
    rules: Follows, store: Sets, rounds: int, *clients: tuple[str, str, bool], reaches: tuple[int, ...] = (0, 1, 2)
) -> Scenario:
    """Clients, by what they know and whether they write, beside a replacement, where it was not decided before."""
    processes = [] if store.decided else [process("replacing", replaces, Client(rules, "R", False, rounds, reaches))]
    for name, knows, writes in clients:
        me = Client(rules, name, writes, rounds, reaches)
        phase, goal = (begins, Goal("old")) if knows == "old" else (learns, Goal("pending"))
        processes.append(process(f"{knows} {name}", phase, me, goal))
    return Scenario("replacing", store, tuple(processes), None, judged)


THERE = Sets(((Register((1, "a"), (1, "a"), ("a",)),) * 3, (Register(),) * 3), counted=("a",))
"""A unit with one entry, decided by the old set."""


def appended(rules: Follows, rounds: int = 2) -> Scenario:
    """One appends by the old set, another by the next one."""
    return scene(rules, THERE, rounds, ("x", "old", True), ("y", "new", True))


def made(rules: Follows, rounds: int = 2) -> Scenario:
    """One makes a unit by the old set, which alone has the vote of o; another the same by the next one."""
    return scene(rules, Sets(), rounds, ("x", "old", True), ("y", "new", True), reaches=(0, 1))


def read(rules: Follows, rounds: int = 2) -> Scenario:
    """One makes a unit by the next set, another reads by the old one, which alone reaches o."""
    return scene(rules, Sets(), rounds, ("r", "old", False), ("y", "new", True), reaches=(0, 1))


def met(rules: Follows, rounds: int = 2) -> Scenario:
    """Two go by the next set, and meet a unit that has not moved."""
    return scene(rules, THERE, rounds, ("y", "new", True), ("z", "new", True))


def ended(rules: Follows, rounds: int = 3) -> Scenario:
    """The next set was decided, and who did that is gone: one goes by it, another by the old one."""
    return scene(rules, THERE._replace(decided=True), rounds, ("x", "old", True), ("y", "new", True))


def begun(rules: Follows, rounds: int = 3) -> Scenario:
    """The old set has ended: two begin the next one."""
    last = Register((2, "y"), (2, "y"), ("a",), ended=True)
    store = THERE._replace(decided=True, sets=((last, last, THERE.sets[0][2]), THERE.sets[1]))
    goal = Goal("pending", "first", ("a",))
    processes = (process(name, begins, Client(rules, name, True, rounds), goal) for name in "yz")
    return Scenario("replacing", store, tuple(processes), None, judged)


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


class WholeFollows(Whole):
    """A scene of sets that must break nothing."""

    rules = WHOLE_FOLLOWS


class Followed(Without):
    """A rule of sets that is taken out."""

    rules = WHOLE_FOLLOWS


FOLLOWING = [WholeFollows(appended, 18_000)]

LARGE_FOLLOWING = [
    WholeFollows(met, 120_000),
    WholeFollows(made, 320_000),
    WholeFollows(read, 100_000),
    WholeFollows(ended, 390_000),
    WholeFollows(begun, 110_000),
]

WITHOUT_FOLLOWS = [
    Followed("10", "former_asked", appended, "C5"),
    Followed("10", "moved_before_finished", appended, "C5"),
    Followed("10", "none_while_last", read, "C5"),
    Followed("10", "first_while_last", made, "C5"),
    Followed("10", "named_after_decided", made, "C5"),
    Followed("10", "nothing_after_end", ended, "C5", long=True),
    Followed("10", "ended_first", ended, "C5", long=True),
    Followed("10", "adopts_here", begun, "C5", long=True),
    Followed("10", "by_former_majority", made, "C5", long=True),
]
