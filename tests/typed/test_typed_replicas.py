"""Typed topics of several roots: each has the same rows, whatever is lost, elected, fetched or copied."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.format.entry import REPLICAS, TYPED
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.write.writers import Transaction
from tests.replication.lost import recover
from tests.support.damage import flip, remove
from tests.support.replicas import (
    CONFIG,
    Replicated,
    elect,
    faults,
    no_device,
    segment,
    settle_at,
    settled_rows,
    void_here,
)
from tests.support.typed import DECLARED, Row, maintained, offsets, read_rows, row, rows, write
from tests.support.world import DELAY_MS, World

SIZE = 20_000


def whole(roots: Replicated, expected: list[Row], at: str = "") -> None:
    """Each root has these rows, and nothing of it is damaged."""
    for root in at or roots.names:
        assert read_rows(roots.at(root)) == expected, f"at {root}"
        assert not faults(roots, root), f"at {root}"


@pytest.mark.parametrize("unknown", ["", "b", "abc"])
@pytest.mark.parametrize("inline", [0, 2**20])
def test_followers_learn(tmp_path: Path, unknown: str, inline: int) -> None:
    roots = Replicated(tmp_path, unknown=unknown)
    topic = roots.create(2, {**CONFIG, "inline.max.bytes": inline}, **DECLARED)
    expected: list[Row] = []
    for number in range(4):
        write(topic, *rows(3 * number, 3 * number + 3, 100), everywhere=True)
        expected += rows(3 * number, 3 * number + 3, 100)
    whole(roots, expected)
    maintained(roots)
    whole(roots, expected)
    assert roots.decided_log().places.newest().entry.features == (REPLICAS, TYPED)
    assert roots.isr() == "abc"


def test_who_leads_next_has_all_that_was_acknowledged(roots: Replicated) -> None:
    write(roots.create(**DECLARED), *rows(0, 3, SIZE), everywhere=True)
    roots.take_away("a")
    write(roots.topic("b"), *rows(3, 6, SIZE), everywhere=True)
    assert roots.leader() in "bc"
    whole(roots, rows(0, 6, SIZE), at="bc")
    roots.give_back("a")
    roots.log("b").replicas.sync("t")
    write(roots.topic("b"), row(6))
    whole(roots, [*rows(0, 6, SIZE), row(6)])


def test_an_append_that_an_election_takes_is_void_and_its_retry_is_appended(roots: Replicated) -> None:
    write(roots.create(**DECLARED), row(0))
    lost = rows(1, 4, SIZE)
    roots.hooks.update(dict.fromkeys("bc", no_device))
    write(roots.topic(), *lost, writer=Transaction("txn:app", 1), acks_all=False)
    roots.hooks.clear()
    roots.take_away("a")
    elect(roots, "b")
    assert offsets(roots.at("b")) == [0]
    assert not write(roots.topic("b"), *lost, writer=Transaction("txn:app", 1)).skipped
    roots.give_back("a")
    roots.log("b").replicas.sync("t")
    whole(roots, [row(0), *lost])
    assert offsets(roots.at("a")) == [0, 4, 5, 6]
    maintained(roots)
    whole(roots, [row(0), *lost])


def unclean(roots: Replicated, *, settled: bool, joined: bool) -> None:
    """Have b lead without what a alone has, which a may have settled, `joined` with a row that stays."""
    topic = roots.create(config={**CONFIG, **({} if joined else {"batch.size": 1024})}, **DECLARED)
    write(topic, row(0), everywhere=True)
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")
    write(roots.topic(), *rows(1, 4, 100 if joined else 2100))
    if settled:
        settle_at(roots, "a")
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    write(roots.topic("b"), *rows(4, 6))
    roots.give_back("a")
    roots.log("b").replicas.sync("t")


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("unknown", ["", "a"])
def test_what_an_unclean_election_takes_is_a_gap(tmp_path: Path, settled: bool, joined: bool, unknown: str) -> None:
    """What one root had settled is cut out of its frames, row by row."""
    roots = Replicated(tmp_path, unknown=unknown)
    unclean(roots, settled=settled, joined=joined)
    kept = [row(0), *rows(4, 6)]
    whole(roots, kept)
    assert offsets(roots.at("a")) == [0, 4, 5]
    assert bool(void_here(roots, "a")) == settled
    maintained(roots)
    whole(roots, kept)
    assert not void_here(roots, "a"), "maintenance drops them"
    assert settled_rows(roots.at("a"), 0) == {0, 4, 5}


def lagging(path: Path, unknown: str = "", *, wiped: bool = False) -> tuple[Replicated, list[Row]]:
    """Return roots of which c lacks what the others have settled and collected."""
    roots = Replicated(path, unknown=unknown)
    roots.create(config={**CONFIG, "replica.lag.time.max.ms": 1000, "segment.bytes": 4000}, **DECLARED)
    write(roots.topic(), row(0), everywhere=True)
    roots.hooks["c"] = no_device
    for number in range(1, 4):
        write(roots.topic(), *rows(2 * number, 2 * number + 2, 500))
    for waited_ms in (DELAY_MS, DAY_MS, DELAY_MS):
        for root in "ab":
            roots.log(root).topic("t").maintain()
        roots.clock.advance(waited_ms)
    del roots.hooks["c"]
    assert roots.isr() == "ab"
    if wiped:
        shutil.rmtree(path / "c/topics/t")
    return roots, [row(0), *rows(2, 8, 500)]


@pytest.mark.parametrize(("wiped", "unknown"), [(False, ""), (True, ""), (True, "c"), (False, "ab")])
def test_a_root_that_lags_too_far_gets_segments(tmp_path: Path, wiped: bool, unknown: str) -> None:
    roots, expected = lagging(tmp_path, unknown, wiped=wiped)
    assert roots.log().replicas.sync("t").failed == {}
    assert roots.isr() == "abc"
    whole(roots, expected)
    write(roots.topic(), row(9))
    maintained(roots)
    whole(roots, [*expected, row(9)])


@pytest.mark.parametrize("unknown", ["", "b", "ac"])
@pytest.mark.parametrize("damage", [flip, remove])
def test_segments_are_mended_from_another_root(tmp_path: Path, unknown: str, damage: object) -> None:
    """However each root has joined its frames."""
    roots = Replicated(tmp_path, unknown=unknown)
    topic = roots.create(**DECLARED)
    for number in range(3):
        write(topic, row(2 * number), row(2 * number + 1), everywhere=True)
        settle_at(roots, "b")
    write(topic, *rows(6, 8, SIZE), everywhere=True)
    for root in "ba":
        settle_at(roots, root)
    damage(segment(roots, "b"), Random(5))  # type: ignore[operator]
    assert faults(roots, "b")
    done = roots.log("b").topic("t").repair()
    assert (done.left, bool(done.ranges)) == ((), True)
    expected = [*rows(0, 6), *rows(6, 8, SIZE)]
    assert read_rows(roots.at("b")) == expected
    assert not faults(roots, "b")
    write(topic, row(8))
    settle_at(roots, "b")
    assert read_rows(roots.at("b")) == [*expected, row(8)]


def test_a_row_that_no_root_has_is_given_up_at_all(roots: Replicated) -> None:
    topic = roots.create(config={**CONFIG, "batch.size": 1024, "compression.type": "none"}, **DECLARED)
    write(topic, *rows(0, 4, 2100), each=True, everywhere=True)
    for root in "abc":
        settle_at(roots, root)
        path = segment(roots, root)
        data = bytearray(path.read_bytes())
        data[int(len(data.rstrip(b"\0")) * 0.375)] ^= 1  # in the second frame of four
        path.write_bytes(bytes(data))
    maintained(roots)
    roots.log("a").topic("t").void()
    left = [row(0, 2100), *rows(2, 4, 2100)]
    for root in "abc":
        roots.log(root).topic("t").repair()
    whole(roots, left)
    assert offsets(roots.at("c")) == [0, 2, 3]


def test_replicas_are_added_to_a_typed_topic_that_stood_alone(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    topic = world.create(**DECLARED)
    write(topic, *rows(0, 3, SIZE))
    before = topic.newest()[1].schema
    world.maintain()
    write(topic, *rows(3, 6))
    roots = Replicated(tmp_path, clock=world.clock, metadata="a")
    roots.log("a").replicas.add([str(tmp_path / "b"), str(tmp_path / "c")])
    roots.log("a").topic("t").set_replication_factor(3)
    roots.log("a").replicas.sync("t")
    stored, state = roots.at("c").newest()
    assert (stored.entry.features, state.schema) == ((REPLICAS, TYPED), before)
    write(roots.topic("b"), row(6), everywhere=True)
    whole(roots, [*rows(0, 3, SIZE), *rows(3, 7)])


def test_a_majority_of_metadata_roots_decides(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, metadata="mno")
    roots.create(**DECLARED)
    for number, away in enumerate("mno"):
        roots.take_away(away)
        write(roots.topic("b"), row(number), everywhere=True)
        roots.give_back(away)
    whole(roots, rows(0, 3))


def test_typed_topics_go_on_after_the_metadata_is_lost(roots: Replicated) -> None:
    write(roots.create(**DECLARED), *rows(0, 3, SIZE), everywhere=True)
    schema = roots.at("b").newest()[1].schema
    CommitLog.on(LocalStorage(roots.path / "n", clock=roots.clock))
    roots.take_away("m")
    with pytest.raises(ReplicaNotAvailableError):
        write(roots.topic("a"), row(9))
    recover(roots, "m", to="a", at="a")
    after = Replicated(roots.path, clock=roots.clock, metadata="a")
    after.log("a").replicas.sync("t")
    write(after.topic("a"), row(3), everywhere=True)
    whole(after, [*rows(0, 3, SIZE), row(3)])
    assert after.at("c").newest()[1].schema == schema
