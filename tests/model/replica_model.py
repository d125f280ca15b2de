"""Replicas: the scenes of explicit-state models of the protocol in docs/explanation/design/replication.md.

What is modelled
    `replica_rules` has what an entry may be, `replica_store` storage and the properties C1 to C9, `replica_steps` the
    processes, `exploration` how all interleavings are walked. A process may stop for ever between any two steps
    (a crash), or be scheduled late (a zombie); time is not modelled.

`replica_model_decided` has the scenes in which three metadata roots decide, and prints the tables of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.model import cases
from tests.model.cases import Bounds, Story
from tests.model.exploration import Process, Scenario, process
from tests.model.replica_rules import ALL, Guards, first_entry
from tests.model.replica_steps import anybody, change_isr, elect, fails, raise_hw, write
from tests.model.replica_store import World, begun, judge

ABC, AB = 7, 3


def most(**bounds: int) -> tuple[tuple[str, int], ...]:
    """How many entries of each kind there may be."""
    return tuple(bounds.items())


def scene(
    name: str, guards: Guards, world: World, isr: int = ABC, lost: int = 0, extra: tuple[Process, ...] = ()
) -> Scenario:
    """A scene with the processes that its bounds leave something to do."""
    store = begun(world, first_entry(isr))._replace(lost=lost)
    processes = [process("anybody", anybody, guards)]
    for batch, acks in enumerate(world.acks):
        processes += [process(f"writer of {batch}", write, guards, batch, each) for each in acks.split("+")]
    if world.bound("hw"):
        processes.append(process("hw", raise_hw, guards))
    if world.bound("join") or world.bound("shrink"):
        processes.append(process("isr", change_isr, guards))
    if world.bound("elect"):
        processes.append(process("elector", elect, guards))
    if world.losses or world.power or world.copies or world.unclean:
        processes.append(process("failure", fails, guards))
    return Scenario(name, store, (*processes, *extra), world, judge(guards, world))


def void(guards: Guards, roots: int = AB, length: int = 5) -> Scenario:
    """Two writers; the leader is lost; what it had alone becomes void."""
    world = World((0, 1), ("1", "all"), length, most(append=2, hw=1, elect=1), stage_on=roots)
    return scene("void", guards, world, roots, ABC & ~roots)


def retried(guards: Guards, length: int = 5) -> Scenario:
    """A batch with acks=1, and its retry, which waits as with acks=all."""
    world = World((0,), ("1+all",), length, most(append=2, hw=1, elect=2), losses=0, stage_on=AB)
    return scene("retried", guards, world, AB, 4)


def pipeline(guards: Guards, length: int = 6) -> Scenario:
    """A writer with two batches under way, the first of which is tried twice."""
    world = World((0, 0), ("1+1", "1"), length, most(append=3, elect=1), losses=1, stage_on=AB)
    return scene("pipeline", guards, world, AB, 4)


def pipeline_all(guards: Guards, length: int = 5) -> Scenario:
    """A writer with two batches under way, with acks=all."""
    world = World((0, 0), ("all", "all"), length, most(append=2, elect=1), losses=0, stage_on=AB)
    return scene("pipeline, acks=all", guards, world, AB, 4)


def two_elections(guards: Guards, length: int = 6) -> Scenario:
    """Two elections of three roots, and a batch that is tried again between them."""
    world = World((0,), ("1+1",), length, most(append=2, elect=2), losses=0)
    return scene("two elections", guards, world, ABC)


def in_sync(guards: Guards, length: int = 5, roots: int = AB) -> Scenario:
    """A third root joins, another is taken out, beside acks=all and the high watermark."""
    world = World((0,), ("all",), length, most(append=1, hw=1, joining=1, join=1, shrink=1), losses=1, min_insync=2)
    return scene("in sync", guards, world, roots)


def shrinking(guards: Guards, length: int = 4, roots: int = ABC) -> Scenario:
    """A root is taken out and another, or itself, is elected."""
    world = World((0,), ("all",), length, most(append=1, shrink=1, elect=1), losses=1, stage_on=roots)
    return scene("shrinking", guards, world, roots, ABC & ~roots)


def shrinking_one(guards: Guards, length: int = 4) -> Scenario:
    """A root is taken out while the leader alone has what was written; the leader is lost."""
    world = World((0,), ("1",), length, most(append=1, shrink=1, elect=1), losses=1, stage_on=1)
    return scene("shrinking, acks=1", guards, world)


def joining(guards: Guards, length: int = 6) -> Scenario:
    """A root joins, and is elected."""
    world = World((0,), ("1",), length, most(append=1, hw=1, joining=1, join=1, elect=1), losses=1)
    return scene("joining", guards, world, 1, 4)


def joining_all(guards: Guards, length: int = 6) -> Scenario:
    """A root joins beside acks=all, and is elected."""
    world = World((0,), ("all",), length, most(append=1, joining=1, join=1, elect=1), losses=1)
    return scene("joining, acks=all", guards, world, 1, 4)


def settling(guards: Guards, length: int = 6) -> Scenario:
    """Two roots settle and collect beside an election; a batch that became void is tried again."""
    world = World(
        (0,), ("1+all",), length, most(append=2, hw=2, elect=1), losses=1, settles=True, collects=True, stage_on=AB
    )
    return scene("settling", guards, world, AB, 4)


def sweeping(guards: Guards, length: int = 6) -> Scenario:
    """The floor rises and roots sweep, beside a paused writer and an election."""
    world = World((0,), ("1+1",), length, most(append=2, elect=1, sweep=1), losses=0, sweeps=True, stage_on=AB)
    return scene("sweeping", guards, world, AB, 4)


def files(guards: Guards, length: int = 5) -> Scenario:
    """An alteration whose state names a file."""
    world = World((0,), ("1",), length, most(append=1, hw=1, elect=1, alter=1), stage_on=AB)
    return scene("files", guards, world, AB, 4)


def one_metadata_root(guards: Guards, length: int = 5) -> Scenario:
    """The leader's own journal is the chain; it is lost, and the metadata is recovered on another root."""
    world = World((0, 1), ("all", "1"), length, most(append=2, hw=1, elect=1), metadata=0, stage_on=AB)
    return scene("one metadata root", guards, world, AB, 4)


