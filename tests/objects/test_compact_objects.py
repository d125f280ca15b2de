"""Compaction without a lock: exact pieces (O2), names (O1), piece by piece with `cleaned` last (O5), many at once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pyspark_commitlog.errors import CorruptionError, OffsetOutOfRangeError, StorageError
from pyspark_commitlog.format.paths import parse_object
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.testing.faults import Hook, on_path
from pyspark_commitlog.topic.compaction.compact import Compacted, CompactionJob, Replacement, compact, work_here
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.settle.merge import merge, split
from pyspark_commitlog.topic.settle.pieces import replace_own
from pyspark_commitlog.topic.state.settle_change import Change, Operation
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.rules import test_compaction as scenes
from tests.support.compactions import ABA, HOUR_MS, KEPT, created, identity, put, read
from tests.support.ghosts import cleaned
from tests.support.objects import LATER_MS, ObjectWorld, UnknownMount
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import once

#: What is decided by keys, tombstones, time and configs, and what readers see: the same wherever the log is.
ALIKE = (
    scenes.test_every_column_of_what_stays_is_as_it_was,
    scenes.test_a_tombstone_stays_until_its_horizon_and_goes_with_the_next_round,
    scenes.test_a_tombstone_in_a_large_segment_that_nothing_else_touches_goes_too,
    scenes.test_a_horizon_stays_when_the_frame_is_written_again,
    scenes.test_frames_of_two_horizons_are_not_joined,
    scenes.test_records_of_two_clocks_are_not_joined,
    scenes.test_deleted_records_of_a_segment_compacted_before_go_too,
    scenes.test_clean_segments_without_superseded_records_are_not_written_again,
    scenes.test_all_records_of_a_segment_may_go_and_its_offsets_are_still_covered,
    scenes.test_records_below_the_log_start_offset_go,
    scenes.test_retention_leaves_a_compacted_topic_alone_unless_it_says_delete,
    scenes.test_rounds_go_on_until_all_is_clean,
    scenes.test_a_timestamp_is_found_among_what_stays,
    scenes.test_records_deleted_meanwhile_stay_deleted,
    scenes.test_a_topic_deleted_meanwhile_is_not_touched,
    scenes.test_a_frame_has_no_more_rows_than_the_format_allows,
    scenes.test_tombstones_can_be_kept_for_ever,
    scenes.test_a_record_without_a_sensible_timestamp_is_not_overdue,
    scenes.test_records_without_a_key_are_not_acknowledged_and_then_dropped,
)


@pytest.mark.parametrize("scene", ALIKE, ids=lambda scene: scene.__name__.removeprefix("test_"))
def test_kafkas_rules_hold_as_on_local_disks(unlocked: ObjectWorld, scene: Callable[[ObjectWorld], None]) -> None:
    assert list(inspect.signature(scene).parameters) == ["world"]
    scene(unlocked)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("gone", [False, True])
def test_a_reader_sees_the_last_value_of_every_key_wherever_it_is(
    unlocked: ObjectWorld, after: int, gone: bool
) -> None:
    scenes.test_a_reader_sees_the_last_value_of_every_key_wherever_it_is_when_segments_are_swapped(
        unlocked, after, gone
    )


def test_records_without_a_key_go_with_a_warning(unlocked: ObjectWorld, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scenes.test_records_without_a_key_are_refused_and_older_ones_go_with_a_warning(unlocked, caplog)


# --- what is taken ----------------------------------------------------------------------------------------


def run(world: ObjectWorld, **hooks: object) -> list[Compacted]:
    return compact(world.handle(**hooks), identity(world))  # type: ignore[arg-type]


def own(world: ObjectWorld, partition: int = 0) -> tuple[Sealed, ...]:
    """Return the pieces of a partition's own."""
    return tuple(world.handle().own_segments(world.settled(), partition).every())


