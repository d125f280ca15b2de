"""Replicas whose entries are decided by three metadata roots: the scenes of `replica_deciding` and `replica_composed`.

`python -m tests.model.replica_model_decided` explores all scenes of replicas and takes out each rule, and prints tables;
`--long` adds the large bounds.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from tests.model.cases import Tables
from tests.model.exploration import Process, Scenario, process, wander
from tests.model.replica_births import BORN, LARGE_BORN, WITHOUT_BIRTHS
from tests.model.replica_collecting import COLLECTING, LARGE_COLLECTING, WITHOUT_KEEPS
from tests.model.replica_composed import (
    acknowledge,
    append,
    begun,
    election,
    floor,
    high_watermark,
    join,
    joining,
    network,
    shrink,
)
from tests.model.replica_deciding import (
    NOTHING,
    STRICT,
    Acceptor,
    Bounds,
    Build,
    Deciding,
    Me,
    Rules,
    begun as begun_alone,
    breaks,
    idle,
    judge_deciding,
    learn,
    operation,
    read_head,
)
from tests.model.replica_model import AB, LARGE, WHOLE, WITHOUT, Whole, Without, bounds_of, most
from tests.model.replica_moving import MOVING, WITHOUT_MOVES
from tests.model.replica_replacing import FOLLOWING, LARGE_FOLLOWING, WITHOUT_FOLLOWS
from tests.model.replica_rules import ALL, Guards, first_entry, new
from tests.model.replica_steps import anybody, fails
from tests.model.replica_store import World


def deciders(
    rules: Rules,
    bounds: Bounds,
    operations: tuple[int, ...] = (1, 1),
    told_lost: tuple[int, ...] = (),
    reads: bool = False,
) -> Scenario:
    """Proposers of operations without data, and whoever learns, reads the head, or fails."""
    processes = [
        process(f"P{p}", idle, Me(p, rules, bounds, tuple(operation(rules, 10 * p + k) for k in range(many)), p in told_lost), 0)
        for p, many in enumerate(operations)
    ]  # fmt: skip
    if bounds.learns:
        processes.append(process("anybody", learn, ALL, rules))
    elif bounds.late:
        processes.append(process("network", network, bounds))
    if reads:
        processes.append(process("reader", read_head, rules))
    if bounds.power or bounds.copies:
        processes.append(process("failure", breaks, bounds))
    return Scenario("deciders", begun_alone(bounds), tuple(processes), NOTHING, judge_deciding(ALL, NOTHING))


def two(rules: Rules, rounds: int = 3) -> Scenario:
    """Two proposers, one operation each."""
    return deciders(rules, Bounds(rounds, learns=False))


def three(rules: Rules, rounds: int = 3) -> Scenario:
    """Three proposers, one operation each."""
    return deciders(rules, Bounds(rounds, learns=False), (1, 1, 1))


def learners(rules: Rules, rounds: int = 3) -> Scenario:
    """Two proposers, and roots that learn."""
    return deciders(rules, Bounds(rounds))


def several(rules: Rules, first: int = 2, rounds: int = 3) -> Scenario:
    """A proposer that goes on under the ballot that it was promised, another, and roots that learn."""
    return deciders(rules, Bounds(rounds), (first, 1))


def lost_replies(rules: Rules, rounds: int = 3) -> Scenario:
    """Two proposers, one of whose replies is lost."""
    return deciders(rules, Bounds(rounds, lost=1, learns=False))


def late_puts(rules: Rules, rounds: int = 3) -> Scenario:
    """Two proposers, one of whose puts lands late."""
    return deciders(rules, Bounds(rounds, lost=1, late=True, learns=False, counts=True))


def ghosts(rules: Rules, rounds: int = 3) -> Scenario:
    """A slow proposer, whose put may land at a number that was collected."""
    return deciders(rules, Bounds(rounds, slow=((0, 1),), learns=False, counts=True), (1, 2))


def reader(rules: Rules, rounds: int = 3) -> Scenario:
    """Two proposers, and a reader of the head."""
    return deciders(rules, Bounds(rounds, learns=False), reads=True)


def reported_lost(rules: Rules, rounds: int = 5) -> Scenario:
    """A proposer that gives up, and tells its caller."""
    return deciders(rules, Bounds(rounds, learns=False), told_lost=(0,))


def power_lost(rules: Rules, rounds: int = 3) -> Scenario:
    """A proposer dies before it has synced what it put; then the root loses power."""
    return deciders(rules, Bounds(rounds, lost=1, power=True))


def mixed(rules: Rules, rounds: int = 6) -> Scenario:
    """Three proposers from a state that contention comes to: one value under two ballots, another between them."""
    one, other = (new(first_entry(7), "touch", batch=batch, on=0) for batch in (0, 20))
    row = (
        Acceptor(0, (5, 1), (4, 1), one, frozenset({one})),
        Acceptor(0, (4, 1), (1, 0), one, frozenset({one})),
        Acceptor(0, (3, 2), (2, 2), other, frozenset({other})),
    )
    votes = frozenset({((4, 1), one, 1), ((1, 0), one, 2), ((2, 2), other, 4)})
    scenario = deciders(rules, Bounds(rounds, learns=False), (1, 1, 1))
    return replace(scenario, store=scenario.store._replace(deciding=Deciding(row, votes)))


def copied(rules: Rules, rounds: int = 3) -> Scenario:
    """An acceptor comes back as of a copy: other files."""
    return deciders(rules, Bounds(rounds, copies="copy", learns=False, counts=True))


def rolled_back(rules: Rules, rounds: int = 3) -> Scenario:
    """An acceptor comes back as of a snapshot of the disk below it: the very files."""
    return deciders(rules, Bounds(rounds, copies="snapshot", learns=False, counts=True))


# --- With data -------------------------------------------------------------------------------------------------------


def composed(
    guards: Guards,
    rules: Rules,
    bounds: Bounds,
    world: World,
    *builds: Build,
    acks: tuple[int, ...] = (0,),
    isr: int = AB,
    patient: bool = False,
) -> Scenario:
    """Proposers of entries with data, and all that the roots do."""
    processes: list[Process] = [
        process(f"P{p}", idle, Me(p, rules, bounds, (build,)), 0) for p, build in enumerate(builds)
    ]
    processes.append(process("anybody", anybody, guards))
    processes += [process(f"writer of {batch}", acknowledge, guards, batch, patient) for batch in acks]
    if bounds.late:
        processes.append(process("network", network, bounds))
    if bounds.power:
        processes.append(process("failure", breaks, bounds))
    if world.losses or world.power:
        processes.append(process("loss", fails, guards))
    return Scenario("composed", begun(world, isr), tuple(processes), world, judge_deciding(guards, world))


def retried(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """A batch with acks=1, an election, and a retry with acks=all that waits."""
    world = World((0,), ("1+all",), 4, most(append=1, elect=1), losses=0, stage_on=1, learn_on=AB)
    return composed(guards, rules, Bounds(rounds), world, append(guards, 0, "1"), election(guards, 1))


def leader_lost(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """acks=all, an election, and a root that is lost."""
    world = World((0,), ("all",), 4, most(append=1, elect=1), losses=1, stage_on=AB, learn_on=AB)
    return composed(guards, rules, Bounds(rounds), world, append(guards, 0, "all"), election(guards, 1))


def stated(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """An append, an election, and the high watermark; roots settle and collect."""
    world = World((0,), ("1",), 4, most(append=1, elect=1, hw=1), losses=0, settles=True, stage_on=1, learn_on=AB)
    return composed(
        guards,
        rules,
        Bounds(rounds),
        world,
        append(guards, 0, "1"),
        election(guards, 1),
        high_watermark(guards),
        acks=(),
    )


def taken_out(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """acks=all while a root is taken out, and a root that is lost."""
    world = World((0,), ("all",), 4, most(append=1, shrink=1), losses=1, min_insync=1, stage_on=AB, learn_on=AB)
    return composed(guards, rules, Bounds(rounds), world, append(guards, 0, "all"), shrink(guards, 1))


def swept(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """A paused writer, and a floor above its chunk."""
    world = World((0,), ("1",), 4, most(append=1, sweep=1), losses=0, sweeps=True, stage_on=1, learn_on=AB)
    return composed(
        guards, rules, Bounds(rounds), world, append(guards, 0, "1"), floor(guards), election(guards, 1), acks=()
    )


def late(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """A writer's put lands late, beside an election."""
    world = World((0,), ("1",), 4, most(append=1, elect=1), losses=0, stage_on=1, learn_on=2)
    bounds = Bounds(rounds, lost=1, late=True, counts=True)
    return composed(guards, rules, bounds, world, append(guards, 0, "1"), election(guards, 1), acks=())


