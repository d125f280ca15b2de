"""Look at each partition by itself: what can't be read stops no other, and is no loss where others had it collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pyspark_commitlog.errors import as_reported
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.topic import TopicLog

_Found = TypeVar("_Found")
#: Returns what is found of a partition, and why that is not all of it; raises where nothing is found.
Look = Callable[[SettleState, int], tuple[_Found, Exception | None]]


def look_once(
    settled: SettleState, partitions: Iterable[int], look: Look[_Found]
) -> tuple[dict[int, _Found], dict[int, Exception]]:
    """Return what is found of each of these partitions, and why some, or a part of them, can't be read."""
    found: dict[int, _Found] = {}
    failures: dict[int, Exception] = {}
    for partition in partitions:
        try:
            found[partition], failure = look(settled, partition)
        except Exception as error:  # noqa: BLE001 raised by the caller: no partition stops the others
            failure = error
        if failure is not None:
            failures[partition] = as_reported(failure)
    return found, failures


def look_now(
    topic: TopicLog, topic_id: str, partitions: Iterable[int], look: Look[_Found]
) -> tuple[SettleState, dict[int, _Found], dict[int, Exception]]:
    """Return the newest state, and of each partition what ``look_once`` does; without what is merely collected.

    What can't be read may be collected by now: of those partitions a newer entry is looked at. It names what is
    damaged still, so a failure that is met again stands; a busy topic has a newer entry each time.
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
