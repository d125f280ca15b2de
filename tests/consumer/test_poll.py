"""Polls: what comes, in which order, from where on, and what is told when a position means nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_commitlog import Consumer, TopicPartition
from pyspark_commitlog.cli.records import cat
from pyspark_commitlog.consumer.shared import shared_topic
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    RootNotFoundError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format.columns import untyped
from pyspark_commitlog.journal import Journal
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.read import unsettled
from pyspark_commitlog.topic.read.named_columns import UNTYPED
from tests.golden import make_golden
from tests.support.consumers import SMALL, at, by_partition, consumer, damage_frame, drain, numbered, put, values
from tests.support.records import append, batch_of
from tests.support.world import Recorder, World


def test_a_record_comes_with_all_that_was_written(world: World) -> None:
    world.create(2)
    row: dict[str, Any] = {"key": [b"k"], "timestamp": [1_526_384_718_283_007], "partition": [1]}
    append(world.handle(), batch_of([b"v"], headers=[[("a", b"1")]], **row))
    (record,) = consumer(world, "t").poll()
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 1, 0, 1_526_384_718_283)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("a", b"1"),))


@pytest.mark.parametrize("most", [1, 7, 10, 33, 500])
def test_every_record_comes_once_and_in_order_whatever_a_poll_may_take(world: World, most: int) -> None:
    world.create(2, SMALL)
    put(world, numbered(0, 40))
    put(world, numbered(100, 135), 1)
    world.maintain()
    put(world, numbered(40, 48))
    each = consumer(world, "t", max_poll_records=most)
    polls = []
    while found := each.poll():
        polls.append(found)
    assert by_partition(chain.from_iterable(polls)) == {
        at(0): list(enumerate(numbered(0, 48))),
        at(1): list(enumerate(numbered(100, 135))),
    }
    assert all(len(found) == most for found in polls[:-1])
    assert (each.position(at(0)), each.position(at(1))) == (48, 35)
    assert each.lag() == {at(0): 0, at(1): 0}


def test_partitions_take_turns_frame_by_frame(world: World) -> None:
    world.create(3, SMALL)
    for partition in range(3):
        put(world, numbered(0, 20), partition)
    each = consumer(world, "t", max_poll_records=1)
    turns = [each.poll()[0].partition for _ in range(60)]
    runs = [turns[0], *(now for before, now in pairwise(turns) if before != now)]
    assert runs[:6] == [0, 1, 2, 0, 1, 2]
    assert sorted(turns) == [0] * 20 + [1] * 20 + [2] * 20


def test_latest_begins_at_the_end_and_earliest_at_the_log_start(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    world.log().topic("t").delete_records({0: 5})
    late, early = consumer(world, "t", auto_offset_reset="latest"), consumer(world, "t")
    assert late.poll() == []
    assert [record.offset for record in early.poll()] == list(range(5, 20))
    put(world, numbered(20, 22))
    assert [record.offset for record in late.poll()] == [20, 21]


def test_none_asks_for_an_offset_and_tells_the_range(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    world.log().topic("t").delete_records({0: 5})
    each = consumer(world, "t", auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRangeError, match=r"'t' partition 0: .* from 5 \(log start offset\) to 20 \(high"):
        each.poll()
    each.seek(at(), 19)
    assert values(each.poll()) == numbered(19, 20)


@pytest.mark.parametrize(("reset", "position"), [("earliest", 10), ("latest", 30)])
def test_a_position_that_retention_overtook_goes_where_it_was_told(
    world: World, reset: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 30))
    each = consumer(world, "t", auto_offset_reset=reset)
    each.poll()
    each.seek(at(), 3)
    world.log().topic("t").delete_records({0: 10})
    with caplog.at_level(logging.WARNING, "pyspark_commitlog.consumer"):
        found = each.poll()
    assert [record.offset for record in found] == list(range(position, 30))
    assert "'t' partition 0: offsets 3 to 9 were deleted" in caplog.text


@pytest.mark.parametrize(("position", "told"), [(3, "offsets 3 to 9 were deleted"), (31, "position 31 is beyond")])
def test_with_none_a_position_out_of_range_is_an_error_and_stays(world: World, position: int, told: str) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 30))
    world.log().topic("t").delete_records({0: 10})
    each = consumer(world, auto_offset_reset="none")
    each.assign([at()])
    each.seek(at(), position)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=rf"{told}.* start offset is 10, the high watermark 30"):
            each.poll()
    each.seek(at(), 29)
    assert values(each.poll()) == numbered(29, 30)


def test_where_a_rewrite_left_offsets_out_the_rest_comes() -> None:
    """The golden root: sparse frames, gaps between frames and at a segment's end, chunks, inline entries."""
    expected = json.loads(make_golden.EXPECTED.read_text())["golden"]
    for most in (1, 4, 1000):
        each = Consumer(str(make_golden.ROOT), "golden", auto_offset_reset="earliest", max_poll_records=most)
        found = by_partition(drain(each))
        told = {place.partition: [offset for offset, _ in rows] for place, rows in found.items()}
        assert told == {int(number): [row[0] for row in rows] for number, rows in expected.items() if rows}
        ends = each.end_offsets(each.assignment())
        assert {place: each.position(place) for place in ends} == ends