def without_power(guards: Guards, rules: Rules = STRICT, rounds: int = 2) -> Scenario:
    """acks=all and an election, and a root that loses what was not synced."""
    world = World((0,), ("all",), 4, most(append=1, elect=1), losses=0, power=1, stage_on=AB, learn_on=AB)
    return composed(guards, rules, Bounds(rounds), world, append(guards, 0, "all"), election(guards, 1))


def starting_over(guards: Guards, rules: Rules = STRICT, rounds: int = 3) -> Scenario:
    """A follower is taken out, starts over with the leader's segments, and joins; the leader collects."""
    world = World(
        (0,), ("1",), 6, most(append=1), losses=0, starts=1, settles=True, collects=True, stage_on=1, learn_on=AB
    )
    builds = (append(guards, 0, "1"), shrink(guards, 1), joining(guards, 1), join(guards, 1))
    return in_turn(composed(guards, rules, Bounds(rounds), world, acks=()), rules, Bounds(rounds), *builds)


def in_turn(scenario: Scenario, rules: Rules, bounds: Bounds, *builds: Build) -> Scenario:
    """One proposer more, which proposes one after the other."""
    return replace(scenario, processes=(process("P0", idle, Me(0, rules, bounds, builds), 0), *scenario.processes))


def everything(guards: Guards, rules: Rules = STRICT) -> Scenario:
    """All of it at once, for random schedules."""
    world = World((0, 1), ("1+all", "all"), 9, most(append=3, elect=2, hw=2, shrink=1, sweep=1), losses=1, settles=True, collects=True, sweeps=True, power=1, starts=1)  # fmt: skip
    bounds = Bounds(60, lost=2, late=True, counts=True)
    builds = (append(guards, 0, "1"), append(guards, 1, "all"), election(guards, 1), high_watermark(guards), shrink(guards, 2),
              floor(guards), joining(guards, 2), join(guards, 2))  # fmt: skip
    return composed(guards, rules, bounds, world, *builds, acks=(0, 1) * 3, isr=7, patient=True)


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


