"""Three metadata roots let go of what all replicas have; one that comes later begins with what is left.

Interleavings that it has to survive:

1. A metadata root is away while the others collect: it begins with what is left when it is back.
2. A new one learns while the others collect: what it needs next is gone, and it begins again with what is left.
3. The roots that have what comes next are away: nothing is put, and nothing is dropped.
4. Who brings it on is killed after it put the first of what is left, and before it dropped what was there: the next one does.
5. A process that was stopped puts an entry at a root that has collected it: any process that brings the root on takes it away,
   also where the others have not collected what lies between: that is put. It goes to no other root without its tables.
6. Two bring the new root on, from different lists of what is left: what one has dropped the other puts. As 5.
7. An entry can't be read for a moment: what is before it is not taken for collected.
8. The last entries of a deleted topic name tables: they stay as long.
9. A root lost entries between others: nothing goes there until it has them again.

`tests/model/replica_collecting.py` explores them.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.leader.replicated_journal import ReplicatedJournal
from pyspark_commitlog.replication.metadata.quorum import Quorum
from pyspark_commitlog.replication.metadata.quorum_members import leading_to
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.learning import Replica
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.collect.collect_metadata import collect_decided
from pyspark_commitlog.topic.maintain.maintain import maintain_topic
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.write import writers
from pyspark_commitlog.topic.write.writers import Transaction
from tests.crash.conftest import fast_path as fast_path
from tests.support.replicas import Replicated, once_at
from tests.support.world import DELAY_MS


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    made = Replicated(fast_path, metadata="mno")
    made.create()
    return made


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few writers need a table, which takes 64 else."""
    monkeypatch.setattr(writers, "WRITER_ROWS", 4)


def write(roots: Replicated, numbers: range) -> None:
    for number in numbers:
        roots.write(b"%d" % number)


def entries(roots: Replicated, root: str) -> list[int]:
    return [int(path.stem) for path in sorted((roots.path / root / "topics/t/journal").glob("*.json"))]


def maintain(roots: Replicated, names: str = "abc") -> None:
    """Settle and collect all that may go."""
    for _ in range(3):
        for name in names:
            roots.log(name).topic("t").maintain()
        roots.clock.advance(DELAY_MS)


def quorum(roots: Replicated) -> Quorum:
    made = roots.decided_log().places.decider().journal
    assert isinstance(made, Quorum)
    return made


def seat(roots: Replicated, root: str) -> Replica:
    return next(each.replica for each in quorum(roots).seats if Path(each.replica.storage.url).name == root)


def test_three_metadata_roots_do_not_grow(roots: Replicated) -> None:
    write(roots, range(8))
    roots.log().topic("t").delete()
    roots.clock.advance(DELAY_MS)
    roots.log().create_topic("t", 1)
    write(roots, range(8))
    before = [len(entries(roots, root)) for root in "mno"]
    maintain(roots)
    assert [len(entries(roots, root)) < 6 < most for root, most in zip("mno", before, strict=True)] == [True] * 3
    assert [len(list((roots.path / root / "topics/t").iterdir())) <= 4 for root in "mno"] == [True] * 3
    for away in "mno":
        roots.take_away(away)
        roots.write(away.encode(), topic=roots.topic("b"))
        roots.give_back(away)
    assert [roots.values(root)[8:] for root in "abc"] == [[b"m", b"n", b"o"]] * 3


def test_the_others_collect_while_a_metadata_root_is_away_which_goes_on_with_what_is_left(roots: Replicated) -> None:
    write(roots, range(2))
    roots.take_away("o")
    write(roots, range(2, 8))
    maintain(roots)
    assert [len(entries(roots, root)) < 6 for root in "mn"] == [True] * 2
    roots.give_back("o")
    assert entries(roots, "o")[-1] < entries(roots, "m")[0], "else nothing is shown"
    roots.write(b"8", topic=roots.topic("b"))
    assert entries(roots, "o") == entries(roots, "m")
    roots.take_away("n")
    roots.write(b"9", topic=roots.topic("c"))
    assert [roots.values(root)[-2:] for root in "abc"] == [[b"8", b"9"]] * 3


