"""Values of the process, of which a forked child makes its own."""

from __future__ import annotations

from threading import Lock

from pyspark_commitlog.storage.per_process import PerProcess
from tests.support.children import in_a_child


def test_a_value_is_made_once_and_again_when_asked() -> None:
    value = PerProcess(list[int])
    value.value.append(1)
    assert value.value == [1]
    value.renew()
    assert value.value == []


def test_a_forked_child_has_a_value_of_its_own() -> None:
    lock = PerProcess(Lock)
    with lock.value:
        in_a_child(lambda: lock.value.__enter__())
        assert lock.value.locked()


def test_a_forked_child_leaves_the_value_of_its_parent_when_all_are_new() -> None:
    left = list[tuple[list[int], list[int]]]()
    one = PerProcess(list[int], lambda value: left.append((value, other.value)))
    other = PerProcess(list[int], lambda value: left.append((value, one.value)))
    one.value.append(1)
    other.value.append(2)

    def check() -> None:
        assert sorted(left) == [([1], []), ([2], [])]

    in_a_child(check)
    assert not left
