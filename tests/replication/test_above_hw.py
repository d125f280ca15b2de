"""As many appends above the high watermark as an entry can name, while a follower is away: writers go on by themselves.

The interleavings, C being a follower that failed while writers with acks=1 appended up to the bound:

1. C is back, in the writer's process or before a new one begins: the writer has it learn, and appends.
2. C stays away: the writer waits until it has failed for the lag, takes it out, and appends. A new process has its own clock.
3. C is back, and others have had it learn: the append itself states the high watermark, and only what is above that counts.
4. The leader has not learned the newest entry either, and takes nothing: C is taken out, and another leads.
5. Two writers stand at the bound: the one that looks later finds room that the other made.
6. The metadata root goes while the writer waits: it says so, and has written nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.replication.protocol import push_lag, rules
from tests.support.replicas import LAG_MS, BoundedClock, Replicated, no_device, takes_no_entry

#: As many appends as may stand above the high watermark here.
MOST = 5
FIRST = [b"%d" % number for number in range(MOST)]


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    """Roots with as many appends above the high watermark as there may be, for `c` is away."""
    monkeypatch.setattr(rules, "MAX_ABOVE_HW", MOST)
    roots = Replicated(tmp_path, clock=BoundedClock())
    roots.create()
    roots.hooks["c"] = no_device
    for value in FIRST:
        roots.write(value, acks_all=False)
    assert len(roots.state().on) == MOST
    return roots


def in_another_process() -> None:
    """Forget what this process has seen of roots that failed."""
    push_lag._known.clear()


@pytest.mark.parametrize("acks_all", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["the same process", "another one"])
def test_a_writer_goes_on_where_the_follower_is_back(roots: Replicated, again: bool, acks_all: bool) -> None:
    del roots.hooks["c"]
    if again:
        in_another_process()
    began = roots.clock.monotonic()
    roots.write(b"next", acks_all=acks_all)
    assert roots.clock.monotonic() - began < 1
    assert roots.isr() == "abc"
    assert [roots.values(root) for root in "abc"] == [[*FIRST, b"next"]] * 3


@pytest.mark.parametrize("acks_all", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["the same process", "another one"])
def test_a_writer_takes_the_follower_out_that_stays_away(roots: Replicated, again: bool, acks_all: bool) -> None:
    if again:
        in_another_process()
    roots.clock.advance(LAG_MS)
    began = roots.clock.monotonic()
    roots.write(b"next", acks_all=acks_all)
    assert (roots.clock.monotonic() - began >= LAG_MS / 1000) == again, "each process goes by its own clock"
    assert roots.isr() == "ab"
    assert [roots.values(root) for root in "ab"] == [[*FIRST, b"next"]] * 2


def test_a_writer_goes_on_where_appends_are_in_too_many_places(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_ABOVE_HW", 100)
    monkeypatch.setattr(rules, "MAX_ON_ROWS", 1)
    del roots.hooks["c"]
    roots.write(b"next")  # on all, the others on a alone
    assert roots.values("c") == [*FIRST, b"next"]


def test_what_all_have_learned_is_not_counted_where_the_append_states_it(roots: Replicated) -> None:
    del roots.hooks["c"]
    topic = roots.topic()
    decided_log = topic.journal.decided_log()
    assert not decided_log.pusher.push().failed
    before = decided_log.places.newest().sequence
    assert roots.write(b"next", hw_later=True, topic=topic).sequence == before + 1, "no entry states it before"
    assert list(roots.state().on) == [before + 1]


def test_a_leader_that_takes_nothing_either_hands_over(roots: Replicated) -> None:
    roots.hooks["a"] = takes_no_entry
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    roots.write(b"next", acks_all=False, topic=roots.at("b"))
    assert (roots.leader(), roots.isr()) == ("b", "b"), "neither a nor c learns anything"
    assert roots.values("b") == [*FIRST, b"next"]


def test_a_writer_finds_room_that_another_one_made(roots: Replicated) -> None:
    def others_state_it(operation: str, path: str, moment: str) -> None:
        if "t/journal" in path:  # the writer has it learn
            del roots.hooks["c"]
            roots.decided_log("b").state_hw()
            no_device(operation, path, moment)

    roots.hooks["c"] = others_state_it
    began = roots.clock.monotonic()
    roots.write(b"next", acks_all=False)
    assert roots.clock.monotonic() == began
    assert roots.values("c") == [*FIRST, b"next"]


def test_a_writer_that_waits_says_that_the_metadata_root_is_gone(roots: Replicated) -> None:
    def gone(operation: str, path: str, moment: str) -> None:
        roots.hooks["m"] = no_device
        no_device(operation, path, moment)

    before = roots.decided_log().places.newest().sequence
    roots.hooks["c"] = gone
    with pytest.raises((CommitLogError, OSError), match=r"injected|metadata"):
        roots.write(b"next", acks_all=False)
    roots.hooks.clear()
    assert roots.decided_log().places.newest().sequence == before, "nothing was written"
