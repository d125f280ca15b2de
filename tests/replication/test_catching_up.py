"""A root that lags beyond what is kept: it gets the segments of another, begins at what that has settled, and learns on.

Interleavings:

1. What it needs next is collected, or the chunk of it is nowhere, since all others have settled that.
2. The other root settles more than was copied meanwhile: what is published is the log after one entry, exactly.
3. The process is killed at any step: what was written is named by nobody, or all of it is, and the next one goes on.
4. It begins at an entry that states an older high watermark, whose entry it does not have: readers see what is settled.
5. It begins at an append, and all others are lost then: what it has settled is not lost with the chunk.
6. A process stands on its old newest entry: what follows the gap would never be found, so those entries go.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.admin.replicating import replicate_late
from pyspark_commitlog.replication.follower.catching_up import catch_up, learn_or_catch_up
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import Allowance, CollectedError, learn
from pyspark_commitlog.topic.replica_fetch import settled_copy as copying
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments, reached
from tests.crash.conftest import fast_path as fast_path
from tests.crash.processes import start
from tests.replication.lagging import expected, lagging, whole
from tests.support.commands import COMMAND, run
from tests.support.replicas import Replicated, settle_at
from tests.support.syscalls import killed_before

#: Of commits after what is collected.
TAIL = [b"last", b"and more", b"and last"]


@pytest.mark.parametrize(("wiped", "unknown"), [(False, ""), (True, ""), (False, "c"), (True, "c"), (True, "ab")])
def test_a_root_that_lags_too_far_gets_segments_and_joins(fast_path: Path, wiped: bool, unknown: str) -> None:
    """Whatever kinds of storage it is copied between."""
    roots = lagging(fast_path, wiped=wiped, unknown=unknown)
    done = roots.log().replicas.sync("t")
    assert done.failed == {}
    assert roots.isr() == "abc"
    whole(roots, expected())
    roots.write(b"next")
    whole(roots, [*expected(), b"next"])
    for root in "abc":
        roots.log(root).topic("t").maintain()
    whole(roots, [*expected(), b"next"])


def test_segments_are_copied_when_all_topics_had_their_turn(fast_path: Path) -> None:
    roots = lagging(fast_path)
    maintenance = Maintenance(roots.log("a").root)
    maintenance.maintain("t", silent)
    assert roots.isr() == "ab"
    maintenance.replicas.catch_up(stopped=lambda: True)
    assert roots.isr() == "ab"
    maintenance.maintain("t", silent)
    maintenance.replicas.catch_up()
    assert roots.isr() == "abc"
    whole(roots, expected())


def test_who_is_stopped_leaves_the_segments_that_it_copies(fast_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A signal must not wait for all records of a topic; what was written by then counts for nothing."""
    roots = lagging(fast_path)
    maintenance, asked = Maintenance(roots.log("a").root), list[str]()
    roots.write(b"settled by itself")
    maintenance.maintain("t", silent)

    def stopped() -> bool:
        asked.append("once more")
        return len(asked) > 2

    maintenance.replicas.catch_up(stopped=stopped)
    assert len(asked) > 2, "in the midst of it"
    assert roots.isr() == "ab"
    assert caplog.text.count("was stopped") == 1, "no other root is asked for them"
    assert roots.values("c") == [b"first"]
    roots.log("a").topic("t").maintain()
    assert roots.isr() == "abc"
    whole(roots, [*expected(), b"settled by itself"])


@pytest.mark.parametrize(
    "by", ["replicate", "maintain", "maintain --once", "maintain --every 0.2", "replicas sync --watch --every 0.2"]
)
def test_a_round_of_all_topics_copies_segments(fast_path: Path, by: str) -> None:
    roots, command = lagging(fast_path), [*by.split(), str(fast_path / "a")]
    if "--once" in command:
        run(*command)
    elif "--every" in command:
        with subprocess.Popen([*COMMAND, *command]) as service:
            until = time.monotonic() + 60
            while roots.isr() != "abc" and time.monotonic() < until:
                time.sleep(0.1)
            service.terminate()
    else:
        log = roots.log("a")
        (log.maintain if by == "maintain" else log.replicas.sync)()
    assert roots.isr() == "abc"
    whole(roots, expected())


