"""What processes do to a replicated topic: writers, learners, electors, collectors, and what fails.

Whoever decides does so in two steps: it looks what the roots have, then puts its entry. Between the
two anything may happen, so that what it saw may be old. What nobody remembers anything for is done by `anybody`, in one
step each. The chain is decided by one step here; `replica_deciding` has the steps that this stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.exploration import Done, Next, Outcome, Phase
from tests.model.replica_rules import (
    Chain,
    Guards,
    appended,
    bits,
    elected,
    elected_uncleanly,
    hw_may_be,
    is_done,
    is_void,
    living,
    names,
    needed,
    new,
    rows_of,
)
from tests.model.replica_store import (
    COPY,
    FILE,
    LOSE,
    POWER,
    RESTORE,
    ROOTS,
    START,
    Acked,
    Broken,
    Root,
    Store,
    World,
    has_data,
    high_watermark,
    is_restored,
    kept_by_metadata,
    spend,
    visible,
    voids_at,
)

Ways = Iterator[tuple[Store, Any, str]]


@dataclass(frozen=True)
class Step:
    """One atomic step, and all ways that it may go."""

    what: str
    ways: Callable[[Store, World], Ways]

    def outcomes(self, store: Any, world: Any) -> Iterator[Outcome]:
        """One for each way."""
        for after, observed, note in self.ways(store, world):
            yield Outcome(after, observed, note)

    def __str__(self) -> str:
        return self.what


def letter(place: int) -> str:
    """The name of a root."""
    return names(1 << place)


def decided(guards: Guards, store: Store, world: World, chain: Chain) -> Store:
    """The store after an entry is decided; the one metadata root has it by that."""
    store = store._replace(chain=chain)
    if world.metadata < 0:
        return store
    place = metadata_root(store, world)
    return store.root(place, store.roots[place]._replace(learned=len(chain) - 1, synced=len(chain) - 1))


def metadata_root(store: Store, world: World) -> int:
    """The one metadata root: the first, or what `recover` made it."""
    moved = [entry.leader for entry in store.chain if entry.kind == "recover"]
    return moved[-1] if moved else world.metadata


# --- What was seen ---------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What a process saw of the roots: a number, the roots for which it holds, when, and which lives they had."""

    number: int
    roots: int
    length: int = 0
    isr: int = 0
    lives: tuple[int, ...] = ()


def stamp(chain: Chain) -> int:
    """What tells two heads apart: the number, and how often the metadata was recovered."""
    return len(chain) + 100 * sum(entry.kind == "recover" for entry in chain)


def lives_of(store: Store, world: World) -> tuple[int, ...]:
    """The lives of all roots, where there may be new ones."""
    return tuple(root.life for root in store.roots) if world.starts else ()


def same_lives(guards: Guards, store: Store, seen: Seen) -> int:
    """Of the roots that were seen, those that still are what they were."""
    if not guards.one_life or not seen.lives:
        return seen.roots
    return seen.roots & sum(1 << r for r in ROOTS if store.roots[r].life == seen.lives[r])


def counted(guards: Guards, store: Store) -> tuple[int, ...]:
    """The roots that are asked: they answer, and were not found to be restored."""
    return tuple(r for r in store.live if not is_restored(guards, store, r))


def synced(guards: Guards, store: Store, places: tuple[int, ...], batch: int | None = None) -> Store:
    """The store after the directories of these roots were synced by who looks there."""
    if not guards.counted_synced:
        return store
    for place in places:
        root = store.roots[place]
        kept = root.kept | (root.chunks & 1 << batch) if batch is not None else root.kept
        store = store.root(place, root._replace(synced=root.learned if batch is None else root.synced, kept=kept))
    return store


# --- Writers ---------------------------------------------------------------------------------------------------------


