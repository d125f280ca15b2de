"""Pacing of a waiting query's looks, each of which is a request (`storage.pace`).

Spark asks for the latest offset about a hundred times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage.pace import Pace
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Interval of full looks: a topic, or its newest entry (the anchor rule), may be deleted.
_RECHECK_SECONDS = 60.0
#: After a longer pause a look is full: entries put and deleted in between go unseen otherwise.
_SLOW_SECONDS = 5.0
#: Listings of a look at a pattern's topics: topics, and access rules.
_LISTED = 2


@dataclass(frozen=True, slots=True)
class Newest:
    """A topic's newest entry at a look, and its state."""

    topic: TopicLog
    stored: Stored
    state: TopicState


class PacedLooks:
    """Newest states of a query's topics, looked up at a limited rate.

    Args:
        interval_ms: mean interval between requests per topic for looks without news.
        listed: whether a full look lists the topics (pattern).
    """

    def __init__(self, interval_ms: int, *, listed: bool) -> None:
        self._pace, self._listed = Pace(interval_ms), listed
        self._known: frozenset[str] | None = None
        self._newest: Mapping[str, Newest] = {}
        self._looked = self._checked = 0.0

    @property
    def last_states(self) -> dict[str, TopicState] | None:
        """States of the last look, if any."""
        return None if self._known is None else self._states()

    def look(
        self, known: frozenset[str], monotonic: Callable[[], float], read: Callable[[], Mapping[str, Newest]]
    ) -> dict[str, TopicState]:
        """Return the states, from a new look only if one is due.

        `known` topics are read already; `read` is a full look.
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
