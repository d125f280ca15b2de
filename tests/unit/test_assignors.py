"""The assignors against Kafka's answers, what Kafka's own tests establish, and what the sticky one promises."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.assignment.assignors import ASSIGNORS, Subscriber, check_assignors, chosen
from pyspark_commitlog.model import TopicPartition
from tests.property.strategies import quick
from tests.support.rounds import Case, answer, stored

STICKY = ["sticky", "cooperative-sticky"]
EAGER = ["range", "roundrobin"]


def places(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions that a text such as `a0 b1` names."""
    return tuple(TopicPartition(each[0], int(each[1:])) for each in text.split())


def told(found: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {member: " ".join(f"{p.topic}{p.partition}" for p in sorted(each)) for member, each in found.items()}


def assigned(
    name: str, sizes: dict[str, int], topics: dict[str, str], owned: dict[str, str] | None = None
) -> dict[str, str]:
    """Assign; `topics` and `owned` by member, a static one is `instance/id`."""
    subscribers = {}
    for member, wanted in topics.items():
        instance, _, unique = member.rpartition("/")
        subscribers[unique] = Subscriber(frozenset(wanted), places((owned or {}).get(member, "")), instance or None)
    return told(ASSIGNORS[name].assign(sizes, subscribers))


ANY = [
    ({}, {"1": ""}, {"1": ""}),
    ({}, {"1": "a"}, {"1": ""}),
    ({"a": 3}, {"1": "a"}, {"1": "a0 a1 a2"}),
    ({"a": 3, "b": 3}, {"1": "a"}, {"1": "a0 a1 a2"}),
    ({"a": 1, "b": 2}, {"1": "ab"}, {"1": "a0 b0 b1"}),
    ({"a": 1}, {"1": "a", "2": "a"}, {"1": "a0", "2": ""}),
    ({"a": 2}, {"1": "a", "2": "a"}, {"1": "a0", "2": "a1"}),
]


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize(("sizes", "topics", "expected"), ANY)
def test_what_all_assignors_do(
    name: str, sizes: dict[str, int], topics: dict[str, str], expected: dict[str, str]
) -> None:
    assert assigned(name, sizes, topics) == expected


MIXED = ({"a": 3, "b": 2}, {"1": "a", "2": "ab", "3": "a"})
SIX = ({"a": 3, "b": 3}, {"1": "ab", "2": "ab"})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("range", MIXED, {"1": "a0", "2": "a1 b0 b1", "3": "a2"}),
        ("roundrobin", MIXED, {"1": "a0", "2": "a1 b0 b1", "3": "a2"}),
        ("sticky", MIXED, {"1": "a0 a2", "2": "b0 b1", "3": "a1"}),
        ("range", SIX, {"1": "a0 a1 b0 b1", "2": "a2 b2"}),
        ("roundrobin", SIX, {"1": "a0 a2 b1", "2": "a1 b0 b2"}),
        ("sticky", SIX, {"1": "a0 a2 b1", "2": "a1 b0 b2"}),
        # static members stand by their instance id, and before the others
        ("range", ({"a": 3, "b": 3}, {"i1/y": "ab", "i2/x": "ab"}), {"y": "a0 a1 b0 b1", "x": "a2 b2"}),
        ("range", ({"a": 3, "b": 3}, {"i1/y": "ab", "x": "ab"}), {"y": "a0 a1 b0 b1", "x": "a2 b2"}),
        ("roundrobin", ({"a": 3, "b": 3}, {"i1/y": "ab", "i2/x": "ab"}), {"y": "a0 a2 b1", "x": "a1 b0 b2"}),
        ("roundrobin", ({"a": 3, "b": 3}, {"i1/y": "ab", "x": "ab"}), {"y": "a0 a2 b1", "x": "a1 b0 b2"}),
        (
            "range",
            ({"a": 5, "b": 4}, {"i1/1": "ab", "i2/2": "ab", "i3/3": "ab", "4": "ab"}),
            {"1": "a0 a1 b0", "2": "a2 b1", "3": "a3 b2", "4": "a4 b3"},
        ),
        (
            "roundrobin",
            ({"a": 3, "b": 3}, {"i1/1": "ab", "i2/2": "ab", "i3/3": "ab", "4": "ab"}),
            {"1": "a0 b1", "2": "a1 b2", "3": "a2", "4": "b0"},
        ),
        # the example that round robin handles poorly
        (
            "roundrobin",
            ({"a": 2, "b": 1, "c": 2, "d": 1, "e": 2}, {"1": "abcde", "2": "ace", "3": "ace", "4": "abcde"}),
            {"1": "a0 c0 e0", "2": "a1 c1 e1", "3": "", "4": "b0 d0"},
        ),
        (
            "sticky",
            ({"a": 2, "b": 1, "c": 2, "d": 1, "e": 2}, {"1": "abcde", "2": "ace", "3": "ace", "4": "abcde"}),
            {"1": "b0 c0", "2": "a0 c1", "3": "a1 e0", "4": "d0 e1"},
        ),
        # the examples of the assignors' documentation
        ("roundrobin", ({"a": 1, "b": 2, "c": 3}, {"0": "a", "1": "ab", "2": "abc"}), {"0": "a0", "1": "b0", "2": "b1 c0 c1 c2"}),
        ("sticky", ({"a": 1, "b": 2, "c": 3}, {"0": "a", "1": "ab", "2": "abc"}), {"0": "a0", "1": "b0 b1", "2": "c0 c1 c2"}),
        ("sticky", ({"a": 2, "b": 2, "c": 2, "d": 2}, {"0": "abcd", "1": "abcd", "2": "abcd"}), {"0": "a0 b1 d0", "1": "a1 c0 d1", "2": "b0 c1"}),
    ],
)  # fmt: skip
def test_first_assignments(name: str, given: tuple[dict[str, int], dict[str, str]], expected: dict[str, str]) -> None:
    assert assigned(name, *given) == expected


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize(
    ("sizes", "owned", "expected"),
    [
        # who has the quota may get one more
        ({"a": 2, "b": 3}, {"1": "a0 b1", "2": "a1 b2"}, {"1": "a0 b0 b1", "2": "a1 b2"}),
        # more members have one more than may
        ({"a": 2, "b": 2}, {"1": "a0 b0", "2": "a1 b1", "3": ""}, {"1": "a0 b0", "2": "a1", "3": "b1"}),
        # all are below the quota
        ({"a": 2, "b": 3}, {"1": "a0", "2": "a1", "3": ""}, {"1": "a0 b1", "2": "a1 b2", "3": "b0"}),
        # members come
        ({"a": 3}, {"1": "a0 a1 a2", "2": ""}, {"1": "a0 a1", "2": "a2"}),
        (
            {"a": 3, "b": 4},
            {"1": "a0 a2 b1 b3", "2": "a1 b0 b2", "3": "", "4": ""},
            {"1": "a0 b1", "2": "a1 b0", "3": "a2 b3", "4": "b2"},
        ),
        # and go
        ({"a": 3}, {"2": "a2"}, {"2": "a0 a1 a2"}),
        ({"a": 3, "b": 4}, {"3": "b1 b3", "4": "b2"}, {"3": "a0 b0 b1 b3", "4": "a1 a2 b2"}),
        # a topic goes, or was never there
        ({"b": 3}, {"1": "a0 a2 b1", "2": "a1 b0 b2"}, {"1": "b1", "2": "b0 b2"}),
        # a partition that two say they have is nobody's
        ({"a": 4}, {"1": "a0 a1", "2": "a1 a2"}, {"1": "a0 a1", "2": "a2 a3"}),
        ({"a": 2}, {"1": "a0", "2": "a0"}, {"1": "a0", "2": "a1"}),
    ],
)
def test_who_has_partitions_keeps_them(
    name: str, sizes: dict[str, int], owned: dict[str, str], expected: dict[str, str]
) -> None:
    assert assigned(name, sizes, dict.fromkeys(owned, "ab"), owned) == expected


