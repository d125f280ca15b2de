"""``commitlog probe``: what a place can do, and what it must not be trusted with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.local import LocalStorage
from pyspark_commitlog.storage.probe import probe
from tests.support.commands import run


def test_a_local_disk_can_hold_a_log_and_is_left_as_it_was(tmp_path: Path) -> None:
    lines, _ = run("probe", str(tmp_path / "new"))
    assert [line.split()[0] for line in lines] == ["ok"] * 5
    assert not (tmp_path / "new").exists()
    rows = [json.loads(line) for line in run("probe", str(tmp_path), "--json")[0]]
    assert [row["what"] for row in rows] == ["put-if-absent", "puts at once", "lock", "append", "time"]
    assert list(tmp_path.iterdir()) == []


def test_a_root_stays_as_it_is(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("events")
    before = sorted(tmp_path.rglob("*"))
    run("probe", str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


class Careless(LocalStorage):
    """Puts that look first and write then, as a filesystem without put-if-absent does; locks that hold nobody off."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.write_once(path, data)

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        yield True


def test_what_a_careless_storage_lacks_is_unsafe(tmp_path: Path) -> None:
    found = {each.what: each for each in probe(Careless(tmp_path))}
    for what, told in (("put-if-absent", "second put"), ("puts at once", "8 to 8 are taken"), ("lock", "is not")):
        assert not found[what].safe
        assert told in found[what].told


def test_a_mount_without_append_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.storage.local.mount_type", lambda path: "nfs4")
    found = {each.what: each for each in probe(LocalStorage(tmp_path))}
    assert (found["append"].held, found["append"].safe) == (False, True)
    assert all(each.safe for each in found.values())


def test_a_file_can_hold_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file is no directory" in run("probe", str(tmp_path / "file"), code=2)[1]
