"""A producer's records: where they go, in which order, what is told of them, and what is refused."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from threading import Thread, enumerate as all_threads
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import (
    BufferExhaustedError,
    InvalidRecordError,
    NotSentError,
    ProducerClosedError,
    RootNotFoundError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.producer.delivery import Delivery
from pyspark_commitlog.producer.records.batches import (
    RECORD_BYTES,
    BatchMetadata,
    RecordMetadata,
    RecordRun,
    SentFuture,
)
from pyspark_commitlog.producer.records.bundle import offsets_of
from pyspark_commitlog.topic.damage.dump import dump
from pyspark_commitlog.topic.write import records, staging
from pyspark_commitlog.topic.write.partitioner import key_partitions
from tests.support.producers import Gate, producer_on, wait_until
from tests.support.records import batch_of, read_partition, read_topic
from tests.support.world import CHUNKS, World, many

_INLINE = {"retention.ms": -1}


def test_a_future_tells_where_its_record_is(world: World) -> None:
    """I2, I3: partition and offset of every record are those that a reader finds it at; offsets are dense."""
    topic = world.create(4, _INLINE)
    with producer_on(world) as producer:
        futures = [producer.send("t", b"v%d" % n, key=b"k%d" % n) for n in range(500)]
    found = {(r.partition, r.offset): r.value for r in read_topic(topic)}
    assert len(found) == 500
    for number, future in enumerate(futures):
        told = future.result()
        assert found[told.partition, told.offset] == b"v%d" % number
        assert told == RecordMetadata("t", told.partition, told.offset, world.clock.now_ms())
        assert told.has_offset()


@pytest.mark.parametrize("config", [_INLINE, CHUNKS])
def test_keys_go_where_kafkas_clients_send_them(world: World, config: dict[str, Any]) -> None:
    world.create(7, config)
    keys = [b"key %d" % n for n in range(100)]
    with producer_on(world) as producer:
        futures = [producer.send("t", b"", key=key) for key in keys]
    expected = key_partitions(pa.array(keys, pa.binary()), 7).tolist()
    assert [future.result().partition for future in futures] == expected


def test_all_of_a_record_arrives(world: World) -> None:
    topic = world.create(2)
    at = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
    world.clock.advance(int(at.timestamp() * 1000) - world.clock.now_ms())
    with producer_on(world) as producer:
        producer.send("t", "wärt", "schlüssel", {"a": b"1", "b": None, "c": "text"}, at, 1)
        producer.send("t", None, b"tombstone", [("a", b"1"), ("a", b"2")], 1_700_000_000_123, partition=1)
        producer.send("t", bytearray(b"bytes"), partition=1)
    first, second, third = read_partition(topic, 1)
    assert (first.value, first.key) == ("wärt".encode(), "schlüssel".encode())
    assert first.headers == (("a", b"1"), ("b", None), ("c", b"text"))
    assert first.timestamp == int(at.timestamp()) * 1_000_000 + 123456
    assert (second.value, second.key, second.headers) == (None, b"tombstone", (("a", b"1"), ("a", b"2")))
    assert second.timestamp == 1_700_000_000_123_000
    assert (third.value, third.key, third.headers) == (b"bytes", None, None)
    assert third.timestamp == world.clock.now_ms() * 1000


def test_log_append_time_is_told(world: World) -> None:
    world.create(1, {"message.timestamp.type": "LogAppendTime"})
    with producer_on(world) as producer:
        told = producer.send("t", b"", timestamp=1).result()
    assert told.timestamp == world.clock.now_ms()


def test_what_gathers_while_a_commit_is_under_way_shares_the_next(world: World) -> None:
    """Commits group themselves: under load they get larger, not more."""
    gate = Gate()
    world.create()
    with producer_on(world, gate) as producer:
        first = producer.send("t", b"first")
        assert gate.reached.wait(60)
        rest = [producer.send("t", value) for value in many(100)]
        gate.release()
        assert first.result().offset == 0
        assert [future.result().offset for future in rest] == list(range(1, 101))
    assert len(world.entries()) == 3  # create, the first, the rest


def test_the_order_of_every_thread_is_kept(world: World) -> None:
    """I7: several threads share a producer; offsets are dense, and each thread's records in its order."""
    topic = world.create(1, _INLINE)
    with producer_on(world, buffer_memory=40_000) as producer:

        def send(name: bytes) -> None:
            for value in many(300, name):
                producer.send("t", value)

        threads = [Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [record.value or b"" for record in read_topic(topic)]
    assert [record.offset for record in read_topic(topic)] == list(range(900))
    for name in (b"a", b"b", b"c"):
        assert [value for value in values if value.startswith(name)] == many(300, name)


def test_topics_do_not_wait_for_each_other(world: World) -> None:
    gate = Gate("topics/slow/")
    for name in ("slow", "t"):
        world.create(name=name)
    with producer_on(world, gate) as producer:
        slow = producer.send("slow", b"a")
        assert gate.reached.wait(60)
        assert producer.send("t", b"b").result(60).offset == 0
        assert not slow.done()
        gate.release()


# --- Arrow batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [_INLINE, CHUNKS])
def test_a_batch_tells_its_offsets(world: World, config: dict[str, Any]) -> None:
    topic = world.create(3, config)
    gate = Gate()
    with producer_on(world, gate) as producer:
        producer.send("t", b"x", partition=0)
        assert gate.reached.wait(60)
        mixed = [producer.send("t", b"y", partition=2)]
        table = pa.Table.from_batches([batch_of(many(5), partition=[0, 0, 2, None, 2]) for _ in range(3)])
        batch = producer.send_batch("t", table)
        mixed.append(producer.send("t", b"z", partition=2))
        gate.release()
    told = batch.result()
    assert (told.topic, told.records) == ("t", 15)
    assert sum(end - first for first, end in told.offsets.values()) == 15
    first, end = told.offsets[2]
    assert (mixed[0].result().offset, mixed[1].result().offset) == (first - 1, end)
    inside = read_partition(topic, 2, first, end)
    assert [record.value for record in inside if record.value in (b"v000002", b"v000004")] == [
        b"v000002",
        b"v000004",
    ] * 3
    assert len(read_topic(topic)) == 18


def test_text_and_headers_and_record_batches(world: World) -> None:
    topic = world.create()
    headers = pa.array([[("h", b"1")], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array(["a", "b"]), "key": pa.array(["k", None]), "headers": headers}
    )
    with producer_on(world) as producer:
        assert producer.send_batch("t", batch).result() == BatchMetadata("t", 2, {0: (0, 2)})
        assert producer.send_batch("t", batch.slice(0, 0)).result() == BatchMetadata("t", 0, {})
    assert [(r.key, r.value, r.headers) for r in read_topic(topic)] == [
        (b"k", b"a", (("h", b"1"),)),
        (None, b"b", None),
    ]


def test_a_batch_of_other_columns_is_refused_at_once(world: World) -> None:
    world.create()
    with producer_on(world) as producer:
        for batch, told in [
            (pa.table({"v": ["a"]}), "no 'value' column"),
            (pa.table({"value": ["a"], "topic": ["t"]}), "leave its column 'topic' out"),
            ([b"a"], "takes a pyarrow.Table or RecordBatch, not list"),
        ]:
            with pytest.raises(InvalidRecordError, match=told):
                producer.send_batch("t", batch)  # type: ignore[arg-type]
    assert world.values() == []


def test_a_refused_batch_fails_alone_and_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never half-applied: its second piece is refused when its first is written already; what is beside it lands."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 1)
    world.create(2, {**CHUNKS, "max.message.bytes": 100})
    gate = Gate()
    bad = pa.table({"value": [b"small"] * 70_000 + [b"x" * 101]})
    with producer_on(world, gate) as producer:
        producer.send("t", b"first")
        assert gate.reached.wait(60)
        before, refused, behind = producer.send("t", b"1"), producer.send_batch("t", bad), producer.send("t", b"2")
        also = producer.send_batch("t", bad)
        gate.release()
        assert before.result().has_offset()
        assert behind.result().has_offset()
        for future in (refused, also):
            with pytest.raises(InvalidRecordError, match=r"max\.message\.bytes is 100"):
                future.result()
    assert sorted(world.values()) == [b"1", b"2", b"first"]
    assert list(world.path.rglob(".tmp-*")) == []


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("producer_id", [None, "p"])
def test_batches_that_are_refused_do_not_have_the_others_staged_again_and_again(
    world: World, pieces: int, producer_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred of them held their topic up for seconds; in a batch of several pieces the last one is refused."""
    world.create(1, _INLINE)
    judged: list[int] = []
    real = records.prepare
    monkeypatch.setattr(records, "prepare", lambda *of: judged.append(1) or real(*of))
    good = pa.Table.from_batches([batch_of([b"g"], partition=[0])] * pieces)
    bad = pa.Table.from_batches([*good.to_batches()[1:], batch_of([b"b"], partition=[7])])
    with producer_on(world, producer_id=producer_id, linger_ms=3_600_000, delivery_timeout_ms=4_000_000) as producer:
        sent = [producer.send_batch("t", batch) for batch in [good, bad] * 50]
        producer.flush()
        outcomes = [future.exception() for future in sent]
    assert len(judged) <= 2 * 100 * pieces
    if producer_id is None:
        assert [future.result().offsets[0] for future in sent[::2]] == [
            (n * pieces, (n + 1) * pieces) for n in range(50)
        ]
        assert all(isinstance(error, InvalidRecordError) for error in outcomes[1::2])
    else:
        assert outcomes[0] is None
        assert isinstance(outcomes[1], InvalidRecordError)
        assert all(isinstance(error, NotSentError) for error in outcomes[2:])
    assert world.values() == [b"g"] * pieces * (50 if producer_id is None else 1)


# --- what is refused --------------------------------------------------------------------------------------


def test_a_refused_record_fails_alone(world: World) -> None:
    world.create(2, {**_INLINE, "max.message.bytes": 100})
    gate = Gate()
    future_ms = world.clock.now_ms() + 3_700_000
    with producer_on(world, gate) as producer:
        producer.send("t", b"first")
        assert gate.reached.wait(60)
        bad: list[Future[Any]] = [
            producer.send("t", b"x" * 101),
            producer.send("t", b"", partition=2),
            producer.send("t", b"", timestamp=future_ms),
            producer.send("t", b"", timestamp=-5),
        ]
        good = [producer.send("t", value) for value in many(20)]
        bad.append(producer.send("t", b"", partition=-1))
        gate.release()
        for future, told in zip(
            bad, ["101 bytes", "partition 2 does not exist", "ahead of", "before 1970", "partition -1"], strict=True
        ):
            with pytest.raises(InvalidRecordError, match=told):
                future.result()
        assert all(future.result().has_offset() for future in good)
    assert sorted(v or b"" for v in world.values()) == [b"first", *many(20)]
    assert len(world.entries()) == 3


def test_a_compacted_topic_refuses_records_without_a_key_also_when_it_became_one_meanwhile(world: World) -> None:
    """R9: the topic is altered between staging and the put: the records are judged anew, one by one."""
    world.create(1, _INLINE)
    gate = Gate()
    with producer_on(world, gate, linger_ms=3_600_000, delivery_timeout_ms=4_000_000, batch_size=1000) as producer:
        keyless, keyed = producer.send("t", b"a"), producer.send("t", b"b", key=b"k" * 1000)
        assert gate.reached.wait(60)
        world.log().topic("t").alter({"cleanup.policy": "compact"})
        gate.release()
        with pytest.raises(InvalidRecordError, match="no key"):
            keyless.result(60)
        assert keyed.result(60).offset == 0
    assert world.values() == [b"b"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"value": 5}, "value is a int: it takes bytes, str or None"),
        ({"value": b"", "key": 1.0}, "key is a float"),
        ({"value": b"", "headers": ["h"]}, "header is 'h'"),
        ({"value": b"", "headers": {"h": 1}}, "header 'h' is a int"),
        ({"value": "\ud800"}, "value is no text that UTF-8 can hold"),
        ({"value": b"", "headers": {"\ud800": b""}}, "header name is no text"),
        ({"value": b"", "timestamp": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"value": b"", "timestamp": "now"}, "milliseconds since 1970"),
        ({"value": b"", "timestamp": 2**62}, "milliseconds since 1970"),
        ({"value": b"", "partition": "1"}, "partition is '1'"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_once(world: World, arguments: dict[str, Any], told: str) -> None:
    world.create()
    with producer_on(world) as producer, pytest.raises(InvalidRecordError, match=told):
        producer.send("t", **arguments)
    assert world.values() == []


def test_an_unknown_topic_or_root_is_refused_at_once(world: World) -> None:
    with producer_on(world) as producer:
        with pytest.raises(RootNotFoundError):
            producer.send("t", b"")
        world.create()
        with pytest.raises(UnknownTopicError, match="unknown topic 'other'"):
            producer.send("other", b"")
        producer.send("t", b"a")
    assert world.values() == [b"a"]


def test_a_topic_made_again_gets_what_is_sent_from_then_on(world: World) -> None:
    """R14: what was staged for the topic that is gone fails; a producer without an id goes on in the new one."""
    world.create()
    gate = Gate()
    with producer_on(world, gate) as producer:
        lost = producer.send("t", b"old")
        assert gate.reached.wait(60)
        world.log().topic("t").delete()
        world.log().create_topic("t", 1, CHUNKS)
        gate.release()
        with pytest.raises(TopicChangedError):
            lost.result()
        assert producer.send("t", b"new").result().offset == 0
        world.log().topic("t").delete()
        with pytest.raises(UnknownTopicError):
            producer.send("t", b"none").result()
    world.create()
    assert world.values() == []


def test_it_sees_new_partitions(world: World) -> None:
    world.create(1)
    seen: list[int] = []

    def last(key: bytes | None, partitions: int) -> int:
        seen.append(partitions)
        return partitions - 1

    with producer_on(world, partitioner=last) as producer:
        assert producer.send("t", b"").result().partition == 0
        world.log().topic("t").add_partitions(3)
        producer.send("t", b"").result()
        assert producer.send("t", b"").result().partition == 2
    assert seen == [1, 1, 3]


# --- partitioners -----------------------------------------------------------------------------------------


def test_round_robin_deals_records_out_whatever_their_keys(world: World) -> None:
    """Kafka: `RoundRobinPartitioner`; it goes on over commits."""
    world.create(3)
    with producer_on(world, partitioner="roundrobin") as producer:
        chosen = [producer.send("t", b"", key=b"same").result().partition for _ in range(4)]
        chosen += [f.result().partition for f in [producer.send("t", b"", key=b"same") for _ in range(5)]]
    assert chosen == [(chosen[0] + n) % 3 for n in range(9)]


@pytest.mark.parametrize(
    ("config", "asked", "stored"),
    [
        ({}, None, "lz4"),
        ({}, "zstd", "zstd"),
        ({"compression.type": "producer"}, None, "lz4"),
        ({"compression.type": "producer"}, "zstd", "zstd"),
        ({"compression.type": "none"}, "zstd", "none"),
        ({"compression.type": "lz4"}, "zstd", "lz4"),
    ],
)
def test_the_topic_says_how_frames_are_compressed_or_leaves_it_to_the_writer(
    world: World, config: dict[str, str], asked: str | None, stored: str
) -> None:
    """Kafka: `compression.type`; settled, joined and compacted frames too."""
    world.create(1, {**_INLINE, **config})
    with producer_on(world, compression=asked) as producer:
        for _ in range(3):
            producer.send("t", bytes(100)).result()
    world.maintain()
    (path,) = world.files(".log")
    assert {row["codec"] for row in dump(world.storage(), path)} == {stored}


@pytest.mark.parametrize("partitioner", ["murmur2", "sticky"])
def test_a_trickle_of_records_without_key_reaches_all_partitions(world: World, partitioner: str) -> None:
    """6,000 records of 60 bytes, ten at a time: all were on one partition, which had a batch of 1 MiB to fill."""
    world.create(4)
    with producer_on(world, partitioner=partitioner, batch_size=2**25, linger_ms=60_000) as producer:
        futures = []
        for _ in range(600):
            futures += [producer.send("t", bytes(60)) for _ in range(10)]
            producer.flush()
        chosen = [future.result().partition for future in futures]
    batches = [set(chosen[start : start + 10]) for start in range(0, 6000, 10)]
    assert all(len(batch) == 1 for batch in batches)
    assert Counter(chosen) == dict.fromkeys(range(4), 1500)


def test_a_batch_of_the_producers_size_goes_to_one_partition(world: World) -> None:
    """Kafka's `batch.size`, within one commit, too."""
    world.create(4)
    with producer_on(world, batch_size=1000, linger_ms=60_000, buffer_memory=2**26) as producer:
        batch = pa.table({"value": [bytes(100)] * 80})
        offsets = producer.send_batch("t", batch).result().offsets
    assert {partition: end - start for partition, (start, end) in offsets.items()} == dict.fromkeys(range(4), 20)


def test_sticky_stays_whatever_the_keys(world: World) -> None:
    world.create(3, {**_INLINE, "batch.size": 1024})
    with producer_on(world, partitioner="sticky", linger_ms=60_000) as producer:
        futures = [producer.send("t", b"x" * 256, key=b"%d" % n) for n in range(12)]
        producer.flush()
        chosen = [future.result().partition for future in futures]
    changes = sum(a != b for a, b in pairwise(chosen))
    assert (len(set(chosen)), changes) == (3, 2)


def test_an_explicit_partition_comes_before_every_partitioner(world: World) -> None:
    world.create(3)
    for partitioner in ("murmur2", "roundrobin", "sticky", lambda key, partitions: 0):
        with producer_on(world, partitioner=partitioner) as producer:
            assert producer.send("t", b"", key=b"k", partition=1).result().partition == 1
            told = producer.send_batch("t", batch_of([b"a"] * 3, partition=[1, 1, 1])).result()
            assert list(told.offsets) == [1]


def test_the_applications_partitioner_gets_keys_also_of_batches(world: World) -> None:
    topic = world.create(4)
    keys = [b"a", b"bb", None, b"ccc"]
    with producer_on(world, partitioner=lambda key, partitions: len(key or b"") % partitions) as producer:
        assert [producer.send("t", b"", key=key).result().partition for key in keys] == [1, 2, 0, 3]
        producer.send_batch("t", batch_of([b"x"] * 4, key=keys))
        producer.send_batch("t", batch_of([b"y"] * 4))
        producer.send_batch("t", batch_of([b"z"] * 4, key=keys, partition=[3, None, 3, None]))
    found = [(r.value, r.key, r.partition) for r in read_topic(topic)]
    assert [(k, p) for v, k, p in found if v == b"x"] == [(None, 0), (b"a", 1), (b"bb", 2), (b"ccc", 3)]
    assert [p for v, _, p in found if v == b"y"] == [0] * 4
    assert sorted((k or b"", p) for v, k, p in found if v == b"z") == [(b"", 3), (b"a", 3), (b"bb", 2), (b"ccc", 3)]


@pytest.mark.parametrize("answer", [2, -1, "0", None, True])
def test_a_partitioner_that_answers_nonsense(world: World, answer: Any) -> None:
    world.create(2)
    with producer_on(world, partitioner=lambda key, partitions: answer) as producer:
        with pytest.raises(InvalidRecordError, match="it must answer 0 to 1"):
            producer.send("t", b"")
        with pytest.raises(InvalidRecordError, match="it must answer 0 to 1"):
            producer.send_batch("t", batch_of([b""]))


def test_offsets_of_rows_by_partition() -> None:
    following = np.array([10, 20, 30], np.int64)
    assert offsets_of(np.array([2, 0, 2, 2, 0]), following).tolist() == [30, 10, 31, 32, 11]
    assert following.tolist() == [12, 20, 33]
    assert offsets_of(np.array([1]), following).tolist() == [20]


# --- the buffer -------------------------------------------------------------------------------------------


def test_small_records_take_no_more_memory_than_they_count_for(world: World) -> None:
    """Most of it is the future."""
    tracemalloc.start()
    try:
        before, run = tracemalloc.get_traced_memory()[0], RecordRun("t", 0.0)
        for number in range(1000):
            run.add(b"%d" % (1000 + number), None, None, 1_700_000_000_000_000 + number, None, SentFuture(), 0, number)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 1000 <= RECORD_BYTES + 4
    assert 2 * taken / 1000 >= RECORD_BYTES, "nor do they count for much more"


def test_send_waits_for_room_and_then_gives_up(world: World) -> None:
    """Back-pressure: nothing is taken beyond buffer_memory; what was refused is not sent later."""
    world.create()
    gate = Gate()
    with producer_on(world, gate, buffer_memory=9000, max_block_ms=50) as producer:
        producer.send("t", b"first")
        assert gate.reached.wait(60)
        taken = [producer.send("t", b"x" * 1000) for _ in range(2)]
        with pytest.raises(BufferExhaustedError, match=r"within max_block_ms=50: \d+ of buffer_memory=9000"):
            producer.send("t", b"y" * 1000)
        with pytest.raises(BufferExhaustedError, match="more than buffer_memory=9000"):
            producer.send_batch("t", pa.table({"value": [b"z" * 9000]}))
        gate.release()
        assert [future.result().offset for future in taken] == [1, 2]
        assert producer.send("t", b"x" * 4000).result().offset == 3
    assert b"y" * 1000 not in world.values()


def test_send_goes_on_when_there_is_room(world: World) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate, buffer_memory=4000) as producer:
        producer.send("t", b"x" * 1000)
        assert gate.reached.wait(60)
        waiting = Thread(target=lambda: producer.send("t", b"y" * 1000))
        waiting.start()
        assert producer.flush(0.05) == 1
        gate.release()
        waiting.join(60)
    assert world.values() == [b"x" * 1000, b"y" * 1000]


def test_nobody_lingers_while_somebody_waits_for_room(world: World) -> None:
    world.create()
    with producer_on(world, linger_ms=3_600_000, delivery_timeout_ms=4_000_000, buffer_memory=6000) as producer:
        for _ in range(20):
            producer.send("t", b"x" * 1000)
        assert len(world.values()) >= 10


def test_failed_records_give_their_room_back(world: World) -> None:
    world.create(1, {"max.message.bytes": 10})
    with producer_on(world, buffer_memory=4000, max_block_ms=0) as producer:
        for _ in range(5):
            with pytest.raises(InvalidRecordError):
                producer.send("t", b"x" * 1000).result()
            producer.flush()
        assert producer.send("t", b"ok").result().offset == 0


# --- flush and close --------------------------------------------------------------------------------------


def test_records_linger_until_a_flush_or_a_full_batch(world: World) -> None:
    world.create()
    slow = {"linger_ms": 3_600_000, "delivery_timeout_ms": 4_000_000}
    with producer_on(world, batch_size=100_000, **slow) as producer:
        lingering = producer.send("t", b"a")
        assert not lingering.done()
        assert producer.flush() == 0
        assert lingering.result().offset == 0
        full = [producer.send("t", b"x" * 1000) for _ in range(150)]
        full[0].result(60)
        producer.send("t", b"last")
    assert world.values()[-1] == b"last"


def test_flush_returns_how_many_are_still_under_way(world: World) -> None:
    world.create()
    gate = Gate()
    with producer_on(world, gate) as producer:
        for value in many(3):
            producer.send("t", value)
        assert gate.reached.wait(60)
        assert producer.flush(0.01) == 3
        gate.release()
        assert producer.flush() == 0
    assert len(world.values()) == 3


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_producer_and_its_futures_stay_in_their_process(world: World, duplicate: Callable[[Any], Any]) -> None:
    world.create()
    with producer_on(world) as producer:
        sent = producer.send("t", "v")
        with pytest.raises(UsageError, match="Make a Producer in the function that Spark or multiprocessing calls"):
            duplicate(producer)
        with pytest.raises(UsageError, match=r"Return its result\(\)"):
            duplicate(sent)
        assert duplicate(sent.result())


def test_after_close_it_is_closed(world: World) -> None:
    world.create()
    producer = producer_on(world)
    producer.send("t", b"a")
    producer.close()
    producer.close()
    assert world.values() == [b"a"]
    for act in (lambda: producer.send("t", b"b"), lambda: producer.send_batch("t", batch_of([b"b"])),
                lambda: producer.send("new", b"b")):  # fmt: skip
        with pytest.raises((ProducerClosedError, UnknownTopicError)):
            act()
    assert world.values() == [b"a"]


def test_a_topic_that_is_first_used_after_close_starts_no_thread(world: World) -> None:
    world.create()
    before = set(all_threads())
    producer = producer_on(world, producer_id="p")
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"a")
    assert not set(all_threads()) - before
    with producer_on(world, producer_id="p") as other:
        other.last_sequence("t")
        with pytest.raises(ProducerClosedError):
            producer.last_sequence("t")
        assert other.send("t", b"b").result().offset == 0, "it was not fenced"


