"""Groups that live through rounds of assignments, drawn at random: what assignors are asked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark_commitlog.groups.assignment.assignors import ASSIGNORS, Assigned, Subscriber
from pyspark_commitlog.groups.assignment.rebalance import Observation, rebalanced
from pyspark_commitlog.groups.state.members import Member, Members, Phase, Profile, TopicIncarnation
from pyspark_commitlog.model import TopicPartition

#: What Kafka's assignors say, for tests without Kafka.
STORED = Path(__file__).parents[1] / "golden" / "assignments.json"
#: Java's hash maps go through these in this order.
MEMBERS = "01234567"
#: Java's hash is 14 modulo 16: its hash sets go through the partitions of such a topic from the highest number down.
TOPICS = ("ca", "db", "ec", "fd", "ge", "hf")
INSTANCES = ("i0", "i1", "i2", "i3")
MAX_PARTITIONS = 12


@dataclass(frozen=True, slots=True)
class Round:
    """What an assignor is told: topic -> partitions, and the members by id."""

    partitions: Mapping[str, int]
    subscribers: Mapping[str, Subscriber]

    @property
    def alike(self) -> bool:
        """Whether all members want the same."""
        return len({each.topics for each in self.subscribers.values()}) < 2


@dataclass(frozen=True, slots=True)
class Case:
    """What an assignor was asked, and what Kafka's answers."""

    assignor: str
    asked: Round
    found: Assigned

    def to_json(self) -> dict[str, Any]:
        """Return the form for a file."""
        subscribers = {
            member: {
                "topics": " ".join(sorted(each.topics)),
                "owned": _text(each.owned),
                "instanceId": each.instance_id,
            }
            for member, each in sorted(self.asked.subscribers.items())
        }
        found = {member: _text(places) for member, places in in_order(self.found).items()}
        return {
            "assignor": self.assignor,
            "partitions": self.asked.partitions,
            "subscribers": subscribers,
            "found": found,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Case:
        """Return the value of that form."""
        subscribers = {
            member: Subscriber(frozenset(each["topics"].split()), tuple(_places(each["owned"])), each["instanceId"])
            for member, each in data["subscribers"].items()
        }
        found = {member: _places(text) for member, text in data["found"].items()}
        return cls(data["assignor"], Round(data["partitions"], subscribers), found)


def _text(places: Iterable[TopicPartition]) -> str:
    return " ".join(f"{place.topic}-{place.partition}" for place in places)


def _places(text: str) -> list[TopicPartition]:
    pairs = (each.rpartition("-") for each in text.split())
    return [TopicPartition(topic, int(number)) for topic, _, number in pairs]


def stored() -> list[Case]:
    """Return what is stored of Kafka's answers; `tests/kafka/make_assignments.py` writes it."""
    return [Case.from_json(each) for each in json.loads(STORED.read_text())["cases"]]


def answer(name: str, asked: Round) -> Assigned:
    """Return what our assignor says, sorted.

    For a cooperative one it is what members own after one generation of a group: who holds back there what another has
    is the group, and in Kafka the assignor (KIP-429).
    """
    if ASSIGNORS[name].cooperative:
        return in_order(_next_generation(name, asked))
    return in_order(ASSIGNORS[name].assign(asked.partitions, asked.subscribers))


def in_order(found: Mapping[str, Iterable[TopicPartition]]) -> Assigned:
    """Return an assignment by member and by partition; a group keeps no order of partitions."""
    return {member: sorted(places) for member, places in sorted(found.items())}


def _next_generation(name: str, asked: Round) -> Mapping[str, Iterable[TopicPartition]]:
    topics = {topic: TopicIncarnation(f"id of {topic}", count) for topic, count in asked.partitions.items()}
    rows = {
        member: Member(
            Profile("c", "h/1", tuple(sorted(each.topics)), None, (name,), each.instance_id), n, frozenset(each.owned)
        )
        for n, (member, each) in enumerate(asked.subscribers.items())
    }
    before = Members(1, len(rows), Phase.PREPARING_REBALANCE, name, topics, rows)
    return {member: row.owned for member, row in rebalanced(before, Observation(), topics).rows.items()}


def rounds(
    seed: int, assign: Callable[[Round], Assigned], *, count: int = 5, claims: bool = True
) -> Iterator[tuple[Round, Assigned]]:
    """Yield what is asked, and what `assign` answers: what members have in the next round.

    Now and then a few members have nearly all, however that came. With `claims` some say that they have what is
    another's.
    """
    group = _Group(random.Random(seed))
    has: Assigned = {}
    for number in range(count):
        if number:
            group.change()
        asked = group.round(has, claims)
        has = assign(asked)
        yield asked, has


@dataclass
class _Group:
    """A group that changes from round to round; members have no `owned` here."""

    chance: random.Random
    alike: bool = False
    partitions: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    members: dict[str, Subscriber] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alike = self.chance.random() < 0.4
        for topic in sorted(self._some_topics()):
            self.partitions[topic] = self.chance.randint(0, MAX_PARTITIONS)
        for _ in range(self.chance.randint(1, len(MEMBERS))):
            self._comes()

    def change(self) -> None:
        """Let one to three things happen; one of them is nothing."""
        changes = [
            *[self._comes, self._goes, self._wants_else, self._grows] * 2,
            *[self._restarts, self._vanishes, lambda: None],
        ]
        for change in self.chance.choices(changes, k=self.chance.randint(1, 3)):
            change()

    def round(self, has: Assigned, claims: bool) -> Round:
        """Return the question; members say that they have what they were given, also of topics that are gone."""
        owned = {member: list(has.get(member, ())) for member in self.members}
        places = [TopicPartition(topic, n) for topic, count in sorted(self.partitions.items()) for n in range(count)]
        if has and self.chance.random() < 0.3:
            owned = self._lopsided(places)
        if claims and places and self.chance.random() < 0.2:
            member, place = self.chance.choice(sorted(owned)), self.chance.choice(places)
            owned[member] += [place] if place not in owned[member] else []
        return Round(
            dict(self.partitions), {m: replace(each, owned=tuple(owned[m])) for m, each in self.members.items()}
        )

    def _lopsided(self, places: list[TopicPartition]) -> Assigned:
        owned: Assigned = {member: [] for member in self.members}
        luck = {member: self.chance.random() ** 4 for member in sorted(self.members)}
        for place in places:
            members = [member for member in luck if place.topic in self.members[member].topics or luck[member] > 0.3]
            if members and self.chance.random() < 0.9:
                owned[self.chance.choices(members, [luck[member] for member in members])[0]].append(place)
        return owned

    def _some_topics(self) -> frozenset[str]:
        return frozenset(self.chance.sample(TOPICS, self.chance.randint(1, len(TOPICS))))

    def _free(self) -> str | None:
        free = sorted(set(MEMBERS) - self.members.keys())
        return self.chance.choice(free) if free else None

    def _comes(self) -> None:
        if member := self._free():
            others = list(self.members.values())
            topics = others[0].topics if self.alike and others else self._some_topics()
            instance = self.chance.choice([None, *INSTANCES])
            taken = any(each.instance_id == instance for each in others)
            self.members[member] = Subscriber(topics, (), None if taken else instance)

    def _goes(self) -> None:
        if len(self.members) > 1:
            del self.members[self.chance.choice(sorted(self.members))]

    def _restarts(self) -> None:
        """A static member comes back: under another id, and it has nothing."""
        static = sorted(member for member, each in self.members.items() if each.instance_id)
        if static and (member := self._free()):
            self.members[member] = self.members.pop(self.chance.choice(static))

    def _wants_else(self) -> None:
        topics = self._some_topics()
        for member in sorted(self.members) if self.alike else [self.chance.choice(sorted(self.members))]:
            self.members[member] = replace(self.members[member], topics=topics)

    def _grows(self) -> None:
        """A topic gets more partitions, or is there, perhaps again; then it has no fewer than it had."""
        topic = self.chance.choice(TOPICS)
        least = self.partitions.get(topic, self.gone.get(topic, 0))
        self.partitions[topic] = self.chance.randint(least, MAX_PARTITIONS)

    def _vanishes(self) -> None:
        if len(self.partitions) > 1:
            topic = self.chance.choice(sorted(self.partitions))
            self.gone[topic] = self.partitions.pop(topic)
