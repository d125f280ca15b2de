"""Do it again at another root when the one that was used goes away: where several are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, OutcomeUnknownError

_T = TypeVar("_T")

#: How many roots are tried one after the other.
_TRIES = 4
#: Seconds that a root may take to learn what another one has shown already.
PATIENCE_SECONDS = 30.0


def tried_elsewhere(act: Callable[[], _T], elsewhere: Callable[[], bool], *, repeatable: bool = True) -> _T:
    """Call ``act``, and again if it failed and there is another root.

    Args:
        act: opens a root that answers, each time.
        elsewhere: returns whether there is another root.
        repeatable: whether it may be called again where nobody knows whether it was done.
    """
    for _ in range(_TRIES):
        try:
            return act()
        except (CommitLogError, OSError) as error:
            if not elsewhere() or (isinstance(error, OutcomeUnknownError) and not repeatable):
                raise
    return act()
