"""The requests of the settle model to storage: each is one atomic step, and says in how many ways it may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from tests.model.exploration import Outcome
from tests.model.settle_store import Entry, Object, Seen, Store, World, entry, ordered

# --- Requests: one atomic step each -------------------------------------------------------------------------


class Reply(Enum):
    """What a put may say. After a lost reply the process may put the same again, or read again."""

    STORED = "stored"
    EXISTS = "exists"
    PUT = "reply lost, to be put again"
    READ = "reply lost, the newest to be read again"
    LATER = "the reply is long in coming"


class Logs(NamedTuple):
    """The newest of both journals: L as (log end, log starts), and S."""

    end: int
    start: tuple[int, ...]
    settle: Seen


@dataclass(frozen=True, slots=True)
class Newest:
    """Find the newest entries of both journals, L first. `journal_model` explores how; here it is one step."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        seen = store.at(len(store.chain))
        assert seen is not None
        yield Outcome(store, Logs(store.end, store.start, seen), str(seen))

    def __str__(self) -> str:
        return "newest"


@dataclass(frozen=True, slots=True)
class Read:
    """Read one settle entry, or look at it: its bytes, incarnation and time; None where there is none."""

    number: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        seen = store.at(self.number)
        ghost = " (a ghost)" if seen is not None and not store.is_true(seen) else ""
        yield Outcome(store, seen, f"{seen}{ghost}" if seen else "absent")

    def __str__(self) -> str:
        return f"read {self.number}"


@dataclass(frozen=True, slots=True)
class Put:
    """Put a settle entry if its number is free. The reply may be lost; the request may linger in the network."""

    entry: Entry

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Executed now, with or without its reply; or not now; or now and once more later."""
        stored = store.with_put(self.entry)
        now, reply = (stored, Reply.STORED) if stored else (store, Reply.EXISTS)
        ghost = " as a ghost" if stored and self.entry.number <= len(store.chain) else ""
        yield Outcome(now, reply, f"{reply.value}{ghost}")
        if world.lost == "entry":
            if stored:
                yield Outcome(now, Reply.PUT, f"stored{ghost}, {Reply.PUT.value}")
                yield Outcome(now, Reply.READ, f"stored{ghost}, {Reply.READ.value}")
            else:
                yield Outcome(store, Reply.READ, f"not stored, {Reply.READ.value}")
        if world.network != "prompt":
            later = replace(store, in_flight=store.in_flight | {self.entry})
            yield Outcome(later, Reply.READ, f"still under way, {Reply.READ.value}")
        if world.network == "twice":
            again = replace(now, in_flight=now.in_flight | {self.entry})
            yield Outcome(again, reply, f"{reply.value}{ghost}, and under way once more")

    def __str__(self) -> str:
        return f"put {self.entry}"


@dataclass(frozen=True, slots=True)
class PutObject:
    """Put a segment object: its name is its own, so plainly."""

    object: Object

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Executed now, with or without its reply; or never; or later."""
        stored = store.with_object(self.object)
        yield Outcome(stored, Reply.STORED, "stored")
        if world.lost == "object":
            yield Outcome(stored, Reply.PUT, "stored, reply lost")
            yield Outcome(store, Reply.PUT, "not stored, reply lost")
        if world.lost == "object" and world.network != "prompt":
            later = replace(store, in_flight=store.in_flight | {self.object})
            yield Outcome(later, Reply.PUT, "still under way, reply lost")

    def __str__(self) -> str:
        return f"put object {self.object}"


@dataclass(frozen=True, slots=True)
class Land:
    """The network executes one put that it still holds."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each request in flight."""
        for late in sorted(store.in_flight, key=str):
            rest = replace(store, in_flight=store.in_flight - {late})
            if isinstance(late, Object):
                yield Outcome(rest.with_object(late), None, f"object {late} stored")
            else:
                stored = rest.with_put(late)
                ghost = " as a ghost" if stored and late.number <= len(store.chain) else ""
                yield Outcome(stored or rest, None, f"{late} {'stored' + ghost if stored else 'refused: exists'}")

    def __str__(self) -> str:
        return "a late put lands"


@dataclass(frozen=True, slots=True)
class Head:
    """Which of these objects are there, as they were put: all."""

    objects: tuple[Object, ...]

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        there = store.objects.issuperset(self.objects)
        yield Outcome(store, there, "there" if there else "missing")

    def __str__(self) -> str:
        return f"look at {', '.join(map(str, self.objects))}"


