"""What each reader does with a root that was restored, beside the matrix: under way, planned, iterating, in doubt."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_commitlog import CommitLog, Consumer, DefaultSource, Producer
from pyspark_commitlog.consumer.shared.shared_topic import SharedTopic
from pyspark_commitlog.errors import LogTruncationError, StaleBatchError, TopicChangedError
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.model import OffsetRange
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage
from pyspark_commitlog.topic.read.lossy import read_kept
from pyspark_commitlog.topic.read.reader import read_range
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.restore.conftest import AFTER, BEFORE, RESTORES, Scene, values
from tests.support.consumers import DEFAULTS, at
from tests.support.records import append, batch_of
from tests.support.restores import Copy

IN_PLACE = RESTORES[:-1]


def planned(scene: Scene, start: int, end: int) -> OffsetRange:
    """Return a range as a plan has it."""
    _, state = CommitLog(str(scene.path)).root.topic("t").newest()
    return OffsetRange("t", state.topic_id, 0, start, end, state.lineage.position)


@pytest.mark.parametrize("way", IN_PLACE)
def test_a_task_refuses_another_history_than_that_of_its_plan(scene: Scene, way: str) -> None:
    """The restored log has all of the planned offsets: a batch would be of other records than the checkpoint says."""
    scene.copy()
    wanted = planned(scene, 0, 6)
    scene.restore(way)
    scene.put(AFTER["longer"])
    with pytest.raises(LogTruncationError, match="restored from an older copy"):
        list(read_range(CommitLog(str(scene.path)).root.topic("t"), wanted))


def test_a_task_that_may_lose_records_says_that_it_goes_on_in_another_history(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.copy()
    wanted = planned(scene, 0, 6)
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    rows = list(read_kept(CommitLog(str(scene.path)).root.topic("t"), wanted, ("value",)))
    assert sum(each.count for each in rows) == 6
    assert "it goes on at offset 0 of what is there" in caplog.text


def test_a_reader_under_way_does_not_go_on_in_another_history(scene: Scene) -> None:
    """It looks again where an entry is gone, and finds one that holds the next offset: of another history."""
    scene.copy()
    topic = CommitLog(str(scene.path)).root.topic("t")
    reading = read_range(topic, OffsetRange("t", topic.newest()[1].topic_id, 0, 0, 6))
    assert next(reading).first_offset == 0
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    CommitLog(str(scene.path)).topic("t").maintain()
    for sequence in topic.journal.sequences()[:-2]:
        topic.journal.delete(sequence)
    with pytest.raises(LogTruncationError):
        list(reading)


def test_a_commit_of_what_was_read_before_the_restore_is_refused(scene: Scene) -> None:
    """A follower that has not looked yet: its offset is in range again, and means other records."""
    scene.copy()
    log = CommitLog(str(scene.path))
    handle = log.groups.open("g")
    _, state = log.root.topic("t").newest()
    scene.restore("topic")
    scene.put(AFTER["longer"])
    with pytest.raises(LogTruncationError, match="offset 6"):
        handle.advance([Position("t", state.topic_id, 0, 6, state.lineage)])
    assert handle.advance([Position("t", state.topic_id, 0, 3, state.lineage)]).state.offsets(state.topic_id) == {0: 3}


def test_an_offset_of_a_history_that_is_gone_holds_no_group_back(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Commits go forward only: 6 of before was higher than all that could be read."""
    scene.copy()
    groups = CommitLog(str(scene.path)).groups
    assert groups.commit("g", {"t": {0: 6}}) == {"t": {0: 6}}
    scene.restore("topic")
    scene.put(AFTER["shorter"])
    assert groups.commit("g", {"t": {0: 4}}) == {"t": {0: 4}}
    assert "what was committed is cut back" in caplog.text


def test_a_reset_counts_from_what_still_means_something(scene: Scene) -> None:
    scene.copy()
    groups = CommitLog(str(scene.path)).groups
    groups.commit("g", {"t": {0: 6}})
    scene.restore("topic")
    scene.put(AFTER["longer"])
    [moved] = groups.reset("g", shift=1, dry_run=False)
    assert (moved.before, moved.after) == (3, 4)
    with scene.consumer(group_id="g") as reader:
        assert values(reader) == AFTER["longer"][1:]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [*BEFORE, *AFTER["longer"]]), ("latest", [])])
