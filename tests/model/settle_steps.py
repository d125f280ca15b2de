"""The processes of the settle model: settlers, merges, compactions, retention, sweepers, collectors, readers.

Each is a chain of phases (see `exploration`); they read like the protocol, and each rule can be taken out by a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from tests.model.exploration import Ask, Done, Next, Phase
from tests.model.settle_requests import (
    Await,
    Begin,
    Clock,
    Commit,
    Delete,
    Doomed,
    Head,
    Land,
    List,
    Logs,
    Newest,
    Prove,
    Publish,
    Put,
    PutObject,
    PutTimed,
    RaiseStart,
    Read,
    Reply,
    Scan,
    Scanned,
    Sources,
    Stray,
    Tick,
    Timed,
    Work,
    linked,
)
from tests.model.settle_rules import (
    ALL,
    Accepted,
    Cleaned,
    Dropped,
    Floor,
    Guards,
    Handed,
    LetGo,
    Lost,
    Merge,
    Operation,
    Published,
    Settle,
    Split,
    Stolen,
    Touch,
    draft,
    has_landed,
)
from tests.model.settle_store import Entry, Object, Seen, World, entry, made, ordered

# --- Publishing: attempt -> place -> confirm ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Me:
    """A process: its name, the rules it obeys, and how many pieces of work it does."""

    name: str
    guards: Guards = ALL
    rounds: int = 1
    take: int = 1
    piece: int = 0
    stealing_counts: bool = False

    @property
    def operation(self) -> str:
        """The write id of the operation under way."""
        return f"{self.name}{self.rounds}" + (f".{self.piece}" if self.piece else "")

    def next_round(self) -> Me:
        """The same with one piece of work less to do."""
        return replace(self, rounds=self.rounds - 1)


After = Callable[..., Phase]


def attempt(me: Me, op: Operation, first: bool, after: After, args: tuple[Hashable, ...]) -> Phase:
    """Read the newest entries, and draft on them."""
    logs: Logs = yield Newest()
    found = draft(me.operation, op, logs, me.guards, first)
    if isinstance(found, str):
        if has_landed(op, logs.settle.entry):  # by an earlier put whose reply was lost
            return Next(after, (me, *args), Published(me.operation) if op.made else None)
        if not me.guards.landed_if_named and not first:
            return Next(after, (me, *args))
        return Done(Stolen(me.name) if me.stealing_counts and isinstance(op, Merge) else Dropped(me.name, found))
    return Next(place, (me, op, logs.settle, found, after, args))


def place(me: Me, op: Operation, anchor: Seen, new: Entry, after: After, args: tuple[Hashable, ...]) -> Phase:
    """Put at the next number; what is there already is read back."""
    reply = yield Put(new)
    match reply:
        case Reply.STORED:
            return Next(confirm, (me, op, anchor, after, args))
        case Reply.PUT:
            return Next(place, (me, op, anchor, new, after, args))
        case Reply.EXISTS:
            there: Seen | None = yield Read(new.number)
            if there is not None and there.entry.by == new.by:
                return Next(confirm, (me, op, anchor, after, args))
    return Next(attempt, (me, op, False, after, args))


def confirm(me: Me, op: Operation, anchor: Seen, after: After, args: tuple[Hashable, ...]) -> Phase:
    """The put counts if the entry that it was built on is still there."""
    unchecked = isinstance(op, Floor) and not me.guards.floor_confirmed
    if unchecked or (yield from holds(me.guards, anchor)):
        claim = None if isinstance(op, Floor) else Published(me.operation)
        return Next(after, (me, *args), claim)
    return Next(attempt, (me, op, False, after, args))


def holds(guards: Guards, anchor: Seen) -> Ask[bool]:
    """Whether the remembered entry still exists, as far as the guards look."""
    if guards.anchor == "none":
        return True
    now: Seen | None = yield Read(anchor.number)
    if now is None:
        return False
    match guards.anchor:
        case "bytes":
            return now.entry is anchor.entry
        case "times":
            return (now.entry, now.at) == (anchor.entry, anchor.at)
        case _:
            return now == anchor


def put_object(me: Me, new: Object) -> Ask[bool]:
    """Put an object; after doubt, look whether it is there. False: it can't be put."""
    for _ in range(2):
        reply = yield PutObject(new)
        if reply is Reply.STORED or not me.guards.head:
            return True
        there: bool = yield Head((new,))
        if there:
            return True
    return False


