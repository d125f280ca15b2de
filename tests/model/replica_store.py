"""Storage of a replicated topic as the models see it, and the properties that every state of it must have.

What is modelled
    Three whole roots A, B, C. A batch is one record in one chunk; a retry names the same chunk. `chain` holds the entries
    that are decided, the truth; a root's `journal/` is a piece of it, from `first` to `learned`. A root that starts over
    is a new `life`. `synced`, `kept` are what power loss leaves of `learned`, `chunks`.

What is checked
    C1  No record that was acknowledged with acks=all is lost.
    C2  What a reader saw stays so, on whichever root, and what a root shows below its high watermark can be read there.
    C3  The high watermark of a root never goes back.
    C4  What a root has settled is the log; nothing that is void or undecided is settled or read.
    C5  One chain of decisions: a decided number never changes; a `journal/` holds decided entries only, without gaps.
    C6  Exactly once: no batch is twice in the log, a writer's batches are in order, the writers' table speaks the truth.
    C7  What an entry says is on a root, and what a root has learned, is there.
    C8  What the roots of the ISR need to go on exists: nothing waits for ever.
    C9  What is acknowledged with acks=all lies on min.insync.replicas roots at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.replica_rules import ALL, Chain, Guards, is_void, log_of, names, needed, said_learned, voided_by

ROOTS = (0, 1, 2)
FILE = 3
"""The bit of the file that an alteration makes, among the chunks' bits."""


class Root(NamedTuple):
    """One root. `settled` is its log up to what the entry `through` made visible."""

    learned: int = 0
    first: int = 0
    chunks: int = 0
    settled: tuple[int, ...] = ()
    through: int = 0
    synced: int = 0
    kept: int = 0
    life: int = 0


class Store(NamedTuple):
    """Everything outside the processes. `seen`, `acked`, `lost`, `stale` are ghosts: only the properties look at them.

    `named` is the number in each chunk's name, -1 for none yet. `lost` are roots that are gone for good, `stale` such as
    were brought back from a copy. `held` is the first entry that metadata roots beside the replicas hold, -1 where there
    are none. `deciding` is what decides (`replica_deciding`), None where the chain is one register.
    """

    chain: Chain
    roots: tuple[Root, ...]
    named: tuple[int, ...]
    lost: int = 0
    stale: int = 0
    seen: tuple[int, ...] = ()
    acked: int = 0
    copy: tuple[int, Root] | None = None
    spent: tuple[int, ...] = (0, 0, 0, 0, 0)
    unclean: int = 0
    deciding: Any = None
    held: int = 0

    def root(self, place: int, root: Root) -> Store:
        """The store with one root changed."""
        return self._replace(roots=(*self.roots[:place], root, *self.roots[place + 1 :]))

    @property
    def live(self) -> tuple[int, ...]:
        """The roots that are not gone."""
        return tuple(r for r in ROOTS if not self.lost >> r & 1)

    @property
    def intact(self) -> int:
        """The roots that are neither gone nor stale, as a mask."""
        return 7 & ~self.lost & ~self.stale


@dataclass(frozen=True, slots=True)
class World:
    """The bounds of a scene, and what the environment may do.

    `writers` says whose each batch is; `most` bounds the entries of each kind, `length` the chain. `metadata` is the one
    metadata root whose `journal/` is the chain, -1 where three decide. `power`, `copies`, `starts` bound power losses,
    restored copies, new lives.
    """

    writers: tuple[int, ...]
    acks: tuple[str, ...]
    length: int
    most: tuple[tuple[str, int], ...] = ()
    losses: int = 1
    metadata: int = -1
    min_insync: int = 1
    settles: bool = False
    collects: bool = False
    sweeps: bool = False
    power: int = 0
    copies: int = 0
    starts: int = 0
    stage_on: int = 7
    learn_on: int = 7
    unclean: bool = False

    @property
    def batches(self) -> range:
        """The batches of all writers."""
        return range(len(self.writers))

    def bound(self, kind: str) -> int:
        """How many entries of a kind there may be."""
        return dict(self.most).get(kind, 0)

    def room(self, store: Store, kind: str) -> bool:
        """Whether one more entry of this kind may follow."""
        chain = store.chain
        return len(chain) < self.length and sum(e.kind == kind for e in chain) < self.bound(kind)


LOSE, POWER, COPY, START, RESTORE = range(5)


def spend(store: Store, what: int) -> Store:
    """The store in which one more of these has happened."""
    spent = store.spent
    return store._replace(spent=(*spent[:what], spent[what] + 1, *spent[what + 1 :]))


def begun(world: World, chain: Chain) -> Store:
    """A topic whose roots hold nothing yet."""
    return Store(chain, (Root(),) * 3, (-1,) * len(world.writers), held=0 if world.metadata < 0 else -1)


