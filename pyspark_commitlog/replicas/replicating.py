"""Replicate: do for a unit what no writer waits for, and hand its lead over."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pyspark_commitlog.errors import CommitLogError, NotLeaderError, ReplicaNotAvailableError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replicas.catching_up import SegmentCopier, learn_or_catch_up
from pyspark_commitlog.replicas.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replicas.joining import give_default
from pyspark_commitlog.replicas.learning import Allowance, CollectedError, NowhereError
from pyspark_commitlog.replicas.order import Order
from pyspark_commitlog.replicas.replica_state import ReplicaState
from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.process import share_out

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

logger = logging.getLogger("pyspark_commitlog.replicas")

#: Units of which something is done at a time: what takes long is to wait for disks.
AT_ONCE = 4
#: A root is near that has learned all within so many seconds, or lacks so few entries; and how often it tries to be.
_NEAR_SECONDS, _NEAR_ENTRIES, _ROUNDS = 2.0, 16, 10
#: Seconds that a root which lags learns for while other units wait for their turn; and after all had theirs.
_TURN_SECONDS, _LATE_SECONDS = 10.0, 60.0


class LaggingError(ReplicaNotAvailableError):
    """A root has not learned all in the time that it was given: it lacks so many ``entries``."""

    def __init__(self, message: str, entries: int) -> None:
        super().__init__(message)
        self.entries = entries


@dataclass
class Outcome:
    """What was done for a unit; roots by their ids.

    ``failed`` has the roots that have not learned all that is decided, and why; ``lagging`` those of them that learn
    more when they are given more time, or segments, and how many entries each lacks.
    """

    state: ReplicaState
    elected: str | None = None
    joined: list[str] = field(default_factory=list)
    shrunk: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    hw_raised: bool = False
    lagging: dict[str, int] = field(default_factory=dict)

    def after(self, before: Outcome) -> Outcome:
        """Return the sum of both outcomes; ``lagging`` only if one came nearer."""
        return Outcome(
            self.state,
            self.elected or before.elected,
            list(dict.fromkeys([*before.joined, *self.joined])),
            list(dict.fromkeys([*before.shrunk, *self.shrunk])),
            self.failed,
            self.hw_raised or before.hw_raised,
            self.lagging if is_nearer(self.lagging, before.lagging) else {},
        )


def is_nearer(lagging: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Return whether a root lacks fewer entries than before (pure): more time helps. Others write meanwhile.

    One that did not lag before, or was given up, waits for the next run: two that take turns to lag would never end.
    """
    return any(lacks < before.get(root, 0) for root, lacks in lagging.items())


