"""Ballots that metadata roots promised ahead, for the whole process.

A ballot carries one value: one thread takes it, once, and no forked child.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from pyspark_commitlog.replication.protocol.ballots import Ballot, Register, Value
from pyspark_commitlog.storage.per_process import PerProcess

#: Units whose ballot is kept, those written last. A lost ballot costs a round.
_MOST = 1024

#: A unit's register at a set of metadata roots: its directory, and the ids and URLs of the roots.
RegisterKey = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class PromisedBallot:
    """Ballot promised by all of a set with `value`."""

    ballot: Ballot
    value: Value
    promised: Mapping[str, Register]


class _BallotCache:
    def __init__(self) -> None:
        self.lock, self.of = Lock(), OrderedDict[RegisterKey, PromisedBallot]()


_cache = PerProcess(_BallotCache)


def keep(key: RegisterKey, promised: PromisedBallot) -> None:
    """Keep a ballot until it is taken."""
    cache = _cache.value
    with cache.lock:
        cache.of[key] = promised
        cache.of.move_to_end(key)
        while len(cache.of) > _MOST:
            cache.of.popitem(last=False)


def take(key: RegisterKey, base: Value) -> PromisedBallot | None:
    """Take the ballot after an entry, if any."""
    cache = _cache.value
    with cache.lock:
        found = cache.of.pop(key, None)
    return found if found is not None and found.value == base else None
