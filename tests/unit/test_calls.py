"""Calls of a root that hangs: nobody waits for them longer than their limit, and they fill no more than a few threads."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.replication.protocol import durable_files, push_lag as lag_module, roots as roots_module
from pyspark_commitlog.replication.protocol.push_lag import Lag
from pyspark_commitlog.replication.protocol.roots import Address, Listed, Roots
from pyspark_commitlog.storage import calls as module, race
from pyspark_commitlog.storage.calls import MOST_CALLS, MOST_LONG_CALLS, Calls
from pyspark_commitlog.storage.deadline_storage import with_deadlines
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.support.children import in_a_child

SHORT = 0.05


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """What a call waits for that hangs; it goes on at the end."""
    event = threading.Event()
    yield event
    event.set()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_call_returns_or_raises_what_it_did() -> None:
    calls = Calls("root")
    assert calls.run("a look", lambda: 7, 10) == 7
    with pytest.raises(FileNotFoundError, match="gone"):
        calls.run("a look", lambda: _raise(FileNotFoundError("gone")), 10)


def _raise(error: BaseException) -> None:
    raise error


def test_a_call_that_hangs_is_left_and_the_root_fails_at_once_until_it_returns(hang: threading.Event) -> None:
    calls = Calls("/disk1/log")
    with pytest.raises(ReplicaNotAvailableError, match=r"/disk1/log hangs: a read of x .*check the disk"):
        calls.run("a read of x", hang.wait, SHORT)
    began = time.monotonic()
    with pytest.raises(ReplicaNotAvailableError, match="hangs: a read of x"):
        calls.run("another", lambda: 1, 600)
    assert time.monotonic() - began < 10
    hang.set()
    until(lambda: not calls._left)
    assert calls.run("another", lambda: 1, 10) == 1


def test_a_root_that_hangs_is_tried_again_in_time(hang: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls("root")
    with pytest.raises(ReplicaNotAvailableError):
        calls.run("a look", hang.wait, SHORT)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    assert calls.run("one call of it hangs, others do not", lambda: 1, 10) == 1


def test_what_hangs_takes_a_few_threads_of_its_own(hang: threading.Event) -> None:
    calls, other, failed = Calls("root"), Calls("other"), list[BaseException]()

    def ask() -> None:
        try:
            calls.run("a look", hang.wait, 5.0)
        except ReplicaNotAvailableError as error:
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3 * MOST_CALLS)]
    for thread in asking:
        thread.start()
    until(lambda: sum(calls._running.values()) == MOST_CALLS)
    assert other.run("a look", lambda: 1, 10) == 1, "another root has threads"
    for thread in asking:
        thread.join(10)
    assert len(failed) == len(asking)
    assert sum(calls._running.values()) == MOST_CALLS, "the others were never begun"


def held(calls: Calls, hang: threading.Event, seconds: float, count: int = MOST_CALLS) -> list[threading.Thread]:
    """Have so many calls made that return with `hang`, or are given up when their time is over."""

    def ask() -> None:
        with contextlib.suppress(ReplicaNotAvailableError):
            calls.run("a call that takes long", hang.wait, seconds)

    asking = [threading.Thread(target=ask) for _ in range(count)]
    for thread in asking:
        thread.start()
    return asking


def is_waiting(thread: threading.Thread, where: str) -> bool:
    """Return whether a thread waits for a condition, in a function of this name."""
    frame, names = sys._current_frames().get(thread.ident or 0), list[str]()
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return where in names and "wait" in names


def test_the_limit_of_a_call_begins_when_it_has_its_place(
    hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight others of a healthy disk take their time before it: that is not the disk's trouble."""
    calls, later, go_on, came = Calls("root"), [0.0], threading.Event(), list[object]()
    monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + later[0])
    asking = held(calls, hang, 9)
    until(lambda: sum(calls._running.values()) == MOST_CALLS)

    def look() -> None:
        try:
            came.append(calls.run("a look", lambda: go_on.wait(30), 4))
        except ReplicaNotAvailableError as error:
            came.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    until(lambda: is_waiting(looking, "run"))
    later[0] = 5.0
    hang.set()
    for thread in asking:
        thread.join(30)
    until(lambda: bool(came) or sum(calls._running.values()) == 1)
    go_on.set()
    looking.join(30)
    assert came == [True]


