"""Collecting without a lock: drops before entries, ascending, of what is linked from the newest down (O6).

Where the model's page has a trace, the test is named by its guard.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.testing.faults import at_call
from pyspark_commitlog.topic.collect.collect import Collected, collect
from pyspark_commitlog.topic.collect.collect_settle_entries import delay_ms, plan_numbers, plan_proof, touch
from pyspark_commitlog.topic.maintain.retention import delete_records, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.state.settle_change import Link
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.ghosts import KilledError, cleaned, die, ghost, settled
from tests.support.objects import LATER_MS, ObjectWorld, split, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import Recorder, once, several


def link(number: int, at_ms: int) -> Link:
    return Link(number, str(number), str(number - 1), at_ms, (0, ""))


def test_the_proof_is_the_newest_that_is_older() -> None:
    links = [link(3, 10), link(4, 20), link(5, 30)]
    assert plan_proof(links, 31, 10) == links[1]
    assert plan_proof(links, 30, 10) == links[0], "older, not as old"
    assert plan_proof(links, 20, 10) is None
    assert plan_proof([link(3, 10), link(4, -1)], 10**9, 10) == link(3, 10), "nobody has looked when"


def test_numbers_go_below_the_proof_and_never_the_newest_two() -> None:
    assert plan_numbers([2, 5, 6, 7, 8], 7) == ([2, 5, 6], 7)
    assert plan_numbers([5, 6, 7, 8], 8) == ([5, 6], 7)
    assert plan_numbers([7, 8], 8) == ([], 7)


def test_a_short_delay_is_ten_seconds() -> None:
    """O7: what tells two files of one name apart needs so much; and a tick of storage's clock."""
    assert delay_ms(TopicConfig({"file.delete.delay.ms": "5"})) == 11_000
    assert delay_ms(TopicConfig({"file.delete.delay.ms": "20000"})) == 21_000


