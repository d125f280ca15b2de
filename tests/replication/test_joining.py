"""A root that stands alone gets others, and its topics replicas, while they are written and read; and fewer again.

Interleavings:

1. The process is killed at any step: before the marker says that the root is one of several, nothing has changed for
   those who use it; a topic has replicas with one entry, or has none. The next run goes on.
2. A writer, or a reader, that has a handle since the topic was on one root goes by the newest entry, which says more.
3. A root that is added has a topic of that name already: two histories never become one.
4. A root that was taken out is read: what it learned last sends its readers elsewhere.
"""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import OffsetOutOfRangeError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.journal import Draft
from pyspark_commitlog.replication.admin.joining import add_replicas
from pyspark_commitlog.replication.protocol.learning import learn
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.crash.conftest import fast_path as fast_path
from tests.crash.processes import start
from tests.support.growing import Grown, add, alone
from tests.support.records import read_topic
from tests.support.replicas import CONFIG, commit_offset, committed_offset, elect, group, no_device
from tests.support.syscalls import killed_before
from tests.support.world import DELAY_MS


def test_a_topic_gets_replicas_while_it_is_written_and_read(fast_path: Path) -> None:
    roots = alone(fast_path)
    writer, reader = roots.at("a"), roots.at("a")
    writer.newest(), reader.newest()
    roots.log("a").topic("t").maintain()
    add(roots)
    roots.write(b"2", topic=writer)
    done = roots.log("b").topic("t").set_replication_factor(3)
    assert done.failed == {}
    assert roots.isr() == "abc"
    roots.write(b"3", topic=writer)
    assert [record.value for record in read_topic(reader)] == [b"0", b"1", b"2", b"3"]
    for root in "abc":
        assert roots.values(root) == [b"0", b"1", b"2", b"3"]
    roots.log("b").replicas.elect("t", roots.id_of("b"))
    roots.write(b"4", topic=writer.at_leader())
    assert roots.values("c")[-1] == b"4"


def test_before_it_has_replicas_a_topic_is_read_and_written_at_its_root_alone(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots)
    log = roots.log("b")
    assert log.topics() == ["t"]
    assert [record.value for record in log.topic("t").read(0, 0, 10)] == [b"0", b"1"]
    roots.write(b"2", topic=roots.topic("c"))
    assert [record.value for record in roots.log("a").topic("t").read(0, 0, 10)] == [b"0", b"1", b"2"]
    assert log.replicas.sync() == ()
    assert [(root.url[-1], root.metadata, root.leads) for root in log.replicas.describe()] == [
        ("a", True, ("t",)),
        ("b", False, ()),
        ("c", False, ()),
    ]


@pytest.mark.parametrize("root", ["a", "b"])
def test_before_it_has_replicas_a_topic_is_altered_and_maintained(fast_path: Path, root: str) -> None:
    roots = alone(fast_path)
    add(roots)
    log = roots.log(root)
    log.topic("t").alter({"retention.ms": 1})
    log.topic("t").add_partitions(2)
    roots.clock.advance(10)
    roots.log("a").maintain()
    assert roots.log("a").topic("t").describe().partitions[0].log_start_offset == 2
    log.topic("t").delete_records({0: 2})
    roots.write(b"2", topic=log.root.topic("t", Operation.WRITE))
    assert [roots.log(each).topic("t").describe().partitions[0].high_watermark for each in "abc"] == [3, 3, 3]
    handle, alike = roots.topic("a"), roots.at("a").newest()[0].entry
    handle.journal.append(
        lambda base, slot: Draft("alter", alike.topic_id, {"state": alike.body["state"]}, result=None)
    )
    log.topic("t").delete()
    assert roots.log("c").topics() == []


def test_a_name_that_another_root_has_is_refused(fast_path: Path) -> None:
    roots = alone(fast_path)
    other = CommitLog.on(roots.storage("x"))
    other.create_topic("t", 1, CONFIG)
    add(roots, "b")
    shutil.copytree(fast_path / "x/topics", fast_path / "b/topics", dirs_exist_ok=True)
    with pytest.raises(UsageError, match="has another topics/t/journal"):
        roots.log("a").topic("t").set_replication_factor(2)
    assert not roots.at("a").newest()[1].is_replicated


def test_a_place_that_is_not_empty_is_refused(fast_path: Path) -> None:
    roots = alone(fast_path)
    CommitLog.on(roots.storage("x")).create_topic("other", 1, CONFIG)
    with pytest.raises(UsageError, match="there is a commit log at"):
        add(roots, "bx")
    assert not (fast_path / "b/replicas").exists()
    with pytest.raises(UsageError, match="stands alone"):
        roots.log("a").topic("t").set_replication_factor(2)


def test_a_root_is_added_to_others(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots, "b")
    knows = Roots.of(roots.storage("b"))
    knows.listed()
    roots.log("a").topic("t").set_replication_factor(2)
    writer = roots.topic("a")
    writer.newest()
    roots.log("b").replicas.add([str(fast_path / "c")])
    roots.log("a").topic("t").set_replication_factor(3)
    assert knows.answers(roots.id_of("c")), "a process that read the list before finds it"
    roots.write(b"2", topic=writer)
    assert roots.values("c") == [b"0", b"1", b"2"]


