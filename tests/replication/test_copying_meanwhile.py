"""A root gets the segments of another, which is written to and maintained meanwhile: what it has not got yet is gone.

Interleavings; c gets the segments of a up to entry T, partition 0 first:

1. *Merged*: where nothing can be appended, a's settlers merge neighbours, and collect them. All records up to T are
   there still, at the same offsets: c goes on at the offset that it has reached, in what is settled by then, up to T.
2. *Removed*: a's retention removes segments of partition 1. After T they are in the log, so c can't end there: it ends
   at a later entry, after which they are not. Partition 0 stays, and gets what was written to it since.
3. *Compacted*: c has a record of a key, and a compaction at a drops that record and, later, the tombstone after it.
   Were the rest of the partition taken from a as it is then, the key would live at c for ever. So the partition begins
   again, at a later entry, since what was dropped may be for the sake of a record after T.
4. *Compacted when it is done*: so is partition 0 while c copies partition 1: it begins again if there is more of it.
   Where it was not compacted it stays.
5. *Voided*: so does partition 0 if records that c has are given up since: c's row would say that it has none which are
   void. And if its log start has passed all that c has: the segments after that are gone.
6. *A round that has not ended* (nothing can be appended): which of its pieces are published no row says, so it is as 3.
7. *Again and again*: each time c begins again, a has compacted; or what is settled by then is gone again before a frame
   of it is read. It ends, and says what to raise.
8. *Lost*: a's newest settle entry names what is not there. That is damage, at once.
9. *The later entry is collected*, too, before all is copied: c holds it since it began to copy up to there.
10. *It is no later one*: a could not settle what followed. c never ends before the entry that it was to end at, nor at
    one after which records are in the log that a has removed.
11. *c collects* what no settle entry names, after a move: what was copied before that is not named yet, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.follower.catching_up import catch_up
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic import topic_tables as handles
from pyspark_commitlog.topic.replica_fetch import settled_copy as copying
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.replica_fetch.settled_copy import SettledTopic
from pyspark_commitlog.topic.state.settle_state import Active, Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.replication.lagging import lagging
from tests.support.records import batch_of, read_topic, stage
from tests.support.replicas import COMPACTED, Replicated, faults, once_at, settle_at, settled_rows
from tests.support.world import DELAY_MS

_RANDOM = Random(1)


def _write(roots: Replicated, partition: int, *keys: bytes, tombstone: bool = False) -> None:
    """Write records, each in a commit of its own, and settle it at the two others; each fills a segment."""
    for key in keys:
        topic, value = roots.topic(), None if tombstone else _RANDOM.randbytes(800)
        staged = stage(topic, batch_of([value], key=[key], partition=[partition]))
        commit(topic, staged.topic_id, [staged], acks_all=True)
        for root in "ab":
            settle_at(roots, root)


def _maintained(roots: Replicated) -> None:
    """Have the two others settle and maintain until what they do not need any more is gone."""
    for _ in range(3):
        _write(roots, 0, b"settled")
        for root in "ab":
            Maintenance(roots.log(root).root).maintain("t", silent)
        roots.clock.advance(DELAY_MS + 2_000)


def _catch_up(roots: Replicated) -> None:
    decided_log = roots.decided_log()
    catch_up(decided_log.places, roots.id_of("c"), TopicSegments("t"), decided_log.places.newest())


def _living(roots: Replicated, root: str) -> dict[tuple[int, bytes | None], int]:
    """Return the offset of the last record of each key that was not deleted: what compaction keeps."""
    last = {(record.partition, record.key): record for record in read_topic(roots.at(root)) if record.key}
    return {each: record.offset for each, record in last.items() if record.value is not None}


def _keys(roots: Replicated, root: str) -> set[bytes | None]:
    return {record.key for record in read_topic(roots.at(root))}


def _whole(roots: Replicated) -> None:
    """Have the root join; all have the same records then, but for what some have compacted, and nothing is damaged."""
    roots.hooks.clear()
    assert roots.log().replicas.sync("t").failed == {}
    assert roots.isr() == "abc"
    for _ in range(2):
        for root in "abc":
            roots.log(root).topic("t").maintain()
        roots.clock.advance(DAY_MS)
    is_compacted = "cleanup.policy" in roots.at("a").newest()[1].config
    assert _living(roots, "c") == _living(roots, "a")
    assert is_compacted or read_topic(roots.at("c")) == read_topic(roots.at("a"))
    for root in "abc":
        assert not faults(roots, root)


def _while_copying(roots: Replicated, segment: str, act: Callable[[], object]) -> list[str]:
    """Act once, when such a segment is begun at `c`; return all that are begun there."""
    begun: list[str] = []
    once = once_at("create", f"/{segment}", act)

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("create", "before") and path.endswith(".log"):
            begun.append("/".join(path.split("/")[-2:]))
        once(operation, path, moment)

    roots.hooks["c"] = hook
    return begun


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where the entries are noted up to which is copied."""
    settled, found = TopicSegments.settled, list[int]()

    def noted(self: TopicSegments, donor: Storage) -> SettledTopic:
        there = settled(self, donor)
        found.append(there.sequence)
        return there

    monkeypatch.setattr(TopicSegments, "settled", noted)
    return found


