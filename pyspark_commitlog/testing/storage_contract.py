"""What every ``Storage`` must do: subclass ``StorageContract``, and say how to open one and look behind it.

Raw access bypasses the code under test, so that a test sees what is stored, temporary files included.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage import NotPutError, Storage

#: Opens the same root again, in another process too: it can be pickled.
Opener = Callable[[], Storage]
OUTSIDE = ["../x", "/x", "a/../../x", "a/..", "..", "a/../x"]
RANGES = [(0, 0), (0, 1), (0, 100_000), (1, 4095), (4095, 2), (4096, 10), (70_000, 30_000), (99_999, 1)]
BEYOND = [(0, 200_000), (99_999, 2), (100_000, 1), (150_000, 10)]
_WAIT_SECONDS = 60


class StorageContract(ABC):
    """The tests. Fixtures to give: ``opener``."""

    @abstractmethod
    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        """Store a file, and its directories."""

    @abstractmethod
    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        """Return what is stored; None for nothing."""

    @abstractmethod
    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        """Return all names in a directory, temporary ones too; empty when it does not exist."""

    @abstractmethod
    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        """Leave a temporary file, as a killed writer does, last written at that time."""

    @pytest.fixture
    def storage(self, opener: Opener) -> Storage:
        return opener()

    # --- put if absent ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 5_000_000])
    def test_put_stores_the_whole_content(self, storage: Storage, size: int) -> None:
        data = bytes(i % 251 for i in range(size))

        storage.make_directory("journal")
        storage.put_if_absent("journal/1", data)

        assert self.raw_read(storage, "journal/1") == data

    def test_put_at_the_root(self, storage: Storage) -> None:
        storage.make_directory("")
        storage.put_if_absent("marker", b"1")

        assert self.raw_read(storage, "marker") == b"1"

    def test_a_second_put_is_refused_and_changes_nothing(self, storage: Storage) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"first")

        for data in (b"second", b"first"):
            with pytest.raises(FileExistsError):
                storage.put_if_absent("journal/1", data)
        assert self.raw_read(storage, "journal/1") == b"first"

    def test_put_never_overwrites_what_others_stored(self, storage: Storage) -> None:
        self.raw_write(storage, "journal/1", b"theirs")

        with pytest.raises(FileExistsError):
            storage.put_if_absent("journal/1", b"ours")
        assert self.raw_read(storage, "journal/1") == b"theirs"

    def test_put_makes_no_directory(self, storage: Storage) -> None:
        with pytest.raises(NotPutError):
            storage.put_if_absent("deleted/journal/1", b"1")

        assert self.raw_names(storage, "") == []

    def test_put_leaves_nothing_else_behind(self, storage: Storage) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"1")
        with pytest.raises(FileExistsError):
            storage.put_if_absent("journal/1", b"2")

        assert self.raw_names(storage, "journal") == ["1"]

    def test_a_file_put_again_after_its_deletion_is_another(self, storage: Storage) -> None:
        """Older kernels stamp files by the tick, up to 10 ms, and give a deleted file's inode to the next one."""
        storage.make_directory("journal")
        identities = []
        for _ in range(4):
            storage.put_if_absent("journal/1", b"same bytes")
            identities.append(storage.info("journal/1").identity)
            storage.delete("journal/1")
            time.sleep(0.02)

        assert all(one != following for one, following in pairwise(identities))

    def test_one_of_8_threads_wins(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("journal")
        start = threading.Barrier(8)

        def race(racer: int) -> list[str]:
            own = opener()
            won = []
            for name in map(str, range(12)):
                start.wait(_WAIT_SECONDS)
                won += _put(own, f"journal/{name}", racer)
            return won

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))

        self._check_race(storage, won, 12)

    def test_one_of_4_processes_wins(self, storage: Storage, opener: Opener, pool: Executor) -> None:
        storage.make_directory("journal")

        won = list(pool.map(_race_of_processes, [opener] * 4, range(4)))

        self._check_race(storage, won, _RACES)

    def _check_race(self, storage: Storage, won: list[list[str]], names: int) -> None:
        assert self.raw_names(storage, "journal") == sorted(map(str, range(names)))
        assert sorted(path for paths in won for path in paths) == sorted(f"journal/{n}" for n in range(names))
        for racer, paths in enumerate(won):
            assert all(self.raw_read(storage, path) == _content(racer) for path in paths)

    def test_what_is_put_is_seen_whole_or_not_at_all(self, storage: Storage) -> None:
        storage.make_directory("journal")
        data, stop, seen = os.urandom(4_000_000), threading.Event(), set[int]()

        def look() -> None:
            while not stop.is_set():
                found = self.raw_read(storage, "journal/1")
                seen.add(-1 if found is None else len(found))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            for _ in range(5):
                storage.put_if_absent("journal/1", data)
                storage.delete("journal/1")
        finally:
            stop.set()
            watcher.join()

        assert seen <= {-1, len(data)}

    # --- files that are written once ----------------------------------------------------------------------

    def test_write_once_makes_its_directory(self, storage: Storage) -> None:
        storage.write_once("side/a/1", b"table")

        assert self.raw_read(storage, "side/a/1") == b"table"
        assert self.raw_names(storage, "side/a") == ["1"]

    def test_a_file_in_the_place_of_another_leaves_the_old_one_to_who_has_it_mapped(self, storage: Storage) -> None:
        storage.write_once("0/1.index", b"old" * 10_000)
        mapped = storage.map("0/1.index", 0, 30_000)

        storage.write_once("0/1.index", b"new")

        assert mapped.to_pybytes() == b"old" * 10_000
        assert self.raw_read(storage, "0/1.index") == b"new"
        assert self.raw_names(storage, "0") == ["1.index"]

    def test_a_file_under_way_is_not_there_yet(self, storage: Storage) -> None:
        output = storage.create("staged/1.chunk")
        output.write(b"frames" * 1000)

        assert storage.names("staged") == []
        assert not storage.exists("staged/1.chunk")
        assert self.raw_read(storage, "staged/1.chunk") is None

        output.close()
        assert self.raw_names(storage, "staged") == ["1.chunk"]

    def test_a_created_file_tells_its_length_and_crc(self, storage: Storage) -> None:
        pieces = [b"one", memoryview(b"two"), pa.py_buffer(b"three"), b""]

        output = storage.create("staged/1.chunk")
        for piece in pieces:
            output.write(piece)

        assert output.close() == (11, google_crc32c.value(b"onetwothree"))
        assert self.raw_read(storage, "staged/1.chunk") == b"onetwothree"

    def test_a_file_may_be_made_durable_later(self, storage: Storage) -> None:
        output = storage.create("staged/1.chunk")
        output.write(b"frames")

        assert output.close(durable=False) == (6, google_crc32c.value(b"frames"))
        storage.sync_file("staged/1.chunk")
        assert self.raw_read(storage, "staged/1.chunk") == b"frames"
        with pytest.raises(FileNotFoundError):
            storage.sync_file("staged/2.chunk")

    def test_a_discarded_file_leaves_nothing(self, storage: Storage) -> None:
        output = storage.create("staged/1.chunk")
        output.write(b"frames")
        output.discard()

        assert self.raw_names(storage, "staged") == []

    # --- files that are appended to -----------------------------------------------------------------------

    @pytest.fixture
    def appending(self, storage: Storage) -> Storage:
        if not storage.can_append:
            pytest.skip("this storage does not append in place")
        storage.make_directory("0")
        return storage

    def test_pieces_are_written_where_they_belong(self, appending: Storage) -> None:
        self.raw_write(appending, "0/1.log", b"published, then a long torn tail")
        file = appending.open_append("0/1.log")
        try:
            file.truncate(9)
            end = file.write_at(9, [b" and", memoryview(b" more"), pa.py_buffer(b", and more"), b""])
            file.sync()
        finally:
            file.close()

        assert end == 28
        assert self.raw_read(appending, "0/1.log") == b"published and more, and more"

    def test_many_pieces_are_written(self, appending: Storage) -> None:
        pieces = [b"%06d" % number for number in range(5000)]
        file = appending.open_append("0/1.log")
        try:
            assert file.write_at(0, pieces) == 30_000
            assert file.write_at(30_000, []) == 30_000
        finally:
            file.close()

        assert self.raw_read(appending, "0/1.log") == b"".join(pieces)

    def test_an_appended_file_is_extended_with_zeros(self, appending: Storage) -> None:
        file = appending.open_append("0/1.index")
        try:
            file.write_at(0, [b"entries"])
            file.truncate(10)
            file.write_at(12, [b"!"])
            file.truncate(15)
        finally:
            file.close()

        assert self.raw_read(appending, "0/1.index") == b"entries\0\0\0\0\0!\0\0"

    def test_a_reservation_adds_zeros_and_never_cuts(self, appending: Storage) -> None:
        file = appending.open_append("0/1.log")
        try:
            file.write_at(0, [b"frames"])
            for length, expected in ((0, 6), (10, 10), (8, 10), (70_000, 70_000)):
                file.reserve(length)
                assert appending.info("0/1.log").size == expected
        finally:
            file.close()

        assert self.raw_read(appending, "0/1.log") == b"frames" + bytes(69_994)

    def test_appending_makes_a_file_but_no_directory(self, appending: Storage) -> None:
        appending.open_append("0/1.log").close()
        assert self.raw_read(appending, "0/1.log") == b""

        with pytest.raises(FileNotFoundError):
            appending.open_append("gone/1.log")
        assert self.raw_names(appending, "") == ["0"]

    # --- reading ------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("start", "length"), RANGES + BEYOND)
    def test_reads_any_range_and_no_further(self, storage: Storage, start: int, length: int) -> None:
        data = os.urandom(100_000)
        self.raw_write(storage, "0/1.log", data)

        assert storage.map("0/1.log", start, length).to_pybytes() == data[start : start + length]
        assert storage.read("0/1.log", start, length) == data[start : start + length]
        assert storage.read("0/1.log", start) == data[start:]

    @pytest.mark.parametrize("start", [0, 1, 5, 2**40])
    def test_no_memory_is_taken_for_what_is_not_there(self, storage: Storage, start: int) -> None:
        self.raw_write(storage, "d/f", b"abc")
        assert storage.read("d/f", start, 2**50) == b"abc"[start:]

    def test_a_mapping_keeps_its_length_while_the_file_grows(self, storage: Storage) -> None:
        self.raw_write(storage, "0/1.log", b"published")
        mapped = storage.map("0/1.log", 0, 100)
        self.raw_write(storage, "0/1.log", b"published and more")

        assert mapped.size == 9
        assert storage.map("0/1.log", 0, 100).size == 18

    @pytest.mark.parametrize("content", [b"", b"short", b"x" * 1000])
    def test_fetches_the_first_bytes_and_what_is_known(self, storage: Storage, content: bytes) -> None:
        self.raw_write(storage, "journal/1", content)

        head, info = storage.fetch("journal/1", 100)

        assert head == content[:100]
        assert info == storage.info("journal/1")
        assert info.size == len(content)

    def test_a_file_is_stamped_by_the_clock(self, storage: Storage) -> None:
        storage.make_directory("journal")
        before = storage.clock.now_ms()
        storage.put_if_absent("journal/1", b"")
        storage.write_once("journal/2", b"")
        after = storage.clock.now_ms()

        for name in ("journal/1", "journal/2"):
            modified = storage.info(name).modified_ms
            assert before - 20 <= modified <= after, "kernels stamp with the time of the last tick"

    def test_a_file_that_nobody_touches_keeps_its_identity(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"1")
        identity = storage.info("journal/1").identity
        storage.put_if_absent("journal/2", b"1")
        storage.read("journal/1")

        assert opener().info("journal/1").identity == identity
        assert storage.info("journal/2").identity != identity

    @pytest.mark.parametrize("path", ["gone", "gone/1", "file/1"])
    def test_what_is_not_there_is_not_found(self, storage: Storage, path: str) -> None:
        self.raw_write(storage, "file", b"")
        calls: list[Callable[[], Any]] = [
            lambda: storage.read(path),
            lambda: storage.fetch(path, 10),
            lambda: storage.info(path),
            lambda: storage.map(path, 0, 10),
        ]

        for call in calls:
            with pytest.raises(FileNotFoundError):
                call()
        assert not storage.exists(path)

    # --- directories --------------------------------------------------------------------------------------

    def test_names_are_sorted_and_never_temporary(self, storage: Storage) -> None:
        for path in ("d/b", "d/a", "d/c/1"):
            self.raw_write(storage, path, b"")
        self.raw_temporary(storage, "d", storage.clock.now_ms())

        assert storage.names("d") == ["a", "b", "c"]
        assert len(self.raw_names(storage, "d")) == 4

    def test_nothing_lies_in_a_directory_that_is_not_there(self, storage: Storage) -> None:
        self.raw_write(storage, "file", b"")

        assert storage.names("gone") == storage.names("gone/too") == storage.names("file/1") == []

    def test_nothing_is_cached(self, storage: Storage) -> None:
        self.raw_write(storage, "d/1", b"1")
        assert (storage.names("d"), storage.read("d/1")) == (["1"], b"1")
        self.raw_write(storage, "d/1", b"22")
        self.raw_write(storage, "d/2", b"2")

        assert (storage.names("d"), storage.read("d/1"), storage.info("d/1").size) == (["1", "2"], b"22", 2)

    def test_a_directory_is_made_with_its_parents(self, storage: Storage, opener: Opener) -> None:
        for one in (storage, storage, opener()):
            one.make_directory("a/b/c")
            one.sync_directory("a/b/c")

        assert storage.names("a/b") == ["c"]

    def test_a_directory_removed_by_others_is_made_again(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("a/b")
        opener().delete_tree("a")
        storage.make_directory("a/b")
        storage.put_if_absent("a/b/1", b"1")

        assert self.raw_read(storage, "a/b/1") == b"1"

    def test_deleting_what_is_not_there_does_nothing(self, storage: Storage) -> None:
        self.raw_write(storage, "d/1", b"1")

        for _ in range(2):
            storage.delete("d/1")
        assert self.raw_names(storage, "d") == []
        for _ in range(2):
            storage.delete_tree("d")
        assert self.raw_names(storage, "") == []

    def test_a_tree_is_deleted_with_all_in_it(self, storage: Storage) -> None:
        for path in ("t/a/1", "t/a/b/2", "other/3"):
            self.raw_write(storage, path, b"")

        storage.delete_tree("t")

        assert self.raw_names(storage, "") == ["other"]

    def test_only_old_temporary_files_are_abandoned(self, storage: Storage) -> None:
        now = storage.clock.now_ms()
        self.raw_write(storage, "d/1", b"1")
        for age in (10_000, 5_000, 0):
            self.raw_temporary(storage, "d", now - age)

        assert storage.remove_abandoned("d", now - 1_000) == 2
        assert len(self.raw_names(storage, "d")) == 2
        assert storage.remove_abandoned("d", now - 1_000) == 0
        assert storage.remove_abandoned("d", now + 60_000) == 1
        assert storage.remove_abandoned("gone", now) == 0
        assert self.raw_read(storage, "d/1") == b"1"

    # --- paths, ids, chance -------------------------------------------------------------------------------

    @pytest.mark.parametrize("path", OUTSIDE)
    def test_no_path_leaves_the_root(self, storage: Storage, path: str) -> None:
        storage.make_directory("a")
        calls: list[Callable[[], Any]] = [
            lambda: storage.put_if_absent(path, b""),
            lambda: storage.write_once(path, b""),
            lambda: storage.create(path),
            lambda: storage.open_append(path),
            lambda: storage.read(path),
            lambda: storage.fetch(path, 1),
            lambda: storage.map(path, 0, 1),
            lambda: storage.info(path),
            lambda: storage.names(path),
            lambda: storage.make_directory(path),
            lambda: storage.sync_directory(path),
            lambda: storage.delete(path),
            lambda: storage.delete_tree(path),
            lambda: storage.remove_abandoned(path, 0),
            lambda: storage.try_lock(path).__enter__(),
        ]

        for call in calls:
            with pytest.raises(UsageError, match="leaves the root"):
                call()

    def test_ids_are_uuids_and_differ(self, storage: Storage, opener: Opener) -> None:
        ids = {one.new_id() for one in (storage, opener()) for _ in range(100)}

        assert len(ids) == 200
        assert {len(found) for found in ids} == {36}
        assert all(found == found.lower() for found in ids)

    def test_jitter_is_a_share(self, storage: Storage) -> None:
        drawn = [storage.jitter() for _ in range(100)]

        assert all(0 <= share < 1 for share in drawn)
        assert len(set(drawn)) > 1

    # --- turns --------------------------------------------------------------------------------------------

    def test_a_turn_never_fails_whether_it_comes_or_not(self, storage: Storage, opener: Opener) -> None:
        class OwnError(OSError):
            pass

        storage.make_directory("d")
        for directory in ("d", "not/there"):
            with storage.turn(directory, 0.01) as first, opener().turn(directory, 0.01) as second:
                assert not (first and second)
        with pytest.raises(OwnError), storage.turn("d", 0.01):
            raise OwnError

    # --- locks --------------------------------------------------------------------------------------------

    @pytest.fixture
    def locking(self, appending: Storage) -> Storage:
        """Only where files are appended to in place is there something to lock."""
        return appending

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
        class OwnError(OSError):
            pass

        with pytest.raises(OwnError), locking.try_lock("0/lock"):
            raise OwnError
        with opener().try_lock("0/lock") as held:
            assert held
            with pytest.raises(OwnError), locking.try_lock("0/lock"):
                raise OwnError

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
            os.kill(other.told, 0)  # its child lives
            try:
                with locking.try_lock("0/lock") as held:
                    assert held
            finally:
                os.kill(other.told, 9)

    def test_a_forked_child_does_not_release_the_lock(self, locking: Storage, opener: Opener) -> None:
        with _other_process(_hold_lock_and_leave_it_in_a_child, opener) as other:
            with locking.try_lock("0/lock") as held:
                assert not held
            other.end()


# --- in other threads and processes -----------------------------------------------------------------------

_RACES = 60


def _content(racer: int) -> bytes:
    return b"%d" % racer * 50_000


def _put(storage: Storage, path: str, racer: int) -> list[str]:
    try:
        storage.put_if_absent(path, _content(racer))
    except FileExistsError:
        return []
    return [path]


def _race_of_processes(opener: Opener, racer: int) -> list[str]:
    storage, won = opener(), list[str]()
    for number in range(_RACES):
        storage.write_once(f"ready/{number}/{racer}", b"")
        until = time.monotonic() + _WAIT_SECONDS
        while len(storage.names(f"ready/{number}")) < 4:
            assert time.monotonic() < until, "the other racers did not come"
        won += _put(storage, f"journal/{number}", racer)
    return won


class _Other:
    """A process that told something and lives until ``end`` or ``kill``."""

    def __init__(self, process: Any, line: Connection, told: int) -> None:
        self._process, self._line, self.told = process, line, told

    def end(self) -> None:
        """Let it end in peace."""
        self._line.send(None)
        self._process.join(_WAIT_SECONDS)
        assert self._process.exitcode == 0

    def kill(self) -> None:
        """SIGKILL it. (With a time limit, ``join`` would wait for its children too.)"""
        self._process.kill()
        self._process.join()


@contextmanager
def _other_process(act: Callable[[Opener, Connection], None], opener: Opener) -> Iterator[_Other]:
    """Run ``act`` in a process of its own; go on when it has sent a number."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=act, args=(opener, theirs))
    process.start()
    try:
        assert ours.poll(_WAIT_SECONDS), "the other process does not answer"
        yield _Other(process, ours, ours.recv())
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
            time.sleep(_WAIT_SECONDS)
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
