"""Run a check per partition and collect failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from pyspark_commitlog.errors import as_reported
from pyspark_commitlog.failures import ErrorBoundary
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.topic_log import TopicLog

_Found = TypeVar("_Found")
#: Returns a partition's result, and the reason if it is incomplete.
Look = Callable[[SettleState, int], tuple[_Found, Exception | None]]


def look_once(
    settled: SettleState, partitions: Iterable[int], look: Look[_Found]
) -> tuple[dict[int, _Found], dict[int, Exception]]:
    """Results and failures of a check, by partition."""
    found: dict[int, _Found] = {}
    failures: dict[int, Exception] = {}

    def note(partition: int, error: Exception) -> None:
        failures[partition] = as_reported(error)

    for partition in partitions:
        with ErrorBoundary(partial(note, partition)):
            found[partition], failure = look(settled, partition)
            if failure is not None:
                note(partition, failure)
    return found, failures


def look_now(
    topic: TopicLog, topic_id: str, partitions: Iterable[int], look: Look[_Found]
) -> tuple[SettleState, dict[int, _Found], dict[int, Exception]]:
    """Like `look_once` on the newest state; concurrent collection is no failure.

    Failed partitions are checked again with each newer entry. A failure met twice stands, as a busy topic always has a
    newer entry.
    """
    base, settled = topic.settled(topic_id)
    every, failures = look_once(settled, partitions, look)
    met, again = set[str](), set(failures)
    while again and topic.settled(topic_id)[0] is not base:
        met |= {str(error) for error in failures.values()}
        base, settled = topic.settled(topic_id)
        found, left = look_once(settled, sorted(again), look)
        every |= found
        failures = {p: error for p, error in failures.items() if p not in again} | left
        again = {p for p, error in left.items() if str(error) not in met}
    return settled, every, failures
