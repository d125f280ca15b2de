"""A writer alone takes one round for each entry: the accept of one promises the ballot of the next.

A ballot carries one value. The interleavings that this has to survive:

1. Another proposer prepares between two entries of the writer: its ballot is higher, the writer's accept is refused, and
   the writer prepares anew, above it.
2. Another one decides between the writer's look and its accept: the same.
3. The writer's accept reaches one seat alone. What that accepted under the ballot may be found by others, or not; the
   writer itself must not use the ballot for another value.
4. A process is forked while it holds a ballot: both would use it.
5. One seat has not confirmed its accept: it may have promised nothing.
6. The set is replaced: its end is a ballot above the one that was promised.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog.errors import OutcomeUnknownError
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.metadata import promised_ballots, quorum
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol.ballots import Ballot, Value
from pyspark_commitlog.replication.protocol.entry_fields import state_of, without_append
from pyspark_commitlog.testing.faults import Hook
from tests.support.replicas import Replicated
from tests.support.syscalls import synced


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    made = Replicated(tmp_path, metadata="mno")
    made.create()
    promised_ballots._cache.renew()  # another process made it
    return made


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "share_out", lambda act, seats, _: [act(seat) for seat in seats])


def touch(places: Places, kind: str) -> str:
    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        return without_append(kind, base, state_of(base.entry), kind)

    return places.decide(plan).result


def kinds(roots: Replicated) -> list[str]:
    """Return what is decided, as another process finds it, without what made the topic."""
    places = roots.decided_log("a").places
    newest, journal = places.newest(), places.decider().journal
    return [journal.read(number).entry.kind for number in range(2, newest.sequence + 1)]


def before_the_first_put(roots: Replicated, act: Callable[[], object]) -> None:
    """Do something once, before the first put to an acceptor."""
    acts = [act]

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "acceptor" in path and moment == "before" and acts:
            acts.pop()()

    roots.hooks = dict.fromkeys("mno", hook)


class Puts:
    """Which records seats put, in order: what `hook` was told of; it fails where `fails` says so."""

    def __init__(self, roots: Replicated) -> None:
        self.seen, self.fails = list[tuple[str, str]](), dict[str, int]()
        for root in "mno":
            roots.hooks[root] = self._at(root)

    def _at(self, root: str) -> Hook:
        def hook(operation: str, path: str, moment: str) -> None:
            if operation != "put_if_absent" or "t/" not in path or moment != "before":
                return
            where = "acceptor" if "acceptor" in path else "journal"
            if where == "acceptor" and self.fails.get(root, 0):
                self.fails[root] -= 1
                raise OSError(errno.EIO, "injected")
            self.seen.append((root, where))

        return hook

    def taken(self) -> Counter[tuple[str, str]]:
        found = Counter(self.seen)
        self.seen.clear()
        return found


ONE_ROUND = Counter({(root, where): 1 for root in "mno" for where in ("acceptor", "journal")})
TWO_ROUNDS = ONE_ROUND + Counter({(root, "acceptor"): 1 for root in "mno"})


def test_a_writer_alone_takes_one_round_for_each_entry(roots: Replicated) -> None:
    places, puts = roots.decided_log().places, Puts(roots)
    touch(places, "e1")
    assert puts.taken() == TWO_ROUNDS, "the first has to be prepared"
    for kind in ("e2", "e3"):
        touch(places, kind)
        assert puts.taken() == ONE_ROUND
    assert kinds(roots) == ["e1", "e2", "e3"]


def test_handles_of_a_process_share_what_was_promised(roots: Replicated) -> None:
    """Spark's sink opens a topic for each batch; a producer has another handle for the high watermark."""
    puts = Puts(roots)
    touch(roots.decided_log().places, "e1")
    puts.taken()
    for kind, root in (("e2", "a"), ("e3", "b")):
        touch(roots.decided_log(root).places, kind)
        assert puts.taken() == ONE_ROUND
    assert kinds(roots) == ["e1", "e2", "e3"]


def test_a_commit_syncs_twice_for_each_of_both_puts_at_a_metadata_root(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = roots.topic()
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=topic)
    seen = synced(monkeypatch, roots.path)
    roots.write(b"3", hw_later=True, topic=topic)
    assert {root: Counter(seen)[root] for root in "mno"} == {"m": 4, "n": 4, "o": 4}


def test_the_metadata_roots_learn_at_the_same_time(roots: Replicated) -> None:
    places, together = roots.decided_log().places, threading.Barrier(3)
    touch(places, "e1")

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "t/journal" in path and moment == "before":
            together.wait(10)  # breaks, where one of them begins after another has ended

    roots.hooks = dict.fromkeys("mno", hook)
    touch(places, "e2")
    assert not together.broken
    roots.hooks.clear()
    assert kinds(roots) == ["e1", "e2"]


