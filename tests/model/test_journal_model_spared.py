"""Where a look is a request: with all rules nothing breaks, though most looks are spared; without any one something does."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from tests.model import cases
from tests.model.cases import Story, Weakened, assert_breaks, assert_nothing_breaks, by_size
from tests.model.exploration import Process, Scenario, process
from tests.model.journal_model import Store, World, history, judge, network, others
from tests.model.journal_model_spared import (
    DELAY,
    Anchor,
    Hasty,
    Poller,
    Spares,
    collect_old,
    list_again,
    poll,
    put_on,
    start,
    time,
)

pytestmark = pytest.mark.slow

PROMPT = World()
LATE = World(network="late")
TWICE = World(network="twice")
RETRYING = World(client_retries=True)


def remembered(store: Store) -> Anchor:
    """The newest entry, seen as that at the beginning."""
    newest = store.at(len(store.chain))
    assert newest is not None
    return Anchor(newest, 0)


def scenario(
    name: str, store: Store, world: World, spares: Spares, commits: int, ticks: int, *own: Process
) -> Scenario:
    """A story with others, a collector, and time."""
    around = (
        process("others", others, commits),
        process("collector", collect_old, spares),
        process("time", time, ticks),
    )
    late = () if world.network == "prompt" else (process("network", network),)
    return Scenario(name, store, (*own, *around, *late), world, judge)


def one_writer(spares: Spares, world: World = PROMPT) -> Scenario:
    """A writer remembers entry 1 and may pause anywhere; where the network is late it gives up after a lost race."""
    store, slow = history(1), world.network != "prompt"
    me = Hasty(("A",), spares, world=world, races=1 if slow else 2)
    writer = process("A", put_on, me, remembered(store), 1, 1)
    return scenario("one writer", store, world, spares, 3, DELAY if slow else DELAY + 1, writer)


def in_a_row(spares: Spares, world: World = PROMPT) -> Scenario:
    """A writer puts one entry on top of the other, of each of which it knows the reply alone."""
    store = history(1)
    me = Hasty(("A", "B"), spares, world=world, races=1, attempts=2 if world.network == "prompt" else 1)
    writer = process("A", put_on, me, remembered(store), 1, 1)
    return scenario("two operations in a row", store, world, spares, 3, DELAY, writer)


def two_writers(spares: Spares, world: World = PROMPT) -> Scenario:
    """Two writers remember entry 1."""
    store = history(1)
    writers = [
        process(name, put_on, Hasty((name,), spares, world=world, races=1), remembered(store), 1, 1) for name in "AB"
    ]
    return scenario("two writers", store, world, spares, 2, DELAY, *writers)


def a_lister(spares: Spares, world: World = PROMPT) -> Scenario:
    """A writer lists first."""
    store = history(2)
    return scenario("a lister", store, world, spares, 3, DELAY, process("A", start, Hasty(("A",), spares), 1))


def a_poller(spares: Spares, world: World = PROMPT) -> Scenario:
    """A reader polls, past a writer."""
    store = history(1)
    reader = process("reader", poll, Poller(spares), remembered(store), 3)
    return scenario("a poller", store, world, spares, 3, 2 * DELAY, reader)


def an_opener(spares: Spares, world: World = PROMPT) -> Scenario:
    """A reader opens the journal while a writer puts late what it built on entry 1."""
    store = history(2)
    first = store.at(1)
    assert first is not None
    late = process("A", put_on, Hasty(("A",), spares, world=world, races=1), Anchor(first, 0), 1, 1)
    reader = process("reader", list_again, Poller(spares, polls=1), 0, 1)
    return scenario("an opener", store, world, spares, 2, DELAY, late, reader)


@dataclass(frozen=True)
class Whole(cases.Whole):
    """A story in a world that must break nothing."""

    story: Story
    at_least: int
    world: World = PROMPT
    reaching: str = "Committed look"

    def __str__(self) -> str:
        return "-".join([self.story.__name__, self.world.network, *["retrying"] * self.world.client_retries])

    def scenario(self) -> Scenario:
        return self.story(Spares(), self.world)


WHOLE = [
    Whole(one_writer, 290_000, reaching="Committed Never Unknown look lookup walk read_back start"),
    Whole(one_writer, 29_000, LATE),
    Whole(one_writer, 38_000, TWICE),
    Whole(one_writer, 300_000, RETRYING),
    Whole(in_a_row, 110_000),
    Whole(in_a_row, 109_000, TWICE),
    Whole(two_writers, 440_000),
    Whole(a_lister, 210_000),
    Whole(a_poller, 480_000, reaching="Believed Rested list_again"),
    Whole(an_opener, 360_000, reaching="Believed list_again look"),
]


@pytest.mark.parametrize("whole", by_size(WHOLE, 250_000))
def test_with_all_rules_no_property_breaks(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys)


class Without(Weakened):
    """A rule that is weakened or taken out."""

    rules = Spares()


WEAKENED = [
    Without("window", DELAY + 1, one_writer, "P3"),
    Without("window", DELAY + 1, a_poller, "P5"),
    Without("anchor_looked", False, one_writer, "P1"),
    Without("poll_looked", False, a_poller, "P5"),
    Without("bounded", False, in_a_row, "P1", (("world", TWICE),)),
    Without("quick", False, in_a_row, "P1", (("world", TWICE),)),
    Without("in_doubt_later", False, one_writer, "P3"),
    Without("doubted_once", False, one_writer, "P3"),
    Without("followed", False, one_writer, "P3"),
    Without("renewed", False, a_poller, "P5"),
    Without("first_try", False, in_a_row, "P1"),
    Without("listed", DELAY + 1, an_opener, "P4"),
]


@pytest.mark.parametrize("without", WEAKENED, ids=str)
def test_without_a_rule_a_property_breaks(without: Without) -> None:
    assert_breaks(without)


def test_every_rule_was_taken_out_once() -> None:
    assert {without.guard for without in WEAKENED} == {rule.name for rule in fields(Spares)}