def test_there_are_no_more_replicas_than_roots(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots, "b")
    with pytest.raises(UsageError, match="commitlog replicas add"):
        roots.log("a").topic("t").set_replication_factor(3)
    with pytest.raises(UsageError, match="1 or more"):
        roots.log("a").topic("t").set_replication_factor(0)
    assert not roots.at("a").newest()[1].is_replicated


def deleted_before(path: Path, *, collected: bool) -> Grown:
    """Return a root whose topic was deleted before others joined it; they are there, and have learned nothing of it."""
    roots = alone(path)
    for _ in range(3 if collected else 0):
        roots.log("a").topic("t").maintain()
        roots.clock.advance(DELAY_MS)
    assert (roots.at("a").journal.sequences()[0] > 1) == collected
    roots.log("a").topic("t").delete()
    add(roots)
    return roots


@pytest.mark.parametrize("collected", [False, True])
def test_a_topic_of_before_replicas_is_made_again_with_replicas(fast_path: Path, collected: bool) -> None:
    roots = deleted_before(fast_path, collected=collected)
    roots.log("a").create_topic("t", 1, CONFIG)
    assert roots.isr() == "abc"
    roots.write(b"1", topic=roots.topic("b"))
    elect(roots, "b")
    roots.write(b"2", topic=roots.topic("c"))
    assert [roots.values(root) for root in "abc"] == [[b"1", b"2"]] * 3


def test_a_topic_of_before_replicas_is_made_again_while_the_others_are_away(fast_path: Path) -> None:
    """The root that has what was before leads, alone in sync: the others would keep each writer waiting."""
    roots = deleted_before(fast_path, collected=True)
    roots.hooks = {"b": no_device, "c": no_device}
    roots.log("a").create_topic("t", 1, CONFIG)
    roots.write(b"1", topic=roots.topic("a"))
    assert (len(roots.state().replicas), roots.isr(), roots.leader()) == (3, "a", "a")
    roots.hooks.clear()
    assert roots.log("c").replicas.sync("t").failed == {}
    assert roots.isr() == "abc"
    assert [roots.values(root) for root in "abc"] == [[b"1"]] * 3


def test_a_topic_has_fewer_replicas_again(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots)
    roots.log("a").topic("t").set_replication_factor(3)
    writer = roots.topic("a")
    roots.write(b"2", topic=writer)
    roots.log("a").topic("t").set_replication_factor(1)
    roots.write(b"3", topic=writer)
    assert roots.state().replicas == (roots.id_of("a"),)
    for root in "abc":
        read = roots.log(root).topic("t").read(0, 0, 10)
        assert [record.value for record in read] == [b"0", b"1", b"2", b"3"], f"opened at {root}"
    roots.log("c").topic("t").set_replication_factor(3)
    assert roots.values("c") == roots.values("b") == [b"0", b"1", b"2", b"3"]


def test_groups_go_on_at_the_root_that_decides(fast_path: Path) -> None:
    roots = alone(fast_path)
    commit_offset(roots, 0)
    before = group(roots)
    before.newest()
    add(roots)
    roots.log("a").topic("t").set_replication_factor(3)
    commit_offset(roots, 1, before)
    assert committed_offset(roots, "c") == 1
    roots.log("b").replicas.sync()
    commit_offset(roots, 2, group(roots, "b"))
    assert committed_offset(roots, "a") == 2


def test_a_root_that_learns_what_was_before_replicas_puts_nothing_itself(fast_path: Path) -> None:
    """It is killed when it has learned the first entry: that does not say yet that others decide."""
    roots = alone(fast_path)
    add(roots)
    decided_log = roots.decided_log()
    add_replicas(decided_log, [roots.id_of("b")])
    places = decided_log.places
    first = places.decider().journal.read(1)
    assert learn(places.decider(), places.at(roots.id_of("b")), places.unit, [], first) == 1
    with pytest.raises(OffsetOutOfRangeError):
        roots.log("b").topic("t").read(0, 5, 1)
    assert [record.value for record in roots.log("b").topic("t").read(0, 0, 9)] == [b"0", b"1"], "at another root"
    storage = roots.storage("b")
    Roots.of(storage)  # as a log that is opened there does
    roots.write(b"2", topic=TopicLog(storage, "t"), acks_all=False)
    assert roots.log("b").replicas.sync("t").failed == {}
    assert roots.values("a") == roots.values("b") == [b"0", b"1", b"2"]


