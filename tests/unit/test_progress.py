"""Where a query goes on, and what it is told to have lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pyspark_commitlog.errors import OffsetOutOfRangeError, TopicChangedError
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.progress import Loss, error_of, find_available_offsets, ranges, up_to
from pyspark_commitlog.spark.progress.source_offset import SourceOffset
from pyspark_commitlog.spark.progress.topic_selection import by_name, by_partition, by_pattern
from pyspark_commitlog.topic.divergence import Divergence
from pyspark_commitlog.topic.state.topic_state import TopicState

ID, OTHER = "id-1", "id-2"


def state(*bounds: tuple[int, int], topic_id: str = ID) -> TopicState:
    """Return a topic's state: log start offset and high watermark per partition."""
    lows, highs = tuple(low for low, _ in bounds), tuple(high for _, high in bounds)
    return TopicState(topic_id=topic_id, deleted=False, config={}, log_start=lows, log_end=highs, created=1)


def unknown(topic: str, topic_id: str) -> None:
    """Know nothing of topics that are deleted."""


def at(topic_id: str = ID, **offsets: Sequence[int]) -> SourceOffset:
    """Return an offset: per topic one for each partition from 0."""
    places = {TopicPartition(topic, p): offset for topic, found in offsets.items() for p, offset in enumerate(found)}
    return SourceOffset(places, dict.fromkeys(offsets, topic_id))


def found(
    begin: SourceOffset, states: Mapping[str, TopicState], subscription: str = "t"
) -> tuple[dict[tuple[str, int], tuple[int, int]], list[str]]:
    """Return where each partition starts and ends, and what is told."""
    losses: list[Loss] = []
    got = find_available_offsets(begin, states, by_name(subscription), losses.append, unknown)
    spans = {(place.topic, place.partition): (got.starts[place], end) for place, end in got.ends.items()}
    return spans, [f"{loss.what}; {loss.next}" for loss in losses]


def test_nothing_is_lost_between_log_start_and_high_watermark() -> None:
    assert found(at(t=[3, 5]), {"t": state((3, 9), (0, 5))}) == ({("t", 0): (3, 9), ("t", 1): (5, 5)}, [])


def test_an_added_partition_starts_at_0_a_new_topic_at_its_log_start() -> None:
    spans, told = found(at(t=[3]), {"t": state((0, 4), (2, 6)), "u": state((7, 9))}, "t,u")
    assert spans == {("t", 0): (3, 4), ("t", 1): (2, 6), ("u", 0): (7, 9)}
    assert [line.split(" (")[0] for line in told] == ["t partition 1: offsets 0 to 1, 2 of them, were deleted"]


def test_a_topic_that_came_to_match_a_pattern_lost_what_was_deleted_of_it() -> None:
    """It was made since the query looked last: nobody but the query's silence says that it read the records."""
    losses: list[Loss] = []
    states = {"t": state((2, 9)), "u": state((7, 9), (0, 3))}
    got = find_available_offsets(at(t=[3]), states, by_pattern("t|u"), losses.append, unknown)
    assert {(*place,): start for place, start in got.starts.items()} == {("t", 0): 3, ("u", 0): 7, ("u", 1): 0}
    assert [loss.what.split(" (")[0] for loss in losses] == ["u partition 0: offsets 0 to 6, 7 of them, were deleted"]


def test_what_retention_took_is_told_and_passed_over() -> None:
    spans, (told,) = found(at(t=[2]), {"t": state((5, 9))})
    assert spans == {("t", 0): (5, 9)}
    assert told.startswith("t partition 0: offsets 2 to 4, 3 of them, were deleted")
    assert told.endswith("it goes on at offset 5")


def test_a_checkpoint_ahead_of_the_log_goes_back_to_the_high_watermark() -> None:
    spans, (told,) = found(at(t=[9]), {"t": state((0, 4))})
    assert spans == {("t", 0): (4, 4)}
    assert "the checkpoint is at offset 9, the high watermark is 4" in told
    assert "offsets 4 to 8 are not there" in told


