"""What a producer's commit with acks=all costs, and what holds between its acknowledgement and the high watermark.

The interleavings, entry n being acknowledged when all in sync have learned it, before any entry states hw = n:

1. The writer goes on: entry n + 1 states it. No entry of its own is put.
2. The writer rests: the thread beside it states it. Meanwhile readers don't see n; nobody waits for n.
3. The writer dies: n is on all in sync. `replicate`, or the next commit of anybody, states it.
4. The leader is lost: whoever is elected has learned n, so n is not void.
5. Two at once: the thread beside it and the next commit want one number. One loses it, looks again, and finds that
   nothing is left to state.
6. A retry of a batch that was written with acks=1 is not sure to be on all in sync: it waits for the high watermark.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.journal.anchor import Moment
from pyspark_commitlog.producer import high_watermark
from pyspark_commitlog.producer.high_watermark import HighWatermark
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.replicated_journal import ReplicatedJournal
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.storage.calls import Calls
from pyspark_commitlog.storage.clock import Backoff
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import batch_of, stage
from tests.support.replicas import LAG_MS, Replicated
from tests.support.syscalls import synced

ROOTS = "abc"


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def test_a_producers_commit_syncs_a_file_and_a_name_at_each_root(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = roots.create(config={})
    for value in (b"1", b"2"):  # the first makes sure of what the topic's maker left
        roots.write(value, hw_later=True, topic=topic)
    seen = synced(monkeypatch, roots.path)
    roots.write(b"3", hw_later=True, topic=topic)
    assert Counter(seen) == {"m": 2, "a": 2, "b": 2, "c": 2}
    assert seen[:2] == ["m", "m"], "the entry is decided before others learn it"
    seen.clear()
    roots.write(b"4", topic=topic)
    assert Counter(seen) == {"m": 4, "a": 4, "b": 4, "c": 4}, "one that states the high watermark puts two entries"


def test_a_commit_asks_the_roots_little(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is made by another thread: what follows one another is one call, and what was put is not read again."""
    topic = roots.create(config={})
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=topic)
    staged, asked, begin = stage(topic, batch_of([b"3"]), everywhere=True), list[str](), Calls._give

    def counted(self: Calls, *args: Any) -> None:
        asked.append(Path(self.url).name)
        begin(self, *args)

    monkeypatch.setattr(Calls, "_give", counted)
    commit(topic, staged.topic_id, [staged], hw_later=True)
    assert Counter(asked) == {"m": 4, "b": 1, "c": 1}, "a turn, the base, the put with its anchor, the newest entry"


