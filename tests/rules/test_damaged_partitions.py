"""A partition whose storage is damaged: commits to it are refused, and everything goes on with the others (R3, R11).

docs/explanation/design/damaged-partitions.md has the interleavings.
"""

from __future__ import annotations

import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError, CorruptionError, KafkaStorageError
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.maintain.retention import retain
from pyspark_commitlog.topic.maintain.settle import SettleLoad, settle, settle_after_commit, settle_load
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, Recorder, World

EAGER = {**CHUNKS, "settle.entries": 1}


def write(world: World, partition: int, *values: bytes) -> None:
    append(world.handle(), batch_of(values, partition=[partition] * len(values)))


def settled(world: World) -> SettleState:
    topic = world.handle()
    return topic.settled(topic.newest()[1].topic_id)[1]


def log_of(world: World, partition: int) -> Path:
    (path,) = (path for path in world.files(".log") if f"/{partition}/" in path)
    return world.path / path


def cut(world: World, partition: int) -> bytes:
    """Lose the active segment of a partition, but for some bytes; return what it was."""
    path = log_of(world, partition)
    whole = path.read_bytes()
    path.write_bytes(whole[:10])
    return whole


def damaged(world: World, config: dict[str, object] | None = None) -> bytes:
    """Make a topic whose partition 0 a settler has found damaged, of two; return what its segment was."""
    world.create(2, config or CHUNKS)
    write(world, 0, b"a0")
    write(world, 1, b"b0")
    world.maintain()
    whole = cut(world, 0)
    write(world, 0, b"a1")  # nobody knows yet
    with pytest.raises(CorruptionError, match="has 10 bytes"):
        world.maintain()
    return whole


def values(world: World, partition: int) -> list[bytes | None]:
    return [record.value for record in read_partition(world.handle(), partition)]


def test_a_commit_to_a_damaged_partition_is_refused_whole(world: World) -> None:
    damaged(world)
    topic = world.handle()
    with pytest.raises(
        KafkaStorageError, match=r"KAFKA_STORAGE_ERROR.*partition 0 from offset 1 on.*has 10 bytes"
    ) as told:
        append(topic, batch_of([b"x", b"y"], partition=[0, 1]))
    assert list(told.value.partitions) == [0]
    assert "has 10 bytes" in told.value.partitions[0]
    assert world.handle().newest()[1].log_end == (2, 1), "nothing of it, of the other partition neither"


def test_every_damaged_partition_of_a_commit_is_named(world: World) -> None:
    damaged(world)
    cut(world, 1)
    write(world, 1, b"b1")
    with pytest.raises(CorruptionError, match=r"(?s)/0/.*/1/|/1/.*/0/"):
        world.maintain()
    with pytest.raises(KafkaStorageError) as told:
        append(world.handle(), batch_of([b"x", b"y"], partition=[0, 1]))
    assert list(told.value.partitions) == [0, 1]


def test_the_others_are_written_settled_and_their_chunks_collected(world: World) -> None:
    damaged(world)
    for number in range(5):
        write(world, 1, b"b%d" % (number + 1))
    for _ in range(2):
        with pytest.raises(CorruptionError):
            world.maintain()
        world.clock.advance(DELAY_MS)
    with pytest.raises(CorruptionError):
        world.maintain()
    assert [settled(world).partition(p).end_offset for p in range(2)] == [1, 6]
    assert len(world.files(".chunk")) == 1, "that of the damaged partition"
    assert values(world, 1) == [b"b%d" % number for number in range(6)]


def test_settling_behind_a_commit_goes_on_with_the_others_and_leaves_the_damaged_one_alone(world: World) -> None:
    damaged(world, EAGER)
    seen = Recorder()
    for number in range(5):
        write(world, 1, b"b%d" % (number + 1))
        topic = world.handle(seen)
        assert settle_after_commit(topic, topic.newest()[1].topic_id).records == 1
    assert settled(world).partition(1).end_offset == 6
    assert [path for path in seen.paths("info") if "/1/" in path and path.endswith(".log")]
    assert not [path for path in seen.paths("info") if "/0/" in path and path.endswith(".log")]


