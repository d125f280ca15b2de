"""How often a streaming query that waits looks at its topics, where each look is a request (``storage.pace``).

Spark asks for the latest offset some hundred times a second while there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.pace import Pace

#: A topic is looked at in full as often: its newest entry may be gone (the anchor rule), or the topic.
_RECHECK_SECONDS = 60.0
#: If two looks are further apart, what was put in between may be gone again at the second: it is a full one.
_SLOW_SECONDS = 5.0
#: Listings of a look at the topics of a pattern: those, and the access rules.
_LISTED = 2


@dataclass(frozen=True, slots=True)
class Newest:
    """A topic's newest entry when it was looked at, and its state."""

    topic: TopicLog
    stored: Stored
    state: TopicState


class PacedLooks:
    """The newest states of a query's topics, no newer than its pace allows.

    Args:
        per_hour: requests for looks that find nothing, for each topic.
        listed: whether a full look lists the topics, as one by pattern does.
    """

    def __init__(self, per_hour: int, *, listed: bool) -> None:
        self._pace, self._listed = Pace(per_hour), listed
        self._known: frozenset[str] | None = None
        self._newest: Mapping[str, Newest] = {}
        self._looked = self._checked = 0.0

    @property
    def last_states(self) -> dict[str, TopicState] | None:
        """Return the states of the last look; None before the first."""
        return None if self._known is None else self._states()

    def look(
        self, known: frozenset[str], monotonic: Callable[[], float], read: Callable[[], Mapping[str, Newest]]
    ) -> dict[str, TopicState]:
        """Return the states, as they are now or, where no look is due, as they were.

        Args:
            known: topics that the query reads already.
            monotonic: the clock.
            read: looks in full.
        """
        now = monotonic()
        if known == self._known and self._pace.seconds_left(now) > 0:
            return self._states()
        before, full = self._states(), known != self._known or self._is_old(now) or self._is_followed()
        if full:
            self._newest = read()
            self._known, self._checked = known, now
        self._looked = now
        requests = 1 if not full else 2 + _LISTED if self._listed else 2
        self._pace.looked(now, requests, news=self._states() != before)
        return self._states()

    def _states(self) -> dict[str, TopicState]:
        return {name: newest.state for name, newest in self._newest.items()}

    def _is_old(self, now: float) -> bool:
        return not self._newest or now - self._checked >= _RECHECK_SECONDS or now - self._looked >= _SLOW_SECONDS

    def _is_followed(self) -> bool:
        return any(each.topic.journal.is_followed(each.stored) for each in self._newest.values())
