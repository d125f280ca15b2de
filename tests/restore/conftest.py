"""A topic of which a copy was made, and that went on behind it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer
from pyspark_commitlog.consumer.shared import shared_topic
from tests.support.consumers import DEFAULTS, drain
from tests.support.records import append, batch_of
from tests.support.restores import Copy

#: In the copy, behind the copy, and behind the restore: by the length of the log that is restored.
BEFORE, GONE = [b"a0", b"a1", b"a2"], [b"b3", b"b4", b"b5"]
AFTER = {"shorter": [b"c3"], "equal": [b"c3", b"c4", b"c5"], "longer": [b"c3", b"c4", b"c5", b"c6", b"c7"]}
MADE_AGAIN = "removed and made again"
RESTORES = ["cp -a", "rsync", "topic", "snapshot", MADE_AGAIN]


class Scene:
    """A root on the real clock: a copy with `BEFORE` was made, the root has `GONE` too."""

    def __init__(self, path: Path) -> None:
        self.path = path / "root"
        CommitLog(str(self.path)).create_topic("t", 1, {"retention.ms": -1})
        self.put(BEFORE)
        self._aside = path

    def copy(self) -> None:
        """Make the copy; then the log goes on."""
        self._copied = Copy(self.path, self._aside / "aside")
        self.put(GONE)

    def put(self, values: Sequence[bytes]) -> None:
        """Commit each value by itself, as a process of its own."""
        for value in values:
            append(CommitLog(str(self.path)).root.topic("t"), batch_of([value]))

    def restore(self, way: str) -> None:
        """Put the copy back."""
        ways: dict[str, Callable[[], None]] = {
            "cp -a": self._copied.copied,
            "rsync": self._copied.synchronised,
            "topic": self._copied.one_topic,
            "snapshot": self._copied.rolled_back,
            MADE_AGAIN: self._make_again,
        }
        ways[way]()

    def _make_again(self) -> None:
        shutil.rmtree(self.path)
        CommitLog(str(self.path)).create_topic("t", 1, {"retention.ms": -1})

    def consumer(self, **settings: object) -> Consumer:
        """Return a consumer of this process: it shares what others of it keep."""
        return Consumer(str(self.path), "t", **{**DEFAULTS, **settings})

    @property
    def all(self) -> list[bytes]:
        """Return what is there before the restore."""
        return [*BEFORE, *GONE]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have consumers that poll on look at the newest entry every time, not once a second."""
    monkeypatch.setattr(shared_topic, "RECHECK_SECONDS", 0.0)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have consumers that poll on never look at the newest entry of themselves."""
    monkeypatch.setattr(shared_topic, "RECHECK_SECONDS", 3600.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A root of which no copy was made yet."""
    return Scene(tmp_path)


def values(each: Consumer) -> list[bytes | None]:
    """Return the values of all that there is to read."""
    return [record.value for record in drain(each)]
