"""Two processes commit to one topic while requests are lost, repeated and late, and zombies wake after the collector has passed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.object_stores import proxy as faults
from tests.object_stores.conftest import on
from tests.object_stores.processes import joined, maintain_until, open_log, read_while, start, write_many
from tests.object_stores.proxy import CONDITIONAL, Proxy
from tests.object_stores.servers import Bucket, Moto, Server, Versitygw
from tests.support.records import read_partition

PARTITIONS = 2
#: The shortest delay that a storage without append takes.
DELAY_MS = 10_000
CONFIG: dict[str, object] = {"file.delete.delay.ms": DELAY_MS, "retention.ms": -1, "inline.max.bytes": 4096}
FAULTS = 0.02


@pytest.mark.slow
@on(Moto)
def test_two_writers_and_a_zombie(server: Server, bucket_name: str, proxy: Proxy, tmp_path: Path) -> None:
    race(server, bucket_name, proxy, tmp_path, commits=40, seconds=200)


@on(Versitygw)
@pytest.mark.timeout(1800)
def test_two_writers_of_a_thousand_commits_and_a_zombie(
    server: Server, bucket_name: str, proxy: Proxy, tmp_path: Path
) -> None:
    race(server, bucket_name, proxy, tmp_path, commits=1000, seconds=1700)


def race(server: Server, name: str, proxy: Proxy, home: Path, *, commits: int, seconds: float) -> None:
    """Let two writers, a zombie, a maintainer and a reader loose; every record is there once, at dense offsets."""
    direct, root = server.bucket(name), "root"
    open_log(direct, root).create_topic("t", PARTITIONS, CONFIG)
    spoiled, zombies = server.bucket(name, proxy.endpoint), Proxy(proxy.upstream_port)
    zombies.start()
    waiting = zombies.add(faults.waiting, verb=CONDITIONAL, path="/journal/")
    other = r"/journal/0+5\.json"  # at the zombie's own number it would take that, once it is free
    held = proxy.add(faults.held, verb=CONDITIONAL, path=other)
    proxy.chance(FAULTS, seed=len(name))
    done = home / "done"
    patient = server.bucket(name, zombies.endpoint)
    patient = Bucket(patient.url, {**patient.options, "timeout": 600})
    zombie = start(write_many, patient, root, "zombie", 2, PARTITIONS, home / "zombie")
    wait_for(lambda: waiting.hits == 1, 60)
    writers = [start(write_many, spoiled, root, each, commits, PARTITIONS, home / each) for each in ("a", "b")]
    watchers = [
        start(maintain_until, spoiled, root, done, home / "maintained"),
        start(read_while, direct, root, done, home / "read"),
    ]
    try:
        wait_for(lambda: collected(server, name, root), seconds / 2)
        assert held.hits == 1
        proxy.execute_held()
        zombies.go_on()
        joined([*writers, zombie], seconds)
        done.touch()
        joined(watchers, 120)
    finally:
        for process in (*writers, zombie, *watchers):
            process.kill()
        zombies.stop()
    puts = [one for one in zombies.served if one.verb == "PUT" and "/journal/" in one.path]
    assert puts[0].status == 200, "its number was taken: it did not wake up behind the collector"
    report = {each.name: each.read_text() for each in home.iterdir() if each.is_file()}
    print(f"{server.name}: {report}, spoiled: {proxy.spoiled()}")
    assert report["read"].startswith("ok")
    check(direct, root, commits)


def check(bucket: Bucket, root: str, commits: int) -> None:
    """Every record once, at dense offsets, each writer's in its order; and again after maintenance."""
    log = open_log(bucket, root)
    for _ in range(2):
        for partition in range(PARTITIONS):
            found = read_partition(log.root.topic("t"), partition)
            assert [record.offset for record in found] == list(range(2 * commits + 2))
            for name, count in (("a", commits), ("b", commits), ("zombie", 2)):
                own = [record.value for record in found if str(record.value, "utf8").startswith(f"{name}-")]  # type: ignore[arg-type]
                assert own == [f"{name}-{number}".encode() for number in range(count)]
        assert log.topic("t").verify().faults == ()
        log.topic("t").maintain()


def collected(server: Server, name: str, root: str) -> bool:
    """Return whether the collector has deleted the topic's first entries: the number that the zombie puts at."""
    return open_log(server.bucket(name), root).root.topic("t").journal.sequences()[0] > 2


def wait_for(condition: object, seconds: float) -> None:
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)