def test_the_others_collect_while_a_metadata_root_learns_nothing(roots: Replicated) -> None:
    """It answers, and takes nothing: its disk is full."""
    write(roots, range(3))
    lacks = entries(roots, "o")[-1] + 1
    roots.clock.advance(DELAY_MS)

    roots.hooks["o"] = full
    write(roots, range(3, 8))
    roots.clock.advance(DELAY_MS)
    maintain(roots)
    assert entries(roots, "o")[-1] < lacks, "else nothing is shown"
    assert [lacks in entries(roots, root) for root in "mn"] == [False, False]
    roots.hooks.clear()
    roots.write(b"8")
    assert entries(roots, "o") == entries(roots, "m")


def full(operation: str, path: str, moment: str) -> None:
    if operation in ("put_if_absent", "create", "write_once"):
        raise OSError(28, "injected: no space left on device")


def test_a_metadata_root_that_takes_nothing_costs_the_same_however_much_the_others_have(roots: Replicated) -> None:
    """The others have collected what it needs next: each commit looks again where it may begin."""
    write(roots, range(2))
    roots.hooks["o"] = full
    write(roots, range(2, 8))
    maintain(roots)
    first, many = asked(roots), len(entries(roots, "m"))
    assert entries(roots, "o")[-1] + 1 < entries(roots, "m")[0], "else nothing is shown"
    write(roots, range(8, 30))
    assert asked(roots) == first
    assert len(entries(roots, "m")) > many + 22


def asked(roots: Replicated) -> int:
    """Return what a commit asks of metadata roots m and n."""
    topic, asked = roots.topic(), list[str]()
    roots.write(b"a", topic=topic)

    def counted(operation: str, path: str, moment: str) -> None:
        if moment == "before" and "topics/t/journal" in path:
            asked.append(f"{operation} {path}")

    roots.hooks["m"] = roots.hooks["n"] = counted
    roots.write(b"b", topic=topic)
    del roots.hooks["m"], roots.hooks["n"]
    return len(asked)


def test_what_goes_at_no_metadata_root_goes_at_the_others(roots: Replicated) -> None:
    write(roots, range(8))
    roots.clock.advance(DELAY_MS)

    def read_only(operation: str, path: str, moment: str) -> None:
        if operation == "delete" and "topics/t/journal" in path:
            raise OSError(30, "injected: read-only file system")

    roots.hooks["m"] = read_only
    before = entries(roots, "m")
    with pytest.raises(OSError, match="read-only"):
        collect_decided(roots.topic())
    assert entries(roots, "m") == before
    assert [entries(roots, root)[0] > before[0] for root in "no"] == [True, True]


def test_a_root_that_replaces_another_begins_with_what_is_left(roots: Replicated) -> None:
    write(roots, range(8))
    maintain(roots)
    left = entries(roots, "m")
    assert left[0] > 8
    roots.take_away("o")
    roots.log().replicas.replace_metadata(str(roots.path / "o"), str(roots.path / "p"))
    assert entries(roots, "p")[: len(left)] == left
    roots.take_away("m")
    roots.write(b"8", topic=roots.topic("b"))
    assert [roots.values(root)[-1] for root in "abc"] == [b"8"] * 3
    maintain(roots)
    assert roots.values("c")[-1] == b"8"


def behind(roots: Replicated) -> list[int]:
    """Have root o end with what the others have collected; return what they have."""
    write(roots, range(3))
    journal = roots.path / "o/topics/t/journal"
    old = {path.name: path.read_bytes() for path in journal.glob("*.json")}
    write(roots, range(3, 9))
    maintain(roots)
    left = entries(roots, "m")
    assert left[0] > len(old)
    for path in journal.glob("*.json"):
        path.unlink()
    for name, data in old.items():
        (journal / name).write_bytes(data)
    return left


def test_one_that_lags_behind_what_is_left_goes_on_with_that(roots: Replicated) -> None:
    left = behind(roots)
    roots.write(b"9")
    assert entries(roots, "o")[: len(left)] == left
    assert seat(roots, "o").learned() is not None, "no gap"


@pytest.mark.parametrize("which", [1, 2, 3])
def test_who_brings_it_on_may_be_killed_before_it_drops_what_was_there(roots: Replicated, which: int) -> None:
    left = behind(roots)
    deleted, before = list[str](), entries(roots, "o")

    def killed(operation: str, path: str, moment: str) -> None:
        if operation == "delete" and moment == "before" and "topics/t/journal" in path:
            deleted.append(path)
            if len(deleted) == which:
                raise KeyboardInterrupt

    roots.hooks["o"] = killed
    with pytest.raises(KeyboardInterrupt):
        roots.decided_log().places.newest()
    assert entries(roots, "o") == [*before[which - 1 :], left[0]]
    roots.hooks.clear()
    roots.write(b"9")
    assert entries(roots, "o")[: len(left)] == left


