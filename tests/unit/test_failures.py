"""Blocks that fail: work that goes on, and what is undone."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import CommitLogError, CorruptionError, StorageError
from pyspark_commitlog.failures import ErrorBoundary, Failures, call_on_error
from pyspark_commitlog.model import Watched


def worked(failures: Failures, *errors: BaseException | None) -> list[int]:
    """Return the numbers of the parts that did not fail."""
    done: list[int] = []
    for number, error in enumerate(errors):
        with failures.collected():
            if error is not None:
                raise error
            done.append(number)
    return done


def test_errors_of_any_class_are_collected_in_order() -> None:
    failures, errors = Failures(), [StorageError("full"), MemoryError("malloc"), KeyError("bug")]
    assert worked(failures, errors[0], None, errors[1], errors[2], None) == [1, 4]
    assert failures == errors


def test_without_failures_nothing_is_raised() -> None:
    failures = Failures()
    assert worked(failures, None, None) == [0, 1]
    failures.raise_if_any("nothing failed")


def test_a_part_returns_from_the_block_or_else_the_work_goes_on_after_it() -> None:
    taken: list[Exception] = []

    def first(values: dict[str, int]) -> int | None:
        with ErrorBoundary(taken.append):
            return values["first"]
        return None

    assert first({"first": 1}) == 1
    assert first({}) is None
    assert [type(error) for error in taken] == [KeyError]


def test_what_takes_an_error_may_raise_another() -> None:
    def refuses(error: Exception) -> None:
        raise StorageError("full") from error

    with pytest.raises(StorageError, match="full"), ErrorBoundary(refuses):
        raise KeyError("bug")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_an_interrupt_ends_the_work(interrupt: BaseException) -> None:
    failures, failed = Failures(), StorageError("full")
    with pytest.raises(type(interrupt)) as raised:
        worked(failures, failed, interrupt, StorageError("after it"))
    assert raised.value is interrupt
    assert failures == [failed]


def test_errors_of_the_classes_that_pass_are_raised_at_once() -> None:
    failures, failed = Failures(passing=(BrokenPipeError, CorruptionError)), OSError("disk")
    with pytest.raises(CorruptionError, match="CRC"):
        worked(failures, failed, CorruptionError("CRC"), OSError("after it"))
    with pytest.raises(BrokenPipeError):
        worked(failures, BrokenPipeError())
    assert failures == [failed]


def test_what_the_progress_raises_ends_the_work() -> None:
    """Another error of the same class is a part's own."""

    def stops(what: str, done: int, total: int) -> None:
        if done == 1:
            raise InterruptedError(what)

    progress = Watched(stops)
    failures, own = Failures(progress), InterruptedError("a part's own")
    assert worked(failures, own) == []
    with failures.collected():
        progress("first", 0, 2)
    with pytest.raises(InterruptedError, match="second"), failures.collected():
        progress("second", 1, 2)
    assert failures == [own]


def test_one_failure_is_raised_itself() -> None:
    failures, failed = Failures(), MemoryError("malloc")
    worked(failures, failed)
    with pytest.raises(MemoryError) as raised:
        failures.raise_if_any("1 part failed")
    assert raised.value is failed


def test_several_of_ours_are_raised_as_one_of_the_first_s_class() -> None:
    failures, first = Failures(), StorageError("full")
    worked(failures, first, CorruptionError("CRC"), StorageError("full"))
    with pytest.raises(CommitLogError) as raised:
        failures.raise_if_any("3 parts failed")
    assert type(raised.value) is StorageError
    assert str(raised.value) == "full; CRC"
    assert raised.value.__cause__ is first


def test_others_are_raised_as_a_group() -> None:
    failures, errors = Failures(), (StorageError("full"), MemoryError("malloc"))
    worked(failures, *errors)
    with pytest.raises(ExceptionGroup, match="2 parts failed") as raised:
        failures.raise_if_any("2 parts failed")
    assert raised.value.exceptions == errors


def test_a_missing_file_is_raised_as_corruption() -> None:
    """Collected is the error as it was: a caller may look at it."""
    failures, missing = Failures(), FileNotFoundError(2, "No such file", "topics/t/3/0.log")
    worked(failures, missing)
    assert failures == [missing]
    assert [str(error) for error in failures.reported()] == ["topics/t/3/0.log is missing: restore it from a copy"]
    with pytest.raises(CorruptionError, match=r"topics/t/3/0\.log is missing"):
        failures.raise_if_any("1 part failed")


@pytest.mark.parametrize("error", [KeyError("bug"), KeyboardInterrupt()], ids=repr)
def test_what_a_block_began_is_undone_whatever_ends_it(error: BaseException) -> None:
    undone: list[str] = []
    with pytest.raises(type(error)) as raised, call_on_error(lambda: undone.append("undone")):
        raise error
    assert raised.value is error
    assert undone == ["undone"]


def test_what_a_block_ended_is_not_undone() -> None:
    undone: list[str] = []
    with call_on_error(lambda: undone.append("undone")):
        pass
    assert undone == []


def test_an_error_of_the_undoing_names_the_block_s_as_its_context() -> None:
    def undo() -> None:
        raise StorageError("disk")

    with pytest.raises(StorageError, match="disk") as raised, call_on_error(undo):
        raise KeyError("bug")
    assert isinstance(raised.value.__context__, KeyError)
