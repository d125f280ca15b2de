"""Records for a damaged partition fail; those for the others land (docs/explanation/design/damaged-partitions.md)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from pyspark_commitlog.errors import CorruptionError, KafkaStorageError, NotSentError, OutcomeUnknownError
from pyspark_commitlog.producer import delivery as module
from pyspark_commitlog.producer.producer import Producer
from pyspark_commitlog.producer.records.batches import BatchMetadata
from pyspark_commitlog.topic.write.commit import Committed
from tests.support.producers import lost_reply, producer_on
from tests.support.records import append, batch_of, read_partition
from tests.support.world import CHUNKS, World

#: All that is sent before a flush is one bundle.
_GATHER = {"linger_ms": 60_000}


def damage(world: World, partition: int) -> None:
    """Have a settler find a partition's segment damaged."""
    append(world.handle(), batch_of([b"first"], partition=[partition]))
    with suppress(CorruptionError):  # of another one that is damaged
        world.maintain()
    (path,) = (path for path in world.files(".log") if f"/{partition}/" in path)
    (world.path / path).write_bytes(b"gone")
    append(world.handle(), batch_of([b"nobody knows yet"], partition=[partition]))
    with pytest.raises(CorruptionError):
        world.maintain()


def values(world: World, partition: int) -> list[bytes | None]:
    """Return the values of a partition."""
    return [record.value for record in read_partition(world.handle(), partition)]


def damaged(world: World, partitions: int = 2, config: dict[str, Any] | None = None) -> None:
    """Create a topic whose partition 0 is damaged."""
    world.create(partitions, config or CHUNKS)
    damage(world, 0)


def meanwhile(monkeypatch: pytest.MonkeyPatch, acts: list[Any]) -> list[int]:
    """Have something happen before each try, in order; return a list that counts the tries."""
    real, tries = module.commit, list[int]()

    def commit(*given: Any, **named: Any) -> Committed:
        tries.append(len(tries))
        if len(tries) <= len(acts) and acts[len(tries) - 1] is not None:
            acts[len(tries) - 1]()
        return real(*given, **named)

    monkeypatch.setattr(module, "commit", commit)
    return tries


