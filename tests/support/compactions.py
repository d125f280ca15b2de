"""A compacted topic whose segments are one large record each, what is put there and what is read."""

from __future__ import annotations

from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, World

HOUR_MS = 3_600_000
CONFIG = {
    **CHUNKS,
    "cleanup.policy": "compact",
    "segment.bytes": 1024,
    "compression.type": "none",
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": HOUR_MS,
}
Told = list[tuple[int, bytes | None, bytes | None]]

ABA = (b"a=1", b"b=1", b"a=2", b"c=1", b"end=1")
KEPT: Told = [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1"), (4, b"end", b"1")]


def created(world: World, partitions: int = 1, **config: object) -> TopicLog:
    """Return a compacted topic with segments of one large record."""
    return world.create(partitions, {**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}})


def put(world: World, *records: bytes) -> None:
    """Write `key=value` and `key` (a tombstone), each large enough for a segment of its own, and settle."""
    topic = world.handle()
    for record in records:
        key, equals, value = record.partition(b"=")
        append(topic, batch_of([value if equals else None], key=[key], headers=[[("pad", b"x" * 700)]]))
        settle(topic, topic.newest()[1].topic_id)


def read(world: World) -> Told:
    """Return (offset, key, value) of what a fresh process reads."""
    return [(record.offset, record.key, record.value) for record in read_partition(world.handle(), 0)]


def identity(world: World) -> str:
    """Return the topic id."""
    return world.handle().newest()[1].topic_id