def write(guards: Guards, batch: int, acks: str) -> Phase:
    """A writer looks where its chunk is; its tasks, or whoever copies, put it there (`anybody`)."""

    def ways(store: Store, world: World) -> Ways:
        base = store.chain[-1]
        if is_done(guards, base, batch, world.writers) and guards.id_judged:
            if acks == "all" and living(store.chain, batch) is not None:
                yield store, "done", f"batch {batch} is there already"
            return
        there = tuple(r for r in counted(guards, store) if store.roots[r].chunks >> batch & 1)
        on = sum(1 << r for r in there)
        if on:
            after = synced(guards, store, there, batch)
            length, isr = (0, 0) if guards.on_each_attempt else (len(store.chain), base.isr)
            yield after, Seen(base.floor, on, length, isr, lives_of(store, world)), f"its chunk is on {names(on)}"

    seen = yield Step(f"batch {batch} acks={acks} looks", ways)
    if seen == "done":
        return Next(wait, (guards, batch, acks))
    return Next(put, (guards, batch, acks, seen))


def put(guards: Guards, batch: int, acks: str, seen: Seen) -> Phase:
    """It puts its entry on the newest one."""

    def ways(store: Store, world: World) -> Ways:
        chain = store.chain
        on = same_lives(guards, store, seen)
        named = store.named[batch] if guards.on_each_attempt else 99
        isr = chain[-1].isr if guards.on_each_attempt else seen.isr
        if guards.on_metadata and world.metadata >= 0 and not on >> metadata_root(store, world) & 1:
            yield store, None, "not on the metadata root"
        elif world.room(store, "append") and (
            longer := appended(
                guards, chain, batch, on, acks_all=acks == "all", writers=world.writers, isr=isr, named=named
            )
        ):
            yield decided(guards, store, world, longer), len(chain), f"{len(chain)}: {longer[-1]}"
        else:
            yield store, None, "refused"

    number = yield Step(f"batch {batch} acks={acks} is put", ways)
    if number is None:
        return Next(write, (guards, batch, acks))
    return Next(wait, (guards, batch, acks)) if acks == "all" else Done()


def wait(guards: Guards, batch: int, acks: str) -> Phase:
    """A writer with acks=all waits: it looks what the roots have learned, then reads the head, and may return."""

    def learned(store: Store, world: World) -> Ways:
        number = next((n for n, e in enumerate(store.chain) if e.kind == "append" and e.batch == batch and
                       (not guards.ack_not_void or not is_void(store.chain, n))), None)  # fmt: skip
        if number is None:
            yield store, None, "its append is void"
            return
        yield from seen_learned(guards, store, number)

    def head(store: Store, world: World) -> Ways:
        yield store, (store.chain, world.min_insync), f"the head is {len(store.chain) - 1}: {store.chain[-1]}"

    def enough(store: Store, world: World) -> Ways:
        verdict = may_return(guards, store.chain, world.min_insync, batch, seen)
        yield store, verdict, f"the head is {len(store.chain) - 1}: {store.chain[-1]}"

    if guards.ack_head_last:
        seen = yield Step(f"batch {batch} waits", learned)
        verdict = seen and (yield Step(f"batch {batch} reads the head", enough))
    else:
        chain, least = yield Step(f"batch {batch} reads the head", head)
        seen = yield Step(f"batch {batch} waits", learned)
        verdict = seen and may_return(guards, chain, least, batch, seen)
    if not verdict:
        return Next(write if seen is None else wait, (guards, batch, acks))
    return Done(Acked(batch))


def seen_learned(guards: Guards, store: Store, number: int) -> Ways:
    """Which roots have learned an entry; who counts them has synced their directories."""
    there = tuple(r for r in counted(guards, store) if store.roots[r].learned >= number)
    mask = sum(1 << r for r in there)
    if mask or not guards.ack_all_learned:
        yield synced(guards, store, there), Seen(number, mask), f"entry {number} is learned by {names(mask)}"


def may_return(guards: Guards, chain: Chain, min_insync: int, batch: int, seen: Seen) -> bool:
    """Whether a writer with acks=all may return, by the head that it read (rule 2)."""
    head, number = chain[-1], seen.number
    if number >= len(chain) or chain[number].batch != batch:
        return False
    if guards.ack_not_void and is_void(chain, number):
        return False
    if guards.ack_min_insync and head.isr.bit_count() < min_insync:
        return False
    if guards.ack_own_or_hw and chain[number - 1].isr & ~chain[number].on and head.hw < number:
        return False
    return not guards.ack_all_learned or not head.isr & ~seen.roots


