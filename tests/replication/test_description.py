"""What users see of replicas: the leader, who is in sync, how far each has come, which roots answer."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import AccessDeniedError, OffsetOutOfRangeError, ReplicaNotAvailableError
from pyspark_commitlog.replication.admin.joining import add_replicas
from pyspark_commitlog.replication.protocol.learning import learn
from pyspark_commitlog.topic_description import ReplicaDescription, ReplicationDescription
from tests.support.growing import add, alone
from tests.support.replicas import Replicated


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def no_device(operation: str, path: str, moment: str) -> None:
    raise OSError(errno.EIO, "injected: the device is gone")


def described(roots: Replicated, at: str = "a") -> ReplicationDescription:
    found = roots.log(at).topic("t").describe().replication
    assert found is not None
    return found


def rows(roots: Replicated, at: str = "a") -> dict[str, ReplicaDescription]:
    return {roots.named(replica.root_id): replica for replica in described(roots, at).replicas}


def six_and_three(roots: Replicated) -> None:
    """Six records that all in sync have, then three that c has not learned."""
    roots.create()
    for number in range(6):
        roots.write(b"%d" % number)
    roots.hooks["c"] = no_device
    roots.write(b"6", b"7", b"8", acks_all=False)
    del roots.hooks["c"]


def test_leo_is_9_and_hw_is_6_and_0_to_5_are_read(roots: Replicated) -> None:
    six_and_three(roots)
    (partition,) = roots.log("a").topic("t").describe().partitions
    assert (partition.high_watermark, partition.log_end_offset) == (6, 9)
    seen = {root: (row.high_watermarks, row.log_end_offsets) for root, row in rows(roots).items()}
    assert seen == {"a": ((6,), (9,)), "b": ((6,), (9,)), "c": ((6,), (6,))}
    assert [record.offset for record in roots.log("a").topic("t").read(0, 0, 100)] == [0, 1, 2, 3, 4, 5]
    assert roots.log("b").topic("t").read(0, 6) == ()
    with pytest.raises(OffsetOutOfRangeError):
        roots.log("a").topic("t").read(0, 7)
    roots.write(b"9")
    assert [record.offset for record in roots.log("c").topic("t").read(0, 0, 100)] == list(range(10))


def test_a_follower_that_lags_shows_its_own_end(roots: Replicated) -> None:
    six_and_three(roots)
    (partition,) = roots.log("c").topic("t").describe().partitions
    assert (partition.high_watermark, partition.log_end_offset) == (6, 6)


def test_the_lag_of_a_replica_is_in_entries_bytes_and_time(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    level = rows(roots)
    assert {(row.entries_behind, row.bytes_behind, row.ms_behind) for row in level.values()} == {(0, 0, 0)}
    roots.hooks["c"] = no_device
    roots.write(b"2" * 1000, acks_all=False)
    roots.write(b"3" * 1000, acks_all=False)
    del roots.hooks["c"]
    roots.clock.advance(7000)
    behind = rows(roots)["c"]
    assert behind.entries_behind == 2
    chunks = sum(path.stat().st_size for path in (roots.path / "a").glob("topics/t/*/staged/*.chunk"))
    there = sum(path.stat().st_size for path in (roots.path / "c").glob("topics/t/*/staged/*.chunk"))
    entries = sorted((roots.path / "m/topics/t/journal").iterdir())[-2:]
    assert behind.bytes_behind == chunks - there + sum(path.stat().st_size for path in entries)
    assert behind.ms_behind == 7000


def test_a_root_that_learns_what_was_before_replicas_answers_and_lags(tmp_path: Path) -> None:
    """It has learned the first entries alone: none of those says that there are replicas."""
    roots = alone(tmp_path)
    add(roots, "b")
    roots.names = "ab"
    decided_log = roots.decided_log()
    add_replicas(decided_log, [roots.id_of("b")])
    places = decided_log.places
    before = places.decider().journal.read(2)
    assert learn(places.decider(), places.at(roots.id_of("b")), places.unit, places.staged_at(), before) == 2
    lags = rows(roots)["b"]
    assert lags.fault is None
    assert (lags.high_watermarks, lags.log_end_offsets, lags.entries_behind) == ((1,), (1,), 2)


def test_roles_follow_an_election_and_a_root_that_is_gone(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    assert (described(roots).elected_ms, described(roots).elected_why) == (-1, "")
    roots.take_away("a")
    assert described(roots, "b").is_unavailable
    assert not described(roots, "b").is_under_replicated
    before = roots.clock.now_ms()
    roots.write(b"2", topic=roots.topic("b"))
    found = described(roots, "b")
    assert {name: row.role for name, row in rows(roots, "b").items()} == {
        "a": "out of sync", "b": "leader", "c": "in sync"
    }  # fmt: skip
    assert (found.leader, found.leader_epoch, Path(found.leader_url).name) == (roots.id_of("b"), 1, "b")
    assert (found.elected_why, found.elected_ms >= before) == ("the leader's root does not answer", True)
    assert (found.is_unavailable, found.is_under_replicated) == (False, True)
    gone = rows(roots, "b")["a"]
    assert gone.fault is not None
    assert "does not answer" in gone.fault
    assert (gone.log_end_offsets, gone.entries_behind) == (None, None)


def test_without_the_metadata_topics_are_described_and_read_at_every_root(roots: Replicated) -> None:
    six_and_three(roots)
    roots.take_away("m")
    for root in "abc":
        assert roots.log(root).topics() == ["t"]
        found = roots.log(root).topic("t").describe()
        assert found.replication is not None
        (metadata,) = found.replication.metadata
        assert metadata.fault is not None
        assert [row.log_end_offsets for row in found.replication.replicas] == [(9,), (9,), (6,)]
        assert [record.offset for record in roots.log(root).topic("t").read(0, 0, 100)] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ReplicaNotAvailableError):
        roots.log("a").create_topic("u")


def test_a_topic_with_fewer_replicas_than_roots_is_named_and_read_at_every_root(roots: Replicated) -> None:
    roots.create()
    roots.log("a").create_topic("u", config={"replication.factor": 1})
    alone = roots.log("a").topic("u").describe().replication
    assert alone is not None
    assert len(alone.replicas) == 1
    assert [roots.log(root).topics() for root in "abcm"] == [["t", "u"]] * 4
    assert [roots.log(root).topic("u").describe().replication for root in "bc"] == [alone] * 2
    roots.take_away("m")
    assert [roots.log(root).topics() for root in "abc"] == [["t", "u"]] * 3
    assert [roots.log(root).topic("u").read(0, 0) for root in "abc"] == [()] * 3


def test_roots_show_what_they_hold_whether_they_answer_and_what_they_lead(roots: Replicated) -> None:
    roots.create()
    roots.log().create_topic("u", config={"replication.factor": 2})
    listed = {Path(root.url).name: root for root in roots.log("c").replicas.describe()}
    assert {name: (root.data, root.metadata, root.leads) for name, root in listed.items()} == {
        "a": (True, False, ("t",)), "b": (True, False, ("u",)), "c": (True, False, ()), "m": (False, True, ()),
    }  # fmt: skip
    assert {root.fault for root in listed.values()} == {None}
    roots.take_away("b")
    faults = {Path(root.url).name for root in roots.log("c").replicas.describe() if root.fault is not None}
    assert faults == {"b"}


def test_a_root_that_stands_alone_is_the_only_one(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("t")
    (root,) = log.replicas.describe()
    assert (root.url, root.data, root.metadata, root.leads) == (log.url, True, True, ("t",))
    assert log.topic("t").describe().replication is None


def test_roots_show_the_topics_that_the_principal_may_see(roots: Replicated) -> None:
    roots.create()
    ops = CommitLog.on(roots.storage("a"), "ops")
    ops.access.allow("ops", "admin")
    assert next(root.leads for root in ops.replicas.describe()) == ("t",)
    web = CommitLog.on(roots.storage("a"), "web")
    assert {root.leads for root in web.replicas.describe()} == {()}
    for act in (lambda: web.replicas.elect("t"), lambda: web.replicas.sync("t")):
        with pytest.raises(AccessDeniedError):
            act()
