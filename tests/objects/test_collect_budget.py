"""Collecting within a budget: a run ends before any entry, and a later one goes on there."""

from __future__ import annotations

from collections import Counter

import pytest

from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.collect import collect_entries
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.support.ghosts import cleaned, settled, slow, waiting_for_collector
from tests.support.objects import LATER_MS, ObjectWorld, topic_id
from tests.support.records import append, batch_of, stage
from tests.support.verify import verify
from tests.support.world import Recorder, several


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take steps of two entries, and read eight at a time."""
    monkeypatch.setattr(collect_entries, "STEP", 2)
    monkeypatch.setattr(collect_entries, "READ", 8)


def runs(unlocked: ObjectWorld, handle: TopicLog, budget_seconds: float) -> int:
    """Collect until nothing is left; return in how many runs. After each a whole run of entries is there."""
    number = 1
    while not collect(handle, topic_id(handle), budget_seconds=budget_seconds).whole:
        number += 1
        entries = unlocked.entries()
        assert entries == list(range(entries[0], entries[-1] + 1))
        assert unlocked.missing() == set()
        assert number < 200
    return number


@pytest.mark.parametrize("settles", [1, 5, 30])
def test_a_run_that_is_cut_short_is_gone_on_with(unlocked: ObjectWorld, settles: int) -> None:
    """O10: however long ago it was, each run has an entry less, with its chunk, or a block more is read."""
    topic = waiting_for_collector(unlocked, 30, settles)
    seen = Recorder()
    handle = unlocked.handle(several(slow(unlocked, "delete"), seen))
    assert runs(unlocked, handle, 0.0) >= 29
    assert len(unlocked.entries()) == len(unlocked.files(".chunk")) == 2
    assert len(unlocked.numbers(topic)) == 2
    assert len(unlocked.values()) == 30
    verify(unlocked.handle())
    entries = [path for path in seen.paths("delete") if "/t/journal/" in path]
    assert entries == sorted(entries), "ascending"


def test_what_was_settled_alone_goes_with_the_last_of_many(unlocked: ObjectWorld) -> None:
    """Anchor rule: a step of two entries, of which those below were read on the way down, and the other was not."""
    topic = waiting_for_collector(unlocked, 6)
    for _ in range(5):
        append(topic, batch_of([b"v"]))
        settle(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    assert cleaned(unlocked, thorough=False).chunks == 9
    assert len(unlocked.entries()) == len(unlocked.files(".chunk")) == 2


def test_a_run_takes_its_time_and_no_more(unlocked: ObjectWorld) -> None:
    """O10: what a commit waits for is the budget, and the step it is in."""
    topic = waiting_for_collector(unlocked, 30, 5)
    handle = unlocked.handle(slow(unlocked, "delete"))
    began = unlocked.clock.monotonic()
    done = collect(handle, topic_id(topic), budget_seconds=0.4)
    assert not done.whole
    assert done.entries >= 3
    assert unlocked.clock.monotonic() - began <= 0.4 + 3 * 0.05


def test_settle_entries_are_cut_short_as_well(unlocked: ObjectWorld) -> None:
    topic = waiting_for_collector(unlocked, 4)
    unlocked.idle(topic, 10)
    unlocked.clock.advance(LATER_MS)
    handle = unlocked.handle(slow(unlocked, "delete"))
    done = collect(handle, topic_id(topic), budget_seconds=0.0)
    assert done.settle_entries <= 1, "but for the first, all of them name the last entry"
    while not done.whole:
        done = collect(handle, topic_id(topic), budget_seconds=0.0)
        assert done.settle_entries <= 1
    assert len(unlocked.numbers(topic)) == 2
    assert unlocked.not_named() == set()


def test_a_later_run_reads_little_again(unlocked: ObjectWorld) -> None:
    """What was met on the way down is remembered: of many entries each is read twice, and what is looked at next."""
    topic, seen = waiting_for_collector(unlocked, 100), Recorder()
    handle = unlocked.handle(several(slow(unlocked, "delete"), seen))
    runs(unlocked, handle, 0.15)
    read = Counter(int(path[-10:-5]) for path in seen.paths("fetch") if "/t/journal/" in path)
    assert max(read[number] for number in range(1, 95)) <= 5
    assert len(unlocked.entries()) == len(unlocked.files(".chunk")) == 2
    assert handle.collecting(topic_id(topic)).anchors == {}
    assert len(seen.paths("names")) <= 7, "only the first run lists: both journals, and the defaults"


def test_reading_down_is_cut_short_as_well(unlocked: ObjectWorld) -> None:
    """O10: where one settle entry settled many, as after days in which nobody did."""
    topic, seen = waiting_for_collector(unlocked, 100), Recorder()
    handle = unlocked.handle(several(slow(unlocked, "fetch"), seen))
    assert not collect(handle, topic_id(topic), budget_seconds=0.1).whole
    assert seen.paths("delete") == []
    assert len([path for path in seen.paths("fetch") if "/t/journal/" in path]) <= 8 + 4
    assert handle.collecting(topic_id(topic)).anchors.keys() == {93}


def test_another_process_goes_on_too(unlocked: ObjectWorld) -> None:
    """It remembers nothing: so many go whatever the time, unless four times as many have to be read first."""
    waiting_for_collector(unlocked, 80, 4)
    for _ in range(20):
        handle = unlocked.handle(slow(unlocked, "delete", "fetch"))
        left = len(unlocked.entries())
        if collect(handle, topic_id(handle), budget_seconds=0.0, least=5).whole:
            break
        assert len(unlocked.entries()) == max(2, left - 5)
    assert len(unlocked.entries()) == len(unlocked.files(".chunk")) == 2
    handle = unlocked.handle(slow(unlocked, "delete"))
    assert len(unlocked.numbers(handle)) == 2


def test_many_have_to_be_read_before_the_first_goes(unlocked: ObjectWorld) -> None:
    topic = waiting_for_collector(unlocked, 100)
    for least, goes in ((1, 0), (20, 0), (30, 30)):
        handle = unlocked.handle(slow(unlocked, "delete", "fetch"))
        assert collect(handle, topic_id(topic), budget_seconds=0.0, least=least).entries == goes


def test_chunks_are_deleted_once(unlocked: ObjectWorld) -> None:
    """O10: of entries with many chunks each, as a Spark job writes them, one at a time is looked at."""
    topic = unlocked.create(1)
    for _ in range(6):
        staged = [stage(topic, batch_of([b"%d" % number])) for number in range(5)]
        commit(topic, topic_id(topic), staged)
    settle(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    seen = Recorder()
    handle = unlocked.handle(several(slow(unlocked, "delete"), seen))
    assert runs(unlocked, handle, 0.0) >= 5
    deleted = [path for path in seen.paths("delete") if path.endswith(".chunk")]
    assert len(deleted) == len(set(deleted)) == 20


def test_a_collection_ends_where_it_was_to_go_to(unlocked: ObjectWorld) -> None:
    """Commits may come faster than entries go: settle entries, and what they dropped, would stay for ever."""
    topic = waiting_for_collector(unlocked, 20, 5)
    handle = unlocked.handle(slow(unlocked, "delete"))
    for _ in range(40):
        if collect(handle, topic_id(topic), budget_seconds=0.15).whole:
            break
        for _ in range(5):
            append(topic, batch_of([b"v"]))
        settle(topic, topic_id(topic))
        unlocked.clock.advance(LATER_MS)
    else:
        pytest.fail("it never ends")
    assert unlocked.entries()[0] == 20, "it goes on to the newest but two that there was when it began"
    unlocked.clock.advance(LATER_MS)
    runs(unlocked, handle, 0.2)
    assert len(unlocked.entries()) == 2, "the next one has gone on, though nothing was settled since"


def test_settle_entries_that_the_next_collection_needs_stay(unlocked: ObjectWorld) -> None:
    """Anchor rule: commits come while a collection goes on, which ends before theirs; and one of those is lost."""
    topic = waiting_for_collector(unlocked, 20)
    handle = unlocked.handle(slow(unlocked, "delete"))
    assert not collect(handle, topic_id(topic), budget_seconds=0.0).whole
    for _ in range(2):
        for _ in range(20):
            append(topic, batch_of([b"v"]))
        settle(topic, topic_id(topic))
    unlocked.idle(topic, 2)
    unlocked.clock.advance(LATER_MS)
    chunks = {n: topic.chunks(topic.journal.read(n).entry)[0].name for n in unlocked.entries() if n > 1}
    (unlocked.path / topic.journal._path(45)).unlink()
    runs_over_a_gap(handle, topic)
    assert unlocked.entries()[0] == 20
    runs_over_a_gap(handle, topic)
    assert len(unlocked.entries()) == 2
    kept = {chunks[n] for n in chunks if 42 <= n <= 45 or n >= 60}
    assert {path.rpartition("/")[2] for path in unlocked.files(".chunk")} == kept


def runs_over_a_gap(handle: TopicLog, topic: TopicLog) -> None:
    """Collect until that is done."""
    while not collect(handle, topic_id(topic), budget_seconds=0.1).whole:
        pass


def dropping(unlocked: ObjectWorld, *counts: int) -> tuple[TopicLog, Counter[str], Hook]:
    """Return a topic whose settle entries dropped so many objects, before 20 commits, settled and old.

    With it, how often each of these was asked for by a hook, for which that takes 10 ms, as deleting an entry does.
    """
    made = settled(unlocked, 1).settled(topic_id(unlocked.handle()))[1].tail[0].name
    topic = unlocked.handle()
    for at, count in enumerate(counts):
        names = (f"{at:02x}{number:02x}" for number in range(count))
        dropped = tuple(f"objects/{made[: -len('0000.segment')]}{name}.segment" for name in names)
        assert topic.change(topic_id(topic), lambda base, before: Change(before, dropped=dropped)) is not None  # noqa: B023 called at once
    for _ in range(20):
        append(topic, batch_of([b"v"]))
    settle(topic, topic_id(topic))
    unlocked.idle(topic, 2)
    unlocked.clock.advance(LATER_MS)
    asked = Counter[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if operation in ("delete", "info") and moment == "before" and ("/objects/" in path or "/t/journal/" in path):
            asked[path] += "/objects/" in path
            unlocked.clock.advance(10)

    return topic, asked, hook


def test_what_settle_entries_dropped_goes_within_the_budget_too(unlocked: ObjectWorld) -> None:
    """O10: retention, or a compaction, may drop hundreds of objects at once."""
    topic, asked, hook = dropping(unlocked, 200, 200, 200)
    handle, many, least = unlocked.handle(hook), list[int](), 80
    for _ in range(100):
        before = asked.total()
        done = collect(handle, topic_id(topic), budget_seconds=0.2, least=least)
        many.append(asked.total() - before)
        if done.whole:
            break
        least = 1
    assert done.whole
    assert many[0] <= 64 + 8, "some of them, however many entries have to go"
    assert max(many[1:]) <= 20 + 8
    assert asked.total() == 600, "each is asked for once"


def test_what_the_lowest_settle_entry_dropped_is_asked_for_once(unlocked: ObjectWorld) -> None:
    """It stays while entries go that another settled, piece by piece."""
    _, asked, hook = dropping(unlocked, 50)
    assert runs(unlocked, unlocked.handle(hook), 0.0) > 20
    assert asked.total() == 50


def test_where_numbers_are_missing_between_they_are_listed_again(unlocked: ObjectWorld) -> None:
    """A stray that stays for a moment: else each number up to the entries would be asked for."""
    topic = waiting_for_collector(unlocked, 20, 5)
    for number in (3, 4, 5, 6, 7, 8):
        (unlocked.path / topic.journal._path(number)).unlink()
    handle = unlocked.handle(slow(unlocked, "delete"))
    assert not collect(handle, topic_id(topic), budget_seconds=0.0).whole
    assert unlocked.entries()[:2] == [2, 9]
    assert not collect(handle, topic_id(topic), budget_seconds=0.0).whole
    assert not collect(handle, topic_id(topic), budget_seconds=0.0).whole
    assert unlocked.entries()[0] == 10


def test_little_is_held_of_many_entries(unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_entries, "_MOST_ANCHORS", 3)
    topic = waiting_for_collector(unlocked, 100)
    handle = unlocked.handle(slow(unlocked, "delete"))
    memory = handle.collecting(topic_id(topic))
    while not collect(handle, topic_id(topic), budget_seconds=0.0).whole:
        assert len(memory.anchors) <= 3
    assert len(unlocked.entries()) == len(unlocked.files(".chunk")) == 2


@pytest.mark.parametrize("budget_seconds", [None, 0.0])
@pytest.mark.parametrize("lost", [12, 24, 25, 40])
def test_what_is_below_a_lost_entry_goes_by_its_number(
    unlocked: ObjectWorld, lost: int, budget_seconds: float | None
) -> None:
    """Anchor rule: what an entry says counts where it is linked from one that a settle entry names."""
    topic = waiting_for_collector(unlocked, 48, 2)
    unlocked.idle(topic, 2)
    unlocked.clock.advance(LATER_MS)
    chunks = {n: topic.chunks(topic.journal.read(n).entry)[0].name for n in unlocked.entries()[1:]}
    (unlocked.path / topic.journal._path(lost)).unlink()
    handle = unlocked.handle()
    while not collect(handle, topic_id(topic), budget_seconds=budget_seconds).whole:
        assert "" not in handle.collecting(topic_id(topic)).anchors.values(), "it may only have failed to be read"
    end = unlocked.entries()[-1]
    first = 1 if lost <= 25 else 26
    kept = {chunks[n] for n in chunks if first <= n <= lost or n >= end - 1}
    assert {path.rpartition("/")[2] for path in unlocked.files(".chunk")} == kept
    assert len(unlocked.entries()) == 2
    assert len(unlocked.values()) == 48


def test_a_stray_far_below_takes_nothing_along(unlocked: ObjectWorld) -> None:
    """Anchor rule: of what was put late at a number that had been collected nothing is believed, nor read down to."""
    topic = settled(unlocked, 3)
    stray = (unlocked.path / topic.journal._path(3)).read_bytes()
    unlocked.clock.advance(LATER_MS)
    cleaned(unlocked)
    for _ in range(60):
        append(topic, batch_of([b"v"]))
    settle(topic, topic_id(topic))
    unlocked.idle(topic, 2)
    unlocked.clock.advance(LATER_MS)
    cleaned(unlocked)
    (unlocked.path / topic.journal._path(3)).write_bytes(stray)
    for _ in range(30):
        append(topic, batch_of([b"v"]))
    settle(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    asked: set[str] = set()
    handle = unlocked.handle(lambda operation, path, moment: asked.add(path) if operation == "fetch" else None)
    done = collect(handle, topic_id(topic))
    assert (done.entries, len(unlocked.entries())) == (31, 2)
    assert not asked & {topic.journal._path(number) for number in range(14, 52)}
    assert len(unlocked.files(".chunk")) == 2
