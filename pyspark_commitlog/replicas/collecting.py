"""How far a root may delete what it has settled: others may need it yet (rule 7)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.replicas import rules
from pyspark_commitlog.replicas.entry_fields import state_of
from pyspark_commitlog.replicas.replica_journals import Places


def collectable(places: Places, head: Stored, older: Callable[[], int]) -> int:
    """Return the highest number that a root may delete that has learned ``head``, and settled what it deletes.

    Entries say what a root in sync was seen to have learned. Where that is below the high watermark, it is asked: that
    goes along with entries that append nothing, and stays in an unclean election. One that joins is asked, too. What
    they lack stays. One that is out of sync may come back for a while: then it lags too far.

    Args:
        places: where the unit is; the metadata root is not asked.
        head: the newest entry that the root has learned.
        older: returns the newest entry that a root that is out of sync is not waited for any longer.
    """
    state = state_of(head.entry)
    learned = {**dict.fromkeys(state.set.roots, head.sequence), **state.learned}
    below_hw = rules.roots_below_hw(state)
    learned |= {root: _learned(places, root) for root in (*below_hw, *state.joining)}
    most = rules.collectable(state, learned)
    late = [root for root in state.replicas if root not in (*state.isr, *state.joining)]
    return min(most, max(older(), min(_learned(places, root) for root in late))) if late else most


def _learned(places: Places, root: str) -> int:
    """Return the newest entry that a root has learned; 0 where it has none, or does not answer."""
    try:
        newest = places.at(root).learned()
    except (CommitLogError, OSError):
        return 0
    return 0 if newest is None else newest.sequence
