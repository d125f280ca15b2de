"""When writers settle on storage without append: few looks, and the process that settled last goes on (O13)."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.journal import own_writes
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.collect import collect_entries
from pyspark_commitlog.topic.maintain.settle import _collect_some, settle, settle_after_commit
from pyspark_commitlog.topic.settle.settle_load import SettleLoad, Waiting, is_look_due, process_topics, waiting_of
from pyspark_commitlog.topic.state.settle_change import Collecting
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.ghosts import slow, waiting_for_collector
from tests.support.objects import ObjectWorld, UnknownMount, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import failing

CONFIG = TopicConfig({"settle.bytes": "1000", "settle.entries": "10", "settle.ms": "60000"})
ENTRIES = {"settle.entries": 10, "retention.ms": -1}


@pytest.fixture(autouse=True)
def a_new_process() -> Iterator[None]:
    process_topics.renew()
    own_writes.own_puts.renew()
    yield
    process_topics.renew()
    own_writes.own_puts.renew()


def looked(entries: int = 0, age_ms: int = 0, times: float = 1.0) -> Waiting:
    waiting = Waiting(drawn=0.5)
    waiting.looked(SettleLoad(0, entries, age_ms), CONFIG, 100.0, times)
    return waiting


def test_a_process_that_knows_nothing_looks() -> None:
    waiting = Waiting(drawn=0.5)
    waiting.committed(1, 1)
    assert waiting.may_be_due(0.0)


def test_it_looks_when_its_own_commits_may_be_enough() -> None:
    waiting = looked(entries=3)
    waiting.committed(6, 1)
    assert not waiting.may_be_due(100.0)
    waiting.committed(1, 1)
    assert waiting.may_be_due(100.0)


def test_it_looks_when_its_own_bytes_may_be_enough() -> None:
    waiting = looked()
    waiting.committed(1, 999)
    assert not waiting.may_be_due(100.0)
    waiting.committed(1, 1)
    assert waiting.may_be_due(100.0)


def test_it_looks_when_the_oldest_may_have_waited_long_enough() -> None:
    waiting = looked(entries=1, age_ms=20_000)
    assert not waiting.may_be_due(139.9)
    assert waiting.may_be_due(140.0)


def test_the_age_of_what_was_settled_does_not_count() -> None:
    waiting = looked(entries=0, age_ms=20_000)
    waiting.committed(1, 1)
    assert not waiting.may_be_due(140.0)


def test_another_process_waits_two_to_three_times_as_long() -> None:
    """O13: else all writers settle the same at once, and all but one of them in vain."""
    waiting = Waiting(drawn=0.5)
    waiting.published = "mine"
    assert waiting.times("mine", first=False) == 1.0
    assert waiting.times("another", first=False) == 2.5
    assert waiting.times("of the creation", first=True) == 1.0
    patient = looked(times=2.5)
    patient.committed(24, 1)
    assert not patient.may_be_due(100.0)
    patient.committed(1, 1)
    assert patient.may_be_due(100.0)


def test_a_commit_collects_once_in_ten_minutes() -> None:
    waiting = Waiting(drawn=0.5)
    assert [waiting.collects(at) for at in (0.0, 1.0, 599.9, 600.0, 601.0)] == [True, False, False, True, False]


def test_a_collection_that_is_cut_short_goes_on_for_most_of_the_time() -> None:
    """O10: it rests half as long as it was at work."""
    waiting, left = Waiting(drawn=0.5), Collecting("id")
    assert not waiting.goes_on_collecting(0.0), "nothing has begun"
    assert waiting.collects(0.0)
    waiting.collected(0.0, 1.0, left)
    assert [waiting.goes_on_collecting(at) for at in (1.4, 1.5)] == [False, True]
    assert [waiting.collects(at) for at in (1.4, 1.5)] == [False, True]
    assert not waiting.goes_on_collecting(1.6), "it is at work"
    waiting.collected(1.5, 2.0, None)
    assert not waiting.goes_on_collecting(599.9)
    assert [waiting.collects(at) for at in (599.9, 600.0)] == [False, True]


def test_a_collection_that_took_long_is_followed_by_another() -> None:
    waiting = Waiting(drawn=0.5)
    for at in range(0, 1000, 100):
        assert waiting.collects(float(at))
        waiting.collected(at, at + 1, Collecting("id") if at < 900 else None)
    assert waiting.collects(901.0)


def test_a_collection_that_does_not_end_takes_more_time() -> None:
    """O10: entries are deleted one after the other; commits of several writers may come faster."""
    waiting, budgets = Waiting(drawn=0.5), []
    for at in range(2000):
        assert waiting.collects(float(at))
        budgets.append(waiting.budgets)
        waiting.collected(at, at + 0.1, Collecting("id"))
    assert [budgets.index(times) for times in (1, 2, 3, 10)] == [0, 100, 200, 900]
    assert max(budgets) == 10
    assert waiting.collects(2000.0)
    waiting.collected(2000.0, 2000.1, None)
    assert waiting.collects(2600.0)
    assert waiting.budgets == 1, "another one"


def test_a_collection_that_fails_under_way_goes_on_soon() -> None:
    waiting, left = Waiting(drawn=0.5), Collecting("id")
    assert waiting.collects(0.0)
    waiting.failed(0.0)
    assert not waiting.goes_on_collecting(599.9), "as where nobody may delete"
    assert waiting.collects(600.0)
    waiting.collected(600.0, 601.0, left)
    assert waiting.collects(602.0)
    waiting.failed(602.0)
    assert waiting.left is left
    assert [waiting.goes_on_collecting(at) for at in (631.9, 632.0)] == [False, True]
    assert waiting.collects(632.0)
    waiting.failed(632.0)
    assert [waiting.collects(at) for at in (700.0, 1232.0)] == [False, True]
    assert waiting.left is None, "what it was to go to is old by then"


def test_the_first_collection_of_a_process_that_may_end_soon_takes_more_than_it_settles() -> None:
    """Else of processes that commit a few times each none would ever delete what they bring."""
    waiting = Waiting(drawn=0.5)
    waiting.committed(1, 1)
    assert waiting.min_entries_to_collect(SettleLoad(0, 25, 0), CONFIG) == 25 + 6 - 4
    assert waiting.min_entries_to_collect(SettleLoad(0, 1000, 0), CONFIG) == 30 + 7 - 4, (
        "three times settle.entries at most"
    )
    waiting.committed(7, 1)
    assert waiting.min_entries_to_collect(SettleLoad(0, 25, 0), CONFIG) == 1
    young = Waiting(drawn=0.5)
    assert young.collects(0.0)
    young.failed(0.0)
    assert young.min_entries_to_collect(SettleLoad(0, 25, 0), CONFIG) == 31, "it collected nothing"
    young.collected(0.0, 1.0, None)
    assert young.min_entries_to_collect(SettleLoad(0, 25, 0), CONFIG) == 1, "it was not the first"


# --- in a root --------------------------------------------------------------------------------------------


def commit(topic: TopicLog, number: int) -> None:
    """Commit ten records, as a writer does."""
    append(topic, batch_of([b"%d" % number] * 10, partition=[0] * 10))
    if is_look_due(topic.storage, topic_id(topic), 1000):
        settle_after_commit(topic, topic_id(topic))


def settles(unlocked: ObjectWorld) -> int:
    return unlocked.handle().settle_journal(topic_id(unlocked.handle())).sequences()[-1] - 1


def test_a_writer_settles_every_so_many_entries(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, ENTRIES)
    for number in range(40):
        commit(topic, number)
    assert settles(unlocked) == 4
    assert len(unlocked.values()) == 400
    verify(unlocked.handle())


def test_a_second_writer_waits_for_the_first(unlocked: ObjectWorld) -> None:
    unlocked.create(1, ENTRIES)
    first, second = unlocked.handle(), unlocked.handle()
    for number in range(10):
        commit(first, number)
    assert settles(unlocked) == 1
    process_topics.renew()
    for number in range(19):
        commit(second, number)
    assert settles(unlocked) == 1
    for number in range(11):
        commit(second, number)
    assert settles(unlocked) == 2, "the first one is gone: it settles after all"


def test_between_looks_a_commit_makes_no_request_for_settling(unlocked: ObjectWorld) -> None:
    unlocked.create(1, ENTRIES)
    calls: Counter[str] = Counter()

    def count(operation: str, path: str, moment: str) -> None:
        if moment == "before":
            calls[operation] += 1

    topic = unlocked.handle(count)
    commit(topic, 0)
    before = Counter(calls)
    assert not is_look_due(topic.storage, topic_id(unlocked.handle()), 1000)
    assert calls == before


def test_only_ten_minutes_later_a_commit_collects_again(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, {**ENTRIES, "file.delete.delay.ms": 10_000})
    for number in range(20):
        commit(topic, number)
    unlocked.clock.advance(30_000)
    for number in range(10):
        commit(topic, number)
    entries = len(unlocked.entries())
    assert entries > 10
    unlocked.clock.advance(600_000)
    for number in range(20):
        commit(topic, number)
    assert len(unlocked.entries()) < entries
    assert waiting_of(topic.storage, topic_id(topic)).published == topic.published


def test_later_commits_go_on_with_a_collection(unlocked: ObjectWorld) -> None:
    """O10: each for as long as settling may add to it; what is due to be settled is settled meanwhile."""
    topic = unlocked.create(1, {**ENTRIES, "file.delete.delay.ms": 10_000})
    for number in range(120):
        commit(topic, number)
    unlocked.clock.advance(600_000)
    slow = unlocked.handle(lambda *call: _takes(unlocked, *call))
    longest, waits, before = 0.0, 0, unlocked.entries()[0]
    for number in range(60):
        began = unlocked.clock.monotonic()
        commit(slow, number)
        longest = max(longest, unlocked.clock.monotonic() - began)
        waits = max(waits, unlocked.entries()[-1] - unlocked.settled().others_from + 1)
        unlocked.clock.advance(400)
    assert before + 120 <= unlocked.entries()[0]
    assert longest <= 0.2 + 0.05
    assert waits < 10, "what is due is settled meanwhile"
    assert len(unlocked.values()) == 1800
    verify(unlocked.handle())


@pytest.mark.parametrize("commits", [1, 7, 1000])
@pytest.mark.parametrize("is_kept", [True, False], ids=["a handle", "a handle for each commit"])
def test_no_more_entries_are_left_than_before(
    unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch, commits: int, is_kept: bool
) -> None:
    """O10: whether one process commits all, or each of them a few; all requests take time."""
    monkeypatch.setattr(collect_entries, "READ", 8)
    monkeypatch.setattr(UnknownMount, "jitter", lambda self: 0.5)
    topic = unlocked.create(1, {**ENTRIES, "file.delete.delay.ms": 10_000})
    for number in range(100):
        commit(topic, number)
    unlocked.clock.advance(600_000)
    for number in range(300):
        if number % commits == 0:
            process_topics.renew()
            own_writes.own_puts.renew()
        if number % commits == 0 or not is_kept:
            handle = unlocked.handle(lambda *call: _takes(unlocked, *call))
        commit(handle, number)
        unlocked.clock.advance(6000)
    assert len(unlocked.entries()) <= 130, "100 commits come in ten minutes"
    assert len(unlocked.numbers(topic)) <= 20


def test_another_handle_goes_on_with_a_collection(unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's sink has a handle for each commit: what one of them read on the way down is not read again."""
    monkeypatch.setattr(collect_entries, "READ", 8)
    topic, waiting = waiting_for_collector(unlocked, 100), Waiting(drawn=0.5)
    for _ in range(15):
        assert unlocked.entries()[0] == 1
        _collect_some(unlocked.handle(slow(unlocked, "fetch")), topic_id(topic), waiting, budget_seconds=0.1, least=1)
        assert waiting.left is not None
        unlocked.clock.advance(6000)
        if unlocked.entries()[0] > 1:
            break
    else:
        pytest.fail("it does not get down")
    while waiting.left is not None:
        _collect_some(unlocked.handle(), topic_id(topic), waiting, budget_seconds=0.1, least=1)
        unlocked.clock.advance(6000)
    assert len(unlocked.entries()) == 2


