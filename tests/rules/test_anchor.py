"""The anchor rule: a put at, or a read of, a collected number must not count. And what is told when in doubt."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest

from pyspark_commitlog.errors import (
    OutcomeUnknownError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    TopicExistsError,
)
from pyspark_commitlog.storage.base import NotPutError
from pyspark_commitlog.testing.faults import io_error, on_path
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write import commit as committing
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.staging import Staged
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.entries import rewrite
from tests.support.records import append, batch_of, read_topic, stage
from tests.support.world import DELAY_MS, World, failing, once, raising


def paused(world: World, act: Callable[[], object]) -> TopicLog:
    """Return the handle of a writer that pauses between its checks and its put."""
    return world.handle(on_path("/t/journal/", "put_if_absent", once(act)))


def history(world: World, commits: int = 4) -> None:
    """Let commits happen, and all but the newest two entries be collected."""
    for number in range(commits):
        append(world.handle(), batch_of([b"history %d" % number]))
    world.collect_all()


@pytest.mark.parametrize("writer", [None, Transaction("w", 1)])
def test_a_put_at_a_collected_number_does_not_count(world: World, writer: Transaction | None) -> None:
    """Anchor rule, I4: the put succeeds because the number was collected: it must not be reported as a commit."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    staged = stage(topic, batch_of([b"paused"]))
    slow = paused(world, lambda: history(world))
    with pytest.raises(OutcomeUnknownError, match="same writer id"):
        commit(slow, staged.topic_id, [staged], writer)
    assert b"paused" not in world.values()
    assert not commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values()[-1] == b"paused"
    world.collect_all()
    world.collect_all()
    assert world.values() == [b"first", *(b"history %d" % n for n in range(4)), b"paused"]


def stray(world: World) -> tuple[Staged, Committed]:
    """Leave a stray that names the chunk of a later commit: its writer proved that it had lost, and tried again."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    staged = stage(topic, batch_of([b"paused"]))

    def collected_through_its_number() -> None:
        append(world.handle(), batch_of([b"winner"]))
        world.maintain()
        world.clock.advance(DELAY_MS)
        for value in (b"later 1", b"later 2"):
            append(world.handle(), batch_of([value]))
        collect(world.handle(), staged.topic_id)

    slow = paused(world, collected_through_its_number)
    return staged, commit(slow, staged.topic_id, [staged], Transaction("w", 1))


def test_a_stray_does_not_take_the_chunk_of_its_writers_next_try_along(world: World) -> None:
    """Anchor rule, R13, I4: stray 3 and live entry 6 name one chunk; collecting 3 must leave the chunk alone."""
    staged, committed = stray(world)
    assert world.entries()[0] == 3
    assert committed.sequence == 6
    collect(world.handle(), staged.topic_id)  # entry 6 is not settled yet
    assert 3 not in world.entries()
    assert world.values() == [b"first", b"winner", b"later 1", b"later 2", b"paused"]


def test_a_stray_right_below_what_a_dead_collector_left_does_not_take_a_chunk_along(world: World) -> None:
    """Anchor rule, I4: entry 4 is genuine, and was built on another 3 than the stray there."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    staged = stage(topic, batch_of([b"paused"]))

    def collected_through_its_number() -> None:
        for value in (b"winner", b"settled"):
            append(world.handle(), batch_of([value]))
        world.maintain()
        world.clock.advance(DELAY_MS)
        for value in (b"later 1", b"later 2"):
            append(world.handle(), batch_of([value]))
        dying = world.handle(on_path(f"{3:020d}.json", "delete", failing(), when="after"))
        with pytest.raises(StorageError):
            collect(dying, staged.topic_id)

    slow = paused(world, collected_through_its_number)
    assert commit(slow, staged.topic_id, [staged], Transaction("w", 1)).sequence == 7
    assert world.entries()[:2] == [3, 4]
    collect(world.handle(), staged.topic_id)
    assert world.entries()[0] == 5
    assert world.values() == [b"first", b"winner", b"settled", b"later 1", b"later 2", b"paused"]