def test_the_last_record_of_every_key_stays_and_the_newest_object_whole(unlocked: ObjectWorld) -> None:
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    (done,) = run(unlocked)
    assert (done.partition, done.segments) == (0, (5, 5))
    assert done.size_bytes[1] < done.size_bytes[0]
    assert read(unlocked) == [*KEPT, (5, b"end", b"2")], "the record that supersedes end=1 is in the newest object"
    assert len(unlocked.settled().tail) == 1
    assert unlocked.settled().partition(0).cleaned == 5
    verify(unlocked.handle())
    assert run(unlocked) == [], "once is enough"


def test_the_tail_stays_as_it_is_until_the_dirty_ratio_is_reached(unlocked: ObjectWorld) -> None:
    created(unlocked, min_cleanable_dirty_ratio=0.5)
    put(unlocked, b"a=1", b"b=1", b"c=1", b"end=1")
    assert len(run(unlocked)) == 1
    pieces = own(unlocked)
    put(unlocked, b"a=2", b"end=2")
    assert run(unlocked) == []
    assert own(unlocked) == pieces
    assert len(unlocked.settled().tail) == 3
    put(unlocked, b"b=2", b"end=3", b"end=4")
    assert len(run(unlocked)) == 1
    assert len(unlocked.settled().tail) == 1


def test_what_is_overdue_is_taken_out_of_the_newest_object_too(unlocked: ObjectWorld) -> None:
    created(unlocked, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=HOUR_MS)
    put(unlocked, b"a=1", b"a=2")
    unlocked.clock.advance(HOUR_MS)
    assert run(unlocked) == []
    unlocked.clock.advance(1)
    assert len(run(unlocked)) == 1
    assert read(unlocked) == [(1, b"a", b"2")]
    assert unlocked.settled().tail == ()


def test_a_partition_of_several_is_compacted_by_itself(unlocked: ObjectWorld) -> None:
    created(unlocked, partitions=2)
    topic = unlocked.handle()
    for n in range(4):
        keys, headers = [b"a", b"a"], [[("pad", b"x" * 700)]] * 2
        append(topic, batch_of([b"%d" % n] * 2, key=keys, partition=[0, 1], headers=headers))
        settle(topic, identity(unlocked))
    assert [one.partition for one in run(unlocked)] == [0, 1]
    assert [row.cleaned for row in unlocked.settled().partitions] == [3, 3]
    assert read(unlocked) == [(2, b"a", b"2"), (3, b"a", b"3")]
    verify(unlocked.handle())


# --- several at once --------------------------------------------------------------------------------------


def during(world: ObjectWorld, act: Callable[[], object], piece: int = 0) -> list[Compacted]:
    """Compact, and act before a piece of the first round is published."""

    def worker(job: CompactionJob) -> tuple[Iterator[Replacement], int]:
        made, keyless = work_here(job)
        return pausing(made), keyless

    def pausing(made: Iterator[Replacement]) -> Iterator[Replacement]:
        for number, each in enumerate(made):
            if number == piece:
                act_once()
            yield each

    act_once = once(act)
    return compact(world.handle(), identity(world), worker)


@pytest.mark.parametrize("piece", range(4))
def test_of_two_compactors_one_gives_up(unlocked: ObjectWorld, piece: int) -> None:
    """O2: exactly these pieces. Else what the other dropped would come back, or its pieces be named twice."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    done: list[list[Compacted]] = []
    first = during(unlocked, lambda: done.append(run(unlocked)), piece)
    assert len(first) + len(done[0]) == 1
    assert read(unlocked) == [*KEPT, (5, b"end", b"2")]
    assert unlocked.settled().partition(0).cleaned == 5
    verify(unlocked.handle())


def test_settles_meanwhile_take_nothing_from_it(unlocked: ObjectWorld) -> None:
    """O3: it publishes on top of them."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    assert len(during(unlocked, lambda: put(unlocked, b"a=3"), piece=1)) == 1
    assert read(unlocked) == [*KEPT, (5, b"end", b"2"), (6, b"a", b"3")]
    verify(unlocked.handle())


