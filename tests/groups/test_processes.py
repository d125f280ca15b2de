"""Real processes that are members of a group, killed and stopped at random."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.groups.consumer_groups import GroupDescription
from tests.crash.processes import start
from tests.groups.processes import consume, read_by_all
from tests.support.records import append, batch_of

pytestmark = pytest.mark.slow

_MEMBERS = 6
_PARTITIONS = 8


@pytest.fixture
def processes() -> Iterator[dict[str, BaseProcess]]:
    """The processes of a test, which end with it."""
    found: dict[str, BaseProcess] = {}
    yield found
    for process in found.values():
        process.kill()
        process.join()


def trouble(root: Path, strategy: str, processes: dict[str, BaseProcess], seconds: float) -> list[list[int]]:
    """Kill and stop members at random while records come; return what was committed, again and again."""
    log, names, chance = CommitLog(str(root)), (f"m{number}" for number in count()), random.Random(7)
    done, until, seen = root.parent / "done", time.monotonic() + seconds, []
    while time.monotonic() < until:
        while len(processes) < _MEMBERS:
            name = next(names)
            processes[name] = start(consume, root, name, strategy, done)
        append(log.root.topic("t"), batch_of([b"x"] * 40, partition=[*range(_PARTITIONS)] * 5))
        seen.append([row.offset or 0 for row in log.groups.describe("g").partitions] if log.groups.list() else [])
        name, pid = chance.choice([(name, process.pid) for name, process in processes.items()])
        assert pid is not None
        match chance.randrange(4):
            case 0:
                processes[name].kill()
                processes.pop(name).join()
            case 1:
                os.kill(pid, signal.SIGSTOP)
            case _:
                for process in processes.values():
                    os.kill(process.pid or 0, signal.SIGCONT)
        time.sleep(0.25)
    for process in processes.values():
        os.kill(process.pid or 0, signal.SIGCONT)
    return seen


def is_caught_up(told: GroupDescription, ends: list[int], living: Iterable[str]) -> bool:
    """Return whether all is committed, by members that live: who was killed last is noticed by those only."""
    return [row.offset for row in told.partitions] == ends and {m.client_id for m in told.members} == set(living)


def play(tmp_path: Path, strategy: str, processes: dict[str, BaseProcess], seconds: float) -> None:
    root = tmp_path / "root"
    log = CommitLog(str(root))
    log.create_topic("t", _PARTITIONS)
    seen = [each for each in trouble(root, strategy, processes, seconds) if each]
    ends = [row.high_watermark for row in log.topic("t").describe().partitions]
    deadline = time.monotonic() + 60
    while not is_caught_up(log.groups.describe("g"), ends, processes):
        assert time.monotonic() < deadline, log.groups.describe("g")
        assert all(process.is_alive() for process in processes.values())
        time.sleep(0.1)
    assert all(list(map(max, zip(a, b, strict=True))) == b for a, b in pairwise(seen)), "went back"
    assert read_by_all(tmp_path) == {(p, offset) for p, end in enumerate(ends) for offset in range(end)}
    (tmp_path / "done").touch()
    for process in processes.values():
        process.join(30)
        assert process.exitcode == 0
    told = log.groups.describe("g")
    assert (told.state, told.members) == ("Empty", ())
    assert told.generation_id > 5


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_members_killed_and_stopped_at_random_read_every_record(
    tmp_path: Path, strategy: str, processes: dict[str, BaseProcess]
) -> None:
    play(tmp_path, strategy, processes, 5)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", "roundrobin", "sticky"])
def test_members_killed_and_stopped_at_random_for_minutes(
    tmp_path: Path, strategy: str, processes: dict[str, BaseProcess]
) -> None:
    play(tmp_path, strategy, processes, 30)
