"""Threads of a process: what they share out between them, and what one does aside."""

from __future__ import annotations

import threading

import pytest

from pyspark_commitlog.storage import limits, process
from pyspark_commitlog.storage.process import share_out
from pyspark_commitlog.storage.shared.pool import HelperThreads


def test_each_item_is_taken_once_and_by_several_threads() -> None:
    together = threading.Barrier(3)
    taken: list[tuple[int, int]] = []

    def act(item: int) -> None:
        if item < 3:
            together.wait(30)  # breaks where fewer than three are at work
        taken.append((item, threading.get_ident()))

    share_out(act, range(20), 3)
    assert sorted(item for item, _ in taken) == list(range(20))
    assert threading.get_ident() in {thread for _, thread in taken}
    assert len({thread for _, thread in taken}) == 3


@pytest.mark.parametrize("items", [[], [7], [3, 1, 2]])
def test_one_thread_takes_them_in_order(items: list[int]) -> None:
    taken: list[tuple[int, int]] = []
    share_out(lambda item: taken.append((item, threading.get_ident())), items, 1)
    assert taken == [(item, threading.get_ident()) for item in items]


def test_without_more_threads_this_one_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the interpreter's end (3.12 and later)."""

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process.Thread, "start", no_thread)
    taken: list[int] = []
    share_out(taken.append, [1, 2, 3], 3)
    assert taken == [1, 2, 3]


def test_a_failure_stops_what_has_not_begun_and_is_raised_when_all_are_back() -> None:
    begun, failed, done = threading.Barrier(2), threading.Event(), list[int]()

    def act(item: int) -> None:
        begun.wait(30)
        if item == 0:
            failed.set()
            raise ZeroDivisionError("a fault of ours")
        failed.wait(30)
        done.append(item)

    with pytest.raises(ZeroDivisionError):
        share_out(act, [0, 1, *range(2, 10_000)], 2)
    assert done == [1]


def test_who_is_interrupted_while_waiting_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: the lock that the caller holds is not let go while a thread writes."""
    here, released, done = threading.Event(), threading.Event(), list[str]()

    class Interrupted(threading.Thread):
        interrupts = 2

        def join(self, timeout: float | None = None) -> None:
            if Interrupted.interrupts:
                Interrupted.interrupts -= 1
                raise KeyboardInterrupt
            released.set()
            super().join(timeout)

    monkeypatch.setattr(process, "Thread", Interrupted)
    caller = threading.get_ident()

    def act(_: int) -> None:
        if threading.get_ident() == caller:
            here.wait(30)
        else:
            here.set()
            released.wait(30)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        share_out(act, [0, 1], 2)
    assert done == ["written"]


def test_what_is_begun_is_done_once_by_a_few_other_threads_or_by_who_waits() -> None:
    done: list[tuple[int, str]] = []
    aside = HelperThreads("aside", 8)
    waits = [
        aside.begin(lambda number=number: done.append((number, threading.current_thread().name)))
        for number in range(200)
    ]
    for wait in waits:
        wait()
    assert sorted(number for number, _ in done) == list(range(200))
    assert {name for _, name in done} <= {"aside", threading.current_thread().name}
    running = [thread for thread in threading.enumerate() if thread.name == "aside"]
    assert len(running) <= (limits.limits().threads - process.RESERVED) // 8


def test_who_waits_for_a_thing_that_nobody_has_begun_does_it() -> None:
    """So a pool's thread may wait for another thing of the pool: it can't wait for ever."""
    aside, go = HelperThreads("aside", 10**6), threading.Event()
    begun = threading.Event()

    def hold() -> bool:
        begun.set()
        return go.wait(60)

    held = aside.begin(hold)
    assert begun.wait(60)
    assert aside.begin(lambda: threading.current_thread().name)() == threading.current_thread().name
    go.set()
    assert held()


def test_what_was_done_by_who_waited_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    aside = HelperThreads("aside", 8)
    for number in range(100):
        assert aside.begin(lambda number=number: number)() == number
    assert not aside._waiting


def test_without_a_thread_whoever_waits_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    aside = HelperThreads("aside", 8)
    assert aside.begin(lambda: threading.current_thread().name)() == threading.current_thread().name
