"""Each root lists the roots that belong together; which of two lists is the newer one is said by the lists themselves.

The interleavings:

1. A root was set back to a copy, with a list of before. One that was added since has a journal of lists that is shorter.
2. Whoever adds roots, or takes one out, is killed between two roots: the others take the list that has come furthest; the
   next run goes on, with other roots than before too.
3. Two add roots at once. The metadata root takes one list first: the other one is refused there, and what it left at the
   roots that it wanted to add is no list that anybody else goes by.
4. The metadata root is lost before the others have the list that it took; it comes back after `recover`.
5. The root that a process uses is lost, and an entry names one that was added since that process read its list; or it
   is the root itself that was taken out, emptied and added again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, ConflictError, ReplicaNotAvailableError
from pyspark_commitlog.replication.protocol.roots import Roots
from tests.support.replicas import Replicated, no_device, once_at

CUT_OFF = (CommitLogError, OSError)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    made = Replicated(tmp_path)
    made.create()
    return made


def add(roots: Replicated, *names: str, at: str = "a") -> None:
    roots.log(at).replicas.add([str(roots.path / name) for name in names])


def known(roots: Replicated, root: str) -> str:
    """Return the roots with data that a new process goes by which is opened at a root."""
    together = Roots(roots.storage(root))
    together.compare()
    return "".join(Path(each.url).name for each in together.listed().data)


def no_list(operation: str, path: str, moment: str) -> None:
    """A hook: no list can be put."""
    if operation == "put_if_absent" and path.startswith("replicas/"):
        no_device(operation, path, moment)


def keep(roots: Replicated, root: str) -> None:
    """Keep a copy of a root's list."""
    shutil.copytree(roots.path / root / "replicas", roots.path / f"copy-{root}")


def set_back(roots: Replicated, root: str) -> None:
    """Give a root the list that was kept."""
    shutil.rmtree(roots.path / root / "replicas")
    (roots.path / f"copy-{root}").rename(roots.path / root / "replicas")


def test_a_root_that_was_added_takes_no_list_of_before_it(roots: Replicated) -> None:
    add(roots, "d")
    keep(roots, "b")
    add(roots, "e")
    set_back(roots, "b")
    roots.hooks = dict.fromkeys("acdm", no_device)
    assert known(roots, "e") == "abcde"
    assert known(roots, "b") == "abcd"
    roots.hooks.clear()
    assert known(roots, "b") == "abcde", "which does not list the one that says so"
    roots.log("e").create_topic("u")
    assert roots.log("a").topics() == ["t", "u"]


def test_a_process_keeps_the_list_that_it_knows_when_its_root_is_set_back(roots: Replicated) -> None:
    keep(roots, "a")
    add(roots, "d")
    together = Roots(roots.storage("a"))
    assert len(together.listed().data) == 4
    set_back(roots, "a")
    roots.hooks = dict.fromkeys("bcdm", no_device)  # which would say it again
    assert not together.answers("a root that it does not know")
    assert len(together.listed().data) == 4


@pytest.mark.parametrize("fault", ["away", "fails"])
def test_a_root_that_was_added_is_known_though_the_own_one_is_away(roots: Replicated, fault: str) -> None:
    together = Roots(roots.storage("a"))
    assert together.own_id() in [each.id for each in together.listed().data]
    add(roots, "d")
    if fault == "away":
        roots.take_away("a")
    else:
        roots.hooks["a"] = no_device
    assert together.answers(roots.id_of("d"))


def test_a_root_that_was_added_is_known_though_the_others_are_away(roots: Replicated) -> None:
    together = Roots(roots.storage("a"))
    together.listed()
    add(roots, "d")
    added = roots.id_of("d")
    roots.hooks = dict.fromkeys("bcm", no_device)
    assert together.answers(added)


def test_a_root_that_nobody_lists_is_asked_for_once_in_a_while(roots: Replicated) -> None:
    together, looks = Roots(roots.storage("a")), list[str]()
    roots.hooks["m"] = lambda operation, path, moment: looks.append(operation)
    assert not together.answers("nobody's")
    first = len(looks)
    assert not together.answers("nobody's")
    assert len(looks) == first > 0
    add(roots, "d")
    roots.clock.advance(1_000)
    roots.take_away("a")
    assert together.answers(roots.id_of("d"))


def test_a_root_that_does_not_answer_takes_the_list_of_the_others(roots: Replicated) -> None:
    together = Roots(roots.storage("a"))
    together.listed()
    add(roots, "d")
    roots.take_away("a")
    assert together.compare(again=True)
    assert len(together.listed().data) == 4


