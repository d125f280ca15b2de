"""Two clients of one NFS server, which cache names and attributes, see one log."""

from __future__ import annotations

import threading
import time

import pytest

from pyspark_commitlog.storage.local.local import LocalStorage
from tests.nfs.conftest import Mounts

ROUNDS = 20


def next_tick() -> None:
    """Wait until the server's clock gives another time: all that a client is told of a change by NFS 3."""
    time.sleep(0.03)


def test_what_one_client_puts_the_other_sees_though_it_looked_before(mounts: Mounts) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    a.make_directory("d")
    for number in range(ROUNDS):
        path = f"d/{number}"
        assert not b.exists(path)
        next_tick()
        a.put_if_absent(path, b"%d" % number)
        assert b.exists(path)
        assert b.read(path) == b"%d" % number
        assert b.fetch(path, 10)[0] == b"%d" % number
        assert b.info(path) == a.info(path)


@pytest.mark.parametrize("look", ["read", "fetch", "map", "info"])
def test_each_look_for_what_was_not_there_finds_it_now(mounts: Mounts, look: str) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    arguments = {"read": (), "fetch": (10,), "map": (0, 10), "info": ()}[look]
    a.make_directory("made/before")
    for number in range(ROUNDS):
        path = f"made/before/{number}"
        with pytest.raises(FileNotFoundError):
            getattr(b, look)(path, *arguments)
        next_tick()
        a.put_if_absent(path, b"entry")
        getattr(b, look)(path, *arguments)


def test_a_directory_that_was_not_there_is_seen_with_all_in_it(mounts: Mounts) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    assert b.names("x/y") == []
    assert not b.exists("x/y/1")
    next_tick()
    a.make_directory("x/y")
    a.put_if_absent("x/y/1", b"")
    assert b.exists("x/y/1")
    assert b.names("x/y") == ["1"]
    assert b.names("x") == ["y"]


def test_what_one_client_deletes_is_gone_for_the_other(mounts: Mounts) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    a.make_directory("d")
    for number in range(ROUNDS):
        path = f"d/{number}"
        a.put_if_absent(path, b"entry")
        identity = b.info(path).identity
        assert b.fetch(path, 10)[1].identity == identity
        next_tick()
        a.delete(path)
        assert not b.exists(path)
        next_tick()
        a.put_if_absent(path, b"entry")
        assert b.info(path).identity != identity, "another file of the same bytes"


def test_what_was_put_in_the_place_of_another_file_is_found(mounts: Mounts) -> None:
    """Though the client still knows the old one by that name."""
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    a.make_directory("d")
    for number in range(ROUNDS):
        path = f"d/{number}"
        a.put_if_absent(path, b"one")
        assert b.fetch(path, 10)[0] == b"one"
        next_tick()
        a.delete(path)
        a.put_if_absent(path, b"other")
        assert (b.info(path).size, b.read(path), b.map(path, 0, 10).to_pybytes()) == (5, b"other", b"other")
        assert b.fetch(path, 10)[0] == b"other"


def test_a_listing_is_of_now(mounts: Mounts) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    a.make_directory("d")
    for number in range(ROUNDS):
        next_tick()
        a.put_if_absent(f"d/{number:03}", b"")
        assert b.names("d") == [f"{each:03}" for each in range(number + 1)]
    for number in range(ROUNDS):
        next_tick()
        a.delete(f"d/{number:03}")
        assert b.names("d") == [f"{each:03}" for each in range(number + 1, ROUNDS)]


def test_what_is_deleted_while_it_is_open_has_no_name(mounts: Mounts) -> None:
    """The client keeps it as `.nfs…` until it is closed."""
    a = LocalStorage(mounts.a)
    a.make_directory("d")
    a.put_if_absent("d/1", b"entry")
    with open(mounts.a / "d/1", "rb") as file:
        file.read()
        a.delete("d/1")
        assert any(each.name.startswith(".nfs") for each in (mounts.a / "d").iterdir())
        assert a.names("d") == []


def test_a_tree_goes_but_for_what_is_open(mounts: Mounts) -> None:
    a = LocalStorage(mounts.a)
    for path in ("t/x/1", "t/y/2"):
        a.write_once(path, b"chunk")
    with open(mounts.a / "t/x/1", "rb"):
        a.delete_tree("t")
        assert a.names("t") == ["x"]
        assert a.names("t/x") == []
    until = time.monotonic() + 10
    while a.names("") and time.monotonic() < until:  # the client deletes it once it is closed, in the background
        next_tick()
        a.delete_tree("t")
    assert a.names("") == []


def test_a_file_that_was_not_there_is_deleted_now(mounts: Mounts) -> None:
    a, b = LocalStorage(mounts.a), LocalStorage(mounts.b)
    a.make_directory("d")
    for number in range(ROUNDS):
        assert not (mounts.b / f"d/{number}").exists()
        next_tick()
        a.put_if_absent(f"d/{number}", b"")
        b.delete(f"d/{number}")
        assert not (mounts.disk / f"d/{number}").exists()


def test_of_puts_at_once_one_is_taken(mounts: Mounts) -> None:
    clients = [LocalStorage(mounts.a), LocalStorage(mounts.b)]
    clients[0].make_directory("d")
    won: dict[int, list[int]] = {number: [] for number in range(ROUNDS)}
    together = threading.Barrier(4)

    def put(writer: int) -> None:
        for number in range(ROUNDS):
            together.wait(60)
            try:
                clients[writer % 2].put_if_absent(f"d/{number}", b"%d" % writer)
                won[number].append(writer)
            except FileExistsError:
                pass

    threads = [threading.Thread(target=put, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number, writers in won.items():
        assert [b"%d" % writer for writer in writers] == [clients[0].read(f"d/{number}")]