class Strict(Whole):
    """A scene of deciding that must break nothing."""

    rules = STRICT


class Decided(Without):
    """A rule of deciding that is taken out."""

    rules = STRICT


DECIDING = [Strict(two, 6_500)]

LARGE_DECIDING = [
    Strict(two, 29_000, (("rounds", 4),)),
    Strict(learners, 69_000),
    Strict(lost_replies, 68_000),
    Strict(reader, 88_000),
    Strict(ghosts, 90_000),
    Strict(several, 27_000, (("rounds", 2),)),
    Strict(mixed, 11_000),
    Strict(three, 500_000),
    Strict(copied, 480_000),
    Strict(power_lost, 88_000, (("rounds", 2),)),
    Strict(late_puts, 420_000, (("rounds", 2),)),
]

COMPOSED = [Whole(retried, 28_000)]

LARGE_COMPOSED = [
    Whole(leader_lost, 93_000),
    Whole(taken_out, 91_000),
    Whole(stated, 270_000),
    Whole(swept, 84_000),
    Whole(late, 1_400_000),
    Whole(without_power, 180_000),
    Whole(starting_over, 29_000, (("rounds", 2),)),
]

FOUR = (("rounds", 4),)

WITHOUT_DECIDED = [
    Decided("deciding", "majority", two, "C5"),
    Decided("deciding", "above_promised", two, "C5"),
    Decided("deciding", "not_below_promised", two, "C5"),
    Decided("deciding", "adopt_highest", two, "C5"),
    Decided("deciding", "anew_first", two, "C5"),
    Decided("deciding", "id_judged", two, "C6", FOUR),
    Decided("deciding", "one_value", two, "C"),
    Decided("deciding", "same_ballot", mixed, "C5"),
    Decided("deciding", "next_confirmed", several, "C5"),
    Decided("deciding", "learn_decided", learners, "C5"),
    Decided("deciding", "learn_in_order", several, "C5"),
    Decided("deciding", "kept_until_learned", several, "C8", (("first", 3),)),
    Decided("deciding", "synced", power_lost, "C5"),
    Decided("deciding", "head_same_ballot", reader, "C5", FOUR, long=True),
    Decided("deciding", "lost_if_other", reported_lost, "C5", long=True),
    Decided("deciding", "anchored", ghosts, "C5", long=True),
    Decided("deciding", "restored_out", copied, "C5", long=True),
]

WITHOUT_COMPOSED = [
    Without("7", "metadata_kept", starting_over, "C8"),
    Without("2", "ack_own_or_hw", retried, "C1"),
    Without("5", "rows_go_back", retried, "C6"),
    Without("learning", "learn_whole", retried, "C7"),
]

WALKS = 20
"""Random schedules of everything at once."""


# --- The tables -------------------------------------------------------------------------------------------------------


def main(large: bool) -> int:
    """Explore all, print tables in Markdown; return how much was not as expected."""
    tables = Tables(bounds_of)
    slow = [*LARGE, *LARGE_DECIDING, *LARGE_COMPOSED]
    tables.scenes([*WHOLE, *DECIDING, *COMPOSED, *(slow if large else ())])
    slow_moves = [*LARGE_FOLLOWING, *LARGE_BORN, *LARGE_COLLECTING]
    for whole in [*MOVING, *FOLLOWING, *BORN, *COLLECTING, *(slow_moves if large else ())]:
        tables.scene(whole.explored(), str(whole))
    tables.at_random(everything(ALL), wander(everything(ALL), runs=WALKS * (60 if large else 1), seed=3))
    every = [*WITHOUT, *WITHOUT_COMPOSED, *WITHOUT_DECIDED]
    every += [*WITHOUT_MOVES, *WITHOUT_FOLLOWS, *WITHOUT_BIRTHS, *WITHOUT_KEEPS]
    tables.without(each for each in every if large or not each.long)
    return tables.end()


if __name__ == "__main__":
    sys.exit(bool(main("--long" in sys.argv)))
