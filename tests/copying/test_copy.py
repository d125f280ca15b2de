"""A copy is what its source was after some commit: records, offsets, log starts, configs, history."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.copying import copy_staging
from pyspark_commitlog.copying.topic_copy import CopiedTopic, _CopyRound, stage_ahead
from pyspark_commitlog.errors import (
    ConfigError,
    ConflictError,
    CorruptionError,
    KafkaStorageError,
    LogTruncationError,
    StorageError,
    StorageUnreadableError,
    TopicExistsError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.lineage import Verdict, compare
from pyspark_commitlog.model import silent
from pyspark_commitlog.root.root_marker import make_root
from pyspark_commitlog.testing.faults import Hook, on_path
from pyspark_commitlog.topic.divergence import find_divergence
from tests.copying.conftest import Pair, records
from tests.support.objects import ObjectWorld
from tests.support.records import append, batch_of
from tests.support.restores import Copy
from tests.support.verify import verify
from tests.support.world import CHUNKS, World, once, raising

LARGE = 3 * 2**20


def fill(world: World) -> None:
    """Two partitions of four with all that a record can have, one of them beyond a frame's usual size."""
    world.create(4, {**CHUNKS, "max.message.bytes": 2 * LARGE})
    topic = world.handle()
    append(topic, batch_of([b"a", None, b""], key=[None, b"k", b""], partition=[0, 0, 1], timestamp=[1, 5, 2**50]))
    headers = [[("h", b"1"), ("h", b"")], None, []]
    append(topic, batch_of([b"x", b"y", b"z"], partition=[1, 1, 0], headers=headers, timestamp=[7, 7, 8]))
    append(topic, batch_of([b"L" * LARGE], partition=[0]))


def test_all_of_a_record_comes_back_over_storage_without_append(tmp_path: Path) -> None:
    """Local, then objects, then local: records, offsets, timestamps and headers are equal."""
    first = World(tmp_path / "first")
    second, third = ObjectWorld(tmp_path / "second", first.clock), World(tmp_path / "third", first.clock)
    fill(first)
    for source, there in ((first, second), (second, third)):
        source.log().copy_to(there.log())
        Pair(source, there).check()
    assert third.log().topic("t").to_arrow().equals(first.log().topic("t").to_arrow())


def test_what_was_appended_since_is_copied_again_and_only_that(pair: Pair) -> None:
    pair.source.create(2)
    pair.put(b"a", b"b")
    assert pair.copy().topics == (CopiedTopic("t", 2, 2, (2, 0)),)
    pair.put(b"c", partition=1)
    pair.put(b"d")
    pair.put(b"e")
    assert pair.copy().topics == (CopiedTopic("t", 3, 5, (4, 1)),)
    pair.check()
    before = pair.there.entries()
    assert pair.copy().topics == (CopiedTopic("t", 0, 5, (4, 1)),)
    assert pair.there.entries() == before, "nothing was left to put"


def test_an_empty_topic_is_copied_before_its_first_record(pair: Pair) -> None:
    pair.source.create(3)
    pair.copy()
    pair.check()
    pair.put(b"a")
    pair.copy()
    pair.check()


def test_log_start_offsets_are_those_of_the_source(pair: Pair) -> None:
    pair.source.create(2)
    pair.put(b"a", b"b", b"c")
    pair.source.log().topic("t").delete_records({0: 2})
    pair.copy()
    pair.check()
    assert pair.states()[1].log_start == (2, 0)
    pair.put(b"d", b"e")
    pair.source.log().topic("t").delete_records({0: 4})
    pair.put(b"f", partition=1)
    pair.copy()
    pair.check()


def test_offsets_that_went_between_two_copies_are_passed_over(pair: Pair) -> None:
    """Retention overtook the copy: the destination ends at 1, the source begins at 3."""
    pair.source.create()
    pair.put(b"a")
    pair.copy()
    pair.put(b"b", b"c", b"d")
    pair.source.log().topic("t").delete_records({0: 3})
    pair.copy()
    pair.check()
    assert pair.states()[1].log_start == (3,)


def test_a_partition_of_which_all_is_deleted_goes_on_at_its_end(pair: Pair) -> None:
    pair.source.create()
    pair.put(b"a")
    pair.copy()
    pair.put(b"b", b"c")
    pair.source.log().topic("t").delete_records({0: -1})
    pair.copy()
    pair.check()
    pair.put(b"d")
    pair.copy()
    pair.check()
    assert [record.offset for record in records(pair.there.handle())] == [3]


