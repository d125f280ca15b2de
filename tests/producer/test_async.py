"""The producer in asyncio: nothing blocks the loop, order, cancellation, errors, and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import (
    BufferExhaustedError,
    InvalidRecordError,
    ProducerClosedError,
    UnknownTopicError,
)
from tests.support.producers import Gate, producer_on
from tests.support.world import World

_T = TypeVar("_T")
LIMIT = 60
SLOW = {"linger_ms": 3_600_000, "delivery_timeout_ms": 4_000_000}


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine; it fails rather than hangs."""
    return asyncio.run(asyncio.wait_for(main, LIMIT))


async def until_waiting(producer: Any, count: int) -> None:
    """Wait until so many wait for room."""
    while producer._buffer.blocked < count:
        await asyncio.sleep(0.001)


def test_it_returns_where_the_record_is(world: World) -> None:
    world.create(2)

    async def main() -> None:
        async with producer_on(world) as producer:
            told = await producer.asend("t", "v", "k", {"h": b"1"}, 1_700_000_000_000, 1)
            assert (told.topic, told.partition, told.offset, told.timestamp) == ("t", 1, 0, 1_700_000_000_000)
            batch = await producer.asend_batch("t", pa.table({"value": [b"a", b"b"], "partition": [0, 0]}))
            assert (batch.records, dict(batch.offsets)) == (2, {0: (0, 2)})

    run(main())
    assert sorted(world.values()) == [b"a", b"b", b"v"]


def test_many_at_once_share_commits_and_keep_the_order_of_their_calls(world: World) -> None:
    topic = world.create(1)

    async def main() -> list[int]:
        async with producer_on(world, linger_ms=5) as producer:
            told = await asyncio.gather(*(producer.asend("t", b"%d" % n) for n in range(500)))
        return [each.offset for each in told]

    assert run(main()) == list(range(500))
    assert world.values() == [b"%d" % n for n in range(500)]
    assert topic.newest()[0].sequence < 50


def test_those_that_wait_for_room_keep_their_order_and_no_thread_waits(world: World) -> None:
    """However many wait, the loop goes on: a thread for each would be a hundred."""
    world.create(1)
    gate = Gate()

    async def main() -> None:
        async with producer_on(world, gate, buffer_memory=4000) as producer:
            await asyncio.to_thread(producer.send, "t", b"first")
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            before = threading.active_count()
            sent = [asyncio.create_task(producer.asend("t", b"%3d" % n + b"." * 500)) for n in range(100)]
            await until_waiting(producer, 1)
            assert threading.active_count() <= before
            assert not any(task.done() for task in sent)
            gate.release()
            told = await asyncio.gather(*sent)
            assert [each.offset for each in told] == list(range(1, 101))

    run(main())
    assert [value[:3] for value in world.values()[1:]] == [b"%3d" % n for n in range(100)]


def test_a_small_record_does_not_pass_a_large_one_that_waits_for_room(world: World) -> None:
    world.create(1)
    gate = Gate()

    async def main() -> None:
        async with producer_on(world, gate, buffer_memory=4000) as producer:
            first = asyncio.create_task(producer.asend("t", b"first"))
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            large = asyncio.create_task(producer.asend("t", b"large" * 200))
            await until_waiting(producer, 1)
            small = asyncio.create_task(producer.asend("t", b"small"))
            await asyncio.sleep(0)
            gate.release()
            assert [(await each).offset for each in (first, large, small)] == [0, 1, 2]

    run(main())