def test_a_reader_does_not_believe_a_stray(world: World) -> None:
    """Anchor rule, I2: a paused reader wants entry 3, which was collected and put again by a zombie."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    world.maintain()
    zombie = stage(topic, batch_of([b"zombie"]))
    slow = world.handle()
    slow.newest()  # the zombie's base
    for value in (b"genuine", b"third"):
        append(topic, batch_of([value]))

    def collected_and_put_again() -> None:
        history(world)
        assert 3 not in world.entries()
        put_at(world, slow, zombie)
        assert 3 in world.entries()

    reader = world.handle(on_path("journal/00000000000000000003", "fetch", once(collected_and_put_again)))
    rows = PartitionReader(reader, zombie.topic_id, 0).read(1, 3)
    values = [v for each in rows if each.batch for v in each.batch.column("value").to_pylist()]
    assert values == [b"genuine", b"third"]


def put_at(world: World, slow: TopicLog, staged: Staged) -> None:
    """Let a writer that remembers an old base put behind it: it looked at what was settled before that was."""
    old = slow.journal.newest
    remembered = slow.journal._anchor
    slow.journal.newest = lambda: remembered  # type: ignore[method-assign]
    try:
        with patch.object(committing, "_check_journal_is_whole"), pytest.raises(OutcomeUnknownError):
            commit(slow, staged.topic_id, [staged])
    finally:
        slow.journal.newest = old  # type: ignore[method-assign]


@pytest.mark.parametrize("operation", ["fetch", "names"])
def test_who_lists_does_not_believe_what_is_collected_and_put_again_meanwhile(world: World, operation: str) -> None:
    """Anchor rule: between the listing and the read, and between the second listing and the answer."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    path = world.path / f"topics/t/journal/{2:020d}.json"
    zombie = path.read_bytes()
    listings = 0

    def hook(found: str, where: str, moment: str) -> None:
        nonlocal listings
        listings += found == "names" and moment == "after"
        at_the_read = operation == found == "fetch" and moment == "before" and where.endswith(path.name)
        if at_the_read or (operation == found == "names" and moment == "after" and listings == 2):
            again()

    def lived() -> None:
        world.clock.advance(1)
        history(world)
        assert not path.exists()
        world.storage().put_if_absent(f"topics/t/journal/{path.name}", zombie)

    again = once(lived)
    found = world.handle(hook).journal.newest()
    assert found is not None
    assert found.sequence == world.entries()[-1] > 5


def test_a_follower_does_not_believe_a_stray(world: World) -> None:
    """Anchor rule, I2: a poller remembers entry 2; 3 was collected, and put again: it forgets and lists."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    poller, slow = world.handle(), world.handle()
    for handle in (poller, slow):
        assert handle.newest()[0].sequence == 2
    zombie = stage(topic, batch_of([b"zombie"]))
    history(world)
    put_at(world, slow, zombie)
    assert 3 in world.entries()
    assert poller.newest()[0].sequence == world.entries()[-1]
    assert b"zombie" not in [record.value for record in read_topic(poller)]


def test_an_idle_poller_notices_that_its_entry_is_gone(world: World) -> None:
    """Anchor rule: the number after its own was collected, so probing it finds nothing for ever."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    poller = world.handle()
    poller.newest()
    history(world)
    assert 3 not in world.entries()
    assert poller.newest()[0].sequence == world.entries()[-1]


def test_a_poller_is_not_held_by_a_stray_in_the_place_of_its_entry(world: World) -> None:
    """Anchor rule: the number it remembers was collected and put again: the name is there, the file is another."""
    topic = world.create()
    append(topic, batch_of([b"first"]))
    slow = world.handle()
    slow.newest()
    zombie = stage(topic, batch_of([b"zombie"]))
    append(topic, batch_of([b"second"]))
    poller = world.handle()
    assert poller.newest()[0].sequence == 3
    history(world)
    put_at(world, slow, zombie)
    assert world.entries()[0] == 3
    assert poller.newest()[0].sequence == world.entries()[-1] > 4


def test_a_put_at_number_one_long_after(world: World) -> None:
    """Anchor rule: entry 1 has no anchor; a creator that found nothing puts it when it was collected."""

    def life() -> None:
        world.create()
        history(world)
        assert 1 not in world.entries()

    with pytest.raises(TopicExistsError):
        world.log(on_path("/t/journal/", "put_if_absent", once(life))).create_topic("t", 9)
    assert world.handle().newest()[1].partitions == 1
    assert len(world.values()) == 4
    world.collect_all()
    assert 1 not in world.entries()
    assert len(world.values()) == 4


def test_a_put_at_number_one_right_below_an_entry_that_was_built_on_another(world: World) -> None:
    """Anchor rule: entry 2 is the oldest that is left, and names another entry 1 than the one that was put late."""

    def life() -> None:
        world.create()
        history(world, commits=2)
        assert world.entries() == [2, 3]

    with pytest.raises(TopicExistsError):
        world.log(on_path("/t/journal/", "put_if_absent", once(life))).create_topic("t", 9)
    assert world.handle().newest()[1].partitions == 1
    assert len(world.values()) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("writer", [None, Transaction("w", 1)])
