"""Wall time of `timestamp_ntz` as instants: what a change of the clocks has twice or never is as in Java."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.spark.write.local_times import as_instants


def instants(zone: str | None, *walls: str) -> list[str]:
    """Return the instants of wall times, in UTC."""
    times = pa.array([datetime.fromisoformat(each) for each in walls], pa.timestamp("us"))
    found = as_instants(pa.RecordBatch.from_pydict({"timestamp": times}), zone).column(0)
    return [time.astimezone(UTC).strftime("%Y-%m-%d %H:%M") for time in found.to_pylist()]


@pytest.mark.parametrize(
    ("zone", "wall", "found"),
    [
        ("America/New_York", "2024-07-01 12:00", "2024-07-01 16:00"),
        ("America/New_York", "2024-03-10 02:30", "2024-03-10 07:30"),  # skipped that night
        ("America/New_York", "2024-11-03 01:30", "2024-11-03 05:30"),  # twice that night
        ("Z", "2024-07-01 12:00", "2024-07-01 12:00"),
        ("+02:00", "2024-07-01 12:00", "2024-07-01 10:00"),
        ("UTC+02:00", "2024-07-01 12:00", "2024-07-01 10:00"),
    ],
)
def test_wall_time_is_the_instant_that_java_has(zone: str, wall: str, found: str) -> None:
    assert instants(zone, wall) == [found]


@pytest.mark.parametrize("zone", [None, "Mars/Olympus"])
def test_a_zone_that_is_not_known_is_refused_with_the_cast(zone: str | None) -> None:
    with pytest.raises(InvalidRecordError, match=r"CAST\(timestamp AS TIMESTAMP\)"):
        instants(zone, "2024-07-01 12:00")


def test_instants_stay_as_they_are() -> None:
    batch = pa.RecordBatch.from_pydict({"timestamp": pa.array([0], pa.timestamp("us", "Asia/Kolkata"))})
    assert as_instants(batch, None) is batch
