"""Who is told of what an unclean election lost, and who is not.

The interleavings:

1. A query that has not read the records finds the gap in its range, at its next look, in a batch that was planned before
   the election, or in a task that runs while it happens.
2. A query, a group or a consumer that has read them is beyond the gap: it is told once that they are gone.
3. Whoever begins after the gap, has passed it since, or reads what a clean election lost (nobody had read that), is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from pyspark_commitlog import Consumer, DefaultSource
from pyspark_commitlog.consumer.consumer_config import Reset
from pyspark_commitlog.errors import LogTruncationError, UsageError
from pyspark_commitlog.groups.reset_target import Target, Way
from pyspark_commitlog.model import OffsetRange, TopicPartition
from pyspark_commitlog.spark.session.query_checkpoint import Checkpoint as QueryCheckpoint, moved_checkpoint
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.read.lossy import read_kept
from pyspark_commitlog.topic.read.reader import PartitionReader, read_range
from pyspark_commitlog.topic.state.topic_state import LostOffsets, Void
from pyspark_commitlog.topic.view import read_view
from pyspark_commitlog.topic.write.commit import commit
from tests.spark.driver import Checkpoint, Driver
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, Replicated, commit_offset, elect, no_device, poll

PLACE = TopicPartition("t", 0)
LARGE = Random(1).randbytes(20_000)
#: What every loss of the tests says.
LOST = (
    r"t partition 0: offsets 1 to 2, 2 of them, were lost by the unclean election of root \S+ \(leader epoch 1, journal "
    r"entry \d+, at 2023-11-14T22:13:20\+00:00\), and are not used again"
)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    made = Replicated(tmp_path)
    made.create(config={**CONFIG, "inline.max.bytes": 4096})
    return made


def lead_alone(roots: Replicated) -> None:
    """Write `0`, and leave a alone in the ISR."""
    roots.write(b"0")
    for root in "bc":
        roots.decided_log().pusher.shrink(roots.id_of(root), "test")


def lose(roots: Replicated) -> None:
    """Have a vanish, and b elected, which lacks what a alone had; write `3` there."""
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    roots.write(b"3", topic=roots.topic("b"))


def written_and_lost(roots: Replicated) -> None:
    """Lose two records between `0` and `3`."""
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    lose(roots)


class Query:
    """A query over all three roots, in the driver without Spark; each run is a process of its own."""

    def __init__(self, roots: Replicated, **options: str) -> None:
        path = ",".join(str(roots.path / root) for root in "abc")
        self._options = {"path": path, "subscribe": "t", "startingOffsets": "earliest", **options}
        self.checkpoint = Checkpoint()
        self.values: list[bytes] = []

    def run(self, sink: Callable[[], None] | None = None, *, strict: bool = True) -> None:
        """Run what is available; the sink may do something first, and raise."""

        def write(batch: int, rows: list[pa.RecordBatch]) -> None:
            if sink is not None:
                sink()
            self.values += [value for found in rows for value in found.column("value").to_pylist()]

        options = {**self._options, "failOnDataLoss": str(strict).lower()}
        Driver(DefaultSource(options), self.checkpoint, write).run()


def crash() -> None:
    """Raise in the sink, as a crash would."""
    raise InterruptedError


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of lost offsets, and forget it."""
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return [message for message in found if "offsets 1 to 2" in message]


# --- what entries say -------------------------------------------------------------------------------------------------


def test_an_unclean_election_says_what_it_lost_and_a_clean_one_does_not(roots: Replicated) -> None:
    written_and_lost(roots)
    state = roots.at("b").newest()[1]
    (lost,) = state.lost
    now = roots.clock.now_ms()
    assert lost == LostOffsets(lost.entry, 1, now, roots.id_of("b"), (Void(0, 1, 3),))
    assert roots.at("b").journal.read(lost.entry).entry.kind == "unclean"
    roots.log("b").replicas.sync("t")
    for root in "bc":
        assert roots.at(root).newest()[1].lost == (lost,), "it stays"


