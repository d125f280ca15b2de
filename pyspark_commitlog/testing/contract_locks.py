"""Contract of turns and locks, against threads, processes, forked children."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.contract_base import WAIT_SECONDS, Opener, StorageCase


class _OwnError(OSError):
    """Error of a block under a lock."""


class TurnContract(StorageCase):
    """Turns, which may not come."""

    def test_a_turn_never_fails_whether_it_comes_or_not(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("d")
        for directory in ("d", "not/there"):
            with storage.turn(directory, 0.01) as first, opener().turn(directory, 0.01) as second:
                assert not (first and second)
        with pytest.raises(_OwnError), storage.turn("d", 0.01):
            raise _OwnError


class LockContract(StorageCase):
    """Locks of storages that append in place."""

    @pytest.fixture
    def locking(self, storage: Storage) -> Storage:
        """Storage with a directory."""
        assert storage.can_append
        storage.make_directory("0")
        return storage

    def test_a_lock_is_held_by_one(self, locking: Storage, opener: Opener) -> None:
        with locking.try_lock("0/lock") as held:
            assert held
            for other in (locking, opener()):
                with other.try_lock("0/lock") as also:
                    assert not also
        with opener().try_lock("0/lock") as held:
            assert held

    def test_locks_of_two_topics_are_two(self, locking: Storage) -> None:
        with locking.try_lock("0/lock") as one, locking.try_lock("0/lock2") as two:
            assert (one, two) == (True, True)

    def test_an_error_in_the_block_releases_and_passes(self, locking: Storage, opener: Opener) -> None:
        with pytest.raises(_OwnError), locking.try_lock("0/lock"):
            raise _OwnError
        with opener().try_lock("0/lock") as held:
            assert held
            with pytest.raises(_OwnError), locking.try_lock("0/lock"):
                raise _OwnError

    def test_the_lock_file_stays(self, locking: Storage) -> None:
        with locking.try_lock("0/lock"):
            pass

        assert self.raw_read(locking, "0/lock") == b""

    def test_a_lock_is_held_against_other_processes(self, locking: Storage, opener: Opener) -> None:
        with _other_process(_hold_lock, opener) as other:
            with locking.try_lock("0/lock") as held:
                assert not held
            other.end()
        with locking.try_lock("0/lock") as held:
            assert held

    def test_a_lock_dies_with_its_holder(self, locking: Storage, opener: Opener) -> None:
        with _other_process(_hold_lock, opener) as other:
            other.kill()
            with locking.try_lock("0/lock") as held:
                assert held

    def test_a_forked_child_does_not_inherit_the_lock(self, locking: Storage, opener: Opener) -> None:
        with _other_process(_hold_lock_and_fork, opener) as other:
            with locking.try_lock("0/lock") as held:
                assert not held, "the holder lives"
            other.kill()
            os.kill(other.number, 0)  # its child lives
            try:
                with locking.try_lock("0/lock") as held:
                    assert held
            finally:
                os.kill(other.number, 9)

    def test_a_forked_child_does_not_release_the_lock(self, locking: Storage, opener: Opener) -> None:
        with _other_process(_hold_lock_and_leave_it_in_a_child, opener) as other:
            with locking.try_lock("0/lock") as held:
                assert not held
            other.end()


# --- in other processes -----------------------------------------------------------------------------------


class _OtherProcess:
    """Process that sent a number, and lives until `end` or `kill`."""

    def __init__(self, process: Any, line: Connection, number: int) -> None:
        self._process, self._line, self.number = process, line, number

    def end(self) -> None:
        self._line.send(None)
        self._process.join(WAIT_SECONDS)
        assert self._process.exitcode == 0

    def kill(self) -> None:
        """SIGKILL it, and wait.

        `join` with a limit would wait for its children too.
        """
        self._process.kill()
        self._process.join()


@contextmanager
def _other_process(act: Callable[[Opener, Connection], None], opener: Opener) -> Iterator[_OtherProcess]:
    """Run `act` in another process; go on when it has sent a number."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=act, args=(opener, theirs))
    process.start()
    try:
        assert ours.poll(WAIT_SECONDS), "the other process does not answer"
        yield _OtherProcess(process, ours, ours.recv())
    finally:
        process.kill()
        process.join()


def _hold_lock(opener: Opener, line: Connection) -> None:
    with opener().try_lock("0/lock") as held:
        line.send(int(held))
        line.recv()


def _hold_lock_and_fork(opener: Opener, line: Connection) -> None:
    with opener().try_lock("0/lock"):
        if os.fork() == 0:
            line.send(os.getpid())
            time.sleep(WAIT_SECONDS)
            os._exit(0)
        line.recv()


def _hold_lock_and_leave_it_in_a_child(opener: Opener, line: Connection) -> None:
    lock = opener().try_lock("0/lock")
    lock.__enter__()
    child = os.fork()
    if child == 0:
        lock.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    line.send(child)
    line.recv()
    lock.__exit__(None, None, None)
