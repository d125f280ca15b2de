"""What the settle model takes for storage: the settle journal, segment objects, and what is left of the topic journal.

The topic journal is modelled only as far as settling meets it: `journal_model` explores its protocol. Commit n adds the
record n to every partition, in an entry and a chunk; a zombie may put another entry at a collected number (a stray).
In the settle journal every put makes a new incarnation of its number, as in `journal_model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain as joined
from typing import Literal, NamedTuple

from tests.model.exploration import Claim, Judge

# --- Values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Object:
    """A segment object: offsets [start, end) of all partitions (shared), or of one (own). Made by `made` only.

    `slices` are the records by partition, None where it has no part of one. `number` is the newest settle number read
    before its first byte; the name is the number and the maker.
    """

    number: int
    maker: str
    start: int
    end: int
    tier: int
    slices: tuple[tuple[int, ...] | None, ...]

    @property
    def name(self) -> str:
        """What it is called in storage."""
        return f"{self.number}-{self.maker}"

    def __str__(self) -> str:
        return f"{self.name}[{self.start},{self.end})"


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """The bytes of a settle entry. Made by `entry` only.

    `tail` are the shared objects, each named whole in this one place; `own` are each partition's own objects, below them.
    Below `cleaned`, every key of partition 0 has one record.
    """

    number: int
    by: str
    prev: str
    settled: int
    own: tuple[tuple[Object, ...], ...]
    tail: tuple[Object, ...]
    floor: int = 0
    cleaned: int = 0
    drops: tuple[Object, ...] = ()
    attempt: int = 0

    @property
    def named(self) -> frozenset[Object]:
        """All objects that it needs."""
        return frozenset(joined(self.tail, *self.own))

    def row(self, partition: int) -> tuple[Object, ...]:
        """The pieces of a partition, in order."""
        return (*self.own[partition], *self.tail)

    def first(self, partition: int) -> int:
        """The first offset of a partition that it names."""
        row = self.row(partition)
        return row[0].start if row else self.settled

    def __str__(self) -> str:
        return f"{self.number}={self.by}"


_OBJECTS: dict[tuple[object, ...], Object] = {}
_ENTRIES: dict[tuple[object, ...], Entry] = {}


def made(number: int, maker: str, start: int, end: int, tier: int, slices: Iterable[tuple[int, ...] | None]) -> Object:
    """The object with these parts. Equal ones are one: they are compared and hashed by identity, which is fast."""
    key = (number, maker, start, end, tier, tuple(slices))
    if key not in _OBJECTS:
        _OBJECTS[key] = Object(number, maker, start, end, tier, key[5])
    return _OBJECTS[key]


def entry(made_of: Entry) -> Entry:
    """The one entry that is equal to this one; see `made`."""
    e = made_of
    key = (e.number, e.by, e.prev, e.settled, e.own, e.tail, e.floor, e.cleaned, e.drops, e.attempt)
    return _ENTRIES.setdefault(key, e)


def ordered(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Objects in an order that does not depend on the run."""
    return tuple(sorted(objects, key=lambda o: (o.start, o.end, o.number, o.maker, str(o.slices))))


class Seen(NamedTuple):
    """An entry as read: all from one access. `at` is its Last-Modified, in ticks of storage's clock."""

    number: int
    entry: Entry
    incarnation: int
    at: int

    def __str__(self) -> str:
        return f"{self.entry}#{self.incarnation}"


@dataclass(frozen=True, slots=True)
class World:
    """The bounds of a story, and what its environment may do.

    `keys` has the key of each record; a capital is a tombstone. No keys: nothing may ever be missing.
    """

    partitions: int = 1
    keys: str = ""
    lost: Literal["", "entry", "object"] = ""
    """Which puts may lose their replies."""
    network: Literal["prompt", "late", "twice"] = "prompt"
    full: int = 0
    """Compaction takes pieces of this tier on."""
    hours: int = 0
    """Work on a piece takes until another entry is put, and the floor follows so many entries after the newest."""
    ticks: int = 0
    """How far storage's clock goes; 0: time is not modelled, every delay may be over at once."""
    delay: int = 0
    skew: int = 0
    """How far a reply's Date may be ahead of the Last-Modified that storage writes."""
    tolerance: int = 1
    """How much later than its reply's Date the Last-Modified of an own entry may be."""

    def key(self, record: int) -> str:
        """The key of a record."""
        return self.keys[record].lower()

    def is_tombstone(self, record: int) -> bool:
        """Whether a record deletes its key."""
        return self.keys[record].isupper()


