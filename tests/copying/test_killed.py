"""A copy that ends before or after any call to storage: nothing is lost or doubled, and the next one completes it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_commitlog.copying import copy_staging
from pyspark_commitlog.errors import CommitLogError, UnknownTopicError
from pyspark_commitlog.testing.faults import MUTATING, at_call, io_error
from tests.copying.conftest import Pair, records
from tests.support.objects import ObjectWorld
from tests.support.records import Record
from tests.support.steps import every_step, first_step
from tests.support.world import CHUNKS, World

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """Stands for the end of the process."""


def prepared(kind: type[World], path: Path) -> Pair:
    """Return two roots: of five commits the first two are copied."""
    source = World(path / "source")
    pair = Pair(source, kind(path / "there", source.clock))
    source.create(2, {**CHUNKS, "batch.size": 1024})
    for number in range(5):
        pair.put(b"%d" % number * 1500, partition=number % 2)
        if number == 1:
            pair.copy()
    return pair


@pytest.mark.parametrize("kind", [World, ObjectWorld])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("first", [False, True], ids=["again", "first"])
@every_step
def test_killed_at_any_call(
    kind: type[World], when: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """Whatever was done by then, readers see what the source was once, and the next copy completes it."""
    monkeypatch.setattr(copy_staging, "CHUNK_BYTES", 1)
    number, ended = first_step(every, kind.__name__, when, first) - every, False
    while not ended:
        number += every
        path = tmp_path / str(number)
        pair = prepared(kind, path)
        if first:
            pair.there = kind(path / "new", pair.source.clock)

        def kill() -> None:
            raise Killed

        try:
            pair.copy(hook=at_call(number, kill, when=when, only=MUTATING))
            ended = True
        except Killed:
            whole = records(pair.source.handle())
            early = [] if first else [record for record in whole if record.offset == 0]
            assert seen(pair.there) in (early, whole)
        pair.copy()
        pair.check()
        pair.put(b"later")
        pair.copy()
        pair.check()
    assert number > 5


def seen(world: World) -> list[Record]:
    """Return what a fresh process reads; nothing where there is no topic yet."""
    try:
        return records(world.handle())
    except UnknownTopicError:
        return []


@pytest.mark.parametrize("kind", [World, ObjectWorld])
@pytest.mark.parametrize("when", ["before", "after"])
@every_step
def test_a_reply_that_is_lost_at_any_call(kind: type[World], when: str, every: int, tmp_path: Path) -> None:
    """A typed error or none, and the copy can be run again."""
    number, lost = first_step(every, kind.__name__, when) - every, [True]
    while lost:
        number, lost = number + every, []
        pair = prepared(kind, tmp_path / str(number))

        def lose(lost: list[bool] = lost) -> None:
            lost.append(True)
            raise io_error()

        with suppress(CommitLogError, OSError):
            pair.copy(hook=at_call(number, lose, when=when, only=MUTATING))
        pair.copy()
        pair.check()
    assert number > 5
