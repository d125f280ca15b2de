"""Add roots and replicas, also to a root alone (rule 12).

New roots list it, then it lists them, then its marker says so: after an interruption the next run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, NotLeaderError, ReplicaNotAvailableError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.leader.placement import (
    DEFAULT_FACTOR,
    first_free,
    held_and_free,
    leaving,
    so_many_free,
)
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of, without_append
from pyspark_commitlog.replication.protocol.replica_state import MetadataSet, ReplicaState
from pyspark_commitlog.replication.protocol.roots import (
    MAX_ROOTS,
    Address,
    Listed,
    Roots,
    check_identity,
    distinct,
    list_at,
    root_id,
)
from pyspark_commitlog.replication.protocol.rules import Reason, RefusedError
from pyspark_commitlog.storage import Storage

logger = logging.getLogger("pyspark_commitlog.replication")


# --- Roots ---------------------------------------------------------------------------------------------------------


def add_roots(own: Storage, listed: Listed | None, new: Sequence[Storage], make: Callable[[Storage], None]) -> Listed:
    """List new roots and others at each other; return the list.

    Args:
        listed: None if it stands alone.
        new: empty places, or roots of an interrupted call.
    """
    before = listed or Listed((Address(root_id(own), own.url),), (Address(root_id(own), own.url),), version=0)
    fresh = [storage for storage in new if all(each.url != storage.url for each in before.data)]
    if len(before.data) + len(fresh) > MAX_ROOTS:
        raise UsageError(f"{len(before.data) + len(fresh)} roots for data: at most {MAX_ROOTS} can belong together")
    old, begun = [_opened(own, each) for each in before.deciding_first()], list[Listed]()
    for storage in fresh:
        begun += begun_at(storage, before)
        refuse_same_place(storage, old)
    for storage in fresh:
        make(storage)
    every = [*old, *fresh]
    ids = [root_id(storage) for storage in every]
    distinct(every, ids)
    added = tuple(Address(found, storage.url) for found, storage in zip(ids[len(old) :], fresh, strict=True))
    after = before.followed_by((*before.data, *added), before.metadata, begun)
    for storage in [*fresh, *old]:
        Roots.of(storage).change(after)
    return after


def remove_root(roots: Roots, root: str) -> None:
    """Take a root without replicas out of all lists."""
    listed = roots.listed()
    after = listed.followed_by((each for each in listed.data if each.id != root), listed.metadata)
    own = roots.own_id()
    with suppress(CommitLogError, OSError):  # it may be gone; it can't be opened once this root's list has changed
        roots.open(root)
    for address in sorted(listed.deciding_first(), key=lambda each: each.id == root):
        try:
            (roots if address.id == own else Roots.of(roots.open(address.id))).change(after)
        except (CommitLogError, OSError) as error:
            if address.id != root:
                raise
            logger.warning("%s is taken out, and does not know it yet: %s", address, error)


def _opened(own: Storage, address: Address) -> Storage:
    storage = own if own.url == address.url else own.peer(address.url)
    try:
        check_identity(storage, address)
    except ReplicaNotAvailableError as error:
        raise ReplicaNotAvailableError(
            f"{error}. Nothing was changed: bring it back, or take it out first (`commitlog replicas remove`)"
        ) from error
    return storage


def refuse_same_place(storage: Storage, others: Sequence[Storage]) -> None:
    """Refuse a directory that is another root's."""
    same = next((each for each in others if each.place() is not None and each.place() == storage.place()), None)
    if same is not None:
        raise UsageError(f"{storage.url} and {same.url} are one directory: each replica needs a place of its own")


def begun_at(storage: Storage, before: Listed) -> list[Listed]:
    """Interrupted call's list at a place, if any.

    A late process may have put entries at an emptied root.
    """
    is_filled = bool(storage.names(paths.TOPICS) or storage.names(paths.GROUPS))
    if not storage.exists(paths.ROOT_MARKER):
        if is_filled:
            raise UsageError(
                f"{storage.url} is not empty: there are {paths.TOPICS} or {paths.GROUPS} without {paths.ROOT_MARKER}; "
                "nothing was changed: empty it, or name another place"
            )
        return []
    theirs = list_at(storage)
    if theirs is None and not is_filled:
        return []
    if theirs is None or theirs.metadata != before.metadata:
        raise UsageError(f"there is a commit log at {storage.url} already; nothing was changed: name empty places")
    return [theirs]


# --- Replicas of a topic -------------------------------------------------------------------------------------------


