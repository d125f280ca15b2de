"""Recover where something of a unit is damaged at a root that is left: that unit alone is concerned.

1. The newest entry is damaged, or lies on a bad sector, at a root beside which others have as much: it is left out.
2. No other root has as much: nobody can say what would be given up. All else goes on, nothing is begun as new, also
   where the newest entry is damaged at all roots; where nothing of it is whole, nothing goes on.
3. An entry below the newest one is damaged, at the root that is taken or at all: before it is chosen, or copied.
4. A table is damaged, at the root that is taken or at all.
5. An entry below the newest one is lost, at one root or at all.
6. What can't be read there can't be written either: it is the next metadata root that fails.
7. A server that is away, at whichever step, is no damage: it may have more than others.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.model import Recovered
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.topic.write import writers
from pyspark_commitlog.topic.write.writers import Transaction
from tests.crash.conftest import fast_path as fast_path
from tests.replication.lost import at, url
from tests.support.replicas import (
    CONFIG,
    Replicated,
    commit_offset,
    committed_offset,
    elect,
    group,
    no_device,
    takes_no_entry,
)


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    made = Replicated(fast_path)
    made.create()
    made.write(b"0")
    made.log().create_topic("u", 1, CONFIG)
    return made


def recover(roots: Replicated, *, execute: bool = True) -> dict[str, Recovered]:
    found = roots.log("b").replicas.recover(url(roots, "n"), [url(roots, "m")], execute=execute)
    return {each.topic: each for each in found}


def entry(roots: Replicated, root: str, place: int = -1) -> Path:
    return sorted((roots.path / root / "topics/t/journal").glob("*.json"))[place]


def spoil(path: Path) -> Callable[[], object]:
    """Flip a bit of a file; return what restores it."""
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    return lambda: path.write_bytes(data)


def on_a_bad_sector(roots: Replicated, root: str, name: str) -> None:
    def hook(operation: str, path: str, moment: str) -> None:
        if operation in ("read", "fetch") and path.endswith(f"t/journal/{name}"):
            raise OSError(errno.EIO, "injected: a bad sector")

    roots.hooks[root] = hook


def does_not_answer(roots: Replicated, root: str, part: str, *operations: str) -> None:
    def hook(operation: str, path: str, moment: str) -> None:
        if operation in operations and part in path:
            raise OSError(errno.ESTALE, "injected: the server is away")

    roots.hooks[root] = hook


@pytest.mark.parametrize("root", ["a", "b", "c"])
def test_a_root_that_does_not_answer_is_not_taken_for_damaged(roots: Replicated, root: str) -> None:
    """What it has learned alone would be given up, though it is there again a moment later."""
    roots.take_away("m")
    does_not_answer(roots, root, f"t/journal/{entry(roots, root).name}", "read", "fetch")
    with pytest.raises((CommitLogError, OSError), match="the server is away"):
        recover(roots)
    assert not (roots.path / "n/topics/t").exists()
    del roots.hooks[root]
    found = recover(roots)["t"]
    assert (found.fault, dict(found.failed)) == (None, {})


def longest_at_b(roots: Replicated) -> None:
    """Have `b` alone have two records that were acknowledged with acks=1, and take the metadata away."""
    elect(roots, "b")
    roots.hooks = dict.fromkeys("ac", no_device)
    for value in (b"1", b"2"):
        roots.write(value, acks_all=False, topic=roots.topic("b"))
    roots.hooks.clear()
    assert not roots.decided_log("m").pusher.push().failed
    assert len(roots.state().on) == 2
    roots.take_away("m")


#: Operations of recover that meet a server which is away: root, part of the path (a number: of the entry at that place).
_STEPS: dict[str, tuple[str, str | int, tuple[str, ...]]] = {
    "above the high watermark": ("b", -2, ("read", "fetch")),
    "settled": ("b", "/settle", ("names",)),
    "put": ("b", "t/journal", ("put_if_absent",)),
    "copied": ("b", 1, ("read", "fetch")),
    "made at the next root": ("n", "topics/t", ("make_directory",)),
    "decided at the next root": ("n", "t/journal", ("read", "fetch")),
}


@pytest.mark.parametrize("step", _STEPS)
def test_a_server_that_is_away_at_a_step_keeps_all(roots: Replicated, step: str) -> None:
    """It is no damage, by which one unit would be left with less than there is: nothing is concluded, and all run again."""
    longest_at_b(roots)
    root, part, operations = _STEPS[step]
    if step.startswith("decided"):
        recover(roots)
    if isinstance(part, int):
        part = f"t/journal/{entry(roots, root, part).name}"
    does_not_answer(roots, root, part, *operations)
    with pytest.raises((CommitLogError, OSError), match="the server is away") as raised:
        recover(roots, execute=not step.startswith("decided"))
    assert not isinstance(raised.value, ReplicaNotAvailableError), "as of damage"
    del roots.hooks[root]
    found = recover(roots)["t"]
    assert (found.fault, dict(found.failed)) == (None, {})
    after = at(roots, "b")
    after.write(b"3", topic=roots.topic("b"))
    assert roots.values("b") == [b"0", b"1", b"2", b"3"]


def test_a_server_that_is_away_is_not_passed_over_for_an_older_entry(roots: Replicated) -> None:
    """The newest entry is damaged at all roots: the next metadata root begins with the one below, once that is read."""
    roots.write(b"1")
    roots.take_away("m")
    whole = [spoil(entry(roots, root)) for root in "abc"]
    below = entry(roots, "b", -2).name
    does_not_answer(roots, "b", f"t/journal/{below}", "read", "fetch")
    with pytest.raises(OSError, match="the server is away"):
        recover(roots)
    assert not (roots.path / "n/topics/t").exists()
    del roots.hooks["b"]
    assert recover(roots)["t"].fault
    assert entry(roots, "n").name == below
    for restore in whole:
        restore()
    assert recover(roots)["t"].fault is None


@pytest.mark.parametrize("bad", ["a bit", "a sector"])
@pytest.mark.parametrize("root", ["a", "c"])
def test_a_root_with_a_damaged_newest_entry_is_left_out(roots: Replicated, root: str, bad: str) -> None:
    roots.take_away("m")
    if bad == "a bit":
        spoil(entry(roots, root))
    else:
        on_a_bad_sector(roots, root, entry(roots, root).name)
    id_of = at(roots, "b").id_of
    for execute in (False, True):
        found = recover(roots, execute=execute)
        assert (found["t"].fault, list(found["t"].failed)) == (None, [id_of(root)])
        assert id_of(root) not in (found["t"].root, *found["t"].ends)
        assert (found["u"].fault, dict(found["u"].failed)) == (None, {})
        assert execute or url(roots, root) in found["t"].failed[id_of(root)]
    after = at(roots, "b")
    after.write(b"1", topic=roots.topic("b"))
    assert roots.values("b") == [b"0", b"1"]
    roots.hooks.clear()
    roots.log(root).topic("t").repair()
    roots.log("b").replicas.sync()
    assert after.isr() == "abc"
    assert [roots.values(each) for each in "abc"] == [[b"0", b"1"]] * 3


def longest_at_c(roots: Replicated) -> None:
    """Have `c` alone have a record that was acknowledged with acks=1, and take the metadata away."""
    elect(roots, "c")
    roots.hooks = dict.fromkeys("ab", no_device)
    roots.write(b"1", acks_all=False, topic=roots.topic("c"))
    roots.hooks.clear()
    roots.take_away("m")


def test_where_no_other_root_has_as_much_all_else_goes_on(roots: Replicated) -> None:
    longest_at_c(roots)
    restore = spoil(entry(roots, "c"))
    for execute in (False, True, True):
        found = recover(roots, execute=execute)
        assert found["t"].root is None
        assert f"{url(roots, 'c')}: topics/t/journal/{entry(roots, 'c').name}" in str(found["t"].fault)
        assert (found["u"].fault, dict(found["u"].failed)) == (None, {})
    after = at(roots, "b")
    after.write(b"u", topic=roots.topic("b", "u"))
    with pytest.raises(ReplicaNotAvailableError, match="recover` again"):
        roots.decided_log("b").pusher.change("touch", lambda state, base: state)
    with pytest.raises(CommitLogError):
        roots.log("b").create_topic("t", 1, CONFIG)
    restore()
    assert (recover(roots)["t"].root, recover(roots)["t"].done) == (after.id_of("c"), True)
    after.write(b"2", topic=roots.topic("b"))
    assert [roots.values(each) for each in "abc"] == [[b"0", b"1", b"2"]] * 3


@pytest.mark.parametrize("where", ["b", "abc"])
def test_an_entry_that_is_lost_keeps_one_unit(roots: Replicated, where: str) -> None:
    elect(roots, "b")
    for value in (b"1", b"2"):
        roots.write(value)
    roots.take_away("m")
    lost = {entry(roots, root, -2): entry(roots, root, -2).read_bytes() for root in where}
    for path in lost:
        path.unlink()
    for execute in (False, True):
        found = recover(roots, execute=execute)
        assert (found["u"].fault, dict(found["u"].failed)) == (None, {})
        assert (found["t"].fault is None) is (where == "b")
    if where == "abc":
        assert "is missing, and not settled" in str(found["t"].fault)
        with pytest.raises(CommitLogError):
            roots.log("b").create_topic("t", 1, CONFIG)
    for path, data in lost.items():
        path.write_bytes(data)
    assert recover(roots)["t"].fault is None
    after = at(roots, "b")
    after.write(b"3", topic=roots.topic("b"))
    assert [roots.values(each) for each in "abc"] == [[b"0", b"1", b"2", b"3"]] * 3


def groups(roots: Replicated, root: str) -> list[Path]:
    return sorted((roots.path / root).glob("groups/*/journal/*.json"))


def test_where_all_roots_have_it_damaged_it_is_not_begun_as_new(roots: Replicated) -> None:
    roots.write(b"1")
    for offset in (1, 2):
        commit_offset(roots, offset)
    elect(roots, "b")
    roots.take_away("m")
    whole = [spoil(path) for root in "abc" for path in (entry(roots, root), groups(roots, root)[-1])]
    for _ in range(2):
        found = recover(roots)
        assert all(url(roots, "a") in str(found[name].fault) for name in ("t", "group g"))
        assert found["u"].fault is None
    log = roots.log("b")
    with pytest.raises(CommitLogError):
        log.create_topic("t", 1, CONFIG)
    with pytest.raises(ReplicaNotAvailableError, match="recover` again"):
        commit_offset(roots, 1, group(at(roots, "b")))
    for restore in whole:
        restore()
    assert [(each.fault, dict(each.failed)) for each in recover(roots).values()] == [(None, {})] * 3
    assert committed_offset(roots, "b") == 2


def test_a_unit_that_is_damaged_in_all_keeps_all(roots: Replicated) -> None:
    commit_offset(roots, 1)
    roots.take_away("m")
    whole = [spoil(path) for root in "abc" for path in groups(roots, root)]
    with pytest.raises(ReplicaNotAvailableError, match="has nothing of groups/"):
        recover(roots)
    for restore in whole:
        restore()
    assert recover(roots)["group g"].fault is None
    assert committed_offset(roots, "b") == 1


def test_it_is_run_again_once_another_unit_has_gone_on(roots: Replicated) -> None:
    """The roots have not learned yet what the next metadata root has decided of that unit."""
    longest_at_c(roots)
    restore = spoil(entry(roots, "c"))
    assert recover(roots)["t"].fault
    after = at(roots, "b")
    after.write(b"u", topic=roots.topic("b", "u"))
    roots.hooks = dict.fromkeys("abc", takes_no_entry)
    assert roots.decided_log("b", "u").pusher.change("touch", lambda state, base: state)
    roots.hooks.clear()
    ends = [max((roots.path / each / "topics/u/journal").glob("*.json")).name for each in "nabc"]
    assert ends[0] > max(ends[1:])
    restore()
    for execute in (False, True):
        found = recover(roots, execute=execute)
        assert (found["u"].fault, found["u"].done, dict(found["u"].failed)) == (None, True, {})
    assert (found["t"].fault, after.named(str(found["t"].root))) == (None, "c")
    assert len({max((roots.path / each / "topics/u/journal").glob("*.json")).name for each in "nabc"}) == 1


def test_it_goes_on_with_what_others_have_where_that_root_is_given_up(roots: Replicated) -> None:
    longest_at_c(roots)
    spoil(entry(roots, "c"))
    assert recover(roots)["t"].fault
    roots.decided_log("b", "u").elections.elect(at(roots, "b").id_of("c"), why="test")
    roots.take_away("c")
    found = roots.log("b").replicas.recover(url(roots, "n"), [url(roots, each) for each in "mc"], execute=True)
    assert [(each.fault, dict(each.failed)) for each in found] == [(None, {})] * 2
    after = at(roots, "b")
    after.write(b"2", topic=roots.topic("b"))
    assert [roots.values(each) for each in "ab"] == [[b"0", b"2"]] * 2
    for name in "tu":
        assert after.named(*state_of(roots.decided_log("b", name).places.newest().entry).replicas) == "ab"


@pytest.mark.parametrize("where", ["b", "abc"])
def test_an_entry_below_the_newest_one_keeps_nothing(roots: Replicated, where: str) -> None:
    elect(roots, "b")
    roots.write(b"1")
    roots.take_away("m")
    for root in where:
        spoil(entry(roots, root, 1))
    found, after = recover(roots), at(roots, "b")
    assert [each.fault for each in found.values()] == [None, None]
    assert after.named(*found["t"].failed) == ("" if where == "b" else "ac")  # what is damaged is their own
    after.write(b"2", topic=roots.topic("b"))
    assert entry(roots, "n", 0).name > entry(roots, "b", 1).name
    if where == "b":
        roots.log("b").topic("t").repair()
        assert [roots.values(each) for each in "abc"] == [[b"0", b"1", b"2"]] * 3


def test_a_root_with_damage_above_its_high_watermark_is_not_taken(roots: Replicated) -> None:
    longest_at_b(roots)
    spoil(entry(roots, "b", -2))
    dry = recover(roots, execute=False)["t"]
    assert url(roots, "b") in dry.failed[at(roots, "b").id_of("b")]
    found, after = recover(roots)["t"], at(roots, "b")
    assert (found.fault, after.named(str(found.root)), found.root == dry.root) == (None, "a", True)
    assert roots.values("a") == [b"0", b"1", b"2"]
    assert after.named(*found.failed) == "b"
    roots.log("b").topic("t").repair()
    roots.log("a").replicas.sync()
    assert after.isr() == "abc"


@pytest.mark.parametrize("where", ["b", "abc"])
def test_a_damaged_table_keeps_one_unit(roots: Replicated, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "WRITER_ROWS", 2)
    elect(roots, "b")
    for number in range(4):
        roots.write(b"%d" % number, writer=Transaction(f"txn:{number}", 1))
    roots.take_away("m")
    whole = [spoil(max((roots.path / root).glob("topics/t/*/side/*.writers"))) for root in where]
    found = recover(roots)
    assert ("no other root has it" in str(found["t"].fault)) is (where == "abc")
    assert (found["u"].fault, dict(found["u"].failed)) == (None, {})
    for restore in whole:
        restore()
    again = recover(roots)["t"]
    assert (again.fault, again.done, dict(again.failed)) == (None, True, {})
    after = at(roots, "b")
    after.write(b"4", topic=roots.topic("b"))
    assert [roots.values(each) for each in "abc"] == [[b"0", *(b"%d" % number for number in range(5))]] * 3


def test_a_unit_that_is_not_known_at_the_next_metadata_root_keeps_all(roots: Replicated) -> None:
    """The next metadata root can't be written to: no unit is there, and it would be begun as new."""
    roots.take_away("m")

    def fails(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "t/journal" in path:
            no_device(operation, path, moment)

    roots.hooks["n"] = fails
    with pytest.raises(ReplicaNotAvailableError, match=r"injected.*name another place"):
        recover(roots)
    roots.hooks.clear()
    assert [(each.fault, dict(each.failed)) for each in recover(roots).values()] == [(None, {})] * 2


@pytest.mark.parametrize("next_root", ["n", "a"])
def test_damage_at_the_next_metadata_root_is_not_booked_to_another(roots: Replicated, next_root: str) -> None:
    elect(roots, "b")
    roots.take_away("m")
    if next_root == "n":
        recover(roots)  # as if it was cut off
        restore = spoil(entry(roots, "n"))
        with pytest.raises(ReplicaNotAvailableError, match=f"{url(roots, 'n')}: topics/t/journal.*name another place"):
            recover(roots)
        restore()
        assert recover(roots)["t"].fault is None
        return
    restore = spoil(entry(roots, "a"))
    found = {
        each.topic: each for each in roots.log("b").replicas.recover(url(roots, "a"), [url(roots, "m")], execute=True)
    }
    assert str(found["t"].fault).startswith(f"{url(roots, 'a')}: topics/t/journal")
    assert found["u"].fault is None
    restore()
    assert [
        each.fault for each in roots.log("b").replicas.recover(url(roots, "a"), [url(roots, "m")], execute=True)
    ] == [None] * 2
