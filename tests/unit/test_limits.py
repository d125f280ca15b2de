"""How much a micro-batch takes, and when it is put off."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.trigger_limits import StoredBytes, TriggerLimits, cut_by_bytes
from pyspark_commitlog.spark.read.source_options import source_options

P = [TopicPartition("t", partition) for partition in range(8)]


def limits(**options: str) -> TriggerLimits:
    """Return what a query's options ask for."""
    return source_options({"path": "/root", "subscribe": "t", **options}).limits


def test_spark_is_told_one_limit() -> None:
    assert limits().for_spark() == ReadAllAvailable()
    assert limits(minOffsetsPerTrigger="3").for_spark() == ReadMinRows(3)
    assert limits(minOffsetsPerTrigger="3", maxBytesPerTrigger="9").for_spark() == ReadMaxBytes(9)
    everything = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "3", "maxBytesPerTrigger": "9"}
    assert limits(**everything).for_spark() == ReadMaxRows(3)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90", 90), ("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("2 min", 120_000), ("1H", 3_600_000), ("1d", 86_400_000), ("5000us", 5)],
)  # fmt: skip
def test_a_delay_is_a_duration_of_spark(text: str, wanted: int) -> None:
    assert limits(maxTriggerDelay=text).max_delay_ms == wanted
    assert limits().max_delay_ms == 15 * 60 * 1000


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay'='soon': use a duration like 15m, 30s or 500ms"),
        ({"maxTriggerDelay": "-1s"}, "use a duration"),
        ({"maxTriggerDelay": "1w"}, "use a duration"),
        ({"maxBytesPerTrigger": "1k"}, "option 'maxBytesPerTrigger'='1k': use a whole number, at least 1"),
        ({"minOffsetsPerTrigger": "0"}, "option 'minOffsetsPerTrigger'='0': use a whole number, at least 1"),
        ({"minPartitions": "0"}, "option 'minPartitions'='0': use a whole number, at least 1"),
        ({"maxRecordsPerPartition": "-1"}, "option 'maxRecordsPerPartition'='-1': use a whole number, at least 1"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "option 'minOffsetsPerTrigger'='5' is above 'maxOffsetsPerTrigger'='4'",
        ),
    ],
)
def test_what_is_not_possible_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        limits(**options)


@pytest.mark.parametrize(
    ("there", "waited_ms", "wanted"),
    [(9, 0, True), (9, 999, True), (9, 1000, False), (10, 0, False), (9, None, False), (0, 1, True)],
)
def test_a_batch_waits_for_enough_or_long_enough_but_not_the_first(
    there: int, waited_ms: int | None, wanted: bool
) -> None:
    starts, ends = {P[0]: 100, P[1]: 7}, {P[0]: 100 + there, P[1]: 7}
    assert TriggerLimits(min_offsets=10, max_delay_ms=1000).puts_off(starts, ends, waited_ms) is wanted
    assert TriggerLimits(max_offsets=10).puts_off(starts, ends, waited_ms) is False


def even(bytes_each: dict[TopicPartition, int]) -> StoredBytes:
    """Return records of the same size in each partition."""
    return StoredBytes(
        lambda place, start, end: (end - start) * bytes_each[place],
        lambda place, start, end, budget: min(end, start + budget // max(1, bytes_each[place])),
    )


def shares(backlog: list[int], bytes_each: list[int], limit: int) -> list[int]:
    """Return how many records each partition gets."""
    places = P[: len(backlog)]
    starts = {place: 1000 * at for at, place in enumerate(places)}
    ends = {place: starts[place] + size for place, size in zip(places, backlog, strict=True)}
    cut = cut_by_bytes(starts, ends, limit, even(dict(zip(places, bytes_each, strict=True))))
    return [cut[place] - starts[place] for place in places]


def test_bytes_are_shared_by_the_bytes_that_wait() -> None:
    assert shares([100, 100], [10, 30], 400) == [10, 10]
    assert shares([100, 10, 0], [10, 100, 5], 200) == [10, 1, 0]


def test_all_is_taken_below_the_limit_and_a_record_each_in_any_case() -> None:
    assert shares([100, 10], [10, 100], 2000) == [100, 10]
    assert shares([100, 100, 1], [1000, 1000, 1], 1) == [1, 1, 1]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=8), st.integers(1, 10**9))
def test_no_partition_starves_and_the_limit_holds_but_for_a_record_each(
    waiting: list[tuple[int, int]], limit: int
) -> None:
    backlog, sizes = [size for size, _ in waiting], [each for _, each in waiting]
    got = shares(backlog, sizes, limit)
    assert all(min(size, 1) <= share <= size for size, share in zip(backlog, got, strict=True))
    spent = sum(share * each for share, each in zip(got, sizes, strict=True))
    assert spent <= limit + sum(sizes)
