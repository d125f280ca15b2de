"""What a rebalance makes of members, who is silent, and what their files and rows hold."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.groups.assignment import rebalance
from pyspark_commitlog.groups.assignment.rebalance import Observation, is_due, rebalanced, wanted_topics
from pyspark_commitlog.groups.membership.failure_detector import AT_ONCE, Watch
from pyspark_commitlog.groups.state.members import NEVER_IN, MemberFile, Members, Phase, Profile, TopicIncarnation
from pyspark_commitlog.model import TopicPartition
from tests.property.strategies import quick

TOPICS = {"t": TopicIncarnation("id of t", 3), "u": TopicIncarnation("id of u", 2)}
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def profile(
    topics: str = "t", assignor: str = "range", pattern: str | None = None, instance: str | None = None
) -> Profile:
    return Profile("c", "h/1", tuple(topics), pattern, (assignor,), instance)


def test_nothing_to_do_is_the_very_same() -> None:
    assert rebalanced(Members(), Observation(), TOPICS) == Members()
    first = rebalanced(Members(), Observation({"a": profile()}), TOPICS)
    assert (first.generation, first.admitted, first.phase, first.protocol) == (1, 1, Phase.STABLE, "range")
    assert rebalanced(first, Observation({"a": profile()}), TOPICS) is first
    assert not is_due(first, Observation(changed={"a": profile()}), TOPICS)
    assert is_due(first, Observation(changed={"a": profile("u")}), TOPICS)
    assert is_due(first, Observation(), {"t": TopicIncarnation("id of t", 4)})


def test_who_is_gone_is_gone_by_the_admission_that_was_seen() -> None:
    first = rebalanced(Members(), Observation({"a": profile()}), TOPICS)
    assert rebalanced(first, Observation(gone={"a": 2}), TOPICS) is first
    empty = rebalanced(first, Observation(gone={"a": 1}), TOPICS)
    assert (empty.generation, empty.admitted, empty.phase, empty.rows) == (2, 1, Phase.EMPTY, {})
    assert rebalanced(empty, Observation({"a": profile()}), TOPICS).rows["a"].joined == 2


def test_names_count_and_no_pattern_is_looked_at() -> None:
    """A pattern is its member's own: what it found stands beside it."""
    assert set(wanted_topics([profile("t", pattern="u"), profile("x", pattern="(")], TOPICS)) == {"t"}
    assert set(wanted_topics([profile("tx"), profile("u")], TOPICS)) == {"t", "u"}


def test_what_nobody_wants_any_more_is_given_up_in_order() -> None:
    first = rebalanced(Members(), Observation({"a": profile("t")}), TOPICS)
    second = rebalanced(first, Observation(changed={"a": profile("u")}), TOPICS)
    assert second.phase is Phase.PREPARING_REBALANCE
    assert second.has("a", TopicPartition("t", 0), "id of t")
    third = rebalanced(second, Observation(given_up={"a": 2}), TOPICS)
    assert (third.phase, set(third.topics)) == (Phase.STABLE, {"u"})
    assert rebalanced(third, Observation(), TOPICS) is third


def test_who_wants_a_topic_that_is_not_there_wants_something_else() -> None:
    """As in Kafka: the sticky assignors take other steps where members do not all name the same topics."""
    first = rebalanced(Members(), Observation({"a": profile("t", "sticky")}), TOPICS)
    alike = rebalanced(first, Observation({"b": profile("t", "sticky")}, given_up={"a": 1}), TOPICS)
    other = rebalanced(first, Observation({"b": profile("tx", "sticky")}, given_up={"a": 1}), TOPICS)
    assert [_second(each) for each in (alike, other)] == [[2], [0]]


def _second(state: Members) -> list[int]:
    state = rebalanced(state, Observation(given_up=dict.fromkeys(state.rows, state.generation)), TOPICS)
    return sorted(place.partition for place in state.rows["b"].owned)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "give up", "give up all", "grow", "want"]),
        st.sampled_from("abcd"),
        st.sampled_from(["t", "u", "tu"]),
    ),
    max_size=15,
)


