"""Deciding and data together: proposers whose entries are those of the data plane, over roots that copy, learn and fail.

A proposer looks at the roots when it builds its entry; until the entry is decided, by it or by anybody, anything may
happen to them. Nothing is one step that is not one access to one root, or a look at facts that only grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model.exploration import Done, Next, Phase
from tests.model.replica_deciding import Bounds, Build, Deciding, landed
from tests.model.replica_rules import (
    Chain,
    Guards,
    appended,
    bits,
    elected,
    first_entry,
    hw_may_be,
    is_done,
    living,
    new,
)
from tests.model.replica_steps import Step, counted, may_return, seen_learned
from tests.model.replica_store import Acked, Store, World, begun as begun_data


def begun(world: World, isr: int) -> Store:
    """Roots that hold nothing, and acceptors on them that have decided nothing."""
    return begun_data(world, first_entry(isr))._replace(deciding=Deciding())


def known(guards: Guards, store: Store, place: int) -> int:
    """What a root is known to have learned: who counts has synced its directory, here before."""
    return store.roots[place].synced if guards.counted_synced else store.roots[place].learned


def chunks(guards: Guards, store: Store, place: int) -> int:
    """The chunks that a root is known to have."""
    return store.roots[place].kept if guards.counted_synced else store.roots[place].chunks


def append(guards: Guards, batch: int, acks: str) -> Build:
    """The append of a batch, by where its chunk is."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        if guards.id_judged and is_done(guards, base[-1], batch, world.writers):
            return None
        if not world.room(store, "append"):
            return "has no room"
        on = sum(1 << r for r in counted(guards, store) if chunks(guards, store, r) >> batch & 1)
        named = store.named[batch] if guards.on_each_attempt else 99
        longer = appended(
            guards, base, batch, on, acks_all=acks == "all", writers=world.writers, isr=base[-1].isr, named=named
        )
        return longer or "is refused"

    return build


def election(guards: Guards, place: int) -> Build:
    """The election of a root, by what it has learned."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        if base[-1].leader == place:
            return None
        if place not in counted(guards, store) or not world.room(store, "elect"):
            return "can't be elected"
        return elected(guards, base, place, known(guards, store, place), len(base)) or "is refused"

    return build


def high_watermark(guards: Guards) -> Build:
    """How far all of the ISR have learned."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        isr = base[-1].isr
        learned = [known(guards, store, r) if r in counted(guards, store) else 0 for r in range(3) if isr >> r & 1]
        most = min(*learned, len(base) - 1) if len(learned) > 1 else min(learned[0], len(base) - 1)
        number = max((n for n in range(base[-1].hw + 1, most + 1) if hw_may_be(guards, base, n)), default=0)
        if not number or not world.room(store, "hw"):
            return "has nothing to state"
        return new(base, "hw", hw=number)

    return build


def shrink(guards: Guards, place: int) -> Build:
    """A root is taken out."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        if not base[-1].isr >> place & 1 or base[-1].leader == place:
            return None
        return new(base, "shrink", isr=base[-1].isr & ~(1 << place))

    return build


def joining(guards: Guards, place: int) -> Build:
    """A root begins to join."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        if (base[-1].isr | base[-1].joining) >> place & 1:
            return "is a member"
        return new(base, "joining", joining=base[-1].joining | 1 << place)

    return build


def join(guards: Guards, place: int) -> Build:
    """A root that joins comes into the ISR, by what it has learned."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        if base[-1].isr >> place & 1:
            return None
        ready = place in counted(guards, store) and store.roots[place].synced >= (
            len(base) - 1 if guards.join_base else base[-1].hw
        )
        if not base[-1].joining >> place & 1 or not ready:
            return "is not ready"
        return new(base, "join", isr=base[-1].isr | 1 << place, joining=base[-1].joining & ~(1 << place))

    return build


def floor(guards: Guards) -> Build:
    """The floor rises to the newest entry."""

    def build(store: Store, world: World, base: Chain) -> Chain | str | None:
        return new(base, "sweep", floor=len(base) - 1) if base[-1].floor < len(base) - 1 else "has nothing to raise"

    return build


def acknowledge(guards: Guards, batch: int, patient: bool = False) -> Phase:
    """A writer with acks=all: what the roots have learned, then the head (which `replica_deciding` reads).

    It tries once, at any time: to try in vain before changes nothing. A patient one tries when all of the ISR have
    learned the entry, so that random schedules come to it.
    """

    def learned(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        number = living(store.chain, batch)
        behind = [r for r in bits(store.chain[-1].isr) if number is None or store.roots[r].learned < number]
        if number is not None and not (patient and behind):
            yield from seen_learned(guards, store, number)

    def head(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        verdict = may_return(guards, store.chain, world.min_insync, batch, seen)
        yield store, verdict, f"the head is {len(store.chain) - 1}: {store.chain[-1]}"

    seen = yield Step(f"batch {batch} waits", learned)
    verdict = yield Step(f"batch {batch} reads the head", head)
    return Done(Acked(batch) if verdict else None)


def network(bounds: Bounds) -> Phase:
    """A late put lands."""

    def ways(store: Store, world: World) -> Iterator[tuple[Store, Any, str]]:
        if store.deciding.flying is not None:
            yield landed(store), None, "a late put lands"

    yield Step("network", ways)
    return Next(network, (bounds,))
