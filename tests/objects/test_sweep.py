"""Sweeping without a lock: below a floor that counts, and named by no entry that is retained (O4).

Where the model's page has a trace, the test is named by its guard.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.paths import TopicPaths, manifest_name, object_name, side_name
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.testing.faults import Hook, on_path
from pyspark_commitlog.topic.collect.collect import collect, linked_from, sweep, sweep_tables
from pyspark_commitlog.topic.collect.sweep_objects import retention_ms, sweep_objects
from pyspark_commitlog.topic.maintain.retention import delete_records, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.settle.pieces import tail_to_own
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.side_files import side_files
from pyspark_commitlog.topic.state.topic_state import Mark, plan_floor
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.ghosts import KilledError, die, ghost, settled
from tests.support.objects import LATER_MS, ObjectWorld, copied, own, split, topic_id
from tests.support.records import append, batch_of, stage
from tests.support.verify import verify
from tests.support.world import RETENTION_MS, Recorder, once, raising

OURS = "11111111-1111-4111-8111-111111111111"


def swept(unlocked: ObjectWorld, hook: Hook | None = None) -> int | None:
    topic = unlocked.handle(hook)
    return sweep_objects(topic, topic_id(topic))


def aged(unlocked: ObjectWorld, rounds: int = 3, partitions: int = 1) -> TopicLog:
    """Return a topic whose settle entries are far enough apart to be marked, each."""
    topic = unlocked.create(partitions)
    for number in range(rounds):
        append(topic, batch_of([b"%d" % number] * partitions, partition=list(range(partitions))))
        unlocked.clock.advance(RETENTION_MS // 4)
        settle(topic, topic_id(topic))
    unlocked.clock.advance(RETENTION_MS // 4)
    return topic


def stray(unlocked: ObjectWorld, topic: TopicLog, number: int) -> str:
    """Leave an object that nobody named, begun at this settle number; return its path."""
    path = f"objects/{object_name(number, OURS)}"
    unlocked.storage().write_once(f"{topic.paths(topic_id(topic)).home}/{path}", b"an attempt's")
    return path


def test_what_nobody_named_goes_once_the_floor_has_passed_it(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    split(topic, 1)
    below, above = stray(unlocked, topic, 2), stray(unlocked, topic, 5)
    unlocked.clock.advance(RETENTION_MS - 1)
    assert swept(unlocked) is None
    unlocked.clock.advance(1)
    assert swept(unlocked) == 1
    assert unlocked.settled().files_floor == 5
    assert (unlocked.has(topic, below), unlocked.has(topic, above)) == (False, True)
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1", b"2"]
    verify(unlocked.handle())


@pytest.mark.parametrize(
    "path",
    [
        lambda number: f"objects/{object_name(number, OURS)}",
        lambda number: f"manifests/{manifest_name(0, number, OURS)}",
        lambda number: f"side/{side_name(number, OURS, 'damaged')}",
    ],
    ids=["object", "manifest", "table"],
)
def test_what_was_begun_at_the_floor_stays(unlocked: ObjectWorld, path: Callable[[int], str]) -> None:
    """O4 floor: an operation that began there may name it yet; one below it is refused."""
    topic = settled(unlocked, 3)
    home = topic.paths(topic_id(topic)).home
    for number in (3, 4):
        unlocked.storage().write_once(f"{home}/{path(number)}", b"an attempt's")
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 1
    assert unlocked.settled().files_floor == 4
    assert (unlocked.has(topic, path(3)), unlocked.has(topic, path(4))) == (False, True)


def test_while_the_floor_stays_nothing_is_listed(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 0
    stray(unlocked, topic, 2)
    seen = Recorder()
    assert swept(unlocked, seen) is None
    assert [path for path in seen.paths("names") if not path.endswith(("/settle", "/journal"))] == []
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 1


def test_a_sweep_that_is_overtaken_while_it_reads_deletes_nothing(unlocked: ObjectWorld) -> None:
    """The manifest that it was about to read is gone, with the entry that named it."""
    topic = settled(unlocked, 3)
    split(topic, 1)
    below = stray(unlocked, topic, 2)
    unlocked.clock.advance(RETENTION_MS)
    hook = on_path("/manifests/", "read", raising(FileNotFoundError("collected")))
    assert swept(unlocked, hook) == 0
    assert unlocked.has(topic, below)
    unlocked.idle(topic, 1)
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 1
    assert not unlocked.has(topic, below)


def test_a_short_retention_is_an_hour() -> None:
    assert retention_ms(TopicConfig({"staged.retention.ms": "5"})) == RETENTION_MS
    assert retention_ms(TopicConfig({"staged.retention.ms": "7200000"})) == 2 * RETENTION_MS


def test_an_entry_whose_time_is_not_known_raises_no_floor() -> None:
    assert plan_floor([Mark(3, 10), Mark(4, -1)], 110, 100) == 3
    assert plan_floor([Mark(3, 11)], 110, 100) == 0


def late_merge(unlocked: ObjectWorld) -> tuple[TopicLog, Hook, list[int | None]]:
    """Return a hook for a merge: before its put the floor is raised above the number at which it began."""
    topic = settled(unlocked, 3)
    done: list[int | None] = []

    def others() -> None:
        unlocked.idle(topic, 2)
        unlocked.clock.advance(RETENTION_MS)
        done.append(swept(unlocked))

    return topic, on_path("/settle/", "put_if_absent", once(others)), done


def test_what_was_begun_below_the_floor_is_never_named(unlocked: ObjectWorld) -> None:
    """O4 floor, floor_checked: a merge that lost its number is refused when the floor has passed it, on any attempt."""
    _, hook, done = late_merge(unlocked)
    with pytest.raises(AssertionError):  # it published nothing
        split(unlocked.handle(hook), 2)
    assert done == [2], "its object and manifest"
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1", b"2"]
    split(unlocked.handle(), 2)
    assert unlocked.values() == [b"0", b"1", b"2"]


def test_what_was_named_before_the_floors_entry_stays(unlocked: ObjectWorld) -> None:
    """O4 named_after: a merge publishes between the sweeper's first look and its put."""
    topic, slow = aged(unlocked), unlocked.handle()
    _, state = slow.settled(topic_id(slow))
    new = {0: copied(slow, state, 0, list(slow.sealed(state, 0)))}
    unlocked.idle(topic)
    unlocked.clock.advance(RETENTION_MS)

    def publish() -> None:
        def merge(base: Stored, now: SettleState) -> Change | None:
            return tail_to_own(slow, base, now, state.tail, new, [0])

        assert slow.change(state.topic_id, merge) is not None

    swept(unlocked, on_path("/settle/", "put_if_absent", once(publish)))
    assert unlocked.settled().files_floor == 5, "above the number at which the merge began"
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1", b"2"]
    verify(unlocked.handle())


