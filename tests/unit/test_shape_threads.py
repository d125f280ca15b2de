"""Decoders of shapes are made by one thread at a time: msgspec crashes where two look at one struct for the first time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from pyspark_commitlog.format import shape

THREADS = 4


@pytest.fixture
def most_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many decoders were being made, each time that one began."""
    real, lock, under_way, seen = msgspec.json.Decoder, threading.Lock(), [0], list[int]()

    def slow(kind: Any) -> Any:
        with lock:
            under_way[0] += 1
            seen.append(under_way[0])
        time.sleep(0.02)
        made = real(kind)
        with lock:
            under_way[0] -= 1
        return made

    shape._decoder.cache_clear()
    monkeypatch.setattr(msgspec.json, "Decoder", slow)
    yield seen
    shape._decoder.cache_clear()


def side_by_side(act: Callable[[int], object]) -> list[object]:
    """Return what threads return that begin together."""
    begin = threading.Barrier(THREADS)

    def run(number: int) -> object:
        begin.wait(10)
        return act(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


KINDS = (list[int], list[int | str], list[int | None], list[int | bool])


def test_decoders_are_made_one_at_a_time(most_at_once: list[int]) -> None:
    assert side_by_side(lambda number: shape.decode(b"[1]", KINDS[number], "file")) == [[1]] * THREADS
    assert most_at_once == [1] * THREADS


def test_what_is_decoded_already_is_checked_after_its_shape_was_looked_at(most_at_once: list[int]) -> None:
    assert side_by_side(lambda number: shape.check([1], KINDS[number], "file")) == [[1]] * THREADS
    assert most_at_once == [1] * THREADS


def test_a_child_that_was_forked_while_one_was_made_goes_on(
    most_at_once: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that has the lock does not live on in it."""
    monkeypatch.setattr(shape, "_MAKING_SECONDS", 0.01)
    with shape._making:
        assert shape.decode(b"[1]", list[int], "file") == [1]
    assert not shape._making.locked()
