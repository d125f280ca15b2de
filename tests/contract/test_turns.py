"""Turns on a local directory: one at a time, in order, and nobody who is stuck stops the others for long."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.journal import reading
from pyspark_commitlog.storage.local import turns as turns
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.turns import Turns
from tests.support.records import append, batch_of, read_topic
from tests.support.world import CHUNKS, World


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root with a directory `d`; nobody waits for it when the test is over."""
    (tmp_path / "d").mkdir()
    yield tmp_path
    wait_for_waiters(tmp_path / "d", 0)


def of_another_process(root: Path) -> LocalStorage:
    """Return a door to a root that takes its turns for itself: those of one process stand in one line."""
    storage = LocalStorage(root)
    storage._turns = Turns()
    return storage


def wait_for_waiters(directory: Path, count: int) -> None:
    """Wait until the kernel shows so many who wait for a lock."""
    inode = f":{directory.stat().st_ino} "
    until = time.monotonic() + 30
    while time.monotonic() < until:
        lines = Path("/proc/locks").read_text().splitlines()
        if sum("->" in line and inode in line for line in lines) == count:
            return
        time.sleep(0.002)
    raise AssertionError(f"never {count} waiters")


def descriptors(root: Path) -> int:
    """Return how many descriptors of this process are of a root."""
    opened = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return len([each for each in opened if os.path.realpath(each).startswith(str(root))])


def test_those_who_wait_are_served_in_their_order(root: Path) -> None:
    served: list[int] = []

    def wait(number: int) -> None:
        with of_another_process(root).turn("d", 30) as mine:
            served.append(number if mine else -1)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    with LocalStorage(root).turn("d", 30) as first:
        assert first
        for number, thread in enumerate(threads):
            thread.start()
            wait_for_waiters(root / "d", number + 1)
    for thread in threads:
        thread.join(30)
    assert served == list(range(8))


def test_who_waits_in_vain_goes_on_and_leaves_one_behind_at_most(root: Path) -> None:
    """The holder is stopped: the first waits for a while, the next ones do not; when it goes on all is as before."""
    ours = LocalStorage(root)
    with of_another_process(root).turn("d", 30):
        for _ in range(5):
            with ours.turn("d", 0.01) as mine:
                assert not mine
        wait_for_waiters(root / "d", 1)
    wait_for_waiters(root / "d", 0)
    until = time.monotonic() + 30
    while time.monotonic() < until:  # the thread that was left behind lets go
        with ours.turn("d", 30) as mine:
            if mine:
                return
    raise AssertionError("the turn never came back")


def test_a_turn_that_came_too_late_is_free_though_a_child_has_a_copy_of_its_descriptor(root: Path) -> None:
    """A process that forks between the wait and its end leaves a copy in the child, which would keep the lock."""
    ours = of_another_process(root)
    with of_another_process(root).turn("d", 30):
        with ours.turn("d", 0.01) as mine:
            assert not mine
        assert ours._turns is not None
        (waiter,) = ours._turns._left_behind.values()
        copy = os.dup(waiter._fd)
    try:
        wait_for_waiters(root / "d", 0)
        until = time.monotonic() + 30
        while waiter.is_alive():
            assert time.monotonic() < until
        with of_another_process(root).turn("d", 0.5) as mine:
            assert mine
    finally:
        os.close(copy)


@pytest.mark.parametrize("served", [False, True])
def test_who_is_interrupted_while_it_waits_lets_go_of_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    """Ctrl-C in a notebook, whose process lives on; the lock may come in that very moment."""
    holding = of_another_process(root).turn("d", 30)
    real = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout is not None and 60 < timeout <= 77:
            if served:
                holding.__exit__(None, None, None)
                real(event, 30)
            raise KeyboardInterrupt
        return real(event, timeout)

    holding.__enter__()
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), LocalStorage(root).turn("d", 77):
        pass
    if not served:
        holding.__exit__(None, None, None)
    with LocalStorage(root).turn("d", 30) as mine:
        assert mine


def test_a_killed_holder_loses_it(root: Path) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with LocalStorage(root).turn("d", 30):
            os.write(told, b"held")
            signal.pause()
    os.read(ready, 4)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with LocalStorage(root).turn("d", 30) as mine:
        assert mine