def test_a_floor_that_landed_late_counts_for_nothing(unlocked: ObjectWorld) -> None:
    """O4 floor_confirmed (zombie_sweeper): the floor's entry lands at a collected number, a merge has not seen it."""
    topic = settled(unlocked, 3)
    merging: list[object] = []

    def act(handle: TopicLog) -> None:
        unlocked.clock.advance(RETENTION_MS)
        sweep_objects(handle, topic_id(handle))

    ghost(unlocked, act, 5)
    late = stray(unlocked, topic, 2)
    assert unlocked.settled().files_floor == 0
    merging.append(split(topic, 1))
    assert unlocked.has(topic, late)
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1", b"2"]


def test_only_the_floor_of_the_newest_entry_counts(unlocked: ObjectWorld) -> None:
    """O4: a merge is under way that began above the floor and below the newest entry."""
    topic = aged(unlocked)
    unlocked.clock.advance(RETENTION_MS)
    unlocked.idle(topic, 2)
    under_way = stray(unlocked, topic, 5)
    assert swept(unlocked) == 0
    assert unlocked.settled().files_floor == 4
    assert unlocked.has(topic, under_way)


def test_what_a_retained_entry_names_stays(unlocked: ObjectWorld) -> None:
    """O4 names_of_all: a reader may still have a view that names it."""
    topic = aged(unlocked)
    split(topic, 2)
    (piece,) = own(topic)
    assert piece.place is not None
    manifest = unlocked.settled().partition(0).manifest
    unlocked.clock.advance(RETENTION_MS)
    unlocked.idle(topic)
    delete_records(topic, topic_id(topic), {0: 2})
    assert retain(topic, topic_id(topic)).segments == 1
    orphan = stray(unlocked, topic, 2)
    assert swept(unlocked) == 1
    assert not unlocked.has(topic, orphan)
    assert manifest is not None
    assert unlocked.has(topic, f"objects/{piece.place.object}")
    assert unlocked.has(topic, f"manifests/{manifest.name}")
    assert unlocked.missing() == set()


