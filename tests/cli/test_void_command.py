"""`commitlog void`, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.commit_log import CommitLog as Log
from tests.support.commands import run
from tests.support.records import append, batch_of, read_partition


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A topic that has lost the second of three chunks."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("orders", config={"retention.ms": -1, "inline.max.bytes": 0})
    for values in ([b"a"], [b"b", b"c"], [b"d"]):
        append(log.root.topic("orders"), batch_of(values))
    sorted((tmp_path / "root").glob("topics/orders/*/staged/*.chunk"))[1].unlink()
    return log


@pytest.fixture
def root(log: Log, tmp_path: Path) -> str:
    return str(tmp_path / "root")


def test_it_tells_first_and_does_it_when_told_to(root: str, log: Log) -> None:
    lines, _ = run("void", root, "orders")
    assert lines[0].startswith("orders: partition 0: would give up offsets 1 to 2 (2 records): topics/orders/")
    assert lines[0].endswith(".chunk is missing")
    assert lines[1] == "orders: nothing was changed; --execute gives them up for ever"
    assert run("void", root, "orders")[0] == lines
    assert run("maintain", root, "--once", code=1)[1].count("is missing") == 1
    lines, _ = run("void", root, "orders", "--execute")
    assert lines[0].startswith("orders: partition 0: gave up offsets 1 to 2 (2 records): ")
    assert run("void", root, "orders", "--execute")[0] == ["orders: nothing to give up"]
    assert [record.value for record in read_partition(log.root.topic("orders"), 0)] == [b"a", b"d"]
    assert run("maintain", root, "--once")[0][0].startswith("orders: settled ")
    assert any("no fault" in line for line in run("verify", root)[0])


def test_a_range_as_json(root: str, log: Log) -> None:
    (line,) = run("void", root, "orders", "--partition", "0", "--from", "0", "--to", "3", "--json", "--execute")[0]
    told = json.loads(line)
    assert (told["partition"], told["start"], told["end"], told["records"]) == (0, 1, 3, 2)


def test_what_is_wrong_is_one_line_and_changes_nothing(root: str, log: Log) -> None:
    for arguments, code, told in (
        (["--partition", "0"], 2, "--partition, --from and --to go together"),
        (["--partition", "0", "--from", "0", "--to", "1"], 2, "can be read; nothing was voided"),
        (["--force"], 2, "say which"),
    ):
        lines, errors = run("void", root, "orders", "--execute", *arguments, code=code)
        assert lines == []
        assert told in errors.replace("\n", " ")
        assert "Traceback" not in errors
    assert log.root.topic("orders").newest()[1].voids == ()
