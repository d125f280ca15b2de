"""Small topics for consumers, and what a consumer gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pyspark_commitlog import Consumer, Record, TopicPartition
from pyspark_commitlog.consumer.shared.watcher import SharedRoot
from pyspark_commitlog.format.frame import parse
from pyspark_commitlog.testing.faults import Hook
from tests.support.records import append, batch_of
from tests.support.world import World

#: Frames of a few records, so that tests need few of them.
SMALL = {"batch.size": 1024, "compression.type": "none", "retention.ms": -1, "file.delete.delay.ms": 60_000}
DEFAULTS = {"auto_offset_reset": "earliest", "initial_rebalance_delay_ms": 0}


def put(world: World, values: Sequence[bytes], partition: int = 0, name: str = "t") -> None:
    """Commit values to a partition."""
    append(world.handle(name=name), batch_of(values, partition=[partition] * len(values)))


def numbered(first: int, last: int, size: int = 100) -> list[bytes]:
    """Return different values, ten to a frame of `SMALL`."""
    return [b"%06d" % n + b"x" * (size - 6) for n in range(first, last)]


def consumer(world: World, *topics: str, hook: Hook | None = None, **settings: object) -> Consumer:
    """Return a consumer of its own process, so to say: it shares nothing with others.

    By default it reads from the start, and joins its group at its first poll, where nobody else is in it.
    """
    return Consumer(SharedRoot.on(world.storage(hook)), *topics, **{**DEFAULTS, **settings})


def at(partition: int = 0, topic: str = "t") -> TopicPartition:
    """Return a partition."""
    return TopicPartition(topic, partition)


def values(records: Iterable[Record]) -> list[bytes | None]:
    """Return the values of records."""
    return [record.value for record in records]


def drain(each: Consumer) -> list[Record]:
    """Return all that polls give until one gives nothing."""
    found: list[Record] = []
    while polled := each.poll():
        found += polled
    return found


def by_partition(records: Iterable[Record]) -> Mapping[TopicPartition, list[tuple[int, bytes | None]]]:
    """Return (offset, value) of the records of every partition, in the order they came."""
    found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append((record.offset, record.value))
    return found


def damage_frame(path: Path, number: int) -> None:
    """Flip a bit in the `number`-th frame (from 0) of a file."""
    import pyarrow as pa

    data, position = bytearray(path.read_bytes()), 0
    for _ in range(number):
        frame = parse(pa.py_buffer(bytes(data)), position)
        assert frame is not None
        position += frame.length
    data[position + 100] ^= 1
    path.write_bytes(bytes(data))
