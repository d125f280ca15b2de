"""R13: when things go: after the delay, chunk before entry, ascending, never what a retained entry names."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from pyspark_commitlog.format.paths import entry_name, parse_entry, side_name
from pyspark_commitlog.testing.faults import at_call, on_path
from pyspark_commitlog.topic.collect.collect import collect
from pyspark_commitlog.topic.maintain.retention import collect_segments, retain
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.side_files import SETTLE_TABLES, side_files
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, Recorder, World, failing, many


def test_chunk_then_entry_ascending(world: World) -> None:
    """R13, anchor rule: every entry goes behind its own chunks and before the next entry; the newest two stay."""
    topic = world.create()
    for number in range(6):
        append(topic, batch_of([b"%d" % number]))
    names = {e: [c.name for c in topic.chunks(topic.journal.read(e).entry)] for e in world.entries()}
    world.maintain()
    world.clock.advance(DELAY_MS)
    seen = Recorder()
    world.log(seen).topic("t").maintain()
    deleted = [path.rsplit("/", 1)[1] for path in seen.paths("delete") if "/settle/" not in path]
    expected = []
    for number in sorted(names)[:-2]:
        expected += [*names[number], f"{number:020d}.json"]
    assert deleted == expected
    assert world.entries() == sorted(names)[-2:]


def test_the_delay_counts_from_the_settle_entry_by_storage_time(world: World) -> None:
    """R13, I6: one millisecond before the delay all is there; then it goes, once."""
    topic = world.create()
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
    world.clock.advance(10**6)
    world.maintain()
    before = world.files(".chunk")
    world.clock.advance(DELAY_MS - 1)
    assert world.maintain().collected.chunks == 0
    assert world.files(".chunk") == before
    world.clock.advance(1)
    assert world.maintain().collected.chunks == len(before) - 2
    assert world.maintain().collected.chunks == 0


def test_what_is_not_settled_stays_however_old(world: World) -> None:
    """R13, I6: the collector runs for days, the settler does not."""
    topic = world.create()
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
    before = world.files()
    world.clock.advance(10**10)
    collect(topic, topic.newest()[1].topic_id)
    assert world.files() == before


def test_settle_entries_stay_while_young_and_the_newest_two_always(world: World) -> None:
    """R13: a reader may have read any settle entry younger than the delay."""
    topic = world.create()
    topic_id = topic.newest()[1].topic_id

    def kept() -> list[int]:
        return topic.settle_journal(topic_id).sequences()

    for number in range(5):
        append(topic, batch_of([b"%d" % number]))
        world.clock.advance(DELAY_MS // 4)
        settle(topic, topic_id)
    collect(topic, topic_id)
    newest = kept()[-1]
    assert kept() == [newest - 4, newest - 3, newest - 2, newest - 1, newest]
    world.clock.advance(DELAY_MS // 2)
    collect(topic, topic_id)
    assert kept() == [newest - 2, newest - 1, newest]
    world.clock.advance(10**9)
    collect(topic, topic_id)
    assert kept() == [newest - 1, newest]


def test_a_manifest_goes_when_no_retained_settle_entry_names_it(world: World) -> None:
    """R13, R4: readers that hold an old settle entry still find its manifest."""
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    topic_id = topic.newest()[1].topic_id
    for number in range(6):
        append(topic, batch_of([b"%d" % number * 700]))
        settle(topic, topic_id)
        world.clock.advance(DELAY_MS // 3)
        collect(topic, topic_id)
        journal = topic.settle_journal(topic_id)
        states = [topic.settle_state(journal.read(s).entry) for s in journal.sequences()]
        named = {row.manifest.name for state in states for row in state.partitions if row.manifest}
        assert {path.rsplit("/", 1)[1] for path in world.files("/manifests/")} == named
    assert 2 <= len(named) < 5


@pytest.mark.parametrize("deletes", range(1, 12))
def test_a_collector_that_dies_leaves_no_hole(world: World, deletes: int) -> None:
    """R13, I6: it dies at its n-th delete: the entries left are a run, all is readable, the next one goes on."""
    topic = world.create()
    for number in range(6):
        append(topic, batch_of([b"%d" % number]))
    world.maintain()
    append(topic, batch_of([b"unsettled"]))
    world.clock.advance(DELAY_MS)
    dying = world.handle(at_call(deletes, failing(), only=("delete",)))
    with suppress(OSError):  # behind the last delete it does not die
        collect(dying, topic.newest()[1].topic_id)
    left = world.entries()
    assert left == list(range(left[0], left[-1] + 1))
    expected = [*(b"%d" % number for number in range(6)), b"unsettled"]
    assert world.values() == expected
    collect(topic, topic.newest()[1].topic_id)
    assert world.entries()[-2:] == left[-2:]
    assert len(world.files(".chunk")) == 2
    assert world.values() == expected


def test_two_collectors_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: at any of its deletes another collector runs to the end, tables in side files: no error, nothing lost."""
    from pyspark_commitlog.topic.state import side_files as side_tables

    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    topic = world.create(3)
    for _ in range(3):
        for number in range(3):
            append(topic, batch_of(many(3, b"%d" % number), partition=range(3)))
        world.maintain()
        world.clock.advance(DELAY_MS // 2)
    world.clock.advance(DELAY_MS)
    topic_id = topic.newest()[1].topic_id
    reads = [0]

    def other(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation in ("delete", "read"):
            reads[0] += 1
            if reads[0] in (2, 5, 9):
                collect(world.handle(), topic_id)

    collect(world.handle(other), topic_id)
    assert reads[0] >= 2
    assert len(world.values()) == 27
    left = [parse_entry(path.rsplit("/", 1)[1]) for path in world.files("/journal/")]
    assert len(left) == 2


def test_a_collector_that_slept_takes_nothing_of_a_root_that_was_restored(world: World, tmp_path: Path) -> None:
    """R13: it is stopped between two deletes, and goes on where a copy from before lies in the root's place."""
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    values = [b"%d" % number * 600 for number in range(6)]
    topic_id = topic.newest()[1].topic_id
    for number, value in enumerate(values):
        append(topic, batch_of([value]))
        if number < 4:
            settle(topic, topic_id)
    assert world.files("/manifests/")
    shutil.copytree(world.path, tmp_path / "copy")
    for _ in range(3):
        append(topic, batch_of([bytes(600)]))
        settle(topic, topic_id)
    world.clock.advance(DELAY_MS)
    there: list[str] = []

    def restored() -> None:
        shutil.rmtree(world.path)
        shutil.copytree(tmp_path / "copy", world.path)
        there[:] = world.files()

    entry = f"/journal/{world.entries()[2]:020}"
    collect(world.handle(on_path(entry, "delete", restored, when="after")), topic_id)
    assert there
    assert world.files() == there
    assert world.values() == values
    world.collect_all()
    assert len(world.entries()) == 2, "the next one takes them"


def test_a_collector_that_is_overtaken_by_a_later_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: it sleeps over a delete; the next one removes settle entries, and tables, that it wants to keep."""
    from pyspark_commitlog.topic.state import side_files as side_tables

    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    topic = world.create(3)
    topic_id = topic.newest()[1].topic_id
    for number in range(6):
        append(topic, batch_of(many(3, b"%d" % number), partition=range(3)))
        settle(topic, topic_id)
        world.clock.advance(DELAY_MS // 3)

    def later() -> None:
        world.clock.advance(2 * DELAY_MS)
        collect(world.handle(), topic_id)

    collect(world.handle(at_call(1, later, only=("delete",))), topic_id)
    assert len(topic.settle_journal(topic_id).sequences()) == 2
    assert len(world.values()) == 18
    append(topic, batch_of([b"goes on"], partition=[0]))
    world.collect_all()
    assert len(world.values()) == 19


def entries_read(world: World, *, thorough: bool) -> set[str]:
    """Collect, and return which entries of the topic's journal were read."""
    seen = Recorder()
    collect(world.handle(seen), world.handle().newest()[1].topic_id, thorough=thorough)
    return {path for path in seen.paths("fetch") if "/t/journal/" in path}


@pytest.mark.parametrize("table_bytes", [40, 16384])
def test_a_collector_inside_a_commit_reads_what_goes_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch, table_bytes: int
) -> None:
    """Goal: what settling adds to a commit does not grow with the entries that are kept."""
    from pyspark_commitlog.topic.state import side_files as side_tables

    monkeypatch.setattr(side_tables, "TABLE_BYTES", table_bytes)
    topic = world.create(3)
    for number in range(6):
        append(topic, batch_of(many(3, b"%d" % number), partition=range(3)))
    settle(topic, topic.newest()[1].topic_id)
    world.clock.advance(DELAY_MS)
    for number in range(30):
        append(topic, batch_of(many(3, b"%d" % number), partition=range(3)))
    assert len(entries_read(world, thorough=False)) <= 9, "7 that go, the one after them, and the newest"
    assert len(world.entries()) == 30
    if table_bytes == 40:
        assert len(entries_read(world, thorough=True)) == 30, "side files that no entry named: all are read"
    assert len(world.values()) == 108


def test_tables_go_with_the_entry_that_named_them_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R13: the writers' snapshot stays as long as an entry names it; what was never named goes by `maintain`."""
    from pyspark_commitlog.topic.state import side_files as side_tables
    from pyspark_commitlog.topic.write import writers

    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    monkeypatch.setattr(writers, "WRITER_ROWS", 4)
    topic = world.create(3)
    topic_id = topic.newest()[1].topic_id
    for number in range(9):
        append(topic, batch_of(many(3), partition=range(3)), writer=Transaction(f"w{number}", 1))
    settle(topic, topic_id)
    world.clock.advance(DELAY_MS)
    lost = f"{topic.paths(topic_id).side}/{side_name(3, str(uuid4()), 'extents')}"
    world.storage().write_once(lost, b"[]")
    collected = collect(world.handle(), topic_id)
    journal = world.handle().journal
    named = {file for number in world.entries() for file in side_files(journal.read(number).entry)}
    assert any(file.endswith(".writers") for file in named)
    left = {path.rpartition("/")[2] for path in world.files("/side/")}
    assert {file for file in left if not file.endswith(SETTLE_TABLES)} == {*named, lost.rpartition("/")[2]}
    assert collected.files > 8
    assert collect(world.handle(), topic_id, thorough=True).files == 1
    assert lost not in world.files("/side/")


def test_a_collector_that_is_killed_leaves_no_entry_without_its_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: `verify` would call that damage."""
    from pyspark_commitlog.topic.state import side_files as side_tables

    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    topic = world.create(3)
    topic_id = topic.newest()[1].topic_id
    for _ in range(6):
        append(topic, batch_of(many(3), partition=range(3)))
    settle(topic, topic_id)
    world.clock.advance(DELAY_MS)

    def killed(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("delete", "before") and path == f"topics/t/journal/{entry_name(3)}":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(world.handle(killed), topic_id)
    assert world.entries() == [3, 4, 5, 6, 7]
    verify(world.handle())


def test_segments_stay_where_a_settle_entry_cannot_be_read_for_its_table_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13, R4: another collector removes an entry's table while this one reads it: what it names is not known."""
    from pyspark_commitlog.topic.state import side_files as side_tables

    monkeypatch.setattr(side_tables, "TABLE_BYTES", 40)
    topic = world.create(config={**CHUNKS, "segment.bytes": 1024, "compression.type": "none"})
    topic_id = topic.newest()[1].topic_id
    for _ in range(3):
        append(topic, batch_of([b"x" * 900]))
        settle(topic, topic_id)
    world.log().topic("t").delete_records({0: 2})
    assert retain(topic, topic_id).segments == 2  # the newest entry names them no more, the ones before do
    before = world.files(".log")
    tables = [path for path in world.files("/side/") if "partitions" in path] or world.files("/side/")
    hidden = sorted(tables)[:-1]
    assert hidden

    def gone(operation: str, path: str, moment: str) -> None:
        if operation == "read" and moment == "before" and path in hidden:
            raise FileNotFoundError(path)

    assert collect_segments(world.handle(gone), topic_id) == 0
    assert world.files(".log") == before
    world.clock.advance(DELAY_MS)
    world.maintain()
    world.maintain()
    assert len(world.files(".log")) == 1
