"""The rules of the settle model, its claims, and its operations.

A rule is a guard, which a test takes out; an operation is a delta with preconditions, drafted on the newest entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tests.model.settle_requests import Logs
from tests.model.settle_store import Entry, Object, Seen, Store, entry, ordered


@dataclass(frozen=True, slots=True)
class Guards:
    """The rules. The defaults are the whole protocol; a test takes one out at a time."""

    unique_names: bool = True
    """O1: an object's name is unique to its maker's attempt."""
    settled_exactly: bool = True
    """O2: a settle publishes only on an entry that is settled exactly as far as where its object begins."""
    exact_pieces: bool = True
    """O2: a merge or compaction takes the place of exactly the pieces that it read, if they are still named."""
    every_attempt: bool = True
    """O2: the preconditions are checked on every attempt, not on the first one only."""
    planned_again: bool = True
    """O2: retention works out what stays on every attempt, not once."""
    landed_if_named: bool = True
    """O2: after a lost reply an operation landed if the newest entry names its objects, not if its pieces are gone."""
    draft_has_own_id: bool = True
    """O2: a draft that differs from the one before has a write id of its own, also on the same base."""
    rebase: bool = True
    """O3: an operation that loses its number tries the next with the same objects."""
    tiers: bool = True
    """O3: merges take neighbours of one tier, compaction what no merge takes."""
    floor: bool = True
    """O4: the sweeper raises the floor by an entry before it deletes."""
    floor_confirmed: bool = True
    """O4: the sweeper's entry counts only under the anchor rule."""
    named_after: bool = True
    """O4: what is named is read after the floor's entry is confirmed."""
    names_of_all: bool = True
    """O4: what any retained entry names stays, not only what the newest names."""
    newest_read: Literal["first", "last", "never"] = "first"
    """O4: where the retained entries are read one by one, the newest is read first."""
    floor_checked: Literal["each", "first", "never"] = "each"
    """O4: every attempt refuses objects of its own below the floor."""
    pieces: bool = True
    """O5: long work publishes piece by piece, each named when it was begun."""
    cleaned_last: bool = True
    """O5: `cleaned` rises with the last piece."""
    ascending: bool = True
    """O6: entries are deleted in ascending order, one by one."""
    chain: bool = True
    """O6: the collector believes only entries linked by `prev` from the newest down."""
    drops_first: bool = True
    """O6: an entry's drops go before the entry."""
    drops_of_lowest: bool = True
    """O6: last, the drops of the lowest entry that stays go."""
    drops_of_all: bool = False
    """Against O6: the drops of every entry up to the one that is old enough go, also where the one before it stays."""
    touch: bool = True
    """O6: where the newest entry has drops, one that changes nothing is put after it."""
    anchor: Literal["none", "bytes", "file"] = "file"
    """O7, O8: the entry that was built on must still be there: not checked; by its bytes; as the very file."""
    attempts_differ: bool = True
    """O7: every put request carries an id of its own in the entry's bytes."""
    times_count: bool = True
    """O7: where only the bytes identify a file, its Last-Modified does so, too."""
    slow_is_asked: bool = True
    """O7: after a put that took longer than half the delay, storage is asked for the entry's time, under a standing anchor."""
    long_delay: bool = True
    """O7: a delay that is too short for the differences of clocks is refused."""
    probe_anchored: bool = True
    """O8: a probe counts while the anchor is there."""
    listed_twice: bool = True
    """O8: what a listing showed counts after a second one, and a second look."""
    re_read: bool = True
    """O8: where an object is missing, the newest is read again; an error only if that names it."""
    unsettled_again: bool = True
    """O8, R12: a commit's entry counts only while the newest settle entry, read after it, has it unsettled."""
    head: bool = True
    """O9: after doubt an object is looked at before it is named."""
    every_slice: bool = True
    """O11: a shared object is let go of when every slice is below its log start."""


ALL = Guards()


# --- Claims -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """The operation is in force."""

    by: str

    def broken(self, store: Store) -> str | None:
        """S4."""
        return (
            None
            if any(each.by.split("-")[0] == self.by for each in store.chain)
            else f"S4: {self.by} is published nowhere"
        )

    def __str__(self) -> str:
        return f"{self.by} is published"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The operation's preconditions do not hold any more: its work is for nothing."""

    by: str
    why: str

    def __str__(self) -> str:
        return f"gives {self.by} up: {self.why}"


@dataclass(frozen=True, slots=True)
class Stolen:
    """A merge took a piece that a compaction worked on: the compaction's work is for nothing."""

    by: str

    def broken(self, store: Store) -> str:
        """S10."""
        return f"S10: the work of {self.by} is lost to a merge, which took its piece"

    def __str__(self) -> str:
        return f"gives {self.by} up: its piece was merged"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A compaction came to its end."""

    by: str

    def __str__(self) -> str:
        return f"{self.by} is through"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A reader takes this entry for the newest; when its call began, `top` was."""

    seen: Seen
    top: int

    def broken(self, store: Store) -> str | None:
        """S6."""
        if not store.is_genuine(self.seen):
            return f"S6: a reader takes {self.seen} for the newest, which is a ghost"
        if self.seen.number < self.top:
            return f"S6: a reader takes {self.seen} for the newest; {self.top} was there when it asked"
        return None

    def __str__(self) -> str:
        return f"takes {self.seen} for the newest"


@dataclass(frozen=True, slots=True)
class Lost:
    """A reader reports that something which it needs is lost."""

    what: str

    def broken(self, store: Store) -> str:
        """S6: nothing ever is."""
        return f"S6: a reader reports the loss of {self.what}"

    def __str__(self) -> str:
        return f"reports that {self.what} is lost"


