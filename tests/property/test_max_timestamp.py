"""The record with the largest timestamp, in random histories of a topic, against a list of all that was ever written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_max_timestamp
from pyspark_commitlog.topic.maintain.settle import settle
from tests.property.strategies import examples
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, World

HOUR_MS = 3_600_000
_CONFIGS = st.fixed_dictionaries(
    {
        "segment.bytes": st.sampled_from([1024, 3000, 20_000]),
        "batch.size": st.sampled_from([1024, 4096]),
        "index.interval.bytes": st.sampled_from([0, 500]),
        "inline.max.bytes": st.sampled_from([0, 700]),
        "cleanup.policy": st.sampled_from(["delete", "compact,delete"]),
        "min.cleanable.dirty.ratio": st.just(0),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    }
)
#: Key, value, and a timestamp in microseconds: few milliseconds, so that several records share the largest.
_RECORDS = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.sampled_from([b"v", b"w" * 200]), st.integers(0, 6000)
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(_RECORDS, min_size=1, max_size=9)),
        st.tuples(st.sampled_from(["settle", "maintain"]), st.none()),
        st.tuples(st.sampled_from(["delete", "void"]), st.floats(0, 1)),
    ),
    min_size=1,
    max_size=16,
)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_CONFIGS, _STEPS)
def test_it_is_the_first_of_the_latest_that_can_be_read(
    config: dict[str, object], steps: list[tuple[str, object]]
) -> None:
    """After compaction, with records deleted in the middle of a segment, and those that were given up."""
    with tempfile.TemporaryDirectory() as path:
        world = World(Path(path) / "root")
        world.create(1, {**CHUNKS, **config})
        topic_id = world.handle().newest()[1].topic_id
        every: list[int] = []  # the timestamp in ms of each offset
        begun: list[int] = []  # the first offset of each commit
        for what, given_ in steps:
            if what == "append":
                begun.append(len(every))
            _do(world, what, given_, begun)
            left = read_partition(world.handle(), 0)
            if what == "append":
                every += [record.timestamp // 1000 for record in left if record.offset >= len(every)]
            assert all(every[record.offset] == record.timestamp // 1000 for record in left)
            latest = max((every[record.offset] for record in left), default=None)
            first = next((record.offset for record in left if every[record.offset] == latest), None)
            expected = None if latest is None or first is None else OffsetAndTimestamp(first, latest)
            assert find_max_timestamp(world.handle(), topic_id, 0) == expected
            world.clock.advance(1)


def _do(world: World, what: str, given_: object, begun: list[int]) -> None:
    topic = world.handle()
    state = topic.newest()[1]
    match what, given_:
        case "append", list(records):
            keys, values, times = zip(*records, strict=True)
            append(topic, batch_of(values, key=keys, timestamp=times))
        case "settle", _:
            settle(topic, state.topic_id)
        case "maintain", _:
            world.maintain()
            world.clock.advance(HOUR_MS)
        case "delete", float(share):
            low, high = state.log_start[0], state.log_end[0]
            world.log().topic("t").delete_records({0: low + round(share * (high - low))})
        case "void", float(share) if begun:
            number = round(share * (len(begun) - 1))
            _give_up(world, begun[number], [*begun, state.log_end[0]][number + 1])


def _give_up(world: World, start: int, end: int) -> None:
    """Give up a commit's records, or, where they are in one frame with others, all from there on."""
    for until in (end, world.handle().newest()[1].log_end[0]):
        try:
            world.log().topic("t").void({0: (start, until)}, force=True)
        except UsageError:
            continue
        return