def replicate(
    order: Order,
    segments: SegmentCopier | None = None,
    seconds: float = math.inf,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Have all replicas learn what is decided; take back those that catch up; state the high watermark.

    A leader that does not answer is replaced. A root in sync that this process has not reached for
    ``replica.lag.time.max.ms`` is taken out. A root that is out of sync learns first, and joins then: one that can't
    learn holds up no writer. One that lags too far is given the ``segments`` of another first. A group that has fewer
    replicas than one that is made now gets more.

    Args:
        order: of the unit.
        segments: of the unit; None: a root that lacks what is collected still lags.
        seconds: that a root out of sync may take to learn; of a group, which is little, as many as it needs.
        stopped: is asked after each entry that such a root has learned whether to leave the rest.

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
    seconds = math.inf if places.unit.whole else seconds
    _take_back(order, places.newest(), done, segments, partial(Allowance, seconds=seconds, stopped=stopped))
    head = pusher.raise_hw(places.newest())
    done.state = state_of(head.entry)
    done.hw_raised = done.state.hw > before.hw
    return done


def take_turn(order: Order, *, learns: bool = True) -> Outcome:
    """Replicate a unit where others wait: a root that lags far learns for a while, and from no segments.

    Args:
        order: of the unit.
        learns: False: one entry at most, as it is learning all the same, in another thread.
    """
    return replicate(order, seconds=_TURN_SECONDS if learns else 0.0)


def replicate_late(order: Order, segments: SegmentCopier, stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Replicate a unit of which a root still lags after its turn, when all others had theirs."""
    return replicate(order, segments, _LATE_SECONDS, stopped)


def replicate_first(order: Order, *, learns: bool = True) -> dict[str, int]:
    """Replicate a unit, if it is there, before something else is done with it; what fails is logged.

    Args:
        order, learns: as of ``take_turn``.

    Returns:
        The roots that still lag, for ``catch_up``.
    """
    where = order.places.unit.directory
    try:
        done = take_turn(order, learns=learns) if order.exists() else None
    except NotReplicatedError:
        return {}
    except ReplicaNotAvailableError as error:
        logger.warning("%s: not replicated: %s", where, error)
        return {}
    return {} if done is None else _logged(order, done).lagging


def catch_up(
    order: Order, segments: SegmentCopier, lagging: dict[str, int], stopped: Callable[[], bool]
) -> dict[str, int]:
    """Have the roots catch up that lag; what fails is logged.

    Returns:
        Those that still lag; none where none has come nearer.
    """
    try:
        done = replicate_late(order, segments, stopped)
    except (CommitLogError, OSError) as error:
        logger.warning("%s: not replicated: %s", order.places.unit.directory, error)
        return {}
    _logged(order, done)
    return done.lagging if is_nearer(done.lagging, lagging) else {}


def have_new_ones_join(order: Order, before: Stored, segments: SegmentCopier) -> None:
    """Have the roots catch up that a unit which is made again did not live on; what fails is logged.

    Args:
        order: of the unit.
        before: its newest entry, before it was made again.
        segments: of the unit.
    """
    held = state_of(before.entry).replicas if before.entry.features else order.places.deciding()
    try:
        replicas = state_of(order.places.newest().entry).replicas
    except (CommitLogError, OSError) as error:  # it is made: `replicate` goes on
        logger.warning("%s: it is not known which replicas catch up: %s", order.places.unit.directory, error)
        return
    if set(replicas) - {*held}:
        catch_up(order, segments, {}, lambda: False)


def _logged(order: Order, done: Outcome) -> Outcome:
    for root, why in done.failed.items():
        logger.warning("%s: root %s lacks what was decided: %s", order.places.unit.directory, root, why)
    return done


def _take_back(
    order: Order, newest: Stored, done: Outcome, segments: SegmentCopier | None, allowed: Callable[[Clock], Allowance]
) -> None:
    """Have each root that is out of sync, and answers, catch up and join."""
    state, places = state_of(newest.entry), order.places
    for root in state.replicas:
        if root in state.isr or root in done.failed:
            continue
        try:
            _come_near(order, root, newest, segments, allowed)
            if order.pusher.join(root):
                done.joined.append(root)
        except (CommitLogError, OSError) as error:
            places.forget(root)
            done.failed[root] = str(error)
            if isinstance(error, LaggingError):
                done.lagging[root] = error.entries
            elif segments is None and isinstance(error, CollectedError | NowhereError):
                done.lagging[root] = sys.maxsize


def _come_near(
    order: Order, root: str, newest: Stored, segments: SegmentCopier | None, allowed: Callable[[Clock], Allowance]
) -> None:
    """Have a root learn until it soon learns what is left: once it joins, each writer waits for it.

    Raises:
        LaggingError: it learned for as long as it was allowed to, and lacks more than a few entries.
        ReplicaNotAvailableError: others write as fast as it learns, or it can't.
        CommitLogError, OSError: it does not answer.
    """
    places, clock = order.places, order.places.at(root).storage.clock
    time = allowed(clock)
    for _ in range(_ROUNDS):
        began = clock.monotonic()
        learned = learn_or_catch_up(places, root, segments, newest, time)
        over = time.is_over()
        if not over and clock.monotonic() - began <= _NEAR_SECONDS:
            return
        newest = places.newest()
        if newest.sequence - learned <= _NEAR_ENTRIES:
            return
        if over:
            lacks = newest.sequence - learned
            raise LaggingError(
                f"{places.unit.directory}: root {root} still lags {lacks} entries. It learns on with the next run, or "
                "by `commitlog replicate` of this topic alone", lacks,
            )  # fmt: skip
    raise ReplicaNotAvailableError(
        f"{places.unit.directory}: root {root} lags {newest.sequence - learned} entries after {_ROUNDS} rounds: others "
        "write as fast as it learns, and would wait for it if it joined. Run it again when less is written"
    )


def of_each(act: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result | CommitLogError | OSError]:
    """Return the result of ``act``, or its error, for each unit.

    In their order; ``AT_ONCE`` at a time.
    """
    found = dict[int, _Result | CommitLogError | OSError]()

    def act_on(numbered: tuple[int, _Item]) -> None:
        number, item = numbered
        try:
            found[number] = act(item)
        except (CommitLogError, OSError) as error:
            found[number] = error

    share_out(act_on, enumerate(items), AT_ONCE)
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
