"""Root-wide defaults and access rules where three metadata roots decide: any one may be lost, none is believed alone."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError
from tests.crash.conftest import fast_path as fast_path
from tests.replication.lost import url
from tests.support.replicas import Replicated, no_device


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    made = Replicated(fast_path, metadata="mno")
    made.create()
    return made


def principals(roots: Replicated, at: str) -> list[str]:
    """Return the principals of all rules, by what a root has copied."""
    return [rule.principal for rule in roots.log(at).root.local_access.rules()]


def test_any_metadata_root_may_be_lost(roots: Replicated) -> None:
    roots.log().access.allow("*", "admin")
    for number, away in enumerate("mno"):
        roots.take_away(away)
        roots.log("b").config.alter({"retention.ms": 1_000 + number})
        roots.log("c").access.allow(f"user-{away}", "read")
        for at in "abc":
            assert roots.log(at).config.get() == {"retention.ms": str(1_000 + number)}
            assert len(principals(roots, at)) == 2 + number
        roots.give_back(away)
    for at in "abcmno":
        report = roots.log(at).verify()
        assert not report.faults
        assert not report.unnamed, at


def test_a_metadata_root_that_comes_back_is_not_believed(roots: Replicated) -> None:
    roots.log().config.alter({"retention.ms": 1})
    roots.take_away("m")
    roots.log().config.alter({"retention.bytes": 2})
    roots.log().access.allow("*", "admin")
    roots.give_back("m")
    roots.take_away("n")
    roots.log().config.alter({"segment.bytes": 1_048_576})
    assert roots.log().config.get() == {"retention.ms": "1", "retention.bytes": "2", "segment.bytes": "1048576"}
    assert [rule.principal for rule in roots.log().access.rules()] == ["*"]


def test_without_a_majority_nothing_is_changed(roots: Replicated) -> None:
    roots.log().config.alter({"retention.ms": 1})
    roots.take_away("m")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.log().config.alter({"retention.ms": 2})
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.log().access.allow("*", "admin")
    assert roots.log().config.get() == {"retention.ms": "1"}, "they are read without any metadata root"
    roots.take_away("n")
    assert roots.log("c").config.get() == {"retention.ms": "1"}


def test_a_root_that_was_away_gets_them_with_replicate_from_any_that_has_them(roots: Replicated) -> None:
    roots.hooks["b"] = no_device
    roots.take_away("m")
    roots.log().config.alter({"retention.ms": 1})
    roots.hooks.clear()
    roots.give_back("m")
    assert roots.log("b").config.get() == {}
    roots.log().replicas.sync()
    assert roots.log("b").config.get() == {"retention.ms": "1"}


# --- One of them is damaged ----------------------------------------------------------------------------------------


def newest(roots: Replicated, root: str) -> Path:
    return max((roots.path / root / "access/journal").glob("*.json"))


def spoil(path: Path) -> bytes:
    """Flip a bit of a file; return what it was."""
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    return data


def changed_without_c(path: Path, metadata: str) -> Replicated:
    """Return roots of which all but `c` have the newest rule."""
    made = Replicated(path, metadata=metadata)
    made.create()
    made.log().access.allow("*", "admin")
    made.hooks["c"] = no_device
    made.log().access.allow("bob", "read")
    made.hooks.clear()
    assert principals(made, "c") == ["*"]
    return made


def on_bad_sectors(roots: Replicated, names: str, code: int = errno.EIO) -> None:
    """Have nobody be able to read rules at some roots."""

    def hook(operation: str, path: str, moment: str) -> None:
        if operation in ("read", "fetch") and path.startswith("access/journal/"):
            raise OSError(code, "injected: it can not be read")

    roots.hooks.update(dict.fromkeys(names, hook))


@pytest.mark.parametrize("bad", ["a bit", "a sector"])
@pytest.mark.parametrize("metadata", ["m", "mno"])
def test_what_is_damaged_is_not_copied_and_is_mended(fast_path: Path, metadata: str, bad: str) -> None:
    roots = changed_without_c(fast_path, metadata)
    if bad == "a bit":
        spoil(newest(roots, "m"))
    else:
        on_bad_sectors(roots, "m")
    roots.log("b").replicas.sync()
    roots.hooks.clear()
    assert principals(roots, "c") == ["*", "bob"]
    assert newest(roots, "m").read_bytes() == newest(roots, "c").read_bytes()
    roots.log("c").access.allow("eve", "read")
    for root in "abc":
        assert principals(roots, root) == ["*", "bob", "eve"]


def test_a_root_with_damage_of_its_own_is_mended(roots: Replicated) -> None:
    roots.log().access.allow("*", "admin")
    whole = spoil(newest(roots, "c"))
    with pytest.raises(CorruptionError):
        principals(roots, "c")
    roots.log("b").replicas.sync()
    assert newest(roots, "c").read_bytes() == whole
    assert principals(roots, "c") == ["*"]


def test_a_metadata_root_that_does_not_answer_gets_no_entry_in_the_place_of_none(
    fast_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It learns what is decided by itself, and only a damaged file is replaced there."""
    roots = Replicated(fast_path, metadata="mno")
    roots.create()
    roots.log().access.allow("*", "admin")
    roots.hooks["o"] = no_device
    roots.log().access.allow("bob", "read")
    on_bad_sectors(roots, "o", errno.ETIMEDOUT)
    roots.log("b").replicas.sync()
    assert newest(roots, "o").name < newest(roots, "m").name
    assert "access/journal yet" in caplog.text


