"""Offsets of groups expire, as Kafka's: without members, or of topics that no member wants."""

from __future__ import annotations

import json

import pytest

from pyspark_commitlog.broker_config import offsets_retention_ms
from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.errors import ConfigError, GroupResetError
from pyspark_commitlog.format.entry import seal
from pyspark_commitlog.testing.faults import on_path
from tests.groups.conftest import EAGER, Group
from tests.support.records import append, batch_of
from tests.support.world import World

WEEK_MS = 7 * DAY_MS
_JOURNAL = "groups/g/journal"


@pytest.fixture
def filled(world: World) -> World:
    """A topic with ten records."""
    append(world.create(), batch_of([b"x"] * 10))
    return world


def commit(world: World, offset: int, generation: int | None = None) -> None:
    world.log().groups.commit("g", {"t": {0: offset}}, generation=generation)


def offset(world: World) -> int | None:
    """Return what is committed, None without a group."""
    state = world.log().groups.open("g").newest()
    return next((offsets[0] for topic_id in state.topics if (offsets := state.offsets(topic_id))), None)


def maintain(world: World) -> int:
    return world.log().groups.maintain("g").expired_topics


def test_offsets_stay_a_week_after_their_commit_and_no_longer(filled: World) -> None:
    commit(filled, 3)
    filled.clock.advance(WEEK_MS)
    assert maintain(filled) == 0
    assert offset(filled) == 3
    filled.clock.advance(1)
    assert maintain(filled) == 1
    assert filled.log().groups.list() == ()
    assert maintain(filled) == 0


def test_the_retention_is_the_roots(filled: World) -> None:
    commit(filled, 3)
    filled.log().config.alter({"offsets.retention.minutes": 1})
    filled.clock.advance(60_001)
    assert maintain(filled) == 1
    commit(filled, 4)
    filled.log().config.alter({"offsets.retention.minutes": -1})
    filled.clock.advance(1000 * WEEK_MS)
    assert maintain(filled) == 0
    with pytest.raises(ConfigError):
        filled.log().config.alter({"offsets.retention.minutes": -2})


def test_a_root_made_before_keeps_them_unless_it_is_said(filled: World) -> None:
    place = filled.path / "commitlog.json"
    marker = json.loads(place.read_bytes())
    assert marker.pop("offsetsExpire") is True
    del marker["crc"]
    place.write_bytes(seal(marker))
    commit(filled, 3)
    filled.clock.advance(1000 * WEEK_MS)
    assert maintain(filled) == 0
    filled.log().config.alter({"offsets.retention.minutes": 10_080})
    assert maintain(filled) == 1


@pytest.mark.parametrize(
    ("given", "expire", "days"), [({}, True, 7), ({}, False, None), ({"offsets.retention.minutes": "1440"}, False, 1)]
)
def test_the_default_is_that_of_kafka(given: dict[str, str], expire: bool, days: int | None) -> None:
    assert offsets_retention_ms(given, expire=expire) == (None if days is None else days * DAY_MS)


def test_a_commit_that_comes_first_keeps_the_offsets(filled: World) -> None:
    """It lands between the look and the put: the next attempt looks at the entry that it builds on."""
    commit(filled, 3)
    filled.clock.advance(WEEK_MS + 1)
    hook = on_path(_JOURNAL, "put_if_absent", lambda: commit(filled, 5))
    assert filled.log(hook).groups.maintain("g").expired_topics == 0
    assert offset(filled) == 5


def test_a_clock_that_is_fast_alone_forgets_nothing(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(filled, 3)
    log = filled.log()
    stored_ms = filled.clock.now_ms()
    monkeypatch.setattr(type(log.root.storage), "now_ms", lambda _: stored_ms)
    filled.clock.advance(WEEK_MS + 1)
    assert log.groups.maintain("g").expired_topics == 0


def test_a_query_makes_its_group_again(filled: World) -> None:
    commit(filled, 3)
    filled.clock.advance(WEEK_MS + 1)
    maintain(filled)
    commit(filled, 2, generation=0)
    assert offset(filled) == 2


def test_a_reset_fences_who_followed_before_it_for_ever(filled: World) -> None:
    """Codified: the generations stay, as those of a deletion."""
    commit(filled, 3)
    filled.log().groups.reset("g", {"t": [0]}, to="latest", dry_run=False)
    filled.clock.advance(WEEK_MS + 1)
    assert maintain(filled) == 1
    assert filled.log().groups.list() == ()
    with pytest.raises(GroupResetError):
        commit(filled, 4, generation=0)
    commit(filled, 4, generation=1)
    assert offset(filled) == 4


def test_offsets_of_members_stay_and_the_week_begins_when_the_last_one_leaves(group: Group) -> None:
    world = group.world
    a = group.join("a", partition_assignment_strategy=EAGER)
    group.run()
    a.commit("t0 t1 t2 t3", 0)
    world.log().config.alter({"offsets.retention.minutes": 1})
    world.clock.advance(60_001)
    assert maintain(world) == 0
    a.member.leave()
    assert maintain(world) == 0
    world.clock.advance(60_001)
    assert maintain(world) == 1


def test_offsets_of_a_topic_that_no_member_wants_expire(group: Group) -> None:
    world = group.world
    world.create(name="other")
    world.log().groups.commit("g", {"other": {0: 0}})
    group.join("a", partition_assignment_strategy=EAGER)
    group.run()
    world.log().config.alter({"offsets.retention.minutes": 1})
    world.clock.advance(60_001)
    assert maintain(world) == 1
    assert group.state().names() == ()