def test_a_root_that_joins_does_not_begin_later(fast_path: Path) -> None:
    """High watermarks are stated by what it has learned; another process had it join since it was out of sync."""
    roots = lagging(fast_path)
    decided_log, root = roots.decided_log(), roots.id_of("c")
    assert decided_log.pusher.change("joining", lambda state, base: rules.joining(state, root))
    before = sorted((fast_path / "c/topics/t/journal").iterdir())
    with pytest.raises(CollectedError):
        learn_or_catch_up(
            decided_log.places, root, TopicSegments("t"), decided_log.places.newest(), Allowance(roots.clock)
        )
    assert sorted((fast_path / "c/topics/t/journal").iterdir()) == before


def test_the_time_that_copying_takes_is_none_of_learning(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = lagging(fast_path)
    copy = TopicSegments.copy

    def slow(self: TopicSegments, *args: object) -> tuple[int, str]:
        done = copy(self, *args)  # type: ignore[arg-type]
        for number in range(20):
            roots.write(b"meanwhile %d" % number)
        roots.clock.advance(3_600_000)
        return done

    monkeypatch.setattr(TopicSegments, "copy", slow)
    done = replicate_late(roots.decided_log(), TopicSegments("t"))
    assert (done.failed, done.joined) == ({}, [roots.id_of("c")])


def test_it_leads_with_what_it_got(fast_path: Path) -> None:
    roots = lagging(fast_path)
    roots.log().replicas.sync("t")
    roots.log().replicas.elect("t", roots.id_of("c"))
    roots.take_away("a")
    roots.take_away("b")
    assert roots.values("c") == expected()


def test_a_gap_in_what_was_settled_is_not_covered(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = lagging(fast_path)
    read = copying.walk

    def without_the_last(storage: object, span: object) -> object:
        frames = list(read(storage, span))  # type: ignore[arg-type]
        return iter(frames[:-1])

    monkeypatch.setattr(copying, "walk", without_the_last)
    decided_log = roots.decided_log()
    with pytest.raises(ReplicaNotAvailableError, match="are in no segment, nothing was copied"):
        catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), decided_log.places.newest())
    assert roots.values("c") == [b"first"]


def test_a_damaged_frame_is_not_copied(fast_path: Path) -> None:
    roots = lagging(fast_path)
    for root in "ab":
        for log in (fast_path / root / "topics/t").glob("*/0/*.log"):
            data = bytearray(log.read_bytes())
            data[-3] ^= 1
            log.write_bytes(data)
    decided_log = roots.decided_log()
    with pytest.raises(ReplicaNotAvailableError, match="restore the file from a copy"):
        catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), decided_log.places.newest())
    assert roots.values("c") == [b"first"]
    assert roots.isr() == "ab"


def test_what_is_settled_only_in_part_is_no_beginning(fast_path: Path) -> None:
    roots = lagging(fast_path)
    roots.write(b"settled")
    roots.log("a").topic("t").maintain()
    topic = roots.at("a")
    roots.write(b"later")
    settled = topic.settled(topic.newest()[1].topic_id)[1]
    found = reached(topic, settled)
    assert found is not None
    assert found.sequence < topic.newest()[0].sequence
    ends = topic.state_of(found.entry).log_end
    assert ends == (settled.partition(0).end_offset,)


def test_readers_of_a_root_that_began_see_what_it_has_settled(fast_path: Path) -> None:
    """It is killed after it has put the entry at which it begins, which states an older high watermark."""
    roots = lagging(fast_path, wiped=True)
    decided_log = roots.decided_log()
    catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), decided_log.places.newest())
    topic = roots.at("c")
    (only,) = topic.journal.sequences()
    settled = topic.settled(topic.newest()[1].topic_id)[1]
    assert settled.through[0] == only
    assert roots.values("c") == expected()
    shown = topic.newest()[0]
    assert shown.sequence == only


def test_what_a_root_that_began_has_settled_is_not_lost_with_all_others(fast_path: Path) -> None:
    roots = lagging(fast_path, wiped=True)
    for value in TAIL:
        roots.write(value)
    decided_log = roots.decided_log()
    catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), decided_log.places.newest())
    head = roots.at("c").journal.head()
    assert head is not None
    assert (head.entry.kind, [*state_of(head.entry).on]) == ("append", [head.sequence]), "the scene"
    lost = [roots.id_of(name) for name in "abm"]
    for name in "abm":
        roots.take_away(name)
    for execute in (False, True):
        (found,) = roots.log("c").replicas.recover(str(fast_path / "c"), lost, execute=execute)
        assert (found.root is not None, found.gone, found.fault) == (True, (), None)
    assert roots.values("c") == [*expected(), *TAIL]


