"""A topic as a table: the newest record of each key, against a dict; whatever is settled, compacted, or does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import OffsetOutOfRangeError, UsageError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.topic.lookup.latest import latest
from pyspark_commitlog.topic.read.named_columns import UNTYPED, name_columns
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

COMPACT = {**CHUNKS, "segment.bytes": 4096, "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0}


def fill(world: World, random: Random, *, keys: int) -> dict[bytes, bytes]:
    """Append a thousand records, every fifth a tombstone, in commits; return what is left of the keys."""
    state: dict[bytes, bytes] = {}
    for commit in range(10):
        pairs = [
            (b"key %d" % random.randrange(keys), None if random.random() < 0.2 else b"%d-%d" % (commit, row))
            for row in range(100)
        ]
        append(world.handle(), batch_of([value for _, value in pairs], key=[key for key, _ in pairs]))
        for key, value in pairs:
            state.pop(key, None)
            if value is not None:
                state[key] = value
        if commit % 3 == 2:
            world.maintain()
    return state


def table(world: World, **options: object) -> dict[bytes, bytes]:
    """Return what a view gives, each key once."""
    found = world.log().topic("t").to_arrow(columns=["key", "value"], view="latest", **options)  # type: ignore[arg-type]
    keys = found.column("key").to_pylist()
    assert len(keys) == len(set(keys))
    return dict(zip(keys, found.column("value").to_pylist(), strict=True))


@pytest.mark.parametrize("config", [CHUNKS, COMPACT], ids=["delete", "compact"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_it_has_each_key_s_newest_value_and_no_tombstone(
    world: World, config: Mapping[str, object], partitions: int
) -> None:
    world.create(partitions, config)
    state = fill(world, Random(partitions), keys=70)
    assert len(state) > 40
    assert table(world) == state


@pytest.mark.parametrize("buffer_bytes", [64, 100, 600, 10**6])
def test_keys_that_do_not_fit_into_memory_together_are_read_in_turns(world: World, buffer_bytes: int) -> None:
    """Each bucket is cut in two as often as need be."""
    topic = world.create()
    state = fill(world, Random(3), keys=40)
    _, newest = topic.newest()
    wanted = OffsetRange("t", newest.topic_id, 0, 0, newest.log_end[0])
    pieces = [
        name_columns(None, {}).batch("t", 0, rows)
        for rows in latest(topic, wanted, ("key", "value", "timestamp", "headers"), buffer_bytes)
    ]
    found = pa.Table.from_batches(pieces)
    assert dict(zip(found.column("key").to_pylist(), found.column("value").to_pylist(), strict=True)) == state
    assert found.num_rows == len(state)


def test_a_view_holds_no_more_keys_than_it_may(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = world.create()
    fill(world, Random(5), keys=200)
    _, newest = topic.newest()
    held: list[int] = []
    real = np.sort
    monkeypatch.setattr("pyspark_commitlog.topic.lookup.latest.np.sort", lambda at: held.append(len(at)) or real(at))
    wanted = OffsetRange("t", newest.topic_id, 0, 0, newest.log_end[0])
    assert sum(rows.count for rows in latest(topic, wanted, ("key",), 1000)) > 100
    assert sum(held) == len(set(world.log().topic("t").to_arrow(["key"]).column(0).to_pylist()))
    assert len(held) == 5, "the third of four buckets did not fit"
    assert max(held) * (8 + len(b"key 000")) <= 1000


def test_an_end_gives_the_table_as_it_was_then(world: World) -> None:
    world.create()
    for value in (b"1", b"2"):
        append(world.handle(), batch_of([value, value], key=[b"a", b"b"]))
    append(world.handle(), batch_of([None], key=[b"a"]))
    assert table(world) == {b"b": b"2"}
    assert table(world, end={0: 4}) == {b"a": b"2", b"b": b"2"}
    assert table(world, end={0: 3}) == {b"a": b"2", b"b": b"1"}
    assert table(world, end={0: 0}) == {}


def test_a_record_without_key_is_refused_by_offset(world: World) -> None:
    world.create()
    append(world.handle(), batch_of([b"v", b"w"], key=[b"a", None]))
    with pytest.raises(UsageError, match="topic 't' partition 0: the record at offset 1 has no key"):
        table(world)


def test_a_key_that_may_lie_in_two_partitions_is_refused_by_offset(world: World) -> None:
    """The topic grew, or a writer chose the partition: another one may hold the key's newest record."""
    world.create(2)
    append(world.handle(), batch_of([b"old", b"x"], key=[b"a", b"b"]))
    assert len(table(world)) == 2
    world.log().topic("t").add_partitions(7)
    append(world.handle(), batch_of([b"new"], key=[b"a"]))
    with pytest.raises(UsageError, match=r"belongs to partition \d of 7, which may hold a newer record"):
        table(world)


def test_a_view_that_compaction_has_overtaken_is_refused(world: World) -> None:
    """Keys from behind the end decided what stayed: the table as it was then can't be had any more."""
    world.create(1, {**COMPACT, "segment.bytes": 1024})
    for number in range(40):
        append(world.handle(), batch_of([b"%d" % number * 10] * 8, key=[b"key %d" % k for k in range(8)]))
        world.maintain()
    _, state = world.handle().newest()
    cleaned = world.handle().settled(state.topic_id)[1].partition(0).cleaned
    assert cleaned > 100
    assert len(table(world, end={0: cleaned})) == 8
    with pytest.raises(
        OffsetOutOfRangeError, match=f"compaction has come to offset {cleaned}, beyond the end of this view, 100"
    ):
        table(world, end={0: 100})


def test_a_range_of_a_topic_is_one_table(world: World) -> None:
    world.create(2)
    world.clock.advance(10_000)
    batch = batch_of([b"a", b"b", b"c"], partition=[0, 1, 1], timestamp=[1_000_000, 2_000_000, 3_000_500])
    append(world.handle(), batch)
    log = world.log()
    assert log.topic("t").to_arrow().schema == UNTYPED
    assert log.topic("t").to_arrow(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 0, "offset": 0, "value": b"a"},
        {"partition": 1, "offset": 0, "value": b"b"},
        {"partition": 1, "offset": 1, "value": b"c"},
    ]
    assert log.topic("t").to_arrow(["value"], start={1: 1}).column(0).to_pylist() == [b"a", b"c"]
    assert log.topic("t").to_arrow(["value"], end={0: 0}).column(0).to_pylist() == [b"b", b"c"]
    two = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=2)
    assert log.topic("t").to_arrow(["value"], start=two).column(0).to_pylist() == [b"b", b"c"]
    assert log.topic("t").to_arrow(["value"], end=two).column(0).to_pylist() == [b"a"]
    assert log.topic("t").to_arrow(["value"], start=two + timedelta(days=1)).num_rows == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": ["colour"]}, "columns="),
        ({"start": {7: 0}}, "partition"),
        ({"view": "newest"}, "view='newest' is not allowed: use 'latest'"),
        ({"view": "latest", "start": {0: 0}}, "takes no start"),
        ({"start": datetime(2020, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_what_a_table_can_t_be_is_refused(world: World, options: dict[str, object], told: str) -> None:
    world.create()
    with pytest.raises(UsageError, match=told):
        world.log().topic("t").to_arrow(**options)  # type: ignore[arg-type]
    with pytest.raises(
        OffsetOutOfRangeError, match=r"start=5 is out of range: log start offset is 0, high watermark is 0"
    ):
        world.log().topic("t").to_arrow(start={0: 5})