def collected_meanwhile(unlocked: ObjectWorld, topic: TopicLog, *, drop: bool) -> Hook:
    """Return a hook: after the settle journal was listed, others publish and all that was listed is collected."""

    def others() -> None:
        unlocked.idle(topic)
        unlocked.clock.advance(LATER_MS)
        if drop:
            unlocked.idle(topic)
            delete_records(unlocked.handle(), topic_id(topic), {0: 1})
            assert retain(unlocked.handle(), topic_id(topic)).segments == 1
        unlocked.idle(topic, 2)
        listed = unlocked.numbers(topic)
        unlocked.clock.advance(0 if drop else LATER_MS)
        collector = unlocked.handle()
        collect(collector, topic_id(topic))
        assert unlocked.numbers(topic)[0] > listed[0]

    act, lists = once(others), [0]

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("names", "after") and path.endswith("/objects"):
            lists[0] += 1
        if (operation, moment) == ("names", "after") and path.endswith("/settle") and lists[0]:
            act()

    return hook


def test_what_the_newest_entry_names_stays_whatever_was_collected(unlocked: ObjectWorld) -> None:
    """O4 newest_read (sweeping_slowly, never): all that was listed is gone before it is read."""
    topic = aged(unlocked)
    split(topic, 1)
    orphan = stray(unlocked, topic, 2)
    unlocked.clock.advance(RETENTION_MS)
    unlocked.idle(topic)
    swept(unlocked, collected_meanwhile(unlocked, topic, drop=False))
    assert not unlocked.has(topic, orphan)
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"0", b"1", b"2"]


def test_the_newest_entry_is_read_before_the_list(unlocked: ObjectWorld) -> None:
    """O4 newest_read (sweeping_slowly, last): what was dropped meanwhile is still named by an entry that is retained."""
    topic = aged(unlocked)
    stray(unlocked, topic, 2)
    unlocked.clock.advance(RETENTION_MS)
    unlocked.idle(topic)
    swept(unlocked, collected_meanwhile(unlocked, topic, drop=True))
    assert unlocked.missing() == set()
    assert unlocked.values() == [b"1", b"2"]


def test_nothing_is_swept_while_an_entry_is_damaged(unlocked: ObjectWorld) -> None:
    """What it dropped is not known: entries below it may name that. Once it is collected by number, all goes."""
    topic = aged(unlocked)
    delete_records(topic, topic_id(topic), {0: 1})
    retain(topic, topic_id(topic))
    unlocked.clock.advance(RETENTION_MS)
    unlocked.idle(topic)
    path = next(path for path in unlocked.files("/settle/") if path.endswith(f"{5:020d}.json"))
    (unlocked.path / path).write_bytes(b"damaged")
    assert swept(unlocked) == 0
    assert unlocked.settled().files_floor == 5
    assert len(unlocked.not_named()) == 1
    for _ in range(2):
        unlocked.clock.advance(RETENTION_MS)
        collect(unlocked.handle(), topic_id(topic), thorough=True)
        unlocked.idle(topic)
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 1
    assert unlocked.not_named() == set()


