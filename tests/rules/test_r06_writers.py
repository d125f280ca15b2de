"""R6: writer ids make a repetition change nothing, and tell apart what only looks like one."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest

from pyspark_commitlog.errors import (
    CorruptionError,
    OutcomeUnknownError,
    StaleBatchError,
    UsageError,
    WriterFencedError,
)
from pyspark_commitlog.format.entry import MAX_LINE_BYTES
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.state.topic_state import WriterRow
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import writers as module
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.producers import init_producer, landed_ranges
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.entries import rewrite
from tests.support.records import append, batch_of, stage
from tests.support.world import CHUNKS, World, once

_DAY = 86_400_000


def test_ids_may_skip(world: World) -> None:
    """R6: a micro-batch without rows leaves no entry, so any higher id commits."""
    topic = world.create()
    for version in (3, 4, 90):
        append(topic, batch_of([b"%d" % version]), writer=Transaction("w", version))
    assert world.values() == [b"3", b"4", b"90"]


def test_the_last_id_again_changes_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """R6, I5: the same batch again, from a fresh process: skipped, without a warning when it has as many rows."""
    topic = world.create()
    append(topic, batch_of([b"a", b"b"]), writer=Transaction("w", 1))
    entries = world.entries()
    with caplog.at_level(logging.WARNING):
        assert append(world.handle(), batch_of([b"a", b"b"]), writer=Transaction("w", 1)).skipped
    assert caplog.text == ""
    assert world.entries() == entries
    assert world.values() == [b"a", b"b"]


def test_the_last_id_with_other_rows_warns_with_both_counts(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """R6: the query is not deterministic, two writes share a txnVersion, or a checkpoint was set back by one batch."""
    topic = world.create()
    append(topic, batch_of([b"a", b"b"]), writer=Transaction("w", 1))
    with caplog.at_level(logging.WARNING):
        assert append(topic, batch_of([b"a", b"b", b"c"]), writer=Transaction("w", 1)).skipped
    assert re.search(r"with 2 records \(checksum \w{16}\) and now has 3 \(checksum \w{16}\)", caplog.text)
    assert "the checkpoint was set back to before that batch" in caplog.text
    assert "commitlog checkpoint set" in caplog.text
    assert world.values() == [b"a", b"b"]


@pytest.mark.parametrize("writer", ["spark:q", "txn:daily"])
def test_other_records_of_equal_count_warn(world: World, caplog: pytest.LogCaptureFixture, writer: str) -> None:
    """R6: two jobs share a writer id: the second's records are not written, and it is said, with both checksums."""
    topic = world.create()
    append(topic, batch_of([b"a", b"b"]), writer=Transaction(writer, 1))
    with caplog.at_level(logging.WARNING):
        assert append(world.handle(), batch_of([b"a", b"c"]), writer=Transaction(writer, 1)).skipped
    found = re.search(r"2 records \(checksum (\w{16})\) and now has 2 \(checksum (\w{16})\)", caplog.text)
    assert found
    assert found[1] != found[2]
    assert world.values() == [b"a", b"b"]


