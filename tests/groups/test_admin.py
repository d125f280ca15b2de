"""What others see of a group's members, and what they can't do beside them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.errors import (
    AccessDeniedError,
    CorruptionError,
    GroupResetError,
    NonEmptyGroupError,
    OutcomeUnknownError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.state import side_files as side_tables
from tests.groups.conftest import COOPERATIVE, SESSION_MS, Group
from tests.support.world import World, once

WAYS: dict[str, Callable[[Groups], object]] = {
    "reset": lambda groups: groups.reset("g", {"t": [0]}, to="earliest", dry_run=False),
    "delete": lambda groups: groups.delete("g"),
    "delete-offsets": lambda groups: groups.delete_offsets("g", "t"),
}
each_way = pytest.mark.parametrize("way", WAYS)


def with_polls(group: Group) -> World:
    """Return the world, in which members go on polling while somebody else sleeps."""
    clock = group.world.clock
    real = clock.sleep

    def sleep(seconds: float) -> None:
        real(seconds)
        for driven in group.members.values():
            driven.poll()

    clock.sleep = sleep  # type: ignore[method-assign]
    return group.world


def test_a_group_is_there_once_it_has_members(group: Group) -> None:
    groups = group.world.log().groups
    assert groups.list() == ()
    group.join("a")
    group.run()
    assert groups.list() == ("g",)
    told = groups.describe("g")
    assert (told.state, told.generation_id, told.generation, told.protocol) == ("Stable", 1, 0, "range")
    assert [(row.topic, row.partition, row.offset, row.lag) for row in told.partitions] == [
        ("t", number, None, 10) for number in range(4)
    ]
    (member,) = told.members
    assert member.consumer_id == f"a-{group.members['a'].member.member_id}"
    assert (member.client_id, member.group_instance_id) == ("a", None)
    assert member.host.endswith(f"/{os.getpid()}")
    assert member.partitions == tuple(TopicPartition("t", number) for number in range(4))


def test_a_group_that_hands_on_says_so_and_one_without_members_is_empty(group: Group) -> None:
    a = group.join("a", partition_assignment_strategy=COOPERATIVE)
    group.run()
    a.commit("t0", 1)
    b = group.join("b", partition_assignment_strategy=COOPERATIVE)
    group.run("b", ms=200)
    told = group.world.log().groups.describe("g")
    assert told.state == "PreparingRebalance"
    assert [len(member.partitions) for member in told.members] == [4, 0]
    a.member.leave()
    b.member.leave()
    told = group.world.log().groups.describe("g")
    assert (told.state, told.members, told.protocol) == ("Empty", (), None)


@each_way
def test_a_group_whose_members_live_is_not_reset(group: Group, way: str) -> None:
    a = group.join("a")
    group.run()
    a.commit("t0", 5)
    with pytest.raises(NonEmptyGroupError, match=r"has 1 members, such as a on .*/\d+: stop them, then do it again"):
        WAYS[way](with_polls(group).log().groups)
    assert group.offsets()[0] == 5
    assert a.has() == "t0 t1 t2 t3"


@each_way
def test_members_that_were_killed_are_removed_once_their_session_is_over(group: Group, way: str) -> None:
    for name in "ab":
        group.join(name)
    group.run()
    group.members["a"].commit("t0", 5)
    before, at = group.state().members.generation, group.world.clock.monotonic()
    WAYS[way](group.world.log().groups)
    assert group.offsets() in ([0, None, None, None], [])
    assert group.state().members.rows == {}
    assert group.state().members.generation == before + 1
    assert group.world.clock.monotonic() - at >= SESSION_MS / 1000
    assert group.world.files("members", root="groups") == []


@each_way
def test_a_member_that_joins_between_look_and_put_stops_the_reset(group: Group, way: str) -> None:
    """R9."""
    group.world.log().groups.commit("g", {"t": {0: 5}})

    def join() -> None:
        group.join("a")
        group.run()

    with pytest.raises(NonEmptyGroupError):
        WAYS[way](group.world.log(on_path("groups/g/journal", "put_if_absent", join)).groups)
    assert group.offsets()[0] == 5
    group.members["a"].commit("t0", 6)


def test_offsets_of_a_topic_that_no_member_wants_can_be_deleted(group: Group) -> None:
    group.world.create(1, name="u")
    group.world.log().groups.commit("g", {"u": {0: 0}})
    a = group.join("a")
    group.run()
    a.commit("t0", 5)
    group.world.log().groups.delete_offsets("g", "u")
    assert group.offsets() == [5, None, None, None]


def test_a_reset_that_only_tells_needs_no_empty_group(group: Group) -> None:
    a = group.join("a")
    group.run()
    a.commit("t0", 5)
    (moved,) = group.world.log().groups.reset("g", {"t": [0]}, to="earliest")
    assert (moved.before, moved.after) == (5, 0)


def test_a_member_that_was_taken_for_dead_and_wakes_after_the_group_was_deleted_joins_anew(group: Group) -> None:
    a = group.join("a")
    group.run()
    a.commit("t0", 5)
    generation = group.state().members.generation
    group.world.log().groups.delete("g")
    group.run()
    assert a.log[-2].lost
    assert a.has() == "t0 t1 t2 t3"
    assert a.member.generation > generation
    assert group.offsets() == [None] * 4
    a.commit("t0", 2)
    assert group.offsets()[0] == 2


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
def test_a_damaged_file_of_members_is_told_and_named(
    group: Group, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    """I8."""
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 10)
    group.join("a")
    group.run()
    (file,) = group.world.files("side/", root="groups")
    assert group.world.log().groups.verify() == ()
    damage(group.world.path / file)
    (fault,) = group.world.log().groups.verify()
    assert file in fault
    with pytest.raises(CorruptionError, match=re.escape(file)):
        group.world.log().groups.commit("g", {"t": {0: 1}})
    told = group.world.log().groups.describe("g")
    assert (told.state, told.partitions, told.members) == ("Damaged", (), ())
    assert file in told.faults[0]
    assert group.world.log().groups.list() == ("g",)


def test_queries_and_others_without_membership_commit_beside_members(group: Group) -> None:
    a = group.join("a")
    group.run()
    group.world.log().groups.commit("g", {"t": {0: 4, 1: 4}})
    a.commit("t0 t1", 3)
    assert group.offsets() == [4, 4, None, None]
    assert a.has() == "t0 t1 t2 t3"


# --- damage -----------------------------------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write an entry again with another body, and a CRC that is right."""
    body = json.loads(path.read_bytes())
    change(body)
    del body["crc"]
    covered = json.dumps(body, separators=(",", ":")).encode()[:-1]
    path.write_bytes(covered + b',"crc":"%08x"}\n' % crc32c(covered))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut off": cut_off,
    "empty": lambda path: path.write_bytes(b""),
    "no state": lambda path: rewritten(path, lambda body: body.pop("state")),
    "another state": lambda path: rewritten(path, lambda body: body.update(state=[1])),
    "offsets of texts": lambda path: rewritten(path, lambda body: body["state"].update(topics={"x": "y"})),
    "a row without its session": lambda path: rewritten(
        path, lambda body: next(iter(body["state"]["members"]["rows"].values())).update(sessionTimeoutMs="45000")
    ),
}