def test_a_gap_at_the_end_of_the_log_is_passed(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    put(world, numbered(5, 10))
    world.log().topic("t").void({0: (5, 10)}, force=True)
    each = consumer(world, "t")
    assert values(drain(each)) == numbered(0, 5)
    assert (each.position(at()), each.lag()) == (10, {at(): 0})
    put(world, numbered(10, 12))
    assert [record.offset for record in each.poll()] == [10, 11]


def test_what_retention_takes_during_a_poll_is_passed_by_the_next(world: World) -> None:
    """The look came before, the file is gone when it is opened."""
    world.create(1, {**SMALL, "segment.bytes": 1024})
    for first in range(0, 50, 5):
        put(world, numbered(first, first + 5))
    world.maintain()

    def retain() -> None:
        world.log().topic("t").delete_records({0: 20})
        world.collect_all()

    each = consumer(world, "t", hook=on_path(".log", "map", retain))
    assert each.poll() == []
    assert each.position(at()) == 0
    assert [record.offset for record in each.poll()] == list(range(20, 50))


def test_an_entry_s_inline_frames_are_read_once_for_all_partitions(world: World) -> None:
    world.create(4, {})
    each = consumer(world, "t")
    for number in (0, 10):  # another entry, other bytes
        inline = numbered(number, number + 4)
        append(world.handle(), batch_of(inline, partition=[0, 1, 2, 3]))
        with mock.patch.object(Journal, "inline", autospec=True, side_effect=Journal.inline) as read:
            assert sorted(values(each.poll())) == sorted(inline)
        assert read.call_count == 1


# --- topics that change ------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_read_from_their_start(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 3))
    each = consumer(world, "t", auto_offset_reset="latest")
    assert each.poll() == []
    world.log().topic("t").add_partitions(2)
    put(world, numbered(5, 7), 1)
    assert values(each.poll()) == numbered(5, 7)
    assert each.assignment() == {at(0), at(1)}


def test_partitions_that_stay_assigned_go_on_where_they_are(world: World) -> None:
    """Kafka: `assign` keeps the state of partitions that were assigned before."""
    world.create(2, SMALL)
    each = consumer(world, auto_offset_reset="latest")
    each.assign([at(0)])
    each.poll()
    put(world, numbered(0, 20))
    assert values(each.poll(max_records=5)) == numbered(0, 5)
    each.assign([at(0), at(1)])
    assert each.position(at(0)) == 5
    each.seek(at(0), 18)
    each.pause(at(0))
    each.assign([at(0)])
    assert (each.position(at(0)), each.paused()) == (18, {at(0)})
    each.resume(at(0))
    assert values(each.poll()) == numbered(18, 20)


def test_topics_that_stay_subscribed_to_go_on_where_they_are(world: World) -> None:
    for name in "tu":
        world.create(1, SMALL, name)
    each = consumer(world, "t", auto_offset_reset="latest")
    each.poll()
    put(world, numbered(0, 20))
    assert values(each.poll(max_records=5)) == numbered(0, 5)
    each.subscribe(["t", "u"])
    assert values(each.poll()) == numbered(5, 20)
    put(world, numbered(20, 30))
    each.unsubscribe()
    each.subscribe("t")
    assert each.poll() == []  # it begins anew, at the end


def test_after_a_topic_was_made_again_another_assignment_begins_anew(world: World) -> None:
    """With none its error asks to subscribe again, or to assign."""
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    world.log().groups.commit("g", {"t": {0: 2}})
    each = consumer(world, group_id="g", auto_offset_reset="none")
    each.assign([at()])
    assert values(each.poll()) == numbered(2, 5)
    world.log().topic("t").delete()
    world.create(1, SMALL)
    put(world, numbered(50, 60))
    world.log().groups.commit("g", {"t": {0: 7}})
    with pytest.raises(TopicChangedError, match="or subscribe again"):
        each.poll()
    each.assign([at()])
    assert values(each.poll()) == numbered(57, 60)


def test_a_pattern_finds_topics_that_come_up_and_reads_them_from_their_start(world: World) -> None:
    world.create(1, SMALL, "a1")
    world.create(1, SMALL, "b1")
    put(world, numbered(0, 3), name="a1")
    each = consumer(world, auto_offset_reset="latest", metadata_max_age_ms=1000)
    each.subscribe(pattern="a.*")
    assert each.poll() == []
    world.create(1, SMALL, "a2")
    put(world, numbered(5, 7), name="a2")
    world.clock.advance(1000)
    assert values(each.poll()) == numbered(5, 7)
    assert each.subscription() == {"a1", "a2"}


def test_a_topic_made_again_is_read_from_its_start(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    each = consumer(world, "t", auto_offset_reset="latest")
    each.poll()
    world.log().topic("t").delete()
    with caplog.at_level(logging.WARNING, "pyspark_commitlog.consumer"):
        assert each.poll() == each.poll() == []
        world.create(2, SMALL)
        put(world, numbered(50, 53), 1)
        assert values(each.poll()) == numbered(50, 53)
    assert caplog.text.count("waits for it to be made again") == 1
    assert "was deleted, and made again with id" in caplog.text


def test_a_topic_made_again_between_two_polls_is_noticed(world: World) -> None:
    """Its new offsets would fit: only the topic's id tells."""
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    each, strict = consumer(world, "t"), consumer(world, auto_offset_reset="none")
    strict.assign([at()])
    strict.seek(at(), 0)
    each.poll()
    strict.poll()
    world.log().topic("t").delete()
    world.create(1, SMALL)
    put(world, numbered(50, 60))
    assert values(each.poll()) == numbered(50, 60)
    with pytest.raises(TopicChangedError, match=r"'t' \(id .*made again with id .*partition 0 stays at offset 5"):
        strict.poll()
    assert strict.position(at()) == 5


def test_with_none_seeks_go_on_in_the_topic_that_was_made_again(world: World) -> None:
    world.create(2, SMALL)
    put(world, numbered(0, 5))
    each = consumer(world, auto_offset_reset="none")
    each.assign([at(0), at(1)])
    each.seek_to_beginning()
    each.poll()
    world.log().topic("t").delete()
    world.create(2, SMALL)
    put(world, numbered(50, 60))
    put(world, numbered(60, 70), 1)
    with pytest.raises(TopicChangedError, match="Seek to an offset of the new one"):
        each.poll()
    each.seek(at(0), 7)
    each.seek(at(1), 8)
    assert sorted((r.partition, r.offset) for r in drain(each)) == [(0, 7), (0, 8), (0, 9), (1, 8), (1, 9)]


def test_iteration_goes_on_at_the_start_of_a_topic_that_a_look_found_made_again(world: World) -> None:
    """Records of the topic that is gone would take the position over those of the new one."""
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    each = consumer(world, "t", consumer_timeout_ms=0)
    assert values([next(each), next(each)]) == numbered(0, 2)
    world.log().topic("t").delete()
    world.create(1, SMALL)
    put(world, numbered(50, 70))
    assert each.lag() == {at(): 20}
    assert values(each) == numbered(50, 70)


def test_iteration_goes_on_where_a_look_reset_a_position_out_of_range(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    each = consumer(world, "t")
    assert values([next(each), next(each)]) == numbered(0, 2)
    world.log().topic("t").delete_records({0: 15})
    assert each.lag() == {at(): 5}
    assert (next(each).offset, each.position(at())) == (15, 16)


def test_with_none_a_deleted_topic_is_an_error(world: World) -> None:
    world.create(1, SMALL)
    each = consumer(world, auto_offset_reset="none")
    each.assign([at()])
    each.seek(at(), 0)
    each.poll()
    world.log().topic("t").delete()
    with pytest.raises(TopicChangedError, match="was deleted: partition 0 stays at offset 0"):
        each.poll()


# --- damage -------------------------------------------------------------------------------------------------


def test_damage_stops_its_partition_only_and_seek_goes_past_it(world: World) -> None:
    world.create(2, SMALL)
    put(world, numbered(0, 30))
    put(world, numbered(50, 60), 1)
    world.maintain()
    (segment,) = world.path.glob("topics/t/*/0/*.log")
    damage_frame(segment, 1)
    each = consumer(world, "t", max_poll_records=1000)
    bad = each.poll()
    good = by_partition(bad)
    assert good[at(1)] == list(enumerate(numbered(50, 60)))
    stuck = len(good[at(0)])
    for _ in range(2):
        with pytest.raises(
            CorruptionError, match=rf"stays at offset {stuck} of topic 't' partition 0; to go past it, seek"
        ):
            each.poll()
        assert each.position(at(0)) == stuck
    put(world, numbered(60, 61), 1)
    assert values(each.poll()) == numbered(60, 61)
    each.seek(at(0), 2 * stuck)
    assert values(drain(each)) == numbered(2 * stuck, 30)


@pytest.mark.parametrize("settings", [{}, {"group_id": "g", "auto_commit_interval_ms": 0}])
def test_a_topic_that_cannot_be_read_stops_no_other(world: World, settings: dict[str, Any]) -> None:
    for name in "tu":
        world.create(1, SMALL, name)
        put(world, numbered(0, 3), name=name)
    each = consumer(world, "t", "u", **settings)
    assert len(drain(each)) == 6
    put(world, numbered(3, 6), name="u")
    newest = world.path / "topics/u/journal" / f"{world.entries('u')[-1]:020}.json"
    whole = newest.read_bytes()
    newest.write_bytes(b"{")
    put(world, numbered(3, 6))
    for more in (3, 6), (6, 9):
        if more[0] > 3:
            put(world, numbered(*more))
        assert values(each.poll()) == numbered(*more)
        for _ in range(2):
            with pytest.raises(CorruptionError, match=r"topics/u/journal/.*json"):
                each.poll()
    with pytest.raises(CorruptionError, match=r"topics/u/journal/.*json"):
        each.lag()
    with consumer(world, "t", "u", **{**settings, "group_id": None}) as new:
        assert values(new.poll()) == numbered(0, 9)
    newest.write_bytes(whole)
    assert values(each.poll()) == numbered(3, 6)


def test_a_topic_that_cannot_be_read_at_first_begins_by_auto_offset_reset(world: World) -> None:
    """It did not come up later, as a topic would that is read from its start."""
    for name in "tu":
        world.create(1, SMALL, name)
        put(world, numbered(0, 3), name=name)
    newest = world.path / "topics/u/journal" / f"{world.entries('u')[-1]:020}.json"
    whole = newest.read_bytes()
    newest.write_bytes(b"{")
    each = consumer(world, "t", "u", auto_offset_reset="latest")
    with pytest.raises(CorruptionError, match="topics/u/journal"):
        each.poll()
    newest.write_bytes(whole)
    assert each.poll() == []
    put(world, numbered(3, 6), name="u")
    assert values(each.poll()) == numbered(3, 6)


def test_a_partition_that_is_damaged_at_once_does_not_keep_the_first_place(world: World) -> None:
    """The error is told once, then the others are served: else they would wait for ever behind it."""
    world.create(2, SMALL)
    put(world, numbered(0, 30))
    put(world, numbered(50, 60), 1)
    world.maintain()
    (segment,) = world.path.glob("topics/t/*/0/*.log")
    damage_frame(segment, 0)
    each = consumer(world, "t", max_poll_records=1000)
    with pytest.raises(CorruptionError, match="stays at offset 0 of topic 't' partition 0"):
        each.poll()
    assert values(each.poll()) == numbered(50, 60)
    with pytest.raises(CorruptionError, match="stays at offset 0 of topic 't' partition 0"):
        each.poll()


def test_the_rest_of_a_frame_is_not_handed_out_of_a_topic_that_was_made_again(world: World) -> None:
    """The new topic is begun at the very offset where a frame of the old one was left."""
    world.create(1, SMALL)
    put(world, numbered(0, 10))
    each = consumer(world, "t", max_poll_records=3)
    assert values(each.poll()) == numbered(0, 3)
    world.log().topic("t").delete()
    world.create(1, SMALL)
    put(world, numbered(50, 60))
    world.log().topic("t").delete_records({0: 3})
    assert values(each.poll()) == numbered(53, 56)


# --- Arrow --------------------------------------------------------------------------------------------------


def test_a_table_has_the_same_as_the_records(world: World) -> None:
    world.create(2, SMALL)
    append(world.handle(), batch_of(numbered(0, 25), key=[b"k%d" % n for n in range(25)], headers=[[("a", b"1")]] * 25))
    table = consumer(world, "t").poll_arrow()
    assert table.schema == UNTYPED
    rows = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    records = consumer(world, "t").poll()
    assert [(r["topic"], r["partition"], r["offset"], r["timestamp"], r["timestampType"], r["key"], r["value"]) for r in rows] == [
        (r.topic, r.partition, r.offset, r.timestamp_us, r.timestamp_type, r.key, r.value) for r in records
    ]  # fmt: skip
    assert [tuple((h["key"], h["value"]) for h in r["headers"]) for r in rows] == [r.headers for r in records]


@pytest.mark.parametrize("names", [["value"], ["offset", "topic"], ["headers", "partition", "key"], ["timestampType"]])
def test_a_table_has_the_columns_that_were_asked_for(world: World, names: Sequence[str]) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 25))
    table = consumer(world, "t").poll_arrow(columns=names)
    assert table.equals(consumer(world, "t").poll_arrow().select(names))
    assert table.num_rows == 25


def test_columns_that_were_not_asked_for_are_not_decoded(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    with mock.patch.object(untyped, "decode", wraps=untyped.decode) as decode:
        consumer(world, "t").poll_arrow(columns=["value", "offset"])
        assert decode.call_args.kwargs["names"] == ("value",)
        decode.reset_mock()
        assert consumer(world, "t").poll_arrow(columns=["offset"])["offset"].to_pylist() == [0, 1, 2, 3, 4]
        assert not decode.called


def test_a_poll_takes_about_as_many_bytes_as_allowed(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 200))
    each = consumer(world, "t", fetch_max_bytes=3000)
    taken = each.poll_arrow()
    assert 10 <= taken.num_rows <= 60
    rest = each.to_arrow()
    assert pa.concat_tables([taken, rest])["offset"].to_pylist() == list(range(200))


def test_to_arrow_ends_at_the_high_watermarks_that_were_there(world: World) -> None:
    world.create(2, SMALL)
    put(world, numbered(0, 30))
    put(world, numbered(30, 60), 1)
    each = consumer(world, "t", fetch_max_bytes=1000)
    assert each.to_arrow(max_records=7).num_rows == 7
    assert each.to_arrow().num_rows == 53
    assert each.to_arrow().num_rows == 0
    assert each.to_arrow().schema == UNTYPED


def test_to_arrow_ends_when_its_topic_is_deleted(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 30))
    each, calls = consumer(world, "t", fetch_max_bytes=1000), []
    poll = each._poller.poll

    def polled(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            world.log().topic("t").delete()
        return poll(*args)

    with mock.patch.object(each._poller, "poll", polled):
        found = each.to_arrow()
    assert found["offset"].to_pylist() == list(range(len(found)))
    assert 0 < len(found) < 30
    assert len(calls) == 2


def test_to_arrow_reads_on_beside_a_topic_that_is_gone(world: World) -> None:
    for name in "tu":
        world.create(1, SMALL, name)
        put(world, numbered(0, 3), name=name)
    each = consumer(world, "t", "u")
    assert each.poll(max_records=1)[0].topic == "t"
    world.log().topic("u").delete()
    found = each.to_arrow()
    assert (found["topic"].to_pylist(), found["offset"].to_pylist()) == (["t", "t"], [1, 2])


def test_what_to_arrow_had_read_before_it_failed_comes_again(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 30))
    world.maintain()
    (log,) = world.path.rglob("*.log")
    damage_frame(log, 1)
    each = consumer(world, "t", fetch_max_bytes=1000)
    assert len(each.poll(max_records=5)) == 5
    with pytest.raises(CorruptionError):
        each.to_arrow()
    assert each.position(at()) == 5


