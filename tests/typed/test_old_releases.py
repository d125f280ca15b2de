"""A release that knows no typed topics refuses each by name, and serves all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import REPLICAS, TYPED
from tests.support.records import append, batch_of, read_topic
from tests.support.replicas import Replicated, settle_at
from tests.support.typed import DECLARED, read_rows, row, write
from tests.support.verify import verify
from tests.support.world import World

#: What the release before typed topics understands.
BEFORE = frozenset([REPLICAS])


@pytest.fixture
def both(either: World) -> World:
    """A root with a typed topic, `t`, and another one, neither settled."""
    write(either.create(**DECLARED), row(0), row(1))
    append(either.create(name="other"), batch_of([b"a", b"b"]))
    return either


def check_only_typed(maintain: Callable[[], object]) -> None:
    """Check that what is done with all topics of a root fails for the typed one only."""
    with pytest.raises(ExceptionGroup) as caught:
        maintain()
    assert all("topics/t/journal/" in str(error) and f"uses {TYPED}" in str(error) for error in caught.value.exceptions)


def test_it_refuses_the_typed_topic_by_name_and_serves_the_others(both: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "KNOWN_FEATURES", BEFORE)
    refused = rf"topics/t/journal/.*: uses {TYPED}, unknown to this release; upgrade"
    with pytest.raises(UnsupportedError, match=refused):
        both.handle().newest()
    with pytest.raises(UnsupportedError, match=refused):
        append(both.handle(), batch_of([b"value"]))
    with pytest.raises(UnsupportedError, match=refused):
        both.log().topic("t").delete()
    assert both.log().topics() == ["other", "t"]
    append(both.handle(name="other"), batch_of([b"c"]))
    assert both.values("other") == [b"a", b"b", b"c"]


def test_its_maintenance_of_the_root_fails_that_topic_only(both: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "KNOWN_FEATURES", BEFORE)
        check_only_typed(both.log().maintain)
        assert verify(both.handle(name="other")) == 2
        check_only_typed(both.log().verify)
    assert read_rows(both.handle()) == [row(0), row(1)]
    both.maintain()
    assert verify(both.handle()) == 2


def test_it_copies_the_others(both: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "KNOWN_FEATURES", BEFORE)
    there = CommitLog(str(tmp_path / "there"))
    with pytest.raises(UnsupportedError, match=f"uses {TYPED}"):
        both.log().copy_to(there)
    assert there.topics() == ["other"]


def test_it_serves_the_replicas_of_others(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    write(roots.create(**DECLARED), row(0), everywhere=True)
    roots.create(name="other")
    monkeypatch.setattr(codec, "KNOWN_FEATURES", BEFORE)
    with pytest.raises(UnsupportedError, match=f"uses {TYPED}"):
        roots.topic("b").newest()
    append(roots.topic(name="other"), batch_of([b"a"]))
    assert [each.value for each in read_topic(roots.at("b", "other"))] == [b"a"]
    check_only_typed(roots.log("b").maintain)
    monkeypatch.undo()
    settle_at(roots, "b")
    assert read_rows(roots.at("b")) == [row(0)]


def test_an_untyped_topic_says_nothing_of_types(world: World) -> None:
    """Its entries are those of the release before, byte for byte."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    assert topic.newest()[0].entry.features == ()
    assert "schema" not in topic.newest()[0].entry.body["state"]
