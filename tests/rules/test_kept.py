"""A reader that may lose records passes over what is gone, says which, and gives all else; damage stays an error."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.read.lossy import read_kept
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World, many, once

SMALL = {**CHUNKS, "segment.bytes": 1024, "compression.type": "none"}


def offsets(topic: TopicLog, topic_id: str, start: int, end: int) -> list[int]:
    """Return the offsets that a reader of a range gives."""
    found: list[int] = []
    for rows in read_kept(topic, OffsetRange("t", topic_id, 0, start, end), ("value",)):
        found += range(rows.first_offset, rows.first_offset + rows.count)
    return found


def filled(world: World) -> str:
    """Make a topic of ten commits of ten records, each a segment; return its id."""
    topic = world.create(config=SMALL)
    for number in range(10):
        append(topic, batch_of(many(10, b"%d-" % number)))
        world.maintain()
    return topic.newest()[1].topic_id


def test_all_is_read_where_nothing_is_lost(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topic_id = filled(world)
    assert offsets(world.handle(), topic_id, 5, 95) == list(range(5, 95))
    assert caplog.messages == []


def test_what_was_deleted_before_the_task_started_is_passed_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = filled(world)
    world.log().topic("t").delete_records({0: 33})
    assert offsets(world.handle(), topic_id, 5, 40) == list(range(33, 40))
    assert offsets(world.handle(), topic_id, 5, 20) == []
    assert caplog.messages == [
        "topic 't' partition 0: offsets 5 to 32 were deleted (retention or delete_records): they are skipped",
        "topic 't' partition 0: offsets 5 to 19 were deleted (retention or delete_records): they are skipped",
    ]


def test_what_is_deleted_between_the_look_and_the_read_is_passed_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = filled(world)
    topic, calls = world.handle(), []
    newest = topic.newest

    def slow(known: str | None = None) -> object:
        found = newest(known)
        calls.append(1)
        if len(calls) == 1:
            world.log().topic("t").delete_records({0: 33})
        return found

    topic.newest = slow  # type: ignore[assignment]
    assert offsets(topic, topic_id, 5, 40) == list(range(33, 40))
    assert [message.split(" were")[0] for message in caplog.messages] == ["topic 't' partition 0: offsets 5 to 32"]


def test_files_that_go_under_a_reader_are_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Retention, then the collector, while the reader is between two segments."""
    topic_id = filled(world)

    def overtake() -> None:
        world.log().topic("t").delete_records({0: 70})
        world.collect_all()
        world.collect_all()

    hook = on_path("00000000000000000010.log", "map", once(overtake), when="after")
    found = offsets(world.handle(hook), topic_id, 5, 90)
    assert found[:15] == list(range(5, 20))
    assert found[-20:] == list(range(70, 90))
    (told,) = caplog.messages
    assert (
        told
        == f"topic 't' partition 0: offsets {len(found) - 20 + 5} to 69 were deleted (retention or delete_records): they are skipped"
    )


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone_gives_nothing(world: World, caplog: pytest.LogCaptureFixture, again: bool) -> None:
    topic_id = filled(world)
    world.log().topic("t").delete()
    if again:
        append(world.create(config=SMALL), batch_of(many(100, b"new")))
    assert offsets(world.handle(), topic_id, 5, 40) == []
    (told,) = caplog.messages
    assert told.startswith("topic 't' partition 0: offsets 5 to 39 are skipped: topic 't'")


def test_offsets_beyond_the_high_watermark_are_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topic_id = filled(world)
    assert offsets(world.handle(), topic_id, 95, 130) == list(range(95, 100))
    assert offsets(world.handle(), topic_id, 110, 130) == []
    assert [message.split(": ")[1] for message in caplog.messages] == [
        "offsets 100 to 129 are beyond the high watermark",
        "offsets 110 to 129 are beyond the high watermark",
    ]


def test_damage_is_never_passed_over(world: World) -> None:
    """I8."""
    topic_id = filled(world)
    (log,) = world.files("00000000000000000020.log")
    data = bytearray((world.path / log).read_bytes())
    data[100] ^= 1
    (world.path / log).write_bytes(bytes(data))
    with pytest.raises(CorruptionError):
        offsets(world.handle(), topic_id, 5, 95)


def test_the_last_state_of_a_deleted_topic_is_known_until_its_entries_are_collected(world: World) -> None:
    first = filled(world)
    assert world.handle().ended(first) is None
    world.log().topic("t").delete()
    found = world.handle().ended(first)
    assert found is not None
    assert found.log_end == (100,)
    second = world.create(config=SMALL).newest()[1].topic_id
    assert world.handle().ended(first) == found
    assert world.handle().ended(second) is None
    append(world.handle(), batch_of(many(10)))
    append(world.handle(), batch_of(many(10)))
    world.collect_all()
    assert world.handle().ended(first) is None
    world.log().topic("t").delete()
    world.create(config=SMALL)
    assert world.handle().ended(first) is None
    assert world.handle().ended(second) is not None
