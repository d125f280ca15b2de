"""Records that a root has settled, and that an unclean election made void: nobody sees, copies or counts them.

Interleavings:

1. It is settled, the election is learned later: readers pass over it at once, maintenance drops it.
2. Compaction has seen it, and dropped what it superseded, which lives: that is fetched from another root.
3. No other root answers: nothing is compacted until one does.
4. The other root has the same fault: nothing is taken from there.
5. A root that lags, or is damaged, takes frames of one that has such records still: they come without them.
6. That one has not learned of the election yet: the root that asks has.
7. The void record was compacted away itself, a tombstone: nothing shows that it was there.
8. Without append a round was cut off after it had dropped what the void record superseded.
9. Nobody else has the topic, or all others have the same fault: what is void goes, the rest is lost, and said.
10. Without append the election is learned, and what is void dropped, between two steps of a round of compaction.
11. Or the round publishes between two steps of what drops it; or a settler does, which had not learned of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyspark_commitlog.api.repair import drop_void_records
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.compaction import compact as compaction
from pyspark_commitlog.topic.damage.salvage_objects import publish
from pyspark_commitlog.topic.replica_fetch import mend
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.state.late_voids import is_misled, late_voids, with_voids_at
from pyspark_commitlog.topic.state.settle_state import Active, SettledPartition
from pyspark_commitlog.topic.state.topic_state import LostOffsets, TopicState, Void
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.support.damage import zero
from tests.support.records import append, batch_of, stage
from tests.support.replicas import (
    COMPACTED,
    CONFIG,
    Replicated,
    compact_at,
    cut_off_after_a_piece,
    elect,
    faults,
    once_at,
    segment,
    settle_at,
    settled_rows,
    void_here,
)
from tests.support.world import World, once

LARGE = Random(0).randbytes(20_000)


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def lost_uncleanly(
    roots: Replicated, *, config: dict[str, object] | None = None, key: bytes | None = None, partitions: int = 1
) -> None:
    """Have `a` settle records, at offsets 1 and 2, that an unclean election makes void, and come back.

    The first supersedes the one before it where there is a key, and the topic is compacted.
    """
    roots.create(partitions, {**CONFIG, "replica.lag.time.max.ms": 1000, **(config or {})})
    write_key(roots, b"0", key)
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    for value, same in ((b"void", key), (b"void, too", b"last")):
        write_key(roots, value, same)
        settle_at(roots, "a")
        roots.clock.advance(DAY_MS)
    compact_at(roots, "a")
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    write_key(roots, b"2", b"other", "b", partitions - 1)
    roots.give_back("a")
    if partitions > 1:
        return
    roots.log("b").replicas.sync("t")
    roots.log("c").replicas.sync("t")
    assert roots.values("b") == [b"0", b"2"]


def write_key(roots: Replicated, value: bytes, key: bytes | None, at: str = "a", partition: int = 0) -> None:
    topic = roots.topic(at)
    staged = stage(topic, batch_of([value], key=[key], partition=[partition]), everywhere=True)
    commit(topic, staged.topic_id, [staged])


def test_a_reader_passes_over_what_became_void_after_it_was_settled(roots: Replicated) -> None:
    lost_uncleanly(roots)
    settle_at(roots, "a")
    assert roots.values("a") == [b"0", b"2"]


@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_became_void_after_it_was_settled_is_dropped(fast_path: Path, unknown: str) -> None:
    roots = Replicated(fast_path, unknown=unknown)
    lost_uncleanly(roots)
    settle_at(roots, "a")
    assert void_here(roots, "a") == {1, 2}
    roots.take_away("b")
    roots.take_away("c")
    roots.log("a").topic("t").maintain()
    assert void_here(roots, "a") == set(), "its own frames have the rest"
    assert roots.values("a") == [b"0", b"2"]
    assert not faults(roots, "a")


@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_a_void_record_superseded_is_fetched(fast_path: Path, unknown: str) -> None:
    """Compaction at `a` dropped the record before it, which lives."""
    roots = Replicated(fast_path, unknown=unknown)
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    settle_at(roots, "a")
    assert roots.values("a") == [b"2"], "it is not there yet"
    roots.log("a").topic("t").maintain()
    assert roots.values("a") == roots.values("b") == [b"0", b"2"]
    assert void_here(roots, "a") == set()
    assert not faults(roots, "a")


def test_nothing_is_compacted_by_a_void_record(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    settle_at(roots, "a")
    roots.clock.advance(DAY_MS)
    for root in "bc":
        roots.take_away(root)
    roots.log("a").topic("t").maintain()
    topic = roots.at("a")
    cleaned = topic.settled(topic.newest()[1].topic_id)[1].partition(0).cleaned
    assert "is not compacted there" in caplog.text
    assert cleaned < 3
    for root in "bc":
        roots.give_back(root)


def test_nothing_is_taken_from_a_root_that_lacks_what_a_void_record_superseded(roots: Replicated) -> None:
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    elect(roots, "a")
    for root in "abc":
        settle_at(roots, root)
    roots.take_away("c")
    zero(segment(roots, "b"), Random(1))
    done = roots.log("b").topic("t").repair()
    assert "run `commitlog maintain` at that root first" in " ".join(done.left)
    roots.give_back("c")
    roots.log("a").topic("t").maintain()
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == [b"0", b"2"]


def test_what_is_void_is_not_copied(roots: Replicated) -> None:
    lost_uncleanly(roots)
    settle_at(roots, "a")
    (roots.path / "d" / "topics").mkdir(parents=True)
    segments, into = TopicSegments("t"), LocalStorage(roots.path / "d", clock=roots.clock)
    segments.copy(roots.storage("a"), into, segments.settled(roots.storage("a")))
    there, state = TopicLog(into, "t"), roots.at("a").newest()[1]
    assert there.settled(state.topic_id)[1].partition(0).end_offset == 4
    assert settled_rows(there, 0, state.topic_id) == {0, 3}


def test_a_partition_is_copied_again_where_what_it_has_became_void(roots: Replicated) -> None:
    """Though it ends where the other one does."""
    lost_uncleanly(roots, partitions=2)
    segments = TopicSegments("t")
    there = segments.settled(roots.storage("b"))
    settled = roots.at("a").settled(there.state.topic_id)[1]
    assert settled.partition(0).end_offset == there.state.log_end[0] == 3
    segments.copy(roots.storage("b"), roots.storage("a"), there)
    here = roots.at("a")
    assert settled_rows(here, 0) == {0}


def test_what_is_void_is_not_fetched(roots: Replicated) -> None:
    lost_uncleanly(roots)
    elect(roots, "a")
    for root in "abc":
        settle_at(roots, root)
    roots.take_away("c")
    zero(segment(roots, "b"), Random(1))
    roots.log("b").topic("t").repair()
    assert roots.values("b") == [b"0", b"2"]
    assert void_here(roots, "b") == set()
    assert not faults(roots, "b")


def settled_and_compacted(roots: Replicated, root: str, after_ms: int = DAY_MS) -> None:
    settle_at(roots, root)
    roots.clock.advance(after_ms)
    compact_at(roots, root)


def shown(roots: Replicated, root: str) -> list[bytes | None]:
    return [value and value[:6] for value in roots.values(root)]


def test_nothing_is_taken_from_a_root_that_has_not_learned_the_election(roots: Replicated) -> None:
    roots.create(config={**CONFIG, "replica.lag.time.max.ms": 1000, **COMPACTED})
    write_key(roots, LARGE, b"large")
    write_key(roots, b"living", b"key")
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    for value, key in ((b"void", b"key"), (b"x", b"x"), (b"y", b"y")):
        write_key(roots, value, key)
        settled_and_compacted(roots, "a")
    for path in (roots.path / "a").glob("topics/t/*/staged/*.chunk"):
        path.unlink()  # as its collector does
    roots.take_away("a")
    roots.take_away("c")
    roots.log("b").replicas.elect("t", unclean=True)
    write_key(roots, b"2", b"other", "b")
    roots.give_back("a")
    zero(max((roots.path / "b").glob("topics/t/*/staged/*.chunk"), key=lambda path: path.stat().st_size), Random(1))
    done = roots.log("b").topic("t").repair()
    assert "run `commitlog maintain` at that root first" in " ".join(done.away)
    roots.give_back("c")
    assert roots.log("b").topic("t").repair().left == ()
    assert shown(roots, "b") == [LARGE[:6], b"living", b"2"]
    roots.log("b").replicas.sync("t")
    for root in "ba":
        roots.log(root).topic("t").maintain()
    assert shown(roots, "a") == shown(roots, "b") == [LARGE[:6], b"living", b"2"]


def test_what_a_void_tombstone_removed_is_fetched(roots: Replicated) -> None:
    """It was compacted away itself; what came after it lives, as the new leader has their chunks."""
    roots.create(config={**CONFIG, "replica.lag.time.max.ms": 1000, **COMPACTED})
    write_key(roots, b"living", b"key")
    topic, step_ms = roots.topic("a"), 800_000
    later = [
        stage(
            topic,
            batch_of([b"%d" % n], key=[b"%d" % n], timestamp=[(roots.clock.now_ms() + (n + 1) * step_ms) * 1000]),
            everywhere=True,
        )
        for n in range(4)
    ]
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    topic = roots.topic("a")
    tombstone = stage(topic, batch_of([None], key=[b"key"], partition=[0]))
    commit(topic, tombstone.topic_id, [tombstone])
    for staged in later:
        settled_and_compacted(roots, "a", step_ms)
        topic = roots.topic("a")
        commit(topic, staged.topic_id, [staged])
    settled_and_compacted(roots, "a", step_ms)
    assert b"living" not in roots.values("a")
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    write_key(roots, b"2", b"other", "b")
    roots.give_back("a")
    for root in "bc":
        roots.log(root).replicas.sync("t")
    assert roots.values("b")[0] == b"living"
    roots.log("a").topic("t").maintain()
    assert roots.values("a") == roots.values("b")


def with_pieces(path: Path) -> Replicated:
    """Have `a`, where nothing can be appended, settle objects that a round takes one by one.

    The third has what supersedes the record of the first: of it and what follows no other root has anything.
    """
    roots = Replicated(path, unknown="a")
    roots.create(config={**CONFIG, "replica.lag.time.max.ms": 1000, **COMPACTED, "segment.bytes": 30_000})

    def write(key: bytes, value: bytes) -> None:
        write_key(roots, value + LARGE, key)
        settle_at(roots, "a")
        roots.clock.advance(DAY_MS)

    write(b"key", b"living")
    write(b"x", b"x")
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    for key, value in ((b"key", b"void"), (b"y", b"y"), (b"z", b"z")):
        write(key, value)
    return roots


def lose(roots: Replicated) -> None:
    """Have an unclean election make void what only `a` has, which comes back and learns of it."""
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    write_key(roots, b"2", b"other", "b")
    roots.give_back("a")
    for root in "bc":
        roots.log(root).replicas.sync("t")


def compact_with(roots: Replicated, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Compact at `a`; act when a round has read what it compacts, and is about to publish its first piece."""
    published, first = compaction.publish_piece, once(act)

    def piece(*args: Any) -> bool:
        first()
        return published(*args)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "publish_piece", piece)
        compact_at(roots, "a")


