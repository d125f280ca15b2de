"""A metadata root is replaced, one of three.

Interleavings that it has to survive (docs/explanation/design/replication.md has why they do no harm):

1. A writer, a reader, a group go by the old set, before, while and after a unit is moved.
2. A writer was stopped between its two rounds, or after one accept, and wakes when its unit has moved.
3. One creates a topic by the old set, with the vote of the root that is replaced; another the same by the new set.
4. The replacement is killed at each request; others go on, and it is run again.
5. Two replacements at once.
6. The root that was replaced comes back with its old contents, and has no vote.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from pyspark_commitlog import CommitLog, Consumer, Producer
from pyspark_commitlog.api import replace_metadata
from pyspark_commitlog.api.replicas import Replicas
from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    OutcomeUnknownError,
    ReplicaNotAvailableError,
    TopicExistsError,
    UsageError,
)
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.admin import replicating
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.metadata import promised_ballots, quorum
from pyspark_commitlog.replication.protocol.ballots import Value
from pyspark_commitlog.replication.protocol.entry_fields import state_of, without_append
from pyspark_commitlog.replication.protocol.roots import Roots, list_at
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import Hook
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import Replicated, commit_offset, committed_offset, group, once_at, poll


class KilledError(BaseException):
    """A process is killed."""


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return decided_by(fast_path, "mno")


def decided_by(path: Path, metadata: str) -> Replicated:
    """Return three roots with data, and those that decide; with a topic, a group, settings."""
    made = Replicated(path, metadata=metadata)
    made.create()
    made.write(b"0")
    commit_offset(made, 1)
    made.log().config.alter({"retention.ms": 1_000})
    return made


def at(roots: Replicated, name: str) -> str:
    return str(roots.path / name)


def replace(roots: Replicated, old: str = "o", new: str = "p", by: str = "a") -> None:
    roots.log(by).replicas.replace_metadata(at(roots, old), at(roots, new))


def listed(roots: Replicated, by: str = "a") -> list[str]:
    return [Path(each.url).name for each in roots.log(by).replicas.describe() if each.metadata]


def goes_on(roots: Replicated, number: int, by: str = "b") -> None:
    """Write, read, commit, make a topic and a group, change settings: as new processes do."""
    value = b"%d" % number
    roots.write(value, topic=roots.topic(by))
    assert [roots.values(root)[-1] for root in "abc"] == [value] * 3
    commit_offset(roots, 1 + number % 2, group(roots, by))
    roots.log(by).create_topic(f"t{number}", 1)
    assert f"t{number}" in roots.log("a").topics()
    roots.log(by).config.alter({"retention.ms": number})
    assert roots.log("c").config.get() == {"retention.ms": str(number)}


def test_a_lost_root_is_replaced_and_then_a_second_of_the_old_ones_may_be_lost(roots: Replicated) -> None:
    running = roots.topic(), group(roots), roots.log()
    roots.take_away("o")
    replace(roots)
    assert listed(roots) == ["m", "n", "p"]
    goes_on(roots, 2)
    for number, away in enumerate("mnp"):
        roots.take_away(away)
        goes_on(roots, 10 + number)
        roots.write(b"%d" % number, topic=running[0])
        assert running[1].newest().exists
        running[2].create_topic(f"running-{number}", 1)
        roots.give_back(away)
    state = roots.state()
    assert (state.set.generation, [Path(url).name for url in urls(roots, state.set.roots)]) == (1, ["m", "n", "p"])
    assert committed_offset(roots) == 2


def urls(roots: Replicated, ids: tuple[str, ...]) -> list[str]:
    listed = Roots.of(roots.storage()).listed()
    return [str(address.url) for address in map(listed.address, ids) if address is not None]


# --- Processes that go by the old set ----------------------------------------------------------------------------------


def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the roots of a set be asked one after the other, and units be moved so: a step has the same number then."""
    for module in (quorum, replicating):
        monkeypatch.setattr(module, "share_out", lambda act, items, _: [act(item) for item in items])


