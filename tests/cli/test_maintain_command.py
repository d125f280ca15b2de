"""`commitlog maintain` and `verify`, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api import maintenance, topic as topics, verify_root as root_checks
from pyspark_commitlog.api.commit_log import CommitLog as Log
from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.cli import maintain as maintain_module
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.cli.maintain import _pause
from pyspark_commitlog.errors import ConfigError, StorageFullError
from pyspark_commitlog.groups import consumer_groups
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.descriptions import MaintainedGroup
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.model import Progress
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.topic.damage import strays, verify as verifying
from pyspark_commitlog.topic.damage.strays import Strays
from pyspark_commitlog.topic.damage.verify import RootReport, TopicReport
from pyspark_commitlog.topic.maintain import maintain as steps
from pyspark_commitlog.topic.maintain.maintain import Maintained
from pyspark_commitlog.topic.maintain.settle import Settled
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.commands import COMMAND, run
from tests.support.records import append, batch_of


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two topics with records of 1970 that are not settled, kept for ever."""
    log = CommitLog(str(tmp_path / "root"))
    for name in ("orders", "flights"):
        log.create_topic(name, config={"retention.ms": -1, "inline.max.bytes": 0})
        append(log.root.topic(name), batch_of([b"a", b"b"], timestamp=[1000, 2000]))
    return log


@pytest.fixture
def root(log: Log, tmp_path: Path) -> str:
    return str(tmp_path / "root")


def test_one_round_says_what_it_did_and_the_next_that_there_was_nothing(root: str, log: Log) -> None:
    assert run("maintain", root, "--once")[0] == ["flights: settled 2 records", "orders: settled 2 records"]
    assert run("maintain", root, "--once")[0] == []
    assert log.topic("orders").describe().partitions[0].unsettled == 0


def test_a_round_of_all_topics_is_one_of_the_groups_too(root: str, log: Log) -> None:
    log.groups.commit("g", {"orders": {0: 1}})
    log.groups.commit("g", {"flights": {0: 1}})
    run("maintain", root, "--once")
    log.topic("orders").delete()
    assert run("maintain", root, "flights", "--once")[0] == []
    assert run("maintain", root, "--once")[0] == ["group g: forgot the offsets of 1 topics that were deleted"]
    (line,) = [line for line in run("maintain", root, "--once", "--json")[0] if "group" in json.loads(line)]
    assert json.loads(line) == {"group": "g", "forgotten_topics": 0, "collected_entries": 0, "expired_topics": 0}


def test_a_group_that_cannot_be_maintained_fails_the_round_and_not_the_others(root: str, log: Log) -> None:
    for group in ("a", "b"):
        log.groups.commit(group, {"orders": {0: 1}})
    (entry,) = (Path(root) / "groups/a/journal").iterdir()
    entry.write_bytes(b"{}")
    log.topic("orders").delete()
    told, complaint = run("maintain", root, "--once", code=1)
    assert "group b: forgot the offsets of 1 topics that were deleted" in told
    assert "group a: error:" in complaint
    with pytest.raises(ExceptionGroup, match="1 topics or groups could not be maintained"):
        log.maintain()


def test_one_topic_as_json(root: str, log: Log) -> None:
    log.topic("orders").alter({"retention.ms": 1})
    (line,) = run("maintain", root, "orders", "--once", "--json")[0]
    told = json.loads(line)
    assert (told["topic"], told["settled_records"]) == ("orders", 2)
    assert told["retained"] == {"log_start": {"0": [0, 2]}, "segments": 1}
    assert log.topic("flights").describe().partitions[0].unsettled == 2


def test_a_compacted_topic_says_why_nothing_is_compacted(root: str, log: Log) -> None:
    log.create_topic("clicks", partitions=2, config={"cleanup.policy": "compact"})
    told = run("maintain", root, "--once")[0]
    why = (
        "clicks: nothing to compact in 2 partitions: no segment was sealed since the last compaction; the active one is"
    )
    assert [line[: len(why)] for line in told if "compact" in line] == [why]
    (line,) = run("maintain", root, "clicks", "--once", "--json")[0]
    assert list(json.loads(line)["not_compacted"].values()) == [2]


def test_retention_is_told_by_offset(root: str, log: Log) -> None:
    log.topic("orders").alter({"retention.ms": 1})
    lines = run("maintain", root, "--once")[0]
    assert "orders: partition 0: retention deleted offsets 0 to 1" in lines


