"""Each request of an operation is spoiled in each way: nothing is lost or doubled, and errors say what to do."""

from __future__ import annotations

import copy
import re

import pytest

from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, StorageDeniedError, StorageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.topic.write.writers import Transaction
from tests.object_stores import proxy as faults
from tests.object_stores.conftest import on
from tests.object_stores.proxy import CONDITIONAL, Fault, Proxy
from tests.object_stores.scenes import CORE
from tests.object_stores.servers import Bucket, Moto, Versitygw
from tests.object_stores.world import ObjectWorld
from tests.support.records import append, batch_of, read_topic
from tests.support.world import CHUNKS

pytestmark = pytest.mark.slow

Roots = tuple[Bucket, Bucket]
#: What each request of each operation meets.
EVERYWHERE = (faults.drop, faults.lose_reply, faults.second_reply, faults.truncated)
#: The others, each at the first request that it can spoil.
OTHERS = (
    (faults.reset, ".*"),
    (faults.reset_after, "PUT"),
    (faults.twice, "PUT"),
    (faults.late(0.02), "PUT"),
    (faults.conflict, CONDITIONAL),
    (faults.conflict_after, CONDITIONAL),
    (faults.slow_down, ".*"),
    (faults.too_many, ".*"),
    (faults.server_error, ".*"),
    (faults.server_error_after, "PUT"),
    (faults.short_length, "GET"),
    (faults.short_length, "LIST"),
    (faults.long_length, "GET"),
    (faults.slow_body(0.05), "GET"),
)
#: Requests that a spoiled one may lead to beyond those of an operation that meets no fault.
MORE_REQUESTS = 12


def spoiled(name: str, roots: Roots, proxy: Proxy, fault: Fault, number: int, verb: str = ".*", path: str = "") -> bool:
    """Play a scene with its n-th such request spoiled; return whether there was one."""
    scene, world = copy.copy(CORE[name]), ObjectWorld(roots[0], f"root/{number}")
    scene.prepare(world)
    there = world.tried(roots[1])
    proxy.calm()
    rule = proxy.add(fault, verb=verb, path=path, nth=number)
    try:
        scene.act(there)
    except CommitLogError as error:
        raise AssertionError(f"request {number}, {proxy.served[-5:]}") from error
    scene.check(world)
    return rule.hits > 0


def each_request(name: str, roots: Roots, proxy: Proxy, fault: Fault, verb: str = ".*") -> None:
    """Play a scene once for each such request of it, spoiled."""
    number, clean = 1, 0
    while spoiled(name, roots, proxy, fault, number, verb):
        clean = clean or len(proxy.served)
        assert len(proxy.served) <= clean + MORE_REQUESTS
        number += 1
    assert number > 2


@on(Versitygw)
@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("fault", EVERYWHERE, ids=faults.name_of)
def test_any_request_is_spoiled_once(bucket: Bucket, through: Bucket, proxy: Proxy, name: str, fault: Fault) -> None:
    """The operation ends well, whichever request it was, with a bounded number of requests."""
    each_request(name, (bucket, through), proxy, fault)


@on(Moto)
@pytest.mark.parametrize("fault", EVERYWHERE[:3], ids=faults.name_of)
def test_any_put_of_a_commit_is_spoiled_once(bucket: Bucket, through: Bucket, proxy: Proxy, fault: Fault) -> None:
    """The same for what a commit puts, on a server that is always there."""
    each_request("commit", (bucket, through), proxy, fault, "PUT")


@on(Versitygw, Moto)
@pytest.mark.parametrize(("fault", "verb"), OTHERS, ids=[f"{faults.name_of(fault)}-{verb}" for fault, verb in OTHERS])
def test_a_request_is_spoiled_in_other_ways(
    bucket: Bucket, through: Bucket, proxy: Proxy, fault: Fault, verb: str
) -> None:
    assert spoiled("commit", (bucket, through), proxy, fault, 1, verb)


@on(Versitygw, Moto)
@pytest.mark.parametrize("path", ["", re.escape(paths.ROOT_MARKER)], ids=["first", "marker"])
@pytest.mark.parametrize(
    "fault", [faults.lose_reply, faults.drop, faults.conflict, faults.second_reply], ids=faults.name_of
)
def test_the_conditional_puts_of_a_new_root_are_spoiled(
    bucket: Bucket, through: Bucket, proxy: Proxy, fault: Fault, path: str
) -> None:
    """The root's marker, and what is first put: of the race that tries the store, where this process ran none yet."""
    assert spoiled("create", (bucket, through), proxy, fault, 1, CONDITIONAL, path)