def test_offsets_alone_count_as_bytes_too(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 200))
    each = consumer(world, "t", fetch_max_bytes=1000)
    assert 60 <= each.poll_arrow(columns=["offset"]).num_rows <= 80
    assert each.to_arrow(columns=["offset"]).num_rows >= 120


@pytest.mark.parametrize(
    ("name", "poll"),
    [
        ("to_records", lambda each: each.poll()),
        ("to_table", lambda each: each.poll_arrow()),
        ("to_records", lambda each: asyncio.run(each.apoll())),
        ("to_table", lambda each: asyncio.run(each.apoll_arrow())),
    ],
)
def test_what_could_not_be_handed_out_comes_with_the_next_poll(
    world: World, name: str, poll: Callable[[Consumer], Any]
) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    each = consumer(world, "t")
    with (
        mock.patch(f"pyspark_commitlog.consumer.poller.{name}", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        poll(each)
    assert len(poll(each)) == 20


def test_a_topic_made_again_with_fewer_partitions_has_no_lag_in_the_others(world: World) -> None:
    world.create(2, SMALL)
    each = consumer(world)
    each.assign([at(0), at(1)])
    each.poll()
    world.log().topic("t").delete()
    world.create(1, SMALL)
    put(world, numbered(0, 3))
    assert each.lag() == {at(0): 3}


# --- calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "then"), [("earliest", 0), ("latest", 20), ("none", None)])
def test_a_position_beyond_the_end_is_what_was_sought_until_the_next_poll(
    world: World, reset: str, then: int | None
) -> None:
    """Kafka: `position` asks nobody; the fetch finds OFFSET_OUT_OF_RANGE, and `auto.offset.reset` says where to."""
    world.create(1, SMALL)
    put(world, numbered(0, 20))
    each = consumer(world, auto_offset_reset=reset)
    each.assign([at()])
    each.seek(at(), 1000)
    assert [each.position(at()) for _ in range(2)] == [1000, 1000]
    if then is None:
        with pytest.raises(OffsetOutOfRangeError, match="position 1000 is beyond the log"):
            each.poll()
        assert each.position(at()) == 1000
        return
    first = each.poll(max_records=1)
    assert [record.offset for record in first] == ([then] if then < 20 else [])
    assert each.position(at()) == then + len(first)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset='first' is not allowed"),
        ({"max_poll_records": 0}, "max_poll_records=0 is not allowed"),
        ({"fetch_max_bytes": 1.5}, "fetch_max_bytes=1.5 is not allowed"),
        ({"enable_auto_commit": "false", "group_id": "g"}, "enable_auto_commit='false' is not allowed"),
        ({"enable_auto_commit": 0}, "enable_auto_commit=0 is not allowed"),
        ({"session_timeout_ms": 45_000.0}, "session_timeout_ms=45000.0 is not allowed"),
        ({"heartbeat_interval_ms": True}, "heartbeat_interval_ms=True is not allowed"),
        ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms=-1 is not allowed: it takes 0"),
        ({"metadata_max_age_ms": True}, "metadata_max_age_ms=True"),
        ({"consumer_timeout_ms": -5}, "consumer_timeout_ms=-5"),
        ({"group_id": ""}, "group"),
    ],
)
def test_a_setting_that_is_not_allowed_is_named(world: World, settings: dict[str, Any], told: str) -> None:
    world.create()
    with pytest.raises(UsageError, match=told):
        consumer(world, "t", **settings)


