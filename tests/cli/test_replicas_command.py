"""`commitlog replicas` and what `topics` says of replicas, as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyspark_commitlog import CommitLog
from pyspark_commitlog.api.replica_sync import ReplicaSync
from pyspark_commitlog.cli import replicas as replicas_module
from pyspark_commitlog.cli.app import app
from pyspark_commitlog.errors import StorageReadOnlyError
from tests.support.commands import COMMAND, run, run_bytes


@pytest.fixture
def roots(tmp_path: Path) -> tuple[str, str, str]:
    """Three roots with a topic, and a directory for the metadata."""
    at = str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")
    run("replicas", "create", *at, "--metadata", str(tmp_path / "m"))
    run("topics", "create", at[0], "t")
    return at


def send(root: str, line: bytes) -> None:
    assert run_bytes("produce", root, "t", given=line).returncode == 0


def ids(root: str) -> dict[str, str]:
    rows = [json.loads(line) for line in run("replicas", "list", root, "--json")[0]]
    return {row["url"]: row["root_id"] for row in rows}


def test_roots_are_made_and_shown(tmp_path: Path) -> None:
    at = [str(tmp_path / name) for name in "ab"]
    lines, told = run("replicas", "create", *at, "--metadata", str(tmp_path / "m"), "--json")
    assert "on the same device" in told
    made = [json.loads(line) for line in lines]
    assert [(row["url"], row["data"], row["metadata"], row["fault"], row["leads"]) for row in made] == [
        (at[0], True, False, None, []), (at[1], True, False, None, []), (str(tmp_path / "m"), False, True, None, []),
    ]  # fmt: skip
    run("topics", "create", at[1], "t")
    head, *rows = [line.split() for line in run("replicas", "list", at[1])[0]]
    assert head == ["ROOT", "ROOT-ID", "HOLDS", "ANSWERS", "LEADS"]
    assert rows == [
        [at[0], made[0]["root_id"], "data", "yes", "1"],
        [at[1], made[1]["root_id"], "data", "yes", "0"],
        [str(tmp_path / "m"), made[2]["root_id"], "metadata", "yes", "0"],
    ]
    assert "name empty places" in run("replicas", "create", *at, code=2)[1]
    (tmp_path / "a").rename(tmp_path / "away")
    lines, _ = run("replicas", "list", at[1])
    assert lines[1].split()[3] == "NO"
    assert lines[-1].startswith(f"no answer from {at[0]}: ")


def test_one_root_for_all_holds_data_and_metadata(tmp_path: Path) -> None:
    run("replicas", "create", str(tmp_path / "a"), str(tmp_path / "b"))
    assert [line.split()[2] for line in run("replicas", "list", str(tmp_path / "b"))[0][1:]] == [
        "data,metadata",
        "data",
    ]


def test_a_topic_lives_on_as_many_roots_as_asked_for(roots: tuple[str, str, str]) -> None:
    run("topics", "create", roots[0], "two", "--replication-factor", "2")
    head = run("topics", "describe", roots[2], "two")[0][0]
    assert "ReplicationFactor: 2" in head
    assert "this log has 3 roots" in run("topics", "create", roots[0], "u", "--replication-factor", "4", code=2)[1]
    assert run("topics", "list", roots[0])[0] == ["t", "two"]


def test_a_factor_without_roots_that_belong_together_is_refused(tmp_path: Path) -> None:
    told = run("topics", "create", str(tmp_path / "alone"), "t", "--replication-factor", "2", code=2)[1]
    assert "commitlog replicas create" in told


def test_describe_shows_the_leader_and_how_far_each_replica_is(roots: tuple[str, str, str]) -> None:
    a, b, c = roots
    send(a, b"1\n2\n")
    known = ids(a)
    lines, _ = run("topics", "describe", b, "t")
    assert str(CommitLog(b).topic("t").describe()).splitlines()[:-1] == lines[:-1]
    assert lines[3] == f"t: Leader: {a} ({known[a]})  LeaderEpoch: 0  Replicas: {a},{b},{c}  Isr: {a},{b},{c}"
    assert lines[4].split() == [
        "REPLICA", "ROOT-ID", "ROLE", "HIGH-WATERMARKS", "LOG-END-OFFSETS", "ENTRIES-BEHIND", "BYTES-BEHIND",
        "SECONDS-BEHIND",
    ]  # fmt: skip
    assert lines[5].split() == [a, known[a], "leader", "2", "2", "0", "0", "0.0"]
    assert lines[8].endswith("answers")
    told = json.loads(run("topics", "describe", b, "t", "--json")[0][0])["replication"]
    assert (told["leader"], told["leader_url"], told["leader_epoch"], len(told["isr"])) == (known[a], a, 0, 3)
    assert [replica["log_end_offsets"] for replica in told["replicas"]] == [[2], [2], [2]]


def test_topics_that_lack_a_replica_or_a_leader(roots: tuple[str, str, str], tmp_path: Path) -> None:
    a, b, _ = roots
    run("topics", "create", a, "u", "--replication-factor", "2")

    def named(option: str) -> list[str]:
        return [json.loads(line)["name"] for line in run("topics", "describe", b, option, "--json")[0]]

    assert named("--under-replicated-partitions") == named("--unavailable-partitions") == []
    (tmp_path / "a").rename(tmp_path / "away")
    assert named("--unavailable-partitions") == ["t"]
    assert named("--under-replicated-partitions") == []
    run("replicas", "sync", b, code=1)
    assert named("--unavailable-partitions") == []
    assert named("--under-replicated-partitions") == ["t"]


def test_a_root_is_lost_and_comes_back(roots: tuple[str, str, str], tmp_path: Path) -> None:
    a, b, c = roots
    known = ids(a)
    send(a, b"1\n")
    (tmp_path / "a").rename(tmp_path / "away")
    lines, _ = run("replicas", "sync", b, "t", code=1)
    assert lines[0] == f"t: root {known[b]} leads now: the former leader does not answer"
    assert f"root {known[a]} lacks what was decided" in lines[1]
    send(f"{a},{b}", b"2\n")
    (tmp_path / "away").rename(tmp_path / "a")
    (line,) = run("replicas", "sync", c, "--json")[0]
    told = json.loads(line)
    assert (told["topic"], told["leader"], told["joined"], told["failed"]) == ("t", known[b], [known[a]], {})
    assert run("replicas", "sync", c)[0] == []
    assert run("replicas", "elect", c, "t", "--to", a)[0] == [f"t: {a} ({known[a]}) leads"]
    assert json.loads(run("replicas", "elect", c, "t", "--to", known[c], "--json")[0][0]) == {
        "topic": "t", "leader": known[c], "leader_url": c,
    }  # fmt: skip
    for root in roots:
        assert run("cat", root, "t", "-e")[0] == ["1", "2"]


def test_what_can_not_be_is_refused(roots: tuple[str, str, str], tmp_path: Path) -> None:
    alone = str(tmp_path / "alone")
    CommitLog(alone).create_topic("t")
    assert "stands alone" in run("replicas", "sync", alone, code=2)[1]
    assert "stands alone" in run("replicas", "sync", alone, "--watch", code=2)[1]
    assert "stands alone" in run("replicas", "elect", alone, "t", code=2)[1]
    assert "none of the roots that hold data" in run("replicas", "elect", roots[0], "t", "--to", alone, code=2)[1]
    assert "unknown topic" in run("replicas", "sync", roots[0], "nobody", code=1)[1]
    (tmp_path / "m").rename(tmp_path / "away")
    assert "does not answer" in run("replicas", "sync", roots[0], code=1)[1]


def test_watch_goes_on_until_a_signal(roots: tuple[str, str, str], tmp_path: Path) -> None:
    a, b, _ = roots
    (tmp_path / "a").rename(tmp_path / "away")
    watching = subprocess.Popen(
        [*COMMAND, "replicas", "sync", b, "t", "--watch", "--every", "0.1", "--json"], stdout=subprocess.PIPE
    )
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline())["elected"] == ids(b)[b]
        (tmp_path / "away").rename(tmp_path / "a")
        while not (told := json.loads(watching.stdout.readline()))["joined"]:
            pass
        assert told["joined"] == [ids(b)[a]]
        watching.send_signal(signal.SIGTERM)
        watching.stdout.read()
        assert watching.wait(timeout=30) == 0
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()


class Between(threading.Event):
    """The end of a service: its first waits do these things, the one after them ends it."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        if self._steps:
            self._steps.pop(0)()
        else:
            self.set()
        return self.is_set()