def test_close_in_time_fails_what_was_not_sent_and_says_how_many(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create()
    gate = Gate()
    producer = producer_on(world, gate)
    under_way = producer.send("t", b"under way")
    assert gate.reached.wait(60)
    left = [producer.send("t", value) for value in many(7)]
    called: list[bool] = []
    left[0].add_done_callback(lambda _: called.append(producer.flush(0) >= 0))  # no lock is held
    producer.close(timeout=0.01)
    for future in left:
        with pytest.raises(ProducerClosedError, match="closed before sending 7 records"):
            future.result(60)
    assert "topic 't': the producer was closed before sending 7 records" in caplog.text
    assert called == [True]
    gate.release()
    assert under_way.result(60).offset == 0
    assert world.values() == [b"under way"]


def test_a_blocked_send_ends_with_close(world: World) -> None:
    world.create()
    gate = Gate()
    producer = producer_on(world, gate, buffer_memory=4000)
    producer.send("t", b"x" * 1000)
    assert gate.reached.wait(60)
    ended: list[Exception] = []

    def send() -> None:
        try:
            producer.send("t", b"y" * 1000)
        except ProducerClosedError as error:
            ended.append(error)

    waiting = Thread(target=send)
    waiting.start()
    while not producer._buffer.blocked:
        pass
    producer.close(0)
    waiting.join(60)
    gate.release()
    assert len(ended) == 1


def test_callbacks_may_send_but_not_wait(world: World) -> None:
    world.create()
    told: list[Any] = []

    def again(done: Future[Any]) -> None:
        told.append(producer.send("t", b"second"))
        with pytest.raises(UsageError, match="callback"):
            producer.flush()
        with pytest.raises(UsageError, match="callback"):
            producer.close()
        told.append("done")

    with producer_on(world) as producer:
        producer.send("t", b"first").add_done_callback(again)
        producer.flush()
        producer.flush()
        assert told[0].result(60).offset == 1
    assert told[1] == "done"


def test_what_is_sent_cannot_be_cancelled(world: World) -> None:
    world.create()
    with producer_on(world, linger_ms=3_600_000, delivery_timeout_ms=4_000_000) as producer:
        future = producer.send("t", b"a")
        assert not future.cancel()
    assert future.result().offset == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_ever_when_the_thread_dies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()

    def fault(*_: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(Delivery, "_try", fault)
    before = set(all_threads())
    producer = producer_on(world)
    for value in (b"a", b"b"):
        with pytest.raises(Exception, match="ended with ZeroDivisionError"):
            producer.send("t", value).result(60)
    producer.close()
    wait_until(lambda: not set(all_threads()) - before)  # nor does any thread of it stay


def test_timestamps_of_a_datetime_are_exact() -> None:
    from pyspark_commitlog.producer.records.batches import as_microseconds

    east = datetime(1970, 1, 1, 2, 0, 0, 1, tzinfo=UTC) - timedelta(hours=2)
    assert as_microseconds(east) == 1
    assert as_microseconds(5) == as_microseconds(np.int64(5)) == 5000
    for refused in (True, np.bool_(1), 5.0, np.float64(5), "5"):
        with pytest.raises(InvalidRecordError, match="it takes milliseconds since 1970"):
            as_microseconds(refused)  # type: ignore[arg-type]


# --- settling ---------------------------------------------------------------------------------------------


def test_records_do_not_wait_for_settling(world: World) -> None:
    """R5: it goes on beside commits; what is due is settled when the producer is closed."""
    topic = world.create(1, {**_INLINE, "settle.entries": 2})
    gate = Gate("/settle/")
    with producer_on(world, gate) as producer:
        for number in range(10):
            assert producer.send("t", b"%d" % number).result(60).offset == number
        assert gate.reached.wait(60)
        assert producer.send("t", b"beside").result(60).offset == 10
        gate.release()
    _, settled = topic.settled(topic.newest()[1].topic_id)
    assert settled.partition(0).end_offset >= 10
    assert len(world.values()) == 11


def test_closing_waits_for_no_settling_that_hangs(world: World) -> None:
    """What it holds is in the log: whoever writes next settles it."""
    world.create(1, {**_INLINE, "settle.entries": 2})
    gate = Gate("/settle/")
    producer = producer_on(world, gate, request_timeout_ms=50, delivery_timeout_ms=200)
    for number in range(10):
        producer.send("t", b"%d" % number).result(60)
    assert gate.reached.wait(60)
    closing = Thread(target=producer.close, daemon=True)
    closing.start()
    closing.join(10)
    hangs = closing.is_alive()
    gate.release()
    closing.join(60)
    assert not hangs