def recovery(guards: Guards, length: int = 6) -> Scenario:
    """The one metadata root is lost after an election, a batch of which is tried again."""
    world = World((0,), ("1+all",), length, most(append=2, hw=1, elect=2), metadata=0)
    return scene("recovery", guards, world)


def catching_up(guards: Guards, length: int = 7) -> Scenario:
    """A root that lags is taken out, starts over with another's segments, joins and is elected."""
    world = World((0,), ("1",), length, most(append=1, hw=1, shrink=1, joining=1, join=1, elect=1), losses=0,
                  settles=True, collects=True, starts=1, learn_on=AB, stage_on=AB)  # fmt: skip
    return scene("catching up", guards, world, AB, 4)


def second_life(guards: Guards, length: int = 5) -> Scenario:
    """A root starts over while a writer remembers what its old life had."""
    world = World(
        (0,), ("1",), length, most(append=1, shrink=1, joining=1, join=1), losses=1, starts=1, learn_on=AB, stage_on=AB
    )
    return scene("second life", guards, world, AB, 4)


def collecting(guards: Guards, length: int = 6) -> Scenario:
    """Two roots and the metadata collect entries that were no appends, beside a root that joins."""
    world = World(
        (0,), ("1",), length, most(append=1, hw=1, touch=3), losses=0, settles=True, collects=True, stage_on=AB
    )
    return scene("collecting", guards, world, AB, 4)


def power(guards: Guards, length: int = 4) -> Scenario:
    """A root loses power: what was not synced is gone."""
    world = World((0,), ("all",), length, most(append=1, hw=1, elect=1), losses=0, power=1, stage_on=AB)
    return scene("power", guards, world, AB, 4)


def restored(guards: Guards, length: int = 6) -> Scenario:
    """A root joins, comes back as of a copy, and is elected."""
    world = World((0,), ("all",), length, most(append=1, joining=1, join=1, elect=1), losses=0, copies=1, stage_on=AB)
    return scene("restored", guards, world, 1, 4)


def recovered_isr(guards: Guards, length: int = 5) -> Scenario:
    """A root is taken out, then the one metadata root is lost; the journal that is left does not know of it."""
    world = World((0,), ("1",), length, most(append=1, shrink=1, elect=1), metadata=0, stage_on=1)
    return scene("recovered ISR", guards, world, ABC)


def uncleanly(guards: Guards, length: int = 6) -> Scenario:
    """A root that is not in the ISR is elected by hand; what it lacks is void for ever."""
    world = World(
        (0, 1),
        ("1", "1"),
        length,
        most(append=2, hw=1, shrink=1, unclean=1),
        losses=0,
        settles=True,
        unclean=True,
        stage_on=AB,
    )
    return scene("unclean", guards, world, AB, 4)


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole(cases.Whole):
    """A scene that must break nothing."""

    rules: ClassVar[Any] = ALL
    story: Story
    at_least: int
    bounds: Bounds = ()


@dataclass(frozen=True)
class Without(cases.Without):
    """A rule that is taken out; `long`: the scene takes long."""

    rules: ClassVar[Any] = ALL
    rule: str
    guard: str
    story: Story
    breaks: str
    bounds: Bounds = ()
    long: bool = False
    value: Any = False

    @property
    def taken_out(self) -> str:
        """Return the rule's name: it holds, or does not."""
        return self.guard