def test_those_who_wait_for_a_place_fail_when_a_call_is_left_behind(hang: threading.Event) -> None:
    calls, began = Calls("root"), time.monotonic()
    waits = [calls.begin("steps", hang.wait) for _ in range(MOST_CALLS - 1)]
    (asking,) = held(calls, hang, 0.5, 1)
    until(lambda: sum(calls._running.values()) == MOST_CALLS)
    with pytest.raises(ReplicaNotAvailableError, match="hangs: a call that takes long"):
        calls.run("another", lambda: 1, 60)
    assert time.monotonic() - began < 30
    hang.set()
    asking.join(10)
    assert all(wait() for wait in waits)


def test_calls_that_may_take_long_leave_places_for_looks(hang: threading.Event) -> None:
    """As read-ahead makes, with more threads than a root has places."""
    calls = Calls("root")
    asking = held(calls, hang, 30)
    until(
        lambda: (
            sum(calls._running.values()) == MOST_LONG_CALLS
            and sum(is_waiting(each, "_wait_for_place") for each in asking) == MOST_CALLS - MOST_LONG_CALLS
        )
    )
    assert calls.run("a look", lambda: 1, 4) == 1
    hang.set()
    for thread in asking:
        thread.join(10)
    assert sum(calls._running.values()) == sum(calls._long.values()) == 0


def test_a_result_that_comes_late_is_undone(hang: threading.Event) -> None:
    undone = threading.Event()
    with pytest.raises(ReplicaNotAvailableError):
        Calls("root").run("a lock", hang.wait, SHORT, lambda held: undone.set() if held else None)
    assert not undone.is_set()
    hang.set()
    assert undone.wait(10), "nobody else would let go of the lock"


def test_nothing_more_is_done_for_one_who_has_left(hang: threading.Event) -> None:
    calls, done, ended = Calls("root"), list[str](), threading.Event()

    def learn() -> None:
        try:
            calls.run("the first", lambda: (hang.wait(), done.append("first")), SHORT)
            calls.run("the second", lambda: done.append("second"), SHORT)
        finally:
            ended.set()

    waited = calls.begin("learning", learn)
    with pytest.raises(ReplicaNotAvailableError, match="the first"):
        waited()
    hang.set()
    assert ended.wait(10)
    assert done == ["first"], "it was under way; what would have followed is not"


def test_several_calls_may_take_longer_than_each_of_them() -> None:
    calls = Calls("root")

    def act() -> int:
        return sum(calls.run("a step", lambda: time.sleep(0.5) or 1, 3.0) for _ in range(8))

    assert calls.begin("steps", act)() == 8