def test_a_wrong_call_is_told(world: World) -> None:
    world.create()
    each = consumer(world)
    with pytest.raises(UsageError, match="nothing is subscribed to"):
        each.poll()
    for call in (lambda: each.subscribe(), lambda: each.subscribe("t", pattern="t"), lambda: each.subscribe([])):
        with pytest.raises(UsageError, match="subscribe takes"):
            call()
    with pytest.raises(UsageError, match="not a regular expression"):
        each.subscribe(pattern="(")
    with pytest.raises(UsageError, match="use TopicPartition"):
        each.assign([("t", 0)])  # type: ignore[list-item]
    each.assign([at(0)])
    for act in (lambda: each.seek(at(1), 0), lambda: each.position(at(1)), lambda: each.pause(at(1))):
        with pytest.raises(UsageError, match="'t' partition 1 is not assigned"):
            act()
    with pytest.raises(UsageError, match="offset=-1 is not allowed"):
        each.seek(at(0), -1)
    with pytest.raises(UsageError, match="max_records=0"):
        each.poll(max_records=0)
    for names in (["offset", "nope"], [], ["key", "key"]):
        with pytest.raises(UsageError, match="columns="):
            each.poll_arrow(columns=names)
    with pytest.raises(UsageError, match="no group to commit to"):
        each.commit()
    with pytest.raises(UsageError, match="make the consumer with group_id"):
        each.committed(at(0))
    each.assign([at(7)])
    with pytest.raises(UsageError, match="has partitions 0 to 0, not 7"):
        each.poll()
    each.close()
    with pytest.raises(UsageError, match="is closed"):
        each.poll()
    each.close()


