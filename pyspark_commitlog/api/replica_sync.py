"""`ReplicaSync`: replicas learn, in rounds, and catch up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from pyspark_commitlog.api.replace_metadata import finish_replacing
from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError, UnknownTopicError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.model import Replicated
from pyspark_commitlog.replication.admin.joining import add_replicas, have_fewer
from pyspark_commitlog.replication.admin.replicating import (
    Outcome,
    catch_up,
    of_each,
    replicate,
    replicate_first,
    replicate_late,
    take_turn,
)
from pyspark_commitlog.replication.admin.settings import JOURNALS, spread
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.placement import candidates
from pyspark_commitlog.replication.protocol.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.maintain.last_maintained import renew_note
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.replica_fetch.settled_copy import SettledTopic
from pyspark_commitlog.topic.topic_log import TopicLog, unknown_topic

#: Why a topic is left out of a round over all: it is being made, is no topic, or is on one root.
_NOT_REPLICATED = (UnknownTopicError, UsageError, NotReplicatedError)
#: How the sync of a topic ended: by an outcome, or by an error.
Ended: TypeAlias = Outcome | CommitLogError | OSError


class ReplicaSync:
    """Syncs the replicas of a root's topics, groups and settings; remembers between rounds which roots lag.

    Threads may share it: one gives topics turns while another is in `catch_up`.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        #: Per topic: the roots that lagged at its last turn, and how many entries each lacks.
        self._lagging = dict[str, dict[str, int]]()
        #: The topics being caught up now, and those of them whose segments are copied.
        self._catching, self._copying = set[str](), set[str]()

    def sync(self, name: str) -> Replicated:
        """Sync a topic's replicas, and wait for lagging roots; raises as `Replicas.sync`."""
        return _replicated(name, replicate(order_of(self._root, name), TopicSegments(name)))

    def take_turn(self, name: str) -> Replicated:
        """Give a topic one turn of 10 s; `catch_up` goes on with lagging roots."""
        return _replicated(name, self._turn(name, order_of(self._root, name)))

    def _turn(self, name: str, decided_log: DecidedLog) -> Outcome:
        self._lagging.pop(name, None)
        done = take_turn(decided_log, learns=name not in self._catching)
        if name in self._catching:
            done.failed.update(dict.fromkeys(done.lagging, "it is catching up"))
        self.set_lagging(name, done.lagging)
        return done

    def sync_all(self, *, catch_up: bool = True) -> tuple[Replicated, ...]:
        """Sync all topics, groups and settings, four at a time; raises as `Replicas.sync`.

        Args:
            catch_up: repeat until no root lags, or the lag of each stops shrinking; False: one turn each; the caller
                calls `catch_up`.
        """
        self._root.check()
        self._root.check_replicated()
        failed = self._sync_settings()
        found = dict[str, Ended]()
        while True:
            found, groups = self._one_round(found, catch_up=catch_up)
            if not catch_up or not any(_is_late(each) for each in found.values()):
                break
        done = [_replicated(name, each) for name, each in found.items() if isinstance(each, Outcome)]
        failed += _failures(found.values(), _NOT_REPLICATED) + _failures(groups, NotReplicatedError)
        if failed:
            raise ExceptionGroup(f"{len(failed)} topics or groups could not be replicated", failed)
        return tuple(done)

    def _sync_settings(self) -> list[Exception]:
        """Copy the settings to all roots, finish the replacement of a metadata root; return failures."""
        failed = list[Exception]()
        for settings in JOURNALS:
            try:
                spread(Roots.of(self._root.storage), settings)
            except ReplicaNotAvailableError:  # nothing can be decided
                raise
            except (CommitLogError, OSError) as error:
                failed.append(error)
        try:
            finish_replacing(self._root)
        except (CommitLogError, OSError) as error:
            failed.append(error)
        return failed

    def _one_round(
        self, before: Mapping[str, Ended], *, catch_up: bool
    ) -> tuple[dict[str, Ended], list[CommitLogError | OSError | None]]:
        """Give each topic and group a turn; then the topics whose roots lagged after the round before."""

        def turn(name: str) -> Outcome:
            decided_log, last = order_of(self._root, name), before.get(name)
            if not catch_up:
                return self._turn(name, decided_log)
            done = replicate_late(decided_log, TopicSegments(name)) if _is_late(last) else take_turn(decided_log)
            return done.after(last) if isinstance(last, Outcome) else done

        names = self._root.names()
        late = [name for name in names if _is_late(before.get(name))]
        first = [name for name in names if name not in late]
        found = dict(zip(first, of_each(turn, first), strict=True))
        groups = of_each(self._sync_group, group_names(self._root))
        found.update(zip(late, of_each(turn, late) if late else (), strict=True))
        return {name: found[name] for name in names}, groups

    def catch_up(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Catch up the roots that lagged at the last turn of their topics.

        Four topics at a time and a minute per lagging root, repeated until none lags, or its lag stops shrinking, as
        others write as fast. A root that lacks entries collected everywhere gets segments first, without a time limit.
        Failures are logged. Another thread may give topics turns meanwhile, if it asks `sync_if_copying`.

        `stopped` is asked after each entry, and before each frame.
        """

        def catch_up_topic(name: str) -> None:
            lagging = self._lagging.pop(name, {})
            if stopped():
                return
            self._catching.add(name)
            try:
                decided_log = TopicLog(self._root.storage, name).journal.decided_log()
                lags = catch_up(decided_log, _Noted(name, stopped, self._copying), lagging, stopped)
                # Set by a turn meanwhile: a root that came no nearer waits for the next turn.
                self._lagging.pop(name, None)
                self.set_lagging(name, lags)
            finally:
                self._catching.discard(name)
                self._copying.discard(name)

        while self._lagging:
            of_each(catch_up_topic, sorted(self._lagging))

    def sync_if_copying(self, name: str) -> bool:
        """Sync a topic whose segments `catch_up` copies in another thread; return whether it does.

        Until that ends this process does not maintain the topic: it changes nothing of what it copies.
        """
        if name not in self._copying:
            return False
        self.sync_first(name)
        topic = TopicLog(self._root.storage, name)
        with suppress(CommitLogError, OSError):  # without the note writers warn that nobody maintains it
            renew_note(topic, topic.newest()[1].topic_id)
        return True

    def replace_leaders(self, names: Sequence[str]) -> None:
        """Elect another leader of each topic whose leader's root does not answer, four at a time.

        Call it before long operations. If all roots answer, no topic is looked at. Failures are ignored: the topic's
        next operation reports them.
        """
        with suppress(CommitLogError, OSError):
            self._root.check()
            if not self._root.is_replicated:
                return
            roots = Roots.of(self._root.storage)
            if not all(roots.answers(address.id) for address in roots.listed().data):
                of_each(lambda name: order_of(self._root, name).elections.leader(), names)

    def sync_first(self, name: str) -> dict[str, int]:
        """Sync a topic before it is maintained; log failures of single replicas.

        Return the roots that still lag, for `set_lagging` after the maintenance.
        """
        self._root.check()
        if not self._root.is_replicated:
            return {}
        self._root.local_access.check(Operation.ADMIN, name)
        self._lagging.pop(name, None)
        decided_log = TopicLog(self._root.storage, name).journal.decided_log()
        return replicate_first(decided_log, learns=name not in self._catching)

    def set_lagging(self, name: str, lags: dict[str, int]) -> None:
        """Have `catch_up` go on with these roots: lacking entries by root id."""
        if lags:
            self._lagging[name] = lags

    def _sync_group(self, group: str) -> None:
        decided_log = self._root.group(group).journal.decided_log()
        if decided_log.exists():
            for root, why in replicate(decided_log).failed.items():
                raise ReplicaNotAvailableError(f"group {group!r}: root {root} lacks what was committed: {why}")


def order_of(root: Root, name: str) -> DecidedLog:
    """DecidedLog of a topic that the principal may administer."""
    root.check_replica_admin(name)
    root.check_store()
    decided_log = TopicLog(root.storage, name).journal.decided_log()
    if not decided_log.exists():
        raise unknown_topic(root.storage, name)
    return decided_log


def group_names(root: Root) -> list[str]:
    """Names of the groups at the metadata root, sorted."""
    names = (paths.parse_group(name) for name in (root.deciders or root.deciding).names(paths.GROUPS))
    return sorted(name for name in names if name is not None)


def set_replication_factor(root: Root, name: str, factor: int) -> Replicated:
    """See `Topic.set_replication_factor`."""
    decided_log = order_of(root, name)
    newest = decided_log.places.newest()
    TopicLog(root.storage, name).newest_at(newest, None)  # raises if it is deleted
    held = state_of(newest.entry).replicas if newest.entry.is_replicated else (decided_log.places.decider().id,)
    if factor < 1:
        raise UsageError(f"replication.factor={factor} is not allowed: 1 or more")
    if factor > len(held):
        add_replicas(decided_log, candidates(decided_log.places, factor - len(held)))
    if factor < len(held):
        have_fewer(decided_log, factor)
    if not decided_log.places.newest().entry.is_replicated:
        return Replicated(name, held[0], held)
    return _replicated(name, replicate(decided_log, TopicSegments(name)))


class _Noted(TopicSegments):
    """Segments of a topic whose name goes into a set before they are copied."""

    def __init__(self, name: str, stopped: Callable[[], bool], noted: set[str]) -> None:
        super().__init__(name, stopped)
        self._noted = noted

    def settled(self, donor: Storage) -> SettledTopic:
        """Note it: what is settled from now on is copied."""
        self._noted.add(self._name)
        return super().settled(donor)


def _failures(ended: Iterable[object], passed: type[Exception] | tuple[type[Exception], ...]) -> list[Exception]:
    return [each for each in ended if isinstance(each, Exception) and not isinstance(each, passed)]


def _is_late(found: Ended | None) -> bool:
    return isinstance(found, Outcome) and bool(found.lagging)


def _replicated(name: str, done: Outcome) -> Replicated:
    state = done.state
    return Replicated(
        name, state.leader, state.isr, done.elected, tuple(done.joined), tuple(done.shrunk), done.failed, done.hw_raised
    )