def test_what_piles_up_is_not_read_for_the_others(world: World) -> None:
    """Entries stay, ascending, from the damaged partition's first on: a settler of the others starts behind them."""
    damaged(world, EAGER)
    counts = []
    for number in range(12):
        write(world, 1, b"b%d" % (number + 1))
        seen = Recorder()
        topic = world.handle(seen)
        settle_after_commit(topic, topic.newest()[1].topic_id)
        counts.append(len([path for path in seen.paths("fetch") if "/journal/" in path]))
    assert max(counts) == min(counts)


def test_a_partition_that_is_not_damaged_is_not_due_for_ever(world: World) -> None:
    damaged(world, EAGER)
    topic = world.handle()
    topic_id = topic.newest()[1].topic_id
    write(world, 1, b"b1")
    assert settle_after_commit(topic, topic_id).sequence is not None
    assert settle_load(topic, *topic.newest()) == SettleLoad(0, 0, 0)
    assert settled(world).others_from == topic.newest()[0].sequence + 1


def drains(world: World, expected: list[list[bytes]]) -> None:
    for _ in range(3):
        world.maintain()
        world.clock.advance(DELAY_MS)
    world.maintain()
    assert [values(world, partition) for partition in range(len(expected))] == expected
    assert len(world.entries()) == 2
    assert (settled(world).damaged, settled(world).ahead) == ((), None)
    verify(world.handle())


def test_when_the_file_is_restored_the_next_maintenance_takes_the_topic_further(world: World) -> None:
    whole = damaged(world)
    for number in range(4):
        write(world, 1, b"b%d" % (number + 1))
    with pytest.raises(CorruptionError):
        world.maintain()
    log_of(world, 0).write_bytes(whole)
    with pytest.raises(KafkaStorageError):
        write(world, 0, b"too early: nobody has looked")
    world.maintain()
    write(world, 0, b"a2")
    drains(world, [[b"a0", b"a1", b"a2"], [b"b%d" % number for number in range(5)]])


def test_when_the_loss_is_voided_commits_are_taken_at_once_and_the_topic_drains(world: World) -> None:
    damaged(world)
    write(world, 1, b"b1")
    assert [(lost.partition, lost.start, lost.end) for lost in world.log().topic("t").void()] == [(0, 0, 1)]
    write(world, 0, b"a2")
    drains(world, [[b"a1", b"a2"], [b"b0", b"b1"]])


def test_a_damaged_chunk_is_damage_too(world: World) -> None:
    world.create(2)
    write(world, 0, b"a0")
    (chunk,) = world.files(".chunk")
    write(world, 1, b"b0")
    (world.path / chunk).unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        world.maintain()
    with pytest.raises(KafkaStorageError, match="is missing"):
        write(world, 0, b"a1")
    write(world, 1, b"b1")
    world.log().topic("t").void()
    write(world, 0, b"a1")
    drains(world, [[b"a1"], [b"b0", b"b1"]])


def test_a_repetition_of_what_landed_is_skipped_not_refused(world: World) -> None:
    """R6: a refusal says that nothing was committed."""
    world.create(2)
    write(world, 0, b"a0")
    world.maintain()
    cut(world, 0)
    topic = world.handle()
    staged = stage(topic, batch_of([b"a1"], partition=[0]))
    commit(topic, staged.topic_id, [staged], Transaction("w", 1))
    with pytest.raises(CorruptionError):
        world.maintain()
    assert commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1)).skipped


def test_a_commit_that_came_before_the_settler_told_has_landed(world: World) -> None:
    """The committer looked before the settler published: its records wait with the others, and come back."""
    world.create(2)
    write(world, 0, b"a0")
    world.maintain()
    whole = cut(world, 0)
    write(world, 0, b"a1")

    def found() -> None:
        with pytest.raises(CorruptionError):
            world.maintain()

    late = world.handle(on_path("/journal/", "put_if_absent", found))
    assert append(late, batch_of([b"a2"], partition=[0])).sequence is not None
    log_of(world, 0).write_bytes(whole)
    drains(world, [[b"a0", b"a1", b"a2"], []])


def test_who_loses_a_race_looks_again(world: World) -> None:
    """R9: another commit came first, and a settler told of the damage meanwhile: the second try is refused."""
    world.create(2)
    write(world, 0, b"a0")
    world.maintain()
    cut(world, 0)
    write(world, 0, b"a1")

    def meanwhile() -> None:
        write(world, 1, b"b0")
        with pytest.raises(CorruptionError):
            world.maintain()

    with pytest.raises(KafkaStorageError):
        append(world.handle(on_path("/journal/", "put_if_absent", meanwhile)), batch_of([b"a2"], partition=[0]))


