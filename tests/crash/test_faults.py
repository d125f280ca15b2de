"""A full disk, a read-only one, lost replies: typed errors, nothing half-applied, and the retry ends exactly once."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError, StorageError
from pyspark_commitlog.testing.faults import MUTATING, at_call, io_error
from tests.crash.scenes import NEVER, SCENES, Prepared
from tests.support.steps import every_step, first_step
from tests.support.syscalls import telling
from tests.support.world import raising

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(
    ("code", "forever"),
    [(errno.ENOSPC, True), (errno.EROFS, True), (errno.EIO, False)],
    ids=["full", "read-only", "once"],
)
@every_step
def test_a_disk_that_fails_at_any_call(name: str, code: int, forever: bool, every: int, fast_path: Path) -> None:
    """I1–I6: the n-th changing call fails, perhaps all after it: a typed error, a legal state, safe to run again."""
    prepared, number, failed = Prepared(name, fast_path), first_step(every, name, code) - every, True
    while failed:
        number, failed = number + every, False
        scene, world = prepared.copy()
        left = number

        def tell(call: str, path: str) -> None:
            nonlocal left, failed
            left -= 1
            if left == 0 or (forever and left < 0 and call != "unlink"):
                failed = True
                raise OSError(code, "injected")

        with telling(tell):
            try:
                scene.act(world)
            except NEVER as error:
                raise AssertionError(f"call {number}") from error
            except CommitLogError:
                assert failed
        scene.check(world)
        shutil.rmtree(world.path)
    assert number > 3


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("only", [("put_if_absent",), MUTATING], ids=["puts", "all"])
@every_step
def test_a_reply_that_is_lost(name: str, when: str, only: tuple[str, ...], every: int, fast_path: Path) -> None:
    """I4, I5: the n-th operation was done, or not, and answers with an error of the network."""
    prepared, number, lost = Prepared(name, fast_path), first_step(every, name, when, only) - every, [True]
    while lost:
        number, lost = number + every, []
        scene, world = prepared.copy()

        def act(lost: list[bool] = lost) -> None:
            lost.append(True)
            raise io_error()

        try:
            scene.act(world, at_call(number, act, when=when, only=only))
        except (OutcomeUnknownError, StorageError):
            pass
        except OSError:  # the faulty storage's own error, of an operation that promises nothing
            assert only == MUTATING
        scene.check(world)
        shutil.rmtree(world.path)


@pytest.mark.parametrize("name", ["commit", "inline", "settle", "collect", "sweep", "create"])
def test_a_read_that_fails(name: str, fast_path: Path) -> None:
    """I4, I5: the n-th read, listing or stat fails: never told as "certainly not put" when it was."""
    prepared, number, failed = Prepared(name, fast_path), 0, [True]
    while failed:
        number, failed = number + 1, []
        scene, world = prepared.copy()

        def act(failed: list[bool] = failed) -> None:
            failed.append(True)
            raising(StorageError("injected"))()

        try:
            scene.act(world, at_call(number, act, only=("read", "fetch", "map", "info", "names")))
        except StorageError:
            if name in ("commit", "inline"):
                assert len(world.values()) == 3, "told as not committed"
        except OutcomeUnknownError:
            pass
        scene.check(world)
        shutil.rmtree(world.path)
    assert number > 3