def test_a_partition_that_an_older_copy_lacks_is_told_with_its_offsets() -> None:
    """It was added after the copy was made."""
    spans, told = found(at(t=[2, 9, 0]), {"t": state((0, 4))})
    assert spans == {("t", 0): (2, 4)}
    assert len(told) == 1
    assert told[0].startswith(
        "t partition 1: the checkpoint is at offset 9, the high watermark is 0: the root was rest"
    )

    losses: list[Loss] = []
    restored = {"t": Divergence(7, 5, (2,))}
    find_available_offsets(at(t=[2, 9]), {"t": state((0, 4))}, by_name("t"), losses.append, unknown, restored)
    assert [loss.truncated for loss in losses] == [True]
    assert "t partition 1: the checkpoint is at offset 9, and the topic was restored" in losses[0].what
    assert "the same up to offset 0" in losses[0].what


def test_a_partition_that_is_no_longer_asked_for_is_told_as_such_also_where_an_older_copy_lacks_it() -> None:
    losses: list[Loss] = []
    find_available_offsets(at(t=[2, 9]), {"t": state((0, 4))}, by_partition('{"t": [0]}'), losses.append, unknown)
    find_available_offsets(
        at(t=[2, 9]), {"t": state((0, 4), (0, 9))}, by_partition('{"t": [1]}'), losses.append, unknown
    )
    assert ["the query does not read this partition any more" in loss.what for loss in losses] == [True, True]


