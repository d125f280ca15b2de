"""What a topic's newest entries say: its visible state, and the files that hold it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class View:
    """Newest entries of both journals, read in that order.

    `history` differs between views that may be of two histories, as around a restore.
    """

    topic: TopicState
    newest: Entry
    settle: SettleState
    history: int = 0


def read_view(topic: TopicLog, topic_id: str, *, durable: bool = False) -> View:
    """Return the visible state and its files (rule R12).

    `durable`: none of it can be taken back (R5); tasks need it not, as their planner asked.
    """
    stored, state = topic.newest_durable(topic_id) if durable else topic.newest(topic_id)
    _, settle = topic.settled(topic_id)
    return View(state, stored.entry, settle)