def test_what_power_loss_took_of_acks_0_is_voided_and_never_told_as_damage(world: World) -> None:
    """R5: a settler voids it in the same run; nobody is refused in between."""
    topic = world.create(2)
    write(world, 1, b"b0")
    staged = stage(topic, batch_of([b"lost"], partition=[0]), durable=False)
    commit(topic, staged.topic_id, [staged], durable=False)
    (world.path / world.files(".chunk")[-1]).write_bytes(b"")
    world.maintain()
    journal = world.handle().settle_journal(staged.topic_id)
    assert not any("damaged" in journal.read(sequence).entry.body for sequence in journal.sequences())
    drains(world, [[], [b"b0"]])


def test_other_damage_of_a_topic_with_unsynced_chunks_is_told(world: World) -> None:
    world.create(2)
    write(world, 0, b"a0")
    world.maintain()
    cut(world, 0)
    topic = world.handle()
    for value, partition in ((b"b0", 1), (b"a1", 0)):
        staged = stage(topic, batch_of([value], partition=[partition]), durable=False)
        commit(topic, staged.topic_id, [staged], durable=False)
    with pytest.raises(CorruptionError):
        world.maintain()
    with pytest.raises(KafkaStorageError):
        write(world, 0, b"x")
    assert values(world, 1) == [b"b0"]


def test_a_durable_commit_behind_unsynced_chunks_that_were_collected_finds_nothing_lost(world: World) -> None:
    """R5: their entries stay for the damaged partition, their chunks do not."""
    damaged(world)
    topic = world.handle()
    staged = stage(topic, batch_of([b"b1"], partition=[1]), durable=False)
    commit(topic, staged.topic_id, [staged], durable=False)
    for _ in range(3):
        with pytest.raises(CorruptionError):
            world.maintain()
        world.clock.advance(DELAY_MS)
    assert len(world.files(".chunk")) == 1
    write(world, 1, b"b2")
    assert world.handle().newest()[1].unsynced_from is None


def test_without_a_sound_settle_entry_no_partition_takes_a_commit(world: World) -> None:
    topic = world.create(2)
    write(world, 1, b"b0")
    (path,) = world.files("/settle/0000")
    data = bytearray((world.path / path).read_bytes())
    data[20] ^= 1
    (world.path / path).write_bytes(bytes(data))
    with pytest.raises(KafkaStorageError, match="CRC-32C") as told:
        append(world.handle(), batch_of([b"x"], partition=[0]))
    assert list(told.value.partitions) == [0]
    assert world.handle().newest()[0].sequence == topic.newest()[0].sequence