# --- What a reader sees ----------------------------------------------------------------------------------------------


class Broken(Exception):  # noqa: N818
    """A property does not hold."""


def high_watermark(guards: Guards, store: Store, place: int) -> int:
    """The number up to which readers of a root go: they sync its directory before they show what they found in it.

    What a root has settled was below a high watermark, also where it began with the segments of another root.
    """
    root = store.roots[place]
    shown = root.synced if guards.counted_synced else root.learned
    if not guards.read_below_hw:
        return shown
    return max(store.chain[shown].hw, root.through if guards.hw_of_settled else 0)


def voids_at(guards: Guards, chain: Chain, learned: int, number: int) -> int:
    """The voids that count for who reads up to an entry, having learned another."""
    return chain[number if guards.voids_at_hw else learned].voids


def visible(guards: Guards, store: Store, place: int) -> tuple[int, ...]:
    """The log that a reader of a root sees: settled records, then chunks.

    Raises:
        Broken: C2, something below the high watermark can't be read.
    """
    root, chain = store.roots[place], store.chain
    newest = high_watermark(guards, store, place)
    voids = voids_at(guards, chain, root.learned, newest)
    log = list(root.settled)
    if root.first > newest and newest != root.through:
        raise Broken(f"C2: {names(1 << place)} has collected entry {newest}, where its high watermark stands")
    if newest > root.through and root.first > root.through + 1:
        raise Broken(f"C2: {names(1 << place)} has collected entry {root.through + 1}, which it has not settled")
    for number in range(root.through + 1, newest + 1):
        entry = chain[number]
        if entry.kind == "append":
            void = voids >> number & 1
            if not void and not root.chunks >> entry.batch & 1:
                if chain[-1].voids >> number & 1 and store.unclean and guards.unclean_waited_for:
                    return tuple(log)
                raise Broken(f"C2: {names(1 << place)} can't read entry {number} below its HW: no chunk")
            log.append(-1 if void else entry.batch)
        elif entry.kind == "alter" and not root.chunks >> FILE & 1:
            raise Broken(f"C2: {names(1 << place)} lacks the file of entry {number} below its HW")
    end = chain[newest].end
    return tuple(log[:end])


# --- The judge -------------------------------------------------------------------------------------------------------


class Acked(NamedTuple):
    """A writer reports success of a batch with acks=all."""

    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} is acknowledged with acks=all"


def judge(guards: Guards, world: World) -> Callable[[Any, Any, tuple[Any, ...]], tuple[Any, str | None]]:
    """Judge a step: what readers see in the store after it, and what is claimed in it."""
    known: dict[Store, tuple[Store, str | None]] = {}

    def judged(before: Store, after: Store, claims: tuple[Any, ...]) -> tuple[Store, str | None]:
        for place in ROOTS:
            old, now = before.roots[place], after.roots[place]
            same = old.life == now.life and not (after.lost | after.stale | before.stale) >> place & 1
            if same and high_watermark(guards, after, place) < high_watermark(guards, before, place):
                return after, f"C3: the HW of {names(1 << place)} goes back"
        for claim in claims:
            if isinstance(claim, Acked):
                after = after._replace(acked=after.acked | 1 << claim.batch)
                if fault := acked_fault(world, after, claim.batch):
                    return after, fault
        if after not in known:
            try:
                known[after] = checked(guards, world, after), None
            except Broken as broken:
                known[after] = after, str(broken)
        return known[after]

    return judged


def acked_fault(world: World, store: Store, batch: int) -> str | None:
    """C9, at the moment of the claim: roots that are gone since count, as they had it."""
    isr = store.chain[-1].isr
    if isr.bit_count() < world.min_insync:
        return f"C9: batch {batch} is acknowledged, the ISR is {names(isr)}"
    return None


def checked(guards: Guards, world: World, store: Store) -> Store:
    """The store, with what readers see of it.

    Raises:
        Broken: a property does not hold.
    """
    log = log_of(store.chain)
    check_order(world, store, log)
    store = check_readers(guards, world, store, log)
    for batch in world.batches:
        if store.acked >> batch & 1 and batch not in log and not store.unclean:
            raise Broken(f"C1: batch {batch} was acknowledged with acks=all, the log is {log}")
    for number, entry in enumerate(store.chain):
        alone = entry.kind == "append" and world.acks[entry.batch] == "all" and world.metadata < 0
        if alone and is_void(store.chain, number) and not store.unclean:
            raise Broken(f"C1: entry {number} was written with acks=all and is void")
    check_places(guards, world, store)
    return store


