"""Sticky assignment: balanced, with fewest moves (Kafka: `AbstractStickyAssignor`). Pure.

The result is Kafka's, without racks and older generations. If Kafka's depends on a hash map's order, it is that for
this order:

- members by id: of those above their share, the first keep one more;
- partitions descending: of several that could move back, that one does.

If Kafka loops for ever, the result is balanced all the same. Nonexistent partitions, and topics nobody wants, stay
unassigned.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set

from pyspark_commitlog.model import TopicPartition

_Assigned = dict[str, list[TopicPartition]]
_Owner = dict[TopicPartition, str]


def sticky(
    partitions: Mapping[str, int], topics: Mapping[str, Set[str]], owned: Mapping[str, Sequence[TopicPartition]]
) -> _Assigned:
    """Return member -> partitions.

    `topics` has wanted topics, existing or not, by sorted members. Conflicting claims in `owned` are ignored.
    """
    wanted = set().union(*topics.values())
    there = {topic: count for topic, count in partitions.items() if topic in wanted and count > 0}
    before = _undisputed(owned, topics, there)
    if all(wish == wanted for wish in topics.values()):
        return _equal(_places(there, sorted(there)), before)
    return _general(there, topics, before)


def _undisputed(
    owned: Mapping[str, Sequence[TopicPartition]], members: Iterable[str], there: Mapping[str, int]
) -> _Assigned:
    claims = Counter(place for places in owned.values() for place in places)
    return {
        member: [place for place in owned[member] if claims[place] == 1 and place.partition < there.get(place.topic, 0)]
        for member in members
    }


def _places(partitions: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]


def _equal(places: list[TopicPartition], owned: _Assigned) -> _Assigned:
    """Assign equal subscriptions (Kafka: `ConstrainedAssignmentBuilder`).

    Members keep up to the quota, low numbers first, the first ones one more. Those below are filled in turns; then some
    get one more.
    """
    if not owned:
        return {}
    low, over = divmod(len(places), len(owned))
    assigned, below, ready = _kept_by_quota(owned, low, over)
    taken = {place for of_one in assigned.values() for place in of_one}
    free = deque(place for place in places if place not in taken)
    while below:
        still: list[str] = []
        for member in below:
            assigned[member].append(free.popleft())
            (still if len(assigned[member]) < low else ready).append(member)
        below = still
    for member, place in zip(ready, free, strict=False):
        assigned[member].append(place)
    return assigned


def _kept_by_quota(owned: _Assigned, low: int, over: int) -> tuple[_Assigned, list[str], list[str]]:
    """Return what members keep, and those below and at the quota of `low`; `over` keep one more."""
    assigned: _Assigned = {}
    below: list[str] = []
    at_low: list[str] = []
    for member, places in owned.items():
        keep = sorted(places, key=lambda place: (place.partition, place.topic))
        if len(keep) > low and over:
            assigned[member], over = keep[: low + 1], over - 1
        else:
            assigned[member] = keep[:low]
            (below if len(keep) < low else at_low).append(member)
    return assigned, below, at_low


def _general(partitions: Mapping[str, int], topics: Mapping[str, Set[str]], owned: _Assigned) -> _Assigned:
    """Assign different subscriptions (Kafka: `GeneralAssignmentBuilder`).

    If every member kept all of its own, newly assigned partitions move first.
    """
    wanting = {topic: sum(topic in of_one for of_one in topics.values()) for topic in partitions}
    places = _places(partitions, sorted(partitions, key=lambda topic: (wanting[topic], topic)))
    kept = _wanted_owners(owned, topics)
    new = [place for place in places if place not in kept]
    spread = _Spread(topics, kept)
    for place in new:
        spread.give(place, spread.least_loaded(place.topic))
    before = dict(spread.owner)
    if len(kept) == sum(map(len, owned.values())):
        _level(new, spread, before)
    _level(places, spread, before)
    # Kafka reverts moves without a better balance; in two million random groups none was.
    assigned: _Assigned = {member: [] for member in topics}
    for place in places:
        assigned[spread.owner[place]].append(place)
    return assigned


def _wanted_owners(owned: _Assigned, topics: Mapping[str, Set[str]]) -> _Owner:
    return {place: member for member, of_one in owned.items() for place in of_one if place.topic in topics[member]}


class _Spread:
    def __init__(self, topics: Mapping[str, Set[str]], owner: Mapping[TopicPartition, str]) -> None:
        self.owner: _Owner = {}
        self.has: dict[str, set[TopicPartition]] = {member: set() for member in topics}
        self._topics = topics
        self._by_size = sorted((0, member) for member in topics)
        self._least_loaded: dict[str, str] = {}  # by topic, until a move
        for place, member in owner.items():
            self.give(place, member)

    def least_loaded(self, topic: str) -> str:
        if topic not in self._least_loaded:
            self._least_loaded[topic] = next(member for _, member in self._by_size if topic in self._topics[member])
        return self._least_loaded[topic]

    def give(self, place: TopicPartition, member: str) -> None:
        if place in self.owner:
            self._resize(self.owner[place], -1)
            self.has[self.owner[place]].remove(place)
        self._resize(member, 1)
        self.has[member].add(place)
        self.owner[place] = member
        self._least_loaded.clear()

    def _resize(self, member: str, by: int) -> None:
        size = len(self.has[member])
        del self._by_size[bisect_left(self._by_size, (size, member))]
        insort(self._by_size, (size + by, member))


def _level(places: Sequence[TopicPartition], spread: _Spread, before: _Owner) -> None:
    """Move partitions to members with two less (Kafka: `performReassignments`).

    `places` is the order of attempts; `before` has the first owners.
    """
    seen: set[tuple[str, ...]] = set()
    circles, moved = False, True
    while moved:
        moved = False
        state = tuple(spread.owner[place] for place in places)
        circles = circles or state in seen
        seen.add(state)
        for place in places:
            to = spread.least_loaded(place.topic)
            if len(spread.has[spread.owner[place]]) > len(spread.has[to]) + 1:
                # moving the partition itself improves the balance, so this ends
                spread.give(place if circles else _partition_to_move(place, to, spread, before), to)
                moved = True


def _partition_to_move(place: TopicPartition, to: str, spread: _Spread, before: _Owner) -> TopicPartition:
    """Partition to move: one of the topic coming back, preferably.

    Else members would swap partitions (Kafka: `PartitionMovements`). As in Kafka, it is sought at the first owner.
    """
    if before[place] == to:
        return place
    came = (own for own in spread.has[before[place]] if own.topic == place.topic and before[own] == to)
    return max(came, default=place)
