"""`Replicas`: roots that belong together, and the replicas of their topics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import overload

from pyspark_commitlog.api.recovery import recover
from pyspark_commitlog.api.replace_metadata import replace_metadata
from pyspark_commitlog.api.replica_sync import ReplicaSync, group_names, order_of
from pyspark_commitlog.config import ALL
from pyspark_commitlog.errors import CommitLogError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.model import Recovered, Replicated
from pyspark_commitlog.replication.admin.joining import add_roots, remove_replica, remove_root, replace_replica
from pyspark_commitlog.replication.admin.replicating import hand_over, replicate, replicate_first
from pyspark_commitlog.replication.admin.settings import JOURNALS, spread
from pyspark_commitlog.replication.admin.unit_status import fault_at
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.placement import lags_behind
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.replication.protocol.roots import Listed, Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import become_replicated, make_replicated_root
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic_description import RootDescription


class Replicas:
    """Roots that belong together with a root, and their replicas of topics and groups.

    A topic's replicas share one leader and one in-sync set (ISR).
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def describe(self) -> tuple[RootDescription, ...]:
        """Roots that belong together: which answer, and which topics each leads.

        A root that stands alone is the only one; topics are those that the principal may see.

        Raises:
            RootNotFoundError: there is no root here.
            CorruptionError: the list of the roots is damaged.
        """
        self._root.check()
        if not self._root.is_replicated:
            names = tuple(name for name in self._root.listed() if self._led_by(name) is not None)
            return (RootDescription(self._root.root_id, self._root.url, metadata=True, leads=names),)
        roots = Roots.of(self._root.storage)
        roots.compare()
        listed, leads = roots.listed(), dict[str, list[str]]()
        for name in self._root.listed():
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
        """Root that leads a topic, as decided, else as learned here; None: no topic."""
        try:
            topic = TopicLog(self._root.storage, name)
            stored = self._newest(topic)
        except (CommitLogError, OSError):  # damaged, or nobody's directory
            return None
        if stored is None or topic.state_of(stored.entry).deleted:
            return None
        if stored.entry.is_replicated:
            return state_of(stored.entry).leader
        if self._root.is_replicated:  # it is on the root that decides alone
            return Roots.of(self._root.storage).listed().metadata[0].id
        return self._root.root_id

    def _newest(self, topic: TopicLog) -> Stored | None:
        if self._root.is_replicated:
            with suppress(CommitLogError, OSError):
                return topic.journal.decided_log().places.newest()
        return topic.journal.head()

    def elect(self, name: str, to: str | None = None, *, unclean: bool = False) -> str:
        """Elect another leader of a topic, one in sync: nothing acknowledged with acks=all is lost.

        While the present leader answers, all replicas in sync first learn its entries.

        Args:
            name: topic name.
            to: the root's id, directory or URL; None for the one in sync that has learned most, but the leader.
            unclean: if the leader is gone and no root in sync can lead, elect one out of sync. Records that it lacks
                are lost for good, also acknowledged and read ones; their offsets stay a gap.

        Returns:
            The leader's id; if `to` led already, nothing was changed.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: there is no such root, or the root stands alone.
            NotLeaderError: that root is not in sync or does not answer, or no other one can lead; nothing was changed.
            ReplicaNotAvailableError: the metadata root does not answer: nothing can be decided.
        """
        decided_log = order_of(self._root, name)
        TopicLog(self._root.storage, name).newest_at(decided_log.places.newest(), None)  # raises if it is deleted
        root = None if to is None else self._root_named(to)
        return hand_over(decided_log, root, "it was asked for", unclean=unclean).leader

    def _root_named(self, named: str) -> str:
        """Id of a named root."""
        addresses = Roots.of(self._root.storage).listed().data
        for address in addresses:
            if named in (address.id, address.url) or self._root.storage.peer(named).url == address.url:
                return address.id
        raise UsageError(f"{named} is none of the roots that hold data: {', '.join(map(str, addresses))}")

    @overload
    def sync(self, name: str) -> Replicated: ...

    @overload
    def sync(self, name: None = None) -> tuple[Replicated, ...]: ...

    def sync(self, name: str | None = None) -> Replicated | tuple[Replicated, ...]:
        """Bring the replicas of a topic in sync: what no writer waits for.

        All replicas learn what is decided, those that answer again rejoin the ISR, the high watermark is stated, and a
        leader that does not answer is replaced. Safe at any time, from any process, twice at once. Nothing is settled
        or removed: `maintain` does that, at each root. Without a name also consumer groups, and defaults and access
        rules, which are copied to all roots; four topics, or groups, at a time. A root that lags far delays no other
        topic: each has a turn of 10 s, then those that lag have a minute, and so on until none lags, or others write as
        fast as it learns. An interrupted replacement of a metadata root is finished.

        Args:
            name: topic name; None for all, deleted ones too.

        Raises:
            UsageError: the root stands alone.
            UnknownTopicError: there is no such topic.
            ReplicaNotAvailableError: the metadata root does not answer: nothing can be decided.
            ExceptionGroup: of all topics, groups and settings some failed; the others were synced.
        """
        sync = ReplicaSync(self._root)
        return sync.sync_all() if name is None else sync.sync(name)

    def recover(self, metadata: str, lost: Sequence[str], *, execute: bool = False) -> tuple[Recovered, ...]:
        """Go on without a metadata root that is lost for good; by default only report the result.

        Of each topic the longest journal left is taken, and its root leads, alone in sync; the others learn from it and
        join; consumer groups likewise. What only the lost roots knew is gone. They must stay off: one that comes back
        can't take part, and what a process does at it alone is in no log that goes on. Running it again finishes an
        interrupted run.

        Args:
            metadata: the next metadata root: a root that is left, or an empty place.
            lost: ids or URLs of the roots given up: all that do not answer, the metadata root too.
            execute: do it; otherwise nothing is changed.

        Returns:
            A row for each topic and group, and for settings that no root has whole.

        Raises:
            UsageError: a lost root answers, another does not, or the metadata is not lost.
            CommitLogError, OSError: a root that is left fails.
        """
        return recover(self._root, metadata, lost, execute=execute)

    def replace_metadata(self, old: str, new: str) -> tuple[RootDescription, ...]:
        """Replace a metadata root, of three or five, by an empty place: one that is lost, or is to move.

        Writers, readers and groups go on. The old one has no vote any more, whatever it holds when it comes back. The
        next run finishes an interrupted one; until then a majority of the former ones has to answer.

        Args:
            old: the root's id, directory or URL.
            new: a directory or URL; the same one if that is empty now.

        Returns:
            The roots that belong together.

        Raises:
            UsageError: one root decides alone, `old` is none of those that do, or `new` is not empty; nothing was
                changed.
            ReplicaNotAvailableError: too few of the other metadata roots answer, or the new one could not learn all;
                run it again.
            ConflictError: another one was replaced meanwhile; run it again.
        """
        replace_metadata(self._root, old, new)
        return self.describe()

    def add(self, roots: Sequence[str]) -> tuple[RootDescription, ...]:
        """Add roots to this one; if it stood alone, it decides from now on.

        Its topics stay where they are until `set_replication_factor` gives them replicas; its consumer groups, access
        rules and defaults are copied at once. Readers and writers go on. Another run finishes an interrupted one, as do
        `sync` and `maintain`.

        Args:
            roots: directories or URLs of empty places, each on a disk, machine or bucket of its own.

        Returns:
            The roots that belong together.

        Raises:
            UsageError: a place is not empty, is named twice, or they are too many; nothing was changed.
            CommitLogError, OSError: a root fails; run it again.
        """
        self._root.check()
        self._root.local_access.check(Operation.ADMIN, ALL)
        self._root.check_store()
        listed: Listed | None = None
        if self._root.is_replicated:
            Roots.of(self._root.storage).compare(again=True)
            listed = Roots.of(self._root.storage).listed()
        add_roots(self._root.storage, listed, [self._root.storage.peer(url) for url in roots], make_replicated_root)
        if not self._root.is_replicated:
            become_replicated(self._root)
        for settings in JOURNALS:
            spread(Roots.of(self._root.storage), settings)
        for group in group_names(self._root):
            replicate_first(self._root.group(group).journal.decided_log())
        return self.describe()

    def remove(self, roots: Sequence[str], *, to: str | None = None) -> tuple[RootDescription, ...]:
        """Remove roots; others get their replicas and lead in their place.

        A root that does not answer can be removed too. Its files stay there.

        Args:
            roots: ids, directories or URLs.
            to: the root that gets their replicas; None: any that holds none.

        Returns:
            The roots that then belong together.

        Raises:
            UsageError: one is none of them, decides, or holds the only replica of something; or `to` is one of them.
            NotLeaderError: nobody else in sync can lead; what was done stays, and it can be run again.
            ReplicaNotAvailableError: a root that gets a replica has not caught up: run it again.
        """
        self._root.check_replica_admin()
        together = Roots.of(self._root.storage)
        together.compare(again=True)
        ids, by = self._that_may_go(roots), None if to is None else self._root_named(to)
        if by in ids:
            raise UsageError(f"root {by} is taken out: it can't get the replicas of others; name another one")
        for root in ids:
            for decided_log, segments in self._orders():
                self._take_out(decided_log, segments, root, by, ids)
            remove_root(together, root)
        return self.describe()

    def move(self, root: str, to: str) -> tuple[RootDescription, ...]:
        """Move a root's replicas to another root, or an empty place, and remove it; see `add` and `remove`."""
        self._root.check_replica_admin()
        together = Roots.of(self._root.storage)
        together.compare(again=True)
        self._that_may_go([root])  # else a place would be added, and what then raises says that nothing was changed
        if all(self._root.storage.peer(to).url != address.url for address in together.listed().data):
            self.add([to])
        return self.remove([root], to=to)

    def _that_may_go(self, roots: Sequence[str]) -> list[str]:
        """Ids of roots to be removed; refuse those that decide or hold no data."""
        ids = [self._root_named(each) for each in roots]
        deciding = Roots.of(self._root.storage).listed().deciding()
        for root in ids:
            if root in deciding:
                raise UsageError(f"root {root} decides what comes next: it can't be taken out")
        return ids

    def _orders(self) -> list[tuple[DecidedLog, TopicSegments | None]]:
        """DecidedLog of each topic and group; with segments of topics."""
        found = list[tuple[DecidedLog, TopicSegments | None]]()
        for name in self._root.names():
            with suppress(UsageError):  # no topic's directory
                found.append((TopicLog(self._root.storage, name).journal.decided_log(), TopicSegments(name)))
        found += [(self._root.group(group).journal.decided_log(), None) for group in group_names(self._root)]
        return [each for each in found if each[0].exists()]

    @staticmethod
    def _take_out(
        decided_log: DecidedLog, segments: TopicSegments | None, root: str, by: str | None, leaving: Sequence[str]
    ) -> None:
        """Remove the replica of a topic or group from a root.

        A replacement that does not catch up is removed again: otherwise each run would add one.
        """
        newest = decided_log.places.newest()
        before = state_of(newest.entry).replicas if newest.entry.is_replicated else ()
        if root not in before:
            return
        chosen = replace_replica(decided_log, root, by, leaving)
        needed = {*before, chosen} - {root, None}

        def may_go(now: ReplicaState) -> bool:  # another run may have taken out what this one goes by
            late = lags_behind(now, root, chosen, decided_log.places.roots.answers, leaving) if chosen else None
            return needed <= {*now.replicas} and late is None

        def take_back() -> None:
            if chosen is not None and chosen not in before:
                with suppress(CommitLogError, OSError):
                    remove_replica(decided_log, chosen, lambda now: {*before} <= {*now.replicas})

        with call_on_error(take_back):
            done = replicate(decided_log, segments)
            late = lags_behind(done.state, root, chosen, decided_log.places.roots.answers, leaving)
            if late is not None:
                raise ReplicaNotAvailableError(
                    f"{decided_log.places.unit.directory}: root {late} has not caught up, and root {root} was "
                    f"not taken out: {done.failed.get(late)}"
                )
            remove_replica(decided_log, root, may_go)