def test_a_damaged_settle_entry_keeps_no_topic_from_being_recovered(fast_path: Path) -> None:
    """The journal and the chunks are whole: what is settled is asked for where one is lacking."""
    roots = Replicated(fast_path)
    roots.create()
    for value in TAIL:
        roots.write(value)
    settle_at(roots, "c")
    roots.write(b"above")
    newest = max((roots.path / "c/topics/t").glob("*/settle/*.json"))
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    lost = [roots.id_of(name) for name in "abm"]
    for name in "abm":
        roots.take_away(name)
    (found,) = roots.log("c").replicas.recover(str(fast_path / "c"), lost, execute=True)
    assert (found.root is not None, found.gone, found.fault) == (True, (), None)


def test_who_stands_on_the_old_newest_entry_finds_the_new_ones(fast_path: Path) -> None:
    roots = lagging(fast_path)
    reader = roots.at("c")
    before = reader.newest()[0]
    roots.log().replicas.sync("t")
    assert reader.newest()[0].sequence > before.sequence
    assert before.sequence not in reader.journal.sequences()


def test_a_root_that_decides_does_not_begin_later(fast_path: Path) -> None:
    roots = lagging(fast_path)
    decided_log = roots.decided_log()
    before = (fast_path / "m/topics/t/journal").iterdir()
    with pytest.raises(ReplicaNotAvailableError, match="decides what comes next"):
        catch_up(decided_log.places, roots.id_of("m"), TopicSegments("t"), decided_log.places.newest())
    assert list(before)


def test_a_root_that_has_learned_more_than_is_settled_does_not_begin_earlier(fast_path: Path) -> None:
    """Nothing that was seen of it is taken back: its journal would end with an entry below what it has learned."""
    roots = Replicated(fast_path)
    roots.create()
    roots.write(b"0")
    decided_log, root = roots.decided_log(), roots.id_of("c")
    decided_log.pusher.shrink(root, "test")
    assert decided_log.pusher.push().learned
    newest = decided_log.places.newest()
    learn(decided_log.places.decider(), decided_log.places.at(root), decided_log.places.unit, [], newest)
    before = sorted((fast_path / "c/topics/t/journal").iterdir())
    with pytest.raises(ReplicaNotAvailableError, match=f"has learned {newest.sequence}: `commitlog maintain` settles"):
        catch_up(decided_log.places, root, TopicSegments("t"), newest)
    assert sorted((fast_path / "c/topics/t/journal").iterdir()) == before


def test_another_history_is_not_copied(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = lagging(fast_path)
    decided_log = roots.decided_log()
    newest = decided_log.places.newest()
    found = TopicSegments("t").settled(roots.storage("a"))
    stored = decided_log.places.at(roots.id_of("a")).journal.read(found.sequence)
    for path in (fast_path / "a/topics/t/journal").iterdir():
        if int(path.name[:20]) == stored.sequence:
            other = fast_path / "m/topics/t/journal" / path.name
            data = path.read_bytes()
    assert other.read_bytes() == data
    decided = decided_log.places.decider().journal.read

    def read(sequence: int) -> object:
        entry = decided(sequence)
        from dataclasses import replace

        return replace(entry, entry=replace(entry.entry, write_id="another"))

    monkeypatch.setattr(decided_log.places.decider().journal, "read", read)
    with pytest.raises(ReplicaNotAvailableError, match="another entry"):
        catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), newest)
    assert roots.values("c") == [b"first"]


def _catch_up_and_die(roots: Replicated, number: int) -> None:
    with killed_before(number):
        roots.log().replicas.sync("t")


@pytest.mark.nightly
@pytest.mark.parametrize("wiped", [False, True])
def test_killed_before_any_change(fast_path: Path, wiped: bool) -> None:
    """What a reader of the root sees is right at every step, and the next process goes on."""
    made = lagging(fast_path / "made", wiped=wiped)
    for number in count(1):
        path = fast_path / str(number)
        shutil.copytree(made.path, path)
        roots = Replicated(path)
        roots.clock.advance(made.clock.now_ms() - roots.clock.now_ms())
        process = start(_catch_up_and_die, roots, number)
        process.join()
        assert process.exitcode in (0, -9)
        if (path / "c/topics/t/journal").exists() and roots.at("c").journal.head() is not None:
            seen = roots.values("c")
            assert seen == expected()[: len(seen)]
        assert roots.log().replicas.sync("t").failed == {}
        whole(roots, expected())
        shutil.rmtree(path)
        if process.exitcode == 0:
            return
