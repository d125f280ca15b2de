"""Failover to another root, if several are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError

_T = TypeVar("_T")

#: Retries after the first attempt.
_TRIES = 4
#: Seconds that a root may take to learn an entry that another one has shown.
PATIENCE_SECONDS = 30.0


def tried_elsewhere(act: Callable[[], _T], elsewhere: Callable[[], bool], *, repeatable: bool = True) -> _T:
    """Call `act`, and again after a failure while another root is available.

    `act` opens a root that answers, at each call; `elsewhere` tests for another. `repeatable`: even after an unknown
    outcome.
    """
    for _ in range(_TRIES):
        try:
            return act()
        except (CommitLogError, OSError) as error:
            if not elsewhere() or (isinstance(error, OutcomeUnknownError) and not repeatable):
                raise
    return act()