@pytest.mark.parametrize("case", stored(), ids=lambda case: case.assignor)
def test_what_kafka_answered(case: Case) -> None:
    assert answer(case.assignor, case.asked) == case.found


def test_partitions_are_not_moved_in_circles() -> None:
    """Kafka's sticky assignors do not end here: they move the same partitions to and fro."""
    sizes, topics = {"c": 3, "d": 12}, {"0": "cd", "1": "d", "2": "cd", "3": "cd", "4": "c"}
    owned = {"1": " ".join(f"d{n}" for n in range(12)), "3": "c0", "4": "c1 c2"}
    found = assigned("sticky", sizes, topics, owned)
    assert {member: len(each.split()) for member, each in found.items()} == {"0": 3, "1": 4, "2": 3, "3": 3, "4": 2}


def test_members_that_want_different_topics_keep_what_they_may() -> None:
    sizes = dict.fromkeys("abcdef", 1)
    owned = {"1": "a0", "2": "b0 c0", "3": "d0 e0 f0"}
    topics = {"1": "ab", "2": "abcd", "3": "bcdef"}
    assert assigned("sticky", sizes, topics, owned) == {"1": "a0", "2": "b0 c0", "3": "d0 e0 f0"}
    assert assigned("sticky", sizes, {**topics, "2": "abcdef"}, {**owned, "2": ""}) == {
        "1": "a0 b0", "2": "c0 d0", "3": "e0 f0"
    }  # fmt: skip


SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 7), min_size=1)
WISHES = st.dictionaries(st.sampled_from("123456"), st.sets(st.sampled_from("abcde")), min_size=1)


@quick
@pytest.mark.parametrize("name", ASSIGNORS)
@given(sizes=SIZES, wishes=WISHES)
def test_every_partition_that_is_wanted_has_one_owner_who_wants_it(
    name: str, sizes: dict[str, int], wishes: dict[str, set[str]]
) -> None:
    found = ASSIGNORS[name].assign(sizes, {m: Subscriber(frozenset(topics)) for m, topics in wishes.items()})
    all_places = [place for each in found.values() for place in each]
    wanted = {topic for topics in wishes.values() for topic in topics if topic in sizes}
    assert sorted(all_places) == [TopicPartition(topic, n) for topic in sorted(wanted) for n in range(sizes[topic])]
    assert all(place.topic in wishes[member] for member, each in found.items() for place in each)


def balanced(found: dict[str, list[TopicPartition]], wishes: dict[str, set[str]]) -> bool:
    """Whether no partition could go to a member that has two less."""
    return all(
        len(found[other]) >= len(each) - 1
        for each in found.values()
        for other in found
        for place in each
        if place.topic in wishes[other]
    )


@quick
@given(sizes=SIZES, wishes=WISHES, later=WISHES, grown=SIZES)
def test_sticky_is_balanced_and_sticky(
    sizes: dict[str, int], wishes: dict[str, set[str]], later: dict[str, set[str]], grown: dict[str, int]
) -> None:
    assign = ASSIGNORS["sticky"].assign
    first = assign(sizes, {m: Subscriber(frozenset(topics)) for m, topics in wishes.items()})
    assert balanced(first, wishes)
    again = {m: Subscriber(frozenset(topics), tuple(first[m])) for m, topics in wishes.items()}
    assert {m: sorted(each) for m, each in assign(sizes, again).items()} == {
        m: sorted(each) for m, each in first.items()
    }
    subscribers = {m: Subscriber(frozenset(topics), tuple(first.get(m, ()))) for m, topics in later.items()}
    second = assign(grown, subscribers)
    assert balanced(second, later)
    assert all(place.topic in later[member] for member, each in second.items() for place in each)
    assert second == assign(grown, dict(reversed(subscribers.items()))), "whoever computes it finds the same"


@quick
@given(size=st.integers(1, 30), members=st.integers(1, 8), less=st.integers(0, 7))
def test_sticky_moves_no_more_than_it_must_where_all_want_the_same(size: int, members: int, less: int) -> None:
    assign = ASSIGNORS["sticky"].assign
    first = assign({"a": size}, {str(m): Subscriber(frozenset("a")) for m in range(members)})
    stay = {m: each for m, each in first.items() if int(m) < members - less} or first
    second = assign({"a": size}, {m: Subscriber(frozenset("a"), tuple(each)) for m, each in stay.items()})
    assert all(set(each) <= set(second[m]) for m, each in stay.items()), "who stays loses nothing when others go"


def test_the_group_takes_what_all_know_by_votes() -> None:
    assert chosen([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]]) == "sticky"
    assert chosen([["range", "sticky"], ["sticky", "range"]]) == "range"
    assert chosen([["range", "cooperative-sticky"], ["cooperative-sticky"]]) == "cooperative-sticky"
    assert chosen([["range"], ["sticky"]]) is None
    assert chosen([]) is None


@pytest.mark.parametrize("wrong", [(), ("none",), ("range", "none"), "range"])
def test_other_assignors_are_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="use some of range, roundrobin, sticky, cooperative-sticky"):
        check_assignors(wrong)