def touch(roots: Replicated, kind: str, decided_log: DecidedLog | None = None) -> None:
    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        return without_append(kind, base, state_of(base.entry), kind)

    assert (decided_log or roots.decided_log("a")).places.decide(plan).result == kind


def chain(roots: Replicated, name: str = "t", by: str = "a") -> list[tuple[str, str]]:
    places = roots.decided_log(by, name).places
    newest, journal = places.newest(), places.decider().journal
    return [(e.kind, e.write_id) for e in (journal.read(n).entry for n in range(1, newest.sequence + 1))]


def at_accept(number: int, act: Callable[[], object], path_part: str = "t/acceptor-0") -> Hook:
    """Return a hook for all of a set, that acts before the accept with this number: three promises come first."""
    puts = count(1)

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and path_part in path and next(puts) == 3 + number:
            act()

    return hook


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_writer_that_is_stopped_between_its_rounds_goes_on_at_the_set_that_follows(
    roots: Replicated, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first accept, or after one or two of them."""
    in_order(monkeypatch)
    hook = at_accept(number, lambda: replace(roots))
    roots.hooks.update(dict.fromkeys("mno", hook))
    promised_ballots._cache.renew()  # another process: it prepares
    touch(roots, "e")
    roots.hooks.clear()
    assert [kind for kind, _ in chain(roots)].count("e") == 1
    assert listed(roots) == ["m", "n", "p"]
    roots.take_away("m")
    assert [kind for kind, _ in chain(roots)].count("e") == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_topic_that_is_being_made_by_the_old_set_is_there_once(
    roots: Replicated, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its accepts come after the replacement, or one or two before it: another process makes it by the new set."""
    in_order(monkeypatch)
    told = []

    def act() -> None:
        replace(roots)
        with suppress(TopicExistsError):
            roots.log("b").create_topic("x", 1)
            told.append("new")

    hook = at_accept(number, act, "x/acceptor-0")
    roots.hooks.update(dict.fromkeys("mno", hook))
    with suppress(TopicExistsError, OutcomeUnknownError):
        roots.log().create_topic("x", 1)
        told.append("old")
    roots.hooks.clear()
    first = chain(roots, "x")
    for away in "mnp":
        roots.take_away(away)
        assert chain(roots, "x", "c") == first
        roots.give_back(away)
    assert [kind for kind, _ in first].count("create") == 1
    assert told, "one of the two has made it"


def of_the_old_set(roots: Replicated, by: str = "a") -> CommitLog:
    """Return the log of a process that has read the lists before they were changed, and compares them no more."""
    log = roots.log(by)
    together = Roots.of(log.root.storage)
    together.compare()
    return log


def test_what_is_decided_first_with_the_vote_of_the_root_that_was_replaced_counts_nowhere(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set has a majority for a topic of its own: m and o, n and p."""
    in_order(monkeypatch)
    late, puts = roots.log(), count(1)

    def hook(operation: str, path: str, moment: str) -> None:
        if operation != "put_if_absent" or "x/acceptor-0" not in path:
            return
        number = next(puts)
        if number == 1:  # before its first promise: it has seen that there is no such topic
            roots.hooks.clear()
            replace(roots)
            roots.take_away("n")
            roots.hooks.update(dict.fromkeys("mo", hook))
        if number == 8:  # m and o have promised and accepted
            assert moment == "after"
            roots.give_back("n")
            roots.take_away("m")
            roots.log("b").create_topic("x", 1, {"retention.ms": 7})
            roots.give_back("m")

    roots.hooks.update(dict.fromkeys("mno", hook))
    with pytest.raises(TopicExistsError):
        late.create_topic("x", 1, {"retention.ms": 5})
    roots.hooks.clear()
    assert roots.log("c").topic("x").describe().config["retention.ms"] == "7"


def test_a_process_of_the_old_set_does_not_take_a_group_for_new(roots: Replicated) -> None:
    """It was made by the next set; the old one has nothing of it, and its majority answers."""
    stale = of_the_old_set(roots)
    replace(roots)
    handle = roots.log("b").root.group("fresh")
    topic = handle.topic_state("t")
    handle.advance([Position("t", topic.topic_id, 0, 1, topic.lineage)])
    roots.take_away("n")
    assert stale.root.group("fresh").newest().offsets(topic.topic_id) == {0: 1}


# --- Units that have not moved -------------------------------------------------------------------------------------------


def pending(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace, and be killed when it was decided and is listed, before a unit has moved."""
    with monkeypatch.context() as patched:
        patched.setattr(replace_metadata, "finish", lambda *_: None)
        patched.setattr(Replicas, "describe", lambda _: ())  # looks at all topics, and moves them
        replace(roots)
    assert Roots.of(roots.storage("b")).listed().former


def test_a_unit_that_has_not_moved_is_found_by_who_goes_by_the_next_set(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = chain(roots)
    pending(roots, monkeypatch)
    assert chain(roots) == before
    assert committed_offset(roots) == 1
    goes_on(roots, 2)


def test_the_old_set_ends_before_the_next_one_begins(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    decided_log = roots.decided_log("b")
    assert decided_log.places.newest()
    pending(roots, monkeypatch)
    before = chain(roots)
    touch(roots, "e", decided_log)
    assert [kind for kind, _ in chain(roots)] == [*(kind for kind, _ in before), "e"]


def test_what_has_ended_a_set_ends_it_when_it_is_decided_anew(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """m and o show different ballots of it: o was away, and was not asked to end."""
    decided_log = roots.decided_log("b")
    assert decided_log.places.newest()
    pending(roots, monkeypatch)
    roots.take_away("o")
    assert chain(roots)
    roots.give_back("o")
    roots.take_away("n")
    touch(roots, "e", decided_log)
    roots.give_back("n")
    assert chain(roots)[-1][0] == "e"


def test_a_writer_of_the_old_set_goes_on_where_who_ended_it_was_killed_after_one_accept(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order(monkeypatch)
    decided_log = roots.decided_log("b")
    assert decided_log.places.newest()
    pending(roots, monkeypatch)
    puts = count(1)

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "after") and "t/acceptor-0" in path and next(puts) == 3:
            raise KilledError

    roots.hooks.update(dict.fromkeys("mn", hook))
    with pytest.raises(KilledError):
        chain(roots)
    roots.hooks.clear()
    touch(roots, "e", decided_log)
    assert chain(roots)[-1][0] == "e"


def test_what_the_next_set_has_accepted_goes_before_the_last_of_the_old_one(roots: Replicated) -> None:
    """A process has looked at the old set, and wakes when the next one has gone on."""
    replace(roots)
    touch(roots, "e1")
    journal = roots.decided_log("a").places.decider().journal
    assert isinstance(journal, quorum.Quorum)
    first = journal.read(1).entry
    journal._begin(Value(1, first.write_id), journal.bytes_of(first))
    touch(roots, "e2")
    assert [kind for kind, _ in chain(roots)][-2:] == ["e1", "e2"]


def test_a_unit_that_has_not_moved_keeps_the_replacement_unfinished(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_learning(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "t/journal" in path:
            raise OSError(errno.EIO, "injected")

    pending(roots, monkeypatch)
    roots.hooks["p"] = no_learning
    touch(roots, "e")
    with pytest.raises(ExceptionGroup):
        roots.log("b").replicas.sync()
    assert Roots.of(roots.storage("c")).listed().former
    roots.hooks.clear()
    roots.log("b").replicas.sync()
    assert not Roots.of(roots.storage("c")).listed().former


def no_device_at(part: str) -> Hook:
    """Return a hook: every operation there fails."""

    def hook(operation: str, path: str, moment: str) -> None:
        if part in path:
            raise OSError(errno.EIO, "injected")

    return hook


def test_what_is_to_be_moved_is_named_by_a_majority_of_the_old_set(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that m and o have made, and all else has moved."""
    roots.log().access.allow("*", "admin")
    roots.hooks["n"] = no_device_at("topics/x")
    roots.log().create_topic("x", 1)
    pending(roots, monkeypatch)
    roots.hooks.clear()
    assert not (roots.path / "n/topics/x").exists()
    assert chain(roots)
    assert committed_offset(roots) == 1
    roots.log().config.alter({"retention.ms": 5})
    roots.log().access.allow("user", "read")
    roots.take_away("m")
    roots.take_away("o")
    with suppress(ExceptionGroup):
        roots.log("b").replicas.sync()
    assert Roots.of(roots.storage("c")).listed().former, "x may be named at m and o"
    roots.give_back("m")
    roots.log("b").replicas.sync()
    roots.take_away("m")
    assert "x" in roots.log().topics()


def test_a_set_that_was_decided_is_followed_though_no_root_lists_it(roots: Replicated) -> None:
    def kill() -> None:
        raise KilledError

    roots.hooks.update(dict.fromkeys("abcmno", once_at("put_if_absent", "replicas/journal", kill)))
    with pytest.raises(KilledError):
        replace(roots)
    roots.hooks.clear()
    assert not Roots.of(roots.storage("a")).listed().generation
    goes_on(roots, 2)
    assert listed(roots) == ["m", "n", "p"]


def test_a_list_with_an_older_set_and_a_higher_number_is_not_taken(roots: Replicated) -> None:
    roots.take_away("c")
    replace(roots)
    roots.give_back("c")
    together = Roots(roots.storage("c"))
    before = together.listed()
    other = before.followed_by(before.data[::-1], before.metadata)
    together.change(other)
    together.change(other.followed_by(before.data, before.metadata))
    assert listed(roots, "a") == listed(roots, "c") == ["m", "n", "p"]


def test_roots_that_were_not_told_are_told_when_it_is_run_again(roots: Replicated) -> None:
    def kill() -> None:
        raise KilledError

    roots.hooks["n"] = once_at("put_if_absent", "replicas/journal/00000000000000000003", kill)
    with pytest.raises(KilledError):
        replace(roots)
    roots.hooks.clear()
    replace(roots, by="b")
    assert [list_at(roots.storage(root)).rank for root in "abcmnp"] == [(0, 1, True)] * 6  # type: ignore[union-attr]


# --- Cut off, and run again ------------------------------------------------------------------------------------------


def killed_at(roots: Replicated, number: int) -> bool:
    """Replace, and be killed before the put with this number; return whether it came to that."""
    puts, killed = count(1), []

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and next(puts) == number:
            killed.append(path)
            raise KilledError

    roots.hooks.update(dict.fromkeys("abcmnop", hook))
    with suppress(KilledError):
        replace(roots)
    roots.hooks.clear()
    return bool(killed)


#: Puts of a replacement of all that the fixture makes, at most: each of them is a place to be killed at.
PUTS = 100
EVERY = [*range(1, PUTS, 9), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, PUTS) if n % 9 != 1)]


@pytest.mark.parametrize("number", EVERY)
def test_killed_at_any_put_all_goes_on_and_it_is_finished_when_run_again(
    roots: Replicated, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order(monkeypatch)
    running = roots.topic("c"), group(roots, "c")
    roots.take_away("o")
    killed_at(roots, number)
    goes_on(roots, 2)
    roots.write(b"running", topic=running[0])
    commit_offset(roots, 1, running[1])
    replace(roots, by="b")
    assert [list_at(roots.storage(root)).rank for root in "abcmnp"] == [(0, 1, True)] * 6  # type: ignore[union-attr]
    roots.take_away("m")
    goes_on(roots, 3, "c")
    roots.write(b"running", topic=running[0])
    commit_offset(roots, 2, running[1])


def test_puts_of_a_replacement_are_as_many_as_are_tried(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    in_order(monkeypatch)
    assert not killed_at(roots, PUTS)
    assert listed(roots) == ["m", "n", "p"]


def test_replicate_finishes_what_was_cut_off(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    in_order(monkeypatch)

    def kill() -> None:
        raise KilledError

    roots.hooks["p"] = once_at("put_if_absent", "topics/t/acceptor-1", kill)
    with pytest.raises(KilledError):
        replace(roots)
    roots.hooks.clear()
    assert Roots.of(roots.storage("b")).listed().former
    roots.log("b").replicas.sync()
    assert not Roots.of(roots.storage("c")).listed().former


# --- Two at once, and what is refused ----------------------------------------------------------------------------------


def test_of_two_replacements_at_once_one_is_decided_and_the_other_run_again(roots: Replicated) -> None:
    roots.hooks["p"] = once_at("put_if_absent", "topics/t/journal", lambda: replace(roots, "n", "q", "b"))
    with pytest.raises(ConflictError, match="run it again"):
        replace(roots)
    roots.hooks.clear()
    assert listed(roots, "c") == ["m", "q", "o"]
    with pytest.raises(UsageError, match="name empty places"):
        replace(roots)
    replace(roots, "o", "r")
    assert listed(roots) == ["m", "q", "r"]
    roots.take_away("m")
    goes_on(roots, 2)


def test_a_replacement_begins_when_the_one_before_has_finished(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a unit may be left at a set that nobody looks at any more."""
    in_order(monkeypatch)

    def first() -> None:
        with suppress(KilledError):
            roots.hooks["q"] = once_at("put_if_absent", "config/acceptor-1", kill)
            replace(roots, "n", "q", "b")

    def kill() -> None:
        raise KilledError

    roots.hooks["p"] = once_at("put_if_absent", "topics/t/journal", first)
    with pytest.raises(ConflictError, match="is being replaced"):
        replace(roots)


def test_all_are_replaced_one_after_the_other(roots: Replicated) -> None:
    running = roots.topic(), group(roots)
    for number, (old, new) in enumerate(zip("mno", "pqr", strict=True)):
        roots.take_away(old)
        replace(roots, old, new)
        goes_on(roots, 2 + number)
    roots.write(b"running", topic=running[0])
    commit_offset(roots, 1, running[1])
    assert listed(roots, "c") == ["p", "q", "r"]
    roots.metadata = "pqr"
    assert roots.state().set.generation == 3


def test_the_old_root_comes_back_with_its_old_contents_and_has_no_vote(roots: Replicated) -> None:
    stale, other = roots.topic("b"), of_the_old_set(roots, "c")
    roots.take_away("o")
    replace(roots)
    roots.write(b"1")
    roots.give_back("o")
    roots.take_away("m")
    roots.take_away("p")
    with pytest.raises(CommitLogError, match="no majority"):
        roots.write(b"x", topic=stale)
    with pytest.raises(CommitLogError, match="no majority"):
        other.create_topic("x", 1)
    roots.give_back("p")
    roots.write(b"2", topic=stale)
    assert roots.values("a") == [b"0", b"1", b"2"]
    with pytest.raises(ReplicaNotAvailableError, match="was given up"):
        roots.log("o").create_topic("x", 1)


def test_an_empty_directory_takes_the_place_of_what_was_there(roots: Replicated) -> None:
    with pytest.raises(UsageError, match="empty place"):
        replace(roots, "o", "n")
    roots.take_away("o")
    (roots.path / "o").mkdir()
    replace(roots, "o", "o")
    assert listed(roots) == ["m", "n", "o"]
    roots.take_away("m")
    goes_on(roots, 2)
    roots.give_back("m")
    before = chain(roots)
    replace(roots, "o", "o")  # there is nothing left to do
    assert chain(roots) == before


def test_a_place_that_is_not_empty_is_refused_and_so_is_a_root_of_these(roots: Replicated) -> None:
    CommitLog(at(roots, "p")).create_topic("t", 1)
    with pytest.raises(UsageError, match="name empty places"):
        replace(roots)
    roots.take_away("n")
    (roots.path / "away-n").rename(roots.path / "q")
    with pytest.raises(UsageError, match="put it aside"):
        replace(roots, "n", "q")
    with pytest.raises(UsageError, match="none of the metadata roots"):
        replace(roots, "a", "r")
    assert not (roots.path / "r").exists()


def test_the_others_have_to_answer(roots: Replicated) -> None:
    roots.take_away("n")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        replace(roots)
    assert not (roots.path / "p").exists()


def test_a_root_that_answers_helps_in_its_own_replacement(roots: Replicated) -> None:
    """It is one of the set that ends: any majority of that is enough."""
    running = roots.topic("c")
    roots.take_away("n")
    replace(roots)
    roots.take_away("o")
    goes_on(roots, 2)
    roots.write(b"running", topic=running)
    roots.give_back("n")
    roots.take_away("m")
    goes_on(roots, 3)
    roots.write(b"running", topic=running)


def test_one_that_decides_alone_is_not_replaced(fast_path: Path) -> None:
    made = Replicated(fast_path)
    made.create()
    with pytest.raises(UsageError, match="decides alone"):
        replace(made, "m", "p")


def test_a_root_that_was_away_meanwhile_hears_of_it(roots: Replicated) -> None:
    roots.take_away("c")
    replace(roots)
    roots.give_back("c")
    roots.take_away("m")
    assert listed(roots, "c") == ["m", "n", "p"]
    goes_on(roots, 2, "c")


def test_roots_that_are_added_meanwhile_bring_no_old_set_back(roots: Replicated) -> None:
    roots.hooks["a"] = once_at("put_if_absent", "replicas/journal", lambda: replace(roots))
    roots.log().replicas.add([at(roots, "d")])
    roots.hooks.clear()
    assert listed(roots, "b") == listed(roots, "d") == ["m", "n", "p"]
    said = [list_at(roots.storage(root)) for root in "abcdmnp"]
    assert [[Path(each.url).name for each in there.metadata] for there in said if there] == [["m", "n", "p"]] * 7
    assert len(roots.log("d").replicas.describe()) == 7


def test_one_of_five_is_replaced(fast_path: Path) -> None:
    made = decided_by(fast_path, "mnopq")
    made.take_away("m")
    made.take_away("n")
    replace(made, "m", "r")
    made.take_away("o")
    goes_on(made, 2)
    assert listed(made) == ["r", "n", "o", "p", "q"]


# --- Clients, and three disks ------------------------------------------------------------------------------------------


def test_clients_go_on_while_a_disk_is_replaced_and_a_second_one_is_lost(fast_path: Path) -> None:
    disks = ("d1", "d2", "d3")
    data = [str(fast_path / disk / "log") for disk in disks]
    for disk in disks:
        (fast_path / disk).mkdir()
    CommitLog.create(data, metadata=[str(fast_path / disk / "meta") for disk in disks])
    log = ",".join(data)
    CommitLog(log).create_topic("t", 1, {"replica.lag.time.max.ms": 300, "min.insync.replicas": 1})
    sent = iter(range(10**6))

    def send(many: int = 5) -> list[bytes]:
        values = [b"%d" % next(sent) for _ in range(many)]
        for value in values:
            producer.send("t", value).result(60)
        return values

    with Producer(log) as producer, Consumer(log, "t", group_id="g", auto_offset_reset="earliest") as consumer:
        assert send() == poll(consumer, 5)
        consumer.commit()
        os.rename(fast_path / "d1", fast_path / "broken")
        assert send() == poll(consumer, 5)
        (fast_path / "d1").mkdir()
        CommitLog(",".join(data[1:])).replicas.replace_metadata(str(fast_path / "d1/meta"), str(fast_path / "d1/meta"))
        assert send() == poll(consumer, 5)
        consumer.commit()
        os.rename(fast_path / "d2", fast_path / "broken2")
        assert send() == poll(consumer, 5)
        consumer.commit()
    os.rename(fast_path / "broken2", fast_path / "d2")
    repaired = CommitLog(data[1])  # and its data
    repaired.replicas.remove([data[0]])
    repaired.replicas.add([data[0]])
    assert not repaired.topic("t").set_replication_factor(3).failed
    os.rename(fast_path / "d2", fast_path / "broken2")
    for root in (data[0], data[2]):
        there = CommitLog(root)
        assert [record.value for record in there.topic("t").read(0, 0, 100)] == [b"%d" % number for number in range(20)]
        assert [row.offset for row in there.groups.describe("g").partitions] == [20]
        there.create_topic(f"more-{data.index(root)}", 1)


class Chaos:
    """Processes that fail, are killed, and get in each other's way at any request to a metadata root, one of which is
    replaced meanwhile: entries of a topic, topics that are made, offsets that are committed."""

    def __init__(self, roots: Replicated, seed: int) -> None:
        self.roots, self.random, self.depth, self.made = roots, Random(seed), 0, 0
        self.done, self.unknown = set[str](), set[str]()
        self.created, self.tried = set[str](), set[str]()
        self.offset, self.acknowledged = 1, 1
        self.asked = list[tuple[str, str]]()
        self.old = [roots.log(each) for each in "abc"]

    def hook(self, operation: str, path: str, moment: str) -> None:
        if operation != "put_if_absent":
            return
        luck = self.random.random()
        if luck < 0.03:
            raise OSError(errno.EIO, "injected")
        if luck < 0.045:
            raise KilledError
        if luck < 0.2 and self.depth < 3:
            self.act()

    def act(self) -> None:
        self.depth += 1
        try:
            self.random.choice([self.propose, self.propose, self.create, self.commit, self.replace])()
        except KilledError:
            if self.depth > 1 and self.random.random() < 0.5:
                raise
        finally:
            self.depth -= 1

    def propose(self) -> None:
        self.made += 1
        name = f"e{self.made}"
        self.unknown.add(name)
        try:
            touch(self.roots, name, self.roots.decided_log(self.random.choice("abc")))
            self.done.add(name)
        except OutcomeUnknownError:
            pass
        except (CommitLogError, OSError):
            self.unknown.discard(name)

    def create(self) -> None:
        name = self.random.choice(["x", "y", "z"])
        log = self.random.choice([*self.old, self.roots.log(self.random.choice("abc"))])
        self.tried.add(name)
        try:
            log.create_topic(name, 1)
        except TopicExistsError:
            assert name in self.tried
        except (CommitLogError, OSError):
            return
        self.created.add(name)

    def commit(self) -> None:
        self.offset = offset = self.offset + 1
        try:
            commit_offset(self.roots, offset, group(self.roots, self.random.choice("abc")))
            self.acknowledged = max(self.acknowledged, offset)
        except (CommitLogError, OSError):
            pass

    def replace(self) -> None:
        log = self.roots.log(self.random.choice("abc"))
        deciding = [each.url for each in log.replicas.describe() if each.metadata]
        if len(self.asked) < 4 and self.random.random() < 0.6:
            self.asked.append((self.random.choice(deciding), at(self.roots, "pqrs"[len(self.asked)])))
        if not self.asked:
            return
        old, new = self.asked[-1]  # perhaps again
        self.roots.hooks[Path(new).name] = self.hook
        with suppress(CommitLogError, OSError):
            log.replicas.replace_metadata(old, new)


def write_id_of(file: Path) -> str:
    return str(json.loads(file.read_bytes().split(b"\n")[0])["writeId"])


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_there_is_one_history(roots: Replicated, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    in_order(monkeypatch)
    roots.write(*(b"%d" % number for number in range(200)))
    chaos = Chaos(roots, seed)
    monkeypatch.setattr(LocalStorage, "new_id", lambda _: str(UUID(int=chaos.random.getrandbits(128), version=4)))
    roots.hooks.update(dict.fromkeys("mno", chaos.hook))
    for _ in range(8):
        chaos.act()
    roots.hooks.clear()
    roots.log("b").replicas.sync()
    names = listed(roots, "c")
    decided = chain(roots)
    for away in ["", *names]:
        if away:
            roots.take_away(away)
        for by in "abc":
            assert chain(roots, by=by) == decided
            assert chaos.created <= set(roots.log(by).topics())
            assert chaos.acknowledged <= (committed_offset(roots, by) or 0) <= chaos.offset
        if away:
            roots.give_back(away)
    kinds = [kind for kind, _ in decided if kind[0] == "e" and kind[1:].isdigit()]
    assert len(kinds) == len(set(kinds)), "an entry is decided twice"
    assert chaos.done <= set(kinds) <= chaos.unknown
    for path in roots.path.glob("*/topics/t/journal"):
        there = [write_id_of(file) for file in sorted(path.glob("*.json"))]
        assert there == [write_id for _, write_id in decided][: len(there)], path