def test_whoever_publishes_beside_the_settler_keeps_the_mark(world: World) -> None:
    """R3: retention and `void` put settle entries too."""
    damaged(world, {**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    for _ in range(3):
        write(world, 1, b"x" * 900)
    with pytest.raises(CorruptionError):
        world.maintain()
    world.log().topic("t").delete_records({1: 2})
    topic = world.handle()
    assert retain(topic, topic.newest()[1].topic_id).segments > 0
    with pytest.raises(KafkaStorageError):
        write(world, 0, b"x")


def test_a_damaged_manifest_stops_retention_of_its_partition_only(world: World) -> None:
    world.create(2, {**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    for number in range(4):
        for partition in range(2):
            write(world, partition, b"%d" % number + b"x" * 900)
        world.maintain()
    paths = [path for path in world.files("/manifests/0-") if path]
    for path in paths:
        (world.path / path).write_bytes(b"[]")
    world.log().topic("t").delete_records({0: 2, 1: 2})
    before = [path for path in world.files(".log") if "/1/" in path]
    for _ in range(3):
        with pytest.raises(CorruptionError, match="/manifests/0-"):
            world.maintain()
        world.clock.advance(DELAY_MS)
    assert len([path for path in world.files(".log") if "/1/" in path]) == len(before) - 2
    assert len([path for path in world.files(".log") if "/0/" in path]) == 4
    assert world.log().topic("t").read(1, 2)[0].value == b"2" + b"x" * 900


def test_a_long_list_of_damage_lies_beside_the_entry_and_goes_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 60)
    whole = damaged(world)
    with pytest.raises(KafkaStorageError, match="has 10 bytes"):
        write(world, 0, b"x")
    assert len(world.files(".damaged")) == 1
    write(world, 1, b"b1")
    world.clock.advance(DELAY_MS)
    with pytest.raises(CorruptionError):
        world.maintain()
    topic = world.handle()
    collect(topic, topic.newest()[1].topic_id)
    assert settled(world).damaged, "it is still named, and still there"
    log_of(world, 0).write_bytes(whole)
    drains(world, [[b"a0", b"a1"], [b"b0", b"b1"]])
    write(world, 1, b"b2")
    drains(world, [[b"a0", b"a1"], [b"b0", b"b1", b"b2"]])
    assert world.files(".damaged") == []


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_and_mended_in_whatever_order_nothing_is_lost(world: World, seed: int) -> None:
    chance = random.Random(seed)
    world.create(3, EAGER)
    sent: list[list[bytes]] = [[], [], []]
    whole: dict[int, bytes] = {}
    refused = 0
    for partition in range(3):
        write(world, partition, b"0")
        sent[partition].append(b"0")
    world.maintain()
    for number in range(40):
        partition = chance.randrange(3)
        match chance.randrange(5):
            case 0 | 1:
                try:
                    write(world, partition, b"%d" % number)
                    sent[partition].append(b"%d" % number)
                except KafkaStorageError:
                    refused += 1
            case 2:
                topic = world.handle()
                settle_after_commit(topic, topic.newest()[1].topic_id)
            case 3 if partition not in whole:
                topic = world.handle()
                settle_all(topic)
                whole[partition] = cut(world, partition)
            case _:
                if partition in whole:
                    log_of(world, partition).write_bytes(whole.pop(partition))
                settle_all(world.handle())
                world.clock.advance(chance.choice([0, DELAY_MS]))
    for partition, data in whole.items():
        log_of(world, partition).write_bytes(data)
    drains(world, sent)


def settle_all(topic: TopicLog) -> None:
    topic_id = topic.newest()[1].topic_id
    with suppress(CorruptionError):
        settle(topic, topic_id)
    collect(topic, topic_id, thorough=True)


def test_a_copy_of_the_root_keeps_its_marks(world: World, tmp_path: Path) -> None:
    damaged(world)
    shutil.copytree(world.path, tmp_path / "copy")
    with pytest.raises(CommitLogError, match="KAFKA_STORAGE_ERROR"):
        append(CommitLog(str(tmp_path / "copy")).root.topic("t"), batch_of([b"x"], partition=[0]))


def test_a_collector_that_slept_does_not_take_the_chunk_of_a_strays_next_try_along(world: World) -> None:
    """Anchor rule, R13: while it sleeps the partition is mended and entry 5 collected, and a writer puts another 5."""
    whole = damaged(world)
    reached, go = threading.Event(), threading.Event()

    def sleep() -> None:
        reached.set()
        assert go.wait(30)

    staged = stage(world.handle(), batch_of([b"slow"], partition=[1]))
    slow = world.handle(on_path("/t/journal/", "put_if_absent", sleep))
    with ThreadPoolExecutor(1) as threads:
        committed = threads.submit(commit, slow, staged.topic_id, [staged], Transaction("w", 1))
        assert reached.wait(30)
        write(world, 1, b"b1")
        with pytest.raises(CorruptionError):
            world.maintain()
        world.clock.advance(DELAY_MS)

        def meanwhile() -> None:
            log_of(world, 0).write_bytes(whole)
            world.maintain()
            world.clock.advance(DELAY_MS)
            write(world, 1, b"b2")
            write(world, 1, b"b3")
            collect(world.handle(), staged.topic_id)
            assert world.entries() == [6, 7]
            go.set()
            assert committed.result(30).sequence == 8

        reads = count(1)  # the first one finds it as the newest
        asleep = on_path(f"{5:020d}.json", "fetch", lambda: meanwhile() if next(reads) == 2 else None, times=2)
        collect(world.handle(asleep), staged.topic_id, thorough=True)
    assert committed.done()
    assert values(world, 1) == [b"b0", b"b1", b"b2", b"b3", b"slow"]
