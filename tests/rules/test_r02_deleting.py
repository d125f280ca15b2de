"""R2: only the sweep deletes. Aborts, losers and the uncertain leave everything where it is."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_commitlog.errors import OutcomeUnknownError, StaleBatchError, StorageFullError, SyncFailedError
from pyspark_commitlog.testing.faults import io_error, on_path
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write import staging
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, stage
from tests.support.sources import Source
from tests.support.world import World, raising

_SCHEMA = StructType([StructField("value", BinaryType())])
_FULL = StorageFullError("no space")


def source(world: World) -> Source:
    made = Source({"path": str(world.path), "topic": "t"})
    made.world = world
    return made


def test_abort_after_a_commit_that_landed_deletes_nothing(world: World) -> None:
    """R2, I4: the put landed and its fsync failed; Spark calls abort with the same messages; the records stay."""
    world.create()
    driver = source(world)
    writer = driver.writer(_SCHEMA, overwrite=False)
    messages = [writer.write(iter([batch_of([b"landed"])]))]
    before = world.files(".chunk")
    assert before
    lost = raising(SyncFailedError("fsync failed"))
    driver.hook = on_path("/journal/", "put_if_absent", lost, when="after")
    with pytest.raises(OutcomeUnknownError, match="cannot tell whether"):
        writer.commit(messages)
    deleted: list[str] = []
    driver.hook = lambda operation, path, moment: deleted.append(path) if "delete" in operation else None
    writer.abort(messages)
    assert deleted == []
    assert world.files(".chunk") == before
    assert world.values() == [b"landed"]


def test_a_task_that_fails_removes_what_it_has_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: nobody can name a chunk that is not whole, so its task may remove it."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 1)
    monkeypatch.setattr(staging, "GATHER_BYTES", 1)
    topic = world.create(config={"batch.size": 1024})
    staged = world.path / topic.paths(topic.newest()[1].topic_id).staged
    begun: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([b"begun" * 1000])
        begun.extend(path.name for path in staged.iterdir())
        raise ValueError("the task fails")

    with pytest.raises(ValueError, match="the task fails"):
        source(world).writer(_SCHEMA, overwrite=False).write(batches())
    assert len(begun) == 1
    assert list(staged.iterdir()) == []


def test_a_commit_that_fails_for_sure_leaves_its_chunks_to_the_sweep(world: World) -> None:
    """R2: a loser, a refused writer and a full disk delete nothing: they can't know who else names the chunk."""
    topic = world.create()
    append(topic, batch_of([b"5"]), writer=Transaction("w", 5))
    staged = stage(topic, batch_of([b"old"]))
    chunks = world.files(".chunk")
    with pytest.raises(StaleBatchError):
        commit(topic, staged.topic_id, [staged], Transaction("w", 4))
    with pytest.raises(StorageFullError):
        commit(world.handle(on_path("/journal/", "put_if_absent", raising(_FULL))), staged.topic_id, [staged])
    assert world.files(".chunk") == chunks


def test_an_uncertain_writer_deletes_nothing_and_may_try_again(world: World) -> None:
    """R2, I5: every reply lost, then the same call again: once in the log, and its chunk still there."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    lost = on_path("/journal/", "put_if_absent", raising(io_error()), times=99)
    with pytest.raises(OutcomeUnknownError):
        commit(world.handle(lost), staged.topic_id, [staged], Transaction("w", 1))
    assert len(world.files(".chunk")) == 1
    assert not commit(topic, staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"once"]


@pytest.mark.parametrize("part", ["/settle/", "/manifests/", "00000.log"])
def test_a_settler_that_fails_deletes_no_source(world: World, part: str) -> None:
    """R2, R3: no space while settling: chunks, entries and what was published stay as they were."""
    topic = world.create(config={"inline.max.bytes": 0, "segment.bytes": 1024})
    append(topic, batch_of([b"a" * 600]))
    world.maintain()
    append(topic, batch_of([b"b" * 600]))
    append(topic, batch_of([b"c" * 600]))
    before = world.files()
    operation = {"/settle/": "put_if_absent", "/manifests/": "write_once"}.get(part, "open_append")
    slow = world.handle(on_path(part, operation, raising(_FULL)))
    with pytest.raises(StorageFullError):
        settle(slow, topic.newest()[1].topic_id)
    assert set(before) <= set(world.files())
    assert [value[:1] for value in world.values() if value] == [b"a", b"b", b"c"]
    assert world.maintain().settled_records == 2
