"""Three metadata roots decide by majority.

The interleavings that it has to survive, each at every request of a proposer (the property test draws them):

1. Another proposer prepares a higher ballot between promise and accept, between two accepts, after the last.
2. A request fails before it is done, or its reply is lost; the proposer is killed there.
3. An entry that one acceptor alone has accepted is adopted by the next proposer, who sees it, or is not: then another
   entry gets its number, and the first one never comes back.
4. A metadata root is away, and comes back with an old register and journal.
5. A metadata root is restored from a copy: it has forgotten what it accepted, and does not count.
6. A disk that is not mounted is an empty directory: it has accepted nothing, and does not count.
7. Others go on while a proposer waits for the last promise: what it was shown is in no register any more.
8. The metadata root that is listed first takes no writes.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.metadata import promised_ballots, quorum
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.metadata.quorum import Quorum
from pyspark_commitlog.replication.protocol.ballots import Ballot, Register
from pyspark_commitlog.replication.protocol.entry_fields import state_of, without_append
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import stage
from tests.support.replicas import Replicated, commit_offset, no_device


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path, metadata="mno")


def test_any_metadata_root_may_be_away(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    assert len(roots.state().set.roots) == 3
    for away in "mno":
        roots.take_away(away)
        roots.write(away.encode(), topic=roots.topic("b"))
        roots.give_back(away)
    assert [roots.values(root) for root in "abc"] == [[b"0", b"m", b"n", b"o"]] * 3


def test_a_metadata_root_and_the_leader_may_be_away_at_once(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.take_away("m")
    roots.take_away("a")
    roots.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "bc"] == [[b"0", b"1"]] * 2


def test_without_a_majority_nothing_is_decided_and_all_is_read(roots: Replicated) -> None:
    topic = roots.create()
    roots.write(b"0")
    roots.take_away("m")
    roots.take_away("o")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.topic("b")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.write(b"x", topic=topic)
    assert [roots.values(root) for root in "abc"] == [[b"0"]] * 3
    roots.give_back("m")
    roots.write(b"1")
    assert [roots.values(root) for root in "abc"] == [[b"0", b"1"]] * 3


def test_an_empty_directory_in_the_place_of_a_metadata_root_does_not_count(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    decided_logs = [roots.decided_log() for _ in range(2)]
    assert all(each.places.newest() for each in decided_logs)
    for away in "mo":
        roots.take_away(away)
        (roots.path / away).mkdir()
    for decided_log in decided_logs:
        with pytest.raises(ReplicaNotAvailableError):
            decided_log.pusher.change("touch", lambda state, base: state)
    assert not list((roots.path / "m").iterdir())


def test_an_empty_directory_has_not_accepted_nothing(roots: Replicated) -> None:
    """It is no register that nothing was put into: a look that counts it may find a majority that knows of no entry."""
    roots.create()
    (roots.path / "empty").mkdir()
    with pytest.raises(ReplicaNotAvailableError):
        Acceptor(roots.id_of("m"), LocalStorage(roots.path / "empty"), "topics/t/acceptor").read()


def test_a_metadata_root_that_was_restored_from_a_copy_does_not_count(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    shutil.copytree(roots.path / "n", roots.path / "copy")
    roots.write(b"1")
    shutil.rmtree(roots.path / "n")
    (roots.path / "copy").rename(roots.path / "n")
    roots.take_away("m")
    with pytest.raises(ReplicaNotAvailableError, match="no majority"):
        roots.write(b"x", topic=roots.topic("b"))
    roots.give_back("m")
    roots.write(b"2", topic=roots.topic("b"))
    assert roots.values("a") == [b"0", b"1", b"2"]


def while_it_looks(roots: Replicated, act: Callable[[], object], root: str = "a") -> Hook:
    """Return a hook for a root: once its journal is looked at, by what is decided, another process acts.

    That one does not reach `m`.
    """

    def hook(operation: str, path: str, moment: str) -> None:
        if "t/journal" in path:
            del roots.hooks[root]
            roots.hooks["m"] = no_device
            act()
            del roots.hooks["m"]

    return hook


def test_an_append_goes_on_where_others_decided_what_its_metadata_root_has_not_learned(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    decided_log = roots.decided_log("a")
    decided_log.places.newest()
    roots.hooks["a"] = while_it_looks(roots, lambda: roots.write(b"1"))

    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        return without_append("touch", base, state_of(base.entry), "done")

    before = decided_log.places.newest().sequence
    assert decided_log.append(plan).result == "done"
    assert "m" not in roots.hooks
    assert [kind for kind, _ in chain(decided_log.places)][before:] == ["append", "hw", "touch", "hw"]


def test_a_push_goes_on_where_others_decided_what_its_metadata_root_has_not_learned(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    decided_log = roots.decided_log("a")
    decided_log.places.newest()
    roots.hooks["a"] = while_it_looks(roots, lambda: roots.write(b"1"))
    pushed = decided_log.pusher.push()
    assert "m" not in roots.hooks
    assert pushed.failed == {}
    newest = decided_log.places.newest().sequence
    assert set(pushed.learned.values()) == {newest}
    assert decided_log.places.has_decided(newest)
    assert not decided_log.places.has_decided(newest + 1)


def test_a_root_joins_where_others_decided_what_its_metadata_root_has_not_learned(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    roots.decided_log().pusher.shrink(roots.id_of("c"), "test")
    decided_log = roots.decided_log("a")
    decided_log.places.newest()
    roots.hooks["c"] = while_it_looks(roots, lambda: roots.write(b"1"), "c")
    assert decided_log.pusher.join(roots.id_of("c"))
    assert "m" not in roots.hooks
    assert roots.isr() == "abc"
    assert roots.values("c") == [b"0", b"1"]


def test_what_a_majority_has_accepted_is_decided_though_its_writer_was_killed(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum, "share_out", lambda act, seats, _: [act(seat) for seat in seats])
    roots.create()
    roots.write(b"0")

    class Killed(BaseException):
        pass

    accepts = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "acceptor" in path and moment == "after":
            accepts.append(path)
            if len(accepts) == 5:  # three promises, two accepts
                raise Killed

    before = roots.decided_log().places.newest().sequence
    roots.hooks = dict.fromkeys("mno", hook)
    promised_ballots._cache.renew()  # another process
    with pytest.raises(Killed):
        roots.decided_log().pusher.change("touch", lambda state, base: state)
    roots.hooks.clear()
    newest = roots.decided_log().places.newest()
    assert (newest.sequence, newest.entry.kind) == (before + 1, "touch")


def test_what_one_acceptor_alone_has_accepted_is_not_decided(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots.create()
    roots.write(b"0")
    monkeypatch.setattr(quorum, "_TRIES", 1)
    promised = set[str]()

    def promises_alone(root: str) -> Hook:
        def hook(operation: str, path: str, moment: str) -> None:
            if operation == "put_if_absent" and "acceptor" in path and moment == "before":
                if root in promised:
                    raise OSError(errno.EIO, "injected")
                promised.add(root)

        return hook

    roots.hooks.update({root: promises_alone(root) for root in "no"})
    monkeypatch.setattr(quorum, "share_out", lambda act, seats, _: [act(seat) for seat in seats])
    promised_ballots._cache.renew()  # another process
    with pytest.raises(OutcomeUnknownError):
        touch(roots, "e1")
    assert promised == {"n", "o"}
    roots.hooks.clear()
    before = roots.decided_log("a").places.newest().sequence
    monkeypatch.setattr(quorum, "_TRIES", 5)
    touch(roots, "e2")
    assert [name for name, *_ in chain(roots.decided_log("a").places)[before:]] == ["e1", "e2"], (
        "others decide it first"
    )


def test_an_acceptor_takes_nothing_while_its_root_has_not_learned_what_it_accepted(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`e1` is decided by n and o, which can't learn; with `e2` in its register n alone would know of `e1`."""
    roots.create()
    roots.write(b"0")
    before = roots.decided_log("a").places.newest().sequence
    roots.take_away("m")

    def no_learning(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "t/journal" in path:
            raise OSError(errno.EIO, "injected")

    roots.hooks["o"] = no_learning
    monkeypatch.setattr(quorum, "_TRIES", 2)
    touch(roots, "e1")
    with pytest.raises(OutcomeUnknownError):
        touch(roots, "e2")
    roots.hooks.clear()
    roots.take_away("n")
    roots.give_back("m")
    assert chain(roots.decided_log("a").places)[before][0] == "e1"


def test_what_others_went_on_from_while_one_waited_for_a_promise_is_not_damage(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the head before e1, is shown e1 as it prepares, and finds what follows e1 in all registers."""
    roots.create()
    roots.write(b"0")
    promised_ballots._cache.renew()  # other processes have none
    places, others = roots.decided_log("a").places, iter(["e1", "e2"])
    prepared, promised = Quorum._prepared, Quorum._promised

    def prepare(self: Quorum) -> tuple[Ballot, dict[str, Register] | None]:
        if self is places._quorum and (kind := next(others, None)) == "e1":
            touch(roots, kind)
        return prepared(self)

    def promise(self: Quorum, ballot: Ballot) -> dict[str, Register] | None:
        shown = promised(self, ballot)
        if self is places._quorum and (kind := next(others, None)) == "e2":
            touch(roots, kind)
        return shown

    monkeypatch.setattr(Quorum, "_prepared", prepare)
    monkeypatch.setattr(Quorum, "_promised", promise)

    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        return without_append("e3", base, state_of(base.entry), "e3")

    assert places.decide(plan).result == "e3"
    assert [kind for kind, _ in chain(roots.decided_log("a").places)][-3:] == ["e1", "e2", "e3"]


@pytest.mark.parametrize("full", "mno")
def test_a_metadata_root_that_takes_nothing_keeps_nobody_from_what_is_new_or_large(
    roots: Replicated, full: str
) -> None:
    topic = roots.create(partitions=1500)
    keys = pa.record_batch({"key": [b"%d" % n for n in range(3000)], "value": [b"v"] * 3000})
    staged = stage(topic, keys, everywhere=True)

    def no_space(operation: str, path: str, moment: str) -> None:
        if operation in ("put_if_absent", "write_once", "make_directory"):
            raise OSError(errno.ENOSPC, "injected")

    roots.hooks[full] = no_space
    sequence = commit(topic, staged.topic_id, [staged]).sequence
    there = {each.suffix for each in (roots.path / "a" / "topics" / "t").rglob(f"{sequence:020d}.*")}
    assert there > {".json"}, "else no table was written"
    commit_offset(roots, 1, roots.log("a").root.group("g"))
    roots.log("b").create_topic("u", 1)
    roots.hooks.clear()
    assert roots.write(b"1", topic=roots.topic("b", "u")).sequence == 2


def test_when_all_metadata_is_lost_it_goes_on_by_hand(roots: Replicated) -> None:
    roots.create()
    roots.write(b"0")
    for each in "mno":
        roots.take_away(each)
    lost = [str(roots.path / each) for each in "mno"]
    (found,) = roots.log("b").replicas.recover(str(roots.path / "p"), lost, execute=True)
    assert (found.fault, dict(found.failed)) == (None, {})
    roots.write(b"1", topic=roots.topic("b"))
    assert [roots.values(root) for root in "abc"] == [[b"0", b"1"]] * 3


def test_data_and_metadata_are_places_of_their_own(tmp_path: Path) -> None:
    from pyspark_commitlog.api.commit_log import CommitLog

    at = {name: str(tmp_path / name) for name in "abcmno"}
    with pytest.raises(UsageError, match="can't hold data and metadata"):
        CommitLog.create([at["a"], at["b"]], [at["a"], at["m"], at["n"]])
    with pytest.raises(UsageError, match="1, 3 or 5"):
        CommitLog.create([at["a"], at["b"]], [at["m"], at["n"]])
    with pytest.raises(UsageError, match="named twice"):
        CommitLog.create([at["a"], at["b"]], [at["m"], at["n"], at["n"]])
    assert not list(tmp_path.iterdir())


class KilledError(BaseException):
    """A process is killed."""


class Chaos:
    """Proposers that fail, are killed, and get in each other's way, at any request to a metadata root.

    `going_on`: half of those that are not killed propose again, with what they know.
    """

    def __init__(self, roots: Replicated, seed: int, *, going_on: bool = False) -> None:
        self.roots, self.random, self.depth, self.made = roots, Random(seed), 0, 0
        self.done, self.unknown, self.failed = list[str](), list[str](), list[str]()
        self.going_on, self.resting = going_on, list[Places]()

    def hook(self, operation: str, path: str, moment: str) -> None:
        if operation != "put_if_absent" or "t/" not in path:
            return
        luck = self.random.random()
        if luck < 0.06:
            raise OSError(errno.EIO, "injected")
        if luck < 0.09:
            raise KilledError
        if luck < 0.25 and self.depth < 3:
            self.propose()

    def propose(self) -> None:
        self.made += 1
        name, self.depth = f"e{self.made}", self.depth + 1
        goes_on = self.going_on and self.resting and self.random.random() < 0.5
        places: Places | None = (
            self.resting.pop(0) if goes_on else self.roots.decided_log(self.random.choice("abc")).places
        )

        def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
            assert base is not None
            return without_append(name, base, state_of(base.entry), name)

        try:
            assert places is not None
            assert places.decide(plan).result == name
            self.done.append(name)
        except OutcomeUnknownError:
            self.unknown.append(name)
        except (CommitLogError, OSError):
            self.failed.append(name)
        except KilledError:
            places = None
            self.unknown.append(name)
            if self.depth > 1 and self.random.random() < 0.5:
                raise
        finally:
            self.depth -= 1
            self.resting.extend([places] if places else [])


def touch(roots: Replicated, kind: str) -> None:
    def plan(base: Stored | None, slot: Slot) -> Draft[str] | Unchanged[str]:
        assert base is not None
        return without_append(kind, base, state_of(base.entry), kind)

    roots.decided_log("a").places.decide(plan)


def chain(places: Places) -> list[tuple[str, str]]:
    newest, journal = places.newest(), places.decider().journal
    return [(e.kind, e.write_id) for e in (journal.read(n).entry for n in range(1, newest.sequence + 1))]


#: Those by which the mutants are found, and more of them in `make test-long`.
FIRST_SEEDS = 0, 13, 17, 21
SEEDS = [
    *FIRST_SEEDS,
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(60) if seed not in FIRST_SEEDS),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_there_is_one_chain_and_every_answer_is_true(
    roots: Replicated, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(Chaos(roots, seed), monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_fails_writers_that_go_on_keep_to_one_chain(
    roots: Replicated, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(Chaos(roots, seed, going_on=True), monkeypatch)


def play(chaos: Chaos, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have proposers meet six times; all that they were told is true of the one chain that there is then."""
    roots = chaos.roots
    monkeypatch.setattr(
        quorum, "share_out", lambda act, seats, _: [act(seat) for seat in seats]
    )  # in their decided_log
    monkeypatch.setattr(LocalStorage, "new_id", lambda _: str(UUID(int=chaos.random.getrandbits(128), version=4)))
    roots.create()
    roots.hooks = dict.fromkeys("mno", chaos.hook)
    away = ""
    for _ in range(6):
        if away:
            roots.give_back(away)
        away = chaos.random.choice(["", "m", "n", "o"])
        if away:
            roots.take_away(away)
        chaos.propose()
    roots.hooks.clear()
    if away:
        roots.give_back(away)
    decided = chain(roots.decided_log("a").places)
    kinds = [kind for kind, _ in decided if kind.startswith("e") and kind[1:].isdigit()]
    assert len(kinds) == len(set(kinds)), "an entry is decided twice"
    assert set(chaos.done) <= set(kinds) <= {*chaos.done, *chaos.unknown}
    for root in "mno":
        journal = roots.decided_log("a").places.at(roots.id_of(root)).journal
        there = [journal.read(number).entry for number in journal.sequences()]
        assert [(entry.kind, entry.write_id) for entry in there] == decided[: len(there)]