@dataclass(frozen=True, slots=True)
class Sources:
    """Read the entries and chunks of commits [start, end): their records; a stray's record is no commit's."""

    start: int
    end: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome; None where something is missing."""
        found: list[int] = []
        for record in range(self.start, self.end):
            if record in store.entries and record in store.chunks:
                found.append(record)
            elif record in store.strays:
                found.append(-1 - record)
        whole = len(found) == self.end - self.start
        yield Outcome(store, tuple(found) if whole else None, str(found) if whole else "missing")

    def __str__(self) -> str:
        return f"read commits [{self.start},{self.end})"


class Scanned(NamedTuple):
    """What a collector or sweeper saw: the journal's files, ascending; for a collector, which is old enough."""

    files: tuple[Seen, ...]
    proof: int
    objects: tuple[Object, ...] = ()
    commits: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """Read all retained settle entries, and list objects. For a collector: any entry may be older than the delay."""

    collecting: bool = False
    believes_all: bool = False
    slack: int = 1
    """Ticks that are added to the delay: times are cut to whole ticks."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each entry that may be the newest one that is old enough."""
        files = store.present()
        objects = ordered(store.objects)
        if not self.collecting:
            yield Outcome(store, Scanned(files, 0, objects), f"{[str(seen) for seen in files]}")
            return
        commits = tuple(sorted(store.entries | store.chunks | store.strays))
        numbers = tuple(seen.number for seen in files)
        trusted = files if self.believes_all else linked(files)
        for proof in reversed(trusted):
            if world.ticks and store.now + world.skew - proof.at <= world.delay + self.slack:
                continue
            after = replace(store, proof=max(store.proof, proof.number)) if store.is_true(proof) else store
            yield Outcome(after, Scanned(files, proof.number, (), commits, numbers), f"{proof} is old enough")

    def __str__(self) -> str:
        return "read all retained"


@dataclass(frozen=True, slots=True)
class Prove:
    """Choose the newest that is old enough among entries that were read one by one, and list the topic journal."""

    files: tuple[Seen, ...]
    numbers: tuple[int, ...]

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each entry; see `Scan`."""
        commits = tuple(sorted(store.entries | store.chunks | store.strays))
        for proof in reversed(self.files):
            after = replace(store, proof=max(store.proof, proof.number)) if store.is_genuine(proof) else store
            scanned = Scanned(self.files, proof.number, (), commits, self.numbers)
            yield Outcome(after, scanned, f"{proof} is old enough")

    def __str__(self) -> str:
        return "look at their times"


def linked(files: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """The files that are linked by `prev` from the newest down, ascending (pure)."""
    found: list[Seen] = []
    for seen in reversed(files):
        if found and (seen.number != found[-1].number - 1 or seen.entry.by != found[-1].entry.prev):
            break
        found.append(seen)
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class List:
    """List the settle journal: the last number, or all."""

    every: bool = False

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        numbers = tuple(seen.number for seen in store.present())
        yield Outcome(store, numbers if self.every else numbers[-1], str(list(numbers)))

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class Begin:
    """A reader's call begins. It learns nothing; the properties learn what the newest was."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(store, len(store.chain), f"the newest is {store.tip}")

    def __str__(self) -> str:
        return "a call begins"


Doomed = tuple[Literal["object", "entry", "chunk", "commit"], "Object | int"]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one file; deleting nothing is fine."""

    what: Doomed

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        kind, which = self.what
        if isinstance(which, Object):
            after = replace(store, objects=store.objects - {which})
        elif kind == "entry":
            files = (*store.files[: which - 1], None, *store.files[which:])
            after = replace(store, files=files) if store.at(which) else store
        elif kind == "chunk":
            after = replace(store, chunks=store.chunks - {which})
        else:
            after = replace(store, entries=store.entries - {which}, strays=store.strays - {which})
        yield Outcome(after, None, "deleted" if after != store else "was gone already")

    def __str__(self) -> str:
        return f"delete {self.what[0]} {self.what[1]}"


@dataclass(frozen=True, slots=True)
class Commit:
    """A correct writer commits one record to every partition."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        new = frozenset((store.end,))
        after = replace(store, end=store.end + 1, entries=store.entries | new, chunks=store.chunks | new)
        yield Outcome(after, None, f"record {store.end}")

    def __str__(self) -> str:
        return "commit"


