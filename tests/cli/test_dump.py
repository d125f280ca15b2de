"""`commitlog dump`: every kind of file, sound and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.support.commands import run
from tests.support.records import append, batch_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A topic with sealed segments and an active one, and a small commit that is not settled."""
    log = CommitLog(str(tmp_path / "root"))
    config = {"retention.ms": -1, "segment.bytes": 2048, "index.interval.bytes": 100, "compression.type": "none"}
    log.create_topic("t", config=config)
    for first in range(0, 40, 10):
        values = [b"%d" % number + b"x" * 100 for number in range(first, first + 10)]
        append(log.root.topic("t"), batch_of(values, timestamp=[1000 * n for n in range(first, first + 10)]))
        log.topic("t").maintain()
    append(log.root.topic("t"), batch_of([b"late"]))
    return tmp_path / "root"


def dumped(path: Path, code: int = 0) -> list[dict[str, object]]:
    """Return the objects that dump prints with `--json`."""
    return [json.loads(line) for line in run("dump", str(path), "--json", code=code)[0]]


def files(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(f"topics/t/{pattern}"))


def test_frames_follow_each_other_and_tell_whose_they_are(root: Path) -> None:
    rows = [row for path in files(root, "*/0/*.log") for row in dumped(path)]
    assert [row["baseOffset"] for row in rows] == [0, 10, 20, 30]
    assert [row["lastOffset"] for row in rows] == [9, 19, 29, 39]
    assert {(row["topicId"], row["codec"], row["kind"]) for row in rows} == {
        (files(root, "*/staged")[0].parent.name, "none", "arrow-ipc")
    }


def test_without_json_a_line_tells_names_and_values(root: Path) -> None:
    """As Kafka's `DumpLogSegments`; what is nested in an entry stays JSON."""
    lines, _ = run("dump", str(files(root, "*/0/*.log")[0]))
    assert lines[0].startswith("position: 0  baseOffset: 0  lastOffset: 9  bytes: ")
    assert "  timestampType: CreateTime  crc: " in lines[0]
    assert run("dump", str(files(root, "*/0/*.timeindex")[0]))[0][-1] == "slot: 0  timestamp: 9  offset: 9"
    assert '  state: {"deleted": false, ' in run("dump", str(files(root, "journal/*.json")[-1]))[0][0]


def test_indexes_are_shown_up_to_their_preallocated_zeros(root: Path) -> None:
    path = files(root, "*/0/*.timeindex")[0]
    assert dumped(path)[-1] == {"slot": 0, "timestamp": 9, "offset": 9}
    path.write_bytes(path.read_bytes() + b"\0\0\0\0\0\1")  # torn behind it
    assert dumped(path) == [{"slot": 0, "timestamp": 9, "offset": 9}]
    active = files(root, "*/0/*.index")[-1]
    assert active.stat().st_size > 1000
    assert len(dumped(active)) < 10


def test_an_entry_is_shown_with_the_bytes_behind_it(root: Path) -> None:
    entry, inline = dumped(files(root, "journal/*.json")[-1])
    assert entry["kind"] == "append"
    assert entry["inline"] == {**entry["inline"], "length": inline["inlineBytes"]}  # type: ignore[dict-item]


def test_an_entry_of_the_roots_defaults_is_shown(root: Path) -> None:
    CommitLog(str(root)).config.alter({"log.retention.hours": 48})
    (entry,) = dumped(next(root.glob("config/journal/*.json")))
    assert (entry["journal"], entry["kind"], entry["config"]) == ("config", "alter", {"log.retention.hours": "48"})


def test_a_manifest_is_shown_segment_by_segment(root: Path) -> None:
    rows = dumped(files(root, "*/manifests/*.json")[-1])
    assert rows[0]["segment"][:2] == [0, 10]  # type: ignore[index]


def test_damage_is_told_and_what_lies_behind_is_shown(root: Path) -> None:
    path = files(root, "*/0/*.log")[0]
    whole = b"".join(p.read_bytes() for p in files(root, "*/0/*.log"))
    data = bytearray(whole)
    data[300] ^= 1
    path.write_bytes(bytes(data))
    rows = dumped(path, code=1)
    assert ["fault" in row for row in rows] == [True, False, False, False]
    path.write_bytes(whole[:-5])
    assert dumped(path, code=1)[-1]["fault"]


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("nothing.log", 1, "there is no file"),
        ("nothing.txt", 1, "there is no file"),
        ("0.txt", 2, "no file of a commit log"),
    ],
)
def test_what_is_no_file_of_a_root_is_one_line(root: Path, name: str, code: int, told: str) -> None:
    (root / "0.txt").touch()
    lines, errors = run("dump", str(root / name), code=code)
    assert lines == []
    assert told in errors
    assert "Traceback" not in errors


def test_zeros_behind_the_frames_of_a_log_are_no_fault(root: Path) -> None:
    """An active segment with `preallocate`; zeros that something follows are a fault."""
    path = files(root, "*/0/*.log")[-1]
    whole = path.read_bytes()
    for zeros in (1, 100, 20 * 2**20):
        path.write_bytes(whole + bytes(zeros))
        assert dumped(path)[-1] == {"position": len(whole), "zeroBytes": zeros}
    path.write_bytes(whole + bytes(20 * 2**20) + b"x")
    assert dumped(path, code=1)[-1]["bytes"] == 20 * 2**20 + 1


@pytest.mark.parametrize("path", ["", "somewhere/"])
def test_a_path_that_names_no_file_is_refused_by_its_name(path: str) -> None:
    assert f"error: {path!r} names no file" in run("dump", path, code=2)[1]
