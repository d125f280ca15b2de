"""Bound on a root's deletes: others may need it (rule 7)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replication.metadata.places import Places
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.replication.protocol.entry_fields import state_of


def collectable(places: Places, head: Stored, older: Callable[[], int]) -> int:
    """Highest number that a root that settled it may delete.

    Joining roots are asked; in-sync roots if entries show them below the high watermark, which passes entries without
    appends and stays in an unclean election. Out-of-sync roots are waited for up to `older()`.
    """
    state = state_of(head.entry)
    learned = {**dict.fromkeys(state.set.roots, head.sequence), **state.learned}
    below_hw = rules.roots_below_hw(state)
    learned |= {root: _learned(places, root) for root in (*below_hw, *state.joining)}
    most = rules.collectable(state, learned)
    late = [root for root in state.replicas if root not in (*state.isr, *state.joining)]
    return min(most, max(older(), min(_learned(places, root) for root in late))) if late else most


def _learned(places: Places, root: str) -> int:
    try:
        newest = places.at(root).learned()
    except (CommitLogError, OSError):
        return 0
    return 0 if newest is None else newest.sequence