def test_what_is_not_there_is_told(world: World) -> None:
    with pytest.raises(RootNotFoundError):
        consumer(world, "t")
    world.create()
    with pytest.raises(UnknownTopicError, match="'nope'"):
        consumer(world, "nope").poll()
    each = consumer(world)
    each.assign([TopicPartition("nope", 0)])
    with pytest.raises(UnknownTopicError, match="'nope'"):
        each.poll()


def test_offsets_and_times_of_partitions_are_told_assigned_or_not(world: World) -> None:
    world.create(2, SMALL)
    append(world.handle(), batch_of(numbered(0, 9), partition=[1] * 9, timestamp=[n * 1000 for n in range(9)]))
    world.log().topic("t").delete_records({1: 2})
    each = consumer(world)
    assert each.beginning_offsets([at(0), at(1)]) == {at(0): 0, at(1): 2}
    assert each.end_offsets([at(0), at(1)]) == {at(0): 0, at(1): 9}
    found = each.offsets_for_times({at(1): 5, at(0): 5})
    assert found[at(0)] is None
    assert found[at(1)] is not None
    assert (found[at(1)].offset, found[at(1)].timestamp) == (5, 5)  # type: ignore[union-attr]
    assert each.partitions_for_topic("t") == {0, 1}
    assert each.topics() == {"t"}