def test_what_only_roots_have_that_are_away_is_not_taken_for_collected(roots: Replicated) -> None:
    """Root o has learned the first entries; those that have what follows do not answer, or lack entries themselves."""
    write(roots, range(3))
    newest = roots.decided_log().places.newest().entry
    seats = quorum(roots)
    for path in (roots.path / "o/topics/t/journal").glob("*.json"):
        if int(path.stem) > 2:
            path.unlink()
    before = entries(roots, "o")
    roots.hooks["m"] = roots.hooks["n"] = no_journal
    replica = seat(roots, "o")
    with pytest.raises(ReplicaNotAvailableError, match="has entry 3"):
        seats._catch_up(replica, newest.write_id, until=newest.sequence + 1)
    assert entries(roots, "o") == before
    roots.hooks.clear()
    for root in "mn":  # they lack it too, and have what was before
        for number in entries(roots, root)[2:]:
            (roots.path / root / f"topics/t/journal/{number:020d}.json").unlink()
    with pytest.raises(ReplicaNotAvailableError, match="has entry 3"):
        quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)
    assert entries(roots, "o") == before


def no_journal(operation: str, path: str, moment: str) -> None:
    if "topics/t/journal" in path:
        raise OSError(5, "injected: the device is gone")


def test_it_does_not_begin_above_what_replicas_need(roots: Replicated) -> None:
    """Those that answer have less than what was decided to stay."""
    behind(roots)
    roots.hooks["b"] = roots.hooks["c"] = no_journal
    for _ in range(3):
        roots.write(b"9", acks_all=False)
    newest, left = roots.decided_log().places.newest().entry, entries(roots, "m")
    assert state_of(newest).hw < left[-2]
    for path in (roots.path / "o/topics/t/journal").glob("*.json"):
        path.unlink()
    for root in "mn":
        for number in left[:-2]:
            (roots.path / root / f"topics/t/journal/{number:020d}.json").unlink()
    with pytest.raises(ReplicaNotAvailableError, match="which replicas need"):
        quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)


def put_late(roots: Replicated) -> Path:
    """Have root o have an entry again that all have collected."""
    write(roots, range(3))
    late = roots.path / "o/topics/t/journal" / f"{3:020d}.json"
    data = late.read_bytes()
    write(roots, range(3, 9))
    maintain(roots)
    assert not late.exists()
    late.write_bytes(data)
    return late


def test_what_is_put_late_at_a_collected_number_goes_with_the_next_entry(roots: Replicated) -> None:
    """Also where one more root is lost: nothing is collected then."""
    late = put_late(roots)
    roots.take_away("n")
    roots.write(b"9", topic=roots.topic("b"))
    assert not late.exists()
    assert entries(roots, "o") == entries(roots, "m")


def test_what_is_put_late_goes_from_a_root_that_is_empty_too(roots: Replicated) -> None:
    """Two bring it on from different lists of what is left: one puts what the other has dropped."""
    late = put_late(roots)
    data = late.read_bytes()
    for path in late.parent.glob("*.json"):
        path.unlink()
    putting = [True]

    def put_again(operation: str, path: str, moment: str) -> None:
        if operation == "put_if_absent" and "topics/t/journal/" in path and moment == "before" and putting:
            putting.clear()
            late.write_bytes(data)

    roots.hooks["o"] = put_again
    roots.write(b"9")
    assert not putting
    assert not late.exists()
    assert entries(roots, "o") == entries(roots, "m")


def test_what_is_put_late_goes_to_no_new_root_without_its_tables(roots: Replicated, few_rows: None) -> None:
    """Nothing is collected while a metadata root is replaced: it would stay, and be asked for, for ever."""
    tables, number = roots.path / "n/topics/t", 0
    while len(list(tables.glob("*/side/*"))) < 2:  # the newest entry names another table than those before it
        roots.write(b"%d" % number, writer=Transaction(f"txn:{number}", 1, False))
        number += 1
    journal = tables / "journal"
    all_left = {int(path.stem): path.read_bytes() for path in journal.glob("*.json")}
    maintain(roots)
    left = entries(roots, "n")
    late = max(number for number in all_left if number < left[0])
    assert (late, len(list(tables.glob("*/side/*")))) == (left[0] - 1, 1), "it makes no gap, and its table is gone"
    (journal / f"{late:020d}.json").write_bytes(all_left[late])
    roots.take_away("o")
    roots.log().replicas.replace_metadata(str(roots.path / "o"), str(roots.path / "p"))
    assert entries(roots, "p") == entries(roots, "m")