def test_a_metadata_root_that_can_not_learn_is_asked_once(roots: Replicated, in_order: None) -> None:
    places = roots.decided_log().places
    touch(places, "e1")
    asked = list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "info" and "t/journal" in path:
            asked.append(moment)
            raise OSError(errno.EIO, "injected")

    def accepts(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "acceptor" in path and moment == "after":
            roots.hooks["o"] = hook

    roots.hooks["o"] = accepts
    touch(places, "e2")
    assert asked == ["before"]
    roots.hooks.clear()
    assert kinds(roots) == ["e1", "e2"]


def test_a_metadata_root_that_lacks_more_learns_all_of_it(roots: Replicated, in_order: None) -> None:
    places = roots.decided_log().places
    touch(places, "e1")
    failures = 3 * 5  # as it learns e2, as the next writer looks, and as it would accept e3

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal failures
        if operation == "put_if_absent" and "t/journal" in path and moment == "before" and failures:
            failures -= 1
            raise OSError(errno.EIO, "injected")

    roots.hooks["o"] = hook
    touch(places, "e2")
    there = roots.decided_log("a").places.at(roots.id_of("o")).journal
    assert (failures, there.sequences()[-1]) == (10, 2)
    touch(places, "e3")
    assert (failures, list(there.sequences())) == (0, [1, 2, 3, 4])


def test_who_prepares_in_between_goes_first(roots: Replicated) -> None:
    writer, other, puts = roots.decided_log().places, roots.decided_log("b").places, Puts(roots)
    touch(writer, "e1")
    kept = dict(promised_ballots._cache.value.of)
    promised_ballots._cache.renew()  # in another process there are none
    touch(other, "e2")
    promised_ballots._cache.value.of.clear()
    promised_ballots._cache.value.of.update(kept)
    puts.taken()
    began = roots.clock.monotonic()
    touch(writer, "e3")
    assert puts.taken() == TWO_ROUNDS
    assert roots.clock.monotonic() == began, "no race was lost"
    assert kinds(roots) == ["e1", "e2", "e3"]


def test_who_decides_between_look_and_accept_goes_first(roots: Replicated, in_order: None) -> None:
    writer, other = roots.decided_log().places, roots.decided_log("b").places
    touch(writer, "e1")
    before_the_first_put(roots, lambda: touch(other, "e2"))
    assert touch(writer, "e3") == "e3"
    assert kinds(roots) == ["e1", "e2", "e3"]


def test_a_ballot_is_used_once(roots: Replicated, in_order: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accept of e2 reaches m alone. With the same ballot e3 would be another value of it: two histories."""
    writer, puts = roots.decided_log().places, Puts(roots)
    touch(writer, "e1")
    puts.taken()
    monkeypatch.setattr(quorum, "_TRIES", 1)
    puts.fails = {"n": 99, "o": 99}
    with pytest.raises(OutcomeUnknownError):
        touch(writer, "e2")
    assert puts.taken() == {("m", "acceptor"): 1}
    puts.fails.clear()
    monkeypatch.setattr(quorum, "_TRIES", 5)
    roots.take_away("m")
    touch(writer, "e3")
    assert puts.taken()["n", "acceptor"] == 2, "it is prepared"
    roots.give_back("m")
    assert kinds(roots) == ["e1", "e3"]


def test_a_forked_child_prepares_a_ballot_of_its_own(roots: Replicated) -> None:
    places, puts = roots.decided_log().places, Puts(roots)
    for kind in ("e1", "e2"):
        touch(places, kind)
    puts.taken()
    promised_ballots._cache.renew()  # as in a forked child
    touch(places, "e3")
    assert puts.taken() == TWO_ROUNDS


def test_a_fork_forgets_what_was_promised_to_the_parent(roots: Replicated) -> None:
    touch(roots.decided_log().places, "e1")
    assert promised_ballots._cache.value.of
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"%d" % len(promised_ballots._cache.value.of))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"
    os.close(read)
    os.close(write)


def test_what_is_kept_of_units_is_bounded() -> None:
    promised_ballots._cache.renew()
    for unit in range(3000):
        promised_ballots.keep(
            (f"topics/{unit}", frozenset()), promised_ballots.PromisedBallot(Ballot(1, "b"), Value(1, "w"), {})
        )
    assert len(promised_ballots._cache.value.of) == 1024
    assert promised_ballots.take(("topics/0", frozenset()), Value(1, "w")) is None
    assert promised_ballots.take(("topics/2999", frozenset()), Value(1, "w")) is not None
    assert promised_ballots.take(("topics/2999", frozenset()), Value(1, "w")) is None, "it is gone"
    promised_ballots._cache.renew()


def test_what_one_seat_did_not_confirm_is_prepared(roots: Replicated, in_order: None) -> None:
    places, puts = roots.decided_log().places, Puts(roots)
    for kind in ("e1", "e2"):
        touch(places, kind)
    puts.fails = {"o": 99}
    touch(places, "e3")
    puts.fails.clear()
    puts.taken()
    touch(places, "e4")
    assert puts.taken()["m", "acceptor"] == 2
    assert kinds(roots) == ["e1", "e2", "e3", "e4"]


def test_a_ballot_of_a_set_that_has_ended_decides_nothing(roots: Replicated, in_order: None) -> None:
    """The end falls between the writer's look and its accept."""
    writer, other = roots.decided_log().places, roots.decided_log("b").places
    touch(writer, "e1")
    ended = list[Any]()

    def end() -> None:
        other.newest()
        assert other._quorum is not None
        ended.append(other._quorum.end())

    before_the_first_put(roots, end)
    with pytest.raises(OutcomeUnknownError):
        touch(writer, "e2")
    assert len(ended) == 1
    roots.hooks.clear()
    for root in "mno":
        journal = roots.decided_log("a").places.at(roots.id_of(root)).journal
        assert [journal.read(number).entry.kind for number in journal.sequences()][1:] == ["e1"]