# --- Who raises the high watermark, changes the ISR, elects -------------------------------------------------------------


def raise_hw(guards: Guards) -> Phase:
    """Anybody's entry states how far all of the ISR have learned (rule 3)."""

    def look(store: Store, world: World) -> Ways:
        if not world.room(store, "hw"):
            return
        for number in range(store.chain[-1].hw + 1, len(store.chain)):
            on = 0 if guards.hw_learned else store.chain[number].on
            there = tuple(r for r in counted(guards, store) if store.roots[r].learned >= number or on >> r & 1)
            mask = sum(1 << r for r in there)
            if not store.chain[-1].isr & ~mask:
                isr = store.chain[-1].isr if not guards.hw_of_base else 0
                yield synced(guards, store, there), Seen(number, mask, 0, isr, lives_of(store, world)), f"{number} is on {names(mask)}"  # fmt: skip

    def put(store: Store, world: World) -> Ways:
        base, mask = store.chain[-1], same_lives(guards, store, seen)
        isr = base.isr if guards.hw_of_base else seen.isr
        fits = base.hw < seen.number < len(store.chain) and hw_may_be(guards, store.chain, seen.number)
        if fits and world.room(store, "hw") and not isr & ~mask:
            longer = new(store.chain, "hw", hw=seen.number)
            yield decided(guards, store, world, longer), None, f"{len(store.chain)}: hw is {seen.number}"
        else:
            yield store, None, "refused"

    seen = yield Step("hw: looks", look)
    yield Step("hw: puts", put)
    return Next(raise_hw, (guards,))


def change_isr(guards: Guards) -> Phase:
    """Roots are taken out, begin to join, join (rule 4)."""

    def look(store: Store, world: World) -> Ways:
        yield from shrunk(guards, store, world)
        base = store.chain[-1]
        for place in counted(guards, store):
            if base.isr >> place & 1:
                continue
            if not base.joining >> place & 1:
                if world.room(store, "joining"):
                    longer = new(store.chain, "joining", joining=base.joining | 1 << place)
                    yield decided(guards, store, world, longer), None, f"{len(store.chain)}: {letter(place)} joins"
            elif world.room(store, "join"):
                after = synced(guards, store, (place,))
                learned = store.roots[place].learned
                seen = Seen(learned, 1 << place, len(store.chain), 0, lives_of(store, world))
                yield after, seen, f"{letter(place)} has learned {learned}"

    def put(store: Store, world: World) -> Ways:
        base, mask = store.chain[-1], same_lives(guards, store, seen)
        enough = seen.number >= (len(store.chain) - 1 if guards.join_base else base.hw)
        if mask and base.joining & mask and enough and world.room(store, "join"):
            longer = new(store.chain, "join", isr=base.isr | mask, joining=base.joining & ~mask)
            yield decided(guards, store, world, longer), None, f"{len(store.chain)}: {names(mask)} into the ISR"
        else:
            yield store, None, "refused"

    seen = yield Step("isr: looks", look)
    if seen is not None:
        yield Step("isr: puts", put)
    return Next(change_isr, (guards,))


def shrunk(guards: Guards, store: Store, world: World) -> Ways:
    """A root is taken out; the entry may raise the high watermark over what the rest has learned."""
    base, chain = store.chain[-1], store.chain
    if not world.room(store, "shrink"):
        return
    for place in bits(base.isr | base.joining):
        if place == base.leader:
            continue
        rest, joining = base.isr & ~(1 << place), base.joining & ~(1 << place)
        behind = min((store.roots[r].learned if r in counted(guards, store) else 0) for r in bits(rest))
        over = max((m for m in range(base.hw, behind + 1) if hw_may_be(guards, chain, m)), default=base.hw)
        over = over if guards.hw_of_rest else len(chain) - 1
        for hw in sorted({base.hw, over}) if base.isr >> place & 1 else [base.hw]:
            after = synced(guards, store, tuple(bits(rest))) if hw > base.hw else store
            longer = new(chain, "shrink", isr=rest, joining=joining, hw=max(hw, base.hw))
            yield decided(guards, after, world, longer), None, f"{len(chain)}: {letter(place)} is taken out, hw is {hw}"


