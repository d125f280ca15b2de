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
RegisterKey = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class PromisedBallot:
    """Ballot that all of a set promised as they accepted ``value``.

    ``promised`` has their registers then.
    """

    ballot: Ballot
    value: Value
    promised: Mapping[str, Register]


class _BallotCache:
    def __init__(self) -> None:
        self.lock, self.of = Lock(), OrderedDict[RegisterKey, PromisedBallot]()


_cache = _BallotCache()


def keep(key: RegisterKey, promised: PromisedBallot) -> None:
    """Keep a ballot until it is taken."""
    with _cache.lock:
        _cache.of[key] = promised
        _cache.of.move_to_end(key)
        while len(_cache.of) > _MOST:
            _cache.of.popitem(last=False)


def take(key: RegisterKey, base: Value) -> PromisedBallot | None:
    """Return the ballot for what follows an entry; None where there is none. It is gone then."""
    with _cache.lock:
        found = _cache.of.pop(key, None)
    return found if found is not None and found.value == base else None


def forget() -> None:
    """Forget all of them, as a forked child has to, with the lock that another thread may hold."""
    global _cache
    _cache = _BallotCache()


after_fork(forget)
