"""What can be done with roots that belong together, and with the replicas of their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, overload

from pyspark_commitlog.access import Operation
from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    ReplicaNotAvailableError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.last_maintained import note_maintained
from pyspark_commitlog.log.maintain.catch_up import SettledTopic, TopicSegments
from pyspark_commitlog.log.maintain.mend import warn_of_void_records
from pyspark_commitlog.log.topic import TopicLog, unknown_topic
from pyspark_commitlog.metadata import MetadataRoots
from pyspark_commitlog.model import Recovered, Repaired, Replicated, RootDescription
from pyspark_commitlog.repairing import drop_void_records, repair, repair_unsettled
from pyspark_commitlog.replicas.entry_fields import NotReplicatedError, state_of
from pyspark_commitlog.replicas.joining import (
    add_replicas,
    add_roots,
    have_fewer,
    remove_replica,
    remove_root,
    replace_replica,
)
from pyspark_commitlog.replicas.order import Order
from pyspark_commitlog.replicas.placement import candidates, lags_behind
from pyspark_commitlog.replicas.recovering import (
    SurvivingRoots,
    UnitRecovery,
    begin,
    damaged_settings,
    finish,
    look_at,
    recover,
    surviving_roots,
)
from pyspark_commitlog.replicas.replica_state import ReplicaState
from pyspark_commitlog.replicas.replicating import (
    Outcome,
    catch_up,
    hand_over,
    of_each,
    replicate,
    replicate_first,
    replicate_late,
    take_turn,
)
from pyspark_commitlog.replicas.roots import Listed, Roots, root_id
from pyspark_commitlog.replicas.settings import JOURNALS, spread
from pyspark_commitlog.replicas.unit_status import fault_at
from pyspark_commitlog.storage import Storage

#: Why a topic is left out where all are replicated: it is being made, is none, or is on one root.
_NOT_REPLICATED = (UnknownTopicError, UsageError, NotReplicatedError)
#: What became of a topic that was to be replicated: what was done for it, or why it failed.
Ended: TypeAlias = Outcome | CommitLogError | OSError


class ReplicatedRoot(MetadataRoots):
    """A root that may belong together with others; see ``CommitLog``."""

    def _begin(self, storage: Storage, principal: str | None) -> None:
        super()._begin(storage, principal)
        #: Of each topic that a turn left so: the roots that lag, and how many entries each lacks.
        self._lagging = dict[str, dict[str, int]]()
        #: The topics that ``catch_up`` is at, and those of them whose segments it copies.
        self._catching, self._copying = set[str](), set[str]()

    def replicas(self) -> tuple[RootDescription, ...]:
        """Return the roots that belong together: which of them answer, and which topics each leads.

        A root that stands alone is the only one. Of the topics those that the principal may see.

        Raises:
            RootNotFoundError: there is no root here.
            CorruptionError: the list of the roots is damaged.
        """
        self._check_root()
        if not self._is_one_of_several:
            names = tuple(name for name in self.listed() if self._led_by(name) is not None)
            return (RootDescription(root_id(self._storage), self.url, metadata=True, leads=names),)
        roots = Roots.of(self._storage)
        roots.compare()
        listed, leads = roots.listed(), dict[str, list[str]]()
        for name in self.listed():
            leads.setdefault(self._led_by(name) or "", []).append(name)
        data = {address.id for address in listed.data}
        metadata = {address.id for address in listed.metadata}
        return tuple(
            RootDescription(
                address.id,
                address.url,
                address.id in data,
                address.id in metadata,
                fault_at(roots, address),
                tuple(leads.get(address.id, ())),
            )
            for address in {each.id: each for each in (*listed.data, *listed.metadata)}.values()
        )

    def _led_by(self, name: str) -> str | None:
        """Return the root that leads a topic, by what is decided, else by what is learned here; None: no topic."""
        try:
            topic = TopicLog(self._storage, name)
            stored = self._newest(topic)
        except (CommitLogError, OSError):  # damaged, or nobody's directory
            return None
        if stored is None or topic.state_of(stored.entry).deleted:
            return None
        if stored.entry.features:
            return state_of(stored.entry).leader
        if self._is_one_of_several:  # it is on the root that decides alone
            return Roots.of(self._storage).listed().metadata[0].id
        return root_id(self._storage)

    def _newest(self, topic: TopicLog) -> Stored | None:
        if self._is_one_of_several:
            with suppress(CommitLogError, OSError):
                return topic.journal.order().places.newest()
        return topic.journal.head()

    def elect(self, name: str, to: str | None = None, *, unclean: bool = False) -> str:
        """Have another root lead a topic: one of those in sync, so nothing that was acknowledged with acks=all is lost.

        While the present leader answers, all in sync learn first what it has; it stays in sync.

        Args:
            name: of the topic.
            to: the root's id, directory or URL; None for the one in sync that has learned most, the leader left out.
            unclean: where the leader is gone and no other root in sync can lead, elect one that is not in sync. Records
                that it lacks are lost for good, also what was acknowledged and read; their offsets stay a gap.

        Returns:
            The id of the root that leads now; where ``to`` did so already nothing was changed.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: there is no such root, or the root stands alone.
            NotLeaderError: that root is not in sync or does not answer, or no other one can lead; nothing was changed.
            ReplicaNotAvailableError: the metadata root does not answer: nothing can be decided.
        """
        order = self._order(name)
        TopicLog(self._storage, name).newest_at(order.places.newest(), None)  # raises where it is deleted
        root = None if to is None else self._root_named(to)
        return hand_over(order, root, "it was asked for", unclean=unclean).leader

    def _root_named(self, named: str) -> str:
        """Return the id of a root that belongs together with this one."""
        addresses = Roots.of(self._storage).listed().data
        for address in addresses:
            if named in (address.id, address.url) or self._storage.peer(named).url == address.url:
                return address.id
        raise UsageError(f"{named} is none of the roots that hold data: {', '.join(map(str, addresses))}")

    @overload
    def replicate(self, name: str, *, catch_up: bool = ...) -> Replicated: ...

    @overload
    def replicate(self, name: None = None, *, catch_up: bool = ...) -> tuple[Replicated, ...]: ...

    def replicate(self, name: str | None = None, *, catch_up: bool = True) -> Replicated | tuple[Replicated, ...]:
        """Do for a topic what nobody who writes waits for.

        All replicas learn what is decided, those that answer again are taken back into the ISR, the high watermark is
        stated, and a leader that does not answer is replaced. Safe at any time, from any process, twice at once.
        Nothing is settled or removed: ``maintain`` does that, at each root. Without a name also consumer groups, and
        root-wide defaults and access rules are copied to all roots; four topics, or groups, at a time. A root that lags
        far keeps no other topic waiting: each has a turn of 10 s, then those that lag have a minute, and so on until
        none does, or others write as fast as it learns. A metadata root whose replacement was cut off is replaced.

        Args:
            name: of the topic; None for all of them, deleted ones too.
            catch_up: wait for roots that lag; False: each topic has one turn, and the caller calls ``catch_up``.

        Raises:
            UsageError: the root stands alone.
            UnknownTopicError: there is no such topic.
            ReplicaNotAvailableError: the metadata root does not answer: nothing can be decided.
            ExceptionGroup: of all topics, groups and settings some failed; the others were replicated.
        """
        if name is None:
            return self._replicate_all(catch_up=catch_up)
        order = self._order(name)
        return _replicated(name, replicate(order, TopicSegments(name)) if catch_up else self._turn(name, order))

    def _turn(self, name: str, order: Order) -> Outcome:
        """Give a topic its turn; ``catch_up`` goes on with it where a root lags."""
        self._lagging.pop(name, None)
        done = take_turn(order, learns=name not in self._catching)
        if name in self._catching:
            done.failed.update(dict.fromkeys(done.lagging, "it is catching up"))
        if done.lagging:
            self._lagging[name] = done.lagging
        return done

    def _replicate_all(self, *, catch_up: bool) -> tuple[Replicated, ...]:
        self._check_root()
        self._check_several()
        failed = list[Exception]()
        for settings in JOURNALS:
            try:
                spread(Roots.of(self._storage), settings)
            except ReplicaNotAvailableError:  # nothing can be decided
                raise
            except (CommitLogError, OSError) as error:
                failed.append(error)
        try:
            self._finish_replacing()
        except (CommitLogError, OSError) as error:
            failed.append(error)
        found = dict[str, Ended]()
        while True:
            found, groups = self._one_round(found, catch_up=catch_up)
            if not catch_up or not any(_is_late(each) for each in found.values()):
                break
        done = [_replicated(name, each) for name, each in found.items() if isinstance(each, Outcome)]
        failed += [e for e in found.values() if isinstance(e, Exception) and not isinstance(e, _NOT_REPLICATED)]
        failed += [each for each in groups if isinstance(each, Exception) and not isinstance(each, NotReplicatedError)]
        if failed:
            raise ExceptionGroup(f"{len(failed)} topics or groups could not be replicated", failed)
        return tuple(done)

    def _one_round(
        self, before: Mapping[str, Ended], *, catch_up: bool
    ) -> tuple[dict[str, Ended], list[CommitLogError | OSError | None]]:
        """Give each topic a turn, and each group; then the topics of which a root lagged after the round before."""

        def turn(name: str) -> Outcome:
            order, last = self._order(name), before.get(name)
            if not catch_up:
                return self._turn(name, order)
            done = replicate_late(order, TopicSegments(name)) if _is_late(last) else take_turn(order)
            return done.after(last) if isinstance(last, Outcome) else done

        names = self._names()
        late = [name for name in names if _is_late(before.get(name))]
        first = [name for name in names if name not in late]
        found = dict(zip(first, of_each(turn, first), strict=True))
        groups = of_each(self._replicate_group, self._group_names())
        found.update(zip(late, of_each(turn, late) if late else (), strict=True))
        return {name: found[name] for name in names}, groups

    def catch_up(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Have the roots catch up that lagged when topics had their turn (``catch_up=False``).

        Four topics at a time, a minute for each root that lags, and so on until none does, or others write as fast as
        it learns. Where what it lacks is collected, and no root has it as entries, it gets segments first, which has no
        limit. What fails is logged. Another thread may give topics turns meanwhile: it asks ``keep_replicated`` first.

        Args:
            stopped: is asked after each entry, and before each frame, whether to leave the rest.
        """

        def catch_up_topic(name: str) -> None:
            lagging = self._lagging.pop(name, {})
            if stopped():
                return
            self._catching.add(name)
            try:
                order = TopicLog(self._storage, name).journal.order()
                lags = catch_up(order, _Noted(name, stopped, self._copying), lagging, stopped)
                self._lagging.pop(name, None)  # of a turn meanwhile: what came no nearer waits for the next one
                if lags:
                    self._lagging[name] = lags
            finally:
                self._catching.discard(name)
                self._copying.discard(name)

        while self._lagging:
            of_each(catch_up_topic, sorted(self._lagging))

    def keep_replicated(self, name: str) -> bool:
        """Replicate a topic whose segments ``catch_up`` copies, in another thread; return whether that is so.

        It is to be maintained when that is over: this process changes nothing of what it copies.

        Args:
            name: of the topic.
        """
        if name not in self._copying:
            return False
        self._replicate_first(name)
        topic = TopicLog(self._storage, name)
        with suppress(CommitLogError, OSError):  # else writers are warned that nobody maintains it
            note_maintained(topic, topic.newest()[1].topic_id)
        return True

    def replace_leaders(self, names: Sequence[str]) -> None:
        """Elect another leader of each topic whose leader's root does not answer: before what takes long.

        Four topics at a time; none is looked at while all roots answer. What fails is no error here: what is done with
        the topic then reports it.

        Args:
            names: of topics.
        """
        with suppress(CommitLogError, OSError):
            self._check_root()
            if not self._is_one_of_several:
                return
            roots = Roots.of(self._storage)
            if not all(roots.answers(address.id) for address in roots.listed().data):
                of_each(lambda name: self._order(name).elections.leader(), names)

    def repair(self, name: str) -> Repaired:
        """Fetch what is damaged, or missing, of a topic at this root from others that have it.

        Entries, their tables and chunks as files, checked by CRC; of segments the damaged offsets, whose frames are
        written again. Safe beside readers and writers; settling waits meanwhile. All segments are read.

        Args:
            name: of the topic.

        Returns:
            What was fetched, and what no other root has: ``void`` gives that up.

        Raises:
            UsageError: the root stands alone.
            UnknownTopicError: there is no such topic here.
            ConflictError: a settler holds the lock all the time: run it again.
            CorruptionError: a manifest, or the newest settle entry, is damaged: take this root out and add it empty.
        """
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, name)
        self._check_store()
        return repair(self._storage, paths.check_topic_name(name))

    def _repair_unsettled(self, name: str) -> bool:
        """Repair what a settler needs of a topic with replicas; return whether anything was fetched."""
        return self._is_one_of_several and repair_unsettled(self._storage, name)

    def _drop_void_records(self, name: str) -> None:
        """Drop settled records of a topic with replicas that an unclean election made void; warn of what stays."""
        if not self._is_one_of_several:
            return
        try:
            left = drop_void_records(self._storage, name).left
        except (CommitLogError, OSError) as error:
            left = (str(error),)
        for why in left:
            warn_of_void_records(name, self._storage.url, why)

    def _repair_before_void(self, name: str) -> None:
        """Fetch what other roots have of a topic with replicas, before what none has is given up.

        Raises:
            ReplicaNotAvailableError: one does not answer, and may have it.
        """
        self._check_root()
        if not self._is_one_of_several:
            return
        with suppress(CorruptionError):  # then it is what is repaired
            head = TopicLog(self._storage, name).journal.head()
            if head is None or not head.entry.features:
                return
        done = self.repair(name)
        if done.left and done.away:
            raise ReplicaNotAvailableError(
                f"topic {name!r}: nothing was voided: another root may have what is damaged: {'; '.join(done.away)}. "
                "Bring it back, or repair it first; what is lost for good is taken out with `commitlog replicas remove`"
            )

    def recover(self, metadata: str, lost: Sequence[str], *, execute: bool = False) -> tuple[Recovered, ...]:
        """Go on without a metadata root that is lost for good; by default only say what that would come to.

        Of each topic the longest journal that is left is taken, and its root leads, alone in sync; the others learn
        from it and join; consumer groups likewise. What only the roots that are given up knew is gone. They must stay
        off: one that comes back can't take part, and what a process does at it alone is in no log that goes on.
        Running it again finishes what was cut off.

        Args:
            metadata: where it is decided from now on: a root that is left, or an empty place.
            lost: the roots that are given up, by their ids or URLs: all that do not answer, the metadata root too.
            execute: do it; otherwise nothing is changed.

        Returns:
            A row for each topic, and for each group; and for the settings that no root has whole.

        Raises:
            UsageError: a root that is given up answers, one that is not does not, or the metadata is not lost.
            CommitLogError, OSError: a root that is left fails.
        """
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, ALL)
        survivors = surviving_roots(Roots.of(self._storage), self._storage.peer(metadata), lost)
        orders = self._surviving_orders(survivors)
        if not execute:
            seen = {name: look_at(survivors, order) for name, order in orders.items()}
            return self._all_recovered(seen, {}, damaged_settings(survivors))
        damaged = begin(survivors, self._make_one_of_several)
        done = {name: recover(survivors, order) for name, order in orders.items()}
        finish(survivors)
        orders = self._surviving_orders(survivors)  # as the lists of the roots are now
        going_on = [name for name, found in done.items() if found is not None and found.fault is None]
        failed = {name: self._caught_up(survivors, orders[name]) for name in going_on}
        return self._all_recovered(done, failed, damaged)

    def _surviving_orders(self, survivors: SurvivingRoots) -> dict[str, Order]:
        """Return the order of each topic and group at the surviving roots.

        Deleted topics too.
        """
        orders = dict[str, Order]()
        for name in _names_at(survivors, paths.TOPICS):
            with suppress(UsageError):  # no topic's directory
                orders[name] = TopicLog(self._storage, name).journal.order()
        for name in _names_at(survivors, paths.GROUPS):
            if (group := paths.parse_group(name)) is not None:
                orders[f"group {group}"] = GroupLog(self._storage, group).journal.order()
        return orders

    @staticmethod
    def _caught_up(survivors: SurvivingRoots, order: Order) -> dict[str, str]:
        try:
            for root in survivors.given_up(state_of(order.places.newest().entry)):
                remove_replica(order, root)
            return replicate(order).failed
        except (CommitLogError, OSError) as error:
            return {"": str(error)}

    @classmethod
    def _all_recovered(
        cls, found: Mapping[str, UnitRecovery | None], failed: Mapping[str, dict[str, str]], damaged: Mapping[str, str]
    ) -> tuple[Recovered, ...]:
        units = tuple(cls._recovered(name, each, failed.get(name)) for name, each in found.items())
        return units + tuple(Recovered(name, {}, fault=why) for name, why in damaged.items())

    @staticmethod
    def _recovered(name: str, found: UnitRecovery | None, failed: dict[str, str] | None = None) -> Recovered:
        if found is None:
            return Recovered(name, {}, fault="it has no replicas, or is no topic")
        lacks = found.damaged if failed is None else failed
        return Recovered(name, found.ends, found.root, found.in_sync, found.gone, found.fault, found.done, lacks)

    def _replicate_first(self, name: str) -> dict[str, int]:
        """Replicate a topic before it is maintained, where it has replicas; what fails there is logged.

        Returns:
            The roots that still lag, for ``_lagging`` when it is maintained.
        """
        self._check_root()
        if not self._is_one_of_several:
            return {}
        self._access.check(Operation.ADMIN, name)
        self._lagging.pop(name, None)
        order = TopicLog(self._storage, name).journal.order()
        return replicate_first(order, learns=name not in self._catching)

    def _group_names(self) -> list[str]:
        """Return the groups of which something is stored where it is decided."""
        names = (paths.parse_group(name) for name in (self._deciders or self.deciding).names(paths.GROUPS))
        return sorted(name for name in names if name is not None)

    def _replicate_group(self, group: str) -> None:
        order = self.group(group).journal.order()
        if order.exists():
            for root, why in replicate(order).failed.items():
                raise ReplicaNotAvailableError(f"group {group!r}: root {root} lacks what was committed: {why}")

    def _order(self, name: str) -> Order:
        """Return the order of a topic that the principal may administer."""
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, name)
        self._check_store()
        order = TopicLog(self._storage, name).journal.order()
        if not order.exists():
            raise unknown_topic(self._storage, name)
        return order

    # --- joining what exists -----------------------------------------------------------------------------

    def add_replicas(self, roots: Sequence[str]) -> tuple[RootDescription, ...]:
        """Have new roots belong together with this one, which may have stood alone: then it decides from now on.

        Its topics stay where they are until ``set_replication_factor`` gives them replicas; its consumer groups, access
        rules and defaults are copied at once. Readers and writers go on. What was cut off is finished when it is run
        again, or by ``replicate`` or ``maintain``.

        Args:
            roots: directories or URLs of empty places, each on a disk, machine or bucket of its own.

        Returns:
            The roots that belong together.

        Raises:
            UsageError: a place is not empty, is named twice, or they are too many; nothing was changed.
            CommitLogError, OSError: a root fails; run it again.
        """
        self._check_root()
        self._access.check(Operation.ADMIN, ALL)
        self._check_store()
        listed: Listed | None = None
        if self._is_one_of_several:
            Roots.of(self._storage).compare(again=True)
            listed = Roots.of(self._storage).listed()
        add_roots(self._storage, listed, [self._storage.peer(url) for url in roots], self._make_one_of_several)
        if not self._is_one_of_several:
            self._become_one_of_several()
        for settings in JOURNALS:
            spread(Roots.of(self._storage), settings)
        for group in self._group_names():
            replicate_first(self.group(group).journal.order())
        return self.replicas()

    def remove_replicas(self, roots: Sequence[str], *, to: str | None = None) -> tuple[RootDescription, ...]:
        """Take roots out: others get their replicas, as far as there are any, and lead in their place.

        A root that does not answer can be taken out, too. What it holds stays there.

        Args:
            roots: ids, directories or URLs.
            to: the root that gets their replicas; None: any that holds none.

        Returns:
            The roots that belong together then.

        Raises:
            UsageError: one is none of them, decides, or holds the only replica of something; or ``to`` is one of them.
            NotLeaderError: nobody else in sync can lead; what was done by then stays, and it can be run again.
            ReplicaNotAvailableError: a root that gets a replica has not caught up: run it again.
        """
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, ALL)
        together = Roots.of(self._storage)
        together.compare(again=True)
        ids, by = self._that_may_go(roots), None if to is None else self._root_named(to)
        if by in ids:
            raise UsageError(f"root {by} is taken out: it can't get the replicas of others; name another one")
        for root in ids:
            for order, segments in self._orders():
                self._take_out(order, segments, root, by, ids)
            remove_root(together, root)
        return self.replicas()

    def move_replicas(self, root: str, to: str) -> tuple[RootDescription, ...]:
        """Have another root, or an empty place, take all replicas of a root, which is taken out; see those two."""
        self._check_root()
        self._check_several()
        self._access.check(Operation.ADMIN, ALL)
        together = Roots.of(self._storage)
        together.compare(again=True)
        self._that_may_go([root])  # else a place would be added, and what then raises says that nothing was changed
        if all(self._storage.peer(to).url != address.url for address in together.listed().data):
            self.add_replicas([to])
        return self.remove_replicas([root], to=to)

    def _that_may_go(self, roots: Sequence[str]) -> list[str]:
        """Return the ids of roots that are to be taken out.

        Raises:
            UsageError: one holds no data of this log, or decides.
        """
        ids = [self._root_named(each) for each in roots]
        deciding = Roots.of(self._storage).listed().deciding()
        for root in ids:
            if root in deciding:
                raise UsageError(f"root {root} decides what comes next: it can't be taken out")
        return ids

    def _orders(self) -> list[tuple[Order, TopicSegments | None]]:
        """Return the order of each topic and group; with segments of topics."""
        found = list[tuple[Order, TopicSegments | None]]()
        for name in self._names():
            with suppress(UsageError):  # no topic's directory
                found.append((TopicLog(self._storage, name).journal.order(), TopicSegments(name)))
        found += [(self.group(group).journal.order(), None) for group in self._group_names()]
        return [each for each in found if each[0].exists()]

    @staticmethod
    def _take_out(
        order: Order, segments: TopicSegments | None, root: str, by: str | None, leaving: Sequence[str]
    ) -> None:
        """Have a unit have no replica on a root.

        Where the root that gets one instead does not catch up, that is taken out again: else each run would add one.
        """
        newest = order.places.newest()
        before = state_of(newest.entry).replicas if newest.entry.features else ()
        if root not in before:
            return
        chosen = replace_replica(order, root, by, leaving)
        needed = {*before, chosen} - {root, None}

        def may_go(now: ReplicaState) -> bool:  # another run may have taken out what this one goes by
            late = lags_behind(now, root, chosen, order.places.roots.answers, leaving) if chosen else None
            return needed <= {*now.replicas} and late is None

        try:
            done = replicate(order, segments)
            late = lags_behind(done.state, root, chosen, order.places.roots.answers, leaving)
            if late is not None:
                raise ReplicaNotAvailableError(
                    f"{order.places.unit.directory}: root {late} has not caught up, and root {root} was not taken out: "
                    f"{done.failed.get(late)}"
                )
            remove_replica(order, root, may_go)
        except BaseException:
            if chosen is not None and chosen not in before:
                with suppress(CommitLogError, OSError):
                    remove_replica(order, chosen, lambda now: {*before} <= {*now.replicas})
            raise

    def set_replication_factor(self, name: str, factor: int) -> Replicated:
        """Have a topic live on more roots, or on fewer, while it is written and read.

        Roots that are added get all that there is, and join the ISR. Of fewer those go first that do not answer, then
        those out of sync, then those assigned last, never the leader: one that does not answer is replaced before. What
        they hold of it stays there, and is read no more.

        Args:
            name: of the topic.
            factor: on how many roots, 1 or more.

        Returns:
            What was done, as by ``replicate``: ``failed`` has the roots that have not caught up yet.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: there are fewer roots that can hold it, one has another topic of that name, or this root stands
                alone; nothing was changed.
            NotLeaderError: the leader does not answer, and nobody else in sync: no replica was taken out. Or
                another root leads since this began: run it again.
            ReplicaNotAvailableError: too few roots answer, or the metadata root does not: run it again.
        """
        order = self._order(name)
        newest = order.places.newest()
        TopicLog(self._storage, name).newest_at(newest, None)  # raises where it is deleted
        held = state_of(newest.entry).replicas if newest.entry.features else (order.places.decider().id,)
        if factor < 1:
            raise UsageError(f"replication.factor={factor} is not allowed: 1 or more")
        if factor > len(held):
            add_replicas(order, candidates(order.places, factor - len(held)))
        if factor < len(held):
            have_fewer(order, factor)
        if not order.places.newest().entry.features:
            return Replicated(name, held[0], held)
        return _replicated(name, replicate(order, TopicSegments(name)))

    def _become_one_of_several(self) -> None:
        """Have the marker of a root that stood alone say that it belongs together with others."""
        raise NotImplementedError


class _Noted(TopicSegments):
    """Segments of a topic, which is noted before they are copied."""

    def __init__(self, name: str, stopped: Callable[[], bool], noted: set[str]) -> None:
        super().__init__(name, stopped)
        self._noted = noted

    def settled(self, donor: Storage) -> SettledTopic:
        """Note it: what is settled from now on is copied."""
        self._noted.add(self._name)
        return super().settled(donor)


def _is_late(found: Ended | None) -> bool:
    return isinstance(found, Outcome) and bool(found.lagging)


def _replicated(name: str, done: Outcome) -> Replicated:
    state = done.state
    return Replicated(
        name, state.leader, state.isr, done.elected, tuple(done.joined), tuple(done.shrunk), done.failed, done.hw_raised
    )


def _names_at(survivors: SurvivingRoots, directory: str) -> list[str]:
    return sorted(set[str]().union(*(survivors.roots.open(each.id).names(directory) for each in survivors.data)))
