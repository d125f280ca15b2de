"""One directory, used by a machine as its own disk and by another as a mount without append."""

from __future__ import annotations

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import UnsupportedError
from tests.support.objects import UnknownMount
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import World


def without_append(world: World) -> CommitLog:
    """Return the log of a process that sees the directory on such a mount."""
    return CommitLog.on(UnknownMount(world.path, clock=world.clock))


def test_what_was_appended_stays_where_nothing_can_be_appended(world: World) -> None:
    """Settling there would begin anew after the segment that grows: no entry would name that any more."""
    topic = world.create(2)
    append(topic, batch_of([b"a", b"b"], partition=[0, 1]))
    world.maintain()
    append(without_append(world).root.topic("t"), batch_of([b"c"], partition=[1]))
    with pytest.raises(UnsupportedError, match=r"topic 't' .* partition 0 was settled where .* `commitlog copy`"):
        without_append(world).topic("t").maintain()
    assert world.values() == [b"a", b"b", b"c"]
    world.maintain()
    assert world.values() == [b"a", b"b", b"c"]
    verify(world.handle())


def test_what_was_settled_without_append_is_settled_on_with_it(world: World) -> None:
    world.create()
    for value in (b"a", b"b"):
        append(without_append(world).root.topic("t"), batch_of([value]))
        without_append(world).topic("t").maintain()
    for value in (b"c", b"d"):
        append(world.handle(), batch_of([value]))
        world.maintain()
    assert world.values() == [b"a", b"b", b"c", b"d"]
    verify(world.handle())