def test_where_nobody_can_tell_where_they_parted_the_policy_leads(
    scene: Scene, caplog: pytest.LogCaptureFixture, policy: str, expected: list[bytes]
) -> None:
    """The last entry that both have is collected."""
    with scene.consumer() as first:
        assert values(first) == BEFORE
    scene.copy()
    with scene.consumer(auto_offset_reset=policy, group_id="g") as reader:
        reader.poll()
        reader.seek(at(), 0)
        assert values(reader) == scene.all
        scene.restore("topic")
        scene.put(AFTER["longer"])
        topic = CommitLog(str(scene.path)).root.topic("t")
        CommitLog(str(scene.path)).topic("t").maintain()
        for sequence in topic.journal.sequences()[:-2]:
            topic.journal.delete(sequence)
        reader.seek(at(), 5)
        assert values(reader) == expected
        assert "nobody can tell" in caplog.text


def test_records_that_iteration_holds_are_not_handed_out_behind_the_restore(scene: Scene) -> None:
    """`lag` looks at the log between two of them."""
    scene.copy()
    with scene.consumer(consumer_timeout_ms=0) as reader:
        assert next(reader).value == BEFORE[0]
        assert [next(reader).value for _ in range(4)] == scene.all[1:5]
        scene.restore("cp -a")
        scene.put(AFTER["longer"])
        reader.lag()
        assert [record.value for record in reader] == AFTER["longer"]


