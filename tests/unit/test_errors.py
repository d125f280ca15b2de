"""The error tree: what an error says, and that it can be pickled."""

from __future__ import annotations

import inspect
import pickle

import pytest

from pyspark_commitlog import errors
from pyspark_commitlog.storage import NotPutError

CLASSES = [found for found in vars(errors).values() if inspect.isclass(found)]


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