def test_rebuilt_indexes_are_told(root: str, log: Log) -> None:
    log.maintain()
    (index,) = Path(root).glob("topics/orders/*/0/*.index")
    before = index.read_bytes()
    index.unlink()
    assert run("maintain", root, "--once")[0] == ["orders: rebuilt the indexes of 1 segment"]
    assert index.read_bytes() == before


def test_a_topic_that_fails_is_told_and_the_others_are_maintained(root: str, log: Log) -> None:
    for chunk in Path(root).glob("topics/flights/*/staged/*.chunk"):
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"!")
    lines, errors = run("maintain", root, "--once", code=1)
    assert lines == ["orders: settled 2 records"]
    assert errors.startswith("flights: error: ")
    with pytest.raises(ExceptionGroup, match="1 topics or groups could not be maintained"):
        log.maintain()


def test_what_is_no_topic_is_passed_over(root: str, log: Log) -> None:
    """A topic whose creator died before its first entry, and a directory of somebody else."""
    for stray in ("half/journal", "lost+found"):
        (Path(root) / "topics" / stray).mkdir(parents=True)
    log.topic("flights").delete()
    assert run("maintain", root, "--once")[0] == ["orders: settled 2 records"]
    assert [done.topic for done in log.maintain()] == ["flights", "orders"]
    assert len(run("verify", root)[0]) == 1


def test_a_topic_whose_newest_entry_is_damaged_stops_no_other(root: str, log: Log) -> None:
    newest = max(Path(root).glob("topics/flights/journal/*.json"))
    newest.write_bytes(newest.read_bytes().replace(b"append", b"appenD"))
    assert run("maintain", root, "--once", code=1)[0] == ["orders: settled 2 records"]
    lines, _ = run("verify", root, code=1)
    assert any(line.startswith("orders: no fault") for line in lines)