def test_retention_meanwhile_ends_the_round(unlocked: ObjectWorld) -> None:
    created(unlocked, cleanup_policy="delete,compact")
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])

    def let_go() -> None:
        unlocked.log().topic("t").delete_records({0: 2})
        first = own(unlocked)[:2]
        topic = unlocked.handle()
        topic.change(identity(unlocked), lambda base, now: replace_own(topic, base, now, 0, first, ()))

    assert during(unlocked, let_go) == []
    assert unlocked.settled().partition(0).cleaned == 0
    assert read(unlocked) == [*KEPT[1:], (5, b"end", b"2")]
    assert len(run(unlocked)) == 1
    verify(unlocked.handle())


# --- piece by piece ---------------------------------------------------------------------------------------


def test_a_compactor_that_dies_leaves_the_pieces_it_published_and_nothing_is_taken_for_clean(
    unlocked: ObjectWorld,
) -> None:
    """O5: else the next one takes what was not reached for clean, drops the tombstone, and an older record comes back."""
    created(unlocked, delete_retention_ms=0)
    put(unlocked, b"a=1", b"b=1", b"a", b"end=1")
    before = own(unlocked)

    def dies() -> None:
        raise StorageError("killed")

    with pytest.raises(StorageError, match="killed"):
        during(unlocked, dies, piece=1)
    assert unlocked.settled().partition(0).cleaned == 0
    assert own(unlocked) != before, "one piece is published"
    assert read(unlocked) == [(1, b"b", b"1"), (2, b"a", None), (3, b"end", b"1")]
    verify(unlocked.handle())
    assert view(unlocked, end=3) == [b"b"]
    with pytest.raises(OffsetOutOfRangeError, match="compaction has come to offset 3, beyond the end of this view, 2"):
        view(unlocked, end=2)  # a=1 was its newest record of the key
    put(unlocked, b"end=2")
    unlocked.clock.advance(1)
    assert len(run(unlocked)) == 1
    put(unlocked, b"end=3")
    unlocked.clock.advance(1)
    assert len(run(unlocked)) == 1
    assert [key for _, key, _ in read(unlocked)] == [b"b", b"end", b"end"]
    verify(unlocked.handle())


def view(world: ObjectWorld, end: int) -> list[object]:
    """Return the keys of the table as it was then."""
    return world.log().topic("t").to_arrow(["key"], view="latest", end={0: end}).column(0).to_pylist()


def foreign(world: ObjectWorld, old: Sealed) -> None:
    """Have another process put a copy in the place of a piece."""
    topic = world.handle()
    assert old.place is not None
    name = old.place.object[: -len("0000.segment")] + "ffff.segment"
    paths = topic.paths(identity(world))
    (world.path / paths.object(name)).write_bytes((world.path / paths.object(old.place.object)).read_bytes())
    new = replace(old, place=replace(old.place, object=name))

    def swap(base: Stored, now: SettleState) -> Change | None:
        return replace_own(topic, base, now, 0, [old], [new])

    assert topic.change(identity(world), swap) is not None


def test_a_piece_that_another_took_ends_the_round(unlocked: ObjectWorld) -> None:
    """O5: `cleaned` rises only if every piece before was published."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    assert during(unlocked, lambda: foreign(unlocked, own(unlocked)[1]), piece=1) == []
    assert unlocked.settled().partition(0).cleaned == 0
    assert len(run(unlocked)) == 1
    assert read(unlocked) == [*KEPT, (5, b"end", b"2")]
    verify(unlocked.handle())


def test_a_piece_is_named_when_it_is_begun(unlocked: ObjectWorld) -> None:
    """O1, O5: named when the round began, a piece of a compaction of hours would be below the floor, every time."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    topic = unlocked.handle()

    def floor_rises() -> None:
        put(unlocked, b"x=1")
        newest = topic.settled(identity(unlocked))[0].sequence
        topic.change(identity(unlocked), lambda _, now: Change(replace(now, files_floor=newest)))

    assert during(unlocked, floor_rises) == [], "the piece that was made before that is given up"

    def late(job: CompactionJob) -> tuple[Iterator[Replacement], int]:
        floor_rises()
        return work_here(job)

    assert len(compact(topic, identity(unlocked), late)) == 1
    numbers = [parse_object(piece.place.object) for piece in own(unlocked) if piece.place is not None]
    assert len(set(numbers)) == len(numbers) == 6, "each by the newest entry of its own time"
    assert [key for _, key, _ in read(unlocked)] == [b"b", b"a", b"c", b"end", b"x", b"x"]


