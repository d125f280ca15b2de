"""Settling without a lock and without append, as on object stores: the scenes of an explicit-state model.

What is modelled
    `settle_store` has storage, its requests and the properties S1 to S10, `settle_steps` the processes and the rules, one
    guard each, `exploration` how all interleavings are walked. A process may stop for ever between any two requests
    (a crash), or be scheduled late (a zombie). Time is not modelled but in one scene: every delay and every age may be
    over at once, so that nothing here is safe by a clock.

What is checked
    S1  No committed record is lost: what is not settled has its entry and chunk, what is settled is in objects that exist.
    S2  None is doubled or changes its offset: the newest entry's pieces are dense and in order.
    S3  What is settled was committed, and is what was committed.
    S4  Every settle entry was built on its predecessor, nothing that was let go of comes back, the newest one is the last
        file, and what is reported as published is.
    S5  What any retained entry names is there, and what any entry names that no collector took for old enough.
    S6  A reader takes no ghost and nothing stale for the newest, hands out no record that was not committed, and never
        reports a loss.
    S7  Compaction keeps the newest record of each key, and what a tombstone deleted does not come back.
    S8  From every state one settler alone settles all that is committed.
    S9  From every state one settler, one collector and one sweeper leave nothing that is not named, and the collector
        alone nothing that was named once.
    S10 Work is not for nothing: whose pieces are still named and above the floor can publish; no merge takes the piece
        of a compaction; a compaction of hours comes to its end.

`python -m tests.model.settle_model` explores all scenes and takes out each rule, and prints tables;
`--long` adds the large bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tests.model import cases
from tests.model.cases import Bounds, Story, Tables
from tests.model.exploration import Alone, Claim, Local, Process, Scenario, process, wander
from tests.model.settle_rules import ALL, Guards, Merge, Published, has_landed
from tests.model.settle_steps import (
    Me,
    attempt,
    collect,
    collect_slowly,
    commit,
    compact,
    confirm,
    history,
    merge,
    network,
    place,
    publish,
    publish_merge,
    raise_starts,
    read_call,
    read_unsettled,
    retain,
    settle,
    split,
    sweep,
    sweep_slowly,
    touch,
    write_twice,
    zombie,
)
from tests.model.settle_store import Store, World, begun, judge, made, old

# --- What must be possible from every state -------------------------------------------------------------------------


def alone(guards: Guards, *, late: bool = False) -> tuple[Alone, ...]:
    """S8, S9."""
    guards = replace(guards, floor=True)
    settler = process("settler", settle, Me("last", guards, take=99))
    idle = process("toucher", touch, Me("toucher", guards))
    collector = process("collector", collect, Me("cleaner", guards))
    sweeps = tuple(process("sweeper", sweep, Me(f"broom{n}", guards)) for n in (1, 2))
    dropped = () if late else (Alone((settler, idle, collector), _dropped),)
    return (Alone((settler,), _unsettled), *dropped, Alone((settler, idle, collector, *sweeps), _unnamed))


def _unsettled(store: Store) -> str | None:
    missing = store.end - store.tip.settled
    return f"S8: a settler alone leaves {missing} commits unsettled" if missing else None


def _dropped(store: Store) -> str | None:
    once = {each for entry in store.chain for each in entry.named}
    left = sorted(str(each) for each in (store.objects & once) - store.tip.named)
    return f"S9: the collector alone leaves {left[0]}, which an entry named once" if left else None


def _unnamed(store: Store) -> str | None:
    left = sorted(str(each) for each in store.objects - store.tip.named)
    return f"S9: all together leave {left[0]}, which nothing names" if left else None


def can_publish(name: str, local: Local, store: Store, claims: tuple[Claim, ...]) -> str | None:
    """S10: a merge whose work is done, its pieces still named and its object above the floor, publishes."""
    if local.phase not in (attempt, place, confirm) or not isinstance(local.args[1], Merge):
        return None
    op = local.args[1]
    row = store.tip.tail if op.partition is None else store.tip.own[op.partition]
    at = row.index(op.gone[0]) if op.gone[0] in row else -1
    ready = at >= 0 and row[at : at + len(op.gone)] == op.gone and all(o.number >= store.tip.floor for o in op.made)
    if ready and not has_landed(op, store.tip) and not any(isinstance(claim, Published) for claim in claims):
        return f"S10: {name} can never publish, and nothing but a number was in its way"
    return None


# --- The scenes: functions of the guards -------------------------------------------------------------------------------


def scene(name: str, store: Store, world: World, *processes: Process, **asked: Any) -> Scenario:
    """A scenario whose arguments read in the order of a story."""
    return Scenario(name, store, processes, world, judge(world), **asked)


def one(name: str, phase: Callable[..., Any], guards: Guards, *args: Any, **more: Any) -> Process:
    """A process that obeys the guards."""
    return process(name, phase, Me(name, guards, **more), *args)


def tail_of(world: World, settled: int, commits: int) -> Store:
    """A topic with so many settled objects of one commit each."""
    return begun(old(world, *((n, n + 1) for n in range(settled))), world, own=False, commits=commits)


def settlers(guards: Guards) -> Scenario:
    """Two settlers that take one and two commits, a merge and retention."""
    world = World()
    return scene(
        "settlers", tail_of(world, 2, 4), world,
        one("A", settle, guards), one("B", settle, guards, take=2),
        one("merger", merge, guards), one("retention", retain, guards, ((0, 1),)),
        alone=alone(guards), finishes=can_publish,
    )  # fmt: skip


def two_mergers(guards: Guards) -> Scenario:
    """As `settlers`, with two merges at once."""
    world = World()
    return scene(
        "settlers, two merges", tail_of(world, 2, 4), world,
        one("A", settle, guards), one("B", settle, guards, take=2),
        one("merger", merge, guards), one("merger2", merge, guards), one("retention", retain, guards, ((0, 1),)),
        finishes=can_publish,
    )  # fmt: skip


def commits_go_on(guards: Guards) -> Scenario:
    """Two settlers settle on while records are committed and collected, and readers read them."""
    world = World()
    return scene(
        "commits", tail_of(world, 1, 2), world,
        one("A", settle, guards, rounds=2), one("B", settle, guards), one("collector", collect, guards),
        one("reader", read_unsettled, guards, rounds=2), process("commits", commit, 1), process("zombie", zombie, 1),
        alone=alone(guards),
    )  # fmt: skip


def sweeping(guards: Guards, rounds: int = 1) -> Scenario:
    """Slow settlers and a merge beside a sweeper."""
    world = World()
    return scene(
        "sweep", tail_of(world, 2, 4), world,
        one("A", settle, guards), one("B", settle, guards, take=2), one("merger", merge, guards),
        one("sweeper", sweep, guards, rounds=rounds), alone=alone(guards), finishes=can_publish,
    )  # fmt: skip


def sweeping_slowly(guards: Guards, others: int = 2) -> Scenario:
    """A sweeper that reads the retained entries one by one, beside a collector."""
    world = World()
    return scene(
        "slow sweep", tail_of(world, 2, 2), world,
        one("merger", merge, guards), one("sweeper", sweep_slowly, guards), one("collector", collect, guards),
        process("others", publish, others),
    )  # fmt: skip


def paused_merge(world: World, guards: Guards) -> tuple[Store, Process]:
    """Two objects in the tail, and a merge of them whose work was begun at entry 1 and is done."""
    store = tail_of(world, 2, 2)
    pair = store.tip.tail
    new = made(1, "merger1", 0, 2, 1, ((0, 1),) * world.partitions)
    return store, one("merger", publish_merge, guards, Merge(None, pair, new, pair))


def zombie_sweeper(guards: Guards) -> Scenario:
    """A sweeper whose entry may land as a ghost, while a merge that was begun long ago publishes."""
    world = World()
    store, merger = paused_merge(world, guards)
    return scene(
        "zombie sweeper", store, world, merger, one("sweeper", sweep, guards), one("collector", collect, guards),
        process("others", publish, 4),
    )  # fmt: skip


def ghosts(guards: Guards) -> Scenario:
    """A settler whose entry may land as a ghost below a collector."""
    world = World()
    return scene(
        "ghosts", tail_of(world, 1, 2), world,
        one("A", settle, guards), one("collector", collect, guards, rounds=2), process("others", publish, 3),
        alone=alone(guards),
    )  # fmt: skip


def ghost_merge(guards: Guards) -> Scenario:
    """A merge whose entry may land as a ghost below a collector; replies get lost."""
    world = World(lost="entry")
    return scene(
        "ghost of a merge", tail_of(world, 2, 2), world,
        one("merger", merge, guards), one("collector", collect, guards, rounds=2), process("others", publish, 4),
        alone=alone(guards), finishes=can_publish,
    )  # fmt: skip


def two_collectors(guards: Guards, others: int = 2) -> Scenario:
    """Two collectors that read entries one by one, beside a merge whose entry may land as a ghost."""
    world = World()
    return scene(
        "two collectors", tail_of(world, 2, 2), world,
        one("merger", merge, guards), one("collector", collect_slowly, guards), one("collector", collect_slowly, guards),
        process("others", publish, others), alone=alone(guards), symmetric=True,
    )  # fmt: skip


def lost_replies(guards: Guards, others: int = 2) -> Scenario:
    """A settler and a merge beside a collector, with replies that are lost: the same is put again, or read again."""
    world = World(lost="entry")
    return scene(
        "lost replies", tail_of(world, 2, 3), world,
        one("A", settle, guards), one("merger", merge, guards), one("collector", collect, guards),
        process("others", publish, others), alone=alone(guards), finishes=can_publish,
    )  # fmt: skip


def late_puts(guards: Guards) -> Scenario:
    """Entries and objects whose put the network executes later; a sweeper."""
    world = World(lost="object", network="late")
    return scene(
        "late puts", tail_of(world, 1, 2), world,
        one("A", settle, guards), one("sweeper", sweep, guards), process("others", publish, 1),
        process("network", network), alone=alone(guards, late=True),
    )  # fmt: skip


def shared(guards: Guards, others: int = 1) -> Scenario:
    """Two partitions in shared objects; retention of one of them, a merge, a collector."""
    world = World(partitions=2)
    return scene(
        "shared", tail_of(world, 2, 3), world,
        one("A", settle, guards), one("merger", merge, guards), one("retention", retain, guards, ((0, 1),)),
        one("collector", collect, guards), process("others", publish, others), alone=alone(guards), finishes=can_publish,
    )  # fmt: skip


def split_up(guards: Guards) -> Scenario:
    """The first shared object becomes own ones, beside retention of both partitions and a merge."""
    world = World(partitions=2)
    return scene(
        "split", tail_of(world, 2, 2), world,
        one("splitter", split, guards), one("merger", merge, guards),
        one("retention", retain, guards, ((0, 1), (1, 1))), one("collector", collect, guards), alone=alone(guards),
    )  # fmt: skip


def retained_late(guards: Guards) -> Scenario:
    """Retention plans more after a lost reply, under the same write id; its first put lands late, perhaps as a ghost."""
    world = World(lost="entry", network="late")
    return scene(
        "late retention", tail_of(world, 3, 3), world,
        one("retention", retain, guards, ((0, 1),)), process("delete-records", raise_starts, ((0, 2),)),
        one("collector", collect, guards, rounds=2), process("others", publish, 2), process("network", network),
    )  # fmt: skip


def readers(guards: Guards) -> Scenario:
    """A reader lists, then probes, and opens what it found, beside a merge and a collector; replies get lost."""
    world = World(lost="entry")
    return scene(
        "readers", tail_of(world, 2, 2), world,
        one("merger", merge, guards), one("collector", collect, guards), one("reader", read_call, guards, None, rounds=2),
        process("others", publish, 3),
    )  # fmt: skip


def own_pieces(keys: str, world: World, cleaned: int = 0) -> Store:
    """Own pieces of partition 0, one for each record."""
    pieces = old(world, *((n, n + 1) for n in range(len(keys))), own=True)
    return begun(pieces, world, own=True, commits=len(keys), cleaned=cleaned)


def keyed(guards: Guards, keys: str = "aaA") -> Scenario:
    """Two compactions of one partition, one of which goes twice, and a merge of the same pieces."""
    world = World(keys=keys)
    return scene(
        "keys", own_pieces(world.keys, world), world,
        one("compactor", compact, guards, world, rounds=2), one("compactor2", compact, guards, world),
        one("merger", merge, guards, 0),
    )  # fmt: skip


def keyed_lost(guards: Guards) -> Scenario:
    """A compaction that goes twice and a merge of the same pieces, with replies that are lost."""
    world = World(keys="aAb", lost="entry")
    return scene(
        "keys, lost replies", own_pieces(world.keys, world), world,
        one("compactor", compact, guards, world, rounds=2), one("merger", merge, guards, 0), finishes=can_publish,
    )  # fmt: skip


def keyed_swept(guards: Guards) -> Scenario:
    """A compaction in two pieces beside a sweeper, a collector, and a merge."""
    world = World(keys="aba")
    return scene(
        "keys, swept", own_pieces(world.keys, world), world,
        one("compactor", compact, guards, world), one("merger", merge, guards, 0),
        one("sweeper", sweep, guards), one("collector", collect, guards), finishes=can_publish,
    )  # fmt: skip


def keyed_retained(guards: Guards, keys: str = "aAb") -> Scenario:
    """A compaction and a merge of pieces that retention lets go of; a collector."""
    world = World(keys=keys)
    return scene(
        "keys, retained", own_pieces(world.keys, world), world,
        one("compactor", compact, guards, world), one("merger", merge, guards, 0),
        one("retention", retain, guards, ((0, 1), (0, 2))), one("collector", collect, guards), finishes=can_publish,
    )  # fmt: skip


def tiered(guards: Guards) -> Scenario:
    """A compaction of a full piece, a merge of small ones after it."""
    world = World(keys="aaba", full=1)
    pieces = (*old(world, (0, 2), tier=1, own=True), *old(world, (2, 3), (3, 4), own=True))
    return scene(
        "tiers", begun(pieces, world, own=True, commits=4), world,
        one("compactor", compact, guards, world, stealing_counts=True), one("merger", merge, guards, 0),
        process("others", publish, 2),
    )  # fmt: skip


def for_hours(guards: Guards) -> Scenario:
    """A compaction of three pieces, hours each, while the floor follows the newest entry."""
    world = World(keys="aaaaab", hours=2)
    pieces = old(world, (0, 2), (2, 4), (4, 6), own=True)
    return scene(
        "hours", begun(pieces, world, own=True, commits=6), world,
        one("compactor", compact, guards, world), process("others", publish, 5), must_reach=("Cleaned",),
    )  # fmt: skip


def seconds(guards: Guards, delay: int = 1, skew: int = 0, slack: int = 1) -> Scenario:
    """Files are distinguished by bytes and whole seconds; a writer puts on top of its own entry; a proxy puts twice."""
    if not guards.long_delay:
        delay, skew = 2, 1
    world = World(ticks=delay + 3, delay=delay, skew=skew)
    store = tail_of(world, 1, 1)
    return scene(
        "seconds", store, world,
        one("W", write_twice, guards, world, rounds=2), one("collector", collect, guards, slack),
        process("history", history, 3), process("network", network),
    )  # fmt: skip


def everything(guards: Guards) -> Scenario:
    """All processes at once, for random schedules."""
    world = World(partitions=2, lost="entry")
    return scene(
        "everything at once", tail_of(world, 2, 4), world,
        one("A", settle, guards, rounds=2), one("B", settle, guards, take=2), one("merger", merge, guards, rounds=2),
        one("splitter", split, guards), one("retention", retain, guards, ((0, 1), (1, 1))),
        one("sweeper", sweep, guards, rounds=2), one("sweeper2", sweep_slowly, guards),
        one("collector", collect, guards, rounds=3), one("collector2", collect, guards),
        one("reader", read_call, guards, None, rounds=3), one("reader2", read_unsettled, guards, rounds=2),
        process("others", publish, 3), process("commits", commit, 2), process("zombie", zombie, 1),
    )  # fmt: skip


# --- What is explored, and what is taken out ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole(cases.Whole):
    """A scene that must break nothing."""

    rules: ClassVar[Any] = ALL
    story: Story
    at_least: int
    reaching: str = "Published"
    bounds: Bounds = ()


@dataclass(frozen=True)
class Without(cases.Without):
    """A rule that is taken out."""

    rules: ClassVar[Any] = ALL
    rule: str
    guard: str
    value: Any
    story: Story
    breaks: str


WHOLE = [
    Whole(settlers, 50_000, "Published Dropped"),
    Whole(commits_go_on, 80_000, "Published Handed"),
    Whole(sweeping, 75_000, "Published Dropped sweep_objects"),
    Whole(sweeping_slowly, 140_000, "Published sweep_objects"),
    Whole(zombie_sweeper, 180_000, "Published sweep_objects"),
    Whole(ghosts, 2_300),
    Whole(ghost_merge, 12_000),
    Whole(two_collectors, 18_000),
    Whole(lost_replies, 110_000),
    Whole(late_puts, 20_000),
    Whole(shared, 40_000),
    Whole(split_up, 18_000),
    Whole(retained_late, 72_000),
    Whole(readers, 360_000, "Published Accepted"),
    Whole(keyed, 90_000, "Published Cleaned"),
    Whole(keyed_lost, 1_300, "Published Cleaned Dropped"),
    Whole(keyed_swept, 180_000, "Published Cleaned"),
    Whole(keyed_retained, 69_000, "Published Cleaned"),
    Whole(tiered, 3_000, "Published Cleaned"),
    Whole(for_hours, 900, "Published Cleaned"),
    Whole(seconds, 38_000),
]

LARGE = [
    Whole(two_mergers, 1_600_000, "Published Dropped"),
    Whole(sweeping, 520_000, "Published Dropped", (("rounds", 2),)),
    Whole(sweeping_slowly, 690_000, "Published", (("others", 3),)),
    Whole(two_collectors, 100_000, "Published", (("others", 3),)),
    Whole(lost_replies, 480_000, "Published", (("others", 3),)),
    Whole(shared, 240_000, "Published", (("others", 2),)),
    Whole(keyed, 150_000, "Published Cleaned", (("keys", "abaA"),)),
    Whole(seconds, 100_000, "Published", (("delay", 3), ("skew", 1))),
]

WITHOUT = [
    Without("O1", "unique_names", False, settlers, "S1"),
    Without("O2", "settled_exactly", False, settlers, "S2"),
    Without("O2", "exact_pieces", False, sweeping, "S1"),
    Without("O2", "exact_pieces", False, settlers, "S4"),
    Without("O2", "exact_pieces", False, keyed, "S7"),
    Without("O2", "every_attempt", False, commits_go_on, "S2"),
    Without("O2", "planned_again", False, settlers, "S1"),
    Without("O2", "landed_if_named", False, keyed_lost, "S7"),
    Without("O2", "draft_has_own_id", False, retained_late, "S1"),
    Without("O3", "rebase", False, settlers, "S10"),
    Without("O3", "tiers", False, tiered, "S10"),
    Without("O4", "floor", False, sweeping, "S1"),
    Without("O4", "floor_confirmed", False, zombie_sweeper, "S1"),
    Without("O4", "named_after", False, sweeping, "S1"),
    Without("O4", "names_of_all", False, zombie_sweeper, "S5"),
    Without("O4", "newest_read", "never", sweeping_slowly, "S1"),
    Without("O4", "newest_read", "last", sweeping_slowly, "S5"),
    Without("O4", "floor_checked", "first", sweeping, "S1"),
    Without("O4", "floor_checked", "never", sweeping, "S1"),
    Without("O5", "pieces", False, for_hours, "no interleaving"),
    Without("O5", "cleaned_last", False, keyed, "S7"),
    Without("O6", "ascending", False, readers, "S5"),
    Without("O6", "chain", False, ghosts, "S1"),
    Without("O6", "chain", False, ghost_merge, "S1"),
    Without("O6", "drops_first", False, ghost_merge, "S9"),
    Without("O6", "drops_of_lowest", False, ghost_merge, "S9"),
    Without("O6", "drops_of_all", True, ghost_merge, "S5"),
    Without("O6", "touch", False, ghost_merge, "S9"),
    Without("O7", "anchor", "bytes", readers, "S6"),
    Without("O7", "times_count", False, seconds, "S4"),
    Without("O7", "slow_is_asked", False, seconds, "S4"),
    Without("O7", "long_delay", False, seconds, "S4"),
    Without("O8", "anchor", "none", ghosts, "S4"),
    Without("O8", "probe_anchored", False, readers, "S6"),
    Without("O8", "listed_twice", False, readers, "S6"),
    Without("O8", "re_read", False, readers, "S6"),
    Without("O8", "unsettled_again", False, commits_go_on, "S6"),
    Without("O9", "head", False, late_puts, "S1"),
    Without("O11", "every_slice", False, shared, "S1"),
]

NOT_FORCED = [Without("O7", "attempts_differ", False, seconds, "")]
"""Rules that no scene forces: where times count and storage's clock does not step back, attempts may be alike."""


# --- The tables -----------------------------------------------------------------------------------------------------------


def bounds_of(scenario: Scenario) -> str:
    """The bounds of a scene, for the table."""
    tip, world = scenario.store.tip, scenario.world
    names = ", ".join(each.name for each in scenario.processes)
    odd = [f"replies of {world.lost} puts lost"] if world.lost else []
    odd += [f"network {world.network}"] if world.network != "prompt" else []
    odd += [f"keys {world.keys}"] if world.keys else []
    odd += [f"{world.ticks} ticks, delay {world.delay}"] if world.ticks else []
    size = f"{world.partitions} partitions, {len(tip.named)} objects, {scenario.store.end} commits"
    return "; ".join([names, size, *odd])


def main(large: bool) -> int:
    """Explore all, print tables in Markdown; return how much was not as expected."""
    tables = Tables(bounds_of)
    tables.scenes([*WHOLE, *(LARGE if large else ())])
    tables.at_random(everything(ALL), wander(everything(ALL), runs=WALKS * (10 if large else 1)))
    tables.without(WITHOUT)
    return tables.end()


WALKS = 300
"""Random schedules of everything at once."""


if __name__ == "__main__":
    sys.exit(bool(main("--long" in sys.argv)))