@dataclass(frozen=True, slots=True)
class Store:
    """Everything outside the processes. `chain` and `proof` are known to the properties only.

    `chain` are the entries whose put was the next number at its moment; a file that was put at a collected number is
    a ghost. `proof` is the highest entry that a collector took for older than the delay: views from there on are legal.
    """

    files: tuple[Seen | None, ...]
    puts: tuple[int, ...]
    chain: tuple[Entry, ...]
    objects: frozenset[Object]
    end: int
    start: tuple[int, ...]
    entries: frozenset[int]
    chunks: frozenset[int]
    strays: frozenset[int] = frozenset()
    in_flight: frozenset[Entry | Object] = frozenset()
    proof: int = 1
    now: int = 0

    @property
    def tip(self) -> Entry:
        """The newest entry of the chain."""
        return self.chain[-1]

    def at(self, number: int) -> Seen | None:
        """The file with this number, if there is one."""
        return self.files[number - 1] if 0 < number <= len(self.files) else None

    def is_true(self, seen: Seen) -> bool:
        """Whether this is the file of an entry of the chain, no ghost."""
        return seen.incarnation == 1 and self.is_genuine(seen)

    def is_genuine(self, seen: Seen) -> bool:
        """Whether these bytes are the chain's."""
        return seen.number <= len(self.chain) and self.chain[seen.number - 1] is seen.entry

    def with_put(self, draft: Entry) -> Store | None:
        """Storage after a put-if-absent, or None where the number is taken."""
        number = draft.number
        if self.at(number) is not None:
            return None
        room = max(number - len(self.files), 0)
        files, puts = [*self.files, *(None,) * room], [*self.puts, *(0,) * room]
        puts[number - 1] += 1
        files[number - 1] = Seen(number, draft, puts[number - 1], self.now)
        chain = (*self.chain, draft) if number > len(self.chain) else self.chain
        return replace(self, files=tuple(files), puts=tuple(puts), chain=chain)

    def with_object(self, new: Object) -> Store:
        """Storage after a plain put: it overwrites what has the same name."""
        others = frozenset(each for each in self.objects if each.name != new.name)
        return replace(self, objects=others | {new})

    def present(self) -> tuple[Seen, ...]:
        """The files of the settle journal, ascending."""
        return tuple(seen for seen in self.files if seen is not None)


def begun(rows: Iterable[Object], world: World, *, own: bool, commits: int, cleaned: int = 0) -> Store:
    """A topic whose first entry names these objects; commits that are not settled have their entries and chunks."""
    pieces = tuple(rows)
    settled = pieces[-1].end if pieces else 0
    mine: tuple[tuple[Object, ...], ...] = ((),) * world.partitions
    first = entry(Entry(1, "create", "", settled, (pieces,) if own else mine, () if own else pieces, 0, cleaned))
    waiting = frozenset(range(settled, commits))
    return Store(
        files=(Seen(1, first, 1, 0),),
        puts=(1,),
        chain=(first,),
        objects=frozenset(pieces),
        end=commits,
        start=(0,) * world.partitions,
        entries=waiting,
        chunks=waiting,
    )


def old(world: World, *ranges: tuple[int, int], tier: int = 0, own: bool = False) -> tuple[Object, ...]:
    """Objects from before the story."""
    parts = 1 if own else world.partitions
    return tuple(made(0, f"old{start}", start, end, tier, (tuple(range(start, end)),) * parts) for start, end in ranges)


# --- Properties ---------------------------------------------------------------------------------------------


def judge(world: World) -> Judge:
    """All properties, for one step of a story."""

    def judged(before: Store, after: Store, claims: tuple[Claim, ...]) -> tuple[Store, str | None]:
        faults: Iterator[str | None] = iter(())
        if after is not before:
            faults = _faults(before, after, world)
        claimed = (claim.broken(after) for claim in claims if hasattr(claim, "broken"))
        return after, next(filter(None, joined(faults, claimed)), None)

    return judged


def _faults(before: Store, after: Store, world: World) -> Iterator[str | None]:
    if after.chain is not before.chain:
        yield _history(before.tip, after.tip)
        yield _rows(after, world)
        yield _keys(after, world)
    yield _newest(after)
    yield _unsettled(after)
    yield _views(after)


