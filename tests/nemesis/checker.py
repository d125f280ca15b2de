"""What histories of a log on several roots say of its promises. Pure.

Each function returns what contradicts one promise, a sentence each; `faults` all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from tests.nemesis.history import Acked, Batches, Committed, Event, Read, Shown

#: What stands for an offset without a record (it was lost by an election before anybody read it).
_GAP = None
#: A partition, and an offset.
Place = tuple[int, int]
_Kind = TypeVar("_Kind")


def faults(
    histories: Iterable[Sequence[Event]], final: Mapping[str, Sequence[Read]], groups: Iterable[Committed] = ()
) -> list[str]:
    """Return what contradicts the promises of a topic that keeps all; `cleaned` has those of others.

    Args:
        histories: of each process, the events in their order.
        final: what was read of each root, from its beginning to its end, when nothing failed any more.
        groups: what the groups had committed then.
    """
    found = [list(history) for history in histories]
    acked, reads = of_kind(found, Acked), of_kind(found, Read)
    last = [read for each in final.values() for read in each]
    return [
        *lost(acked, final),
        *of_groups(of_kind(found, Committed), groups, reads, last),
        *unlike_batches(of_kind(found, Batches), final),
        *doubled([*reads, *last]),
        *changed(reads, last),
        *not_rising([*reads, *last]),
        *went_back(found),
        *out_of_order(acked),
        *parted(final),
    ]


def of_kind(histories: Iterable[Sequence[Event]], kind: type[_Kind]) -> list[_Kind]:
    """Return the events of one kind."""
    return [event for history in histories for event in history if isinstance(event, kind)]


def lost(acked: Iterable[Acked], final: Mapping[str, Sequence[Read]]) -> list[str]:
    """What was acknowledged with acks=all is on each root in the end, at the offset that was returned."""
    found = []
    everything = [event for event in acked if event.acks == "all"]
    for root, reads in final.items():
        records, places = records_of(reads), defaultdict[str, list[Place]](list)
        for place, value in records.items():
            places[value].append(place)
        for event in everything:
            at = places.get(event.value, [])
            if not at:
                found.append(f"lost at {root}: {event}")
            elif event.offset >= 0 and (event.partition, event.offset) not in at:
                found.append(f"at {root} at {at}, not where it was acknowledged: {event}")
    return found


def of_groups(
    commits: Iterable[Committed], left: Iterable[Committed], reads: Iterable[Read], final: Iterable[Read]
) -> list[str]:
    """What a group committed it has in the end, and a member was handed out each record below that."""
    top = dict[tuple[str, int], int]()
    for each in commits:
        top[each.group, each.partition] = max(each.offset, top.get((each.group, each.partition), 0))
    now = {(each.group, each.partition): each.offset for each in left}
    found = [f"{at} committed {offset}, and has {now.get(at)}" for at, offset in top.items() if now.get(at, 0) < offset]
    seen = {(read.root, read.partition, offset) for read in reads for offset, _ in read.records}
    there = sorted(records_of(final))
    for (group, partition), end in top.items():
        missing = [at for part, at in there if part == partition and at < end and (group, part, at) not in seen]
        if missing:
            found.append(f"{group} committed {end} of partition {partition}, no member was handed out {missing[:20]}")
    return found


def unlike_batches(queries: Iterable[Batches], final: Mapping[str, Sequence[Read]]) -> list[str]:
    """Each root has a query's batches in the end from the first to the last that is committed, whole, perhaps one more."""
    found = []
    for query in queries:
        for root, reads in final.items():
            written = [value.rpartition("-") for value in records_of(reads).values()]
            numbers = sorted(int(number) for writer, _, number in written if writer == query.writer)
            if numbers != list(range(len(numbers))):
                found.append(
                    f"at {root} rows of {query.writer} are missing or doubled: {_odd(numbers)} of {len(numbers)}"
                )
            elif len(numbers) % query.rows:
                found.append(f"at {root} the last batch of {query.writer} is not whole: {len(numbers)} rows")
            elif not query.committed <= len(numbers) // query.rows <= query.committed + 1:
                found.append(f"at {root} {query.writer} has {len(numbers) // query.rows} batches: {query}")
    return found


