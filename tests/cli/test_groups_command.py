"""`commitlog groups`, as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.commit_log import CommitLog as Log
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.cli.common.offsets_file import exported_lines, parse_offsets
from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.descriptions import OffsetReset
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.storage import process_name
from tests.support.commands import run
from tests.support.records import append, batch_of

#: 2020-01-01T00:00:00Z, in ms.
DAY = 1_577_836_800_000
#: Where a reset may go.
WAYS = "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, --shift-by, --from-file"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Four records in each of two partitions, a second apart from 2020 on; one partition is at 3."""
    log = CommitLog(str(tmp_path / "root"))
    log.create_topic("orders", 2, config={"retention.ms": -1})
    times = [(DAY + 1000 * (n // 2)) * 1000 for n in range(8)]
    append(log.root.topic("orders"), batch_of([b"x"] * 8, partition=[0, 1] * 4, timestamp=times))
    log.groups.commit("reports", {"orders": {0: 3}})
    return log


@pytest.fixture
def root(log: Log, tmp_path: Path) -> str:
    return str(tmp_path / "root")


def offsets(log: Log) -> list[int | None]:
    return [row.offset for row in log.groups.describe("reports").partitions]


def test_all_groups_are_described_moved_and_deleted_at_once(root: str, log: Log) -> None:
    log.groups.commit("b", {"orders": {1: 4}})
    assert run("groups", "describe", root, "--all-groups")[0] == run("groups", "describe", root)[0]
    run("groups", "reset", root, "--all-groups", "--all-topics", "--to-earliest", "--execute")
    assert {row.offset for name in ("b", "reports") for row in log.groups.describe(name).partitions} == {0}
    for given in (("reset", root, "--all-topics"), ("delete", root), ("delete", root, "b", "--all-groups")):
        assert "give a group or --all-groups" in run("groups", *given, code=2)[1]
    assert "give groups or --all-groups" in run("groups", "describe", root, "b", "--all-groups", code=2)[1]
    assert run("groups", "delete", root, "--all-groups")[0] == ["b: deleted the group", "reports: deleted the group"]
    assert list(log.groups.list()) == []


def test_groups_are_listed_and_described_as_kafka_does(root: str, log: Log) -> None:
    log.groups.commit("b", {"orders": {1: 4}})
    assert run("groups", "list", root)[0] == ["b", "reports"]
    assert run("groups", "list", root, "--json")[0] == ['{"group": "b"}', '{"group": "reports"}']
    lines, _ = run("groups", "describe", root)
    assert [line.split() for line in lines] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["b", "orders", "0", "-", "4", "4", "-", "-", "-"],
        ["b", "orders", "1", "4", "4", "0", "-", "-", "-"],
        ["reports", "orders", "0", "3", "4", "1", "-", "-", "-"],
        ["reports", "orders", "1", "-", "4", "4", "-", "-", "-"],
    ]
    assert lines[3].index("orders") == lines[0].index("TOPIC")
    (line,) = run("groups", "describe", root, "reports", "--json")[0]
    told = json.loads(line)
    assert (told["group"], told["generation"], [row["lag"] for row in told["partitions"]]) == ("reports", 0, [1, 4])
    assert "no group 'none'" in run("groups", "describe", root, "none", code=1)[1]
    assert "there is no commit log" in run("groups", "list", f"{root}-none", code=1)[1]


def test_a_group_in_which_something_is_wrong_hides_no_other(root: str, log: Log) -> None:
    log.groups.commit("b", {"orders": {1: 4}})
    (entry,) = (Path(root) / "groups/b/journal").iterdir()
    entry.write_bytes(entry.read_bytes().replace(b'"offsets"', b'"offsetS"'))
    lines, told = run("groups", "describe", root, code=1)
    assert {line.split()[0] for line in lines[1:]} == {"reports"}
    assert told.startswith("FAULT ")
    assert entry.name in told
    lines, told = run("groups", "describe", root, "none", "reports", code=1)
    assert {line.split()[0] for line in lines[1:]} == {"reports"}
    assert told.startswith("error: there is no group 'none'")
    assert "(did you mean 'reports'?)" in run("groups", "delete", root, "report", code=1)[1]


def test_a_group_that_is_deleted_once_it_is_listed_is_left_out(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Groups, "list", lambda _: ("deleted", "reports"))
    done = CliRunner().invoke(app, ["groups", "describe", root])
    assert (done.exit_code, done.stderr) == (0, "")
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == {"reports"}


def test_members_and_states_are_told_as_kafka_does(root: str, log: Log) -> None:
    member = GroupMember(
        log.groups.open("m"),
        ["orders"],
        client_id="c",
        group_instance_id="i",
        config=MemberConfig(initial_rebalance_delay_ms=0),
    )
    assert member.poll() is not None
    consumer, host = f"c-{member.member_id}", process_name()
    lines, _ = run("groups", "describe", root, "m")
    assert lines[1].split() == ["m", "orders", "0", "-", "4", "4", consumer, host, "c"]
    lines, _ = run("groups", "describe", root, "--members")
    assert [line.split() for line in lines] == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"],
        ["m", consumer, "i", host, "c", "2", "orders(0,1)"],
    ]
    lines, _ = run("groups", "describe", root, "--state")
    assert [line.split() for line in lines] == [
        ["GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["m", "-", "range", "Stable", "1"],
        ["reports", "-", "-", "Empty", "0"],
    ]
    (line,) = run("groups", "describe", root, "m", "--json")[0]
    assert json.loads(line)["members"][0]["consumer_id"] == consumer
    assert "one of --members and --state" in run("groups", "describe", root, "--members", "--state", code=2)[1]


def test_a_reset_tells_first_and_does_it_when_told_to(root: str, log: Log) -> None:
    given = ("groups", "reset", root, "reports", "--all-topics", "--to-earliest")
    lines, _ = run(*given)
    assert [line.split() for line in lines[:3]] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        ["reports", "orders", "0", "3", "0"],
        ["reports", "orders", "1", "-", "0"],
    ]
    assert lines[3] == "reports: nothing was changed; --execute moves it"
    assert offsets(log) == [3, None]
    assert run(*given, "--execute")[0] == lines[:3]
    assert offsets(log) == [0, 0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--topic", "orders:0", "--shift-by", "-2"], [1]),
        (["--topic", "orders", "--to-latest"], [4, 4]),
        (["--topic", "orders:1,0", "--to-offset", "2"], [2, 2]),
        (["--all-topics", "--to-current"], [3, 4]),
        (["--all-topics", "--to-datetime", "2020-01-01T00:00:02.000"], [2, 2]),
        (["--all-topics", "--to-datetime", "2020-01-01T01:00:02+01:00"], [2, 2]),
        (["--all-topics", "--by-duration", "PT0S"], [4, 4]),
    ],
)
def test_where_resets_go(root: str, log: Log, given: list[str], expected: list[int]) -> None:
    lines, _ = run("groups", "reset", root, "reports", *given, "--json", "--dry-run")
    assert [json.loads(line)["after"] for line in lines] == expected
    assert offsets(log) == [3, None]


