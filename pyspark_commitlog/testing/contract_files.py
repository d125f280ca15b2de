"""Contract of files written once, or appended to."""

from __future__ import annotations

import pyarrow as pa
import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.contract_base import StorageCase


class FileContract(StorageCase):
    """Files that are written once."""

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

        assert output.close() == (11, crc32c(b"onetwothree"))
        assert self.raw_read(storage, "staged/1.chunk") == b"onetwothree"

    def test_a_file_may_be_made_durable_later(self, storage: Storage) -> None:
        output = storage.create("staged/1.chunk")
        output.write(b"frames")

        assert output.close(durable=False) == (6, crc32c(b"frames"))
        storage.sync_file("staged/1.chunk")
        assert self.raw_read(storage, "staged/1.chunk") == b"frames"
        with pytest.raises(FileNotFoundError):
            storage.sync_file("staged/2.chunk")

    def test_a_discarded_file_leaves_nothing(self, storage: Storage) -> None:
        output = storage.create("staged/1.chunk")
        output.write(b"frames")
        output.discard()

        assert self.raw_names(storage, "staged") == []


class AppendContract(StorageCase):
    """Files appended to in place (`can_append`)."""

    @pytest.fixture
    def appending(self, storage: Storage) -> Storage:
        """Storage with a directory."""
        assert storage.can_append
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
