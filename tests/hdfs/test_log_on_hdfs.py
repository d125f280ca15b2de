"""A log on Hadoop's own servers: the contract, a walk, and a writer that is killed."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.local.probe import probe
from pyspark_commitlog.testing.storage_contract import Opener
from tests.support.hdfs import Hdfs, killed_anywhere
from tests.support.object_stores import walk

OPTIONS: dict[str, object] = {"user": "root"}


class TestHdfs(Hdfs):
    """The contract."""

    @pytest.fixture
    def opener(self, hdfs: str) -> Opener:
        opener = partial(open_storage, f"{hdfs}/{uuid.uuid4()}", OPTIONS)
        opener().make_directory("")
        return opener


def test_a_log_lives_there(hdfs: str) -> None:
    walk(f"{hdfs}/walk", OPTIONS)


def test_the_probe_finds_it_safe(hdfs: str) -> None:
    findings = probe(open_storage(f"{hdfs}/probed", OPTIONS))
    print("\n".join(f"{each.what}: {each.told}" for each in findings))
    assert all(each.safe for each in findings)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_is_killed_anywhere_loses_and_doubles_nothing(hdfs: str, when: str) -> None:
    assert killed_anywhere(f"{hdfs}/{when}", OPTIONS, when) > 10