def test_so_does_recover(roots: Replicated) -> None:
    roots.write(b"0")
    for root in "bc":
        roots.hooks[root] = no_device
    roots.write(LARGE, LARGE, acks_all=False)
    roots.hooks.clear()
    roots.decided_log().pusher.push()
    chunks = list((roots.path / "c/topics/t" / roots.at("c").newest()[1].topic_id / "staged").iterdir())
    next(path for path in chunks if path.stat().st_size > len(LARGE)).unlink()
    for root in "mab":
        roots.take_away(root)
    lost = [str(roots.path / root) for root in "mab"]
    (found,) = roots.log("c").replicas.recover(str(roots.path / "n"), lost, execute=True)
    assert (found.gone, dict(found.failed)) == (((0, 1, 3),), {})
    (said,) = roots.at("c").newest()[1].lost
    assert (said.epoch, said.root, said.ranges) == (1, found.root, (Void(0, 1, 3),))


def clean_loss(roots: Replicated) -> None:
    """Lose two records of acks=1 between `0` and `3`, by a clean election."""
    roots.write(b"0")
    for root in "bc":
        roots.hooks[root] = no_device
    roots.write(LARGE, LARGE, acks_all=False)
    roots.hooks.clear()
    roots.take_away("a")
    elect(roots, "b")
    roots.write(b"3", topic=roots.topic("b"))
    state = roots.at("b").newest()[1]
    assert (state.voids, state.lost) == ((Void(0, 1, 3),), ())


