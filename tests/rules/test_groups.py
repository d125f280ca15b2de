"""Consumer groups: what is committed stays, forward only, until a reset; whoever else is at it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    GroupResetError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    RootNotFoundError,
    TopicChangedError,
    UnknownGroupError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.groups.consumer_groups import GroupPartition, OffsetReset
from pyspark_commitlog.groups.state import group_log
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.testing.faults import Hook, io_error, on_path
from tests.support.records import append, batch_of
from tests.support.world import DELAY_MS, Recorder, World, raising, several

_JOURNAL = "groups/g/journal"


@pytest.fixture(autouse=True)
def twenty_records(world: World) -> None:
    """A topic with ten records in each of two partitions, the last a minute after the others."""
    topic = world.create(2)
    now = world.clock.now_ms()
    times = [now * 1000] * 18 + [(now + 60_000) * 1000] * 2
    append(topic, batch_of([b"x"] * 20, partition=[0, 1] * 10, timestamp=times))


def commit(world: World, offsets: dict[int, int], hook: Hook | None = None, generation: int | None = None) -> None:
    world.log(hook).groups.commit("g", {"t": offsets}, generation=generation)


def offsets(world: World, topic: str = "t") -> dict[int, int | None]:
    """Return what is committed, as a fresh process sees it."""
    return {row.partition: row.offset for row in world.log().groups.describe("g").partitions if row.topic == topic}


def entries(world: World) -> list[int]:
    return world.log().groups.open("g").journal.sequences()


# --- what is told -----------------------------------------------------------------------------------------


def test_a_group_begins_with_its_first_commit_and_tells_its_lag(world: World) -> None:
    groups = world.log().groups
    assert groups.list() == ()
    with pytest.raises(UnknownGroupError, match="no group 'g'"):
        groups.describe("g")
    assert groups.commit("g", {"t": {0: 4}}, metadata="by a test") == {"t": {0: 4}}
    world.log().topic("t").delete_records({1: 3})
    told = world.log().groups.describe("g")
    assert told.partitions == (GroupPartition("t", 0, 4, 0, 10, 10, 6), GroupPartition("t", 1, None, 3, 10, 10, 7))
    assert (told.generation, told.metadata) == (0, {"t": "by a test"})
    assert groups.list() == ("g",)
    assert entries(world) == [1]


def test_of_the_topics_that_were_allowed_those_of_the_last_commit_are_remembered(world: World) -> None:
    asked = list[str]()
    topics = {name: world.create(name=name) for name in ("one", "two")}
    handle = GroupLog(world.storage(), "g", asked.append)
    for names in (["one"], ["one"], ["one", "two"], ["two"], ["one"]):
        handle.advance([Position(name, topics[name].newest()[1].topic_id, 0, 0) for name in names])
    assert asked == ["one", "two", "one"]


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "größe", "%41", "a b", "~", "x" * 249])
def test_any_name_that_kafka_takes_is_a_group(world: World, name: str) -> None:
    world.log().groups.commit(name, {"t": {0: 4}})
    world.log().groups.commit("A", {"t": {0: 5}})
    assert world.log().groups.list() == tuple(sorted((name, "A")))
    assert world.log().groups.describe(name).partitions[0].offset == 4
    assert len(world.files(root="groups")) == 2


@pytest.mark.parametrize("name", ["", "__g", "x" * 250, "ü" * 42, "\ud800", 7])
def test_other_names_are_refused(world: World, name: str) -> None:
    with pytest.raises(UsageError, match=r"group name .* is not allowed"):
        world.log().groups.commit(name, {"t": {0: 4}})
    assert not (world.path / "groups").exists()


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RootNotFoundError):
        World(tmp_path / "none").log().groups.list()


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"t": {0: 5, 1: 11}}, OffsetOutOfRangeError, "t partition 1: offset 11 can't be committed.*watermark is 10"),
        ({"t": {0: 5, 1: -1}}, OffsetOutOfRangeError, "offset -1"),
        ({"t": {0: 5, 2: 0}}, UsageError, "partitions 0 to 1, not 2"),
        ({"t": {0: 5}, "none": {0: 0}}, UnknownTopicError, "none"),
    ],
)
def test_a_wrong_commit_is_refused_whole(
    world: World, wrong: dict[str, dict[int, int]], error: type[Exception], told: str
) -> None:
    commit(world, {0: 1, 1: 1})
    with pytest.raises(error, match=told):
        world.log().groups.commit("g", wrong)
    assert offsets(world) == {0: 1, 1: 1}


def test_a_commit_that_moves_nothing_adds_no_entry(world: World) -> None:
    commit(world, {0: 5, 1: 5})
    commit(world, {0: 5, 1: 4})
    assert entries(world) == [1]
    assert offsets(world) == {0: 5, 1: 5}


def test_what_is_too_much_for_an_entry_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(world, {0: 1})
    with pytest.raises(UsageError, match="metadata has 4098 bytes"):
        world.log().groups.commit("g", {"t": {0: 2}}, metadata="ü" * 2049)
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        world.log().groups.commit("g", {"t": {0: 2}}, metadata="\ud800")
    size = len((world.path / _JOURNAL / f"{1:020d}.json").read_bytes())
    monkeypatch.setattr(group_log, "MAX_STATE_BYTES", size)
    world.create(name="u" * 249)
    with pytest.raises(UsageError, match=rf"offsets would take \d+ bytes, at most {size} are allowed"):
        world.log().groups.commit("g", {"u" * 249: {0: 0}})
    assert offsets(world) == {0: 1, 1: None}


def test_the_widest_topic_fits(world: World) -> None:
    world.create(10_000, name="wide")
    many = dict.fromkeys(range(10_000), 0)
    assert world.log().groups.commit("g", {"wide": many})["wide"] == many
    assert len(world.log().groups.describe("g").partitions) == 10_000


# --- who else is at it ------------------------------------------------------------------------------------


def test_two_that_commit_at_once_both_count(world: World) -> None:
    """R9: the loser of the race applies its offsets to the winner's entry."""
    commit(world, {0: 1, 1: 1})
    commit(world, {0: 7, 1: 2}, on_path(_JOURNAL, "put_if_absent", lambda: commit(world, {0: 3, 1: 5})))
    assert offsets(world) == {0: 7, 1: 5}
    assert entries(world) == [1, 2, 3]