def test_a_lost_reply_is_no_loss(unlocked: ObjectWorld) -> None:
    """O2: where the newest entry names what was made, it landed."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])

    class Deaf(TopicLog):
        def change(self, topic_id: str, operation: Operation) -> None:
            super().change(topic_id, operation)

    assert len(compact(Deaf(unlocked.storage(), "t"), identity(unlocked))) == 1
    assert unlocked.settled().partition(0).cleaned == 5
    assert read(unlocked) == [*KEPT, (5, b"end", b"2")]


# --- damage -----------------------------------------------------------------------------------------------


def test_a_damaged_frame_stops_its_partition_and_no_damaged_byte_gets_a_fresh_crc(unlocked: ObjectWorld) -> None:
    """R11: pieces before it may be published; `cleaned` stays."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])
    victim = own(unlocked)[2]
    assert victim.place is not None
    topic = unlocked.handle()
    path = unlocked.path / topic.paths(identity(unlocked)).object(victim.place.object)
    data = bytearray(path.read_bytes())
    data[victim.length - 10] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=victim.place.object):
        run(unlocked)
    assert unlocked.settled().partition(0).cleaned == 0
    assert victim in own(unlocked)


def test_damage_in_the_tail_keeps_no_own_pieces_from_being_compacted(unlocked: ObjectWorld) -> None:
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:3])
    damaged = unlocked.settled().tail[0]
    unlocked.flip(damaged.name)
    with pytest.raises(CorruptionError, match=damaged.name):
        run(unlocked)
    assert unlocked.settled().partition(0).cleaned == 3


def test_a_piece_that_is_missing_is_a_loss_only_while_it_is_named(unlocked: ObjectWorld) -> None:
    """R8."""
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])
    victim = own(unlocked)[3]
    assert victim.place is not None
    path = unlocked.path / unlocked.handle().paths(identity(unlocked)).object(victim.place.object)

    def replaced_and_gone() -> None:
        foreign(unlocked, victim)
        path.unlink()

    gone = on_path(victim.place.object, "map", once(replaced_and_gone))
    assert run(unlocked, hook=gone) == []
    assert len(run(unlocked)) == 1
    assert read(unlocked) == [*KEPT, (5, b"end", b"2")]


def merged_and_collected(world: ObjectWorld) -> None:
    """Have another process merge the tail, and collect what it merged."""
    topic = world.handle()
    assert merge(topic, identity(world)).merges
    world.idle(topic, 2)
    world.clock.advance(LATER_MS)
    assert cleaned(world).segments


def test_objects_that_others_merge_and_collect_meanwhile_are_no_loss(unlocked: ObjectWorld) -> None:
    """R8. The first frames of what is dirty are read, for `max.compaction.lag.ms`, before it is split."""
    topic = created(unlocked, partitions=2, max_compaction_lag_ms=HOUR_MS, segment_bytes=2**20)
    for n in range(8):
        append(topic, batch_of([b"%d" % n] * 2, key=[b"a", b"a"], partition=[0, 1]))
        settle(topic, identity(unlocked))
    unlocked.clock.advance(HOUR_MS + 1)
    gone = on_path(unlocked.settled().tail[3].name, "map", once(lambda: merged_and_collected(unlocked)))
    assert [done.partition for done in run(unlocked, hook=gone)] == [0, 1]
    assert read(unlocked) == [(7, b"a", b"7")]
    verify(unlocked.handle())