def test_seeks_and_pauses(world: World) -> None:
    world.create(2, SMALL)
    put(world, numbered(0, 15))
    put(world, numbered(20, 25), 1)
    each = consumer(world, "t")
    each.seek_to_end(at(0))
    assert values(each.poll()) == numbered(20, 25)
    each.seek_to_beginning()
    each.pause(at(1))
    assert each.paused() == {at(1)}
    assert values(drain(each)) == numbered(0, 15)
    assert each.lag() == {at(0): 0, at(1): 5}
    each.resume(at(1))
    each.seek(at(0), 13)
    assert by_partition(drain(each)) == {
        at(0): [*enumerate(numbered(0, 15))][13:],
        at(1): [*enumerate(numbered(20, 25))],
    }


def test_a_seek_into_a_frame_that_was_begun_goes_there(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 30))
    each = consumer(world, "t", max_poll_records=3)
    for offset in (0, 7, 1, 28, 4, 4):
        each.seek_to_end()
        each.seek(at(), offset)
        assert [record.offset for record in each.poll()] == [*range(30)][offset : offset + 3]


def test_what_is_left_of_a_frame_may_be_asked_for_with_other_columns(world: World) -> None:
    world.create(1, SMALL)
    put(world, numbered(0, 9))
    each = consumer(world, "t")
    assert each.poll_arrow(max_records=2, columns=["offset"])["offset"].to_pylist() == [0, 1]
    assert each.poll_arrow(max_records=2, columns=["value"])["value"].to_pylist() == numbered(2, 4)
    assert values(each.poll()) == numbered(4, 9)


