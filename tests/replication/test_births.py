"""A metadata root that was restored from a copy of before a topic, group or setting was there: its silence is no vote.

`tests/model/replica_births.py` has the interleavings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.api import replace_metadata
from pyspark_commitlog.errors import ReplicaNotAvailableError, TopicExistsError
from pyspark_commitlog.format import paths
from pyspark_commitlog.replication.metadata import births
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.metadata.births import Births
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.support.replicas import Replicated, commit_offset, committed_offset, once_at

COPIED = "restored from a copy"


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    made = Replicated(tmp_path, metadata="mno")
    made.create(name="before")
    return made


def restored(roots: Replicated, act: Callable[[], object], *, in_place: bool = False) -> None:
    """Act without `o`, which comes back; then `m` is set back to a copy of before, and `n` goes away."""
    copy_of_m(roots)
    roots.take_away("o")
    act()
    roots.give_back("o")
    if in_place:
        set_back(roots.path / "copy", roots.path / "m")
    else:
        shutil.rmtree(roots.path / "m")
        (roots.path / "copy").rename(roots.path / "m")
    roots.take_away("n")


def copy_of_m(roots: Replicated) -> None:
    shutil.copytree(roots.path / "m", roots.path / "copy")


def set_back(copy: Path, root: Path) -> None:
    """Do as `rsync -a --delete` does: what is the same stays, what is not in the copy goes."""
    for path in [path for path in root.rglob("*") if path.is_file() and not (copy / path.relative_to(root)).exists()]:
        path.unlink()
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        target = root / path.relative_to(copy)
        if not target.exists() or target.read_bytes() != path.read_bytes():
            shutil.copy2(path, target.parent / ".tmp-set-back")
            (target.parent / ".tmp-set-back").rename(target)


def makes_topic(roots: Replicated) -> None:
    roots.create()
    for value in (b"0", b"1", b"2"):
        roots.write(value)


@pytest.mark.parametrize("in_place", [False, True], ids=["wholly", "in place"])
def test_a_root_of_before_a_topic_does_not_decide_another_creation(roots: Replicated, in_place: bool) -> None:
    restored(roots, lambda: makes_topic(roots), in_place=in_place)
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        roots.log().create_topic("t", 1, if_not_exists=True)
    roots.give_back("n")
    with pytest.raises(TopicExistsError):
        roots.log().create_topic("t", 1)
    roots.write(b"3")
    assert roots.values("a") == [b"0", b"1", b"2", b"3"]


def test_all_goes_on_once_an_empty_place_replaced_the_copy(roots: Replicated) -> None:
    restored(roots, lambda: makes_topic(roots))
    roots.give_back("n")
    log = CommitLog(str(roots.path / "a"))
    with Producer(str(roots.path / "a"), delivery_timeout_ms=60_000) as producer:
        producer.send("t", value=b"3").result(60)
    log.replicas.sync()
    log.topic("t").repair()
    log.replicas.replace_metadata(str(roots.path / "m"), str(roots.path / "p"))
    roots.take_away("n")
    roots.write(b"4")
    roots.give_back("n")
    assert roots.values("b") == [b"0", b"1", b"2", b"3", b"4"]
    log.topic("t").delete()
    assert "t" not in log.topics()


def test_a_root_of_before_a_groups_first_commit_does_not_say_that_there_is_none(roots: Replicated) -> None:
    def commits() -> None:
        makes_topic(roots)
        commit_offset(roots, 2)

    restored(roots, commits)
    for ask in (lambda: committed_offset(roots), lambda: roots.log().groups.describe("g")):
        with pytest.raises(ReplicaNotAvailableError, match=COPIED):
            ask()
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        roots.log().groups.list()
    roots.give_back("n")
    assert committed_offset(roots) == 2


def test_a_root_of_before_a_setting_does_not_say_that_there_is_none(roots: Replicated) -> None:
    restored(roots, lambda: roots.log().config.alter({"retention.ms": 5_000}))
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        roots.log().config.alter({"retention.bytes": 5_000})
    roots.give_back("n")
    roots.log().config.alter({"retention.bytes": 5_000})
    assert roots.log().config.get() == {"retention.ms": "5000", "retention.bytes": "5000"}


def test_a_copy_of_the_moment_when_a_register_had_one_record_does_not_count(roots: Replicated) -> None:
    """It has the promise, and lacks what was accepted after it: its record names none before it."""
    copies = once_at("put_if_absent", "t/acceptor-0", lambda: copy_of_m(roots), when="after")
    roots.hooks["m"] = copies
    roots.take_away("o")
    makes_topic(roots)
    roots.give_back("o")
    shutil.rmtree(roots.path / "m")
    (roots.path / "copy").rename(roots.path / "m")
    roots.take_away("n")
    register = paths.acceptor_of(paths.journal("t"))
    assert len(list((roots.path / "m" / register).glob("*.json"))) == 1
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        Acceptor(roots.id_of("m"), LocalStorage(roots.path / "m"), register).read()
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        roots.log().create_topic("t", 1, if_not_exists=True)


def test_a_copy_that_comes_while_a_register_begins_does_not_count(roots: Replicated) -> None:
    """What was put there was put beside what the root had accepted, which the copy does not show."""
    copy_of_m(roots)
    roots.take_away("n")

    def comes_back() -> None:
        shutil.rmtree(roots.path / "m")
        (roots.path / "copy").rename(roots.path / "m")
        (roots.path / "m" / "topics" / "t" / "acceptor-0").mkdir(parents=True)

    roots.hooks["m"] = once_at("put_if_absent", "t/acceptor-0", comes_back)
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        roots.log().create_topic("t", 1)


def test_two_histories_that_were_decided_end_in_an_error(roots: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier release let a copy decide: no retry brings them together."""
    with monkeypatch.context() as patch:
        patch.setattr(Births, "refuse_copy", lambda births: None)
        patch.setattr(births, "refuse_copy", lambda *given: None)
        restored(roots, lambda: makes_topic(roots))
        roots.log().create_topic("t", 1)
        roots.give_back("n")
    for act in (
        lambda: roots.log().replicas.replace_metadata(str(roots.path / "m"), str(roots.path / "p")),
        lambda: roots.log().create_topic("t", 1, if_not_exists=True),
        lambda: roots.write(b"x"),
    ):
        with pytest.raises(ReplicaNotAvailableError, match="no majority of the metadata roots takes entry"):
            act()
    assert roots.values("a") == [b"0", b"1", b"2"]


def test_a_topic_is_made_while_a_metadata_root_is_away(roots: Replicated) -> None:
    roots.take_away("n")
    roots.create()
    roots.write(b"0")
    assert roots.values("a") == [b"0"]


def test_a_copy_of_an_empty_metadata_root_is_told(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, metadata="mno")
    CommitLog.create([str(tmp_path / each) for each in "abc"], [str(tmp_path / each) for each in "mno"])
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        Births(LocalStorage(tmp_path / "copy")).refuse_copy()
    Births(LocalStorage(tmp_path / "m")).refuse_copy()
    assert roots.log().topics() == []


def test_a_copy_of_a_root_that_is_to_replace_another_is_told(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replace_metadata, "move", killed)
    with pytest.raises(KeyboardInterrupt):
        roots.log().replicas.replace_metadata(str(roots.path / "m"), str(roots.path / "p"))
    shutil.copytree(roots.path / "p", roots.path / "copy")
    with pytest.raises(ReplicaNotAvailableError, match=COPIED):
        Births(LocalStorage(roots.path / "copy")).refuse_copy()