def test_what_lies_between_is_put_where_the_others_have_not_collected_it(roots: Replicated) -> None:
    """The collector was killed when it was done at one root; then a process that was stopped puts an entry there."""
    write(roots, range(9))
    all_left = entries(roots, "m")
    late = roots.path / "o/topics/t/journal" / f"{2:020d}.json"
    data = late.read_bytes()
    for number in all_left[:-3]:
        (roots.path / f"o/topics/t/journal/{number:020d}.json").unlink()
    late.write_bytes(data)
    roots.write(b"9", topic=roots.topic("b"))
    assert entries(roots, "o") == [*all_left[1:], *entries(roots, "m")[len(all_left) :]]
    assert seat(roots, "o").learned() is not None, "no gap"


def test_nothing_goes_at_a_root_that_lost_entries_until_it_has_them_again(roots: Replicated) -> None:
    """Else it would begin after what it lost, which replicas may lack. For now others can't read that either."""
    write(roots, range(4))
    topic = roots.topic()
    assert isinstance(topic.journal, ReplicatedJournal)
    topic.journal.metadata()  # it knows that nothing is missing
    roots.hooks["b"] = roots.hooks["c"] = no_journal
    for _ in range(6):
        roots.write(b"9", acks_all=False)
    roots.hooks.clear()
    newest, all_left = roots.decided_log().places.newest().entry, entries(roots, "o")
    hw = state_of(newest).hw
    assert hw + 2 < all_left[-2], "else it would not begin above what replicas need"
    for number in range(hw - 1, all_left[-2]):
        (roots.path / f"o/topics/t/journal/{number:020d}.json").unlink()
    before = entries(roots, "o")

    def unreadable(operation: str, path: str, moment: str) -> None:
        if f"journal/{hw - 1:020d}.json" in path and operation != "delete":
            raise OSError(5, "injected: a bad moment")

    roots.hooks["m"] = roots.hooks["n"] = unreadable
    roots.clock.advance(DELAY_MS)
    assert [storage.url for storage in topic.journal.metadata()] == [str(roots.path / root) for root in "mn"]
    collect_decided(topic)
    assert entries(roots, "o") == before
    roots.hooks.clear()
    roots.write(b"9")
    assert entries(roots, "o")[-8:] == entries(roots, "m")[-8:]
    assert seat(roots, "o").learned() is not None, "no gap"


def test_what_others_have_is_not_skipped_that_could_not_be_read_for_a_moment(roots: Replicated) -> None:
    write(roots, range(3))
    newest = roots.decided_log().places.newest().entry
    for path in (roots.path / "o/topics/t/journal").glob("*.json"):
        if int(path.stem) > 2:
            path.unlink()
    before, failed = entries(roots, "o"), list[str]()

    def unreadable(operation: str, path: str, moment: str) -> None:
        if f"journal/{3:020d}.json" in path and not failed:
            failed.append(path)
            raise OSError(5, "injected: a bad moment")

    roots.hooks["m"], roots.hooks["n"] = unreadable, no_journal
    with pytest.raises(ReplicaNotAvailableError, match="has entry 3"):
        quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)
    assert failed
    assert entries(roots, "o") == before


@pytest.mark.parametrize("away", ["the root", "its journal"])
def test_the_others_collect_where_a_metadata_root_is_away_since_it_was_opened(roots: Replicated, away: str) -> None:
    write(roots, range(8))
    roots.clock.advance(DELAY_MS)
    topic = roots.topic()
    assert isinstance(topic.journal, ReplicatedJournal)
    topic.journal.metadata()  # it knows all three
    if away == "the root":
        roots.take_away("o")
    else:
        roots.hooks["o"] = no_journal
    assert collect_decided(topic) > 0
    assert [entries(roots, root)[0] > 1 for root in "mn"] == [True, True]


@pytest.mark.parametrize("which", range(1, 12))
def test_a_metadata_root_may_be_emptied_while_its_entries_are_collected(roots: Replicated, which: int) -> None:
    write(roots, range(8))
    roots.clock.advance(DELAY_MS)
    topic, left = roots.topic(), [which]
    assert isinstance(topic.journal, ReplicatedJournal)
    topic.journal.metadata()

    def emptied(operation: str, path: str, moment: str) -> None:
        if operation in ("names", "fetch", "info") and moment == "before" and path.startswith("topics/t/journal"):
            left[0] -= 1
            if not left[0]:
                shutil.rmtree(roots.path / "o" / "topics")

    roots.hooks["o"] = emptied
    with suppress(CommitLogError, OSError):
        collect_decided(topic)
    assert left[0] <= 0, "else nothing is shown"
    assert entries(roots, "m")[0] > 1