WHOLE = [
    Whole(void, 26_000, (("length", 4),)),
    Whole(retried, 4_000),
    Whole(pipeline, 18_000),
    Whole(pipeline_all, 2_900),
    Whole(shrinking_one, 7_600),
    Whole(joining_all, 6_100),
    Whole(sweeping, 3_300),
    Whole(files, 6_900),
    Whole(one_metadata_root, 18_000),
    Whole(recovered_isr, 3_000),
    Whole(power, 3_500),
    Whole(second_life, 5_200),
]

LARGE = [
    Whole(void, 39_000),
    Whole(two_elections, 84_000),
    Whole(shrinking, 52_000),
    Whole(joining, 12_000),
    Whole(in_sync, 830_000),
    Whole(settling, 656_000, (("length", 5),)),
    Whole(collecting, 106_000),
    Whole(recovery, 840_000),
    Whole(uncleanly, 115_000, (("length", 5),)),
    Whole(restored, 47_000),
    Whole(catching_up, 670_000, (("length", 4),)),
]

WITHOUT = [
    Without("2", "on_leader", void, "C8"),
    Without("2", "on_isr", pipeline_all, "C1"),
    Without("2", "on_metadata", one_metadata_root, "C7"),
    Without("2", "on_each_attempt", sweeping, "C7"),
    Without("2", "id_judged", retried, "C6"),
    Without("2", "rows_hold_last", pipeline, "C6"),
    Without("2", "in_order", pipeline, "C6"),
    Without("2", "files_on_isr", files, "C8"),
    Without("2", "ack_not_void", retried, "C1"),
    Without("2", "ack_all_learned", one_metadata_root, "C1"),
    Without("2", "ack_own_or_hw", retried, "C1"),
    Without("2", "ack_min_insync", in_sync, "C9"),
    Without("3", "hw_learned", one_metadata_root, "C2"),
    Without("3", "hw_not_past_election", recovery, "C2", long=True),
    Without("3", "hw_of_rest", shrinking_one, "C8"),
    Without("3", "hw_of_settled", catching_up, "C2"),
    Without("3", "read_below_hw", void, "C2"),
    Without("3", "settle_below_hw", settling, "C4"),
    Without("4", "join_base", joining_all, "C1"),
    Without("5", "elect_from_isr", shrinking, "C1"),
    Without("5", "elect_on_base", void, "C8"),
    Without("5", "elect_looked_after_base", joining_all, "C1"),
    Without("5", "elect_voids_all", pipeline, "C8"),
    Without("5", "void_stays", two_elections, "C7"),
    Without("5", "rows_go_back", retried, "C6"),
    Without("learning", "learn_whole", void, "C7"),
    Without("learning", "learn_void", void, "C8"),
    Without("learning", "copy_synced", power, "C7"),
    Without("learning", "counted_synced", power, "C3"),
    Without("7", "collect_learned", collecting, "C8"),
    Without("7", "collect_settled", settling, "C2", long=True),
    Without("7", "collect_not_void", settling, "C7", long=True),
    Without("7", "floor_checked", sweeping, "C7"),
    Without("7", "floor_learned", sweeping, "C7"),
    Without("7", "sweep_unnamed", sweeping, "C7"),
    Without("7", "catch_up_settled", catching_up, "C7"),
    Without("7", "catch_up_whole", catching_up, "C"),
    Without("8", "unclean_waited_for", uncleanly, "C2"),
    Without("10", "recover_by_files", recovery, "C7"),
    Without("10", "recover_alone", recovered_isr, "C2"),
    Without("10", "recover_copied", recovery, "C7"),
    Without("10", "recover_longest", recovery, "C2", long=True),
    Without("11", "one_life", second_life, "C8"),
    Without("11", "restored_out", restored, "C1", long=True),
]

NOT_FORCED = [
    Without("2", "ack_head_last", retried, ""),
    Without("3", "hw_of_base", in_sync, "", (("length", 4),), long=True),
    Without("3", "voids_at_hw", void, "", (("length", 4),), long=True),
    Without("7", "collect_below_hw", collecting, "", long=True),
]
"""Rules that no scene forces while the others hold; see the page."""


def bounds_of(scenario: Scenario) -> str:
    """The bounds of a scene, for the table."""
    world = scenario.world
    entries = ", ".join(f"{many} {kind}" for kind, many in world.most)
    odd = [f"{len(world.writers)} batches (acks {', '.join(world.acks)})", f"chain of {world.length}: {entries}"]
    odd += [f"{many} {what}" for what, many in (("losses", world.losses), ("power losses", world.power),
            ("copies", world.copies), ("starts over", world.starts)) if many]  # fmt: skip
    odd += [what for what in ("settles", "collects", "sweeps") if getattr(world, what)]
    names = ", ".join(dict.fromkeys(each.name for each in scenario.processes))
    return "; ".join([names, *(odd if world.length else [])])