def test_a_root_that_is_away_for_a_while_loses_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is mounted again, or a copy with all that was read: the same history."""
    with scene.consumer() as reader:
        assert values(reader) == BEFORE
        away = scene.path.with_name("away")
        scene.path.rename(away)
        reader.seek(at(), 3)
        assert reader.poll() == []
        shutil.copytree(away, scene.path)
        scene.put([b"d3"])
        assert values(reader) == [b"d3"]
        assert "restored" not in caplog.text


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("gone", ["", "topics/t"], ids=["the root", "its topic"])
def test_a_root_that_was_made_again_under_a_consumer_is_read(scene: Scene, gone: str) -> None:
    """Its entries have the numbers of before: what was kept of those made sound data look damaged, for ever."""
    with scene.consumer() as reader:
        assert values(reader) == BEFORE
        shutil.rmtree(scene.path / gone)
        assert reader.poll() == []
        CommitLog(str(scene.path)).create_topic("t", 1)
        scene.put(AFTER["equal"])
        with scene.consumer() as new:
            assert values(new) == AFTER["equal"]
        assert values(reader) == AFTER["equal"]


def test_a_partition_that_was_added_behind_the_copy_is_gone_without_an_error(scene: Scene) -> None:
    scene.copy()
    CommitLog(str(scene.path)).topic("t").add_partitions(2)
    with scene.consumer() as reader:
        assert values(reader) == scene.all
        assert reader.assignment() == {at(0), at(1)}
        scene.restore("cp -a")
        scene.put(AFTER["shorter"])
        reader.seek(at(), 0)
        assert values(reader) == [*BEFORE, *AFTER["shorter"]]
        assert reader.lag() == {at(0): 0}


def test_a_group_commits_beside_a_partition_that_is_not_in_the_copy(scene: Scene, at_once: None) -> None:
    scene.copy()
    CommitLog(str(scene.path)).topic("t").add_partitions(2)
    with Consumer(str(scene.path), group_id="g", auto_commit_interval_ms=0, **DEFAULTS) as reader:
        reader.assign([at(0), at(1)])
        assert values(reader) == scene.all
        scene.restore("cp -a")
        scene.put(AFTER["shorter"])
        assert values(reader) == AFTER["shorter"]
    assert [(row.partition, row.offset) for row in CommitLog(str(scene.path)).groups.describe("g").partitions] == [
        (0, 4)
    ]


@pytest.mark.parametrize("way", ["cp -a", "rsync", "topic"])
def test_segments_of_the_same_names_are_those_of_the_restored_log(scene: Scene, way: str) -> None:
    """Both histories are settled: `0.log` has other bytes behind offset 3, which readers had mapped."""
    CommitLog(str(scene.path)).topic("t").maintain()
    scene.copy()
    CommitLog(str(scene.path)).topic("t").maintain()
    with scene.consumer() as reader:
        assert values(reader) == scene.all
        scene.restore(way)
        scene.put(AFTER["equal"])
        CommitLog(str(scene.path)).topic("t").maintain()
        with scene.consumer() as new:
            assert values(new) == [*BEFORE, *AFTER["equal"]]
        assert values(reader) == AFTER["equal"]


def test_a_trigger_without_records_hands_back_the_offset_it_was_given(scene: Scene) -> None:
    """Spark compares texts: entries that bring no records must not make a batch."""
    source = DefaultSource({"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    CommitLog(str(scene.path)).topic("t").alter({"retention.ms": 1000})
    again = source.streamReader(source.schema())
    assert json.dumps(again.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())) == json.dumps(end)
    scene.put([b"d3"])
    behind = again.latestOffset(end, ReadAllAvailable())
    assert behind["__lineages"] != end["__lineages"]


@pytest.mark.parametrize("way", IN_PLACE)
def test_a_query_tells_before_it_plans(scene: Scene, way: str) -> None:
    source = DefaultSource({"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    scene.copy()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    scene.restore(way)
    scene.put(AFTER["longer"])
    for each in (reader, source.streamReader(source.schema())):
        with pytest.raises(LogTruncationError, match=r"the checkpoint is at offset 6.*the same up to offset 3"):
            each.latestOffset(end, ReadAllAvailable())


def test_a_batch_that_was_planned_before_the_restore_is_not_made_of_other_records(scene: Scene) -> None:
    """Spark plays it again at a restart, without asking for an offset first."""
    options = {"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest"}
    strict, lenient = DefaultSource(options), DefaultSource({**options, "failOnDataLoss": "false"})
    reader = strict.streamReader(strict.schema())
    begin = reader.initialOffset()
    scene.copy()
    end = reader.latestOffset(begin, ReadAllAvailable())
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    with pytest.raises(LogTruncationError, match="the checkpoint is at offset 6"):
        reader.partitions(begin, end)
    [part] = lenient.streamReader(lenient.schema()).partitions(begin, end)
    assert (part.value.start, part.value.end) == (0, 3)


def test_a_batch_that_begins_before_the_restore_begins_where_the_histories_parted(scene: Scene) -> None:
    source = DefaultSource(
        {"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    )
    reader = source.streamReader(source.schema())
    scene.copy()
    begin = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    end = reader.latestOffset(begin, ReadAllAvailable())
    [part] = reader.partitions(begin, end)
    assert (part.value.start, part.value.end) == (3, 8)


@pytest.mark.parametrize("over", [False, True], ids=["planned", "over"])
def test_a_query_is_told_of_a_partition_that_the_copy_does_not_have(scene: Scene, over: bool) -> None:
    options = {"path": str(scene.path), "subscribe": "t", "startingOffsets": "earliest"}
    strict, lenient = DefaultSource(options), DefaultSource({**options, "failOnDataLoss": "false"})
    scene.copy()
    log = CommitLog(str(scene.path))
    log.topic("t").add_partitions(2)
    append(log.root.topic("t"), batch_of([b"gone too"], partition=[1]))
    reader = strict.streamReader(strict.schema())
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    named = r"t partition 1: the checkpoint is at offset 1, and the topic was restored from an older copy"
    after = lenient.streamReader(lenient.schema())
    if over:
        with pytest.raises(LogTruncationError, match=named):
            reader.latestOffset(end, ReadAllAvailable())
        assert after.latestOffset(end, ReadAllAvailable())["t"] == {"0": 8}
        return
    with pytest.raises(LogTruncationError, match=named):
        reader.partitions(begin, end)
    assert [(part.value.partition, part.value.end) for part in after.partitions(begin, end)] == [(0, 6)]


def test_a_producer_of_before_is_refused_by_name(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """R6: the table of the restored log knows less than the producer."""
    caplog.set_level(logging.CRITICAL)
    with Producer(str(scene.path), producer_id="p") as producer:
        producer.send("t", value=b"p0").result()
        scene.copy()
        producer.send("t", value=b"p1").result()
        scene.restore("cp -a")
        with pytest.raises(StaleBatchError, match="expected"):
            producer.send("t", value=b"p2").result()
    with scene.consumer() as reader:
        assert values(reader) == [*BEFORE, b"p0"]


@pytest.mark.parametrize("alive", [True, False])
def test_a_query_that_starts_from_its_group_says_what_it_lost(scene: Scene, alive: bool) -> None:
    """`startingOffsets=group`, after one topic's directory was put back: the group is ahead of it."""
    scene.copy()
    CommitLog(str(scene.path)).groups.commit("g", {"t": {0: 6}})
    scene.restore("topic")
    if alive:
        scene.put(AFTER["longer"])
    options = {"path": str(scene.path), "subscribe": "t", "startingOffsets": "group", "groupId": "g"}
    strict = DefaultSource(options)
    reader = strict.streamReader(strict.schema())
    start = reader.initialOffset()
    with pytest.raises(LogTruncationError, match="offset 6 means nothing any more"):
        reader.latestOffset(start, ReadAllAvailable())
    lenient = DefaultSource({**options, "failOnDataLoss": "false"})
    assert lenient.streamReader(lenient.schema()).initialOffset()["t"] == {"0": 3}