def test_a_collection_that_fails_is_gone_on_with(unlocked: ObjectWorld) -> None:
    topic, waiting = waiting_for_collector(unlocked, 20), Waiting(drawn=0.5)
    _collect_some(unlocked.handle(), topic_id(topic), waiting, budget_seconds=0.0, least=1)
    assert waiting.left is not None
    unlocked.clock.advance(1000)
    with pytest.raises(StorageError):
        _collect_some(
            unlocked.handle(on_path("/t/journal/", "delete", failing())), topic_id(topic), waiting, 0.0, least=1
        )
    unlocked.clock.advance(30_000)
    assert waiting.goes_on_collecting(unlocked.clock.monotonic())


def _takes(unlocked: ObjectWorld, operation: str, path: str, moment: str) -> None:
    if (operation, moment) == ("delete", "after") and "/t/journal/" in path:
        unlocked.clock.advance(50)


def test_a_commit_collects_where_nothing_can_be_merged(unlocked: ObjectWorld, caplog: pytest.LogCaptureFixture) -> None:
    topic = unlocked.create(1, {**ENTRIES, "file.delete.delay.ms": 10_000})
    for number in range(70):
        commit(topic, number)
    unlocked.flip(unlocked.settled().tail[0].name)
    entries = len(unlocked.entries())
    unlocked.clock.advance(600_000)
    for number in range(10):
        commit(topic, number)
    assert "CRC" in caplog.text
    assert len(unlocked.entries()) < entries
    assert waiting_of(topic.storage, topic_id(topic)).published == topic.published
    assert not waiting_of(topic.storage, topic_id(topic)).may_be_due(unlocked.clock.monotonic())