def test_a_damaged_manifest_stops_the_sweep(unlocked: ObjectWorld) -> None:
    """What it names is not known."""
    topic = settled(unlocked, 3)
    split(topic, 1)
    stray(unlocked, topic, 2)
    (path,) = unlocked.files("/manifests/")
    (unlocked.path / path).write_bytes(b"[]")
    unlocked.clock.advance(RETENTION_MS)
    before = unlocked.objects()
    with pytest.raises(CorruptionError):
        swept(unlocked)
    assert unlocked.objects() == before


def test_tables_that_nobody_named_go(unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 20)
    topic = aged(unlocked, partitions=3)
    paths: TopicPaths = topic.paths(topic_id(topic))
    newest = topic.newest()[0].sequence
    gone = [side_name(2, OURS, "partitions"), side_name(2, OURS, "damaged"), side_name(newest, OURS, "extents")]
    kept = [side_name(9, OURS, "partitions"), side_name(newest + 1, OURS, "extents")]
    for name in (*gone, *kept):
        unlocked.storage().write_once(f"{paths.side}/{name}", b"[]")
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 2
    assert sweep_tables(topic, topic_id(topic)) == 1
    left = unlocked.storage().names(paths.side)
    assert set(kept) <= set(left)
    assert not set(gone) & set(left)
    retained = [topic.settle_journal(topic_id(topic)).read(number).entry for number in unlocked.numbers(topic)]
    assert {file for entry in retained for file in side_files(entry)} <= set(left)
    assert unlocked.values() == [b"0", b"1", b"2"] * 3


def test_a_sweeper_that_dies_is_followed_by_the_next(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    stray(unlocked, topic, 2)
    unlocked.clock.advance(RETENTION_MS)
    with pytest.raises(KilledError):
        swept(unlocked, on_path("/objects/", "delete", die))
    assert len(unlocked.not_named()) == 1
    unlocked.clock.advance(RETENTION_MS)
    assert swept(unlocked) == 1


def test_a_lone_file_put_late_does_not_stop_the_sweep_of_chunks(unlocked: ObjectWorld) -> None:
    """O6: what is not linked from the newest down is no lost entry."""
    topic = settled(unlocked, 5)
    first = (unlocked.path / next(path for path in unlocked.files("/journal/"))).read_bytes()
    unlocked.clock.advance(LATER_MS)
    collect(topic, topic_id(topic))
    assert unlocked.entries() == [5, 6]
    (unlocked.path / "topics/t/journal" / f"{1:020d}.json").write_bytes(first)
    late = stage(topic, batch_of([b"late"]))
    append(topic, batch_of([b"next"]))
    unlocked.clock.advance(RETENTION_MS)
    assert sweep(unlocked.handle(), late.topic_id) == 1
    journal = topic.journal
    assert linked_from([journal.read(number) for number in unlocked.entries()]) == 5


def test_settlers_lose_nothing_to_sweeps(unlocked: ObjectWorld) -> None:
    """A settler is swept over at each of its steps: it publishes, or begins again."""
    topic = settled(unlocked, 1)
    expected = [b"0"]
    for number in range(1, 4):
        append(topic, batch_of([b"%d" % number]))
        expected.append(b"%d" % number)

        def others() -> None:
            unlocked.idle(topic)
            unlocked.clock.advance(RETENTION_MS)
            unlocked.maintain()

        settle(unlocked.handle(on_path("/settle/", "put_if_absent", once(others))), topic_id(topic))
        assert unlocked.missing() == set()
        assert unlocked.values() == expected
