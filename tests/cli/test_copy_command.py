"""`commitlog copy`, over a bucket and back."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.copying import copy as copying
from pyspark_commitlog.copying.comparison import Compared
from pyspark_commitlog.copying.copy import Copied
from pyspark_commitlog.copying.group_offsets import CopiedGroup, KeptOffset
from pyspark_commitlog.copying.topic_copy import CopiedTopic
from pyspark_commitlog.errors import ConfigError
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.object_stores.servers import SECRET_KEY, Bucket
from tests.support.buckets import run_on
from tests.support.commands import run
from tests.support.records import append, batch_of


def test_copy_tells_what_it_did_and_compares(tmp_path: Path) -> None:
    from pyspark_commitlog.cli.copying import copied_lines

    source, there = str(tmp_path / "source"), str(tmp_path / "there")
    log = CommitLog(source)
    log.create_topic("t", 2)
    log.create_topic("u")
    append(log.root.topic("t"), batch_of([b"a", b"b"]))
    log.groups.commit("g", {"t": {0: 1}})
    lines, errors = run("copy", source, there, "t", "--groups", "--verify")
    assert lines == [
        "t: 2 offsets copied, up to entry 2", "group g: 1 offset copied", "t: 2 records the same in both",
    ]  # fmt: skip
    assert errors == ""
    assert run("topics", "list", there)[0] == ["t"]
    copied, compared = (json.loads(line) for line in run("copy", source, there, "t", "--verify", "--json")[0])
    assert copied == {"topic": "t", "copied": 0, "sequence": 2, "log_end": [2, 0]}
    assert compared == {"topic": "t", "records": 2, "faults": [], "superseded": 0}
    append(CommitLog(there).root.topic("t"), batch_of([b"own"]))
    lines, errors = run("copy", source, there, "--groups", "--verify", code=1)
    assert lines == ["u: 0 offsets copied, up to entry 1", "u: 0 records the same in both"], "no topic stops the others"
    assert "has been written to since it was copied" in errors
    assert run("topics", "list", there)[0] == ["t", "u"]
    kept = Copied((CopiedTopic("t", 1, 2, (1,)),), (CopiedGroup("g", 0, (KeptOffset("t", 0, 3, 1),)),))
    assert copied_lines(kept)[-1] == "group g: t partition 0 stays at 3, at the source it is at 1"


def test_records_that_differ_end_it_with_an_error(tmp_path: Path) -> None:
    source, there = str(tmp_path / "source"), str(tmp_path / "there")
    log = CommitLog(source)
    log.create_topic("t")
    append(log.root.topic("t"), batch_of([b"a", b"b"]))
    run("copy", source, there)
    log.topic("t").void({0: (0, 2)}, force=True)
    lines, errors = run("copy", source, there, "--verify", code=1)
    assert lines == ["t: 0 offsets copied, up to entry 3", "t: 0 records the same in both"]
    found = [line for line in errors.splitlines() if "the source has no record" in line]
    assert found == [f"t: partition 0 offset {offset}: the source has no record" for offset in (0, 1)]
    assert "voided by an operator" in errors


def test_each_failure_of_several_topics_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is that of the worst."""
    failures: dict[str, Exception] = {
        "t": pa.ArrowInvalid("offset overflow"), "u": ConfigError("topic 'u': no such config"),
    }  # fmt: skip

    def fails(source: TopicLog, *_: object) -> CopiedTopic:
        if source.name in failures:
            raise failures[source.name]
        return CopiedTopic(source.name, 0, 1, (0,))

    log = CommitLog(str(tmp_path / "source"))
    for name in ("t", "u", "v"):
        log.create_topic(name)
    monkeypatch.setattr(copying, "copy_topic", fails)
    done = CliRunner().invoke(app, ["copy", str(tmp_path / "source"), str(tmp_path / "there")])
    assert done.stderr == "error: ArrowInvalid: offset overflow\nerror: topic 'u': no such config\n"
    assert done.exit_code == 2


def test_records_of_one_side_alone_are_counted_where_the_topic_is_compacted() -> None:
    from pyspark_commitlog.cli.copying import compared_line

    assert compared_line(Compared("t", 1, ())) == "t: 1 record the same in both"
    assert compared_line(Compared("t", 2, (), 1)) == "t: 2 records the same in both, 1 record at one side alone"


@pytest.mark.slow
def test_a_topic_goes_to_a_bucket_and_back(moto_bucket: Bucket, tmp_path: Path) -> None:
    """Each verb that changes a topic has its way with the bucket's once it is switched; what was copied back is equal."""
    source, url, back = str(tmp_path / "source"), f"{moto_bucket.url}/{tmp_path.name}/root", str(tmp_path / "back")
    (tmp_path / "secret").write_text(SECRET_KEY)

    command = partial(run_on, moto_bucket, tmp_path / "secret")

    log = CommitLog(source)
    log.create_topic("t", 3)
    log.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    headers = [[("h", b"1"), ("h", b"")], None, []]
    append(
        log.root.topic("t"), batch_of([b"a", None, b""], key=[b"k", None, b""], headers=headers, partition=[0, 1, 1])
    )
    append(log.root.topic("compacted"), batch_of([b"1", b"2"], key=[b"k", b"k"]))
    log.groups.commit("g", {"t": {0: 1}})
    command("copy", source, url, "--groups", "--verify")
    append(log.root.topic("t"), batch_of([b"later"]))
    assert command("copy", source, url, "--verify")[1] == "t: 1 offset copied, up to entry 3"
    command("copy", url, back, "--groups", "--verify")
    copied = CommitLog(back)
    assert copied.topic("t").to_arrow().equals(log.topic("t").to_arrow())
    assert copied.topic("compacted").to_arrow().equals(log.topic("compacted").to_arrow())
    assert copied.groups.describe("g").partitions[0].offset == 1
    assert copied.topic("t").verify().faults == ()

    command("produce", url, "t", given=b"own\n")
    assert command("copy", source, url, "t", code=1) == []
    command("topics", "alter", url, "t", "--config", "segment.ms=5", "-p", "4")
    assert any("t" in line for line in command("topics", "describe", url, "t"))
    command("delete-records", url, "t", "--offset", "0:1")
    command("groups", "reset", url, "g", "--topic", "t", "--to-earliest", "--execute")
    assert command("groups", "describe", url, "g")
    command("maintain", url, "--once")
    command("groups", "delete", url, "g")
    assert any("no fault" in line for line in command("verify", url, "t"))
