"""Run by `client_peer.py` in its own environment: does with confluent-kafka what each line on stdin asks for.

A line is JSON: what to `do`, the `bootstrap` server, the `topic`, and what else that takes; the answer is a line
too. Every client is made and closed inside the question, as ours is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)

REQUEST_SECONDS = 20
AT_ONCE = 10_000
#: Large fetches, and a queue that never runs dry. CRCs are not checked: that is librdkafka's default, and ours does.
TUNED_CONSUMER = {
    "fetch.message.max.bytes": 8 << 20,
    "fetch.max.bytes": 64 << 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
    "fetch.wait.max.ms": 20,
}
#: Large batches, a queue that holds all, and reports of failures only.
TUNED_PRODUCER = {
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.num.messages": 100_000,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
    "delivery.report.only.error": True,
    "partitioner": "murmur2_random",  # as Kafka's own client, and ours
}
#: What `append` sends.
_loaded: tuple[list[bytes], list[bytes]] = [], []


def _consumer(asked: dict[str, Any], settings: dict[str, Any]) -> tuple[Consumer, int]:
    """Return a consumer at the start of all partitions of a topic, and how many records these hold."""
    fixed = {"bootstrap.servers": asked["bootstrap"], "group.id": "bench", "enable.auto.commit": False}
    consumer, topic = Consumer({**fixed, **settings}), asked["topic"]
    partitions = consumer.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=REQUEST_SECONDS) for each in partitions]
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    return consumer, sum(high - low for low, high in ends)


def read(asked: dict[str, Any]) -> int:
    """Read a topic's records to Arrow, a batch of each `consume`; return how many.

    A step of the loop calls `value()` of each message, for all columns also `key()`, `partition()`, `offset()`,
    and `timestamp()`, and makes arrays of what they return.
    """
    consumer, left = _consumer(asked, TUNED_CONSUMER)
    batch_of, batches = _value if asked["columns"] == ["value"] else _all, list[pa.RecordBatch]()
    while left > 0:
        messages = consumer.consume(min(AT_ONCE, left), 1.0)
        left -= len(messages)
        batches.append(batch_of(messages))
    consumer.close()
    return pa.Table.from_batches(batches).num_rows


def _value(messages: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([each.value() for each in messages], pa.binary())})


def _all(messages: list[Any]) -> pa.RecordBatch:
    stamps = [each.timestamp() for each in messages]
    columns = {
        "key": pa.array([each.key() for each in messages], pa.binary()),
        "value": pa.array([each.value() for each in messages], pa.binary()),
        "partition": pa.array([each.partition() for each in messages], pa.int32()),
        "offset": pa.array([each.offset() for each in messages], pa.int64()),
        "timestamp": pa.array([at for _, at in stamps], pa.int64()),
        "timestampType": pa.array([kind for kind, _ in stamps], pa.int32()),
        "headers": pa.array([each.headers() for each in messages]),
    }
    return pa.RecordBatch.from_pydict(columns)


def load(asked: dict[str, Any]) -> int:
    """Hold the first `records` of a Parquet directory as lists of bytes: what a program would have in hand."""
    table = pq.read_table(asked["directory"], columns=["key", "value"]).slice(0, asked["records"])
    _loaded[0][:], _loaded[1][:] = table["key"].to_pylist(), table["value"].to_pylist()
    return len(_loaded[0])


def append(asked: dict[str, Any]) -> int:
    """Produce what is loaded, a call per record; return how many failed."""
    failed: list[object] = []
    settings = {"bootstrap.servers": asked["bootstrap"], "on_delivery": lambda error, _: failed.append(error)}
    producer = Producer({**settings, **TUNED_PRODUCER})
    produce, topic = producer.produce, asked["topic"]
    for key, value in zip(*_loaded, strict=True):
        produce(topic, value, key)
    return producer.flush() + len(failed)


def feed(asked: dict[str, Any]) -> int:
    """Produce `count` records at `rate` per second, each with the time it was sent at; by the defaults."""
    producer = Producer({"bootstrap.servers": asked["bootstrap"]})
    began, filler = time.perf_counter(), b"x" * (asked["bytes"] - 8)
    for number in range(asked["count"]):
        if (early := began + number / asked["rate"] - time.perf_counter()) > 0:
            time.sleep(early)
        producer.produce(asked["topic"], time.time_ns().to_bytes(8, "little") + filler, b"%d" % number)
        producer.poll(0)
    return producer.flush()


def one_by_one(asked: dict[str, Any]) -> list[float]:
    """Return how many ms each of `count` records took, sent when the one before it was acknowledged by all."""
    producer, took = Producer({"bootstrap.servers": asked["bootstrap"], "acks": "all"}), list[float]()
    value = b"x" * asked["bytes"]
    for _ in range(asked["count"]):
        began = time.perf_counter()
        producer.produce(asked["topic"], value)
        producer.flush()
        took.append((time.perf_counter() - began) * 1000)
    return took


def paced(asked: dict[str, Any]) -> list[float]:
    """Return how many ms each of `count` records took until acknowledged by all, at `rate` a second."""
    producer, took = Producer({"bootstrap.servers": asked["bootstrap"], "acks": "all"}), list[float]()
    value, began = b"x" * asked["bytes"], time.perf_counter()

    def acknowledged(sent: float) -> Callable[[object, object], None]:
        return lambda error, _: took.append((time.perf_counter() - sent) * 1000)

    for number in range(asked["count"]):
        due = began + number / asked["rate"]
        while (early := due - time.perf_counter()) > 0:
            producer.poll(early)
        producer.produce(asked["topic"], value, on_delivery=acknowledged(time.perf_counter()))
    producer.flush()
    return took


def tail(asked: dict[str, Any]) -> list[float]:
    """Return how many ms after it was sent each of `count` records was in hand, in the order of arrival."""
    consumer, _ = _consumer(asked, {})
    late: list[float] = []
    while len(late) < asked["count"]:
        message = consumer.poll(1.0)
        if message is not None:
            late.append((time.time_ns() - int.from_bytes(message.value()[:8], "little")) / 1e6)
    consumer.close()
    return late


DO: dict[str, Callable[[dict[str, Any]], object]] = {
    "read": read,
    "load": load,
    "append": append,
    "feed": feed,
    "one_by_one": one_by_one,
    "paced": paced,
    "tail": tail,
}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(DO[asked["do"]](asked)), flush=True)


if __name__ == "__main__":
    main()
