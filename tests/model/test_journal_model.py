"""The journal's rules, explored: with all of them no property breaks, and without any one of them some property does.

A scenario is a function of the guards, so the same story is explored with and without a rule. Everyone's entries are
named after their writer, `otherN` belongs to writers without trouble, and `2=A#1` is A's entry at number 2 in its
first incarnation. Run with `-s` to see the counter-examples.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from tests.model import cases
from tests.model.cases import Story, Weakened, assert_breaks, assert_nothing_breaks
from tests.model.exploration import Local, Phase, Process, Scenario, explore, process
from tests.model.journal_model import (
    Guards,
    Reader,
    Seen,
    Store,
    World,
    Writer,
    collect,
    find,
    history,
    judge,
    network,
    open_reader,
    others,
    plan,
    poll,
    put,
    refresh,
)

pytestmark = pytest.mark.slow

PROMPT = World()
LATE = World(network="late")
TWICE = World(network="twice")
TORN = World(torn_listing=True)
HASTY_LIBRARY = World(client_retries=True)

# --- The people of the stories ----------------------------------------------------------------------------------------


def last_of(store: Store) -> Seen:
    """The newest entry, as a process remembers it."""
    newest = store.at(len(store.chain))
    assert newest is not None
    return newest


def anchored(writer: Writer, anchor: Seen) -> Process:
    """A writer that remembers an entry."""
    return process(writer.write_id, refresh, writer, anchor, 1)


def fresh(writer: Writer) -> Process:
    """A writer that has to list."""
    return process(writer.write_id, find, writer, 1)


def surroundings(guards: Guards, world: World, commits: int, collectors: int = 1) -> tuple[Process, ...]:
    """History goes on and is collected; late puts land."""
    names = [f"collector{number}" for number in range(1, collectors + 1)]
    late = () if world.network == "prompt" else (process("network", network),)
    gone_on = (process("others", others, commits),) if commits else ()
    return (*gone_on, *(process(name, collect, guards, world) for name in names), *late)


def scenario(name: str, store: Store, world: World, *processes: Process) -> Scenario:
    """A scenario whose arguments read in the order of a story."""
    return Scenario(name, store, processes, world, judge)


# --- The stories ------------------------------------------------------------------------------------------------------


def one_writer(guards: Guards, world: World = PROMPT) -> Scenario:
    """A writer remembers entry 1 and may pause anywhere."""
    store = history(1)
    writer = anchored(Writer("A", "A", guards, world), last_of(store))
    return scenario("one writer", store, world, writer, *surroundings(guards, world, commits=4))


def two_writers(guards: Guards, world: World = PROMPT) -> Scenario:
    """Two writers remember entry 1; either may build on the other's entry."""
    store = history(1)
    writers = [anchored(Writer(name, name, guards, world), last_of(store)) for name in "AB"]
    return scenario("two writers", store, world, *writers, *surroundings(guards, world, commits=3))


def two_hasty_writers(guards: Guards, world: World) -> Scenario:
    """As `two_writers`, but they give up after the first lost race: fewer states for wilder networks."""
    store = history(1)
    writers = [anchored(Writer(name, name, guards, world, races=1), last_of(store)) for name in "AB"]
    return scenario("two hasty writers", store, world, *writers, *surroundings(guards, world, commits=3))


def three_writers(guards: Guards, world: World = PROMPT, commits: int = 1) -> Scenario:
    """Three writers remember entry 1, and nobody else writes much."""
    store = history(1)
    writers = [anchored(Writer(name, name, guards, world, races=1), last_of(store)) for name in "ABC"]
    return scenario("three writers", store, world, *writers, *surroundings(guards, world, commits))


def three_writers_and_others(guards: Guards, world: World = PROMPT) -> Scenario:
    """Three writers remember entry 1, while history goes on."""
    return three_writers(guards, world, commits=2)


def remembering_and_listing(guards: Guards, world: World = PROMPT, collectors: int = 1) -> Scenario:
    """One writer remembers entry 1, the other one lists."""
    store = history(1)
    writers = anchored(Writer("A", "A", guards, world), last_of(store)), fresh(Writer("B", "B", guards, world))
    rest = surroundings(guards, world, commits=3, collectors=collectors)
    return scenario("one remembers, one lists", store, world, *writers, *rest)


def remembering_and_two_collectors(guards: Guards, world: World = PROMPT) -> Scenario:
    """The same with two collectors, whose lists get stale."""
    return remembering_and_listing(guards, world, collectors=2)