def _odd(numbers: Sequence[int]) -> int:
    """Return the first number that is missing or there again."""
    return next(place for place, number in enumerate(numbers) if number != place)


def doubled(reads: Iterable[Read]) -> list[str]:
    """No value has two offsets, whoever read it wherever and whenever."""
    places = defaultdict[str, set[Place]](set)
    for read in reads:
        for offset, value in read.records:
            places[value].add((read.partition, offset))
    return [f"{value} is twice in the log, at {sorted(at)}" for value, at in places.items() if len(at) > 1]


def changed(reads: Iterable[Read], final: Iterable[Read]) -> list[str]:
    """What was read at an offset, a record or a gap, is read there for ever, at each root."""
    seen, found = dict[Place, tuple[str | None, str]](), []
    for read in [*reads, *final]:
        records = dict(read.records)
        if strays := [offset for offset in records if not read.start <= offset < read.end]:
            found.append(f"{strays} are not among the offsets that were read: {read}")
        for offset in range(read.start, read.end):
            value = records.get(offset, _GAP)
            before, root = seen.setdefault((read.partition, offset), (value, read.root))
            if before != value:
                found.append(
                    f"partition {read.partition}, offset {offset}: {before or 'a gap'} at {root}, "
                    f"then {value or 'a gap'} at {read.root}"
                )
    return found


def not_rising(reads: Iterable[Read]) -> list[str]:
    """Offsets strictly rise, in whatever was read at one time."""
    found = []
    for read in reads:
        offsets = [offset for offset, _ in read.records]
        if any(this >= that for this, that in pairwise(offsets)):
            found.append(f"offsets do not rise at {read.root}, partition {read.partition}: {offsets}")
    return found


def went_back(histories: Iterable[Sequence[Event]]) -> list[str]:
    """The high watermark, and log starts, of a root never go back, in the eyes of any one reader, while it has all it had."""
    found = []
    for history in histories:
        last: dict[tuple[str, int], Shown] = {}
        for event in history:
            if not isinstance(event, Shown):
                continue
            before = last.get((event.root, event.life), event)
            if event.number < before.number or _fell(before.ends, event.ends) or len(event.ends) < len(before.ends):
                found.append(f"the high watermark went back: {before}, then {event}")
            if _fell(before.starts, event.starts):
                found.append(f"a log start offset went back: {before}, then {event}")
            last[event.root, event.life] = event
    return found


def _fell(before: Sequence[int], now: Sequence[int]) -> bool:
    return any(then > after for then, after in zip(before, now, strict=False))


def out_of_order(acked: Iterable[Acked]) -> list[str]:
    """The records of one writer, by their numbers (`name-number`), have rising offsets in each partition."""
    rows = defaultdict[tuple[str, int], list[tuple[int, int]]](list)
    for event in acked:
        if event.offset >= 0:
            rows[event.writer, event.partition].append((int(event.value.rpartition("-")[2]), event.offset))
    found = []
    for (writer, partition), pairs in rows.items():
        offsets = [offset for _, offset in sorted(pairs)]
        if offsets != sorted(offsets):
            found.append(f"the records of {writer} in partition {partition} are out of order: {sorted(pairs)}")
    return found


def parted(final: Mapping[str, Sequence[Read]]) -> list[str]:
    """All roots have equal records, and gaps, in the end."""
    found, first = [], next(iter(final), "")
    for root, reads in final.items():
        if _extent(reads) != _extent(final[first]):
            found.append(f"{root} ends at {_extent(reads)}, {first} at {_extent(final[first])}")
        here, there = records_of(reads), records_of(final[first])
        found += [f"{place} differs at {root} and {first}" for place in here.keys() ^ there.keys()]
    return found


def records_of(reads: Iterable[Read]) -> dict[Place, str]:
    """Return the records of reads by their places."""
    return {(read.partition, offset): value for read in reads for offset, value in read.records}


def _extent(reads: Iterable[Read]) -> dict[int, tuple[int, int]]:
    """Return the first and last offsets that were read of each partition."""
    found: dict[int, tuple[int, int]] = {}
    for read in reads:
        start, end = found.get(read.partition, (read.start, read.end))
        found[read.partition] = min(start, read.start), max(end, read.end)
    return found
