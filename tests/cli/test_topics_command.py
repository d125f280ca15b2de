"""`commitlog topics`, `offsets` and `delete-records`, as processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.commit_log import CommitLog as Log
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.cli.offsets import parse_time
from pyspark_commitlog.errors import CorruptionError, UsageError
from tests.support.commands import run
from tests.support.records import append, batch_of


def test_a_topic_from_its_making_to_its_end(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    assert "there is no commit log at" in run("topics", "list", root, code=1)[1]
    run(
        "topics",
        "create",
        root,
        "events",
        "--partitions",
        "3",
        "--config",
        "retention.ms=-1",
        "--config",
        "segment.ms=5",
    )
    assert "exists already" in run("topics", "create", root, "events", code=1)[1]
    run("topics", "create", root, "events", "--if-not-exists")
    assert run("topics", "list", root)[0] == ["events"]
    assert run("topics", "list", root, "--json")[0] == ['{"topic": "events"}']
    run(
        "topics",
        "alter",
        root,
        "events",
        "--partitions",
        "4",
        "--config",
        "segment.ms=7",
        "--delete-config",
        "retention.ms",
    )
    config = log.topic("events").describe().config
    assert (config["segment.ms"], config["retention.ms"]) == ("7", "604800000")
    lines, _ = run("topics", "describe", root)
    assert lines[0].startswith(
        f"Topic: events  TopicId: {log.topic('events').describe().topic_id}  PartitionCount: 4  Configs: "
    )
    assert lines[0].endswith("Configs: segment.ms=7"), "what is set; not some thirty defaults"
    assert "retention.ms=604800000" in run("topics", "describe", root, "--all-configs")[0][0]
    assert str(log.topic("events").describe()).splitlines() == lines
    assert lines[1].split() == [
        "PARTITION",
        "LOG-START-OFFSET",
        "HIGH-WATERMARK",
        "LOG-END-OFFSET",
        "SEGMENTS",
        "BYTES",
        "UNSETTLED",
    ]
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert len(json.loads(run("topics", "describe", root, "events", "--json")[0][0])["partitions"]) == 4
    assert run("topics", "delete", root, "events")[0] == ["deleted topic events"]
    assert run("topics", "list", root)[0] == []
    assert "unknown topic" in run("topics", "delete", root, "events", code=1)[1]
    assert run("topics", "delete", root, "events", "--if-exists")[0] == ["topic events is not there"]


def test_a_misspelled_topic_is_answered_with_the_similar_one(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    for name in ("flights", "flight"):
        run("topics", "create", root, name)
    run("topics", "delete", root, "flight")
    similar = f"unknown topic 'filghts' in {root} (did you mean 'flights'?): "
    for command in (["topics", "describe"], ["offsets"], ["verify"]):
        told = run(*command, root, "filghts", code=1)[1]
        assert told == f"error: {similar}create it with commitlog topics create {root} filghts\n"
    deleted = f"unknown topic 'flight' in {root} (did you mean 'flights'?): "
    assert deleted in run("topics", "describe", root, "flight", code=1)[1]
    # the deleted one is no answer, and who deletes wants to create none
    told = run("topics", "delete", root, "flihgt", code=1)[1]
    assert (
        told
        == f"error: unknown topic 'flihgt' in {root} (did you mean 'flights'?): all that there are: commitlog topics list {root}\n"
    )
    assert "did you mean" not in run("topics", "delete", root, "orders", code=1)[1]


def test_what_was_made_altered_or_deleted_is_told_as_json(tmp_path: Path) -> None:
    root = str(tmp_path / "root")

    def told(verb: str, *arguments: str) -> dict[str, object]:
        (line,) = run("topics", verb, root, "events", *arguments, "--json")[0]
        found: dict[str, object] = json.loads(line)
        return found

    made = told("create", "--partitions", "2")
    assert made == told("create", "--if-not-exists") == told("describe")
    altered = told("alter", "--partitions", "3", "--config", "segment.ms=7")
    assert len(altered["partitions"]) == 3  # type: ignore[arg-type]
    assert altered == told("describe")
    assert told("delete") == {"topic": "events", "deleted": True}
    assert told("delete", "--if-exists") == {"topic": "events", "deleted": False}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "ROOT", "bad/name"], "topic name 'bad/name' is not allowed"),
        (["create", "ROOT", "t", "--config", "segment.ms"], "--config segment.ms: use name=value"),
        (["create", "ROOT", "t", "--config", "segment.size=1"], "segment.size"),
        (["create", "ROOT", "t", "--partitions", "0"], "partitions=0 is not allowed"),
        (["alter", "ROOT", "events"], "nothing to change"),
    ],
)
def test_a_wrong_command_line_changes_nothing(tmp_path: Path, arguments: list[str], told: str) -> None:
    root = str(tmp_path / "root")
    CommitLog(root).create_topic("events")
    assert told in run("topics", *[root if each == "ROOT" else each for each in arguments], code=2)[1]
    assert CommitLog(root).topics() == ["events"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--partitions", "2"], "topic 'events' has 2 partitions; 2 would not add any"),
        (["--partitions", "10001"], "partitions=10001 is not allowed: it takes 1 to 10000"),
        (
            ["--replication-factor", "2"],
            "replication.factor=2 is not allowed: this log has 1 root for data; `commitlog replicas add` adds more",
        ),
        (["--replication-factor", "0", "--partitions", "3"], "replication.factor=0 is not allowed: 1 or more"),
    ],
    ids=["as many as there are", "too many", "too few roots", "none"],
)
def test_of_several_changes_none_is_made_where_one_can_not_be(tmp_path: Path, given: list[str], told: str) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("events", 2)
    before = log.topic("events").describe()
    changed = ["--config", "retention.ms=1000"]
    assert run("topics", "alter", root, "events", *changed, *given, code=2) == ([], f"error: {told}\n")
    assert log.topic("events").describe() == before


def test_what_was_changed_is_told_where_a_later_change_fails_all_the_same(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    CommitLog(root).create_topic("events", 2)
    changed = ["--config", "retention.ms=1000", "--partitions", "3", "--replication-factor", "1"]
    first, last = run("topics", "alter", root, "events", *changed, code=2)[1].splitlines()
    assert first == "events: its configs are changed, it has 3 partitions; what comes next failed"
    assert "stands alone" in last
    (line,) = run("topics", "alter", root, "events", "--replication-factor", "1", code=2)[1].splitlines()
    assert line == last


def test_a_damaged_topic_hides_no_other(tmp_path: Path) -> None:
    """What is asked of all topics says of each what is wrong with it, and ends as `verify` does."""
    root = str(tmp_path / "root")
    log = CommitLog(root)
    for name in ("a", "b", "c"):
        log.create_topic(name)
    newest = max(Path(root).glob("topics/b/journal/*.json"))
    newest.write_bytes(newest.read_bytes().replace(b"create", b"creatE"))
    lines, told = run("topics", "describe", root, "--json", code=1)
    assert [json.loads(line)["name"] for line in lines] == ["a", "c"]
    assert told.startswith("error: ")
    assert newest.name in told
    lines, told = run("offsets", root, "c", "b", "none", "a", code=1)
    assert lines == ["c:0:0", "a:0:0"]
    first, second = told.splitlines()
    assert newest.name in first
    assert second.startswith("error: unknown topic 'none'")


def test_partitions_that_cannot_be_settled_are_something_wrong(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("events", config={"inline.max.bytes": 0})
    append(log.root.topic("events"), batch_of([b"v"]))
    (chunk,) = Path(root).glob("topics/events/*/staged/*.chunk")
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptionError):
        log.topic("events").maintain()
    (line,) = run("topics", "describe", root, "--json", code=1)[0]
    assert list(json.loads(line)["damaged"]) == ["0"]


def test_a_topic_that_is_deleted_once_it_is_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path / "root")
    CommitLog(root).create_topic("events")
    monkeypatch.setattr(Log, "topics", lambda _: ["deleted", "events"])
    for verb in (["topics", "describe"], ["offsets"]):
        done = CliRunner().invoke(app, [*verb, root])
        assert (done.exit_code, done.stderr) == (0, "")
        assert "events" in done.stdout


def test_offsets_at_a_time_and_records_deleted_below_one(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    log = CommitLog(root)
    log.create_topic("events", 2, config={"retention.ms": -1})
    times = [1_767_225_600_000_000 + 1_000_000 * n for n in range(4)]  # from 2026-01-01 on
    append(log.root.topic("events"), batch_of([b"v"] * 4, partition=[0, 0, 0, 1], timestamp=times))
    for late in ("max-timestamp", "-3"):
        assert run("offsets", root, "events", "--time", late)[0] == ["events:0:2", "events:1:0"]
    assert run("offsets", root)[0] == ["events:0:3", "events:1:1"]
    assert run("offsets", root, "events", "--time", "earliest")[0] == ["events:0:0", "events:1:0"]
    assert run("offsets", root, "events", "--time", "2026-01-01T00:00:02")[0] == ["events:0:2", "events:1:0"]
    assert run("offsets", root, "events", "--time", "1767225603001")[0] == ["events:0:", "events:1:"]
    (row, _), _ = run("offsets", root, "events", "--json")
    assert json.loads(row) == {"topic": "events", "partition": 0, "offset": 3}
    assert run("delete-records", root, "events", "--offset", "0:2", "--offset", "1:-1")[0] == [
        "events:0 low_watermark: 2",
        "events:1 low_watermark: 1",
    ]
    assert run("offsets", root, "--time", "-2")[0] == ["events:0:2", "events:1:1"]
    assert run("offsets", root, "--time", "-3")[0] == ["events:0:2", "events:1:"]
    assert json.loads(run("offsets", root, "--time", "-3", "--json")[0][1])["offset"] is None
    assert "use partition:offset" in run("delete-records", root, "events", "--offset", "0", code=2)[1]
    assert "high watermark" in run("delete-records", root, "events", "--offset", "0:9", code=1)[1]


def test_times_as_people_write_them() -> None:
    assert parse_time("-1") == parse_time("latest") == "latest"
    assert parse_time("-2") == parse_time("earliest") == "earliest"
    assert parse_time("-3") == parse_time("max-timestamp") == "max-timestamp"
    assert parse_time("0") == 0
    assert parse_time("2026-01-01") == parse_time("2026-01-01T02:00:00+02:00") == 1_767_225_600_000
    with pytest.raises(UsageError, match=r"--time soon: use milliseconds since 1970, .*; or latest, earliest"):
        parse_time("soon")
    with pytest.raises(UsageError, match="--time -4: use milliseconds"):
        parse_time("-4")
