"""Own pieces of a partition: exactly those that were worked on are replaced, and the oldest of the tail follow them (O2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.settle.pieces import are_named, followed, replace_own, replaced, tail_to_own
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import Place, Sealed, SettleState
from tests.support.ghosts import settled
from tests.support.objects import ObjectWorld, copied, own, split, topic_id
from tests.support.verify import verify


def piece(base: int, end: int, name: str = "") -> Sealed:
    return Sealed(base, end, 0, 100, 0, 0, 12, 5, 5, 0, Place(name or f"{base}-{end}", 0))


OWN = (piece(0, 10), piece(10, 20), piece(20, 30), piece(30, 40))
NEW = piece(10, 30, "new")


def test_neighbours_are_replaced() -> None:
    assert replaced(OWN, OWN[1:3], [NEW]) == (OWN[0], NEW, OWN[3])


def test_first_pieces_are_let_go_of() -> None:
    assert replaced(OWN, OWN[:2], []) == OWN[2:]


def test_pieces_in_the_middle_are_never_let_go_of() -> None:
    assert replaced(OWN, OWN[1:3], []) is None


@pytest.mark.parametrize(
    "own",
    [
        pytest.param((OWN[0], OWN[1], OWN[3]), id="one is let go of"),
        pytest.param((OWN[0], piece(10, 20, "other"), *OWN[2:]), id="the first was made again"),
        pytest.param((*OWN[:2], piece(20, 30, "other"), OWN[3]), id="the last was made again"),
        pytest.param((*OWN[:2], piece(20, 20, "between"), *OWN[2:]), id="no neighbours"),
        pytest.param((OWN[0], NEW, OWN[3]), id="it landed"),
        pytest.param((), id="none is left"),
    ],
)
def test_exactly_the_pieces_that_were_worked_on_are_replaced(own: tuple[Sealed, ...]) -> None:
    """O2. Else what another operation let go of, merged or compacted would come back."""
    assert replaced(own, OWN[1:3], [NEW]) is None


def test_what_follows_goes_after_the_own_pieces() -> None:
    assert followed(OWN[:1], OWN[1:3], 0) == OWN[:3]
    assert followed((), OWN[1:3], 0) == OWN[1:3]
    assert followed(OWN[:2], (), 0) == OWN[:2]


def test_before_a_gap_all_is_below_the_log_start() -> None:
    """A merge leaves out what is below it, and nothing between two pieces is ever above it."""
    assert followed(OWN[:1], OWN[2:], 20) == OWN[2:]


@pytest.mark.parametrize(
    ("new", "log_start"), [pytest.param(OWN[2:], 19, id="a gap"), pytest.param(OWN[:2], 40, id="the same again")]
)
def test_a_gap_above_the_log_start_is_never_published(new: tuple[Sealed, ...], log_start: int) -> None:
    with pytest.raises(CorruptionError, match="nothing was changed"):
        followed(OWN[:1], new, log_start)


# --- in a root --------------------------------------------------------------------------------------------


def test_the_oldest_of_the_tail_become_own_pieces(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3, partitions=2)
    objects = split(topic, 2)
    state = unlocked.settled()
    assert len(state.tail) == 1
    assert set(state.drops) == {f"objects/{shared.name}" for shared in objects}
    assert [(p.base_offset, p.end_offset) for p in own(topic, 1)] == [(0, 2)]
    assert unlocked.values() == [b"0", b"1", b"2"] * 2
    verify(unlocked.handle())


def test_only_the_first_of_the_tail_become_own_pieces(unlocked: ObjectWorld) -> None:
    """O2: own pieces lie before all of the tail; else the records before them are lost to readers."""
    topic = settled(unlocked, 3)
    base, state = topic.settled(topic_id(topic))
    new = {0: copied(topic, state, 0, list(topic.sealed(state, 0)[1:3]))}
    assert tail_to_own(topic, base, state, state.tail[1:3], new, [0]) is None
    assert tail_to_own(topic, base, replace(state, tail=state.tail[1:]), state.tail[:2], new, [0]) is None


def test_own_pieces_are_replaced_by_an_entry(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    split(topic, 1)
    split(topic, 1)
    old = own(topic)
    _, state = topic.settled(topic_id(topic))
    new = copied(topic, state, 0, old)
    seen: list[Change] = []

    def merge(base: Stored, now: SettleState) -> Change | None:
        change = replace_own(topic, base, now, 0, old, new, cleaned=2)
        seen.extend([change] if change else [])
        return change

    assert topic.change(state.topic_id, merge) is not None
    after = unlocked.settled()
    assert own(topic) == new
    assert are_named(topic, after, 0, new)
    assert not are_named(topic, after, 0, old)
    assert after.partition(0).cleaned == 2
    assert {f"objects/{each.place.object}" for each in old if each.place} <= set(after.drops)
    assert f"manifests/{after.partition(0).manifest.name}" in seen[-1].made  # type: ignore[union-attr]
    assert unlocked.values() == [b"0", b"1", b"2"]
    verify(unlocked.handle())
    assert topic.change(state.topic_id, merge) is None, "it landed"


def test_cleaned_rises_once_over_a_piece_that_stays(unlocked: ObjectWorld) -> None:
    """O2: an operation that makes nothing needs a precondition that ends with it."""
    topic = settled(unlocked, 2)
    split(topic, 1)
    stays, before = own(topic), unlocked.settled()

    def clean(base: Stored, now: SettleState) -> Change | None:
        return replace_own(topic, base, now, 0, stays, stays, cleaned=1)

    assert topic.change(before.topic_id, clean) is not None
    after = unlocked.settled()
    assert (after.partition(0).cleaned, after.partition(0).manifest) == (1, before.partition(0).manifest)
    assert topic.change(before.topic_id, clean) is None


def test_the_last_piece_that_is_let_go_of_leaves_no_manifest(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 1)
    split(topic, 1)
    old = own(topic)
    base, state = topic.settled(topic_id(topic))
    change = replace_own(topic, base, state, 0, old, [])
    assert change is not None
    assert change.after.partition(0).manifest is None
    assert change.made == ()
    assert change.dropped == tuple(f"objects/{each.place.object}" for each in old if each.place)