def test_what_a_clean_election_lost_is_passed_over_in_silence(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    clean_loss(roots)
    caplog.clear()
    query = Query(roots)
    query.run()
    assert query.values == roots.values("b") == [b"0", b"3"]
    assert warnings(caplog) == []


def test_a_reader_warns_of_what_an_unclean_election_lost(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    written_and_lost(roots)
    caplog.clear()
    assert roots.values("b") == [b"0", b"3"]
    (told,) = warnings(caplog)
    assert "by the unclean election of root" in told
    roots.log("b").replicas.sync("t")
    assert settle(roots.at("b"), roots.at("b").newest()[1].topic_id).complete
    assert roots.values("b") == [b"0", b"3"]
    assert warnings(caplog) == [told], "in segments, too"


def test_a_reader_warns_of_what_an_operator_voided_of_a_topic_with_replicas(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    roots.write(b"0")
    roots.write(LARGE, LARGE, everywhere=True)
    roots.log().topic("t").void({0: (1, 3)}, force=True)
    caplog.clear()
    assert roots.values("a") == [b"0"]
    (told,) = warnings(caplog)
    assert "voided by an operator" in told
    query = Query(roots)
    query.run()
    assert query.values == [b"0"], "it is an operator's to know"


# --- queries ------------------------------------------------------------------------------------------------------------


def test_a_query_with_the_gap_in_its_range_fails_or_is_warned_once(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    lead_alone(roots)
    query = Query(roots, maxOffsetsPerTrigger="2")
    query.run()
    roots.write(LARGE, LARGE)
    lose(roots)
    for _ in range(2):
        with pytest.raises(LogTruncationError, match=f"{LOST}. Have them written again .* at offset 3, or set the opt"):
            query.run()
    assert len(query.checkpoint.planned) == 1, "no batch is planned that can't be read"
    caplog.clear()
    query.run(strict=False)
    (told,) = [each for each in warnings(caplog) if "failOnDataLoss" in each]
    assert told.endswith("it goes on at offset 3")
    query.run()
    assert query.values == [b"0", b"3"]


def test_a_query_reads_up_to_the_gap(roots: Replicated) -> None:
    written_and_lost(roots)
    query = Query(roots, maxOffsetsPerTrigger="1")
    with pytest.raises(LogTruncationError, match=LOST):
        query.run()
    assert query.values == [b"0"]


def test_a_query_that_read_the_records_is_told_once_that_they_are_gone(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    query = Query(roots)
    query.run()
    lose(roots)
    gone = f"{LOST}; the checkpoint is at offset 3 since before that: the query may have read them. Start with a new"
    for _ in range(2):
        with pytest.raises(LogTruncationError, match=gone):
            query.run()
    caplog.clear()
    query.run(strict=False)
    (told,) = warnings(caplog)
    assert told.endswith("it goes on at offset 3")
    query.run()
    assert query.values == [b"0", LARGE, LARGE, b"3"]


def test_a_query_that_is_told_moves_on_without_new_records(roots: Replicated) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    query = Query(roots)
    query.run()
    roots.take_away("a")
    roots.log("b").replicas.elect("t", unclean=True)
    query.run(strict=False)
    query.run()


def test_a_query_that_starts_after_the_gap_is_not_stopped(roots: Replicated) -> None:
    written_and_lost(roots)
    after = Query(roots, startingOffsets='{"t": {"0": 3}}')
    after.run()
    assert after.values == [b"3"]
    new = Query(roots)
    with pytest.raises(LogTruncationError, match=LOST):
        new.run()


def test_a_batch_that_was_planned_before_is_not_played_without_what_is_lost(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    query = Query(roots)
    with pytest.raises(InterruptedError):
        query.run(crash)
    lose(roots)
    with pytest.raises(LogTruncationError, match=LOST):
        query.run()
    assert query.values == []
    caplog.clear()
    query.run(strict=False)
    assert query.values == [b"0", b"3"]
    assert len([each for each in warnings(caplog) if "failOnDataLoss" in each]) == 1, (
        "once for a gap, not for each look"
    )


def test_a_task_that_runs_while_it_happens_fails(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    _, state = roots.at("a").newest()
    planned = OffsetRange("t", state.topic_id, 0, 0, 3, state.lineage.position)
    lose(roots)
    with pytest.raises(LogTruncationError, match=r"offsets 1 to 2, .* happened after offsets 0 to 2 were planned"):
        list(read_range(roots.at("b"), planned))
    assert sum(rows.count for rows in read_kept(roots.at("b"), planned)) == 1
    _, state = roots.at("b").newest()
    replanned = OffsetRange("t", state.topic_id, 0, 0, 3, state.lineage.position)
    assert sum(rows.count for rows in read_range(roots.at("b"), replanned)) == 1, "its planner was told"


def test_a_task_that_looks_again_finds_it_where_it_is_settled_by_then(roots: Replicated) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    topic_id = roots.at("a").newest()[1].topic_id
    before = read_view(roots.at("a"), topic_id)
    lose(roots)
    roots.log("b").replicas.sync("t")
    assert settle(roots.at("b"), topic_id).complete
    for entry in (roots.path / "b/topics/t/journal").iterdir():
        if entry.suffix == ".json" and int(entry.stem) <= before.newest.sequence:
            entry.unlink()  # as the collector does
    reader = PartitionReader(roots.at("b"), topic_id, 0, None, before, planned=before.topic.lineage.position)
    with pytest.raises(LogTruncationError, match="offsets 1 to 2, "):
        list(reader.read(0, 3))


@pytest.mark.parametrize(
    ("start", "end", "fails"),
    [
        ("earliest", "latest", False),
        ("earliest", '{"t": {"0": 2}}', True),
        ('{"t": {"0": 0}}', "latest", True),
        ('{"t": {"0": -2}}', '{"t": {"0": -1}}', False),
        ('{"t": {"0": 3}}', "latest", False),
        ("earliest", '{"t": {"0": 1}}', False),
    ],
)
def test_a_batch_is_told_of_a_gap_in_what_it_asks_for_by_offset(
    roots: Replicated, caplog: pytest.LogCaptureFixture, start: str, end: str, fails: bool
) -> None:
    written_and_lost(roots)
    caplog.clear()
    path = ",".join(str(roots.path / root) for root in "abc")
    for strict in ("true", "false"):
        options = {"path": path, "subscribe": "t", "startingOffsets": start, "endingOffsets": end}
        source = DefaultSource({**options, "failOnDataLoss": strict})
        reader = source.reader(source.schema())
        if fails and strict == "true":
            with pytest.raises(LogTruncationError, match=LOST):
                reader.partitions()
        else:
            assert reader.partitions()
    told = [each.split(": ")[-1] for each in warnings(caplog)]
    assert told == (["it goes on at offset 3"] if fails else told)
    if start == "earliest" and end == "latest":
        assert told == ["a read of all there is passes over them"] * 2


def test_a_query_that_starts_where_a_group_is_is_told_what_the_group_read(
    roots: Replicated, caplog: pytest.LogCaptureFixture
) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    commit_offset(roots, 3)
    lose(roots)
    options = {"startingOffsets": "group", "groupId": "g"}
    with pytest.raises(LogTruncationError, match=r"group 'g': t partition 0: offsets 1 to 2, .* it may have read them"):
        Query(roots, **options).run()
    query = Query(roots, **options)
    query.run(strict=False)
    assert query.values == [b"3"]
    again = Query(roots, **options)
    again.run()
    assert again.values == [], "the group has passed it since"


def test_a_checkpoint_is_set_as_a_whole_where_a_loss_was_not_reported_yet(roots: Replicated) -> None:
    """It has one mark for all partitions of a topic: with a new one the other's loss would go unnoticed."""
    roots.log().create_topic("u", 2, CONFIG)
    roots.log().replicas.elect("u", str(roots.path / "a"))
    for root in "bc":
        roots.decided_log(name="u").pusher.shrink(roots.id_of(root), "test")
    topic = roots.topic(name="u")
    staged = stage(topic, batch_of([LARGE, LARGE], partition=[0, 1]))
    commit(topic, staged.topic_id, [staged], acks_all=True)
    query = Query(roots, subscribe="u")
    query.run()
    roots.take_away("a")
    roots.log("b").replicas.elect("u", unclean=True)
    log, (planned,) = roots.log("b"), query.checkpoint.planned
    checkpoint = QueryCheckpoint(0, True, ("v1", "{}", planned), "offsets/0")
    target = Target(Way.SHIFT, 0)
    with pytest.raises(UsageError, match=r"partition 1: offsets 0 to 0, .* set the offsets of all its partitions"):
        moved_checkpoint(log.root, checkpoint, {"u": [0]}, target)
    changed, _ = moved_checkpoint(log.root, checkpoint, None, target)
    query.checkpoint.planned = [changed.lines[2]]
    query.run()


# --- consumers ----------------------------------------------------------------------------------------------------------


def consumer(roots: Replicated, reset: Reset, at: str = "abc", **options: int) -> Consumer:
    """Return a consumer over some roots, at the start of the topic."""
    path = ",".join(str(roots.path / root) for root in at)
    each = Consumer(path, auto_offset_reset=reset.value, **options)
    each.assign([PLACE])
    each.seek(PLACE, 0)
    return each


def test_a_consumer_without_a_policy_that_read_the_records_has_to_seek(roots: Replicated) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    with consumer(roots, Reset.NONE) as each:
        assert poll(each, 3) == [b"0", LARGE, LARGE]
        lose(roots)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=f"topic 't' partition 0: {LOST[15:]}.*: seek, to 3 to go on"):
                poll(each, 1)
        each.seek(PLACE, 3)
        assert poll(each, 1) == [b"3"]


def test_a_consumer_with_a_policy_is_warned_once_and_stays(roots: Replicated, caplog: pytest.LogCaptureFixture) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    with consumer(roots, Reset.EARLIEST) as each:
        assert poll(each, 3) == [b"0", LARGE, LARGE]
        lose(roots)
        caplog.clear()
        assert poll(each, 1) == [b"3"]
        (told,) = warnings(caplog)
        assert told.endswith("the consumer may have read them: it goes on at 3")


def test_a_consumer_that_has_not_read_them_passes_over_them(roots: Replicated) -> None:
    lead_alone(roots)
    with consumer(roots, Reset.NONE) as each:
        assert poll(each, 1) == [b"0"]
        roots.write(LARGE, LARGE)
        lose(roots)
        assert poll(each, 1) == [b"3"]


def test_frames_that_a_process_keeps_are_not_handed_out_once_they_are_lost(roots: Replicated) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    with consumer(roots, Reset.EARLIEST, "a") as each:
        assert poll(each, 3) == [b"0", LARGE, LARGE]
        lose(roots)
        roots.give_back("a")
        roots.log("b").replicas.sync("t")
        assert poll(each, 1) == [b"3"]
        each.seek(PLACE, 0)
        assert poll(each, 2) == [b"0", b"3"]


def test_rows_that_a_consumer_has_fetched_are_not_handed_out_once_they_are_lost(roots: Replicated) -> None:
    lead_alone(roots)
    roots.write(LARGE, LARGE)
    with consumer(roots, Reset.EARLIEST, "a", max_poll_records=2) as each:
        assert [record.value for record in each.poll(10)] == [b"0", LARGE]
        lose(roots)
        roots.give_back("a")
        roots.log("b").replicas.sync("t")
        assert poll(each, 1) == [b"3"]
