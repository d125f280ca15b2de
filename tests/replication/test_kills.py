"""SIGKILL before every changing system call, at whichever root, of what several roots do together.

A process that begins after it finds a legal state: what was acknowledged is there, once, on every root. The steps of the
protocol that are cut off so: stage at each root, decide, sync, learn at each root, state the high watermark, shrink,
join, elect; and the same of a second writer, while a first one waits between two steps of its own:

1. the second has the same writer id (a driver that was taken for dead, and its successor) and dies anywhere; the first
   goes on: its records are there once, whichever of them decided.
2. the second is another writer: it decides between the first one's looks and puts, elects or shrinks for it, and leaves
   behind what is decided and not learned, or staged and not decided.
"""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.crash.conftest import fast_path as fast_path
from tests.crash.processes import start
from tests.replication.scenes import (
    OTHER,
    SCENES,
    Scene,
    Seen,
    act_and_die,
    check_journals,
    interrupted,
    rejoin,
    rivals,
    there,
    write_other,
)
from tests.support.replicas import Replicated
from tests.support.world import DELAY_MS

pytestmark = pytest.mark.slow

_AT_ONCE = 2
#: Of the steps `make test` takes so few, from another one in each scene; `make test-long` takes all.
_STRIDE = 53


@pytest.mark.parametrize("name", SCENES)
def test_killed_at_some_steps(name: str, fast_path: Path) -> None:
    """C1–C3, C5, C6: nothing acknowledged is lost or twice, no offset changes its record, no high watermark goes back."""
    assert _killed(name, fast_path, range(5 + 3 * list(SCENES).index(name), 10_000, _STRIDE)) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENES)
def test_killed_anywhere(name: str, fast_path: Path) -> None:
    """The same at each step."""
    assert _killed(name, fast_path, count(1)) > 20


@pytest.mark.parametrize(("place", "name"), list(enumerate(SCENES)))
def test_a_rival_is_killed_at_some_steps(place: int, name: str, fast_path: Path) -> None:
    """The same of a second writer, while a first one waits, and goes on then."""
    assert _raced(name, rivals[place % 2], fast_path, range(7 + 5 * place, 10_000, _STRIDE)) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("rival", rivals)
@pytest.mark.parametrize("name", SCENES)
def test_a_rival_is_killed_anywhere(name: str, rival: str, fast_path: Path) -> None:
    """The same at each step of the first."""
    assert _raced(name, rival, fast_path, count(1)) > 20


def _killed(name: str, path: Path, numbers: range | count[int]) -> int:
    """Have a process die at each of these steps, a few at once; return how many it was."""
    scene, before, seen = SCENES[name], Replicated(path / "before"), Seen()
    scene.prepare(before)
    seen.look(before)
    left, done, ended = iter(numbers), 0, False
    while not ended:
        worlds = [(number, _copied(before, path / f"{number}")) for number in (next(left) for _ in range(_AT_ONCE))]
        running = [start(act_and_die, name, roots, number) for number, roots in worlds]
        for process, (number, roots) in zip(running, worlds, strict=True):
            process.join()
            assert process.exitcode in (0, -9), f"killed before call {number}"
            ended = ended or process.exitcode == 0
            _check(scene, roots, seen.so_far(), acked=process.exitcode == 0)
            shutil.rmtree(roots.path)
            done += 1
    return done


def _raced(name: str, rival: str, path: Path, numbers: range | count[int]) -> int:
    """Have a rival die at some step of its own at each of these steps of the first; return how many it was."""
    scene, before, seen = SCENES[name], Replicated(path / "before"), Seen()
    scene.prepare(before)
    seen.look(before)
    for done, number in enumerate(numbers):
        roots, dies = _copied(before, path / f"{number}"), 3 + number * 17 % 53

        def between(roots: Replicated = roots, dies: int = dies) -> None:
            process = start(act_and_die, name if rival == "same" else OTHER, roots, dies)
            process.join()
            assert process.exitcode in (0, -9), f"killed before call {dies}"

        reached = interrupted(name, roots, number, between)
        _check(scene, roots, seen.so_far(), acked=True, other=reached and rival == "other")
        shutil.rmtree(roots.path)
        if not reached:
            return done
    raise AssertionError("it has no end")


def _check(scene: Scene, roots: Replicated, seen: Seen, *, acked: bool, other: bool = False) -> None:
    """Look at every root that is there, at once and after each step that other processes take."""
    seen.look(roots)
    check_journals(roots)
    if acked:
        roots.decided_log().state_hw()  # a rival may have died between stating it and having it learned
        for root in there(roots):
            assert {*scene.acked} <= {*roots.values(root)} or root not in roots.isr(), f"at {root}"
    for _ in range(2):
        scene.again(roots)
        seen.look(roots)
        if other:
            write_other(roots)
        check_journals(roots)
    roots.write(b"next", topic=roots.topic(there(roots)[0]))
    seen.look(roots)
    scene.mend(roots)
    rejoin(roots)
    check_journals(roots)
    expected = sorted([*scene.values, *([b"other"] if other else [])])
    orders = set()
    for maintained in ("", roots.names, roots.names):
        for root in maintained:
            roots.log(root).topic("t").maintain()
        roots.clock.advance(DELAY_MS)
        seen.look(roots)
        for root in roots.names:
            found = roots.values(root)
            assert sorted(value or b"" for value in found) == expected, f"at {root}"
            orders.add(tuple(found))
    assert len(orders) == 1, "all roots have the same order"


def _copied(roots: Replicated, path: Path) -> Replicated:
    """Return a copy of all roots, times included."""
    shutil.copytree(roots.path, path)
    copy = Replicated(path)
    copy.clock.advance(roots.clock.now_ms() - copy.clock.now_ms())
    return copy
