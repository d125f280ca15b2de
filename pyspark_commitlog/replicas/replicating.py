"""Replicate: do for a unit what no writer waits for, and hand its lead over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, NotLeaderError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replicas.catching_up import Segments, learn_or_catch_up
from pyspark_commitlog.replicas.entries import NotReplicatedError, state_of
from pyspark_commitlog.replicas.joining import give_default
from pyspark_commitlog.replicas.order import Order
from pyspark_commitlog.replicas.state import ReplicaState
from pyspark_commitlog.storage.process import share_out

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

logger = logging.getLogger("pyspark_commitlog.replicas")

#: Units of which something is done at a time: what takes long is to wait for disks.
AT_ONCE = 4
#: A root is near that has learned all within so many seconds, or lacks so few entries; and how often it tries to be.
_NEAR_SECONDS, _NEAR_ENTRIES, _ROUNDS = 2.0, 16, 10


@dataclass
class Outcome:
    """What was done for a unit; roots by their ids.

    ``failed`` has the roots that have not learned all that is decided, and why.
    """

    state: ReplicaState
    elected: str | None = None
    joined: list[str] = field(default_factory=list)
    shrunk: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    hw_raised: bool = False


def replicate(order: Order, segments: Segments | None = None) -> Outcome:
    """Have all replicas learn what is decided; take back those that catch up; state the high watermark.

    A leader that does not answer is replaced. A root in sync that this process has not reached for
    ``replica.lag.time.max.ms`` is taken out. A root that is out of sync learns first, and joins then: one that can't
    learn holds up no writer. One that lags too far is given the ``segments`` of another first. A group that has fewer
    replicas than one that is made now gets more.

    Raises:
        ReplicaNotAvailableError: the metadata root does not answer.
    """
    places, pusher = order.places, order.pusher
    lacking = give_default(order) if places.unit.whole else {}
    before = state_of(places.newest().entry)
    done = Outcome(before, failed=lacking)
    if not places.roots.answers(before.leader):
        try:
            done.elected = order.elections.elect(gone=before.leader, why="the leader's root does not answer")
        except NotLeaderError as error:
            done.failed[before.leader] = str(error)
    pushed = pusher.push()
    for root, failure in pushed.failed.items():
        done.failed.setdefault(root, str(failure))
    for root in pusher.overdue(pushed.failed, places.newest()):
        pusher.shrink(root, str(pushed.failed[root]))
        done.shrunk.append(root)
    _take_back(order, places.newest(), done, segments)
    head = pusher.raise_hw(places.newest())
    done.state = state_of(head.entry)
    done.hw_raised = done.state.hw > before.hw
    return done


def replicate_first(order: Order, segments: Segments | None = None) -> None:
    """Replicate a unit, if it is there, before something else is done with it; what fails is logged."""
    where = order.places.unit.directory
    try:
        failed = replicate(order, segments).failed if order.exists() else {}
    except NotReplicatedError:
        return
    except ReplicaNotAvailableError as error:
        logger.warning("%s: not replicated: %s", where, error)
        return
    for root, why in failed.items():
        logger.warning("%s: root %s lacks what was decided: %s", where, root, why)


def _take_back(order: Order, newest: Stored, done: Outcome, segments: Segments | None) -> None:
    """Have each root that is out of sync, and answers, catch up and join."""
    state, places = state_of(newest.entry), order.places
    for root in state.replicas:
        if root in state.isr or root in done.failed:
            continue
        try:
            _come_near(order, root, newest, segments)
            if order.pusher.join(root):
                done.joined.append(root)
        except (CommitLogError, OSError) as error:
            places.forget(root)
            done.failed[root] = str(error)


def _come_near(order: Order, root: str, newest: Stored, segments: Segments | None) -> None:
    """Have a root learn until it soon learns what is left: once it joins, each writer waits for it.

    Raises:
        ReplicaNotAvailableError: others write as fast as it learns, or it can't.
        CommitLogError, OSError: it does not answer.
    """
    places = order.places
    for _ in range(_ROUNDS):
        began = places.now()
        learned = learn_or_catch_up(places, root, segments, newest)
        if places.now() - began <= _NEAR_SECONDS:
            return
        newest = places.newest()
        if newest.sequence - learned <= _NEAR_ENTRIES:
            return
    raise ReplicaNotAvailableError(
        f"{places.unit.directory}: root {root} lags {newest.sequence - learned} entries after {_ROUNDS} rounds: others "
        "write as fast as it learns, and would wait for it if it joined. Run it again when less is written"
    )


def of_each(act: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result | CommitLogError | OSError]:
    """Return what ``act`` does for each of many units, or why it failed, in their order: ``AT_ONCE`` at a time."""
    found = dict[int, _Result | CommitLogError | OSError]()

    def one(numbered: tuple[int, _Item]) -> None:
        number, item = numbered
        try:
            found[number] = act(item)
        except (CommitLogError, OSError) as error:
            found[number] = error

    share_out(one, enumerate(items), AT_ONCE)
    return [found[number] for number in sorted(found)]


def hand_over(order: Order, to: str | None, why: str, *, unclean: bool = False) -> ReplicaState:
    """Elect a root of the ISR: the one that is named, else of those that do not lead the one that has learned most.

    All that can learn does so first: what only the leader has (acks=1) would be void. A root that leads already stays.

    Returns:
        The state after it.

    Raises:
        NotLeaderError: it is not in sync, does not answer, or nobody else can lead: nothing was changed.
        ReplicaNotAvailableError: the metadata root does not answer.
    """
    order.elections.elect(to, why=why, unclean=unclean)
    return state_of(order.places.newest().entry)
