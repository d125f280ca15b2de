"""Consumer groups where three metadata roots decide: any one may be lost, and none of them is believed alone.

`replication/leader/quorum_journal.py` has the interleavings.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.replication.metadata import quorum
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import Replicated, commit_offset, committed_offset, group, no_groups, once_at

TIMING = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000, "initial_rebalance_delay_ms": 20}


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    """Three roots with data, three that decide, a topic with two hundred records."""
    made = Replicated(fast_path, metadata="mno")
    made.create(2)
    for _ in range(2):
        made.write(*(b"%d" % number for number in range(100)))
    return made


def at(roots: Replicated, name: str) -> GroupLog:
    """Return the group as this very root has it."""
    return GroupLog(roots.storage(name), "g")


def test_any_metadata_root_may_be_lost(roots: Replicated) -> None:
    handle, offset = group(roots), 0
    commit_offset(roots, offset, handle)
    for away in "mno":
        roots.take_away(away)
        for each in (handle, group(roots, "b")):
            offset += 1
            commit_offset(roots, offset, each)
            assert [committed_offset(roots, name) for name in "abc"] == [offset] * 3
            assert [at(roots, name).newest() for name in "abc"] == [each.newest()] * 3, "the data roots learn it"
        roots.give_back(away)
    newest = handle.journal.head()
    assert newest is not None
    assert len(state_of(newest.entry).set.roots) == 3


def test_a_group_begins_without_the_first_metadata_root(roots: Replicated) -> None:
    roots.take_away("m")
    commit_offset(roots, 1)
    assert roots.log("b").groups.list() == ("g",)
    roots.give_back("m")
    roots.take_away("n")
    assert committed_offset(roots, "c") == 1
    assert roots.log("b").groups.list() == ("g",)


def test_a_metadata_root_that_comes_back_is_not_believed(roots: Replicated) -> None:
    commit_offset(roots, 1)
    roots.take_away("m")
    commit_offset(roots, 2)
    roots.give_back("m")
    assert at(roots, "m").journal.sequences() == [1]
    roots.take_away("n")
    assert committed_offset(roots) == 2
    commit_offset(roots, 3)
    assert at(roots, "m").journal.sequences() == at(roots, "o").journal.sequences() == [1, 2, 3]


def test_without_a_majority_nothing_is_committed_or_said(roots: Replicated) -> None:
    handle = group(roots)
    commit_offset(roots, 1, handle)
    topic = handle.topic_state("t")
    roots.take_away("m")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        handle.advance([Position("t", topic.topic_id, 0, 2, topic.lineage)])
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        handle.newest()
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.log().groups.every_name()
    roots.give_back("o")
    assert committed_offset(roots) == 1


def test_what_its_writer_did_not_see_decided_is_found(roots: Replicated) -> None:
    """It is killed when a majority has accepted, before any root has learned."""

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    commit_offset(roots, 1)
    roots.hooks.update({name: once_at("put_if_absent", "groups/g/journal", kill) for name in "mno"})
    with pytest.raises(Killed):
        commit_offset(roots, 2)
    roots.hooks.clear()
    assert [at(roots, name).journal.sequences() for name in "mno"] == [[1]] * 3
    roots.take_away("m")
    assert committed_offset(roots) == 2


def test_a_topic_is_looked_at_where_it_is_decided(roots: Replicated) -> None:
    """The root that was opened may lag behind what its consumer has read elsewhere."""

    def no_learning(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "topics/t/journal" in path:
            raise OSError(errno.EIO, "injected")

    handle = group(roots, "b")
    roots.decided_log().pusher.shrink(roots.id_of("b"), "it lags")
    roots.hooks["b"] = no_learning
    roots.write(b"more")
    roots.hooks.clear()
    assert roots.at("b").newest()[1].log_end == (200, 0)
    topic = handle.topic_state("t")
    handle.advance([Position("t", topic.topic_id, 0, 201, topic.lineage)])
    assert committed_offset(roots, "b") == 201


def test_the_root_that_was_opened_may_be_lost(roots: Replicated) -> None:
    handle = group(roots, "a")
    commit_offset(roots, 1, handle)
    topic = handle.topic_state("t")
    roots.take_away("a")
    roots.take_away("m")
    handle.advance([Position("t", topic.topic_id, 0, 2, topic.lineage)])
    assert handle.newest().offsets(topic.topic_id) == {0: 2}
    assert committed_offset(roots, "b") == 2


def test_a_commit_is_shown_while_a_root_in_sync_lacks_an_election(roots: Replicated) -> None:
    """No election makes it void, so it need not be at the high watermark."""
    commit_offset(roots, 1)
    leader = roots.named(state_of(at(roots, "m").journal.head().entry).leader)  # type: ignore[union-attr]
    other = next(name for name in "abc" if name != leader)
    lagging = next(name for name in "abc" if name not in (leader, other))
    roots.take_away(leader)
    roots.hooks[lagging] = no_groups
    decided_log = group(roots, other).journal.decided_log()
    decided_log.elections.elect(roots.id_of(other), why="test")
    commit_offset(roots, 2, group(roots, other))
    assert committed_offset(roots, other) == 2


def test_offsets_are_reset_by_what_is_read_at_a_root_with_data(roots: Replicated) -> None:
    commit_offset(roots, 100)
    roots.take_away("m")
    for to, expected in (("earliest", 0), ("latest", 200), ({"t": {0: 7}}, 7)):
        first, *_ = roots.log("b").groups.reset("g", to=to, dry_run=False)
        assert first.after == expected
        assert committed_offset(roots) == expected
    first, *_ = roots.log("b").groups.reset("g", timestamp=0, dry_run=False)
    assert first.after == 0
    roots.log("c").groups.delete("g")
    assert roots.log("a").groups.list() == ()


# --- Old entries -----------------------------------------------------------------------------------------------------


def collected(roots: Replicated, many: int = 20) -> None:
    """Commit so often, and have the old entries go."""
    for _ in range(many):
        commit_offset(roots, (committed_offset(roots) or 0) + 1)
    roots.clock.advance(DAY_MS)
    group(roots).collect(1_000)


def test_old_entries_go_at_each_metadata_root(roots: Replicated) -> None:
    collected(roots)
    assert [at(roots, name).journal.sequences() for name in "mno"] == [[19, 20]] * 3
    roots.log("b").maintain()
    assert at(roots, "b").journal.sequences() == [19, 20]


def test_a_metadata_root_that_lags_beyond_what_is_kept_goes_on_with_the_newest(roots: Replicated) -> None:
    commit_offset(roots, 1)
    reader = at(roots, "m")
    assert reader.newest().exists
    roots.take_away("m")
    collected(roots)
    offset = committed_offset(roots)
    roots.give_back("m")
    assert reader.journal.sequences() == [1]
    roots.take_away("n")
    assert committed_offset(roots, "b") == offset
    assert at(roots, "m").journal.sequences() == [20, 21]
    assert reader.newest().offsets(roots.at("a").newest()[1].topic_id) == {0: offset}, "who stood on the first finds it"
    commit_offset(roots, 50)
    assert committed_offset(roots, "c") == 50


def test_a_metadata_root_with_another_history_does_not_go_on(roots: Replicated) -> None:
    for offset in (1, 2, 3):
        commit_offset(roots, offset)
    journal = roots.path / "m/groups/g/journal"
    last, before = sorted(journal.iterdir())[-1:-3:-1]
    last.unlink()
    other = Replicated(roots.path / "other", metadata="mno")
    other.create(2)
    other.write(*[b"x"] * 10)
    for offset in (1, 2):
        commit_offset(other, offset)
    (other.path / "m/groups/g/journal" / before.name).replace(before)
    roots.take_away("n")
    with pytest.raises(CommitLogError):
        commit_offset(roots, 4)
    assert last.name not in [path.name for path in journal.iterdir()], "two histories never become one"


# --- Members ---------------------------------------------------------------------------------------------------------


def member(roots: Replicated, name: str, at: str = "a") -> GroupMember:
    return GroupMember(
        roots.log(at).groups.open("g"), ["t"], client_id=name, config=MemberConfig(**TIMING),
        partition_assignment_strategy=["range"],
    )  # fmt: skip


def beat(roots: Replicated, *members: GroupMember, seconds: float = 1.0) -> None:
    for _ in range(int(seconds * 10)):
        roots.clock.advance(100)
        for each in members:
            each.poll()


def test_without_a_majority_nobody_is_taken_for_dead(roots: Replicated) -> None:
    one = member(roots, "one")
    beat(roots, one, seconds=3)
    roots.take_away("m")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="have to"):
        one._files.members()
    beat(roots, one, seconds=15)
    roots.give_back("o")
    beat(roots, one, seconds=3)
    assert len(one.assignment) == 2


def commit_as(roots: Replicated, of: GroupMember, offset: int) -> None:
    topic = roots.at("a").newest()[1]
    ends = {place.partition: min(offset, topic.log_end[place.partition]) for place in of.assignment}
    of.commit([Position("t", topic.topic_id, partition, end, topic.lineage) for partition, end in ends.items()])


def test_members_stay_and_commit_whichever_metadata_root_is_away(roots: Replicated) -> None:
    one, two = member(roots, "one"), member(roots, "two", "b")
    beat(roots, one, two, seconds=5)
    assert len(one.assignment) == len(two.assignment) == 1
    generation = one.generation
    for number, away in enumerate("mno"):
        roots.take_away(away)
        beat(roots, one, two, seconds=15)  # longer than a session
        for each in (one, two):
            commit_as(roots, each, 10 + number)
        roots.give_back(away)
        beat(roots, one, two, seconds=3)
    assert one.generation == two.generation == generation, "nobody was taken for dead"
    topic = roots.at("a").newest()[1].topic_id
    assert group(roots).newest().offsets(topic) == {0: 12, 1: 0}


def test_a_silent_member_is_removed_while_a_metadata_root_is_away(roots: Replicated) -> None:
    one, two = member(roots, "one"), member(roots, "two", "b")
    beat(roots, one, two, seconds=5)
    roots.take_away("m")
    beat(roots, one, seconds=15)
    assert len(one.assignment) == 2
    roots.give_back("m")  # with the file of the other one, as it was
    beat(roots, one, seconds=15)
    assert len(one.assignment) == 2
    commit_as(roots, one, 7)


def test_a_file_of_before_its_root_was_away_says_nothing(roots: Replicated) -> None:
    one = member(roots, "one")
    beat(roots, one, seconds=3)
    roots.take_away("m")
    two = member(roots, "two")
    beat(roots, one, two, seconds=5)
    assert two.generation == one.generation > 1
    roots.give_back("m")
    files = one._files
    found = files.read(one.member_id)
    assert found is not None
    assert found.generation == one.generation


def test_the_members_file_is_where_it_is_decided(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.topic.state.side_files.TABLE_BYTES", 1)
    one = member(roots, "one")
    beat(roots, one, seconds=3)
    assert len(one.assignment) == 2
    for away in "mno":
        roots.take_away(away)
        assert group(roots, "b").newest().members.rows.keys() == {one.member_id}
        roots.give_back(away)


# --- Whatever fails --------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """A process is killed."""


class Chaos:
    """Committers that fail, are killed, and get in each other's way, at any request to a metadata root."""

    def __init__(self, roots: Replicated, seed: int) -> None:
        self.roots, self.random, self.depth = roots, Random(seed), 0
        self.offset, self.acknowledged = 0, 0

    def hook(self, operation: str, path: str, moment: str) -> None:
        if operation != "put_if_absent" or "groups/" not in path:
            return
        luck = self.random.random()
        if luck < 0.06:
            raise OSError(errno.EIO, "injected")
        if luck < 0.09:
            raise KilledError
        if luck < 0.2 and self.depth < 3:
            self.commit()

    def commit(self) -> None:
        self.offset, self.depth = self.offset + 1, self.depth + 1
        try:
            commit_offset(self.roots, offset := self.offset, group(self.roots, self.random.choice("abc")))
            self.acknowledged = max(self.acknowledged, offset)
        except (CommitLogError, OSError, KilledError):
            pass
        finally:
            self.depth -= 1


#: More of them in `make test-long`.
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_no_acknowledged_commit_is_lost(
    roots: Replicated, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chaos = Chaos(roots, seed)
    monkeypatch.setattr(quorum, "share_out", lambda act, seats, _: [act(seat) for seat in seats])  # in their order
    monkeypatch.setattr(LocalStorage, "new_id", lambda _: str(UUID(int=chaos.random.getrandbits(128), version=4)))
    roots.hooks.update(dict.fromkeys("mno", chaos.hook))
    away = ""
    for step in range(8):
        if away:
            roots.give_back(away)
        away = chaos.random.choice(["", "m", "n", "o"])
        if away:
            roots.take_away(away)
        chaos.commit()
        if step == 4:
            roots.clock.advance(DAY_MS)
            roots.hooks.clear()
            group(roots).collect_old()
            roots.hooks.update(dict.fromkeys("mno", chaos.hook))
    roots.hooks.clear()
    if away:
        roots.give_back(away)
    for lost in "mno":
        roots.take_away(lost)
        assert chaos.acknowledged <= (committed_offset(roots) or 0) <= chaos.offset
        roots.give_back(lost)