def test_a_lost_reply_is_put_again_with_the_same_bytes(world: World, when: str, writer: Transaction | None) -> None:
    """Section 3, I5: stored or not: the same bytes at the same number, and the record is there once."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    hook = on_path("/journal/", "put_if_absent", raising(io_error()), when=when)
    assert commit(world.handle(hook), staged.topic_id, [staged], writer).sequence == 2
    assert world.values() == [b"once"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_replies_that_stay_lost_are_outcome_unknown(world: World, when: str) -> None:
    """Section 3: bounded tries, then the truth: nobody knows. The retry with the same id ends exactly once."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    hook = on_path("/journal/", "put_if_absent", raising(io_error()), when=when, times=99)
    outcomes = []
    try:
        outcomes.append(commit(world.handle(hook), staged.topic_id, [staged], Transaction("w", 1)).sequence)
    except OutcomeUnknownError:
        outcomes.append(None)
    assert outcomes == [None if when == "before" else 2], "a landed put says 'exists' the second time"
    commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1))
    assert world.values() == [b"once"]


def test_a_rival_that_takes_the_number_of_an_ambiguous_put(world: World) -> None:
    """Section 3: our put was not stored, its reply lost; a rival takes the number; read back: not ours."""
    topic = world.create()
    staged = stage(topic, batch_of([b"ours"]))

    def lost() -> None:
        append(world.handle(), batch_of([b"rival"]))
        raise io_error()

    assert commit(paused(world, lost), staged.topic_id, [staged]).sequence == 3
    assert world.values() == [b"rival", b"ours"]


def test_an_ambiguous_put_whose_number_is_collected_meanwhile(world: World) -> None:
    """Section 3, I5: stored, reply lost, collected before it is read back: the writers' table decides."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))

    def lost() -> None:
        history(world)
        raise io_error()

    slow = world.handle(on_path("/t/journal/", "put_if_absent", once(lost), when="after"))
    assert commit(slow, staged.topic_id, [staged], Transaction("w", 1)).skipped, "it had landed"
    assert world.values().count(b"once") == 1


def test_without_a_writer_an_ambiguous_put_that_is_collected_before_it_is_read_back_lands_once(world: World) -> None:
    """Section 3: stored, reply lost; the second try says "exists", and the entry is collected before it is read back.

    Nothing but the chain of entries knows of a commit without a writer id: where it no longer reaches down, nobody
    does, and a put under the next number would be a second copy.
    """
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    gone = once(lambda: history(world))

    def hook(operation: str, path: str, moment: str) -> None:
        lose(operation, path, moment)
        if operation == "fetch" and moment == "before" and path.endswith(f"/t/journal/{2:020d}.json"):
            gone()

    lose = on_path("/t/journal/", "put_if_absent", raising(io_error()), when="after")
    with pytest.raises(OutcomeUnknownError):
        commit(world.handle(hook), staged.topic_id, [staged])
    assert 2 not in world.entries()
    assert world.values().count(b"once") == 1


def test_without_a_writer_an_ambiguous_put_that_finds_a_stray_at_its_number_lands_once(world: World) -> None:
    """Section 3: stored, reply lost, collected; the second try says "exists", but of another's stray: ours was there."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    path = world.path / f"topics/t/journal/{2:020d}.json"

    def lost() -> None:
        ours = path.read_bytes()
        history(world)
        assert not path.exists()
        path.write_bytes(ours)
        rewrite(path, lambda fields: fields.update(writeId=str(uuid.uuid4())))
        raise io_error()

    slow = world.handle(on_path("/t/journal/", "put_if_absent", once(lost), when="after"))
    with pytest.raises(OutcomeUnknownError):
        commit(slow, staged.topic_id, [staged])
    assert world.values().count(b"once") == 1


def test_without_a_writer_an_ambiguous_put_below_a_stray_lands_once(world: World) -> None:
    """Section 3: the chain from the newest entry down ends above a stray: what that was built on proves nothing."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    path = world.path / f"topics/t/journal/{3:020d}.json"

    def hook(operation: str, where: str, moment: str) -> None:
        lose(operation, where, moment)
        if operation == "fetch" and moment == "before" and where.endswith(f"/t/journal/{2:020d}.json"):
            collected()

    def lived() -> None:
        append(world.handle(), batch_of([b"later"]))
        genuine = path.read_bytes()
        history(world, commits=2)
        assert world.entries() == [4, 5]
        path.write_bytes(genuine)
        rewrite(path, lambda fields: fields.update(writeId=str(uuid.uuid4()), prev=str(uuid.uuid4())))

    collected = once(lived)
    lose = on_path("/t/journal/", "put_if_absent", raising(io_error()), when="after")
    with pytest.raises(OutcomeUnknownError):
        commit(world.handle(hook), staged.topic_id, [staged])
    assert world.values().count(b"once") == 1


@pytest.mark.parametrize("error", [NotPutError("injected"), StorageFullError("full"), StorageReadOnlyError("ro")])
def test_a_certain_failure_behind_an_ambiguous_try_is_outcome_unknown(world: World, error: Exception) -> None:
    """Section 3: the first try was stored, its reply lost; of the second it is certain that it was not: one may be there."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    lose = on_path("/t/journal/", "put_if_absent", raising(io_error()), when="after")
    refuse = on_path("/t/journal/", "put_if_absent", raising(error), times=99)
    tries = 0

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal tries
        tries += operation == "put_if_absent" and moment == "before" and "/t/journal/" in path
        (lose if tries < 2 else refuse)(operation, path, moment)

    with pytest.raises(OutcomeUnknownError):
        commit(world.handle(hook), staged.topic_id, [staged], Transaction("w", 1))
    assert commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"once"]


