"""Our assignors give what Kafka's own give to the same input.

Compared are sets of partitions: a group keeps no order, and Kafka's consumers sort what they show. All members are of
one generation, as in our groups, but where a test says so. No topic loses partitions: of one that was made again with
fewer, Kafka's sticky assignors hand out partitions that are not there, and others twice.

The cooperative assignor is compared by what members own after each generation of a group, because ours hold back in the
group what Kafka's holds back in the assignor. Rounds in which nothing happens then show what comes of it in the end.

Where Kafka's sticky assignors follow a hash map, names decide. The names here are such that its order is ours; a test of
its own shows what other names change.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from pyspark_commitlog.groups.assignment.assignors import ASSIGNORS, Assigned, Subscriber
from pyspark_commitlog.model import TopicPartition
from tests.kafka.assignors import KafkaAssignors, kafka_assignors
from tests.kafka.make_assignments import text
from tests.kafka.toolchain import Java
from tests.support.rounds import MEMBERS, STORED, TOPICS, Round, answer, in_order

pytestmark = pytest.mark.external

HISTORIES = 300
#: The last four have several partitions that could move back.
NAMED_HISTORIES = (*range(50), 75, 112, 178, 230)
NAMINGS = 4


@pytest.fixture(scope="module")
def kafka(java: Java) -> Iterator[KafkaAssignors]:
    with kafka_assignors(java) as found:
        yield found


@pytest.mark.parametrize("name", ASSIGNORS)
def test_ours_give_what_kafkas_give(kafka: KafkaAssignors, name: str) -> None:
    kinds: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        for number, (asked, found) in enumerate(kafka.rounds(name, seed)):
            assert answer(name, asked) == in_order(found), f"history {seed}, round {number}: {asked}"
            kinds[asked.alike] += 1
    assert min(kinds[True], kinds[False]) > HISTORIES, "members that want the same, and members that do not"


def test_who_is_late_has_what_the_newest_generation_left(kafka: KafkaAssignors) -> None:
    """What a member claims by an older generation is the newer claimant's: our groups know of no other claims.

    So it is where all members want the same. Else Kafka's assignor prefers the former owner in moves that it makes.
    """
    late_claims = 0
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        for asked, _ in kafka.rounds("cooperative-sticky", seed):
            if not asked.alike or not (places := {p for each in asked.subscribers.values() for p in each.owned}):
                continue
            late = chance.choice(sorted(asked.subscribers))
            own = set(asked.subscribers[late].owned)
            claimed = sorted(places - own)
            claimant = replace(asked.subscribers[late], owned=(*sorted(own), *claimed))
            found = kafka.assign("sticky", asked.partitions, {**asked.subscribers, late: claimant}, late={late})
            assert in_order(found) == answer("sticky", asked), f"history {seed}: {late} is late in {asked}"
            late_claims += bool(claimed)
    assert late_claims > HISTORIES


def test_stored_answers_are_kafkas(kafka: KafkaAssignors) -> None:
    assert STORED.read_text() == text(kafka), "make it anew: python -m tests.kafka.make_assignments"


def test_names_decide_only_between_results_that_are_equally_good(kafka: KafkaAssignors) -> None:
    """Kafka's sticky results vary with names in equal order; balance and the number of moves do not. Ours do not vary."""
    varied: Counter[bool] = Counter()
    for seed in NAMED_HISTORIES:
        for asked, found in kafka.rounds("sticky", seed):
            expected = in_order(found)
            for naming in (_Naming.drawn(seed * NAMINGS + n) for n in range(NAMINGS)):
                other = naming.round(asked)
                assert naming.back(answer("sticky", other)) == expected
                theirs = naming.back(kafka.assign("sticky", other.partitions, other.subscribers))
                assert sorted(map(len, theirs.values())) == sorted(map(len, expected.values()))
                assert _kept(theirs, asked) == _kept(expected, asked)
                varied[asked.alike] += theirs != expected
    assert varied[True], "members have more than their share, and which of them keep one more is by names"
    assert varied[False], "several partitions could move back, and which does is by names"


def _kept(found: Assigned, asked: Round) -> int:
    return sum(len(set(places) & set(asked.subscribers[member].owned)) for member, places in found.items())


@dataclass(frozen=True, slots=True)
class _Naming:
    """Other names for members and topics, in the same order."""

    members: Mapping[str, str]
    topics: Mapping[str, str]

    @classmethod
    def drawn(cls, seed: int) -> _Naming:
        chance = random.Random(seed)
        members = sorted(f"etl-{chance.getrandbits(64):016x}" for _ in MEMBERS)
        topics = sorted(f"orders.{chance.getrandbits(32):08x}" for _ in TOPICS)
        return cls(dict(zip(MEMBERS, members, strict=True)), dict(zip(TOPICS, topics, strict=True)))

    def round(self, asked: Round) -> Round:
        return Round(
            {self.topics[topic]: count for topic, count in asked.partitions.items()},
            {
                self.members[member]: Subscriber(
                    frozenset(self.topics[topic] for topic in each.topics),
                    tuple(TopicPartition(self.topics[place.topic], place.partition) for place in each.owned),
                    each.instance_id,
                )
                for member, each in asked.subscribers.items()
            },
        )

    def back(self, found: Assigned) -> Assigned:
        members = {name: member for member, name in self.members.items()}
        topics = {name: topic for topic, name in self.topics.items()}
        return in_order(
            {
                members[member]: [TopicPartition(topics[place.topic], place.partition) for place in places]
                for member, places in found.items()
            }
        )
