"""A log lives on NFS: writers, settlers and readers on two clients, zombies, and replies that get lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.local.local import LocalStorage, mount_type
from tests.nfs.conftest import Mounts
from tests.nfs.lost_replies import LosingProxy
from tests.object_stores.processes import joined, maintain_until, open_log, read_while, start, write_many
from tests.object_stores.servers import Bucket
from tests.support.object_stores import walk, walk_typed
from tests.support.records import append, batch_of, read_partition

PARTITIONS = 2
DELAY_MS = 10_000
CONFIG: dict[str, object] = {"file.delete.delay.ms": DELAY_MS, "retention.ms": -1, "inline.max.bytes": 4096}
COMMITS = 150


def test_a_log_lives_on_nfs(mounts: Mounts) -> None:
    walk(f"{mounts.a}/root", {})
    walk_typed(f"{mounts.a}/root", {})
    for topic in ("t", "typed"):
        assert CommitLog(f"{mounts.b}/root").topic(topic).verify().faults == ()


def test_two_clients_write_and_maintain_one_topic(mounts: Mounts, tmp_path: Path) -> None:
    """Every record is there once, at dense offsets, for a reader of either client."""
    a, b = Bucket(str(mounts.a), {}), Bucket(str(mounts.b), {})
    open_log(a, "root").create_topic("t", PARTITIONS, CONFIG)
    done = tmp_path / "done"
    writers = [
        start(write_many, each, "root", name, COMMITS, PARTITIONS, tmp_path / name)
        for each, name in ((a, "a"), (b, "b"))
    ]
    watchers = [
        start(maintain_until, each, "root", done, tmp_path / f"maintained-{i}") for i, each in enumerate((a, b))
    ]
    watchers.append(start(read_while, b, "root", done, tmp_path / "read"))
    try:
        joined(writers, 250)
        done.touch()
        joined(watchers, 60)
    finally:
        for process in (*writers, *watchers):
            process.kill()
    print({each.name: each.read_text() for each in tmp_path.iterdir() if each.is_file()})
    assert (tmp_path / "read").read_text().startswith("ok")
    check(mounts, {"a": COMMITS, "b": COMMITS})


def check(mounts: Mounts, commits: dict[str, int]) -> None:
    """Each writer's records are there once, in its order, as both clients see it, before and after maintenance."""
    for place in (mounts.a, mounts.b):
        log = CommitLog(f"{place}/root")
        for partition in range(PARTITIONS):
            found = read_partition(log.root.topic("t"), partition)
            assert [record.offset for record in found] == list(range(sum(commits.values())))
            for name, count in commits.items():
                own = [record.value for record in found if str(record.value, "utf8").startswith(f"{name}-")]  # type: ignore[arg-type]
                assert own == [f"{name}-{number}".encode() for number in range(count)]
        assert log.topic("t").verify().faults == ()
        log.topic("t").maintain()


def test_a_client_that_slept_behind_the_collector_loses_nothing(mounts: Mounts) -> None:
    """It knows the names of entries that the other client has collected since."""
    CommitLog(f"{mounts.a}/root").create_topic("t", PARTITIONS, CONFIG)
    slept = CommitLog(f"{mounts.b}/root").root.topic("t")
    append(slept, batch_of([b"slept-0"] * 2, partition=[0, 1]))
    reader = CommitLog(f"{mounts.b}/root").root.topic("t")
    first = reader.newest()[0].sequence
    log = CommitLog(f"{mounts.a}/root")
    for number in range(4):
        append(log.root.topic("t"), batch_of([f"a-{number}".encode()] * 2, partition=[0, 1]))
    log.topic("t").maintain()
    until = time.monotonic() + 60
    while log.root.topic("t").journal.sequences()[0] <= first + 1:
        assert time.monotonic() < until
        time.sleep(1)
        log.topic("t").maintain()
    assert reader.newest()[1].log_end == (5, 5)
    append(slept, batch_of([b"slept-1"] * 2, partition=[0, 1]))
    check(mounts, {"slept": 2, "a": 4})


@pytest.fixture
def losing(mounts: Mounts) -> Iterator[tuple[LosingProxy, Path]]:
    """The root of these mounts through a proxy that loses replies, by NFS 3."""
    if mount_type(mounts.a) == "nfs4":
        pytest.fail("requests of NFS 4 belong to a session, which answers each once")
    proxy, place = LosingProxy(), Path("/mnt/lost")
    options = f"vers=3,nolock,tcp,port={proxy.port},mountport=20048,mountproto=tcp,nosharecache,timeo=20"
    subprocess.run(["mount", "-t", "nfs", "-o", options, "127.0.0.1:/mnt/disk", str(place)], check=True)
    try:
        yield proxy, place / "root" / mounts.disk.name
    finally:
        proxy.losing = False
        subprocess.run(["umount", "-f", "-l", str(place)], check=True)


@pytest.mark.parametrize("mounts", ["3"], ids=["NFS 3"], indirect=True)
def test_links_whose_replies_are_lost_are_known_again(losing: tuple[LosingProxy, Path], mounts: Mounts) -> None:
    """The client asks again, and gets EEXIST for its own link: the entry is read back, and counts once."""
    proxy, place = losing
    CommitLog(f"{mounts.a}/root").create_topic("t", PARTITIONS, CONFIG)
    topic = CommitLog(f"{place}/root").root.topic("t")
    append(topic, batch_of([b"lost-0"] * 2, partition=[0, 1]))  # tests the mount, which takes rounds with a winner
    proxy.losing = True
    for number in range(1, 20):
        append(topic, batch_of([f"lost-{number}".encode()] * 2, partition=[0, 1]))
    assert proxy.lost >= 10
    check(mounts, {"lost": 20})


@pytest.mark.parametrize("mounts", ["3"], ids=["NFS 3"], indirect=True)
def test_the_proxy_makes_a_link_fail_that_was_made(losing: tuple[LosingProxy, Path], mounts: Mounts) -> None:
    """So the test before meets what it is about."""
    proxy, place = losing
    proxy.losing = True
    with pytest.raises(FileExistsError):
        LocalStorage(place).put_if_absent("1", b"own")
    assert LocalStorage(mounts.a).read("1") == b"own"