def newest_entry(world: World) -> Path:
    return max((world.path / "groups/g/journal").iterdir())


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_group_is_described_deleted_and_begins_again(group: Group, damage: Callable[[Path], object]) -> None:
    """Whatever is there: who followed it before can't commit any more, and its members join again."""
    groups = group.world.log().groups
    groups.commit("g", {"t": {0: 3}})
    groups.reset("g", {"t": [0]}, to="earliest", dry_run=False)
    a = group.join("a")
    group.run()
    damage(newest_entry(group.world))
    assert groups.list() == ("g",)
    told = group.world.log().groups.describe("g")
    assert told.state == "Damaged"
    assert newest_entry(group.world).name in told.faults[0]
    with pytest.raises(CorruptionError):
        group.run(ms=2 * SESSION_MS)
    group.world.log().groups.delete("g")
    assert group.world.log().groups.list() == ()
    assert group.world.log().groups.verify() == ()
    group.run()
    assert a.has() == "t0 t1 t2 t3"
    assert group.state().generation == 2, "behind that of the reset"
    with pytest.raises(GroupResetError):
        group.world.log().groups.commit("g", {"t": {0: 1}}, generation=1)
    a.commit("t0", 2)
    assert group.offsets() == [2, None, None, None]


def test_who_deletes_a_damaged_group_must_be_allowed_to_read_all_topics(group: Group) -> None:
    """Nobody can tell which topics it had."""
    log = group.world.log()
    log.groups.commit("g", {"t": {0: 3}})
    log.access.allow("ops", "admin", "*")
    log.acting_as("ops").access.allow("some", "read", "t")
    cut_off(newest_entry(group.world))
    with pytest.raises(AccessDeniedError):
        log.acting_as("some").groups.delete("g")
    log.acting_as("ops").groups.delete("g")
    assert log.groups.list() == ()