def two_collectors(guards: Guards, world: World = PROMPT) -> Scenario:
    """One writer, and two collectors with stale lists."""
    store = history(1)
    writer = fresh(Writer("A", "A", guards, world))
    return scenario("two collectors", store, world, writer, *surroundings(guards, world, 4, collectors=2))


def retried(guards: Guards, world: World = PROMPT) -> Scenario:
    """A writer with a durable id seems dead; a fresh process retries its operation under the same durable id."""
    store = history(1)
    zombie = anchored(Writer("A", "A", guards, world, durable=True), last_of(store))
    retry = fresh(Writer("A'", "A", guards, world, durable=True))
    return scenario("a retry by a fresh process", store, world, zombie, retry, *surroundings(guards, world, commits=3))


def beginners(guards: Guards, world: World = PROMPT) -> Scenario:
    """An empty journal and two writers that find it empty."""
    writers = [fresh(Writer(name, name, guards, world)) for name in "AB"]
    return scenario("an empty journal", history(0), world, *writers, *surroundings(guards, world, commits=3))


def one_beginner(guards: Guards, world: World = PROMPT) -> Scenario:
    """An empty journal and one writer that finds it empty."""
    writer = fresh(Writer("A", "A", guards, world))
    return scenario("a beginner", history(0), world, writer, *surroundings(guards, world, commits=4))


def a_late_beginner(guards: Guards, world: World = TORN) -> Scenario:
    """A writer found the journal empty, paused until number 1 was collected, and puts it; listings take time."""
    writer = process("A", put, Writer("A", "A", guards, world), None, 1, 1)
    store = history(3).without(1)
    return scenario("a late beginner", store, world, writer, *surroundings(guards, world, commits=3))


def two_operations(guards: Guards, world: World = LATE) -> Scenario:
    """A writer goes on from its own entry."""
    store = history(1)
    first = Writer("A", "A", guards, world, then=Writer("A2", "A2", guards, world))
    writer = anchored(first, last_of(store))
    return scenario("two operations in a row", store, world, writer, *surroundings(guards, world, commits=3))


def a_follower(guards: Guards, world: World = PROMPT) -> Scenario:
    """A reader remembers entry 1 and follows the journal, past a writer."""
    store = history(1)
    writer = anchored(Writer("A", "A", guards, world), last_of(store))
    reader = process("reader", poll, Reader(guards, world), last_of(store), 3)
    return scenario("a following reader", store, world, writer, reader, *surroundings(guards, world, commits=3))


def a_follower_of_two(guards: Guards, world: World = PROMPT) -> Scenario:
    """A reader remembers entry 1 and follows the journal, past two writers."""
    store = history(1)
    writers = [anchored(Writer(name, name, guards, world, races=1), last_of(store)) for name in "AB"]
    reader = process("reader", poll, Reader(guards, world), last_of(store), 2)
    rest = surroundings(guards, world, commits=3)
    return scenario("a following reader, two writers", store, world, *writers, reader, *rest)


def an_opener(guards: Guards, world: World = PROMPT) -> Scenario:
    """A reader lists, then follows the journal."""
    store = history(1)
    writer = anchored(Writer("A", "A", guards, world), last_of(store))
    reader = process("reader", open_reader, Reader(guards, world), 0, 2)
    return scenario("an opening reader", store, world, writer, reader, *surroundings(guards, world, commits=3))


def a_planner(guards: Guards, world: World = PROMPT) -> Scenario:
    """A reader lists, then reads down all that is retained, to a lower end that it knows from something older."""
    store = history(1)
    writer = anchored(Writer("A", "A", guards, world), last_of(store))
    reader = process("reader", plan, Reader(guards, world))
    return scenario("a range reader", store, world, writer, reader, *surroundings(guards, world, commits=3))


def paused_in_a_listing(phase: Callable[..., Phase], *args: Any) -> Local:
    """A process that learnt long ago, by a listing, that 2 is the newest number."""
    return Local(phase, args, replies=(history(2).files, ((2, 1),)))


def later() -> Store:
    """Number 4 was reached, and 1 and 2 were collected."""
    return history(4).without(1).without(2)


def a_paused_planner(guards: Guards, world: World = TORN) -> Scenario:
    """A reader pauses between the listing and the read; listings take time."""
    writer = anchored(Writer("A", "A", guards, world, races=1), last_of(history(1)))
    reader = Process("reader", paused_in_a_listing(plan, Reader(guards, world)))
    return scenario("a paused reader", later(), world, writer, reader, *surroundings(guards, world, commits=2))