def give_default(decided_log: DecidedLog) -> dict[str, str]:
    """Give a group a new one's number of replicas.

    Return failures by root. Replicas at unlisted roots are taken out.
    """
    held, free = held_and_free(decided_log.places)
    if _take_out_unlisted(decided_log, held):
        held, free = held_and_free(decided_log.places)
    many = min(DEFAULT_FACTOR, len(decided_log.places.roots.listed().data)) - len(held)
    chosen, failed = first_free(decided_log.places, free, many)
    if chosen:
        add_replicas(decided_log, chosen)
    return {root: str(error) for root, error in failed.items()} if len(chosen) < many else {}


def _take_out_unlisted(decided_log: DecidedLog, held: Sequence[str]) -> bool:
    roots = decided_log.places.roots
    if all(roots.listed().address(root) for root in held):
        return False
    roots.compare(again=True)  # the list in memory may be older than the root's
    gone = [root for root in held if roots.listed().address(root) is None]
    for root in gone:
        try:
            remove_replica(decided_log, root)
        except NotLeaderError as error:  # it leads, and nobody else answers
            raise ReplicaNotAvailableError(str(error)) from error
    return bool(gone)


def add_replicas(decided_log: DecidedLog, roots: Sequence[str]) -> None:
    """Add replicas out of sync, perhaps the first ones."""
    decider = decided_log.places.decider()

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        assert base is not None
        if base.entry.is_replicated:
            state = state_of(base.entry)
        elif decided_log.places.deciding() == (decider.id,) and _holds_data(decided_log, decider.id):
            of = MetadataSet(0, decider.storage.new_id(), (decider.id,))
            state = rules.created(of, (decider.id,), decider.id, slot.sequence)
        else:
            raise UsageError(f"{decider.storage.url} holds no data: {decided_log.places.unit.directory} is not there")
        after = state
        for root in roots:
            after = after if root in after.replicas else rules.added(after, root)
        if base.entry.is_replicated and after == state:
            return Unchanged(None)
        if base.entry.is_replicated:
            after = rules.after_other(after, base.sequence, slot.sequence)
        return without_append("replicas", base, after, None)

    decided_log.places.decide(plan)


def _holds_data(decided_log: DecidedLog, root: str) -> bool:
    return any(each.id == root for each in decided_log.places.roots.listed().data)


def replace_replica(decided_log: DecidedLog, root: str, by: str | None, leaving: Container[str] = ()) -> str | None:
    """Add a replica in another's place, perhaps `by`; return its root.

    An interrupted call may have added it. Roots that are `leaving` get none.
    """
    newest = decided_log.places.newest()
    state = state_of(newest.entry) if newest.entry.is_replicated else None
    if state is None or root not in state.replicas:
        return None
    if by is not None and by in state.replicas and by not in state.isr:
        return by
    _, every = held_and_free(decided_log.places)
    free = [each for each in every if each not in leaving]
    if not free:
        return None
    (chosen,) = so_many_free(decided_log.places, [by] if by is not None and by in free else free, 1)
    add_replicas(decided_log, [chosen])
    return chosen


def have_fewer(decided_log: DecidedLog, factor: int) -> None:
    """Take out replicas down to `factor`; replace a lost leader first.

    Raises:
        NotLeaderError: nothing was changed, or another leads meanwhile: run it again.
    """
    decided_log.elections.leader()
    state = state_of(decided_log.places.newest().entry)
    answering = [root for root in state.replicas if decided_log.places.roots.answers(root)]
    for root in leaving(state, answering, len(state.replicas) - factor):
        remove_replica(decided_log, root)


def remove_replica(
    decided_log: DecidedLog, root: str, may_go: Callable[[ReplicaState], bool] = lambda now: True
) -> None:
    """Take a replica out; a leader hands over first.

    Its files stay; its last entry says that it is no replica. `may_go` judges the base's state.
    """
    places = decided_log.places
    state = state_of(places.newest().entry)
    if state.replicas == (root,):
        raise UsageError(f"{places.unit.directory}: root {root} holds the only replica")
    if root == state.leader:
        decided_log.elections.elect(why="its root is taken out")
    decided_log.pusher.push()

    def remove(now: ReplicaState, base: Stored) -> ReplicaState:
        if not may_go(now):
            raise RefusedError(Reason.LAGS, f"root {root} is needed")
        return rules.without_replica(now, root)

    gone = decided_log.pusher.change("replicas", remove)
    if not gone and root in state_of(places.newest().entry).replicas:
        raise NotLeaderError(
            f"{places.unit.directory}: root {root} leads, or others were taken out meanwhile: it was not; run it again"
        )
    decided_log.pusher.tell(root)