@pytest.mark.parametrize("added", [True, False], ids=["added", "not added"])
def test_a_process_knows_its_root_again_that_was_taken_out_emptied_and_added(roots: Replicated, added: bool) -> None:
    together = Roots(roots.storage("b"))
    before = together.own_id(), together.listed()
    roots.log("a").replicas.remove([str(roots.path / "b")])
    if not added:
        with pytest.raises(ReplicaNotAvailableError, match="was given up"):
            together.compare(again=True)
        return
    shutil.rmtree(roots.path / "b")
    add(roots, "b")
    assert together.compare(again=True)
    assert together.own_id() == roots.id_of("b") != before[0]
    assert together.listed() == Roots(roots.storage("a")).listed() != before[1]


def test_a_root_goes_by_the_newest_list_of_all(roots: Replicated) -> None:
    """It was taken out, added again and set back; the first root that it asks was set back to when it was out."""
    add(roots, "d")
    keep(roots, "d")
    roots.log("a").replicas.remove([str(roots.path / "d")])
    keep(roots, "a")
    add(roots, "d")
    set_back(roots, "a")
    set_back(roots, "d")
    assert known(roots, "d") == "abcd"


def cut_off(roots: Replicated, root: str) -> None:
    """Have a run that adds `d` be cut off where a root takes the list."""
    roots.hooks[root] = no_list
    with pytest.raises(CUT_OFF):
        add(roots, "d")
    roots.hooks.clear()


@pytest.mark.parametrize("root", "dmabc")
def test_the_next_run_goes_on_after_one_was_cut_off(roots: Replicated, root: str) -> None:
    cut_off(roots, root)
    taken = "abc" if root in "dm" else "abcd"
    assert {known(roots, each) for each in "abcm"} == {taken}
    add(roots, "d", at="b")
    assert {known(roots, each) for each in "abcdm"} == {"abcd"}


@pytest.mark.parametrize("root", "dmabc")
def test_other_roots_are_added_after_one_was_cut_off(roots: Replicated, root: str) -> None:
    cut_off(roots, root)
    add(roots, "e", "d")
    assert {frozenset(known(roots, each)) for each in "abcdem"} == {frozenset("abcde")}


@pytest.mark.parametrize("root", "mab")
def test_a_root_is_taken_out_once_the_metadata_root_says_so(roots: Replicated, root: str) -> None:
    roots.hooks[root] = no_list
    with pytest.raises(CUT_OFF):
        roots.log("b").replicas.remove([str(roots.path / "c")])
    roots.hooks.clear()
    assert {known(roots, each) for each in "abm"} == {"abc" if root == "m" else "ab"}


@pytest.mark.parametrize("own", "abm")
def test_a_root_that_is_taken_out_is_told(roots: Replicated, own: str) -> None:
    add(roots, "d")
    roots.log(own).replicas.remove([str(roots.path / "d")])
    assert {len(Roots(roots.storage(each)).listed().data) for each in "abcdm"} == {3}


def test_of_two_that_add_roots_one_is_refused(roots: Replicated) -> None:
    roots.hooks["m"] = once_at("put_if_absent", "replicas/", lambda: add(roots, "e"))
    with pytest.raises(ConflictError, match=r"run it again"):
        add(roots, "d")
    assert {known(roots, each) for each in "abcem"} == {"abce"}
    with pytest.raises(ReplicaNotAvailableError, match="was given up"):
        known(roots, "d")
    add(roots, "d")
    assert {known(roots, each) for each in "abcdem"} == {"abced"}


def test_a_metadata_root_that_is_given_up_is_not_gone_by_whatever_it_lists(roots: Replicated) -> None:
    for each in "abc":
        roots.hooks[each] = no_list
    for name in "de":
        with pytest.raises(CUT_OFF):
            add(roots, name, at="m")
    roots.hooks.clear()
    roots.take_away("m")
    roots.log("a").replicas.recover(str(roots.path / "n"), [str(roots.path / "m")], execute=True)
    roots.give_back("m")
    assert {known(roots, each) for each in "abcn"} == {"abc"}
    for root in "md":
        with pytest.raises(ReplicaNotAvailableError, match="was given up"):
            known(roots, root)


def test_recover_goes_on_with_the_list_that_it_has_begun(roots: Replicated) -> None:
    roots.take_away("m")
    roots.hooks["b"] = no_list
    for _ in range(2):
        with pytest.raises(CUT_OFF):
            roots.log("a").replicas.recover(str(roots.path / "n"), [str(roots.path / "m")], execute=True)
    roots.hooks.clear()
    roots.log("b").replicas.recover(str(roots.path / "n"), [str(roots.path / "m")], execute=True)
    lists = [Roots(roots.storage(each)).listed() for each in "abcn"]
    assert len(set(lists)) == 1


def test_recover_has_the_next_metadata_root_list_it_first(roots: Replicated) -> None:
    roots.take_away("m")
    roots.hooks["c"] = no_list
    with pytest.raises(CUT_OFF):
        roots.log("a").replicas.recover(str(roots.path / "c"), [str(roots.path / "m")], execute=True)
    roots.hooks.clear()
    assert {Roots(roots.storage(each)).listed().order for each in "abc"} == {(0, 1)}
