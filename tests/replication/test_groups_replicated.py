"""Consumer groups on roots that belong together: what a group commits is learned by all, and outlives each root.

The interleavings that it has to survive:

1. Two processes commit the first offsets of a group at once: one entry is the first, the other follows it.
2. A root is away while a group commits, and comes back: it learns what is left, though entries were collected.
3. The metadata is lost for good: the group goes on where the roots that are left have learned.
4. A root collects what another in sync has not learned: that could never go on.
5. The leader's root of a group goes away: commits go on, and another root leads.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.cli.maintain import _MaintainRound
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from tests.support.replicas import Replicated, commit_offset, committed_offset, group, no_device


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    """Three roots with data, one that decides, a topic with ten records."""
    made = Replicated(tmp_path)
    made.create()
    made.write(*(b"%d" % number for number in range(10)))
    return made


def learned(roots: Replicated, at: str) -> Stored:
    """Return the newest entry at this very root."""
    stored = GroupLog(roots.storage(at), "g").journal.newest()
    assert stored is not None
    return stored


def test_each_root_learns_what_a_group_commits(roots: Replicated) -> None:
    for offset in (1, 2, 3):
        commit_offset(roots, offset)
    at_each = [learned(roots, name) for name in "mabc"]
    assert len({stored.entry.write_id for stored in at_each}) == 1
    assert at_each[0].sequence == 3
    assert state_of(at_each[0].entry).hw == 3, "no entry is spent on a high watermark"
    assert [committed_offset(roots, name) for name in "abc"] == [3, 3, 3]


def test_two_first_commits_at_once(roots: Replicated) -> None:
    late = group(roots)

    def other(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "groups/" in path and moment == "before":
            roots.hooks.clear()
            commit_offset(roots, 1)

    roots.hooks["m"] = other
    commit_offset(roots, 2, late)
    assert committed_offset(roots) == 2
    assert learned(roots, "m").sequence == 2
    assert state_of(learned(roots, "m").entry).replicas == state_of(learned(roots, "b").entry).replicas


def test_a_root_that_was_away_learns_what_was_committed(roots: Replicated) -> None:
    commit_offset(roots, 1)
    roots.take_away("b")
    commit_offset(roots, 2)
    roots.give_back("b")
    assert learned(roots, "b").sequence == 1
    roots.log().replicas.sync()
    assert learned(roots, "b").sequence == 2


def test_a_root_that_lags_beyond_what_is_kept_goes_on_with_what_is_left(roots: Replicated) -> None:
    commit_offset(roots, 1)
    at = GroupLog(roots.storage("b"), "g")
    assert at.newest().exists
    roots.take_away("b")
    for offset in range(2, 8):
        commit_offset(roots, offset)
    decider = GroupLog(roots.storage("m"), "g")
    for sequence in decider.journal.sequences()[:-2]:
        decider.journal.delete(sequence)
    roots.give_back("b")
    roots.log().replicas.sync()
    assert GroupLog(roots.storage("b"), "g").journal.sequences() == decider.journal.sequences() == [6, 7]
    topic = at.topic_state("t").topic_id
    assert at.newest().offsets(topic) == {0: 7}, "a reader that had seen the first finds the newest"
    assert "b" in roots.named(*state_of(learned(roots, "m").entry).isr)


def test_commits_go_on_without_the_root_that_leads(roots: Replicated) -> None:
    commit_offset(roots, 1)
    leader = roots.named(state_of(learned(roots, "m").entry).leader)
    roots.take_away(leader)
    other = next(name for name in "abc" if name != leader)
    commit_offset(roots, 2, group(roots, other))
    assert committed_offset(roots, other) == 2
    with pytest.raises(ExceptionGroup):
        roots.log(other).replicas.sync()
    assert roots.named(state_of(learned(roots, other).entry).leader) != leader


def test_a_group_goes_on_when_the_metadata_is_lost_for_good(roots: Replicated) -> None:
    commit_offset(roots, 1)
    roots.take_away("c")
    commit_offset(roots, 2)
    roots.give_back("c")  # it has learned the first commit alone
    roots.take_away("m")
    found = roots.log().replicas.recover(str(roots.path / "n"), [str(roots.path / "m")], execute=True)
    (row,) = [each for each in found if each.topic == "group g"]
    assert row.fault is None
    assert sorted(row.ends.values()) == [1, 2, 2]
    assert row.ends[row.root or ""] == 2
    roots.give_back("m")  # it does not decide any more
    assert [committed_offset(roots, name) for name in "abc"] == [2, 2, 2]
    commit_offset(roots, 5)
    assert [committed_offset(roots, name) for name in "abc"] == [5, 5, 5]


def test_the_members_file_is_learned_too(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.topic.state.side_files.TABLE_BYTES", 1)
    timing = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000, "initial_rebalance_delay_ms": 20}
    handle = roots.log().groups.open("g")
    member = GroupMember(
        handle, ["t"], client_id="one", config=MemberConfig(**timing), partition_assignment_strategy=["range"]
    )
    for _ in range(60):
        roots.clock.advance(10)
        member.poll()
    members = handle.newest().members
    assert members.rows
    assert "file" in learned(roots, "b").entry.body["state"]["members"]
    for name in "abc":
        assert GroupLog(roots.storage(name), "g").newest().members == members


def test_old_entries_go_at_each_root_when_all_in_sync_have_learned_them(roots: Replicated) -> None:
    for offset in range(1, 6):
        commit_offset(roots, offset)
    roots.take_away("b")
    for offset in range(6, 9):
        commit_offset(roots, offset)
    roots.give_back("b")
    roots.hooks["b"] = no_device
    roots.clock.advance(DAY_MS)
    for name in "mac":
        GroupLog(roots.storage(name), "g").collect(1_000)
        assert GroupLog(roots.storage(name), "g").journal.sequences()[0] == 1, "nobody knows what b has"
    roots.hooks.clear()
    GroupLog(roots.storage("m"), "g").collect(1_000)
    roots.clock.advance(DAY_MS)  # what b has just learned is young there
    for name in "mabc":
        GroupLog(roots.storage(name), "g").collect(1_000)
        assert GroupLog(roots.storage(name), "g").journal.sequences() == [7, 8]


@pytest.mark.parametrize("by", ["the client", "the command"])
def test_maintain_collects_at_its_own_root_and_where_it_is_decided(roots: Replicated, by: str) -> None:
    for offset in range(1, 6):
        commit_offset(roots, offset)
    roots.clock.advance(DAY_MS)
    if by == "the client":
        roots.log("b").maintain()
    else:
        assert _MaintainRound(Maintenance(roots.log("b").root), threading.Event(), as_json=True).run(None).code == 0
    for name, left in {"m": [4, 5], "b": [4, 5], "a": [1, 2, 3, 4, 5]}.items():
        assert GroupLog(roots.storage(name), "g").journal.sequences() == left, name
