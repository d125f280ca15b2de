"""`commitlog probe`: what a place can do, and what it must not be trusted with."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.probe import probe
from tests.support.commands import run


def test_a_local_disk_can_hold_a_log_and_is_left_as_it_was(tmp_path: Path) -> None:
    lines, _ = run("probe", str(tmp_path / "new"))
    assert [line.split()[0] for line in lines] == ["ok"] * 6
    assert not (tmp_path / "new").exists()
    rows = [json.loads(line) for line in run("probe", str(tmp_path), "--json")[0]]
    assert [row["what"] for row in rows] == ["put-if-absent", "puts at once", "lock", "append", "clock", "time"]
    assert list(tmp_path.iterdir()) == []


def test_a_place_without_directories_is_refused() -> None:
    told = run("probe", "/proc", code=1)[1]
    assert told == "error: /proc: no directory can be made there (No such file or directory): name another place\n"


def test_a_root_stays_as_it_is(tmp_path: Path) -> None:
    CommitLog(str(tmp_path)).create_topic("events")
    before = sorted(tmp_path.rglob("*"))
    run("probe", str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_root_on_an_object_store_stays_as_it_is() -> None:
    url = f"memory://{uuid.uuid4()}"
    CommitLog(url).create_topic("events")
    found = {each.what: each for each in probe(open_storage(url))}
    assert CommitLog(url).topics() == ["events"]
    assert open_storage(url).names("probes") == []
    assert {what: (each.held, each.safe) for what, each in found.items()} == {
        "put-if-absent": (True, True), "puts at once": (True, True), "lock": (False, True), "append": (False, True),
        "clock": (True, True), "time": (True, True),
    }  # fmt: skip
    assert re.fullmatch(
        r"a durable put takes [\d.]+ / [\d.]+, a get takes [\d.]+ / [\d.]+, a listing takes [\d.]+ / [\d.]+ ms "
        r"\(p50 / p99\)",
        found["time"].told,
    )


def test_a_bucket_that_keeps_versions_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(f"memory://{uuid.uuid4()}")
    monkeypatch.setattr(storage, "_kind", "s3")
    assert "versions" not in {each.what for each in probe(storage)}
    monkeypatch.setattr("pyspark_commitlog.storage.object.object_store.identity", lambda *_: "version-1")
    found = {each.what: each for each in probe(storage)}
    assert "lifecycle rule expire noncurrent versions" in found["versions"].told
    assert found["versions"].safe


class Careless(LocalStorage):
    """Puts that look first and write then, as a filesystem without put-if-absent does; locks that hold nobody off."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.write_once(path, data)

    @contextmanager
    def try_lock(self, path: str) -> Iterator[bool]:
        yield True


def test_what_a_careless_storage_lacks_is_unsafe(tmp_path: Path) -> None:
    found = {each.what: each for each in probe(Careless(tmp_path))}
    for what, told in (("put-if-absent", "second put"), ("puts at once", "16 of 16 puts"), ("lock", "is not")):
        assert not found[what].safe
        assert told in found[what].told


def test_a_mount_without_append_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.storage.local.local.mount_type", lambda path: "nfs4")
    found = {each.what: each for each in probe(LocalStorage(tmp_path))}
    assert (found["append"].held, found["append"].safe) == (False, True)
    assert all(each.safe for each in found.values())


def test_a_file_can_hold_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file is no directory" in run("probe", str(tmp_path / "file"), code=2)[1]
