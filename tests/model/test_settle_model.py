"""Settling without a lock, explored: with all rules no property breaks, and without any one of them some property does.

`settle_model` has the scenes and the properties. Run with `-s` to see the counter-examples.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.cases import assert_breaks, assert_nothing_breaks, by_size, show
from tests.model.exploration import wander
from tests.model.settle_model import (
    LARGE,
    NOT_FORCED,
    WALKS,
    WHOLE,
    WITHOUT,
    Whole,
    Without,
    bounds_of,
    everything,
)
from tests.model.settle_rules import ALL, Guards

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("whole", by_size(WHOLE, 70_000))
def test_with_all_rules_no_property_breaks(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys, bounds_of(whole.scenario()))


@pytest.mark.nightly
@pytest.mark.parametrize("whole", LARGE, ids=str)
def test_with_all_rules_no_property_breaks_in_larger_scenes(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    assert_nothing_breaks(whole, capsys, bounds_of(whole.scenario()))


def test_everything_at_once_breaks_nothing_in_random_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    report = wander(everything(ALL), runs=WALKS)
    show(report, capsys)
    assert report.broken is None, str(report)
    assert report.reached >= {"Published", "Dropped", "Accepted", "Handed", "sweep_objects", "collect_one"}


@pytest.mark.nightly
def test_everything_at_once_breaks_nothing_in_many_random_schedules() -> None:
    report = wander(everything(ALL), runs=10 * WALKS, seed=2)
    assert report.broken is None, str(report)


@pytest.mark.parametrize("without", WITHOUT, ids=str)
def test_without_a_rule_a_property_breaks(without: Without) -> None:
    assert_breaks(without)


@pytest.mark.parametrize("without", NOT_FORCED, ids=str)
def test_without_a_rule_that_is_not_forced_nothing_breaks(without: Without) -> None:
    assert without.explored().broken is None


def test_every_guard_was_taken_out_once() -> None:
    assert {without.guard for without in [*WITHOUT, *NOT_FORCED]} == {rule.name for rule in fields(Guards)}


def test_every_rule_is_shown_by_a_scene() -> None:
    """O9's other half is `exists_is_doubt` of the journal's model; O10, O12 and O13 are no matter of interleavings."""
    assert {without.rule for without in WITHOUT} == {f"O{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11)}