def name_of(me: Me) -> str:
    """What is unique to this attempt's objects."""
    return me.operation if me.guards.unique_names else "base"


# --- The settler ------------------------------------------------------------------------------------------------


def settle(me: Me) -> Phase:
    """Move the next commits into an object, and publish it."""
    logs: Logs = yield Newest()
    start = logs.settle.entry.settled
    end = min(start + me.take, logs.end)
    if start == end:
        return Done()
    records = yield Sources(start, end)
    if records is None:  # settled by somebody else meanwhile, and collected
        return Next(settle, (me,))
    slices = (records,) * len(logs.start)
    return Next(settle_one, (me, start, made(logs.settle.number, name_of(me), start, end, 0, slices)))


def settle_one(me: Me, start: int, new: Object) -> Phase:
    """Put the object, then the entry."""
    if not (yield from put_object(me, new)):
        return Done()
    return Next(attempt, (me, Settle(start, new), True, settle_again, ()))


def settle_again(me: Me) -> Phase:
    """The next piece."""
    return Next(settle, (me.next_round(),)) if me.rounds > 1 else Done()
    yield


# --- Merges -------------------------------------------------------------------------------------------------------


def merge(me: Me, partition: int | None = None) -> Phase:
    """Join two neighbours of the tail, or of a partition's own pieces; what is below the log start is left out."""
    logs: Logs = yield Newest()
    base = logs.settle.entry
    row = base.tail if partition is None else base.own[partition]
    pair = mergeable(row, me.guards)
    if pair is None:
        return Done()
    there = yield Head(pair)
    if not there:
        return Next(merge, (me, partition))
    starts = [(p, start) for p, start in enumerate(logs.start) if partition in (None, p)]
    slices = tuple(joined_slices(pair, p if partition is None else 0, start) for p, start in starts)
    new = made(logs.settle.number, name_of(me), pair[0].start, pair[1].end, pair[0].tier + 1, slices)
    return Next(publish_merge, (me, Merge(partition, pair, new, row)))


def mergeable(row: tuple[Object, ...], guards: Guards) -> tuple[Object, Object] | None:
    """The first two neighbours of the lowest tier (pure)."""
    for left, right in pairwise(row):
        if left.tier == right.tier == 0 or not guards.tiers:
            return left, right
    return None


def joined_slices(pieces: tuple[Object, ...], partition: int, start: int) -> tuple[int, ...]:
    """The records of a partition in these objects, from its log start on."""
    held = [piece.slices[partition] or () for piece in pieces]
    return tuple(record for each in held for record in each if record >= start or record < 0)


def publish_merge(me: Me, op: Merge) -> Phase:
    """Put what was merged, then the entry."""
    for new in op.made:
        if not (yield from put_object(me, new)):
            return Done()
    return Next(attempt, (me, op, True, merge_again, (op.partition,)))


def merge_again(me: Me, partition: int | None) -> Phase:
    """The next pair."""
    return Next(merge, (me.next_round(), partition)) if me.rounds > 1 else Done()
    yield


def split(me: Me) -> Phase:
    """Write the first shared object as own ones, a request for each partition."""
    logs: Logs = yield Newest()
    tail = logs.settle.entry.tail
    if not tail:
        return Done()
    there = yield Head(tail[:1])
    if not there:
        return Next(split, (me,))
    one, number = tail[0], logs.settle.number
    new = tuple(
        made(
            number,
            f"{name_of(me)}.{partition}",
            one.start,
            one.end,
            one.tier,
            (joined_slices((one,), partition, start),),
        )
        for partition, start in enumerate(logs.start)
    )
    return Next(publish_split, (me, Split(one, new)))