def test_a_forked_child_does_not_keep_it(root: Path) -> None:
    """It has a copy of the descriptor for as long as it lives."""
    child = 0
    try:
        with LocalStorage(root).turn("d", 30):
            child = os.fork()
            if child == 0:
                signal.pause()
        with LocalStorage(root).turn("d", 30) as mine:
            assert mine
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_does_not_keep_the_turn_of_a_parent_that_is_killed(root: Path) -> None:
    """Nobody gives it back then: the kernel does, once nobody has the descriptor any more."""
    ready, told = os.pipe()
    parent = os.fork()
    if parent == 0:
        with LocalStorage(root).turn("d", 30):
            child = os.fork()
            if child == 0:
                signal.pause()
            os.write(told, b"%10d" % child)
            signal.pause()
    child = int(os.read(ready, 10))
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with LocalStorage(root).turn("d", 10) as mine:
            assert mine
    finally:
        os.kill(child, signal.SIGKILL)


def test_it_is_given_back_though_somebody_has_a_copy(root: Path) -> None:
    """As a child has that another library forked: nothing of ours runs there."""
    with LocalStorage(root).turn("d", 30):
        copies = [os.dup(fd) for fd in turns._open.value]
    try:
        assert copies
        with LocalStorage(root).turn("d", 1) as mine:
            assert mine
    finally:
        for copy in copies:
            os.close(copy)


def test_it_is_for_speed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds it for ever: commits go on without."""
    monkeypatch.setattr(reading, "_TURN_SECONDS", 0.01)
    world = World(tmp_path / "root")
    topic = world.create()
    with of_another_process(world.path).turn("topics/t/journal", 1) as held:
        assert held
        for number in range(3):
            append(topic, batch_of([b"%d" % number]))
    assert world.values() == [b"0", b"1", b"2"]


class Counting(LocalStorage):
    """Counts puts of entries."""

    puts = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Put."""
        self.puts += 1
        super().put_if_absent(path, data)


def test_those_who_take_turns_lose_no_races(tmp_path: Path) -> None:
    """Without turns each loser syncs an entry that nobody wants, and backs off ever longer."""
    world = World(tmp_path / "root")
    world.create(1, {**CHUNKS, "inline.max.bytes": 65536, "settle.entries": 10**6})
    storages = [Counting(world.path) for _ in range(6)]

    def write(storage: LocalStorage) -> None:
        topic = CommitLog.on(storage).root.topic("t")
        for _ in range(20):
            append(topic, batch_of([b"x"]))

    threads = [threading.Thread(target=write, args=(storage,)) for storage in storages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [storage.puts for storage in storages] == [20] * 6
    assert len(read_topic(world.handle())) == 120


def test_those_of_one_process_wait_with_one_descriptor_and_one_thread(root: Path) -> None:
    """A holder that is stopped cost every handle ten seconds, a thread and a descriptor."""
    served: list[int] = []

    def wait(number: int) -> None:
        with LocalStorage(root).turn("d", 30) as mine:
            served.append(number if mine else -1)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(20)]
    with of_another_process(root).turn("d", 30):
        for thread in threads:
            thread.start()
        wait_for_waiters(root / "d", 1)
        assert len([each for each in threading.enumerate() if each.name == "commitlog-turn"]) == 1
        assert descriptors(root) == 2  # the holder's, and the one that waits
    for thread in threads:
        thread.join(30)
    assert sorted(served) == list(range(20))


def test_a_turn_that_did_not_come_is_waited_for_once_whatever_handle_asks(root: Path) -> None:
    with of_another_process(root).turn("d", 30):
        with LocalStorage(root).turn("d", 0.01) as mine:
            assert not mine
        began = time.monotonic()
        for _ in range(20):
            with LocalStorage(root).turn("d", 5) as mine:
                assert not mine
        assert time.monotonic() - began < 5


def test_a_process_waits_for_many_turns_with_few_threads(tmp_path: Path) -> None:
    """Nobody gives way in 300 directories: those that have no thread are asked for now and then, and remembered."""
    names = [f"d{number}" for number in range(20)]
    for name in names:
        (tmp_path / name).mkdir()
    other, ours = of_another_process(tmp_path), LocalStorage(tmp_path)
    with ExitStack() as held:
        for name in names:
            assert held.enter_context(other.turn(name, 30))
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(2):
            for name in names:
                with ours.turn(name, 0.01) as mine:
                    assert not mine
        waiting = [each for each in threading.enumerate() if each.name == "commitlog-turn"]
        assert len(waiting) == turns._WAITERS
        more = set(os.listdir("/proc/self/fd")) - before  # files of earlier tests may be closed meanwhile
        assert len(more) <= len(waiting) + 1, "and what lists them"
    for name in names:
        wait_for_waiters(tmp_path / name, 0)
