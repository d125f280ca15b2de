"""A filesystem of fsspec that creates exclusively keeps the contract, and a log lives there; so does HDFS by WebHDFS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.local.probe import probe
from pyspark_commitlog.testing.storage_contract import ObjectContract, Opener
from tests.support.directory import RawDirectory
from tests.support.filesystems import open_shelf
from tests.support.hdfs import Hdfs, killed_anywhere
from tests.support.name_node import NameNode
from tests.support.object_stores import walk, walk_typed
from tests.support.steps import every_step


class TestShelf(RawDirectory, ObjectContract):
    """The contract, on a filesystem that fsspec knows by its registry alone."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(open_shelf, f"shelf://{tmp_path}/root")

    def raw_root(self, storage: Storage) -> Path:
        return Path(storage.url.removeprefix("shelf://"))


@pytest.fixture(scope="module")
def node() -> Iterator[NameNode]:
    node = NameNode()
    yield node
    node.stop()


class TestWebHdfs(Hdfs):
    """The contract, on a server in this process that answers as a name node does."""

    @pytest.fixture
    def opener(self, node: NameNode) -> Opener:
        opener = partial(open_storage, f"{node.url}/{uuid.uuid4()}", {"user": "root"})
        opener().make_directory("")
        return opener


def test_a_log_lives_there(tmp_path: Path, node: NameNode) -> None:
    walk(f"shelf://{tmp_path}/root", {})
    walk_typed(f"shelf://{tmp_path}/root", {})
    walk(url := f"{node.url}/{uuid.uuid4()}", {"user": "root"})
    walk_typed(url, {"user": "root"})


def test_the_probe_finds_them_safe(tmp_path: Path, node: NameNode) -> None:
    for storage in (open_storage(f"shelf://{tmp_path}/root"), open_storage(f"{node.url}/probed", {"user": "root"})):
        findings = probe(storage)
        assert all(each.safe for each in findings), findings


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@every_step
def test_a_writer_that_is_killed_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, node: NameNode, when: str, every: int
) -> None:
    assert killed_anywhere(f"shelf://{tmp_path}", {}, when, every) > 10
    assert killed_anywhere(f"{node.url}/{uuid.uuid4()}", {"user": "root"}, when, every) > 10