def publish_split(me: Me, op: Split) -> Phase:
    """Put all own objects, then the entry."""
    for new in op.new:
        if not (yield from put_object(me, new)):
            return Done()
    return Next(attempt, (me, op, True, split_again, ()))


def split_again(me: Me) -> Phase:
    """No more."""
    return Done()
    yield


# --- Compaction by key ------------------------------------------------------------------------------------------


def compact(me: Me, world: World) -> Phase:
    """Read the keys of partition 0's own pieces, then write each again that has something to lose."""
    logs: Logs = yield Newest()
    base = logs.settle.entry
    row = tuple(each for each in base.own[0] if each.tier >= world.full)
    there = yield Head(row)
    if not there:
        return Next(compact, (me, world))
    if not row or (row[-1].end <= base.cleaned and not any(left_out(piece, row, base.cleaned, world) for piece in row)):
        return Done()
    plan = tuple((piece, left_out(piece, row, base.cleaned, world)) for piece in row)
    return Next(compact_piece, (me, plan, row, world, logs.settle.number))


def left_out(piece: Object, row: tuple[Object, ...], cleaned: int, world: World) -> frozenset[int]:
    """The records of a piece that may go: superseded by a record that was not compacted yet, and old tombstones (pure).

    Below `cleaned` every key is taken to have one record, as Kafka's cleaner does.
    """
    all_of_them = [record for each in row for record in each.slices[0] or ()]
    dirty = [record for record in all_of_them if record >= cleaned]
    gone = {
        record
        for record in piece.slices[0] or ()
        if any(newer > record and world.key(newer) == world.key(record) for newer in dirty)
        or (record < cleaned and world.is_tombstone(record))
    }
    return frozenset(gone)


Plan = tuple[tuple[Object, frozenset[int]], ...]


def compact_piece(me: Me, plan: Plan, row: tuple[Object, ...], world: World, number: int) -> Phase:
    """The next piece; `cleaned` rises with the last one."""
    (piece, gone), rest = plan[0], plan[1:]
    logs: Logs = yield Newest()
    if me.guards.pieces:  # named when THIS piece is begun
        number = logs.settle.number
    cleaned = row[-1].end if not rest or not me.guards.cleaned_last else 0
    if not gone and not cleaned:
        return Next(compact_rest, (me, rest, row, world, number))
    new = None
    if gone:
        kept = tuple(record for record in piece.slices[0] or () if record not in gone)
        yield Work(logs.settle.number)
        new = made(
            number, f"{name_of(replace(me, piece=0))}.{piece.start}", piece.start, piece.end, piece.tier, (kept,)
        )
        if not (yield from put_object(me, new)):
            return Done()
    op = Merge(0, (piece,), new, row, cleaned)
    return Next(attempt, (replace(me, piece=piece.start), op, True, compact_rest, (rest, row, world, number)))


def compact_rest(me: Me, rest: Plan, row: tuple[Object, ...], world: World, number: int) -> Phase:
    """The pieces that are left; after the last one, the next round."""
    if rest:
        return Next(compact_piece, (me, rest, row, world, number))
    claim = Cleaned(me.name)
    return Next(compact, (replace(me.next_round(), piece=0), world), claim) if me.rounds > 1 else Done(claim)
    yield


# --- Retention ----------------------------------------------------------------------------------------------------


def retain(me: Me, raises: tuple[tuple[int, int], ...]) -> Phase:
    """Raise log starts by entries of the topic journal, then stop naming what is below."""
    for partition, to in raises:
        yield RaiseStart(partition, to)
    logs: Logs = yield Newest()
    op = LetGo()
    planned = op.on(logs.settle.entry, logs, me.guards)
    if planned is not None:
        op = LetGo((planned.tail,))
    return Next(attempt, (me, op, True, split_again, ()))


def raise_starts(raises: tuple[tuple[int, int], ...]) -> Phase:
    """Delete-records by somebody else."""
    partition, to = raises[0]
    yield RaiseStart(partition, to)
    return Next(raise_starts, (raises[1:],)) if raises[1:] else Done()


