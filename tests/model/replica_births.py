"""A metadata root is restored from a copy of before a unit was there: what it shows of that unit is no answer.

What is modelled
    One unit, by its register at m, n, o; m is copied at some time, and comes back as that copy: with files of its own, or in
    place, where the files that were there before stay. Two proposers decide the first entry, a reader asks whether there
    is one. What comes back in place was copied before the unit's birth at m. Each root has births, a journal of which the newest two records are kept: a file is known by its number and
    life, and each record names the file of the one before it, in births and registers alike.

What is checked
    C5  One entry is decided; that there is none is not said once one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.exploration import Done, Next, Phase, Scenario, process
from tests.model.replica_model import Whole, Without
from tests.model.replica_steps import Step

Ballot = tuple[int, str]
NO_BALLOT: Ballot = (0, "")
NAMES = "mno"


@dataclass(frozen=True, slots=True)
class Births:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    births_asked: bool = True
    """A register that is empty, or whose record names none before it, counts only if births show no copy."""
    begins_with_two: bool = True
    """A root is made with two births: the second one names the first."""
    witnessed: bool = True
    """A birth is put before a register gets its first record."""
    two_kept: bool = True
    """Births below the newest two are gone by then."""
    looked_after: bool = True
    """The first record counts only if births show no copy after it was put."""


ALL_BIRTHS = Births()


class File(NamedTuple):
    """A record as a file: its number, the life of the root that it was put in, and that of the one that it names."""

    number: int
    life: int
    before: int


class Record(NamedTuple):
    """A record of a register."""

    file: File
    promised: Ballot
    ballot: Ballot = NO_BALLOT
    value: str = ""


class Root(NamedTuple):
    """What lies at a metadata root: the newest births, and the newest records of the unit's register."""

    births: tuple[File, ...]
    register: tuple[Record, ...] = ()


class Unit(NamedTuple):
    """The roots, the copy of m, whether it is of before the unit's birth there, and what was decided."""

    roots: tuple[Root, ...]
    copy: Root | None = None
    born: bool = False
    copied_before: bool = False
    life: int = 0
    votes: frozenset[tuple[Ballot, str, int]] = frozenset()
    decided: str = ""
    fault: str = ""


Ways = Iterator[tuple[Unit, Any, str]]


def made(rules: Births) -> Unit:
    """Three roots without any unit."""
    births = (File(1, 0, -1), File(2, 0, 0)) if rules.begins_with_two else (File(1, 0, -1),)
    return Unit((Root(births),) * 3)


def with_root(store: Unit, place: int, root: Root) -> Unit:
    """The store with one root changed."""
    return store._replace(roots=(*store.roots[:place], root, *store.roots[place + 1 :]))


def life_at(store: Unit, place: int) -> int:
    """The life of a root: that of m after it was restored is another."""
    return store.life if place == 0 else 0


def is_copy(files: tuple[File, ...]) -> bool:
    """Whether the newest file names another one before it than is there."""
    newest = files[-1]
    there = {file.number: file.life for file in files}
    return newest.before >= 0 and there.get(newest.number - 1) != newest.before


def names_none(root: Root) -> bool:
    """Whether a register is empty, or its record names none before it."""
    return not root.register or root.register[-1].file.before < 0


def answers(rules: Births, root: Root) -> bool:
    """Whether what a root shows of the unit counts."""
    if names_none(root):
        return not (rules.births_asked and is_copy(root.births))
    return not is_copy(tuple(record.file for record in root.register))


def with_birth(rules: Births, root: Root, life: int) -> Root:
    """The root with one birth more."""
    newest = root.births[-1]
    births = (*root.births, File(newest.number + 1, life, newest.life))
    return root._replace(births=births[-2:] if rules.two_kept else births)


def with_record(root: Root, life: int, promised: Ballot, ballot: Ballot, value: str) -> Root:
    """The root with one record more in its register."""
    newest = root.register[-1].file if root.register else File(0, 0, -1)
    before = newest.life if root.register else -1
    record = Record(File(newest.number + 1, life, before), promised, ballot, value)
    return root._replace(register=(*root.register, record)[-2:])


