"""Copy of a settled log to a root that lags (rule 7).

Checked frames are written into segments of the target's kind; one settle entry publishes them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pyspark_commitlog.errors import CorruptionError, ReplicaNotAvailableError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.replica_fetch.settled_copy import SettledCopy, SettledTopic, newest_state
from pyspark_commitlog.topic.state.home import make_home
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Attempts at finding a root settled completely while others append or settle.
_TRIES = 20
_PAUSE_SECONDS = 0.2


class TopicSegments:
    """`SegmentCopier` of one topic.

    `stopped` is asked before each frame; if true nothing is published.
    """

    def __init__(self, name: str, stopped: Callable[[], bool] = lambda: False) -> None:
        self._name, self._stopped = name, stopped

    def settled(self, donor: Storage) -> SettledTopic:
        """Settle everything that a root's readers see, and return it.

        Raises:
            ReplicaNotAvailableError: it has nothing, or can't settle all of it.
        """
        topic = TopicLog(donor, self._name)
        for _ in range(_TRIES):
            stored = topic.journal.newest()
            if stored is None:
                break
            topic.journal.assure(stored)
            state = topic.state_of(stored.entry)
            if state.deleted:
                return SettledTopic(stored.sequence, stored.entry.write_id, state, None)
            settle_on(topic, state.topic_id)
            settled = topic.settled(state.topic_id)[1]
            if settled.damaged:
                raise CorruptionError(
                    f"topic {self._name!r} in {donor.url}: partition {settled.damaged[0].partition} is damaged, so "
                    f"nothing is copied from there: {settled.damaged[0].why}. `commitlog replicas repair {donor.url}` "
                    "fetches from other roots what they have of it"
                )
            if (found := reached(topic, settled)) is not None:
                return SettledTopic(found.sequence, found.entry.write_id, topic.state_of(found.entry), settled)
            donor.clock.sleep(_PAUSE_SECONDS)
        raise ReplicaNotAvailableError(
            f"topic {self._name!r}: {donor.url} has not settled what its readers see: run `commitlog maintain` there"
        )

    def copy(
        self,
        donor: Storage,
        target: Storage,
        there: SettledTopic,
        moved: Callable[[SettledTopic], None] = lambda _: None,
    ) -> tuple[int, str]:
        """Copy a settled log; return its last copied entry.

        A later one than `there` if the target is further, or the donor's log was replaced: `moved` gets each
        replacement before its copy.

        Raises:
            ReplicaNotAvailableError: another process settles or copies there, or it was stopped.
            CorruptionError: the donor's log is damaged; nothing was published.
            CommitLogError, OSError: nothing was published, or everything.
        """
        state, through = there.state, (there.sequence, there.write_id)
        target.make_directory(paths.journal(self._name))
        if there.settled is None:
            return through
        make_home(target, TopicPaths(self._name, state.topic_id), state.partitions)
        into = TopicLog(target, self._name)
        known, again = newest_state(into, there), partial(self.settled, donor)
        copy = SettledCopy(TopicLog(donor, self._name), into, there, *known, again, moved, self._stopped)
        if not target.can_append:
            return copy.change()
        with copy.into.settling(state.topic_id) as held:
            if not held:
                raise ReplicaNotAvailableError(
                    f"topic {self._name!r}: {copy.into.busy} settles at {target.url}: run `commitlog replicas sync` "
                    "again"
                )
            return copy.publish()


def reached(topic: TopicLog, settled: SettleState) -> Stored | None:
    """Visible entry that ends where the settled log does."""
    shown = topic.newest(settled.topic_id)[0]
    found = [shown]
    with suppress(FileNotFoundError):  # collected, or nothing was settled yet
        found.append(topic.journal.read(settled.through[0]))
    for stored in found:
        if stored.sequence <= shown.sequence and stored.entry.topic_id == settled.topic_id:
            ends = topic.state_of(stored.entry).log_end
            if ends == tuple(settled.partition(partition).end_offset for partition in range(len(ends))):
                return stored
    return None
