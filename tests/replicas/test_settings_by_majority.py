"""Root-wide defaults and access rules where three metadata roots decide: any one may be lost, none is believed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.errors import ReplicaNotAvailableError
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import Replicated, no_device


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    made = Replicated(fast_path, metadata="mno")
    made.create()
    return made


def principals(roots: Replicated, at: str) -> list[str]:
    """Return the principals of all rules, by what a root has copied."""
    return [rule.principal for rule in roots.log(at)._access.rules()]


def test_any_metadata_root_may_be_lost(roots: Replicated) -> None:
    roots.log().access.allow("*", "admin")
    for number, away in enumerate("mno"):
        roots.take_away(away)
        roots.log("b").alter_defaults({"retention.ms": 1_000 + number})
        roots.log("c").access.allow(f"user-{away}", "read")
        for at in "abc":
            assert roots.log(at).defaults() == {"retention.ms": str(1_000 + number)}
            assert len(principals(roots, at)) == 2 + number
        roots.give_back(away)
    for at in "abcmno":
        report = roots.log(at).verify_root()
        assert not report.faults
        assert not report.unnamed, at


def test_a_metadata_root_that_comes_back_is_not_believed(roots: Replicated) -> None:
    roots.log().alter_defaults({"retention.ms": 1})
    roots.take_away("m")
    roots.log().alter_defaults({"retention.bytes": 2})
    roots.log().access.allow("*", "admin")
    roots.give_back("m")
    roots.take_away("n")
    roots.log().alter_defaults({"segment.bytes": 1_048_576})
    assert roots.log().defaults() == {"retention.ms": "1", "retention.bytes": "2", "segment.bytes": "1048576"}
    assert [rule.principal for rule in roots.log().access.rules()] == ["*"]


def test_without_a_majority_nothing_is_changed(roots: Replicated) -> None:
    roots.log().alter_defaults({"retention.ms": 1})
    roots.take_away("m")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.log().alter_defaults({"retention.ms": 2})
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.log().access.allow("*", "admin")
    assert roots.log().defaults() == {"retention.ms": "1"}, "they are read without any metadata root"
    roots.take_away("n")
    assert roots.log("c").defaults() == {"retention.ms": "1"}


def test_a_root_that_was_away_gets_them_with_replicate_from_any_that_has_them(roots: Replicated) -> None:
    roots.hooks["b"] = no_device
    roots.take_away("m")
    roots.log().alter_defaults({"retention.ms": 1})
    roots.hooks.clear()
    roots.give_back("m")
    assert roots.log("b").defaults() == {}
    roots.log().replicate()
    assert roots.log("b").defaults() == {"retention.ms": "1"}
