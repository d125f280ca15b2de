"""Random histories of a topic and a consumer, against lists of what was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings, strategies as st

from tests.support.consumers import SMALL, at, by_partition, consumer, numbered, put
from tests.support.world import World

PARTITION = st.integers(0, 2)
STEP = st.one_of(
    st.tuples(st.just("append"), PARTITION, st.integers(1, 30)),
    st.tuples(st.just("poll"), st.integers(1, 40), st.sampled_from(["records", "arrow"])),
    st.tuples(st.just("seek"), PARTITION, st.floats(0, 1)),
    st.tuples(st.just("pause"), PARTITION, st.booleans()),
    st.tuples(st.just("delete"), PARTITION, st.floats(0, 1)),
    st.tuples(st.just("iterate"), st.integers(1, 10), st.none()),
    st.tuples(st.just("maintain"), st.none(), st.none()),
    st.tuples(st.just("collect"), st.none(), st.none()),
)


@dataclass
class Model:
    """Three lists, and where a reader stands in them."""

    values: list[list[bytes]] = field(default_factory=lambda: [[], [], []])
    start: list[int] = field(default_factory=lambda: [0, 0, 0])
    position: list[int] = field(default_factory=lambda: [0, 0, 0])
    paused: set[int] = field(default_factory=set)

    def left(self) -> int:
        """Return how many records a poll could hand out."""
        return sum(len(self.values[p]) - self.here(p) for p in range(3) if p not in self.paused)

    def here(self, partition: int) -> int:
        """Return the next offset that is still there."""
        return max(self.position[partition], self.start[partition])

    def take(self, partition: int, rows: list[tuple[int, bytes | None]], *, fetched: bool = False) -> None:
        """Check rows of one partition, and move on; what was fetched before may have been deleted since."""
        assert partition not in self.paused
        first = self.position[partition] if fetched else self.here(partition)
        assert rows == [*enumerate(self.values[partition])][first : first + len(rows)]
        self.position[partition] = first + len(rows)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=30))
@example([("append", 0, 3), ("iterate", 1, None), ("delete", 0, 0.5), ("iterate", 1, None)])
def test_a_consumer_hands_out_what_the_lists_say(steps: list[tuple[str, object, object]]) -> None:
    with TemporaryDirectory() as directory:
        world, model = World(Path(directory) / "root"), Model()
        world.create(3, {**SMALL, "segment.bytes": 4096, "inline.max.bytes": 2000})
        each = consumer(world, "t", consumer_timeout_ms=0)
        each.poll()
        for what, one, two in steps:
            step(world, model, each, what, one, two)
        taken = each.to_arrow(columns=["partition", "offset", "value"]).to_pylist()
        for p in range(3):
            rows = [(row["offset"], row["value"]) for row in taken if row["partition"] == p]
            if p not in model.paused:
                assert len(rows) == len(model.values[p]) - model.here(p)
                model.take(p, rows)


def step(world: World, model: Model, each, what: str, one, two) -> None:  # type: ignore[no-untyped-def]
    """Do one step to both."""
    if what == "append":
        first = len(model.values[one])
        model.values[one] += numbered(first, first + two)
        put(world, numbered(first, first + two), one)
    elif what == "poll":
        expected = min(one, model.left())
        if two == "arrow":
            rows = each.poll_arrow(max_records=one, columns=["partition", "offset", "value"]).to_pylist()
            found: dict[int, list[tuple[int, bytes | None]]] = {}
            for row in rows:
                found.setdefault(row["partition"], []).append((row["offset"], row["value"]))
        else:
            found = {p.partition: taken for p, taken in by_partition(each.poll(max_records=one)).items()}
        assert sum(map(len, found.values())) == expected
        for partition, taken in found.items():
            model.take(partition, taken)
    elif what == "iterate":
        for _ in range(min(one, model.left())):
            fetched = bool(each._buffer.records)
            record = next(each)
            model.take(record.partition, [(record.offset, record.value)], fetched=fetched)
    elif what == "seek":
        offset = round(two * len(model.values[one]))
        model.position[one] = offset
        each.seek(at(one), offset)
    elif what == "pause":
        (each.pause if two else each.resume)(at(one))
        model.paused = model.paused | {one} if two else model.paused - {one}
    elif what == "delete":
        offset = round(two * len(model.values[one]))
        model.start[one] = max(model.start[one], offset)
        world.log().topic("t").delete_records({one: offset})
    elif what == "maintain":
        world.maintain()
    else:
        world.collect_all()
    for p in range(3):
        if model.position[p] >= model.start[p]:
            assert each.position(at(p)) == model.position[p]
