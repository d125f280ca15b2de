"""Two processes that join at once with one ``group_instance_id``."""

from __future__ import annotations

from pyspark_commitlog.errors import FencedInstanceIdError
from tests.groups.conftest import Group


def test_two_that_join_at_once_with_one_instance_id(group: Group) -> None:
    a = group.join("a", group_instance_id="one")
    b = group.join("b", group_instance_id="one")
    fenced = []
    for _ in range(60):
        group.world.clock.advance(10)
        for each in (a, b):
            try:
                each.poll()
            except FencedInstanceIdError:
                fenced.append(each.name)
    rows = group.state().members.rows
    assert [row.profile.instance_id for row in rows.values()] == ["one"]
    assert len(fenced) == 1
    (other,) = {"a", "b"} - set(fenced)
    assert group.members[other].has() == "t0 t1 t2 t3"
