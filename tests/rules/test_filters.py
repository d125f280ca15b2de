"""What is pruned by time: never a record that is wanted, and most of what is not."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from pyspark_commitlog import DefaultSource
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.read.batch import CommitLogReader
from pyspark_commitlog.spark.read.filters import LimitTaker
from pyspark_commitlog.topic.lookup.timestamps import spans_outside
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.writer import SegmentWriter
from pyspark_commitlog.topic.state.settle_state import Active, Sealed
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.reads import CountingStorage
from tests.support.records import append, batch_of, read_partition
from tests.support.times import CONFIG, START_MS, check_windows
from tests.support.verify import verify
from tests.support.world import CHUNKS, World

HOUR_US = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(times: list[int], keys: list[bytes] | None = None) -> pa.RecordBatch:
    """Return records of these timestamps (ms), some microseconds later."""
    noise = random.Random(times[0])
    more = {} if keys is None else {"key": keys}
    return batch_of([noise.randbytes(200) for _ in times], timestamp=[1000 * at + 7 for at in times], **more)


@pytest.fixture(params=["in order", "shuffled", "compacted", "voided"])
def topic(world: World, request: pytest.FixtureRequest) -> TopicLog:
    """Records 10 ms apart (or up to 300 ms out of order), in several segments, a chunk and the entry itself."""
    compacted = request.param == "compacted"
    more = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01} if compacted else {}
    topic = world.create(1, {**CONFIG, **more})
    chance = random.Random(3)
    late = 1 if request.param == "in order" else 300
    times = [START_MS + 10 * number + chance.randrange(late) for number in range(90)]
    keys = [b"%d" % chance.randrange(30) for _ in times]
    for first in range(0, 60, 5):
        append(topic, batch(times[first : first + 5], keys[first : first + 5]))
        if first == 30 and request.param == "voided":
            world.log().topic("t").void({0: (20, 35)}, force=True)
        settle(topic, topic.newest()[1].topic_id)
    if compacted:
        world.maintain()
    append(topic, batch(times[60:80], keys[60:80]))
    world.log().topic("t").alter({"inline.max.bytes": 65536})
    append(world.handle(), batch(times[80:], keys[80:]))
    return world.handle()


def segments(topic: TopicLog) -> list[Sealed | Active]:
    topic_id = topic.newest()[1].topic_id
    row = topic.settled(topic_id)[1].partition(0)
    return [*topic.sealed(topic.settled(topic_id)[1], 0), row.active]


def test_no_record_of_a_window_of_time_is_left_out(world: World, topic: TopicLog) -> None:
    assert len(segments(topic)) > 3
    assert all(segment.min_timestamp is not None for segment in segments(topic))
    assert check_windows(topic) > 1000
    verify(topic)


def test_joined_frames_tell_the_smallest_of_all(world: World) -> None:
    topic = world.create(1)
    for at in (50, 20, 90):
        append(topic, batch([START_MS + at]))
    world.maintain()
    (active,) = segments(topic)
    assert (active.min_timestamp, active.max_timestamp) == (START_MS + 20, START_MS + 90)
    assert active.lateness == 0


def test_a_segment_tells_how_late_its_records_come(world: World) -> None:
    """Behind the frames before their own: that a frame's own are out of order does not count."""
    topic = world.create(1, {**CONFIG, "batch.size": 10**6, "segment.bytes": 10_000})
    for times in ([30, 20], [40], [33, 60], [55]):
        append(topic, batch([START_MS + at for at in times] * 4))
        settle(topic, topic.newest()[1].topic_id)
        verify(topic)
    (active,) = segments(topic)
    assert active.lateness == 7
    append(topic, batch([START_MS + 52] * 40))
    settle(topic, topic.newest()[1].topic_id)
    sealed, active = segments(topic)
    assert (sealed.lateness, active.lateness) == (7, 0)


def test_frames_without_records_count(world: World) -> None:
    """One in the place of a segment's first records has the largest timestamp of the frame behind it."""
    topic = world.create(1, {**CONFIG, "batch.size": 10**6, "segment.bytes": 10**6, "index.interval.bytes": 0})
    for times in ([10], [20, 15], [30]):
        append(topic, batch([START_MS + at for at in times] * 6))
        settle(topic, topic.newest()[1].topic_id)
    world.log().topic("t").void({0: (0, 6)}, force=True)
    fresh = world.handle()
    assert segments(fresh)[0].lateness == 5
    assert check_windows(fresh) > 20
    verify(fresh)