def test_nobody_lingers_while_a_coroutine_waits_for_room(world: World) -> None:
    world.create()

    async def main() -> None:
        producer = producer_on(world, **SLOW, buffer_memory=6000)
        tasks = [asyncio.create_task(producer.asend("t", b"x" * 1000)) for _ in range(20)]
        done, _ = await asyncio.wait(tasks, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        assert done
        while len(world.values()) < 10:
            await asyncio.sleep(0.01)
        while (await asyncio.wait(tasks, timeout=0.01))[1]:  # the last ones found room, and linger
            await producer.aflush()
        await asyncio.to_thread(producer.close)

    run(main())


def test_without_room_for_max_block_ms_it_gives_up(world: World) -> None:
    world.create()
    gate = Gate()

    async def main() -> list[Any]:
        async with producer_on(world, gate, buffer_memory=4000, max_block_ms=50) as producer:
            first = asyncio.create_task(producer.asend("t", b"first"))
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            refused = await asyncio.gather(
                *(producer.asend("t", b"y" * 1000) for _ in range(3)), return_exceptions=True
            )
            gate.release()
            assert (await first).offset == 0
            return refused

    refused = run(main())
    assert [type(error) for error in refused] == [BufferExhaustedError] * 3
    assert "no room for 2800 bytes within max_block_ms=50" in str(refused[0])
    assert world.values() == [b"first"]


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [("t", b"x" * 1000, InvalidRecordError), ("t", 7, InvalidRecordError), ("none", b"x", UnknownTopicError)],
)
def test_errors_are_raised_where_it_is_awaited(topic: str, value: Any, error: type[Exception], world: World) -> None:
    world.create(1, {"max.message.bytes": 100})

    async def main() -> None:
        async with producer_on(world) as producer:
            with pytest.raises(error):
                await producer.asend(topic, value)
            assert (await producer.asend("t", b"ok")).offset == 0

    run(main())


def test_a_task_that_is_cancelled_while_it_waits_for_room_has_sent_nothing(world: World) -> None:
    world.create()
    gate = Gate()

    async def main() -> None:
        async with producer_on(world, gate, buffer_memory=4000) as producer:
            first = asyncio.create_task(producer.asend("t", b"first" + b"." * 500))
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            task, behind = (asyncio.create_task(producer.asend("t", value * 1000)) for value in (b"x", b"y"))
            await until_waiting(producer, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until_waiting(producer, 1)
            gate.release()
            assert (await first).offset == 0
            assert (await behind).offset == 1
            assert producer._buffer.blocked == 0
            assert not producer._buffer._awaited

    run(main())
    assert b"x" * 1000 not in world.values()


def test_a_record_that_was_sent_is_sent_though_its_task_is_cancelled(world: World) -> None:
    world.create()
    gate = Gate()

    async def main() -> None:
        async with producer_on(world, gate) as producer:
            task = asyncio.create_task(producer.asend("t", b"sent"))
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.release()

    run(main())
    assert world.values() == [b"sent"]


def test_leaving_the_block_sends_all_and_the_loop_goes_on_meanwhile(world: World) -> None:
    world.create()
    gate = Gate()

    async def main() -> None:
        producer = producer_on(world, gate, **SLOW)

        async def leave() -> None:
            async with producer:
                producer.send("t", b"last")

        leaving = asyncio.create_task(leave())
        assert await asyncio.to_thread(gate.reached.wait, LIMIT)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not leaving.done()
        gate.release()
        await leaving
        with pytest.raises(ProducerClosedError):
            await producer.asend("t", b"late")

    run(main())
    assert world.values() == [b"last"]


def test_closing_wakes_those_that_wait_for_room(world: World) -> None:
    world.create()
    gate = Gate()

    async def main() -> None:
        producer = producer_on(world, gate, buffer_memory=4000)
        first = asyncio.create_task(producer.asend("t", b"first" + b"." * 500))
        assert await asyncio.to_thread(gate.reached.wait, LIMIT)
        waiting = asyncio.create_task(producer.asend("t", b"x" * 1000))
        await until_waiting(producer, 1)
        await asyncio.to_thread(producer.close, 0)
        with pytest.raises(ProducerClosedError):
            await waiting
        gate.release()
        await first

    run(main())


def test_one_producer_serves_one_loop_after_another(world: World) -> None:
    world.create()
    producer = producer_on(world, buffer_memory=4000)
    for round_ in range(3):

        async def main(first: int = round_) -> list[int]:
            told = await asyncio.gather(*(producer.asend("t", b"x" * 1000) for _ in range(10)))
            return [each.offset - 10 * first for each in told]

        assert run(main()) == list(range(10))
    producer.close()