@quick
@pytest.mark.parametrize("strategy", STRATEGIES)
@given(steps=STEPS)
def test_any_history(strategy: str, steps: list[tuple[str, str, str]]) -> None:
    """No partition has two owners, generations only grow, and once all is given up all is owned."""
    state, topics = Members(), dict(TOPICS)
    for what, who, wanted in steps:
        before = state
        everything = dict.fromkeys(state.rows, state.generation)
        seen = {
            "join": Observation({who: profile(wanted, strategy)}),
            "leave": Observation(gone={m: row.joined for m, row in state.rows.items() if m == who}),
            "give up": Observation(given_up={who: state.generation}),
            "give up all": Observation(given_up=everything),
            "want": Observation(changed={who: profile(wanted, strategy)}),
        }.get(what, Observation())
        if what == "grow":
            topics["t"] = TopicIncarnation("id of t", topics["t"].partitions + 1)
        state = rebalanced(state, seen, topics)
        places = [place for row in state.rows.values() for place in [*row.owned, *row.revoking]]
        assert len(places) == len(set(places))
        assert (state.generation, state.admitted) >= (before.generation, before.admitted)
        assert Members.from_json(state.to_json()) == state
        for member, row in before.rows.items():
            if what != "leave" and member in state.rows and not seen.given_up:
                kept = {p for p in row.places if topics[p.topic] == before.topics[p.topic] or what == "grow"}
                assert kept <= state.rows[member].places, "nobody loses what it has not given up"
    for _ in range(4):
        state = rebalanced(state, Observation(given_up=dict.fromkeys(state.rows, state.generation)), topics)
    owned = sorted(place for row in state.rows.values() for place in row.owned)
    known = wanted_topics([row.profile for row in state.rows.values()], topics)
    assert owned == [TopicPartition(name, n) for name, life in known.items() for n in range(life.partitions)]
    assert state.phase is (Phase.STABLE if state.rows else Phase.EMPTY)


def test_a_file_says_what_was_written() -> None:
    written = MemberFile(profile("tu", instance="i"), NEVER_IN)
    assert MemberFile.decode(written.encode(), "x") == written
    for damaged in (b"", b"{}", b"[]", written.encode()[:-9]):
        with pytest.raises(CorruptionError, match=r"^x: "):
            MemberFile.decode(damaged, "x")


def test_who_is_silent_has_to_be_so_over_several_looks() -> None:
    watch = Watch()
    assert not watch.see("a", "1", 0, 10)
    assert not watch.see("a", "1", 1000, 10), "the observer slept"
    assert watch.see("a", "1", 1001 + 4, 10)
    assert not watch.see("a", "2", 1006, 10)
    assert not watch.see("a", None, 1011, 10)
    assert watch.see("a", None, 1016, 10), "a file that was deleted is no sign of life"
    watch.keep(())
    assert not watch.see("a", "2", 1020, 10)


def test_many_are_looked_at_in_turns() -> None:
    watch, members = Watch(0.5), [f"{number:04}" for number in range(1000)]
    first = watch.turn(members)
    assert (first[0], len(first)) == ("0500", AT_ONCE)
    seen = {member for _ in range(1000 // AT_ONCE) for member in watch.turn(members)} | set(first)
    assert seen == set(members)
    assert watch.turn(["a", "b"]) == ["a", "b"]


def test_a_group_has_a_bound_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "MAX_MEMBERS", 2)
    full = rebalanced(Members(), Observation({name: profile() for name in "abc"}), TOPICS)
    assert set(full.rows) == {"a", "b"}
    assert rebalanced(full, Observation({"c": profile()}), TOPICS) is full


def test_of_two_that_join_at_once_with_one_instance_id_one_is_let_in_first() -> None:
    """KIP-345: the other one takes its row over next, and the partitions stay together."""
    first = rebalanced(Members(), Observation({"a": profile(instance="i"), "b": profile(instance="i")}), TOPICS)
    assert set(first.rows) == {"a"}
    assert set(rebalanced(first, Observation({"b": profile(instance="i")}), TOPICS).rows) == {"b"}
