"""A process whose put of a settle entry reaches the server behind the collector: nothing of it counts (O6, O7)."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable

import pytest

from pyspark_commitlog.errors import OutcomeUnknownError, StorageError
from tests.object_stores import proxy as faults
from tests.object_stores.conftest import on
from tests.object_stores.proxy import CONDITIONAL, Fault, Proxy
from tests.object_stores.scenes import MAINTENANCE, is_whole
from tests.object_stores.servers import Bucket, Moto, Versitygw
from tests.object_stores.world import ObjectWorld
from tests.support.records import append, batch_of
from tests.support.world import DELAY_MS

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60


@on(Versitygw)
@pytest.mark.parametrize(
    ("name", "nth"), [("maintain", 1), ("maintain", 2), ("retain", 1), ("compact", 1), ("compact", 2)]
)
@pytest.mark.parametrize("fault", [faults.waiting, faults.held], ids=faults.name_of)
def test_a_settle_entry_that_is_put_behind_the_collector(
    bucket: Bucket, through: Bucket, proxy: Proxy, name: str, nth: int, fault: Fault
) -> None:
    """It waits until its number has been collected; or its reply is lost, and a copy of it is executed then."""
    behind_the_collector((bucket, through), proxy, name, nth, fault)


@on(Moto)
def test_a_settle_entry_of_a_compaction_that_is_put_behind_the_collector(
    bucket: Bucket, through: Bucket, proxy: Proxy
) -> None:
    """The same on a server that is always there, for the put that only the anchor shows not to have counted."""
    behind_the_collector((bucket, through), proxy, "compact", 1, faults.waiting)


def behind_the_collector(roots: tuple[Bucket, Bucket], proxy: Proxy, name: str, nth: int, fault: Fault) -> None:
    """Play a scene with its n-th put of a settle entry executed once its number has been collected."""
    (bucket, through) = roots
    scene, world = copy.copy(MAINTENANCE[name]), ObjectWorld(bucket, "root")
    scene.prepare(world)
    rule = proxy.add(fault, verb=CONDITIONAL, path="/settle/", nth=nth)
    zombie = threading.Thread(target=run_it, args=(scene.act, world.through(Bucket(through.url, patient(through)))))
    zombie.start()
    try:
        wait_for(lambda: rule.hits == 1)
        number = newest_settle(world)
        if fault is faults.held:
            zombie.join(WAIT_SECONDS)
        for value in (b"m1", b"m2", b"m3", b"m4"):
            append(world.handle(), batch_of([value], key=[value], partition=[0]))
            world.maintain()
            world.clock.advance(DELAY_MS)
        world.maintain()
        assert first_settle(world) > number + 1, "its number is not collected"
        time.sleep(1.1)  # S3 tells two puts of the same bytes apart by the second
        before = world.values()
        landed = [reply.status for reply in proxy.execute_held()]
    finally:
        proxy.go_on()
        zombie.join(WAIT_SECONDS)
    assert not zombie.is_alive()
    assert landed == ([200] if fault is faults.held else [])
    check(world, before)


def check(world: ObjectWorld, before: list[bytes | None]) -> None:
    """All that was there is there, but for what compaction and retention drop, and again after more maintenance."""
    for _ in range(3):
        found = world.values()
        assert found == [value for value in before if value in found]
        assert [value for value in found if value in (b"m1", b"m2", b"m3", b"m4")] == [b"m1", b"m2", b"m3", b"m4"]
        assert is_whole(world)
        world.maintain()
        world.clock.advance(DELAY_MS)


def run_it(act: Callable[[ObjectWorld], None], world: ObjectWorld) -> None:
    """Act; what storage does not answer, or can't be told, ends it."""
    try:
        act(world)
    except (OutcomeUnknownError, StorageError):
        return


def patient(bucket: Bucket) -> dict[str, object]:
    """Return options with which a client waits as long as a test does."""
    return {**bucket.options, "timeout": 600}


def newest_settle(world: ObjectWorld) -> int:
    """Return the number of the newest settle entry."""
    topic = world.handle()
    return topic.settled(topic.newest()[1].topic_id)[0].sequence


def first_settle(world: ObjectWorld) -> int:
    """Return the lowest number in the settle journal."""
    topic = world.handle()
    return topic.settle_journal(topic.newest()[1].topic_id).sequences()[0]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
