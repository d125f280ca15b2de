"""What an unclean election lost, and to which positions and reads it is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.progress import Loss
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.read.election_losses import asked_for, lost_ahead, lost_before
from pyspark_commitlog.spark.read.source_options import EARLIEST, LATEST, Timestamps
from pyspark_commitlog.topic.divergence import Divergence
from pyspark_commitlog.topic.state.lost_ranges import elected_away, gaps, losses_since
from pyspark_commitlog.topic.state.topic_state import MAX_LOST, LostOffsets, TopicState, Void, with_lost

ELECTED = LostOffsets(9, 2, 1_700_000_000_123, "root-b", (Void(0, 3, 8), Void(1, 0, 2)))
VOIDED = LostOffsets(7, ranges=(Void(0, 10, 12),))
STATE = TopicState(
    topic_id="id", deleted=False, config={}, log_start=(0, 0), log_end=(20, 20), created=1, lost=(VOIDED, ELECTED)
)
PLACE = TopicPartition("t", 0)


def seen(sequence: int) -> Lineage:
    """Return the lineage of an entry."""
    lineage = Lineage()
    for number in range(sequence):
        lineage = lineage.advanced(str(number))
    return lineage


def spans(start: int, end: int, by: Lineage | None = None) -> list[tuple[int, int]]:
    """Return what elections lost of partition 0."""
    return [(gap.start, gap.end) for gap in elected_away(STATE, 0, start, end, by)]


def test_a_gap_is_met_by_a_read_that_asks_for_one_of_its_offsets() -> None:
    assert spans(0, 3) == spans(8, 20) == []
    assert spans(0, 4) == spans(7, 8) == spans(5, 6) == [(3, 8)]


def test_an_election_is_reported_to_positions_of_before_it_and_no_others() -> None:
    assert spans(0, 20, seen(8)) == [(3, 8)]
    assert spans(0, 20, seen(9)) == []


@pytest.mark.parametrize(("position", "told"), [(3, False), (4, True), (8, True), (15, True)])
def test_a_position_has_passed_what_lies_before_it(position: int, told: bool) -> None:
    assert bool(losses_since(STATE, 0, position, seen(8))) == told
    assert not losses_since(STATE, 0, position, seen(9)), "it was reached after the election"
    assert not losses_since(STATE, 0, position, None), "nobody can tell"


def test_what_an_operator_voided_is_no_election_s() -> None:
    (voided,) = gaps(STATE, 0, 10, 20)
    assert voided.description == "offsets 10 to 11, 2 of them, were lost, and voided by an operator"
    assert spans(10, 20) == []


def test_a_loss_names_offsets_and_election() -> None:
    (gap,) = gaps(STATE, 0, 0, 9)
    assert gap.description == (
        "offsets 3 to 7, 5 of them, were lost by the unclean election of root root-b (leader epoch 2, journal entry 9, at "
        "2023-11-14T22:13:20+00:00), and are not used again"
    )


# --- what entries keep ------------------------------------------------------------------------------------------------


def test_what_is_lost_goes_through_json() -> None:
    body = {"state": STATE.to_json()}
    assert TopicState.from_entry("id", body).lost == STATE.lost
    assert "lost" not in replace(STATE, lost=()).to_json(), "older releases wrote none"


def test_what_lies_below_the_log_start_is_forgotten() -> None:
    later = LostOffsets(11, 3, 0, "root-c", (Void(1, 5, 6),))
    assert with_lost(STATE.lost, later, (8, 1)) == (VOIDED, replace(ELECTED, ranges=(Void(1, 0, 2),)), later)
    assert with_lost(STATE.lost, later, (20, 6)) == ()


def test_of_too_many_entries_the_oldest_become_one_and_no_offset_is_forgotten() -> None:
    kept: tuple[LostOffsets, ...] = ()
    for number in range(MAX_LOST + 5):
        kept = with_lost(kept, LostOffsets(number, number, 0, "root", (Void(0, 2 * number, 2 * number + 1),)), (0,))
    assert len(kept) == MAX_LOST
    assert kept[0].entry == 5, "under the later's name"
    assert sum(len(each.ranges) for each in kept) == MAX_LOST + 5


# --- what a query is told ---------------------------------------------------------------------------------------------


def at(offset: int, entry: int | None, topic_id: str = "id") -> SourceOffset:
    """Return an offset of partition 0, reached under an entry."""
    marks = {} if entry is None else {"t": seen(entry).position}
    return SourceOffset({PLACE: offset}, {"t": topic_id}, lineages=marks)


def test_a_read_loses_what_lies_in_its_span() -> None:
    (loss,) = lost_ahead([(PLACE, 0, 5), (PLACE, 10, 20), (TopicPartition("gone", 0), 0, 9)], {"t": STATE})
    assert loss == Loss(
        f"t partition 0: {gaps(STATE, 0, 0, 9)[0].description}",
        "Have them written again if their source still has them, and start after them, at offset 8",
        "it goes on at offset 8",
        truncated=True,
        gap=(PLACE, 3, 8),
    )


def test_a_query_loses_what_it_may_have_read() -> None:
    (loss,) = lost_before(at(9, 8), {"t": STATE}, {})
    assert loss.what.endswith("; the checkpoint is at offset 9 since before that: the query may have read them")
    assert (loss.next, loss.truncated, loss.gap) == ("it goes on at offset 9", True, (PLACE, 3, 8))
    (inside,) = lost_before(at(5, 8), {"t": STATE}, {})
    assert inside.next == "it goes on at offset 8"


@pytest.mark.parametrize("begin", [at(9, 9), at(9, None), at(3, 8), at(9, 8, "former")])
def test_a_query_loses_nothing_that_it_has_not_read_or_that_was_reported(begin: SourceOffset) -> None:
    assert lost_before(begin, {"t": STATE}, {}) == []


def test_a_restored_topic_is_reported_as_such() -> None:
    assert lost_before(at(9, 8), {"t": STATE}, {"t": Divergence(8, 9, None)}) == []
    assert lost_before(at(9, 8), {}, {}) == [], "it is deleted"


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (None, False),
        (EARLIEST, False),
        (LATEST, False),
        ({"t": {0: 5}}, True),
        ({"t": {0: EARLIEST}}, False),
        ({"t": {0: LATEST}}, False),
        ({"t": {1: 5}}, False),
        ({"u": {0: 5}}, False),
        (Timestamps({"t": {0: 5}}), True),
        (Timestamps({"t": {1: 5}}), False),
        (Timestamps(5), True),
    ],
)
def test_a_batch_asks_for_a_range_where_it_names_an_end_of_it(option: object, named: bool) -> None:
    assert asked_for(option, PLACE) == named