def test_added_partitions_are_copied(pair: Pair) -> None:
    pair.source.create(1)
    pair.put(b"a")
    pair.copy()
    pair.source.log().topic("t").add_partitions(3)
    pair.put(b"b", partition=2)
    pair.copy()
    pair.check()


@pytest.mark.parametrize("again", [False, True], ids=["at once", "bit by bit"])
def test_holes_of_a_compacted_topic_stay_holes(pair: Pair, *, again: bool) -> None:
    """Records in the midst, and all of the last ones, are gone: offsets go on behind them."""
    world = pair.source
    world.create(1, {**CHUNKS, "cleanup.policy": "compact", "segment.bytes": 1024, "min.cleanable.dirty.ratio": 0})
    topic = world.handle()
    for number in range(12):
        append(topic, batch_of([b"%d" % number * 100] * 3, key=[b"a", b"%d" % (number % 3), b"k%d" % number]))
        world.maintain()
        if again and number == 7:
            pair.copy()
    survivors = [record.offset for record in records(world.handle())]
    assert len(survivors) < 30
    pair.copy()
    if not again:
        pair.check()
        assert [record.offset for record in records(pair.there.handle())] == survivors
    newest = [each.log().topic("t").to_arrow(view="latest").to_pylist() for each in (pair.source, pair.there)]
    assert newest[0] == newest[1]
    append(topic, batch_of([b"after"], key=[b"z"]))
    pair.copy()
    assert records(pair.there.handle())[-1].offset == 36


def test_voided_offsets_are_passed_over(locals_: Pair) -> None:
    locals_.source.log().topic("t").void({0: (1, 2)}, force=True)
    locals_.copy()
    locals_.check()
    assert [record.offset for record in records(locals_.there.handle())] == [0, 2]
    assert locals_.states()[1].voids == locals_.states()[0].voids


def test_a_source_that_is_settled_and_collected_meanwhile(pair: Pair) -> None:
    """Before every file that is read: rule R8 for the reader of a copy."""
    pair.source.create(1, {**CHUNKS, "segment.bytes": 1024})
    for number in range(4):
        pair.put(b"%d" % number * 600)
        pair.source.maintain()
    pair.put(b"chunk")
    pair.put(b"last")

    def at_work(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation == "map":
            pair.source.clock.advance(61_000)
            pair.source.maintain()

    pair.copy(from_hook=at_work)
    pair.check()


def test_retention_that_is_faster_than_the_copy(pair: Pair) -> None:
    pair.source.create(2)
    pair.put(*[b"%d" % number for number in range(10)])
    pair.put(b"x", partition=1)

    def retain() -> None:
        pair.source.log().topic("t").delete_records({0: 7})
        pair.put(b"more")

    pair.copy(hook=on_path("/settle/", "put_if_absent", retain, when="after"))
    pair.check()
    assert pair.states()[1].log_start == (7, 0)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"cut")], ids=["lost", "cut"])
def test_no_entry_names_a_chunk_that_went_since_it_was_staged(pair: Pair, damage: Callable[[Path], object]) -> None:
    """A sweep of another machine, or a disk that lost it: the entry would be damage in a copy of sound records."""
    pair.source.create()
    pair.put(b"a", b"b" * 1000)

    def lose() -> None:
        (chunk,) = (pair.there.path / path for path in pair.there.files("/staged/") if path.endswith(".chunk"))
        damage(chunk)

    with pytest.raises(CorruptionError, match=r"staged chunk .*; nothing was committed"):
        pair.copy(hook=on_path("topics/t/journal", "put_if_absent", once(lose), when="after"))
    assert pair.states()[1].log_end == (0,)
    pair.copy()
    pair.check()


# --- configs, rules --------------------------------------------------------------------------------------


def test_a_copy_behaves_as_its_source_whatever_the_defaults_of_the_roots(locals_: Pair) -> None:
    locals_.source.log().config.alter({"log.segment.bytes": 2**20, "log.retention.bytes": 2**30})
    locals_.there.log().create_topic("other", 1)
    locals_.there.log().config.alter({"log.retention.bytes": 5, "log.index.interval.bytes": 77})
    locals_.copy()
    here, there = (world.log().topic("t").describe().config for world in (locals_.source, locals_.there))
    assert here == there
    locals_.source.log().topic("t").alter({"segment.bytes": 2**21})
    locals_.copy()
    assert locals_.there.log().topic("t").describe().config["segment.bytes"] == str(2**21)


