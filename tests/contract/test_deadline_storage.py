"""The door to one of several roots keeps the contract of the one that it hands on to."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.journal.putting import JournalPutter
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.calls import MOST_CALLS
from pyspark_commitlog.storage.deadline_storage import with_deadlines
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.turns import Turns
from pyspark_commitlog.testing.storage_contract import Opener, StorageContract
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.directory import RawDirectory
from tests.support.records import append, batch_of
from tests.support.world import World


def opened(root: Path) -> Storage:
    return with_deadlines(LocalStorage(root))


class TestLimitedStorage(RawDirectory, StorageContract):
    """A local directory behind limits."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        """Return what opens the directory, as another process would."""
        (tmp_path / "root").mkdir()
        return partial(opened, tmp_path / "root")


def test_what_is_mapped_is_a_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    piece = with_deadlines(LocalStorage(tmp_path)).map("file", 0, 6)
    (tmp_path / "file").write_bytes(b"after!")
    assert bytes(piece) == b"before", "a page of a mapped file is read when it is touched, whoever does, however long"


def test_it_goes_to_other_processes(tmp_path: Path) -> None:
    storage = with_deadlines(LocalStorage(tmp_path))
    storage.others = ("one", "other")
    again = pickle.loads(pickle.dumps(storage))
    again.put_if_absent("file", b"1")
    assert (storage.read("file"), again.others, again.url) == (b"1", storage.others, storage.url)


def test_limits_are_put_once(tmp_path: Path) -> None:
    storage = with_deadlines(LocalStorage(tmp_path))
    assert with_deadlines(storage) is storage


# --- turns ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """What a call waits for that hangs; it goes on at the end."""
    event = threading.Event()
    yield event
    event.set()


def leave_behind(storage: Storage, hang: threading.Event) -> None:
    """Have a root hang: one of its calls is left behind."""
    with pytest.raises(ReplicaNotAvailableError):
        with_deadlines(storage).calls.run("a read of another file", hang.wait, 0.05)


def of_another_process(root: Path) -> LocalStorage:
    """Return a door to a root that takes its turns for itself: those of one process stand in one line."""
    storage = LocalStorage(root)
    storage._turns = Turns()
    return storage


def comes(root: Path, directory: str) -> bool:
    """Return whether the turn of a directory is free for another process."""
    with of_another_process(root).turn(directory, 0.01) as mine:
        return mine


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.001)


def taking(storage: Storage, directories: list[str], took: list[bool]) -> list[threading.Thread]:
    """Have a thread wait for the turn of each directory."""

    def wait(directory: str) -> None:
        with storage.turn(directory, 60) as mine:
            took.append(mine)

    threads = [threading.Thread(target=wait, args=(directory,)) for directory in directories]
    for thread in threads:
        thread.start()
    return threads


def waits(thread: threading.Thread) -> bool:
    """Return whether a thread waits for a turn."""
    frame, names = sys._current_frames().get(thread.ident or 0), list[str]()
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return "turn" in names and ("wait" in names or "_wait" in names)


def test_a_turn_is_given_back_while_the_root_hangs(tmp_path: Path, hang: threading.Event) -> None:
    (tmp_path / "d").mkdir()
    storage = with_deadlines(LocalStorage(tmp_path))
    with storage.turn("d", 1) as mine:
        assert mine
        leave_behind(storage, hang)
    assert comes(tmp_path, "d")


def test_nobody_waits_for_a_turn_at_a_root_that_hangs(tmp_path: Path, hang: threading.Event) -> None:
    """The one who has it may be the one that hangs."""
    (tmp_path / "d").mkdir()
    storage = with_deadlines(LocalStorage(tmp_path))
    with storage.turn("d", 1):
        leave_behind(storage, hang)
        with pytest.raises(ReplicaNotAvailableError, match="hangs"), storage.turn("d", 3):
            raise AssertionError("it has a turn")


def test_those_who_wait_for_a_turn_take_no_place_of_the_calls_of_the_one_who_has_it(tmp_path: Path) -> None:
    """More threads than a root has places append to one journal: the holder's looks failed as those of one that hangs."""
    (tmp_path / "d").mkdir()
    storage, took = with_deadlines(LocalStorage(tmp_path)), list[bool]()
    with storage.turn("d", 60) as mine:
        assert mine
        threads = taking(storage, ["d"] * (MOST_CALLS + 4), took)
        until(lambda: all(waits(thread) for thread in threads))
        assert storage.names("d") == []
    for thread in threads:
        thread.join(60)
    assert took == [True] * len(threads)


def test_where_there_are_no_turns_nobody_stands_in_line(tmp_path: Path) -> None:
    """As in a bucket: those who come meanwhile put, too."""
    inner = LocalStorage(tmp_path)
    inner._can_append = False
    storage, began = with_deadlines(inner), time.monotonic()
    with storage.turn("", 60) as mine, storage.turn("", 60) as second:
        assert (mine, second) == (False, False)
    assert time.monotonic() - began < 30


def test_turns_that_other_processes_have_take_no_place_of_other_calls(tmp_path: Path) -> None:
    """Of more than a few nobody waits for: safety does not rest on them."""
    directories = [f"d{number}" for number in range(MOST_CALLS + 1)]
    storage, other, took = with_deadlines(LocalStorage(tmp_path)), of_another_process(tmp_path), list[bool]()
    with ExitStack() as held:
        for directory in directories:
            (tmp_path / directory).mkdir()
            assert held.enter_context(other.turn(directory, 60))
        threads = taking(storage, directories, took)
        until(lambda: took == [False] and sum(waits(thread) for thread in threads) == MOST_CALLS)
        assert storage.names("d0") == []
    for thread in threads:
        thread.join(60)
    assert sorted(took) == [False] + [True] * MOST_CALLS


def test_what_was_done_in_a_turn_is_done_though_the_turn_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    inner, give = LocalStorage(tmp_path), Turns.give

    def fails(turns: Turns, fd: int) -> None:
        give(turns, fd)
        raise OSError("it is closed already")

    monkeypatch.setattr(Turns, "give", fails)
    with with_deadlines(inner).turn("d", 1) as mine:
        assert mine


def test_a_commit_that_landed_is_none_that_failed_though_its_root_hangs_from_then_on(
    tmp_path: Path, hang: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would say that nothing was put: a writer without an id would commit the same rows again."""
    world, acknowledged = World(tmp_path / "root"), JournalPutter._acknowledged
    world.create()
    storage = with_deadlines(world.storage())

    def then_hangs(*given: object) -> object:
        stored = acknowledged(*given)  # type: ignore[arg-type]
        leave_behind(storage, hang)
        return stored

    topic = TopicLog(storage, "t")
    with monkeypatch.context() as patched:
        patched.setattr(JournalPutter, "_acknowledged", then_hangs)
        append(topic, batch_of([b"1"]))
    assert world.values() == [b"1"]
    assert comes(world.path, "topics/t/journal")