def test_a_topic_made_again_starts_at_its_log_start() -> None:
    begin = at(t=[9])
    losses: list[Loss] = []
    got = find_available_offsets(
        begin, {"t": state((1, 4), (0, 2), topic_id=OTHER)}, by_name("t"), losses.append, unknown
    )
    assert list(got.starts.values()) == [1, 0]
    assert got.topic_ids == {"t": OTHER}
    (loss,) = losses
    assert (
        "the topic was deleted and made again: what the topic with id id-1 held from offset 9 on was not read"
        in loss.what
    )


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (9, "offsets 9 to 11 of the topic with id id-1 were not read"),
        (12, "all that the topic with id id-1 held was read"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_what_a_deleted_topic_held_is_told_where_it_is_known(start: int, wanted: str, again: bool) -> None:
    losses: list[Loss] = []
    now = {"t": state((0, 3), topic_id=OTHER)} if again else {}
    find_available_offsets(
        at(t=[start]), now, by_name("t"), losses.append, lambda name, life: state((0, 12), topic_id=life)
    )
    assert [loss.what.split(": ")[2] for loss in losses] == [wanted]


def test_a_topic_made_again_with_fewer_partitions_is_told_as_such() -> None:
    spans, told = found(at(t=[9, 4]), {"t": state((0, 4), topic_id=OTHER)})
    assert spans == {("t", 0): (0, 4)}
    assert (
        "t partition 1: the topic was deleted and made again: what the topic with id id-1 held from offset 4 on"
        in told[1]
    )
    assert told[1].endswith("the new topic has no such partition")


def test_a_deleted_topic_stays_where_it_is() -> None:
    losses: list[Loss] = []
    got = find_available_offsets(at(t=[9], u=[1]), {"u": state((0, 2))}, by_name("t,u"), losses.append, unknown)
    assert (got.starts[TopicPartition("t", 0)], got.ends[TopicPartition("t", 0)]) == (9, 9)
    assert got.topic_ids == {"t": ID, "u": ID}
    assert [loss.what for loss in losses] == [
        "t partition 0: the topic was deleted: what the topic with id id-1 held from offset 9 on was not read"
    ]


@pytest.mark.parametrize("kind", ["topic", "partition"])
def test_what_is_no_longer_subscribed_is_told_and_left_out(kind: str) -> None:
    begin = at(t=[1, 2]) if kind == "partition" else at(t=[1], u=[2])
    now = by_partition('{"t": [0]}') if kind == "partition" else by_pattern("t")
    losses: list[Loss] = []
    got = find_available_offsets(
        begin,
        {"t": state((0, 5), (0, 5))} if kind == "partition" else {"t": state((0, 5))},
        now,
        losses.append,
        unknown,
    )
    assert got.ends == {TopicPartition("t", 0): 5}
    assert "the checkpoint is at offset 2, and the query does not read this partition any more" in losses[0].what
    assert set(got.topic_ids) == {"t"}


def test_available_now_ends_at_what_was_there_but_never_before_the_start() -> None:
    places = [TopicPartition("t", p) for p in range(4)]
    ends = dict(zip(places, (9, 9, 9, 9), strict=True))
    target = {places[0]: 5, places[1]: 5, places[2]: 20}
    assert up_to(target, at(t=[0, 7, 0]), ends) == {places[0]: 5, places[1]: 7, places[2]: 9}


def planned(
    begin: SourceOffset, until: SourceOffset, states: Mapping[str, TopicState]
) -> tuple[list[object], list[str]]:
    """Return the ranges of a planned batch, and what is told."""
    losses: list[Loss] = []
    got = ranges(begin, until, states, losses.append)
    return [(r.topic, r.topic_id, r.partition, r.start, r.end) for r in got], [loss.what for loss in losses]


def test_a_planned_batch_reads_what_is_left_of_it() -> None:
    states = {"t": state((4, 9), (4, 9), (6, 9), (0, 3))}
    spans, told = planned(at(t=[2, 1, 1, 2]), at(t=[8, 1, 5, 5]), states)
    assert spans == [("t", ID, 0, 4, 8), ("t", ID, 3, 2, 3)]
    assert [line.split(" were")[0].split(": the")[0] for line in told] == [
        "t partition 0: offsets 2 to 3, 2 of them,",
        "t partition 2: offsets 1 to 4, 4 of them,",
        "t partition 3",
    ]


def test_a_planned_batch_has_nothing_of_a_partition_that_an_older_copy_lacks() -> None:
    spans, told = planned(at(t=[1, 3]), at(t=[3, 9]), {"t": state((0, 4))})
    assert spans == [("t", ID, 0, 1, 3)]
    assert len(told) == 1
    assert "t partition 1: the checkpoint is at offset 9, the high watermark is 0" in told[0]

    losses: list[Loss] = []
    restored = {"t": Divergence(7, 5, (3,))}
    ranges(at(t=[1, 3]), at(t=[3, 9]), {"t": state((0, 4))}, losses.append, restored, restored)
    assert [(loss.what.split(":")[0], loss.truncated) for loss in losses] == [("t partition 1", True)]


@pytest.mark.parametrize("now", [{}, {"t": state((0, 9), topic_id=OTHER)}])
def test_a_planned_batch_of_a_former_life_reads_nothing_of_it(now: Mapping[str, TopicState]) -> None:
    spans, told = planned(at(t=[2]), at(t=[8]), now)
    assert spans == []
    assert told[0].startswith(
        "t partition 0: offsets 2 to 7 of the topic with id id-1 were planned, and the topic was d"
    )


def test_the_batch_that_goes_over_to_the_new_life_starts_at_its_log_start() -> None:
    spans, told = planned(at(t=[7]), at(OTHER, t=[3]), {"t": state((1, 9), topic_id=OTHER)})
    assert (spans, told) == ([("t", OTHER, 0, 1, 3)], [])


def test_an_error_names_all_losses_and_the_way_out() -> None:
    error = error_of([Loss(f"t partition {n}: gone", "Start anew", "it goes on") for n in (0, 1, 0)])
    assert isinstance(error, OffsetOutOfRangeError)
    assert str(error) == (
        "t partition 0: gone; t partition 1: gone. Start anew, or set the option 'failOnDataLoss' to 'false'"
    )


def test_a_topic_that_changed_is_the_error_s_kind() -> None:
    losses = [Loss("a: gone", "Start anew", "on"), Loss("b: made again", "Start anew", "on", topic_changed=True)]
    assert isinstance(error_of(losses), TopicChangedError)