@dataclass(frozen=True, slots=True)
class RaiseStart:
    """Retention or delete-records raises a log start offset, by an entry of the topic journal."""

    partition: int
    to: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        start = list(store.start)
        start[self.partition] = max(start[self.partition], self.to)
        yield Outcome(replace(store, start=tuple(start)), None, f"log starts {start}")

    def __str__(self) -> str:
        return f"raise the log start of partition {self.partition} to {self.to}"


@dataclass(frozen=True, slots=True)
class Stray:
    """A zombie puts an entry of its own at a collected number of the topic journal."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome for each collected number."""
        for record in range(store.end):
            if record not in store.entries and record not in store.strays:
                after = replace(store, strays=store.strays | {record})
                yield Outcome(after, None, f"a stray in the place of commit {record}")

    def __str__(self) -> str:
        return "put at a collected number of the topic journal"


@dataclass(frozen=True, slots=True)
class Publish:
    """A correct process without trouble publishes an entry that changes nothing: another settle, of other partitions.

    Where work takes hours, the floor follows: a correct sweeper, by the entries' ages.
    """

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        tip, number = store.tip, store.tip.number + 1
        floor = max(tip.floor, number - world.hours) if world.hours else tip.floor
        new = entry(replace(tip, number=number, by=f"other{number}", prev=tip.by, floor=floor, drops=(), attempt=0))
        stored = store.with_put(new)
        assert stored is not None
        yield Outcome(stored, None, str(new))

    def __str__(self) -> str:
        return "publish"


@dataclass(frozen=True, slots=True)
class Work:
    """Work on a piece that was begun at a number: it takes until another entry is put."""

    begun: int

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome, once it is done."""
        if not world.hours or len(store.chain) > self.begun:
            yield Outcome(store, None, "done")

    def __str__(self) -> str:
        return "work on a piece"


class Timed(NamedTuple):
    """A put's reply, its Date, and the writer's own clock."""

    reply: Reply
    date: int
    clock: int


@dataclass(frozen=True, slots=True)
class PutTimed:
    """As `Put`; the reply has a Date, and may be long in coming. A proxy may put the same once more, much later."""

    entry: Entry
    promptly: bool

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Executed now; the reply comes now or later, if it need not come promptly."""
        stored = store.with_put(self.entry)
        now, reply = (stored, Reply.STORED) if stored else (store, Reply.EXISTS)
        ghost = " as a ghost" if stored and self.entry.number <= len(store.chain) else ""
        yield from dated(now, reply, ghost, world)
        if stored and not self.promptly:
            twice = replace(now, in_flight=now.in_flight | {self.entry})
            yield Outcome(now, Timed(Reply.PUT, 0, store.now), f"stored{ghost}, {Reply.PUT.value}")
            late = replace(store, in_flight=store.in_flight | {self.entry})
            yield Outcome(late, Timed(Reply.PUT, 0, store.now), f"under way, {Reply.PUT.value}")
            yield Outcome(now, Timed(Reply.LATER, 0, store.now), f"stored{ghost}, {Reply.LATER.value}")
            yield Outcome(
                twice, Timed(Reply.LATER, 0, store.now), f"stored{ghost}, a copy under way, and {Reply.LATER.value}"
            )

    def __str__(self) -> str:
        return f"put {self.entry}"


@dataclass(frozen=True, slots=True)
class Await:
    """A reply that was long in coming comes."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """It is dated when it is sent."""
        yield from dated(store, Reply.STORED, "", world)

    def __str__(self) -> str:
        return "wait for the reply"


def dated(store: Store, reply: Reply, how: str, world: World) -> Iterator[Outcome]:
    """A reply whose Date is as far ahead as clocks may be."""
    date = store.now + world.skew
    yield Outcome(store, Timed(reply, date, store.now), f"{reply.value}{how}, dated {date}")


@dataclass(frozen=True, slots=True)
class Clock:
    """Look at one's own clock."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """Always one outcome."""
        yield Outcome(store, store.now, f"it is {store.now}")

    def __str__(self) -> str:
        return "look at the clock"


@dataclass(frozen=True, slots=True)
class Tick:
    """Storage's clock goes on."""

    def outcomes(self, store: Store, world: World) -> Iterator[Outcome]:
        """One outcome, up to the bound."""
        if store.now < world.ticks:
            yield Outcome(replace(store, now=store.now + 1), None, f"it is {store.now + 1}")

    def __str__(self) -> str:
        return "tick"