# --- the work ----------------------------------------------------------------------------------------------


def test_an_idle_poll_takes_one_look_for_the_next_entry(world: World) -> None:
    world.create(4, SMALL)
    put(world, numbered(0, 15))
    seen = Recorder()
    asked: list[str] = []

    def hook(operation: str, path: str, moment: str) -> None:
        seen(operation, path, moment)
        if moment == "before":
            asked.append(operation)

    each = consumer(world, "t", hook=hook)
    drain(each)
    asked.clear()
    for _ in range(10):
        assert each.poll() == []
    assert asked == ["info"] * 10


def test_what_a_consumer_is_about_to_see_is_made_durable_once(world: World) -> None:
    """Rule R5: the writer may have put the entry, and not synced the directory yet."""
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    seen = Recorder()
    each = consumer(world, "t", hook=seen)
    each.poll()
    each.poll()
    assert seen.paths("sync_directory") == ["topics/t/journal"]
    put(world, numbered(5, 6))
    each.poll()
    assert seen.paths("sync_directory") == ["topics/t/journal"] * 2


def test_an_entry_is_read_for_all_partitions_not_for_each(world: World) -> None:
    world.create(20, SMALL)
    seen = Recorder()
    each = consumer(world, "t", hook=seen)
    with mock.patch.object(unsettled, "load_pending", wraps=unsettled.load_pending) as load:
        for _ in range(10):
            append(world.handle(), batch_of(numbered(0, 20), partition=range(20)))
            assert len(each.poll()) == 20
        assert load.call_count == 10
    read = [path for path in seen.paths("fetch") if path.startswith("topics/t/journal/")]
    assert len(read) <= 2 * 10 + 1


