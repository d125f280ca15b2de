"""Metadata that moves: from one root to a set of acceptors and back; `recover`; a root that learns from another's journal.

What is modelled
    A history is the tuple of its operations. `journal/` of A decides first; `moved1` names a set of acceptors (one register
    here: `replica_deciding` shows that it is one), `moved2` A alone again. Of a `journal/` the newest two entries are
    kept, so that a put below lands as a ghost. Writers remember an old base and wake late.

What is checked
    C5, as in `replica_deciding`; and that `recover` leaves a root that can go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.exploration import Done, Next, Phase, Scenario, process
from tests.model.replica_model import Whole, Without
from tests.model.replica_steps import Step

History = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moves:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    by_base: bool = True
    """The state of the base alone says how the next entry is decided."""
    anchored: bool = True
    """A put at a number that was collected does not count, nor does a first record that a ghost would start."""
    learned_first: bool = True
    """The one root that `moved` names puts nothing before it has learned `moved`."""
    moved_last: bool = True
    """Nothing is built on `moved` in the set that it ends."""
    newest_stays: bool = True
    """The newest records of an acceptor are never removed."""
    recover_is_entry: bool = True
    """`recover` is put as an entry of the longest journal, if absent."""
    other_entry_out: bool = True
    """A root that holds another entry at a number learns no more."""
    linked: bool = True
    """Only what `prev` links from the newest entry down is learned from a journal."""


WHOLE_MOVES = Moves()


class Place(NamedTuple):
    """`journal/` of A, the register of the set (None: not begun), what is decided, and what is wrong."""

    journal: History = ("create",)
    register: History | None = None
    removed: bool = False
    decided: History = ("create",)
    fault: str = ""


def generation(history: History) -> int:
    """Who decides what follows on this history: 0 and 2 are A alone, 1 is the set."""
    return sum(each.startswith("moved") for each in history)


def decide(place: Place, history: History) -> Place:
    """The place after a history is decided."""
    short, long = sorted((place.decided, history), key=len)
    if long[: len(short)] != short:
        return place._replace(fault=f"C5: two histories are decided, {' '.join(place.decided)} and {' '.join(history)}")
    return place._replace(decided=long)


def on_a(place: Place, history: History) -> Place:
    """The place after an entry is put into `journal/` of A."""
    return decide(place._replace(journal=history), history)


def in_set(place: Place, history: History) -> Place:
    """The place after an entry is decided by the set."""
    return decide(place._replace(register=history), history)


Ways = Iterator[tuple[Place, Any, str]]


def writer(rules: Moves, operation: str, base: History = ()) -> Phase:
    """Read a head, perhaps long before it is used; then decide on it, as its state says."""

    def ways(place: Place, world: Any) -> Ways:
        for head in (place.journal, place.register or ()):
            late = operation == "moved2" and generation(head) == 0
            if len(head) > len(base) and operation not in head and not late:
                yield place, head, f"reads {' '.join(head)}"
        if base:
            yield from decides(rules, place, base, operation)

    reply = yield Step(operation, ways)
    if reply == "done":
        return Done()
    return Next(writer, (rules, operation, reply))


def decides(rules: Moves, place: Place, base: History, operation: str) -> Ways:
    """Decide an operation on a base that may be old."""
    history = (*base, operation)
    direct = generation(base) != 1 or (not rules.by_base and operation == "append")
    if direct and place.journal == base:
        yield on_a(place, history), "done", f"puts {len(base)} on A"
    elif direct and len(place.journal) >= len(base) + 3 and not rules.anchored:
        fault = f"C5: {operation} is reported as decided, decided is {' '.join(place.decided)}"
        yield place._replace(fault=fault), "done", f"puts {len(base)} on A (a ghost)"
    elif direct and generation(base) == 2 and len(place.journal) < len(base) and not rules.learned_first:
        skipped = decide(place._replace(journal=(*place.journal, operation)), history)
        yield skipped, "done", f"puts {len(base)} on A before {base[-1]} is there"
    elif not direct and place.register == base:
        yield in_set(place, history), "done", f"decides {operation} in the set"
    elif not rules.moved_last and place.register and generation(place.register) == 2 and operation == "append":
        yield in_set(place, (*place.register, operation)), "done", "builds on moved2 in the set"


def others(rules: Moves) -> Phase:
    """Start the set, learn, append, remove what was."""

    def ways(place: Place, world: Any) -> Ways:
        journal, register = place.journal, place.register
        begun = next((place.decided[: n + 1] for n, each in enumerate(place.decided) if each == "moved1"), None)
        if register is None and begun and (not place.removed or not rules.newest_stays):
            yield place._replace(register=begun), None, "the set begins with moved1"
        if register and len(register) > len(journal) and register[: len(journal)] == journal:
            yield place._replace(journal=register[: len(journal) + 1]), None, "A learns the next entry"
        if register and generation(register) == 2 and generation(journal) == 2 and not rules.newest_stays:
            yield place._replace(register=None, removed=True), None, "the acceptors of the set are removed"
        if len(journal) < 7 and generation(journal) != 1 and journal == place.decided:
            yield on_a(place, (*journal, "x")), None, "somebody appends on A"
        if register and len(register) < 7 and generation(register) == 1:
            yield in_set(place, (*register, "y")), None, "somebody appends in the set"
        if journal != place.decided[: len(journal)]:
            yield place._replace(fault=f"C5: {' '.join(journal)} is in a journal and not decided"), None, "looks"

    yield Step("others", ways)
    return Next(others, (rules,))


def judged(before: Any, after: Any, claims: tuple[Any, ...]) -> tuple[Any, str | None]:
    """What is wrong stands in the place."""
    return after, after.fault or None


def moving(rules: Moves) -> Scenario:
    """One root, a set, one root: a writer and two movers that wake late, beside all others."""
    names = ("moved1", "append", "moved2")
    processes = (*(process(each, writer, rules, each) for each in names), process("others", others, rules))
    return Scenario("moving", Place(), processes, None, judged)


# --- recover ---------------------------------------------------------------------------------------------------------


class Left(NamedTuple):
    """The journals of two roots that are left, what `recover` chose (root, its journal), the roots that are out."""

    journals: tuple[History, History] = (("1", "2"), ("1",))
    plan: tuple[int, History] | None = None
    done: bool = False
    out: frozenset[int] = frozenset()
    fault: str = ""


OLD = ("1", "2", "3", "4")


def recovers(rules: Moves) -> Phase:
    """`recover`, step by step, beside old learners that put what the lost majority had decided."""

    def ways(left: Left, world: Any) -> Iterator[tuple[Left, Any, str]]:
        for place in {0, 1} - left.out:
            yield from old_learner(left, place)
            yield from new_learner(rules, left, place)
        if left.plan is None:
            longest = max(enumerate(left.journals), key=lambda each: len(each[1]))
            yield left._replace(plan=longest), None, "recover reads both"
        elif not left.done:
            root, base = left.plan
            entered = (*base, "recover")
            if not rules.recover_is_entry:
                yield left._replace(plan=(root, entered), done=True), None, "recover writes beside the journals"
            elif left.journals[root] == base:
                put = with_journal(left, root, entered)
                yield put._replace(plan=(root, entered), done=True), None, f"recover puts its entry on {'AD'[root]}"
            else:
                yield left._replace(plan=None), None, "recover lost its number"
        if len(left.out) == 2:
            yield left._replace(fault="C8: every root that was left is out"), None, "looks"

    yield Step("anybody", ways)
    return Next(recovers, (rules,))


def with_journal(left: Left, place: int, journal: History) -> Left:
    """One of the two journals changed."""
    first, second = left.journals
    return left._replace(journals=(journal, second) if place == 0 else (first, journal))


def old_learner(left: Left, place: int) -> Iterator[tuple[Left, Any, str]]:
    """Somebody who has read the old majority puts its next entry."""
    journal = left.journals[place]
    if len(journal) < 4 and OLD[: len(journal)] == journal:
        after = with_journal(left, place, OLD[: len(journal) + 1])
        yield after, None, f"an old learner puts {OLD[len(journal)]} on {'AD'[place]}"


def new_learner(rules: Moves, left: Left, place: int) -> Iterator[tuple[Left, Any, str]]:
    """Once the new generation has begun, its entries are learned."""
    if not left.done or left.plan is None:
        return
    new, journal = (*left.plan[1], "n"), left.journals[place]
    same = new[: len(journal)] == journal
    if len(journal) < len(new) and (same or not rules.other_entry_out):
        longer = (*journal, new[len(journal)])
        after = with_journal(left, place, longer)
        mixed = "n" in longer and longer != new
        fault = f"C5: two histories are mixed in {' '.join(longer)}" if mixed else ""
        yield after._replace(fault=fault), None, f"{'AD'[place]} learns {longer[-1]}"
    elif not same and rules.other_entry_out:
        yield left._replace(out=left.out | {place}), None, f"{'AD'[place]} holds another entry: it is out"


def recovering(rules: Moves) -> Scenario:
    """`recover` against old learners."""
    return Scenario("recovering", Left(), (process("anybody", recovers, rules),), None, judged)


# --- Learning from a journal -----------------------------------------------------------------------------------------


class Copied(NamedTuple):
    """The newest entry of A (it keeps two), a ghost among the collected numbers, a zombie's base, what B has learned."""

    newest: int = 1
    ghost: int = 0
    zombie: int = 0
    learned: int = 0
    fault: str = ""