def test_without_what_is_told_of_times_what_is_too_late_is_kept(world: World) -> None:
    """Segments of a root that was written before they were kept."""
    assert Sealed(0, 1, 0, 1, 1, 0, 0, 5).min_timestamp is None
    old = Active.from_json(Active.from_json([0] * 13).to_json()[:-2])
    assert (old.min_timestamp, old.lateness) == (None, None)
    topic = world.create(1, CONFIG)
    for first in range(0, 60, 5):
        append(topic, batch([START_MS + at for at in range(first, first + 5)]))
        settle(topic, topic.newest()[1].topic_id)
    topic_id = topic.newest()[1].topic_id
    row = topic.settled(topic_id)[1].partition(0)
    assert row.manifest is not None
    found = topic.segments(topic.settled(topic_id)[1], 0)
    topic._tables.put(row.manifest, type(found)([[*each[:8], None, None] for each in found.rows], found.latest), 1000)
    early = [end for start, end in spans_outside(topic, topic_id, 0, 0, START_MS - 1) if end > start]
    assert early == [row.end_offset]  # the active segment's alone


def test_a_segment_that_was_begun_before_lateness_was_told_goes_on_without(world: World) -> None:
    topic = world.create(1, {**CONFIG, "segment.bytes": 10**6})
    append(topic, batch([START_MS, START_MS + 5]))
    settle(topic, topic.newest()[1].topic_id)
    (active,) = segments(topic)
    state = topic.settled(topic.newest()[1].topic_id)[1]
    row = replace(state.partition(0), active=replace(active, lateness=None))
    writer = SegmentWriter(topic.storage, topic.paths(state.topic_id), 0, row, list, topic.config(topic.newest()[1]))
    writer.append(Stamped((b"x" * 10,), 10, row.end_offset, row.end_offset, START_MS + 9, START_MS + 9))
    assert writer.finish(99, published_ms=0).active.lateness is None


def test_behind_deleted_records_all_that_is_too_late_is_left_out(world: World) -> None:
    topic = world.create(1, {**CONFIG, "segment.bytes": 10**6})
    for first in range(0, 60, 5):
        append(topic, batch([START_MS + at for at in range(first, first + 5)]))
    world.maintain()
    world.log().topic("t").delete_records({0: 30})
    fresh = world.handle()
    spans = spans_outside(fresh, fresh.newest()[1].topic_id, 0, START_MS, START_MS + 10)
    left = 60 - 30 - sum(end - max(start, 30) for start, end in spans if end > 30)
    assert left <= 15


@pytest.mark.parametrize("damaged", ["timeindex", "manifests/"])
def test_what_can_not_be_looked_up_is_not_left_out(world: World, topic: TopicLog, damaged: str) -> None:
    for path in world.files(damaged):
        (world.path / path).write_bytes(b"\x7f" * 36)
    fresh = world.handle()
    if damaged == "timeindex":
        topic_id, records = topic.newest()[1].topic_id, read_partition(topic, 0)
        for first in range(START_MS, START_MS + 900, 50):
            spans = spans_outside(fresh, topic_id, 0, first, first + 200)
            assert not any(
                start <= record.offset < end and first <= record.timestamp // 1000 <= first + 200
                for record in records
                for start, end in spans
            )
    else:
        assert spans_outside(fresh, topic.newest()[1].topic_id, 0, START_MS + 10**6, START_MS + 10**7) == []


@pytest.mark.parametrize("entry", range(3))
def test_a_wrong_entry_of_a_time_index_leaves_nothing_out(world: World, topic: TopicLog, entry: int) -> None:
    """The frame that it leads to tells."""
    for path in world.files(".timeindex"):
        data = bytearray((world.path / path).read_bytes())
        if len(data) > 12 * entry:
            data[12 * entry + 3] += 1  # seven weeks later
            (world.path / path).write_bytes(data)
    check_windows(world.handle())


# --- the reader, without Spark ----------------------------------------------------------------------------


class CountedSource(DefaultSource):
    """`commitlog` on a door that counts."""

    storage: CountingStorage

    def open_log(self, path: str, storage: Any) -> Root:
        """Return the log behind that door."""
        return Root.on(self.storage)


def counted(world: World, tests: list[Filter], **options: str) -> tuple[list[pa.RecordBatch], CountingStorage]:
    """Plan and read with these filters pushed; return what was read, and the door."""
    source = CountedSource({"path": str(world.path), "subscribe": "t", "pushDownPredicate": "true", **options})
    source.storage = CountingStorage(world.path, clock=world.clock)
    reader = source.reader(source.schema())
    assert isinstance(reader, CommitLogReader)
    assert list(reader.pushFilters(tests)) == tests
    return [found for part in reader.partitions() for found in reader.read(part)], source.storage


