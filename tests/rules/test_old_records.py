"""Records with old event times go at the next `maintain`: whoever writes them is warned, once for each topic."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

from tests.support.producers import producer_on
from tests.support.records import append, batch_of
from tests.support.world import World

DAY_MS = 86_400_000
KEPT: dict[str, Any] = {"retention.ms": 7 * DAY_MS}


def times(world: World, *days: float | None) -> list[int]:
    """Return timestamps (µs) so many days ago; None: 0, which tells nothing."""
    return [0 if day is None else int(world.clock.now_ms() - day * DAY_MS) * 1000 for day in days]


@pytest.fixture(autouse=True)
def years_after_1970(world: World) -> None:
    """Leave room for records that are older than now."""
    world.clock.advance(1_000 * DAY_MS)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """Return what was warned of so far."""
    caplog.set_level(logging.WARNING, "pyspark_commitlog.topic")
    return lambda: [record.getMessage() for record in caplog.records if "older than" in record.getMessage()]


def test_most_of_a_write_older_than_is_kept_is_told_once(world: World, told: Any) -> None:
    topic = world.create(1, KEPT)
    for _ in range(2):
        append(topic, batch_of([b"x"] * 3, timestamp=times(world, 8, 9, 0)))
    assert told() == [
        "topic 't': of 3 records just written 2 are older than the topic's retention.ms: maintain will delete what is. "
        "To keep records whatever their age, set retention.ms=-1 for the topic"
    ]
    world.create(1, KEPT, name="u")
    append(world.handle(name="u"), batch_of([b"x"], timestamp=times(world, 8)))
    assert len(told()) == 2
    assert "of 1 record just written 1 is older" in told()[1]


@pytest.mark.parametrize(
    ("config", "days"),
    [
        (KEPT, (8, 6.9)),
        ({"retention.ms": -1}, (8, 9)),
        ({**KEPT, "cleanup.policy": "compact"}, (8, 9)),
        ({**KEPT, "message.timestamp.type": "LogAppendTime"}, (8, 9)),
        (KEPT, (None, None)),
    ],
    ids=["half of them", "kept for ever", "compacted", "the log's own times", "no time"],
)
def test_what_stays_is_not_told(
    config: dict[str, Any], days: tuple[float | None, ...], world: World, told: Any
) -> None:
    topic = world.create(1, config)
    append(topic, batch_of([b"x"] * len(days), key=[b"k"] * len(days), timestamp=times(world, *days)))
    assert told() == []


@pytest.mark.parametrize("whole", [False, True], ids=["records", "a table"])
def test_a_producer_s_are_told(whole: bool, world: World, told: Any) -> None:
    world.create(1, KEPT)
    (old,) = times(world, 30)
    with producer_on(world) as producer:
        if whole:
            stamps = pa.array([old], pa.timestamp("us", tz="UTC"))
            producer.send_batch("t", pa.table({"value": [b"x"], "timestamp": stamps})).result(60)
        else:
            producer.send("t", b"x", timestamp=old // 1000).result(60)
    assert len(told()) == 1
