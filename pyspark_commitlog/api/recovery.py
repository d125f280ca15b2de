"""Recovers from the loss of the metadata root, with what the remaining roots have learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyspark_commitlog.errors import CommitLogError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.model import Recovered
from pyspark_commitlog.replication.admin.joining import remove_replica
from pyspark_commitlog.replication.admin.recovering import begin, damaged_settings, finish, recover as recover_unit
from pyspark_commitlog.replication.admin.replicating import replicate
from pyspark_commitlog.replication.admin.surviving import SurvivingRoots, UnitRecovery, look_at, surviving_roots
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_replicated_root
from pyspark_commitlog.topic.topic_log import TopicLog


def recover(root: Root, metadata: str, lost: Sequence[str], *, execute: bool) -> tuple[Recovered, ...]:
    """See `Replicas.recover`."""
    root.check_replica_admin()
    survivors = surviving_roots(Roots.of(root.storage), root.storage.peer(metadata), lost)
    orders = _surviving_orders(root, survivors)
    if not execute:
        seen = {name: look_at(survivors, decided_log) for name, decided_log in orders.items()}
        return _all_recovered(seen, {}, damaged_settings(survivors))
    damaged = begin(survivors, make_replicated_root)
    done = {name: recover_unit(survivors, decided_log) for name, decided_log in orders.items()}
    finish(survivors)
    orders = _surviving_orders(root, survivors)  # as the lists of the roots are now
    going_on = [name for name, found in done.items() if found is not None and found.fault is None]
    failed = {name: _caught_up(survivors, orders[name]) for name in going_on}
    return _all_recovered(done, failed, damaged)


def _surviving_orders(root: Root, survivors: SurvivingRoots) -> dict[str, DecidedLog]:
    """DecidedLog of each topic, deleted ones too, and of each group at the surviving roots."""
    orders = dict[str, DecidedLog]()
    for name in _names_at(survivors, paths.TOPICS):
        with suppress(UsageError):  # no topic's directory
            orders[name] = TopicLog(root.storage, name).journal.decided_log()
    for name in _names_at(survivors, paths.GROUPS):
        if (group := paths.parse_group(name)) is not None:
            orders[f"group {group}"] = GroupLog(root.storage, group).journal.decided_log()
    return orders


def _caught_up(survivors: SurvivingRoots, decided_log: DecidedLog) -> dict[str, str]:
    try:
        for root in survivors.given_up(state_of(decided_log.places.newest().entry)):
            remove_replica(decided_log, root)
        return replicate(decided_log).failed
    except (CommitLogError, OSError) as error:
        return {"": str(error)}


def _all_recovered(
    found: Mapping[str, UnitRecovery | None], failed: Mapping[str, dict[str, str]], damaged: Mapping[str, str]
) -> tuple[Recovered, ...]:
    units = tuple(_recovered(name, each, failed.get(name)) for name, each in found.items())
    return units + tuple(Recovered(name, {}, fault=why) for name, why in damaged.items())


def _recovered(name: str, found: UnitRecovery | None, failed: dict[str, str] | None = None) -> Recovered:
    if found is None:
        return Recovered(name, {}, fault="it has no replicas, or is no topic")
    lacks = found.damaged if failed is None else failed
    return Recovered(name, found.ends, found.root, found.in_sync, found.gone, found.fault, found.done, lacks)


def _names_at(survivors: SurvivingRoots, directory: str) -> list[str]:
    return sorted(set[str]().union(*(survivors.roots.open(each.id).names(directory) for each in survivors.data)))
