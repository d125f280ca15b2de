"""The error tree: as its docstring draws it, catchable as the builtins a handler expects, and picklable."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from pyspark_commitlog import errors
from pyspark_commitlog.storage import NotPutError

CLASSES = [found for found in vars(errors).values() if inspect.isclass(found)]
_LINE = re.compile(
    r"^ {4}(?P<branch>[│├└─ ]*)(?P<name>\w+Error|CommitLogError)(?: \((?P<builtin>\w+)\))? *(?P<told>.*)$"
)


def drawn() -> dict[str, tuple[str | None, str | None, str]]:
    """Return what the docstring draws: name -> (parent, builtin base, what to do)."""
    parents: dict[int, str] = {}
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := _LINE.match(line):
            depth = len(match["branch"]) // 4
            parents[depth] = match["name"]
            found[match["name"]] = (parents.get(depth - 1), match["builtin"], match["told"])
    return found


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    tree = {name: (parent, builtin) for name, (parent, builtin, _) in drawn().items()}

    real: dict[str, tuple[str | None, str | None]] = {}
    for found in CLASSES:
        parent, *builtin = found.__bases__
        ours = parent.__name__ if parent is not Exception else None
        real[found.__name__] = (ours, builtin[0].__name__ if builtin else None)

    assert tree == real


@pytest.mark.parametrize("found", CLASSES, ids=lambda found: found.__name__)
def test_the_message_is_what_was_said(found: type[errors.CommitLogError]) -> None:
    assert str(found("cannot write 'a': no space")) == "cannot write 'a': no space"
    assert str(found()) == ""


@pytest.mark.parametrize("found", [*CLASSES, NotPutError], ids=lambda found: found.__name__)
def test_an_error_gets_from_a_worker_to_the_driver(found: type[errors.CommitLogError]) -> None:
    arrived = pickle.loads(pickle.dumps(found("topic 'a' partition 3")))

    assert type(arrived) is found
    assert str(arrived) == "topic 'a' partition 3"


def test_a_put_that_certainly_failed_is_a_storage_error() -> None:
    assert issubclass(NotPutError, errors.StorageError)
    assert not issubclass(errors.SyncFailedError, NotPutError)
