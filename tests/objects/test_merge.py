"""Merges: few objects whatever the commits, the same records, and nothing published of what has changed (O2, O3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.segment_object import TRAILER_BYTES
from pyspark_commitlog.testing.faults import Hook, lose_reply, on_path
from pyspark_commitlog.topic.maintain.retention import delete_records
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.settle.merge import Merged, merge
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.ghosts import cleaned
from tests.support.objects import LATER_MS, ObjectWorld, own, split, topic_id
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, once

SMALL = {**CHUNKS, "segment.bytes": 100_000}


def written(unlocked: ObjectWorld, rounds: int, partitions: int = 1, config: dict[str, object] = CHUNKS) -> TopicLog:
    """Return a topic whose tail has an object for each round."""
    topic = unlocked.create(partitions, config)
    more(topic, range(rounds), partitions)
    return topic


def more(topic: TopicLog, rounds: range, partitions: int = 1) -> None:
    for number in rounds:
        value = [b"%d" % number] * partitions
        append(topic, batch_of(value, key=value, partition=list(range(partitions))))
        settle(topic, topic_id(topic))


def run(topic: TopicLog, most_bytes: int | None = None) -> Merged:
    return merge(topic, topic_id(topic), most_bytes=most_bytes)


def values(rounds: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(rounds)]


def noise(size: int) -> bytes:
    """Return bytes that no codec makes smaller."""
    return Random(size).randbytes(size)


def meanwhile(act: Callable[[], object], part: str = "/settle/") -> Hook:
    """Return a hook under which others act once, before the next entry of the settle journal is put."""
    other = once(act)

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and part in path:
            other()

    return hook


def merged_and_collected(unlocked: ObjectWorld) -> None:
    """Merge as another process, and delete what was merged."""
    topic = unlocked.handle()
    run(topic)
    unlocked.clock.advance(LATER_MS)
    unlocked.idle(topic, 2)
    unlocked.clock.advance(LATER_MS)
    cleaned(unlocked)


def frames(topic: TopicLog, partition: int = 0) -> list[bytes]:
    """Return the settled frames of a partition."""
    paths = topic.paths(topic_id(topic))
    _, state = topic.settled(paths.topic_id)
    spans = [segment_span(paths, partition, piece) for piece in topic.sealed(state, partition)]
    return [located.frame.buffer.to_pybytes() for span in spans for located in walk(topic.storage, span)]


# --- the tail ---------------------------------------------------------------------------------------------


def test_eight_objects_of_a_tier_become_one_of_the_next(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 7, partitions=3)
    assert run(topic) == Merged()
    more(topic, range(7, 9), partitions=3)
    before = unlocked.settled().tail
    assert run(topic).merges == 1
    after = unlocked.settled()
    assert [shared.tier for shared in after.tail] == [1, 0]
    assert set(after.drops) == {f"objects/{shared.name}" for shared in before[:8]}
    assert unlocked.values() == values(9) * 3
    verify(unlocked.handle())


def test_small_frames_are_joined_and_others_copied_byte_for_byte(unlocked: ObjectWorld) -> None:
    topic = unlocked.create(1, {**CHUNKS, "batch.size": 16384})
    for number in range(8):
        append(topic, batch_of([noise(3000 if number < 4 else 1)]))
        settle(topic, topic_id(topic))
    before = frames(topic)
    assert len(before) == 8
    run(topic)
    assert frames(topic)[:4] == before[:4]
    assert len(frames(topic)) == 5
    assert len(unlocked.values()) == 8
    verify(unlocked.handle())


def test_slices_below_the_log_start_are_left_out(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8, partitions=2)
    delete_records(topic, topic_id(topic), {0: 8, 1: 4})
    run(topic)
    topic = unlocked.handle()
    state = unlocked.settled()
    assert topic.sealed(state, 0) == ()
    assert [(piece.base_offset, piece.end_offset) for piece in topic.sealed(state, 1)] == [(4, 8)]
    assert unlocked.values() == values(8)[4:]
    verify(unlocked.handle())


def test_a_slice_that_holds_the_log_start_stays_whole(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 7)
    append(topic, batch_of([b"a", b"b", b"c"]))
    settle(topic, topic_id(topic))
    delete_records(topic, topic_id(topic), {0: 8})
    run(topic)
    assert unlocked.values() == [b"b", b"c"]
    verify(unlocked.handle())


def test_of_objects_wholly_below_the_log_start_nothing_is_put(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8)
    delete_records(topic, topic_id(topic), {0: 8})
    assert run(topic) == Merged(1, 0)
    assert unlocked.settled().tail == ()
    assert len(unlocked.objects()) == 8
    more(topic, range(8, 9))
    assert unlocked.values() == [b"8"]
    verify(unlocked.handle())


def test_a_gap_above_the_log_start_is_never_merged(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 9)

    def lose(_: object, now: object) -> Change | None:
        return Change(replace(state, tail=(state.tail[0], *state.tail[2:])))

    _, state = topic.settled(topic_id(topic))
    topic.change(state.topic_id, lose)
    with pytest.raises(CorruptionError, match="offsets from 1 to 2 are in no segment"):
        run(topic)


def test_a_damaged_frame_is_not_merged(unlocked: ObjectWorld) -> None:
    """Its bytes would get a new CRC, and its damage would be harder to find."""
    written(unlocked, 8)
    before = unlocked.settled().tail
    unlocked.flip(before[3].name)
    with pytest.raises(CorruptionError):
        run(unlocked.handle())
    assert unlocked.settled().tail == before


def test_the_tail_stays_short_beside_a_damaged_object(unlocked: ObjectWorld) -> None:
    """O10: each settle entry repeats it, and no entry holds more than 4,096 objects: then nothing could be settled."""
    topic, told = written(unlocked, 8, partitions=2), list[str]()
    damaged = unlocked.settled().tail[2]
    path = unlocked.path / unlocked.files(damaged.name)[0]
    sound = path.read_bytes()
    unlocked.flip(damaged.name)
    for number in range(8, 108):
        more(topic, range(number, number + 1), partitions=2)
        try:
            run(unlocked.handle())
        except CorruptionError as error:
            told.append(str(error))
    tail = unlocked.settled().tail
    assert tail[2] == damaged
    assert [shared.tier for shared in tail] == [0, 0, 0, 2, *[1] * 5, 0]
    assert len(told) == 3, "until those after it were merged"
    assert all(damaged.name in each for each in told)
    path.write_bytes(sound)
    assert unlocked.values() == values(108) * 2
    verify(unlocked.handle())


def test_the_tail_stays_short_beside_a_lost_object(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 9)
    assert unlocked.values() == values(9), "this process remembers its footer"
    lost = unlocked.settled().tail[0]
    (unlocked.path / unlocked.files(lost.name)[0]).unlink()
    with pytest.raises(CorruptionError, match=f"{lost.name} is missing: restore it from a copy"):
        run(unlocked.handle())
    assert [shared.tier for shared in unlocked.settled().tail] == [0, 1]
    more(topic, range(9, 10))
    assert run(unlocked.handle()) == Merged()


def test_an_object_whose_footer_is_damaged_is_left_out(unlocked: ObjectWorld) -> None:
    written(unlocked, 9)
    damaged = unlocked.settled().tail[0]
    (path,) = unlocked.files(damaged.name)
    data = bytearray((unlocked.path / path).read_bytes())
    data[-TRAILER_BYTES - 10] ^= 1
    (unlocked.path / path).write_bytes(data)
    with pytest.raises(CorruptionError, match=damaged.name):
        run(unlocked.handle())
    assert [shared.tier for shared in unlocked.settled().tail] == [0, 1]


def test_an_object_that_is_collected_meanwhile_is_no_loss(unlocked: ObjectWorld) -> None:
    """R8: the newest entry does not name it."""
    written(unlocked, 8)
    others = once(lambda: merged_and_collected(unlocked))
    assert run(unlocked.handle(on_path("/objects/", "map", others))) == Merged()
    assert len(unlocked.objects()) == 1
    assert unlocked.values() == values(8)


def test_what_is_too_large_for_a_commit_is_left_to_maintain(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8)
    assert run(topic, most_bytes=100).merges == 0
    assert run(topic, most_bytes=1_000_000).merges == 1


def test_what_is_late_is_merged_in_a_commit_whatever_its_size(unlocked: ObjectWorld) -> None:
    """Else the tail, which each settle entry repeats, would grow for ever where nobody maintains the topic."""
    topic = written(unlocked, 23)
    assert run(topic, most_bytes=100).merges == 0
    more(topic, range(23, 24))
    assert run(topic, most_bytes=100).merges == 1
    assert len(unlocked.settled().tail) == 17


def test_describe_counts_slices_of_the_tail_and_own_pieces(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 3, partitions=2)
    split(topic, 1)
    _, state = topic.settled(topic_id(topic))
    for row in unlocked.log().topic("t").describe().partitions:
        pieces = topic.sealed(state, row.partition)
        assert (row.segments, row.size_bytes) == (3, sum(piece.length for piece in pieces))


# --- races ------------------------------------------------------------------------------------------------


def test_a_settle_meanwhile_takes_the_number_and_nothing_else(unlocked: ObjectWorld) -> None:
    """O3: the merge tries the next number with the same object."""
    topic = written(unlocked, 8)
    hook = meanwhile(lambda: more(unlocked.handle(), range(8, 9)))
    assert run(unlocked.handle(hook)).merges == 1
    assert [shared.tier for shared in unlocked.settled().tail] == [1, 0]
    assert len(unlocked.objects()) == 10, "none was made twice"
    assert unlocked.values() == values(9)
    verify(topic)


def test_of_two_merges_of_the_same_objects_one_is_published(unlocked: ObjectWorld) -> None:
    """O2: exactly these objects are still named."""
    written(unlocked, 8)
    hook = meanwhile(lambda: run(unlocked.handle()))
    assert run(unlocked.handle(hook)) == Merged()
    assert len(unlocked.settled().tail) == 1
    assert unlocked.values() == values(8)
    verify(unlocked.handle())


def test_a_merge_of_what_another_merged_meanwhile_is_not_even_put(unlocked: ObjectWorld) -> None:
    """O13: the newest entry is read again before the object is put."""
    written(unlocked, 8)
    other = once(lambda: run(unlocked.handle()))

    def hook(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("map", "before") and path.endswith(".segment"):
            other()

    assert run(unlocked.handle(hook)) == Merged()
    assert len(unlocked.objects()) == 9


def test_what_is_let_go_of_meanwhile_does_not_come_back(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8)
    _, state = topic.settled(topic_id(topic))
    other = unlocked.handle()

    def let_go() -> None:
        delete_records(other, state.topic_id, {0: 1})
        other.change(state.topic_id, lambda _, now: Change(replace(now, tail=now.tail[1:])))

    assert run(unlocked.handle(meanwhile(let_go))) == Merged()
    assert len(unlocked.settled().tail) == 7
    assert unlocked.values() == values(8)[1:]
    verify(unlocked.handle())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_reply_does_not_lose_a_merge(unlocked: ObjectWorld, when: str) -> None:
    written(unlocked, 8)
    hook = on_path("/settle/", "put_if_absent", lose_reply, when=when)
    assert run(unlocked.handle(hook)).merges == 1
    assert len(unlocked.settled().tail) == 1
    assert unlocked.values() == values(8)
    verify(unlocked.handle())


# --- own objects ------------------------------------------------------------------------------------------


def test_from_a_size_on_partitions_get_objects_of_their_own(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8, partitions=3, config={**CHUNKS, "segment.bytes": 2048})
    run(topic)
    assert unlocked.settled().tail == ()
    assert {piece.base_offset for piece in own(topic, 1)} >= {0}
    assert max(piece.length for piece in own(topic, 1)) <= 2048
    assert unlocked.values() == values(8) * 3
    verify(unlocked.handle())


def test_a_split_keeps_what_a_settle_adds_meanwhile(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8, partitions=2, config={**CHUNKS, "segment.bytes": 2048})
    hook = meanwhile(lambda: more(unlocked.handle(), range(8, 9), 2))
    run(unlocked.handle(hook))
    assert len(unlocked.settled().tail) == 1
    assert len(unlocked.files("/manifests/")) == 2, "an attempt names the manifests of the one before"
    assert unlocked.values() == values(9) * 2
    verify(topic)


def test_a_split_of_what_was_let_go_of_meanwhile_is_given_up(unlocked: ObjectWorld) -> None:
    topic = written(unlocked, 8, config={**CHUNKS, "segment.bytes": 2048})
    _, state = topic.settled(topic_id(topic))
    other = unlocked.handle()

    def let_go() -> None:
        delete_records(other, state.topic_id, {0: 1})
        other.change(state.topic_id, lambda _, now: Change(replace(now, tail=now.tail[1:])))

    run(unlocked.handle(meanwhile(let_go)))
    assert own(topic) == []
    assert unlocked.values() == values(8)[1:]
    verify(topic)


def test_a_slice_that_does_not_fit_into_a_segment_makes_own_objects(unlocked: ObjectWorld) -> None:
    """By its index alone: the plan looks at bytes of the log."""
    config = {**CHUNKS, "segment.index.bytes": 24, "index.interval.bytes": 0, "batch.size": 1024}
    topic = unlocked.create(1, config)
    for _ in range(8):
        append(topic, batch_of([noise(900)]))
        settle(topic, topic_id(topic))
    assert run(topic).merges == 1
    assert unlocked.settled().tail == ()
    assert len(own(topic)) > 1
    assert len(unlocked.values()) == 8
    verify(unlocked.handle())


def in_pieces(unlocked: ObjectWorld, config: dict[str, object] = SMALL, partitions: int = 1) -> TopicLog:
    """Return a topic with eight own pieces of each partition."""
    topic = written(unlocked, 8, partitions, config)
    for _ in range(8):
        split(topic, 1)
    return topic


def test_own_pieces_are_merged(unlocked: ObjectWorld) -> None:
    topic = in_pieces(unlocked)
    before, bytes_before = own(topic), frames(topic)
    assert run(topic).merges == 1
    (piece,) = own(topic)
    assert frames(topic) == bytes_before
    assert set(unlocked.settled().drops) >= {f"objects/{each.place.object}" for each in before if each.place}
    assert (piece.base_offset, piece.end_offset) == (0, 8)
    assert unlocked.values() == values(8)
    verify(unlocked.handle())


def test_own_pieces_that_are_collected_meanwhile_are_no_loss(unlocked: ObjectWorld) -> None:
    """R8: the newest entry does not name them."""
    in_pieces(unlocked)
    others = once(lambda: merged_and_collected(unlocked))
    assert run(unlocked.handle(on_path("/objects/", "map", others))) == Merged()
    assert len(unlocked.objects()) == 1
    assert unlocked.values() == values(8)


def test_own_pieces_that_are_damaged_keep_no_other_partition(unlocked: ObjectWorld) -> None:
    topic = in_pieces(unlocked, partitions=2)
    place = own(topic, 0)[3].place
    assert place is not None
    unlocked.flip(place.object)
    with pytest.raises(CorruptionError, match=place.object):
        run(unlocked.handle())
    assert [len(own(topic, partition)) for partition in (0, 1)] == [8, 1]


def test_a_damaged_manifest_keeps_no_other_partition(unlocked: ObjectWorld) -> None:
    topic = in_pieces(unlocked, partitions=2)
    manifest = unlocked.settled().partition(0).manifest
    assert manifest is not None
    (path,) = unlocked.files(manifest.name)
    (unlocked.path / path).write_bytes(b"[]")
    with pytest.raises(CorruptionError, match=manifest.name):
        run(unlocked.handle())
    assert len(own(topic, 1)) == 1


def test_own_pieces_of_compacted_topics_are_compactions(unlocked: ObjectWorld) -> None:
    """O3: no merge takes what a compaction, of hours perhaps, works on."""
    topic = in_pieces(unlocked, {**SMALL, "cleanup.policy": "compact,delete"})
    assert run(topic) == Merged()


def test_of_two_merges_of_the_same_pieces_one_is_published(unlocked: ObjectWorld) -> None:
    in_pieces(unlocked)
    hook = meanwhile(lambda: run(unlocked.handle()))
    assert run(unlocked.handle(hook)) == Merged()
    assert len(own(unlocked.handle())) == 1
    assert unlocked.values() == values(8)
    verify(unlocked.handle())


def test_maintain_merges(unlocked: ObjectWorld) -> None:
    written(unlocked, 8)
    assert unlocked.maintain().merged.merges == 1
    assert len(unlocked.settled().tail) == 1
    assert unlocked.values() == values(8)