def _history(old: Entry, new: Entry) -> str | None:
    """S4: every entry was built on its predecessor, and what only rises rises."""
    if new.number != old.number + 1 or new.prev != old.by:
        return f"S4: entry {new} was built on {new.prev}, not on its predecessor {old}"
    for what, was, now in (("settled", old.settled, new.settled), ("filesFloor", old.floor, new.floor)):
        if now < was:
            return f"S4: {what} goes back from {was} to {now} in entry {new}"
    for partition in range(len(new.own)):
        was, now = (each.first(partition) for each in (old, new))
        if now < was:
            return f"S4: partition {partition}: entry {new} brings back what was let go of, from {was} down to {now}"
    return None


def _rows(store: Store, world: World) -> str | None:
    """S1, S2, S3: the newest entry's pieces give every partition's offsets once, in order, all of them, committed."""
    tip = store.tip
    if tip.settled > store.end:
        return f"S3: entry {tip} settled up to {tip.settled}, committed is {store.end}"
    for partition in range(world.partitions):
        row, start = tip.row(partition), store.start[partition]
        at = row[0].start if row else tip.settled
        if at > start:
            return f"S1: partition {partition}: records from {start} to {at} are lost by entry {tip}"
        for piece in row:
            if piece.start != at:
                way = "lost" if piece.start > at else "doubled"
                return f"S2: partition {partition}: offset {min(at, piece.start)} is {way} by entry {tip}"
            held = piece.slices[partition if len(piece.slices) > 1 else 0]
            wanted = range(max(piece.start, start), piece.end)
            if held is not None and not set(held) <= set(range(piece.start, piece.end)):
                return f"S3: partition {partition}: {piece} holds a record that nobody committed"
            if not world.keys and wanted and not set(wanted) <= set(held or ()):
                return f"S1: partition {partition}: {piece} lacks committed records"
            at = piece.end
        if at != tip.settled:
            return f"S1: partition {partition}: pieces end at {at}, settled is {tip.settled}"
    return None


def _keys(store: Store, world: World) -> str | None:
    """S7: compaction keeps the newest record of a key, and none that a tombstone deleted comes back."""
    if not world.keys:
        return None
    tip, start = store.tip, store.start[0]
    there = {record for piece in tip.row(0) for record in (piece.slices[0] or ()) if record >= start}
    for key in sorted(set(world.keys.lower())):
        offsets = [record for record in range(tip.settled) if world.key(record) == key]
        newest, kept = max(offsets, default=-1), [record for record in offsets if record in there]
        if newest < start:
            continue
        if newest not in there and not world.is_tombstone(newest):
            return f"S7: record {newest}, the newest of key {key}, is gone with entry {tip}"
        if newest not in there and kept:
            return f"S7: record {kept[-1]} of key {key} comes back with entry {tip}: its tombstone {newest} is gone"
    return None


def _newest(store: Store) -> str | None:
    """S4: the newest entry is what a listing shows last."""
    there = store.present()
    if not there or not store.is_true(there[-1]) or there[-1].entry is not store.tip:
        return f"S4: the newest entry {store.tip} is not the last file: {there[-1] if there else 'none'} is"
    return None


def _unsettled(store: Store) -> str | None:
    """S1: what is committed and not settled has its entry and its chunk."""
    for record in range(store.tip.settled, store.end):
        if record not in store.entries or record not in store.chunks:
            return f"S1: record {record} is not settled, and its {'entry' if record in store.chunks else 'chunk'} is deleted"
    return None


def _views(store: Store) -> str | None:
    """S1, S5: what the newest entry names is there, and what any entry names that is retained or not old enough."""
    retained = [seen.entry for seen in store.present() if store.is_true(seen)]
    legal = store.chain[store.proof - 1 :]
    for each in (store.tip, *retained, *legal):
        if not each.named <= store.objects:
            gone = ordered(each.named - store.objects)[0]
            name, which = ("S1", "the newest") if each is store.tip else ("S5", "a legal view")
            return f"{name}: object {gone}, named by entry {each} ({which}), is not there"
    for record in range(legal[0].settled, store.end):
        if record not in store.entries or record not in store.chunks:
            return f"S5: commit {record}, not settled in entry {legal[0]} (a legal view), is not there"
    return None
