"""What histories say of topics of which records go: one that is compacted, one of which the oldest are deleted. Pure.

As in `checker` each function returns what contradicts one promise, a sentence each. Records of the compacted topic are
`key=number`, or `key=!number` of one that deletes its key; the numbers of a key's only writer rise (`reading.keyed`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.nemesis.checker import (
    Place,
    changed,
    doubled,
    lost,
    not_rising,
    of_kind,
    out_of_order,
    parted,
    records_of,
    went_back,
)
from tests.nemesis.history import Acked, Deleted, Event, Overtaken, Polled, Read, Sent, Shown

_Final = Mapping[str, Sequence[Read]]

# --- compacted -------------------------------------------------------------------------------------------


def compacted_faults(histories: Iterable[Sequence[Event]], final: _Final) -> list[str]:
    """Return what contradicts the promises of a compacted topic; `final` is what each root has in the end, all of it."""
    found = [list(history) for history in histories]
    acked, reads, sent = of_kind(found, Acked), of_kind(found, Read), of_kind(found, Sent)
    every = [*reads, *(read for each in final.values() for read in each)]
    living = living_of(acked, every)
    return [
        *_conflicts(acked, every),
        *doubled(every),
        *not_rising(every),
        *made_up(sent, every),
        *went_back(found),
        *out_of_order(acked),
        *missing(living, sent, every),
        *came_back(living, final),
        *unlike(final),
        *uncompacted(living, final),
    ]


def key_of(text: str) -> str:
    """Return a record's key."""
    return text.partition("=")[0]


def deletes(text: str) -> bool:
    """Return whether a record deletes its key."""
    return text.partition("=")[2].startswith("!")


def _number(text: str) -> int:
    return int(text.rpartition("-")[2])


def living_of(acked: Iterable[Acked], reads: Iterable[Read]) -> dict[Place, str]:
    """Return the records that no election takes: acknowledged with acks=all, or read."""
    told = {(event.partition, event.offset): event.value for event in acked if event.acks == "all"}
    return {**records_of(reads), **told}


def _conflicts(acked: Iterable[Acked], reads: Iterable[Read]) -> list[str]:
    """No offset has two records, whoever was told so, or read it, whenever, wherever."""
    seen, found = {(event.partition, event.offset): (event.value, event.writer) for event in acked}, []
    for read in reads:
        for offset, text in read.records:
            before, where = seen.setdefault((read.partition, offset), (text, read.root))
            if before != text:
                at = f"partition {read.partition}, offset {offset}"
                found.append(f"{at}: {before} for {where}, then {text} at {read.root}")
    return found


def made_up(sent: Iterable[Sent], reads: Iterable[Read]) -> list[str]:
    """Nobody reads what nobody sent."""
    known = {event.value for event in sent}
    return [f"nobody sent {text}" for text in sorted(set(records_of(reads).values()) - known)]


def missing(living: Mapping[Place, str], sent: Iterable[Sent], reads: Iterable[Read]) -> list[str]:
    """The newest record of each key is in all that was read where it lies, unless it deletes the key, or a later one may."""
    newest, deleted = _newest(living), dict[str, int]()
    for event in sent:
        if deletes(event.value):
            key = key_of(event.value)
            deleted[key] = max(_number(event.value), deleted.get(key, 0))
    stays = defaultdict[int, list[int]](list)
    for key, place in newest.items():
        if deleted.get(key, 0) < _number(living[place]):
            stays[place[0]].append(place[1])
    for offsets in stays.values():
        offsets.sort()
    found = []
    for read in reads:
        offsets, there = stays[read.partition], {offset for offset, _ in read.records}
        due = offsets[bisect_left(offsets, read.start) : bisect_left(offsets, read.end)]
        found += [
            f"{living[read.partition, at]}, the newest of its key, at {(read.partition, at)}, is not there at "
            f"{read.root}, where {read.start} to {read.end} was read"
            for at in due
            if at not in there
        ]
    return found


def _newest(records: Mapping[Place, str]) -> dict[str, Place]:
    """Return where the newest record of each key is: a key has one partition."""
    return {key_of(records[place]): place for place in sorted(records)}


def came_back(living: Mapping[Place, str], final: _Final) -> list[str]:
    """What a root has of a key in the end is no older than the newest record of it that was there: no deleted key comes back."""
    newest, found = _newest(living), []
    for root, reads in final.items():
        records = records_of(reads)
        found += [
            f"at {root} {records[place]} at {place} is the newest of its key, and was superseded by "
            f"{living[newest[key]]} at {newest[key]}"
            for key, place in _newest(records).items()
            if place < newest[key]
        ]
    return found


def unlike(final: _Final) -> list[str]:
    """All roots end at the same offsets, and have the same newest record of each key, or none."""
    found, first = [], next(iter(final), "")
    ends = {root: {read.partition: read.end for read in reads} for root, reads in final.items()}
    there = _table(final.get(first, ()))
    for root, reads in final.items():
        if ends[root] != ends[first]:
            found.append(f"{root} ends at {ends[root]}, {first} at {ends[first]}")
        here = _table(reads)
        found += [
            f"{key} is {here.get(key)} at {root}, {there.get(key)} at {first}"
            for key in sorted(here.keys() | there.keys())
            if here.get(key) != there.get(key)
        ]
    return found