def voted(store: Unit, place: int, ballot: Ballot, value: str) -> Unit:
    """The store after an accept counts; two of three decide, whatever they forget afterwards."""
    mask = next((m for b, v, m in store.votes if (b, v) == (ballot, value)), 0)
    now = mask | 1 << place
    store = store._replace(votes=store.votes - {(ballot, value, mask)} | {(ballot, value, now)})
    if now.bit_count() < 2:
        return store
    if store.decided not in ("", value):
        return store._replace(fault=f"C5: two entries are decided, {store.decided} and {value}")
    return store._replace(decided=value)


# --- Proposers -------------------------------------------------------------------------------------------------------


class Me(NamedTuple):
    """A proposer: the rules, its entry, and how high its ballots go."""

    rules: Births
    name: str
    rounds: int


class Round(NamedTuple):
    """A ballot, what it carries ("" while it is prepared), and the roots that have promised or accepted it."""

    number: int
    value: str = ""
    got: tuple[tuple[int, Ballot, str], ...] = ()


def begins(me: Me, number: int = 0) -> Phase:
    """Take a ballot."""

    def ways(store: Unit, world: Any) -> Ways:
        if number < me.rounds:
            yield store, number + 1, f"ballot {number + 1}"

    number = yield Step(me.name, ways)
    return Next(asks, (me, Round(number)))


def asks(me: Me, at: Round) -> Phase:
    """Choose the next root to ask, and put a birth there, if its register is new."""
    asked = [each[0] for each in at.got]

    def ways(store: Unit, world: Any) -> Ways:
        if at.number < me.rounds:
            yield store, "again", "begins again"
        for place in range(3):
            root = store.roots[place]
            if place in asked or not answers(me.rules, root):
                continue
            if not root.register and me.rules.witnessed:
                born = with_root(store, place, with_birth(me.rules, root, life_at(store, place)))
                yield born._replace(born=born.born or place == 0), place, f"a birth at {NAMES[place]}"
            else:
                yield store, place, f"asks {NAMES[place]}"

    place = yield Step(f"{at.number}.{me.name}", ways)
    return Next(begins, (me, at.number)) if place == "again" else Next(puts, (me, at, place))


def puts(me: Me, at: Round, place: int) -> Phase:
    """Put the promise, or what is accepted."""
    ballot = (at.number, me.name)

    def ways(store: Unit, world: Any) -> Ways:
        root = store.roots[place]
        newest = root.register[-1] if root.register else Record(File(0, 0, -1), NO_BALLOT)
        if root.register and not answers(me.rules, root):
            yield store, "refused", f"{NAMES[place]} is a copy"
        elif at.value and ballot >= newest.promised:
            after = with_root(store, place, with_record(root, life_at(store, place), ballot, ballot, at.value))
            if not life_at(store, place):  # one that was restored is asked once more
                after = voted(after, place, ballot, at.value)
            yield after, (ballot, at.value), f"{at.value} accepted by {NAMES[place]}"
        elif not at.value and ballot > newest.promised:
            after = with_record(root, life_at(store, place), ballot, newest.ballot, newest.value)
            yield with_root(store, place, after), (newest.ballot, newest.value), f"promised by {NAMES[place]}"
        else:
            yield store, "refused", f"{NAMES[place]} has promised more"

    reply = yield Step(f"{at.number}.{me.name}", ways)
    if reply == "refused":
        return Next(begins, (me, at.number))
    return Next(looks, (me, at, (place, *reply)))


def looks(me: Me, at: Round, reply: tuple[int, Ballot, str]) -> Phase:
    """Look at births after it: a copy may have come meanwhile."""

    def ways(store: Unit, world: Any) -> Ways:
        root = store.roots[reply[0]]
        fine = not me.rules.looked_after or answers(me.rules, root)
        after = voted(store, reply[0], reply[1], at.value) if fine and at.value else store
        yield after, fine, "counts" if fine else f"{NAMES[reply[0]]} is a copy"

    if not (yield Step(f"{at.number}.{me.name}", ways)):
        return Next(begins, (me, at.number))
    got = tuple(sorted((*at.got, reply)))
    if len(got) < 2:
        return Next(asks, (me, at._replace(got=got)))
    if at.value:
        return Done()
    highest = max(got, key=lambda each: each[1])
    return Next(asks, (me, Round(at.number, highest[2] or me.name)))


