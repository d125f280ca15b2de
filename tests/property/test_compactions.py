"""Random histories of a compacted topic against a list of all records that were ever written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from tests.property.strategies import examples
from tests.support.records import append, batch_of, read_partition
from tests.support.verify import verify
from tests.support.world import CHUNKS, World

HOUR_MS = 3_600_000
_CONFIGS = st.fixed_dictionaries(
    {
        "segment.bytes": st.sampled_from([1024, 3000, 20_000]),
        "batch.size": st.sampled_from([1024, 4096]),
        "index.interval.bytes": st.sampled_from([0, 500]),
        "compression.type": st.sampled_from(["none", "lz4"]),
        "min.cleanable.dirty.ratio": st.sampled_from([0, 0.5]),
        "min.compaction.lag.ms": st.sampled_from([0, HOUR_MS]),
        "delete.retention.ms": st.sampled_from([0, HOUR_MS]),
        "cleaner.dedupe.buffer.size": st.sampled_from([1024, 10**6]),
    }
)
_KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"\0", b"long" * 30])
_VALUES = st.none() | st.sampled_from([b"", b"v", b"w" * 300])
_STEPS = st.lists(
    st.tuples(st.lists(st.tuples(_KEYS, _VALUES), max_size=9), st.sampled_from([0, 1, HOUR_MS, 3 * HOUR_MS])),
    min_size=1,
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_CONFIGS, _STEPS)
def test_whoever_reads_all_knows_the_last_value_of_every_key(
    config: dict[str, object], steps: list[tuple[list[tuple[bytes, bytes | None]], int]]
) -> None:
    """I2: what is left is what was written, at its offset; a key that is missing was deleted."""
    with tempfile.TemporaryDirectory() as path:
        world = World(Path(path) / "root")
        world.create(1, {**CHUNKS, "cleanup.policy": "compact", **config})
        every: list[tuple[bytes, bytes | None]] = []
        for records, pause_ms in steps:
            if records:
                append(world.handle(), batch_of([v for _, v in records], key=[k for k, _ in records]))
                every += records
            world.clock.advance(pause_ms)
            world.maintain()
            left = {record.offset: (record.key, record.value) for record in read_partition(world.handle(), 0)}
            assert all(every[offset] == found for offset, found in left.items())
            told = dict(left[offset] for offset in sorted(left))
            last = dict(every)
            assert {key: value for key, value in last.items() if value is not None}.items() <= told.items()
            assert all(last[key] == value for key, value in told.items())
            verify(world.handle())
        cleaned = world.handle().settled(world.handle().newest()[1].topic_id)[1].partition(0).cleaned
        below = [key for offset, (key, _) in left.items() if offset < cleaned]
        assert len(set(below)) == len(below), "below the checkpoint every key has one record"