def elect(guards: Guards) -> Phase:
    """Whoever finds the leader gone looks what another root has learned, and puts an election (rule 5)."""

    def look(store: Store, world: World) -> Ways:
        base = store.chain[-1]
        for place in counted(guards, store) if world.room(store, "elect") else ():
            if place != base.leader and (
                base.isr >> place & 1 or not guards.elect_from_isr or base.joining >> place & 1 or base.kind == "shrink"
            ):
                learned = store.roots[place].learned
                seen = Seen(learned, 1 << place, stamp(store.chain), 0, lives_of(store, world))
                yield synced(guards, store, (place,)), seen, f"{letter(place)} has learned {learned}"

    def put(store: Store, world: World) -> Ways:
        chain, mask = store.chain, same_lives(guards, store, seen)
        late = guards.elect_on_base and guards.elect_looked_after_base and stamp(chain) != seen.length
        longer = None
        if mask and not late and world.room(store, "elect"):
            place = mask.bit_length() - 1
            longer = elected(guards, chain, place, seen.number, seen.length % 100)
        if longer:
            yield decided(guards, store, world, longer), None, f"{len(chain)}: {longer[-1]}"
        else:
            yield store, None, "refused"

    seen = yield Step("elector looks", look)
    yield Step("elector puts", put)
    return Next(elect, (guards,))


# --- What nobody remembers anything for -----------------------------------------------------------------------------------


def anybody(guards: Guards) -> Phase:
    """Stage, copy, learn, sync, settle, collect, sweep, start over: one step each, by whoever comes along."""

    def ways(store: Store, world: World) -> Ways:
        for place in store.live:
            yield from staged(guards, store, world, place)
            yield from learns(guards, store, world, place)
            if world.power and store.deciding is not None:
                yield from syncs(store, place)
            if world.settles:
                yield from settles(guards, store, place)
            if world.collects:
                yield from collects(guards, store, place)
            if world.sweeps:
                yield from sweeps(guards, store, world, place)
        if world.collects and store.held >= 0:
            yield from metadata_collects(guards, store)
        if world.starts > store.spent[START]:
            yield from starts_over(guards, store, world)
        yield from decides(guards, store, world)

    yield Step("anybody", ways)
    return Next(anybody, (guards,))


def staged(guards: Guards, store: Store, world: World, place: int) -> Ways:
    """A chunk is put on a root by its writer's tasks, or copied there from another root."""
    root, base = store.roots[place], store.chain[-1]
    for batch in world.batches:
        here = root.chunks >> batch & 1 or batch in root.settled
        exists = store.named[batch] >= 0
        source = not exists or any(store.roots[r].chunks >> batch & 1 for r in store.live)
        if here or not source or not (base.isr | base.joining) & world.stage_on >> place & 1:
            continue
        if exists and store.named[batch] < base.floor:
            continue
        number = store.named[batch] if exists else (len(store.chain) - 1 if world.sweeps else 0)
        after = store._replace(named=(*store.named[:batch], number, *store.named[batch + 1 :]))
        chunks = root.chunks | 1 << batch
        if world.power:
            yield after.root(place, root._replace(chunks=chunks)), None, f"chunk {batch} on {letter(place)}, not synced"
        kept = root.kept | 1 << batch
        yield after.root(place, root._replace(chunks=chunks, kept=kept)), None, f"chunk {batch} on {letter(place)}"