def test_a_root_is_taken_out_and_another_takes_its_place(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots)
    roots.log("a").topic("t").set_replication_factor(2)
    roots.log("a").replicas.elect("t", roots.id_of("b"))
    gone, commits = roots.id_of("b"), group(roots)
    commit_offset(roots, 1, commits)
    roots.write(b"2")
    rows = roots.log("a").replicas.remove([str(fast_path / "b")])
    assert [row.url[-1] for row in rows] == ["a", "c"]
    roots.names = "ac"
    assert gone not in roots.state().replicas
    assert roots.isr() == "ac"
    roots.write(b"3", topic=roots.topic("c"))
    assert roots.values("c") == [b"0", b"1", b"2", b"3"]
    roots.log("b").create_topic("more", 1)
    assert gone not in roots.state("more").replicas


def test_a_root_is_moved_to_an_empty_place(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots, "b")
    roots.log("a").topic("t").set_replication_factor(2)
    rows = roots.log("a").replicas.move(str(fast_path / "b"), str(fast_path / "c"))
    assert [row.url[-1] for row in rows] == ["a", "c"]
    roots.names = "ac"
    assert roots.isr() == "ac"
    assert roots.values("c") == [b"0", b"1"]


@pytest.mark.parametrize(("root", "why"), [("a", "decides"), ("x", "none of the roots")])
def test_a_move_that_is_refused_has_added_nothing(fast_path: Path, root: str, why: str) -> None:
    roots = alone(fast_path)
    add(roots, "b")
    roots.log("a").topic("t").set_replication_factor(2)
    commit_offset(roots, 1)
    before, number = roots.log("a").replicas.describe(), roots.decided_log().places.newest().sequence
    with pytest.raises(UsageError, match=why):
        roots.log("a").replicas.move(str(fast_path / root), str(fast_path / "c"))
    assert roots.log("a").replicas.describe() == before
    assert roots.decided_log().places.newest().sequence == number
    assert not (fast_path / "c").exists()


def test_a_root_that_is_lost_is_taken_out_before_another_is_added(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots, "b")
    roots.log("a").topic("t").set_replication_factor(2)
    lost = roots.id_of("b")
    roots.take_away("b")
    with pytest.raises(ReplicaNotAvailableError, match="commitlog replicas remove"):
        add(roots, "c")
    assert not (fast_path / "c").exists()
    roots.log("a").replicas.remove([lost])
    roots.names = "a"
    assert roots.isr() == "a"
    add(roots, "c")
    roots.names = "ac"
    assert roots.log("a").topic("t").set_replication_factor(2).failed == {}
    assert roots.values("c") == [b"0", b"1"]


def test_the_root_that_decides_is_not_taken_out(fast_path: Path) -> None:
    roots = alone(fast_path)
    add(roots)
    with pytest.raises(UsageError, match="decides"):
        roots.log("b").replicas.remove([str(fast_path / "a")])
    with pytest.raises(UsageError, match="none of the roots"):
        roots.log("b").replicas.remove([str(fast_path / "x")])


def _grow_and_die(roots: Grown, number: int) -> None:
    with killed_before(number):
        add(roots, "b")
        roots.log("a").topic("t").set_replication_factor(2)


@pytest.mark.nightly
def test_killed_before_any_change(fast_path: Path) -> None:
    """The root is whole at every step, for old handles too, and the next run goes on."""
    for number in count(1):
        roots = alone(fast_path / str(number))
        roots.names = "ab"
        handle = roots.at("a")
        handle.newest()
        process = start(_grow_and_die, roots, number)
        process.join()
        assert process.exitcode in (0, -9)
        assert roots.values("a") == [b"0", b"1"]
        roots.write(b"2", topic=handle, acks_all=False)
        add(roots, "b")
        assert roots.log("a").topic("t").set_replication_factor(2).failed == {}
        roots.write(b"3", topic=handle)
        assert roots.isr() == "ab"
        for root in "ab":
            assert roots.values(root) == [b"0", b"1", b"2", b"3"], f"at {root}, killed before call {number}"
        shutil.rmtree(roots.path)
        if process.exitcode == 0:
            return


def _move_and_die(roots: Grown, number: int) -> None:
    with killed_before(number):
        roots.log("a").replicas.move(str(roots.path / "b"), str(roots.path / "c"))


@pytest.mark.nightly
def test_killed_before_any_change_of_a_move(fast_path: Path) -> None:
    """All is read and written at every step, and the next run goes on; the root that is moved leads."""
    for number in count(1):
        roots = alone(fast_path / str(number))
        add(roots, "b")
        roots.log("a").topic("t").set_replication_factor(2)
        roots.log("a").replicas.elect("t", Roots.of(roots.storage("a")).listed().data[1].id)
        process = start(_move_and_die, roots, number)
        process.join()
        assert process.exitcode in (0, -9)
        roots.write(b"2", topic=roots.topic("a"))
        if process.exitcode:
            moved = [row.url[-1] for row in roots.log("a").replicas.describe()]
            if "b" in moved:
                roots.log("a").replicas.move(str(roots.path / "b"), str(roots.path / "c"))
        roots.names = "ac"
        assert roots.isr() == "ac", f"killed before call {number}"
        assert roots.values("a") == roots.values("c") == [b"0", b"1", b"2"]
        shutil.rmtree(roots.path)
        if process.exitcode == 0:
            return