def test_after_a_settle_its_process_counts_from_there(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, ENTRIES)
    for number in range(10):
        commit(topic, number)
    assert settles(unlocked) == 1
    assert not waiting_of(topic.storage, topic_id(topic)).may_be_due(unlocked.clock.monotonic())


# --- requests ---------------------------------------------------------------------------------------------


def test_settling_costs_two_puts_and_a_few_looks(unlocked: ObjectWorld) -> None:
    """Ten records a commit: 0.1 PUT at most for each, and no read of what this process put itself."""
    unlocked.create(3, {"retention.ms": -1})
    calls: list[tuple[str, str]] = []

    def note(operation: str, path: str, moment: str) -> None:
        if moment == "before":
            calls.append((operation, path))

    topic = unlocked.handle(note)
    runs: list[Counter[str]] = []
    for number in range(321):
        append(topic, batch_of([b"%d" % number] * 10, partition=[n % 3 for n in range(10)]))
        calls.clear()
        if is_look_due(topic.storage, topic_id(unlocked.handle()), 1000):
            settle_after_commit(topic, topic_id(unlocked.handle()))
            runs.append(Counter(operation for operation, _ in calls))
    assert len(runs) == 6, "a look at the first commit, and five times it was due"
    assert sum(run["create"] + run["put_if_absent"] + run["write_once"] for run in runs) <= 0.1 * 321
    for run in runs[2:]:
        assert (run["create"], run["put_if_absent"], run["write_once"]) == (1, 1, 0)
        assert run["fetch"] + run["info"] <= 24
        assert run["read"] == run["map"] == run["names"] == 0
    assert len(unlocked.values()) == 3210
    verify(unlocked.handle())


