"""R7: several topics in one micro-batch are several commits, in name order, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_commitlog.errors import StorageFullError
from pyspark_commitlog.spark.write.messages import StagedMessage
from pyspark_commitlog.testing.faults import on_path
from tests.support.records import batch_of
from tests.support.sources import Source
from tests.support.world import Recorder, World, raising, several

_SCHEMA = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])


def source(world: World) -> Source:
    made = Source({"path": str(world.path)})
    made.world = world
    return made


def staged(driver: Source, *batches: pa.RecordBatch) -> list[StagedMessage | None]:
    """Run one write task per batch, as a streaming query's tasks do."""
    writer = driver.streamWriter(_SCHEMA, overwrite=False)
    return [StagedMessage(writer.write(iter([batch])).staged, "query") for batch in batches]


def commit(driver: Source, messages: Sequence[StagedMessage | None], batch_id: int) -> None:
    driver.streamWriter(_SCHEMA, overwrite=False).commit(list(messages), batch_id)


def batches() -> list[pa.RecordBatch]:
    return [
        batch_of([b"c1", b"a1", b"b1"], topic=["c", "a", "b"]),
        batch_of([b"a2", b"c2"], topic=["a", "c"]),
    ]


@pytest.mark.parametrize("fails_at", ["a", "b", "c"])
def test_a_crash_between_topics_and_a_replay(world: World, fails_at: str) -> None:
    """R7, I5: the driver dies before topic b's put; the replay skips a and commits b and c: each record once."""
    for name in ("c", "a", "b"):
        world.create(name=name)
    driver = source(world)
    seen = Recorder()
    driver.hook = several(seen, on_path(f"/{fails_at}/journal/", "put_if_absent", raising(StorageFullError("full"))))
    with pytest.raises(StorageFullError):
        commit(driver, staged(driver, *batches()), 1)
    landed = [path.split("/")[1] for path in seen.paths("put_if_absent") if "/journal/" in path]
    assert landed == [name for name in ("a", "b", "c") if name < fails_at], "in name order"
    assert {name: bool(world.values(name)) for name in "abc"} == {name: name < fails_at for name in "abc"}
    again = source(world)
    commit(again, staged(again, *batches()), 1)
    commit(again, staged(again, *batches()), 1)
    assert [world.values(name) for name in "abc"] == [[b"a1", b"a2"], [b"b1"], [b"c1", b"c2"]]


def test_a_chunk_belongs_to_one_topic(world: World) -> None:
    """R7: one task writes to three topics: three chunks, each under its topic's id: each topic sweeps its own."""
    for name in ("a", "b", "c"):
        world.create(name=name)
    messages = staged(source(world), *batches())
    chunks = [task.chunk for message in messages if message for task in message.staged]
    assert len(chunks) == len(set(chunks)) == 5
    for message in messages:
        for task in message.staged if message else ():
            assert task.chunk is not None
            assert world.files(f"topics/{task.topic}/{task.topic_id}/staged/{task.chunk.name}")


def test_topics_are_committed_in_name_order_whatever_the_tasks_had(world: World) -> None:
    """R7: the first task had records for c only, the last one for a: a replay over other tasks takes the same order."""
    for name in ("a", "b", "c"):
        world.create(name=name)
    driver = source(world)
    driver.hook = seen = Recorder()
    commit(driver, staged(driver, *(batch_of([b"x"], topic=[name]) for name in ("c", "a", "b"))), 1)
    landed = [path.split("/")[1] for path in seen.paths("put_if_absent") if path.split("/")[2] == "journal"]
    assert landed == ["a", "b", "c"]
