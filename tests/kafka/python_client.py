"""Run by `clients.PythonClient` in its own environment: a JSON question on stdin, a JSON answer on stdout.

The question: `library`, `bootstrap`, `topic`, and one of `read` (partitions), `seek` (pairs of
partition and offset), `times` (pairs of partition and milliseconds).
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

DEADLINE_SECONDS = 60
REQUEST_SECONDS = 20


class Consumer(Protocol):
    """What both libraries can do: read a partition from an offset, and answer offsets for timestamps."""

    def end(self, partition: int) -> int:
        """Return the offset behind the last record."""

    def start(self, partition: int, offset: int | None) -> None:
        """Go to an offset of a partition, or to its earliest."""

    def poll(self) -> Iterable[dict[str, Any]]:
        """Return the next records, maybe none."""

    def for_time(self, partition: int, milliseconds: int) -> int | None:
        """Return the first offset with at least this timestamp."""


def record(
    offset: int, timestamp: int, value: bytes | None, headers: Iterable[tuple[str, bytes]] | None
) -> dict[str, Any]:
    """Return a record as JSON takes it."""
    named = [(name, text.decode()) for name, text in headers or ()]
    encoded = base64.b64encode(value or b"").decode()
    return {"offset": offset, "timestamp": timestamp, "value": encoded, "headers": named}


class Confluent:
    """`confluent-kafka`: librdkafka, in C."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import confluent_kafka  # type: ignore[import-not-found,import-untyped,unused-ignore]

        self._library, self._topic = confluent_kafka, topic
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        checks = {"auto.offset.reset": "error", "check.crcs": True, "fetch.wait.max.ms": 5}
        self._consumer, self._assigned = confluent_kafka.Consumer({**settings, **checks}), -1

    def _partition(self, partition: int, offset: int) -> Any:
        return self._library.TopicPartition(self._topic, partition, offset)

    def end(self, partition: int) -> int:
        _, high = self._consumer.get_watermark_offsets(self._partition(partition, 0), timeout=REQUEST_SECONDS)
        return int(high)

    def start(self, partition: int, offset: int | None) -> None:
        start = self._partition(partition, self._library.OFFSET_BEGINNING if offset is None else offset)
        if partition == self._assigned:
            self._consumer.seek(start)
        else:
            self._consumer.assign([start])
            self._assigned = partition

    def poll(self) -> Iterable[dict[str, Any]]:
        message = self._consumer.poll(0.2)
        if message is None:
            return []
        if message.error():
            raise RuntimeError(str(message.error()))
        return [record(message.offset(), message.timestamp()[1], message.value(), message.headers())]

    def for_time(self, partition: int, milliseconds: int) -> int | None:
        asked = [self._partition(partition, milliseconds)]
        offset = self._consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS)[0].offset
        return None if offset == self._library.OFFSET_END else int(offset)


class KafkaPython:
    """`kafka-python`: all in Python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import kafka  # type: ignore[import-not-found,import-untyped,unused-ignore]

        self._library, self._topic = kafka, topic
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="none"
        )

    def _partition(self, partition: int) -> Any:
        return self._library.TopicPartition(self._topic, partition)

    def end(self, partition: int) -> int:
        return int(self._consumer.end_offsets([self._partition(partition)])[self._partition(partition)])

    def start(self, partition: int, offset: int | None) -> None:
        self._consumer.assign([self._partition(partition)])
        if offset is None:
            self._consumer.seek_to_beginning(self._partition(partition))
        else:
            self._consumer.seek(self._partition(partition), offset)

    def poll(self) -> Iterable[dict[str, Any]]:
        found = [each for batch in self._consumer.poll(timeout_ms=200).values() for each in batch]
        return [record(each.offset, each.timestamp, each.value, each.headers) for each in found]

    def for_time(self, partition: int, milliseconds: int) -> int | None:
        found = self._consumer.offsets_for_times({self._partition(partition): milliseconds})
        answer = found.get(self._partition(partition))
        return None if answer is None else int(answer.offset)


LIBRARIES: dict[str, Callable[[str, str], Consumer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
}


def read_all(consumer: Consumer, partition: int, deadline: float) -> list[dict[str, Any]]:
    """Return every record of a partition."""
    consumer.start(partition, None)
    end, found = consumer.end(partition), list[dict[str, Any]]()
    while (found[-1]["offset"] + 1 if found else 0) < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} records of partition {partition}, then none up to offset {end}")
        found += consumer.poll()
    return found


def first_from(consumer: Consumer, partition: int, offset: int, deadline: float) -> dict[str, Any]:
    """Return the first record that comes after seeking to an offset."""
    consumer.start(partition, offset)
    while time.monotonic() < deadline:
        for found in consumer.poll():
            return found
    raise TimeoutError(f"nothing came from offset {offset} of partition {partition}")


def answer(consumer: Consumer, question: dict[str, Any]) -> dict[str, object]:
    """Return the answer to a question."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    if "read" in question:
        return {"read": {partition: read_all(consumer, partition, deadline) for partition in question["read"]}}
    if "seek" in question:
        targets: Sequence[tuple[int, int]] = question["seek"]
        return {"seek": [first_from(consumer, partition, offset, deadline) for partition, offset in targets]}
    return {"times": [consumer.for_time(partition, at) for partition, at in question["times"]]}


def main() -> None:
    """Answer the question on stdin."""
    question = json.load(sys.stdin)
    consumer = LIBRARIES[question["library"]](question["bootstrap"], question["topic"])
    json.dump(answer(consumer, question), sys.stdout)


if __name__ == "__main__":
    main()