def learns(guards: Guards, store: Store, world: World, place: int) -> Ways:
    """The next entry is put into a root's `journal/`, once its chunk is there."""
    root, chain = store.roots[place], store.chain
    number = root.learned + 1
    if number >= len(chain) or is_restored(guards, store, place) or not world.learn_on >> place & 1:
        return
    sources = [r for r in store.live if store.roots[r].first <= number <= store.roots[r].learned]
    if not sources and not kept_by_metadata(store, number):
        return
    entry = chain[number]
    need, got, kept = needed(entry), root.chunks, root.kept
    void = guards.learn_void and is_void(chain, number)
    if need and not void and guards.learn_whole and not (entry.kind == "append" and entry.batch in root.settled):
        if not any(has_data(store, r, entry.batch) for r in store.live):
            return
        got |= need
        kept |= need if guards.copy_synced else root.kept
    if not world.power:
        kept = got
    whole = root._replace(learned=number, chunks=got, kept=kept, synced=number)
    yield store.root(place, whole), None, f"{letter(place)} learns {number}"
    if world.power:
        yield (
            store.root(place, whole._replace(synced=root.synced)),
            None,
            f"{letter(place)} learns {number}, not synced",
        )


def syncs(store: Store, place: int) -> Ways:
    """A root's directories are synced by who counts what is in them."""
    root = store.roots[place]
    if (root.synced, root.kept) != (root.learned, root.chunks):
        yield (
            store.root(place, root._replace(synced=root.learned, kept=root.chunks)),
            None,
            f"{letter(place)} is synced",
        )


def settles(guards: Guards, store: Store, place: int) -> Ways:
    """A root settles what readers see, or, without the rule, what it has learned."""
    root = store.roots[place]
    to = high_watermark(guards, store, place)
    if not guards.settle_below_hw:
        to = root.learned
    if to <= root.through:
        return
    chain = store.chain
    if guards.settle_below_hw:
        try:
            log = visible(guards, store, place)
        except Broken:
            return
        if len(log) < chain[to].end:
            return
    else:
        voids = voids_at(guards, chain, root.learned, root.learned)
        log = tuple(-1 if voids >> n & 1 else e.batch for n, e in enumerate(chain[: to + 1]) if e.kind == "append")
    after = root._replace(settled=log, through=to)
    yield store.root(place, after), None, f"{letter(place)} settles {log} through {to}"


def may_collect(guards: Guards, store: Store, number: int) -> bool:
    """Whether all that the newest entry counts on have learned an entry (rule 7)."""
    members = store.chain[-1].isr | store.chain[-1].joining
    behind = [r for r in bits(members) if store.lost >> r & 1 or store.roots[r].learned < number]
    return not guards.collect_learned or not behind


def collects(guards: Guards, store: Store, place: int) -> Ways:
    """A root deletes its oldest entry and, if it lives, its chunk."""
    root, chain = store.roots[place], store.chain
    number = root.first
    hw = chain[root.synced].hw
    if number + 1 >= root.learned or (guards.collect_below_hw and number >= hw):
        return
    if (guards.collect_settled and number > root.through) or not may_collect(guards, store, number):
        return
    entry, chunks = chain[number], root.chunks
    void = chain[max(hw, root.through)].voids >> number & 1
    if entry.kind == "append" and (not void or not guards.collect_not_void):
        chunks &= ~(1 << entry.batch)
    after = root._replace(first=number + 1, chunks=chunks, kept=root.kept & chunks)
    yield store.root(place, after), None, f"{letter(place)} collects {number}"


def metadata_collects(guards: Guards, store: Store) -> Ways:
    """The metadata roots delete their oldest entry."""
    number = store.held
    if number + 2 >= len(store.chain) or (guards.collect_below_hw and number >= store.chain[-1].hw):
        return
    if may_collect(guards, store, number):
        yield store._replace(held=number + 1), None, f"the metadata roots collect {number}"


def sweeps(guards: Guards, store: Store, world: World, place: int) -> Ways:
    """A root deletes chunks below a floor that no living append of its journal names."""
    root, chain = store.roots[place], store.chain
    learned = chain[root.learned]
    floor = learned.floor if guards.floor_learned else chain[-1].floor
    for batch in world.batches:
        if not root.chunks >> batch & 1 or not -1 < store.named[batch] < floor:
            continue
        named = any(
            chain[n].kind == "append" and chain[n].batch == batch and not learned.voids >> n & 1
            for n in range(root.first, root.learned + 1)
        )
        if not named or not guards.sweep_unnamed:
            chunks = root.chunks & ~(1 << batch)
            after = root._replace(chunks=chunks, kept=root.kept & chunks)
            yield store.root(place, after), None, f"{letter(place)} sweeps chunk {batch}"