@pytest.fixture(scope="module", params=[{"segment.ms": 1_800_000}, {"segment.bytes": 2_000_000}, {}], ids=str)
def hours(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> World:
    """100 hours in 2 partitions, 8 MB; records come up to five minutes late; short segments, long, one. Only read."""
    world = World(tmp_path_factory.mktemp("hours") / "root")
    topic = world.create(2, {**CHUNKS, "batch.size": 8192, "compression.type": "none", **request.param})
    chance = random.Random(7)
    times = [number * HOUR_US // 200 - chance.randrange(300_000_000) + 10**15 for number in range(20_000)]
    values = [chance.randbytes(400) for _ in times]
    append(topic, batch_of(values, timestamp=times, partition=[number % 2 for number in range(20_000)]))
    world.maintain()
    return world


def hour(number: int) -> list[Filter]:
    """Return the filters of an hour."""
    first = EPOCH + timedelta(microseconds=10**15 + number * HOUR_US)
    return [
        GreaterThanOrEqual(("timestamp",), first),
        LessThan(("timestamp",), first + timedelta(hours=1)),
    ]


@pytest.mark.parametrize("number", [0, 37, 99])
def test_a_filter_for_an_hour_of_a_hundred_reads_two_percent(hours: World, number: int) -> None:
    """Counted at the door: indexes, journals and manifests, too."""
    stored = sum((hours.path / path).stat().st_size for path in hours.files(".log"))
    everything, _ = counted(hours, [])
    found, storage = counted(hours, hour(number))

    start = 10**15 + number * HOUR_US

    def wanted(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
        table = pa.Table.from_batches(batches).sort_by([("partition", "ascending"), ("offset", "ascending")])
        times = table.column("timestamp").cast(pa.int64())
        table = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, start + HOUR_US)))
        return list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))

    assert len(wanted(everything)) > 150
    assert wanted(found) == wanted(everything)
    assert storage.bytes() <= stored * 0.02


def test_offsets_and_partitions_choose_what_is_planned(hours: World) -> None:
    found, storage = counted(hours, [In(("partition",), (1, 7)), In(("offset",), (4000, 4003, None))])
    assert [(b.column("partition")[0].as_py(), b.column("offset").to_pylist()) for b in found] == [
        (1, [4000, 4001, 4002, 4003])
    ]
    assert storage.bytes() < 300_000


@pytest.mark.parametrize("test", [EqualTo(("topic",), "u"), LessThan(("offset",), 0), In(("timestamp",), ())])
def test_filters_that_nothing_can_pass_leave_an_empty_plan(hours: World, test: Filter) -> None:
    found, storage = counted(hours, [test])
    assert found == []
    assert storage.bytes() < 10_000


def test_without_the_option_filters_prune_nothing(hours: World) -> None:
    found, _ = counted(hours, hour(5), pushDownPredicate="false")
    assert sum(b.num_rows for b in found) == 20_000


# --- a pushed limit, as Spark 4.4 pushes it ---------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 150, 10**6])
def test_a_pushed_limit_ends_each_task_when_it_has_enough(
    limit: int, hours: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark counts again, so a task may give more, but it must not give less."""
    monkeypatch.setattr(DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)
    source = CountedSource({"path": str(hours.path), "subscribe": "t"})
    source.storage = CountingStorage(hours.path, clock=hours.clock)
    reader: Any = source.reader(source.schema())
    assert reader.pushLimit(limit) is True
    reader = pickle.loads(pickle.dumps(reader)) if limit else reader
    for part in reader.partitions():
        read = sum(batch.num_rows for batch in reader.read(part))
        assert min(limit, 10_000) <= read <= min(limit + 50, 10_000)


def test_a_pyspark_without_limits_to_push_finds_no_method_and_one_that_has_them_off_finds_its_own() -> None:
    """Spark refuses a reader that has a method of its own while the conf is off; what it compares is `__func__`."""
    theirs = getattr(DataSourceReader, "pushLimit", None)
    source = CountedSource({"path": "/nowhere", "subscribe": "t", "columns": "value"})
    reader = source.reader(source.schema())
    assert hasattr(reader, "pushLimit") == (theirs is not None)
    assert LimitTaker().__func__ is theirs
