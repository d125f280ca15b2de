"""Kafka's assignors as pure functions, with the same results.

`range` and `roundrobin` take members with a `group_instance_id` first, by it, then the others by id (Kafka:
`AbstractPartitionAssignor.MemberInfo`); `sticky` goes by id alone, even if Kafka's result depends on a hash map's
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.assignment.sticky import sticky
from pyspark_commitlog.model import TopicPartition

#: member -> its partitions
Assigned = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member's wanted topics, existing or not, and partitions."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignor:
    """A `partition.assignment.strategy`; cooperative ones revoke only moved partitions."""

    name: str
    assign: Callable[[Mapping[str, int], Mapping[str, Subscriber]], Assigned]
    cooperative: bool = False


def sort_key(member: str, subscriber: Subscriber) -> tuple[bool, str, str]:
    """Return a member's key in the order of members."""
    return subscriber.instance_id is None, subscriber.instance_id or "", member


def _sorted(subscribers: Mapping[str, Subscriber]) -> list[str]:
    return sorted(subscribers, key=lambda member: sort_key(member, subscribers[member]))


def range_assign(partitions: Mapping[str, int], subscribers: Mapping[str, Subscriber]) -> Assigned:
    """Assign each topic in blocks, larger ones first (Kafka: `RangeAssignor`).

    `partitions` are counts by topic.
    """
    order, assigned = _sorted(subscribers), Assigned({member: [] for member in subscribers})
    for topic in sorted(partitions):
        wanting = [member for member in order if topic in subscribers[member].topics]
        if not wanting:
            continue
        share, extra = divmod(partitions[topic], len(wanting))
        start = 0
        for rank, member in enumerate(wanting):
            end = start + share + (rank < extra)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned


def round_robin_assign(partitions: Mapping[str, int], subscribers: Mapping[str, Subscriber]) -> Assigned:
    """Assign all partitions in turn to subscribers (Kafka: `RoundRobinAssignor`)."""
    assigned = Assigned({member: [] for member in subscribers})
    wanted = {topic for subscriber in subscribers.values() for topic in subscriber.topics}
    turns = cycle(_sorted(subscribers))
    for topic in sorted(wanted & partitions.keys()):
        for number in range(partitions[topic]):
            member = next(member for member in turns if topic in subscribers[member].topics)
            assigned[member].append(TopicPartition(topic, number))
    return assigned


def sticky_assign(partitions: Mapping[str, int], subscribers: Mapping[str, Subscriber]) -> Assigned:
    """Balance, then keep assignments (Kafka: `AbstractStickyAssignor`)."""
    topics = {member: subscribers[member].topics for member in sorted(subscribers)}
    owned = {member: list(subscribers[member].owned) for member in topics}
    return sticky(partitions, topics, owned)


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", range_assign),
        Assignor("roundrobin", round_robin_assign),
        Assignor("sticky", sticky_assign),
        Assignor("cooperative-sticky", sticky_assign, cooperative=True),
    )
}


def check_assignors(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple; refuse unknown ones, and none."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names or isinstance(names, str):
        raise UsageError(f"partition_assignment_strategy={names!r}: use some of {', '.join(ASSIGNORS)}")
    return tuple(names)


def chosen(wishes: Sequence[Sequence[str]]) -> str | None:
    """Return the members' vote among common assignors, or None.

    Each votes for its first common one; the first member breaks ties (Kafka: `GroupMetadata.selectProtocol` leaves
    them open).
    """
    common = set.intersection(*(set(wish) for wish in wishes)) if wishes else set()
    if not common:
        return None
    votes = [next(name for name in wish if name in common) for wish in wishes]
    return max((name for name in wishes[0] if name in common), key=votes.count)