# --- The sweeper ----------------------------------------------------------------------------------------------------


def sweep(me: Me) -> Phase:
    """Raise the floor to the newest number, then delete what is below it and not named."""
    logs: Logs = yield Newest()
    if not me.guards.floor:
        seen: Scanned = yield Scan()
        return Next(sweep_objects, (me, doomed(seen.files, seen.objects, logs.settle.number, me.guards)))
    early: tuple[Doomed, ...] | None = None
    if not me.guards.named_after:
        scanned: Scanned = yield Scan()
        early = doomed(scanned.files, scanned.objects, logs.settle.number, me.guards)
    return Next(attempt, (me, Floor(logs.settle.number), True, sweep_named, (logs.settle.number, early)))


def sweep_named(me: Me, floor: int, early: tuple[Doomed, ...] | None) -> Phase:
    """The floor's entry is confirmed: read what is named."""
    if early is not None:
        return Next(sweep_objects, (me, early))
    seen: Scanned = yield Scan()
    return Next(sweep_objects, (me, doomed(seen.files, seen.objects, floor, me.guards)))


def doomed(files: tuple[Seen, ...], objects: tuple[Object, ...], floor: int, guards: Guards) -> tuple[Doomed, ...]:
    """The objects below the floor that no retained entry names (pure)."""
    named = frozenset[Object]().union(*(seen.entry.named for seen in (files if guards.names_of_all else files[-1:])))
    return tuple(("object", each) for each in objects if each.number < floor and each not in named)


def sweep_objects(me: Me, gone: tuple[Doomed, ...]) -> Phase:
    """Delete one by one."""
    if not gone:
        return Next(sweep, (me.next_round(),)) if me.rounds > 1 else Done()
    yield Delete(gone[0])
    return Next(sweep_objects, (me, gone[1:]))


def sweep_slowly(me: Me) -> Phase:
    """As `sweep`, but the retained entries are read one by one, while others write and collect."""
    logs: Logs = yield Newest()
    return Next(attempt, (me, Floor(logs.settle.number), True, sweep_newest, (logs.settle.number,)))


def sweep_newest(me: Me, floor: int) -> Phase:
    """The newest first."""
    named = frozenset[Object]()
    if me.guards.newest_read == "first":
        logs: Logs = yield Newest()
        named = logs.settle.entry.named
    numbers: tuple[int, ...] = yield List(every=True)
    return Next(sweep_entry, (me, floor, named, numbers))


def sweep_entry(me: Me, floor: int, named: frozenset[Object], numbers: tuple[int, ...]) -> Phase:
    """One more of those that were listed; one that is gone was collected."""
    if not numbers:
        if me.guards.newest_read == "last":
            logs: Logs = yield Newest()
            named |= logs.settle.entry.named
        seen: Scanned = yield Scan()
        gone = tuple(("object", each) for each in seen.objects if each.number < floor and each not in named)
        return Next(sweep_objects, (me, gone))
    found: Seen | None = yield Read(numbers[0])
    more = found.entry.named if found else frozenset[Object]()
    return Next(sweep_entry, (me, floor, named | more, numbers[1:]))


# --- The collector ------------------------------------------------------------------------------------------------


def collect(me: Me, slack: int = 1) -> Phase:
    """Read all retained entries; delete what settled commits left, then drops and entries that are old enough."""
    seen: Scanned = yield Scan(collecting=True, believes_all=not me.guards.chain, slack=slack)
    plan = planned(seen, me.guards)
    return Next(collect_one, (me, plan, slack)) if plan else Done()


