"""Letting go without a lock: planned on every attempt, shared objects whole or not at all (O2, O11)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.format.segment_object import Footer, Slice, SlicePart
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.maintain import release_objects as room
from pyspark_commitlog.topic.maintain.release_objects import LetGo, plan_let_go
from pyspark_commitlog.topic.maintain.retention import delete_records, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import Place, Sealed, Shared
from tests.support.ghosts import cleaned, settled
from tests.support.objects import LATER_MS, ObjectWorld, own, split, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, once


def piece(base: int, end: int) -> Sealed:
    return Sealed(base, end, 0, 100, 0, 0, 12, 5, 5, 0, Place(f"{base}-{end}", 0))


def shared(name: str, **ends: int) -> tuple[Shared, Footer]:
    parts = [SlicePart("log", 9, 0), SlicePart("index", 0, 0), SlicePart("timeindex", 0, 0)]
    slices = tuple(Slice(int(p[1:]), end - 1, end, 5, 5, 0, parts) for p, end in sorted(ends.items()))
    return Shared(name, 0, 99, Checked(9, 0)), Footer(slices)


def gone(plan: LetGo) -> tuple[dict[int, int], set[str], int, bool]:
    return dict(plan.own), {each.name for each in plan.tail}, plan.segments, plan.more


def test_own_segments_below_the_log_start_go_whole() -> None:
    pieces = [piece(0, 10), piece(10, 20), piece(20, 30)]
    assert gone(plan_let_go({0: pieces}, [], [19], 9)) == ({0: 1}, set(), 1, False)
    assert gone(plan_let_go({0: pieces}, [], [20], 9)) == ({0: 2}, set(), 2, False)


def test_a_shared_object_goes_when_every_slice_is_below_its_log_start() -> None:
    """O11: else retention lets go for one partition what another still reads."""
    tail = [shared("a", p0=10, p1=5), shared("b", p1=9)]
    assert gone(plan_let_go({0: [], 1: []}, tail, [10, 4], 9)) == ({}, set(), 0, False)
    assert gone(plan_let_go({0: [], 1: []}, tail, [10, 5], 9)) == ({}, {"a"}, 2, False)
    assert gone(plan_let_go({0: [], 1: []}, tail, [10, 9], 9)) == ({}, {"a", "b"}, 3, False)


def test_an_object_in_the_middle_goes_where_that_leaves_no_hole() -> None:
    tail = [shared("a", p0=10), shared("b", p1=5), shared("c", p0=12, p1=9)]
    assert gone(plan_let_go({0: [], 1: []}, tail, [9, 9], 9)) == ({}, {"b"}, 1, False)


def test_nothing_goes_before_what_precedes_it() -> None:
    tail = [shared("a", p0=10, p1=5), shared("b", p0=12)]
    assert gone(plan_let_go({0: [], 1: []}, tail, [12, 4], 9)) == ({}, set(), 0, False)
    assert gone(plan_let_go({0: [piece(0, 9)]}, tail[1:], [12], 1)) == ({}, set(), 0, True)


def test_what_is_not_known_stays_and_keeps_what_follows() -> None:
    first, second = shared("a", p0=10), shared("b", p0=12)
    assert gone(plan_let_go({0: []}, [(first[0], None), second], [12], 9)) == ({}, set(), 0, False)
    assert gone(plan_let_go({}, [first], [12], 9)) == ({}, set(), 0, False), "a damaged manifest"
    assert gone(plan_let_go({0: []}, [shared("c", p0=1, p7=1)], [12], 9)) == ({}, set(), 0, False)


def test_one_entry_lets_go_of_so_much_only() -> None:
    pieces, tail = [piece(0, 10), piece(10, 20), piece(20, 30)], [shared("a", p0=31), shared("b", p0=32)]
    assert gone(plan_let_go({0: pieces}, tail, [40], 3)) == ({0: 2}, set(), 2, True)
    assert gone(plan_let_go({0: pieces}, tail, [40], 5)) == ({0: 3}, {"a"}, 4, True)
    assert gone(plan_let_go({0: pieces}, tail, [40], 6)) == ({0: 3}, {"a", "b"}, 5, False)


# --- in a root --------------------------------------------------------------------------------------------


def test_a_shared_object_stays_while_a_partition_reads_in_it(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 2, partitions=2)
    delete_records(topic, topic_id(topic), {0: 2})
    assert retain(unlocked.handle(), topic_id(topic)).segments == 0
    assert unlocked.values() == [b"0", b"1"]
    delete_records(topic, topic_id(topic), {1: 1})
    assert retain(unlocked.handle(), topic_id(topic)).segments == 2
    assert len(unlocked.settled().tail) == 1
    assert unlocked.values() == [b"1"]
    verify(unlocked.handle())


def test_what_was_settled_meanwhile_stays(unlocked: ObjectWorld) -> None:
    """O2, planned_again: the list that was planned first does not name what another one settled."""
    topic = settled(unlocked, 2)
    delete_records(topic, topic_id(topic), {0: 1})
    append(topic, batch_of([b"new"]))
    other = once(lambda: settle(unlocked.handle(), topic_id(topic)))
    assert retain(unlocked.handle(on_path("/settle/", "put_if_absent", other)), topic_id(topic)).segments == 1
    assert len(unlocked.settled().tail) == 2
    assert unlocked.values() == [b"1", b"new"]
    verify(unlocked.handle())


def test_what_was_deleted_meanwhile_goes_too(unlocked: ObjectWorld) -> None:
    """O2: the log starts are read on every attempt."""
    topic = settled(unlocked, 3)
    delete_records(topic, topic_id(topic), {0: 1})

    def more() -> None:
        delete_records(unlocked.handle(), topic_id(topic), {0: 2})
        unlocked.idle(topic)

    handle = unlocked.handle(on_path("/settle/", "put_if_absent", once(more)))
    assert retain(handle, topic_id(topic)).segments == 2
    assert unlocked.values() == [b"2"]


def test_own_segments_go_with_a_new_manifest(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    for _ in range(2):
        split(topic, 1)
    first, second = own(topic)
    assert first.place is not None
    old = unlocked.settled().partition(0).manifest
    delete_records(topic, topic_id(topic), {0: 1})
    assert retain(unlocked.handle(), topic_id(topic)).segments == 1
    state = unlocked.settled()
    assert own(unlocked.handle()) == [second]
    assert old is not None
    assert set(state.drops) == {f"objects/{first.place.object}", f"manifests/{old.name}"}
    assert unlocked.values() == [b"1", b"2"]
    verify(unlocked.handle())


def test_a_manifest_serves_the_next_attempt(unlocked: ObjectWorld) -> None:
    """O3: a lost number costs no more than another entry."""
    topic = settled(unlocked, 3)
    for _ in range(2):
        split(topic, 1)
    delete_records(topic, topic_id(topic), {0: 1})
    before = len(unlocked.files("/manifests/"))
    other = once(lambda: unlocked.idle(topic))
    assert retain(unlocked.handle(on_path("/settle/", "put_if_absent", other)), topic_id(topic)).segments == 1
    assert len(unlocked.files("/manifests/")) == before + 1
    assert unlocked.values() == [b"1", b"2"]


def test_a_manifest_that_the_floor_has_passed_is_written_again(unlocked: ObjectWorld) -> None:
    """O4: what was begun below the floor is not named any more."""
    topic = settled(unlocked, 3)
    for _ in range(2):
        split(topic, 1)
    delete_records(topic, topic_id(topic), {0: 1})
    before = len(unlocked.files("/manifests/"))
    newest = topic.settle_journal(topic_id(topic)).newest()
    assert newest is not None
    floor = newest.sequence + 1
    raised = once(lambda: topic.change(topic_id(topic), lambda _, now: Change(replace(now, files_floor=floor))))
    assert retain(unlocked.handle(on_path("/settle/", "put_if_absent", raised)), topic_id(topic)).segments == 1
    assert len(unlocked.files("/manifests/")) == before + 2
    assert unlocked.values() == [b"1", b"2"]


def test_a_manifest_is_of_the_pieces_that_stay_now(unlocked: ObjectWorld) -> None:
    """O2: an attempt after the log start has risen further lets go of more."""
    topic = settled(unlocked, 4)
    for _ in range(3):
        split(topic, 1)
    delete_records(topic, topic_id(topic), {0: 1})

    def more() -> None:
        delete_records(topic, topic_id(topic), {0: 2})
        unlocked.idle(topic)

    rising = once(more)
    assert retain(unlocked.handle(on_path("/settle/", "put_if_absent", rising)), topic_id(topic)).segments == 2
    assert [piece.base_offset for piece in own(unlocked.handle())] == [2]
    assert unlocked.values() == [b"2", b"3"]
    verify(unlocked.handle())


def test_a_partition_with_nothing_left_goes_on(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 3)
    split(topic, 1)
    append(topic, batch_of([b"unsettled"]))
    unlocked.log().topic("t").delete_records({0: -1})
    unlocked.maintain()
    state = unlocked.settled()
    assert (state.partition(0).manifest, state.partition(0).end_offset, state.tail) == (None, 4, ())
    assert unlocked.values() == []
    verify(unlocked.handle())
    append(topic, batch_of([b"next"]))
    unlocked.maintain()
    assert unlocked.values() == [b"next"]
    verify(unlocked.handle())


def test_more_than_an_entry_takes_goes_in_several(unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_DROPS", 2)
    topic = settled(unlocked, 6)
    before = unlocked.numbers(topic)[-1]
    delete_records(topic, topic_id(topic), {0: 5})
    assert retain(unlocked.handle(), topic_id(topic)).segments == 5
    assert unlocked.numbers(topic)[-1] == before + 3
    assert unlocked.values() == [b"5"]


def test_records_that_are_too_old_go(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, {**CHUNKS, "retention.ms": 10_000})
    for value in (b"old", b"new"):
        append(topic, batch_of([value]))
        settle(topic, topic_id(topic))
        unlocked.clock.advance(8_000)
    done = unlocked.maintain().retained
    assert (dict(done.log_start), done.segments) == ({0: (0, 1)}, 1)
    assert unlocked.values() == [b"new"]
    unlocked.clock.advance(LATER_MS)
    assert unlocked.maintain().collected.segments == 1
    unlocked.clock.advance(LATER_MS)
    assert unlocked.maintain().collected.segments == 1, "with an entry that changes nothing on top"
    assert unlocked.objects() == []


def test_a_damaged_manifest_of_a_busy_topic_is_told(unlocked: ObjectWorld) -> None:
    """Whoever looks again at it whenever there is a newer settle entry goes round for ever."""
    topic = settled(unlocked, 3)
    split(topic, 1)
    (path,) = unlocked.files("/manifests/")
    (unlocked.path / path).write_bytes(b"[]")
    looks = 0

    def busy(operation: str, read: str, moment: str) -> None:
        nonlocal looks
        if (operation, read, moment) == ("read", path, "after"):
            looks += 1
            unlocked.idle(topic)
            if looks > 5:
                pytest.fail("it goes round")

    with pytest.raises(CorruptionError, match=re.escape(path)):
        retain(unlocked.handle(busy), topic_id(topic))
    assert looks == 2


def test_a_manifest_that_is_collected_meanwhile_is_no_damage(unlocked: ObjectWorld) -> None:
    topic = settled(unlocked, 4)
    split(topic, 1)
    (path,) = unlocked.files("/manifests/")

    def others() -> None:
        split(topic, 1)
        unlocked.clock.advance(LATER_MS)
        unlocked.idle(topic, 2)
        unlocked.clock.advance(LATER_MS)
        cleaned(unlocked)
        assert path not in unlocked.files("/manifests/")

    assert retain(unlocked.handle(on_path(path, "read", once(others))), topic_id(topic)).segments == 0
