"""Replicate a unit: push entries, readmit lagging roots, elect a leader, publish the high watermark."""

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
from pyspark_commitlog.replication.admin.joining import give_default
from pyspark_commitlog.replication.follower.catching_up import SegmentCopier, learn_or_catch_up
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.protocol.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replication.protocol.learning import Allowance, CollectedError, NowhereError
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.storage import Clock
from pyspark_commitlog.storage.process import share_out

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

logger = logging.getLogger("pyspark_commitlog.replication")

#: Units in parallel: most time is spent waiting for disks.
AT_ONCE = 4
#: A root is near if it learns all within these seconds, or lacks at most these entries. Rounds before it is given up.
_NEAR_SECONDS, _NEAR_ENTRIES, _ROUNDS = 2.0, 16, 10
#: Seconds for a lagging root to learn: in the first pass, while other units wait; in the second, after all of them.
_TURN_SECONDS, _LATE_SECONDS = 10.0, 60.0


class LaggingError(ReplicaNotAvailableError):
    """A root still lacks `entries` after its time."""

    def __init__(self, message: str, entries: int) -> None:
        super().__init__(message)
        self.entries = entries


@dataclass
class Outcome:
    """Outcome of a unit's replication; roots by id.

    `failed`: the error of each that lacks something. `lagging`: entries that each still lacks;
    `sys.maxsize` if it needs segments.
    """

    state: ReplicaState
    elected: str | None = None
    joined: list[str] = field(default_factory=list)
    shrunk: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    hw_raised: bool = False
    lagging: dict[str, int] = field(default_factory=dict)

    def after(self, before: Outcome) -> Outcome:
        """Return it merged with an earlier run's; `lagging` only if a root came nearer."""
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
    """Whether a root lacks less than before (pure).

    Roots that newly lag do not count: two that alternate would never end.
    """
    return any(lacks < before.get(root, 0) for root, lacks in lagging.items())


