"""SIGKILL after any request of an operation: a fresh process finds a legal state, and the operation is run again."""

from __future__ import annotations

import copy

import pytest

from tests.object_stores import proxy as faults
from tests.object_stores.conftest import on
from tests.object_stores.processes import act, starting
from tests.object_stores.proxy import Proxy
from tests.object_stores.scenes import CORE, MAINTENANCE
from tests.object_stores.servers import SERVERS, Bucket, Moto, Versitygw
from tests.object_stores.world import ObjectWorld

pytestmark = pytest.mark.slow

JOIN_SECONDS = 60


#: What a kill may come between: one after a read leaves what the change before it left.
CHANGES = "PUT|POST|DELETE"
SCENES = {**CORE, **MAINTENANCE}


def killed_after(name: str, roots: tuple[Bucket, Bucket], proxy: Proxy, number: int) -> bool:
    """Play a scene in a process that dies once the server has executed its n-th change; return whether it died."""
    scene, world = copy.copy(SCENES[name]), ObjectWorld(roots[0], f"root/{number}")
    scene.prepare(world)
    there = world.tried(roots[1])
    proxy.calm()
    proxy.add(faults.kill_after, nth=number, verb=CHANGES)
    process, line = starting(act, scene, there)
    try:
        assert process.pid is not None
        proxy.victim = process.pid
        line.send("go")
        process.join(JOIN_SECONDS)
        assert process.exitcode in (0, -9), f"change {number}: {process.exitcode}"
    finally:
        process.kill()
        process.join()
    try:
        scene.check(world)
    except BaseException as error:
        error.add_note(f"killed after change {number}: {proxy.served[-5:]}")
        raise
    return process.exitcode == -9


def kill_anywhere(name: str, roots: tuple[Bucket, Bucket], proxy: Proxy) -> None:
    """Kill a scene after each of its changes."""
    number = 1
    while killed_after(name, roots, proxy, number):
        number += 1
    assert number > 1


@on(*SERVERS)
@pytest.mark.parametrize("name", ["commit"])
def test_a_commit_killed_after_any_change(bucket: Bucket, through: Bucket, proxy: Proxy, name: str) -> None:
    """I1–I6: whatever was done by then, all that was committed is there, once, and the operation can be run again."""
    kill_anywhere(name, (bucket, through), proxy)


OTHERS = [name for name in SCENES if name not in ("commit", "read")]


@on(Versitygw)
@pytest.mark.parametrize("name", OTHERS)
def test_killed_after_any_change(bucket: Bucket, through: Bucket, proxy: Proxy, name: str) -> None:
    """The same for settling, merging, compaction, retention, collector and sweeper; for roots, defaults and groups."""
    kill_anywhere(name, (bucket, through), proxy)


@pytest.mark.nightly
@on(Moto)
@pytest.mark.parametrize("name", OTHERS)
def test_killed_after_any_change_on_moto(bucket: Bucket, through: Bucket, proxy: Proxy, name: str) -> None:
    kill_anywhere(name, (bucket, through), proxy)