def test_the_rest_of_a_frame_is_not_handed_out_of_a_log_that_was_restored(scene: Scene) -> None:
    """The position stands in it again, by a seek."""
    topic = CommitLog(str(scene.path)).root.topic("t")
    scene.copy()
    append(topic, batch_of([b"x6", b"x7", b"x8"]))
    with scene.consumer() as reader:
        assert len(reader.poll(max_records=8)) == 8
        scene.restore("cp -a")
        scene.put([b"c%d" % n for n in range(3, 9)])
        assert reader.lag() == {at(): 6}
        reader.seek(at(), 8)
        assert values(reader) == [b"c8"]


def test_an_entry_of_a_number_that_was_synced_is_synced_in_a_restored_log(scene: Scene) -> None:
    """R5: its writer may have been killed between the link and the sync of the directory."""
    seen: list[str] = []

    def hook(operation: str, path: str, moment: str) -> None:
        if operation == "sync_directory" and moment == "before":
            seen.append(path)

    topic = TopicLog(FaultyStorage(LocalStorage(scene.path), hook), "t")  # type: ignore[abstract]
    scene.copy()
    assert topic.newest_durable()[0].sequence == 7
    scene.restore("cp -a")
    scene.put(AFTER["equal"])
    assert topic.newest_durable()[0].sequence == 7
    assert seen == ["topics/t/journal"] * 2


def test_what_is_kept_stays_where_a_reader_was_merely_overtaken(scene: Scene) -> None:
    """By the collector, or by more entries than there are marks one by one: it is the same history."""
    topic = SharedTopic(LocalStorage(scene.path), "t")
    scene.put([b"odd"])
    before = topic.look()
    assert before.newest.sequence == 5  # soon no entry has its mark any more
    scene.put([b"%d" % n for n in range(30)])
    assert topic.look().history == before.history
    scene.put([b"30"])
    for sequence in CommitLog(str(scene.path)).root.topic("t").journal.sequences()[:-1]:
        (scene.path / f"topics/t/journal/{sequence:020}.json").unlink()
    assert topic.look().history == before.history


def test_a_view_of_before_the_restore_opens_no_partition(scene: Scene) -> None:
    """A poll looked, and another one of the process has noticed since: nothing is kept under the new history for it."""
    scene.copy()
    topic = SharedTopic(LocalStorage(scene.path), "t")
    before = topic.look()
    scene.restore("cp -a")
    scene.put(AFTER["longer"])
    assert topic.look().history != before.history
    with pytest.raises(TopicChangedError, match="look again"):
        topic.partition(before, 0, ("value",))


@pytest.mark.usefixtures("at_once")
def test_an_application_seeks_once_in_all_partitions_that_lost_their_meaning(tmp_path: Path) -> None:
    root = tmp_path / "root"
    CommitLog(str(root)).create_topic("t", 2, {"retention.ms": -1})

    def put(value: bytes) -> None:
        append(CommitLog(str(root)).root.topic("t"), batch_of([value, value], partition=[0, 1]))

    put(b"a0")
    copy = Copy(root, tmp_path / "aside")
    put(b"b1")
    with Consumer(str(root), auto_offset_reset="none") as each:
        each.assign([at(0), at(1)])
        each.seek(at(0), 0)
        each.seek(at(1), 0)
        assert len(each.poll()) == 4
        copy.copied()
        put(b"c1")
        put(b"c2")
        for _ in range(2):
            with pytest.raises(LogTruncationError, match="offset 2 means nothing"):
                each.poll()
        each.seek(at(0), 2)
        each.seek(at(1), 2)
        assert [record.value for record in each.poll()] == [b"c2", b"c2"]


def test_a_shorter_log_is_another_history_whatever_it_holds() -> None:
    """All marks that both have are the same: what was seen is not there all the same."""
    shared = Lineage().advanced("a").advanced("b")
    assert compare(shared.advanced("c"), shared) is Verdict.PARTED