def test_tables_stay_that_entries_of_a_former_life_name(roots: Replicated, few_rows: None) -> None:
    """A topic that many wrote has a table of writers, which its last entry names: who learns that needs it."""
    for number in range(8):
        roots.write(b"%d" % number, writer=Transaction(f"txn:{number}", 1, False))
    roots.log().topic("t").delete()
    maintain_all(roots)
    assert list((roots.path / "m").glob("topics/t/*/side/*")), "else nothing is shown"
    roots.take_away("o")
    roots.log().replicas.replace_metadata(str(roots.path / "o"), str(roots.path / "p"))
    roots.log().create_topic("t", 1)
    write(roots, range(8))
    maintain_all(roots)
    maintain(roots)
    assert [len(list((roots.path / root / "topics/t").glob("*-*-*"))) for root in "mnp"] == [0] * 3


def maintain_all(roots: Replicated) -> None:
    """As `commitlog maintain` does: deleted topics, too."""
    for _ in range(3):
        for name in "abc":
            topic = roots.at(name)
            maintain_topic(topic, silent)
        roots.clock.advance(DELAY_MS)


def test_only_what_leads_to_an_entry_without_a_gap_counts() -> None:
    assert leading_to(9, [2, 5, 6, 7, 8, 9, 10]) == range(5, 9)
    assert leading_to(9, [9, 10]) == leading_to(9, []) == leading_to(9, [7]) == range(9, 9)
    assert leading_to(3, [1, 2]) == range(1, 3)


def test_what_is_collected_since_it_was_listed_is_no_beginning(roots: Replicated) -> None:
    behind(roots)
    roots.write(b"9")
    newest, left = roots.decided_log().places.newest().entry, entries(roots, "m")
    for path in (roots.path / "o/topics/t/journal").glob("*.json"):
        path.unlink()
    oldest = roots.path / "m/topics/t/journal" / f"{left[0]:020d}.json"
    roots.hooks["m"] = once_at("fetch", oldest.name, oldest.unlink)
    roots.hooks["n"] = no_journal
    quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)
    assert entries(roots, "o") == left[1:]


def test_what_is_decided_may_be_collected_while_it_is_read(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    roots.write(b"0")
    read, gone = Quorum.read, [True]

    def collected(self: Quorum, sequence: int) -> Stored:
        if gone:
            gone.clear()
            raise FileNotFoundError(f"entry {sequence} is collected")
        return read(self, sequence)

    monkeypatch.setattr(Quorum, "read", collected)
    assert quorum(roots).newest() is not None
    assert not gone


def test_what_can_not_be_read_for_a_moment_is_not_taken_for_collected(roots: Replicated) -> None:
    behind(roots)
    roots.write(b"9")
    newest, left = roots.decided_log().places.newest().entry, entries(roots, "m")
    assert state_of(newest).hw == left[-2], "it might begin there"
    for path in (roots.path / "o/topics/t/journal").glob("*.json"):
        path.unlink()

    def unreadable(operation: str, path: str, moment: str) -> None:
        if f"{left[0]:020d}.json" in path:
            raise OSError(5, "injected: a bad moment")

    roots.hooks["m"], roots.hooks["n"] = unreadable, no_journal
    with pytest.raises(ReplicaNotAvailableError, match="which replicas need"):
        quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)
    assert entries(roots, "o") == []
    roots.hooks = {"n": no_journal}
    quorum(roots)._catch_up(seat(roots, "o"), newest.write_id, until=newest.sequence + 1)
    assert entries(roots, "o") == entries(roots, "m")