def test_a_step_may_end_while_its_waiter_looks_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiter is held between the two: it has read that there is a limit when there is none any longer."""
    calls, waiter = Calls("root"), threading.get_ident()
    armed, looking, ended = threading.Event(), threading.Event(), threading.Event()

    def now() -> float:
        if armed.is_set() and threading.get_ident() == waiter and not looking.is_set():
            looking.set()
            assert ended.wait(10)
        return time.monotonic()

    def steps() -> int:
        time.sleep(0.05)
        calls.run("a step", lambda: (armed.set(), looking.wait(10)), 60.0)
        ended.set()
        return calls.run("another", lambda: 7, 60.0)

    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(module, "monotonic", now)
    assert calls.begin("steps", steps)() == 7
    assert looking.is_set()


def test_looks_that_follow_one_another_are_one_call_and_have_a_limit_each(
    tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, begun, begin = with_deadlines(LocalStorage(tmp_path)), list[str](), Calls._begin

    def counted(self: Calls, call: module._Call, patience: float) -> None:
        begun.append(call.what)
        begin(self, call, patience)

    monkeypatch.setattr(Calls, "_begin", counted)
    assert storage.run_as_one_call(lambda: (storage.exists("a"), storage.names(""))) == (False, [])
    assert begun == ["several looks"]
    with pytest.raises(ReplicaNotAvailableError, match="a third look"):
        storage.run_as_one_call(lambda: (storage.exists("a"), storage.calls.run("a third look", hang.wait, SHORT)))


def test_several_looks_that_were_left_behind_keep_no_lock(tmp_path: Path, hang: threading.Event) -> None:
    storage, gone = with_deadlines(LocalStorage(tmp_path)), threading.Event()
    calls = storage.calls
    before = calls.late_calls()
    with pytest.raises(ReplicaNotAvailableError):
        storage.run_as_one_call(lambda: calls.run("a look", hang.wait, SHORT))
    calls._left.clear()
    calls.let_go("a lock", gone.set, 10, before)
    assert gone.is_set()


def test_several_calls_that_may_change_something_keep_a_lock(
    tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, gone = with_deadlines(LocalStorage(tmp_path)), threading.Event()
    calls = storage.calls
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    before = calls.late_calls()
    with pytest.raises(ReplicaNotAvailableError, match="a put"):
        storage.run_as_one_call(lambda: calls.run("a put", hang.wait, SHORT), changes=True)
    with pytest.raises(ReplicaNotAvailableError, match="a put"):
        calls.let_go("a lock", gone.set, 10, before)
    assert not gone.is_set()
    hang.set()
    assert gone.wait(10)


def test_a_call_of_another_root_within_one_has_its_own_limit(hang: threading.Event) -> None:
    target, donor = Calls("target"), Calls("donor")
    with pytest.raises(ReplicaNotAvailableError, match="donor hangs"):
        target.begin("learning", lambda: donor.run("a read", hang.wait, SHORT))()
    assert target.run("a look", lambda: 1, 10) == 1, "it is not the target that hangs"


def test_roots_that_copy_from_one_another_do_not_wait_for_one_another() -> None:
    one, other = Calls("one"), Calls("other")
    together = threading.Barrier(2 * MOST_CALLS)

    def copy(donor: Calls) -> int:
        together.wait(10)  # all threads that may learn do
        return donor.run("a read", lambda: 1, 5)

    waits = [target.begin("learning", lambda donor=donor: copy(donor)) for target, donor in [(one, other), (other, one)]
             for _ in range(MOST_CALLS)]  # fmt: skip
    assert sum(wait() for wait in waits) == 2 * MOST_CALLS


def test_without_threads_a_call_is_made_by_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._process.value, "idle", module._Idle())
    monkeypatch.setattr(module, "start_thread", lambda *_, **__: _raise(RuntimeError("no more")))
    assert Calls("root").run("a look", threading.current_thread, 10) is threading.current_thread()


def test_without_threads_a_root_that_hangs_is_not_tried_again_by_the_caller(
    hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, made = Calls("root"), list[int]()
    with pytest.raises(ReplicaNotAvailableError):
        calls.run("a look", hang.wait, SHORT)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module._process.value, "idle", module._Idle())
    monkeypatch.setattr(module, "start_thread", lambda *_, **__: _raise(RuntimeError("no more")))
    for _ in range(2 * MOST_CALLS):  # none of them takes a place
        with pytest.raises(ReplicaNotAvailableError, match="hangs: a look"):
            calls.run("another", lambda: made.append(1), 10)
    assert made == []
    hang.set()
    until(lambda: not calls._left)
    calls.run("another", lambda: made.append(1), 10)
    assert made == [1]


# --- what ends a lock ----------------------------------------------------------------------------------------------


def leave_behind(calls: Calls, what: str, hang: threading.Event, *, changes: bool = True) -> None:
    with pytest.raises(ReplicaNotAvailableError, match=what):
        calls.run(what, hang.wait, SHORT, changes=changes)


def test_a_lock_is_let_go_of_when_the_last_call_has_ended_that_was_left_behind_under_it(
    hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, first, gone = Calls("root"), threading.Event(), threading.Event()
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    before = calls.late_calls()
    leave_behind(calls, "a write", first)
    leave_behind(calls, "a removal", hang)
    with pytest.raises(ReplicaNotAvailableError, match=r"hangs: a (write|removal) has not returned"):
        calls.let_go("a lock", gone.set, 10, before)
    first.set()
    until(lambda: len(calls._late_calls) == 1)
    assert not gone.is_set(), "the removal may still be done, under another settler's hands"
    hang.set()
    assert gone.wait(10)


def test_a_call_that_ctrl_c_left_behind_keeps_the_lock_too(
    hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, gone = Calls("root"), threading.Event()
    before = calls.late_calls()
    monkeypatch.setattr(calls, "_patience", lambda _: _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        calls.run("a write", hang.wait, 600)
    monkeypatch.undo()
    calls.let_go("a lock", gone.set, 10, before)  # no error of its own stands in the place of Ctrl-C
    assert not gone.is_set()
    hang.set()
    assert gone.wait(10)


@pytest.mark.parametrize("case", ["a look", "before the lock"])
def test_what_can_do_no_harm_keeps_no_lock(case: str, hang: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, gone = Calls("root"), threading.Event()
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    before = calls.late_calls()
    leave_behind(calls, case, hang, changes=case != "a look")
    calls.let_go("a lock", gone.set, 10, before if case == "a look" else calls.late_calls())
    assert gone.is_set()


# --- forked children -----------------------------------------------------------------------------------------------


def test_a_forked_child_knows_of_no_call_that_its_parent_left_behind(tmp_path: Path, hang: threading.Event) -> None:
    storage = with_deadlines(LocalStorage(tmp_path))
    with pytest.raises(ReplicaNotAvailableError):
        storage.calls.run("a look", hang.wait, SHORT)
    in_a_child(lambda: storage.names(""))


def test_a_forked_child_does_not_wait_for_calls_that_its_parent_makes(tmp_path: Path, hang: threading.Event) -> None:
    storage = with_deadlines(LocalStorage(tmp_path))
    waits = [storage.calls.begin("a look", hang.wait) for _ in range(MOST_CALLS)]
    in_a_child(lambda: storage.names(""))
    hang.set()
    assert all(wait() for wait in waits)


def test_a_forked_child_waits_for_no_lock_that_a_thread_of_its_parent_holds(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "file").write_bytes(b"1")
    roots = Roots.of(storage)
    roots._listed = Listed((Address("id", storage.url),), ())
    lag = Lag.of("a unit")

    def ask() -> None:
        with_deadlines(storage).calls.run("a look", lambda: 1, 30)
        assert Roots.of(storage) is roots
        assert roots.listed()
        assert lag.seconds("root", 1.0) == Lag.of("a unit").seconds("root", 1.0) == 0
        assert not durable_files.has(storage, "file", storage.info("file"))
        race.check_store(tried)

    tried = LocalStorage(tmp_path)
    tried._client = "a mount that another root has tried"
    race._seen.add((tried.device(), tried.client))
    locks = roots_module._lock, roots._lock, lag_module._lock, durable_files._lock, race._one_at_a_time
    with contextlib.ExitStack() as held:
        for lock in (module._process.value.lock, *(each.value for each in locks)):
            held.enter_context(lock)
        in_a_child(ask)


def test_a_forked_child_leaves_a_call_that_its_parent_began(hang: threading.Event) -> None:
    calls, begun = Calls.of("forked"), threading.Event()
    wait = calls.begin("learning", lambda: calls.run("a step", lambda: (begun.set(), hang.wait()), SHORT))
    assert begun.wait(10)

    def leave() -> None:
        with pytest.raises(ReplicaNotAvailableError, match="a step"):
            wait()

    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with calls._changed.value:
            held.set()
            forked.wait(60)

    holding = threading.Thread(target=hold)  # the lock knows its owner, so this is not the one that forks
    holding.start()
    assert held.wait(10)
    try:
        in_a_child(leave)
    finally:
        forked.set()
        holding.join()


def test_a_forked_child_ends_a_turn_of_its_parent(tmp_path: Path) -> None:
    storage, held, forked = with_deadlines(LocalStorage(tmp_path)), threading.Event(), threading.Event()
    turn, lines = storage.turn("", 10), storage.calls.lines.value
    assert turn.__enter__()

    def hold() -> None:
        with lines._changed:
            held.set()
            forked.wait(60)

    holding = threading.Thread(target=hold)  # as one that stands in line
    holding.start()
    assert held.wait(10)
    try:
        in_a_child(lambda: turn.__exit__(None, None, None))
    finally:
        forked.set()
        holding.join()
        turn.__exit__(None, None, None)
