"""Contract of reads: ranges, names, directories; of paths, ids and jitter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.contract_base import Opener, StorageCase

OUTSIDE = ["../x", "/x", "a/../../x", "a/..", "..", "a/../x"]
RANGES = [(0, 0), (0, 1), (0, 100_000), (1, 4095), (4095, 2), (4096, 10), (70_000, 30_000), (99_999, 1)]
BEYOND = [(0, 200_000), (99_999, 2), (100_000, 1), (150_000, 10)]


class ReadContract(StorageCase):
    """Files and directories that are read, made and removed."""

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
            assert before - self.tick_ms <= modified <= after, "stamped with the time of the last tick"

    def test_a_file_that_nobody_touches_keeps_its_identity(self, storage: Storage, opener: Opener) -> None:
        storage.make_directory("journal")
        storage.put_if_absent("journal/1", b"1")
        identity = storage.info("journal/1").identity
        storage.put_if_absent("journal/2", b"2")
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

        assert storage.names("a/b") == (["c"] if self.has_directories else [])

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
        if not self.has_directories:  # no writer has temporary names
            self.raw_temporary(storage, "d", now)
            assert storage.remove_abandoned("d", now + 60_000) == 0
            return
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
        assert {len(given) for given in ids} == {36}
        assert all(given == given.lower() for given in ids)

    def test_jitter_is_a_share(self, storage: Storage) -> None:
        drawn = [storage.jitter() for _ in range(100)]

        assert all(0 <= share < 1 for share in drawn)
        assert len(set(drawn)) > 1
