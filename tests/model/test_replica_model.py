"""Replicas, explored: with all rules no property breaks, and without any one of them some property does.

`replica_model` and `replica_model_decided` have the scenes, `replica_store` the properties. Run with `-s` to see the
counter-examples.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.model.cases import assert_breaks, assert_nothing_breaks, show
from tests.model.exploration import Report, explore, wander
from tests.model.replica_births import BORN, LARGE_BORN, WITHOUT_BIRTHS, Births
from tests.model.replica_collecting import COLLECTING, LARGE_COLLECTING, WITHOUT_KEEPS, Keeps
from tests.model.replica_deciding import STRICT, Rules
from tests.model.replica_model import LARGE, NOT_FORCED, WHOLE, WITHOUT, Whole, Without, bounds_of
from tests.model.replica_model_decided import (
    COMPOSED,
    DECIDING,
    LARGE_COMPOSED,
    LARGE_DECIDING,
    WALKS,
    WITHOUT_COMPOSED,
    WITHOUT_DECIDED,
    everything,
    rolled_back,
)
from tests.model.replica_moving import MOVING, WITHOUT_MOVES, Moves
from tests.model.replica_replacing import FOLLOWING, LARGE_FOLLOWING, WITHOUT_FOLLOWS, Follows
from tests.model.replica_rules import ALL, Guards

pytestmark = pytest.mark.slow


def either(cases: list[Any]) -> list[Any]:
    """The cases, those that take long marked so."""
    return [pytest.param(each, marks=[pytest.mark.nightly] if each.long else [], id=str(each)) for each in cases]


@pytest.mark.parametrize("whole", [*WHOLE, *COMPOSED, *DECIDING], ids=str)
def test_with_all_rules_no_property_breaks(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys, bounds_of(whole.scenario()))


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [*LARGE, *LARGE_COMPOSED, *LARGE_DECIDING], ids=str)
def test_with_all_rules_no_property_breaks_in_larger_scenes(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys, bounds_of(whole.scenario()))


def test_everything_at_once_breaks_nothing_in_random_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks_at_random(wander(everything(ALL), runs=WALKS, seed=3), capsys)


@pytest.mark.nightly
def test_everything_at_once_breaks_nothing_in_many_random_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks_at_random(wander(everything(ALL), runs=60 * WALKS, seed=2), capsys)


def assert_nothing_breaks_at_random(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    """Walks come to all that there is, and break nothing."""
    show(report, capsys)
    assert report.broken is None, str(report)
    assert report.reached >= {"Acked", "accept", "anybody", "network", "fails"}


@pytest.mark.parametrize("whole", [*MOVING, *FOLLOWING, *BORN, *COLLECTING], ids=str)
def test_metadata_that_moves_or_is_collected_breaks_nothing(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [*LARGE_FOLLOWING, *LARGE_BORN, *LARGE_COLLECTING], ids=str)
def test_metadata_that_moves_or_is_collected_breaks_nothing_in_larger_scenes(
    whole: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_nothing_breaks(whole, capsys)


@pytest.mark.parametrize("without", either([*WITHOUT_MOVES, *WITHOUT_FOLLOWS, *WITHOUT_BIRTHS, *WITHOUT_KEEPS]))
def test_without_a_rule_of_moving_or_collecting_a_property_breaks(without: Without) -> None:
    assert_breaks(without)


@pytest.mark.parametrize("without", either([*WITHOUT, *WITHOUT_COMPOSED, *WITHOUT_DECIDED]))
def test_without_a_rule_a_property_breaks(without: Without) -> None:
    assert_breaks(without)


@pytest.mark.parametrize("without", either(NOT_FORCED))
def test_without_a_rule_that_is_not_forced_nothing_breaks(without: Without) -> None:
    assert without.explored().broken is None


@pytest.mark.nightly
def test_an_acceptor_that_is_rolled_back_below_its_files_can_break_the_chain() -> None:
    """What the page says is not covered: nothing on any root tells that the disk below one forgot its newest vote."""
    report = explore(rolled_back(STRICT))
    print(report)
    assert report.broken is not None
    assert report.broken.startswith("C5")


def test_every_guard_was_taken_out_once() -> None:
    assert {without.guard for without in [*WITHOUT, *WITHOUT_COMPOSED, *NOT_FORCED]} == {
        rule.name for rule in fields(Guards)
    }
    known_not_to_suffice = {"named_records"}
    assert {without.guard for without in WITHOUT_DECIDED} == {
        rule.name for rule in fields(Rules)
    } - known_not_to_suffice
    assert {without.guard for without in WITHOUT_MOVES} == {rule.name for rule in fields(Moves)}
    assert {without.guard for without in WITHOUT_FOLLOWS} == {rule.name for rule in fields(Follows)}
    assert {without.guard for without in WITHOUT_BIRTHS} == {rule.name for rule in fields(Births)}
    assert {without.guard for without in WITHOUT_KEEPS} == {rule.name for rule in fields(Keeps)}
