"""S10: work of a minute is not in vain, whatever is settled meanwhile."""

from __future__ import annotations

from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.settle.merge import merge
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import ObjectWorld, own, split, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS

SLOW_MS = 6_000


def more(topic: TopicLog, numbers: range) -> None:
    for number in numbers:
        append(topic, batch_of([b"%d" % number], key=[b"%d" % (number % 3)]))
        settle(topic, topic_id(topic))


def a_settle_every_second(unlocked: ObjectWorld, settled: list[int]) -> Hook:
    """Return a hook under which each read of an object, and its put, takes seconds, and others settle meanwhile.

    They settle also right before each put of an entry of the settle journal, three times: it loses its number.
    """
    others, raced = unlocked.handle(), [0]

    def another() -> None:
        settled.append(len(settled))
        more(others, range(1000 + len(settled), 1001 + len(settled)))

    def hook(operation: str, path: str, moment: str) -> None:
        if moment != "before":
            return
        if operation in ("map", "create") and path.endswith(".segment"):
            for _ in range(SLOW_MS // 1000):
                unlocked.clock.advance(1000)
                another()
        elif operation == "put_if_absent" and "/settle/" in path and raced[0] < 3:
            raced[0] += 1
            another()

    return hook


def test_a_merge_of_a_minute_lands_against_a_settle_every_second(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, CHUNKS)
    more(topic, range(8))
    begun, settled = unlocked.clock.now_ms(), list[int]()
    slow = unlocked.handle(a_settle_every_second(unlocked, settled))
    done = merge(slow, topic_id(topic), enough=lambda: unlocked.settled().tail[0].tier > 0)
    assert done.merges == 1
    assert unlocked.clock.now_ms() - begun >= 50_000
    assert len(settled) >= 50
    after = unlocked.settled()
    assert [shared.tier for shared in after.tail[:2]] == [1, 0]
    assert len(unlocked.objects()) == 8 + 1 + len(settled), "its object is written once"
    assert len(unlocked.values()) == 8 + len(settled)
    verify(unlocked.handle())


def test_a_merge_of_own_pieces_lands_against_a_settle_every_second(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, {**CHUNKS, "segment.bytes": 100_000})
    more(topic, range(8))
    for _ in range(8):
        split(topic, 1)
    settled = list[int]()
    slow = unlocked.handle(a_settle_every_second(unlocked, settled))
    merge(slow, topic_id(topic), enough=lambda: len(own(unlocked.handle())) == 1)
    (piece,) = own(unlocked.handle())
    assert (piece.base_offset, piece.end_offset) == (0, 8)
    assert len(settled) >= 50
    assert len(unlocked.values()) == 8 + len(settled)
    verify(unlocked.handle())


def test_a_compaction_of_a_minute_lands_against_a_settle_every_second(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, {**CHUNKS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    more(topic, range(8))
    for _ in range(8):
        split(topic, 1)
    settled = list[int]()
    slow = unlocked.handle(a_settle_every_second(unlocked, settled))
    compact(slow, topic_id(topic))
    assert len(settled) >= 12
    assert unlocked.settled().partition(0).cleaned >= 8
    assert unlocked.values()[:1] != [b"0"], "a later record has its key"
    verify(unlocked.handle())