def put_later(monkeypatch: pytest.MonkeyPatch, roots: Replicated) -> Callable[[], bool]:
    """Have a process at `a` drop what is void, up to where it publishes; return what does the rest."""
    put: list[Callable[[], bool]] = []

    def later(*args: Any) -> bool:
        put.append(partial(publish, *args))
        return True

    with monkeypatch.context() as patch:
        patch.setattr(mend, "publish", later)
        assert drop_void_records(roots.storage("a"), "t").ranges
    return put[0]


def is_whole_again(roots: Replicated) -> bool:
    """Maintain all roots; return whether `a` shows what another root does, and has nothing void."""
    for root in "abc":
        roots.log(root).topic("t").maintain()
    return shown(roots, "a") == shown(roots, "b") and void_here(roots, "a") == set() and not faults(roots, "a")


def test_a_round_that_was_cut_off_had_dropped_what_a_void_record_superseded(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = with_pieces(fast_path)
    cut_off_after_a_piece(roots, "a", monkeypatch)
    lose(roots)
    roots.log("a").topic("t").maintain()
    assert not faults(roots, "a")
    assert void_here(roots, "a") == set()
    assert shown(roots, "a") == shown(roots, "b")
    assert shown(roots, "a")[0] == b"living"


def test_a_round_that_has_read_a_void_record_is_given_up(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the keys; what is void is dropped before it publishes. Nothing would say what it dropped."""
    roots = with_pieces(fast_path)

    def dropped() -> None:
        lose(roots)
        assert drop_void_records(roots.storage("a"), "t").ranges

    compact_with(roots, monkeypatch, dropped)
    assert is_whole_again(roots)
    assert shown(roots, "a")[0] == b"living"


def test_what_a_round_publishes_while_what_is_void_is_dropped_is_not_forgotten(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round asks for what is void, that is learned, what drops it looks, and the round publishes what it lacks."""
    roots, put = with_pieces(fast_path), list[Callable[[], bool]]()

    def looked() -> None:
        lose(roots)
        put.append(put_later(monkeypatch, roots))

    def asked() -> None:
        roots.hooks["a"] = once_at("put_if_absent", "/settle/", looked)

    compact_with(roots, monkeypatch, asked)
    assert shown(roots, "a")[0] != b"living"
    assert not put[0]()
    assert is_whole_again(roots)
    assert shown(roots, "a")[0] == b"living"


def test_what_is_settled_while_what_is_void_is_dropped_does_not_count_as_free_of_it(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settler that has not learned of the election settles a void record after what drops them has looked."""
    roots, put = with_pieces(fast_path), list[Callable[[], bool]]()
    write_key(roots, b"void, too", b"last")

    def looked() -> None:
        lose(roots)
        put.append(put_later(monkeypatch, roots))

    roots.hooks["a"] = once_at("put_if_absent", "/settle/", looked)
    settle_at(roots, "a")
    assert 5 in void_here(roots, "a")
    assert not put[0]()
    assert is_whole_again(roots)


@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_nobody_can_give_is_lost_and_said(fast_path: Path, unknown: str, caplog: pytest.LogCaptureFixture) -> None:
    """The topic is on this root alone: else it would never be compacted again."""
    roots = Replicated(fast_path, unknown=unknown)
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    elect(roots, "a")
    settle_at(roots, "a")
    assert roots.log().topic("t").set_replication_factor(1).isr == (roots.id_of("a"),)
    for number in range(3):
        write_key(roots, b"n%d" % number, b"n")
        settle_at(roots, "a")
        roots.clock.advance(DAY_MS)
        roots.log("a").topic("t").maintain()
    assert "no other root has what it may have dropped in their favour" in caplog.text
    assert void_here(roots, "a") == set()
    assert roots.values("a") == [b"2", b"n1", b"n2"], "it is compacted"


def test_a_copy_of_what_lost_records_is_compacted(roots: Replicated) -> None:
    """It stands alone: what is settled there is read, and nobody could fetch anything for it. Then others join it."""
    lost_uncleanly(roots, config=COMPACTED, key=b"key")
    there = World(roots.path / "there", roots.clock)
    roots.log("b").copy_to(there.log(), ["t"])
    assert settled_rows(there.handle(), 0) == {0, 3}
    for number in range(3):
        append(there.handle(), batch_of([b"n%d" % number], key=[b"other"]))
        roots.clock.advance(DAY_MS)
        there.maintain()
    assert there.values() == [b"0", b"n1", b"n2"]
    there.log().replicas.add([str(roots.path / "joins")])
    assert len(there.log().topic("t").set_replication_factor(2).isr) == 2
    assert roots.values("joins") == [b"0", b"n1", b"n2"]


def test_a_root_that_only_decides_says_nothing(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    lost_uncleanly(roots)
    caplog.clear()
    roots.log("m").topic("t").maintain()
    assert caplog.text == ""


def test_which_settled_offsets_were_made_void_after_they_were_settled() -> None:
    lost = (LostOffsets(5, 1, ranges=(Void(0, 2, 4), Void(1, 0, 9))), LostOffsets(7, 2, ranges=(Void(0, 6, 20),)))
    state = TopicState("t", False, {}, (1, 0), (30, 30), 1, is_replicated=True, lost=lost)

    def row(end: int, *, cleaned: int = 0, dropped_below: int = 0, voids_at: int = 0) -> SettledPartition:
        return SettledPartition(end, Active(IndexState(end)), None, cleaned, dropped_below, voids_at)

    assert late_voids(state, 0, row(10)) == [(2, 4), (6, 10)]
    assert late_voids(state, 0, row(10, voids_at=5)) == [(6, 10)]
    assert late_voids(state, 0, row(6, voids_at=5)) == []
    assert late_voids(replace(state, log_start=(3, 0)), 0, row(10)) == [(3, 4), (6, 10)]
    assert is_misled(state, 0, row(10, cleaned=3))
    assert is_misled(state, 0, row(10, dropped_below=3))
    assert not is_misled(state, 0, row(10, cleaned=2))
    assert with_voids_at(state, 9, 0, row(10), row(12)).voids_at == 0, "it had some already"
    assert with_voids_at(state, 9, 0, row(2), row(12)).voids_at == 9
    assert with_voids_at(state, 6, 0, row(2, voids_at=9), row(12, voids_at=9)).voids_at == 6, "an older look"
    assert with_voids_at(state, 9, 0, row(2), row(2)).voids_at == 0, "nothing was settled"


def test_nothing_is_late_where_a_root_stands_alone() -> None:
    """A copy has what its source lost: so that others may join it, its rows say what they have of that."""
    state = TopicState("t", False, {}, (0,), (30,), 1, lost=(LostOffsets(5, 1, ranges=(Void(0, 2, 4),)),))
    before, copied = (SettledPartition(end, Active(IndexState(end)), None) for end in (2, 10))
    assert late_voids(state, 0, copied) == []
    assert not is_misled(state, 0, copied)
    assert with_voids_at(state, 9, 0, before, copied).voids_at == 9
    assert with_voids_at(state, 9, 0, copied, replace(copied, end_offset=12)).voids_at == 0, "it was copied before"
    assert with_voids_at(replace(state, lost=()), 9, 0, before, copied).voids_at == 0, "nothing is lost"
