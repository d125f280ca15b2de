"""Who is a member: two processes under one `group_instance_id`, and a child that was forked from one."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import FencedInstanceIdError, UsageError
from pyspark_commitlog.groups.membership import member as module
from tests.groups.conftest import Group


def test_two_that_join_at_once_with_one_instance_id(group: Group) -> None:
    a = group.join("a", group_instance_id="one")
    b = group.join("b", group_instance_id="one")
    fenced = set()
    for _ in range(60):
        group.world.clock.advance(10)
        for each in (a, b):
            try:
                each.poll()
            except FencedInstanceIdError:
                fenced.add(each.name)
    rows = group.state().members.rows
    assert [row.profile.instance_id for row in rows.values()] == ["one"]
    assert len(fenced) == 1
    (other,) = {"a", "b"} - fenced
    assert group.members[other].has() == "t0 t1 t2 t3"


def test_a_forked_child_is_not_the_member_too(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else both read and commit the same partitions, under one tenure."""
    a = group.join("a")
    group.run()
    a.commit("t0", 1)
    monkeypatch.setattr(module, "process_id", lambda: -1)
    with pytest.raises(UsageError, match="make another one here"):
        a.poll()
    with pytest.raises(UsageError, match="make another one here"):
        a.commit("t0", 2)