def test_a_root_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for command in (["maintain", "--once"], ["maintain"], ["verify"]):
        lines, errors = run(*command, str(tmp_path / "nothing"), code=1)
        assert lines == []
        assert errors.endswith(f"make it with commitlog topics create {tmp_path / 'nothing'} TOPIC\n")
        assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_until_a_signal_and_then_ends_cleanly(root: str, log: Log, number: signal.Signals) -> None:
    process = subprocess.Popen([*COMMAND, "maintain", root, "--every", "0.2"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "flights: settled 2 records\n"
        append(log.root.topic("flights"), batch_of([b"c"]))
        wait_for(lambda: log.topic("flights").describe().partitions[0].unsettled == 0)
        process.send_signal(number)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_the_root_says_how_often_it_goes_round_unless_the_command_line_does(root: str, log: Log) -> None:
    """Kafka: `log.retention.check.interval.ms`."""
    assert _pause(log, None) == 300
    log.config.alter({"log.retention.check.interval.ms": 200})
    assert (_pause(log, None), _pause(log, 7.5)) == (0.2, 7.5)
    assert "log.retention.check.interval.ms" not in log.topic("flights").describe().config
    with pytest.raises(ConfigError, match=r"log\.retention\.check\.interval\.ms=0 is not allowed"):
        log.config.alter({"log.retention.check.interval.ms": 0})
    process = subprocess.Popen([*COMMAND, "maintain", root], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "flights: settled 2 records\n"
        append(log.root.topic("flights"), batch_of([b"c"]))
        wait_for(lambda: log.topic("flights").describe().partitions[0].unsettled == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_round_that_fails_by_what_may_be_mended_ends_no_service(root: str, log: Log) -> None:
    """Nothing could be done in the first round; the second one is told, too."""
    newest = max(Path(root, "topics", "flights", "journal").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-40])
    process = subprocess.Popen(
        [*COMMAND, "maintain", root, "flights", "--every", "0.2"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(3)]
        assert told[0].startswith("flights: error: ")
        assert told[1] == "maintained 0 topics; the next round begins in 0.2 s\n"
        assert told[2] == told[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_signal_ends_a_round_between_two_steps(root: str, log: Log) -> None:
    """The second topic is not begun."""
    code = "import os, signal; from pyspark_commitlog.topic.maintain import maintain as m; settle = m.settle_on;\n"
    code += "def stop(*a, **k):\n os.kill(os.getpid(), signal.SIGTERM)\n return settle(*a, **k)\n"
    code += "m.settle_on = stop\nfrom pyspark_commitlog.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code, "maintain", root], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert log.topic("flights").describe().partitions[0].unsettled == 0, "the step was done"
    assert log.topic("orders").describe().partitions[0].unsettled == 2


def test_progress_is_told_and_may_end_the_work(log: Log) -> None:
    class EnoughError(Exception):
        pass

    told: list[str] = []

    def progress(what: str, done: int, total: int) -> None:
        told.append(what)
        assert 0 <= done <= total
        if len(told) == 4:
            raise EnoughError

    with pytest.raises(EnoughError):
        log.topic("orders").maintain(progress=progress)
    assert told == ["settle", "retain", "check indexes", "compact"]
    sizes: list[tuple[int, int]] = []
    assert log.topic("orders").verify(progress=lambda _, done, total: sizes.append((done, total))).faults == ()
    assert sizes[-1][0] == sizes[-1][1] > 0


def wait_for(done: object) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 20
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


def test_verify_tells_a_sound_root_and_a_damaged_one(root: str, log: Log) -> None:
    log.maintain()
    lines, _ = run("verify", root)
    assert len(lines) == 2
    assert all("no fault" in line for line in lines)
    (damaged,) = Path(root).glob("topics/orders/*/0/*.log")
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    lines, _ = run("verify", root, code=1)
    assert any(line.startswith("orders: FAULT ") and damaged.name in line for line in lines)
    assert any(line.startswith("flights: no fault") for line in lines)


def test_verify_tells_damaged_defaults_and_goes_on(root: str, log: Log) -> None:
    log.config.alter({"log.retention.hours": 48})
    assert len(run("verify", root)[0]) == 2
    (newest,) = Path(root).glob("config/journal/*.json")
    newest.write_bytes(newest.read_bytes().replace(b"48", b"49"))
    lines, errors = run("verify", root, code=1)
    assert len(lines) == 2
    assert all("no fault" in line for line in lines)
    assert f"config/journal/{newest.name}" in errors
    rows = [json.loads(line) for line in run("verify", root, "--json", code=1)[0]]
    assert [row["topic"] for row in rows] == [None, "flights", "orders"]
    assert newest.name in rows[0]["faults"][0]
    assert run("maintain", root, "--once", code=1)[0] == []


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')")
    done = subprocess.run(
        [*COMMAND, "--help"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip() == "The command line needs two more packages: pip install 'pyspark-commitlog[cli]'"


def two_groups(log: Log) -> None:
    """Make groups first and second."""
    topic_id = log.root.topic("orders").newest()[1].topic_id
    for name in ("first", "second"):
        log.groups.open(name).advance([Position("orders", topic_id, 0, 1)])


def in_process(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Run a command in this process, whose signals stay as they are; return exit code, output, and standard error."""
    monkeypatch.setattr(maintain_module, "stopped_by_signals", threading.Event)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_whatever_fails_in_a_topic_the_others_are_maintained(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of another library's, several of one topic; exit code 1, and each in a line of its own."""
    real = steps.settle_on

    def fails(topic: TopicLog, topic_id: str, **how: float) -> Settled:
        if topic.name == "flights":
            raise pa.ArrowInvalid("offset overflow")
        return real(topic, topic_id, **how)

    def full(topic: TopicLog, topic_id: str) -> int:
        if topic.name == "flights":
            raise StorageFullError("no space left")
        return 0

    monkeypatch.setattr(steps, "settle_on", fails)
    monkeypatch.setattr(steps, "sweep", full)
    code, out, told = in_process("maintain", root, "--once", monkeypatch=monkeypatch)
    assert code == 1
    assert out == "orders: settled 2 records\n"
    assert told == "flights: error: ArrowInvalid: offset overflow\nflights: error: no space left\n"


def test_whatever_fails_in_a_topic_the_others_are_verified(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = topics.verify

    def fails(topic: TopicLog, progress: Progress) -> TopicReport:
        if topic.name == "flights":
            raise MemoryError("malloc failed")
        return real(topic, progress)

    monkeypatch.setattr(topics, "verify", fails)
    code, out, told = in_process("verify", root, monkeypatch=monkeypatch)
    assert code == 1
    assert out.startswith("orders: ")
    assert told == "flights: error: MemoryError: malloc failed\n"


def test_a_root_that_cannot_be_checked_does_not_stop_the_topics_checks(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(root: Root) -> RootReport:
        raise KeyError("x")

    monkeypatch.setattr(root_checks, "verify_root", fails)
    code, out, told = in_process("verify", root, monkeypatch=monkeypatch)
    assert code == 1
    assert [line.partition(":")[0] for line in out.splitlines()] == ["flights", "orders"]
    assert told == "error: the root can't be checked: KeyError: 'x'\n"


def test_what_cannot_be_checked_stops_no_other_check(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one chunk, say; whatever the reason."""

    def fails(*_: object, **__: object) -> Iterator[object]:
        raise MemoryError("malloc")

    monkeypatch.setattr(verifying, "unsettled_frames", fails)
    report = log.topic("orders").verify()
    assert report.faults == ("topic 'orders' can't be checked: MemoryError: malloc",)
    assert report.chunks == 1


@pytest.mark.parametrize("part", ["settle entries", "tables"])
def test_what_cannot_be_looked_at_besides_stops_no_other_look(
    log: Log, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    looked: list[str] = []

    def fails(*_: object) -> None:
        raise MemoryError("malloc")

    if part == "tables":
        monkeypatch.setattr(strays, "_look_at_tables", fails)
    else:
        monkeypatch.setattr(Strays, "_settle", fails)
    monkeypatch.setattr(Strays, "_rest", lambda *_: looked.append("rest"))
    assert "topic 'orders' can't be checked: MemoryError: malloc" in log.topic("orders").verify().faults
    assert "rest" in looked


def test_a_progress_that_raises_ends_verify(log: Log) -> None:
    """It is no fault of the topic, wherever it is raised."""

    def progress(what: str, done: int, total: int) -> None:
        raise InterruptedError(what)

    log.topic("orders").maintain()
    with pytest.raises(InterruptedError):
        log.topic("orders").verify(progress=progress)


def test_a_progress_that_raises_ends_the_look_at_what_lies_there_besides(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.topic("orders").maintain()
    monkeypatch.setattr(Strays, "_settle", lambda look, *_: look.progress("verify", 0, 1))
    monkeypatch.setattr(verifying._Checker, "partition", lambda *_, **__: None)

    def progress(what: str, done: int, total: int) -> None:
        raise InterruptedError(what)

    with pytest.raises(InterruptedError):
        log.topic("orders").verify(progress=progress)


def test_whatever_fails_in_a_group_the_others_are_maintained(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line and by code: all that failed is told, of topics too."""
    two_groups(log)
    real = Groups.maintain

    def fails(groups: Groups, group: str) -> MaintainedGroup:
        if group == "first":
            raise KeyError("x")
        return real(groups, group)

    monkeypatch.setattr(Groups, "maintain", fails)
    code, out, told = in_process("maintain", root, "--once", "--json", monkeypatch=monkeypatch)
    assert code == 1
    assert '"group": "second"' in out
    assert told == "group first: error: KeyError: 'x'\n"
    with pytest.raises(ExceptionGroup, match="1 topics or groups"):
        log.maintain()


def test_groups_that_cannot_be_listed_hide_no_topic_s_failure(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlisted(groups: Groups) -> list[str]:
        raise OSError(5, "I/O error")

    def fails(topic: TopicLog, progress: Progress) -> Maintained:
        raise KeyError(topic.name)

    monkeypatch.setattr(Groups, "every_name", unlisted)
    code, _, told = in_process("maintain", root, "--once", monkeypatch=monkeypatch)
    assert (code, told) == (1, "groups: error: OSError: [Errno 5] I/O error\n")
    monkeypatch.setattr(maintenance, "maintain_topic", fails)
    with pytest.raises(ExceptionGroup) as failed:
        log.maintain()
    assert [type(each) for each in failed.value.exceptions] == [KeyError, KeyError, OSError]


def test_topics_that_cannot_be_listed_do_not_end_the_rounds(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says so; without --once the next round tries again."""

    def unlisted(root: Root) -> list[str]:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(Root, "every_name", unlisted)
    code, _, told = in_process("maintain", root, "--once", monkeypatch=monkeypatch)
    assert (code, told) == (1, "error: ZeroDivisionError: x\n")


def test_whatever_fails_in_a_group_s_check_the_others_are_checked(
    root: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_groups(log)
    checked: list[str] = []

    def fails(group: GroupLog) -> list[str]:
        checked.append(group.name)
        if group.name == "first":
            raise KeyError("x")
        return []

    monkeypatch.setattr(consumer_groups, "faults_of", fails)
    assert verify_root(log.root).faults == ("group first can't be checked: KeyError: 'x'",)
    assert checked == ["first", "second"]