def test_watch_goes_on_where_its_root_is_away_for_a_while(
    roots: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or refuses: only what the first round meets is no matter of time."""
    b = tmp_path / "b"
    sync_all = ReplicaSync.sync_all

    def denied(*_: object, **__: object) -> None:
        raise StorageReadOnlyError("the disk is mounted read-only")

    stop = Between(
        lambda: b.rename(tmp_path / "away"),
        lambda: (tmp_path / "away").rename(b),
        lambda: monkeypatch.setattr(ReplicaSync, "sync_all", denied),
        lambda: monkeypatch.setattr(ReplicaSync, "sync_all", sync_all),
    )
    monkeypatch.setattr(replicas_module, "stopped_by_signals", lambda: stop)
    monkeypatch.setattr(ReplicaSync, "catch_up", lambda *_: None)
    done = CliRunner().invoke(app, ["replicas", "sync", str(b), "--watch", "--json"])
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line)["topic"] for line in done.stdout.splitlines()] == ["t"] * 3
    away, refused = done.stderr.splitlines()
    assert away.startswith(f"error: there is no commit log at {b}: ")
    assert refused == "error: the disk is mounted read-only"


def test_watch_ends_where_its_first_round_can_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "stopped_by_signals", Between)
    done = CliRunner().invoke(app, ["replicas", "sync", str(tmp_path / "nothing"), "--watch"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: there is no commit log at ")


def test_recover_says_what_it_would_come_to_and_does_it(roots: tuple[str, str, str], tmp_path: Path) -> None:
    send(roots[0], b"1\n")
    at = ids(roots[0])
    (tmp_path / "m").rename(tmp_path / "away")
    new, lost = str(tmp_path / "n"), str(tmp_path / "m")
    lines, _ = run("replicas", "recover", roots[1], "--metadata", new, "--lost", lost)
    assert lines[0].startswith(f"t: would take root {at[roots[0]]}: ")
    assert lines[-2].startswith("Lost besides")
    assert lines[-1].startswith("Nothing was changed")
    assert not (tmp_path / "n").exists()
    lines, _ = run("replicas", "recover", roots[1], "--metadata", new, "--lost", lost, "--execute", "--json")
    (row,) = [json.loads(line) for line in lines]
    assert (row["topic"], row["root"], row["failed"]) == ("t", at[roots[0]], {})
    send(roots[2], b"2\n")
    assert list(ids(roots[1])) == [*roots, new]
    assert run("replicas", "recover", roots[1], "--metadata", new, "--lost", lost, code=0)[0][0].startswith(
        "t: recovered already"
    )


def test_an_unclean_election_is_asked_for(roots: tuple[str, str, str], tmp_path: Path) -> None:
    send(roots[0], b"1\n")
    for name in "bc":
        (tmp_path / name).rename(tmp_path / f"away-{name}")
    run("topics", "alter", roots[0], "t", "--config", "replica.lag.time.max.ms=0")
    send(roots[0], b"2\n")
    (tmp_path / "a").rename(tmp_path / "away-a")
    for name in "bc":
        (tmp_path / f"away-{name}").rename(tmp_path / name)
    assert "gone" in run("replicas", "elect", roots[1], "t", code=1)[1]
    (line,), told = run("replicas", "elect", roots[1], "t", "--unclean", "--json")
    assert "UNCLEAN" in told
    assert json.loads(line)["leader_url"] in roots[1:]


def test_a_log_that_is_there_gets_roots_and_its_topics_replicas_and_a_root_is_moved(tmp_path: Path) -> None:
    at = [str(tmp_path / name) for name in "abcd"]
    run("topics", "create", at[0], "t")
    send(at[0], b"0\n")
    run("replicas", "add", at[0], at[1], at[2])
    run("topics", "alter", at[0], "t", "--replication-factor", "3")
    run("replicas", "move", at[1], at[2], at[3])
    assert set(ids(at[0])) == {at[0], at[1], at[3]}
    for root in (at[0], at[1], at[3]):
        assert [record.value for record in CommitLog(root).topic("t").read(0, 0, 5)] == [b"0"]
    run("replicas", "remove", at[0], at[3])
    assert set(ids(at[0])) == {at[0], at[1]}


def test_a_lost_metadata_root_is_replaced(tmp_path: Path) -> None:
    at, deciding = [str(tmp_path / name) for name in "ab"], [str(tmp_path / name) for name in "mno"]
    run("replicas", "create", *at, *(each for root in deciding for each in ("--metadata", root)))
    run("topics", "create", at[0], "t")
    (tmp_path / "o").rename(tmp_path / "away")
    lines, _ = run("replicas", "replace-metadata", at[0], deciding[2], str(tmp_path / "p"), "--json")
    assert [row["url"] for row in map(json.loads, lines) if row["metadata"]] == [*deciding[:2], str(tmp_path / "p")]
    (tmp_path / "m").rename(tmp_path / "away-m")
    send(at[1], b"record\n")
    assert "none of the metadata roots" in run("replicas", "replace-metadata", at[1], at[0], deciding[2], code=2)[1]


def test_what_is_damaged_is_named_and_repaired(roots: tuple[str, str, str]) -> None:
    send(roots[0], b"record\n")
    journal = Path(roots[1]) / "topics/t/journal"
    path = next(path for path in sorted(journal.iterdir()) if b"record" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"record", b"recorD"))
    lines, _ = run("verify", roots[1], code=1)
    remedy = f"`commitlog replicas repair {roots[1]} t` fetches what is damaged"
    assert f"t: the faults are in {roots[1]}: {remedy}" in "\n".join(lines)
    assert run("replicas", "repair", roots[1])[0] == [f"t: fetched topics/t/journal/{path.name}"]
    assert run("replicas", "repair", roots[1], "t")[0] == [f"t: nothing is damaged in {roots[1]}"]
    (done,) = run("replicas", "repair", roots[1], "--json")[0]
    assert json.loads(done) == {
        "topic": "t", "root": roots[1], "files": [], "ranges": [], "left": [], "away": [],
    }  # fmt: skip
    assert run("verify", roots[1])[0][-1].startswith("t: no fault")