def planned(seen: Scanned, guards: Guards) -> tuple[Doomed, ...]:
    """What goes, in order (pure)."""
    believed = {each.number: each.entry for each in (linked(seen.files) if guards.chain else seen.files)}
    proof = believed[seen.proof]
    plan: list[Doomed] = []
    for record in seen.commits:
        if record < proof.settled:
            plan += [("chunk", record), ("commit", record)]
    numbers = list(seen.numbers)
    going = [n for n in numbers[:-2] if n < seen.proof]
    staying = [n for n in numbers if n not in going]
    for number in going if guards.ascending else going[::-1]:
        drops: list[Doomed] = [("object", each) for each in believed[number].drops] if number in believed else []
        plan += [*drops, ("entry", number)] if guards.drops_first else [("entry", number), *drops]
    if guards.drops_of_all:
        staying = [n for n in staying if n <= seen.proof]
        plan += [("object", each) for n in staying if n in believed for each in believed[n].drops]
    elif guards.drops_of_lowest and staying and staying[0] in believed:
        plan += [("object", each) for each in believed[staying[0]].drops]
    return tuple(plan)


def collect_one(me: Me, plan: tuple[Doomed, ...], slack: int) -> Phase:
    """Delete the first."""
    yield Delete(plan[0])
    if plan[1:]:
        return Next(collect_one, (me, plan[1:], slack))
    return Next(collect, (me.next_round(), slack)) if me.rounds > 1 else Done()


def collect_slowly(me: Me) -> Phase:
    """As `collect`, but entries are read one by one, from the newest down, while others write and collect."""
    logs: Logs = yield Newest()
    numbers: tuple[int, ...] = yield List(every=True)
    return Next(collect_down, (me, (logs.settle,), numbers))


def collect_down(me: Me, found: tuple[Seen, ...], numbers: tuple[int, ...]) -> Phase:
    """The entry below; one that is gone, or that is not the predecessor, ends the chain."""
    lowest = found[0]
    if lowest.number - 1 in numbers:
        below: Seen | None = yield Read(lowest.number - 1)
        if below is not None and (below.entry.by == lowest.entry.prev or not me.guards.chain):
            return Next(collect_down, (me, (below, *found), numbers))
    seen: Scanned = yield Prove(found, numbers)
    plan = planned(seen, me.guards)
    return Next(collect_one, (me, plan, 1)) if plan else Done()


def touch(me: Me) -> Phase:
    """An idle topic lets go of what its last entry dropped."""
    if me.guards.touch:
        return Next(attempt, (me, Touch(), True, split_again, ()))
    return Done()
    yield


# --- The reader ---------------------------------------------------------------------------------------------------


def read_call(me: Me, known: Seen | None) -> Phase:
    """A call: find the newest settle entry, from a remembered one by probing, without one by listing."""
    top = yield Begin()
    return Next(probe, (me, known, known, top)) if known else Next(listed, (me, top))


def probe(me: Me, anchor: Seen, latest: Seen, top: int) -> Phase:
    """Go on by numbers; what was reached counts while the anchor is there."""
    ahead: Seen | None = yield Read(latest.number + 1)
    if ahead is not None:
        return Next(probe, (me, anchor, ahead, top))
    if not me.guards.probe_anchored or (yield from holds(me.guards, anchor)):
        return Next(open_all, (me, latest, latest.entry.named), Accepted(latest, top))
    return Next(listed, (me, top))


def listed(me: Me, top: int) -> Phase:
    """List, read, list again, look again."""
    last: int = yield List()
    found: Seen | None = yield Read(last)
    if found is None:
        return Next(listed, (me, top))
    if me.guards.listed_twice:
        once_more: int = yield List()
        if once_more != last or not (yield from holds(me.guards, found)):
            return Next(listed, (me, top))
    return Next(open_all, (me, found, found.entry.named), Accepted(found, top))


def open_all(me: Me, view: Seen, left: frozenset[Object]) -> Phase:
    """Open what the view names, one by one."""
    if not left:
        return Next(read_call, (me.next_round(), view)) if me.rounds > 1 else Done()
    one = ordered(left)[0]
    there = yield Head((one,))
    if there:
        return Next(open_all, (me, view, left - {one}))
    if not me.guards.re_read:
        return Done(Lost(str(one)))
    newest: Logs = yield Newest()
    return Done(Lost(str(one))) if one in newest.settle.entry.named else Done()