def test_a_writer_that_slept_while_a_damaged_group_was_deleted_does_not_bring_it_back(group: Group) -> None:
    """Its put at the number that the deletion took fails, or counts for nothing: its entry is gone (the anchor rule)."""
    groups = group.world.log().groups
    for offset in (1, 2):
        groups.commit("g", {"t": {0: offset}})

    def deleted() -> None:
        cut_off(newest_entry(group.world))
        group.world.log().groups.delete("g")

    with suppress(CorruptionError, GroupResetError, OutcomeUnknownError):
        group.world.log(on_path("groups/g/journal", "put_if_absent", once(deleted))).groups.commit("g", {"t": {0: 3}})
    assert group.world.log().groups.list() == ()


def test_who_remembers_an_entry_before_the_damaged_one_finds_what_came_after(group: Group) -> None:
    """It looks for the next number first, which is damaged, unless that went, too."""
    groups = group.world.log().groups
    groups.commit("g", {"t": {0: 1}})
    remembering = group.world.log().groups.open("g")
    assert remembering.newest().exists
    groups.commit("g", {"t": {0: 2}})
    cut_off(newest_entry(group.world))
    with pytest.raises(CorruptionError):
        remembering.newest()
    group.world.log().groups.delete("g")
    assert not remembering.newest().exists


def test_damage_of_a_topic_or_a_members_file_hides_nothing_else(group: Group) -> None:
    group.world.create(1, name="u")
    for name in ("t", "u"):
        group.world.log().groups.commit("g", {name: {0: 0}})
    group.join("a", ["t"])
    group.run()
    cut_off(max((group.world.path / "topics/u/journal").iterdir()))
    (group.world.path / "groups/g/members/00000000-0000-4000-8000-000000000009.json").write_text("{}")
    told = group.world.log().groups.describe("g")
    assert [(row.topic, row.partition) for row in told.partitions] == [("t", number) for number in range(4)]
    assert (told.state, len(told.members)) == ("Stable", 1)
    assert [fault.split(":")[0] for fault in told.faults] == [
        "groups/g/members/00000000-0000-4000-8000-000000000009.json",
        "topics/u/journal/00000000000000000001.json",
    ]


def test_a_members_table_that_no_entry_names_yet_stops_no_maintenance(group: Group) -> None:
    """Who puts many members writes their table first, and may be killed before the group's first entry."""
    table = group.world.path / paths.group_side("g") / paths.side_name(1, group.world.storage().new_id(), "members")
    table.parent.mkdir(parents=True)
    table.write_bytes(b"{}")
    group.world.log().groups.maintain("g")
    assert table.exists(), "its entry may be about to come"


def test_a_deleted_group_is_no_stray(group: Group) -> None:
    """The entry of its deletion keeps those who slept from bringing it back."""
    group.world.log().groups.commit("g", {"t": {0: 1}})
    group.world.log().groups.delete("g")
    (group.world.path / "groups/never/journal").mkdir(parents=True)
    assert group.world.log().groups.unnamed() == ("groups/never",)


def test_a_directory_that_can_be_no_groups_is_a_stray(group: Group) -> None:
    """An archiver of macOS leaves `__MACOSX`: it stops neither maintenance nor a check of the root."""
    log = group.world.log()
    log.groups.commit("g", {"t": {0: 1}})
    (group.world.path / "groups/__MACOSX").mkdir()
    assert verify_root(log.root).unnamed == ("groups/__MACOSX",)
    assert log.groups.every_name() == ("g",)
    log.maintain()
