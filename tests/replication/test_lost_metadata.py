"""Recover: the metadata is lost for good.

The interleavings that it has to survive:

1. A late learner, which has read the next entry before the metadata was lost, puts it at the number of `recover`.
2. It is cut off between any two steps: between units, before the next root has learned, before the lists.
3. The root that is taken has learned an append as void, without its chunk, and not the election that made it so.
4. Another root has learned an append as void, without its chunk, that lives by what was taken.
5. All that was lost comes back at once: a process that was opened there, or that has the old list, decides nothing.
6. A late learner puts old entries on a root that is left, from the number of `recover` on: that root is out, loudly,
   however far it ends, and whatever is listed first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.write.commit import commit
from tests.replication.lost import at, recover, url
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, Replicated, elect, no_device, once_at, settle_at, takes_no_chunk

LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def newest(roots: Replicated, root: str, name: str = "t") -> int:
    head = roots.at(root, name).journal.head()
    assert head is not None
    return head.sequence


def no_device_at(part: str) -> Hook:
    def hook(operation: str, path: str, moment: str) -> None:
        if part in path and operation == "put_if_absent":
            no_device(operation, path, moment)

    return hook


def write_large_and_push(roots: Replicated) -> None:
    """Append a large chunk while one root alone answers; the others learn it when they are back."""
    roots.create()
    roots.write(b"0")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE, acks_all=False)
    roots.hooks.clear()
    roots.decided_log().pusher.push()


def forget_large(roots: Replicated, root: str) -> None:
    """Have a root without the large chunk, as of one that has learned its append as void."""
    chunks = (roots.path / root).glob("topics/t/*/staged/*")
    max(chunks, key=lambda path: path.stat().st_size).unlink()


def test_all_goes_on_at_another_metadata_root(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.take_away("m")
    with pytest.raises((CommitLogError, OSError)):
        roots.write(b"x")
    found = recover(roots, "m")
    assert (found.fault, found.gone, found.in_sync, dict(found.failed)) == (None, (), True, {})
    after = at(roots, "b")
    after.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "abc"] == [[b"0", b"1"]] * 3
    state = after.state()
    assert (state.set.generation, len(state.isr)) == (1, 3)
    assert state.set.roots == (after.id_of("n"),)


def test_the_metadata_goes_to_a_root_that_is_left(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.take_away("m")
    roots.take_away("a")
    found = recover(roots, "m", "a", to="c")
    assert (found.fault, found.gone, dict(found.failed)) == (None, (), {})
    after = at(roots, "b")
    after.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2
    assert after.named(*after.state().replicas) == "bc"


def test_a_dry_run_changes_nothing_and_says_what_would_be_lost(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks["b"] = no_device
    roots.write(LARGE, acks_all=False)  # on a, learned by a and c
    roots.hooks.clear()
    ids = {each: roots.id_of(each) for each in "abc"}
    ends = {ids[each]: newest(roots, each) for each in "abc"}
    roots.take_away("m")
    before = sorted(path for path in roots.path.rglob("*"))
    found = recover(roots, "m", execute=False)
    assert found.ends == ends
    assert (found.root, found.gone, found.done) == (ids["a"], (), False)
    assert sorted(path for path in roots.path.rglob("*")) == before


def test_what_the_root_has_no_files_of_is_void_whatever_it_has_learned(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks["b"] = roots.hooks["c"] = no_device
    roots.write(LARGE, acks_all=False)  # on a alone
    roots.hooks.clear()
    roots.hooks["b"] = no_device
    roots.decided_log().pusher.push()  # a and c have it
    roots.hooks.clear()
    ids = {each: roots.id_of(each) for each in "abc"}
    forget_large(roots, "c")
    roots.take_away("m")
    roots.take_away("a")
    dry = recover(roots, "m", "a", execute=False)
    assert (dry.root, dry.gone) == (ids["c"], ((0, 1, 2),))
    found = recover(roots, "m", "a")
    assert (found.root, found.gone, dict(found.failed)) == (ids["c"], ((0, 1, 2),), {})
    after = at(roots, "b")
    after.write(b"2", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"2"]] * 2


def test_a_root_copies_what_it_had_learned_as_void_and_lives_now(roots: Replicated) -> None:
    write_large_and_push(roots)
    forget_large(roots, "c")
    roots.take_away("m")
    assert dict(recover(roots, "m").failed) == {}
    roots.take_away("a")
    assert roots.values("c") == [b"0", LARGE]


def test_a_root_that_lacks_a_chunk_that_no_root_has_any_more_is_not_in_sync(roots: Replicated) -> None:
    """It is to copy what it had learned as void, and lives now; the root that has it loses it first."""
    write_large_and_push(roots)
    for root in "bc":
        forget_large(roots, root)
        roots.hooks[root] = takes_no_chunk
    roots.take_away("m")
    assert len(recover(roots, "m").failed) == 2
    roots.hooks.clear()
    forget_large(roots, "a")
    after = at(roots, "b")
    done = roots.log("b").replicas.sync("t")
    assert all("no root in sync can give it its segments" in done.failed[after.id_of(root)] for root in "bc")
    assert after.isr() == "a"


def test_a_chunk_whose_records_all_have_in_segments_is_not_needed(roots: Replicated) -> None:
    """Collectors were killed between the chunk and its entry."""
    roots.create()
    roots.write(LARGE)
    roots.write(b"1")
    for root in "abc":
        settle_at(roots, root)
        forget_large(roots, root)
    roots.take_away("m")
    assert dict(recover(roots, "m").failed) == {}
    assert at(roots, "b").isr() == "abc"
    assert [roots.values(root) for root in "abc"] == [[LARGE, b"1"]] * 3


def test_late_learner_that_is_first_is_gone_on_from(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks["b"] = roots.hooks["c"] = roots.hooks["a"] = no_device
    head = newest(roots, "m")
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    roots.hooks.clear()
    assert newest(roots, "m") == head + 1
    name = f"topics/t/journal/{head + 1:020d}.json"
    late = (roots.path / "m" / name).read_bytes()
    roots.take_away("m")

    def learns() -> None:
        (roots.path / "a" / name).write_bytes(late)

    roots.hooks["a"] = once_at("put_if_absent", "t/journal", learns)
    assert dict(recover(roots, "m").failed) == {}
    assert [newest(roots, each) >= head + 2 for each in "abc"] == [True] * 3
    assert (roots.path / "c" / name).read_bytes() == late


@pytest.mark.parametrize(
    ("root", "operation", "part"),
    [
        ("a", "put_if_absent", "t/journal"),
        ("n", "put_if_absent", "commitlog.json"),
        ("n", "put_if_absent", "t/journal"),
        ("n", "put_if_absent", "replicas/journal"),
        ("b", "put_if_absent", "replicas/journal"),
        ("c", "put_if_absent", "replicas/journal"),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_recover_that_is_cut_off_is_run_again(
    roots: Replicated, root: str, operation: str, part: str, when: str
) -> None:
    roots.create()
    roots.write(b"0")
    roots.log().create_topic("u", 1, CONFIG)
    roots.take_away("m")

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    roots.hooks[root] = once_at(operation, part, kill, when)
    with pytest.raises(Killed):
        roots.log("b").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=True)
    roots.hooks.clear()
    again = roots.log("c").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=True)
    assert [dict(each.failed) for each in again] == [{}, {}]
    for opened in "abcn":
        after = at(roots, opened)
        after.write(opened.encode(), topic=roots.topic(opened))
    assert [roots.values(each) for each in "abc"] == [[b"0", b"a", b"b", b"c", b"n"]] * 3


def test_all_that_was_lost_comes_back_at_once_and_decides_nothing(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    running = roots.topic("c")
    running.journal.decided_log().places.newest()
    roots.take_away("m")
    roots.take_away("a")
    recover(roots, "m", "a")
    at(roots, "b").write(b"1", topic=roots.topic("b"))
    roots.give_back("m")
    roots.give_back("a")
    before = newest(roots, "m")
    for opened in "ma":
        with pytest.raises(ReplicaNotAvailableError, match="was given up"):
            roots.topic(opened)
        with pytest.raises(ReplicaNotAvailableError, match="was given up"):
            roots.log(opened).replicas.sync("t")
    assert newest(roots, "m") == before, "nothing was put there"
    with pytest.raises(OutcomeUnknownError):  # it has the old list, and the old leader is back
        roots.write(b"x", acks_all=False, topic=running)
    after = at(roots, "b")
    after.write(b"2", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1", b"2"]] * 2
    assert after.named(*after.state().replicas) == "bc"


def test_a_writer_with_the_old_list_is_answered_nothing(roots: Replicated) -> None:
    """A follower that was left alone knows of `recover`; the old leader and the old metadata root took the write."""
    roots.create()
    roots.write(b"0")
    running = roots.topic("c")
    running.journal.decided_log().places.newest()
    staged = stage(running, batch_of([b"x"]))
    roots.take_away("m")
    roots.take_away("a")
    recover(roots, "m", "a")
    roots.give_back("m")
    roots.give_back("a")
    with pytest.raises(OutcomeUnknownError, match="given up"):
        commit(running, staged.topic_id, [staged], acks_all=False)
    assert [roots.values(root) for root in "bc"] == [[b"0"]] * 2


def test_a_unit_that_others_decide_is_not_gone_on_with(roots: Replicated) -> None:
    """Cut off before the lists were changed; the root that was given up is switched on again."""
    roots.create()
    roots.write(b"0")
    roots.take_away("m")
    roots.hooks["c"] = no_device_at("replicas/journal")
    with pytest.raises(CommitLogError):
        recover(roots, "m", to="c", at="a")
    roots.hooks.clear()
    learned = (roots.path / "c/topics/t/journal").glob("*.json")
    roots.give_back("m")
    for path in learned:  # what anybody does who learns
        (roots.path / "m/topics/t/journal" / path.name).write_bytes(path.read_bytes())
    before = newest(roots, "m")
    with pytest.raises(ReplicaNotAvailableError, match="recover"):
        roots.decided_log("b").pusher.change("touch", lambda state, base: state)
    assert newest(roots, "m") == before


def test_a_process_that_runs_goes_on_at_the_next_metadata_root(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    running = roots.at("b")
    running.journal.decided_log().places.newest()
    roots.take_away("m")
    recover(roots, "m")
    assert running.journal.decided_log().places.newest().sequence == newest(roots, "b")


def test_a_root_with_another_entry_at_the_number_is_out_loudly(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.hooks = dict.fromkeys("abc", no_device)
    roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    roots.hooks.clear()
    head = newest(roots, "m")
    name = f"topics/t/journal/{head:020d}.json"
    late = (roots.path / "m" / name).read_bytes()
    roots.take_away("m")

    def learns() -> None:
        (roots.path / "c" / name).write_bytes(late)

    roots.hooks["a"] = once_at("put_if_absent", "t/journal", learns, "after")
    found = recover(roots, "m")
    assert list(found.failed) == [at(roots, "b").id_of("c")]
    assert "another entry" in "".join(found.failed.values())
    assert at(roots, "b").isr() == "ab"


@pytest.mark.parametrize("many", [1, 2, 3])
def test_the_root_with_the_entry_is_gone_on_from_however_far_others_end(roots: Replicated, many: int) -> None:
    """The root that is listed first learns from one that was given up, after the entry was put on another one."""
    roots.create()
    elect(roots, "b")
    roots.write(b"0")
    roots.hooks = dict.fromkeys("abc", no_device)
    head = newest(roots, "m")
    for _ in range(many):
        roots.decided_log("m").pusher.change("touch", lambda state, base: state)
    roots.hooks.clear()
    journal = "topics/t/journal"
    late = {path.name: path.read_bytes() for path in sorted((roots.path / "m" / journal).iterdir())[-many:]}
    roots.take_away("m")

    def learns() -> None:
        for name, data in late.items():
            (roots.path / "a" / journal / name).write_bytes(data)

    roots.hooks["b"] = once_at("put_if_absent", "t/journal", learns, "after")
    assert newest(roots, "b") == head
    for _ in range(2):
        found = recover(roots, "m")
        after = at(roots, "b")
        assert (found.root, list(found.failed)) == (None if found.done else after.id_of("b"), [after.id_of("a")])
        after.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1", b"1"]] * 2
    assert after.isr() == "bc"


def test_what_answers_is_not_given_up_and_what_does_not_is_named(roots: Replicated) -> None:
    roots.create()
    with pytest.raises(UsageError, match="not given up: recover is for metadata that is lost"):
        recover(roots)
    with pytest.raises(UsageError, match="answers: what it has would be given up"):
        recover(roots, "m")
    roots.take_away("m")
    roots.take_away("c")
    with pytest.raises(UsageError, match="does not answer, and may have more"):
        recover(roots, "m")
    with pytest.raises(UsageError, match="none of the roots that belong together"):
        recover(roots, "m", "c", "z")


def test_the_next_metadata_root_is_an_empty_place(roots: Replicated, tmp_path: Path) -> None:
    roots.create()
    roots.take_away("m")
    CommitLog(str(tmp_path / "n")).create_topic("other")
    with pytest.raises(UsageError, match="name an empty place"):
        recover(roots, "m")


def test_settings_go_along(roots: Replicated) -> None:
    roots.create()
    roots.log().config.alter({"log.retention.hours": 7})
    roots.take_away("m")
    recover(roots, "m")
    roots.log("b").config.alter({"log.segment.bytes": 2**20})
    assert roots.log("c").config.get() == {"log.retention.hours": "7", "log.segment.bytes": str(2**20)}


def test_the_longest_journal_is_taken(roots: Replicated) -> None:
    roots.create()
    roots.hooks["b"] = roots.hooks["a"] = no_device
    elect_c: Callable[[], None] = lambda: elect(roots, "c")  # noqa: E731
    elect_c()
    roots.write(b"0", acks_all=False, topic=roots.topic("c"))
    roots.hooks.clear()
    ids = {each: roots.id_of(each) for each in "abc"}
    roots.take_away("m")
    found = recover(roots, "m", at="a")
    assert found.root == ids["c"]
    assert [roots.values(root) for root in "abc"] == [[b"0"]] * 3
    assert state_of(roots.at("a").journal.head().entry).leader == ids["c"]  # type: ignore[union-attr]