def starts_over(guards: Guards, store: Store, world: World) -> Ways:
    """A root that is no member begins again under a new id, with the segments of another (rules 7, 11)."""
    base = store.chain[-1]
    for place in bits(world.learn_on):
        metadata = store.deciding is not None
        if (base.isr | base.joining) >> place & 1 or (metadata and store.lost >> place & 1):
            continue  # a metadata root that is lost is replaced by `moved` (`replica_moving`)
        for source in store.live:
            old = store.roots[source]
            if source == place or store.stale >> source & 1:
                continue
            to = old.through if guards.catch_up_settled else old.synced
            settled = old.settled if guards.catch_up_whole else old.settled[:-1]
            if not old.first <= to <= old.learned:
                continue
            files = old.chunks & 1 << FILE
            begun = Root(to, to, files, settled, to, to, files, store.roots[place].life + 1)
            gone = ~(1 << place)
            aside = keeping(store, place) if metadata and guards.metadata_kept else store
            after = spend(aside.root(place, begun), START)._replace(lost=store.lost & gone, stale=store.stale & gone)
            yield after, None, f"{letter(place)} starts over with the segments of {letter(source)} up to {to}"


def keeping(store: Store, place: int) -> Store:
    """The store in which an acceptor holds what the root's old journal has."""
    root, old = store.roots[place], store.deciding.acceptors[place]
    has = {Chain(store.chain[: number + 1]) for number in range(max(root.first, 1), root.learned + 1)}
    acceptors = list(store.deciding.acceptors)
    acceptors[place] = old._replace(held=old.held | has)
    return store._replace(deciding=store.deciding._replace(acceptors=tuple(acceptors)))


def decides(guards: Guards, store: Store, world: World) -> Ways:
    """Entries for which nothing is looked at before: a floor, an alteration with its file, one that changes nothing."""
    chain, base = store.chain, store.chain[-1]
    if store.deciding is not None:
        return
    if world.room(store, "sweep") and base.floor < len(chain) - 1:
        longer = new(chain, "sweep", floor=len(chain) - 1)
        yield decided(guards, store, world, longer), None, f"{len(chain)}: the floor is {len(chain) - 1}"
    if world.room(store, "touch"):
        yield decided(guards, store, world, new(chain, "touch")), None, f"{len(chain)}: touch"
    if world.room(store, "alter"):
        yield from alters(guards, store, world)


def alters(guards: Guards, store: Store, world: World) -> Ways:
    """The file of an alteration is put on the leader, copied, and named by an entry."""
    base = store.chain[-1]
    on = sum(1 << r for r in store.live if store.roots[r].chunks >> FILE & 1)
    for place in store.live:
        root = store.roots[place]
        if not on >> place & 1 and (on or place == base.leader):
            chunks = root.chunks | 1 << FILE
            yield store.root(place, root._replace(chunks=chunks, kept=chunks)), None, f"the file on {letter(place)}"
    if on and (not base.isr & ~on or not guards.files_on_isr):
        longer = new(store.chain, "alter", batch=FILE, on=on)
        yield decided(guards, store, world, longer), None, f"{len(store.chain)}: alter, its file on {names(on)}"


# --- What fails ------------------------------------------------------------------------------------------------------------


def fails(guards: Guards) -> Phase:
    """Roots are lost for good, lose power, are brought back from a copy; metadata is recovered by hand."""

    def ways(store: Store, world: World) -> Ways:
        for place in store.live:
            if world.power > store.spent[POWER]:
                yield from loses_power(store, place)
            others = store.chain[-1].isr & store.intact & ~(1 << place)
            if others and store.spent[LOSE] < world.losses:
                yield from is_lost(guards, store, world, place)
            if world.copies:
                yield from is_restored_from_copy(store, place, bool(others))
        if world.unclean and world.room(store, "unclean"):
            yield from unclean(guards, store, world)

    yield Step("failure", ways)
    return Next(fails, (guards,))