def test_many_at_once_end_with_the_highest(world: World) -> None:
    failed: list[BaseException] = []

    def advance(partition: int, first: int) -> None:
        try:
            for offset in range(first, 11, 3):
                commit(world, {partition: offset})
        except CommitLogError as error:
            failed.append(error)

    threads = [threading.Thread(target=advance, args=(p, first)) for p in (0, 1) for first in (0, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert offsets(world) == {0: 10, 1: 10}


def test_a_reset_between_look_and_put_is_not_undone(world: World) -> None:
    """R9: the generation is looked at on every attempt."""
    commit(world, {0: 5, 1: 5})
    reset = on_path(
        _JOURNAL, "put_if_absent", lambda: world.log().groups.reset("g", {"t": [0]}, to="earliest", dry_run=False)
    )
    with pytest.raises(
        GroupResetError, match=r"t partition 0 was reset, or deleted, in generation 1, .* follows generation 0"
    ):
        commit(world, {0: 9, 1: 9}, reset)
    assert offsets(world) == {0: 0, 1: 5}


def test_a_follower_of_an_older_generation_moves_only_what_was_not_reset(world: World) -> None:
    commit(world, {0: 5, 1: 5})
    world.log().groups.reset("g", {"t": [0]}, offset=2, dry_run=False)
    topic_id = world.handle().newest()[1].topic_id
    wanted = [Position("t", topic_id, partition, 9) for partition in (0, 1)]
    handle = world.log().groups.open("g")
    assert handle.advance(wanted, generation=0).fenced == (wanted[0],)
    assert offsets(world) == {0: 2, 1: 9}
    assert handle.advance(wanted, generation=1).fenced == ()
    assert offsets(world) == {0: 9, 1: 9}


def test_a_reset_counts_from_what_is_committed_when_it_lands(world: World) -> None:
    commit(world, {0: 1, 1: 1})
    late = on_path(_JOURNAL, "put_if_absent", lambda: commit(world, {0: 6}))
    told = world.log(late).groups.reset("g", shift=2, dry_run=False)
    assert told == (OffsetReset("t", 0, 6, 8), OffsetReset("t", 1, 1, 3))
    assert offsets(world) == {0: 8, 1: 3}


def test_a_topic_that_was_made_again_has_no_offsets(world: World) -> None:
    commit(world, {0: 5, 1: 5})
    world.log().topic("t").delete()
    assert world.log().groups.describe("g").partitions == ()
    world.create(1)
    assert offsets(world) == {0: None}
    append(world.handle(), batch_of([b"new"]))
    commit(world, {0: 1})
    assert offsets(world) == {0: 1}


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_while_a_commit_is_under_way_is_told(world: World, again: bool) -> None:
    """R9: by topic id, on every attempt."""

    def delete() -> None:
        commit(world, {1: 1})
        world.log().topic("t").delete()
        if again:
            append(world.create(2), batch_of([b"x"] * 20, partition=[0, 1] * 10))

    with pytest.raises(TopicChangedError):
        commit(world, {0: 5}, on_path(_JOURNAL, "put_if_absent", delete))
    assert offsets(world) == ({0: None, 1: None} if again else {})


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reply_that_is_lost_changes_nothing(world: World, when: str) -> None:
    commit(world, {0: 1})
    commit(world, {0: 5}, on_path(_JOURNAL, "put_if_absent", raising(io_error()), when=when))
    assert (offsets(world), entries(world)) == ({0: 5, 1: None}, [1, 2])
    lost = on_path(_JOURNAL, "put_if_absent", raising(io_error()), when=when)
    world.log(lost).groups.reset("g", to="earliest", dry_run=False)
    assert (offsets(world), world.log().groups.describe("g").generation) == ({0: 0, 1: 0}, 1)


def test_a_reset_whose_reply_is_lost_for_good_is_unknown_and_raises_the_generation_once_per_call(world: World) -> None:
    commit(world, {0: 5, 1: 5})
    lost = on_path(_JOURNAL, "put_if_absent", raising(io_error()), when="after", times=5)
    with pytest.raises(OutcomeUnknownError):
        world.log(several(lost, on_path(_JOURNAL, "put_if_absent", raising(io_error()), times=9))).groups.reset(
            "g", to="earliest", dry_run=False
        )
    world.log().groups.reset("g", to="earliest", dry_run=False)
    assert offsets(world) == {0: 0, 1: 0}


def collect_entries(world: World) -> None:
    """Let time pass and commits come until only the newest entries are left."""
    for number in range(3, 9):
        commit(world, {0: number})
    world.clock.advance(DELAY_MS)
    world.log().groups.open("g").collect(DELAY_MS)


def test_a_sleeper_whose_number_was_collected_is_told_and_may_commit_again(world: World) -> None:
    """The anchor rule: its put at the collected number succeeds, and does not count."""
    commit(world, {0: 1})
    with pytest.raises(OutcomeUnknownError):
        commit(world, {1: 9}, on_path(_JOURNAL, "put_if_absent", lambda: collect_entries(world)))
    assert offsets(world) == {0: 8, 1: None}
    commit(world, {1: 9})
    assert offsets(world) == {0: 8, 1: 9}
    assert world.log().groups.verify() == ()


def test_what_is_committed_already_is_made_durable_before_that_is_told(world: World) -> None:
    """R5: the first of the two may have failed to sync its entry."""
    commit(world, {0: 5})
    seen = Recorder()
    commit(world, {0: 5}, seen, generation=0)
    assert seen.paths("put_if_absent") == []
    assert _JOURNAL in seen.paths("sync_directory")


def test_a_zombie_whose_number_was_collected_cannot_undo_a_reset(world: World) -> None:
    commit(world, {0: 1})

    def meanwhile() -> None:
        collect_entries(world)
        world.log().groups.reset("g", to="earliest", dry_run=False)
        world.clock.advance(DELAY_MS)
        world.log().groups.open("g").collect(DELAY_MS)

    with pytest.raises(GroupResetError):
        commit(world, {0: 9}, on_path(_JOURNAL, "put_if_absent", meanwhile))
    assert offsets(world) == {0: 0, 1: 0}


def test_a_reset_that_landed_is_known_by_its_write_id_when_its_entry_is_gone(world: World) -> None:
    """Else a put whose anchor and number were collected meanwhile would be of unknown outcome."""
    commit(world, {0: 1})
    slow = on_path(_JOURNAL, "put_if_absent", lambda: collect_entries(world), when="after")
    assert world.log(slow).groups.reset("g", {"t": [0]}, to="earliest", dry_run=False) == (OffsetReset("t", 0, 1, 0),)
    assert world.log().groups.describe("g").generation == 1
    assert offsets(world) == {0: 8, 1: None}


def test_a_reset_under_way_is_not_of_a_topic_that_was_made_again(world: World) -> None:
    commit(world, {0: 1})

    def again() -> None:
        commit(world, {0: 2})
        world.log().topic("t").delete()
        world.create(2)

    with pytest.raises(TopicChangedError):
        world.log(on_path(_JOURNAL, "put_if_absent", again)).groups.reset("g", to="latest", dry_run=False)
    assert offsets(world) == {0: None, 1: None}


# --- old entries ------------------------------------------------------------------------------------------


def test_entries_go_after_the_delay_but_the_newest_two(world: World) -> None:
    for offset in range(8):
        commit(world, {0: offset})
        world.clock.advance(DELAY_MS // 4)
    handle = world.log().groups.open("g")
    assert handle.collect(DELAY_MS) == 4, "4 is as old as the delay, but was the newest until 5 came"
    assert entries(world) == [5, 6, 7, 8]
    world.clock.advance(DELAY_MS)
    assert handle.collect(DELAY_MS) == 2
    assert handle.collect(DELAY_MS) == 0
    assert entries(world) == [7, 8]
    assert offsets(world) == {0: 7, 1: None}


def test_a_writer_collects_now_and_then_by_the_roots_delay(world: World) -> None:
    world.log().config.alter({"log.segment.delete.delay.ms": 1000})
    append(world.handle(), batch_of([b"x"] * 100, partition=[0] * 100))
    found = []
    for offset in range(40):
        commit(world, {0: offset})
        world.clock.advance(1000)
        found.append(len(entries(world)))
    assert max(found) <= 2 + 16
    world.log().groups.reset("g", to="latest", dry_run=False)
    assert len(entries(world)) == 2


def test_a_collection_that_fails_does_not_fail_the_reset(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for offset in range(5):
        commit(world, {0: offset})
    world.clock.advance(DELAY_MS)
    broken = on_path(_JOURNAL, "delete", raising(io_error()))
    world.log(broken).groups.reset("g", to="latest", dry_run=False)
    assert offsets(world) == {0: 10, 1: 10}
    assert "old entries were not collected" in caplog.text


def test_a_look_asks_for_one_entry_whatever_the_history(world: World) -> None:
    for offset in range(10):
        commit(world, {0: offset})
    seen = Recorder()
    world.log(seen).groups.describe("g")
    assert len([path for path in seen.paths("fetch") if path.startswith("groups")]) == 1


def test_a_damaged_entry_is_told_and_named(world: World) -> None:
    """I8."""
    commit(world, {0: 1})
    path = world.path / _JOURNAL / f"{1:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"offsets":[1]', b'"offsets":[2]'))
    with pytest.raises(CorruptionError, match=path.name):
        commit(world, {0: 2})
    (fault,) = world.log().groups.describe("g").faults
    assert path.name in fault
    assert world.log().groups.list() == ("g",)
    (fault,) = world.log().groups.verify()
    assert path.name in fault


# --- resets and deletions ---------------------------------------------------------------------------------


def test_a_reset_tells_first_and_does_it_when_told_to(world: World) -> None:
    commit(world, {0: 5})
    plan = (OffsetReset("t", 0, 5, 0), OffsetReset("t", 1, None, 0))
    assert world.log().groups.reset("g", to="earliest") == plan
    assert (offsets(world), entries(world)) == ({0: 5, 1: None}, [1])
    assert world.log().groups.reset("g", to="earliest", dry_run=False) == plan
    assert offsets(world) == {0: 0, 1: 0}


def test_resets_by_time_offset_and_one_by_one(world: World) -> None:
    groups, now = world.log().groups, world.clock.now_ms()
    commit(world, {0: 5, 1: 5})
    world.clock.advance(90_000)
    assert groups.reset("g", timestamp=now) == (OffsetReset("t", 0, 5, 0), OffsetReset("t", 1, 5, 0))
    assert groups.reset("g", duration="PT1M") == (OffsetReset("t", 0, 5, 9), OffsetReset("t", 1, 5, 9))
    assert groups.reset("g", duration="PT1S") == (OffsetReset("t", 0, 5, 10), OffsetReset("t", 1, 5, 10))
    assert groups.reset("g", {"t": [1]}, offset=3) == (OffsetReset("t", 1, 5, 3),)
    assert groups.reset("g", to={"t": {1: 7, 0: 2}}, dry_run=False) == (
        OffsetReset("t", 0, 5, 2),
        OffsetReset("t", 1, 5, 7),
    )
    assert offsets(world) == {0: 2, 1: 7}
    assert groups.reset("new", ["t"], to="current", dry_run=False) == (
        OffsetReset("t", 0, None, 10),
        OffsetReset("t", 1, None, 10),
    )
    assert groups.list() == ("g", "new")


def test_resets_that_cannot_be_are_refused(world: World) -> None:
    groups = world.log().groups
    with pytest.raises(UnknownGroupError):
        groups.reset("g", to="earliest")
    commit(world, {0: 5})
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to 10 .* not 11"):
        groups.reset("g", offset=11, dry_run=False)
    with pytest.raises(UsageError, match="partitions 0 to 1, not 2"):
        groups.reset("g", {"t": [2]}, to="earliest", dry_run=False)
    with pytest.raises(UsageError, match="no committed offset"):
        groups.reset("g", shift=1, dry_run=False)
    with pytest.raises(UsageError, match="exclude each other"):
        groups.reset("g", "t", to={"t": {0: 1}}, dry_run=False)
    assert (offsets(world), entries(world)) == ({0: 5, 1: None}, [1])


def test_a_deleted_group_is_gone_until_somebody_new_commits(world: World) -> None:
    commit(world, {0: 5})
    world.log().groups.delete("g")
    assert world.log().groups.list() == ()
    with pytest.raises(UnknownGroupError):
        world.log().groups.delete("g")
    with pytest.raises(GroupResetError):
        commit(world, {0: 9}, generation=0)
    commit(world, {0: 2})
    assert offsets(world) == {0: 2, 1: None}
    with pytest.raises(GroupResetError):
        commit(world, {1: 9}, generation=0)


def test_offsets_of_one_topic_are_deleted(world: World) -> None:
    append(world.create(1, name="u"), batch_of([b"x"]))
    groups = world.log().groups
    groups.commit("g", {"t": {0: 5}, "u": {0: 1}})
    groups.delete_offsets("g", "t")
    assert (offsets(world), offsets(world, "u")) == ({}, {0: 1})
    with pytest.raises(GroupResetError):
        commit(world, {1: 9}, generation=0)
    with pytest.raises(UnknownTopicError, match="no offsets of topic 't'"):
        groups.delete_offsets("g", "t")
    world.log().topic("u").delete()
    groups.delete_offsets("g", "u")
    assert groups.list() == ()


def test_a_commit_below_the_log_start_is_what_a_slow_reader_has(world: World) -> None:
    world.log().topic("t").delete_records({0: 8})
    commit(world, {0: 3})
    (row, _) = world.log().groups.describe("g").partitions
    assert (row.offset, row.log_start_offset, row.lag) == (3, 8, 7)


def test_a_handle_follows_others_without_listing(world: World) -> None:
    commit(world, {0: 1})
    seen = Recorder()
    handle = world.log(seen).groups.open("g")
    handle.newest()
    seen.calls.clear()
    commit(world, {0: 2})
    topic_id = world.handle().newest()[1].topic_id
    assert handle.newest().offsets(topic_id) == {0: 2}
    assert "names" not in {operation for operation, _ in seen.calls}


def test_entries_from_the_future_do_not_keep_those_behind_them(world: World) -> None:
    """A clock was ahead once, by a year: what was put before and meanwhile goes as what came later is old enough."""
    for offset in range(9):
        ahead = 365 * DAY_MS if offset in (3, 4) else 0
        world.clock.advance(ahead)
        commit(world, {0: offset})
        world.clock.advance(DELAY_MS // 4 - ahead)
    handle = world.log().groups.open("g")
    assert handle.collect(DELAY_MS) == 5, "6 is as old as the delay"
    assert entries(world) == [6, 7, 8, 9]
    world.clock.advance(DELAY_MS)
    handle.collect(DELAY_MS)
    assert entries(world) == [8, 9]


def test_where_the_second_newest_entry_is_from_the_future_the_newest_tells_the_time(world: World) -> None:
    for offset in range(4):
        commit(world, {0: offset})
    world.clock.advance(365 * DAY_MS)
    commit(world, {0: 4})
    world.clock.advance(-365 * DAY_MS)
    commit(world, {0: 5})
    world.clock.advance(DELAY_MS)
    assert world.log().groups.open("g").collect(DELAY_MS) == 4
    assert entries(world) == [5, 6]


# --- topics that are gone ---------------------------------------------------------------------------------


def held(world: World) -> list[str]:
    """Return the names of the topics of which the group holds offsets, of whatever lives."""
    return sorted(row.name for row in world.log().groups.open("g").newest().topics.values())


def several_topics(world: World, *names: str) -> None:
    """Make topics, and commit to each."""
    for name in names:
        world.create(name=name)
        world.log().groups.commit("g", {name: {0: 0}})


def test_maintenance_forgets_the_offsets_of_deleted_topics_only(world: World) -> None:
    several_topics(world, "a", "b", "c")
    commit(world, {0: 7})
    world.log().groups.reset("g", {"b": [0]}, to="latest", dry_run=False)
    world.log().topic("a").delete()
    world.log().topic("c").delete()
    world.create(name="c")
    assert held(world) == ["a", "b", "c", "t"]
    before = world.log().groups.open("g").newest()
    world.log().maintain()
    assert held(world) == ["b", "t"]
    after = world.log().groups.open("g").newest()
    assert (after.generation, after.floor, after.last_reset) == (before.generation, before.floor, before.last_reset)
    assert all(before.topics[topic_id] == row for topic_id, row in after.topics.items()), "with its generations"
    entry = entries(world)[-1]
    assert world.log().groups.maintain("g").forgotten_topics == 0
    assert entries(world)[-1] == entry, "nothing to forget, nothing to put"


def test_a_topic_of_which_there_is_nothing_may_be_put_back(world: World, tmp_path: Path) -> None:
    """An operator who restores it moves its directory away first: maintenance meanwhile must not forget the group."""
    several_topics(world, "a")
    (world.path / "topics/a").rename(tmp_path / "a")
    world.log().maintain()
    (tmp_path / "a").rename(world.path / "topics/a")
    assert offsets(world, "a") == {0: 0}


def test_a_topic_that_cannot_be_read_is_not_forgotten(world: World, caplog: pytest.LogCaptureFixture) -> None:
    several_topics(world, "a", "b")
    world.log().topic("b").delete()
    newest = max((world.path / "topics/a/journal").iterdir())
    newest.write_bytes(newest.read_bytes()[:-2])
    assert world.log().groups.maintain("g").forgotten_topics == 1
    assert held(world) == ["a"]
    assert "whether topic 'a' is gone is unknown" in caplog.text


def test_what_is_forgotten_was_deleted_for_good(world: World) -> None:
    """R5: power loss may take back a deletion whose directory was not synced yet."""
    several_topics(world, "a")
    world.log().topic("a").delete()
    log = Recorder()
    world.log(log).groups.maintain("g")
    synced = log.first("sync_directory", "topics/a/journal")
    assert synced < log.first("put_if_absent", _JOURNAL)


def test_a_commit_that_would_not_fit_forgets_deleted_topics_first(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = [f"{number}" + "x" * 200 for number in range(3)]
    several_topics(world, "a", *gone)
    state = world.log().groups.open("g").newest()
    size = len(to_json_bytes(state.to_json()))
    monkeypatch.setattr(group_log, "MAX_STATE_BYTES", size)
    with pytest.raises(UsageError, match="use several groups"):
        commit(world, {0: 1})
    world.log().topic(gone[0]).delete()
    commit(world, {0: 1})
    assert held(world) == sorted(["a", "t", *gone[1:]])
    world.log().groups.commit("g", {"t": {1: 3}})
    (world.path / "topics" / gone[1]).rename(tmp_path / "gone")
    world.create(name="new" + "y" * 190)
    world.log().groups.commit("g", {"new" + "y" * 190: {0: 0}})
    assert gone[1] not in held(world), "nor is there anything of this one"
    assert offsets(world) == {0: 1, 1: 3}


def test_a_group_of_deleted_topics_alone_is_gone(world: World) -> None:
    several_topics(world, "a")
    world.log().topic("a").delete()
    world.log().maintain()
    assert world.log().groups.list() == ()
