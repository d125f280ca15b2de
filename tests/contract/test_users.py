"""A user who may read a root, and not write there; or not even read a file of it. The system refuses, nothing is injected."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Consumer
from pyspark_commitlog.topic.damage.verify import verify
from tests.support.records import append, batch_of, read_topic
from tests.support.users import as_another, read_only
from tests.support.world import World

Act = Callable[[str], object]


def filled(world: World) -> World:
    """Return a root with a topic that has a settled record and another one."""
    world.create()
    append(world.handle(), batch_of([b"settled"]))
    world.maintain()
    append(world.handle(), batch_of([b"not settled"]))
    return world


@pytest.fixture
def open_root() -> Iterator[World]:
    """A root that others can get to, as they can't to `tmp_path`."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield filled(World(Path(directory, "root")))


@pytest.fixture
def beside(tmp_path: Path) -> str:
    """The path of another such root, by which an act gets imported what another user may not read."""
    return str(filled(World(tmp_path / "beside")).path)


def outcome(open_root: World, act: Act, beside: str) -> object:
    """Return what an act gives another user, or the name of its error and what it says."""

    def tried() -> object:
        try:
            return act(str(open_root.path))
        except Exception as error:  # noqa: BLE001 told to the parent
            return f"{type(error).__name__}: {error}"

    act(beside)
    return as_another(tried)


def content(open_root: World) -> dict[str, bytes]:
    """Return all files of a root."""
    return {path: (open_root.path / path).read_bytes() for path in open_root.files(root="")}


WRITES: dict[str, Act] = {
    "a chunk": lambda root: str(append(CommitLog(root).root.topic("t"), batch_of([b"x"]))),
    "an entry": lambda root: CommitLog(root).topic("t").alter({"retention.ms": 1}),
    "a topic": lambda root: str(CommitLog(root).create_topic("u")),
    "the end of a topic": lambda root: CommitLog(root).topic("t").delete(),
    "a segment": lambda root: str(CommitLog(root).topic("t").maintain()),
}


@pytest.mark.parametrize("act", WRITES.values(), ids=list(WRITES))
def test_who_may_not_write_is_told_and_changes_nothing(open_root: World, act: Act, beside: str) -> None:
    before = content(open_root)
    with read_only(open_root.path):
        told = outcome(open_root, act, beside)
    assert isinstance(told, str)
    assert told.startswith("StorageReadOnlyError: cannot ")
    assert "Permission denied; make it writable for this user" in told
    assert content(open_root) == before


READS: dict[str, Act] = {
    "a read": lambda root: [(record.value or b"").decode() for record in read_topic(CommitLog(root).root.topic("t"))],
    "a poll": lambda root: [
        (record.value or b"").decode() for record in Consumer(root, "t", auto_offset_reset="earliest").poll()
    ],
    "verify": lambda root: list(verify(CommitLog(root).root.topic("t")).faults) or ["settled", "not settled"],
}


@pytest.mark.parametrize("act", READS.values(), ids=list(READS))
def test_who_may_only_read_reads(open_root: World, act: Act, beside: str) -> None:
    with read_only(open_root.path):
        assert outcome(open_root, act, beside) == ["settled", "not settled"]


@pytest.mark.parametrize("part", ["t/journal/", "/settle/", ".log", ".chunk"])
def test_what_may_not_be_read_is_told_as_that(open_root: World, part: str, beside: str) -> None:
    """No topic that is missing, no end of the log, no damage: the file is named, and what to do."""
    hidden = [path for path in open_root.files(part) if path.endswith((".json", ".log", ".chunk"))][-1]
    with read_only(open_root.path):
        (open_root.path / hidden).chmod(0)
        told = outcome(open_root, READS["a read"], beside)
    assert isinstance(told, str)
    assert told.startswith(f"StorageUnreadableError: cannot read {hidden} under {open_root.path}: Permission denied")
    assert told.endswith("make it readable for this user")


def test_a_list_leaves_out_what_may_not_be_read(open_root: World, beside: str) -> None:
    open_root.create(name="u")
    with read_only(open_root.path):
        (open_root.path / "topics" / "t").chmod(0)
        assert outcome(open_root, lambda root: CommitLog(root).topics(), beside) == ["u"]
