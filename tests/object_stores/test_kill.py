"""SIGKILL after any request of an operation: a fresh process finds a legal state, and the operation is run again."""

from __future__ import annotations

import copy

import pytest

from tests.object_stores import proxy as faults
from tests.object_stores.conftest import on
from tests.object_stores.processes import act, starting
from tests.object_stores.proxy import Proxy
from tests.object_stores.scenes import CORE
from tests.object_stores.servers import SERVERS, Bucket, Versitygw
from tests.object_stores.world import ObjectWorld

pytestmark = pytest.mark.slow

JOIN_SECONDS = 60


def killed_after(name: str, roots: tuple[Bucket, Bucket], proxy: Proxy, number: int, verb: str = ".*") -> bool:
    """Play a scene in a process that dies once the server has executed its n-th request; return whether it died."""
    scene, world = copy.copy(CORE[name]), ObjectWorld(roots[0], f"root/{number}")
    scene.prepare(world)
    proxy.calm()
    proxy.add(faults.kill_after, nth=number, verb=verb)
    process, line = starting(act, scene, world.through(roots[1]))
    try:
        assert process.pid is not None
        proxy.victim = process.pid
        line.send("go")
        process.join(JOIN_SECONDS)
        assert process.exitcode in (0, -9), f"request {number}: {process.exitcode}"
    finally:
        process.kill()
        process.join()
    scene.check(world)
    return process.exitcode == -9


def kill_anywhere(name: str, roots: tuple[Bucket, Bucket], proxy: Proxy, verb: str = ".*") -> None:
    """Kill a scene after each of its requests."""
    number = 1
    while killed_after(name, roots, proxy, number, verb):
        number += 1
    assert number > 1


@on(Versitygw)
@pytest.mark.parametrize("name", [name for name in CORE if name != "read"])
def test_killed_after_any_request(bucket: Bucket, through: Bucket, proxy: Proxy, name: str) -> None:
    """I1–I6: whatever was done by then, all that was committed is there, once, and the operation can be run again."""
    kill_anywhere(name, (bucket, through), proxy)


@on(*[server for server in SERVERS if server is not Versitygw])
@pytest.mark.parametrize("name", ["commit", "inline"])
def test_killed_after_any_change(bucket: Bucket, through: Bucket, proxy: Proxy, name: str) -> None:
    """The same on the other servers, for the requests that change what is stored."""
    kill_anywhere(name, (bucket, through), proxy, "PUT|POST|DELETE")
