"""Maintenance on a real server: what it lets go of leaves the bucket."""

from __future__ import annotations

from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.maintain.settle import settle
from tests.crash.scenes import Scene
from tests.object_stores.conftest import S3, on
from tests.object_stores.scenes import is_whole
from tests.object_stores.servers import Bucket
from tests.object_stores.world import ObjectWorld
from tests.support.records import append, batch_of, stage
from tests.support.world import CHUNKS, RETENTION_MS, World


class Maintain(Scene):
    """Settle, let go, sweep and collect."""

    name = "maintain"

    def prepare(self, world: World) -> None:
        """Three settle entries, of which the records of two are deleted; one commit to settle, and an orphan."""
        topic = world.create(2, CHUNKS)
        for number in range(3):
            append(topic, batch_of([b"%d" % number] * 2, partition=range(2)))
            settle(topic, topic.newest()[1].topic_id)
        stage(topic, batch_of([b"orphan"]))
        append(topic, batch_of([b"end"], partition=[0]))
        world.log().topic("t").delete_records({0: 2, 1: 2})
        world.clock.advance(RETENTION_MS)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Maintain."""
        world.log(hook).topic("t").maintain()

    def check(self, world: World) -> None:
        """All is there that was not deleted; after a few more runs nothing else is."""
        assert world.values() == [b"2", b"end", b"2"]
        for _ in range(3):
            world.clock.advance(RETENTION_MS)
            self.act(world)
        assert world.values() == [b"2", b"end", b"2"]
        assert is_whole(world)
        assert len(world.files(".segment")) <= 2
        assert len(world.files("/settle/0")) == 2
        assert len(world.files(".chunk")) <= 2


@on(*S3)
def test_what_is_let_go_of_leaves_the_bucket(bucket: Bucket) -> None:
    scene, world = Maintain(), ObjectWorld(bucket, "root")
    scene.prepare(world)
    scene.act(world)
    scene.check(world)
    assert world.log().topic("t").maintain().settled_records == 0
