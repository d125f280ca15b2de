"""Many topics and groups at once: a root that leads them is lost, and one process moves them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pyspark_commitlog.api import replica_sync
from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.cli.maintain import _MaintainRound
from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.model import Progress
from pyspark_commitlog.replication.admin import replicating
from pyspark_commitlog.replication.admin.replicating import AT_ONCE, of_each
from pyspark_commitlog.topic.maintain.maintain import Maintained
from tests.support.replicas import Replicated, commit_offset

NAMES = [f"t{number}" for number in range(AT_ONCE)]


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def lost(roots: Replicated) -> None:
    """Make topics that `a` leads, with a record each, and take it away."""
    for name in NAMES:
        roots.create(name=name)
        roots.decided_log(name=name).elections.elect(roots_id(roots, "a", name), why="test")
        roots.write(b"1", topic=roots.topic(name=name))
    roots.take_away("a")


def roots_id(roots: Replicated, root: str, name: str) -> str:
    listed = roots.decided_log(name=name).places.roots.listed()
    return next(each.id for each in listed.data if Path(each.url).name == root)


def led_by_a(roots: Replicated) -> list[str]:
    return [name for name in NAMES if roots.state(name).leader == roots_id(roots, "a", name)]


def test_so_many_are_done_at_a_time_and_what_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, share_out = list[int](), replicating.share_out

    def shared(act: Callable[[object], None], items: Iterable[object], many: int) -> None:
        threads.append(many)
        share_out(act, items, many)

    monkeypatch.setattr(replicating, "share_out", shared)

    def act(number: int) -> int:
        if number % 2:
            raise StorageError(f"{number} fails")
        return number

    many = range(3 * AT_ONCE)
    found = of_each(act, many)
    assert [str(each) for each in found] == [f"{n} fails" if n % 2 else str(n) for n in many]
    assert threads == [AT_ONCE]
    with pytest.raises(ZeroDivisionError):
        of_each(lambda number: 1 // number, many)


def test_replicate_moves_the_topics_of_a_lost_root_several_at_a_time(roots: Replicated) -> None:
    lost(roots)
    together, put = threading.Barrier(AT_ONCE), set[str]()

    def meet(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before") and (name := path.split("/")[1]) not in put:
            put.add(name)
            together.wait(30)  # breaks, where one election begins after another has ended

    roots.hooks["m"] = meet
    done = roots.log("b").replicas.sync()
    assert [each.topic for each in done] == NAMES
    assert all(each.elected for each in done)
    assert led_by_a(roots) == []


def test_replicate_says_which_group_lacks_what_and_does_the_topics(roots: Replicated) -> None:
    roots.create()
    roots.write(b"1")
    commit_offset(roots, 1)
    roots.take_away("a")
    with pytest.raises(ExceptionGroup, match="1 topics or groups") as failed:
        roots.log("b").replicas.sync()
    assert "group 'g'" in str(failed.value.exceptions[0])
    assert roots.leader() != "a"


def test_maintain_moves_all_topics_of_a_lost_root_before_it_maintains_the_first(roots: Replicated) -> None:
    lost(roots)
    left = list[list[str]]()
    roots.log("b").maintain(progress=lambda *_: left.append(led_by_a(roots)))
    assert left[0] == []


def test_the_command_moves_all_topics_of_a_lost_root_before_it_maintains_the_first(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(roots)
    left, maintain = list[list[str]](), Maintenance.maintain

    def looked(maintenance: Maintenance, name: str, progress: Progress) -> Maintained:
        left.append(led_by_a(roots))
        return maintain(maintenance, name, progress)

    monkeypatch.setattr(Maintenance, "maintain", looked)
    assert _MaintainRound(Maintenance(roots.log("b").root), threading.Event(), as_json=True).run(None).code == 0
    assert left == [[]] * len(NAMES)


def test_maintain_asks_for_no_leader_while_all_roots_answer(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    roots.create()
    asked = list[object]()
    monkeypatch.setattr(replica_sync, "of_each", lambda act, items: asked.append(items))
    roots.log("b").maintain()
    assert asked == []