def replicate(
    decided_log: DecidedLog,
    segments: SegmentCopier | None = None,
    seconds: float = math.inf,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Push decided entries, readmit and remove roots, and publish the high watermark.

    Lost leaders are replaced; in-sync roots overdue by `replica.lag.time.max.ms` leave the ISR. Out-of-sync roots learn
    before they join, so that no writer waits for them. Groups get missing replicas.

    Args:
        segments: for roots that lack collected entries; None: they keep lagging.
        seconds: for each out-of-sync root to learn; unbounded for a small group.
    """
    places, pusher = decided_log.places, decided_log.pusher
    lacking = give_default(decided_log) if places.unit.whole else {}
    before = state_of(places.newest().entry)
    done = Outcome(before, failed=lacking)
    if not places.roots.answers(before.leader):
        try:
            done.elected = decided_log.elections.elect(gone=before.leader, why="the leader's root does not answer")
        except NotLeaderError as error:
            done.failed[before.leader] = str(error)
    pushed = pusher.push()
    for root, failure in pushed.failed.items():
        done.failed.setdefault(root, str(failure))
    for root in pusher.overdue(pushed.failed, places.newest()):
        pusher.shrink(root, str(pushed.failed[root]))
        done.shrunk.append(root)
    seconds = math.inf if places.unit.whole else seconds
    _readmit(decided_log, places.newest(), done, segments, partial(Allowance, seconds=seconds, stopped=stopped))
    head = pusher.raise_hw(places.newest())
    done.state = state_of(head.entry)
    done.hw_raised = done.state.hw > before.hw
    return done


def take_turn(decided_log: DecidedLog, *, learns: bool = True) -> Outcome:
    """Replicate a unit while others wait: 10 s a root, no segments.

    `learns`: False for one entry at most, as another thread is catching the root up.
    """
    return replicate(decided_log, seconds=_TURN_SECONDS if learns else 0.0)


def replicate_late(
    decided_log: DecidedLog, segments: SegmentCopier, stopped: Callable[[], bool] = lambda: False
) -> Outcome:
    """Replicate a unit that still lags after the first pass."""
    return replicate(decided_log, segments, _LATE_SECONDS, stopped)


def replicate_first(decided_log: DecidedLog, *, learns: bool = True) -> dict[str, int]:
    """Replicate an existing unit; log failures.

    Return the roots that still lag, for `catch_up`.
    """
    where = decided_log.places.unit.directory
    try:
        done = take_turn(decided_log, learns=learns) if decided_log.exists() else None
    except NotReplicatedError:
        return {}
    except ReplicaNotAvailableError as error:
        logger.warning("%s: not replicated: %s", where, error)
        return {}
    return {} if done is None else _logged(decided_log, done).lagging


def catch_up(
    decided_log: DecidedLog, segments: SegmentCopier, lagging: dict[str, int], stopped: Callable[[], bool]
) -> dict[str, int]:
    """Let lagging roots catch up; log failures.

    Return the roots that still lag; none if no root came nearer.
    """
    try:
        done = replicate_late(decided_log, segments, stopped)
    except (CommitLogError, OSError) as error:
        logger.warning("%s: not replicated: %s", decided_log.places.unit.directory, error)
        return {}
    _logged(decided_log, done)
    return done.lagging if is_nearer(done.lagging, lagging) else {}


def have_new_ones_join(decided_log: DecidedLog, before: Stored, segments: SegmentCopier) -> None:
    """Let a recreated unit's new replicas catch up; log failures."""
    held = state_of(before.entry).replicas if before.entry.is_replicated else decided_log.places.deciding()
    try:
        replicas = state_of(decided_log.places.newest().entry).replicas
    except (CommitLogError, OSError) as error:  # it is created: `replicate` goes on
        logger.warning("%s: it is not known which replicas catch up: %s", decided_log.places.unit.directory, error)
        return
    if set(replicas) - {*held}:
        catch_up(decided_log, segments, {}, lambda: False)


def _logged(decided_log: DecidedLog, done: Outcome) -> Outcome:
    for root, why in done.failed.items():
        logger.warning("%s: root %s lacks what was decided: %s", decided_log.places.unit.directory, root, why)
    return done


def _readmit(
    decided_log: DecidedLog,
    newest: Stored,
    done: Outcome,
    segments: SegmentCopier | None,
    allowed: Callable[[Clock], Allowance],
) -> None:
    state, places = state_of(newest.entry), decided_log.places
    for root in state.replicas:
        if root in state.isr or root in done.failed:
            continue
        try:
            _come_near(decided_log, root, newest, segments, allowed)
            if decided_log.pusher.join(root):
                done.joined.append(root)
        except (CommitLogError, OSError) as error:
            places.forget(root)
            done.failed[root] = str(error)
            if isinstance(error, LaggingError):
                done.lagging[root] = error.entries
            elif segments is None and isinstance(error, CollectedError | NowhereError):
                done.lagging[root] = sys.maxsize


def _come_near(
    decided_log: DecidedLog,
    root: str,
    newest: Stored,
    segments: SegmentCopier | None,
    allowed: Callable[[Clock], Allowance],
) -> None:
    """Let a root learn until little is left: once it has joined, writers wait for it."""
    places, clock = decided_log.places, decided_log.places.at(root).storage.clock
    allowance = allowed(clock)
    for _ in range(_ROUNDS):
        began = clock.monotonic()
        learned = learn_or_catch_up(places, root, segments, newest, allowance)
        over = allowance.is_over()
        if not over and clock.monotonic() - began <= _NEAR_SECONDS:
            return
        newest = places.newest()
        if newest.sequence - learned <= _NEAR_ENTRIES:
            return
        if over:
            lacks = newest.sequence - learned
            raise LaggingError(
                f"{places.unit.directory}: root {root} still lags {lacks} entries. It learns on with the next run, or "
                "by `commitlog replicas sync` of this topic alone", lacks,
            )  # fmt: skip
    raise ReplicaNotAvailableError(
        f"{places.unit.directory}: root {root} lags {newest.sequence - learned} entries after {_ROUNDS} rounds: others "
        "write as fast as it learns, and would wait for it if it joined. Run it again when less is written"
    )


def of_each(act: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result | CommitLogError | OSError]:
    """Return results or errors in order, `AT_ONCE` in parallel."""
    found = dict[int, _Result | CommitLogError | OSError]()

    def act_on(numbered: tuple[int, _Item]) -> None:
        number, item = numbered
        try:
            found[number] = act(item)
        except (CommitLogError, OSError) as error:
            found[number] = error

    share_out(act_on, enumerate(items), AT_ONCE)
    return [found[number] for number in sorted(found)]


def hand_over(decided_log: DecidedLog, to: str | None, why: str, *, unclean: bool = False) -> ReplicaState:
    """Elect `to`, or the non-leader of the ISR that learned most.

    All learn first: what only the leader has (acks=1) would be void. If `to` leads already, nothing changes.
    """
    decided_log.elections.elect(to, why=why, unclean=unclean)
    return state_of(decided_log.places.newest().entry)
