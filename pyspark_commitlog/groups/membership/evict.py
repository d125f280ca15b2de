"""Removal of dead members before a group's reset."""

from __future__ import annotations

import logging
from dataclasses import replace

from pyspark_commitlog.groups.assignment.rebalance import Observation, rebalanced
from pyspark_commitlog.groups.membership.failure_detector import Watch
from pyspark_commitlog.groups.membership.member_files import MemberFiles, topic_incarnations
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import GroupState
from pyspark_commitlog.groups.state.members import Members
from pyspark_commitlog.journal import Slot

log = logging.getLogger("pyspark_commitlog.groups")

_PART_OF_SESSION = 20
_LONGEST_NAP_SECONDS = 0.5


def remove_silent(handle: GroupLog) -> None:
    """Remove a group's members if all are silent for the longest session.

    The first sign of life ends it (rule R10).
    """
    files, watch, clock = MemberFiles.of(handle), Watch(), handle.storage.clock
    silent: dict[str, int] = {}
    while True:
        members = handle.newest().members
        if not members.rows:
            return
        for member_id, row in members.rows.items():
            identity, session = files.sign(member_id, closely=True), row.profile.session_timeout_ms / 1000
            if watch.changed(member_id, identity):
                return
            if watch.see(member_id, identity, clock.monotonic(), session):
                silent[member_id] = row.joined
        if members.rows.keys() <= silent.keys():
            break
        shortest = min(row.profile.session_timeout_ms for row in members.rows.values()) / 1000
        clock.sleep(min(shortest / _PART_OF_SESSION, _LONGEST_NAP_SECONDS))
    for member_id in silent:
        files.delete(member_id)

    def change(state: GroupState, slot: Slot) -> GroupState:
        after = _members_without(handle, state.members, silent)
        return state if after is state.members else replace(state, members=after)

    handle.change("rebalance", change)


def _members_without(handle: GroupLog, members: Members, silent: dict[str, int]) -> Members:
    stay = (row.profile for member_id, row in members.rows.items() if member_id not in silent)
    return rebalanced(members, Observation(gone=silent), topic_incarnations(handle, stay, members.topics, log.warning))