def test_what_is_merged_meanwhile_is_gone_on_with(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots, found = lagging(fast_path, unknown="ab"), _counted(monkeypatch)

    def merged() -> None:
        for number in range(20):
            _write(roots, 0, b"later %d" % number)
            for root in "ab":
                Maintenance(roots.log(root).root).maintain("t", silent)
        _maintained(roots)

    for number in range(3):
        _write(roots, 0, b"%d" % number)
        for root in "ab":
            Maintenance(roots.log(root).root).maintain("t", silent)
    _while_copying(roots, "0/", merged)
    _catch_up(roots)
    assert len(found) == 1, "up to the same entry"
    assert roots.at("c").newest()[0].sequence == found[0]
    _whole(roots)


def test_what_is_removed_meanwhile_is_not_copied(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots, found = lagging(fast_path, partitions=2), _counted(monkeypatch)
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def removed() -> None:
        _write(roots, 0, b"later")
        roots.log().topic("t").delete_records({1: 5})
        _maintained(roots)

    begun = _while_copying(roots, "1/", removed)
    _catch_up(roots)
    first, last = found
    shown, state = roots.at("c").newest()
    assert first < last == shown.sequence
    assert state.log_start[1] == 5, "there is no gap where records were"
    in_first = [path for path in begun if path.startswith("0/")]
    bases = [path.partition(".")[0] for path in in_first]
    assert len(bases) == len(set(bases)), "what is done is not copied again"
    _whole(roots)
    assert b"later" in _keys(roots, "c")


@pytest.mark.parametrize("unknown", ["", "ab"])
@pytest.mark.parametrize("done", [False, True])
def test_no_deleted_key_comes_back(fast_path: Path, unknown: str, done: bool) -> None:
    """Its record was copied, of a partition that is `done` or not; its tombstone went before it was."""
    roots = lagging(fast_path, unknown=unknown, partitions=2)
    roots.log().topic("t").alter(COMPACTED)
    _write(roots, 0, b"deleted", b"0", b"1", b"2")
    if not done:
        _write(roots, 0, b"deleted", tombstone=True)
    _write(roots, 0, b"3", b"4", b"5")
    _write(roots, 1, b"0", b"1", b"2", b"3", b"4")

    def compacted() -> None:
        if done:
            _write(roots, 0, b"deleted", tombstone=True)
        for number in range(3):
            _write(roots, 0, b"more %d" % number, b"0")
            _write(roots, 1, b"more %d" % number, b"0")
            roots.clock.advance(5_000)
            _maintained(roots)
        assert b"deleted" not in _keys(roots, "a")

    _while_copying(roots, "1/" if done else "0/" + "7".zfill(20), compacted)
    _catch_up(roots)
    assert b"deleted" not in _keys(roots, "c")
    _whole(roots)
    assert b"deleted" not in _keys(roots, "c")


def test_what_is_void_since_it_was_copied_goes(fast_path: Path) -> None:
    roots = lagging(fast_path, partitions=2)
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def voided() -> None:
        roots.log().topic("t").void({0: (8, 10)}, force=True)
        roots.log().topic("t").delete_records({1: 5})
        _maintained(roots)

    _while_copying(roots, "1/", voided)
    _catch_up(roots)
    assert not {8, 9} & settled_rows(roots.at("c"), 0)
    _whole(roots)


def test_what_is_removed_since_it_was_copied_is_not_gone_on_with(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots, found = lagging(fast_path, partitions=2), _counted(monkeypatch)
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def removed() -> None:
        _write(roots, 0, *(b"later %d" % number for number in range(3)))
        roots.log().topic("t").delete_records({0: 15, 1: 5})
        _maintained(roots)

    _while_copying(roots, "1/", removed)
    _catch_up(roots)
    assert roots.at("c").newest()[1].log_start == (15, 5)
    assert len(found) == 2, "no other root was asked"
    _whole(roots)


def test_what_a_round_that_has_not_ended_dropped_is_in_no_row() -> None:
    clean, other = (SettledPartition(9, Active(IndexState(9)), cleaned=cleaned) for cleaned in (5, 7))
    assert copying._nothing_dropped(clean, clean)
    assert not copying._nothing_dropped(clean, other)
    merged = SettledPartition(12, Active(IndexState(12)), cleaned=5)
    assert copying._nothing_dropped(clean, merged)
    begun, went_on = clean.with_dropped_below(8), merged.with_dropped_below(8)
    assert copying._nothing_dropped(begun, begun)
    assert not copying._nothing_dropped(begun, went_on)
    assert not copying._nothing_dropped(clean, begun)


def test_it_ends_where_all_is_compacted_each_time(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = lagging(fast_path)
    roots.log().topic("t").alter(COMPACTED)
    monkeypatch.setattr(copying, "_MOVES", 1)
    _write(roots, 0, *(b"%d" % number for number in range(5)))
    before, rounds, inside = roots.values("c"), list[str](), list[bool]()

    def compacted(operation: str, path: str, moment: str) -> None:
        if (operation, moment) != ("create", "before") or not path.endswith(".log") or inside:
            return
        inside.append(True)
        rounds.append(path)
        assert len(rounds) < 20, "it has no end"
        _write(roots, 0, *(b"%d" % number for number in range(5)))
        roots.clock.advance(5_000)
        _maintained(roots)
        inside.clear()

    roots.hooks["c"] = compacted
    with pytest.raises(ReplicaNotAvailableError, match=r"each time .* Raise `file\.delete\.delay\.ms` of the topic"):
        _catch_up(roots)
    assert roots.values("c") == before
    _whole(roots)


def test_it_ends_where_nothing_stays_long_enough(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots, looks = lagging(fast_path), count(1)
    _write(roots, 0, b"0", b"1")

    def other(self: TopicLog, settle: SettleState, partition: int, low: int = 0) -> tuple[Sealed, ...]:
        number = next(looks)
        assert number < 1_000, "it has no end"
        return (Sealed(0, settle.partition(partition).end_offset, number, 100, 0, 0, 0, 0),)

    monkeypatch.setattr(TopicLog, "sealed", other)
    with pytest.raises(ReplicaNotAvailableError, match="before they are copied, each time"):
        _catch_up(roots)


def test_no_root_begins_with_a_log_start_in_no_segment(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other root has removed by a later entry what is in the log after the one that is copied up to."""
    roots, settled, looks = lagging(fast_path, partitions=2), TopicSegments.settled, count()
    _write(roots, 1, *(b"%d" % number for number in range(6)))
    there = TopicSegments("t").settled(roots.storage("a"))
    roots.log().topic("t").delete_records({1: 5})
    Maintenance(roots.log("a").root).maintain("t", silent)

    def late(self: TopicSegments, donor: Storage) -> SettledTopic:
        found = settled(self, donor)
        return found if next(looks) else replace(there, settled=found.settled)

    monkeypatch.setattr(TopicSegments, "settled", late)
    _catch_up(roots)
    assert next(looks) == 2
    assert roots.at("c").newest()[1].log_start == (0, 5)
    _whole(roots)


def test_no_partition_is_gone_on_with_beyond_a_log_start_that_rose_since(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other root has removed, by an entry after the one that is copied up to, what follows what was copied."""
    roots, settled, asked = lagging(fast_path, partitions=2), TopicSegments.settled, list[str]()
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def removed() -> None:
        _write(roots, 0, *(b"later %d" % number for number in range(6)))
        roots.log().topic("t").delete_records({1: 5})
        _maintained(roots)

    def late(self: TopicSegments, donor: Storage) -> SettledTopic:
        found = settled(self, donor)
        asked.append(donor.url)
        if len(asked) != 2:
            return found
        roots.log().topic("t").delete_records({0: 17})
        Maintenance(roots.log("a").root).maintain("t", silent)
        return replace(found, settled=settled(self, donor).settled)

    monkeypatch.setattr(TopicSegments, "settled", late)
    _while_copying(roots, "1/", removed)
    _catch_up(roots)
    assert asked == [roots.storage("a").url] * 3, "no other root was asked"
    assert roots.at("c").newest()[1].log_start == (17, 5)
    _whole(roots)


def test_a_log_start_that_rises_between_two_looks_is_no_damage(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots, looks = lagging(fast_path), count()
    _write(roots, 0, *(b"%d" % number for number in range(6)))
    there = TopicSegments("t").settled(roots.storage("a"))
    copy = copying.SettledCopy(roots.at("a"), roots.at("c"), there, 1, there.state, lambda: there, lambda _: None, bool)
    newest, settled = copy.source.newest, copy.source.settled

    def removed() -> None:
        if next(looks) == 0:  # after the first of the two
            roots.log().topic("t").delete_records({0: 10})
            Maintenance(roots.log("a").root).maintain("t", silent)

    def newest_then(topic_id: str) -> object:
        found = newest(topic_id)
        removed()
        return found

    def settled_then(topic_id: str) -> object:
        found = settled(topic_id)
        removed()
        return found

    monkeypatch.setattr(copy.source, "newest", newest_then)
    monkeypatch.setattr(copy.source, "settled", settled_then)
    with pytest.raises(copying._GoneError):
        copy._segments_now(0, 8, FileNotFoundError("merged"))
    assert next(looks) == 2


def test_it_never_ends_earlier_than_it_was_to(fast_path: Path) -> None:
    roots, segments, held = lagging(fast_path), TopicSegments("t"), list[SettledTopic]()
    there = segments.settled(roots.storage("a"))
    earlier = replace(there, sequence=there.sequence - 1, write_id="earlier")
    copy = copying.SettledCopy(roots.at("a"), roots.at("c"), there, 1, there.state, lambda: earlier, held.append, bool)
    copy._move()
    assert copy.settled_through == (there.sequence, there.write_id)
    assert held == [copy.there]


@pytest.mark.parametrize(("unknown", "lost"), [("", "*/0/*.log"), ("", "*/manifests/0-*.json"), ("ab", "*/objects/*")])
def test_what_is_lost_is_damage_at_once(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: str, lost: str
) -> None:
    """A segment, what lists them, or the list in an object."""
    roots, found = lagging(fast_path, unknown=unknown), _counted(monkeypatch)
    _write(roots, 0, *(b"%d" % number for number in range(6)))
    for root in "ab":
        TopicSegments("t").settled(roots.storage(root))
        files = sorted((fast_path / root / "topics/t").glob(lost))
        for path in files[1:2] if lost.endswith(".log") else files:
            path.unlink()
    handles._footers.clear()  # another process has to read it
    found.clear()
    with pytest.raises(ReplicaNotAvailableError, match=r"is missing: restore it from a copy.*is missing"):
        _catch_up(roots)
    assert len(found) == 2, "each root was looked at once"


def test_what_was_copied_before_a_move_is_not_collected(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots, found = lagging(fast_path, partitions=2, settled=True), _counted(monkeypatch)
    topic = roots.at("c")
    before = topic.settled(topic.newest()[1].topic_id)[1].partition(0)
    assert before.active.base_offset > 0, "what is below is collected"
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def removed() -> None:
        roots.log().topic("t").delete_records({1: 5})
        _maintained(roots)

    first, collected = once_at("create", "/1/", removed), list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        first(operation, path, moment)
        if (operation, moment) == ("create", "before") and len(found) == 2 and not collected:
            collected.append(path)
            with pytest.raises(ReplicaNotAvailableError, match="lags too far"):  # it settles nothing, and collects
                Maintenance(roots.log("c").root).maintain("t", silent)

    roots.hooks["c"] = hook
    _catch_up(roots)
    assert collected
    assert len(found) == 2, "no other root was asked"
    _whole(roots)


def test_a_later_entry_is_held_from_when_it_is_copied_up_to(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    roots, found = lagging(fast_path, partitions=2), _counted(monkeypatch)
    for partition in (0, 1):
        _write(roots, partition, *(b"%d" % number for number in range(6)))

    def removed() -> None:
        roots.log().topic("t").delete_records({1: 5})
        _maintained(roots)

    def collected() -> None:
        for number in range(4):
            _write(roots, 0, b"later %d" % number)
        roots.clock.advance(DAY_MS)
        _maintained(roots)
        _write(roots, 0, b"last")
        _maintained(roots)
        assert found[-1] not in roots.at("a").journal.sequences()

    first, begun = once_at("create", "/1/", removed), list[str]()

    def hook(operation: str, path: str, moment: str) -> None:
        first(operation, path, moment)
        if len(found) == 2 and (operation, moment) == ("create", "before") and path.endswith(".log"):
            begun.append(path)
            if len(begun) == 1:
                collected()

    roots.hooks["c"] = hook
    _catch_up(roots)
    assert f"it has the segments of root {roots.id_of('a')} up to entry {found[1]}" in caplog.text
    _whole(roots)