@pytest.mark.parametrize("error", [NotPutError("injected"), StorageFullError("full"), StorageReadOnlyError("ro")])
def test_a_certain_failure_of_the_first_try_is_told_as_it_is(world: World, error: Exception) -> None:
    topic = world.create()
    staged = stage(topic, batch_of([b"no"]))
    with pytest.raises(type(error)):
        commit(paused(world, raising(error)), staged.topic_id, [staged])
    assert world.values() == []


@pytest.mark.parametrize("operation", ["info", "names", "fetch"])
@pytest.mark.parametrize("error", [failing(), raising(io_error())])
def test_a_failure_behind_a_put_that_landed_is_not_told_as_not_put(
    world: World, operation: str, error: Callable[[], None]
) -> None:
    """Section 3, I5: the put landed, then the disk fails to answer: "certainly not put" would be a lie."""
    topic = world.create()
    staged = stage(topic, batch_of([b"once"]))
    landed: list[str] = []

    def hook(found: str, path: str, moment: str) -> None:
        if found == "put_if_absent" and moment == "after":
            landed.append(path)
        elif landed and found == operation and moment == "before" and "journal" in path:
            error()

    try:
        commit(world.handle(hook), staged.topic_id, [staged], Transaction("w", 1))
    except OutcomeUnknownError:
        pass
    except StorageError as told:
        pytest.fail(f"told as certain: {told}")
    assert commit(world.handle(), staged.topic_id, [staged], Transaction("w", 1)).skipped
    assert world.values() == [b"once"]


@pytest.mark.parametrize("behind", [0, 1, 2, 3, 4, 7, 8, 9, 150])
def test_the_newest_of_many_entries_is_found_in_few_looks(world: World, behind: int) -> None:
    """Section 3: finding the newest entry must not grow with history, nor with what came since the last look."""
    topic = world.create()
    poller_calls: list[str] = []
    poller = world.handle(lambda op, path, moment: poller_calls.append(op) if moment == "before" else None)
    poller.newest()
    for number in range(behind):
        append(topic, batch_of([b"%d" % number]))
    poller_calls.clear()
    assert poller.newest()[0].sequence == behind + 1
    assert len(poller_calls) <= 3 + 2 * behind.bit_length()
    assert "names" not in poller_calls
    poller_calls.clear()
    world.handle(lambda op, path, moment: poller_calls.append(op) if moment == "before" else None).newest()
    assert len(poller_calls) <= 4


@pytest.mark.parametrize("at", ["info", "fetch"])
def test_entries_that_are_collected_while_they_are_counted_are_looked_up_anew(world: World, at: str) -> None:
    """Anchor rule: what was reached from an anchor that went meanwhile proves nothing."""
    topic = world.create()
    calls = Counter[str]()

    def later() -> None:
        for number in range(10, 40):
            append(world.handle(), batch_of([b"%d" % number]))
        world.collect_all()

    def hook(op: str, path: str, moment: str) -> None:
        calls[op] += moment == "before" and poller_began
        if calls[op] == 2 and op == at and moment == "before":
            calls[op] += 1
            later()

    poller_began = False
    poller = world.handle(hook)
    poller.newest()
    for number in range(10):
        append(topic, batch_of([b"%d" % number]))
    poller_began = True
    assert poller.newest()[0].sequence == 41


def test_a_base_whose_tables_are_collected_during_a_plan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchor rule, R9: a writer pauses over a base whose writers' snapshot goes: it plans again on a newer one."""
    from pyspark_commitlog.topic.write import writers as module

    monkeypatch.setattr(module, "WRITER_ROWS", 1)
    topic = world.create()
    for number in range(3):
        append(topic, batch_of([b"x"]), writer=Transaction(f"w{number}", 1))
    staged = stage(topic, batch_of([b"paused"]))

    def later() -> None:
        for number in range(3, 9):
            append(world.handle(), batch_of([b"x"]), writer=Transaction(f"w{number}", 1))
        world.collect_all()

    slow = world.handle(on_path(".writers", "read", once(later)))
    assert commit(slow, staged.topic_id, [staged], Transaction("slow", 1)).sequence == 11
    assert world.values().count(b"paused") == 1