def test_what_is_exported_can_be_put_back(root: str, log: Log, tmp_path: Path) -> None:
    exported, _ = run("groups", "reset", root, "reports", "--all-topics", "--to-current", "--export")
    assert exported == ["orders,0,3", "orders,1,4"]
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported), encoding="utf-8-sig")  # as spreadsheets write it
    log.groups.reset("reports", to="earliest", dry_run=False)
    run("groups", "reset", root, "reports", "--from-file", str(file), "--execute")
    assert offsets(log) == [3, 4]
    file.write_text("orders,0\n")
    told = run("groups", "reset", root, "reports", "--from-file", str(file), code=2)[1]
    assert "line 1: 'orders,0' is not topic,partition,offset" in told
    file.write_bytes(b"\xff")
    told = run("groups", "reset", root, "reports", "--from-file", str(file), code=2)[1]
    assert told == f"error: {file} is no text of lines topic,partition,offset\n"


def test_what_is_exported_of_all_groups_can_be_put_back(root: str, log: Log, tmp_path: Path) -> None:
    """Each group has its own offsets again; one that was not exported stays where it is."""
    log.groups.commit('a, "b"', {"orders": {0: 1, 1: 2}})
    every = ("groups", "reset", root, "--all-groups")
    exported, _ = run(*every, "--all-topics", "--to-current", "--export")
    assert exported == [
        '"a, ""b""",orders,0,1', '"a, ""b""",orders,1,2', "reports,orders,0,3", "reports,orders,1,4",
    ]  # fmt: skip
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported))
    log.groups.commit("later", {"orders": {0: 4}})
    run(*every, "--all-topics", "--to-earliest", "--execute")
    run(*every, "--from-file", str(file), "--execute")
    assert offsets(log) == [3, 4]
    assert [row.offset for row in log.groups.describe('a, "b"').partitions] == [1, 2]
    assert [row.offset for row in log.groups.describe("later").partitions] == [0, 0]
    file.write_text("orders,0,3\n")
    told = run(*every, "--from-file", str(file), code=2)[1]
    assert told == f"error: {file} line 1: 'orders,0,3' is not group,topic,partition,offset\n"