@dataclass(frozen=True, slots=True)
class Handed:
    """A reader hands out the records of a commit."""

    records: tuple[int, ...]

    def broken(self, store: Store) -> str | None:
        """S6: a stray's are not a commit's."""
        strays = [record for record in self.records if record < 0]
        return f"S6: a reader hands out a record that nobody committed, for offset {-1 - strays[0]}" if strays else None

    def __str__(self) -> str:
        return f"hands out {list(self.records)}"


# --- Operations: deltas with preconditions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settle:
    """Add an object for [start, end) of all partitions."""

    start: int
    new: Object

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """The entry after `base`; None where it can't be published on it."""
        if guards.settled_exactly and base.settled != self.start:
            return None
        return replace(base, settled=max(base.settled, self.new.end), tail=(*base.tail, self.new))

    @property
    def made(self) -> tuple[Object, ...]:
        """The objects that it made."""
        return (self.new,)


@dataclass(frozen=True, slots=True)
class Merge:
    """Put `new` in the place of `gone`: in the tail, or (compaction) among the own pieces of a partition.

    `before` is the row as it was read.
    """

    partition: int | None
    gone: tuple[Object, ...]
    new: Object | None
    before: tuple[Object, ...]
    cleaned: int = 0

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """See `Settle.on`."""
        row = base.tail if self.partition is None else base.own[self.partition]
        if not guards.exact_pieces:
            row = self.before
        at = row.index(self.gone[0]) if self.gone[0] in row else -1
        if at < 0 or row[at : at + len(self.gone)] != self.gone:
            return None
        if self.new is None and base.cleaned >= self.cleaned:
            return None
        put = self.gone if self.new is None else (self.new,)
        row = (*row[:at], *put, *row[at + len(self.gone) :])
        cleaned = max(base.cleaned, self.cleaned)
        if self.partition is None:
            return replace(base, tail=row, cleaned=cleaned)
        own = (*base.own[: self.partition], row, *base.own[self.partition + 1 :])
        return replace(base, own=own, cleaned=cleaned)

    @property
    def made(self) -> tuple[Object, ...]:
        """See `Settle.made`."""
        return () if self.new is None else (self.new,)


@dataclass(frozen=True, slots=True)
class Split:
    """Put own objects, one for each partition, in the place of the first shared one."""

    gone: Object
    new: tuple[Object, ...]

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """See `Settle.on`."""
        if base.tail[:1] != (self.gone,):
            return None
        own = tuple((*row, new) for row, new in zip(base.own, self.new, strict=True))
        return replace(base, own=own, tail=base.tail[1:])

    @property
    def made(self) -> tuple[Object, ...]:
        """See `Settle.made`."""
        return self.new


@dataclass(frozen=True, slots=True)
class LetGo:
    """Stop naming what lies below the log starts. `planned` is what was to stay when it was planned first."""

    planned: tuple[tuple[Object, ...], ...] = ()

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """See `Settle.on`."""
        least = min(logs.start) if guards.every_slice else max(logs.start)
        own = tuple(tuple(o for o in row if o.end > s) for row, s in zip(base.own, logs.start, strict=True))
        tail = tuple(o for o in base.tail if o.end > least)
        if not guards.planned_again and self.planned:
            tail = self.planned[0]
        return None if (own, tail) == (base.own, base.tail) else replace(base, own=own, tail=tail)

    @property
    def made(self) -> tuple[Object, ...]:
        """See `Settle.made`."""
        return ()


@dataclass(frozen=True, slots=True)
class Floor:
    """Raise `filesFloor`."""

    to: int

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """See `Settle.on`."""
        return replace(base, floor=self.to) if self.to > base.floor else None

    @property
    def made(self) -> tuple[Object, ...]:
        """See `Settle.made`."""
        return ()


@dataclass(frozen=True, slots=True)
class Touch:
    """Change nothing, on top of an entry that has drops."""

    def on(self, base: Entry, logs: Logs, guards: Guards) -> Entry | None:
        """See `Settle.on`."""
        return base if base.drops else None

    @property
    def made(self) -> tuple[Object, ...]:
        """See `Settle.made`."""
        return ()


Operation = Settle | Merge | Split | LetGo | Floor | Touch


def has_landed(op: Operation, base: Entry) -> bool:
    """Whether an entry shows that an operation is in force: it names its objects; without any, it came as far (pure)."""
    if op.made:
        return any(new in base.named for new in op.made)
    return isinstance(op, Merge) and base.cleaned >= op.cleaned


def draft(by: str, op: Operation, logs: Logs, guards: Guards, first: bool) -> Entry | str:
    """The entry that publishes an operation on the newest one; why not, where a precondition fails (pure)."""
    base = logs.settle.entry
    checked = guards if first or guards.every_attempt else replace(guards, settled_exactly=False, exact_pieces=False)
    if not first and not guards.rebase and isinstance(op, Merge):
        return "another one was first"
    floor = {"each": True, "first": first, "never": False}[guards.floor_checked]
    if floor and any(new.number < base.floor for new in op.made):
        return "its objects are below the floor"
    after = op.on(base, logs, checked)
    if after is None:
        return "its preconditions do not hold"
    drops = ordered(base.named - after.named)
    if guards.draft_has_own_id and isinstance(op, LetGo):  # of one operation only this kind plans again
        by = "-".join([by, *(each.maker for each in drops)])
    return entry(replace(after, number=base.number + 1, by=by, prev=base.by, drops=drops, attempt=0))
