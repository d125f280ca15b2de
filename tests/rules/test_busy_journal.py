"""Who lists a journal of a local disk, where others put entries in less time than a listing and a read take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyspark_commitlog.journal import Unchanged, reading
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.turns import Turns
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of
from tests.support.world import World

_JOURNAL = "topics/t/journal"
#: Listings of one that waits until nothing is put: it would go on for ever.
_MANY = 12


class _Busy(LocalStorage):
    """A door where another process commits after each listing of the journal, in turns of its own.

    `patient`: it commits in its turn alone; else also while somebody else has it. `commits`: so many at most.
    """

    patient, commits = True, _MANY

    def __init__(self, world: World) -> None:
        super().__init__(world.path, clock=world.clock)
        self._world, self.listings, self.asked = world, 0, 0

    @contextmanager
    def turn(self, directory: str, seconds: float) -> Iterator[bool]:
        """Count who asks."""
        self.asked += 1
        with super().turn(directory, seconds) as mine:
            yield mine

    def names(self, directory: str) -> list[str]:
        """List, then have the other one commit."""
        found = super().names(directory)
        if directory == _JOURNAL:
            self.listings += 1
            if self.listings <= self.commits and (not self.patient or self._is_free()):
                append(self._other(), batch_of([b"other"]))
        return found

    def _is_free(self) -> bool:
        storage = LocalStorage(self._world.path)
        storage._turns = Turns()
        with storage.turn(_JOURNAL, 0.001) as free:
            return free

    def _other(self) -> TopicLog:
        return TopicLog(_Hasty(self._world.path, clock=self._world.clock), "t")


class _Hasty(LocalStorage):
    """A door that waits for no turn."""

    turn = Storage.turn


@pytest.fixture
def busy(world: World) -> _Busy:
    append(world.create(), batch_of([b"first"]))
    return _Busy(world)


def test_who_opens_a_busy_topic_lists_its_journal_in_a_turn(world: World, busy: _Busy) -> None:
    """Anchor rule: what two listings show as the newest counts; others commit between two, but not in that turn."""
    newest = TopicLog(busy, "t").journal.newest()
    assert newest is not None
    assert newest.sequence == world.entries()[-1]
    assert busy.listings < _MANY // 2
    assert busy.asked == 1


def test_who_opens_a_topic_that_is_not_busy_asks_for_no_turn(busy: _Busy) -> None:
    """A turn is waited for behind those that commit."""
    busy.commits = 1
    TopicLog(busy, "t").journal.newest()
    assert (busy.listings, busy.asked) == (3, 0)


def test_who_appends_has_its_turn_when_it_lists(busy: _Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one goes on without turns, as it waited in vain: the turn is not asked for again, which nobody gives."""
    monkeypatch.setattr(reading, "_TURN_SECONDS", 0.1)
    busy.patient, busy.commits = False, 4
    TopicLog(busy, "t").journal.append(lambda base, slot: Unchanged(None))
    assert (busy.listings, busy.asked) == (7, 1)


def test_a_turn_that_does_not_come_is_not_waited_for(
    world: World, busy: _Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder is stopped, and others go on without."""
    monkeypatch.setattr(reading, "_TURN_SECONDS", 0.01)
    busy.patient, busy.commits = False, 5
    stopped = LocalStorage(world.path)
    stopped._turns = Turns()
    with stopped.turn(_JOURNAL, 1) as held:
        assert held
        newest = TopicLog(busy, "t").journal.newest()
    assert newest is not None
    assert newest.sequence == world.entries()[-1]