def dropping(unlocked: ObjectWorld, rounds: int = 5) -> TopicLog:
    """Return a topic of which every settle entry but the first has dropped an object, and all are old."""
    topic = settled(unlocked, rounds)
    for offset in range(1, rounds):
        delete_records(topic, topic_id(topic), {0: offset})
        retain(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    return topic


def watched(unlocked: ObjectWorld) -> tuple[Recorder, Callable[[str, str, str], None]]:
    """Return a hook that looks after every delete whether what is named is there, and what was deleted."""
    seen = Recorder()

    def whole(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("delete", "after"):
            assert unlocked.missing() == set(), path

    return seen, several(seen, whole)


def test_drops_go_before_their_entry_ascending(unlocked: ObjectWorld) -> None:
    """O6 ascending, drops_of_all: at no moment does an entry that is there name what is not."""
    topic = dropping(unlocked)
    numbers = unlocked.numbers(topic)
    seen, hook = watched(unlocked)
    done = collect(unlocked.handle(hook), topic_id(topic))
    assert done.settle_entries == len(numbers) - 2
    assert done.segments == 3, "the newest entry's stays"
    assert unlocked.numbers(topic) == numbers[-2:]
    deleted = [path for path in seen.paths("delete") if "/settle/" in path or "/objects/" in path]
    assert [("settle" if "/settle/" in path else "object") for path in deleted[-5:]] == [
        *("object", "settle") * 2, "object",
    ]  # fmt: skip
    assert unlocked.values() == [b"4"]


def test_the_newest_entrys_drops_go_once_another_is_on_top(unlocked: ObjectWorld) -> None:
    """O6 touch, drops_of_lowest: an idle topic lets go of all."""
    topic = dropping(unlocked)
    cleaned(unlocked, thorough=False)
    assert len(unlocked.objects()) == 2
    done = cleaned(unlocked)
    assert (done.segments, unlocked.not_named()) == (1, set())
    newest = unlocked.numbers(topic)[-1]
    for _ in range(3):
        unlocked.clock.advance(LATER_MS)
        assert cleaned(unlocked) in (Collected(), Collected(settle_entries=1))
    assert unlocked.numbers(topic)[-1] == newest, "it is put once"
    verify(unlocked.handle())


def test_nothing_is_put_on_top_before_the_delay(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 2)
    config = topic.config(topic.newest()[1])
    assert touch(topic, topic_id(topic), config) is None, "it has dropped nothing"
    delete_records(topic, topic_id(topic), {0: 1})
    retain(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS - 1)
    assert touch(topic, topic_id(topic), config) is None
    unlocked.clock.advance(1)
    assert touch(topic, topic_id(topic), config) is not None
    unlocked.clock.advance(LATER_MS)
    assert touch(topic, topic_id(topic), config) is None


def test_tables_alone_need_no_entry_on_top(unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry drops those of the one before: that would go on for ever."""
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 20)
    topic = settled(unlocked, 3, partitions=3)
    for _ in range(4):
        unlocked.clock.advance(LATER_MS)
        cleaned(unlocked)
    assert unlocked.numbers(topic) == [3, 4]
    assert len(unlocked.files(".partitions")) == 2
    verify(unlocked.handle())


@pytest.mark.parametrize("deletes", range(1, 12))
def test_a_collector_that_dies_leaves_what_the_next_one_finds(unlocked: ObjectWorld, deletes: int) -> None:
    """O6 drops_first: once the entry is gone nobody knows what it dropped."""
    topic = dropping(unlocked)
    left = [deletes]

    def dies(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("delete", "after") and ("/settle/" in path or "/objects/" in path):
            left[0] -= 1
            if not left[0]:
                die()

    with pytest.raises(KilledError):
        collect(unlocked.handle(dies), topic_id(topic))
    assert unlocked.missing() == set()
    cleaned(unlocked)
    assert unlocked.not_named() == set()
    assert unlocked.values() == [b"4"]


def test_what_a_ghost_drops_is_not_believed(unlocked: ObjectWorld) -> None:
    """O6 chain (ghost_merge): a merge lands at a collected number; its drops are what the newest entry names."""
    settled(unlocked, 2)
    topic = ghost(unlocked, lambda handle: split(handle, 2), 4)
    assert set(topic.settle_journal(topic_id(topic)).read(4).entry.body["drops"])
    unlocked.clock.advance(LATER_MS)
    cleaned(unlocked)
    assert unlocked.numbers(topic) == [5, 6], "it goes by its number"
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1"]


def test_what_a_ghost_settled_is_not_believed(unlocked: ObjectWorld) -> None:
    """O6 chain (ghosts): a settle lands at a collected number; the commit that it settled is not settled."""
    topic = settled(unlocked, 1)
    for value in (b"a", b"b", b"c"):
        append(topic, batch_of([value]))
    ghost(unlocked, lambda handle: settle(handle, topic_id(handle)), 3)
    unlocked.clock.advance(LATER_MS)
    cleaned(unlocked)
    assert unlocked.numbers(topic) == [4, 5]
    assert unlocked.values() == [b"0", b"a", b"b", b"c"]
    verify(unlocked.handle())


def test_a_damaged_entry_ends_what_is_believed(unlocked: ObjectWorld) -> None:
    """What it dropped is the sweeper's; what is below it goes by number."""
    topic = dropping(unlocked)
    numbers = unlocked.numbers(topic)
    path = next(path for path in unlocked.files("/settle/") if path.endswith(f"{numbers[-3]:020d}.json"))
    (unlocked.path / path).write_bytes(b"damaged")
    cleaned(unlocked)
    assert unlocked.numbers(topic)[-1] == numbers[-1] + 1
    assert unlocked.missing() == set()
    assert len(unlocked.not_named()) == 2, "of the damaged entry, and of those below it"
    assert unlocked.values() == [b"4"]


def test_chunks_and_entries_of_what_is_settled_go(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 4)
    unlocked.clock.advance(LATER_MS)
    done = cleaned(unlocked)
    assert (done.chunks, done.entries) == (2, 3), "the first entry has no chunk"
    assert len(unlocked.entries()) == 2
    append(topic, batch_of([b"more"]))
    assert unlocked.values() == [b"0", b"1", b"2", b"3", b"more"]
    assert cleaned(unlocked).chunks == 1, "of the one before: the newest is not settled"
    verify(unlocked.handle())


def test_tables_of_the_topics_journal_go_with_their_entries(
    unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 20)
    topic = settled(unlocked, 4, partitions=3)
    assert len(unlocked.files(".extents")) == 4
    unlocked.clock.advance(LATER_MS)
    assert collect(topic, topic_id(topic)).files >= 2
    assert len(unlocked.files(".extents")) == 2
    assert unlocked.values() == [b"0", b"1", b"2", b"3"] * 3
    verify(unlocked.handle())


def test_a_handle_lists_once(unlocked: ObjectWorld) -> None:
    """LIST is paid for as PUT: in the steady state a settle is not followed by any, nor are entries read twice."""
    topic, seen = settled(unlocked, 3), Recorder()
    handle = unlocked.handle(seen)
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
        settle(handle, topic_id(topic))
        unlocked.clock.advance(LATER_MS)
        seen.calls.clear()
        assert collect(handle, topic_id(topic)).settle_entries >= 1
        assert len(seen.paths("names")) == (0 if number else 2)
    assert len(unlocked.numbers(topic)) == 2
    assert len(unlocked.entries()) == 2
    seen.calls.clear()
    assert collect(handle, topic_id(topic)) == Collected()
    assert seen.paths("delete") == []
    verify(unlocked.handle())


def test_a_thorough_run_lists_each_journal_once(unlocked: ObjectWorld) -> None:
    topic, seen = dropping(unlocked), Recorder()
    handle = unlocked.handle()
    handle.newest()
    handle.settled(topic_id(topic))
    handle.storage = unlocked.storage(seen)
    handle.journal._storage = handle.settle_journal(topic_id(topic))._storage = handle.storage
    collect(handle, topic_id(topic), thorough=True)
    assert len(seen.paths("names")) == 2


def test_two_collectors_at_once(unlocked: ObjectWorld) -> None:
    """They waste work: at every delete of the one, the other goes through."""
    topic = dropping(unlocked)
    for deletes in range(1, 9):
        unlocked.idle(topic, 3)
        unlocked.clock.advance(LATER_MS)
        other = at_call(deletes, once(lambda: cleaned(unlocked)), only=("delete",))
        _, hook = watched(unlocked)
        collect(unlocked.handle(_one_at_a_time(several(other, hook))), topic_id(topic))
        assert unlocked.values() == [b"4"]
    assert unlocked.not_named() == set()


def _one_at_a_time(hook: Callable[[str, str, str], None]) -> Callable[[str, str, str], None]:
    """Return a hook that hears of one file after the other, where several are deleted at once."""
    lock = Lock()

    def alone(operation: str, path: str, moment: str) -> None:
        with lock:
            hook(operation, path, moment)

    return alone


@pytest.mark.parametrize("thorough", [False, True])
def test_an_entry_before_a_gap_stays_until_what_follows_is_old(unlocked: ObjectWorld, thorough: bool) -> None:
    """O6: a replica went on with what was settled elsewhere, and put its next entries after the one that settled them."""
    topic = settled(unlocked, 3)
    unlocked.clock.advance(LATER_MS)
    collect(topic, topic_id(topic))  # it knows where the entries begin: only a thorough one lists them again
    for number in range(6):
        append(topic, batch_of([b"%d" % number]))
    settle(topic, topic_id(topic))
    unlocked.clock.advance(LATER_MS)
    numbers = unlocked.entries()
    missing, late = numbers[-6:-3], numbers[-3:]
    for number in numbers[-6:]:
        path = unlocked.path / topic.journal._path(number)
        if number in missing:
            path.unlink()
        else:
            os.utime(path, ns=(unlocked.clock.now_ms() * 1_000_000,) * 2)
    collect(topic, topic_id(topic), thorough=thorough)
    assert unlocked.entries() == [numbers[-7], *late]
    unlocked.idle(topic)
    unlocked.clock.advance(LATER_MS)
    collect(topic, topic_id(topic), thorough=thorough)
    assert unlocked.entries() == late[-2:]