def test_a_small_send_asks_no_root_before_it_is_decided(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was the newest a moment ago will do to stage, and who is in sync matters where there is a chunk."""
    asked, begin, decide = list[str](), Calls._give, Places.decide

    def counted(self: Calls, *args: Any) -> None:
        asked.append(Path(self.url).name)
        begin(self, *args)

    def decided(self: Places, *args: Any, **kwargs: Any) -> object:
        before.append(len(asked))
        return decide(self, *args, **kwargs)

    with Producer(path, linger_ms=0) as producer:
        for _ in range(2):
            producer.send("t", b"1").result(30)
        before = list[int]()
        monkeypatch.setattr(Calls, "_give", counted)
        monkeypatch.setattr(Places, "decide", decided)
        producer.send("t", b"2").result(30)
        assert before[0] == 0
        producer.send("t", b"3" * 100_000).result(30)
        assert len(before) == 2
        assert set(asked[: before[1]]) == {"m", "b", "c"}, "else nothing is shown"


def test_a_writer_that_stages_looks_at_its_root_once(roots: Replicated) -> None:
    topic, looked = roots.create(config={}), list[str]()
    roots.write(b"1", topic=topic)
    topic.journal.recent(300)
    roots.hooks["a"] = lambda operation, path, moment: looked.append(operation) if moment == "before" else None
    topic.journal.newest()
    once = list(looked)
    assert once
    looked.clear()
    topic.journal.recent(300)
    assert looked == once


def test_a_writer_stages_by_what_its_root_has_learned(roots: Replicated) -> None:
    """Not by the entry at the high watermark: that would be read as well, and is older than what it commits on."""
    topic, looked = roots.create(config={}), list[str]()
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=topic)
    roots.hooks["a"] = lambda operation, path, moment: looked.append(operation) if moment == "before" else None
    stored = topic.journal.to_stage_by(300)
    assert stored is not None
    assert looked.count("fetch") == 1
    shown = topic.journal.newest()
    assert shown is not None
    assert (shown.sequence, stored.sequence) == (2, 3)


def test_what_was_seen_a_while_ago_is_not_taken_for_what_readers_see(roots: Replicated) -> None:
    """Where a look is a request one is spared; the entry that is remembered may be above the high watermark."""
    journal, writer = roots.create(config={}).journal, roots.topic()
    assert isinstance(journal, ReplicatedJournal)
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=writer)
    head = journal.head()
    assert head is not None
    journal._newest_at = Moment.of(roots.clock)  # as of a bucket
    shown = journal.recent(300)
    assert shown is not None
    assert (shown.sequence, head.sequence) == (2, 3)


def test_nothing_is_read_of_a_root_that_lacks_the_next_entry_alone(roots: Replicated) -> None:
    topic = roots.create(config={})
    for value in (b"1", b"2"):
        roots.write(value, topic=topic)
    looked = list[str]()
    roots.hooks["c"] = lambda operation, path, moment: looked.append(operation) if moment == "before" else None
    roots.write(b"3", hw_later=True, topic=topic)
    assert looked == ["info"] * 2 + ["put_if_absent"] + ["info"] * 2, "none follows it; it is there; the put; both are"
    del roots.hooks["c"]
    journal = roots.path / "c" / "topics" / "t" / "journal"
    newest = max(journal.glob("*.json"))
    shutil.copy(newest, journal / "copy")
    (journal / "copy").replace(newest)  # as of a root that was restored
    last = topic.journal.decided_log().places.newest().entry
    there = topic.journal.decided_log().places.at(roots.id_of("c")).journal
    assert there.stands_before(last) is None
    roots.write(b"4", topic=topic)
    assert roots.values("c") == [b"1", b"2", b"3", b"4"]


def test_a_root_of_another_history_is_found_by_what_follows(roots: Replicated) -> None:
    """Another process had it learn what others decide by now: what was learned last is there as it was."""
    topic = roots.create(config={})
    roots.write(b"1", topic=topic)
    there = topic.journal.decided_log().places.at(roots.id_of("c")).journal
    last = topic.journal.decided_log().places.newest().entry
    assert there.stands_before(last) is not None
    roots.write(b"2")
    assert there.stands_before(last) is None


def test_a_chunk_and_its_name_are_synced_once_at_each_root(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = roots.create()
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=topic)
    seen = synced(monkeypatch, roots.path)
    staged = stage(topic, batch_of([b"3"]), everywhere=True)
    assert Counter(seen) == {"a": 2, "b": 2, "c": 2}
    commit(topic, staged.topic_id, [staged], hw_later=True)
    assert Counter(seen) == {"m": 2, "a": 4, "b": 4, "c": 4}


def test_a_chunk_that_another_process_staged_is_synced_by_the_one_that_counts_it(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = roots.create()
    for value in (b"1", b"2"):
        roots.write(value, hw_later=True, topic=topic)
    staged = stage(topic, batch_of([b"3"]), everywhere=True)
    assert staged.chunk is not None
    there = roots.path / "b" / topic.paths(staged.topic_id).chunk(staged.chunk.name)
    shutil.copy(there, there.with_name("copy"))
    there.with_name("copy").replace(there)  # another file under its name, as of a root that was copied
    seen = synced(monkeypatch, roots.path)
    commit(topic, staged.topic_id, [staged], hw_later=True)
    assert Counter(seen) == {"m": 2, "a": 2, "b": 4, "c": 2}


def test_the_replicas_learn_at_the_same_time(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"1", hw_later=True, topic=topic)
    together, learning = threading.Barrier(len(ROOTS)), list[str]()

    def at(root: str) -> None:
        def hook(operation: str, path: str, moment: str) -> None:
            if operation == "put_if_absent" and moment == "before":
                together.wait(10)  # breaks, where one of them begins after another has ended
                learning.append(root)

        roots.hooks[root] = hook

    for root in ROOTS:
        at(root)
    roots.write(b"2", hw_later=True, topic=topic)
    assert sorted(learning) == list(ROOTS)


def test_the_next_commit_states_the_high_watermark(roots: Replicated) -> None:
    topic = roots.create()
    first = roots.write(b"1", hw_later=True, topic=topic).sequence
    assert roots.values("a") == []
    second = roots.write(b"2", hw_later=True, topic=topic).sequence
    assert (first, second) == (2, 3), "no entry between them"
    assert [roots.values(root) for root in ROOTS] == [[b"1"]] * 3


def test_what_a_writer_that_died_has_acknowledged_is_shown_by_replicate(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1", hw_later=True)
    assert roots.values("a") == []
    roots.log("b").replicas.sync("t")
    assert [roots.values(root) for root in ROOTS] == [[b"1"]] * 3


def test_what_is_acknowledged_below_no_high_watermark_outlives_an_election(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1", hw_later=True)
    roots.take_away("a")
    roots.write(b"2", topic=roots.topic("b"))
    assert roots.leader() != "a"
    assert [roots.values(root) for root in "bc"] == [[b"1", b"2"]] * 2


def test_a_retry_of_what_was_written_with_acks_1_waits_for_the_high_watermark(roots: Replicated) -> None:
    roots.create()
    writer = Transaction("txn:app", 1, False)
    roots.write(b"1", writer=writer, acks_all=False, hw_later=True)
    assert roots.values("a") == []
    assert roots.write(b"1", writer=writer, hw_later=True).skipped
    assert [roots.values(root) for root in ROOTS] == [[b"1"]] * 3


def test_two_that_state_it_at_once_put_one_entry(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1", hw_later=True)
    one, other = roots.decided_log(), roots.decided_log()
    one.pusher.push()
    other.state_hw()
    one.pusher.raise_hw(one.places.newest())
    kinds = [stored.entry.kind for stored in map(other.places.decider().journal.read, range(1, 4))]
    assert kinds == ["create", "append", "hw"]
    assert other.places.newest().sequence == 3


def test_what_a_root_that_is_away_keeps_from_readers_is_stated_when_it_is_out(roots: Replicated) -> None:
    roots.create()
    roots.take_away("c")
    roots.write(b"1", acks_all=False, hw_later=True)
    assert not roots.decided_log().state_hw()
    assert roots.values("a") == []
    roots.clock.advance(LAG_MS)
    assert roots.decided_log().state_hw()
    assert (roots.isr(), roots.values("a"), roots.values("b")) == ("ab", [b"1"], [b"1"])


# --- beside a producer ----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    places = [str(tmp_path / name) for name in ROOTS]
    CommitLog.create(places, [str(tmp_path / "m")]).create_topic("t", 1)
    return places[0]


def entries(root: Path) -> int:
    return len(list((root / "topics" / "t" / "journal").glob("*")))


def seen(root: Path) -> list[bytes | None]:
    return [record.value for record in CommitLog(str(root)).topic("t").read(0, 0, 100)]


def test_flush_returns_when_readers_see_it(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(high_watermark, "LINGER_SECONDS", 600)
    with Producer(path, linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
        assert seen(tmp_path / "a") == []
        assert producer.flush() == 0
        assert [seen(tmp_path / root) for root in ROOTS] == [[b"1"]] * 3
        producer.send("t", b"2").result(30)
    assert [seen(tmp_path / root) for root in ROOTS] == [[b"1", b"2"]] * 3, "so does close"


def test_flush_returns_when_readers_see_it_though_the_first_tries_to_state_it_fail(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(high_watermark, "LINGER_SECONDS", 600)
    monkeypatch.setattr(high_watermark, "_BACKOFF", Backoff(0.01, 60.0))
    failures, state_hw = [OSError("injected")] * 3, DecidedLog.state_hw

    def fails(decided_log: DecidedLog) -> None:
        if failures:
            raise failures.pop()
        state_hw(decided_log)

    monkeypatch.setattr(DecidedLog, "state_hw", fails)
    with Producer(path, linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
        assert producer.flush() == 0
        assert seen(tmp_path / "b") == [b"1"]
    assert not failures
    assert "readers do not see" not in caplog.text


def test_flush_tells_where_readers_do_not_see_it_in_time(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was acknowledged is not lost: nothing is under way, and no future fails."""
    monkeypatch.setattr(high_watermark, "LINGER_SECONDS", 600)
    with Producer(path, linger_ms=0) as producer:
        assert producer.send("t", b"1").result(30).has_offset()
        (tmp_path / "m").rename(tmp_path / "away")
        assert producer.flush(0.1) == 0
        assert "readers do not see all records of topics 't' yet" in caplog.text
        used = producer._accumulators["t"]
        assert not used.rest(used._used + 1000), "it is not let go of while something is to be stated"
        (tmp_path / "away").rename(tmp_path / "m")
        caplog.clear()
        assert producer.flush() == 0
        assert seen(tmp_path / "b") == [b"1"]
        assert used.rest(used._used + 1000)
    assert "readers do not see" not in caplog.text


def test_flush_does_not_wait_for_a_follower_and_what_it_keeps_back_is_tried_again(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(high_watermark, "_BACKOFF", Backoff(0.01, 60.0))
    (tmp_path / "c").rename(tmp_path / "away")
    with Producer(path, linger_ms=0, acks=1) as producer:
        producer.send("t", b"1").result(30)
        assert producer.flush(60) == 0
        assert seen(tmp_path / "a") == []
        (tmp_path / "away").rename(tmp_path / "c")
        until = time.monotonic() + 60
        while seen(tmp_path / "c") != [b"1"]:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_readers_see_it_soon_without_a_flush(path: str, tmp_path: Path) -> None:
    with Producer(path, linger_ms=0) as producer:
        producer.send("t", b"1").result(30)
        until = time.monotonic() + 30
        while seen(tmp_path / "b") != [b"1"]:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_one_who_sends_one_by_one_puts_an_entry_for_each(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(high_watermark, "LINGER_SECONDS", 600)  # none of them is late
    with Producer(path, linger_ms=0) as producer:
        producer._opened("t").delivery.watermark._since  # noqa: B018 opened before it is timed
        for _ in range(20):
            producer.send("t", b"1").result(30)
        many = entries(tmp_path / "m")
    assert many == 1 + 20, "an entry for the high watermark comes only where the next one is late"


class _Topic:
    """Counts what is stated; fails as often as it is to."""

    def __init__(self, failures: int = 0) -> None:
        self.stated, self.failures, self.journal = 0, failures, self

    def decided_log(self) -> _Topic:
        return self

    def state_hw(self) -> bool:
        if self.failures:
            self.failures -= 1
            raise OSError("injected")
        self.stated += 1
        return True


def job(monkeypatch: pytest.MonkeyPatch, topic: _Topic) -> tuple[HighWatermark, list[float]]:
    """Return a job that is run by hand, and the pauses that it asks for."""
    made, asked = HighWatermark(LocalStorage("never-touched"), "t"), list[float]()
    made._topic = topic  # type: ignore[assignment]
    monkeypatch.setattr(made, "_ask", asked.append)
    return made, asked


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time_is = [100.0]
    monkeypatch.setattr(high_watermark, "monotonic", lambda: time_is[0])
    return time_is


def test_nothing_is_stated_while_a_commit_is_under_way_or_has_just_ended(
    monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    topic = _Topic()
    stater, asked = job(monkeypatch, topic)
    stater.begins()
    stater.ends(committed=True)
    stater.run()
    assert (topic.stated, asked) == (0, [0.02, pytest.approx(0.02)])
    now[0] += 1
    stater.begins()
    stater.run()
    assert topic.stated == 0
    stater.ends(committed=False)
    now[0] += 1
    stater.run()
    stater.run()
    assert topic.stated == 1


def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    topic = _Topic(failures=2)
    stater, asked = job(monkeypatch, topic)
    stater.ends(committed=True)
    now[0] += 1
    for _ in range(3):
        stater.run()
    assert (topic.stated, asked[1:]) == (1, [1.0, 2.0])


def test_a_failure_is_tried_again_soon_while_a_flush_waits(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    topic = _Topic(failures=4)
    stater, asked = job(monkeypatch, topic)
    stater.ends(committed=True)
    now[0] += 1
    stater.run()
    stater.run()
    flush = threading.Thread(target=stater.flush, args=[30])
    flush.start()
    while not stater._flushing:
        time.sleep(0.001)
    stater.run()
    stater.run()
    assert flush.is_alive(), "it is not stated yet"
    stater.run()
    flush.join(30)
    assert (flush.is_alive(), topic.stated, stater._flushing) == (False, 1, [])
    assert asked[1:] == [1.0, 2.0, 0.0, 1.0, 1.0]


def test_a_flush_waits_for_what_is_being_stated(monkeypatch: pytest.MonkeyPatch, now: list[float]) -> None:
    topic, stating, go_on = _Topic(), threading.Event(), threading.Event()
    stater = HighWatermark(LocalStorage("never-touched"), "t")
    stater._topic = topic  # type: ignore[assignment]
    state_hw = topic.state_hw

    def slow() -> bool:
        stating.set()
        assert go_on.wait(10)
        return state_hw()

    monkeypatch.setattr(topic, "state_hw", slow)
    stater.ends(committed=True)
    now[0] += 1
    assert stating.wait(10)
    flush = threading.Thread(target=stater.flush, args=[10])
    flush.start()
    flush.join(0.2)
    assert flush.is_alive(), "readers don't see it yet"
    go_on.set()
    flush.join(10)
    assert (flush.is_alive(), topic.stated) == (False, 1)


def test_the_high_watermarks_of_two_topics_are_stated_at_the_same_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    CommitLog(path).create_topic("u", 1)
    together, state_hw = threading.Barrier(2), DecidedLog.state_hw

    def met(decided_log: DecidedLog) -> bool:
        together.wait(30)  # breaks, where one waits for the other
        return state_hw(decided_log)

    monkeypatch.setattr(DecidedLog, "state_hw", met)
    with Producer(path, linger_ms=0) as producer:
        for topic in "tu":
            producer.send(topic, b"1")
        assert producer.flush() == 0
    assert not together.broken
    assert [[record.value for record in CommitLog(path).topic(topic).read(0, 0, 10)] for topic in "tu"] == [[b"1"]] * 2