def check_order(world: World, store: Store, log: tuple[int, ...]) -> None:
    """C6."""
    order = [batch for batch in log if batch >= 0]
    if len(set(order)) != len(order):
        raise Broken(f"C6: a batch is twice in the log {log}")
    for at, batch in enumerate(order):
        if any(world.writers[v] == world.writers[batch] and v > batch for v in order[:at]):
            raise Broken(f"C6: a writer's batches are out of order: {log}")
    for batch in world.batches:
        if store.chain[-1].rows >> batch & 1 and batch not in order:
            raise Broken(f"C6: the table has batch {batch}, which is in no log: its retry is skipped")
        later = [v for v in order if world.writers[v] == world.writers[batch] and v > batch]
        if later and batch not in log and not store.chain[-1].voids and not world.unclean:
            raise Broken(f"C6: batch {later[0]} was appended before batch {batch} of its writer: {log}")


def check_readers(guards: Guards, world: World, store: Store, log: tuple[int, ...]) -> Store:
    """C2, C4."""
    seen = store.seen
    for place in store.live:
        settled = store.roots[place].settled
        if any(not agrees(store, mine, log[o : o + 1]) for o, mine in enumerate(settled)):
            raise Broken(f"C4: {names(1 << place)} has settled {settled}, the log is {log}")
        sees = visible(guards, store, place)
        if any(not agrees(store, mine, seen[o : o + 1]) for o, mine in enumerate(sees[: len(seen)])):
            raise Broken(f"C2: a reader of {names(1 << place)} sees {sees}, before it was {seen}")
        seen = max(seen, sees, key=len)
    if any(not agrees(store, mine, log[o : o + 1]) for o, mine in enumerate(seen)):
        raise Broken(f"C2: readers saw {seen}, the log is {log}")
    return store._replace(seen=seen)


def agrees(store: Store, mine: int, theirs: tuple[int, ...]) -> bool:
    """Whether two sights of one offset agree; after an unclean election a record may have become void."""
    return theirs == (mine,) or bool(store.unclean and theirs and -1 in (mine, *theirs))


def check_places(guards: Guards, world: World, store: Store) -> None:
    """C7, C8."""
    chain = store.chain
    for number, entry in enumerate(chain):
        need = needed(entry)
        if not need or is_void(chain, number):
            continue
        for place in store.live:
            root = store.roots[place]
            if store.stale >> place & 1 or (entry.kind == "append" and entry.batch in root.settled):
                continue
            has = root.chunks & need
            said = (entry.on >> place & 1 and root.life == 0) or number <= root.learned
            if said and not has and not store.unclean:
                raise Broken(f"C7: entry {number} is said to be on {names(1 << place)}; it is not there")
    if not store.unclean:
        check_progress(guards, store)


def check_progress(guards: Guards, store: Store) -> None:
    """C8: nobody fails any more and everybody helps; what the roots of the ISR have to learn is somewhere."""
    chain, base = store.chain, store.chain[-1]
    here = [r for r in store.live if base.isr >> r & 1 and store.intact >> r & 1]
    if not here:
        return
    voids = base.voids
    if not store.intact >> base.leader & 1:
        leader = max(here, key=lambda r: store.roots[r].learned)
        voids = voided_by(ALL, chain, leader, store.roots[leader].learned, len(chain))
    for number, entry in enumerate(chain):
        void = entry.kind == "append" and voids >> number & 1
        waits = [r for r in here if store.roots[r].learned < number]
        held = any(store.roots[r].first <= number <= store.roots[r].learned for r in store.live)
        if waits and not held and not kept_by_metadata(store, number):
            raise Broken(f"C8: {names(1 << waits[0])} can never learn entry {number}: it is nowhere")
        if not needed(entry) or (void and guards.learn_void):
            continue
        if waits and not any(has_data(store, r, entry.batch) for r in store.live):
            state = "void" if void else "living"
            raise Broken(f"C8: {names(1 << waits[0])} can never learn entry {number} ({state}): its files are nowhere")


def has_data(store: Store, place: int, batch: int) -> bool:
    """Whether a root holds a batch's record, in a chunk or settled."""
    root = store.roots[place]
    return bool(root.chunks >> batch & 1) or batch in root.settled


def kept_by_metadata(store: Store, number: int) -> bool:
    """Whether the metadata roots hold an entry, beside the replicas."""
    if store.deciding is not None:
        value = Chain(store.chain[: number + 1])
        return any(value in store.deciding.acceptors[r].held for r in store.live)
    return store.held >= 0 and number >= store.held


def is_restored(guards: Guards, store: Store, place: int) -> bool:
    """Whether a root shows less than what the newest entry says of it; asked where a copy was taken."""
    taken = store.spent[COPY] > 0
    return taken and guards.restored_out and store.roots[place].learned < said_learned(store.chain, place)