# --- A reader, other units, and what fails ------------------------------------------------------------------------------


def reads(rules: Births, seen: str | None = None, empty: tuple[int, ...] = ()) -> Phase:
    """Ask whether there is an entry: two roots without one are the answer that there is none."""

    def ways(store: Unit, world: Any) -> Ways:
        decided = store.decided if seen is None else seen
        for place in range(3):
            root = store.roots[place]
            if place in empty or not answers(rules, root) or (root.register and root.register[-1].value):
                continue
            fault = "C5: there is said to be no entry, and one was decided" if empty and decided else ""
            yield store._replace(fault=fault), (decided, place), f"{NAMES[place]} has none"

    decided, place = yield Step("reader", ways)
    return Done() if empty else Next(reads, (rules, decided, (place,)))


def others(rules: Births) -> Phase:
    """Another unit is made at m."""

    def ways(store: Unit, world: Any) -> Ways:
        if not is_copy(store.roots[0].births):
            yield with_root(store, 0, with_birth(rules, store.roots[0], store.life)), None, "another unit at m"

    yield Step("others", ways)
    return Done()


def restores() -> Phase:
    """A copy of m is taken; later it takes the place of m, wholly or file by file."""

    def copies(store: Unit, world: Any) -> Ways:
        before = not store.born and not store.roots[0].register
        yield store._replace(copy=store.roots[0], copied_before=before), None, "a copy of m is taken"

    def comes_back(store: Unit, world: Any) -> Ways:
        if store.copy is None or store.copy == store.roots[0]:
            return
        for in_place in (False, True) if store.copied_before else (False,):
            root = back(store.copy, store.roots[0] if in_place else Root(()))
            said = "m is restored in place" if in_place else "m is restored"
            yield with_root(store._replace(copy=None, life=1), 0, root), None, said

    yield Step("failure", copies)
    yield Step("failure", comes_back)
    return Done()


def back(copy: Root, live: Root) -> Root:
    """A copy as it comes back over what is there: the files that are there stay, the others are new ones."""
    births = tuple(file if file in live.births else file._replace(life=1) for file in copy.births)
    register = tuple(
        record if record in live.register else record._replace(file=record.file._replace(life=1))
        for record in copy.register
    )
    return Root(births, register)


def judged(before: Any, after: Any, claims: tuple[Any, ...]) -> tuple[Any, str | None]:
    """What is wrong stands in the store."""
    return after, after.fault or None


def unborn(rules: Births, rounds: int = 1, *, reader: bool = False) -> Scenario:
    """Two proposers make a unit, and m comes back as of a copy."""
    processes = [process(name, begins, Me(rules, name, rounds)) for name in ("x" if reader else "xy")]
    processes += [process("reader", reads, rules)] if reader else []
    processes += [process("others", others, rules), process("failure", restores)]
    return Scenario("unborn", made(rules), tuple(processes), None, judged)


def asked_for(rules: Births, rounds: int = 1) -> Scenario:
    """One makes a unit, another asks for it, and m comes back as of a copy."""
    return unborn(rules, rounds, reader=True)


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


class WholeBirths(Whole):
    """A scene of births that must break nothing."""

    rules = ALL_BIRTHS


class Unborn(Without):
    """A rule of births that is taken out."""

    rules = ALL_BIRTHS


BORN = [WholeBirths(asked_for, 10_000)]

LARGE_BORN = [WholeBirths(unborn, 1_000_000)]

WITHOUT_BIRTHS = [
    Unborn("11", "births_asked", asked_for, "C5"),
    Unborn("11", "begins_with_two", asked_for, "C5"),
    Unborn("11", "witnessed", asked_for, "C5"),
    Unborn("11", "two_kept", asked_for, "C5"),
    Unborn("11", "looked_after", unborn, "C5", long=True),
]
