"""The rules of a group's members, explored: with all of them nothing breaks, without any one of them something does."""

from __future__ import annotations

import pytest

from tests.model.membership_model import Guards, Scenario, explore

pytestmark = pytest.mark.slow

ONE_INSTANCE = (("a", "i"), ("b", "i"))
NO_END = 10**9


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(suspicions=0),
        pytest.param(Scenario(suspicions=1, settle_every=40), marks=pytest.mark.nightly),
        Scenario(partitions=2, suspicions=0, settle_every=5),
        Scenario(partitions=2, suspicions=0, settle_every=5, assignor="range"),
        pytest.param(Scenario(suspicions=1, settle_every=60, assignor="range"), marks=pytest.mark.nightly),
        Scenario(suspicions=0, settle_every=20, processes=ONE_INSTANCE, max_admitted=3),
        pytest.param(
            Scenario(suspicions=1, settle_every=50, processes=ONE_INSTANCE, max_generation=2, max_admitted=3),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["two", "expiry", "cooperative", "eager", "eager-expiry", "static", "static-expiry"],
)
def test_with_all_rules_nothing_breaks(scenario: Scenario) -> None:
    report = explore(scenario)
    assert report.broken is None, report.trace
    assert report.states > 500


@pytest.mark.parametrize(
    ("scenario", "broken"),
    [
        (
            Scenario(Guards(same_admission=False), ONE_INSTANCE, suspicions=0, settle_every=NO_END),
            "M1: a0 commits 0 after its successor did",
        ),
        (
            Scenario(Guards(own_partition=False), ONE_INSTANCE, suspicions=0, settle_every=NO_END),
            "M1: b0 commits 0 after its successor did",
        ),
        (Scenario(Guards(wait=False), partitions=2, suspicions=0, settle_every=NO_END), "M2: a0 has not given up 1"),
        (
            Scenario(Guards(given_up_this=False), partitions=2, suspicions=0, settle_every=NO_END),
            "M2: a0 has not given up 1",
        ),
        (Scenario(Guards(joined=False), settle_every=NO_END), "M2: a0 has not given up 0"),
        (Scenario(Guards(plan_anew=False), suspicions=0), "M3: in the end"),
        (Scenario(Guards(delete_first=False), suspicions=0), "M3: in the end"),
        (Scenario(Guards(notice=False), ONE_INSTANCE, suspicions=0), "M3: in the end"),
    ],
    ids=["admission", "partition", "wait", "given-up", "joined", "plan-anew", "delete-first", "notice"],
)
def test_without_a_rule_something_breaks(scenario: Scenario, broken: str) -> None:
    report = explore(scenario)
    assert (report.broken or "").startswith(broken), report