def read_unsettled(me: Me, settled_first: bool = False) -> Phase:
    """Read the first commit that is not settled: its entry counts while a newer look still has it unsettled."""
    logs: Logs = yield Newest()
    first = logs.settle.entry.settled
    if first == logs.end:
        return Done()
    records = yield Sources(first, first + 1)
    if records is not None and not me.guards.unsettled_again:
        return Done(Handed(records))
    newest: Logs = yield Newest()
    if newest.settle.entry.settled > first:
        return Next(read_unsettled, (me.next_round(),)) if me.rounds > 1 else Done()
    return Done(Lost(f"commit {first}") if records is None else Handed(records))


# --- Identity where files have only bytes and whole seconds ------------------------------------------------


class Known(NamedTuple):
    """A remembered entry: its bytes, and its Last-Modified: at least and at most."""

    entry: Entry
    least: int
    most: int


def still_known(guards: Guards, known: Known) -> Ask[bool]:
    """Whether the remembered entry is still there, by bytes and times."""
    now: Seen | None = yield Read(known.entry.number)
    if now is None or now.entry is not known.entry:
        return False
    return not guards.times_count or known.least <= now.at <= known.most


def write_twice(me: Me, world: World) -> Phase:
    """Publish, and publish once more on top of the own entry, whose time no reply gave."""
    logs: Logs = yield Newest()
    seen = logs.settle
    return Next(write_timed, (me, world, Known(seen.entry, seen.at, seen.at), 1))


def write_timed(me: Me, world: World, anchor: Known, tries: int) -> Phase:
    """Put on top of the anchor; after a lost reply once more. What is there already may be the own entry."""
    begun: int = yield Clock()
    base = anchor.entry
    number = tries if me.guards.attempts_differ else 1
    new = entry(replace(base, number=base.number + 1, by=me.operation, prev=base.by, drops=(), attempt=number))
    got: Timed = yield PutTimed(new, promptly=me.rounds == 1 or tries == 2)
    if got.reply is Reply.PUT:
        return Next(write_timed, (me, world, anchor, 2))
    if got.reply is Reply.LATER:
        got = yield Await()
    if got.reply is Reply.EXISTS:
        there: Seen | None = yield Read(new.number)
        if there is None or there.entry.by != me.operation:
            return Done()
        return Next(confirm_known, (me, world, anchor, Known(there.entry, there.at, there.at)))
    return Next(confirm_timed, (me, world, anchor, new, begun, got))


def confirm_timed(me: Me, world: World, anchor: Known, new: Entry, begun: int, got: Timed) -> Phase:
    """Under a standing anchor it counts; a slow put's time is asked for."""
    known = Known(new, 0, got.date + world.tolerance)
    if me.guards.slow_is_asked and got.clock - begun > world.delay / 2:
        own: Seen | None = yield Read(new.number)
        if own is None or own.entry is not new:
            return Done()
        known = Known(new, own.at, own.at)
    return Next(confirm_known, (me, world, anchor, known))


def confirm_known(me: Me, world: World, anchor: Known, known: Known) -> Phase:
    """The anchor stands: it is published."""
    if not (yield from still_known(me.guards, anchor)):
        return Done()
    claim = Published(me.operation)
    if me.rounds == 1:
        return Done(claim)
    return Next(write_timed, (me.next_round(), world, known, 1), claim)


# --- The surroundings ---------------------------------------------------------------------------------------------


def commit(records: int) -> Phase:
    """History goes on: commits."""
    yield Commit()
    return Next(commit, (records - 1,)) if records > 1 else Done()


def publish(entries: int) -> Phase:
    """History goes on: settle entries of others."""
    yield Publish()
    return Next(publish, (entries - 1,)) if entries > 1 else Done()


def network() -> Phase:
    """Late puts land, in any order and at any time."""
    yield Land()
    return Next(network, ())


def zombie(strays: int) -> Phase:
    """A committer that was paused puts at collected numbers."""
    yield Stray()
    return Next(zombie, (strays - 1,)) if strays > 1 else Done()


def history(entries: int) -> Phase:
    """Others publish at once; then time goes on."""
    if not entries:
        yield Tick()
    else:
        yield Publish()
    return Next(history, (max(0, entries - 1),))
