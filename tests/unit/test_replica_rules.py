"""What an entry may say of replicas on its base: rule by rule, as docs/explanation/design/replication.md has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from pyspark_commitlog.replication.leader.placement import assign
from pyspark_commitlog.replication.protocol.replica_state import (
    MAX_ABOVE_HW,
    MAX_ON_ROWS,
    MAX_PENDING,
    MAX_ROOTS,
    MAX_WHY,
    MetadataSet,
    ReplicaState,
    check_replicas,
)
from pyspark_commitlog.replication.protocol.rules import (
    Ack,
    Reason,
    RefusedError,
    added,
    after_append,
    after_other,
    collectable,
    created,
    elected,
    elected_uncleanly,
    hw_may_rise_to,
    is_restored,
    joined,
    joining,
    lost_roots,
    made_again,
    made_where_it_was,
    may_return,
    moved,
    recovered,
    shrunk,
    visible,
    with_hw,
    without_replica,
)

THREE = MetadataSet(1, "s", ("a", "b", "c"))
ONE = MetadataSet(1, "s", ("b",))
STATE = ReplicaState(THREE, ("a", "b", "c"), ("a", "b", "c"), (), {}, "a", 0, 5, {}, ())
"""Three roots in sync at entry 5, of which readers see all."""


def refused(reason: Reason, call: Callable[[], object]) -> None:
    with pytest.raises(RefusedError, match=str(reason)) as raised:
        call()
    assert raised.value.reason is reason


def written(*on: tuple[str, ...], base: ReplicaState = STATE, first: int = 6, acks_all: bool = False) -> ReplicaState:
    """The state after appends on these roots, from a number on."""
    for number, roots in enumerate(on, first):
        base = after_append(base, number, roots, acks_all=acks_all, min_insync=1)
    return base


# --- Creation, appends -----------------------------------------------------------------------------------------------


def test_a_topic_begins_with_all_its_replicas_in_sync() -> None:
    state = created(THREE, ["b", "a"], "b", 1)

    assert (state.replicas, state.isr, state.leader, state.hw) == (("b", "a"), ("b", "a"), "b", 1)
    check_replicas(state.to_json(), 1, "1.json")


def test_a_topic_that_is_made_again_is_shown_at_once_and_has_nothing_to_void() -> None:
    base, _ = elected(written(("a",), ("a", "b")), 7, 8, "b", 5)
    assert (base.hw, set(base.on), base.pending_voids) == (5, {7}, ((6, 8),))
    state = made_again(base, 9)

    assert (state.hw, state.on, state.pending_voids, state.learned) == (9, {}, (), base.learned)
    assert (state.isr, state.leader, state.leader_epoch) == (base.isr, "b", 1)
    check_replicas(state.to_json(), 9, "9.json")


@pytest.mark.parametrize(("chosen", "replicas"), [("bca", "abc"), ("bc", "ab"), ("abc", "abc"), ("b", "a")])
def test_a_topic_of_one_root_that_is_made_again_is_led_there_and_the_others_are_not_in_sync(
    chosen: str, replicas: str
) -> None:
    state = made_where_it_was(THREE, "a", list(chosen), 9)
    assert (state.replicas, state.isr, state.joining, state.leader, state.hw) == (tuple(replicas), ("a",), (), "a", 9)
    check_replicas(state.to_json(), 9, "9.json")


def test_a_topic_is_not_made_with_a_leader_that_is_no_replica_or_with_too_many_replicas() -> None:
    refused(Reason.NO_REPLICA, lambda: created(THREE, ["a"], "b", 1))
    refused(Reason.TOO_MANY_ROOTS, lambda: created(THREE, ["a", *"x" * MAX_ROOTS], "a", 1))


def test_an_append_says_where_its_chunks_are_and_leaves_the_high_watermark() -> None:
    state = written(("c", "a"))

    assert (state.on, state.hw) == ({6: ("a", "c")}, 5)


def test_an_append_says_nothing_of_roots_that_are_no_replicas() -> None:
    assert written(("a", "x")).on == {6: ("a",)}


def test_an_append_needs_its_chunks_on_the_leader() -> None:
    refused(Reason.NOT_ON_LEADER, lambda: written(("b", "c")))


def test_an_append_needs_its_chunks_on_the_one_metadata_root_if_that_is_a_replica() -> None:
    refused(Reason.NOT_ON_METADATA, lambda: written(("a",), base=replace(STATE, set=ONE)))
    elsewhere = replace(STATE, set=MetadataSet(1, "s", ("m",)))

    assert written(("a", "b"), base=replace(STATE, set=ONE)).on == {6: ("a", "b")}
    assert written(("a",), base=elsewhere).on == {6: ("a",)}


def test_acks_all_needs_the_chunks_on_all_roots_in_sync_and_acks_1_does_not() -> None:
    refused(Reason.NOT_ON_ISR, lambda: written(("a", "b"), acks_all=True))
    without_c = shrunk(STATE, "c")

    assert written(("a", "b"), base=without_c, acks_all=True).on == {6: ("a", "b")}
    assert written(("a", "b")).on == {6: ("a", "b")}


def test_acks_all_needs_min_insync_replicas_and_acks_1_does_not() -> None:
    two = shrunk(STATE, "c")

    def append(least: int, acks_all: bool = True) -> ReplicaState:
        return after_append(two, 6, ("a", "b"), acks_all=acks_all, min_insync=least)

    refused(Reason.TOO_FEW_IN_SYNC, lambda: append(3))
    assert append(2).on == append(3, acks_all=False).on == {6: ("a", "b")}


def test_appends_above_the_high_watermark_are_bounded_as_what_is_read_is() -> None:
    full = replace(STATE, on={6 + n: ("a",) for n in range(MAX_ABOVE_HW - 1)})
    last = after_append(full, 6 + MAX_ABOVE_HW, ("a",), acks_all=False, min_insync=1)

    check_replicas(last.to_json(), 6 + MAX_ABOVE_HW, "x.json")
    refused(
        Reason.TOO_MANY_ABOVE_HW,
        lambda: after_append(last, 7 + MAX_ABOVE_HW, ("a",), acks_all=False, min_insync=1),
    )


def test_rows_of_appends_that_are_on_different_roots_are_bounded_as_what_is_read_is() -> None:
    on: dict[int, tuple[str, ...]] = {6 + n: ("a", "b")[: 1 + n % 2] for n in range(MAX_ON_ROWS)}
    full, number = replace(STATE, on=on), 6 + MAX_ON_ROWS
    same = after_append(full, number, ("a", "b"), acks_all=False, min_insync=1)

    check_replicas(same.to_json(), number, "x.json")
    refused(Reason.TOO_MANY_ABOVE_HW, lambda: after_append(full, number, ("a",), acks_all=False, min_insync=1))


# --- High watermark --------------------------------------------------------------------------------------------------


def test_where_nothing_is_to_be_copied_the_high_watermark_goes_along() -> None:
    assert visible(after_other(STATE, 5, 6)) == 6
    assert visible(after_other(written(("a",)), 6, 7)) == 5
    assert after_other(STATE, 5, 6).learned == {}


@pytest.mark.parametrize(
    ("learned", "hw"),
    [
        ({"a": 8, "b": 7, "c": 6}, 6),
        ({"a": 8, "b": 8, "c": 8}, 8),
        ({"a": 9, "b": 9, "c": 9}, 8),
        ({"a": 8, "b": 8}, 5),
        ({"a": 8, "b": 8, "c": 3}, 5),
        ({}, 5),
    ],
    ids=["least", "all", "no more than the base", "one did not answer", "one is far back", "nobody answered"],
)
def test_the_high_watermark_rises_over_what_all_in_sync_have_learned(learned: Mapping[str, int], hw: int) -> None:
    assert hw_may_rise_to(written(("a",), ("a",), ("a",)), 8, learned) == hw


def test_roots_that_are_not_in_sync_do_not_hold_the_high_watermark_back() -> None:
    state = shrunk(written(("a",)), "c")

    assert hw_may_rise_to(state, 6, {"a": 6, "b": 6, "c": 0}) == 6


def test_the_high_watermark_does_not_rise_while_a_root_in_sync_was_restored() -> None:
    state = replace(written(("a",), ("a",)), learned={"c": 7})

    assert hw_may_rise_to(state, 7, {"a": 7, "b": 7, "c": 6}) == 5
    assert hw_may_rise_to(state, 7, {"a": 7, "b": 7, "c": 7}) == 7


def test_a_stated_high_watermark_drops_what_is_needed_above_it_only() -> None:
    state = replace(written(("a",), ("a", "b"), ("a",)), pending_voids=((2, 7), (3, 9)), learned={"b": 9})
    after = with_hw(state, 7)

    assert (after.hw, after.on, after.pending_voids) == (7, {8: ("a",)}, ((3, 9),))
    assert after.learned == {"a": 7, "b": 9, "c": 7}


def test_the_high_watermark_never_goes_back() -> None:
    assert with_hw(STATE, 4) == STATE
    assert hw_may_rise_to(STATE, 9, dict.fromkeys("abc", 2)) == 5


@pytest.mark.parametrize(("learned", "hw"), [(6, 6), (7, 6), (8, 6), (9, 9), (10, 10)])
def test_the_high_watermark_does_not_rise_to_an_entry_below_a_void_of_a_later_election(learned: int, hw: int) -> None:
    """Entry 7 became void by the election 9: only from there on do readers know it for a gap."""
    state = written(("a", "b"), ("a",), ("a", "b"))
    state, voids = elected(state, 8, 9, "b", 5, gone="a")
    state = written(("b",), base=state, first=10)

    assert voids == (7,)
    assert hw_may_rise_to(state, 10, {"b": learned, "c": learned}) == hw


def test_two_elections_hold_the_high_watermark_each_below_its_own_void() -> None:
    state = replace(STATE, pending_voids=((8, 10), (6, 14)))

    assert [hw_may_rise_to(state, 20, dict.fromkeys("abc", m)) for m in (7, 9, 11, 13, 14)] == [5, 5, 5, 5, 14]
    crossing = replace(STATE, pending_voids=((7, 9), (8, 14)))
    assert [hw_may_rise_to(crossing, 20, dict.fromkeys("abc", m)) for m in (6, 7, 8, 13)] == [6, 6, 6, 6]
    later = replace(STATE, pending_voids=((6, 8), (10, 12)))
    assert [hw_may_rise_to(later, 20, dict.fromkeys("abc", m)) for m in (7, 9, 11, 12)] == [5, 9, 9, 12]


# --- Replicas and the ISR --------------------------------------------------------------------------------------------


def test_a_root_is_added_joins_and_is_in_sync() -> None:
    state = added(STATE, "d", begins=3)
    assert (state.replicas, state.isr, state.joining, state.begins) == (tuple("abcd"), tuple("abc"), (), {"d": 3})

    state = joining(state, "d")
    assert (state.isr, state.joining) == (tuple("abc"), ("d",))

    state = joined(state, 8, "d", 8)
    assert (state.isr, state.joining, state.learned) == (tuple("abcd"), (), {"d": 8})


def test_roots_in_sync_stay_in_the_order_of_assignment() -> None:
    out = shrunk(shrunk(STATE, "b"), "c")
    both = joining(joining(out, "c"), "b")
    state = joined(joined(both, 5, "c", 5), 5, "b", 5)

    assert (both.joining, state.isr) == (("b", "c"), ("a", "b", "c"))


def test_a_root_is_added_once_and_not_beyond_the_bound() -> None:
    full = replace(STATE, replicas=tuple(f"r{n}" for n in range(MAX_ROOTS)))

    refused(Reason.IS_REPLICA, lambda: added(STATE, "b"))
    refused(Reason.TOO_MANY_ROOTS, lambda: added(full, "x"))


def test_a_root_joins_if_it_is_a_replica_out_of_sync_that_does_not_join_already() -> None:
    refused(Reason.NO_REPLICA, lambda: joining(STATE, "x"))
    refused(Reason.IN_SYNC, lambda: joining(STATE, "b"))
    refused(Reason.IS_JOINING, lambda: joining(joining(shrunk(STATE, "b"), "b"), "b"))


def test_a_root_is_in_sync_when_it_has_learned_the_base_and_not_only_what_readers_see() -> None:
    state = joining(shrunk(written(("a",)), "c"), "c")

    refused(Reason.LAGS, lambda: joined(state, 6, "c", 5))
    assert joined(state, 6, "c", 6).isr == ("a", "b", "c")


def test_a_root_that_does_not_join_is_not_taken_in() -> None:
    refused(Reason.NOT_JOINING, lambda: joined(shrunk(STATE, "c"), 5, "c", 9))


def test_a_root_is_taken_out_of_those_in_sync_and_of_those_that_join() -> None:
    state = replace(STATE, learned={"b": 4, "c": 5})
    out = shrunk(state, "c")

    assert (out.isr, out.replicas, out.learned) == (("a", "b"), ("a", "b", "c"), {"b": 4})
    assert shrunk(joining(out, "c"), "c") == out
    refused(Reason.NOT_IN_SYNC, lambda: shrunk(out, "c"))


def test_the_leader_is_not_taken_out() -> None:
    refused(Reason.IS_LEADER, lambda: shrunk(STATE, "a"))
    refused(Reason.IS_LEADER, lambda: without_replica(STATE, "a"))


def test_who_takes_a_root_out_may_raise_the_high_watermark_over_the_rest_only() -> None:
    state = shrunk(written(("a",), ("a",)), "c")

    assert hw_may_rise_to(state, 7, {"a": 7, "b": 6}) == 6


@pytest.mark.parametrize("which", ["in sync", "joining", "neither"])
def test_nothing_is_left_of_a_root_that_leaves(which: str) -> None:
    state = replace(written(("a", "c")), begins={"c": 2, "b": 1}, learned={"c": 5})
    if which != "in sync":
        state = shrunk(state, "c")
    if which == "joining":
        state = joining(state, "c")
    gone = without_replica(state, "c")

    assert (gone.replicas, gone.isr, gone.joining) == (("a", "b"), ("a", "b"), ())
    assert (gone.begins, gone.on, gone.learned) == ({"b": 1}, {6: ("a",)}, {})
    check_replicas(gone.to_json(), 7, "7.json")


def test_who_is_no_replica_does_not_leave() -> None:
    refused(Reason.NO_REPLICA, lambda: without_replica(STATE, "x"))


# --- Elections -------------------------------------------------------------------------------------------------------


def test_an_election_makes_void_what_the_new_leader_neither_had_nor_has_learned() -> None:
    state = written(("a",), ("a",), ("a", "b"), ("a", "c"))
    after, voids = elected(state, 9, 10, "b", 6, gone="a", at_ms=17, why="a is gone")

    assert voids == (7, 9)
    assert after.on == {6: ("a",), 8: ("a", "b")}
    assert (after.leader, after.leader_epoch, after.isr, after.hw) == ("b", 1, ("b", "c"), 5)
    assert (after.pending_voids, after.elected_ms, after.why) == (((7, 10),), 17, "a is gone")
    check_replicas(after.to_json(), 10, "10.json")


def test_an_election_that_makes_nothing_void_holds_no_high_watermark_back() -> None:
    after, voids = elected(written(("a",)), 6, 7, "b", 6, gone="a")

    assert (voids, after.pending_voids) == ((), ())


def test_what_is_void_stays_void() -> None:
    """The second leader has the chunk of what the first one lacked."""
    state, first = elected(written(("a", "c")), 6, 7, "b", 5, gone="a")
    after, second = elected(state, 7, 8, "c", 6, gone="b")

    assert (first, second, after.on) == ((6,), (), {})


def test_a_leader_that_hands_over_stays_in_sync() -> None:
    after, _ = elected(replace(STATE, learned={"a": 5}), 5, 6, "b", 5)

    assert (after.leader, after.isr, after.learned) == ("b", ("a", "b", "c"), {"a": 5})


def test_a_leader_that_is_gone_is_forgotten() -> None:
    after, _ = elected(replace(STATE, learned={"a": 5}), 5, 6, "b", 5, gone="a")

    assert (after.isr, after.learned, after.hw) == (("b", "c"), {}, 6)


def test_only_another_root_in_sync_is_elected() -> None:
    out = joining(shrunk(STATE, "c"), "c")

    refused(Reason.IS_LEADER, lambda: elected(STATE, 5, 6, "a", 5, gone=None))
    refused(Reason.NOT_IN_SYNC, lambda: elected(out, 5, 6, "c", 5, gone="a"))
    refused(Reason.NO_REPLICA, lambda: elected(STATE, 5, 6, "x", 5, gone="a"))


def test_an_elector_that_found_another_leader_gone_elects_nobody() -> None:
    refused(Reason.NOT_LEADER, lambda: elected(STATE, 5, 6, "b", 5, gone="c"))


def test_a_root_that_was_restored_is_not_elected() -> None:
    state = replace(STATE, learned={"b": 5})

    refused(Reason.RESTORED, lambda: elected(state, 5, 6, "b", 4, gone="a"))
    assert elected(state, 5, 6, "b", 5, gone="a")[0].leader == "b"


def test_the_reason_of_an_election_is_cut_to_what_can_be_read() -> None:
    after, _ = elected(STATE, 5, 6, "b", 5, why="x" * (MAX_WHY + 1))

    check_replicas(after.to_json(), 6, "6.json")


def test_more_elections_than_an_entry_holds_are_held_as_one_that_covers_them() -> None:
    state, number = STATE, 6
    for _ in range(MAX_PENDING + 2):
        state = written((state.leader,), base=state, first=number)
        other = "b" if state.leader == "a" else "a"
        state, voids = elected(state, number, number + 1, other, 5)
        assert voids == (number,)
        number += 2
    newest = number - 1

    check_replicas(state.to_json(), newest, "x.json")
    assert [first for first, _ in state.pending_voids] == list(range(6, 6 + 2 * MAX_PENDING, 2))
    assert state.pending_voids[-1][1] == newest
    assert hw_may_rise_to(state, newest, dict.fromkeys("abc", newest)) == newest
    assert hw_may_rise_to(state, newest, dict.fromkeys("abc", newest - 1)) == 5 + 2 * (MAX_PENDING - 1)


def test_an_unclean_election_makes_void_what_the_new_leader_cannot_hand_out_also_what_was_read() -> None:
    state = replace(shrunk(written(("a", "b"), ("a", "b", "c"), ("a",)), "c"), learned={"a": 5})
    after, voids = elected_uncleanly(state, 8, 9, "c", living=(2, 4, 6), has={2, 7}, at_ms=3, why="by hand")

    assert voids == (4, 6, 8)
    assert (after.leader, after.leader_epoch, after.isr, after.joining) == ("c", 1, ("c",), ())
    assert (after.on, after.pending_voids, after.learned) == ({7: ("a", "b", "c")}, ((4, 9),), {})
    assert (after.hw, after.elected_ms, after.why) == (5, 3, "by hand")
    check_replicas(after.to_json(), 9, "9.json")


def test_an_unclean_election_is_of_a_replica_that_is_not_in_sync() -> None:
    refused(Reason.IN_SYNC, lambda: elected_uncleanly(STATE, 5, 6, "b", (), ()))
    refused(Reason.NO_REPLICA, lambda: elected_uncleanly(STATE, 5, 6, "x", (), ()))


# --- Metadata --------------------------------------------------------------------------------------------------------

NEXT = MetadataSet(2, "t", ("a", "b", "m"))


def test_metadata_moves_when_a_majority_of_the_next_set_has_learned_the_base() -> None:
    refused(Reason.NOT_LEARNED, lambda: moved(STATE, 5, NEXT, {"a": 5, "b": 4, "c": 5}))
    after = moved(STATE, 5, NEXT, {"a": 5, "m": 6})

    assert after == replace(STATE, set=NEXT)
    refused(Reason.NOT_LEARNED, lambda: moved(STATE, 5, MetadataSet(2, "t", ("a", "b")), {"a": 5}))


@pytest.mark.parametrize("of", [replace(NEXT, generation=1), replace(NEXT, generation=3), replace(NEXT, id="s")])
def test_a_metadata_set_follows_the_one_of_the_base(of: MetadataSet) -> None:
    refused(Reason.NOT_NEXT_SET, lambda: moved(STATE, 5, of, dict.fromkeys("abm", 5)))
    refused(Reason.NOT_NEXT_SET, lambda: recovered(STATE, 5, 6, "b", (), of))


def test_recovered_metadata_goes_by_files_and_leaves_one_root_in_sync() -> None:
    """Root b has learned 6 and 7, 6 as void, so without its chunk, by an election that its journal does not have."""
    state = replace(joining(shrunk(written(("a",), ("a", "b"), ("a",)), "c"), "c"), learned={"a": 4, "b": 5})
    after, voids = recovered(state, 8, 9, "b", {7}, NEXT, at_ms=4, why="a and m are lost")

    assert voids == (6, 8)
    assert (after.set, after.leader, after.leader_epoch, after.isr, after.joining) == (NEXT, "b", 1, ("b",), ())
    assert (after.on, after.pending_voids, after.learned, after.hw) == ({7: ("a", "b")}, ((6, 9),), {"b": 5}, 5)
    assert (after.elected_ms, after.why) == (4, "a and m are lost")
    check_replicas(after.to_json(), 9, "9.json")


def test_metadata_is_recovered_on_a_replica() -> None:
    refused(Reason.NO_REPLICA, lambda: recovered(STATE, 5, 6, "m", (), NEXT))


# --- Acknowledging, collecting, roots that come back -----------------------------------------------------------------------


def ack(
    learned: Mapping[str, int], head: ReplicaState = STATE, own: bool = True, void: bool = False, least: int = 1
) -> Ack:
    return may_return(head, 6, learned, own_on_all_isr=own, is_void=void, min_insync=least)


def test_acks_all_is_acknowledged_when_all_of_the_newest_isr_have_learned_the_entry() -> None:
    assert ack({"a": 6, "b": 6, "c": 7}) is Ack.YES
    assert ack({"a": 6, "b": 6, "c": 5}) is Ack.WAIT
    assert ack({"a": 6, "b": 6}) is Ack.WAIT
    assert ack({"a": 6, "b": 6}, shrunk(STATE, "c")) is Ack.YES


def test_what_was_not_on_all_in_sync_is_acknowledged_at_the_high_watermark_only() -> None:
    """An election that makes it void may be under way on the very head that the writer reads."""
    everywhere = dict.fromkeys("abc", 6)

    assert ack(everywhere, own=False) is Ack.WAIT
    assert ack(everywhere, with_hw(STATE, 6), own=False) is Ack.YES


def test_what_is_void_is_not_acknowledged() -> None:
    assert ack(dict.fromkeys("abc", 6), void=True) is Ack.VOID
    assert ack({}, void=True) is Ack.VOID


def test_too_few_roots_are_said_when_all_of_them_have_the_entry() -> None:
    two = shrunk(STATE, "c")

    assert ack({"a": 6, "b": 6}, two, least=3) is Ack.TOO_FEW
    assert ack({"a": 6, "b": 5}, two, least=3) is Ack.WAIT
    assert ack({"a": 6, "b": 6}, two, least=2) is Ack.YES


def test_acks_all_does_not_count_a_root_that_was_restored() -> None:
    assert ack(dict.fromkeys("abc", 6), replace(STATE, learned={"c": 7})) is Ack.WAIT


@pytest.mark.parametrize(
    ("learned", "most"),
    [
        (dict.fromkeys("abc", 9), 4),
        ({"a": 9, "b": 9, "c": 3}, 3),
        ({"a": 9, "b": 9}, -1),
    ],
    ids=["below the high watermark", "one of those in sync", "one did not answer"],
)
def test_an_entry_goes_when_it_is_below_the_high_watermark_and_all_that_count_have_it(
    learned: Mapping[str, int], most: int
) -> None:
    assert collectable(STATE, learned) == most


def test_an_entry_stays_for_a_root_that_joins() -> None:
    state = joining(shrunk(STATE, "c"), "c")

    assert collectable(state, {"a": 9, "b": 9, "c": 2}) == 2
    assert collectable(shrunk(state, "c"), {"a": 9, "b": 9, "c": 2}) == 4


def test_an_entry_stays_until_a_majority_of_the_metadata_roots_have_it() -> None:
    state = replace(STATE, set=MetadataSet(1, "s", ("m", "n", "o")))
    data = dict.fromkeys("abc", 9)

    assert collectable(state, {**data, "m": 9, "n": 3, "o": 1}) == 3
    assert collectable(state, {**data, "m": 9, "n": 9}) == 4
    assert collectable(state, {**data, "m": 9}) == -1


def test_a_root_that_ends_below_what_entries_say_was_restored() -> None:
    state = with_hw(written(("a",)), 6)

    assert is_restored(state, "b", 5)
    assert not is_restored(state, "b", 6)
    assert not is_restored(shrunk(state, "b"), "b", 5)
    assert lost_roots(state, {"a": 6, "b": 5}) == ("b",)


def test_a_root_that_did_not_answer_was_not_restored() -> None:
    assert lost_roots(replace(STATE, learned={"a": 5, "b": 5}), {"b": 5}) == ()


def test_a_root_that_is_slow_while_nothing_is_written_was_not_restored() -> None:
    """Nobody has seen that it learned the entries that the high watermark went along with."""
    state = after_other(STATE, 5, 6)

    assert not is_restored(state, "b", 5)


# --- Assignment ------------------------------------------------------------------------------------------------------


def test_leaders_spread_over_roots_and_followers_go_round() -> None:
    leading = dict.fromkeys("abcd", 0)
    made = []
    for _ in range(8):
        replicas = assign(leading, tuple("abcd"), 3)
        leading[replicas[0]] += 1
        made.append("".join(replicas))

    assert made == ["abc", "bcd", "cda", "dab", "acd", "bda", "cab", "dbc"]


def test_the_root_that_leads_least_leads() -> None:
    assert assign({"a": 2, "b": 1, "x": 9}, ("a", "b", "c"), 1) == ("c",)
    assert assign({}, ("a",), 1) == ("a",)


@pytest.mark.parametrize("factor", [0, 3])
def test_no_root_has_two_replicas(factor: int) -> None:
    refused(Reason.TOO_MANY_ROOTS, lambda: assign({}, ("a", "b"), factor))