def test_what_another_process_put_is_read(unlocked: ObjectWorld) -> None:
    unlocked.create(1, ENTRIES)
    for number in range(5):
        append(unlocked.handle(), batch_of([b"%d" % number]))
    own_writes.own_puts.renew()
    for number in range(5, 10):
        append(unlocked.handle(), batch_of([b"%d" % number]))
    reads: list[str] = []
    topic = unlocked.handle(lambda operation, path, moment: reads.append(path) if operation == "fetch" else None)
    settle_after_commit(topic, topic_id(topic))
    numbers = {int(path[-10:-5]) for path in reads if "/journal/" in path}
    assert numbers >= {2, 3, 4, 5, 6}
    assert not numbers & {7, 8, 9, 10}
    assert unlocked.values() == [b"%d" % number for number in range(10)]


def test_what_was_put_before_a_restore_is_not_taken_for_what_is_there(unlocked: ObjectWorld) -> None:
    """Else a settler would settle records of a history that is over."""
    unlocked.create(1, ENTRIES)
    copy = unlocked.path.parent / "copy"
    shutil.copytree(unlocked.path, copy)
    for value in (b"lost", b"lost too"):
        append(unlocked.handle(), batch_of([value]))
    shutil.rmtree(unlocked.path)
    copy.rename(unlocked.path)
    put_here = own_writes.own_puts.value
    own_writes.own_puts.renew()
    for value in (b"a", b"b", b"c"):
        append(unlocked.handle(), batch_of([value]))
    own_writes.own_puts.value = put_here
    topic = unlocked.handle()
    assert settle(topic, topic_id(topic)).records == 3
    assert unlocked.values() == [b"a", b"b", b"c"]
    verify(unlocked.handle())


def test_a_budget_of_time_makes_no_tiny_objects(unlocked: ObjectWorld) -> None:
    """What costs is the request: a run that has begun settles all that is due, whatever the time."""
    topic = unlocked.create(3, {**ENTRIES, "settle.budget.ms": 0})
    for number in range(10):
        append(topic, batch_of([b"%d" % number] * 3, partition=[0, 1, 2]))
    assert settle_after_commit(topic, topic_id(topic)).records == 30
    assert len(unlocked.objects()) == 1