def test_an_idle_consumer_still_notices_when_its_newest_entry_is_gone(world: World) -> None:
    """The next number may be collected rather than not there yet: the anchor is looked at, too, now and then."""
    world.create(1, SMALL)
    put(world, numbered(0, 5))
    each = consumer(world, "t")
    drain(each)
    for n in range(5, 9):
        put(world, numbered(n, n + 1))
    world.maintain()
    for entry in world.entries()[:-1]:
        world.handle().journal.delete(entry)
    assert each.poll() == []
    world.clock.advance(1000)
    assert values(each.poll()) == numbered(5, 9)


# --- where an end is decided --------------------------------------------------------------------------------


def overtaken(world: World) -> None:
    """Let records come whose entries are collected, as the newest one was that a consumer saw a moment ago."""
    for first in range(5, 20, 5):
        world.clock.advance(1)  # a file of another time, though it may get the inode of one that is gone
        put(world, numbered(first, first + 5))
        world.maintain()
    world.clock.advance(1)
    world.maintain()


ENDS: dict[str, Callable[[Consumer], object]] = {
    "lag": lambda each: sum(each.lag().values()),
    "end_offsets": lambda each: each.end_offsets([at()])[at()] - each.position(at()),
    "to_arrow": lambda each: each.to_arrow().num_rows,
    "exit": lambda each: 0 if cat._is_done(each, EXIT, {}) else 15,
    "iteration": lambda each: len(list(each)),
    "async iteration": lambda each: asyncio.run(counted(each)),
}
EXIT: Any = SimpleNamespace(group="g", to_end=True)


async def counted(each: Consumer) -> int:
    """Return how many records there are until iteration ends."""
    return sum([1 async for _ in each])


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_no_end_is_found_where_what_comes_next_is_collected(
    world: World, end: Callable[[Consumer], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anchor rule: the number behind the entry that was seen last is free, as it is when nothing has come."""
    monkeypatch.setattr(shared_topic, "RECHECK_SECONDS", 3600.0)
    world.create(1, {**SMALL, "file.delete.delay.ms": 0})
    put(world, numbered(0, 5))
    each = Consumer(SharedRoot.on(LocalStorage(world.path)), "t", auto_offset_reset="earliest", consumer_timeout_ms=20)
    assert values(each.poll()) == numbered(0, 5)
    overtaken(world)
    assert world.entries()[0] > 3
    assert each.poll() == [], "who only looks now and then may be late"
    assert end(each) == 15
    each.close()