def is_lost(guards: Guards, store: Store, world: World, place: int) -> Ways:
    """A root is gone for good; with it the metadata, if it was the one metadata root, until `recover`."""
    empty = Root(life=store.roots[place].life)
    gone = spend(store.root(place, empty), LOSE)._replace(lost=store.lost | 1 << place)
    if world.metadata < 0:
        yield gone, None, f"{letter(place)} is lost"
    elif place == metadata_root(store, world):
        yield from recovered(guards, gone, world)


def loses_power(store: Store, place: int) -> Ways:
    """What was not synced is gone, or the chunks alone."""
    root = store.roots[place]
    for learned in sorted({root.synced, root.learned}):
        after = root._replace(learned=learned, synced=learned, chunks=root.kept)
        if after != root:
            yield spend(store.root(place, after), POWER), None, f"{letter(place)} loses power, has learned {learned}"


def is_restored_from_copy(store: Store, place: int, others: bool) -> Ways:
    """A copy of a root is taken; later it takes the root's place."""
    if store.copy is None and store.spent[COPY] == 0:
        yield spend(store._replace(copy=(place, store.roots[place])), COPY), None, f"a copy of {letter(place)} is taken"
    elif store.copy is not None and store.copy[0] == place and others and store.copy[1] != store.roots[place]:
        back = store.root(place, store.copy[1])._replace(copy=None, stale=store.stale | 1 << place)
        yield spend(back, RESTORE), None, f"{letter(place)} comes back as of the copy"


def unclean(guards: Guards, store: Store, world: World) -> Ways:
    """An operator elects a root that is not in the ISR."""
    for place in store.live:
        has = sum(1 << n for n, e in enumerate(store.chain) if e.kind == "append" and has_data(store, place, e.batch))
        if longer := elected_uncleanly(store.chain, place, has):
            after = decided(guards, store, world, longer)._replace(unclean=1)
            yield after, None, f"{len(store.chain)}: {longer[-1]}"


def recovered(guards: Guards, store: Store, world: World) -> Ways:
    """By hand: the longest journal that is left is the chain, and its root has what it has (rule 10)."""
    longest = max(store.roots[r].learned for r in store.live)
    for place in store.live:
        root = store.roots[place]
        if guards.recover_longest and root.learned < longest:
            continue
        chain = Chain(store.chain[: root.learned + 1])
        head, number = chain[-1], len(chain)
        voids = head.voids
        for n in range(head.hw + 1, number):
            if chain[n].kind == "append" and not has_data(store, place, chain[n].batch) and guards.recover_by_files:
                voids |= 1 << n
        isr = 1 << place if guards.recover_alone else head.isr & store.intact | 1 << place
        longer = new(chain, "recover", leader=place, epoch=head.epoch + 1, isr=isr, joining=0, voids=voids, rows=rows_of(chain, voids))  # fmt: skip
        after = store._replace(chain=longer)
        after = after.root(place, root._replace(learned=number, synced=number))
        if guards.recover_copied:
            after = copied(after, place)
        for other in store.live:
            if store.roots[other].learned >= number:
                after = after.root(other, Root())._replace(lost=after.lost | 1 << other)
        yield after, None, f"recover on {letter(place)}: {longer[-1]}"


def copied(store: Store, source: int) -> Store:
    """Every other root copies what it lacks of living appends that its own journal has."""
    for place in store.live:
        root = store.roots[place]
        lacks = 0
        for number in range(min(root.learned, len(store.chain) - 1) + 1):
            if store.chain[number].kind == "append" and not is_void(store.chain, number):
                lacks |= 1 << store.chain[number].batch
        lacks &= store.roots[source].chunks
        store = store.root(place, root._replace(chunks=root.chunks | lacks, kept=root.kept | lacks))
    return store