def copies(rules: Moves) -> Phase:
    """A root that lags learns from a journal in which a zombie's put has landed at a collected number."""

    def ways(at: Copied, world: Any) -> Iterator[tuple[Copied, Any, str]]:
        if at.newest < 6:
            yield at._replace(newest=at.newest + 1), None, "somebody appends on A"
        if not at.zombie:
            yield at._replace(zombie=at.newest), None, f"a zombie reads {at.newest}"
        elif at.zombie + 1 < at.newest - 1 and not at.ghost:
            yield at._replace(ghost=at.zombie + 1), None, f"its {at.zombie + 1} lands (a ghost)"
        following = at.learned + 1
        if at.newest - 1 <= following <= at.newest:
            yield at._replace(learned=following), None, f"B learns {following}"
        elif at.ghost == following and not rules.linked:
            yield at._replace(fault="C5: an entry that was never decided is learned"), None, f"B learns {following}"

    yield Step("anybody", ways)
    return Next(copies, (rules,))


def copying(rules: Moves) -> Scenario:
    """Learning from a journal with a ghost in it."""
    return Scenario("copying", Copied(), (process("anybody", copies, rules),), None, judged)


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


class WholeMoves(Whole):
    """A scene of moves that must break nothing."""

    rules = WHOLE_MOVES


class Moved(Without):
    """A rule of moves that is taken out."""

    rules = WHOLE_MOVES


MOVING = [WholeMoves(moving, 4_600), WholeMoves(recovering, 100), WholeMoves(copying, 170)]

WITHOUT_MOVES = [
    Moved("10", "by_base", moving, "C5"),
    Moved("10", "anchored", moving, "C5"),
    Moved("10", "learned_first", moving, "C5"),
    Moved("10", "moved_last", moving, "C5"),
    Moved("10", "newest_stays", moving, "C5"),
    Moved("10", "recover_is_entry", recovering, "C8"),
    Moved("10", "other_entry_out", recovering, "C5"),
    Moved("10", "linked", copying, "C5"),
]