def a_paused_retry(guards: Guards, world: World = TORN) -> Scenario:
    """A fresh process retries an operation and pauses between the listing and the read; listings take time."""
    zombie = anchored(Writer("A", "A", guards, world, durable=True, races=1), last_of(history(1)))
    again = Writer("A'", "A", guards, world, durable=True, races=1)
    retry = Process("A'", paused_in_a_listing(find, again, 1))
    return scenario("a paused retry", later(), world, zombie, retry, *surroundings(guards, world, commits=2))


# --- With all rules nothing breaks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole(cases.Whole):
    """A story in a world, perhaps with weaker rules, that must break nothing."""

    story: Story
    at_least: int
    world: World = PROMPT
    guards: dict[str, Any] = field(default_factory=dict)
    reaching: str = "Committed Unknown verify lookup walk"

    def __str__(self) -> str:
        odd = [f"{name}={value}" for name, value in self.guards.items()]
        kinds = [*["torn"] * self.world.torn_listing, *["retrying"] * self.world.client_retries]
        return "-".join([self.story.__name__, self.world.network, *kinds, *odd])

    def scenario(self) -> Scenario:
        return self.story(Guards(**self.guards), self.world)


READING = "Committed Believed Rested poll"
PLANNING = "Committed Believed plan_below"

ALL_RULES = [
    Whole(one_writer, 3_900, reaching="Committed Unknown Never read_back verify lookup walk"),
    Whole(two_writers, 240_000, reaching="Committed Unknown Never read_back verify lookup walk"),
    Whole(three_writers, 410_000),
    Whole(remembering_and_listing, 220_000),
    Whole(two_collectors, 66_000),
    Whole(retried, 120_000),
    Whole(beginners, 280_000),
    Whole(two_operations, 41_000, LATE),
    Whole(two_operations, 50_000, TWICE),
    Whole(two_hasty_writers, 250_000, LATE),
    Whole(one_writer, 4_100, HASTY_LIBRARY, reaching="Committed Unknown Never read_back verify lookup walk"),
    Whole(a_follower, 24_000, reaching=READING),
    Whole(an_opener, 67_000, reaching=READING + " open_reader"),
    Whole(a_planner, 34_000, reaching=PLANNING),
    Whole(one_beginner, 40_000, TORN),
    Whole(a_late_beginner, 13_000, TORN, reaching="Unknown verify lookup walk"),
    Whole(a_paused_planner, 330_000, TORN, reaching="Believed Unknown plan_below"),
]

ENOUGH = [
    Whole(two_operations, 74_000, LATE, {"anchor_check": "attempt"}),
    Whole(one_beginner, 3_700, guards={"first_entry": "second_names_it"}),
    Whole(beginners, 260_000, guards={"first_entry": "second_names_it"}),
    Whole(remembering_and_listing, 170_000, guards={"listing": "identity"}),
    Whole(retried, 95_000, guards={"listing": "identity"}),
    Whole(retried, 200_000, guards={"keep": 1, "slack": 0}),
    Whole(retried, 77_000, guards={"recheck": False, "bound_first": False}),
    Whole(two_writers, 240_000, guards={"go_on_when_lost": True}),
    Whole(retried, 130_000, guards={"go_on_when_lost": True}),
    Whole(two_operations, 50_000, TWICE, {"go_on_when_lost": True}),
]
"""Weaker rules that hold in a kinder world: an id in the bytes where no request is executed twice; two ways to trust a
listing, and no second look at it, where a listing takes no time; one kept entry where the newest may not move. And a
liberty that is safe in any world: putting again after a lookup that shows that the number went to another write."""

MINUTES = [
    Whole(three_writers_and_others, 2_800_000),
    Whole(two_writers, 1_800_000, LATE),
    Whole(two_hasty_writers, 380_000, TWICE),
    Whole(two_hasty_writers, 470_000, LATE, {"anchor_check": "attempt"}),
    Whole(remembering_and_two_collectors, 3_800_000),
    Whole(two_hasty_writers, 250_000, LATE, {"go_on_when_lost": True}),
    Whole(beginners, 1_100_000, LATE),
    Whole(beginners, 2_400_000, LATE, {"go_on_when_lost": True}),
    Whole(retried, 840_000, LATE),
    Whole(retried, 1_200_000, LATE, {"anchor_check": "attempt"}),
    Whole(retried, 920_000, TORN),
    Whole(a_paused_retry, 510_000, TORN),
    Whole(a_follower_of_two, 1_390_000, reaching=READING),
]


@pytest.mark.parametrize("whole", cases.by_size(ALL_RULES, 230_000))
def test_with_all_rules_no_property_breaks(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys)