@pytest.mark.parametrize("bad", ["a bit", "a sector"])
def test_what_nobody_has_whole_keeps_no_topic(fast_path: Path, bad: str) -> None:
    roots = changed_without_c(fast_path, "mno")
    roots.hooks["c"] = no_device
    roots.write(b"1")
    assert roots.isr() == "ab"
    roots.hooks.clear()
    log, whole = roots.log("c"), {root: spoil(newest(roots, root)) for root in "abmno"}
    if bad == "a sector":
        on_bad_sectors(roots, "abmno")
    with pytest.raises(ExceptionGroup) as failed:
        log.replicas.sync()
    (error,) = failed.value.exceptions
    assert isinstance(error, CorruptionError)
    assert f"{url(roots, 'm')}/access/journal" in str(error)
    assert roots.isr() == "abc"
    assert principals(roots, "c") == ["*"], "nothing was copied there"
    roots.hooks.clear()
    newest(roots, "b").write_bytes(whole["b"])
    log.replicas.sync()
    assert all(newest(roots, root).read_bytes() == data for root, data in whole.items())


def test_recover_takes_settings_from_a_root_that_has_them_whole(fast_path: Path) -> None:
    roots = changed_without_c(fast_path, "m")
    roots.take_away("m")
    whole = spoil(newest(roots, "a"))
    roots.log("b").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=True)
    assert newest(roots, "n").read_bytes() == whole
    other = Replicated(fast_path, metadata="n", clock=roots.clock)
    other.log("b").replicas.sync()
    assert principals(other, "a") == principals(other, "c") == ["*", "bob"]


def test_recover_goes_on_where_settings_are_damaged_everywhere(fast_path: Path) -> None:
    roots = changed_without_c(fast_path, "m")
    roots.take_away("m")
    whole = {root: spoil(newest(roots, root)) for root in "ab"}
    for execute in (False, True, True):
        found = roots.log("c").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=execute)
        assert [(each.topic, each.fault is None) for each in found] == [("t", True), ("access rules", False)]
        assert all(f"{url(roots, root)}/access/journal" in str(found[-1].fault) for root in "ab")
    assert newest(roots, "n").read_bytes() == newest(roots, "a").read_bytes(), (
        "nobody can change rules that are unknown"
    )
    other = Replicated(fast_path, metadata="n", clock=roots.clock)
    with pytest.raises(CorruptionError):
        other.log("c").access.allow("eve", "admin")
    newest(roots, "b").write_bytes(whole["b"])
    other.log("c").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=True)
    assert newest(roots, "n").read_bytes() == whole["b"]
    other.log("b").replicas.sync()
    assert principals(other, "a") == principals(other, "c") == ["*", "bob"]


def test_recover_goes_on_where_settings_can_not_be_read(fast_path: Path) -> None:
    roots = changed_without_c(fast_path, "m")
    roots.take_away("m")
    on_bad_sectors(roots, "ab")
    roots.log("c").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=True)
    roots.hooks.clear()
    other = Replicated(fast_path, metadata="n", clock=roots.clock)
    with pytest.raises(CorruptionError):
        other.log("c").access.allow("eve", "admin")
    other.log("c").replicas.sync()
    assert principals(other, "c") == ["*", "bob"]
