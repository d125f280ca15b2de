"""Ctrl-C in a notebook: a producer that was interrupted can be used again, and no record is half there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.interrupts import interrupted, lines
from tests.support.producers import producer_on
from tests.support.world import World


@pytest.mark.parametrize("part", ["producer/", "storage/p"])
def test_a_send_that_is_interrupted_leaves_the_producer_usable(world: World, part: str) -> None:
    world.create(1)
    for at in lines():
        with producer_on(world) as producer:
            first = producer.send("t", b"before", key=b"k")

            def act(producer: Any = producer) -> None:
                producer.send("t", b"x", headers={"h": b"1"})
                producer.send("t", b"y", partition=0)
                producer.flush()

            ended = interrupted(act, at, part)
            last = producer.send("t", b"after")
            assert producer.flush(60) == 0
            assert first.result(0).has_offset()
            assert last.result(0).has_offset()
            assert producer._buffer._used == 0, at
        if ended:
            return
    raise AssertionError("it never ended by itself")
