"""Ballots: what is promised, accepted and decided."""

from __future__ import annotations

from pyspark_commitlog.replication.protocol.ballots import (
    NO_BALLOT,
    Ballot,
    Register,
    Value,
    accept,
    ballot_above,
    decided,
    highest,
    majority,
    promise,
)

LOW, MIDDLE, HIGH = Ballot(1, "p"), Ballot(2, "q"), Ballot(2, "r")
E1, E2 = Value(1, "e1"), Value(1, "e2")


def test_a_ballot_is_promised_only_above_what_was_promised() -> None:
    assert promise(Register(), LOW) == Register(promised=LOW)
    assert promise(Register(promised=MIDDLE), HIGH) is not None
    assert promise(Register(promised=MIDDLE), MIDDLE) is None
    assert promise(Register(promised=HIGH), MIDDLE) is None


def test_a_promise_keeps_what_was_accepted() -> None:
    assert promise(Register(LOW, LOW, E1), HIGH) == Register(HIGH, LOW, E1)


def test_a_value_is_accepted_unless_a_higher_ballot_was_promised() -> None:
    assert accept(Register(promised=MIDDLE), MIDDLE, E1) == Register(MIDDLE, MIDDLE, E1)
    assert accept(Register(promised=HIGH), MIDDLE, E1) is None


def test_decided_is_what_a_majority_shows_under_one_ballot() -> None:
    one, two = Register(LOW, LOW, E1), Register(HIGH, HIGH, E1)
    assert decided([one, one], 3) == one
    assert decided([one], 3) is None
    assert decided([one, two, Register(HIGH, MIDDLE, E2)], 3) is None, "the same entry under two ballots proves nothing"
    assert decided([one, one, two], 5) is None
    assert [majority(many) for many in (1, 3, 5)] == [1, 2, 3]


def test_a_proposer_takes_the_value_of_the_highest_accepted_ballot_and_a_ballot_above_all() -> None:
    registers = [Register(HIGH, LOW, E1), Register(MIDDLE, MIDDLE, E2), Register()]
    assert highest(registers).value == E2
    assert ballot_above(registers, "s") == Ballot(3, "s")
    assert ballot_above([], "s") > NO_BALLOT


def test_what_ends_a_set_is_accepted_as_the_last_and_the_next_promise_keeps_it() -> None:
    one = accept(Register(), Ballot(1, "a"), Value(1, "w"), ended=True)
    assert one is not None
    assert one.ended
    later = promise(one, Ballot(2, "b"))
    assert later is not None
    assert (later.value, later.ended) == (Value(1, "w"), True)
    again = accept(later, Ballot(2, "b"), Value(1, "w"))
    assert again is not None
    assert not again.ended