def test_defaults_that_changed_since_the_last_run_are_named(locals_: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """No entry of the source says so: there is no number under which the copy could get them before the next one."""
    locals_.copy()
    locals_.copy()
    assert "configs" not in caplog.text
    locals_.source.log().config.alter({"log.retention.bytes": 77})
    locals_.copy()
    assert "configs of its copy in" in caplog.text
    assert "retention.bytes is -1, at the source 77" in caplog.text
    caplog.clear()
    locals_.put(b"d")
    for _ in range(2):
        locals_.copy()
    here, there = (world.log().topic("t").describe().config for world in (locals_.source, locals_.there))
    assert here == there
    locals_.there.log().config.alter({"log.retention.bytes": 77})
    locals_.copy()
    assert "configs" not in caplog.text, "what is set for the copy is the same"


def test_a_copy_leaves_compression_to_writers_where_its_source_does(locals_: Pair) -> None:
    locals_.there.log().create_topic("other", 1)
    locals_.there.log().config.alter({"compression.type": "zstd"})
    locals_.copy()
    for world in (locals_.source, locals_.there):
        config = world.handle().config(world.handle().newest()[1])
        assert [config.codec(writer) for writer in (None, "zstd", "none")] == ["lz4", "zstd", "none"]


def test_configs_that_the_destination_can_not_keep_are_refused(tmp_path: Path) -> None:
    source = World(tmp_path / "source")
    source.create(1, {**CHUNKS, "file.delete.delay.ms": 1000})
    there = ObjectWorld(tmp_path / "there", source.clock)
    with pytest.raises(ConfigError, match=r"file\.delete\.delay\.ms"):
        source.log().copy_to(there.log())
    assert there.log().topics() == []


def test_access_rules_come_with_all_topics_before_these_are_seen(locals_: Pair) -> None:
    locals_.source.log().access.allow("ops", "admin")
    locals_.source.log().acting_as("ops").access.allow("ann", "read", "t")
    seen: list[int] = []

    def look() -> None:
        seen.append(len(locals_.there.log().access.rules()))

    source, there = (world.log(hook).acting_as("ops") for world, hook in (
        (locals_.source, None), (locals_.there, on_path("topics/t/journal", "put_if_absent", look)),
    ))  # fmt: skip
    assert len(source.copy_to(there).rules) == 2
    assert seen == [2]
    assert locals_.there.log().access.rules() == locals_.source.log().access.rules()
    assert source.copy_to(there).rules == ()


def test_topics_that_all_leaves_out_are_named(locals_: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Of a deleted one nothing is said."""
    for name in ("denied", "unreadable", "deleted"):
        locals_.source.create(name=name)
    locals_.source.log().topic("deleted").delete()
    locals_.source.log().access.allow("ops", "admin")
    for name in ("t", "unreadable"):
        locals_.source.log().acting_as("ops").access.allow("ann", "admin", name)

    def refuse(operation: str, path: str, moment: str) -> None:
        if "topics/unreadable" in path:
            raise StorageUnreadableError("no")

    source, there = locals_.source.log(refuse).acting_as("ann"), locals_.there.log().acting_as("ops")
    assert [topic.topic for topic in source.copy_to(there).topics] == ["t"]
    said = "topics 'denied', 'unreadable' are left out"
    assert said in caplog.text
    caplog.clear()
    assert len(source.compare_with(there)) == 1
    assert said in caplog.text
    caplog.clear()
    source.copy_to(there, ["t"])
    locals_.source.log().acting_as("ops").copy_to(there)
    assert "left out" not in caplog.text


# --- histories -------------------------------------------------------------------------------------------


def test_positions_of_the_source_are_those_of_the_copy(pair: Pair) -> None:
    """R15: what a checkpoint or a group remembers of the source is not taken for that of another history."""
    pair.source.create()
    seen = []
    for number in range(40):
        pair.put(b"%d" % number)
        seen.append(pair.source.handle().newest()[1].lineage)
        if number in (20, 33):
            pair.copy()
    pair.copy()
    there = pair.there.handle().newest()[1]
    assert [find_divergence(pair.there.handle(), position, there) for position in seen] == [None] * 40
    assert [compare(position, there.lineage) for position in seen[-16:]] == [Verdict.SAME] * 16


def test_readers_of_a_copy_never_take_it_for_another_history(locals_: Pair) -> None:
    """They look after every entry that a copy puts, also those that only take it further."""
    seen = []

    def look(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "after") and "t/journal" in path:
            seen.append(locals_.there.handle().newest()[1].lineage)

    for number in range(60):
        locals_.put(b"%d" % number)
        if number in (0, 1, 30, 31, 50):
            locals_.copy(hook=look)
    locals_.copy(hook=look)
    newest = locals_.there.handle().newest()[1].lineage
    assert len(seen) > 50
    assert {compare(position, newest) for position in seen} <= {Verdict.SAME, Verdict.UNKNOWN}
    for at, position in enumerate(seen):
        assert all(compare(position, later) is not Verdict.PARTED for later in seen[at:])


def test_both_ends_part_where_both_are_written_to(locals_: Pair) -> None:
    locals_.copy()
    locals_.put(b"here")
    append(locals_.there.handle(), batch_of([b"there"]))
    here, there = locals_.states()
    assert compare(here.lineage, there.lineage) is Verdict.PARTED


def test_a_source_that_was_restored_is_not_copied_on(locals_: Pair, tmp_path: Path) -> None:
    older = World(tmp_path / "older", locals_.source.clock)
    locals_.source.log().copy_to(older.log())
    locals_.put(b"gone")
    locals_.copy()
    append(older.handle(), batch_of([b"another"]))
    append(older.handle(), batch_of([b"further"]))
    with pytest.raises(LogTruncationError, match="is another one: the source was restored"):
        older.log().copy_to(locals_.there.log())


def test_a_first_copy_that_ended_before_its_source_was_restored(locals_: Pair, tmp_path: Path) -> None:
    """Where it begins is settled, above all that the source has; it goes on when that has as much again."""
    older = Copy(locals_.source.path, tmp_path / "aside")
    locals_.put(b"d", b"e")
    locals_.source.log().topic("t").delete_records({0: 5})
    with pytest.raises(KeyboardInterrupt):
        locals_.copy(hook=on_path("t/journal", "put_if_absent", raising(KeyboardInterrupt())))  # type: ignore[arg-type]
    older.one_topic()
    with pytest.raises(
        LogTruncationError, match=r"partition 0 begins at offset 5 .* ends at 3: the source was restored"
    ):
        locals_.copy()
    for values in ([b"4", b"5", b"6"], [b"7"]):
        locals_.put(*values)
        locals_.copy()
        assert locals_.states()[1].log_start == (5, 0)
        assert locals_.states()[0].log_start == (0, 0)
        verify(locals_.there.handle())
    assert locals_.there.values() == [b"6", b"7"]
    assert [each.faults for each in locals_.source.log().compare_with(locals_.there.log())] == [()]


def test_a_first_copy_whose_place_another_copy_makes_further_on(locals_: Pair) -> None:
    """Retention raised the log start in between: segments begin there, and so does what readers are shown."""

    def further() -> None:
        locals_.source.log().topic("t").delete_records({0: 2})
        stage_ahead(locals_.source.handle(), locals_.there.handle(), [])

    locals_.copy(hook=on_path("/settle/", "put_if_absent", once(further)))
    assert locals_.states()[1].log_start == (2, 0)
    assert locals_.there.values() == [b"c"]
    locals_.copy()
    locals_.check()


# --- who else is there -----------------------------------------------------------------------------------


def test_a_copy_that_was_written_to_is_left_alone(pair: Pair) -> None:
    pair.source.create()
    pair.put(b"a")
    pair.copy()
    append(pair.there.handle(), batch_of([b"own"]))
    pair.put(b"b")
    with pytest.raises(ConflictError, match=r"has been written to since it was copied \(entry 3, 'append'\)"):
        pair.copy()
    assert pair.there.values() == [b"a", b"own"]


def test_a_change_that_changes_nothing_ends_no_copy(pair: Pair) -> None:
    """Nobody has written to it: a script that sets what is set already is run at any time."""
    pair.source.create(1, {**CHUNKS, "segment.bytes": 2048})
    pair.put(b"a")
    pair.copy()
    there, entries = pair.there.log(), pair.there.entries()
    there.topic("t").alter({})
    there.topic("t").alter({"segment.bytes": 2048, "segment.ms": None})
    assert pair.there.entries() == entries
    pair.put(b"b")
    pair.copy()
    pair.check()
    there.topic("t").alter({"segment.bytes": 4096})
    with pytest.raises(ConflictError, match="'alter'"):
        pair.copy()


def test_a_write_in_the_midst_of_a_copy_is_kept(locals_: Pair) -> None:
    """R9: it is looked for again on every attempt."""
    locals_.copy()
    locals_.put(b"d")
    own = once(lambda: append(locals_.there.handle(), batch_of([b"own"])))
    with pytest.raises(ConflictError, match="has been written to"):
        locals_.copy(hook=on_path("t/journal", "put_if_absent", own))
    assert locals_.there.values() == [b"a", b"b", b"c", b"own"]


def test_another_topic_of_the_name_is_left_alone(locals_: Pair) -> None:
    locals_.there.create()
    append(locals_.there.handle(), batch_of([b"own"]))
    with pytest.raises(TopicExistsError, match="is another one: its id is"):
        locals_.copy()
    assert locals_.there.values() == [b"own"]


def test_a_topic_that_is_made_by_hand_at_the_same_time(locals_: Pair) -> None:
    hook = on_path("t/journal", "put_if_absent", once(lambda: locals_.there.create()))
    with pytest.raises(TopicExistsError, match="is another one"):
        locals_.copy(hook=hook)
    assert locals_.there.log().topics() == ["t"]
    assert locals_.there.values() == []


def test_a_copy_that_was_deleted_is_not_made_again(locals_: Pair) -> None:
    """Its directory is a former incarnation's, which goes."""
    locals_.copy()
    locals_.there.log().topic("t").delete()
    with pytest.raises(TopicExistsError, match="was deleted there"):
        locals_.copy()


def test_a_source_that_was_made_again_takes_the_place_of_a_deleted_copy(locals_: Pair) -> None:
    locals_.copy()
    locals_.source.log().topic("t").delete()
    locals_.source.create()
    locals_.put(b"new")
    with pytest.raises(TopicExistsError, match="is another one"):
        locals_.copy()
    locals_.there.log().topic("t").delete()
    locals_.copy()
    locals_.check()
    locals_.there.clock.advance(61_000)
    assert locals_.there.maintain().removed_lives == 1
    locals_.check()


def test_a_root_is_not_copied_to_itself(locals_: Pair) -> None:
    with pytest.raises(UsageError, match="can't be copied to itself"):
        locals_.source.log().copy_to(locals_.source.log())


def test_a_topic_is_not_copied_back_over_itself(locals_: Pair, tmp_path: Path) -> None:
    """It never was a copy: it goes on in an empty root."""
    locals_.copy()
    append(locals_.there.handle(), batch_of([b"d"]))
    with pytest.raises(ConflictError, match=r"is the topic itself, and was never a copy.*empty root") as refused:
        locals_.there.log().copy_to(locals_.source.log())
    assert "written to" not in str(refused.value)
    back = World(tmp_path / "back", locals_.source.clock)
    locals_.there.log().copy_to(back.log())
    assert back.values() == [b"a", b"b", b"c", b"d"]


def test_a_root_is_not_copied_to_itself_by_another_name(locals_: Pair, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(locals_.source.path)
    entries = locals_.source.entries()
    with pytest.raises(UsageError, match=r"are one root.*can't be copied to itself"):
        locals_.source.log().copy_to(str(tmp_path / "link"))
    assert locals_.source.entries() == entries


def test_no_copy_begins_at_a_root_that_belongs_together_with_others(locals_: Pair, tmp_path: Path) -> None:
    """Others decide what is put there: it would fail when all is staged. Nothing of it is left behind."""
    locals_.source.log().access.allow("ops", "admin")
    log = CommitLog.create([str(tmp_path / "a"), str(tmp_path / "b")], [str(tmp_path / "m")])
    for root in "abm":
        with pytest.raises(UsageError, match=r"/[abm] belongs together with others.*'t'.*replicas\.add"):
            locals_.source.log().acting_as("ops").copy_to(CommitLog(str(tmp_path / root), principal="ops"))
        with pytest.raises(UsageError, match="belongs together with others"):
            stage_ahead(locals_.source.handle(), CommitLog(str(tmp_path / root)).root.topic("t"), [0])
    assert list(tmp_path.glob("[abm]/topics/*")) == []
    assert log.access.rules() == ()


def test_a_copy_goes_on_at_a_root_that_has_others_added_to_it(locals_: Pair, tmp_path: Path) -> None:
    locals_.copy()
    locals_.there.log().replicas.add([str(tmp_path / "added")])
    locals_.put(b"d")
    locals_.copy()
    locals_.check()


def interfering(pair: Pair, act: object) -> Hook:
    """Return a hook that lets another copy do all its work before each change of this one."""
    busy = False

    def hook(operation: str, path: str, moment: str) -> None:
        nonlocal busy
        if busy or moment != "before" or operation not in ("put_if_absent", "write_once", "create", "delete"):
            return
        busy = True
        assert callable(act)
        act()
        busy = False

    return hook


@pytest.mark.parametrize("growing", [False, True], ids=["the same", "grown meanwhile"])
def test_two_copies_at_once(pair: Pair, *, growing: bool) -> None:
    """Each change of the one comes after all the work of another one, which may have seen more."""
    pair.source.create(2)
    pair.put(b"a", b"b")
    pair.put(b"c", partition=1)
    left = 3

    def other() -> None:
        nonlocal left
        if growing and left:
            left -= 1
            pair.put(b"more")
        pair.copy()

    pair.copy(hook=interfering(pair, other))
    pair.check()
    pair.put(b"d")
    pair.copy(hook=interfering(pair, other))
    pair.check()


def test_a_copy_that_began_earlier_and_ends_in_between(locals_: Pair) -> None:
    """R9: it has seen less of the source, and commits first: what the other one staged begins too low."""
    locals_.copy()
    locals_.put(b"d")
    earlier = _CopyRound(locals_.source.handle(), locals_.there.handle(), silent)
    locals_.put(b"e")
    later = _CopyRound(locals_.source.handle(), locals_.there.handle(), silent)
    assert earlier.run() is not None
    assert later.run() is None, "it has to look again"
    assert locals_.there.values() == [b"a", b"b", b"c", b"d"]
    locals_.copy()
    locals_.check()


def test_a_copy_that_looked_before_its_topic_was_made_again_looks_again(locals_: Pair) -> None:
    """Another one has copied the new incarnation meanwhile: that is no other topic of the name."""
    locals_.copy()
    earlier = _CopyRound(locals_.source.handle(), locals_.there.handle(), silent)
    for world in (locals_.there, locals_.source):
        world.log().topic("t").delete()
    locals_.source.create(2, CHUNKS)
    locals_.put(b"d")
    locals_.copy()
    assert earlier.run() is None, "it has to look again"
    locals_.check()


def test_a_copy_that_looked_earlier_than_another_does_not_find_its_source_restored(locals_: Pair) -> None:
    """The other one has put a number of which a newer look shows no mark, and this one's look still does."""
    locals_.copy()
    for _ in range(10):
        locals_.put(b"d")
    earlier = _CopyRound(locals_.source.handle(), locals_.there.handle(), silent)
    for _ in range(30):
        locals_.put(b"e")
    begun = locals_.states()[1].lineage.sequence
    puts = count(1)

    def ended(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and "t/journal" in path and next(puts) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locals_.copy(hook=ended)
    assert locals_.states()[1].lineage.sequence == begun + 2
    assert earlier.run() is None, "it has to look again"
    locals_.copy()
    locals_.check()


def test_a_first_copy_that_looked_before_another_began_further_on_looks_again(locals_: Pair) -> None:
    """All that it saw is deleted meanwhile: the place begins above that."""
    make_root(locals_.there.log().root)
    earlier = _CopyRound(locals_.source.handle(), locals_.there.handle(), silent)
    locals_.put(b"d", b"e")
    locals_.source.log().topic("t").delete_records({0: 5})
    stage_ahead(locals_.source.handle(), locals_.there.handle(), [])
    assert earlier.run() is not None
    assert locals_.states()[1].log_start == (5, 0)
    locals_.copy()
    locals_.check()


def test_nothing_is_copied_after_damage_at_the_destination(locals_: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Records would pile up there that can't be settled."""
    done = on_path("/settle/", "put_if_absent", lambda: (_ for _ in ()).throw(StorageError("no")), times=99)
    locals_.copy()
    locals_.put(b"d" * 2000)
    locals_.copy(hook=done)
    assert "copied, but settling failed" in caplog.text
    (chunk,) = [path for path in chunks(locals_.there) if path.split("/")[-1].startswith("0" * 19 + "4")]
    damage(locals_.there.path / chunk)
    with pytest.raises(CorruptionError):
        locals_.there.maintain()
    locals_.put(b"e")
    with pytest.raises(KafkaStorageError, match="KAFKA_STORAGE_ERROR"):
        locals_.copy()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_retention_and_the_sweep_leave_a_copy_to_its_source(pair: Pair) -> None:
    """An entry of the destination's own would end the copy; after the switch both do their work."""
    pair.source.create(1, {**CHUNKS, "retention.ms": 1000, "segment.ms": 1})
    pair.put(b"a", b"b", b"c")
    pair.copy()

    def maintain() -> None:
        for _ in range(3):
            pair.there.clock.advance(3_600_001)
            pair.there.maintain()

    maintain()
    pair.check()
    append(pair.there.handle(), batch_of([b"own"]))
    maintain()
    state = pair.there.handle().newest()[1]
    assert state.log_start[0] >= 3
    assert state.staged_floor > 0


def test_retention_begins_at_a_copy_that_gets_a_config_of_its_own(pair: Pair) -> None:
    """Nobody writes to it any more: what the guide says does it."""
    pair.source.create(1, {**CHUNKS, "retention.ms": 1000, "segment.ms": 1})
    pair.put(b"a")
    pair.copy()
    pair.there.log().topic("t").alter({"retention.ms": 999})
    for _ in range(3):
        pair.there.clock.advance(3_600_001)
        pair.there.maintain()
    assert pair.there.handle().newest()[1].log_start == (1,)


# --- comparing -------------------------------------------------------------------------------------------


def test_what_differs_is_named(locals_: Pair, tmp_path: Path) -> None:
    other = World(tmp_path / "other", locals_.source.clock)
    locals_.source.log().copy_to(other.log())
    locals_.put(b"here")
    append(other.handle(), batch_of([b"else"]))
    append(other.handle(), batch_of([b"too many"]))
    (compared,) = locals_.source.log().compare_with(other.log())
    assert compared.faults == ("partition 0: it ends at 5, at the source at 4",)
    locals_.put(b"too many")
    (compared,) = locals_.source.log().compare_with(other.log())
    assert compared.faults == ("partition 0 offset 3: the records differ",)
    assert compared.records == 4
    locals_.source.log().topic("t").void({0: (1, 2)}, force=True)
    (compared,) = locals_.source.log().compare_with(other.log())
    assert compared.faults[1:] == ("partition 0 offset 1: the source has no record",)


@pytest.mark.parametrize("start", [2, 3], ids=["some", "all"])
@pytest.mark.parametrize("end", ["source", "there"])
def test_retention_at_either_end_does_not_stop_a_comparison(locals_: Pair, end: str, start: int) -> None:
    """It comes after the first partition was compared: the other one is compared from its new log start on."""
    locals_.put(b"x", b"y", b"z", partition=1)
    locals_.copy()
    retained: World = getattr(locals_, end)
    retain, seen = once(lambda: retained.log().topic("t").delete_records({1: start})), list[tuple[int, int]]()

    def progress(what: str, done: int, total: int) -> None:
        retain()
        seen.append((done, total))

    (compared,) = locals_.source.log().compare_with(locals_.there.log(), progress=progress)
    assert (compared.faults, compared.records) == ((), 6 - start)
    assert seen[-1] == (6, 6)


# --- tombstones ------------------------------------------------------------------------------------------

_GONE = "tombstones of it may be gone"


def put_keys(pair: Pair, *values: bytes | None) -> None:
    """Commit records of one key each, as so many commits, to a compacted topic whose tombstones stay for a minute."""
    if not pair.source.entries():
        config = {"cleanup.policy": "compact", "delete.retention.ms": 60_000, "batch.size": 1024}
        pair.source.create(1, {**CHUNKS, **config})
    for value in values:
        append(pair.source.handle(), batch_of([value], key=[b"k"]))


@pytest.mark.parametrize(("after_ms", "warned"), [(60_000, False), (60_001, True)])
def test_a_run_that_comes_when_tombstones_may_be_gone_says_so(
    pair: Pair, after_ms: int, caplog: pytest.LogCaptureFixture, *, warned: bool
) -> None:
    put_keys(pair, b"a")
    pair.copy()
    pair.source.clock.advance(after_ms)
    pair.copy()
    assert _GONE not in caplog.text, "nothing came since"
    put_keys(pair, b"b")
    pair.copy()
    assert (_GONE in caplog.text) is warned
    assert ("topic 't'" in caplog.text and "copy it whole to an empty root" in caplog.text) is warned


def test_a_topic_that_is_not_compacted_has_no_tombstones(locals_: Pair, caplog: pytest.LogCaptureFixture) -> None:
    locals_.copy()
    locals_.source.clock.advance(100 * 86_400_000)
    locals_.put(b"d")
    locals_.copy()
    assert _GONE not in caplog.text


def test_an_interrupted_copy_that_goes_on_when_tombstones_may_be_gone_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(copy_staging, "CHUNK_BYTES", 1)
    put_keys(pair, *[b"a" * 2000] * 4)

    def end(what: str, done: int, total: int) -> None:
        if pair.there.files("/copied/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.source.log().copy_to(pair.there.log(), progress=end)
    pair.source.clock.advance(60_001)
    pair.copy()
    assert _GONE in caplog.text


def test_a_copy_that_takes_longer_than_tombstones_stay_says_so(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    put_keys(pair, b"a", b"b")
    slow = once(lambda: pair.source.clock.advance(60_001))
    pair.source.log().copy_to(pair.there.log(), progress=lambda what, done, total: slow())
    assert _GONE in caplog.text


# --- resuming --------------------------------------------------------------------------------------------


def chunks(world: World) -> list[str]:
    return world.files(".chunk")


def interrupted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a copy of five commits end when it has staged two chunks, of a record each."""
    monkeypatch.setattr(copy_staging, "CHUNK_BYTES", 1)
    pair.source.log().topic("t").alter({"batch.size": 1024})
    for value in (b"d", b"e", b"f", b"g"):
        pair.put(value * 2000, partition=1)

    def end(what: str, done: int, total: int) -> None:
        if len(chunks(pair.there)) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.source.log().copy_to(pair.there.log(), progress=end)
    assert len(chunks(pair.there)) == 2
    assert len(pair.there.files("/copied/")) == 2


def test_an_interrupted_copy_goes_on_behind_what_it_staged(locals_: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(locals_, monkeypatch)
    made: list[str] = []
    locals_.copy(
        hook=lambda operation, path, moment: made.append(path) if operation == "create" and "/staged/" in path else None
    )
    assert len(set(made)) == 3, "what was staged is not staged again"
    locals_.check()
    assert locals_.there.files("/copied/") == []


def test_processes_that_stage_ahead_share_the_work(pair: Pair) -> None:
    """Each stages a partition, and nothing is seen of it; the copy that comes after them reads no record again."""
    pair.source.create(3)
    for partition in range(3):
        pair.put(b"a", b"b", partition=partition)
    make_root(pair.there.log().root)
    for partition in range(3):
        stage_ahead(pair.source.handle(), pair.there.handle(), [partition])
    assert pair.there.log().topics() == []
    newest = pair.source.handle().newest()[0].sequence
    read: set[str] = set()
    looks = ("read", "fetch", "map")
    pair.copy(from_hook=lambda operation, path, moment: read.add(path) if operation in looks else None)
    assert read == {paths.ROOT_MARKER, f"{paths.journal('t')}/{paths.entry_name(newest)}"}
    pair.check()
    pair.put(b"c", partition=1)
    stage_ahead(pair.source.handle(), pair.there.handle(), [1])
    pair.put(b"d", partition=1)
    pair.copy()
    pair.check()


@pytest.mark.parametrize("harm", ["cut", "gone", "note"])
def test_what_was_staged_and_is_damaged_is_staged_again(
    locals_: Pair, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(locals_, monkeypatch)
    first = locals_.there.path / chunks(locals_.there)[0]
    if harm == "cut":
        first.write_bytes(first.read_bytes()[:-1])
    elif harm == "gone":
        first.unlink()
    else:
        note = locals_.there.path / locals_.there.files("/copied/")[0]
        note.write_bytes(note.read_bytes().replace(b'"sequence":', b'"sequence":1'))
    locals_.copy()
    locals_.check()


def test_what_was_staged_of_another_history_is_not_used(
    locals_: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15: the source is restored after an interrupted copy, and has other records at the same offsets."""
    older = World(tmp_path / "older", locals_.source.clock)
    locals_.source.log().copy_to(older.log())
    interrupted(locals_, monkeypatch)
    append(older.handle(), batch_of([b"another", b"history"], partition=[1, 1]))
    older.log().copy_to(locals_.there.log())
    Pair(older, locals_.there).check()
    assert locals_.there.values() == [b"a", b"b", b"c", b"another", b"history"]