@pytest.mark.parametrize(
    ("text", "grouped", "told"),
    [
        ("t,0,1\nt,1,1\nt,0,2\n", False, "f line 3: topic t partition 0 is there twice"),
        ("g,t,0,1\nh,t,0,1\ng,t,0,1\n", True, "f line 3: group g topic t partition 0 is there twice"),
        ("g,t,0,1\n", False, "f line 1: 'g,t,0,1' is not topic,partition,offset"),
        ("t,0,1\n\n", False, "f line 2: '' is not topic,partition,offset"),
        ("t,0,x\n", False, "f line 1: 't,0,x' is not topic,partition,offset"),
        ('"' + "x" * 200_000, False, "f is no CSV: field larger than field limit (131072)"),
    ],
    ids=["twice", "twice of a group", "of groups", "nothing", "no number", "no CSV"],
)
def test_a_file_that_says_something_else_is_refused(text: str, grouped: bool, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_offsets(text, "f", None if grouped else "g")
    assert str(refused.value) == told


def test_what_is_read_of_a_file_is_what_was_exported() -> None:
    """Kafka's tool quotes, too; spaces beside what is read are nothing."""
    assert parse_offsets('"t", 0, 1\n t,1,2\n', "f", "g") == {"g": {"t": {0: 1, 1: 2}}}
    assert parse_offsets("", "f", "g") == {"g": {}}
    assert parse_offsets("", "f", None) == {}
    moved = [OffsetReset("t", 0, None, 5), OffsetReset("u", 1, 3, 4)]
    groups = ["a\nb", "ü", ' "', "x,y", " x", "y "]
    text = "".join(f"{line}\n" for group in groups for line in exported_lines(moved, group))
    assert parse_offsets(text, "f", None) == {group: {"t": {0: 5}, "u": {1: 4}} for group in groups}


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (["--to-earliest"], 2, "give one of --topic, --all-topics and --from-file"),
        (["--all-topics"], 2, f"give exactly one of {WAYS}; given: none\n"),
        ([], 2, f"give one of --topic, --all-topics and --from-file; give exactly one of {WAYS}; given: none\n"),
        (["--all-topics", "--to-earliest", "--to-latest"], 2, "; given: --to-earliest, --to-latest\n"),
        pytest.param(
            ["--all-topics", "--to-earliest", "--shift-by", "0"],
            2,
            "; given: --to-earliest, --shift-by\n",
            id="a shift besides",
        ),
        (["--from-file", "/none/at/all", "--by-duration", "PT1H"], 2, "; given: --by-duration, --from-file\n"),
        pytest.param(
            ["--all-topics", "--to-datetime", "1969-12-31"], 2, "--to-datetime 1969-12-31: ", id="before 1970"
        ),
        (["--all-topics", "--to-earliest", "--dry-run"], 2, "give one of --execute and --dry-run"),
        (["--all-topics", "--to-datetime", "soon"], 2, "--to-datetime soon: use milliseconds since 1970, a time as"),
        (["--all-topics", "--to-datetime", "20261128"], 2, "for that day give 2026-11-28"),
        (["--topic", "orders:x", "--to-earliest"], 2, "--topic orders:x"),
        (["--from-file", "/none/at/all"], 2, "no file /none/at/all"),
        (["--topic", "orders", "--to-offset", "5"], 1, "offsets 0 to 4"),
        (["--topic", "none", "--to-earliest"], 1, "unknown topic 'none'"),
    ],
)
def test_what_cannot_be_reset_is_refused(root: str, log: Log, given: list[str], code: int, told: str) -> None:
    assert told in run("groups", "reset", root, "reports", *given, "--execute", code=code)[1]
    assert offsets(log) == [3, None]


def test_groups_are_deleted(root: str, log: Log) -> None:
    assert "no offsets of topic 'none'" in run("groups", "delete", root, "reports", "--topic", "none", code=1)[1]
    log.create_topic("u")
    log.groups.commit("reports", {"u": {0: 0}})
    assert run("groups", "delete", root, "reports", "--topic", "u")[0] == ["reports: deleted its offsets of u"]
    assert offsets(log) == [3, None]
    assert run("groups", "delete", root, "reports")[0] == ["reports: deleted the group"]
    assert log.groups.list() == ()


def test_offsets_of_several_topics_are_deleted_together_or_not_at_all(root: str, log: Log) -> None:
    log.create_topic("u")
    log.groups.commit("reports", {"u": {0: 0}})
    given = "groups", "delete", root, "reports", "--topic", "orders", "--topic"
    assert run(*given, "none", code=1)[1] == "error: group 'reports' has no offsets of topic 'none'\n"
    assert offsets(log) == [3, None, 0]
    assert run(*given, "u")[0] == ["reports: deleted its offsets of orders, u"]
    assert log.groups.list() == ()


def test_one_group_s_error_stops_no_other(root: str, log: Log) -> None:
    log.create_topic("u")
    log.groups.commit("a", {"u": {0: 0}})
    log.topic("u").delete()
    lines, told = run("groups", "reset", root, "--all-groups", "--all-topics", "--to-earliest", "--execute", code=2)
    assert told.startswith("group a: error: group 'a' has no offsets of a topic that is there")
    assert lines
    assert offsets(log) == [0, 0]
    lines, told = run("groups", "delete", root, "--all-groups", "--topic", "orders", code=1)
    assert told == "group a: error: group 'a' has no offsets of topic 'orders'\n"
    assert lines == ["reports: deleted its offsets of orders"]


def test_verify_names_a_damaged_entry_of_a_group(root: str, log: Log) -> None:
    path = Path(root) / "groups/reports/journal" / f"{1:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"offsets":[3]', b'"offsets":[4]'))
    lines, told = run("verify", root, code=1)
    assert path.name in told
    assert any("orders: no fault" in line for line in lines)
