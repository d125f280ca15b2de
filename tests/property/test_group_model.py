"""Groups against a model: any commits, resets and deletions, by followers of any generation, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from pyspark_commitlog.groups.state.group_state import (
    GroupState,
    Position,
    committed,
    ended,
    fenced,
    reset,
    without_topic,
)
from tests.property.strategies import quick

PARTITIONS = 3
POSITIONS = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.integers(0, PARTITIONS - 1)), st.integers(0, 20), min_size=1
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), POSITIONS, st.integers(0, 8)),
    st.tuples(st.just("reset"), POSITIONS, st.just(0)),
    st.tuples(st.just("without"), st.sampled_from("tu"), st.just(0)),
    st.tuples(st.just("end"), st.just(None), st.just(0)),
)


@dataclass
class Model:
    """What is committed, and when each partition was reset last: two dictionaries and a number."""

    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    resets: dict[tuple[str, int], int] = field(default_factory=dict)
    generation: int = 0

    def play(self, what: str, given: object, follows: int) -> None:
        if what == "commit":
            assert isinstance(given, dict)
            for place, offset in given.items():
                if follows >= self.resets.get(place, 0):
                    self.offsets[place] = max(offset, self.offsets.get(place, 0))
            return
        self.generation += 1
        if what == "reset":
            assert isinstance(given, dict)
            self.offsets.update(given)
            self.resets.update(dict.fromkeys(given, self.generation))
            return
        for place in [(topic, p) for topic in "tu" for p in range(PARTITIONS) if what == "end" or topic == given]:
            self.offsets.pop(place, None)
            self.resets[place] = self.generation


def positions(given: dict[tuple[str, int], int]) -> list[Position]:
    return [Position(topic, f"id of {topic}", partition, offset) for (topic, partition), offset in given.items()]


def played(state: GroupState, what: str, given: object, follows: int) -> GroupState:
    if what == "commit":
        assert isinstance(given, dict)
        wanted = positions(given)
        refused = fenced(state, wanted, follows)
        return committed(state, [at for at in wanted if at not in refused], 0, "")
    if what == "reset":
        assert isinstance(given, dict)
        return reset(state, positions(given), 0, "w")
    if what == "without":
        return without_topic(state, str(given), {f"id of {given}": PARTITIONS}, 0, "w")
    return ended(state, "w")


@quick
@given(st.lists(STEPS, max_size=12))
def test_a_history(steps: list[tuple[str, object, int]]) -> None:
    model, state = Model(), GroupState()
    for what, argument, follows in steps:
        before = state
        state = played(state, what, argument, min(follows, state.generation))
        model.play(what, argument, min(follows, model.generation))
        found = {(t, p): offset for t in "tu" for p, offset in state.offsets(f"id of {t}").items()}
        assert found == model.offsets
        assert state.generation == model.generation >= before.generation
        assert GroupState.from_json(state.to_json()) == state
        assert what == "commit" or state is not before