@pytest.mark.parametrize("part", ["object", "manifest"])
def test_own_pieces_that_others_replace_and_collect_meanwhile_are_no_loss(unlocked: ObjectWorld, part: str) -> None:
    """R8: what a round reads to find out whether it is due, too."""
    created(unlocked, max_compaction_lag_ms=HOUR_MS)
    put(unlocked, *ABA, b"end=2")
    unlocked.clock.advance(HOUR_MS + 1)
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail)
    victim, (manifest,) = own(unlocked)[3], unlocked.files("/manifests/")
    assert victim.place is not None
    (piece,) = unlocked.files(victim.place.object)

    def others() -> None:
        foreign(unlocked, victim)
        unlocked.idle(unlocked.handle(), 2)
        unlocked.clock.advance(LATER_MS)
        cleaned(unlocked)
        assert unlocked.files(piece) == unlocked.files(manifest) == []

    hook = at(3, "map", piece, others) if part == "object" else at(2, "read", manifest, others)  # after the split
    assert len(run(unlocked, hook=hook)) == (part == "manifest"), "a round that lost its pieces is the next run's"
    assert unlocked.files(piece) == []
    run(unlocked)
    assert read(unlocked) == [*KEPT[:-1], (5, b"end", b"2")]
    verify(unlocked.handle())


def at(number: int, operation: str, path: str, act: Callable[[], object]) -> Hook:
    """Return a hook that acts before the `number`-th such operation on a file."""
    seen = 0

    def hook(called: str, on: str, moment: str) -> None:
        nonlocal seen
        if (called, on, moment) == (operation, path, "before"):
            seen += 1
            if seen == number:
                act()

    return hook


def test_a_named_manifest_that_is_missing_is_reported(unlocked: ObjectWorld) -> None:
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])
    (manifest,) = unlocked.files("/manifests/")
    (unlocked.path / manifest).unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        run(unlocked)


def test_a_named_piece_that_is_missing_is_reported(unlocked: ObjectWorld) -> None:
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])
    victim = own(unlocked)[3]
    assert victim.place is not None
    (unlocked.path / unlocked.handle().paths(identity(unlocked)).object(victim.place.object)).unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        run(unlocked)


def test_storage_that_fails_leaves_no_temporary_file(unlocked: ObjectWorld) -> None:
    created(unlocked)
    put(unlocked, *ABA, b"end=2")
    split(unlocked.handle(), identity(unlocked), unlocked.settled().tail[:5])

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("create", "after") and path.endswith(".segment"):
            raise StorageError("injected")

    with pytest.raises(StorageError, match="injected"):
        run(unlocked, hook=hook)
    assert unlocked.settled().partition(0).cleaned == 0
    assert read(unlocked)[:1] == [(0, b"a", b"1")]
    assert len(run(unlocked)) == 1


def test_storage_that_does_not_know_its_time_lets_no_tombstone_go_early(unlocked: ObjectWorld) -> None:
    """Its time is a lower bound: good to say that a horizon has passed, not to set one (KIP-534)."""

    class Timeless(UnknownMount):
        def now_ms(self) -> int:
            return 0

    created(unlocked)
    put(unlocked, b"a=1", b"a", b"end=1")
    assert compact(TopicLog(Timeless(unlocked.path, clock=unlocked.clock), "t"), identity(unlocked))
    put(unlocked, b"end=2")
    unlocked.clock.advance(HOUR_MS - 1)
    assert run(unlocked)
    assert (1, b"a", None) in read(unlocked)
    put(unlocked, b"end=3")
    unlocked.clock.advance(1)
    assert compact(TopicLog(Timeless(unlocked.path, clock=unlocked.clock), "t"), identity(unlocked))
    assert (1, b"a", None) in read(unlocked)
    put(unlocked, b"end=4")
    assert run(unlocked)
    assert (1, b"a", None) not in read(unlocked)