def _table(reads: Iterable[Read]) -> dict[str, tuple[Place, str]]:
    """Return the newest record of each key that is not deleted."""
    records = records_of(reads)
    return {key: (at, records[at]) for key, at in _newest(records).items() if not deletes(records[at])}


def uncompacted(living: Mapping[Place, str], final: _Final) -> list[str]:
    """Fewer records are left at each root than were written: else nothing of this was tried."""
    left = {root: len(records_of(reads)) for root, reads in final.items()}
    return [
        f"nothing was compacted at {root}: {count} records are left of {len(living)}"
        for root, count in left.items()
        if count >= len(living)
    ]


# --- whose oldest records are deleted --------------------------------------------------------------------


def retained_faults(histories: Iterable[Sequence[Event]], final: _Final, least: int = 0) -> list[str]:
    """Return what contradicts the promises of a topic of which the oldest records are deleted.

    Args:
        histories: of each process, the events in their order.
        final: what was read of each root, from its log start offsets to its ends, when nothing failed any more.
        least: so many offsets of a partition retention leaves.
    """
    found = [list(history) for history in histories]
    acked, reads = of_kind(found, Acked), [*of_kind(found, Read), *_as_reads(of_kind(found, Polled))]
    last = [read for each in final.values() for read in each]
    starts = {root: {read.partition: read.start for read in each} for root, each in final.items()}
    known = living_of((event for event in acked if event.offset >= 0), [*reads, *last])
    return [
        *lost_above(acked, final, starts),
        *doubled([*reads, *last]),
        *changed(reads, last),
        *not_rising([*reads, *last]),
        *went_back(found),
        *out_of_order(acked),
        *parted(final),
        *below_start(found),
        *skipped(known, of_kind(found, Polled), set_back=any(shown.life for shown in of_kind(found, Shown))),
        *not_deleted(of_kind(found, Deleted), starts),
        *told_wrongly(of_kind(found, Overtaken), starts),
        *too_many(of_kind(found, Shown), least),
        *undeleted(starts),
    ]


_Starts = Mapping[str, Mapping[int, int]]


def _as_reads(polled: Iterable[Polled]) -> list[Read]:
    """Return what a consumer was handed out: of what lies between two records nothing is known."""
    return [
        Read("a consumer", each.partition, at, at + 1, ((at, text),)) for each in polled for at, text in each.records
    ]


def lost_above(acked: Iterable[Acked], final: _Final, starts: _Starts) -> list[str]:
    """What was acknowledged with acks=all, from the log start offset on, is on each root in the end, where it was put."""
    every, found = [event for event in acked if event.offset >= 0], list[str]()
    for root, reads in final.items():
        kept = [event for event in every if event.offset >= starts[root].get(event.partition, 0)]
        found += lost(kept, {root: reads})
    return found


def below_start(histories: Iterable[Sequence[Event]]) -> list[str]:
    """Who was shown a log start offset reads nothing below it: neither records, nor gaps."""
    found = []
    for history in histories:
        starts = dict[str, tuple[int, ...]]()
        for event in history:
            if isinstance(event, Shown):
                starts[event.root] = event.starts
            elif isinstance(event, Read) and event.partition < len(starts.get(event.root, ())):
                start = starts[event.root][event.partition]
                if event.start < start:
                    found.append(f"offsets below the log start offset {start} were read: {event}")
    return found


def skipped(known: Mapping[Place, str], polled: Iterable[Polled], *, set_back: bool) -> list[str]:
    """A consumer is handed out all from its position on, but for what is deleted by then.

    Where a root was `set_back` it may go back to where the copy ends, and is handed out all from there on.
    """
    places, found = sorted(known), []
    for each in polled:
        offsets = [offset for offset, _ in each.records]
        if offsets != sorted(set(offsets)) or (min(offsets) < each.position and not set_back):
            found.append(f"a consumer at {each.position} was handed out {offsets}")
        first, end = max(min(each.position, *offsets), each.start), max(offsets) + 1
        low, high = bisect_left(places, (each.partition, first)), bisect_left(places, (each.partition, end))
        if passed := {at for _, at in places[low:high]}.difference(offsets):
            found.append(f"a consumer was not handed out {sorted(passed)[:20]} of partition {each.partition}: {each}")
    return found


def not_deleted(deleted: Iterable[Deleted], starts: _Starts) -> list[str]:
    """What was deleted stays deleted, on each root."""
    return [
        f"{event}, and the log start offset at {root} is {here.get(event.partition, 0)}"
        for event in deleted
        for root, here in starts.items()
        if here.get(event.partition, 0) < event.offset
    ]


def told_wrongly(overtaken: Iterable[Overtaken], starts: _Starts) -> list[str]:
    """Who was told that an offset is deleted was told the truth."""
    return [
        f"{event}, and the log start offset at {root} is {here.get(event.partition, 0)}"
        for event in overtaken
        for root, here in starts.items()
        if here.get(event.partition, 0) <= event.offset
    ]


def too_many(shown: Iterable[Shown], least: int) -> list[str]:
    """Of a partition that is deleted from so many offsets stay."""
    return [
        f"fewer than {least} offsets are left: {event}"
        for event in shown
        if any(start > 0 and end - start < least for start, end in zip(event.starts, event.ends, strict=False))
    ]


def undeleted(starts: _Starts) -> list[str]:
    """Something of each partition was deleted: else nothing of this was tried."""
    return [
        f"nothing of partition {partition} was deleted at {root}"
        for root, here in starts.items()
        for partition, start in here.items()
        if not start
    ]
