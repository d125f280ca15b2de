"""R5 without append: no lock says who may void what power loss took, so acks=0 leaves nothing that it could take."""

from __future__ import annotations

from pyspark_commitlog.topic.write.commit import commit
from tests.support.objects import ObjectWorld
from tests.support.records import batch_of, stage
from tests.support.syscalls import recording
from tests.support.world import CHUNKS


def test_acks_0_is_as_acks_1(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(config=CHUNKS)
    with recording() as calls:
        staged = stage(topic, batch_of([b"a"]), durable=False)
    synced = [path for call, path in calls if call == "fsync"]
    assert [path for path in synced if ".tmp-" in path], "the chunk, before it has its name"
    assert [path for path in synced if path.endswith("/staged")]

    done = commit(topic, staged.topic_id, [staged], durable=False)
    assert done.sequence is not None
    stored, state = unlocked.handle().newest()
    assert state.unsynced_from is None
    assert "unsynced" not in stored.entry.body
    assert unlocked.values() == [b"a"]
