"""Recover beside collectors: the next metadata root has no gap, whatever the roots that are left collect meanwhile.

The interleavings that it has to survive:

1. They collect while entries are copied: before the first one, or between two; or all the time.
2. It is killed between two entries, or when it has put the first of what was left; they collect; it is run again.
3. An entry that names a table is collected after it was read, its table with it.
4. A process that was stopped puts an entry where the root that is taken has collected it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.admin import recovering
from pyspark_commitlog.replication.protocol.learning import CollectedError, Replica
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.write import writers
from pyspark_commitlog.topic.write.writers import Transaction
from tests.crash.conftest import fast_path as fast_path
from tests.replication.lost import at, recover
from tests.support.replicas import CONFIG, Replicated, once_at, settle_at

JOURNAL = "t/journal"


class Killed(BaseException):
    """What a SIGKILL is to the process."""


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def settled(roots: Replicated, many: int = 4) -> None:
    """Have all but the newest entries settled everywhere, each of another writer, and take the metadata away."""
    roots.create()
    for number in range(many):
        roots.write(b"%d" % number, writer=Transaction(f"txn:{number}", 1))
        for root in "abc":
            settle_at(roots, root)
    roots.clock.advance(DAY_MS)
    roots.write(b"last")
    roots.take_away("m")


def entries(roots: Replicated, root: str) -> list[int]:
    return [int(path.stem) for path in sorted((roots.path / root / "topics/t/journal").glob("*.json"))]


def collected(roots: Replicated) -> None:
    before = entries(roots, "a")
    for root in "abc":
        topic = roots.at(root)
        collect(topic, topic.newest()[1].topic_id)
    assert len(before) - len(entries(roots, "a")) > 3


def at_put(number: int, act: Callable[[], object]) -> Hook:
    """Return a hook that acts before an entry of the topic is put, the how manyth."""
    puts = count(1)

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and JOURNAL in path and next(puts) == number:
            act()

    return hook


def kill() -> None:
    raise Killed


def goes_on(roots: Replicated, many: int = 4) -> None:
    """All goes on at `n`, which has all from some entry on; it can be lost as well."""
    there = entries(roots, "n")
    assert there == list(range(there[0], there[-1] + 1))
    for lost, to in (("m", ""), ("n", "n2")):
        if to:
            roots.take_away(lost)
            assert dict(recover(roots, lost, to=to).failed) == {}
        at(roots, "b").write(lost.encode(), topic=roots.topic("b"))
    values = [*(b"%d" % number for number in range(many)), b"last", b"m", b"n"]
    assert [roots.values(root) for root in "abc"] == [values] * 3


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_they_are_collected_while_they_are_copied(roots: Replicated, number: int) -> None:
    settled(roots)
    roots.hooks["n"] = at_put(number, lambda: collected(roots))
    assert dict(recover(roots, "m").failed) == {}
    roots.hooks.clear()
    goes_on(roots)


def test_they_are_collected_all_the_time(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(roots)
    asked = list[int | None]()

    def gone(source: Replica, last: Stored | None, newest: Stored, oldest: int | None) -> Iterator[Stored]:
        asked.append(oldest)
        raise CollectedError("injected")

    monkeypatch.setattr(recovering, "following", gone)
    with pytest.raises(ReplicaNotAvailableError, match="collected all the time while they are copied; run it again"):
        recover(roots, "m")
    assert len(asked) == recovering._TRIES
    monkeypatch.undo()
    assert dict(recover(roots, "m").failed) == {}
    goes_on(roots)


def test_they_are_collected_after_it_was_cut_off(roots: Replicated) -> None:
    settled(roots)
    roots.hooks["n"] = at_put(3, kill)
    with pytest.raises(Killed):
        recover(roots, "m")
    roots.hooks["n"] = once_at("delete", JOURNAL, kill)
    collected(roots)
    with pytest.raises(Killed):
        recover(roots, "m")
    roots.hooks.clear()
    assert dict(recover(roots, "m").failed) == {}
    goes_on(roots)


def test_a_table_is_collected_after_its_entry_was_read(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "WRITER_ROWS", 2)
    settled(roots, 8)
    tables = list((roots.path / "b").glob("topics/t/*/side/*.writers"))
    assert len(tables) > 1
    roots.hooks["n"] = once_at("info", min(tables).name, lambda: collected(roots))
    assert dict(recover(roots, "m").failed) == {}
    assert not min(tables).exists()
    assert entries(roots, "n") == entries(roots, "b"), "all that is left"
    roots.hooks.clear()
    goes_on(roots, 8)


def test_what_was_put_late_where_it_was_collected_is_not_begun_with(roots: Replicated) -> None:
    settled(roots)
    late = {path: path.read_bytes() for path in (roots.path / "a" / "topics/t/journal").glob("*02.json")}
    collected(roots)
    for path, data in late.items():
        path.write_bytes(data)
    assert entries(roots, "a")[:1] == [2]
    assert dict(recover(roots, "m").failed) == {}
    assert 2 not in entries(roots, "n")
    goes_on(roots)


def test_the_next_metadata_root_holds_no_replica(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "replication.factor": 2})
    leader = roots.named(*roots.state().replicas)
    (beside,) = set("abc") - set(leader)
    for number in range(4):
        roots.write(b"%d" % number, writer=Transaction(f"txn:{number}", 1))
        for root in leader:
            settle_at(roots, root)
    roots.clock.advance(DAY_MS)
    roots.write(b"last")
    roots.take_away("m")
    for root in leader:
        topic = roots.at(root)
        collect(topic, topic.newest()[1].topic_id)
    assert entries(roots, leader[0])[0] > 1
    for execute, done in ((True, False), (False, True), (True, True)):
        found = recover(roots, "m", to=beside, at=leader[0], execute=execute)
        assert (found.fault, found.done) == (None, done)
    at(roots, leader[0]).write(b"more", topic=roots.topic(leader[0]))
    assert roots.values(leader[0])[-2:] == [b"last", b"more"]
