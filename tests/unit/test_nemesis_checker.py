"""The checker of histories notices each broken promise, in a history made up for it, and is silent on a right one."""

from __future__ import annotations

from pathlib import Path

from tests.nemesis.checker import faults
from tests.nemesis.history import Acked, Batches, Committed, Event, Failed, Read, Recorder, Shown, recorded

FIRST, SECOND = (0, "p-1"), (2, "p-2")
WHOLE = {root: [Read(root, 0, 0, 3, (FIRST, SECOND))] for root in "ab"}
RIGHT: list[Event] = [
    Acked("p", "p-1", "all", 0, 0), Shown("a", 3, (1,)), Read("a", 0, 0, 1, (FIRST,)), Shown("a", 4, (3,)),
    Read("a", 0, 0, 3, (FIRST, SECOND)), Acked("p", "p-2", "all", 0, 2), Acked("q", "q-1", "1", 0, 1),
]  # fmt: skip


def told(*events: Event, final: dict[str, list[Read]] | None = None) -> str:
    found = faults([events], WHOLE if final is None else final)
    assert len(found) <= 2, found
    return found[0] if found else ""


def test_a_right_history_has_no_fault() -> None:
    assert faults([RIGHT, [Read("b", 0, 1, 3, (SECOND,)), Shown("b", 1, ())]], WHOLE) == []


def test_lost() -> None:
    assert "lost at a" in told(Acked("p", "p-3", "all", 0, 3))
    assert "lost at a" in told(Acked("p", "p-3", "all"))
    assert told(Acked("p", "p-3", "1", 0, 3)) == ""
    one_lacks = {**WHOLE, "b": [Read("b", 0, 0, 3, (FIRST,))]}
    assert any("lost at b" in fault for fault in faults([RIGHT], one_lacks))


def test_somewhere_else() -> None:
    assert "not where it was acknowledged" in told(Acked("p", "p-1", "all", 0, 2))


def test_doubled() -> None:
    twice = [Read("a", 0, 0, 3, (FIRST, (1, "p-1"), SECOND))]
    assert any("p-1 is twice" in fault for fault in faults([RIGHT], {"a": twice}))
    assert "p-1 is twice" in told(Read("a", 1, 0, 1, (FIRST,)))


def test_another_record() -> None:
    assert "offset 0: x-1 at b, then p-1 at a" in told(Read("b", 0, 0, 1, ((0, "x-1"),)))


def test_a_gap_that_is_filled() -> None:
    assert "offset 2: a gap at b, then p-2 at a" in told(Read("b", 0, 2, 3, ()))


def test_a_record_that_becomes_a_gap() -> None:
    assert "offset 1: q-1 at b, then a gap at a" in told(Read("b", 0, 1, 2, ((1, "q-1"),)))


def test_what_was_not_asked_for() -> None:
    assert "not among the offsets" in told(Read("b", 0, 0, 1, (FIRST, SECOND)))


def test_the_high_watermark_goes_back() -> None:
    assert "went back" in told(Shown("a", 4, (3,)), Shown("a", 3, (3,)))
    assert "went back" in told(Shown("a", 4, (3,)), Shown("a", 4, (2,)))
    assert "went back" in told(Shown("a", 4, (3, 1)), Shown("a", 4, (3,)))
    assert told(Shown("a", 4, (3,)), Shown("b", 3, (2,))) == "", "another root may lag"
    assert told(Shown("a", 4, (3,)), Shown("a", 3, (2,), 1)) == "", "one that came back with old contents may"
    assert "went back" in told(Shown("a", 4, (3,), 1), Shown("a", 3, (3,), 1)), "but not again"


def test_out_of_order() -> None:
    wrong = [Acked("p", "p-10", "1", 0, 1), Acked("p", "p-9", "1", 0, 2)]
    assert "out of order" in told(*wrong)
    assert told(*wrong[:1], Acked("q", "q-9", "1", 0, 2)) == ""


def test_roots_that_differ() -> None:
    shorter = {**WHOLE, "b": [Read("b", 0, 0, 2, (FIRST,))]}
    assert "b ends at {0: (0, 2)}, a at {0: (0, 3)}" in faults([], shorter)
    assert any("(0, 2) differs at b and a" in fault for fault in faults([], shorter))


def rows_of_a_query(*numbers: int) -> dict[str, list[Read]]:
    return {"a": [Read("a", 0, 0, 9, tuple((at, f"s-{number}") for at, number in enumerate(numbers)))]}


def test_batches_of_a_query() -> None:
    two = Batches("s", 2, 2)
    assert told(two, final=rows_of_a_query(0, 1, 2, 3)) == ""
    assert told(two, final=rows_of_a_query(2, 3, 0, 1, 4, 5)) == "", "the last one may lack its place in the checkpoint"
    assert "at a s has 1 batches" in told(two, final=rows_of_a_query(0, 1))
    assert "at a s has 4 batches" in told(two, final=rows_of_a_query(*range(8)))
    assert "not whole: 5 rows" in told(two, final=rows_of_a_query(*range(5)))
    assert "missing or doubled: 1 of 4" in told(two, final=rows_of_a_query(0, 2, 3, 4))
    assert "missing or doubled: 2 of 5" in told(Batches("s", 2, 2), final=rows_of_a_query(0, 1, 1, 2, 3))


def of_a_group(committed: int, left: int, *offsets: int) -> list[str]:
    records = {0: FIRST, 2: SECOND}
    polled = [Read("g", 0, offset, offset + 1, (records[offset],)) for offset in offsets]
    return faults([polled, [Committed("g", 0, committed)]], WHOLE, [Committed("g", 0, left)])


def test_groups() -> None:
    assert of_a_group(3, 3, 0, 2) == []
    assert of_a_group(1, 3, 0) == [], "the last commit may have landed"
    assert any("committed 3, and has 1" in fault for fault in of_a_group(3, 1, 0, 2))
    assert any("no member was handed out [2]" in fault for fault in of_a_group(3, 3, 0))
    assert any("committed 1, and has None" in fault for fault in faults([[Committed("g", 0, 1), *RIGHT]], WHOLE))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    events = [*RIGHT, Failed("read", "no"), Batches("s", 6, 2), Committed("g", 0, 1)]
    Recorder(tmp_path / "h").add(*events)
    with open(tmp_path / "h", "a") as file:
        file.write('["Acked", {"wri')  # killed here
    Recorder(tmp_path / "h").add(RIGHT[0])
    assert list(recorded(tmp_path / "h")) == [*events, RIGHT[0]]
