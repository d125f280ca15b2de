"""What the system tells of new names in directories."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_commitlog.storage import TEMPORARY, events
from pyspark_commitlog.storage.events import Events
from pyspark_commitlog.storage.local.local import LocalStorage

LONG = 60.0


@pytest.fixture
def followed() -> Iterator[Events]:
    found = Events.open(TEMPORARY)
    assert found is not None
    yield found
    found.close()


def directory(tmp_path: Path, name: str = "d") -> str:
    (tmp_path / name).mkdir()
    return str(tmp_path / name)


def test_a_put_is_told_once_and_its_temporary_file_is_not(tmp_path: Path, followed: Events) -> None:
    storage = LocalStorage(tmp_path)
    number = storage.follow(followed, directory(tmp_path).rpartition("/")[2])
    other = followed.follow(directory(tmp_path, "other"))
    assert None is not number != other is not None
    storage.put_if_absent("d/1", b"x")
    assert followed.wait(LONG)[1] == {number}
    waited, found = followed.wait(0.05)
    assert found == set()
    assert waited >= 0.05
    (tmp_path / "d" / f"{TEMPORARY}1").touch()
    assert followed.wait(0.0)[1] == set()


def test_two_names_of_a_directory_are_one(tmp_path: Path, followed: Events) -> None:
    first = followed.follow(directory(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "d")
    assert followed.follow(str(tmp_path / "link")) == first


def test_what_is_not_there_is_not_followed(tmp_path: Path, followed: Events) -> None:
    assert followed.follow(str(tmp_path / "none")) is None
    assert not followed.follows(None)


def test_a_directory_that_is_deleted_is_told_and_followed_no_more(tmp_path: Path, followed: Events) -> None:
    number = followed.follow(directory(tmp_path))
    assert followed.follows(number)
    (tmp_path / "d").rmdir()
    assert followed.wait(LONG)[1] == {number}
    assert not followed.follows(number)


def test_what_is_forgotten_is_not_told(tmp_path: Path, followed: Events) -> None:
    kept, forgotten = followed.follow(directory(tmp_path)), followed.follow(directory(tmp_path, "e"))
    assert kept is not None
    followed.keep({kept})
    assert not followed.follows(forgotten)
    for name in "ed":
        (tmp_path / name / "f").touch()
    assert followed.wait(LONG)[1] == {kept}


def test_if_events_were_lost_all_is_told(tmp_path: Path, followed: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {followed.follow(directory(tmp_path, name)) for name in "ab"}
    real = os.read
    lost = events._HEAD.pack(-1, events._IN_Q_OVERFLOW, 0, 0)
    monkeypatch.setattr(os, "read", lambda *args: lost + real(*args))
    (tmp_path / "a" / "f").touch()
    assert followed.wait(LONG)[1] == numbers


def test_a_wait_is_ended_by_another_thread(followed: Events) -> None:
    threading.Timer(0.05, followed.wake).start()
    waited, found = followed.wait(LONG)
    assert waited < LONG / 2
    assert found == set()
    followed.wake()
    followed.wake()
    followed.wait(LONG)
    assert followed.wait(0.01)[0] >= 0.01


class NoMore:
    """A C library whose system has no more of them for this user."""

    def inotify_init1(self, _: int) -> int:
        return -1


@pytest.mark.parametrize("libc", [None, NoMore()], ids=["not Linux", "no more of them"])
def test_where_there_is_none_nothing_is_followed(libc: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_libc", lambda: libc)
    assert Events.open(TEMPORARY) is None


def test_no_descriptor_stays_where_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: int) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "eventfd", none_left)
    before = set(os.listdir("/proc/self/fd"))
    assert Events.open(TEMPORARY) is None
    assert set(os.listdir("/proc/self/fd")) <= before, "those of earlier tests may be closed meanwhile"


def test_where_another_machine_may_write_nothing_tells(
    tmp_path: Path, followed: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(LocalStorage, "can_append", False)
    directory(tmp_path)
    assert storage.follow(followed, "d") is None
