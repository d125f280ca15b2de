"""State of replicas in entries and drafts."""

from __future__ import annotations

from dataclasses import replace

from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal import Draft, Stored
from pyspark_commitlog.journal.entries import Result
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState

#: Kind of an entry that states a high watermark.
HW = "hw"
#: Parsed states that are cached: each step of a commit asks for the same entries.
_MOST_READ = 16
_read: dict[int, tuple[object, ReplicaState]] = {}


class NotReplicatedError(ReplicaNotAvailableError):
    """The unit is on one root alone."""


def state_of(entry: Entry) -> ReplicaState:
    """State of replicas in an entry.

    Raises `NotReplicatedError` without one.
    """
    if not entry.is_replicated:
        raise NotReplicatedError(f"entry {entry.sequence}: it has no replicas: it is on the root that decides alone")
    said = entry.body["state"]["replicas"]
    kept = _read.get(id(said))
    if kept is not None:
        return kept[1]
    state = ReplicaState.from_json(said)
    if len(_read) >= _MOST_READ:
        _read.clear()
    _read[id(said)] = said, state  # keeping the source keeps its id unique
    return state


def with_state(draft: Draft[Result], state: ReplicaState) -> Draft[Result]:
    """Draft with this state of replicas."""
    said = {**draft.body["state"], "replicas": state.to_json(), "leaderEpoch": state.leader_epoch}
    return replace(draft, body={**draft.body, "state": said})


def without_append(kind: str, base: Stored, state: ReplicaState, result: Result) -> Draft[Result]:
    """Draft that changes only the state of replicas."""
    body = {"state": base.entry.body["state"]}
    return with_state(Draft(kind, base.entry.topic_id, body, result=result), state)


def states_hw_alone(entry: Entry) -> bool:
    """Whether an entry only states its base as `hw`."""
    return entry.kind == HW and state_of(entry).hw == entry.sequence - 1
