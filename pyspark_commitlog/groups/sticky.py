"""The sticky assignment: as balanced as can be, then as few moves as can be (Kafka: ``AbstractStickyAssignor``). Pure.

Where all members want the same topics the result is Kafka's, partition by partition. Else it is as balanced as Kafka's,
and moves a partition only to a member that has two less; which of several such moves is made first is not Kafka's to
promise, and here goes by the sorted names.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set

from pyspark_commitlog.model import TopicPartition

_Assigned = dict[str, list[TopicPartition]]


def sticky(
    partitions: Mapping[str, int], topics: Mapping[str, Set[str]], owned: Mapping[str, Sequence[TopicPartition]]
) -> _Assigned:
    """Return member -> partitions.

    Args:
        partitions: topic -> how many it has.
        topics: member -> the topics it wants, members in their order.
        owned: member -> what it has now, in its order. A partition that several say they have is nobody's.
    """
    claims = Counter(place for places in owned.values() for place in places)

    def kept(member: str) -> list[TopicPartition]:
        return [
            place
            for place in owned[member]
            if claims[place] == 1 and place.topic in topics[member] and place.partition < partitions.get(place.topic, 0)
        ]

    before = {member: kept(member) for member in topics}
    wanted = [set(each) & partitions.keys() for each in topics.values()]
    if all(each == wanted[0] for each in wanted):
        return _equal(_places(partitions, wanted[0] if wanted else set()), before)
    return _general(partitions, topics, before)


def _places(partitions: Mapping[str, int], topics: Set[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in sorted(topics) for number in range(partitions[topic])]


def _equal(places: list[TopicPartition], owned: _Assigned) -> _Assigned:
    """Assign where all want the same (Kafka: ``constrainedAssign``): everybody gets the quota, some one more.

    First who has partitions keeps them up to that, then those below the quota are filled in turns, and then some get
    the one more.
    """
    if not owned:
        return {}
    low, over = divmod(len(places), len(owned))
    found: _Assigned = {}
    below: list[str] = []
    at_low: list[str] = []
    for member, places_before in owned.items():
        if len(places_before) > low and over:
            found[member], over = places_before[: low + 1], over - 1
        else:
            found[member] = places_before[:low]
            (below if len(places_before) < low else at_low).append(member)
    taken = {place for each in found.values() for place in each}
    free = deque(place for place in places if place not in taken)
    ready = at_low
    while below:
        still: list[str] = []
        for member in below:
            found[member].append(free.popleft())
            (still if len(found[member]) < low else ready).append(member)
        below = still
    for member, place in zip(ready, free, strict=False):
        found[member].append(place)
    return found


def _general(partitions: Mapping[str, int], topics: Mapping[str, Set[str]], owned: _Assigned) -> _Assigned:
    """Assign where members want different topics (Kafka: ``generalAssign``)."""
    found = {member: list(places) for member, places in owned.items()}
    rank = {member: number for number, member in enumerate(topics)}
    wanting = {topic: [m for m in topics if topic in topics[m]] for topic in partitions}
    places = sorted(
        _places(partitions, {topic for topic, members in wanting.items() if members}),
        key=lambda place: (len(wanting[place.topic]), place),
    )

    def smallest(place: TopicPartition) -> str:
        return min(wanting[place.topic], key=lambda member: (len(found[member]), rank[member]))

    owner = {place: member for member, each in found.items() for place in each}
    for place in places:
        if place not in owner:
            owner[place] = smallest(place)
            found[owner[place]].append(place)
    new = [place for place in places if place not in {p for each in owned.values() for p in each}]
    _level(new, found, owner, smallest)  # what moves anyhow, first
    _level(places, found, owner, smallest)
    return found


def _level(
    places: Sequence[TopicPartition],
    found: _Assigned,
    owner: dict[TopicPartition, str],
    smallest: Callable[[TopicPartition], str],
) -> None:
    """Move partitions to members that have two less, until none can be. Each move makes the whole more balanced."""
    moved = True
    while moved:
        moved = False
        for place in places:
            to, member = smallest(place), owner[place]
            if len(found[member]) > len(found[to]) + 1:
                found[member].remove(place)
                found[to].append(place)
                owner[place], moved = to, True
