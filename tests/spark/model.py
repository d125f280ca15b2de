"""What a topic must hold after a write, worked out record by record from Kafka's rules; imports nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

#: An hour that New York's clocks show twice, to the microsecond.
AUTUMN = datetime(2013, 11, 3, 5, 30, 0, 123456, UTC)


@dataclass(frozen=True)
class Sent:
    """A record as a test hands it to Spark. `partition`: None lets the partitioner choose."""

    value: bytes | None
    key: bytes | None = None
    timestamp: datetime | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class Stored:
    """The record and where it lies."""

    partition: int
    offset: int
    sent: Sent


def mixed(count: int, task: int) -> list[Sent]:
    """Return records with and without key, value, headers and partition; timestamps in and around AUTUMN."""
    return [
        Sent(
            value=None if i % 11 == 0 else f"value {task}/{i}".encode(),
            key=None if i % 5 == 0 else f"key-{i % 17}".encode(),
            timestamp=AUTUMN + timedelta(minutes=7 * i, microseconds=i),
            partition=i % 3 if i % 4 == 0 else None,
            headers=None if i % 3 == 0 else [("trace", f"{i}".encode()), ("empty", b""), ("none", None)][: i % 4],
        )
        for i in range(count)
    ]


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key (`Utils.murmur2`), as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


class Topic:
    """A topic as a list of records.

    Keyless records of a write task stay on one partition (they are few here); each write begins one further.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self.records: list[Stored] = []
        self._writes = 0

    def write(self, tasks: Sequence[Sequence[Sent]]) -> None:
        """Append what one write's tasks hold; tasks follow each other by number, records keep their order."""
        for number, task in enumerate(tasks):
            for sent in task:
                partition = self._choose(sent, self._writes + number)
                offset = sum(stored.partition == partition for stored in self.records)
                self.records.append(Stored(partition, offset, sent))
        self._writes += 1

    def _choose(self, sent: Sent, task: int) -> int:
        if sent.partition is not None:
            return sent.partition
        if sent.key is None:
            return task % self._partitions
        return (murmur2(sent.key) & 0x7FFFFFFF) % self._partitions

    def in_order(self) -> list[Stored]:
        """Return the records partition by partition, by offset."""
        return sorted(self.records, key=lambda stored: (stored.partition, stored.offset))

    def since(self, starts: Sequence[datetime]) -> list[Stored]:
        """Return them from each partition's first record on that is not earlier than its start."""
        found: list[Stored] = []
        for partition, start in enumerate(starts):
            records = [stored for stored in self.in_order() if stored.partition == partition]
            while records and (at := records[0].sent.timestamp) is not None and at < start:
                del records[0]
            found += records
        return found
