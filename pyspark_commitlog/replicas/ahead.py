"""Ballots that metadata roots have promised ahead, as they accepted an entry: for whatever handle of this process.

A ballot carries one value: it is taken once, by one thread, and a forked child has none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from pyspark_commitlog.replicas.ballots import Ballot, Register, Value
from pyspark_commitlog.storage.process import after_fork

#: Those that are kept, the newest ones: one for each unit that was written last. To forget one costs a round.
_MOST = 1024

#: A unit's register at a set of metadata roots: its directory, and the ids and URLs of the roots.
Where = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Ahead:
    """A ballot that all of a set have promised as they accepted ``value``; ``promised`` are their registers then."""

    ballot: Ballot
    value: Value
    promised: Mapping[str, Register]


class _Kept:
    def __init__(self) -> None:
        self.lock, self.of = Lock(), OrderedDict[Where, Ahead]()


_kept = _Kept()


def keep(where: Where, ahead: Ahead) -> None:
    """Keep a ballot until it is taken."""
    with _kept.lock:
        _kept.of[where] = ahead
        _kept.of.move_to_end(where)
        while len(_kept.of) > _MOST:
            _kept.of.popitem(last=False)


def take(where: Where, base: Value) -> Ahead | None:
    """Return the ballot for what follows an entry; None where there is none. It is gone then."""
    with _kept.lock:
        ahead = _kept.of.pop(where, None)
    return ahead if ahead is not None and ahead.value == base else None


def forget() -> None:
    """Forget all of them, as a forked child has to, with the lock that another thread may hold."""
    global _kept
    _kept = _Kept()


after_fork(forget)
