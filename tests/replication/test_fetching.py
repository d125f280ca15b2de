"""Entries that a root lacks are fetched many at a time; each as one that is fetched alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.replication.follower.fetching import (
    THREADS,
    EntryRange,
    by_threads,
    damaged,
    is_linked,
    read_undamaged,
)
from pyspark_commitlog.replication.follower.mending import MendedFiles, mend_journal, mend_named
from pyspark_commitlog.replication.metadata.places import Places
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import CONFIG, Replicated, faults, once_at

SMALL = {**CONFIG, "inline.max.bytes": 4096}
LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def entries(roots: Replicated, root: str) -> list[Path]:
    return sorted((roots.path / root / "topics/t/journal").iterdir())


@pytest.mark.parametrize(
    ("looked", "first", "runs"),
    [
        pytest.param({}, None, [], id="nothing"),
        pytest.param({3: 4, 4: 5}, 3, [], id="whole"),
        pytest.param({3: 4, 7: 8}, 3, [EntryRange(4, 7)], id="missing"),
        pytest.param({3: 7, 7: 8}, 3, [], id="numbers that a copied topic leaves out"),
        pytest.param(
            {3: "cut", 4: 5, 6: "flipped"},
            3,
            [EntryRange(3, 4, "cut"), EntryRange(5, 6), EntryRange(6, 7, "flipped")],
            id="damaged",
        ),
        pytest.param({3: "cut", 7: 8}, 3, [EntryRange(3, 7, "cut")], id="damaged, and what follows it"),
        pytest.param({3: None, 4: None, 5: 6}, 5, [], id="collected meanwhile"),
        pytest.param({3: 4, 4: None, 5: 6}, 3, [EntryRange(4, 5)], id="deleted meanwhile"),
    ],
)
def test_which_entries_are_damaged_or_missing(
    looked: dict[int, int | str | None], first: int | None, runs: list[EntryRange]
) -> None:
    assert damaged(looked, first) == runs


def linked(sequence: int, prev: str, write_id: str, following: int) -> Entry:
    made = object.__new__(Entry)
    for name, value in {"sequence": sequence, "prev": prev, "write_id": write_id, "next": following}.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize(
    ("before", "after", "is_one"),
    [
        (None, None, False),
        (linked(4, "", "w4", 5), None, True),
        (linked(4, "", "other", 5), None, False),
        (linked(4, "", "other", 9), None, False),
        (None, linked(6, "w5", "w6", 7), True),
        (None, linked(6, "other", "w6", 7), False),
        (linked(4, "", "w4", 5), linked(6, "other", "w6", 7), False),
        (linked(4, "", "other", 9), linked(6, "w5", "w6", 7), True),
    ],
)
def test_an_entry_is_linked_by_those_beside_it(before: Entry | None, after: Entry | None, is_one: bool) -> None:
    assert is_linked(linked(5, "w4", "w5", 6), before, after) == is_one


def bills(requests: bool) -> Any:
    return SimpleNamespace(storage=SimpleNamespace(bills_requests=requests))


def test_requests_are_made_several_at_a_time() -> None:
    together = threading.Barrier(THREADS)
    assert by_threads(lambda n: (n, together.wait(10) >= 0)[0], range(2 * THREADS), bills(False), [bills(True)]) == [
        *range(2 * THREADS)
    ]


def test_disks_are_asked_by_the_caller_alone() -> None:
    me = threading.get_ident()
    assert by_threads(lambda _: threading.get_ident(), range(20), bills(False), [bills(False)]) == [me] * 20


def test_those_that_decide_are_asked_once_for_many_entries(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    roots.create(config=SMALL)
    for n in range(70):
        roots.write(b"%d" % n)
    for path in entries(roots, "b")[10:60]:
        path.unlink()
    asked = []

    def newest(self: Places, ask: Callable[[Places], Any] = Places.newest) -> Any:
        asked.append(1)
        return ask(self)

    monkeypatch.setattr(Places, "newest", newest)
    done = roots.log("b").topic("t").repair()
    assert (len(done.files), done.left) == (50, ())
    assert len(asked) < 10
    assert faults(roots, "b") == ()
    assert roots.values("b") == [b"%d" % n for n in range(70)]


def test_what_is_linked_by_an_entry_that_can_not_be_had_is_left(roots: Replicated) -> None:
    """The entries after it would prove nothing: they are no beginning of what was decided."""
    roots.create(config=SMALL)
    roots.write(b"0")
    at = len(entries(roots, "m"))
    roots.write(LARGE, everywhere=True)
    roots.write(b"2")
    roots.write(b"3")
    names = [path.name for path in entries(roots, "b")]
    for path in entries(roots, "b")[at - 1 : -1]:
        path.unlink()
    for root in "abc":
        for path in (roots.path / root).glob("topics/t/*/staged/*.chunk"):
            path.unlink()
    done = roots.log("b").topic("t").repair()
    assert [name.rpartition("/")[2] for name in done.files] == names[at - 1 : at]
    assert names[at] in done.left[0] or names[at - 1] in done.left[0]


def test_the_first_entry_may_be_collected_meanwhile(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    roots.create(config=SMALL)
    roots.write(b"0")
    read = read_undamaged

    def collected(own: Any, sequence: int) -> Entry:
        if own.journal.sequences()[0] == sequence:
            raise FileNotFoundError(f"entry {sequence} is collected")
        return read(own, sequence)

    monkeypatch.setattr("pyspark_commitlog.replication.follower.mending.read_undamaged", collected)
    assert roots.log("b").topic("t").repair().left == ()


def test_an_entry_that_is_collected_while_it_is_looked_for_is_not_left(roots: Replicated) -> None:
    """A settler at this root is done with it, and no other one has it any more."""
    roots.create(config=SMALL)
    for value in (b"0", b"1", b"2"):
        roots.write(value)
    lost = entries(roots, "b")[2]
    for root in "abcm":
        (roots.path / root / "topics/t/journal" / lost.name).unlink()

    def collect() -> None:
        for path in entries(roots, "b")[:3]:
            path.unlink()

    places = roots.at("b").journal.decided_log().places
    assert lost.name in mend_journal(places).left[0]
    roots.hooks["a"] = once_at("names", "topics/t/journal", collect)
    left = mend_journal(roots.at("b").journal.decided_log().places).left
    assert lost.name not in str(left)


def test_a_chunk_whose_entry_is_collected_while_it_is_looked_for_is_not_left(roots: Replicated) -> None:
    roots.create(config=SMALL)
    roots.write(LARGE, everywhere=True)
    roots.write(b"1")
    for root in "abc":
        for path in (roots.path / root).glob("topics/t/*/staged/*.chunk"):
            path.unlink()
    assert ".chunk" in mend_named(roots.at("b").journal.decided_log().places, 0).left[0]

    def collect() -> None:
        for path in entries(roots, "b")[:-1]:
            path.unlink()

    roots.hooks["a"] = once_at("read", "/staged/", collect)
    assert mend_named(roots.at("b").journal.decided_log().places, 0) == MendedFiles()