@pytest.mark.parametrize("config", [CHUNKS, {"retention.ms": -1}], ids=["chunks", "inline"])
def test_records_for_sound_partitions_land_in_order_those_for_damaged_ones_fail(
    world: World, config: dict[str, Any]
) -> None:
    damaged(world, 3, config)
    with producer_on(world, **_GATHER) as producer:
        sent = [producer.send("t", b"%d" % n, key=b"k", headers={"n": b"%d" % n}, partition=n % 3) for n in range(9)]
        assert producer.flush(60) == 0
        for n, future in enumerate(sent):
            if n % 3 == 0:
                with pytest.raises(KafkaStorageError, match="records for them were not committed") as told:
                    future.result(0)
                assert list(told.value.partitions) == [0]
            else:
                assert (future.result(0).partition, future.result(0).offset) == (n % 3, n // 3)
        more = producer.send("t", b"more", partition=1)
        producer.flush(60)
        assert more.result(0).offset == 3
    assert values(world, 1) == [b"1", b"4", b"7", b"more"]
    assert values(world, 2) == [b"2", b"5", b"8"]
    record = next(iter(read_partition(world.handle(), 2)))
    assert (record.key, list(record.headers)) == (b"k", [("n", b"2")])


@pytest.mark.parametrize("partitioner", ["murmur2", "roundrobin"])
def test_records_keep_the_partition_that_was_chosen(world: World, partitioner: str) -> None:
    """Chosen again, some of them would be for the damaged one the next time, and fail, too."""
    damaged(world)
    with producer_on(world, **_GATHER, partitioner=partitioner) as producer:
        keys = [None] * 8 if partitioner == "roundrobin" else [b"%d" % n for n in range(8)]
        sent = [producer.send("t", b"%d" % n, key=key) for n, key in enumerate(keys)]
        producer.flush(60)
        landed = [n for n, future in enumerate(sent) if future.exception(0) is None]
    assert values(world, 1) == [b"%d" % n for n in landed]
    if partitioner == "roundrobin":
        assert len(landed) == 4
    assert 0 < len(landed) < 8


def test_rows_of_a_batch_keep_the_partition_that_was_chosen(world: World) -> None:
    """The record before it moves the round on: without that record, other rows would be for the damaged one."""
    damaged(world, 4)
    with producer_on(world, **_GATHER, partitioner="roundrobin") as producer:
        sent = [producer.send_batch("t", batch_of([b"%d" % n])) for n in range(6)]
        producer.flush(60)
        landed = [future for future in sent if future.exception(0) is None]
    assert len(landed) >= 4, "of six one after the other at most two are for one of four partitions"
    assert sum(len(values(world, partition)) for partition in (1, 2, 3)) == len(landed)


def test_an_arrow_batch_with_a_record_for_a_damaged_partition_fails_whole(world: World) -> None:
    """It becomes visible as a whole; another one of the same bundle, which has none, lands."""
    damaged(world, 3)
    with producer_on(world, **_GATHER, partitioner="roundrobin") as producer:
        mixed = producer.send_batch("t", batch_of([b"a", b"b"], partition=[0, 1]))
        sound = producer.send_batch("t", batch_of([b"c", b"d", b"e"], partition=[1, 2, 1]))
        single = producer.send("t", b"f", partition=2)
        producer.flush(60)
        assert isinstance(mixed.exception(0), KafkaStorageError)
        assert sound.result(0) == BatchMetadata("t", 3, {1: (0, 2), 2: (0, 1)})
        assert single.result(0).offset == 1
    assert (values(world, 1), values(world, 2)) == ([b"c", b"e"], [b"d", b"f"])


def test_a_partition_that_is_found_damaged_between_two_tries_is_left_out_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(world, 3)
    tries = meanwhile(monkeypatch, [None, lambda: damage(world, 1)])
    with producer_on(world, **_GATHER) as producer:
        sent = [producer.send("t", b"%d" % n, partition=n) for n in range(3)]
        producer.flush(60)
        told = [future.exception(0) for future in sent]
    assert [list(error.partitions) for error in told if isinstance(error, KafkaStorageError)] == [[0], [1]]
    assert told[2] is None
    assert values(world, 2) == [b"2"]
    assert len(tries) == 3


def test_all_that_are_left_may_be_for_damaged_partitions(world: World) -> None:
    damaged(world)
    with producer_on(world, **_GATHER) as producer:
        sent = [producer.send("t", b"x", partition=0) for _ in range(3)]
        assert producer.flush(60) == 0
        for future in sent:
            with pytest.raises(KafkaStorageError, match="nothing was committed"):
                future.result(0)


def test_what_is_left_lands_once_when_the_reply_is_lost(world: World) -> None:
    """I5: it has numbers of its own, which all its tries keep."""
    damaged(world)
    with producer_on(world, **_GATHER) as producer:
        producer.send("t", b"before", partition=1)
        producer.flush(60)
        producer._accumulators["t"].delivery._topic = world.handle(lost_reply())
        sent = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
        producer.flush(60)
        assert [future.exception(0) is None for future in sent] == [False, True, False, True]
        assert [sent[n].result(0).offset for n in (1, 3)] == [1, 2]
        producer.send("t", b"after", partition=1)
        producer.flush(60)
    assert values(world, 1) == [b"before", b"1", b"3", b"after"]


def test_a_bundle_that_may_have_landed_is_not_divided(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it landed, then with the records for the damaged partition: nobody can be told that those failed."""
    damaged(world)

    def unknown() -> None:
        raise OutcomeUnknownError("injected")

    meanwhile(monkeypatch, [unknown])
    with producer_on(world, **_GATHER) as producer:
        sent = [producer.send("t", b"%d" % n, partition=n) for n in range(2)]
        producer.flush(60)
        assert [type(future.exception(0)) for future in sent] == [OutcomeUnknownError] * 2
    assert values(world, 1) == []


def test_a_producer_with_an_id_sends_nothing_of_the_bundle_and_goes_on_behind_its_last_sequence(world: World) -> None:
    """Its numbers are the application's: with a part landed, `last_sequence` would pass over what failed."""
    damaged(world)
    with producer_on(world, **_GATHER, producer_id="billing") as producer:
        sent = [producer.send("t", b"%d" % n, partition=n, sequence=n) for n in range(2)]
        producer.flush(60)
        assert [type(future.exception(0)) for future in sent] == [KafkaStorageError] * 2
        with pytest.raises(NotSentError):
            producer.send("t", b"more", partition=1, sequence=2)
    assert values(world, 1) == []
    with Producer(str(world.path), producer_id="billing") as again:
        assert again.last_sequence("t") == -1
        again.send("t", b"1", partition=1, sequence=1).result(60)
    assert values(world, 1) == [b"1"]
