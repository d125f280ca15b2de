"""`commitlog checkpoint`: what a stopped query would go on with, shown and moved; without Spark, on files as it writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog, DefaultSource
from pyspark_commitlog.cli.app import app
from tests.spark.driver import Checkpoint, Driver
from tests.support.records import append, batch_of
from tests.support.restores import Copy

#: 2020-01-01T00:00:00Z, in ms.
DAY = 1_577_836_800_000
#: Where a query may be moved to.
WAYS = "--to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by"


class Query:
    """A query of `orders` and its checkpoint, written as Spark does, its checksums too."""

    def __init__(self, root: Path, directory: Path) -> None:
        self._directory = directory
        self.options = {"path": str(root), "subscribe": "orders", "startingOffsets": "earliest"}
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True)

    @property
    def newest(self) -> Path:
        """The newest file of offsets."""
        return max((self._directory / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))

    def run(self, *, over: bool = True) -> list[str]:
        """Read what is there; return the values."""
        found: list[str] = []
        planned = sorted((self._directory / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        known = Checkpoint([path.read_text().splitlines()[-1] for path in planned], len(planned))
        Driver(DefaultSource(self.options), known, lambda _, batches: found.extend(
            value.decode() for batch in batches for value in batch.column("value").to_pylist()
        )).run()  # fmt: skip
        for batch in range(len(planned), len(known.planned)):
            (self._directory / "offsets" / f"{batch}").write_text(f"v1\n{{}}\n-\n{known.planned[batch]}")
            (self._directory / "offsets" / f".{batch}.crc").write_bytes(b"crc")
            if over:
                (self._directory / "commits" / f"{batch}").write_text("v1\n{}")
        return sorted(found)


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """Four records in each of two partitions, a second apart."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("orders", 2, {"retention.ms": -1})
    times = [(DAY + 1000 * (n // 2)) * 1000 for n in range(8)]
    append(log.root.topic("orders"), batch_of([b"%d" % n for n in range(8)], partition=[0, 1] * 4, timestamp=times))
    return log


@pytest.fixture
def query(log: CommitLog, tmp_path: Path) -> Query:
    return Query(tmp_path / "root", tmp_path / "checkpoint")


def run(*arguments: str, code: int = 0) -> tuple[list[str], str]:
    """Run a command in this process; return the lines of its output, and what it said on stderr."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.stderr
    return done.stdout.splitlines(), done.stderr


def told(*args: object) -> list[list[str]]:
    return [line.split() for line in run("checkpoint", *map(str, args))[0]]


def test_it_shows_the_newest_batch(query: Query, tmp_path: Path) -> None:
    query.run()
    lines = told("show", tmp_path / "checkpoint")
    assert lines[0] == ["batch", "0", "is", "over"]
    assert lines[2:] == [["1", "orders", "0", "4"], ["1", "orders", "1", "4"]]
    found = run("checkpoint", "show", str(tmp_path / "checkpoint"), "--json")[0]
    assert json.loads(found[1]) == {
        "batch": 0, "committed": True, "source": 1, "topic": "orders", "partition": 1, "offset": 4,
    }  # fmt: skip


def test_nothing_is_moved_without_execute(query: Query, tmp_path: Path) -> None:
    query.run()
    before = query.newest.read_bytes()
    lines = told("set", tmp_path / "root", tmp_path / "checkpoint", "--to-earliest")
    assert lines[1:3] == [["orders", "0", "4", "0"], ["orders", "1", "4", "0"]]
    assert query.newest.read_bytes() == before
    assert query.run() == []


@pytest.mark.parametrize(
    ("target", "read"),
    [
        (["--to-earliest"], list("01234567")),
        (["--to-latest"], []),
        (["--topic", "orders:1", "--to-offset", "2"], ["5", "7"]),
        (["--shift-by", "-1"], ["6", "7"]),
        (["--to-datetime", "2020-01-01T00:00:02"], list("4567")),
    ],
)
def test_the_query_goes_on_where_it_was_moved_to(
    query: Query, tmp_path: Path, target: list[str], read: list[str]
) -> None:
    query.run()
    before = query.newest.read_bytes()
    run("checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), *target, "--execute")
    (kept,) = (tmp_path / "checkpoint").glob("offsets-before-*")
    assert kept.read_bytes() == before
    assert not (tmp_path / "checkpoint" / "offsets" / ".0.crc").exists(), "of bytes that are no longer there"
    assert query.newest.read_text().splitlines()[:3] == ["v1", "{}", "-"], "other sources' lines"
    assert '"__start"' in before.decode()
    assert '"__start"' not in query.newest.read_text(), "of a first batch that did not end here"
    assert query.run() == read
    assert query.run() == []


def test_a_batch_that_is_not_over_stays_as_it_is(query: Query, tmp_path: Path) -> None:
    """Spark plays it again, and the sink may have it already: with other offsets it would lose or repeat records."""
    query.run(over=False)
    before = query.newest.read_bytes()
    _, done = run(
        "checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), "--to-earliest", "--execute", code=2
    )
    assert "batch 0 is planned and not over" in done
    assert query.newest.read_bytes() == before


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        (["--topic", "returns", "--to-earliest"], "this checkpoint is of orders, not of returns", 2),
        (["--topic", "orders:2", "--to-earliest"], "partition", 2),
        (["--to-offset", "5"], "has offsets 0 to 4 (the high watermark), not 5", 1),
        ([], f"give exactly one of {WAYS}; given: none\n", 2),
        pytest.param(
            ["--to-earliest", "--to-offset", "1"], "; given: --to-earliest, --to-offset\n", 2, id="two targets"
        ),
    ],
)
def test_what_can_t_be_set_is_refused(query: Query, tmp_path: Path, args: list[str], message: str, code: int) -> None:
    query.run()
    _, done = run(
        "checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), *args, "--execute", code=code
    )
    assert message in done


def test_a_topic_that_was_made_again_is_set_as_a_whole(query: Query, log: CommitLog, tmp_path: Path) -> None:
    query.run()
    log.topic("orders").delete()
    log.create_topic("orders", 1, {"retention.ms": -1})
    append(log.root.topic("orders"), batch_of([b"new"]))
    args = ["checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), "--to-earliest", "--execute"]
    assert "was deleted and made again" in run(*args, "--topic", "orders:0", code=2)[1]
    run(*args)
    assert query.run() == ["new"]


def test_a_restored_topic_is_set_as_a_whole_from_what_still_means_something(
    query: Query, log: CommitLog, tmp_path: Path
) -> None:
    """The checkpoint has one mark per topic: with a new one, nobody notices that the other partition's offset is gone."""
    copy = Copy(tmp_path / "root", tmp_path / "aside")
    append(log.root.topic("orders"), batch_of([b"gone"] * 2, partition=[0, 1]))
    query.run()
    copy.copied()
    log = CommitLog(str(tmp_path / "root"))
    append(log.root.topic("orders"), batch_of([b"new 0", b"new 1"] * 2, partition=[0, 1] * 2))
    args = ["checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), "--shift-by", "0", "--execute"]
    assert "partition 1: offset 5 means nothing any more" in run(*args, "--topic", "orders:0", code=2)[1]
    lines, _ = run(*args)
    assert [line.split() for line in lines[1:3]] == [["orders", "0", "5", "4"], ["orders", "1", "5", "4"]]
    assert query.run() == ["new 0", "new 0", "new 1", "new 1"]


def test_of_a_query_that_reads_some_partitions_those_are_set(query: Query, tmp_path: Path) -> None:
    """An offset of another share, in the checkpoint, would be this query's, and its group's."""
    query.options["assign"] = json.dumps({"orders": [1]})
    del query.options["subscribe"]
    query.run()
    args = ["checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), "--to-earliest", "--execute"]
    assert "does not read partition 0 (yet)" in run(*args, "--topic", "orders:0,1", code=2)[1]
    lines, _ = run(*args)
    assert [line.split() for line in lines[1:-1] if line.startswith("orders")] == [["orders", "1", "4", "0"]]
    assert query.run() == ["1", "3", "5", "7"]


@pytest.mark.parametrize(("topics", "moved"), [("orders:0", [0]), ("orders:1", [1]), ("orders:0,1", [0, 1])])
def test_partitions_are_set_in_the_source_that_reads_them(
    query: Query, log: CommitLog, tmp_path: Path, topics: str, moved: list[int]
) -> None:
    other = Query(tmp_path / "root", tmp_path / "c2")
    for each, partition in ((query, 0), (other, 1)):
        each.options["assign"] = json.dumps({"orders": [partition]})
        del each.options["subscribe"]
        each.run()
    query.newest.write_text(f"{query.newest.read_text()}\n{other.newest.read_text().splitlines()[-1]}")
    before = query.newest.read_text().splitlines()[3:]
    args = ["checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint"), "--to-earliest", "--execute"]
    run(*args, "--topic", topics)
    for partition, line in enumerate(query.newest.read_text().splitlines()[3:]):
        if partition in moved:
            assert json.loads(line)["orders"] == {f"{partition}": 0}
        else:
            assert line == before[partition]


def test_of_a_topic_that_is_read_at_two_roots_the_source_at_this_one_is_set(
    query: Query, log: CommitLog, tmp_path: Path
) -> None:
    other = Query(tmp_path / "other", tmp_path / "c")
    there = CommitLog(str(tmp_path / "other"))
    there.create_topic("orders", 2, {"retention.ms": -1})
    append(there.root.topic("orders"), batch_of([b"a", b"b"], partition=[0, 1]))
    query.run(), other.run()
    theirs = other.newest.read_text().splitlines()[-1]
    query.newest.write_text(f"{query.newest.read_text()}\n{theirs}")
    args = ["checkpoint", "set", "--to-earliest", "--execute"]
    run(*args[:2], str(tmp_path / "root"), str(tmp_path / "checkpoint"), *args[2:])
    mine, kept = query.newest.read_text().splitlines()[3:]
    assert json.loads(mine)["orders"] == {"0": 0, "1": 0}
    assert json.loads(kept) == json.loads(theirs)
    strange = CommitLog(str(tmp_path / "strange"))
    strange.create_topic("orders", 2)
    told = run(*args[:2], str(tmp_path / "strange"), str(tmp_path / "checkpoint"), *args[2:], code=2)[1]
    assert "none of them has read the one at" in told


def as_named(query: Query, *names: str) -> None:
    """Rewrite the newest offsets as Spark writes those of named sources."""
    _, metadata, *offsets = query.newest.read_text().splitlines()
    named = [f"{name}:{offset}" for name, offset in zip(names, offsets, strict=True)]
    query.newest.write_text("\n".join(["v2", metadata, *named]))


def test_named_sources_are_shown_by_their_names_and_moved(query: Query, tmp_path: Path) -> None:
    query.run()
    as_named(query, "rates", "all_orders")
    lines = told("show", tmp_path / "checkpoint")
    assert lines[2:] == [["all_orders", "orders", "0", "4"], ["all_orders", "orders", "1", "4"]]
    found = run("checkpoint", "show", str(tmp_path / "checkpoint"), "--json")[0]
    assert json.loads(found[0])["source"] == "all_orders"
    args = ["checkpoint", "set", str(tmp_path / "root"), str(tmp_path / "checkpoint")]
    run(*args, "--topic", "orders:1", "--to-offset", "2", "--execute")
    version, _, rates, moved = query.newest.read_text().splitlines()
    assert (version, rates) == ("v2", "rates:-")
    name, _, offset = moved.partition(":")
    assert (name, json.loads(offset)["orders"]) == ("all_orders", {"0": 4, "1": 2})


def test_a_directory_without_offsets_is_no_checkpoint(tmp_path: Path) -> None:
    assert "no checkpoint with offsets" in run("checkpoint", "show", str(tmp_path / "nowhere"), code=1)[1]
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "3").write_text("v2\n{}\nno name")
    assert "offsets/3 line 3: expected the source's name" in run("checkpoint", "show", str(tmp_path / "c"), code=1)[1]
    (tmp_path / "c" / "offsets" / "3").write_text("v3\n{}\n")
    assert "version 'v3'" in run("checkpoint", "show", str(tmp_path / "c"), code=1)[1]