def test_more_records_of_nothing_but_nulls_warn(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """R6: their checksum is that of fewer of them."""
    topic = world.create()
    append(topic, batch_of([None]), writer=Transaction("w", 1))
    with caplog.at_level(logging.WARNING):
        assert append(topic, batch_of([None, None]), writer=Transaction("w", 1)).skipped
    assert re.search(r"with 1 records \(checksum 0{16}\) and now has 2 \(checksum 0{16}\)", caplog.text)


@pytest.mark.parametrize("config", [CHUNKS, {"retention.ms": -1}], ids=["chunks", "inline"])
def test_the_same_records_from_other_tasks_in_another_order_do_not_warn(
    world: World, caplog: pytest.LogCaptureFixture, config: dict[str, object]
) -> None:
    """R6: a deterministic query replays its batch with another number of tasks, batches and frames, and a later clock."""
    topic = world.create(3, config)
    values: list[bytes | None] = [*(b"%d" % n * (n % 90) for n in range(600)), None, b""]
    whole = batch_of(values, key=[None if n % 3 else b"k%d" % n for n in range(602)])
    ours = [stage(topic, whole.slice(start, 301), task=start) for start in (0, 301)]
    commit(topic, ours[0].topic_id, ours, Transaction("spark:q", 1))
    world.clock.advance(1000)
    turned = whole.take(list(reversed(range(602))))
    pieces = [turned.slice(start, 86) for start in range(0, 602, 86)]
    theirs = [stage(topic, *(piece.slice(at, 43) for at in (0, 43)), partitioner="roundrobin") for piece in pieces]
    with caplog.at_level(logging.WARNING):
        assert commit(world.handle(), ours[0].topic_id, theirs, Transaction("spark:q", 1)).skipped
    assert caplog.text == ""
    assert len(world.values()) == 602


def test_given_timestamps_count_and_stamped_ones_do_not(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """R6: the clock of a replay is another one; a column that the query computes is part of its records."""
    topic = world.create()
    at = world.clock.now_ms() * 1000
    append(topic, batch_of([b"a", b"b"], timestamp=[None, at]), writer=Transaction("w", 1))
    world.clock.advance(5)
    with caplog.at_level(logging.WARNING):
        append(topic, batch_of([b"a", b"b"], timestamp=[None, at]), writer=Transaction("w", 1))
        assert caplog.text == ""
        append(topic, batch_of([b"a", b"b"], timestamp=[None, at + 1]), writer=Transaction("w", 1))
    assert "checksum" in caplog.text


def test_the_checksum_is_kept_in_the_snapshot_too(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    topic = world.create()
    append(topic, batch_of([b"a"]), writer=Transaction("w", 1))
    others(world)
    with caplog.at_level(logging.WARNING):
        assert append(world.handle(), batch_of([b"a"]), writer=Transaction("w", 1)).skipped
        assert caplog.text == ""
        assert append(world.handle(), batch_of([b"b"]), writer=Transaction("w", 1)).skipped
    assert "checksum" in caplog.text


def test_a_transaction_without_checksums_is_refused(world: World) -> None:
    """R6: a row without one could not tell what comes later."""
    topic = world.create()
    bare = replace(stage(topic, batch_of([b"a"])), checksum=None)
    with pytest.raises(UsageError, match="checksum"):
        commit(topic, bare.topic_id, [stage(topic, batch_of([b"b"])), bare], Transaction("w", 1))
    assert world.values() == []


def test_a_lower_id_is_an_error_that_names_both(world: World) -> None:
    """R6: a restored checkpoint would lose records in silence if it were skipped."""
    topic = world.create()
    append(topic, batch_of([b"a"]), writer=Transaction("w", 7))
    with pytest.raises(StaleBatchError, match=r"commits 5, but 7 is committed"):
        append(topic, batch_of([b"b"]), writer=Transaction("w", 5))
    assert append(topic, batch_of([b"b"]), writer=Transaction("w", 5, skip_older=True)).skipped
    assert world.values() == [b"a"]


def test_two_drivers_of_one_query_race_for_one_batch(world: World) -> None:
    """R6, I5: a zombie driver commits the same batch just before the put: the second attempt sees its row and skips."""
    topic = world.create()
    ours, theirs = (stage(topic, batch_of([b"batch 1"])) for _ in range(2))
    zombie = once(lambda: commit(world.handle(), theirs.topic_id, [theirs], Transaction("q", 1)))
    slow = world.handle(on_path("/journal/", "put_if_absent", zombie))
    assert commit(slow, ours.topic_id, [ours], Transaction("q", 1)).skipped
    assert world.values() == [b"batch 1"]


def test_a_zombie_driver_that_comes_late_is_refused(world: World) -> None:
    """R6: the query has gone on to batch 3; a zombie still has batch 2 in its hands."""
    topic = world.create()
    zombie = stage(topic, batch_of([b"2"]))
    for version in (1, 2, 3):
        append(world.handle(), batch_of([b"%d" % version]), writer=Transaction("q", version))
    with pytest.raises(StaleBatchError):
        commit(topic, zombie.topic_id, [zombie], Transaction("q", 2))
    assert world.values() == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("epoch", "first", "last", "expected"),
    [
        (0, 10, 19, "skipped"),
        (0, 0, 9, "skipped"),
        (0, 12, 15, "skipped"),
        (0, 20, 25, "committed"),
        (0, 21, 25, StaleBatchError),
        (0, 15, 25, StaleBatchError),
        (1, 0, 3, "committed"),
        (1, 20, 25, StaleBatchError),
    ],
)
def test_a_producers_ranges(world: World, epoch: int, first: int, last: int, expected: str | type[Exception]) -> None:
    """R6, I5: next = last + 1; inside a remembered range = skip; anything else is a gap; a new epoch starts at 0."""
    topic = world.create()
    append(topic, batch_of([b"x"] * 10), writer=ProducerBatch("p", 0, 0, 9))
    append(topic, batch_of([b"x"] * 10), writer=ProducerBatch("p", 0, 10, 19))
    batch, writer = batch_of([b"y"]), ProducerBatch("p", epoch, first, last)
    if isinstance(expected, type):
        with pytest.raises(expected):
            append(topic, batch, writer=writer)
        assert len(world.values()) == 20
        return
    assert append(topic, batch, writer=writer).skipped == (expected == "skipped")
    assert len(world.values()) == (20 if expected == "skipped" else 21)


def test_an_older_epoch_is_fenced(world: World) -> None:
    """R6: two producers under one id: the older one must stop, even for a range that it wrote itself."""
    topic = world.create()
    append(topic, batch_of([b"a"]), writer=ProducerBatch("p", 0, 0, 0))
    append(topic, batch_of([b"b"]), writer=ProducerBatch("p", 1, 0, 0))
    for first in (0, 1):
        with pytest.raises(WriterFencedError, match="epoch 1 has taken over"):
            append(topic, batch_of([b"c"]), writer=ProducerBatch("p", 0, first, first))
    assert world.values() == [b"a", b"b"]


def test_five_ranges_are_remembered(world: World) -> None:
    """R6: as in Kafka a producer has at most five batches in flight; the sixth last is a gap, not a skip."""
    topic = world.create()
    for number in range(7):
        append(topic, batch_of([b"%d" % number]), writer=ProducerBatch("p", 0, number, number))
    for number in range(2, 7):
        assert append(topic, batch_of([b"again"]), writer=ProducerBatch("p", 0, number, number)).skipped
    with pytest.raises(StaleBatchError):
        append(topic, batch_of([b"again"]), writer=ProducerBatch("p", 0, 1, 1))
    assert len(world.values()) == 7


def test_rows_move_to_a_snapshot_and_are_found_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6, I5: more writers than an entry holds: every one of them is still recognised, by a fresh process too."""
    monkeypatch.setattr(module, "WRITER_ROWS", 3)
    topic = world.create()
    for number in range(11):
        append(topic, batch_of([b"%d" % number]), writer=Transaction(f"w{number}", 1))
    world.collect_all()
    assert 1 <= len(world.files(".writers")) <= 2
    for number in range(11):
        assert append(world.handle(), batch_of([b"again"]), writer=Transaction(f"w{number}", 1)).skipped
        append(world.handle(), batch_of([b"next"]), writer=Transaction(f"w{number}", 2))
    assert len(world.values()) == 22


def test_a_row_written_after_a_long_silence_is_not_born_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6, I5: the topic slept for two months; a writer commits, others fill the table; it retries."""
    monkeypatch.setattr(module, "WRITER_ROWS", 3)
    topic = world.create()
    append(topic, batch_of([b"old"]))
    world.clock.advance(60 * _DAY)
    append(topic, batch_of([b"once"]), writer=Transaction("w", 1))
    for number in range(5):
        append(topic, batch_of([b"other"]), writer=Transaction(f"other{number}", 1))
    assert append(topic, batch_of([b"once"]), writer=Transaction("w", 1)).skipped
    assert world.values().count(b"once") == 1


def others(world: World, count: int = 4) -> None:
    """Let other writers commit, more than an entry holds."""
    for number in range(count):
        topic = world.handle()
        append(topic, batch_of([b"other"]), writer=Transaction(f"other{number}", topic.newest()[0].sequence))


@pytest.mark.parametrize(
    "writer",
    [Transaction("spark:q", 7), Transaction("txn:daily", 7), ProducerBatch("producer:p", 2, 0, 0)],
    ids=["query", "txn", "producer"],
)
def test_a_clock_that_was_ahead_once_forgets_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch, writer: Transaction | ProducerBatch
) -> None:
    """R6, I5: a year ahead for some commits, then back: the last batch again is a repetition still."""
    monkeypatch.setattr(module, "WRITER_ROWS", 1)
    topic = world.create()
    if isinstance(writer, ProducerBatch):
        init_producer(topic, writer.writer_id)
    append(topic, batch_of([b"once"]), writer=writer)
    world.clock.advance(365 * _DAY)
    others(world)
    world.clock.advance(-365 * _DAY)
    others(world)
    assert append(world.handle(), batch_of([b"once"]), writer=writer).skipped
    assert world.values().count(b"once") == 1


def test_a_passing_producers_retry_over_a_clock_that_was_ahead_is_not_put_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, I5: its row went while the clock was a year ahead; back at the true time nobody can tell whether it landed."""
    monkeypatch.setattr(module, "WRITER_ROWS", 1)
    topic = world.create()
    batch = ProducerBatch(f"{module.TRANSIENT}p", 0, 0, 0, since=topic.newest()[0].sequence)
    append(topic, batch_of([b"once"]), writer=batch)
    world.clock.advance(365 * _DAY)
    others(world)
    world.clock.advance(-365 * _DAY)
    others(world)
    with pytest.raises(OutcomeUnknownError, match="Look for them in the topic"):
        append(world.handle(), batch_of([b"once"]), writer=batch)
    assert world.values().count(b"once") == 1
    later = ProducerBatch(f"{module.TRANSIENT}p", 0, 1, 1, since=topic.newest()[0].sequence)
    assert not append(world.handle(), batch_of([b"next"]), writer=later).skipped


def test_above_the_bound_the_longest_silent_id_goes_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: of 10,001 ids one goes: that of the lowest entry, although a clock that is ahead wrote it; it is named."""
    topic = world.create()
    far = world.clock.now_ms() + 365 * _DAY
    known = {f"txn:{n:05d}": WriterRow(1, 1, n + 2, world.clock.now_ms()) for n in range(9_999)}
    known["txn:silent"] = WriterRow(3, 1, 1, far)
    passing = {f"{module.TRANSIENT}{n}": WriterRow(0, 1, n, far, 0, ((0, 0),)) for n in range(1_005)}
    with caplog.at_level(logging.WARNING), monkeypatch.context() as patched:
        patched.setattr(TopicLog, "snapshot", lambda self, state: {**known, **passing})
        patched.setattr(module, "WRITER_ROWS", 0)
        append(topic, batch_of([b"x"]), writer=Transaction("txn:new", 1))
    assert "txn:silent (last 3, entry 1)" in caplog.text
    assert "txn:0" not in caplog.text
    state = topic.newest()[1]
    kept = topic.snapshot(state)
    assert len(kept) == 10_000 + 1_000
    assert "txn:silent" not in kept
    assert {"txn:new", "txn:00000", f"{module.TRANSIENT}5"} <= set(kept)
    assert state.writers.forgotten == 4


def test_a_silent_producer_without_an_id_is_forgotten_and_the_table_says_so() -> None:
    """R6: they come and go by thousands; up to which entry some are gone is what a retry asks."""
    rows = {
        "transient:old": WriterRow(5, 1, 11, 1_000, 0, ((0, 5),)),
        "transient:fresh": WriterRow(5, 1, 9, 1_001, 0, ((0, 5),)),
        "transient:txn": WriterRow(5, 1, 8, 1_000),
        "txn:old": WriterRow(5, 1, 3, 0),
    }
    kept = module.plan_kept(rows, 4, 2_001, 1_000)
    assert set(kept.rows) == {"transient:fresh", "transient:txn", "txn:old"}
    assert (kept.forgotten, kept.dropped) == (11, ())
    assert module.plan_kept(rows, 12, 2_001, 1_000).forgotten == 12


def test_a_producer_that_was_just_opened_is_not_the_longest_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: its last commit is old, but it lives: it may commit."""
    monkeypatch.setattr(module, "WRITER_ROWS", 0)
    monkeypatch.setattr(module, "DURABLE_IDS", 3)
    topic = world.create()
    _, row = init_producer(topic, "producer:p")
    append(topic, batch_of([b"x"]), writer=ProducerBatch("producer:p", row.epoch, 0, 0))
    others(world, 2)
    _, row = init_producer(topic, "producer:p")
    append(topic, batch_of([b"x"]), writer=Transaction("txn:new", 1))
    assert not append(topic, batch_of([b"y"]), writer=ProducerBatch("producer:p", row.epoch, 1, 1)).skipped


def test_an_entry_stays_small_at_1000_partitions_and_10000_writers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, section 3: what does not fit goes to side files; the newest entry is one short read."""
    topic = world.create(1000)
    known = {f"writer-{n:036d}": WriterRow(1, 10, 1, world.clock.now_ms()) for n in range(9_990)}
    with monkeypatch.context() as patched:
        patched.setattr(TopicLog, "snapshot", lambda self, state: known)
        patched.setattr(module, "WRITER_ROWS", 0)
        append(topic, batch_of([b"x"]), writer=Transaction("first", 1))
    append(topic, batch_of([b"x"] * 1000, partition=range(1000)), writer=Transaction("w", 1))
    assert world.files(".extents")
    for number in range(70):
        append(topic, batch_of([b"y"]), writer=Transaction(f"writer-{number:036d}", 2))
        assert topic.newest()[0].entry.line_bytes <= MAX_LINE_BYTES
    assert len(topic.snapshot(topic.newest()[1])) == 9_992
    for number in (0, 69, 70, 9989):
        version = 2 if number < 70 else 1
        retry = Transaction(f"writer-{number:036d}", version)
        assert append(world.handle(), batch_of([b"y"]), writer=retry).skipped


def test_long_writer_ids_do_not_blow_up_the_entry(world: World) -> None:
    """R6, section 3: a txnAppId is the user's text; sixty long ones must not make an entry that nobody can read."""
    topic = world.create()
    for number in range(60):
        append(topic, batch_of([b"x"]), writer=Transaction(f"{number}-" + "long" * 1000, 1))
        assert topic.newest()[0].entry.line_bytes <= MAX_LINE_BYTES
    assert append(world.handle(), batch_of([b"x"]), writer=Transaction("0-" + "long" * 1000, 1)).skipped


def test_offsets_of_a_repetition_are_those_of_the_very_batch(world: World) -> None:
    """R6: a part of the last batch landed with it, and nobody remembers at which offsets of it."""
    topic = world.create()
    append(topic, batch_of([b"x"] * 10), writer=ProducerBatch("p", 0, 0, 9))
    append(topic, batch_of([b"x"] * 10), writer=ProducerBatch("p", 0, 10, 19))
    topic_id = topic.newest()[1].topic_id
    assert landed_ranges(topic, topic_id, ProducerBatch("p", 0, 10, 19)) == {0: (10, 20)}
    for first, last in ((15, 19), (0, 19), (0, 9), (20, 29)):
        assert landed_ranges(topic, topic_id, ProducerBatch("p", 0, first, last)) == {}


def test_a_range_of_an_earlier_epoch_is_not_taken_for_one_of_this(world: World) -> None:
    """R6: the numbers begin anew with an epoch: what an earlier instance sent under the same ones was another batch."""
    topic = world.create()
    append(topic, batch_of([b"old"] * 10), writer=ProducerBatch("p", 0, 0, 9))
    append(topic, batch_of([b"new"] * 4), writer=ProducerBatch("p", 1, 0, 3))
    assert not append(topic, batch_of([b"new"] * 4), writer=ProducerBatch("p", 1, 4, 7)).skipped
    assert len(world.values()) == 18


def test_a_producer_with_an_id_that_is_forgotten_is_refused(world: World) -> None:
    """R6: its row is made when it is opened; without it nobody can tell whether the batch landed."""
    topic = world.create()
    with pytest.raises(StaleBatchError, match="is forgotten"):
        append(topic, batch_of([b"x"]), writer=ProducerBatch("producer:p", 3, 0, 0))
    assert world.values() == []


@pytest.mark.parametrize(
    "writer",
    [
        Transaction("x" * 4097, 1),
        Transaction("", 1),
        Transaction("half a character \udc80", 1),
        Transaction("w", 2**63),
        Transaction("w", -1),
        ProducerBatch("transient:p", 0, 0, 2**63, 0),
    ],
)
@pytest.mark.parametrize("others", [0, 64])
def test_a_writer_that_no_table_can_hold_does_not_make_the_topic_unreadable(
    world: World, writer: Transaction | ProducerBatch, others: int
) -> None:
    """Behind 64 others its row goes to a side file."""
    topic = world.create()
    staged = stage(topic, batch_of([b"refused"]))
    for number in range(others):
        commit(topic, staged.topic_id, [stage(topic, batch_of([b"o"]))], Transaction(f"o{number}", 1))
    with pytest.raises(UsageError, match="nothing was committed"):
        commit(topic, staged.topic_id, [staged], writer)
    assert world.values() == [b"o"] * others


def test_the_longest_id_and_the_largest_number_can_be_read(world: World) -> None:
    topic = world.create()
    append(topic, batch_of([b"a"]), writer=Transaction("x" * 4096, 2**63 - 1))
    assert append(world.handle(), batch_of([b"a"]), writer=Transaction("x" * 4096, 2**63 - 1)).skipped
    assert world.values() == [b"a"]


def test_what_nobody_could_read_is_not_put(world: World) -> None:
    """Whatever made it: an entry that readers refuse can't be mended, and ends the journal."""
    topic = world.create()
    append(topic, batch_of([b"a"]))

    def plan(base: Stored | None, slot: Slot) -> Draft[None]:
        assert base is not None
        state = topic.state_of(base.entry)
        return Draft("append", state.topic_id, {"state": replace(state, log_start=(2,)).to_json()}, result=None)

    before = world.entries()
    with pytest.raises(UsageError, match=r"nothing was put, as nobody could read it: .*state\.logStart\[0\]"):
        topic.journal.append(plan)
    assert world.entries() == before
    assert world.values() == [b"a"]


def test_a_line_that_readers_would_cut_off_is_not_put(world: World) -> None:
    """As above: they read so much of a file, to find where its line ends."""
    topic = world.create()
    append(topic, batch_of([b"a"]))

    def put(padding: int) -> None:
        def plan(base: Stored | None, slot: Slot) -> Draft[None]:
            assert base is not None
            body = {"state": topic.state_of(base.entry).to_json(), "more": "x" * padding}
            return Draft("alter", base.entry.topic_id, body, result=None)

        topic.journal.append(plan)

    most = 4 * 2**20
    with pytest.raises(
        UsageError, match=r"nothing was put, .* at most 4194304 bytes, this one has \d+: list less"
    ) as told:
        put(most)
    beside = int(str(told.value).partition("this one has ")[2].partition(":")[0]) - most
    with pytest.raises(UsageError, match="nothing was put"):
        put(most - beside + 1)
    assert world.entries() == [1, 2]
    put(most - beside)
    assert world.handle().newest()[0].entry.line_bytes == most
    assert world.values() == [b"a"]


def test_a_line_that_is_too_long_is_told_with_the_limit(world: World) -> None:
    append(world.create(), batch_of([b"a"]))
    path = world.path / f"topics/t/journal/{2:020d}.json"
    rewrite(path, lambda fields: fields.update(more="x" * 4 * 2**20))
    with pytest.raises(
        CorruptionError, match=r"2\.json: its line is longer than 4194304 bytes, the most that one may have"
    ):
        world.values()
