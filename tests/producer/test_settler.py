"""When a producer's settler looks: soon after a commit, once for those that follow each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog.producer.settler import LOOK_BYTES, LOOK_SECONDS, Settler
from pyspark_commitlog.storage.local import LocalStorage


class Asked:
    """A pool that does nothing of itself."""

    def __init__(self) -> None:
        self.seconds = list[float]()

    def schedule(self, job: object, seconds: float = 0.0) -> None:
        self.seconds.append(seconds)

    def wait(self, job: object, seconds: float) -> bool:
        return True


@pytest.fixture
def settler(tmp_path: Path) -> tuple[Settler, Asked]:
    made, asked = Settler(LocalStorage(tmp_path), "t"), Asked()
    made._pool = asked  # type: ignore[assignment]
    return made, asked


def test_small_commits_are_looked_at_together(settler: tuple[Settler, Asked]) -> None:
    made, asked = settler
    for _ in range(3):
        made.committed("id", 100)
    assert asked.seconds == [LOOK_SECONDS] * 3


def test_much_is_looked_at_at_once(settler: tuple[Settler, Asked]) -> None:
    made, asked = settler
    for _ in range(2):
        made.committed("id", LOOK_BYTES // 2)
    assert asked.seconds == [LOOK_SECONDS, 0.0]


def test_it_is_looked_before_the_producer_closes(settler: tuple[Settler, Asked]) -> None:
    made, asked = settler
    made.join(1)
    assert asked.seconds == []
    made.committed("id", 1)
    made.join(1)
    assert asked.seconds == [LOOK_SECONDS, 0.0]
