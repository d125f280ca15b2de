"""What frames make of a segment, the same whoever writes it."""

from __future__ import annotations

import pytest

from pyspark_commitlog.topic.segments.growing import GrowingSegment, Stamped
from pyspark_commitlog.topic.state.settle_state import Active

INTERVAL = 100


def grown(*times: tuple[int, int | None], begun: Active | None = None) -> GrowingSegment:
    """Return a segment with a frame of one record and 60 bytes for each (largest timestamp, least timestamp)."""
    growing = GrowingSegment.at(5, INTERVAL) if begun is None else GrowingSegment(begun, INTERVAL)
    base = 5 + growing.length // 60
    for offset, (latest, least) in enumerate(times, base):
        growing.append(Stamped((b"x" * 60,), 60, offset, offset, latest, least))
    return growing


@pytest.mark.parametrize(
    ("times", "least", "lateness"),
    [
        ([(10, 5)], 5, 0),
        ([(10, 5), (20, 10)], 5, 0),
        ([(10, 5), (20, 3)], 3, 7),
        ([(10, 5), (9, 9), (8, 8)], 5, 2),
        ([(10, None)], None, None),
        ([(10, 5), (20, None), (30, 30)], None, None),
    ],
)
def test_it_knows_its_least_timestamp_and_how_late_a_record_came(
    times: list[tuple[int, int | None]], least: int | None, lateness: int | None
) -> None:
    growing = grown(*times)
    assert (growing.min_timestamp, growing.lateness) == (least, lateness)


def test_a_segment_goes_on_where_it_was_left() -> None:
    times = [(10, 5), (20, 3), (15, 12), (40, 40), (30, 9)]
    whole = grown(*times)
    for cut in range(len(times) + 1):
        first = grown(*times[:cut])
        more = grown(*times[cut:], begun=first.active(7, 1))
        assert more.active(7, 1) == whole.active(7, 1)
        assert (first.offsets + more.offsets, first.times + more.times) == (whole.offsets, whole.times)


def test_what_a_seal_adds_to_the_time_index_counts() -> None:
    growing = grown((10, 5), (20, 3))
    growing.seal()
    sealed = growing.sealed(7, 99, 3)
    assert (sealed.time_bytes, sealed.offset_bytes) == (len(growing.times), len(growing.offsets)) == (12, 0)
    assert (sealed.base_offset, sealed.end_offset, sealed.length, sealed.crc, sealed.rewrite) == (5, 7, 120, 99, 3)
    assert (sealed.max_timestamp, sealed.min_timestamp, sealed.lateness, sealed.place) == (20, 3, 7, None)
