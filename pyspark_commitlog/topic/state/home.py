"""Directories of a topic id at one root (rule R14)."""

from __future__ import annotations

from functools import partial

from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored, Unchanged
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.state.settle_state import Active, SettledPartition, SettleState
from pyspark_commitlog.topic.state.shapes import check_settle_entry
from pyspark_commitlog.topic.state.side_files import place_tables


def side_path(name: str, topic_id: str, file: str) -> str:
    """Path of a topic's side file."""
    return f"{TopicPaths(name, topic_id).side}/{file}"


def settle_journal(storage: Storage, home: TopicPaths) -> Journal:
    """Settle journal of a topic id at one root."""
    return Journal(storage, home.settle, "settle", partial(side_path, home.name), check_settle_entry)


def settle_draft(after: SettleState, slot: Slot) -> Draft[None]:
    """Draft of the settle entry that publishes a state."""
    tables = place_tables(after.to_tables(), slot.sequence, slot.write_id)
    return Draft("settle", after.topic_id, {**after.to_body(), **tables.body}, sides=tables.sides, result=None)


def make_home(storage: Storage, home: TopicPaths, partitions: int) -> None:
    """Make a topic id's directories and first settle entry, if missing."""
    for directory in (home.settle, home.staged, home.side, home.manifests):
        storage.make_directory(directory)
    settled = tuple(SettledPartition(0, Active(IndexState(0))) for _ in range(partitions))
    state = SettleState(home.topic_id, (0, ""), 1, settled)

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        return settle_draft(state, slot) if base is None else Unchanged(None)

    settle_journal(storage, home).append(plan)