#: What no answer ends: fault -> what the error says.
FOR_EVER: dict[Fault, str] = {
    faults.slow_down: r"SlowDown",
    faults.drop: r"no answer: .* Check the endpoint and the network",
    faults.expired: r"refuses it to these credentials: .*ExpiredToken.*whether it has expired",
    faults.forbidden: r"refuses it to these credentials: .*whether it has expired",
}


@on(Versitygw, Moto)
@pytest.mark.parametrize("verb", [".*", CONDITIONAL, pytest.param("PUT", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("fault", FOR_EVER, ids=faults.name_of)
def test_a_store_that_never_answers(bucket: Bucket, through: Bucket, proxy: Proxy, fault: Fault, verb: str) -> None:
    """A bounded number of tries with pauses between them, an error that says what to do, and nothing half done."""
    scene, world = copy.copy(CORE["commit"]), ObjectWorld(bucket, "root")
    scene.prepare(world)
    proxy.calm()
    proxy.add(fault, verb=verb, times=10**6)
    with pytest.raises((StorageError, OutcomeUnknownError), match=FOR_EVER[fault]) as raised:
        scene.act(world.through(through))
    assert "secret-key" not in str(raised.value)
    assert len(proxy.served) <= 30
    assert world.clock.slept < 40  # type: ignore[attr-defined]
    scene.check(world)


@on(Versitygw, Moto)
def test_credentials_that_expire_and_are_renewed(bucket: Bucket, through: Bucket, proxy: Proxy) -> None:
    """What was refused is certainly not there; the same handle goes on when it may, as in a stream of days."""
    world = ObjectWorld(bucket, "root")
    world.create(1)
    topic = world.through(through).handle()
    for number in range(3):
        value = b"%d" % number
        append(topic, batch_of([value]), writer=Transaction("w", 2 * number))
        proxy.add(faults.expired, times=4)
        for _ in range(4):
            with pytest.raises(StorageDeniedError, match=r"ExpiredToken.*whether it has expired"):
                append(topic, batch_of([value * 2]), writer=Transaction("w", 2 * number + 1))
        append(topic, batch_of([value * 2]), writer=Transaction("w", 2 * number + 1))
    assert world.values() == [b"0", b"00", b"1", b"11", b"2", b"22"]


@on(Versitygw, Moto)
def test_listings_that_lag(bucket: Bucket, through: Bucket, proxy: Proxy) -> None:
    """Who lists first, and sees what was there a while ago, commits once and reads all, from there on."""
    world = ObjectWorld(bucket, "root")
    world.create(1, {**CHUNKS, "inline.max.bytes": 4096})
    late = world.tried(through)
    append(late.handle(), batch_of([b"0"]))  # the proxy has seen the listings
    for number in range(1, 6):
        append(world.handle(), batch_of([b"%d" % number]))
    rule = proxy.add(faults.stale_list, verb="LIST", times=100)
    topic = late.handle()
    append(topic, batch_of([b"6"]), writer=Transaction("w", 1))
    append(topic, batch_of([b"6"]), writer=Transaction("w", 1))
    assert [record.value for record in read_topic(topic)] == [b"%d" % number for number in range(7)]
    assert rule.hits > 0
    assert world.values() == [b"%d" % number for number in range(7)]


@on(Versitygw, Moto)
def test_a_put_that_is_executed_after_its_time_out(bucket: Bucket, through: Bucket, proxy: Proxy) -> None:
    """The client gives up after a second and puts again; the first put comes later, and finds its own."""
    world = ObjectWorld(bucket, "root")
    world.create(1)
    hasty = world.tried(Bucket(through.url, {**through.options, "timeout": 1}))
    rule = proxy.add(faults.waiting, verb=CONDITIONAL, path="/journal/")
    append(hasty.handle(), batch_of([b"a"]), writer=Transaction("w", 1))
    proxy.go_on()
    append(hasty.handle(), batch_of([b"b"]), writer=Transaction("w", 2))
    assert rule.hits == 1
    assert world.values() == [b"a", b"b"]
    world.collect_all()
    assert world.values() == [b"a", b"b"]
