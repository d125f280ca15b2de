"""A root that learns many entries is looked at once, after the last: where a look is a request it costs one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyspark_commitlog.errors import SyncFailedError
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import learn, put_bytes
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import io_error
from tests.support.replicas import Replicated

_WRITES = 30


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    """Return roots of which `c` lags; in all of them looks are requests."""
    roots = Replicated(tmp_path)
    roots.create()
    roots.take_away("c")
    for number in range(_WRITES):
        roots.write(b"%d" % number)
    roots.give_back("c")
    monkeypatch.setattr(LocalStorage, "bills_requests", True)
    return roots


def expected() -> list[bytes]:
    return [b"%d" % number for number in range(_WRITES)]


def test_it_is_looked_at_once_not_after_each_entry(roots: Replicated) -> None:
    done = list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if operation in ("info", "put_if_absent") and moment == "before" and "t/journal/" in path:
            done.append(operation)

    log = roots.log()
    roots.hooks["c"] = hook
    assert log.replicas.sync("t").joined == (roots.id_of("c"),)
    first = done.index("put_if_absent")
    assert done[first : first + _WRITES] == ["put_if_absent"] * _WRITES
    assert roots.values("c") == expected()


def test_what_it_has_learned_counts_where_the_look_fails(roots: Replicated) -> None:
    put, failed = list[str](), list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "t/journal/" in path:
            put.append(path)
        if (operation, moment) == ("info", "before") and path in put and not failed:
            failed.append(path)
            raise OSError(errno.EIO, "injected: no reply")

    log = roots.log()
    roots.hooks["c"] = hook
    assert log.replicas.sync("t").joined == (roots.id_of("c"),)
    assert len(failed) == 1
    assert len(put) > _WRITES
    assert roots.values("c") == expected()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_put_without_a_reply_is_made_again(roots: Replicated, when: str) -> None:
    """Each of the entries: it landed, or not."""
    lost = set[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", when) and "t/journal/" in path and path not in lost:
            lost.add(path)
            raise io_error()

    log = roots.log()
    roots.hooks["c"] = hook
    assert log.replicas.sync("t").joined == (roots.id_of("c"),)
    assert len(lost) > _WRITES
    assert roots.values("c") == expected()


def test_one_that_another_process_put_is_not_remembered_as_the_newest(roots: Replicated) -> None:
    """Another process overtakes: what this one has put is not the newest that the root has learned."""
    ours, theirs, overtaken, looked = roots.decided_log().places, roots.decided_log().places, list[str](), list[str]()
    newest = ours.newest()
    root = roots.id_of("c")

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "after") and "t/journal/" in path and not overtaken:
            overtaken.append(path)
            learn(theirs.decider(), theirs.at(root), theirs.unit, theirs.donors(state_of(newest.entry)), newest)
            overtaken.append("by all")
        if (operation, moment) == ("info", "before") and overtaken == [path, "by all"]:
            looked.append(path)

    roots.hooks["c"] = hook
    learned = learn(ours.decider(), ours.at(root), ours.unit, ours.donors(state_of(newest.entry)), newest)
    assert learned == newest.sequence
    assert len(overtaken) == 2
    assert looked == [], "what was overtaken is not looked at, to be remembered as the newest"
    assert ours.at(root).journal.newest() == theirs.at(root).journal.newest()


def test_an_entry_that_another_process_put_is_synced_before_it_counts(tmp_path: Path) -> None:
    """R5: that one may have been killed between its put and the sync of the directory: a name that power loss takes."""
    roots = Replicated(tmp_path)
    roots.create()
    roots.write(b"0")
    places = roots.decided_log().places
    newest, target, calls = places.newest(), places.at(roots.id_of("c")), list[str]()
    data = places.decider().journal.bytes_of(newest.entry)

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "sync_directory" and path == "topics/t/journal":
            calls.append(moment)
            raise SyncFailedError("injected")

    roots.hooks["c"] = hook
    with pytest.raises(SyncFailedError):
        put_bytes(target, places.unit, newest.entry, data)
    assert calls == ["before"]
    del roots.hooks["c"]
    put_bytes(target, places.unit, newest.entry, data)