@pytest.mark.parametrize("whole", cases.by_size(ENOUGH, 150_000))
def test_a_weaker_rule_is_enough_in_a_kinder_world(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("whole", MINUTES, ids=str)
def test_with_all_rules_no_property_breaks_in_larger_stories(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys)


# --- Without any one rule something breaks ----------------------------------------------------------------------------


class Without(Weakened):
    """A rule that is weakened or taken out."""

    rules = Guards()


WEAKENED = [
    Without("anchor_check", "none", one_writer, "P1"),
    Without("anchor_check", "write_id", two_writers, "P1"),
    Without("anchor_check", "write_id", a_follower_of_two, "P5"),
    Without("anchor_check", "attempt", two_operations, "P1", (("world", TWICE),)),
    Without("check_after", False, one_writer, "P1"),
    Without("first_entry", "trusted", one_beginner, "P1"),
    Without("first_entry", "second_names_it", a_late_beginner, "P1"),
    Without("listing", "trusted", remembering_and_listing, "P1"),
    Without("listing", "trusted", retried, "P1"),
    Without("listing", "trusted", an_opener, "P4"),
    Without("listing", "identity", an_opener, "P4", (("world", TORN),)),
    Without("slack", 2, retried, "P1"),
    Without("recheck", False, a_paused_retry, "P1"),
    Without("recheck", False, a_paused_planner, "P4"),
    Without("keep", 1, retried, "P1"),
    Without("keep", 0, one_beginner, "P1"),
    Without("bound_first", False, one_writer, "P1", (("world", TORN),)),
    Without("ordered_deletes", False, one_writer, "P1"),
    Without("read_back", False, one_writer, "P2"),
    Without("same_number", False, one_writer, "P3"),
    Without("give_up_in_doubt", False, one_writer, "P2"),
    Without("exists_is_doubt", False, one_writer, "P2", (("world", HASTY_LIBRARY),)),
    Without("table_lookup", False, retried, "P2"),
    Without("chain_lookup", False, one_writer, "P1"),
    Without("idle_check", False, a_follower, "P5"),
    Without("own_identity_first", False, two_operations, "P1"),
    Without("range_links", False, a_planner, "P4"),
]


@pytest.mark.parametrize("without", WEAKENED, ids=str)
def test_without_a_rule_a_property_breaks(without: Without) -> None:
    assert_breaks(without)


def test_every_rule_was_taken_out_once() -> None:
    liberties = {"go_on_when_lost"}
    assert {without.guard for without in WEAKENED} == {rule.name for rule in fields(Guards)} - liberties


# --- Counter-examples worth reading -----------------------------------------------------------------------------------


def told(trace: str) -> tuple[str, ...]:
    """The lines of a trace."""
    return tuple(line.strip() for line in trace.strip().splitlines())


RESURRECTED = """
    A: read 2 -> absent
    A: put 2=A (prev other1) -> stored, reply lost
    B: read 2 -> 2=A#1
    B: read 1 -> 1=other1#1
    B: read 3 -> absent
    others: commit -> 3=other3
    others: commit -> 4=other4
    others: commit -> 5=other5
    collector1: list -> [1, 2, 3, 4, 5]
    collector1: list -> [1, 2, 3, 4, 5]
    collector1: delete 1 -> deleted
    collector1: delete 2 -> deleted
    A: put 2=A (prev other1) -> stored as a stray
    collector1: delete 3 -> deleted
    B: put 3=B (prev A) -> stored as a stray
    B: read 2 -> 2=A#2 (a stray); reports B committed
"""


def test_a_write_id_does_not_tell_a_resurrected_anchor_from_the_one_remembered() -> None:
    """A's retry after a lost reply puts its own bytes back; they vouch for B, whose entry is in nobody's history."""
    report = explore(two_writers(Guards(anchor_check="write_id")))
    assert report.trace == told(RESURRECTED)
    assert report.broken == "P1: B was reported committed and is not in the chain"


OUTRUN_LISTING = """
    A: read 2 -> absent
    others: commit -> 2=other2
    A': list -> [1, 2]
    others: commit -> 3=other3
    others: commit -> 4=other4
    collector1: list -> [1, 2, 3, 4]
    collector1: list -> [1, 2, 3, 4]
    collector1: delete 1 -> deleted
    collector1: delete 2 -> deleted
    A: put 2=A (prev other1) -> stored as a stray
    A': read 2 -> 2=A#2 (a stray); reports A committed
"""


def test_a_listed_number_may_hold_a_stray_when_it_is_read() -> None:
    """The retry lists, pauses, and reads what its own zombie has put at the collected number meanwhile."""
    report = explore(retried(Guards(listing="trusted")))
    assert report.trace == told(OUTRUN_LISTING)
    assert report.broken == "P1: A was reported committed and is not in the chain"