def test_a_new_root_learns_while_the_others_collect(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    write(roots, range(8))
    roots.take_away("o")
    copied = list[int]()
    put = LocalStorage.put_if_absent

    def putting(self: LocalStorage, path: str, data: bytes) -> object:
        done = put(self, path, data)
        if "/p/" in f"{self.url}/{path}" and "topics/t/journal/" in path:
            copied.append(int(path.rpartition("/")[2].removesuffix(".json")))
            if len(copied) == 2:
                for root in "mn":  # as a collector does
                    for number in entries(roots, root)[:-4]:
                        (roots.path / root / f"topics/t/journal/{number:020d}.json").unlink()
        return done

    monkeypatch.setattr(LocalStorage, "put_if_absent", putting)
    roots.log().replicas.replace_metadata(str(roots.path / "o"), str(roots.path / "p"))
    assert copied[:2] == [1, 2]
    assert entries(roots, "p") == entries(roots, "m")
    assert seat(roots, "p").learned() is not None, "no gap"
    roots.take_away("m")
    roots.write(b"8", topic=roots.topic("b"))
    assert roots.values("c")[-1] == b"8"


def test_nothing_goes_while_a_metadata_root_is_replaced(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one learns what the others have."""
    write(roots, range(8))
    roots.take_away("o")

    def killed(of: Roots, *_: object) -> None:
        if of.listed().former:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pyspark_commitlog.api.replace_metadata.finish", killed)
        with pytest.raises(KeyboardInterrupt):
            roots.log().replicas.replace_metadata(str(roots.path / "o"), str(roots.path / "p"))
    maintain_without_replicating(roots)
    assert [entries(roots, root)[0] for root in "mnp"] == [1] * 3
    roots.log().replicas.sync()
    maintain(roots)
    assert [len(entries(roots, root)) < 6 for root in "mnp"] == [True] * 3


def maintain_without_replicating(roots: Replicated) -> None:
    for name in "abc":
        topic = roots.at(name)
        settle_on(topic, topic.newest()[1].topic_id)
    roots.clock.advance(DELAY_MS)
    collect_decided(roots.topic())


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 12))])
def test_whatever_comes_they_converge_and_nothing_is_lost(fast_path: Path, seed: int) -> None:
    """One root at a time is away, processes are killed at any request, entries are put late where they were."""
    chance, roots, written, kept = Random(seed), Replicated(fast_path, metadata="mno"), 0, dict[str, bytes]()
    roots.create()
    away, seats, fresh = "", "mno", ["q", "p"]
    for _ in range(60):
        for path in (roots.path / chance.choice(seats.replace(away, "") if away else seats)).glob("topics/t/journal/*"):
            kept.setdefault(path.name, path.read_bytes())
        what = chance.choice(("write", "write", "maintain", "delay", "away", "killed", "late", "replace"))
        if what == "write":
            roots.write(b"%d" % written, topic=roots.topic(chance.choice("abc")))
            written += 1
        elif what == "maintain":
            maintain_topic(roots.at(chance.choice("abc")), silent)
        elif what == "delay":
            roots.clock.advance(DELAY_MS)
        elif what == "away":
            if away:
                roots.give_back(away)
            else:
                roots.take_away(chance.choice(seats))
            away = "" if away else next(each for each in seats if not (roots.path / each).exists())
        elif what == "killed":
            killed(roots, chance, chance.choice(seats))
        elif what == "late":
            name, place = chance.choice(sorted(kept)), roots.path / chance.choice(seats) / "topics/t/journal"
            if place.exists() and not (place / name).exists() and int(name[:20]) < min(entries_in(place)):
                (place / name).write_bytes(kept[name])
        elif away and fresh:
            new = fresh.pop()
            roots.log().replicas.replace_metadata(str(roots.path / away), str(roots.path / new))
            roots.metadata = seats = seats.replace(away, new)
            away = ""
    if away:
        roots.give_back(away)
    roots.write(b"%d" % written)
    maintain(roots)
    assert [entries(roots, root) == entries(roots, seats[0]) for root in seats] == [True] * 3
    assert len(entries(roots, seats[0])) < 8
    assert [roots.values(root) for root in "abc"] == [[b"%d" % number for number in range(written + 1)]] * 3


def entries_in(journal: Path) -> list[int]:
    return [int(path.stem) for path in journal.glob("*.json")] or [0]


def killed(roots: Replicated, chance: Random, root: str) -> None:
    """A process that brings a root on, or collects, is killed at one of its requests there."""
    left = [chance.randrange(1, 12)]

    def at(operation: str, path: str, moment: str) -> None:
        if "topics/t/journal" in path:
            left[0] -= 1
            if not left[0]:
                raise KilledError

    roots.hooks[root] = at
    with suppress(KilledError):
        chance.choice((lambda: collect_decided(roots.topic()), lambda: roots.decided_log().places.newest()))()
    roots.hooks.clear()


class KilledError(BaseException):
    """A process is killed."""
